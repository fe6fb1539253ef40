"""Native code on float32: what the host kernels give, within roundings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import GoldenModel, golden_models
from helpers.models import ModelBuilder, Shape, model_bytes

# Whatever order sums are added in, and however exponentials are made.
RELATIVE = 1e-5

Array = np.ndarray


def assert_close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=RELATIVE * largest)


@pytest.mark.parametrize("model", golden_models("digits", quantised=False))
def test_golden_inputs(model: GoldenModel) -> None:
    package = odc_mlir.compile(model.circle, target="cpu")
    sample = next(model.samples())
    for found, expected in zip(
        odc_mlir.run(package, sample.inputs, strict=True), odc_mlir.run(model.circle, sample.inputs), strict=True
    ):
        assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "left"),
    [("zoo/pretrainedResnet", 0), ("trained/digits_vit", 0), ("trained/sine_forecast", 0)],
)
@pytest.mark.slow
def test_whole_models(name: str, left: int, test_data: Path) -> None:
    """Networks of convolutions and of attention, all of them in native code."""
    path = test_data / "models" / f"{name}.circle"
    package = odc_mlir.compile(path, target="cpu")
    assert package.plan is not None
    assert len(package.plan.host_reasons) == left, package.plan.host_reasons
    random = np.random.default_rng(5)
    inputs = [random.normal(size=[d or 1 for d in spec.shape or ()]).astype(np.float32) for spec in package.inputs]
    for found, expected in zip(
        odc_mlir.run(package, inputs, strict=True), odc_mlir.run(path, inputs, backend="host"), strict=True
    ):
        assert_close(found, expected)


def one(name: str, inputs: list[Array], shape: Shape, constants: dict[int, Array], **options: Any) -> bytes:
    """A model of one operator; ``constants`` are operands by place."""
    builder = ModelBuilder()
    given = iter([builder.tensor(f"x{i}", array.shape, str(array.dtype)) for i, array in enumerate(inputs)])
    operands = [
        builder.tensor(f"c{i}", constants[i].shape, str(constants[i].dtype), data=constants[i])
        if i in constants
        else next(given)
        for i in range(len(inputs) + len(constants))
    ]
    result = builder.tensor("y", shape)
    builder.operator(name, operands, [result], options=options)
    return model_bytes(builder.finish([i for i in operands if i < len(inputs)], [result]))


def compare(model: bytes, inputs: list[Array]) -> None:
    package = odc_mlir.compile(model, target="cpu", strict=True)
    (found,) = odc_mlir.run(package, inputs, strict=True)
    (expected,) = odc_mlir.run(model, inputs, backend="host")
    assert_close(found, expected)


def reals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_approximate_gelu() -> None:
    values = np.linspace(-8, 8, 401, dtype=np.float32)
    compare(one("GELU", [values], values.shape, {}, approximate=True), [values])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ADD", (2, 3, 5)),
        ("SUB", (5,)),
        ("MUL", (1,)),
        ("DIV", (2, 3, 1)),
        ("MAXIMUM", (3, 5)),
        ("MINIMUM", (1, 1, 5)),
        ("SQUARED_DIFFERENCE", ()),
    ],
)
def test_operands_that_broadcast(name: str, shape: Shape) -> None:
    a, b = reals(2, 3, 5), reals(*shape, seed=1)
    compare(one(name, [a, b], a.shape, {}), [a, b])


@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "relu_n1_to_1"])
def test_fused_activations(activation: str) -> None:
    x, weights, bias = 4 * reals(1, 5, 4, 3), reals(19, 3, 2, 3, seed=1), reals(19, seed=2)
    options = {"padding": "same", "stride_h": 2, "stride_w": 1, "fused_activation_function": activation}
    compare(one("CONV_2D", [x], (1, 3, 4, 19), {1: weights, 2: bias}, **options), [x])


@pytest.mark.parametrize("classes", [1, 3, 16, 37])
def test_softmax_of_any_width(classes: int) -> None:
    x = 20 * reals(3, classes)
    compare(one("SOFTMAX", [x], x.shape, {}, beta=0.7), [x])


@pytest.mark.parametrize("adjoint", [False, True])
def test_products_of_matrices(adjoint: bool) -> None:
    a, b = reals(2, 3, 5, 7), reals(2, 3, *((9, 7) if adjoint else (7, 9)), seed=1)
    compare(one("BATCH_MATMUL", [a, b], (2, 3, 5, 9), {}, adjoint_rhs=adjoint), [a, b])


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_transposed_convolutions(padding: str) -> None:
    x, weights = reals(1, 4, 3, 2), reals(5, 3, 3, 2, seed=1)
    shape = (1, 8, 6, 5) if padding == "same" else (1, 9, 7, 5)
    constants = {0: np.array(shape, np.int32), 1: weights}
    options = {"padding": padding, "stride_h": 2, "stride_w": 2}
    compare(one("TRANSPOSE_CONV", [x], shape, constants, **options), [x])


def test_moves() -> None:
    x = reals(2, 3, 4, 5)
    compare(one("TRANSPOSE", [x], (2, 5, 3, 4), {1: np.array([0, 3, 1, 2], np.int32)}), [x])
    box = [np.array(values, np.int32) for values in ([0, 2, 3, 0], [2, 0, 0, 5], [1, -1, -2, 3])]
    compare(one("STRIDED_SLICE", [x], (2, 2, 2, 2), dict(enumerate(box, 1))), [x])
    border = np.array([[0, 1], [2, 0], [0, 0], [1, 1]], np.int32)
    compare(one("PAD", [x], (3, 5, 4, 7), {1: border}), [x])
    compare(one("CONCATENATION", [x], (2, 3, 4, 12), {1: reals(2, 3, 4, 7, seed=3)}, axis=3), [x])


@pytest.mark.parametrize(("dtype", "zero"), [("int8", -7), ("uint8", 200), ("int16", 0), ("int16", -300)])
def test_codes_of_reals_and_back(dtype: str, zero: int) -> None:
    """Halves go away from zero, what is not a number gives the lowest code: bit for bit."""
    half = np.nextafter(np.float32(0.25), np.float32(0))
    values = np.concatenate(
        [
            np.arange(-200, 200, dtype=np.float32) * 0.25,
            np.arange(-66000, -65000) * 0.25,
            np.arange(65000, 66000) * 0.25,
            np.nextafter(np.arange(32000.25, 32768, 0.5, np.float32) * 0.5, np.float32(0)),
            [half, -half, 1e9, -1e9, np.inf, -np.inf, np.nan],
        ]
    ).astype(np.float32)
    builder = ModelBuilder()
    x, codes, y = (
        builder.tensor("x", values.shape),
        builder.tensor("codes", values.shape, dtype, quant=(0.5, zero)),
        builder.tensor("y", values.shape),
    )
    builder.operator("QUANTIZE", [x], [codes])
    builder.operator("DEQUANTIZE", [codes], [y])
    model = model_bytes(builder.finish([x], [codes, y]))
    found = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), [values], strict=True)
    for ours, expected in zip(found, odc_mlir.run(model, [values]), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_depth_multipliers() -> None:
    x, weights = reals(1, 5, 4, 3), reals(1, 3, 2, 6, seed=1)
    options = {"padding": "same", "stride_h": 1, "stride_w": 2, "depth_multiplier": 2}
    compare(one("DEPTHWISE_CONV_2D", [x], (1, 5, 2, 6), {1: weights, 2: reals(6, seed=2)}, **options), [x])


def test_moves_of_codes() -> None:
    """Whatever moves is held unsigned inside, and comes out as it went in."""
    builder = ModelBuilder()
    quant = (0.5, -3)

    def codes(name: str, *shape: int) -> int:
        return builder.tensor(name, shape, "int8", quant=quant)

    def numbers(name: str, *values: int, shape: Shape | None = None) -> int:
        array = np.array(values, np.int32).reshape(shape or (-1,))
        return builder.tensor(name, array.shape, "int32", data=array)

    x, turned, padded, cut = (
        codes("x", 1, 3, 4, 2),
        codes("t", 1, 2, 3, 4),
        codes("p", 1, 3, 5, 4),
        codes("c", 1, 2, 3, 2),
    )
    builder.operator("TRANSPOSE", [x, numbers("order", 0, 3, 1, 2)], [turned])
    builder.operator("PAD", [turned, numbers("border", 0, 0, 1, 0, 0, 2, 0, 0, shape=(4, 2))], [padded])
    builder.operator("STRIDED_SLICE", [padded, *(numbers(n, *v) for n, v in SLICES)], [cut])
    model = model_bytes(builder.finish([x], [padded, cut]))
    values = np.random.default_rng(2).integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    found = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), [values], strict=True)
    for ours, expected in zip(found, odc_mlir.run(model, [values]), strict=True):
        np.testing.assert_array_equal(ours, expected)


SLICES = [("begin", (0, 1, 0, 3)), ("end", (1, 3, 5, 0)), ("step", (1, 1, 2, -2))]
