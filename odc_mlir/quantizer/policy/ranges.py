"""Ranges of codes from the statistics of a tensor.

========================  ==============================================================================================
``minmax``                all values that were seen
``percentile``            percentiles over the runs' minima and over their maxima: ONE's record-minmax
``percentile-elements``   percentiles over all elements
``moving-average``        of the extremes of batches of runs: ONE's record-minmax
``mse``                   least mean squared error of the quantised values
``entropy``               least divergence of the quantised distribution from the real one
========================  ==============================================================================================

``mse`` and ``entropy`` depend on the bit width and read the histogram.

:func:`with_room` widens a range for values that no sample shows. The extreme of each run is one observation; the
largest of them follow a generalised Pareto distribution (Pickands, "Statistical inference using extreme order
statistics", 1975), fitted by probability-weighted moments (Hosking and Wallis, "Parameter and quantile estimation for
the generalized Pareto distribution", 1987). The fit predicts the loss of one more run by clipping, the step predicts
its loss by rounding, and the range minimises the sum. Tensors with many elements therefore get little room, single
values with rare large ones get much.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import Histogram, TensorStatistics
from odc_mlir.errors import InputError, OptionError

LEAST_RATIO = 16.0  # of sizes that differ: four of the bits of codes


def sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether one scale for columns with these limits is too coarse for one of them that varies."""
    parts = _parts(low, high)
    return bool(len(parts)) and float(parts.min()) < 1.0 / LEAST_RATIO


def most_sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether half of the columns that vary, or more, are so small beside others that each must have a unit of its own.

    Of many columns of one kind a few may be small, or next to nothing; all may vary little about where they are.
    """
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return False
    sizes = np.maximum(np.abs(low), np.abs(high))[high > low]
    return bool(sizes.size) and float(np.median(sizes)) < float(sizes.max()) / LEAST_RATIO


def _parts(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each varying column's part of the common range; none for infinite limits."""
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return np.empty(0)
    sizes, whole = high - low, max(float(high.max()), 0.0) - min(float(low.min()), 0.0)
    return np.asarray(sizes[sizes > 0] / whole)


Range = tuple[float, float]
_Ends = NDArray[np.float64]

_CANDIDATES = 64
_BLOCK_ELEMENTS = 1 << 15  # of what is computed at a time
_ROUNDS = 4
_ENTROPY_BINS = 2048
_ENTROPY_STEPS = 256
# What sums lose to rounding is no error: a part of all values' squares, and digits of divergences.
_NO_ERROR, _DIGITS = 1e-12, 12


def choose_range(stats: TensorStatistics, mode: str, **options: Any) -> Range:
    """Return the range for a tensor with these statistics, within the observed values.

    ``mode`` is one of :data:`MODES`; ``options`` are the keyword parameters of its function below. Raises OptionError
    for an unknown mode or option, a value out of bounds, and a mode that needs the distribution of values where only
    extremes are known (``minmax.bin``); InputError when no value that counts has been seen.
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
    """Least and greatest value of all runs."""
    return stats.minimum, stats.maximum


def percentile(stats: TensorStatistics, low: float = 1.0, high: float = 99.0) -> Range:
    """Percentile ``low`` of the runs' minima and ``high`` of their maxima, interpolated linearly."""
    _check_percentiles(low, high)
    first = float(np.percentile(stats.minima.astype(np.float64), low))
    last = float(np.percentile(stats.maxima.astype(np.float64), high))
    # Runs that are each of one value can have a low percentile of minima above a high one of maxima.
    return min(first, last), max(first, last)


def percentile_elements(stats: TensorStatistics, low: float = 0.01, high: float = 99.99) -> Range:
    """Percentiles ``low`` and ``high`` of all elements, true to one bin of the histogram."""
    _check_percentiles(low, high)
    counted = _distribution(stats)
    first, last = (counted.quantile(fraction / 100.0) for fraction in (low, high))
    return _within(stats, first if low > 0 else stats.minimum, last if high < 100 else stats.maximum)


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


def mse(stats: TensorStatistics, bits: int = 8, symmetric: bool = False) -> Range:
    """The range with the least mean squared error of values quantised to ``bits``, rounding and clipping together.

    Both ends are searched in turn, first coarsely, then around the best; with ``symmetric`` one magnitude is. After
    Choukroun and others, "Low-bit quantization of neural networks for efficient inference" (2019).
    """
    _check_bits(bits)
    counted = _distribution(stats)
    edges, counts = counted.occupied()
    centres = np.clip((edges[:-1] + edges[1:]) / 2, stats.minimum, stats.maximum)
    first = float(edges[0]) + counted.width / 2
    error = _Error(centres, counts.astype(np.float64), first, counted.width, bits)
    low, high = min(stats.minimum, 0.0), max(stats.maximum, 0.0)
    if symmetric:
        reach = _best(error.symmetric, max(-low, high))
        return _within(stats, -reach, reach)
    for number in range(_ROUNDS):
        before = low, high
        if high > 0:
            high = _best(partial(error.asymmetric, low), max(stats.maximum, 0.0))
        if number and high == before[1]:
            break  # the other end is the best for this one
        if low < 0:
            low = -_best(lambda ends, high=high: error.asymmetric(-ends, high), -min(stats.minimum, 0.0))  # type: ignore[misc]
        if low == before[0]:
            break  # another round would find the same
    return _within(stats, low, high)


class _Error:
    """The summed squared error of ``counts`` values in equal bins of ``width`` at ``centres``, for ranges of codes.

    Sums up to each bin tell what lies between two codes, and so all errors of these together.
    """

    def __init__(self, centres: NDArray[Any], counts: NDArray[Any], first: float, width: float, bits: int) -> None:
        self._first, self._width, self._bits = first, width, bits
        weighted = (counts, counts * centres, counts * centres * centres)
        self._count, self._sum, self._squares = (np.concatenate(([0.0], np.cumsum(each))) for each in weighted)

    def symmetric(self, reaches: _Ends) -> _Ends:
        """For each of the ranges from ``-reaches`` to ``reaches``."""
        most = np.full(len(reaches), (1 << (self._bits - 1)) - 1.0)
        return self._of(reaches / most, -most, most)

    def asymmetric(self, low: _Ends | float, high: _Ends | float) -> _Ends:
        """Return the error of each range from ``low`` to ``high``; one of both is an array."""
        most = (1 << self._bits) - 1
        scales = np.asarray((high - low) / most, np.float64)
        zeros = np.rint(np.divide(-low, scales, out=np.zeros_like(scales), where=scales > 0))
        return self._of(scales, -zeros, most - zeros)

    def _of(self, scales: _Ends, least: _Ends, most: _Ends) -> _Ends:
        power = self._squares[-1]
        found = np.full(len(scales), power)  # where all becomes zero
        # Steps finer than bins cannot be told apart: there rounding errs evenly over a step.
        fine = (scales > 0) & (scales < 2 * self._width)
        if fine.any():
            found[fine] = self._clipped(scales[fine], least[fine], most[fine])
            found[fine] += self._count[-1] * scales[fine] ** 2 / 12
        apart = np.flatnonzero(scales >= 2 * self._width)
        rows = max(1, _BLOCK_ELEMENTS >> self._bits)
        for start in range(0, len(apart), rows):
            part = apart[start : start + rows]
            found[part] = self._rounded(scales[part], least[part], int(most[0] - least[0]))
        return np.where(found > _NO_ERROR * power, found, 0.0)

    def _rounded(self, scales: _Ends, least: _Ends, steps: int) -> _Ends:
        """Of all values, each at the nearest of ``steps + 1`` codes from ``least`` on."""
        codes = least[:, np.newaxis] + np.arange(steps + 1)
        bounds = self._below((codes[:, 1:] - 0.5) * scales[:, np.newaxis])
        count, total = (
            np.diff(sums[bounds], axis=1, prepend=0.0, append=sums[-1]) for sums in (self._count, self._sum)
        )
        reals = codes * scales[:, np.newaxis]
        return np.asarray(self._squares[-1] + ((reals * count - 2 * total) * reals).sum(axis=1))

    def _clipped(self, scales: _Ends, least: _Ends, most: _Ends) -> _Ends:
        """Of the values outside the codes, which get the first or the last."""
        low, high = least * scales, most * scales
        under, over = self._below(low), self._below(high)
        sums = (self._count, self._sum, self._squares)
        return _squares_from(low, *(each[under] for each in sums)) + _squares_from(
            high, *(each[-1] - each[over] for each in sums)
        )

    def _below(self, reals: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many bins lie below each of ``reals``."""
        found = np.ceil((reals - self._first) / self._width)
        return np.clip(found, 0, len(self._count) - 1).astype(np.int64)


def _squares_from(real: _Ends, count: _Ends, total: _Ends, squares: _Ends) -> _Ends:
    """The squared distances from ``real`` of so many values with these sums."""
    return squares - 2 * real * total + real * real * count


def _best(error: Callable[[_Ends], _Ends], largest: float) -> float:
    """Return the end in (0, largest] with the least ``error``, by a coarse and a fine search.

    Of ends with equal errors the largest.
    """
    if not largest:
        return 0.0
    ends = largest * np.arange(1, _CANDIDATES + 1) / _CANDIDATES
    place = _last_least(error(ends))
    step = largest / _CANDIDATES
    finer = ends[place] + step * np.linspace(-1, 1, 2 * 16 + 1)
    inside = np.sort(np.append(finer[(finer > 0) & (finer <= largest)], ends[place]))
    return float(inside[_last_least(error(inside))])


def _last_least(errors: _Ends) -> int:
    """The place of the least error, of equal ones the last."""
    return len(errors) - 1 - int(np.argmin(errors[::-1]))


def entropy(stats: TensorStatistics, bits: int = 8, symmetric: bool = False) -> Range:
    """Return the range with the least Kullback-Leibler divergence of the quantised distribution.

    Magnitudes are clipped at one threshold for both signs. After Migacz, "8-bit inference with TensorRT" (2017). The
    bin at zero, which holds what activations cut off, counts no more than the one beside it. Where codes are finer than
    the histogram nothing is gained by clipping, and the range is that of ``minmax``.
    """
    _check_bits(bits)
    counts, width = _magnitudes(_distribution(stats))
    one_sided = not symmetric and (stats.minimum >= 0 or stats.maximum <= 0)
    levels = (1 << bits) - 1 if one_sided else (1 << (bits - 1)) - 1
    if len(counts) <= levels:
        return minmax(stats)
    counts[0] = min(counts[0], counts[1])
    ends = np.unique(np.linspace(levels, len(counts), _ENTROPY_STEPS).astype(int))
    clipped = _Clipped(counts, levels)
    best = int(ends[_last_least(clipped.divergences(ends))])
    return _within(stats, -best * width, best * width)


def _magnitudes(counted: Histogram) -> tuple[NDArray[np.float64], float]:
    """How many values have which magnitude, in at most ``_ENTROPY_BINS`` bins up to the greatest; and their width."""
    half = len(counted.counts) // 2
    both = (counted.counts[half:] + counted.counts[:half][::-1]).astype(np.float64)
    both = both[: int(np.flatnonzero(both)[-1]) + 1]
    factor = -(-len(both) // _ENTROPY_BINS)
    padded = np.pad(both, (0, -len(both) % factor))
    return padded.reshape(-1, factor).sum(axis=1), counted.width * factor


class _Clipped:
    """Bins of ``counts``, whole numbers, clipped at some bin and shown by ``levels`` levels."""

    def __init__(self, counts: NDArray[np.float64], levels: int) -> None:
        self._counts, self._places = counts, np.arange(levels + 1)
        # Sums up to each bin: those of whole numbers are exact.
        sums = (counts, (counts > 0).astype(np.float64), _times_log(counts))
        self._below, self._filled, self._content = (np.concatenate(([0.0], np.cumsum(each))) for each in sums)

    def divergences(self, ends: NDArray[np.int64]) -> NDArray[np.float64]:
        """For each of ``ends`` how far so many bins at all levels are from all bins clipped there, in nats.

        Bins that hold something share a level's part evenly.
        """
        bounds = self._places * ends[:, np.newaxis] // self._places[-1]
        held, filled = np.diff(self._below[bounds], axis=1), np.diff(self._filled[bounds], axis=1)
        total, everything = self._below[ends], self._below[-1]
        last, beyond = self._counts[ends - 1], everything - total
        content = self._content[ends - 1] + _times_log(last + beyond)
        shares = held / np.maximum(filled, 1.0) / np.maximum(total, 1.0)[:, np.newaxis]
        seen = held.copy()
        seen[:, -1] += np.where(last > 0, beyond, 0.0)
        # A bin that only clipping fills has no counterpart: a small mass there keeps the divergence finite and large.
        smallest = 1e-12
        explained = (seen * np.log(np.maximum(shares, smallest))).sum(axis=1)
        explained += np.where(last > 0, 0.0, beyond * math.log(smallest))
        found = (content - explained) / everything - math.log(everything)
        return np.where(total > 0, np.round(found, _DIGITS), math.inf)


def _times_log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``x ln x``, zero at zero."""
    return np.asarray(values * np.log(np.where(values > 0, values, 1.0)))


MINMAX = "minmax"
MODES: dict[str, Callable[..., Range]] = {
    MINMAX: minmax,
    "percentile": percentile,
    "percentile-elements": percentile_elements,
    "moving-average": moving_average,
    "mse": mse,
    "entropy": entropy,
}


def _distribution(stats: TensorStatistics) -> Histogram:
    if not stats.count:
        raise OptionError(
            "only the extremes of each run are known, not the distribution of values",
            hint="use minmax, percentile or moving-average, or record with odc-mlir",
        )
    return stats.histogram


def _within(stats: TensorStatistics, low: float, high: float) -> Range:
    """Return the range clamped to the observed values."""
    least, most = stats.minimum, stats.maximum
    return min(max(low, least), most), max(min(high, most), least)


def _check_percentiles(low: float, high: float) -> None:
    if not 0 <= low <= high <= 100:
        raise OptionError(f"the percentiles are {low} and {high}, expected 0 <= low <= high <= 100")


def _check_bits(bits: int) -> None:
    if not 2 <= bits <= 16:
        raise OptionError(f"bits is {bits}, expected 2 to 16")


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
        """Return draws of the index, by the standard normal draws ``odds``."""
        error = (1.0 + self.index) / math.sqrt(self.count + _LIGHTER_WEIGHT)
        return np.clip(self.index + error * odds, _LEAST_INDEX, _MOST_OF_SQUARES)

    def cut_off(self, ends: _Reals) -> _Reals:
        """Return the mean square of one more value beyond each of ``ends``, above the threshold."""
        index = min(self.index, _MOST_OF_SQUARES)
        return self.share * _squares_beyond(ends - self.threshold, np.full_like(ends, self.scale), index)

    def beyond(self, most: float, end: float, indices: _Reals) -> tuple[_Reals, _Reals]:
        """Return mean squares, beyond ``end`` and in full, of values above ``most``, for each index."""
        scales = np.maximum(self.scale + indices * (most - self.threshold), 0.0)
        own = _squares_beyond(0.0, scales, indices) + 2.0 * most * scales / (1.0 - indices) + most**2
        return _squares_beyond(max(end - most, 0.0), scales, indices), own


def _squares_beyond(apart: _Reals | float, scales: _Reals, index: _Reals | float) -> _Reals:
    """Return the mean square of generalised Pareto values beyond ``apart``; others count as zero."""
    index = np.where(np.abs(index) < _NO_INDEX, _NO_INDEX, index)
    with np.errstate(divide="ignore"):  # no value lies beyond the end that a negative index gives them
        logs = np.log1p(np.maximum(index * apart / np.maximum(scales, _NO_SCALE), -1.0))
    farther = np.maximum(scales + index * apart, 0.0)
    return np.asarray(np.exp(-logs / index) * 2.0 * farther**2 / ((1.0 - index) * (1.0 - 2.0 * index)))


def with_room(stats: TensorStatistics, elements: int, bits: int) -> tuple[float, float]:
    """Return the range with the least expected loss of one more run for codes of ``bits``.

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
    """Return candidates of the upper end and the expected loss beyond each."""
    most = float(extremes.max())
    if most <= 0.0:
        return np.array([most]), np.zeros(1)
    ends = most + _ROOMS * span
    return ends, Tail.of(extremes).cut_off(ends)


Statistics = Mapping[str, TensorStatistics]
