"""Maximum, average and L2 pooling over NHWC tensors. Taps outside the input do not count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import FEW_ELEMENTS, clamp, reduce

Pair = tuple[int, int]

BAND_ELEMENTS = 1 << 20  # input elements widened at a time


def _taps(size: int, kernel: int, stride: int, pad: int, output: int) -> Iterator[tuple[slice, slice]]:
    """Yield (input positions, result positions) for each tap of one axis that meets the input."""
    first = max(0, pad - (output - 1) * stride)
    last = min(kernel, pad + size)
    for k in range(first, last):
        start = max(0, -((k - pad) // stride))
        stop = min(output, (size - 1 - (k - pad)) // stride + 1)
        if stop > start:
            begin = start * stride + k - pad
            yield slice(begin, begin + (stop - 1 - start) * stride + 1, stride), slice(start, stop)


def tap_counts(size: int, kernel: int, stride: int, pad: int, output: int) -> NDArray[np.int64]:
    """Return the number of taps of each result of one axis that meet the input, ``[output]``."""
    first = np.arange(output, dtype=np.int64) * stride - pad
    counts: NDArray[np.int64] = np.maximum(np.minimum(first + kernel, size) - np.maximum(first, 0), 0)
    return counts


def _sweep(
    x: NDArray[Any], axis: int, combine: Callable[..., Any], start: Any, kernel: int, stride: int, pad: int, output: int
) -> NDArray[Any]:
    """Combine the taps of one axis, of ``output`` results; ``start`` is the neutral element."""
    shape = list(x.shape)
    shape[axis] = output
    result = np.full(shape, start, x.dtype)
    lead = (slice(None),) * axis
    for source, target in _taps(x.shape[axis], kernel, stride, pad, output):
        view = result[(*lead, target)]
        combine(view, x[(*lead, source)], out=view)
    return result


def _pool(
    x: NDArray[Any], combine: Callable[..., Any], start: Any, window: Pair, stride: Pair, pads: Pair, output: Pair
) -> NDArray[Any]:
    rows = _sweep(x, 1, combine, start, window[0], stride[0], pads[0], output[0])
    return _sweep(rows, 2, combine, start, window[1], stride[1], pads[1], output[1])


def _bands(x: NDArray[Any], window: int, stride: int, pad: int, output: int) -> Iterator[tuple[slice, slice, int]]:
    """Yield bands of the result: (input rows, result rows, rows of padding before the input rows)."""
    row_elements = max(1, x.shape[0] * x.shape[2] * x.shape[3])
    step = max(1, BAND_ELEMENTS // (row_elements * min(stride, x.shape[1] + 1)))
    for y in range(0, output, step):
        last = min(y + step, output)
        first = y * stride - pad
        start = min(max(first, 0), x.shape[1])
        stop = max(start, min((last - 1) * stride - pad + window, x.shape[1]))
        yield slice(start, stop), slice(y, last), start - first


def small_pool(
    shape: tuple[int, int, int, int],
    dtype: np.dtype[Any],
    kind: str,
    window: Pair,
    stride: Pair,
    pads: Pair,
    output: Pair,
    act: tuple[float | None, float | None],
) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """Return a small pool of ``kind`` (max, average, l2), by one reduction over all windows, or None.

    Inputs have one ``shape``. The function keeps a buffer, so several threads must not share it. None for many taps.
    """
    batch, height, width, channels = shape
    if not 0 < batch * math.prod(output) * math.prod(window) * channels <= FEW_ELEMENTS:
        return None
    real = dtype.kind == "f"
    sizes = [(count - 1) * step + taps for count, step, taps in zip(output, stride, window, strict=True)]
    start = 0 if kind != "max" else -np.inf if real else np.iinfo(dtype).min
    wide = dtype if real or kind == "max" else np.dtype(np.float64)  # in which sums of codes are exact
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
    counts = np.broadcast_to(_counts(shape, window, stride, pads, output), (batch, *output, channels)).astype(wide)
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
        return found.astype(dtype, copy=False)  # truncates codes; the rounded quotient never crosses an integer

    return mean


def _bounds(dtype: np.dtype[Any], act: tuple[float | None, float | None]) -> tuple[Any, Any]:
    """Return bounds as arrays of rank 0, or None for both if there is no limit."""
    if act == (None, None):
        return None, None
    low, high = act
    return np.array(-np.inf if low is None else low, dtype), np.array(np.inf if high is None else high, dtype)


def _counts(shape: tuple[int, ...], window: Pair, stride: Pair, pads: Pair, output: Pair) -> NDArray[np.int64]:
    """Return the number of taps of each result that meet the input, at least 1, ``[1, *output, 1]``."""
    rows = tap_counts(shape[1], window[0], stride[0], pads[0], output[0])
    columns = tap_counts(shape[2], window[1], stride[1], pads[1], output[1])
    return np.asarray(np.maximum(rows[:, None] * columns[None, :], 1)[None, :, :, None])


def max_pool(
    x: NDArray[Any], window: Pair, stride: Pair, pads: Pair, output: Pair, low: float | None, high: float | None
) -> NDArray[Any]:
    """Return maxima ``[N, *output, C]`` of codes or floats ``x``, clamped; ``pads`` are (top, left).

    NaN is passed over.
    """
    start = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    result = np.empty((x.shape[0], *output, x.shape[3]), x.dtype)
    for source, target, pad in _bands(x, window[0], stride[0], pads[0], output[0]):
        size = (target.stop - target.start, output[1])
        maxima = _pool(x[:, source], np.fmax, start, window, stride, (pad, pads[1]), size)
        result[:, target] = clamp(maxima, low, high)
    return result


def average_pool(
    x: NDArray[Any], window: Pair, stride: Pair, pads: Pair, output: Pair, low: float | None, high: float | None
) -> NDArray[Any]:
    """Return averages ``[N, *output, C]`` of codes or float32 ``x``, clamped; ``pads`` as above.

    Codes: the sum plus half the count away from zero, divided by the count with truncation; no rescaling.
    """
    counts = _counts(x.shape, window, stride, pads, output)
    result = np.empty((x.shape[0], *output, x.shape[3]), x.dtype)
    wide = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    for source, target, pad in _bands(x, window[0], stride[0], pads[0], output[0]):
        size = (target.stop - target.start, output[1])
        sums = _pool(x[:, source].astype(wide, copy=False), np.add, 0, window, stride, (pad, pads[1]), size)
        means = _divided(sums, counts[:, target])
        result[:, target] = clamp(means, low, high)
    return result


def l2_pool(
    x: NDArray[Any], window: Pair, stride: Pair, pads: Pair, output: Pair, low: float | None, high: float | None
) -> NDArray[Any]:
    """Return roots of mean squares ``[N, *output, C]`` of float32 ``x``, clamped; ``pads`` as above."""
    roots = np.sqrt(average_pool(x * x, window, stride, pads, output, None, None))
    return np.asarray(clamp(roots, low, high), x.dtype)


def _divided(sums: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
    """Divide sums by counts: real numbers, or integers rounded to nearest, halves away from zero."""
    if sums.dtype.kind == "f":
        return np.asarray(sums / counts.astype(sums.dtype))
    magnitude = (np.abs(sums) + counts // 2) // counts
    return np.asarray(np.where(sums > 0, magnitude, -magnitude))
