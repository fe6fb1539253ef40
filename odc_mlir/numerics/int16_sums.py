"""Functions of 16-bit codes as sums of interpolated tables. Later tables are finer and cover codes around zero.

A table of 513 entries has one entry per 128 codes and interpolates linearly. A single table is not enough for the
curvature of roots, logarithms and poles near zero. Table ``k`` covers the codes within ``2^15 / 4^k`` of zero. The
position in the table is the code times ``4^k``, so entries are ``4^k`` times closer. The table holds the error of the
previous tables' sum, and 0 outside of its codes. Within the codes of the next table, it is constant on either side of
zero: the value at the end of the interval. The remaining error is then smooth, except for a step between the last
negative entry and zero. Slopes have 16 bits. Half of a step that is too large therefore moves to the entry before.

If results saturate at the largest code, interpolation would cut the corner. Therefore the first table minus ``base``
follows the function beyond saturation as far as 16 bits allow, and the sum is saturated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.int16 import LARGEST_ERROR, look_up, real_codes16
from odc_mlir.numerics.pieces import in_pieces, limit

Function = Callable[[NDArray[Any]], NDArray[Any]]

_LOW, _HIGH = code_range("int16")
_STEP = 128  # distance between entries of the first table, in codes
_MOST = 5  # largest number of tables: entries of the fifth are half a code apart
_KEPT = 256  # number of cached sums; quantisations of one model share most scales
_EXACT = 2  # accepted error in codes; above it, more tables are tried
_POSITIONS = np.arange(_LOW, _HIGH + 2, _STEP)
_ZERO = len(_POSITIONS) // 2  # index of code 0
_CODES = np.arange(_LOW, _HIGH + 1, dtype=np.int16)


@dataclass(frozen=True, slots=True)
class TableSum:
    """A function as the sum of ``base`` and ``tables``, each int16 ``[513]``."""

    base: int
    tables: tuple[NDArray[np.int16], ...]

    def __call__(self, codes: NDArray[Any]) -> NDArray[np.int16]:
        """Return results for int16 codes, as int16 codes, both with zero point 0."""
        return in_pieces(self._results, codes, np.dtype(np.int16))

    def _results(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        total = np.zeros(codes.shape, np.int64)
        for place, table in enumerate(self.tables):
            total = _added(total, table, codes, place)
        return _limited(total + self.base)


def _added(total: NDArray[np.int64], table: NDArray[np.int16], codes: NDArray[Any], place: int) -> NDArray[np.int64]:
    positions = _limited(codes.astype(np.int64) << 2 * place)
    return _limited(total + look_up(table.astype(np.int64), positions))


def _limited(values: NDArray[Any]) -> NDArray[Any]:
    return limit(values, _LOW, _HIGH)


@lru_cache(maxsize=_KEPT)
def table_sum(function: Function, in_scale: float, out_scale: float) -> TableSum | None:
    """Return the sum with the fewest tables that is accurate to two codes, else the most accurate sum.

    Returns None if every sum has an error above :data:`~odc_mlir.numerics.int16.LARGEST_ERROR` codes.
    """
    exact = _Exact(function, in_scale, out_scale)
    wanted = real_codes16(function, (in_scale, 0), (out_scale, 0))(_CODES).astype(np.int64)
    coarse, best, least = list[NDArray[np.int16]](), None, LARGEST_ERROR + 1
    before = np.zeros(_CODES.shape, np.int64)  # results of the coarser tables for all codes
    for place in range(_MOST):
        entries = _entries(exact, before, place)
        last, more = _table(entries), _table(_constant_near_zero(entries))
        if last is not None:
            error = int(np.abs(_limited(_added(before, last, _CODES, place) + exact.base) - wanted).max())
            if error < least:
                best, least = TableSum(exact.base, (*coarse, last)), error
        if least <= _EXACT or more is None:
            break
        coarse.append(more)
        before = _added(before, more, _CODES, place)
    return best


class _Exact:
    """Exact results in codes minus ``base``, also between codes."""

    def __init__(self, function: Function, in_scale: float, out_scale: float) -> None:
        self._function, self._in_scale, self._out_scale = function, np.float64(np.float32(in_scale)), out_scale
        self.base = 0
        found = self(_POSITIONS.astype(np.float64))
        low, most = float(found.min()), float(found.max())
        if low > _LOW and most > _HIGH:  # otherwise there is no room beyond saturation
            self.base = min(int(low) - _LOW, int(most) - _HIGH)

    def __call__(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            reals = self._function((codes * self._in_scale).astype(np.float32)).astype(np.float64)
            steps = np.nan_to_num(reals / np.float64(np.float32(self._out_scale)), nan=_LOW)
        return np.clip(steps, _LOW, 2 * _HIGH) - self.base


def _entries(exact: _Exact, before: NDArray[np.int64], place: int) -> NDArray[np.int64]:
    """Return the error of ``before``, the sum of coarser tables, at the entries of table ``place``.

    If there are codes between entries, half of the interpolation error in the middle of a step corrects the entry of
    the step, except zero.
    """

    def left(codes: NDArray[np.float64]) -> NDArray[np.float64]:
        return exact(codes) - np.interp(codes, _CODES, before)

    at = _POSITIONS / 4.0**place
    entries = left(at)
    if at[1] - at[0] > 1.0:
        errors = (entries[1:] + entries[:-1]) / 2 - left((at[:-1] + at[1:]) / 2)
        errors[_ZERO] = 0.0
        entries[:-1] -= errors / 2
    found: NDArray[np.int64] = _limited(round_half_away(entries)).astype(np.int64)
    if place:
        found[[0, -1]] = 0
    return found


def _constant_near_zero(entries: NDArray[np.int64]) -> NDArray[np.int64]:
    found, reach = entries.copy(), len(entries) // 8
    found[_ZERO : _ZERO + reach] = found[_ZERO + reach]
    found[_ZERO - reach : _ZERO] = found[_ZERO - reach]
    return found


def _table(entries: NDArray[np.int64]) -> NDArray[np.int16] | None:
    found = entries.copy()
    if abs(found[_ZERO] - found[_ZERO - 1]) > _HIGH:
        found[_ZERO - 1] = (found[_ZERO - 2] + found[_ZERO]) // 2
    if np.abs(np.diff(found)).max() > _HIGH:
        return None
    table: NDArray[np.int16] = found.astype(np.int16)
    table.flags.writeable = False
    return table
