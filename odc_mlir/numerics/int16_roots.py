"""One over the square root of 16-bit codes: too steep near zero for one interpolated table, so a sum of several.

A table of 513 entries has a step each 128 codes. Piece ``k`` is of two octaves of codes, those from ``2^13 / 4^k`` to
``2^15 / 4^k``, which become positions in its table when they are multiplied by ``4^k``: its steps are so much finer.
Each table tells how much larger results are than at the upper end of its piece. Codes beyond that end get 0 of it,
codes below the piece what its lower end has: then the sum of all is the result less that of the largest code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.int16 import look_up
from odc_mlir.numerics.pieces import in_pieces

_HIGH = code_range("int16")[1]
_ENTRIES, _STEP = 513, 128  # and codes from one to the next
_PIECES = 8
# Positions in tables are centred, so that the upper end, which is no code, is one: 2^15 / 4^k codes are at LAST.
POSITION_ZERO = 1 << 14
FIRST, LAST = (1 << 13) - POSITION_ZERO, (1 << 15) - POSITION_ZERO


@dataclass(frozen=True, slots=True)
class RootTables:
    """``base``: the result of the largest code; ``tables``, int16 [513] each: of one piece after the other."""

    base: int
    tables: tuple[NDArray[np.int16], ...]


def root_tables(in_scale: float, out_scale: float) -> RootTables:
    """Tables of ``1 / sqrt(x)``, down to where results are as large as codes can be; zero has the largest."""
    exact = _Exact(in_scale, out_scale)
    base = min(int(round_half_away(exact(np.array([1 << 15], np.float64)))[0]), _HIGH)
    total, tables = base, list[NDArray[np.int16]]()
    while total < _HIGH or not tables:
        tables.append(_table(exact, len(tables), total))
        total += int(tables[-1][0])
    return RootTables(base, tuple(tables))


def rsqrt16(codes: NDArray[Any], tables: RootTables) -> NDArray[np.int16]:
    """Results for int16 codes, as int16 codes, both with zero point 0; from zero down the largest code."""

    def compute(x: NDArray[Any]) -> NDArray[Any]:
        total = np.zeros(x.shape, np.int64)
        for k, table in enumerate(tables.tables):
            total += look_up(table.astype(np.int64), positions(x, k))
        return np.minimum(total + tables.base, _HIGH)

    return in_pieces(compute, codes, np.int16)


def positions(codes: NDArray[Any], piece: int) -> NDArray[np.int64]:
    """Where in the table of this ``piece`` codes are looked up."""
    found: NDArray[np.int64] = np.clip((codes.astype(np.int64) << 2 * piece) - POSITION_ZERO, FIRST, LAST)
    return found


@dataclass(frozen=True, slots=True)
class _Exact:
    """Results in real numbers, in steps of codes."""

    in_scale: float
    out_scale: float

    def __call__(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        factor = math.sqrt(float(np.float32(self.in_scale))) * float(np.float32(self.out_scale))
        return 1.0 / (np.sqrt(codes) * factor)


def _table(exact: _Exact, piece: int, total: int) -> NDArray[np.int16]:
    """The table of a piece whose upper end has the result ``total``.

    Each entry is corrected by half the error that linear interpolation makes in the middle of its step.
    """
    steps = np.arange(FIRST, LAST + 1, _STEP) + POSITION_ZERO
    ends, middles = exact(steps / 4.0**piece), exact((steps[:-1] + _STEP // 2) / 4.0**piece)
    ends[:-1] -= ((ends[1:] + ends[:-1]) / 2 - middles) / 2
    found = np.clip(round_half_away(ends) - total, 0, _HIGH)
    found[-1] = 0
    if piece == _PIECES - 1:  # of which codes 0, 1 and 2 have a position each
        found[0] = _HIGH - total
    before, behind = (_ENTRIES // 2) + FIRST // _STEP, (_ENTRIES // 2) - LAST // _STEP
    table: NDArray[np.int16] = np.pad(found, (before, behind), mode="edge").astype(np.int16)
    table.flags.writeable = False
    return table
