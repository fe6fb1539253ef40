"""Products of mixed types against LiteRT's reference kernels: weights quantised on the fly, of four bits, shuffled."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.litert import reference_all
from helpers.nodes import const, node, quant, run, run_all, tensor
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

Array = NDArray[Any]
SEEDS = range(4)
LARGEST = {"int8": 127, "int4": 7}


def check(made: Node, x: Array, version: int) -> None:
    """Codes exactly, reals to the last bits: a code quantised differently would be seen."""
    found, (wanted, *_) = run(made, x), reference_all(made, x, version=version)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


def weights(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], params: QuantParams) -> TensorInfo:
    """Random symmetric weights; four-bit ones are packed, the even element in the low half."""
    codes = rng.integers(-LARGEST[dtype], LARGEST[dtype] + 1, shape).astype(np.int8)
    if dtype == "int8":
        return const(codes, dtype, params)
    nibbles = np.append(codes.ravel(), [0] * (codes.size % 2)).astype(np.int8).view(np.uint8) & 15
    return TensorInfo("w", dtype, shape, params, memoryview((nibbles[0::2] | nibbles[1::2] << 4).tobytes()))


def scales(rng: np.random.Generator, count: int, per_channel: bool, axis: int = 0) -> QuantParams:
    return quant(rng.uniform(0.001, 0.05, count), 0, axis) if per_channel and count > 1 else quant(0.02)


def reals(rng: np.random.Generator, seed: int, shape: tuple[int, ...]) -> Array:
    """Random activations; some with a row of zeros, or nothing below zero, or halves of a step of 1."""
    x = (rng.normal(size=shape) * 3).astype(np.float32)
    if seed == 3:
        x = np.floor(x) + np.float32(0.5)
        x.reshape(len(x), -1)[:, :2] = -8, 247
    if seed == 1:
        x[0] = 0
    return np.abs(x) if seed == 2 else x


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_fully_connected_of_reals(dtype: str, per_channel: bool, asymmetric: bool) -> None:
    for seed, activation in zip(SEEDS, ("none", "relu", "tanh", "sign_bit"), strict=True):
        rng = np.random.default_rng(seed)
        inputs, outputs = 2 * int(rng.integers(1, 20)), int(rng.integers(2, 9))
        x = reals(rng, seed, (3, inputs))
        w = weights(rng, dtype, (outputs, inputs), scales(rng, outputs, per_channel))
        bias = const(rng.normal(size=outputs), "float32") if seed % 2 else None
        made = node("FULLY_CONNECTED", [tensor("float32", x.shape), w, bias], tensor("float32", None),
                    asymmetric_quantize_inputs=asymmetric, fused_activation_function=activation)  # fmt: skip
        check(made, x, version=9)


# Not two groups with one scale: the reference reads scales behind the only one.
@pytest.mark.parametrize(("groups", "per_channel"), [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_convolution_of_reals(dtype: str, groups: int, per_channel: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        kh, kw, channels = (int(v) for v in rng.integers(1, 4, 3))
        x = reals(rng, seed, (2, 6, 5, channels * groups))
        w = weights(rng, dtype, (4, kh, kw, channels), scales(rng, 4, per_channel))
        made = node("CONV_2D", [tensor("float32", x.shape), w, const(rng.normal(size=4), "float32")],
                    tensor("float32", None), stride_h=int(rng.integers(1, 3)), stride_w=1,
                    padding=str(rng.choice(["same", "valid"])), fused_activation_function="relu6")  # fmt: skip
        check(made, x, version=2)


@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_convolution_of_reals(multiplier: int) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = reals(rng, seed, (2, 6, 5, 2))
        w = weights(rng, "int8", (1, 3, 2, 2 * multiplier), scales(rng, 2 * multiplier, True, axis=3))
        made = node("DEPTHWISE_CONV_2D", [tensor("float32", x.shape), w, const(np.arange(2 * multiplier), "float32")],
                    tensor("float32", None), stride_h=1, stride_w=2, depth_multiplier=multiplier)  # fmt: skip
        check(made, x, version=6)


IMAGES, STEPS = (2, 7, 6, 20), {"stride_h": 2, "stride_w": 2, "padding": "valid"}
IN_ORDER: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "convolution": ("CONV_2D", IMAGES, (5, 3, 3, 20), STEPS),
    "two groups": ("CONV_2D", IMAGES, (4, 3, 3, 10), STEPS),
    "depthwise": ("DEPTHWISE_CONV_2D", IMAGES, (1, 5, 5, 20), STEPS | {"depth_multiplier": 1}),
    "rows": ("FULLY_CONNECTED", (3, 90), (5, 90), {}),
    "matrices": ("BATCH_MATMUL", (2, 4, 90), (2, 90, 3), {}),
}


@pytest.mark.parametrize("is_const", [True, False])
@pytest.mark.parametrize("case", IN_ORDER)
def test_sums_of_reals_in_the_order_of_the_reference(case: str, is_const: bool) -> None:
    """With LiteRT's numerics, results are equal to the last bit. In another order, some would not be."""
    name, shape, weights_shape, options = IN_ORDER[case]
    rng, found = np.random.default_rng(0), {}
    x, w = (rng.normal(size=size).astype(np.float32) for size in (shape, weights_shape))
    for numerics in ("fixed", "litert"):
        operands = [tensor("float32", shape), const(w, "float32") if is_const else tensor("float32", weights_shape)]
        if name == "CONV_2D":
            operands.append(const(np.arange(weights_shape[0]) / 7, "float32"))
        made = node(name, operands, tensor("float32", None), **options)
        made.context.numerics = numerics
        inputs = [x] if is_const else [x, w]
        found[numerics] = run(made, *inputs)
    (wanted,) = reference_all(made, *inputs, version=6 if case == "two groups" else 1)
    np.testing.assert_array_equal(found["litert"], wanted)
    assert (found["fixed"] != wanted).any()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_scales_of_convolutions_in_the_order_of_the_reference(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, w = reals(rng, 0, (2, 6, 5, 4)), weights(rng, dtype, (8, 3, 3, 4), scales(rng, 8, True))
    made = node("CONV_2D", [tensor("float32", x.shape), w, const(rng.normal(size=8), "float32")],
                tensor("float32", None), stride_h=1, stride_w=1)  # fmt: skip
    made.context.numerics = "litert"
    np.testing.assert_array_equal(run(made, x), reference_all(made, x, version=2)[0])


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_convolution_with_four_bits(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 4, 4, 4)).astype(dtype)
    params = quant(0.1, 3) if dtype == "int8" else quant(0.001)
    bias = const([5, -9, 100], "int32" if dtype == "int8" else "int64")
    made = node("CONV_2D", [tensor(dtype, x.shape, params), weights(rng, "int4", (3, 2, 2, 4), quant(0.02)), bias],
                tensor(dtype, None, params), stride_h=1, stride_w=1)  # fmt: skip
    check(made, x, version=7)


CONNECTED = {
    "int8": ("int8", "int8", quant(0.1, 3), quant(0.02, 5), quant(0.1, -4), "int32", 6),
    "int8 per channel": ("int8", "int8", quant(0.1, 3), quant([0.02, 0.01, 0.03]), quant(0.1, -4), "int32", 12),
    "int8 by four bits": ("int8", "int4", quant(0.1, 3), quant(0.02), quant(0.1, -4), "int32", 8),
    "uint8": ("uint8", "uint8", quant(0.1, 130), quant(0.02, 117), quant(0.9, 110), "int32", 6),
    "uint8 to int16": ("uint8", "uint8", quant(0.01, 128), quant(0.01, 128), quant(0.001), "int32", 4),
    "int16": ("int16", "int8", quant(0.001), quant(0.02), quant(0.01), "int64", 7),
    "int16, 32-bit sums": ("int16", "int8", quant(0.001), quant(0.02), quant(0.01), "int32", 11),
    "int16 by int16": ("int16", "int16", quant(0.001), quant(0.0001), quant(0.01), "int64", 13),
}


@pytest.mark.parametrize("case", CONNECTED)
def test_fully_connected_by_newer_numerics(case: str) -> None:
    """Sums are scaled in float64; in fixed point some of these codes would be one off."""
    dtype, weight_type, px, pw, py, bias_type, version = CONNECTED[case]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = rng.integers(low, high + 1, (40, 16)).astype(dtype)
        if weight_type in LARGEST:
            w = weights(rng, weight_type, (3, 16), pw)
        else:
            limits = np.iinfo(weight_type)
            w = const(rng.integers(limits.min, limits.max + 1, (3, 16)), weight_type, pw)
        bias = const(rng.integers(-900, 900, 3), bias_type, quant([px.scale * scale for scale in pw.scales]))
        out = tensor("int16" if case == "uint8 to int16" else dtype, None, py)
        options = {"quantized_bias_type": bias_type} if dtype == "int16" else {}
        made = node("FULLY_CONNECTED", [tensor(dtype, x.shape, px), w, bias], out, **options)
        made.context.numerics = "litert"
        check(made, x, version)


def test_newer_numerics_differ() -> None:
    """The choice has an effect: on these values fixed point and float64 disagree."""
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (200, 64)).astype(np.int8)
    found = []
    for numerics in ("fixed", "litert"):
        w = weights(np.random.default_rng(1), "int8", (50, 64), quant(0.0213))
        made = node("FULLY_CONNECTED", [tensor("int8", x.shape, quant(0.11, 3)), w],
                    tensor("int8", None, quant(0.73, -4)))  # fmt: skip
        made.context.numerics = numerics
        found.append(run(made, x).astype(int))
    assert 0 < np.abs(found[0] - found[1]).sum() < 100
    assert np.abs(found[0] - found[1]).max() == 1


@pytest.mark.parametrize("rows", [1, 4])
def test_shuffled_weights(rows: int) -> None:
    """Blocks of 4 rows by 16 columns with flipped sign bits; the second result is scratch space."""
    rng = np.random.default_rng(rows)
    codes, x = rng.integers(0, 256, (8, 32)).astype(np.uint8), rng.integers(0, 256, (rows, 32)).astype(np.uint8)
    bias = const(rng.integers(-2000, 2000, 8), "int32", quant(0.0001))
    plain, out = quant(0.01, 128), tensor("int16", None, quant(0.001))
    shuffled = (codes.reshape(2, 4, 2, 16).transpose(0, 2, 1, 3) ^ 0x80).reshape(8, 32)
    made = node("FULLY_CONNECTED", [tensor("uint8", x.shape, plain), const(shuffled, "uint8", plain), bias], out,
                weights_format="shuffled4x16int8", fused_activation_function="relu")  # fmt: skip
    made = dataclasses.replace(made, results=(out, tensor("uint8", None, None, "workspace")))
    found = run_all(made, x)
    np.testing.assert_array_equal(found[0], reference_all(made, x, version=2)[0])
    assert found[1].shape == x.shape
