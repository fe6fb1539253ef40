"""Spectra whose first column is much larger than the others keep codes for these."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.models import normalized, prepare
from odc_mlir.runtime.execution.executor import HostExecutor

SIZES = np.array([120.0, 10.0, 8.0, 5.0, 3.0, 2.0], np.float32)
PLAIN: dict[str, Any] = {"ranges": "minmax", "equalize": "none", "rounding": "off", "correction": "off", "mixed": "off"}


@cache
def spectra(first: float = float(SIZES[0])) -> tuple[bytes, list[list[np.ndarray]]]:
    """A convolution of images [1, 8, 6, 1] whose columns have these sizes, as large in its sums, and a layer behind."""
    rng = np.random.default_rng(5)
    builder = ModelBuilder()

    def constant(name: str, *shape: int, by: float | np.ndarray = 1.0) -> int:
        return builder.tensor(name, shape, data=(rng.normal(size=shape) / by).astype(np.float32))

    x, hidden, y = (builder.tensor(n, s) for n, s in (("x", (1, 8, 6, 1)), ("h", (1, 6, 1, 8)), ("y", (1, 6, 1, 3))))
    options = {"padding": "valid", "stride_h": 1, "stride_w": 1}
    weights = constant("w", 8, 3, 6, 1, by=SIZES[:, None])
    builder.operator("CONV_2D", [x, weights, constant("b", 8)], [hidden], options=options)
    builder.operator("CONV_2D", [hidden, constant("v", 3, 1, 1, 8), constant("c", 3)], [y], options=options)
    sizes = np.array([first, *SIZES[1:]], np.float32)[:, None]
    samples = [[(sizes * rng.uniform(-1, 1, (1, 8, 6, 1))).astype(np.float32)] for _ in range(32)]
    return bytes(write_model(builder.finish([x], [y]))), samples


def outputs_db(file: bytes, made: Any, samples: list[list[np.ndarray]]) -> float:
    pairs = [(odc_mlir.run(file, sample)[0], odc_mlir.run(made.model, sample)[0]) for sample in samples]
    signal = sum(float(np.square(expected).sum()) for expected, _ in pairs)
    noise = sum(float(np.square(expected - found).sum()) for expected, found in pairs)
    return float(10 * np.log10(signal / noise))


def test_the_function_stays_what_it_was() -> None:
    file, samples = spectra()
    base = prepare(import_model(read_model(file)))
    made = normalized(base, samples, columns=True)
    assert made is not None
    assert made.mends_columns
    for sample in samples[:4]:
        (expected,), (found,) = (HostExecutor(model.graph).run(sample) for model in (base, made))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_even_columns_stay() -> None:
    file, samples = spectra(12.0)
    base = prepare(import_model(read_model(file)))
    assert normalized(base, samples, columns=True) is None
    assert normalized(prepare(import_model(read_model(spectra()[0]))), spectra()[1]) is None


def test_small_columns_keep_codes() -> None:
    file, samples = spectra()
    helped = odc_mlir.quantize(file, calibration=samples, **PLAIN)
    plain = odc_mlir.quantize(file, calibration=samples, **PLAIN, normalize="off")
    assert helped.verdict["choices"]["normalize"] == "inputs"
    assert helped.verdict["scheme"]["x/split"] == "float"
    assert outputs_db(file, helped, samples) > outputs_db(file, plain, samples) + 3.0


@pytest.mark.parametrize("scheme", ["int16x8", "int8_wo"])
def test_other_schemes_need_no_split(scheme: str) -> None:
    file, samples = spectra()
    options = {key: value for key, value in PLAIN.items() if scheme == "int16x8" or key not in ("ranges", "equalize")}
    made = odc_mlir.quantize(file, scheme=scheme, calibration=samples, **options)
    assert "x/split" not in made.verdict["scheme"]
