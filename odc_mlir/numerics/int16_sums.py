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
from odc_mlir.numerics.pieces import in_pieces

Function = Callable[[NDArray[Any]], NDArray[Any]]

LOW, HIGH = code_range("int16")
_STEP = 128  # codes from one entry of the first table to the next
_MOST = 5  # tables: entries of the last lie half a code apart
_KEPT = 256  # sums: what is quantised in many ways has the same scales in most of them
_EXACT = 2  # codes that results may be off by, where more tables would help
_POSITIONS = np.arange(LOW, HIGH + 2, _STEP)
_CODES = np.arange(LOW, HIGH + 1, dtype=np.int16)


@dataclass(frozen=True, slots=True)
class TableSum:
    """``tables``, int16 [513] each, and what is added to the sum of their results."""

    base: int
    tables: tuple[NDArray[np.int16], ...]

    def __call__(self, codes: NDArray[Any]) -> NDArray[np.int16]:
        """Results for int16 codes, as int16 codes, both with zero point 0."""
        return in_pieces(self._results, codes, np.dtype(np.int16))

    def _results(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        return limited(_total(self.tables, codes) + self.base)


def positions(codes: NDArray[Any], place: int) -> NDArray[np.int64]:
    """Where in the table at this ``place`` codes are looked up."""
    return limited(codes.astype(np.int64) << 2 * place)


def limited(values: NDArray[Any]) -> NDArray[Any]:
    """``values`` cut off to what int16 holds."""
    return np.asarray(np.clip(values, LOW, HIGH))


@lru_cache(maxsize=_KEPT)
def table_sum(function: Function, in_scale: float, out_scale: float) -> TableSum | None:
    """The fewest tables for a real float32 function that are off by two codes at most, else those that are off least.

    None where all are off by more than :data:`~odc_mlir.numerics.int16.LARGEST_ERROR` codes.
    """
    exact = _Exact(function, in_scale, out_scale)
    wanted = real_codes16(function, (in_scale, 0), (out_scale, 0))(_CODES).astype(np.int64)
    coarse, best, least = list[NDArray[np.int16]](), None, LARGEST_ERROR + 1
    for place in range(_MOST):
        before = _total(coarse, _CODES)
        last, more = (_table(exact, before, place, is_last=is_last) for is_last in (True, False))
        if last is not None:
            made = TableSum(exact.base, (*coarse, last))
            error = int(np.abs(made(_CODES) - wanted).max())
            if error < least:
                best, least = made, error
        if least <= _EXACT or more is None:
            break
        coarse.append(more)
    return best


class _Exact:
    """Results in steps of codes less ``base``, for positions between codes as well."""

    def __init__(self, function: Function, in_scale: float, out_scale: float) -> None:
        self._function, self._in_scale, self._out_scale = function, np.float64(np.float32(in_scale)), out_scale
        self.base = 0
        found = self(_POSITIONS.astype(np.float64))
        low, most = float(found.min()), float(found.max())
        if low > LOW and most > HIGH:  # else what is cut off has no room
            self.base = min(int(low) - LOW, int(most) - HIGH)

    def __call__(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            reals = self._function((codes * self._in_scale).astype(np.float32)).astype(np.float64)
            steps = np.nan_to_num(reals / np.float64(np.float32(self._out_scale)), nan=LOW)
        return np.clip(steps, LOW, 2 * HIGH) - self.base


def _total(tables: Any, codes: NDArray[Any]) -> NDArray[np.int64]:
    """The sum of what tables tell, cut off to int16 after each."""
    total = np.zeros(codes.shape, np.int64)
    for place, table in enumerate(tables):
        total = limited(total + look_up(table.astype(np.int64), positions(codes, place)))
    return total


def _table(exact: _Exact, before: NDArray[np.int64], place: int, *, is_last: bool) -> NDArray[np.int16] | None:
    """What the tables ``before`` this one, whose results for all codes are given, leave to be told.

    None where it rises by more from one entry to the next than 16 bits hold.
    Entries are corrected by half the error that linear interpolation makes in the middle of their step, if there are
    codes between them; not that of zero, which is to stay what it is.
    """

    def left(codes: NDArray[np.float64]) -> NDArray[np.float64]:
        return exact(codes) - np.interp(codes, _CODES, before)

    at = _POSITIONS / 4.0**place
    entries, zero = left(at), len(at) // 2
    if at[1] - at[0] > 1.0:
        errors = (entries[1:] + entries[:-1]) / 2 - left((at[:-1] + at[1:]) / 2)
        errors[zero] = 0.0
        entries[:-1] -= errors / 2
    found = limited(round_half_away(entries))
    if place:
        found[[0, -1]] = 0
    if not is_last:
        reach = len(found) // 8
        found[zero : zero + reach] = found[zero + reach]
        found[zero - reach : zero] = found[zero - reach]
    if abs(found[zero] - found[zero - 1]) > HIGH:
        found[zero - 1] = (found[zero - 2] + found[zero]) // 2
    if np.abs(np.diff(found)).max() > HIGH:
        return None
    table: NDArray[np.int16] = found.astype(np.int16)
    table.flags.writeable = False
    return table
