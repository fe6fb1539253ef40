"""Flows: what files of ours and of ONE stand for, and that only what changed is run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.commands import parsers
from helpers.source import REPOSITORY
from odc_mlir.errors import OdcError, OptionError, UnsupportedError
from odc_mlir.explore.space import toml_lines
from odc_mlir.flow import Flow, FlowStep, key_of, read_cfg, read_state, read_toml, read_workflow, run, state_document
from odc_mlir.tools.files import Input, role_of
from odc_mlir.tools.odc_build import main, options_of

MODEL = REPOSITORY / "examples" / "on_device" / "digits_mobile_hard.circle"


def _flow(tmp_path: Path, text: str) -> Flow:
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return read_toml(str(path), options_of)


def test_steps_are_chained_in_a_fixed_order(tmp_path: Path) -> None:
    (tmp_path / "s.npz").touch()
    flow = _flow(
        tmp_path,
        """[flow]
model = "m.tflite"
[compile]
target = "npu-256"
strict = true
npu = ["a", "b"]
[quantize]
calibration = "s.npz"
no_help = false
[profile]
num_runs = 2
""",
    )
    out = tmp_path / "out"
    assert [step.name for step in flow.steps] == ["quantize", "compile", "profile"]
    quantize, compiled, profile = flow.steps
    quantised = f"{out}/m.quantized.circle"
    assert quantize.reads == (f"{tmp_path}/m.tflite", f"{tmp_path}/s.npz")
    assert quantize.arguments == (quantize.reads[0], "-o", quantised, "--calibration", quantize.reads[1])
    assert compiled.arguments[:3] == (quantised, "-o", f"{out}/m.package")
    assert compiled.arguments[3:] == ("--target", "npu-256", "--strict", "--npu", "a", "--npu", "b")
    assert profile.text == f"odc-run {out}/m.package --profile {out}/m.profile.json --num_runs 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"\[flow\] with a key model"),
        ("[flow]\nmodel = 'm'\n", "no step"),
        ("[flow]\nmodel = 'm'\n[quantise]\n", "'quantise' is unknown"),
        ("[flow]\nmodel = 'm'\nfolders = 'x'\n[compile]\n", "'folders' is unknown"),
        ("[flow]\nmodel = 'm'\n[compile]\nx = {a = 1}\n", "expected a string or number"),
        ("[flow\n", "not a flow"),
    ],
)
def test_what_is_no_flow(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _flow(tmp_path, text)


CFG = """[onecc]
one-import-tf=False
one-import-tflite=True
one-optimize=True
one-quantize=True
one-pack=True
one-codegen=True
include=O1

[one-import-tflite]
input_path=a.tflite
output_path=a.circle

[one-optimize]
input_path=a.circle
output_path=b.circle
convert_nchw_to_nhwc=True
nchw_to_nhwc_input_shape=True
fuse_bcq=True
fuse_rmsnorm=False

[one-quantize]
input_path=b.circle
output_path=c.circle
quantized_dtype=int16
input_data=list.txt
min_percentile=1

[one-pack]
input_path=c.circle
output_path=pack

[one-codegen]
backend=dummy
command=-o a.tvn c.circle
"""


def test_a_configuration_of_one(tmp_path: Path) -> None:
    (tmp_path / "a.cfg").write_text(CFG)
    flow = read_cfg(str(tmp_path / "a.cfg"))
    assert [step.text for step in flow.steps] == [
        "odc-opt -q -t circle a.tflite -o a.circle",
        "odc-optimize a.circle -o b.circle --O1 --convert-nchw-to-nhwc --io-layout nhwc",
        "odc-quantize b.circle -o c.circle --scheme int16 --no-help --allow-accuracy-loss --granularity channel "
        "--io quantized --calibration list.txt --ranges percentile --range-option low=1",
        "odc-package pack c.circle -o pack",
        "odc-compile c.circle -o a.tvn --target npu-256",
    ]
    assert [note.split(":")[1].split()[0] for note in flow.notes] == ["fuse_bcq", "backend"]


def test_inputs_and_outputs_of_one_have_types_of_their_own(tmp_path: Path) -> None:
    text = "[onecc]\none-quantize=True\n[one-quantize]\ninput_path=a.circle\noutput_path=b.circle\n"
    (tmp_path / "a.cfg").write_text(f"{text}quantized_dtype=uint8\ninput_type=float32\noutput_type=uint8\n")
    (tmp_path / "b.cfg").write_text(f"{text}quantized_dtype=int16\noutput_type=uint8\n")
    (first,), (second,) = (read_cfg(str(tmp_path / name)).steps for name in ("a.cfg", "b.cfg"))
    assert first.text.endswith("--granularity tensor --io quantized --input-type float --calibration random")
    assert second.text.endswith("--granularity channel --io quantized --output-type uint8 --calibration random")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("[other]\n", OptionError, r"\[onecc\] is missing"),
        ("[onecc]\none-optimize=True\n", OptionError, r"\[one-optimize\] is missing"),
        ("[onecc]\none-shrink=True\n", OptionError, "'one-shrink', which is not a step"),
        ("[onecc]\none-optimize=True\n[one-optimize]\ninput_path=a\n", OptionError, "output_path of one-optimize"),
        ("[onecc]\none-import-onnx=True\n[one-import-onnx]\ninput_path=a\n", UnsupportedError, "not supported"),
        (
            "[onecc]\none-quantize=True\n[one-quantize]\ninput_path=a\noutput_path=b\nquantized_dtype=int3\n",
            OptionError,
            "'int3'; use one of uint8, int16",
        ),
        (
            "[onecc]\none-quantize=True\n[one-quantize]\ninput_path=a\noutput_path=b\ngranularity=channnel\n",
            OptionError,
            "granularity of one-quantize is 'channnel'; use one of layer, channel",
        ),
        (
            "[onecc]\none-quantize=True\n[one-quantize]\ninput_path=a\noutput_path=b\nmax_percentil=99\n",
            OptionError,
            "no key 'max_percentil'; did you mean 'max_percentile'",
        ),
        ("[onecc]\none-quantize=Ture\n", OptionError, "one-quantize is 'Ture'; use True or False"),
        (
            "[onecc]\none-optimize=1\n[one-optimize]\ninput_path=a\noutput_path=b\nfuse_gelu=Yess\n",
            OptionError,
            "fuse_gelu is 'Yess'",
        ),
    ],
)
def test_configurations_that_cannot_be(tmp_path: Path, text: str, kind: type[OdcError], message: str) -> None:
    (tmp_path / "a.cfg").write_text(text)
    with pytest.raises(kind, match=message):
        read_cfg(str(tmp_path / "a.cfg"))


def _workflow(tmp_path: Path, **changes: Any) -> Flow:
    optimize = {"one-cmd": "one-optimize", "commands": {"input_path": "a.circle", "output_path": "b.circle"}}
    document = {
        "workflows": ["last", "first"],
        "last": {
            "run-after": ["first"],
            "steps": ["i"],
            "i": {"one-cmd": "one-infer", "commands": {"command": "-x b"}},
        },
        "first": {"steps": ["o"], "o": optimize},
        **changes,
    }
    (tmp_path / "w.json").write_text(json.dumps(document))
    return read_workflow(str(tmp_path / "w.json"))


def test_sections_that_say_nothing_here_are_told(tmp_path: Path) -> None:
    path = tmp_path / "one.cfg"
    path.write_text(
        "[onecc]\none-codegen=True\n[backend]\ntarget=dummy\n[Environment]\nONECC_ENV=here\n"
        "[one-codegen]\nbackend=npu-128\ncommand=-o m.tvn m.circle\n"
    )
    assert [note.split()[0] for note in read_cfg(str(path)).notes] == ["[backend]", "[Environment]"]


def test_a_workflow_of_one(tmp_path: Path) -> None:
    assert [s.text for s in _workflow(tmp_path).steps] == ["odc-optimize a.circle -o b.circle --O1", "odc-run b"]
    (tmp_path / "a.cfg").write_text(CFG)
    assert len(_workflow(tmp_path, first={"cfg-reference": {"path": "a.cfg"}}).steps) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workflows": []}, "list of workflows"),
        ({"workflows": ["first", "none"]}, "'none' is missing"),
        ({"first": {"run-after": ["last"], "steps": []}}, "in a cycle"),
        ({"first": {"steps": [], "cfg-reference": {"path": "x"}}}, "either steps or a cfg-reference"),
        ({"first": {}}, "either steps or a cfg-reference"),
        ({"first": {"steps": ["o"]}}, "no one-cmd"),
        ({"first": {"run-after": ["nowhere"], "steps": []}}, "'nowhere'"),
    ],
)
def test_workflows_that_cannot_be(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _workflow(tmp_path, **changes)


class _Commands:
    """Copies the first file to the second."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, command: str, arguments: Sequence[str]) -> int:
        self.calls.append(command)
        source, output = arguments
        Path(output).write_text(Path(source).read_text() + command)
        return 0


def test_only_what_depends_on_a_change_runs_again(tmp_path: Path) -> None:
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    flow = Flow(tuple(FlowStep(n, n, (i, o), (i,), (o,)) for n, i, o in [("1", a, b), ("2", b, c), ("3", a, d)]))
    state: dict[str, Any] = {}

    def build() -> list[str]:
        commands = _Commands()
        list(run(flow, state, commands, lambda found: None))
        return commands.calls

    Path(a).write_text("a")
    assert build() == ["1", "2", "3"]
    assert build() == []
    Path(c).write_text("someone else's")
    assert build() == ["2"]
    Path(a).write_text("b")
    assert build() == ["1", "2", "3"]
    Path(b).unlink()
    assert build() == ["1"]  # it wrote the same again


def test_a_step_that_fails_stops_the_flow_and_is_run_again(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    Path(a).touch()
    state: dict[str, Any] = {}
    flow = Flow((FlowStep("x", "x", (a, b), (a,), (b,)),))
    with pytest.raises(OptionError, match="exit code 3"):
        list(run(flow, state, lambda *_: 3, lambda found: None))
    with pytest.raises(OptionError, match="did not write"):
        list(run(flow, state, lambda *_: 0, lambda found: None))
    assert state == {}


def test_a_state_that_is_none_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_state(str(path)) == {}
    path.write_text(json.dumps(state_document({"a": 1})))
    assert read_state(str(path)) == {"a": 1}
    path.write_text("[]")
    assert read_state(str(path)) == {}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.circle").write_bytes(MODEL.read_bytes())
    flow = tmp_path / "flow.toml"
    flow.write_text('[flow]\nmodel = "m.circle"\n[import]\n[optimize]\n')
    assert main([str(flow), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("odc-op") == 2
    assert not (tmp_path / "out").exists()
    assert main([str(flow)]) == 0
    assert capsys.readouterr().out.endswith("2 steps run, 0 up to date\n")
    assert main([str(flow)]) == 0
    assert capsys.readouterr().out.endswith("0 steps run, 2 up to date\n")
    assert odc_mlir.load(tmp_path / "out" / "m.opt.circle")
    flow.write_text('[flow]\nmodel = "none.circle"\n[optimize]\n')
    assert main([str(flow)]) == 1
    flow.write_text('[flow]\nmodel = "m.circle"\n[import]\n[quantize]\nsheme = "int8"\n')
    assert main([str(flow), "--dry-run"]) == main([str(flow)]) == 2
    assert "unrecognized arguments: --sheme int8; did you mean --scheme?" in capsys.readouterr().err
    assert main([str(tmp_path / "flow.yaml")]) == 1
    assert "ends with .toml" in capsys.readouterr().err


def test_files_that_look_like_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of a file becomes an option of a command, whatever the file that names it."""
    monkeypatch.chdir(tmp_path)
    model, out = "-o x.circle", "--out=y.circle"
    Path(model).write_bytes(MODEL.read_bytes())
    text = f"[flow]\nmodel = '{model}'\n[import]\n[optimize]\noutput = '{out}'\n"
    Path("a.toml").write_text(f"{text}[quantize]\ncalibration = '{model}'\nscheme = '-x'\n")
    steps = read_toml("a.toml", options_of).steps
    assert steps[0].words == ("-q", "-t", "circle", f"./{model}", "-o", f"out/{model}")
    assert steps[1].words == (f"out/{model}", "-o", f"./{out}")
    assert steps[2].words[3:] == ("--calibration", f"./{model}", "--scheme=-x")
    Path("b.cfg").write_text(f"[onecc]\none-optimize=True\n[one-optimize]\ninput_path={model}\noutput_path={out}\n")
    assert read_cfg("b.cfg").steps[0].words == (f"./{model}", "-o", f"./{out}", "--O1")
    Path("c.toml").write_text(text)
    assert main(["c.toml"]) == 0
    assert odc_mlir.load(out)
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(
        [model, out, "a.toml", "b.cfg", "c.toml", "c.toml.state.json", "out"]
    )


STRANGE = (5, None, True, "x", [], [5], {}, {"a": 5})
WORKFLOW = {
    "workflows": ["w"],
    "w": {"run-after": [], "steps": ["s"], "s": {"one-cmd": "one-pack", "commands": {"command": "'", "o": "b"}}},
}
DECLARED = {"flow": {"model": "m", "folder": "out"}, "optimize": {"input": "a", "output": "b", "x": [1]}}


def _strange(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """``document`` with each of its values replaced by each of the strange ones."""
    for key, value in document.items():
        yield from ({**document, key: strange} for strange in STRANGE)
        if isinstance(value, dict):
            yield from ({**document, key: changed} for changed in _strange(value))


def test_whatever_a_flow_holds_is_refused_by_name_or_works(tmp_path: Path) -> None:
    path = tmp_path / "flow"
    for document in _strange(WORKFLOW):
        path.write_text(json.dumps(document))
        with suppress(OdcError):
            read_workflow(str(path))
    for document in _strange(DECLARED):
        path.write_text("\n".join(toml_lines(document)))
        with suppress(OdcError):
            read_toml(str(path), options_of)


def test_paths_are_relative_to_the_flow_whatever_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a file that is missing there; names of targets are no paths. A byte order mark is no text."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "cal.npz").touch()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "flow.toml"
    text = "[flow]\nmodel = 'm.circle'\n[quantize]\ncalibration = 'cal.npz'\n[compile]\ntarget = 'npu-256'\n"
    path.write_text("\ufeff" + text, encoding="utf-8")
    quantize, compiled = read_toml(str(path), options_of).steps
    assert quantize.reads[1] == f"{tmp_path}/cal.npz"
    assert compiled.arguments[-1] == "npu-256"


STEPS = {"import": "opt", "resize": "circle", "optimize": "optimize", "quantize": "quantize", "compile": "compile"}
STEPS |= {"profile": "run", "package": "package"}
WORDS = {"resize": ["resize"], "package": ["pack"]}
INPUTS = [
    (step, flag, str(action.metavar))
    for step, command in STEPS.items()
    for words, parser in parsers(f"odc-{command}")
    if words == WORDS.get(step, [])
    for action in parser._actions
    if isinstance(role_of(action), Input)
    for flag in action.option_strings
    if flag.startswith("--")
]


def test_every_input_file_is_relative_to_the_flow_and_runs_its_step_again(tmp_path: Path) -> None:
    """Also one of an option that takes other words, which are no paths."""
    assert {("quantize", flag) for flag in ("--visq-file", "--equalize", "--target")} <= {item[:2] for item in INPUTS}
    for step, flag, metavar in INPUTS:
        value = f"data{metavar.rpartition('FILE')[2] if 'FILE.' in metavar else ''}"
        text = f"[flow]\nmodel = 'm.circle'\n[{step}]\n'{flag[2:]}' = "
        file = tmp_path / (f"{value}.0" if metavar == "PREFIX" else value)
        file.write_text("1")
        (found,) = _flow(tmp_path, f"{text}'{value}'\n").steps
        assert found.arguments[-2:] == (flag, f"{tmp_path}/{value}")
        assert found.reads[1:] == (str(file),)
        before = key_of(found)
        file.write_text("2")
        assert key_of(found) != before
        if "|" in metavar:
            (found,) = _flow(tmp_path, f"{text}'activations:0.8'\n").steps
            assert (found.arguments[-1], len(found.reads)) == ("activations:0.8", 1)
