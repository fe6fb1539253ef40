"""Work on large arrays piece by piece, so that wide temporaries stay in the second-level cache and memory bounded."""

from __future__ import annotations

from collections.abc import Callable
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
    if x.size <= CHUNK_ELEMENTS:
        return np.asarray(compute(x), dtype)
    flat, result = x.reshape(-1), np.empty(x.size, dtype)
    for start in range(0, x.size, CHUNK_ELEMENTS):
        result[start : start + CHUNK_ELEMENTS] = compute(flat[start : start + CHUNK_ELEMENTS])
    return result.reshape(x.shape)


def in_pairs(compute: Callable[[Array, Array], Array], a: Array, b: Array, dtype: DTypeLike) -> Array:
    """``compute(a, b)`` as ``dtype`` for an element-wise function; in pieces where the operands have one shape."""
    if a.shape != b.shape or a.size <= CHUNK_ELEMENTS:
        return np.asarray(compute(a, b), dtype)
    left, right, result = a.reshape(-1), b.reshape(-1), np.empty(a.size, dtype)
    for start in range(0, a.size, CHUNK_ELEMENTS):
        piece = slice(start, start + CHUNK_ELEMENTS)
        result[piece] = compute(left[piece], right[piece])
    return result.reshape(a.shape)


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
