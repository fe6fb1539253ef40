"""Convolution sums against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.sums import conv2d_sums, depthwise_sums
from odc_mlir.numerics import convolution as cv

Array = NDArray[Any]


def loops(x: Array, w: Array, stride: cv.Pair, dilation: cv.Pair, pads: cv.Pads = cv.NO_PADS, zero: int = 0) -> Array:
    """Convolution by its definition; taps outside the image are left out, groups follow from the channel counts."""
    n, height, width, channels = x.shape
    outs, kh, kw, per_group = w.shape
    rows = (height + pads[0] + pads[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    columns = (width + pads[1] + pads[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    out = np.zeros((n, rows, columns, outs), np.int64)
    for index in np.ndindex(out.shape):
        image, y, column, o = index
        group = o // (outs // (channels // per_group))
        for ky, kx, c in np.ndindex(kh, kw, per_group):
            iy = y * stride[0] + ky * dilation[0] - pads[0]
            ix = column * stride[1] + kx * dilation[1] - pads[1]
            if 0 <= iy < height and 0 <= ix < width:
                out[index] += (int(x[image, iy, ix, group * per_group + c]) - zero) * int(w[o, ky, kx, c])
    return out


PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def geometry(draw: st.DrawFn) -> tuple[cv.Pair, cv.Pair, cv.Pair, cv.Pads, cv.Pair]:
    """Kernel, stride, dilation, pads and an image size in which the window fits."""
    kernel, stride, dilation = draw(PAIR), draw(PAIR), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    size = tuple((k - 1) * d + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilation, strict=True))
    return kernel, stride, dilation, pads, (size[0], size[1])


@given(geometry(), st.integers(1, 3), st.sampled_from([1, 2]), st.integers(0, 2**31))
def test_conv2d(shape: Any, per_group: int, groups: int, seed: int) -> None:
    kernel, stride, dilation, pads, size = shape
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (2, *size, per_group * groups)).astype(np.uint8)
    w = rng.integers(-128, 128, (2 * groups, *kernel, per_group))
    weights = cv.conv_filter(w, 128, groups=groups)
    found = cv.conv2d(x, weights, cv.Window(kernel, stride, dilation, pads), in_zero=127)
    assert found.dtype == np.int32
    assert (found == loops(x, w, stride, dilation, pads, 127)).all()


@given(geometry(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_depthwise(shape: Any, channels: int, multiplier: int, seed: int) -> None:
    kernel, stride, dilation, pads, size = shape
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (2, *size, channels)).astype(np.int8)
    w = rng.integers(-255, 256, (*kernel, channels * multiplier))
    found = cv.conv2d(x, cv.depthwise_filter(w, 256), cv.Window(kernel, stride, dilation, pads), in_zero=-5)
    expected = loops(x, w.transpose(2, 0, 1)[..., None], stride, dilation, pads, -5)
    assert (found == expected).all()


@given(PAIR, PAIR, st.tuples(st.integers(0, 2), st.integers(0, 2)), PAIR, st.integers(0, 2**31))
def test_transpose_conv2d(kernel: cv.Pair, stride: cv.Pair, pads: cv.Pair, extra: cv.Pair, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.integers(0, 256, (2, 3, 2, 2)).astype(np.uint8), rng.integers(-9, 10, (3, *kernel, 2))
    output = (3 * stride[0] + extra[0], 2 * stride[1] + extra[1])
    expected = np.zeros((2, *output, 3), np.int64)
    for n, y, column, o, ky, kx, c in np.ndindex(2, 3, 2, 3, *kernel, 2):
        row, place = y * stride[0] - pads[0] + ky, column * stride[1] - pads[1] + kx
        if 0 <= row < output[0] and 0 <= place < output[1]:
            expected[n, row, place, o] += (int(x[n, y, column, c]) - 100) * int(w[o, ky, kx, c])
    found = cv.transpose_conv2d(x, cv.transpose_filter(w, 155), stride, pads, output, in_zero=100)
    assert (found == expected).all()


@pytest.mark.parametrize("tile_bytes", [1, 200, 2000])
def test_tiles_do_not_change_results(tile_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.integers(-9, 9, (3, 9, 8, 2)), rng.integers(-9, 9, (4, 3, 2, 2))
    window = cv.Window((3, 2), (2, 1), (1, 2), (1, 1, 2, 0))
    whole = cv.conv2d(x, cv.conv_filter(w, 9), window)
    deep = cv.conv2d(x, cv.depthwise_filter(w[0], 9), window)
    transposed = cv.transpose_conv2d(x, cv.transpose_filter(w, 9), (2, 3), (1, 0), (19, 25))
    monkeypatch.setattr(cv, "TILE_BYTES", tile_bytes)
    assert (cv.conv2d(x, cv.conv_filter(w, 9), window) == whole).all()
    assert (cv.conv2d(x, cv.depthwise_filter(w[0], 9), window) == deep).all()
    assert (cv.transpose_conv2d(x, cv.transpose_filter(w, 9), (2, 3), (1, 0), (19, 25)) == transposed).all()


def test_tiles_bound_temporaries() -> None:
    """A row of patches larger than a tile is split along the row."""
    tiles = cv._tiling((1, 4, 10_000), cv.Window((1, 1)), cv._pixels(4096)).tiles
    assert all(np.prod(tile.shape) * 4096 <= cv.TILE_BYTES for tile in tiles)
    assert sum(int(np.prod(tile.shape)) for tile in tiles) == 40_000


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("channels", [3, 64])
def test_depthwise_of_transposed_input(stride: int, channels: int) -> None:
    """An operator before may have left a view whose elements do not lie in order."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1, channels, 9, 8)).astype(np.float32).transpose(0, 2, 3, 1)
    w = rng.normal(size=(3, 2, channels)).astype(np.float32)
    window, weights = cv.Window((3, 2), (stride, stride)), cv.depthwise_filter(w, None)
    expected = cv.conv2d(np.ascontiguousarray(x), weights, window)
    np.testing.assert_array_equal(cv.conv2d(x, weights, window), expected)


def test_finish_sees_every_pixel_once() -> None:
    x, w = np.ones((2, 4, 4, 1), np.int8), np.ones((1, 1, 1, 1), np.int8)
    seen: list[int] = []

    def finish(sums: Array) -> Array:
        seen.append(sums.shape[0])
        return sums + 1

    found = cv.conv2d(x, cv.conv_filter(w, 1), cv.Window((1, 1)), finish=finish, dtype="uint8")
    assert sum(seen) == 32
    assert found.dtype == np.uint8
    assert (found == 2).all()


def test_float_convolution() -> None:
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(1, 5, 6, 3)).astype(np.float32), rng.normal(size=(2, 3, 3, 3)).astype(np.float32)
    found = cv.conv2d(x, cv.conv_filter(w, None), cv.Window((3, 3)))
    expected = sum(
        x[:, ky : ky + 3, kx : kx + 4].astype(np.float64) @ w[:, ky, kx].T.astype(np.float64)
        for ky in range(3)
        for kx in range(3)
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_large_sums_are_exact_and_wrap() -> None:
    x, w = np.full((1, 1, 1, 70_000), 255), np.full((1, 1, 1, 70_000), 255)
    exact = 70_000 * 255 * 255
    assert conv2d_sums(x, w, (1, 1))[0, 0, 0, 0] == exact - 2**32
    wide = cv.conv2d(x, cv.conv_filter(w, 255, sums="int64"), cv.Window((1, 1)))
    assert wide[0, 0, 0, 0] == exact


def test_sums_of_padded_tiles() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.integers(-255, 256, (1, 6, 7, 4)), rng.integers(-255, 256, (3, 3, 2, 4))
    assert (conv2d_sums(x, w, (2, 1), (1, 2)) == loops(x, w, (2, 1), (1, 2))).all()
    deep = rng.integers(-255, 256, (3, 3, 8))
    expected = loops(x, deep.transpose(2, 0, 1)[..., None], (1, 2), (1, 1))
    assert (depthwise_sums(x, deep, (1, 2)) == expected).all()


def test_multiplier_precision() -> None:
    """uint8 rounds the product of scales to float32 first; int8 does not."""
    scales = (0.017, (0.0033, 0.11), 0.29)
    single = cv.real_multipliers(*scales, single_product=True)
    double = cv.real_multipliers(*scales, single_product=False)
    x, w, y = (np.float32(0.017), np.float32(0.0033), np.float32(0.29))
    assert single[0] == float(x * w) / float(y)
    assert double[0] == float(x) * float(w) / float(y)
    assert single[0] != double[0]


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (2, 4, 4, 3)])
def test_results_without_elements(shape: tuple[int, ...]) -> None:
    x, w = np.zeros(shape, np.float32), np.zeros((0, 3, 3, 3), np.float32)
    assert cv.conv2d(x, cv.conv_filter(w, None), cv.Window((3, 3))).shape == (shape[0], 2, 2, 0)
