"""odc-run: its data in every layout, its reports, and clear answers to what it cannot do."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.errors import InputError
from odc_mlir.formats.manifest import Manifest, format_config
from odc_mlir.formats.package import PackageFiles, build_package, write_package
from odc_mlir.formats.quantities import time_text
from odc_mlir.runtime import api
from odc_mlir.runtime.api import load_package
from odc_mlir.tools import measure, odc_run
from odc_mlir.tools.run_stages import quantized_path

A = np.arange(4, dtype=np.float32).reshape(1, 4)
B = np.full((1, 4), 10, np.float32)
OUT = 2 * A + B


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "add.circle"
    path.write_bytes(model_bytes(add_model()))
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", in_0=A, in_1=B)
    return tmp_path / "in.npz"


def _run(*arguments: object) -> int:
    return odc_run.main([str(argument) for argument in arguments])


def _loaded(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("odc-run: error: ")
    assert text.count("\n") == 1
    return text


def test_npz(model: Path, inputs: Path, tmp_path: Path) -> None:
    assert _run(model, "--load", inputs, "--dump", tmp_path / "out.npz") == 0
    found = _loaded(tmp_path / "out.npz")
    assert found.keys() == {"out_0"}
    np.testing.assert_array_equal(found["out_0"], OUT)


def test_npz_with_names_of_a_signature(inputs: Path, model: Path, tmp_path: Path) -> None:
    signed = add_model()
    signed.signatures[0].inputs = {"first": 0, "b": 1}
    (tmp_path / "signed.circle").write_bytes(model_bytes(signed))
    with np.load(inputs) as arrays:
        np.savez(tmp_path / "named.npz", b=arrays["in_1"], first=arrays["in_0"])
    assert _run(model, "--load", inputs, "--dump", tmp_path / "a.npz") == 0
    assert _run(tmp_path / "signed.circle", "--load", tmp_path / "named.npz", "--dump", tmp_path / "b.npz") == 0
    with np.load(tmp_path / "a.npz") as ours, np.load(tmp_path / "b.npz") as theirs:
        np.testing.assert_array_equal(ours["out_0"], theirs["out_0"])


def test_npy(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("NEG", [x], [y])
    (tmp_path / "neg.circle").write_bytes(model_bytes(builder.finish([x], [y])))
    np.save(tmp_path / "in.npy", A)
    assert _run(tmp_path / "neg.circle", "--load", tmp_path / "in.npy", "--dump", tmp_path / "out.npz", "-q") == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], -A)


def test_a_wrong_shape_is_the_inputs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not that of the operator that meets it first; what ``run`` says, the command says."""
    np.savez(tmp_path / "in.npz", in_0=A[:, :3], in_1=B)
    assert _run(model, "--load", tmp_path / "in.npz") == 1
    said = _error(capsys)
    assert "input 0 must be float32[1, 4], not float32[1, 3] (tensor 'a')" in said
    with pytest.raises(InputError) as raised:
        odc_mlir.run(model, [A[:, :3], B])
    assert str(raised.value) in said


def test_hdf5(model: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["value/0"], file["value/1"] = A, B
    assert _run(model, "-l", tmp_path / "in.h5", "-d", tmp_path / "out.h5") == 0
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["value/0"][()], OUT)


def test_raw(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.0").write_bytes(A.tobytes())
    (tmp_path / "in.1").write_bytes(B.tobytes())
    flags = ("--load:raw", tmp_path / "in", "--dump:raw", tmp_path / "out", "--dump_input:raw", tmp_path / "again")
    assert _run(model, *flags) == 0
    assert (tmp_path / "out.0").read_bytes() == OUT.tobytes()
    assert (tmp_path / "again.1").read_bytes() == B.tobytes()


def test_samples(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The largest output is element 3, so the labels are right in two samples of three."""
    stacked = {"in_0": np.concatenate([A, A, A]), "in_1": np.concatenate([B, B, B])}
    np.savez(tmp_path / "in.npz", y=np.array([3, 3, 0]), **stacked)
    assert _run(model, "--load", tmp_path / "in.npz", "--samples", "--dump", tmp_path / "out.npz") == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], np.concatenate([OUT] * 3))
    told = capsys.readouterr().out
    assert "top1_percent 66.667 over 3 samples" in told
    assert "(3 runs after 0, 3 samples one by one)" in told


@pytest.mark.parametrize(
    ("flags", "runs"), [((), "3 runs after 0, 3 samples one by one"), (("--no-samples",), "1 run")]
)
def test_an_open_batch_runs_as_samples_or_at_once(
    flags: tuple[str, ...], runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open.circle").write_bytes(model_bytes(add_model(signature=(-1, 4))))
    np.savez(tmp_path / "in.npz", in_0=np.concatenate([A] * 3), in_1=np.concatenate([B] * 3))
    arguments = (tmp_path / "open.circle", "--load", tmp_path / "in.npz", "--dump", tmp_path / "out.npz")
    assert _run(*arguments, *flags) == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], np.concatenate([OUT] * 3))
    assert runs in capsys.readouterr().out


def test_labels_of_another_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", in_0=np.concatenate([A] * 2), in_1=np.concatenate([B] * 2))
    np.savez(tmp_path / "y.npz", y=np.array([3, 3]))
    assert _run(model, "--load", tmp_path / "in.npz", "--labels", tmp_path / "y.npz") == 0
    assert "top1_percent 100.000 over 2 samples" in capsys.readouterr().out
    assert _run(model, "--load", tmp_path / "in.npz", "--labels") == 1
    assert "the file has no labels (an array y)" in capsys.readouterr().err
    assert _run(model, "--labels") == 1
    assert "--labels needs samples, and none are loaded; add --load FILE" in capsys.readouterr().err


def test_numbered_samples(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", in_0_0=A, in_0_1=B, in_1_0=B, in_1_1=A)
    assert _run(model, "--load", tmp_path / "in.npz", "--dump", tmp_path / "out.npz") == 0
    found = _loaded(tmp_path / "out.npz")
    assert found.keys() == {"out_0_0", "out_1_0"}
    np.testing.assert_array_equal(found["out_1_0"], 2 * B + A)


def test_made_up_data_is_the_same_every_time(model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert _run(model, "-r", "2", "--fixed_input", "--dump", tmp_path / f"{name}.npz") == 0
    first, second = _loaded(tmp_path / "a.npz")["out_0"], _loaded(tmp_path / "b.npz")["out_0"]
    np.testing.assert_array_equal(first, second)
    assert np.ptp(first) > 0


def test_tensors_inside_the_model(
    model: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--load", inputs, "--dump", tmp_path / "out.npz", "--dump-tensor", "sum,a", "--dump-tensor", "b")
    assert _run(model, *flags) == 0
    found = _loaded(tmp_path / "out.npz")
    assert found.keys() == {"out_0", "sum", "a", "b"}
    np.testing.assert_array_equal(found["sum"], A + B)
    capsys.readouterr()
    assert _run(model, "-q", "--load", inputs, "--dump-tensor", "sum") == 0
    assert capsys.readouterr().out == "sum: float32[1, 4] least 10 largest 13 mean 11.5\n"
    assert _run(model, "--dump-tensor", "sums") == 1
    assert "the model has no tensor 'sums'; close to it are 'sum'" in _error(capsys)


def test_tensors_of_several_samples(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", in_0_0=A, in_0_1=B, in_1_0=A, in_1_1=A)
    assert _run(model, "-l", tmp_path / "in.npz", "-d", tmp_path / "out.npz", "--dump-tensor", "sum") == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["1/sum"], A + A)


def test_output_of_a_run(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "-v", "1", "-r", "2", "-w", "1", "--mem_poll") == 0
    text = capsys.readouterr().out
    words = ("MODEL_LOAD", "PREPARE", "EXECUTE", "- GEOMEAN", "run 1:", "PEAK         RSS", "need 48 bytes at once")
    for word in words:
        assert word in text
    assert _run(model, "-q") == 0
    assert capsys.readouterr().out == ""


def test_a_float_model_for_the_npu_runs_on_the_host_with_a_warning(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(model, "--backend", "npu") == 0
    text = "the host runs everything, nothing is for npu-256 (element-type: 'a' is float32); quantise a float model"
    assert text in capsys.readouterr().err
    assert _run(model, "--backend", "npu", "--quantize", "uint8") == 0
    assert "the host runs everything" not in capsys.readouterr().err


def test_litert_says_how_much_it_takes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    assert _run(model, "--backend", "litert") == 0
    assert "LITERT       takes 2 of 2 operators in 1 part\n" in capsys.readouterr().out


def test_profile_and_trace(model: Path, tmp_path: Path) -> None:
    profile, trace = tmp_path / "profile.json", tmp_path / "trace.json"
    assert _run(model, "-r", "3", "--profile", profile, "--trace", trace) == 0
    found = json.loads(profile.read_text())
    assert (found["schema_version"], found["modelled"], found["peak_activation_bytes"]) == (2, None, 48)
    found = found["measured"]
    assert (found["runs"], found["warmup_runs"]) == (3, 0)
    assert [(unit["name"], unit["op"], unit["kind"]) for unit in found["units"]] == [
        ("sum", "ADD", "host"),
        ("out", "ADD", "host"),
    ]
    assert sum(unit["share"] for unit in found["units"]) == pytest.approx(1)
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 6
    assert min(event["ts"] for event in spans) == 0


def test_csv_report(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(model, "-p", "-r", "2") == 0
    with (tmp_path / "odc-run-add.circle-auto.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["Model"], row["Backend"]) == ("add.circle", "auto")
    assert float(row["Execute_Time_Min"]) <= float(row["Execute_Time_Mean"]) <= float(row["Execute_Time_Max"])
    assert row["Peak_PSS"] == "0"


def test_packages(tmp_path: Path, inputs: Path) -> None:
    model = add_model()
    package = build_package(model_bytes(model), host_plan(model), {})
    for name in ("package", "package.zip"):
        write_package(package, tmp_path / name)
        assert _run(tmp_path / name, "--load", inputs, "--dump", tmp_path / "out.npz") == 0
        np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], OUT)


def test_other_shapes(tmp_path: Path) -> None:
    """Static dimensions change only when the shapes are said to."""
    path = tmp_path / "add.circle"
    path.write_bytes(model_bytes(add_model()))
    wide = np.ones((1, 6), np.float32)
    np.savez(tmp_path / "in.npz", in_0=wide, in_1=wide)
    arguments = (path, "--load", tmp_path / "in.npz", "--dump", tmp_path / "out.npz")
    assert _run(*arguments) == 1
    assert _run(*arguments, "--shape_run", "h5") == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], 3 * wide)
    assert _run(path, "--shape_prepare", "[0,[2,3],1,[2,3]]", "--dump", tmp_path / "out.npz") == 0
    assert _loaded(tmp_path / "out.npz")["out_0"].shape == (2, 3)


def test_force_float(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 3), "int8", quant=(0.5, 0))
    y = builder.tensor("y", (1, 3), "int8", quant=(0.5, 0))
    builder.operator("RELU", [x], [y])
    path = tmp_path / "relu.circle"
    path.write_bytes(model_bytes(builder.finish([x], [y])))
    np.savez(tmp_path / "in.npz", in_0=np.array([[-1.0, 0.6, 100.0]], np.float32))
    arguments = (path, "--load", tmp_path / "in.npz", "--dump", tmp_path / "out.npz")
    assert _run(*arguments) == 1
    assert _run(*arguments, "--force_float") == 0
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], np.array([[0, 0.5, 63.5]], np.float32))


def test_signatures(model: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "--signature", "serve", "--load", inputs, "--dump", tmp_path / "out.npz") == 0
    capsys.readouterr()
    assert _run(model, "--signature", "train") == 1
    assert "the model has no signature 'train'; it has 'serve'" in _error(capsys)


def test_output_sizes_and_shapes(model: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npz"
    assert _run(model, "--load", inputs, "--dump", out, "--output_sizes", "[0,16]", "--output_shape", "[0,[2,2]]") == 0
    np.testing.assert_array_equal(_loaded(out)["out_0"], OUT.reshape(2, 2))
    out.unlink()
    capsys.readouterr()
    for flags, text in (
        (["--output_sizes", "[0,15]"], "output 0 has 16 bytes, --output_sizes gives it 15"),
        (["--output_sizes", "[0,15"], "cannot be read"),
        (["--output_sizes", "[1,16]"], "a size is given for output 1, the model has 1 output"),
        (["--output_shape", "[0,[3]]"], r"output 0 has 4 elements, which are not \[3\]"),
        (["--output_shape", "[1,[4]]"], "a shape is given for output 1, the model has 1 output"),
    ):
        assert _run(model, "--load", inputs, "--dump", out, *flags) == 1
        assert re.search(text, _error(capsys))
        assert not out.exists()


def test_codegen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, compiled = tmp_path / "digits.circle", tmp_path / "out.npu"
    builder = ModelBuilder()
    a, b, y = (builder.tensor(name, (1, 4), "int8", quant=(0.5, 0)) for name in "aby")
    builder.operator("ADD", [a, b], [y])
    path.write_bytes(model_bytes(builder.finish([a, b], [y])))
    np.savez(tmp_path / "in.npz", in_0=np.full((1, 4), 3, np.int8), in_1=np.full((1, 4), 4, np.int8))
    flags = ["--codegen", "npu-gen", "--cpath", compiled, "--load", tmp_path / "in.npz", "--dump", tmp_path / "o.npz"]
    assert _run(path, *flags) == 0
    assert load_package(compiled).plan is not None
    np.testing.assert_array_equal(_loaded(tmp_path / "o.npz")["out_0"], [[7] * 4])
    capsys.readouterr()
    assert _run(path, "-c", "other-gen") == 1
    assert "there is no codegen plugin 'other-gen'" in _error(capsys)


def test_where_a_quantised_model_goes(model: Path, tmp_path: Path) -> None:
    assert quantized_path(str(model), "uint8") == str(tmp_path / "add_quantized_q8.circle")
    write_package(build_package(model.read_bytes(), host_plan(add_model()), {}), tmp_path / "p")
    write_package(build_package(model.read_bytes(), host_plan(add_model()), {}), tmp_path / "p.zip")
    assert quantized_path(str(tmp_path / "p"), "int16_wo") == str(tmp_path / "p/p_quantized_q16wo.circle")
    assert quantized_path(str(tmp_path / "p.zip"), "int16") == str(tmp_path / "p_quantized_q16.circle")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["-g"], "there is no GPU, so its memory cannot be reported"),
        (["--qpath", "x.circle"], "--qpath names the output of --quantize, which is not given"),
        (["--cpath", "x"], "--cpath names the output of --codegen, which is not given"),
        (["-q", "uint8", "--minmax_runs", "0"], "--minmax_runs is 0, it must be at least 1"),
        (["--backend", "npu", "--numerics", "litert"], "litert numerics are not available on the backend npu"),
        (["--samples"], "--samples describes the file of --load"),
        (["-r", "2", "--dump", "out.npz"], "the inputs differ from run to run"),
        (["-r", "0", "--dump", "out.npz"], "no outputs to dump"),
        (["--fixed_input", "--dump", "out.bin"], "cannot tell the format of 'out.bin'"),
        (["--shape_run", "[0]"], "the shapes '[0]' cannot be read"),
        (["--shape_run", "[0,[-1]]"], "cannot be read"),
        (["--shape_run", "[9,[1]]"], "a shape is given for input 9, the model has 2 inputs"),
        (["--max-bytes", "3"], "more than the limit of 3"),
        (["--load", "none.npz"], "No such file"),
    ],
)
def test_refusals(model: Path, flags: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, *flags) == 1
    assert text in _error(capsys)


@pytest.mark.parametrize("flags", [["-r", "-1"], ["--num_runs", "x"], ["--backend", "gpu"], ["-v", "7"]])
def test_wrong_usage(model: Path, flags: list[str]) -> None:
    assert _run(model, *flags) == 2


def test_verbose_without_a_number(model: Path) -> None:
    assert _run("-v", model) == 0
    assert _run(model, "-v") == 0


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A package with an operator on the NPU and one on the host, and its modelled latency in milliseconds."""
    codes = "tensor<1x64x64x8x!quant.uniform<i8:f32, 0.05:3>>"
    real = "tensor<1x64x64x8xf32>"
    text = f"""func.func @main(%x: {codes}) -> {real} {{
      %a = circle.tanh(%x) : ({codes}) -> {codes} loc("a")
      %y = circle.dequantize(%a) : ({codes}) -> {real} loc("y")
      func.return %y : {real}
    }}"""
    package = odc_mlir.compile(text.encode(), placement={"strategy": "supported"})
    assert [step.kind for step in package.plan.steps] == ["segment", "host"]  # type: ignore[union-attr]
    path = tmp_path_factory.mktemp("compiled") / "package"
    package.save(path)
    return path, package.report["latency_ms"]


def test_both_clocks_of_a_package(
    compiled: tuple[Path, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is modelled is the report's; nothing that was measured here looks like the device's time."""
    path, latency_ms = compiled
    monkeypatch.chdir(tmp_path)
    files = "--profile", "profile.json", "--trace", "trace.json", "--write_report"
    assert _run(path, "-r", "2", "-w", "1", *files) == 0
    modelled, _, measured = capsys.readouterr().out.partition("measured here")
    assert f"LATENCY      is {time_text(1e6 * latency_ms)}: " in modelled
    assert measured.startswith(", wall time of this machine, of the simulator and not of the NPU (2 runs after 1):\n")
    assert "SIMULATE     takes" in measured
    assert "EXECUTE" not in measured
    profile = json.loads(Path("profile.json").read_text())
    assert profile["modelled"]["latency_ms"] == latency_ms
    assert (profile["measured"]["runs"], profile["measured"]["warmup_runs"]) == (2, 1)
    with next(tmp_path.glob("*.csv")).open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["Modelled_Latency"]) == pytest.approx(latency_ms, abs=1e-6)
    assert "Simulate_Time_Mean" in row
    assert "Execute_Time_Mean" not in row


def test_a_trace_of_a_package_has_the_modelled_clock_alone(compiled: tuple[Path, float], tmp_path: Path) -> None:
    path, latency_ms = compiled
    assert _run(path, "-q", "-r", "2", "--trace", tmp_path / "trace.json") == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {text.partition(":")[0] for text in names.values()} == {"modelled"}
    assert set(names) == {event["pid"] for event in events}
    (one,) = [pid for pid, text in names.items() if text == "modelled: one inference"]
    (inside,) = [pid for pid, text in names.items() if text == "modelled: inside segment-0"]
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["dur"] for event in spans if event["pid"] == one) == pytest.approx(1000 * latency_ms)
    assert {event["pid"] for event in spans} == {one, inside}
    (segment,) = [
        event for event in spans if event["pid"] == one and event["name"] == "segment-0" and event["tid"] == 2
    ]
    ends = [(event["ts"], event["ts"] + event["dur"]) for event in spans if event["pid"] == inside]
    assert segment["ts"] <= min(ends)[0]
    assert max(end for _, end in ends) <= segment["ts"] + segment["dur"] + 1e-3


def test_other_shapes_are_not_modelled(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model) == 0
    text = capsys.readouterr().out
    assert "modelled" not in text
    assert "measured here, wall time of this machine (1 run after 0):\n" in text
    assert "EXECUTE      takes" in text


# What packages and the environment say.


def packed(folder: Path, config: dict[str, str], *, compiled: bool = False) -> Path:
    """A package of the model with these settings; ``compiled``: its plan has everything run on the host."""
    model = add_model()
    if compiled:
        write_package(build_package(model_bytes(model), host_plan(model), {}), folder)
        (folder / "metadata" / "config.cfg").write_bytes(format_config(config))
        return folder
    manifest = Manifest(("model.circle",), ("circle",), ("config.cfg",))
    members = {
        "metadata/MANIFEST": manifest.to_json(),
        "metadata/config.cfg": format_config(config),
        "model.circle": model_bytes(model),
    }
    write_package(PackageFiles(members, manifest, config, None, "test"), folder)
    return folder


def test_backends_of_a_package(
    tmp_path: Path, inputs: Path, capsys: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKENDS", raising=False)
    package = packed(tmp_path / "p", {"BACKENDS": '"nowhere"'}, compiled=True)
    assert _run(package, "--load", inputs) == 0
    assert "chooses BACKENDS 'nowhere', which is ignored: none of the backends 'nowhere' is known" in caplog.text
    monkeypatch.setenv("BACKENDS", "nowhere")
    assert _run(package, "--load", inputs) == 1
    assert "odc-run: error: none of the backends 'nowhere'" in capsys.readouterr().err
    assert _run(package, "--load", inputs, "--backend", "host") == 0  # who asks for one gets it
    monkeypatch.setenv("BACKENDS", "cpu")  # counts more than the package
    opened: list[str] = []
    real = api.open_executor

    def open_executor(model: Any, **options: Any) -> Any:
        opened.append(options["backend"])
        return real(model, **options)

    monkeypatch.setattr(api, "open_executor", open_executor)
    assert _run(package, "--load", inputs) == 0
    monkeypatch.setenv("BACKENDS", "npu;cpu")
    assert _run(package, "--load", inputs) == 0
    monkeypatch.delenv("BACKENDS")
    assert _run(packed(tmp_path / "q", {}, compiled=True), "--load", inputs) == 0
    assert opened == ["host", "auto", "auto"]


def test_compiling_on_the_device(
    tmp_path: Path, inputs: Path, capsys: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    settings = {"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit", "ODC_RECORDS": "5"}
    package = packed(tmp_path / "p", settings)
    assert _run(package, "--load", inputs, "--dump", tmp_path / "out.npz", "-r", 3) == 0
    told = capsys.readouterr().out
    assert "ON DEVICE    collecting, served by original" in told
    assert "records: 3 of 5" in told
    np.testing.assert_array_equal(_loaded(tmp_path / "out.npz")["out_0"], OUT)
    assert _run(package, "--load", inputs) == 0
    assert "records: 4 of 5" in capsys.readouterr().out  # from run to run
    assert _run(package, "--load", inputs, "--profile", tmp_path / "profile.json") == 0
    assert "is not compiled on the device: --profile" in caplog.text
    assert "ON DEVICE" not in capsys.readouterr().out
    monkeypatch.setenv("OnDeviceCompilation", "0")
    assert _run(package, "--load", inputs) == 0
    assert "ON DEVICE" not in capsys.readouterr().out


def test_long_runs_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    records: list[list[np.ndarray]] = [[], [], [], []]
    assert list(measure.telling("odc-run", records, quiet=False)) == records
    told = capsys.readouterr().err.splitlines()
    assert told == [f"odc-run: {done} of 4 samples" for done in (1, 3)]
    assert list(measure.telling("odc-run", records, quiet=True)) == records
    assert capsys.readouterr().err == ""
