"""Convolutions for a fixed input shape with one small tile as result, prepared before the first call.

Functions keep buffers between calls. Several threads must not share a function. Results are new arrays, equal to
results of :func:`~odc_mlir.numerics.convolution.conv2d` with bias and rescaling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import convolution
from odc_mlir.numerics.fixed import Requantizer
from odc_mlir.numerics.matmul import Matrix, compute_dtype, narrow

Array = NDArray[Any]
Compute = Callable[[Array], Array]
Slices = tuple[slice, slice, slice]
Shape4 = tuple[int, int, int, int]

KEPT_BYTES = 1 << 18  # limit on kept buffers; below it, the overhead of calls matters more than memory
_INT32_ROOM = 1 << 30  # sums with bias below this limit cannot overflow int32


@dataclass(frozen=True, slots=True)
class TileSums:
    """Zero point of the input, bias in the dtype of sums, and the conversion of biased sums to results."""

    dtype: np.dtype[Any]
    in_zero: int = 0
    bias: Array | None = None
    rescale: convolution.Finish | None = None


def tile_convolution(
    shape: Shape4,
    source: np.dtype[Any],
    weights: convolution.ConvFilter,
    window: convolution.Window,
    sums: TileSums,
) -> Compute | None:
    """Return a convolution of inputs of ``shape`` by one prepared product, or None if it has several tiles."""
    tile, matrix = convolution.single_tile(shape, weights, window), weights.groups[0]
    if tile is None or len(weights.groups) > 1 or shape[3] != weights.in_channels:
        return None
    size = tile.padded or _extent(tile.source)
    image = _Image(size, tile.target if tile.padded else _whole(size), tile.source)
    return _convolution(shape, source, matrix, image, window, tile.shape, sums)


def tile_transposed(
    shape: Shape4,
    source: np.dtype[Any],
    weights: Array,
    largest: int | None,
    kind: str,
    stride: convolution.Pair,
    pads: convolution.Pair,
    output: convolution.Pair,
    sums: TileSums,
) -> Compute | None:
    """Return :func:`tile_convolution` for a transposed convolution with ``weights [O, kh, kw, I]``.

    It convolves the input, with zeros inserted between pixels, with the reversed filter.
    """
    kernel = int(weights.shape[1]), int(weights.shape[2])
    turned = convolution.conv_filter(np.ascontiguousarray(weights[:, ::-1, ::-1]), largest, sums=kind)
    size = (shape[0], output[0] + kernel[0] - 1, output[1] + kernel[1] - 1)
    rows, columns = (
        convolution.landing(0, shape[1 + i], kernel[i] - 1 - pads[i], stride[i], size[1 + i]) for i in range(2)
    )
    if shape[3] != turned.in_channels or not (rows[0].stop and columns[0].stop):
        return None
    every = slice(None)
    image = _Image(size, (every, rows[1], columns[1]), (every, rows[0], columns[0]))
    result = (shape[0], *output)
    matrix, window = turned.groups[0], convolution.Window(kernel)
    return _convolution(shape, source, matrix, image, window, result, sums)


def tile_depthwise(
    shape: Shape4,
    source: np.dtype[Any],
    weights: convolution.DepthwiseFilter,
    window: convolution.Window,
    sums: TileSums,
) -> Compute | None:
    """Return :func:`tile_convolution` for a depthwise convolution."""
    tile, values = convolution.single_tile(shape, weights, window), weights.weights
    channels = int(values.shape[2])
    if tile is None or values.dtype == np.int64:
        return None
    size, outputs = tile.padded or _extent(tile.source), tile.shape
    pixels = math.prod(outputs)
    if not 0 < max(math.prod(size), pixels) * channels * values.itemsize <= KEPT_BYTES:
        return None
    taps = values.reshape(-1, channels)
    zero = _Zero(source, taps, sums.in_zero)
    image = _Image(size, tile.target if tile.padded else _whole(size), tile.source)
    finish = _finish(channels, weights.sums, zero, sums, pixels)
    matrix, result = (pixels, channels), (*outputs, channels)
    place = image.place(shape, values.dtype, zero)[1]
    return lambda x: finish(weights.tile_sums(place(x), window, outputs).reshape(matrix)).reshape(result)


def _whole(size: tuple[int, ...]) -> Slices:
    return slice(0, size[0]), slice(0, size[1]), slice(0, size[2])


def _extent(part: Slices) -> tuple[int, int, int]:
    images, rows, columns = part
    return images.stop - images.start, rows.stop - rows.start, columns.stop - columns.start


@dataclass(frozen=True, slots=True)
class _Image:
    """Padded input. Part ``source`` of the input is copied to ``target`` in an image of ``size`` (n, h, w)."""

    size: tuple[int, int, int]
    target: Slices
    source: Slices

    def place(self, shape: Shape4, dtype: np.dtype[Any], zero: _Zero) -> tuple[Array, Compute]:
        image = np.full((*self.size, shape[3]), zero.outside, dtype)
        inside: Array = image[self.target]
        part: Any = None if inside.shape == shape else self.source
        offset = np.array(zero.offset, dtype) if zero.offset else None

        def place(x: Array) -> Array:
            inside[...] = x if part is None else x[part]
            if offset is not None:
                np.subtract(inside, offset, inside)
            return image

        return image, place


def _convolution(
    shape: Shape4,
    source: np.dtype[Any],
    matrix: Matrix,
    image: _Image,
    window: convolution.Window,
    outputs: tuple[int, int, int],
    sums: TileSums,
) -> Compute | None:
    values, pixels = matrix.values, math.prod(outputs)
    taps, channels = values.shape
    if not 0 < pixels * (taps + channels) * values.itemsize <= KEPT_BYTES or values.dtype.kind != "f":
        return None
    if math.prod(image.size) * shape[3] * values.itemsize > 4 * KEPT_BYTES:  # taps are far apart
        return None
    zero = _Zero(source, values, sums.in_zero)
    patches = _patches(shape, source, image, window, outputs, values.dtype, zero)
    finish = _finish(channels, matrix.sums, zero, sums, pixels)
    result = (*outputs, channels)
    if matrix.sums.kind != "i":
        if taps == 1:  # np.dot ignores a single zero, even times infinity
            return lambda x: finish(patches(x) @ values).reshape(result)
        return lambda x: finish(patches(x).dot(values)).reshape(result)
    products = np.empty((pixels, channels), values.dtype)
    return lambda x: finish(patches(x).dot(values, products)).reshape(result)


class _Zero:
    """Subtraction of the zero point: ``offset`` from elements, or ``row`` from sums. ``outside`` is the padding."""

    def __init__(self, source: np.dtype[Any], values: Array, in_zero: int) -> None:
        self.outside = self.offset = 0
        self.row: Array | None = None
        self.largest = 0.0  # bound on sums
        if source.kind == "f":
            return
        limits = np.iinfo(source)
        largest, totals = max(-int(limits.min), int(limits.max)), np.abs(values).sum(axis=0, dtype=np.float64)
        self.largest = float(totals.max(initial=0)) * (largest + abs(in_zero))
        if not in_zero:
            return
        if compute_dtype(int(totals.max(initial=0)) * largest).itemsize <= values.itemsize:
            self.outside = in_zero
            self.row = in_zero * values.astype(np.int64).sum(axis=0)
        else:
            self.offset = in_zero


def _patches(
    shape: Shape4,
    source: np.dtype[Any],
    image: _Image,
    window: convolution.Window,
    outputs: tuple[int, int, int],
    dtype: np.dtype[Any],
    zero: _Zero,
) -> Compute:
    """Return the function that copies the taps of each result from ``x``: ``[pixels, taps]`` in ``dtype``."""
    (kh, kw), (sy, sx) = window.kernel, window.stride
    matrix = math.prod(outputs), kh * kw * shape[3]
    if kh * kw * sy * sx == 1 and image.size == shape[:3]:
        offset = np.array(zero.offset, dtype) if zero.offset else None
        if source == dtype:
            return lambda x: x.reshape(matrix)
        if offset is None:
            return lambda x: x.astype(dtype).reshape(matrix)
        return lambda x: np.subtract(x.astype(dtype), offset).reshape(matrix)
    whole, place = image.place(shape, dtype, zero)
    if matrix[0] == 1 and whole.size == matrix[1]:
        return lambda x: place(x).reshape(matrix)
    view = convolution.tap_view(whole, window, outputs)
    buffer = np.empty(view.shape, dtype)
    taken = buffer.reshape(matrix)

    def gather(x: Array) -> Array:
        place(x)
        buffer[...] = view
        return taken

    return gather


def _finish(channels: int, kind: np.dtype[Any], zero: _Zero, sums: TileSums, pixels: int) -> Compute:
    """Return the function that converts sums ``[pixels, channels]`` to results, in place for reals."""
    row, rescale = sums.bias, sums.rescale
    if zero.row is not None:
        row = (-zero.row if row is None else row - zero.row).astype(kind)  # wraps modulo 2^32, like the sums
    if isinstance(rescale, Requantizer):
        largest = 0 if row is None else int(np.abs(row.astype(np.int64)).max(initial=0))
        direct = rescale.of_reals(row, pixels, channels) if zero.largest + largest < _INT32_ROOM else None
        if direct is not None:
            return direct

    def finish(found: Array) -> Array:
        whole = narrow(found, kind)
        if row is not None:
            whole += row
        return whole.astype(sums.dtype, copy=False) if rescale is None else np.asarray(rescale(whole), sums.dtype)

    return finish
