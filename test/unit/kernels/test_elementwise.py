"""Arithmetic, activations, conversions and reductions as kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import scalar
from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError

CODES = np.arange(-128, 128, dtype=np.int8)


@pytest.mark.parametrize(("name", "function"), [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_plain_arithmetic(name: str, function: Any, dtype: str) -> None:
    a, b = np.array([[-4], [5]], dtype), np.array([3, -2, 7], dtype)
    for activation, low, high in (("none", -99, 99), ("relu", 0, 99), ("relu6", 0, 6)):
        made = node(name, [tensor(dtype, a.shape), tensor(dtype, b.shape)], tensor(dtype, None),
                    fused_activation_function=activation)  # fmt: skip
        assert (run(made, a, b) == np.clip(function(a, b), low, high)).all()


def test_division() -> None:
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    whole = node("DIV", [tensor("int32", (4,)), tensor("int32", (4,))], tensor("int32", None))
    assert run(whole, a, b).tolist() == [3, -3, -3, 3]
    with pytest.raises(InputError, match="division by zero"):
        run(whole, a, b * 0)
    real = node("DIV", [tensor("float32", (4,)), tensor("float32", (4,))], tensor("float32", None))
    assert run(real, a.astype("f4"), b.astype("f4")).tolist() == [3.5, -3.5, -3.5, 3.5]
    largest = np.finfo(np.float32).max
    assert run(real, a.astype("f4"), b.astype("f4") * 0).tolist() == [largest, -largest, -largest, largest]
    coded = node("DIV", [tensor("uint8", (4,)), tensor("uint8", (4,))], tensor("uint8", None))
    with pytest.raises(ModelError, match="has no scale"):
        coded.spec.kernel_function(coded)


@pytest.mark.parametrize(("name", "formula"), [("ADD", scalar.add), ("MUL", scalar.mul)])
def test_quantised_with_activation(name: str, formula: Any) -> None:
    params = [quant(0.11, 3), quant(0.07, -20), quant(0.2, 5)]
    made = node(name, [tensor("int8", (256,), params[0]), tensor("int8", (), params[1])],
                tensor("int8", None, params[2]), fused_activation_function="relu6")  # fmt: skip
    scales, zeros = tuple(p.scale for p in params), tuple(p.zero_point for p in params)
    expected = [scalar.clamp(formula(int(a), 90, scales, zeros), 5, 35) for a in CODES]
    assert run(made, CODES, np.array(90, np.int8)).tolist() == expected


def test_int16_sum_by_shifts_and_by_multipliers() -> None:
    a, b = np.array([100, -32768], np.int16), np.array([3, -32768], np.int16)
    params = [quant(2.0**-8), quant(2.0**-9), quant(2.0**-8)]
    for by_shifts in (True, False):
        made = node("ADD", [tensor("int16", (2,), params[0]), tensor("int16", (2,), params[1])],
                    tensor("int16", None, params[2]), pot_scale_int16=by_shifts)  # fmt: skip
        assert run(made, a, b).tolist() == [102, -32768]


def test_shapes_that_cannot_be_broadcast() -> None:
    made = node("ADD", [tensor("float32", (None,)), tensor("float32", (None,))], tensor("float32", None))
    kernel = made.spec.kernel_function(made)
    with pytest.raises(InputError, match=r"shapes \[2\] and \[3\] cannot be broadcast"):
        kernel([np.zeros(2, np.float32), np.zeros(3, np.float32)])
    with pytest.raises(ModelError, match="are supported"):
        kernel([np.zeros((1 << 16, 1), np.float32), np.zeros((1, 1 << 16), np.float32)])


@pytest.mark.parametrize(
    ("name", "options", "function"),
    [
        ("RELU", {}, lambda x: np.maximum(x, 0)),
        ("RELU6", {}, lambda x: np.clip(x, 0, 6)),
        ("RELU_N1_TO_1", {}, lambda x: np.clip(x, -1, 1)),
        ("LEAKY_RELU", {"alpha": 0.3}, lambda x: np.where(x < 0, 0.3 * x, x)),
        ("LEAKY_RELU", {"alpha": -0.3}, lambda x: np.where(x < 0, -0.3 * x, x)),
        ("LOGISTIC", {}, lambda x: 1 / (1 + np.exp(-x))),
        ("TANH", {}, np.tanh),
    ],
)
def test_activations(name: str, options: dict[str, float], function: Any) -> None:
    """Floats directly; codes within one step of the real function."""
    x = np.linspace(-9, 9, 101, dtype=np.float32)
    real = node(name, [tensor("float32", x.shape)], tensor("float32", None), **options)
    np.testing.assert_allclose(run(real, x), function(x.astype(np.float64)), rtol=1e-6, atol=1e-7)
    out = {"LOGISTIC": quant(1 / 256, -128), "TANH": quant(1 / 128, 0)}.get(name, quant(0.08, -7))
    coded = node(name, [tensor("int8", CODES.shape, quant(0.07, 5))], tensor("int8", None, out), **options)
    expected = np.clip(function((CODES.astype(float) - 5) * 0.07) / out.scale + out.zero_point, -128, 127)
    assert np.abs(run(coded, CODES) - expected).max() <= 0.76  # two roundings


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
def test_16_bit_functions(name: str) -> None:
    x = np.linspace(-32768, 32767, 999).astype(np.int16)
    values = x / 4096
    made = node(name, [tensor("int16", x.shape, quant(2.0**-12))], tensor("int16", None, quant(2.0**-15)))
    real = 1 / (1 + np.exp(-values)) if name == "LOGISTIC" else np.tanh(values)
    assert np.abs(run(made, x) / 32768 - real).max() < 4 / 32768


@pytest.mark.parametrize(
    ("dtype", "result", "scale", "zero"),
    [
        ("int8", "int8", 1 / 256, -128),
        ("uint8", "uint8", 1 / 256, 0),
        ("int8", "int16", 1 / 65536, -32768),
        ("int16", "int16", 1 / 32768, 0),
        ("uint8", "uint8", 1 / 255, 0),
    ],
)
def test_softmax(dtype: str, result: str, scale: float, zero: int) -> None:
    """Scales of TFLite, and ONE's 1/255, which takes the float table."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (20, 10)).astype(dtype)
    step = 0.05 if limits.bits == 8 else 2e-4
    made = node("SOFTMAX", [tensor(dtype, x.shape, quant(step))], tensor(result, None, quant(scale, zero)), beta=1.0)
    powers = np.exp(x * step - (x * step).max(axis=1, keepdims=True))
    codes = powers / powers.sum(axis=1, keepdims=True) / scale + zero
    assert np.abs(run(made, x) - np.clip(codes, *_limits(result))).max() <= (1 if limits.bits == 8 else 12)


def _limits(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def test_quantize_and_dequantize() -> None:
    x = np.array([-1.0, 0.26, 99.0], np.float32)
    made = node("QUANTIZE", [tensor("float32", (3,))], tensor("int8", None, quant(0.5, 1)))
    assert run(made, x).tolist() == [-1, 2, 127]
    back = node("DEQUANTIZE", [tensor("int8", (3,), quant(0.5, 1))], tensor("float32", None))
    assert run(back, np.array([-1, 2, 127], np.int8)).tolist() == [-1.0, 0.5, 63.0]
    half = node("DEQUANTIZE", [tensor("float16", (2,))], tensor("float32", None))
    assert run(half, np.array([0.5, 65504], np.float16)).tolist() == [0.5, 65504.0]


def test_quantize_per_axis() -> None:
    per_axis = quant([0.5, 2.0], [0, 1], 1)
    made = node("QUANTIZE", [tensor("float32", (1, 2))], tensor("int8", None, per_axis))
    assert run(made, np.array([[3, 3]], np.float32)).tolist() == [[6, 3]]
    back = node("DEQUANTIZE", [tensor("int8", (1, 2), per_axis)], tensor("float32", None))
    assert run(back, np.array([[6, 3]], np.int8)).tolist() == [[3.0, 4.0]]


def test_scales_that_fit_no_axis() -> None:
    made = node("DEQUANTIZE", [tensor("int8", (1, 3), quant([0.5, 2.0], 0, 1))], tensor("float32", None))
    with pytest.raises(ModelError, match="has 2 scales, which fit no axis"):
        made.spec.kernel_function(made)


@pytest.mark.parametrize(("dtype", "codes"), [("int8", CODES), ("int32", np.array([2**30, -(2**31), 0], np.int32))])
def test_requantize(dtype: str, codes: Any) -> None:
    scale, zero = (0.1, 7) if dtype == "int8" else (1e-7, 0)
    made = node("QUANTIZE", [tensor(dtype, codes.shape, quant(scale, zero))], tensor("uint8", None, quant(0.3, 100)))
    q, e = scalar.quantize_multiplier(float(np.float32(scale)) / float(np.float32(0.3)))
    expected = [scalar.requantize(scalar.wrap(int(c) - zero), q, e, 100, 0, 255) for c in codes]
    assert run(made, codes).tolist() == expected


@pytest.mark.parametrize("keep", [True, False])
def test_mean(keep: bool) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (2, 3, 4))
    for dtype in ("float32", "int32", "int64"):
        made = node("MEAN", [tensor(dtype, x.shape), const([0, -1])], tensor(dtype, None), keep_dims=keep)
        real = x.mean(axis=(0, 2), keepdims=keep)
        np.testing.assert_allclose(
            run(made, x.astype(dtype)), real if dtype == "float32" else np.trunc(real), rtol=1e-6
        )
    px, py = quant(0.1, 3), quant(0.07, -9)
    coded = node("MEAN", [tensor("int8", x.shape, px), const([0, -1])], tensor("int8", None, py), keep_dims=keep)
    codes = [scalar.mean(x[:, i].ravel().tolist(), px.scale, px.zero_point, py.scale, py.zero_point) for i in range(3)]
    assert run(coded, x.astype(np.int8)).ravel().tolist() == codes


def test_mean_of_nothing() -> None:
    made = node("MEAN", [tensor("float32", (None, 2)), const([0])], tensor("float32", None))
    with pytest.raises(InputError, match="has no elements for a mean"):
        made.spec.kernel_function(made)([np.zeros((0, 2), np.float32), None])


def test_mean_over_computed_axes() -> None:
    made = node("MEAN", [tensor("float32", (2, 2)), tensor("int32", (1,))], tensor("float32", None))
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert run(made, x, np.array([0], np.int32)).tolist() == [2.0, 3.0]
    assert run(made, x, np.array([1], np.int32)).tolist() == [1.5, 3.5]
    with pytest.raises(OdcError, match="axis 2 is out of range"):
        run(made, x, np.array([2], np.int32))


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools(name: str) -> None:
    """Padding is not counted; the fused activation clamps codes and floats."""
    x = np.array([[1, 2], [3, 10]], np.float32).reshape(1, 2, 2, 1)
    options: dict[str, Any] = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    options["fused_activation_function"] = "relu6"
    made = node(name, [tensor("float32", x.shape)], tensor("float32", None), **options)
    expected = [4, 6, 6, 6] if name == "AVERAGE_POOL_2D" else [6, 6, 6, 6]
    assert run(made, x).ravel().tolist() == expected
    params = quant(0.5, -4)
    coded = node(name, [tensor("int8", x.shape, params)], tensor("int8", None, params),
                 **options)  # fmt: skip
    whole = [4, 6, 7, 8] if name == "AVERAGE_POOL_2D" else [8, 8, 8, 8]
    assert run(coded, x.astype(np.int8)).ravel().tolist() == whole


def test_pool_with_tanh() -> None:
    window = {"filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1}
    made = node("MAX_POOL_2D", [tensor("float32", (1, 2, 2, 1))], tensor("float32", None),
                fused_activation_function="tanh", **window)  # fmt: skip
    with pytest.raises(UnsupportedError, match="a pool with a fused tanh"):
        made.spec.kernel_function(made)


def test_activations_of_reals_only() -> None:
    x = np.array([-2, 0.5], np.float32)
    for activation, expected in (("sign_bit", [1, 0]), ("tanh", np.tanh([-1.5, 1]))):
        made = node("ADD", [tensor("float32", (2,)), const([0.5, 0.5], "float32")], tensor("float32", None),
                    fused_activation_function=activation)  # fmt: skip
        np.testing.assert_allclose(run(made, x), expected, rtol=1e-6)
    made = node("ADD", [tensor("int32", (1,)), tensor("int32", (1,))], tensor("int32", None),
                fused_activation_function="sign_bit")  # fmt: skip
    with pytest.raises(UnsupportedError, match="'sign_bit' is not supported"):
        made.spec.kernel_function(made)


@pytest.mark.parametrize("name", ["PRELU", "SUB"])
@pytest.mark.parametrize("shape", [(1, 1, 5), (5,), (1,), (1, 1, 300), (1, 4, 5)])
@pytest.mark.parametrize("first", [False, True])
def test_a_constant_operand_is_as_any_other(name: str, shape: tuple[int, ...], first: bool) -> None:
    """Tables that constants have are of the codes that are computed one by one."""
    if first and name == "PRELU":
        return  # slopes are its second operand
    rng, (scale, zero) = np.random.default_rng(1), (0.03, 4)
    x = rng.integers(-128, 128, (70, 4, shape[-1] if shape[-1] > 1 else 6)).astype(np.int8)
    row = rng.integers(-128, 128, shape).astype(np.int8)
    others = [tensor("int8", x.shape, quant(scale, zero)), tensor("int8", shape, quant(0.02, -3))]
    fixed = [others[0], const(row, "int8", quant(0.02, -3))]
    arrays = [x, row]
    if first:
        others, fixed, arrays = others[::-1], fixed[::-1], arrays[::-1]
    found = []
    for operands in (others, fixed):
        made = node(name, operands, tensor("int8", x.shape, quant(0.05, 1)))
        execute = made.spec.kernel_function(made)
        for _ in range(8):  # few elements, then as many as a table is made for
            found.append(execute(arrays)[0])
    assert all(np.array_equal(found[0], other) for other in found)
