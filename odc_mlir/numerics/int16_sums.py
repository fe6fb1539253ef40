"""Functions of 16-bit codes that one interpolated table does not give: a sum of tables, ever finer around zero.

A table of 513 entries has one each 128 codes, and straight lines between them. Roots, logarithms and poles bend more
than that near zero. Table ``k`` is of the codes within ``2^15 / 4^k`` of zero, which become positions in it when they
are multiplied by ``4^k``: its entries lie so much closer. It tells by how much results differ from what the tables
before it give; beyond its codes that is 0. Within the codes of the next table it stays what it was at their ends, so
that what the next one has to tell is smooth, but for a rise between its last entry below zero and zero. No rise is
larger than 16 bits hold, as slopes have so many: half of a larger one comes a step earlier.

Where results are cut off at the largest code, lines would cut the corner: the first table follows the function beyond
that, as far as 16 bits hold it less ``base``, and the sum with that is cut off.
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
_STEP = 128  # codes from one entry of the first table to the next
_MOST = 5  # tables: entries of the last lie half a code apart
_KEPT = 256  # sums: what is quantised in many ways has the same scales in most of them
_EXACT = 2  # codes that results may be off by, where more tables would help
_POSITIONS = np.arange(_LOW, _HIGH + 2, _STEP)
_ZERO = len(_POSITIONS) // 2  # the place of code 0 among them
_CODES = np.arange(_LOW, _HIGH + 1, dtype=np.int16)


@dataclass(frozen=True, slots=True)
class TableSum:
    """``tables``, int16 [513] each, and what is added to the sum of their results."""

    base: int
    tables: tuple[NDArray[np.int16], ...]

    def __call__(self, codes: NDArray[Any]) -> NDArray[np.int16]:
        """Results for int16 codes, as int16 codes, both with zero point 0."""
        return in_pieces(self._results, codes, np.dtype(np.int16))

    def _results(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        total = np.zeros(codes.shape, np.int64)
        for place, table in enumerate(self.tables):
            total = _with(total, table, codes, place)
        return _limited(total + self.base)


def _with(total: NDArray[np.int64], table: NDArray[np.int16], codes: NDArray[Any], place: int) -> NDArray[np.int64]:
    """``total`` with what the table at this ``place`` tells of ``codes``, cut off to int16 as instructions do."""
    positions = _limited(codes.astype(np.int64) << 2 * place)
    return _limited(total + look_up(table.astype(np.int64), positions))


def _limited(values: NDArray[Any]) -> NDArray[Any]:
    return limit(values, _LOW, _HIGH)


@lru_cache(maxsize=_KEPT)
def table_sum(function: Function, in_scale: float, out_scale: float) -> TableSum | None:
    """The fewest tables for a real float32 function that are off by two codes at most, else those that are off least.

    None where all are off by more than :data:`~odc_mlir.numerics.int16.LARGEST_ERROR` codes.
    """
    exact = _Exact(function, in_scale, out_scale)
    wanted = real_codes16(function, (in_scale, 0), (out_scale, 0))(_CODES).astype(np.int64)
    coarse, best, least = list[NDArray[np.int16]](), None, LARGEST_ERROR + 1
    before = np.zeros(_CODES.shape, np.int64)  # what the coarse ones tell of all codes
    for place in range(_MOST):
        entries = _entries(exact, before, place)
        last, more = _table(entries), _table(_flattened(entries))
        if last is not None:
            error = int(np.abs(_limited(_with(before, last, _CODES, place) + exact.base) - wanted).max())
            if error < least:
                best, least = TableSum(exact.base, (*coarse, last)), error
        if least <= _EXACT or more is None:
            break
        coarse.append(more)
        before = _with(before, more, _CODES, place)
    return best


class _Exact:
    """Results in steps of codes less ``base``, for positions between codes as well."""

    def __init__(self, function: Function, in_scale: float, out_scale: float) -> None:
        self._function, self._in_scale, self._out_scale = function, np.float64(np.float32(in_scale)), out_scale
        self.base = 0
        found = self(_POSITIONS.astype(np.float64))
        low, most = float(found.min()), float(found.max())
        if low > _LOW and most > _HIGH:  # else what is cut off has no room
            self.base = min(int(low) - _LOW, int(most) - _HIGH)

    def __call__(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            reals = self._function((codes * self._in_scale).astype(np.float32)).astype(np.float64)
            steps = np.nan_to_num(reals / np.float64(np.float32(self._out_scale)), nan=_LOW)
        return np.clip(steps, _LOW, 2 * _HIGH) - self.base


def _entries(exact: _Exact, before: NDArray[np.int64], place: int) -> NDArray[np.int64]:
    """What the tables ``before`` the one at this ``place``, whose results for all codes are given, leave to be told.

    Entries are corrected by half the error that linear interpolation makes in the middle of their step, if there are
    codes between them; not that of zero, which is to stay what it is.
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


def _flattened(entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """``entries`` that stay what they are at the ends of the next table's codes, within these."""
    found, reach = entries.copy(), len(entries) // 8
    found[_ZERO : _ZERO + reach] = found[_ZERO + reach]
    found[_ZERO - reach : _ZERO] = found[_ZERO - reach]
    return found


def _table(entries: NDArray[np.int64]) -> NDArray[np.int16] | None:
    """A table of ``entries``, None where these rise by more from one to the next than 16 bits hold."""
    found = entries.copy()
    if abs(found[_ZERO] - found[_ZERO - 1]) > _HIGH:
        found[_ZERO - 1] = (found[_ZERO - 2] + found[_ZERO]) // 2
    if np.abs(np.diff(found)).max() > _HIGH:
        return None
    table: NDArray[np.int16] = found.astype(np.int16)
    table.flags.writeable = False
    return table
