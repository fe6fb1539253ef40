"""Files for LiteRT: however they are written, it runs them, or they are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.model_file import save_module
from odc_mlir.runtime import api
from odc_mlir.tools import odc_circle, odc_optimize, odc_quantize


def _products(operand: str, weights: str) -> bytes:
    """FULLY_CONNECTED of codes of these types."""
    builder = ModelBuilder()
    zeros = {"int8": 0, "uint8": 128}
    x, y = (builder.tensor(n, (1, 4), operand, quant=(0.1, zeros[operand])) for n in "xy")
    codes = np.full((4, 4), zeros[weights] + 1, weights)
    w = builder.tensor("w", (4, 4), weights, data=codes, quant=(0.1, zeros[weights]))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


def _negated() -> bytes:
    """NEG of codes, which LiteRT has no kernel for that knows zero points."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 4), "int8", quant=(0.1, 3)) for n in "xy")
    builder.operator("NEG", [x], [y])
    return bytes(model_bytes(builder.finish([x], [y])))


REFUSED = {
    "weights": (_products("int8", "uint8"), r"no kernel for weights of uint8 beside int8.*FULLY_CONNECTED.*'y'"),
    "codes": (_negated(), r"no kernel that knows zero points.*NEG"),
}


def _saved(file: bytes, folder: Path, **options: Any) -> Path:
    save_module(api.load(file), folder / "out.tflite", **options)
    return folder / "out.tflite"


def _optimized(file: bytes, folder: Path, **options: Any) -> Path:
    odc_mlir.optimize(file).save(folder / "out.tflite", **options)
    return folder / "out.tflite"


@pytest.mark.parametrize("write", [_saved, _optimized])
@pytest.mark.parametrize("name", REFUSED)
def test_what_litert_does_not_run_is_written_on_request_only(
    name: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    file, text = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"{text}.*any_reader"):
        write(file, tmp_path)
    assert not list(tmp_path.iterdir())
    assert write(file, tmp_path, any_reader=True).read_bytes()[4:8] == b"TFL3"


def test_what_it_runs_is_written(tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    path = _saved(_products("int8", "int8"), tmp_path)
    interpreter = litert.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.full((1, 4), 5, np.int8))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert np.array_equal(found, api.run(path, [np.full((1, 4), 5, np.int8)])[0])


def test_a_quantised_model_is_checked_when_it_is_saved(tmp_path: Path) -> None:
    """Not only where its bytes are asked for."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("SIN", [x], [y])
    samples = [[np.linspace(-1, 1, 4, dtype=np.float32)[None] * n] for n in range(1, 5)]
    made = odc_mlir.quantize(bytes(model_bytes(builder.finish([x], [y]))), calibration=samples, help=False)
    with pytest.raises(UnsupportedError, match="reader='litert'"):
        made.save(tmp_path / "out.tflite")
    assert not list(tmp_path.iterdir())
    made.save(tmp_path / "out.tflite", any_reader=True)


@pytest.mark.parametrize("is_asked", [False, True])
def test_commands(is_asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "in.circle"
    model.write_bytes(_negated())
    flags = ["--any-reader"] if is_asked else []
    commands: dict[str, Callable[[list[str]], int]] = {
        "optimize": odc_optimize.main,
        "circle": lambda arguments: odc_circle.main(["fake-quantize", *arguments]),
    }
    for name, main in commands.items():
        out = tmp_path / f"{name}.tflite"
        code = main([str(model), "-o", str(out), *flags])
        is_written = is_asked or name == "circle"  # what rounds reals has no codes
        assert (code == 0, out.exists()) == (is_written, is_written)
    assert ("--any-reader" in capsys.readouterr().err) != is_asked


def test_quantising_for_another_reader(tmp_path: Path) -> None:
    """Codes stay where LiteRT would need reals."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    builder.operator("SIN", [x], [y])
    model, samples = tmp_path / "in.circle", tmp_path / "samples.npz"
    model.write_bytes(bytes(model_bytes(builder.finish([x], [y]))))
    np.savez(samples, in_0=np.random.default_rng(1).normal(size=(16, 1, 4)).astype(np.float32))
    arguments = [str(model), "--calibration", str(samples), "-o", str(tmp_path / "out.tflite"), "--quiet"]
    assert odc_quantize.main(arguments) != 0
    assert odc_quantize.main([*arguments, "--any-reader"]) == 0
