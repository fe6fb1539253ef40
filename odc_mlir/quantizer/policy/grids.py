"""Other scales of weights than their ranges ask for: those of a grid that they lie on, and those that fit them best.

Weights that were codes once, or that training has rounded, lie on a grid of their own. A range divided by the number of
codes misses it, and so costs what rounding costs although nothing need be lost; the grid found again costs nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams

Reals = NDArray[Any]

# Steps of the finest grid that is looked for; finer codes, of 16 bits, are multiples of its steps.
_MOST_STEPS = 255
# Weights that are not zero, so many that they lie on a grid by chance in one channel of 10^7: the largest fixes 128
# scales, and each other one is near a multiple of such a scale in one case of 2000 or fewer. Of how many are looked at
# first.
_LEAST_WEIGHTS, _FIRST_WEIGHTS = 4, 16
_ROWS_AT_ONCE = 64
# What rounding to float32 moves a weight by, in steps and as a part of the weight.
_NEAR, _NEAR_PART = 2.0**-18, 2.0**-20
# Scales that are tried, as parts of that of the range: with few bits it pays to clip the largest weights.
_FACTORS = {4: np.linspace(0.4, 1.1, 36), 8: np.linspace(0.84, 1.16, 33)}


def on_grid(array: Reals, params: QuantParams, dtype: str) -> QuantParams:
    """``params`` with the scale of the grid for every channel whose weights lie on one that the codes can hold.

    ``params`` are those of the range of ``array``, or coarser ones, which stay: what made them so knows why.
    """
    rows, (low, high) = _rows(array, params), DTYPES[dtype].range
    least, most = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    zeros = np.asarray(params.zero_points)
    symmetric = low < 0 or bool((zeros == (high + 1) // 2).all())
    steps = high if low < 0 else high // 2 if symmetric else high
    reach = np.maximum(-least, most) if symmetric else most - least
    multiple = max(1, steps // _MOST_STEPS)
    found = _grids(rows, reach, min(steps, _MOST_STEPS)) / multiple
    old = np.asarray(params.scales, np.float64)
    taken = np.isfinite(found) & (found > old * (1 - _NEAR_PART))
    if not taken.any():
        return params
    scales = np.where(taken, found, old).astype(np.float32)
    if not symmetric:
        zeros = np.where(taken, np.clip(round_half_away(-least / scales), low, high).astype(np.int64), zeros)
    return replace(params, scales=tuple(scales.tolist()), zero_points=tuple(zeros.tolist()))


def fitted(array: Reals, params: QuantParams, dtype: str) -> QuantParams:
    """Symmetric ``params`` with the scale for every channel that loses least of its results.

    Inputs may be anything from 0 to 1, each with the same chance: errors of weights that add up count, as no bias takes
    them back. No channel gets a larger squared error of its weights. Codes of 16 bits need no such thing.
    """
    factors = _FACTORS.get(DTYPES[dtype].bits)
    if factors is None:
        return params
    rows, most = _rows(array, params), DTYPES[dtype].range[1]
    scales = np.asarray(params.scales, np.float32)
    allowed, sums = _errors(rows, scales, most)
    least = allowed / 12 + sums**2 / 4
    for factor in factors:
        tried = (np.asarray(params.scales) * factor).astype(np.float32)
        squares, sums = _errors(rows, tried, most)
        losses = squares / 12 + sums**2 / 4
        better = (losses < least) & (squares <= allowed) & (tried > 0)
        scales, least = np.where(better, tried, scales), np.where(better, losses, least)
    return replace(params, scales=tuple(scales.tolist()))


def _rows(array: Reals, params: QuantParams) -> NDArray[np.float64]:
    """The weights of each channel that has a scale of its own."""
    if params.per_tensor:
        return array.reshape(1, -1).astype(np.float64)
    return np.moveaxis(array, params.axis, 0).reshape(array.shape[params.axis], -1).astype(np.float64)


def _errors(
    rows: NDArray[np.float64], scales: NDArray[np.float32], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums by row of the squares of its weights' errors, and of the errors, with codes up to ``most`` on both sides."""
    steps = scales.astype(np.float64)[:, np.newaxis]
    lost = np.clip(np.rint(rows / steps), -most, most) * steps - rows
    return np.asarray(np.einsum("rk,rk->r", lost, lost)), lost.sum(axis=1)


def _grids(rows: NDArray[np.float64], reach: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """By row the finest scale that divides all its weights and goes into ``reach`` at most ``steps`` times; else NaN.

    The number of times is a whole one, and with any that is at most half of ``steps`` its double will do as well. Rows
    of few weights say nothing by themselves: they count where all others lie on grids.
    """
    found = np.full(len(rows), np.nan)
    is_telling = np.count_nonzero(rows, axis=1) >= _LEAST_WEIGHTS
    _find(found, np.flatnonzero(is_telling & (reach > 0)), rows, reach, steps)
    if is_telling.any() and np.isfinite(found[is_telling]).all():
        _find(found, np.flatnonzero(~is_telling & (reach > 0)), rows, reach, steps)
    return found


def _find(
    found: NDArray[np.float64],
    left: NDArray[np.int64],
    rows: NDArray[np.float64],
    reach: NDArray[np.float64],
    steps: int,
) -> None:
    """Write the scales of the rows ``left`` into ``found``."""
    some = np.linspace(0, rows.shape[1] - 1, min(rows.shape[1], _FIRST_WEIGHTS)).astype(int)
    counts = np.arange(steps, steps // 2, -1)
    for start in range(0, len(left), _ROWS_AT_ONCE):
        part = left[start : start + _ROWS_AT_ONCE]
        scales = reach[part, np.newaxis] / counts
        # Few weights of a row seldom lie on a grid when all do not.
        for place, number in zip(*np.nonzero(_divides(rows[np.ix_(part, some)], scales)), strict=True):
            row, scale = part[place], scales[place, number]
            if np.isnan(found[row]) and _divides(rows[row : row + 1], np.array([[scale]])).all():
                found[row] = scale


def _divides(rows: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether all weights of a row are multiples of each of its ``scales [rows, N]``, as far as float32 can tell."""
    steps = rows[:, np.newaxis] / scales[:, :, np.newaxis]
    return np.asarray((np.abs(steps - np.rint(steps)) <= _NEAR + _NEAR_PART * np.abs(steps)).all(axis=2))
