"""Maximum, average and L2 pooling over NHWC tensors. Taps outside of the input are ignored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import FEW_ELEMENTS, PART_ELEMENTS, Place, clamp, parts, reduce

Pair = tuple[int, int]


class PoolWindows(NamedTuple):
    """Windows over rows and columns: size, stride, padding above and at the left, and number of windows."""

    size: Pair
    stride: Pair
    pads: Pair
    output: Pair


_FEW_TAPS = 1 << 15  # with fewer taps, sums of 16-bit codes fit into 32 bits


def _taps(size: int, kernel: int, stride: int, pad: int, output: int) -> Iterator[tuple[slice, slice]]:
    """Yield (input positions, result positions) for the taps of an axis inside of the input."""
    first = max(0, pad - (output - 1) * stride)
    last = min(kernel, pad + size)
    for k in range(first, last):
        start = max(0, -((k - pad) // stride))
        stop = min(output, (size - 1 - (k - pad)) // stride + 1)
        if stop > start:
            begin = start * stride + k - pad
            yield slice(begin, begin + (stop - 1 - start) * stride + 1, stride), slice(start, stop)


def tap_counts(size: int, kernel: int, stride: int, pad: int, output: int) -> NDArray[np.int64]:
    """Return the number of taps inside of the input for the results of an axis, ``[output]``."""
    first = np.arange(output, dtype=np.int64) * stride - pad
    counts: NDArray[np.int64] = np.maximum(np.minimum(first + kernel, size) - np.maximum(first, 0), 0)
    return counts


def _sweep(
    x: NDArray[Any], axis: int, combine: np.ufunc, start: Any, kernel: int, stride: int, pad: int, output: int
) -> NDArray[Any]:
    """Combine the taps of one axis into ``output`` results. ``start``: neutral element of the results' dtype."""
    shape = list(x.shape)
    shape[axis] = output
    result = np.full(shape, start)
    lead = (slice(None),) * axis
    for source, target in _taps(x.shape[axis], kernel, stride, pad, output):
        view = result[(*lead, target)]
        combine(view, x[(*lead, source)], out=view)
    return result


class _Band(NamedTuple):
    target: Place
    rows: int
    source: Place
    pad: int


@lru_cache(maxsize=64)
def _bands(shape: tuple[int, ...], window: int, stride: int, pad: int, output: int) -> tuple[_Band, ...]:
    batch, height, width, channels = shape
    found = []
    for images, rows, columns, depths in parts((batch, output, width, channels), (2,), PART_ELEMENTS):
        first = rows.start * stride - pad
        top = min(max(first, 0), height)
        bottom = max(top, min((rows.stop - 1) * stride - pad + window, height))
        target, source = (images, rows, slice(None), depths), (images, slice(top, bottom), columns, depths)
        found.append(_Band(target, rows.stop - rows.start, source, top - first))
    return tuple(found)


def _pool(
    x: NDArray[Any],
    combine: np.ufunc,
    start: Any,
    windows: PoolWindows,
    prepare: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> Iterator[tuple[Place, NDArray[Any]]]:
    (rows, columns), size = zip(*windows[:3], strict=True), windows.output
    for band in _bands(x.shape, *rows, size[0]):
        part = x[band.source] if prepare is None else prepare(x[band.source])
        part = _sweep(part, 1, combine, start, *rows[:2], band.pad, band.rows)
        yield band.target, _sweep(part, 2, combine, start, *columns, size[1])


def small_pool(
    shape: tuple[int, int, int, int],
    dtype: np.dtype[Any],
    kind: str,
    placed: PoolWindows,
    act: tuple[float | None, float | None],
) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """Return a pooling function of ``kind`` (max, average, l2) for small inputs, or None if there are many taps.

    The function reduces all windows at once. All inputs have ``shape``. It keeps a buffer, so several threads must not
    share it.
    """
    (batch, height, width, channels), (window, stride, pads, output) = shape, placed
    if not 0 < batch * math.prod(output) * math.prod(window) * channels <= FEW_ELEMENTS:
        return None
    real = dtype.kind == "f"
    sizes = [(count - 1) * step + taps for count, step, taps in zip(output, stride, window, strict=True)]
    start = 0 if kind != "max" else -np.inf if real else np.iinfo(dtype).min
    wide = dtype if real or kind == "max" else np.dtype(np.float64)  # exact for sums of codes
    image = np.full((batch, *sizes, channels), start, wide)
    rows, columns = (min(full, size - pad) for full, size, pad in zip((height, width), sizes, pads, strict=True))
    inside = image[:, pads[0] : pads[0] + rows, pads[1] : pads[1] + columns]
    sn, sh, sw, sc = image.strides
    strides = (sn, sh * stride[0], sw * stride[1], sh, sw, sc)
    windows = np.ndarray((batch, *output, *window, channels), wide, image, 0, strides)
    low, high = _bounds(wide, act)

    def lay(x: NDArray[Any]) -> None:
        inside[...] = x[:, :rows, :columns]

    if kind == "max":

        def largest(x: NDArray[Any]) -> NDArray[Any]:
            lay(x)
            found = np.asarray(np.fmax.reduce(windows, (3, 4), initial=start))
            return found if low is None else found.clip(low, high)

        return largest
    counts = np.broadcast_to(_counts(shape, placed), (batch, *output, channels)).astype(wide)
    half = counts // 2

    def mean(x: NDArray[Any]) -> NDArray[Any]:
        lay(x if kind == "average" else x * x)
        sums = reduce(np.add, windows, (3, 4), keep=False)
        if not real:
            sums += np.copysign(half, sums)
        sums /= counts
        if kind == "l2":
            np.sqrt(sums, sums)
        found = sums if low is None else sums.clip(low, high)
        return found.astype(dtype, copy=False)  # truncates codes: rounding never moves the quotient across an integer

    return mean


def _bounds(dtype: np.dtype[Any], act: tuple[float | None, float | None]) -> tuple[Any, Any]:
    if act == (None, None):
        return None, None
    low, high = act
    return np.array(-np.inf if low is None else low, dtype), np.array(np.inf if high is None else high, dtype)


def _counts(shape: tuple[int, ...], windows: PoolWindows) -> NDArray[np.int64]:
    """Return the numbers of taps inside of the input for results, ``[1, *output, 1]``, at least 1."""
    rows, columns = (tap_counts(size, *axis) for size, *axis in zip(shape[1:3], *windows, strict=True))
    return np.asarray(np.maximum(rows[:, None] * columns[None, :], 1)[None, :, :, None])


def max_pool(x: NDArray[Any], windows: PoolWindows, low: float | None, high: float | None) -> NDArray[Any]:
    """Return clamped maxima ``[N, *output, C]`` of codes or floats ``x``. NaN is ignored."""
    start = np.array(-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
    result = np.empty((x.shape[0], *windows.output, x.shape[3]), x.dtype)
    for place, maxima in _pool(x, np.fmax, start, windows):
        result[place] = clamp(maxima, low, high)
    return result


def average_pool(
    x: NDArray[Any], windows: PoolWindows, low: float | None, high: float | None, *, squares: bool = False
) -> NDArray[Any]:
    """Return clamped averages ``[N, *output, C]`` of codes or float32 ``x``, or of squares.

    Averages of codes are rounded to nearest, ties away from zero, and not rescaled.
    """
    wide = x.dtype if x.dtype.kind == "f" else np.int32 if math.prod(windows.size) < _FEW_TAPS else np.int64
    counts = _counts(x.shape, windows).astype(wide)
    result = np.empty((x.shape[0], *windows.output, x.shape[3]), x.dtype)
    for place, sums in _pool(x, np.add, np.zeros((), wide), windows, np.square if squares else None):
        result[place] = clamp(_divided(sums, counts[:, *place[1:3]]), low, high)
    return result


def l2_pool(x: NDArray[Any], windows: PoolWindows, low: float | None, high: float | None) -> NDArray[Any]:
    """Return clamped roots of mean squares ``[N, *output, C]`` of float32 ``x``."""
    roots = average_pool(x, windows, None, None, squares=True)
    np.sqrt(roots, out=roots)
    return np.asarray(clamp(roots, low, high), x.dtype)


def _divided(sums: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    if sums.dtype.kind == "f":
        return np.asarray(sums / counts)
    magnitude = (np.abs(sums) + counts // 2) // counts
    return np.asarray(np.where(sums > 0, magnitude, -magnitude))
