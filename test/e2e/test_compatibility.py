"""Scripts, command lines and files that others write for ONE, onert and TICO, in words of our own."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.source import REPOSITORY
from odc_mlir.runtime import onert_session
from odc_mlir.tools import odc_build, odc_circle, odc_optimize, odc_run

MODEL = REPOSITORY / "examples" / "on_device" / "digits_cnn.circle"
TICO = REPOSITORY / "examples" / "pytorch" / "digits_mbv2.circle"

MINIMAL = """
import sys
import numpy as np
from onert import infer

def count(info):
    total = 1
    for axis in range(info.rank):
        total *= info.dims[axis]
    return total

session = infer.session(sys.argv[1], "cpu")
session.prepare()
for index in range(session.input_size()):
    info = session.input_tensorinfo(index)
    session.set_input(index, np.zeros(count(info), dtype=info.dtype))
results = []
for index in range(session.output_size()):
    info = session.output_tensorinfo(index)
    results.append(np.ones(count(info), dtype=info.dtype))
    session.set_output(index, results[-1])
session.run()
assert abs(results[0].sum() - 1) < 1e-5
print(len(results), "output", results[0].shape)
"""
STATIC = """
import sys
import numpy as np
from onert import infer

session = infer.session(sys.argv[1], "cpu")
changed = []
for info in session.get_inputs_tensorinfo():
    shape = [10] + list(info.dims[1 : info.rank])
    info.rank = len(shape)
    for axis, size in enumerate(shape):
        info.dims[axis] = size
    for axis in range(len(shape), len(info.dims)):
        info.dims[axis] = 1
    changed.append(info)
session.update_inputs_tensorinfo(changed)
results = session.infer([np.zeros(tuple(info.dims[: info.rank]), dtype=info.dtype) for info in changed])
print(len(results), "output", results[0].shape)
"""
DYNAMIC = """
import sys
import numpy as np
from onert import infer

session = infer.session(sys.argv[1], "cpu")
for size in (2, 5):
    given = []
    for info in session.get_inputs_tensorinfo():
        shape = [size if extent == -1 else extent for extent in info.shape]
        given.append(np.random.uniform(0, 1, shape).astype(info.dtype))
    results = session.infer(given)
print(len(results), "output", results[0].shape)
"""
BENCHMARK = """
import sys
import numpy as np
from onert import infer, tensorinfo

session = infer.session(path=sys.argv[1], backends="cpu")
infos = [tensorinfo(info.dtype, [1, 8, 8, 1]) for info in session.get_inputs_tensorinfo() if info.rank == 4]
given = [np.random.rand(*info.shape).astype(info.dtype) for info in infos]
results, times = session.infer(given, measure=True)
assert "prepare_time_ms" in times
results, times = session.infer(given, measure=True)
assert times["input_time_ms"] + times["run_time_ms"] + times["output_time_ms"] > 0
print(len(results), "output", results[0].shape)
"""


@pytest.mark.filterwarnings("ignore:input 0")  # of another shape than the model's
@pytest.mark.parametrize(
    ("script", "shape"), [(MINIMAL, (10,)), (STATIC, (10, 10)), (DYNAMIC, (1, 10)), (BENCHMARK, (1, 10))]
)
def test_scripts_for_onert(
    script: str,
    shape: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = types.ModuleType("onert")
    module.__dict__.update(infer=onert_session, tensorinfo=onert_session.tensorinfo)
    monkeypatch.setitem(sys.modules, "onert", module)
    monkeypatch.setattr(sys, "argv", ["script.py", str(MODEL)])
    (tmp_path / "script.py").write_text(script)
    runpy.run_path(str(tmp_path / "script.py"))
    assert capsys.readouterr().out.endswith(f"1 output {shape}\n")


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["-r", "2", "-w", "1", "-t", "1", "-v", "1", "--mem_poll=true"], []),
        (["-m", "0", "-g", "false", "-p", "0", "--run_d", "1"], []),
        (["--num_run", "2", "--warmup", "1", "--shape_p", "[0,[1,8,8,1]]", "--verb=2", "--fixed"], []),
        (["-q", "uint8", "--minmax_run", "2", "--qpath", "q.circle", "--force_f"], ["q.circle"]),
        (["--dump_i", "in", "--dump:raw", "out", "--output_si", "[0,40]"], ["in.0", "out.0"]),
    ],
)
def test_command_lines_of_onert_run(
    words: list[str],
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also with unambiguous prefixes of options, as its documentation writes them."""
    monkeypatch.chdir(tmp_path)
    Path("m.circle").write_bytes(MODEL.read_bytes())
    assert odc_run.main(["m.circle", *words]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{phase} " in told for phase in ("MODEL_LOAD", "PREPARE", "EXECUTE"))
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["m.circle", *files])


@pytest.mark.parametrize("words", [["--modelfile", "{}"], ["--nnpackage={}", "-r", "2"], ["--pa", "{}"]])
def test_onert_run_names_the_model_by_an_option(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_run.main([word.format(MODEL) for word in words]) == 0
    assert "EXECUTE" in capsys.readouterr().out
    assert odc_run.main([*(word.format(MODEL) for word in words), str(MODEL)]) == 2, "there is one model"


def test_ambiguous_prefixes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_run.main([str(MODEL), "--output_", "[0,40]"]) == 2
    assert "unrecognized arguments: --output_" in capsys.readouterr().err


CFG = """; a template that was filled in
[Environment]
; a variable
HERE="1"
[backend]
target=
[onecc]
; steps
one-import-tf=False
one-optimize=True
one-quantize=True
one-pack=True
include=O1
# include=O1 O2

[one-optimize]
; circle file
input_path=m.circle
output_path=o.circle
fuse_batchnorm_with_conv=True
[one-quantize]
input_path=o.circle
output_path=q.circle
; random data without a file
input_data=
input_data_format=
input_model_dtype=float32
quantized_dtype=uint8
granularity=channel
input_type=
mode=percentile
min_percentile=2.0
max_percentile=98.0
[one-pack]
input_path=q.circle
output_path=package
"""


def test_a_configuration_for_onecc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.circle").write_bytes(MODEL.read_bytes())
    Path("one.cfg").write_text(CFG)
    assert odc_build.main(["one.cfg"]) == 0
    told = capsys.readouterr()
    assert told.out.endswith("3 steps run, 0 up to date\nnext: odc-run package --load DATA\n")
    assert "--ranges percentile --range-option low=2.0 --range-option high=98.0" in told.out
    assert "[Environment] applies to the commands of onecc" in told.err
    (found,) = odc_mlir.run("package", [np.zeros((1, 8, 8, 1), np.uint8)])
    assert (found.shape, found.dtype) == ((1, 10), np.uint8)


def test_a_target_of_another_compiler_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"[onecc]\none-codegen=True\n[backend]\ntarget=other\n[one-codegen]\no=p\ninput={MODEL}\n"
    Path("one.cfg").write_text(text)
    assert odc_build.main(["one.cfg", "--dry-run"]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert told == "odc-build: warning: [backend] asks for the target 'other'; compiling for npu-256"


def test_files_of_tico(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inspect, optimise and extract: the work of ``tico-circle``."""
    part, small = str(tmp_path / "part.circle"), str(tmp_path / "small.circle")
    assert odc_circle.main(["operators", str(TICO)]) == 0
    count = len(capsys.readouterr().out.splitlines())
    assert odc_circle.main(["extract", str(TICO), "--operators", "0-3", "-o", part]) == 0
    assert odc_circle.main(["operators", part]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4 + 1  # and the next step
    assert odc_optimize.main([str(TICO), "--verify", "-o", small]) == 0
    assert capsys.readouterr().out.startswith(f"{count} operators before, ")
