"""``odc-mlir``: commands, completion, samples, all steps for one model."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir import samples
from odc_mlir.errors import OptionError
from odc_mlir.firmware import driver_files
from odc_mlir.tools.commands import SHELLS, commands, main

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def test_every_script_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = PROJECT["project"]["scripts"]
    own = {"odc-mlir": "odc_mlir.__main__:main"}
    assert scripts == own | {f"odc-{name}": f"odc_mlir.start:{name}" for name in commands()}
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in commands())
    assert "compile a model for an NPU" in text


@pytest.mark.parametrize("name", commands())
def test_scripts_start_their_command(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint(f"odc-{name}", PROJECT["project"]["scripts"][f"odc-{name}"], "console_scripts")
    monkeypatch.setattr(sys, "argv", [f"odc-{name}", "--version"])
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # the handler of this process stays
    assert point.load()() == 0
    assert capsys.readouterr().out.startswith(f"odc-{name} ")


def test_it_runs_commands_and_gives_their_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--version"]) == main(["odc-compile", "--version"]) == 0
    assert capsys.readouterr().out.count("odc-compile") == 2
    assert main(["compile", "nothing.circle", "-o", "x"]) == 1
    assert main(["bananas"]) == 2
    assert "neither a model file nor a command 'bananas'; commands:" in capsys.readouterr().err
    assert main(["compil", "m.circle"]) == 2
    assert "did you mean 'compile'?" in capsys.readouterr().err
    done = subprocess.run([sys.executable, "-m", "odc_mlir", "sim", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"odc-sim ")


def test_a_closed_pipe_is_one_line() -> None:
    done = subprocess.run(f"{sys.executable} -m odc_mlir > /dev/full", shell=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(b": error: standard output: No space left on device\n")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell, "odc-compile"]) == 0
    text = capsys.readouterr().out
    assert "sram-limit" in text
    assert "num_runs" not in text
    assert main(["completion", shell]) == 0
    whole = capsys.readouterr().out
    assert "sram-limit" in whole
    assert "num_runs" in whole
    assert main(["completion", shell, "nothing"]) == 2


def test_completion_without_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash", "compile"]) == 1
    assert "pip install 'odc-mlir[completion]'" in capsys.readouterr().err


def test_samples(tmp_path: Path) -> None:
    assert main(["samples", str(tmp_path / "s")]) == 0
    assert {path.name for path in (tmp_path / "s").iterdir()} == set(samples.FILES)
    assert odc_mlir.load(tmp_path / "s" / "digits_cnn_int8.circle") is not None
    with pytest.raises(OptionError, match="there is no sample 'bananas'"):
        samples.path("bananas")


def test_samples_go_to_a_folder_twice_but_over_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    copy = ["samples", str(folder)]
    assert main(copy) == 0
    assert main(copy) == 0
    mine = folder / "samples.npz"
    mine.write_bytes(b"mine")
    assert main(copy) == 1
    assert mine.read_bytes() == b"mine"
    (folder / "notes").write_text("mine")
    assert main([*copy, "--overwrite"]) == 0
    assert mine.read_bytes() == samples.path("samples.npz").read_bytes()
    assert (folder / "notes").read_text() == "mine"
    assert main(copy) == 1


def test_the_wheel_has_the_samples_and_the_driver() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    wanted = {f"{folder}/{name}": f"odc_mlir/samples/data/{name}" for name, folder in samples.FILES.items()}
    wanted |= {f"driver/{name}": f"odc_mlir/emitter/driver/{name}" for name in driver_files()}
    assert included == wanted
    assert all((REPOSITORY / source).is_file() for source in included)


def test_all_steps_for_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder = str(samples.path("digits_cnn_int8.circle")), tmp_path / "out"
    for _ in range(2):  # what it wrote itself, it replaces
        assert main([model, "-o", str(folder)]) == 0
        told = capsys.readouterr().out
        steps = [line.split()[1] for line in told.splitlines() if line.startswith("$ ")]
        assert steps == ["odc-lint", "odc-compile", "odc-diff"]
        assert "over 1 random input" in told
        assert f"{folder / 'package'} = {model} on a random input" in told
        assert [line for line in told.splitlines() if line.startswith("next:")] == told.splitlines()[-1:]
        assert {path.name for path in folder.iterdir()} == {"package", "report.html"}


def test_processors_have_no_page_and_random_samples_suffice(
    test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = test_data / "models" / "digits" / "digits_cnn.circle", tmp_path / "out"
    assert main([str(model), "-o", str(folder), "--calibration", "random", "--target", "cpu"]) == 0
    found, running = capsys.readouterr(), f"odc-run {folder / 'package'} --load DATA"
    assert found.out.endswith(f"next: (no page: there is no model of code for cpu) {running}\n")
    assert "package" in {path.name for path in folder.iterdir()}
    assert found.err.count("ranges are recorded on random inputs") == 1
    model = model.with_name("digits_cnn_int8.circle")
    assert main([str(model), "-o", str(folder / "m55"), "--target", "cortex-m55"]) == 0
    assert "is not compared, as its code does not run here" in capsys.readouterr().out
    assert "over 1 random input" in found.out


def test_a_quiet_run_prints_only_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = samples.path("digits_cnn_int8.circle")
    assert main([str(model), "-q", "-o", str(tmp_path / "out")]) == 0
    found = capsys.readouterr()
    assert found.out == f"{tmp_path / 'out' / 'package'} = {model} on a random input (--calibration DATA: on samples)\n"
    assert found.err == ""


def test_a_float_model_is_quantised_first(test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = test_data / "models" / "digits"
    model, folder = str(digits / "digits_cnn.circle"), tmp_path / "out"
    assert main([model, "-o", str(folder)]) == 1
    assert "give --calibration DATA" in capsys.readouterr().err
    assert not folder.exists()
    (tmp_path / "file").touch()
    data = ["--calibration", str(digits / "calibration.npz")]
    assert main([model, "-o", str(tmp_path / "file"), *data]) == 1
    assert capsys.readouterr().out == "", "arguments are checked before any step"
    assert main([model, "-o", str(folder), *data, "--io", "quantized", "--memory", "sram"]) == 0
    told = capsys.readouterr().out
    assert "0 ms on the host" in told, "inputs and outputs are codes"
    assert f"{folder / 'report.html'} --memory sram" in told
    steps = [line.split()[1] for line in told.splitlines() if line.startswith("$ ")]
    assert steps == ["odc-lint", "odc-quantize", "odc-lint", "odc-compile", "odc-diff"]
    assert "over 4 samples" in told, "not on made-up inputs"
    quantized = folder / "digits_cnn-quantized.circle"
    assert f"{folder / 'package'} = {quantized} on samples" in told
    assert "odc-quantize first" not in told, "it comes next"
    assert re.search(rf"{quantized} against {model}: .*; passed", told)
    assert [line for line in told.splitlines() if line.startswith("next:")] == told.splitlines()[-1:]
    assert "digits_cnn" in (folder / "report.html").read_text().partition("<title>")[2].partition("</title>")[0]
    assert {path.name for path in folder.iterdir()} == {quantized.name, "accuracy.json", "package", "report.html"}


def test_the_first_step_that_fails_is_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.circle"), "-o", str(tmp_path / "out")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([str(samples.path("digits_cnn_int8.circle")), "--io", "quantized", "-o", str(tmp_path / "out")]) == 1
    assert "--io is for float models" in capsys.readouterr().err
