"""Piecewise computation on large arrays, so that temporaries stay in the second-level cache."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Place = tuple[slice, ...]  # position of a part in an array

CHUNK_ELEMENTS = 1 << 15
PART_ELEMENTS = 1 << 18  # size of parts that bound memory if smaller pieces are slower
FEW_ELEMENTS = 1 << 12  # largest number of elements for which the overhead of numpy calls dominates
_NARROW = 32  # longest rows for which numpy reduces columns faster than rows


def clamp(x: Array, low: float | None, high: float | None) -> Array:
    """Limit ``x`` to ``[low, high]``. None is no limit."""
    return x if low is None and high is None else np.asarray(np.clip(x, low, high))


def limit(x: Array, low: Any, high: Any, out: Array | None = None) -> Array:
    """Limit ``x`` to ``[low, high]``. NaN stays NaN. Bounds of rank 0 with the dtype of ``x`` are fastest."""
    return np.asarray(x.clip(low, high, out))


def in_pieces(compute: Callable[[Array], Array], x: Array, dtype: DTypeLike) -> Array:
    """Return ``compute(x)`` as ``dtype`` for an element-wise function, computed in pieces."""
    if x.size <= CHUNK_ELEMENTS or isinstance(compute, np.ufunc):  # single passes have no temporaries
        return np.asarray(compute(x) if x.ndim else compute(x.reshape(1)).reshape(()), dtype)  # not a numpy scalar
    flat, result = x.reshape(-1), np.empty(x.size, dtype)
    for start in range(0, x.size, CHUNK_ELEMENTS):
        result[start : start + CHUNK_ELEMENTS] = compute(flat[start : start + CHUNK_ELEMENTS])
    return result.reshape(x.shape)


def by_pieces(dtype: DTypeLike) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Return the decorator that computes an element-wise function of ``x`` and parameters by :func:`in_pieces`."""
    return lambda compute: wraps(compute)(lambda x, *rest: in_pieces(lambda piece: compute(piece, *rest), x, dtype))


def in_pairs(compute: Callable[[Array, Array], Array], a: Array, b: Array, dtype: DTypeLike) -> Array:
    """Return ``compute(a, b)`` as ``dtype`` for an element-wise function, computed in pieces. Operands broadcast."""
    shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
    if math.prod(shape) <= CHUNK_ELEMENTS:
        return np.asarray(compute(a, b), dtype)
    result = np.empty(shape, dtype)
    for left, right, target in pieces(a, b, result):
        target[...] = compute(left, right)
    return result


def reduce(function: np.ufunc, x: Array, axes: tuple[int, ...], dtype: DTypeLike | None = None, *, keep: bool) -> Array:
    """Return ``function.reduce`` of ``x`` over ``axes``. If ``keep``, the axes stay with size 1."""
    call: Any = function.reduce
    return np.asarray(call(x, axes, dtype, None, keep))


def has_nan(x: Array) -> bool:
    """Return whether ``x`` contains NaN. Only then is the sum of squares NaN."""
    flat = x.reshape(-1)
    total = flat.dot(flat)
    return bool(total != total)


def choose(condition: Array, x: Array, y: Array) -> Array:
    """Return ``x`` where ``condition`` is true, else ``y``. All operands broadcast.

    ``x`` and ``y`` have the same dtype. For large arrays of numbers, bit masks avoid slow unpredictable branches.
    """
    size = y.dtype.itemsize
    same = condition.shape == x.shape == y.shape
    shape = x.shape if same else np.broadcast_shapes(condition.shape, x.shape, y.shape)
    if math.prod(shape) <= FEW_ELEMENTS or y.dtype.kind not in "biuf" or x.dtype != y.dtype:
        return np.where(condition, x, y)
    result = np.empty(shape, y.dtype)
    signed, unsigned = np.dtype(f"i{size}"), np.dtype(f"u{size}")
    views = condition.view(np.int8), x.view(unsigned), y.view(unsigned), result.view(unsigned)
    for where, left, right, target in pieces(*views):
        mask = np.negative(where, dtype=signed).view(unsigned)
        np.bitwise_xor(left, right, out=target)
        np.bitwise_and(target, mask, out=target)
        np.bitwise_xor(target, right, out=target)
    return result


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield matching parts, of about CHUNK_ELEMENTS elements, of arrays that broadcast to the last array.

    Parts are views, so callers can write to parts of the last array.
    """
    shape = arrays[-1].shape
    if arrays[-1].size <= CHUNK_ELEMENTS:
        if arrays[-1].size:
            yield arrays
        return
    if all(array.shape == shape and array.flags.c_contiguous for array in arrays):
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, arrays[-1].size, CHUNK_ELEMENTS):
            yield tuple(array[start : start + CHUNK_ELEMENTS] for array in flat)
        return
    yield from _broadcast_pieces(arrays, shape)


def _broadcast_pieces(arrays: tuple[Array, ...], shape: tuple[int, ...]) -> Iterator[tuple[Array, ...]]:
    aligned = [array.reshape((1,) * (len(shape) - array.ndim) + array.shape) for array in arrays]
    axis, inner = _split_axis(shape)
    step = max(1, CHUNK_ELEMENTS // inner)
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], step):
            window = (*((i, i + 1) for i in outer), (start, start + step))
            yield tuple(
                array[tuple(slice(*w) if n > 1 else slice(None) for w, n in zip(window, array.shape, strict=False))]
                for array in aligned
            )


def _split_axis(shape: tuple[int, ...]) -> tuple[int, int]:
    inner = math.prod(shape)
    for axis, size in enumerate(shape):
        inner //= size
        if inner <= CHUNK_ELEMENTS:
            return axis, inner
    return 0, 1


def in_rows(compute: Callable[[Array], Array], x: Array, dtype: DTypeLike, elements: int = CHUNK_ELEMENTS) -> Array:
    """Return ``compute`` of ``x [..., C]`` viewed as rows ``[n, C]``, in pieces of ``elements``, as ``dtype``."""
    columns = x.shape[-1]
    if 0 < x.size <= elements:
        return compute(x.reshape(-1, columns)).astype(dtype, copy=False).reshape(x.shape)
    result = np.empty(x.shape, dtype)
    if x.size == 0:
        return result
    rows, target = x.reshape(-1, columns), result.reshape(-1, columns)
    for part in row_slices(rows, elements):
        target[part] = compute(rows[part])
    return result


def row_totals(compute: Callable[[Array], Array], rows: Array) -> NDArray[np.int64]:
    """Return the row sums ``[n, 1]`` of ``compute(rows)`` for ``rows [n, C]``, computed in parts."""
    totals = np.empty((len(rows), 1), np.int64)
    for part in row_slices(rows):
        compute(rows[part]).sum(axis=1, keepdims=True, out=totals[part])
    return totals


def below_maximum(codes: NDArray[Any]) -> NDArray[Any]:
    """Return the row maximum minus each code, unsigned, for 8-bit or 16-bit codes ``[rows, C]``."""
    if codes.shape[1] < _NARROW < len(codes):
        largest = reduce(np.maximum, np.ascontiguousarray(codes.T), (0,), keep=False)[:, None]
    else:
        largest = reduce(np.maximum, codes, (1,), keep=True)
    unsigned = np.dtype(f"u{codes.dtype.itemsize}")  # modulo 2^8 or 2^16, signs are irrelevant
    return np.asarray(np.subtract(largest.view(unsigned), codes.view(unsigned)))


def row_slices(rows: Array, elements: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Yield slices that cover the rows of a matrix, of about ``elements`` elements each."""
    for place in parts(rows.shape, (1,), elements):
        yield place[0]


def parts(
    shape: tuple[int, ...], whole: tuple[int, ...] = (), elements: int = CHUNK_ELEMENTS, least: tuple[int, ...] = ()
) -> Iterator[Place]:
    """Yield the positions of parts that cover an array of ``shape``, with about ``elements`` elements each.

    Leading axes are divided first. Axes in ``whole`` are never divided. ``least`` is the smallest size of a part, by
    axis.
    """
    spans, taken = [], math.prod(shape)
    for axis, size in enumerate(shape):
        step, few = size, min(least[axis], size) if least else 1
        if axis not in whole and taken > elements:
            step = max(few, elements * size // taken)
            taken = taken // size * step
        starts = [*range(0, size - few + 1, max(step, 1)), size] if size else []
        spans.append([slice(start, stop) for start, stop in itertools.pairwise(starts)])
    return itertools.product(*spans)


def part_of(x: Array, place: Place) -> Array:
    """Return the part of an operand that broadcasts to the part of a result at ``place`` (empty: whole result)."""
    if not place:
        return x
    fitting = place[len(place) - x.ndim :]
    return x[tuple(span if size > 1 else slice(None) for span, size in zip(fitting, x.shape, strict=True))]
