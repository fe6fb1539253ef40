"""Convolution and fully connected kernels against scalar arithmetic: element types, scales, activations, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import scalar
from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

Array = NDArray[Any]
STEP = {"stride_h": 1, "stride_w": 1, "padding": "valid"}
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def random_codes(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    low, high = LIMITS[dtype]
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def expected_pixel(
    x: Array, w: Array, bias: Array, params: tuple[QuantParams, QuantParams, QuantParams], dtype: str, *, single: bool
) -> list[int]:
    """Codes of one result pixel from its flat taps ``x [K]`` and weights ``w [O, K]``."""
    px, pw, py = params
    low, high = LIMITS[dtype]
    codes = []
    for o in range(len(w)):
        at = 0 if pw.per_tensor else o
        zero = pw.zero_points[at] if dtype == "uint8" else 0
        total = sum((int(a) - px.zero_point) * (int(b) - zero) for a, b in zip(x, w[o], strict=True)) + int(bias[o])
        product = np.float32(px.scale) * np.float32(pw.scales[at]) if single else px.scale * pw.scales[at]
        q, e = scalar.quantize_multiplier(float(product) / py.scale)
        scaled = scalar.multiply64(total, q, e) if dtype == "int16" else scalar.multiply(total, q, e)
        codes.append(scalar.clamp(scaled + py.zero_point, low, high))
    return codes


CASES = {
    "int8 per channel": ("int8", "int8", quant([0.01, 0.02, 0.005]), False),
    "int8 per tensor": ("int8", "int8", quant(0.013), False),
    "uint8": ("uint8", "uint8", quant(0.013, 117), True),
    "uint8 per channel": ("uint8", "uint8", quant([0.01, 0.02, 0.005], [3, 128, 250]), True),
    "int16": ("int16", "int8", quant([0.01, 0.02, 0.005]), False),
    "int16 weights": ("int16", "int16", quant([1e-4, 2e-4, 1e-4]), False),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"])
def test_codes(name: str, case: str) -> None:
    """One pixel, so that every operator computes the same sum of products."""
    dtype, weight_type, pw, single = CASES[case]
    if name == "FULLY_CONNECTED":
        single = pw.per_tensor
    taps = 1 if name in ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV") else 4
    px, py = quant(0.05, 0 if dtype == "int16" else 11), quant(0.3 if dtype != "int16" else 1.7, 0)
    channels = 3 if name == "DEPTHWISE_CONV_2D" else taps
    x = random_codes(dtype, (channels,))
    w = random_codes(weight_type, (3, taps), 1)
    bias = np.array([100, -3000, 70_000])
    if name == "DEPTHWISE_CONV_2D":
        expected = [expected_pixel(x[o : o + 1], w, bias, (px, pw, py), dtype, single=single)[o] for o in range(3)]
    else:
        expected = expected_pixel(x, w, bias, (px, pw, py), dtype, single=single)
    found = run(one_pixel(name, dtype, weight_type, w, bias, (px, pw, py)), x.reshape(input_shape(name, channels)))
    assert found.ravel().tolist() == expected


def input_shape(name: str, channels: int) -> tuple[int, ...]:
    return (1, channels) if name == "FULLY_CONNECTED" else (1, 1, 1, channels)


def one_pixel(
    name: str, dtype: str, weight_type: str, w: Array, bias: Array, params: tuple[QuantParams, QuantParams, QuantParams]
) -> Node:
    px, pw, py = params
    channels = 3 if name == "DEPTHWISE_CONV_2D" else w.shape[1]
    x = tensor(dtype, input_shape(name, channels), px)
    b = const(bias, "int64" if dtype == "int16" else "int32")
    y = tensor(dtype, None, py)
    if name == "FULLY_CONNECTED":
        return node(name, [x, const(w, weight_type, pw), b], y)
    if name == "DEPTHWISE_CONV_2D":
        pw = QuantParams(pw.scales, pw.zero_points, 3)
        return node(name, [x, const(w.reshape(1, 1, 1, 3), weight_type, pw), b], y, **STEP)
    weights = const(w.reshape(3, 1, 1, -1), weight_type, pw)
    if name == "TRANSPOSE_CONV":
        return node(name, [const([1, 1, 1, 3]), weights, x, b], y, **STEP)
    return node(name, [x, weights, b], y, **STEP)


def conv_node(
    x: TensorInfo, w: TensorInfo, bias: TensorInfo | None = None, y: TensorInfo | None = None, **options: Any
) -> Node:
    return node("CONV_2D", [x, w, bias], y or tensor("float32", None), **{**STEP, **options})


def test_int16_with_a_32_bit_bias_uses_32_bit_sums() -> None:
    px, pw, py = quant(0.05), quant(0.01), quant(1.7)
    x, w, bias = random_codes("int16", (1, 1, 1, 5)), random_codes("int8", (2, 1, 1, 5), 1), np.array([5, -5])
    made = conv_node(tensor("int16", x.shape, px), const(w, "int8", pw), const(bias), tensor("int16", None, py))
    q, e = scalar.quantize_multiplier(px.scale * pw.scale / py.scale)
    sums = (x.reshape(5).astype(int) @ w.reshape(2, 5).T.astype(int)) + bias
    assert run(made, x).ravel().tolist() == [scalar.requantize(int(s), q, e, 0, -32768, 32767) for s in sums]


def test_int4_weights() -> None:
    packed = TensorInfo("w", "int4", (1, 1, 1, 3), quant(1.0), memoryview(bytes([0xF7, 0x08])))  # 7, -1, -8
    x = np.array([[[[1, 2, 3]]]], np.int8)
    made = conv_node(tensor("int8", x.shape, quant(1.0)), packed, None, tensor("int8", None, quant(1.0)))
    assert run(made, x).item() == 7 - 2 - 24


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("none", [-3, 8]), ("relu", [0, 8]), ("relu6", [0, 6]), ("relu_n1_to_1", [-1, 1]), ("tanh", np.tanh([-3, 8]))],
)
def test_float_activations(activation: str, expected: Any) -> None:
    made = conv_node(
        tensor("float32", (1, 1, 2, 1)), const(np.ones((1, 1, 1, 1)), "float32"), fused_activation_function=activation
    )
    x = np.array([-3, 8], np.float32).reshape(1, 1, 2, 1)
    np.testing.assert_allclose(run(made, x).ravel(), expected, rtol=1e-6)


def test_quantised_activation() -> None:
    x = np.array([-100, 0, 100], np.int8).reshape(1, 1, 3, 1)
    one = const(np.full((1, 1, 1, 1), 1), "int8", quant(1.0))
    made = conv_node(
        tensor("int8", x.shape, quant(0.5)), one, None, tensor("int8", None, quant(0.5, 3)),
        fused_activation_function="relu6",
    )  # fmt: skip
    assert run(made, x).ravel().tolist() == [3, 3, 15]


def test_prepared_kernel_serves_other_sizes() -> None:
    """Batch and image size may differ from the static ones; padding follows the real size."""
    rng = np.random.default_rng(2)
    w = const(rng.normal(size=(2, 3, 3, 1)), "float32")
    made = node("CONV_2D", [tensor("float32", (1, 8, 8, 1)), w, None], tensor("float32", None), stride_h=2, stride_w=2)
    kernel = made.spec.kernel_function(made)
    x = rng.normal(size=(3, 9, 5, 1)).astype(np.float32)
    (whole,) = kernel([x, None, None])
    assert whole.shape == (3, 5, 3, 2)
    for i in range(3):
        np.testing.assert_allclose(kernel([x[i : i + 1], None, None])[0], whole[i : i + 1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_weights_may_be_computed(name: str) -> None:
    shape = {"CONV_2D": (2, 1, 1, 2), "DEPTHWISE_CONV_2D": (1, 1, 1, 2), "FULLY_CONNECTED": (2, 2)}[name]
    x_shape = (1, 2) if name == "FULLY_CONNECTED" else (1, 1, 1, 2)
    options = {} if name == "FULLY_CONNECTED" else STEP
    x, w, bias = np.full(x_shape, 2, np.float32), np.ones(shape, np.float32), np.array([1, -1], np.float32)
    infos = [tensor("float32", x_shape), tensor("float32", shape), tensor("float32", (2,))]
    made = node(name, infos, tensor("float32", None), **options)
    total = 2 if name == "DEPTHWISE_CONV_2D" else 4
    for factor in (1, 3):
        assert run(made, x, w * factor, bias).ravel().tolist() == [total * factor + 1, total * factor - 1]


def test_grouped() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    w = const(np.array([[1, 10], [2, 20], [3, 30], [4, 40]]).reshape(4, 1, 1, 2), "float32")
    assert run(conv_node(tensor("float32", x.shape), w), x).ravel().tolist() == [10, 20, 96, 128]


def test_shuffled_float_weights() -> None:
    plain = np.arange(32 * 3, dtype=np.float32).reshape(32, 3)
    shuffled = np.stack([plain[:16].T, plain[16:].T]).reshape(32, 3)
    x = np.array([[1, 2, 3]], np.float32)
    made = node(
        "FULLY_CONNECTED", [tensor("float32", (1, 3)), const(shuffled, "float32")], tensor("float32", None),
        weights_format="shuffled16x1float32",
    )  # fmt: skip
    np.testing.assert_array_equal(run(made, x), x @ plain.T)


def test_shuffled_formats_that_are_refused() -> None:
    x = tensor("float32", (1, 3))
    odd = node("FULLY_CONNECTED", [x, const(np.zeros((17, 3)), "float32")], tensor("float32", None),
               weights_format="shuffled16x1float32")  # fmt: skip
    with pytest.raises(ModelError, match="must be a multiple of 16"):
        odd.spec.kernel_function(odd)
    other = node("FULLY_CONNECTED", [x, const(np.zeros((16, 3)), "float32")], tensor("float32", None),
                 weights_format="shuffled4x16int8")  # fmt: skip
    with pytest.raises(UnsupportedError, match="weights of float32 in the format 'shuffled4x16int8' are not supported"):
        other.spec.kernel_function(other)


def test_fully_connected_shapes() -> None:
    w = const(np.ones((2, 3)), "float32")
    x = np.ones((4, 5, 3), np.float32)
    for keep, shape in ((False, (20, 2)), (True, (4, 5, 2))):
        made = node("FULLY_CONNECTED", [tensor("float32", x.shape), w], tensor("float32", None), keep_num_dims=keep)
        assert run(made, x).shape == shape


@pytest.mark.parametrize(
    ("px", "pw", "py", "message"),
    [
        (None, quant(1.0), quant(1.0), "int8 tensor 'x' has no scale"),
        (quant(1.0), None, quant(1.0), "weights 'c' of int8 have no scale"),
        (quant(1.0), quant(1.0), None, "int8 tensor 'x' has no scale"),
        (quant([1.0, 1.0]), quant(1.0), quant(1.0), "has 2 scales; one is allowed here"),
        (quant(1.0), quant([1.0, 1.0]), quant(1.0), "have 2 scales; allowed are 1 and 3"),
        (quant(0.0), quant(1.0), quant(1.0), "scale 0.0 of tensor 'x' must be positive and finite"),
        (quant(1.0), quant(-1.0), quant(1.0), "scale -1.0 of tensor 'c' must be positive"),
        (quant(1.0), quant(1.0), quant(float("nan")), "scale nan"),
        (quant(1.0, 1 << 25), quant(1.0), quant(1.0), "zero point 33554432 of 'x' is larger than 16777216"),
        (quant(1e30), quant(1e30), quant(1e-30), "is too large; it must be below"),
    ],
)
def test_bad_quantisation(px: Any, pw: Any, py: Any, message: str) -> None:
    made = conv_node(
        tensor("int8", (1, 1, 1, 2), px), const(np.zeros((3, 1, 1, 2)), "int8", pw), None, tensor("int8", None, py)
    )
    with pytest.raises(ModelError, match=message):
        made.spec.kernel_function(made)


def test_zero_points_of_uint8_weights() -> None:
    for zeros, message in (([0, 256, 0], "is outside uint8's 0 to 255"), ([1, 2], "have 2 scales")):
        weights = const(np.zeros((3, 1, 1, 2)), "uint8", quant([1.0] * len(zeros), zeros))
        made = conv_node(tensor("uint8", (1, 1, 1, 2), quant(1.0)), weights, None, tensor("uint8", None, quant(1.0)))
        with pytest.raises(ModelError, match=message):
            made.spec.kernel_function(made)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 4, 4, 3), "the input has 3 channels"), ((4, 4, 2), "its rank must be 4"), ((1, 1, 4, 2), "height is 2")],
)
def test_inputs_that_do_not_fit(shape: tuple[int, ...], message: str) -> None:
    made = conv_node(tensor("float32", (1, 4, 4, 2)), const(np.zeros((3, 2, 2, 2)), "float32"))
    kernel = made.spec.kernel_function(made)
    with pytest.raises(OdcError, match=message):
        kernel([np.zeros(shape, np.float32), None, None])


def test_rows_that_do_not_fit() -> None:
    made = node(
        "FULLY_CONNECTED", [tensor("float32", (1, 3)), const(np.zeros((2, 3)), "float32")], tensor("float32", None)
    )
    with pytest.raises(InputError, match="it must hold rows of 3"):
        made.spec.kernel_function(made)([np.zeros((1, 4), np.float32), None])


def test_a_result_that_is_too_large() -> None:
    shape = const([1, 1 << 14, 1 << 14, 8])
    weights = const(np.zeros((8, 1, 1, 1)), "float32")
    made = node("TRANSPOSE_CONV", [tensor("int32", (4,)), weights, tensor("float32", (1, 2, 2, 1)), None],
                tensor("float32", None), **STEP)  # fmt: skip
    kernel = made.spec.kernel_function(made)
    with pytest.raises(ModelError, match="are supported"):
        kernel([shape.array(), None, np.zeros((1, 2, 2, 1), np.float32), None])
    with pytest.raises(InputError, match="must have 4 positive sizes"):
        kernel([np.array([1, 0, 1, 8]), None, np.zeros((1, 2, 2, 1), np.float32), None])


def test_mixed_types_are_refused() -> None:
    operands = [tensor("int8", (1, 2), quant(1.0)), const(np.zeros((3, 2)), "int8", quant(1.0))]
    widening = node("FULLY_CONNECTED", operands, tensor("int16", None, quant(1.0)))
    with pytest.raises(UnsupportedError, match="an input of int8 with a result of int16"):
        widening.spec.kernel_function(widening)


def test_a_missing_operand_value() -> None:
    made = conv_node(tensor("float32", (1, 1, 1, 2)), const(np.zeros((3, 1, 1, 2)), "float32"))
    with pytest.raises(InputError, match=r"operand 0 .input. has no value"):
        made.spec.kernel_function(made)([None, None, None])
