"""What is known of one tensor's values over many runs, gathered as they come and joined at will.

Of elements, NaN and -FLT_MAX (which masks use for "nothing") are left out, as ONE's record-minmax does; infinite ones
are left out too, and all three are counted. Moments are joined by the update of Chan, Golub and LeVeque ("Updating
formulae and a pairwise algorithm for computing sample variances", 1979).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.quantization.histogram import Histogram, columns
from odc_mlir.quantization.packing import DamagedError, pack, unpack

LOWEST = -np.float32(np.finfo(np.float32).max)

# Channels of which statistics are kept; a tensor with more (say, one per word of a vocabulary) has none by channel.
MOST_CHANNELS = 16384
# Elements taken at a time: what numpy makes of them on the way stays in the processor's cache.
_BLOCK_ELEMENTS = 1 << 16


@dataclass(eq=False, slots=True)
class Channels:
    """Statistics by index along the last axis: arrays of that length; a channel without values has inf and -inf."""

    minima: NDArray[np.float32]
    maxima: NDArray[np.float32]
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean of each channel; 0 where there is no value."""
        return self.sums / np.maximum(self.counts, 1)

    def merge(self, other: Channels) -> None:
        """Take in what ``other``, of the same length, has seen."""
        self.minima, self.maxima = np.minimum(self.minima, other.minima), np.maximum(self.maxima, other.maxima)
        self.sums, self.counts = self.sums + other.sums, self.counts + other.counts


class TensorStatistics:
    """Statistics of one tensor, which start empty.

    ``minima`` and ``maxima`` hold one float32 for each run in which the tensor had a value that counts. ``count``,
    ``mean``, ``variance``, ``histogram`` and ``channels`` describe elements; ``channels`` is None where the last axis
    changed its length from run to run, or is longer than ``MOST_CHANNELS``. ``runs_seen`` also counts runs that gave
    no value. Statistics read from a file of nothing but extremes have runs, and a ``count`` of 0.
    """

    def __init__(self) -> None:
        self.runs_seen = 0
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0  # sum of squared differences from the mean
        self.nan_count = 0
        self.infinite_count = 0
        self.lowest_count = 0
        self.histogram = Histogram()
        self.channels: Channels | None = None
        self._mixed_channels = False
        self._extremes: list[NDArray[np.float32]] = []  # [2, runs] each: minima, maxima

    @classmethod
    def of_extremes(cls, minima: Any, maxima: Any) -> TensorStatistics:
        """Statistics of which nothing is known but each run's minimum and maximum."""
        result = cls()
        result._extremes = [np.array([minima, maxima], np.float32)]
        result.runs_seen = result._extremes[0].shape[1]
        return result

    def add(self, value: NDArray[Any]) -> None:
        """Take in one run's tensor, of any shape."""
        self.update(value.reshape(1, value.size), channels=value.shape[-1] if value.ndim else 1)

    def update(self, rows: NDArray[Any], *, channels: int = 1, begins: NDArray[np.bool_] | None = None) -> None:
        """Take in several runs at once: ``rows`` [N, elements], with ``channels`` along the tensor's last axis.

        A row for which ``begins`` [N] is false goes on with the run of the row before it (a tensor inside a loop has
        several values in one run); by default each row is a run.
        """
        if len(rows):
            with np.errstate(all="ignore"):  # what float64 has beyond float32 is infinite here
                self._update(rows.astype(np.float32, copy=False), channels, begins)

    def _update(self, rows: NDArray[np.float32], channels: int, begins: NDArray[np.bool_] | None) -> None:
        if not rows.size:
            empty = np.full((2, len(rows)), [[np.inf], [-np.inf]], np.float32)
            self._add_extremes(empty[0], empty[1], begins)
            return
        low, high = rows.min(axis=1), rows.max(axis=1)
        # A NaN makes its row's minimum NaN, for which every comparison is false.
        if bool(np.all(low > LOWEST) and np.all(high < np.inf)):
            self._add_extremes(low, high, begins)
            for block in _blocks(rows, channels):
                self._add_block(block, None)
            return
        counted = np.isfinite(rows) & (rows != LOWEST)
        nothing = np.float32(np.inf)
        self._add_extremes(
            np.where(counted, rows, nothing).min(axis=1), np.where(counted, rows, -nothing).max(axis=1), begins
        )
        self.nan_count += int(np.isnan(rows).sum())
        self.infinite_count += int(np.isinf(rows).sum())
        self.lowest_count += int((rows == LOWEST).sum())
        for block, mask in zip(_blocks(rows, channels), _blocks(counted, channels), strict=True):
            self._add_block(block, mask)

    def _add_extremes(
        self, low: NDArray[np.float32], high: NDArray[np.float32], begins: NDArray[np.bool_] | None
    ) -> None:
        if begins is not None and not begins.all():
            if not begins[0] and self._extremes:
                last = self._extremes[-1]
                stop = int(np.argmax(begins)) if begins.any() else len(begins)
                last[0, -1] = min(last[0, -1], low[:stop].min())
                last[1, -1] = max(last[1, -1], high[:stop].max())
                low, high, begins = low[stop:], high[stop:], begins[stop:]
                if not len(low):
                    return
            starts = np.flatnonzero(begins)
            if not starts.size or starts[0]:
                starts = np.concatenate([[0], starts])
            low, high = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
        self.runs_seen += len(low)
        self._extremes.append(np.stack([low, high]))

    def _add_block(self, values: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> None:
        """Take in ``values`` [N, channels], of which only those in ``mask`` count."""
        width = values.shape[1]
        if mask is None:
            wide = values.astype(np.float64)
            low, high = columns(values)
            counts = np.full(width, len(values), np.int64)
            kept: NDArray[np.float64] = wide
        else:
            wide = np.where(mask, values, 0.0).astype(np.float64)
            nothing = np.float32(np.inf)
            low, _ = columns(np.where(mask, values, nothing))
            _, high = columns(np.where(mask, values, -nothing))
            counts = mask.sum(axis=0, dtype=np.int64)
            kept = values[mask].astype(np.float64)
        sums = np.ones(len(wide)) @ wide
        if kept.size:
            mean = float(sums.sum()) / kept.size
            apart = (kept - mean).ravel()
            self._add_moments(kept.size, mean, float(apart @ apart))
            self.histogram.add(kept, max(abs(float(low.min())), abs(float(high.max()))))
        self._add_channels(Channels(low, high, sums, counts) if width <= MOST_CHANNELS else None)

    def _add_moments(self, count: int, mean: float, squares: float) -> None:
        total = self.count + count
        if not total:
            return
        apart = mean - self.mean
        self.squares += squares + apart * apart * self.count * count / total
        self.mean += apart * count / total
        self.count = total

    def _add_channels(self, found: Channels | None) -> None:
        if self._mixed_channels:
            return
        if found is None or (self.channels is not None and len(self.channels.counts) != len(found.counts)):
            self._mixed_channels, self.channels = True, None
        elif self.channels is None:
            self.channels = found
        else:
            self.channels.merge(found)

    def merge(self, other: TensorStatistics) -> None:
        """Take in all that ``other`` has seen, as runs that came later; ``other`` does not change."""
        self.runs_seen += other.runs_seen
        self._add_moments(other.count, other.mean, other.squares)
        self.nan_count += other.nan_count
        self.infinite_count += other.infinite_count
        self.lowest_count += other.lowest_count
        self.histogram.merge(other.histogram)
        if other._mixed_channels:
            self._add_channels(None)
        elif other.channels is not None:
            theirs = other.channels
            self._add_channels(Channels(theirs.minima, theirs.maxima, theirs.sums, theirs.counts))
        self._extremes += [part.copy() for part in other._extremes]

    @property
    def runs(self) -> int:
        """In how many runs the tensor had a value that counts."""
        return len(self.minima)

    @property
    def minima(self) -> NDArray[np.float32]:
        """Each run's minimum, in order."""
        low, _ = self._found_extremes()
        return low

    @property
    def maxima(self) -> NDArray[np.float32]:
        """Each run's maximum, in order."""
        _, high = self._found_extremes()
        return high

    @property
    def run_extremes(self) -> NDArray[np.float32]:
        """[2, runs_seen]: minimum and maximum of every run, inf and -inf where a run gave no value."""
        if len(self._extremes) != 1:
            self._extremes = [np.concatenate([np.zeros((2, 0), np.float32), *self._extremes], axis=1)]
        return self._extremes[0]

    def _found_extremes(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        low, high = self.run_extremes
        found = low <= high
        return low[found], high[found]

    @property
    def minimum(self) -> float:
        """The least value of all; NaN when there is none."""
        return float(self.minima.min()) if self.runs else math.nan

    @property
    def maximum(self) -> float:
        """The greatest value of all; NaN when there is none."""
        return float(self.maxima.max()) if self.runs else math.nan

    @property
    def variance(self) -> float:
        """The mean squared difference from the mean; 0 when there is no value."""
        return self.squares / self.count if self.count else 0.0

    def to_bytes(self) -> bytes:
        """All of it, for :meth:`from_bytes`."""
        edges = np.flatnonzero(self.histogram.counts)
        first, last = (int(edges[0]), int(edges[-1]) + 1) if edges.size else (0, 0)
        arrays: dict[str, NDArray[Any]] = {
            "extremes": self.run_extremes,
            "moments": np.array([self.mean, self.squares]),
            "histogram": self.histogram.counts[first:last],
        }
        if self.channels is not None:
            arrays |= {name: getattr(self.channels, name) for name in Channels.__slots__}
        facts = {name: getattr(self, name) for name in _FACTS}
        facts |= {"exponent": self.histogram.exponent, "first": first, "mixed": self._mixed_channels}
        return pack(facts, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorStatistics:
        """The statistics that gave ``data``; raises DamagedError."""
        facts, arrays = unpack(data)
        result = cls()
        try:
            for name in _FACTS:
                setattr(result, name, int(facts[name]))
            result.mean, result.squares = map(float, arrays["moments"])
            counts, first = arrays["histogram"], int(facts["first"])
            result.histogram.exponent = int(facts["exponent"])
            result.histogram.counts[first : first + len(counts)] = counts
            result._mixed_channels = bool(facts["mixed"])
            result._extremes = [arrays["extremes"].reshape(2, -1).astype(np.float32)]
            if "counts" in arrays:
                result.channels = Channels(*(arrays[name].copy() for name in Channels.__slots__))
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedError(f"not the statistics of a tensor: {error!r}") from error
        return result


_FACTS = ("runs_seen", "count", "nan_count", "infinite_count", "lowest_count")


def _blocks(rows: NDArray[Any], channels: int) -> list[NDArray[Any]]:
    """``rows`` as parts of shape [N, channels] of about ``_BLOCK_ELEMENTS`` elements."""
    flat = rows.reshape(-1, channels)
    step = max(1, _BLOCK_ELEMENTS // channels)
    return [flat[start : start + step] for start in range(0, len(flat), step)]
