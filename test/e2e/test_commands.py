"""The commands together, as a user would chain them: compile, look, run, simulate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.data import Sample, golden_samples

Main = Callable[[list[str]], int]


def _run(command: str, *arguments: object) -> int:
    import importlib

    main: Main = importlib.import_module(f"odc_mlir.tools.{command}").main
    return main([str(argument) for argument in arguments])


@pytest.fixture
def model(test_data: Path) -> Path:
    return test_data / "models" / "digits" / "digits_cnn_int8.circle"


@pytest.fixture
def sample(model: Path) -> Sample:
    return next(golden_samples(model.parent / "golden" / f"{model.stem}.npz"))


@pytest.fixture
def inputs(sample: Sample, tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", in_0=sample.inputs[0])
    return tmp_path / "in.npz"


def test_compile_run_simulate_dump(
    model: Path, inputs: Path, sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, report = tmp_path / "package", tmp_path / "report.json"
    assert _run("odc_compile", model, "-o", package, "--json", report) == 0
    assert json.loads(report.read_text())["npu_op_count"] > 0

    for backend in ("host", "npu", "auto"):
        dumped = tmp_path / f"{backend}.npz"
        assert _run("odc_run", package, "--backend", backend, "--load", inputs, "--dump", dumped) == 0
        with np.load(dumped) as archive:
            np.testing.assert_array_equal(archive["out_0"], sample.outputs[0])

    (segment,) = package.rglob("*.npu")
    stats = tmp_path / "stats.json"
    dumped = tmp_path / "simulated.npz"
    assert _run("odc_sim", segment, "--load", inputs, "--dump", dumped, "--stats", stats) == 0
    assert json.loads(stats.read_text())["cycles"] == json.loads(report.read_text())["cycles_total"]

    capsys.readouterr()
    for file in (model, segment, package):
        assert _run("odc_dump", file) == 0
        assert capsys.readouterr().out.strip()
        assert _run("odc_dump", file, "--json") == 0
        json.loads(capsys.readouterr().out)


COMMANDS = ("odc_opt", "odc_compile", "odc_run", "odc_sim", "odc_dump", "odc_diff")
# What a command needs beside the file.
NEEDED = {"odc_compile": ("-o", "out"), "odc_diff": ("host",)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_a_user_error(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(command, tmp_path / "none.circle", *NEEDED.get(command, ())) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{command.replace('_', '-')}: error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_file_is_a_user_error(
    command: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.circle"
    damaged.write_bytes(model.read_bytes()[:1000])
    assert _run(command, damaged, *NEEDED.get(command, ())) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{command.replace('_', '-')}: error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(command, "file", *NEEDED.get(command, ()), "--no-such-option") == 2
    assert "--no-such-option" in capsys.readouterr().err
