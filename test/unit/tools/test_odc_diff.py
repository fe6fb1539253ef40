"""odc-diff: what it compares, what it prints, and its status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.formats.package import build_package, write_package
from odc_mlir.tools import odc_diff

A = np.arange(4, dtype=np.float32).reshape(1, 4)
B = np.full((1, 4), 10, np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "add.circle"
    path.write_bytes(model_bytes(add_model()))
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """As ``model``, but the last operator subtracts."""
    builder = ModelBuilder()
    a, b, total, out = (builder.tensor(name, (1, 4)) for name in ("a", "b", "sum", "out"))
    builder.operator("ADD", [a, b], [total])
    builder.operator("SUB", [total, a], [out])
    path = tmp_path / "sub.circle"
    path.write_bytes(model_bytes(builder.finish([a, b], [out])))
    return path


def _diff(*arguments: object) -> int:
    return odc_diff.main([str(argument) for argument in arguments])


@pytest.mark.parametrize("second", ["host", "{}", "{}@host", "auto"])
def test_a_model_agrees_with_itself(model: Path, second: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(model, second.format(model), "--atol", 0, "--rtol", 0) == 0
    text = capsys.readouterr().out
    assert "all agree: 1 output and 1 other tensor over 1 random input, atol 0, rtol 0" in text
    assert "inf" in text, "the SQNR of equal values"
    assert "\nout" in text
    assert "sum" not in text, "what agrees inside is shown on demand"
    assert _diff(model, model, "-v") == 0
    assert "sum" in capsys.readouterr().out


def test_the_first_difference_is_named(model: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(model, other) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("!: beyond atol and rtol; MPEIR: ")
    assert lines[-2].startswith("1 of 1 output and 0 of 1 other tensor differ")
    assert lines[-1].startswith("first diverging tensor: 'out' (ADD: 4 of 4 elements, by up to ")
    assert _diff(model, other, "--atol", 1000) == 0
    assert _diff(model, other, "-q") == 1
    assert "diverging" not in capsys.readouterr().out


def test_json(model: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(model, f"{other}@host", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["agrees"], found["first_diverging"]) == (1, False, "out")
    assert found["other"] == {"file": str(other), "backend": "host"}
    inside, output = found["tensors"]
    assert (inside["name"], inside["kind"], inside["diverges"]) == ("sum", "intermediate", False)
    assert inside["errors"]["sqnr_db"] is None
    assert output["errors"].keys() == {
        "elements",
        "differing",
        "max_abs",
        "mae",
        "mape_percent",
        "mpeir",
        "mse",
        "sqnr_db",
        "cosine",
        "top1_match",
        "top5_match",
        "tae",
        "srmse",
    }


def test_loaded_samples(model: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a = 0 adding and subtracting it are the same."""
    zeros = np.zeros_like(A)
    np.savez(tmp_path / "same.npz", in_0=np.concatenate([zeros, zeros]), in_1=np.concatenate([A, B]))
    np.savez(tmp_path / "one.npz", in_0=A, in_1=B)
    assert _diff(model, other, "--load", tmp_path / "same.npz") == 0
    assert "over 2 samples" in capsys.readouterr().out
    assert _diff(model, other, "--load", tmp_path / "one.npz") == 1


def test_each_model_has_its_own_inputs(
    model: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum of a and b is the same when they change places."""
    np.savez(tmp_path / "a.npz", in_0=A, in_1=B)
    np.savez(tmp_path / "b.npz", in_0=B, in_1=A)
    np.savez(tmp_path / "two.npz", in_0=np.stack([A, A]), in_1=np.stack([B, B]))
    assert _diff(model, other, "--load", tmp_path / "a.npz", "--load-b", tmp_path / "b.npz", "--json") == 1
    inside, output = json.loads(capsys.readouterr().out)["tensors"]
    assert (inside["name"], inside["diverges"]) == ("sum", False)
    # (a + b) + a on one side, (b + a) - b on the other
    assert output["errors"]["max_abs"] == np.abs((A + B + A) - (B + A - B)).max()
    assert _diff(model, other, "--load-b", tmp_path / "b.npz") == 1
    assert "A has none" in capsys.readouterr().err
    for text in ("a.npz", "b.npz"):
        data = np.load(tmp_path / text)
        np.savez(tmp_path / text, in_0=data["in_0"][None], in_1=data["in_1"][None])
    flags = ("--load", tmp_path / "a.npz", "--load-b", tmp_path / "two.npz", "--samples")
    assert _diff(model, other, *flags) == 1
    assert "B has 2 records, A 1 record" in capsys.readouterr().err


def test_a_package_beside_its_model(model: Path, tmp_path: Path) -> None:
    write_package(build_package(model.read_bytes(), host_plan(add_model()), {}), tmp_path / "package")
    assert _diff(tmp_path / "package", model) == 0
    assert _diff(model, tmp_path / "package") == 0


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4, 4, 8), "int8", quant=(0.5, 3)) for name in "abc")
    builder.operator("ADD", [a, b], [c])
    path = tmp_path / "add.circle"
    path.write_bytes(model_bytes(builder.finish([a, b], [c])))
    return path


def test_code_that_does_not_run_here_is_not_compared(
    codes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llvmlite")
    odc_mlir.compile(codes, target="cortex-m55").save(tmp_path / "package")
    assert _diff(codes, tmp_path / "package") == 1
    assert "not compared: compiled code of segment-0" in capsys.readouterr().out


def test_the_npu_beside_the_host(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:

    assert _diff(codes, "npu", "--strict", "--target", "npu-128") == 0
    assert "int8[1, 4, 4, 8]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("host", "npu"), 1, "neither 'host' nor 'npu' is an existing file"),
        (("{}", "none.circle"), 1, "No such file"),
        (("{}", "host", "--samples"), 1, "--samples describes the file of --load"),
        (("{}", "host", "--atol", "-1"), 2, "is not a tolerance"),
        (("{}", "host", "--rtol", "nan"), 2, "is not a tolerance"),
        (("{}",), 2, "required: B"),
    ],
)
def test_errors(
    model: Path, arguments: tuple[str, ...], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _diff(*(argument.format(model) for argument in arguments)) == status
    assert text in capsys.readouterr().err


def test_an_empty_file_of_samples(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "none.npz", in_0=A)
    assert _diff(model, "host", "--load", tmp_path / "none.npz") == 1
    assert "the array in_1 is missing" in capsys.readouterr().err
