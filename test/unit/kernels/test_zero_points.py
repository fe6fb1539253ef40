"""Codes mean ``scale * (code - zero point)``, in weights and biases of every type: against products of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.models import ModelBuilder
from helpers.nodes import const, node, quant, run, tensor
from odc_mlir import compile, targets
from odc_mlir import run as run_model
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.model import Quantization
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.partition.rules.checks import PlacementLimits
from odc_mlir.transforms.partition.rules.operator_checks import bias as check_bias

Array = NDArray[Any]
SHAPES = {
    "FULLY_CONNECTED": ((3, 6), (4, 6), 0),
    "CONV_2D": ((1, 5, 4, 6), (4, 2, 3, 6), 0),
    "DEPTHWISE_CONV_2D": ((1, 5, 4, 2), (1, 2, 3, 4), 3),
    "TRANSPOSE_CONV": ((1, 3, 3, 6), (4, 2, 2, 6), 0),
    "BATCH_MATMUL": ((2, 3, 6), (6, 4), 1),
}
NARROW = ("int8", "uint8", "int4", "uint4")
PAIRS = [(x, w) for x in ("int8", "uint8") for w in NARROW] + [("int16", w) for w in (*NARROW, "int16")]


def weights(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], axis: int, several: bool) -> TensorInfo:
    """Random weights, with a zero point away from the middle, or one for each channel."""
    low, high = DTYPES[dtype].range
    count = shape[axis] if several else 1
    scales = rng.uniform(0.5, 1.5, count) / (high - low)
    params = quant(scales, rng.integers(low, high + 1, count), axis if several else 0)
    codes = rng.integers(low, high + 1, shape)
    stored = codes.astype(DTYPES[dtype].numpy)
    return TensorInfo("w", dtype, shape, params, memoryview(encode_constant(stored, dtype)))


def reals(info: TensorInfo) -> Array:
    """What a quantised constant stands for, in float64."""
    assert info.quant is not None
    along = [1] * len(info.static_shape)
    if not info.quant.per_tensor:
        along[info.quant.axis] = -1
    scales, zeros = (np.reshape(values, along) for values in (info.quant.scales, info.quant.zero_points))
    return np.asarray((info.array().astype(np.float64) - zeros) * scales)


def product(name: str, x: TensorInfo, w: TensorInfo, bias: TensorInfo | None, out: TensorInfo) -> Node:
    operands: list[TensorInfo | None] = [x, w] if name == "BATCH_MATMUL" else [x, w, bias]
    if name == "TRANSPOSE_CONV":
        operands = [const([1, 6, 6, 4]), w, x, bias]
    window = {} if len(SHAPES[name][1]) == 2 else {"stride_h": 1, "stride_w": 1}
    if name == "TRANSPOSE_CONV":
        window = {"stride_h": 2, "stride_w": 2}
    return node(name, operands, out, **window)


def wanted(name: str, x: Array, w: TensorInfo, bias: Array | None) -> Array:
    """The product of real numbers."""
    real = [tensor("float32", x.shape), const(reals(w), "float32"), None if bias is None else const(bias, "float32")]
    return run(product(name, real[0], real[1], real[2], tensor("float32", None)), x.astype(np.float32))  # type: ignore[arg-type]


def params_of(dtype: str, values: Array) -> QuantParams:
    """One scale, and a zero point away from the middle."""
    low, high = DTYPES[dtype].range
    scale = float(np.abs(values).max()) / (0.4 * (high - low))
    return quant(scale, (low + high + 1) // 2 + 7)


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize(("x_type", "w_type"), PAIRS)
@pytest.mark.parametrize("name", SHAPES)
def test_zero_points_of_weights(name: str, x_type: str, w_type: str, several: bool) -> None:
    rng = np.random.default_rng(0)
    x_shape, w_shape, axis = SHAPES[name]
    low, high = DTYPES[x_type].range
    x_params = quant(0.02 if high < 1 << 10 else 1e-4, (low + high + 1) // 2 - 5)
    codes = rng.integers(low, high + 1, x_shape).astype(x_type)
    w = weights(rng, w_type, w_shape, axis, several)
    assert w.quant is not None
    products = quant([x_params.scale * scale for scale in w.quant.scales])
    bias = const(rng.integers(-100, 100, 4), "int64" if x_type == "int16" else "int32", products)
    no_bias = name == "BATCH_MATMUL"
    x = (codes.astype(np.float64) - x_params.zero_point) * x_params.scale
    exact = wanted(name, x, w, None if no_bias else reals(bias))
    y_params = params_of(x_type, exact)
    found = run(product(name, tensor(x_type, x_shape, x_params), w, bias, tensor(x_type, None, y_params)), codes)
    steps = found.astype(np.float64) - y_params.zero_point - exact / y_params.scale
    assert np.abs(steps).max() <= (0.6 if x_type != "int16" else 1.5)


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"])
@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_zero_points_of_weights_of_real_activations(name: str, several: bool) -> None:
    rng = np.random.default_rng(0)
    x_shape, w_shape, axis = SHAPES[name]
    w, x = weights(rng, "int8", w_shape, axis, several), rng.normal(size=x_shape).astype(np.float32)
    exact = wanted(name, x, w, None)
    found = run(product(name, tensor("float32", x_shape), w, None, tensor("float32", None)), x)
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_zero_points_of_weights_of_cells(dtype: str) -> None:
    rng = np.random.default_rng(0)
    codes = [rng.integers(*DTYPES[dtype].range, size).astype(dtype) for size in ((3, 5), (3, 3))]
    x, params = rng.normal(size=(2, 5)).astype(np.float32), quant(0.02, 90)
    found = []
    for form in ("codes", "reals"):
        pair = [const(c, dtype, params) for c in codes]
        if form == "reals":
            pair = [const(reals(info), "float32") for info in pair]
        state = const(np.full((2, 3), 0.5), "float32")
        operands = [tensor("float32", (2, 5)), *pair, const(np.zeros(3), "float32"), state]
        found.append(run(node("RNN", operands, tensor("float32", None)), x))
    assert np.abs(found[0] - found[1]).max() < 0.02 * np.abs(found[1]).max()


CONV = (tensor("int8", (1, 3, 3, 2), quant(0.5, 3)), const(np.ones((4, 1, 1, 2)), "int8", quant(0.25)))


def conv(bias: TensorInfo, x: TensorInfo = CONV[0]) -> Node:
    return node("CONV_2D", [x, CONV[1], bias], tensor("int8", None, quant(0.125)), stride_h=1, stride_w=1)


@pytest.mark.parametrize(
    ("codes", "params", "each"),
    [
        ([8, 8, 8, 8], None, 8),
        ([8, 8, 8, 8], quant(0.125), 8),
        ([10, 10, 10, 10], quant(0.125, 2), 8),
        ([2, 2, 2, 2], quant(0.5), 8),
        ([2, 6, 16, 8], quant([0.5, 0.25, 0.0625, 0.125], [0, 2, 0, 0]), 8),
    ],
)
def test_a_bias_of_its_own_scale(codes: list[int], params: QuantParams | None, each: int) -> None:
    found = run(conv(const(codes, "int32", params)), np.full((1, 3, 3, 2), 3, np.int8))
    assert found.tolist() == np.full((1, 3, 3, 4), each).tolist()


@pytest.mark.parametrize(
    ("codes", "scales", "each"),
    [
        ([2, 4, 16, 8], [0.5, 0.25, 0.0625, 0.125], [8] * 4),
        ([2, 4, 16, 0], [0.5, 0.25, 0.0625, 1e-16], [8, 8, 8, 0]),
        ([2, 4, 16, 8], [0.5, 0.25, 0.0625, 1e-6], [8, 8, 8, 0]),
        ([8, 8, 8, 8], [0.5, 1e-16, 1.0, 2.0], None),
    ],
)
def test_a_bias_beside_uint8_of_many_scales(
    codes: list[int], scales: list[float], each: list[int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Its scales count, but where they are left over: a code that stands for nothing (None) says so."""
    x = tensor("uint8", (1, 1, 1, 2), quant(0.5, 3))
    w = const(np.ones((4, 1, 1, 2)), "uint8", quant([0.25] * 4))
    bias = const(codes, "int32", quant(scales))
    made = node("CONV_2D", [x, w, bias], tensor("uint8", None, quant(0.125)), stride_h=1, stride_w=1)
    assert run(made, np.full((1, 1, 1, 2), 3, np.uint8)).tolist() == [[[each or codes]]]
    assert ("the scales of the bias 'c' are degenerate" in caplog.text) == (each is None)
    target = targets.load("npu-256")
    assert check_bias(made, PlacementLimits(target, target.sram.capacity_bytes)) is None


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (conv(const([1] * 4, "int32", quant([0.5] * 2))), ModelError, "bias 'c' has 2 scales; allowed are 1 and 4"),
        (conv(const([1] * 4, "int32", quant(0.0))), ModelError, "scale 0.0 of tensor 'c' must be positive and finite"),
        (conv(const([1] * 4, "int8", quant(0.5))), UnsupportedError, "a bias of int8"),
        (
            conv(const([1] * 4), tensor("int8", (1, 3, 3, 2), quant([0.5] * 2, 0, 3))),
            ModelError,
            "tensor 'x' has 2 scales; one is allowed here",
        ),
        (
            node(
                "FULLY_CONNECTED",
                [tensor("int8", (1, 2), quant(0.5)), const(np.ones((2, 2)), "int8", quant([1, 2], [3, 4], 1)), None],
                tensor("int8", None, quant(0.5)),
            ),
            ModelError,
            "weights 'c' have 2 scales along axis 1; they must lie along axis 0",
        ),
        (
            node(
                "FULLY_CONNECTED",
                [tensor("int8", (1, 2), quant(0.5)), const(np.ones((2, 2)), "int8", quant(1, 128)), None],
                tensor("int8", None, quant(0.5)),
            ),
            ModelError,
            "a zero point of weights 'c' is outside int8's -128 to 127",
        ),
    ],
)
def test_refused(made: Node, error: type[OdcError], message: str) -> None:
    with pytest.raises(error, match=message):
        made.spec.kernel_function(made)


@pytest.mark.parametrize(
    ("name", "zeros", "bias_scale"),
    [
        ("CONV_2D", [9, 9, 9, 9], 0.01),
        ("CONV_2D", [5, -3, 0, 7], 0.01),
        ("DEPTHWISE_CONV_2D", [5, -3, 0, 7], 0.01),
        ("FULLY_CONNECTED", [-60, 3, 0, 7], 0.01),
        ("TRANSPOSE_CONV", [-60, 3, 0, 7], 0.01),
        ("CONV_2D", [-128, 127, 0, 7], 0.01),
        ("FULLY_CONNECTED", [0, 0, 0, 0], 0.02),
    ],
)
def test_the_npu_gives_the_same(name: str, zeros: list[int], bias_scale: float) -> None:
    rng = np.random.default_rng(0)
    x_shape, w_shape, axis = SHAPES[name]
    builder = ModelBuilder()
    x = builder.tensor("x", x_shape, "int8", quant=(0.1, 4))
    w = builder.tensor("w", w_shape, "int8", data=rng.integers(-60, 60, w_shape).astype(np.int8))
    builder.subgraph.tensors[w].quantization = Quantization(np.full(4, 0.1, np.float32), np.array(zeros), axis)
    bias = builder.tensor("b", (4,), "int32", quant=(bias_scale, 0), data=rng.integers(-99, 99, 4).astype(np.int32))
    inputs, options = [x, w, bias], {}
    if name == "TRANSPOSE_CONV":
        inputs = [builder.tensor("shape", (4,), "int32", data=np.array([1, 6, 6, 4], np.int32)), w, x, bias]
        options = {"padding": "same", "stride_h": 2, "stride_w": 2}
    elif name != "FULLY_CONNECTED":
        options = {"padding": "same", "stride_h": 1, "stride_w": 1}
    y_shape = {"FULLY_CONNECTED": (3, 4), "TRANSPOSE_CONV": (1, 6, 6, 4)}.get(name, (*x_shape[:3], 4))
    y = builder.tensor("y", y_shape, "int8", quant=(1.5, -3))
    builder.operator(name, inputs, [y], options=options)
    model = write_model(builder.finish([x], [y]))
    codes = rng.integers(-128, 128, x_shape).astype(np.int8)
    package = compile(model, target="npu-256")
    assert package.report["npu_op_count"] == 1
    (on_npu,), (on_host,) = run_model(package, [codes]), run_model(model, [codes])
    assert len(np.unique(on_host)) > 6
    np.testing.assert_array_equal(on_npu, on_host)
