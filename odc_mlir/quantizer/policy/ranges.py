"""Choice of a tensor's quantised range from statistics of values.

:func:`with_room` widens a range for values outside the range of the samples. It fits a generalised Pareto distribution
to the extremes of runs (Pickands, 1975; Hosking and Wallis, 1987), and minimises the expected loss for one more run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError, OptionError

LEAST_RATIO = 16.0  # sizes differ from this ratio on, which costs the smaller one log2(16) = 4 bits of its codes


def sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Return whether a common scale of columns with these limits is too coarse for a varying column."""
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return False
    sizes, whole = high - low, max(float(high.max()), 0.0) - min(float(low.min()), 0.0)
    return float((sizes[sizes > 0] / whole).min(initial=1.0)) < 1.0 / LEAST_RATIO


def most_sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Return whether at least half of the varying columns are too small for the scale of the largest column."""
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return False
    sizes = np.maximum(np.abs(low), np.abs(high))[high > low]
    return bool(sizes.size) and float(np.median(sizes)) < float(sizes.max()) / LEAST_RATIO


Range = tuple[float, float]


def choose_range(stats: TensorStatistics, mode: str, **options: Any) -> Range:
    """Return the range by a mode of :data:`MODES`. ``options``: parameters of the mode's function.

    Raises OptionError for wrong modes and options, InputError if no values were observed.
    """
    choose = MODES.get(mode)
    if choose is None:
        raise OptionError(f"unknown range mode {mode!r}", hint=f"use one of {', '.join(MODES)}")
    allowed = list(inspect.signature(choose).parameters)[1:]
    if unknown := sorted(options.keys() - set(allowed)):
        hint = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
        raise OptionError(f"{mode} has no option {unknown[0]!r}", hint=hint)
    if not stats.runs:
        raise InputError("no usable value has been recorded", hint="record more runs, or inputs without NaN")
    low, high = choose(stats, **options)
    return low + 0.0, high + 0.0  # no negative zero


def minmax(stats: TensorStatistics) -> Range:
    """Return the least and the greatest value of all runs."""
    return stats.minimum, stats.maximum


def percentile(stats: TensorStatistics, low: float = 1.0, high: float = 99.0) -> Range:
    """Percentile ``low`` of the runs' minima and ``high`` of the runs' maxima, interpolated linearly as in ONE."""
    if not 0 <= low <= high <= 100:
        raise OptionError(f"the percentiles are {low} and {high}, expected 0 <= low <= high <= 100")
    first = float(np.percentile(stats.minima.astype(np.float64), low))
    last = float(np.percentile(stats.maxima.astype(np.float64), high))
    # If each run has a single value, the percentile of minima can exceed the percentile of maxima.
    return min(first, last), max(first, last)


def moving_average(stats: TensorStatistics, batch: int = 16, constant: float = 0.1) -> Range:
    """Return the moving average of the extremes of each ``batch`` of runs, with weight ``constant``."""
    if batch < 1:
        raise OptionError(f"batch is {batch}, expected at least 1 run")
    if not 0 <= constant <= 1:
        raise OptionError(f"constant is {constant}, expected 0 to 1")

    def average(extremes: NDArray[np.float64]) -> float:
        result = float(extremes[0])
        for extreme in extremes[1:]:
            result = result * (1.0 - constant) + float(extreme) * constant
        return result

    starts = np.arange(0, stats.runs, batch)
    first = average(np.minimum.reduceat(stats.minima.astype(np.float64), starts))
    last = average(np.maximum.reduceat(stats.maxima.astype(np.float64), starts))
    return min(first, last), max(first, last)


def extremes(arrays: Iterable[NDArray[Any]]) -> Range:
    """Return the smallest and the largest value of arrays, (inf, -inf) without values."""
    ends = [(float(values.min()), float(values.max())) for values in arrays if values.size]
    return min((low for low, _ in ends), default=math.inf), max((high for _, high in ends), default=-math.inf)


MINMAX = "minmax"
MODES: dict[str, Callable[..., Range]] = {MINMAX: minmax, "percentile": percentile, "moving-average": moving_average}


_Reals = NDArray[np.float64]

# Part of the runs that is the tail: a tenth gives median losses 1.6 times too large on five laws, this 1.3.
TAIL = 1 / 3
# Prior of the tail index, and its weight as a number of extremes: weights of 5 or 80 and indices of 0 or 0.2 fit these
# laws worse. Against heavier tails, the weight is twice as large: one rare extreme among few imitates a heavy tail.
_INDEX, _LIGHTER_WEIGHT = 0.1, 20
# Limits of the index: below -1, density would rise to the end; from 1 on, a tail has no mean, from 0.5 no mean square.
_LEAST_INDEX, _MOST_INDEX, _MOST_OF_SQUARES = -1.0, 0.9, 0.45


@dataclass(frozen=True, slots=True)
class Tail:
    """Generalised Pareto tail of ``count`` values, a ``share`` of all, above ``threshold``. Scale 0 means no tail."""

    threshold: float
    scale: float
    index: float
    share: float
    count: int

    @classmethod
    def of(cls, values: _Reals) -> Tail:
        """Return the upper tail of ``values``, which are at least two."""
        # Plotting positions of probability-weighted moments.
        position = 0.35
        fewest = 6  # minimum number of extremes in a tail
        ordered = np.sort(values)
        count = min(max(fewest, int(np.ceil(TAIL * len(ordered)))), len(ordered) - 1)
        threshold, share = float(ordered[-count - 1]), count / len(ordered)
        excess = ordered[-count:] - threshold
        places = (np.arange(1, count + 1) - position) / count
        mean, weighted = float(excess.mean()), float((excess * (1.0 - places)).mean())
        if not mean > 0.0:
            return cls(threshold, 0.0, 0.0, share, count)
        spread = mean - 2.0 * weighted
        found = 2.0 - mean / spread if spread > 0.0 else _LEAST_INDEX
        found = min(max(found, _LEAST_INDEX), _MOST_INDEX)
        weight = (2 if found > _INDEX else 1) * _LIGHTER_WEIGHT
        index = (count * found + weight * _INDEX) / (count + weight)
        # A small sample underestimates the scale.
        return cls(threshold, mean * (1.0 - index) * (1.0 + 1.0 / count), index, share, count)

    def indices(self, odds: _Reals) -> _Reals:
        """Return draws of the index from the standard normal draws ``odds``."""
        error = (1.0 + self.index) / math.sqrt(self.count + _LIGHTER_WEIGHT)
        return np.clip(self.index + error * odds, _LEAST_INDEX, _MOST_OF_SQUARES)

    def cut_off(self, ends: _Reals) -> _Reals:
        """Return for ``ends`` above the threshold the mean square by which a further value exceeds the end."""
        index = min(self.index, _MOST_OF_SQUARES)
        return self.share * _squares_beyond(ends - self.threshold, np.full_like(ends, self.scale), index)

    def beyond(self, most: float, end: float, indices: _Reals) -> tuple[_Reals, _Reals]:
        """Return, for each index, mean squares of values above ``most``: of the parts beyond ``end``, and in full."""
        scales = np.maximum(self.scale + indices * (most - self.threshold), 0.0)
        own = _squares_beyond(0.0, scales, indices) + 2.0 * most * scales / (1.0 - indices) + most**2
        return _squares_beyond(max(end - most, 0.0), scales, indices), own


def _squares_beyond(apart: _Reals | float, scales: _Reals, index: _Reals | float) -> _Reals:
    """Return the mean square of generalised Pareto values' excess over ``apart``. Smaller values count as zero."""
    no_index, no_scale = 1e-6, 1e-300
    index = np.where(np.abs(index) < no_index, no_index, index)
    with np.errstate(divide="ignore"):  # with a negative index, the distribution ends
        logs = np.log1p(np.maximum(index * apart / np.maximum(scales, no_scale), -1.0))
    farther = np.maximum(scales + index * apart, 0.0)
    return np.asarray(np.exp(-logs / index) * 2.0 * farther**2 / ((1.0 - index) * (1.0 - 2.0 * index)))


def with_room(stats: TensorStatistics, elements: int, bits: int) -> tuple[float, float]:
    """Return the range of ``bits``-bit codes with the least expected loss for one more run of ``elements`` values."""
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
    # Candidate distances of a limit from the observed range, relative to this range.
    rooms = np.concatenate([[0.0], np.geomspace(0.02, 8.0, 40)])
    most = float(extremes.max())
    if most <= 0.0:
        return np.array([most]), np.zeros(1)
    ends = most + rooms * span
    return ends, Tail.of(extremes).cut_off(ends)


Statistics = Mapping[str, TensorStatistics]
