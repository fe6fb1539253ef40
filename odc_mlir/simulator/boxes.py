"""Boxes: the sets of addresses that instructions touch, up to three nested runs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Box(NamedTuple):
    """``count2`` groups, ``stride2`` apart, of ``count1`` runs, ``stride1`` apart, of ``size`` units from ``start``.

    Made by :func:`box`, which merges what is contiguous: ``count1`` is 1 only when ``count2`` is 1 too.
    """

    start: int
    size: int
    count1: int = 1
    stride1: int = 0
    count2: int = 1
    stride2: int = 0

    @property
    def end(self) -> int:
        """One past the last address."""
        return self.start + (self.count2 - 1) * self.stride2 + (self.count1 - 1) * self.stride1 + self.size

    @property
    def units(self) -> int:
        """Addresses counted with repetition."""
        return self.size * self.count1 * self.count2


def box(start: int, size: int, count1: int = 1, stride1: int = 0, count2: int = 1, stride2: int = 0) -> Box:
    """The normal form of a box; counts are at least 1."""
    if count1 > 1 and stride1 == size:
        size, count1 = size * count1, 1
    if count1 == 1:
        count1, stride1, count2, stride2 = count2, stride2, 1, 0
        if stride1 == size:
            size, count1 = size * count1, 1
    if count1 == 1:
        stride1 = 0
    if count2 == 1:
        stride2 = 0
    elif stride2 == count1 * stride1:
        count1, count2, stride2 = count1 * count2, 1, 0
    return Box(start, size, count1, stride1, count2, stride2)


def repeats(b: Box) -> bool:
    """Whether some address may occur twice (runs closer together than they are long)."""
    row = (b.count1 - 1) * b.stride1 + b.size
    return (b.count1 > 1 and b.stride1 < b.size) or (b.count2 > 1 and b.stride2 < row)


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes share an address."""
    low, high = max(a.start, b.start), min(a.end, b.end)
    if low >= high:
        return False
    if a.count1 == 1 and b.count1 == 1:
        return True
    if _in_different_columns(a, b):
        return False
    return bool((_marks(a, low, high) & _marks(b, low, high)).any())


def _in_different_columns(a: Box, b: Box) -> bool:
    """Both walk with the same stride over disjoint parts of it: channel slices of one tensor, column tiles."""
    stride = a.stride1 or b.stride1
    for one in (a, b):
        if (
            stride == 0
            or one.stride1 not in (0, stride)
            or one.stride2 % stride
            or one.start % stride + one.size > stride
        ):
            return False
    a0, b0 = a.start % stride, b.start % stride
    return a0 + a.size <= b0 or b0 + b.size <= a0


def _marks(b: Box, low: int, high: int) -> NDArray[np.bool_]:
    """Which addresses of ``[low, high)`` belong to the box."""
    marks = np.zeros(b.end - b.start, np.bool_)
    view(marks, b._replace(start=0))[...] = True
    return marks[low - b.start : high - b.start]


def view(array: NDArray[Any], b: Box) -> NDArray[Any]:
    """The elements of a one-dimensional contiguous ``array`` in a box: ``[size]`` or ``[count2, count1, size]``."""
    if b.count1 == 1:
        return array[b.start : b.start + b.size]
    item = array.itemsize
    return np.ndarray(
        (b.count2, b.count1, b.size),
        array.dtype,
        array.data,
        b.start * item,
        (b.stride2 * item, b.stride1 * item, item),
    )


def burst_bytes(b: Box, burst: int) -> int:
    """Bytes that move when a byte box is transferred: every burst that a contiguous run touches, whole."""
    if b.count1 == 1:
        return ((b.start + b.size - 1) // burst - b.start // burst + 1) * burst
    return _strided_bursts(b.start % burst, b.size, b.count1, b.stride1, b.count2, b.stride2, burst) * burst


@lru_cache(maxsize=4096)
def _strided_bursts(start: int, size: int, count1: int, stride1: int, count2: int, stride2: int, burst: int) -> int:
    if stride1 % burst == 0 and stride2 % burst == 0:
        return ((start + size - 1) // burst + 1) * count1 * count2
    starts = (start + np.arange(count1) * stride1)[:, None] + np.arange(count2) * stride2
    return int(((starts % burst + size - 1) // burst + 1).sum())


@lru_cache(maxsize=4096)
def picked_bytes(start: int, size: int, rows: int, count: int, burst: int) -> int:
    """Bytes that move for ``count`` of ``rows`` rows of ``size`` bytes from ``start`` on, whichever they are."""
    starts = start + np.arange(min(rows, burst)) * size  # alignments repeat
    return count * int(((starts % burst + size - 1) // burst + 1).max()) * burst
