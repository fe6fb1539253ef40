"""Convolution sums over NHWC tensors, integer (exact) and float32, in tiles that bound memory.

Integer inputs may carry a zero point: out-of-range taps and ``in_zero`` contribute nothing. Filters are prepared once
(:func:`conv_filter`, :func:`depthwise_filter`) and used for any batch and image size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.matmul import Matrix, compute_dtype, float_matrix, integer_matrix, largest_magnitude, narrow

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]  # top, left, bottom, right
Finish = Callable[[NDArray[Any]], NDArray[Any]]

TILE_BYTES = 1 << 21  # patches and sums of one tile: large enough for BLAS, small enough for the caches
NO_PADS: Pads = (0, 0, 0, 0)


def real_multipliers(
    in_scale: float, weight_scales: tuple[float, ...], out_scale: float, *, single_product: bool
) -> NDArray[np.float64]:
    """Output multipliers ``in * weight / out``, one per weight scale.

    ``single_product``: form ``in * weight`` in float32 first, as uint8 convolutions and per-tensor fully connected
    layers do; otherwise everything is float64.
    """
    weights = np.asarray(weight_scales, np.float32)
    if single_product:
        product = (np.float32(in_scale) * weights).astype(np.float64)
    else:
        product = np.float64(np.float32(in_scale)) * weights.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(product / np.float64(np.float32(out_scale)), np.float64)


@dataclass(frozen=True, slots=True)
class ConvFilter:
    """A prepared filter ``[O, kh, kw, I]``: one matrix ``[kh*kw*I, O/groups]`` per group."""

    groups: tuple[Matrix, ...]
    kernel: Pair
    in_channels: int  # per group
    out_channels: int  # of all groups

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.groups[0].values.dtype

    @property
    def sums(self) -> np.dtype[Any]:
        return self.groups[0].sums


@dataclass(frozen=True, slots=True)
class DepthwiseFilter:
    """A prepared depthwise filter ``[kh, kw, C*M]`` in the dtype to compute with."""

    weights: NDArray[Any]
    sums: np.dtype[Any]

    @property
    def kernel(self) -> Pair:
        return int(self.weights.shape[0]), int(self.weights.shape[1])


def conv_filter(w: NDArray[Any], largest: int | None, *, groups: int = 1, sums: str = "int32") -> ConvFilter:
    """Prepare ``w [O, kh, kw, I]``: integers with the zero point taken off, or float32 when ``largest`` is None.

    ``largest`` bounds the magnitude of inputs (zero point taken off). Result channel ``o`` reads input group
    ``o // (O / groups)``.
    """
    out_channels, kh, kw, in_channels = w.shape
    parts = w.reshape(groups, out_channels // groups, kh * kw * in_channels)
    matrices = tuple(
        float_matrix(part.T) if largest is None else integer_matrix(part.T, largest, sums) for part in parts
    )
    if largest is not None and len({m.values.dtype for m in matrices}) > 1:
        widest = max((m.values.dtype for m in matrices), key=lambda dtype: (dtype == np.int64, dtype.itemsize))
        matrices = tuple(Matrix(m.values.astype(widest), m.sums) for m in matrices)
    return ConvFilter(matrices, (kh, kw), in_channels, out_channels)


def depthwise_filter(w: NDArray[Any], largest: int | None, *, sums: str = "int32") -> DepthwiseFilter:
    """Prepare ``w [kh, kw, C*M]``; see :func:`conv_filter`."""
    if largest is None:
        return DepthwiseFilter(np.asarray(w, np.float32), np.dtype(np.float32))
    totals = np.abs(w.astype(np.int64)).sum(axis=(0, 1))
    dtype = compute_dtype(int(totals.max(initial=0)) * int(largest))
    return DepthwiseFilter(w.astype(dtype), np.dtype(sums))


@dataclass(frozen=True, slots=True)
class Window:
    """How results walk over the input; ``pads`` are the rows and columns added around it."""

    kernel: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pads: Pads = NO_PADS

    @property
    def extent(self) -> Pair:
        """Rows and columns from the first to the last tap."""
        (kh, kw), (dy, dx) = self.kernel, self.dilation
        return (kh - 1) * dy + 1, (kw - 1) * dx + 1

    def output(self, height: int, width: int) -> Pair:
        """Result rows and columns for an input of this size."""
        top, left, bottom, right = self.pads
        rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1
        columns = (width + left + right - self.extent[1]) // self.stride[1] + 1
        return max(rows, 0), max(columns, 0)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Result range ``[n0:n1, y0:y1, x0:x1]``."""

    n0: int
    n1: int
    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def index(self) -> tuple[slice, slice, slice]:
        return slice(self.n0, self.n1), slice(self.y0, self.y1), slice(self.x0, self.x1)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.n1 - self.n0, self.y1 - self.y0, self.x1 - self.x0


def _tiles(batch: int, rows: int, columns: int, pixel_bytes: int) -> Iterator[_Tile]:
    """Cover the result with tiles of about TILE_BYTES: several images, some rows of one, or part of a row."""
    pixels = max(1, TILE_BYTES // max(pixel_bytes, 1))
    width = max(1, min(columns, pixels))
    height = max(1, min(rows, pixels // max(columns, 1)))
    images = max(1, pixels // max(rows * columns, 1))
    for n in range(0, batch, images):
        for y in range(0, rows, height):
            for x in range(0, columns, width):
                yield _Tile(n, min(n + images, batch), y, min(y + height, rows), x, min(x + width, columns))


def _input_of(x: NDArray[Any], tile: _Tile, window: Window, in_zero: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Padded input of a tile with the zero point taken off, ``[n, h, w, C]`` in ``dtype``; a view where possible."""
    (sy, sx), (ey, ex) = window.stride, window.extent
    top, left = tile.y0 * sy - window.pads[0], tile.x0 * sx - window.pads[1]
    bottom, right = (tile.y1 - 1) * sy + ey - window.pads[0], (tile.x1 - 1) * sx + ex - window.pads[1]
    y0, y1 = max(top, 0), min(bottom, x.shape[1])
    x0, x1 = max(left, 0), min(right, x.shape[2])
    inside = x[tile.n0 : tile.n1, y0:y1, x0:x1]
    if (y0, y1, x0, x1) == (top, bottom, left, right):
        return inside.astype(dtype, copy=False) if in_zero == 0 else np.subtract(inside, in_zero, dtype=dtype)
    padded = np.zeros((tile.n1 - tile.n0, bottom - top, right - left, x.shape[3]), dtype)
    if inside.size:
        target = padded[:, y0 - top : y1 - top, x0 - left : x1 - left]
        np.subtract(inside, in_zero, out=target, dtype=dtype)
    return padded


def _patches(x: NDArray[Any], window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Matrix ``[n*h*w, kh*kw*C]`` of the taps of each result pixel of a padded tile ``x``."""
    (kh, kw), (sy, sx), (dy, dx) = window.kernel, window.stride, window.dilation
    n, h, w = shape
    sn, sh, sw, sc = x.strides
    taps = np.lib.stride_tricks.as_strided(
        x,
        (n, h, w, kh, kw, x.shape[3]),
        (sn, sh * sy, sw * sx, sh * dy, sw * dx, sc),
        writeable=False,
    )
    return taps.reshape(n * h * w, kh * kw * x.shape[3])


def conv2d(
    x: NDArray[Any],
    weights: ConvFilter,
    window: Window,
    *,
    in_zero: int = 0,
    finish: Finish | None = None,
    dtype: str | np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Convolution of ``x [N, H, W, C]``: ``[N, OH, OW, O]`` sums, or what ``finish`` makes of each tile of sums.

    ``finish`` maps sums ``[pixels, O]`` to results of ``dtype``: requantisation done while a tile is in the cache.
    """
    rows, columns = window.output(x.shape[1], x.shape[2])
    out = np.empty((x.shape[0], rows, columns, weights.out_channels), dtype or weights.sums)
    item = weights.dtype.itemsize
    taps = weights.kernel[0] * weights.kernel[1] * x.shape[3]
    for tile in _tiles(x.shape[0], rows, columns, item * (taps + weights.out_channels)):
        padded = _input_of(x, tile, window, in_zero, weights.dtype)
        sums = _tile_sums(padded, weights, window, tile.shape)
        done = finish(sums) if finish else sums
        out[tile.index] = done.reshape(*tile.shape, weights.out_channels)
    return out


def _tile_sums(x: NDArray[Any], weights: ConvFilter, window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Sums ``[pixels, O]`` of one padded tile."""
    if len(weights.groups) == 1:
        return weights.groups[0].product(_patches(x, window, shape))
    step = weights.in_channels
    parts = [
        matrix.product(_patches(x[..., g * step : (g + 1) * step], window, shape))
        for g, matrix in enumerate(weights.groups)
    ]
    return np.concatenate(parts, axis=1)


def depthwise(
    x: NDArray[Any],
    weights: DepthwiseFilter,
    window: Window,
    *,
    in_zero: int = 0,
    finish: Finish | None = None,
    dtype: str | np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Depthwise convolution of ``x [N, H, W, C]``: ``[N, OH, OW, C*M]``; result channel c*M+m reads channel c."""
    rows, columns = window.output(x.shape[1], x.shape[2])
    channels = weights.weights.shape[2]
    out = np.empty((x.shape[0], rows, columns, channels), dtype or weights.sums)
    pixel_bytes = 8 * weights.weights.itemsize * channels  # input phases, products and sums together in the cache
    for tile in _tiles(x.shape[0], rows, columns, pixel_bytes):
        padded = _input_of(x, tile, window, in_zero, weights.weights.dtype)
        sums = narrow(_depthwise_tile(padded, weights.weights, window, tile.shape), weights.sums)
        done = finish(sums.reshape(-1, channels)) if finish else sums
        out[tile.index] = done.reshape(*tile.shape, channels)
    return out


def _depthwise_tile(x: NDArray[Any], w: NDArray[Any], window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Sums ``[n, h, w, C*M]`` of one padded tile.

    Columns are split by their phase modulo the stride first, so that each tap reads runs of ``w * C*M`` elements.
    """
    (kh, kw), (sy, sx), (dy, dx) = window.kernel, window.stride, window.dilation
    n, h, columns = shape
    channels = w.shape[2]
    if channels != x.shape[3]:
        x = np.repeat(x, channels // x.shape[3], axis=3)
    phases: dict[int, NDArray[Any]] = {}
    sums = np.zeros((n, h, columns * channels), w.dtype)
    product = np.empty_like(sums)
    for kx in range(kw):
        phase, skip = (kx * dx) % sx, (kx * dx) // sx
        if phase not in phases:
            part = x[:, :, phase::sx]
            phases[phase] = np.ascontiguousarray(part).reshape(n, x.shape[1], -1)
        run = slice(skip * channels, (skip + columns) * channels)
        for ky in range(kh):
            first = ky * dy
            taps = phases[phase][:, first : first + (h - 1) * sy + 1 : sy, run]
            np.multiply(taps, np.tile(w[ky, kx], columns), out=product)
            sums += product
    return sums


def transpose_conv2d(
    x: NDArray[Any], weights: ConvFilter, stride: Pair, pads: Pair, output: Pair, *, in_zero: int = 0
) -> NDArray[Any]:
    """Transposed convolution sums ``[N, *output, O]`` of ``x [N, H, W, I]``.

    Input pixel (y, x) adds its taps at ``y*stride - pad + ky``; what falls outside the output is dropped.
    ``weights`` come from :func:`transpose_filter`.
    """
    n, height, width, _ = x.shape
    (kh, kw), channels = weights.kernel, weights.out_channels
    matrix = weights.groups[0]
    out = np.zeros((n, *output, channels), matrix.sums)
    item = matrix.values.dtype.itemsize
    for tile in _tiles(n, height, width, item * (kh * kw * channels + x.shape[3])):
        part = np.subtract(x[tile.index], in_zero, dtype=matrix.values.dtype)
        sums = matrix.product(part.reshape(-1, x.shape[3])).reshape(*tile.shape, kh, kw, channels)
        for ky in range(kh):
            rows, out_rows = _landing(tile.y0, tile.y1, ky - pads[0], stride[0], output[0])
            for kx in range(kw):
                columns, out_columns = _landing(tile.x0, tile.x1, kx - pads[1], stride[1], output[1])
                out[tile.n0 : tile.n1, out_rows, out_columns] += sums[:, rows, columns, ky, kx]
    return out


def _landing(first: int, last: int, offset: int, stride: int, size: int) -> tuple[slice, slice]:
    """Inputs of ``first..last`` whose position ``i*stride + offset`` is in ``[0, size)``, relative; those positions."""
    start = max(first, -(offset // stride))
    stop = min(last, (size - 1 - offset) // stride + 1)
    if stop <= start:
        return slice(0, 0), slice(0, 0)
    begin = start * stride + offset
    return slice(start - first, stop - first), slice(begin, begin + (stop - 1 - start) * stride + 1, stride)


def transpose_filter(w: NDArray[Any], largest: int | None, *, sums: str = "int32") -> ConvFilter:
    """Prepare ``w [O, kh, kw, I]`` of a transposed convolution: one matrix ``[I, kh*kw*O]``."""
    out_channels, kh, kw, in_channels = w.shape
    matrix = w.transpose(3, 1, 2, 0).reshape(in_channels, kh * kw * out_channels)
    prepared = float_matrix(matrix) if largest is None else integer_matrix(matrix, largest, sums)
    return ConvFilter((prepared,), (kh, kw), in_channels, out_channels)


def conv2d_sums(x: NDArray[Any], w: NDArray[Any], stride: Pair, dilation: Pair = (1, 1)) -> NDArray[np.int32]:
    """int32 sums ``[N, OH, OW, O]`` of padded, zero-point-free integers ``x [N, H, W, C]`` and ``w [O, kh, kw, C]``."""
    weights = conv_filter(w, largest_magnitude(x), groups=x.shape[3] // w.shape[3])
    return conv2d(x, weights, Window(weights.kernel, stride, dilation))


def depthwise_sums(x: NDArray[Any], w: NDArray[Any], stride: Pair, dilation: Pair = (1, 1)) -> NDArray[np.int32]:
    """int32 sums ``[N, OH, OW, C*M]`` of padded, zero-point-free integers ``x [N, H, W, C]``, ``w [kh, kw, C*M]``."""
    weights = depthwise_filter(w, largest_magnitude(x))
    return depthwise(x, weights, Window(weights.kernel, stride, dilation))
