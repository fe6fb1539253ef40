"""Work on large arrays piece by piece, so that wide temporaries stay in the second-level cache and memory bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

CHUNK_ELEMENTS = 1 << 15


def clamp(x: Array, low: float | None, high: float | None) -> Array:
    """``x`` limited to ``[low, high]``, None for no limit on that side."""
    return x if low is None and high is None else np.asarray(np.clip(x, low, high))


def in_pieces(compute: Callable[[Array], Array], x: Array, dtype: DTypeLike) -> Array:
    """``compute(x)`` as ``dtype`` for a function that maps each element by itself."""
    if x.size <= CHUNK_ELEMENTS or isinstance(compute, np.ufunc):  # a single pass has no temporaries
        return np.asarray(compute(x), dtype)
    flat, result = x.reshape(-1), np.empty(x.size, dtype)
    for start in range(0, x.size, CHUNK_ELEMENTS):
        result[start : start + CHUNK_ELEMENTS] = compute(flat[start : start + CHUNK_ELEMENTS])
    return result.reshape(x.shape)


def in_pairs(compute: Callable[[Array, Array], Array], a: Array, b: Array, dtype: DTypeLike) -> Array:
    """``compute(a, b)`` as ``dtype`` for an element-wise function; operands broadcast."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    if math.prod(shape) <= CHUNK_ELEMENTS:
        return np.asarray(compute(a, b), dtype)
    result = np.empty(shape, dtype)
    for left, right, target in pieces(a, b, result):
        target[...] = compute(left, right)
    return result


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Matching parts of arrays that broadcast to the shape of the last one, about CHUNK_ELEMENTS of that at a time.

    Parts are views, so that the last array can be written to.
    """
    shape = arrays[-1].shape
    if all(array.shape == shape and array.flags.c_contiguous for array in arrays):
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, arrays[-1].size, CHUNK_ELEMENTS):
            yield tuple(array[start : start + CHUNK_ELEMENTS] for array in flat)
        return
    aligned = [array.reshape((1,) * (len(shape) - array.ndim) + array.shape) for array in arrays]
    axis, inner = _split_axis(shape)
    step = max(1, CHUNK_ELEMENTS // max(inner, 1))
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis] if shape else 1, step):
            window = (*((i, i + 1) for i in outer), (start, start + step))[: len(shape)]
            yield tuple(
                array[tuple(slice(*w) if n > 1 else slice(None) for w, n in zip(window, array.shape, strict=False))]
                for array in aligned
            )


def _split_axis(shape: tuple[int, ...]) -> tuple[int, int]:
    """The first axis whose slices have at most CHUNK_ELEMENTS elements, and how many they have."""
    inner = math.prod(shape)
    for axis, size in enumerate(shape):
        inner = inner // size if size else 0
        if inner <= CHUNK_ELEMENTS:
            return axis, inner
    return 0, 1


def in_rows(compute: Callable[[Array], Array], x: Array, dtype: DTypeLike) -> Array:
    """``compute(rows)`` as ``dtype`` for a function of rows ``[n, C]``, the last axis of ``x [..., C]``."""
    columns, result = x.shape[-1], np.empty(x.shape, dtype)
    if x.size == 0:
        return result
    rows, target = x.reshape(-1, columns), result.reshape(-1, columns)
    step = max(1, CHUNK_ELEMENTS // columns)
    for start in range(0, len(rows), step):
        target[start : start + step] = compute(rows[start : start + step])
    return result
