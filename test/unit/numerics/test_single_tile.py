"""Convolutions prepared for one shape against those that take any: the same bits, however often they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from odc_mlir.numerics import convolution as cv
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.matmul import narrow
from odc_mlir.numerics.single_tile import (
    KEPT_BYTES,
    Compute,
    TileSums,
    tile_convolution,
    tile_depthwise,
    tile_transposed,
)

Array = NDArray[Any]

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
CASES = [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("int16", "int64")]
# Biases that leave room, that need all of 32 bits, and that make sums wrap around.
BIASES = [1 << 12, 1 << 29, (1 << 31) - 1]


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """A window with an image in which it fits, element types, zero points, bias and scales."""
    kernel, dilation = draw(PAIR), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    size = [(k - 1) * d + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilation, strict=True)]
    source, sums = draw(st.sampled_from(CASES))
    return {
        "window": cv.Window(kernel, draw(PAIR), dilation, draw(st.tuples(*[st.integers(0, 2)] * 4))),
        "size": (draw(st.integers(1, 2)), *size),
        "source": np.dtype(source),
        "sums": sums,
        "zero": draw(st.sampled_from([0, 1, -100, 127])) if source != "int16" else 0,
        "bias": draw(st.sampled_from([None, *BIASES])),
        "single": draw(st.booleans()),
        "exponents": draw(st.sampled_from([(-9, -4), (-12, 2), (0, 1)])),
        "seed": draw(st.integers(0, 2**31)),
    }


def codes(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def rescaling(rng: np.random.Generator, layer: dict[str, Any], channels: int) -> tuple[Any, Array | None]:
    """What turns sums into codes, and the bias."""
    count = 1 if layer["single"] else channels
    q, e = rng.integers(1 << 30, 1 << 31, count), rng.integers(*layer["exponents"], count)
    kind = Requantizer if layer["sums"] == "int32" else WideRequantizer
    limits = np.iinfo(layer["source"])
    rescale = kind(q, e, 3, int(limits.min) + 5, int(limits.max), layer["source"])
    bias = layer["bias"]
    return rescale, None if bias is None else rng.integers(-bias, bias, channels).astype(layer["sums"])


def check(plan: Compute | None, layer: dict[str, Any], x: list[Array], expected: list[Array]) -> None:
    assert plan is not None
    found = [plan(array) for array in x]  # the first result must not change with the second
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def finished(sums: Array, bias: Array | None, rescale: Any) -> Array:
    rows = narrow(sums.reshape(-1, sums.shape[-1]), np.dtype(sums.dtype))
    return np.asarray(rescale(rows if bias is None else rows + bias)).reshape(sums.shape)


@given(layers(), st.integers(1, 3), st.integers(1, 3))
def test_convolution(layer: dict[str, Any], channels: int, outputs: int) -> None:
    rng = np.random.default_rng(layer["seed"])
    shape, window, zero = (*layer["size"], channels), layer["window"], layer["zero"]
    weights = cv.conv_filter(rng.integers(-128, 128, (outputs, *window.kernel, channels)), 1 << 16, sums=layer["sums"])
    rescale, bias = rescaling(rng, layer, outputs)
    x = [codes(rng, layer["source"], shape) for _ in range(2)]
    plan = tile_convolution(shape, layer["source"], weights, window, TileSums(layer["source"], zero, bias, rescale))
    check(plan, layer, x, [finished(cv.conv2d(array, weights, window, in_zero=zero), bias, rescale) for array in x])


@given(layers(), st.integers(1, 3), st.integers(1, 3))
def test_depthwise(layer: dict[str, Any], channels: int, times: int) -> None:
    rng = np.random.default_rng(layer["seed"])
    shape, window, zero = (*layer["size"], channels), layer["window"], layer["zero"]
    weights = cv.depthwise_filter(
        rng.integers(-128, 128, (*window.kernel, channels * times)), 1 << 16, sums=layer["sums"]
    )
    rescale, bias = rescaling(rng, layer, channels * times)
    x = [codes(rng, layer["source"], shape) for _ in range(2)]
    plan = tile_depthwise(shape, layer["source"], weights, window, TileSums(layer["source"], zero, bias, rescale))
    check(plan, layer, x, [finished(cv.conv2d(array, weights, window, in_zero=zero), bias, rescale) for array in x])


@given(layers(), PAIR, st.integers(1, 3), st.data())
def test_transposed(layer: dict[str, Any], stride: cv.Pair, channels: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(layer["seed"])
    kernel, zero, sums = layer["window"].kernel, layer["zero"], layer["sums"]
    shape = (*layer["size"], channels)
    pads = (data.draw(st.integers(0, kernel[0] - 1)), data.draw(st.integers(0, kernel[1] - 1)))
    output = tuple(
        max(1, (shape[1 + i] - 1) * stride[i] + kernel[i] - pads[i] - data.draw(st.integers(0, 2))) for i in range(2)
    )
    size = output[0], output[1]
    w = rng.integers(-128, 128, (2, *kernel, channels))
    weights = cv.transpose_filter(w, 1 << 16, sums=sums)
    rescale, bias = rescaling(rng, layer, 2)
    x = [codes(rng, layer["source"], shape) for _ in range(2)]
    plan = tile_transposed(
        shape,
        layer["source"],
        w,
        1 << 16,
        sums,
        stride,
        pads,
        size,
        TileSums(layer["source"], zero, bias, rescale),
    )
    expected = [cv.transpose_conv2d(array, weights, stride, pads, size, in_zero=zero) for array in x]
    check(plan, layer, x, [finished(found, bias, rescale) for found in expected])


def test_reals() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 5, 6, 3)).astype(np.float32)
    w, bias = rng.standard_normal((4, 3, 3, 3)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    weights, window = cv.conv_filter(w, None), cv.Window((3, 3), (2, 1), pads=(1, 1, 1, 1))
    plan = tile_convolution(x.shape, x.dtype, weights, window, TileSums(x.dtype, 0, bias))
    assert plan is not None
    first = plan(x)
    kept = first.copy()
    plan(-x)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(first, cv.conv2d(x, weights, window) + bias, rtol=1e-5, atol=1e-5)


def test_sums_that_float32_cannot_hold_with_the_zero_point_in_them() -> None:
    """As codes are, 255 times the weights is too much for float32; without the zero point of 127 it is not."""
    w = np.full((1, 1, 1, 1000), 100)
    weights, window = cv.conv_filter(w, 128), cv.Window((1, 1))
    assert weights.dtype == np.float32
    rescale = Requantizer(1 << 30, -15, 0, 0, 255, "uint8")
    x = np.arange(1000).reshape(1, 1, 1, 1000).astype(np.uint8)
    plan = tile_convolution(x.shape, x.dtype, weights, window, TileSums(x.dtype, 127, None, rescale))
    assert plan is not None
    np.testing.assert_array_equal(plan(x), finished(cv.conv2d(x, weights, window, in_zero=127), None, rescale))


@pytest.mark.parametrize("groups", [1, 2])
def test_what_is_left_to_others(groups: int) -> None:
    """Several groups, and more than is kept."""
    weights = cv.conv_filter(np.ones((2, 1, 1, 1), np.int64), 128, groups=groups)
    size = 1 if groups > 1 else KEPT_BYTES
    window, dtype = cv.Window((1, 1)), np.dtype(np.int8)
    assert tile_convolution((1, 1, size, groups), dtype, weights, window, TileSums(dtype)) is None
