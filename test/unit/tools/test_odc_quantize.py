"""odc-quantize: what it writes, says and refuses; how good models get is tested elsewhere."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import rescaled_mobilenet, squeeze_excite
from odc_mlir.errors import OptionError
from odc_mlir.formats.calibration import Pictures
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.policy.declarations import OPTIONS, flag_of
from odc_mlir.tools import odc_compile, odc_quantize, quantizing


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A model, a model that needs help, and samples with labels for the first."""
    folder = tmp_path_factory.mktemp("models")
    (module, samples), (hard, hard_samples) = squeeze_excite(), rescaled_mobilenet()
    (folder / "se.circle").write_bytes(write_model(export_model(module)))
    (folder / "hard.circle").write_bytes(write_model(export_model(hard)))
    data = np.concatenate([sample[0] for sample in samples[:16]])  # few, by which labels are not told from luck
    np.savez(folder / "data.npz", in_0=data, y=np.arange(len(data)) % 6)
    np.savez(folder / "hard.npz", in_0=np.concatenate([sample[0] for sample in hard_samples]))
    return folder / "se.circle", folder / "hard.circle", folder / "data.npz"


def _run(*arguments: object) -> int:
    return odc_quantize.main([str(argument) for argument in arguments])


def test_model_reports_and_records(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, data = files
    out, report, page, store = (tmp_path / name for name in ("q.circle", "v.json", "v.html", "r.sqlite"))
    common = (model, "--no-help", "--scheme", "int8")
    reports = ("--json", report, "--report-html", page, "--save-records", store)
    assert _run(*common, "--calibration", data, "--labels", "-o", out, *reports) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert re.fullmatch(r"se: int8, right answers \S+ % -> \S+ % on \d+ samples", lines[0])
    assert lines[1] == f"  file {model.stat().st_size:,} -> {out.stat().st_size:,} bytes"
    assert lines[2].startswith("  passed")
    assert all(re.search(r"\): \S+ %, (harmless|tolerable|harmful)$", line) for line in lines if line[:4] == "    ")
    assert lines[-1].endswith(f"then odc-compile {out} --target npu-256 -o out/package"), "limits are uncertain"
    assert "mpeir" not in text
    verdict = json.loads(report.read_text())
    assert verdict["passed"]
    assert set(verdict["scheme"].values()) == {"int8"}
    html = page.read_text()
    assert "<table" in html
    assert "http" not in html, "the page stands alone"
    assert "stem" in html
    first = out.read_bytes()
    again = tmp_path / "again.circle"
    assert _run(*common, "--records", store, "-o", again, "--allow-accuracy-loss", "-q") == 0
    assert again.read_bytes() == first
    assert capsys.readouterr().out == ""


def test_what_is_checked_on_made_up_inputs_is_written_and_never_called_passed(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, data = files
    said = "not checked: no samples were given; limits hold on made-up inputs only; give samples: --calibration"
    assert _run(model, "--calibration", data, "--no-help", "--save-records", tmp_path / "minmax.bin") == 0
    capsys.readouterr()
    for number, given in enumerate(
        (("--scheme", "int8_wo"), ("--records", tmp_path / "minmax.bin", "--metric", "mpeir"))
    ):
        out, report = tmp_path / f"q{number}.circle", tmp_path / f"q{number}.json"
        assert _run(model, *given, "-o", out, "--json", report) == 0
        caught = capsys.readouterr()
        assert f"odc-quantize: warning: se: {said}" in caught.err
        assert " on 8 made-up inputs" in caught.out.splitlines()[0]
        assert f"  {said.partition('; give')[0]}: " in caught.out
        assert f"next: give samples to check the accuracy, then odc-compile {out} " in caught.out
        assert "passed" not in caught.out
        assert json.loads(report.read_text())["status"] == "unchecked"
        assert out.exists()
    package = tmp_path / "package"
    assert odc_compile.main([str(a) for a in (model, "--quantize", "int8_wo", "-o", package)]) == 0
    assert said in capsys.readouterr().err


def test_a_missed_limit_is_an_error_and_nothing_is_written(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, model, data = files
    out = tmp_path / "q.tflite"
    arguments = (model, "--calibration", data.with_name("hard.npz"), "--no-help", "-o", out)
    assert _run(*arguments) == 1
    caught = capsys.readouterr()
    assert caught.err.startswith("odc-quantize: error: the quantised model failed: mpeir ")
    assert "worst layers: 'block" in caught.err
    assert "; allow help, which searches for better parameters, or allow more loss (--limit)" in caught.err
    assert re.search(r"FAILED: the largest error of a sample is .* \(limit 10\.0 %\), not kept", caught.out)
    assert "next:" not in caught.out
    assert not out.exists()
    assert _run(*arguments, "--allow-accuracy-loss") == 0
    assert read_model(out).schema == "tflite"


def test_a_missed_budget_is_no_matter_of_loss(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, data = files
    common = (model, "--calibration", data, "--no-help", "-q", "-o", tmp_path / "q.circle")
    assert _run(*common, "--max-size", "1K") == 1
    said = capsys.readouterr().err
    least = re.search(
        r"the limit is 1,024; the smallest file found within the limits has ([\d,]+) bytes: --max-size (\d+) ", said
    )
    assert least is not None
    assert int(least[1].replace(",", "")) == int(least[2]) > 1024
    assert _run(*common, "--max-size", least[2], "--allow-accuracy-loss") == 0
    (tmp_path / "q.circle").unlink()
    assert _run(*common, "--target", "npu-256", "--max-time", "0.00001") == 1
    said = capsys.readouterr().err
    assert " 0 layer" not in said
    assert "min_coverage=" not in said
    times = re.search(r"the least modelled time found within the limits is (\d\.\d+) ms: --max-time (\d\.\d+) ", said)
    assert times is not None
    assert float(times[2]) >= float(times[1]) > 0
    assert not (tmp_path / "q.circle").exists()


def test_ranges_only(files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, _, data = files
    out, records = tmp_path / "ranges.circle", tmp_path / "minmax.bin"
    assert _run(model, "--min-max-only", "--calibration", data, "-o", out, "--save-records", records) == 0
    assert "ranges of 16 samples" in capsys.readouterr().out
    tensors = {tensor.name: tensor for tensor in read_model(out).subgraphs[0].tensors}
    quantization = tensors["stem"].quantization
    assert quantization is not None
    assert quantization.min[0] == 0
    assert 0 < quantization.max[0] <= 6
    assert records.read_bytes()[:4] == b"DMMO"
    assert _run(out, "--no-help", "-o", tmp_path / "q.circle", "--allow-accuracy-loss") == 0


def _value(action: argparse.Action, folder: Path) -> list[str]:
    """What a command line says to give the argument a value that is not its default."""
    if action.nargs == 0:
        return []
    choices = [choice for choice in action.choices or () if choice != action.default]
    return [choices[0] if choices else "1" if action.type is not None else str(folder / "given.json")]


IDLE = [
    action
    for action in odc_quantize.build_parser()._actions
    if action.option_strings
    # any_reader is refused with all outputs that are .circle files, as those of recording are
    and action.dest not in {"help", "version", "verbose", "quiet", "debug", "overwrite", "any_reader"}
]


@pytest.mark.parametrize("action", IDLE, ids=lambda action: action.dest)
def test_recording_takes_no_option_that_it_has_no_use_for(
    action: argparse.Action, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is declared: a new option is one of quantising until it is said to be one of recording."""
    (tmp_path / "given.json").write_text("{}")
    model = tmp_path / "m.circle"
    model.write_text("no model")
    flags = ["--min-max-only", "--calibration", tmp_path / "given.json", "-o", tmp_path / "o.circle"]
    used = action.dest in odc_quantize.RECORDING
    if action.dest == "save_equalization":
        flags += ["--save-equalization", tmp_path / "pairs.json"]
    elif action.dest == "save_precisions":
        flags += ["--save-precisions", tmp_path / "precisions.json"]
    elif action.dest == "save_records":
        flags += ["--save-records", tmp_path / "minmax.bin"]
    elif action.dest not in {"min_max_only", "calibration", "output"}:
        value = (
            [str(tmp_path / f"out{action.dest[-5:].replace('_', '.')}")]
            if action.dest in ("json", "report_html")
            else None
        )
        flags += [action.option_strings[-1], *(value or _value(action, tmp_path))]
    assert _run(model, *flags) == (1 if used else 2)
    said = capsys.readouterr().err
    refused = f"--min-max-only quantises nothing and has no use for {action.option_strings[-1]}; leave it out"
    assert (refused in said) is not used, said


def test_recording_reads_what_it_says_it_uses(
    files: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()

    class Watched(argparse.Namespace):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    record_only = odc_quantize._record_only
    monkeypatch.setattr(odc_quantize, "_record_only", lambda arguments: record_only(Watched(**vars(arguments))))
    model, _, data = files
    out = tmp_path / "o.circle"
    assert _run(model, "--min-max-only", "--calibration", data, "-o", out, "--save-records", f"{out}.bin") == 0
    known = {action.dest for action in odc_quantize.build_parser()._actions} - {"overwrite", "quiet"}
    assert read & known == odc_quantize.RECORDING - {"min_max_only"}


@pytest.mark.parametrize("scheme", ["int8", "int4_wo"])
def test_what_was_chosen_can_be_asked_for(
    scheme: str, files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the command's words, and in Python's: both make the same file again."""
    _, hard, data = files
    samples = data.with_name("hard.npz")
    common = (hard, "--scheme", scheme, "--calibration", samples, "--mixed", "off", "--allow-accuracy-loss")
    first, again, report = tmp_path / "first.circle", tmp_path / "again.circle", tmp_path / "v.json"
    assert _run(*common, "-v", "-o", first, "--json", report) == 0
    (line,) = re.findall(r"^  chosen: (.*)$", capsys.readouterr().out, re.MULTILINE)
    flags = line.split()
    assert odc_quantize.build_parser()._option_string_actions.keys() >= {*flags[::2]}
    assert _run(*common, *flags, "-o", again) == 0
    assert again.read_bytes() == first.read_bytes()
    names = {flag.strip("-").replace("-", "_") for flag in flags[::2]}
    choices = {name: value for name, value in json.loads(report.read_text())["choices"].items() if name in names}
    made = odc_mlir.quantize(hard, scheme=scheme, calibration=samples, mixed=False, **choices)
    assert made.to_circle() == first.read_bytes()


@pytest.mark.parametrize("named", [True, False])
def test_precisions_that_were_found_can_be_asked_for(
    named: bool, files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the file they were written to, or where they are few as text; what was printed makes the same file again."""
    model, _, data = files
    found = tmp_path / "found.json"
    options = ("--metric", "sqnr", "--limit", 50, "--target", "npu-256", "--ranges", "minmax", "--equalize", "none")
    options += ("--rounding", "off", "--correction", "off", "--headroom", 0, "--output-room", "off")
    common = (model, "-v", "--calibration", data, *options)
    first, again = tmp_path / "first.circle", tmp_path / "again.circle"
    assert _run(*common, "-o", first, *(["--save-precisions", found] if named else [])) == 0
    (line,) = re.findall(r"^  chosen: (.*)$", capsys.readouterr().out, re.MULTILINE)
    flags = shlex.split(line)
    assert ("--mixed", str(found) if named else "off") in pairwise(flags)
    assert ("--overrides" in flags) is not named
    assert _run(*common, *flags, "-o", again) == 0
    assert again.read_bytes() == first.read_bytes()
    if named:
        assert f"--mixed {found}\n" in capsys.readouterr().out, "what was given is given again"
        made = odc_mlir.quantize(model, calibration=data, help=False, mixed=json.loads(found.read_text()))
        assert made.precisions == json.loads(found.read_text())


def test_many_precisions_are_left_to_a_file_and_those_of_weights_alone_to_the_search() -> None:
    flags = {"scheme": "int8", "precisions": {f"layer{i}": "int16x8" for i in range(9)}}
    assert quantizing.precision_flags(flags, None) == []
    assert quantizing.precision_flags(flags, "a b.json") == ["--mixed", "'a b.json'"]
    assert quantizing.precision_flags({"scheme": "int8", "precisions": {"a" * 300: "float"}}, None) == []
    found = quantizing.precision_flags({"scheme": "int8", "precisions": {"a,b": "float"}}, None)
    assert found == ["--mixed off", r"--overrides 'a\,b:float'"]
    lines = list(odc_quantize._chosen({"scheme": "int4_wo", "precisions": {"a": "int8_wo"}}, "f.json"))
    assert lines[1] == "  and 1 layer in other precisions, which only a new search can set"
    lines = list(odc_quantize._chosen(flags, None))
    assert lines[1].endswith("9 layers, --mixed FILE.json, written by --save-precisions FILE.json")


def test_precisions_found_for_a_budget_keep_it_when_asked_for(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, _, data = files
    found, first, again = (tmp_path / name for name in ("found.json", "first.circle", "again.circle"))
    common = (model, "--no-help", "--calibration", data, "--max-size", "60K", "-q")
    assert _run(*common, "-o", first, "--save-precisions", found) == 0
    assert json.loads(found.read_text())["layers"]
    assert _run(*common, "-o", again, "--mixed", found) == 0
    assert again.read_bytes() == first.read_bytes()


def test_equalisation_is_written_and_read_again(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, hard, data = files
    pairs, calibration = tmp_path / "pairs.json", data.with_name("hard.npz")
    common = (hard, "--no-help", "--calibration", calibration, "--allow-accuracy-loss", "-q")
    for _ in range(2):  # our own file may be replaced
        assert _run(*common, "--equalize", "weights", "--save-equalization", pairs) == 0
    assert {"front", "back", "type", "act_scale"} == json.loads(pairs.read_text())[0].keys()
    assert _run(*common, "--equalize", pairs, "-o", tmp_path / "q.circle") == 0


def test_a_tflite_file_holds_what_litert_runs(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, data = files
    out = tmp_path / "q.tflite"
    common = (model, "--no-help", "--scheme", "uint8", "--calibration", data, "--target", "npu-256")
    assert _run(*common, "-o", out, "-v") == 0
    text = capsys.readouterr().out
    assert "uint8: 100.0 % of layers, 100.0 % of weights, 100.0 % of products" in text
    assert "on npu-256 (estimated), which runs 100.0 % of the products" in text
    scales = [t.quantization for t in read_model(out).subgraphs[0].tensors if t.dtype == "uint8"]
    assert all(found is not None and len(found.scale) == 1 for found in scales)


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        ([], 2, "give -o, a report to write, --save-records, --save-equalization or --save-precisions"),
        (["-o", "q.circle", "--min-max-only"], 2, "--min-max-only needs --calibration and -o"),
        (["-o", "q.circle"], 1, "quantising activations needs input samples or recorded ranges"),
        (["-o", "q.circle", "--calibration", "{data}", "--limit", "1", "--metric", "far"], 1, "unknown metric 'far'"),
        (["-o", "q.circle", "--range-option", "high"], 1, "--range-option 'high' cannot be read; write NAME=NUMBER"),
        (["-o", "q.circle", "--mean", "x"], 1, "--mean is 'x', expected one number, or one per channel"),
        (["-o", "q.circle", "--max-drop", "1", "--calibration", "{data}"], 1, ": --max-drop needs labels"),
        (["-o", "q.circle", "--records", "nothing"], 1, "cannot read the records: No such file"),
        (["-o", "q.circle", "--any-reader"], 1, "--any-reader applies only to .tflite outputs; leave it out"),
        (["-o", "q.onnx", "--scheme", "int8_wo"], 1, "cannot tell the format of 'q.onnx' by its name"),
        (["-o", "q.circle", "--scheme", "int5"], 2, "invalid choice: 'int5'"),
        (["-o", "q.circle", "--calibration", "{data}", "--limit", "nan"], 1, "the limit of mpeir is nan"),
        (["-o", "q.circle", "--calibration", "{data}", "--min-coverage", "2"], 1, ": --min-coverage is 2"),
        (["-o", "q.circle", "--calibration", "{data}", "--target", "npu-9"], 1, "npu-9"),
        (["-o", "q.circle", "--max-time", "-1", "--calibration", "{data}"], 1, ": --max-time is -1.0"),
        (["-o", "q.circle", "--max-size", "20Q"], 2, "'20Q' is not a size"),
        (["-o", "q.circle", "--mixed", "none.json"], 1, "cannot read the configuration"),
    ],
)
def test_refusals(
    files: tuple[Path, Path, Path],
    flags: list[str],
    code: int,
    text: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _, data = files
    monkeypatch.chdir(tmp_path)
    plain = tmp_path / "plain.circle"
    stored = read_model(model)
    for tensor in stored.subgraphs[0].tensors:
        tensor.quantization = None  # ranges that the model brings along
    plain.write_bytes(write_model(stored))
    assert _run(plain, *(flag.format(data=data) for flag in flags)) == code
    assert text in capsys.readouterr().err
    assert not (tmp_path / "q.circle").exists()


@pytest.mark.parametrize(("name", "found"), [("auto", None), ("", None), ("npu-256", "npu-256"), ("cpu", "cpu")])
def test_the_target_of_the_environment(name: str, found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_TARGET", name)
    arguments = odc_quantize.build_parser().parse_args(["m.circle", "-o", "q.circle"])
    assert quantizing.all_options(arguments).get("target") == found


def test_a_target_of_the_environment_that_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_TARGET", "tvn-gen")
    words = ["m.circle", "-o", "q.circle"]
    with pytest.raises(OptionError, match=r"\$ODC_TARGET: unknown target 'tvn-gen'"):
        quantizing.all_options(odc_quantize.build_parser().parse_args(words))
    chosen = odc_quantize.build_parser().parse_args([*words, "--target", "npu-128"])
    assert quantizing.all_options(chosen)["target"] == "npu-128"


def test_every_flag_reaches_the_public_function() -> None:
    """What the command says is what ``odc_mlir.quantize`` takes, and what the quantiser knows."""
    arguments = odc_quantize.build_parser().parse_args(["m.circle", "-o", "o.circle"])
    every = {**vars(arguments), **{name: "x" for name, value in vars(arguments).items() if value is None}}
    every |= {"mean": "0", "scale": "1"}
    told = quantizing.all_options(argparse.Namespace(**every))
    taken = inspect.signature(odc_mlir.quantize).parameters
    assert set(told) <= set(taken)
    flags = {flag for action in odc_quantize.build_parser()._actions for flag in action.option_strings}
    assert {flag_of(name) for name, declared in OPTIONS.items() if declared.group} <= flags


def test_types_and_parameters_of_single_tensors(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, data = files
    out = tmp_path / "q.circle"
    common = (model, "--no-help", "--calibration", data, "-o", out, "-q", "--allow-accuracy-loss")
    flags = ("--input-type", "uint8", "--output-type", "probs=float", "--parameters", "conv0=0.05:3")
    assert _run(*common, *flags, "--copy-parameters", "conv1=conv0", "--patterns", "softmax") == 0
    tensors = {tensor.name: tensor for tensor in read_model(out).subgraphs[0].tensors}
    assert (tensors["in0"].dtype, tensors["probs"].dtype) == ("uint8", "float32")
    for name in ("conv0", "conv1"):
        quantization = tensors[name].quantization
        assert quantization is not None
        assert (quantization.scale, quantization.zero_point) == (np.float32(0.05), 3)
    for flag, value, message in (
        ("--input-type", "in0=int3", "unknown type 'int3' of an input or output"),
        ("--parameters", "conv0", "'conv0' is not parameters; write NAME=SCALE:ZERO"),
        ("--copy-parameters", "a=b", "the optimised model has no tensor 'a'"),
        ("--patterns", "gelu", "unknown pattern 'gelu'; use layernorm or softmax"),
        ("--visq-file", tmp_path / "no.json", "cannot read the errors of layers"),
        ("--equalize", "sometimes", "unknown equalize 'sometimes'"),
    ):
        given = tuple(word for word in common if flag != "--visq-file" or word != "--no-help")
        assert _run(*given, flag, value) == 1, flag
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]


def test_a_log_gets_a_line_of_progress_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 19.0, 21.0, 40.0, 42.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    show = quantizing.progress_on_stderr("odc-quantize", quiet=False)
    assert show is not None
    for number in range(4):
        show("rounding", number, 6 if number else None)
    assert capsys.readouterr().err.splitlines() == [
        "odc-quantize: rounding, 1 of 6 models, 21.0 s, about 105 s left",
        "odc-quantize: rounding, 3 of 6 models, 42.0 s, about 42 s left",
    ]


def test_a_terminal_is_shown_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    clock = iter([0.0, 2.0, 6.0, 6.01])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    show = quantizing.progress_on_stderr("odc-quantize", quiet=False)
    assert show is not None
    show("recording ranges", 0, None)
    show("rounding", 3, 12)
    show("too soon after that", 4, 12)
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert shown == [
        "",
        "odc-quantize: recording ranges, 2.0 s",
        "odc-quantize: rounding, 3 of 12 models, 6.0 s, about 18 s left",
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], None),
        (["--mean", "127.5"], Pictures(mean=(127.5,))),
        (["--scale", "0.5,0.25,1"], Pictures(scale=(0.5, 0.25, 1.0))),
        (["--mean", "1", "--scale", "2"], Pictures(mean=(1.0,), scale=(2.0,))),
    ],
)
def test_mean_and_scale_have_defaults_of_their_own(flags: list[str], expected: Pictures | None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mean")
    parser.add_argument("--scale")
    assert quantizing.pictures(parser.parse_args(flags)) == expected
