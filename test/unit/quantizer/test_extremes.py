"""Numbers that float32 can hardly hold, or that are none: answers or typed errors, and no warning of numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from helpers.nodes import node, quant, tensor
from odc_mlir.errors import InputError, ModelError, OdcError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.numerics.weight_rounding import Grid, round_weights
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.quantizer.samples import check_finite
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.comparison import compare

EXTREMES = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 0.0, 1e20], np.float32)


def layers(factor: float) -> bytes:
    """Two layers of which every third weight is ``factor``."""
    builder = ModelBuilder()
    x, hidden, y = (builder.tensor(name, (1, 8)) for name in ("x", "hidden", "y"))
    for name, source, result in (("a", x, hidden), ("b", hidden, y)):
        weights = np.random.default_rng(len(name)).normal(size=(8, 8)).astype(np.float32)
        weights.flat[::3] = factor
        w, b = builder.tensor(f"{name}/w", (8, 8), data=weights), builder.tensor(f"{name}/b", (8,), data=weights[0])
        builder.operator("FULLY_CONNECTED", [source, w, b], [result])
    return bytes(write_model(builder.finish([x], [y])))


@pytest.mark.parametrize("scheme", ["int8", "int8_wo"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38, 1e-45])
def test_samples(value: float, scheme: str) -> None:
    model = layers(1.0)
    sample = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    extreme = np.where(np.arange(8) % 3 == 0, np.float32(value), sample).astype(np.float32)
    try:
        found = odc_mlir.quantize(model, scheme=scheme, calibration=[[extreme], [sample]] * 3, max_seconds=1)
    except OdcError:
        return
    assert np.isfinite(value)
    odc_mlir.run(found.model, [extreme])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{"calibration": 3}, {"calibration": 0, "evaluation": 3}])
def test_a_sample_that_is_not_finite_is_refused_by_name(value: float, options: dict[str, int]) -> None:
    """Whichever part it has: to choose by, to check on, or none of these."""
    random = np.random.default_rng(1)
    given = {key: [[random.normal(size=(1, 8)).astype(np.float32)] for _ in range(12)] for key in options}
    for key, count in options.items():
        for sample in given[key][5 : 5 + count]:
            sample[0][0, 2] = value
    with pytest.raises(InputError, match=r"sample 5 holds values that are not finite, as 3 of 12 samples do.*'x'"):
        odc_mlir.quantize(layers(1.0), help=False, **given)


@pytest.mark.parametrize("factor", [np.nan, np.inf, 3.4e38, 1e-45])
def test_weights(factor: float) -> None:
    model, sample = layers(factor), np.ones((1, 8), np.float32)
    odc_mlir.run(model, [sample])
    try:
        odc_mlir.quantize(model, calibration=[[sample]] * 3, max_seconds=1)
    except OdcError:
        return


@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (np.inf, "infinite values"), (-np.inf, "infinite values")]
)
@pytest.mark.parametrize("held_by", ["w", "b"])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_weights_and_biases_that_are_no_numbers_are_refused(value: float, what: str, held_by: str, stored: str) -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4)) for name in ("x", "y"))
    operands = [x]
    for name, shape in (("w", (4, 4)), ("b", (4,))):
        data = np.ones(shape, stored)
        if name == held_by:
            data.flat[1] = value
        operands.append(builder.tensor(name, shape, stored, data=data))
        if stored == "float16":
            real = builder.tensor(f"{name}/real", shape)
            builder.operator("DEQUANTIZE", [operands[-1]], [real])
            operands[-1] = real
    builder.operator("FULLY_CONNECTED", operands, [y])
    model = bytes(write_model(builder.finish([x], [y])))
    samples = [[np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)] for seed in range(4)]
    with pytest.raises(ModelError, match=rf"holds {what}.*tensor '{held_by}'"):
        odc_mlir.quantize(model, calibration=samples)


def test_an_infinite_limit_is_no_weight() -> None:
    builder = ModelBuilder()
    x, hidden, y = (builder.tensor(name, (1, 4)) for name in ("x", "hidden", "y"))
    w = builder.tensor("w", (4, 4), data=np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    most = builder.tensor("most", (), data=np.array(np.inf, np.float32))
    builder.operator("MINIMUM", [x, most], [hidden])
    builder.operator("FULLY_CONNECTED", [hidden, w, -1], [y])
    check_finite(build_graph(builder.finish([x], [y])))


def test_comparing() -> None:
    a, b = (open_executor(layers(factor), all_tensors=True) for factor in (1.0, 2.0))
    found = compare(a, b, [[EXTREMES[None]]])
    assert {tensor.name for tensor in found.tensors} == {"hidden", "y"}


def test_codes_of_numbers_that_are_none() -> None:
    info = TensorInfo("x", "int8", (8,), quant(3e38, 3))
    assert to_codes(info, EXTREMES).tolist() == [-128, 127, -128, 4, 2, 3, 3, 3]
    assert to_reals(info, np.array([127, 3], np.int8)).tolist() == [np.inf, 0]


def test_inputs_of_which_nothing_can_be_computed() -> None:
    grid = Grid(np.ones((1, 1)), np.zeros((1, 1)), -127, 127)
    weights = np.array([[[0.4, 1.6]]])
    for covariance in (np.zeros((1, 2, 2)), np.full((1, 2, 2), 1e-320), np.eye(2)[None] * -1.0):
        assert round_weights(weights, grid, covariance).tolist() == [[[0, 2]]]


def test_equalising_never_overflows() -> None:
    module: Any = import_model(odc_mlir.runtime.api.read_model(layers(3.4e38)))
    text = str(odc_mlir.lower(module, "circle-opt"))
    assert "inf" not in text


def test_scales_too_small_to_multiply() -> None:
    made = node("RSQRT", [tensor("int8", (1,), quant(1e-45))], tensor("int8", None, quant(1e-45)))
    with pytest.raises(ModelError, match="a scale ratio is not finite"):
        made.spec.kernel_function(made)
