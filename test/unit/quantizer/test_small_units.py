"""What a model's unit is does not matter: farads, volts or counts, the scales follow."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model

SAMPLES = np.random.default_rng(1).standard_normal((32, 1, 8)).astype(np.float32)


def two_layers(unit_in: float, unit_out: float) -> bytes:
    """A model of inputs and outputs in these units."""
    random, builder = np.random.default_rng(0), ModelBuilder()
    x, hidden, y = builder.tensor("x", (1, 8)), builder.tensor("hidden", (1, 16)), builder.tensor("y", (1, 4))
    weights = [random.standard_normal(shape) / 3 for shape in ((16, 8), (4, 16))]
    biases = [random.standard_normal(count) / 4 for count in (16, 4)]
    for place, (source, result) in enumerate(((x, hidden), (hidden, y))):
        factor, divisor = (unit_out, 1.0) if place else (1.0, unit_in)
        layer = [
            builder.tensor(f"{name}{place}", array.shape, data=(array * by).astype(np.float32))
            for name, array, by in (("w", weights[place], factor / divisor), ("b", biases[place], factor))
        ]
        options = {} if place else {"fused_activation_function": "relu"}
        builder.operator("FULLY_CONNECTED", [source, *layer], [result], options=options)
    return bytes(write_model(builder.finish([x], [y])))


@cache
def measured(scheme: str, unit_in: float, unit_out: float) -> tuple[float, list[str]]:
    """The SQNR in dB without help, and why layers stay in float."""
    samples = [[sample] for sample in (SAMPLES * unit_in).astype(np.float32)]
    model = two_layers(unit_in, unit_out)
    found = odc_mlir.quantize(model, scheme=scheme, calibration=samples, help=False)
    return found.verdict["metrics"]["sqnr_db"], list(found.verdict["float_reasons"].values())


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16", "int16x8", "int8x4", "int8_wo", "int4_wo"])
@pytest.mark.parametrize("units", [(1e-9, 1e-12), (1e-6, 1.0), (1.0, 1e-6), (1e-15, 1e-15), (1e15, 1e15), (1e6, 1e-6)])
def test_accuracy_does_not_depend_on_the_unit(scheme: str, units: tuple[float, float]) -> None:
    quality, reasons = measured(scheme, *units)
    assert quality == pytest.approx(measured(scheme, 1.0, 1.0)[0], abs=0.5)
    assert not reasons


def test_where_products_of_scales_vanish_layers_stay_in_float_and_say_why() -> None:
    _, reasons = measured("int16", 1e-2, 1e-34)
    assert any("'hidden' and 'w1'" in reason for reason in reasons)
    assert any("choose units for them that are closer to 1" in reason for reason in reasons)


def with_zeros(unit: float, where: str) -> bytes:
    """Two layers with values in this unit between them: one has a row of zeros, or what is added to them are zeros.

    These are a dead RELU, or come of a factor of zeros.
    """
    random, builder = np.random.default_rng(0), ModelBuilder()
    tensors = {name: builder.tensor(name, (1, 16)) for name in ("hidden", "negative", "dead", "sum")}
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    first, last = random.standard_normal((16, 8)) * unit, random.standard_normal((4, 16)) / unit
    if where == "row":
        first[3] = 0.0

    def layer(source: int, weights: np.ndarray, bias: float, result: int) -> None:
        constants = [np.asarray(weights, np.float32), np.full(len(weights), bias, np.float32)]
        made = [builder.tensor(f"c{result}_{place}", each.shape, data=each) for place, each in enumerate(constants)]
        builder.operator("FULLY_CONNECTED", [source, *made], [result])

    layer(x, first, 0.0, tensors["hidden"])
    last_input = tensors["hidden"]
    if where == "dead":
        layer(x, np.abs(first), -100 * unit, tensors["negative"])
        builder.operator("RELU", [tensors["negative"]], [tensors["dead"]])
        builder.operator("ADD", [tensors["hidden"], tensors["dead"]], [tensors["sum"]])
        last_input = tensors["sum"]
    if where == "factor":
        zeros = builder.tensor("zeros", (1, 16), data=np.zeros((1, 16), np.float32))
        builder.operator("MUL", [tensors["hidden"], zeros], [tensors["dead"]])
        builder.operator("ADD", [tensors["hidden"], tensors["dead"]], [tensors["sum"]])
        last_input = tensors["sum"]
    layer(last_input, last, 0.0, y)
    return bytes(write_model(builder.finish([x], [y])))


@pytest.mark.parametrize("where", ["row", "dead", "factor"])
@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8"])
def test_zeros_do_no_harm_in_any_unit(scheme: str, where: str) -> None:
    samples = [[sample] for sample in SAMPLES]
    qualities = []
    for unit in (1.0, 1e-20, 1e15):
        found = odc_mlir.quantize(with_zeros(unit, where), scheme=scheme, calibration=samples, help=False)
        assert not found.verdict["float_reasons"]
        qualities.append(found.verdict["metrics"]["sqnr_db"])
    assert qualities[1:] == pytest.approx(qualities[:1] * 2, abs=0.5)
