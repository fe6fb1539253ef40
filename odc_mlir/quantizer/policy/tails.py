"""Ranges with room for values that were not seen, by how the largest of those seen are spread.

Each run's extreme is one observation. Those farthest out follow a generalised Pareto distribution (Pickands,
"Statistical inference using extreme order statistics", 1975), fitted by probability-weighted moments (Hosking and
Wallis, "Parameter and quantile estimation for the generalized Pareto distribution", 1987). It tells what one more run
loses on the average where an end cuts it off. Codes that are spread wider lose by rounding, once for each element: so
tensors of many elements, whose extremes are much the same in all runs, get hardly any room, and single values with few
large ones among them get much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import TensorStatistics

_Reals = NDArray[np.float64]

# Which part of the runs is the tail, and how many at least.
TAIL, _FEWEST = 1 / 3, 6
# Few extremes say little of the index: it is drawn to that of a tail slightly heavier than exponential, as by so many
# of them; less so where they seem to end, which rare ones among few do not imitate.
_INDEX, _HEAVIER_WEIGHT, _LIGHTER_WEIGHT = 0.1, 40, 20
# Beyond these an index is chance, or has no mean square.
_LEAST_INDEX, _MOST_INDEX, _MOST_OF_SQUARES = -1.0, 0.9, 0.45
_NO_INDEX, _NO_SCALE = 1e-6, 1e-300
# Plotting positions of probability-weighted moments.
_POSITION = 0.35
# How far beyond the range an end may lie, in parts of that range.
_ROOMS = np.concatenate([[0.0], np.geomspace(0.02, 8.0, 40)])


@dataclass(frozen=True, slots=True)
class Tail:
    """How a ``share`` of values, ``count`` of them, lies above ``threshold``: by ``scale``, and the farther the greater
    the ``index`` is. A scale of 0: nothing lies there."""

    threshold: float
    scale: float
    index: float
    share: float
    count: int

    @classmethod
    def of(cls, values: _Reals) -> Tail:
        """The upper tail of at least two ``values``."""
        ordered = np.sort(values)
        count = min(max(_FEWEST, int(np.ceil(TAIL * len(ordered)))), len(ordered) - 1)
        threshold, share = float(ordered[-count - 1]), count / len(ordered)
        excess = ordered[-count:] - threshold
        places = (np.arange(1, count + 1) - _POSITION) / count
        mean, weighted = float(excess.mean()), float((excess * (1.0 - places)).mean())
        if not mean > 0.0:
            return cls(threshold, 0.0, 0.0, share, count)
        spread = mean - 2.0 * weighted
        found = 2.0 - mean / spread if spread > 0.0 else _LEAST_INDEX
        found = min(max(found, _LEAST_INDEX), _MOST_INDEX)
        weight = _HEAVIER_WEIGHT if found > _INDEX else _LIGHTER_WEIGHT
        index = (count * found + weight * _INDEX) / (count + weight)
        # So few values are less spread than all are.
        return cls(threshold, mean * (1.0 - index) * (1.0 + 1.0 / count), index, share, count)

    def indices(self, odds: _Reals) -> _Reals:
        """What the index may be: so many standard errors away as ``odds``, standard normal draws, are."""
        error = (1.0 + self.index) / math.sqrt(self.count + _LIGHTER_WEIGHT)
        return np.clip(self.index + error * odds, _LEAST_INDEX, _MOST_OF_SQUARES)

    def cut_off(self, ends: _Reals) -> _Reals:
        """The mean square of what one more value has beyond each of ``ends``, which lie above the threshold."""
        index = min(self.index, _MOST_OF_SQUARES)
        return self.share * _squares_beyond(ends - self.threshold, np.full_like(ends, self.scale), index)

    def beyond(self, most: float, end: float, indices: _Reals) -> tuple[_Reals, _Reals]:
        """Of values above ``most`` the mean squares of what lies beyond ``end``, and their own, for ``indices``."""
        scales = np.maximum(self.scale + indices * (most - self.threshold), 0.0)
        own = _squares_beyond(0.0, scales, indices) + 2.0 * most * scales / (1.0 - indices) + most**2
        return _squares_beyond(max(end - most, 0.0), scales, indices), own


def _squares_beyond(apart: _Reals | float, scales: _Reals, index: _Reals | float) -> _Reals:
    """The mean square of what generalised Pareto values have beyond ``apart``, those that do not reach it included."""
    index = np.where(np.abs(index) < _NO_INDEX, _NO_INDEX, index)
    with np.errstate(divide="ignore"):  # no value lies beyond the end that a negative index gives them
        logs = np.log1p(np.maximum(index * apart / np.maximum(scales, _NO_SCALE), -1.0))
    farther = np.maximum(scales + index * apart, 0.0)
    return np.asarray(np.exp(-logs / index) * 2.0 * farther**2 / ((1.0 - index) * (1.0 - 2.0 * index)))


def with_room(stats: TensorStatistics, elements: int, bits: int) -> tuple[float, float]:
    """The ends by which codes of ``bits`` lose least of one more run on the average; none is within what was seen.

    Each run has so many ``elements``. An end at zero stays there.
    """
    low, high = stats.minimum, stats.maximum
    span = max(high, 0.0) - min(low, 0.0)
    if stats.runs < 2 or not (np.isfinite(span) and span > 0.0):
        return low, high
    above, lost_above = _ends(stats.maxima.astype(np.float64), span)
    below, lost_below = _ends(-stats.minima.astype(np.float64), span)
    steps = (np.maximum(above, 0.0)[:, np.newaxis] + np.maximum(below, 0.0)) / ((1 << bits) - 1)
    lost = elements * steps**2 / 12.0 + lost_above[:, np.newaxis] + lost_below
    first, last = np.unravel_index(int(lost.argmin()), lost.shape)
    return -float(below[last]), float(above[first])


def _ends(extremes: _Reals, span: float) -> tuple[_Reals, _Reals]:
    """Where the upper end may lie, and what is lost beyond."""
    most = float(extremes.max())
    if most <= 0.0:
        return np.array([most]), np.zeros(1)
    ends = most + _ROOMS * span
    return ends, Tail.of(extremes).cut_off(ends)
