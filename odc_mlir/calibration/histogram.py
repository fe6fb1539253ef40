"""Counts of values in equal bins, over a range that doubles whenever a value lies outside it.

The range is always ``[-2**exponent, 2**exponent)``, so every edge is a dyadic number and a doubled range merges pairs
of bins without moving an edge. What is counted therefore depends on the values alone, not on their order or grouping:
joining two histograms gives exactly the one of both sets of values.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

BINS = 8192
SMALLEST_EXPONENT = -100
LARGEST_EXPONENT = 128  # of float32
_HALF = BINS // 2
_NOTHING: NDArray[np.int64] = np.zeros(BINS, np.int64)
_NOTHING.flags.writeable = False


class Histogram:
    """``counts[i]`` values lie in ``[edges[i], edges[i + 1])``; ``exponent`` says how far the edges reach.

    The array of counts is replaced, never changed.
    """

    __slots__ = ("counts", "exponent")

    def __init__(self, exponent: int = SMALLEST_EXPONENT, counts: NDArray[np.int64] | None = None) -> None:
        self.exponent = exponent
        self.counts: NDArray[np.int64] = _NOTHING if counts is None else counts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.exponent == other.exponent and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def total(self) -> int:
        """How many values have been counted."""
        return int(self.counts.sum())

    @property
    def width(self) -> float:
        """The width of one bin."""
        return math.ldexp(1.0, self.exponent) / _HALF

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ``BINS + 1`` edges, ascending."""
        return self._edges(0, BINS)

    def _edges(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the edges of bins ``first`` to ``last - 1``."""
        return np.arange(first - _HALF, last - _HALF + 1, dtype=np.float64) * self.width

    def add(self, values: NDArray[np.float32] | NDArray[np.float64], largest: float) -> None:
        """Count finite ``values`` of float32's range, of any shape; none is larger in magnitude than ``largest``."""
        self.widen(exponent_for(largest))
        # Scaling by a power of two that does not shrink is exact, so that no value is rounded across an edge; the rest
        # is exact in float64, where float32 values cannot underflow.
        scale = _HALF / math.ldexp(1.0, self.exponent)
        places = np.multiply(values, scale, dtype=np.float32 if scale >= 1 else np.float64)
        np.floor(places, out=places)
        places += _HALF
        found = np.bincount(places.astype(np.uint16).ravel(), minlength=BINS)
        found += self.counts
        self.counts = found

    def widen(self, exponent: int) -> None:
        """Double the range until it reaches ``2**exponent``."""
        if exponent <= self.exponent:
            return
        if not self.counts.any():
            self.exponent = exponent
            return
        # After BINS.bit_length() doublings all values are in the two bins beside zero, and stay there.
        for _ in range(min(exponent - self.exponent, BINS.bit_length())):
            inner = self.counts.reshape(_HALF, 2).sum(axis=1)
            self.counts = np.pad(inner, _HALF // 2)
        self.exponent = exponent

    def merge(self, other: Histogram) -> None:
        """Count what ``other`` has counted, too."""
        self.widen(other.exponent)
        if other.exponent < self.exponent:
            other = Histogram(other.exponent, other.counts)
            other.widen(self.exponent)
        self.counts = self.counts + other.counts

    def span(self) -> tuple[int, int]:
        """The first bin that holds anything, and the one behind the last; twice the same where none does."""
        used = self.counts != 0
        first = int(used.argmax())
        return (first, BINS - int(used[::-1].argmax())) if used[first] else (0, 0)

    def occupied(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The edges (one more than counts) and counts of the bins from the first to the last that holds anything."""
        first, last = self.span()
        if first == last:
            return np.zeros(1), np.zeros(0, np.int64)
        return self._edges(first, last), self.counts[first:last]

    def quantile(self, fraction: float) -> float:
        """The value below which ``fraction`` of all values lie, taking them as spread evenly within their bin.

        NaN when nothing has been counted. The result is at most one bin away from a value with that rank.
        """
        edges, counts = self.occupied()
        if not counts.size:
            return math.nan
        below = np.concatenate([[0], np.cumsum(counts)])
        wanted = fraction * below[-1]
        place = min(max(int(np.searchsorted(below, wanted, side="left")) - 1, 0), len(counts) - 1)
        # An empty bin has no values to lie among: then the rank is that of the bin's lower edge.
        inside = (wanted - below[place]) / counts[place] if counts[place] else 0.0
        return float(edges[place] + inside * self.width)


def exponent_for(largest: float) -> int:
    """The smallest exponent of a range that holds values of magnitude ``largest``."""
    # frexp gives a fraction below 1, so that the magnitude is strictly less than two to the exponent.
    return max(math.frexp(largest)[1], SMALLEST_EXPONENT) if largest else SMALLEST_EXPONENT
