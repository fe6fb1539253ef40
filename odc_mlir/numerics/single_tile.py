"""Convolutions of inputs of one shape whose result is one small tile: all but the arithmetic is done beforehand.

Buffers are kept from call to call, so what is made here must not be used by several threads at once. Results are new
arrays, the same as those of :func:`~odc_mlir.numerics.convolution.conv2d` with the bias added and rescaled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.convolution import ConvFilter, Finish, Tile, Window, single_tile, tap_view
from odc_mlir.numerics.fixed import Requantizer
from odc_mlir.numerics.matmul import compute_dtype, narrow
from odc_mlir.numerics.pieces import FEW_ELEMENTS

Array = NDArray[Any]
Compute = Callable[[Array], Array]
Shape4 = tuple[int, int, int, int]

KEPT_BYTES = 1 << 18  # largest buffers that are kept: what a call costs counts below, memory above
_INT32_ROOM = 1 << 30  # sums with bias below this need no thought of overflow


def tile_convolution(
    shape: Shape4,
    source: np.dtype[Any],
    weights: ConvFilter,
    window: Window,
    *,
    in_zero: int = 0,
    bias: Array | None = None,
    rescale: Finish | None = None,
    dtype: np.dtype[Any],
) -> Compute | None:
    """Maps ``x`` of ``shape`` and dtype ``source`` to results of ``dtype``; None where there is more to do than this.

    ``bias`` is a row of the dtype of sums; ``rescale`` maps sums with bias to results.
    """
    tile, matrix = single_tile(shape, weights, window), weights.groups[0]
    pixels, channels = 0 if tile is None else int(np.prod(tile.shape)), weights.out_channels
    taps = window.kernel[0] * window.kernel[1] * shape[3]
    if tile is None or len(weights.groups) > 1 or shape[3] != weights.in_channels:
        return None
    if not 0 < pixels * (taps + channels) * matrix.values.itemsize <= KEPT_BYTES or matrix.values.dtype.kind != "f":
        return None
    zero = _Zero(source, matrix.values, in_zero)
    patches = _patches(shape, source, tile, window, matrix.values.dtype, zero)
    finish = _finish(matrix.values, matrix.sums, zero, bias, rescale, pixels, dtype)
    result, values, integers = (*tile.shape, channels), matrix.values, matrix.sums.kind == "i"
    if not integers:
        return lambda x: finish(patches(x).dot(values)).reshape(result)
    sums = np.empty((pixels, channels), values.dtype)
    return lambda x: finish(patches(x).dot(values, sums)).reshape(result)


class _Zero:
    """How the input's zero point is taken off: ``offset`` from its elements, or ``row`` from the sums.

    Codes are taken as they are where sums of these are exact too; ``outside`` then stands for padding.
    """

    def __init__(self, source: np.dtype[Any], values: Array, in_zero: int) -> None:
        self.outside = self.offset = 0
        self.row: Array | None = None
        self.largest = 0.0  # sum
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
    shape: Shape4, source: np.dtype[Any], tile: Tile, window: Window, dtype: np.dtype[Any], zero: _Zero
) -> Compute:
    """Maps ``x`` to the taps of each result, ``[pixels, taps]`` in ``dtype``."""
    (kh, kw), (sy, sx) = window.kernel, window.stride
    matrix = int(np.prod(tile.shape)), kh * kw * shape[3]
    offset = np.array(zero.offset, dtype) if zero.offset else None
    if kh * kw * sy * sx == 1 and tile.padded is None:
        if source == dtype:
            return lambda x: x.reshape(matrix)
        if offset is None:
            return lambda x: x.astype(dtype).reshape(matrix)
        return lambda x: np.subtract(x.astype(dtype), offset).reshape(matrix)
    size = tile.padded or tuple(part.stop - part.start for part in tile.source)
    image = np.full((*size, shape[3]), zero.outside, dtype)
    inside = image[tile.target] if tile.padded is not None else image
    part = None if inside.shape == shape else tile.source
    if matrix[0] == 1 and image.size == matrix[1]:
        taken, view = image.reshape(matrix), None
    else:
        view = tap_view(image, window, tile.shape)
        buffer = np.empty(view.shape, dtype)
        taken = buffer.reshape(matrix)

    def gather(x: Array) -> Array:
        inside[...] = x if part is None else x[part]
        if offset is not None:
            np.subtract(inside, offset, inside)
        if view is not None:
            buffer[...] = view
        return taken

    return gather


def _finish(
    values: Array,
    sums: np.dtype[Any],
    zero: _Zero,
    bias: Array | None,
    rescale: Finish | None,
    pixels: int,
    dtype: np.dtype[Any],
) -> Compute:
    """Maps sums ``[pixels, channels]`` to results, in place where they are reals."""
    row = bias
    if zero.row is not None:
        row = (-zero.row if bias is None else bias - zero.row).astype(sums)  # modulo 2^32, as the sums are
    if isinstance(rescale, Requantizer):
        largest = 0 if row is None else int(np.abs(row.astype(np.int64)).max(initial=0))
        direct = rescale.of_reals(row, pixels, values.shape[1]) if zero.largest + largest < _INT32_ROOM else None
        if direct is not None:
            return direct
    added = None if row is None else spread(row, pixels)

    def finish(found: Array) -> Array:
        whole = narrow(found, sums)
        if added is not None:
            whole += added
        return whole.astype(dtype, copy=False) if rescale is None else np.asarray(rescale(whole), dtype)

    return finish


def spread(row: Array, rows: int) -> Array:
    """``row`` for each of ``rows`` rows where these are few: numpy adds equal shapes in half of the time."""
    return np.broadcast_to(row, (rows, row.size)).copy() if rows > 1 and rows * row.size <= FEW_ELEMENTS else row
