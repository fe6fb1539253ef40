"""Statistics of one tensor over many runs, collected incrementally and mergeable."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct("<I")
_KINDS = "biufc"  # numpy's kinds of plain numbers


class DamagedError(ValueError):
    """A block is truncated, altered, or not written by :func:`pack`."""


def can_pack(array: NDArray[Any]) -> bool:
    """Return whether the elements are plain numbers, not strings or objects."""
    return array.dtype.kind in _KINDS


def pack(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, level: int = 1) -> bytes:
    """Pack ``facts`` (JSON data) and ``arrays`` of plain numbers, little-endian. ``level`` is zlib's, 0 to 9."""
    plain = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    layout = [[name, array.dtype.str, list(arrays[name].shape)] for name, array in plain.items()]
    head = json.dumps([dict(facts), layout]).encode()
    content = b"".join([_LENGTH.pack(len(head)), head, *(array.tobytes() for array in plain.values())])
    return zlib.compress(content, level)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the arguments of :func:`pack`. Raises DamagedError."""
    try:
        content = zlib.decompress(data)
        (length,) = _LENGTH.unpack_from(content)
        facts, layout = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        arrays, offset = {}, _LENGTH.size + length
        for name, text, shape in layout:
            dtype = np.dtype(str(text))
            if dtype.kind not in _KINDS or any(dim < 0 for dim in shape):
                raise DamagedError(f"{name} is {text} {shape}")
            count = int(np.prod(shape, dtype=object))
            arrays[str(name)] = np.frombuffer(content, dtype, count, offset).reshape(shape)
            offset += count * dtype.itemsize
        return dict(facts), arrays
    except Exception as error:  # any exception of three libraries, because the bytes are arbitrary
        raise DamagedError(str(error) or type(error).__name__) from error


def extremes_by_channel(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return minima and maxima [N, C] of ``values`` [N, positions, C] over positions (at least one).

    numpy reduces over an axis with a loop per element of the preceding axes. This is slow for few channels.
    """
    low = high = values
    while low.shape[1] > 1:
        # If the number is odd, the halves overlap by one position. This does not change minima and maxima.
        half = -(-low.shape[1] // 2)
        low, high = np.minimum(low[:, :half], low[:, -half:]), np.maximum(high[:, :half], high[:, -half:])
    return low[:, 0], high[:, 0]


BINS = 8192
SMALLEST_EXPONENT = -100
_HALF = BINS // 2
_NOTHING: NDArray[np.int64] = np.zeros(BINS, np.int64)
_NOTHING.flags.writeable = False


class Histogram:
    """Histogram: ``counts[i]`` values lie in ``[edges[i], edges[i + 1])``. Edges span ±``2**exponent``.

    The array of counts is replaced, never changed in place.
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
        """Return the number of counted values."""
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
        return np.arange(first - _HALF, last - _HALF + 1, dtype=np.float64) * self.width

    def add(self, values: NDArray[np.float32] | NDArray[np.float64], largest: float) -> None:
        """Count finite float32 ``values`` of any shape. ``largest`` is an upper bound of magnitudes."""
        self.widen(exponent_for(largest))
        # Scaling must be exact, so that no value is rounded across an edge. In float32, powers of two of at least 1 are
        # exact factors. Smaller factors need float64, in which scaled float32 values cannot underflow.
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
        # After BINS.bit_length() doublings all values are in the two bins next to zero, and stay there.
        for _ in range(min(exponent - self.exponent, BINS.bit_length())):
            inner = self.counts.reshape(_HALF, 2).sum(axis=1)
            self.counts = np.pad(inner, _HALF // 2)
        self.exponent = exponent

    def merge(self, other: Histogram) -> None:
        """Add the counts of ``other``."""
        if other.counts is _NOTHING:
            return
        self.widen(other.exponent)
        if other.exponent < self.exponent:
            other = Histogram(other.exponent, other.counts)
            other.widen(self.exponent)
        self.counts = self.counts + other.counts

    def span(self) -> tuple[int, int]:
        """Return the first non-empty bin and the bin after the last one. The two are equal if all bins are empty."""
        used = self.counts != 0
        first = int(used.argmax())
        return (first, BINS - int(used[::-1].argmax())) if used[first] else (0, 0)

    def occupied(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return edges and counts of the bins from the first to the last with values. An edge more than counts."""
        first, last = self.span()
        if first == last:
            return np.zeros(1), np.zeros(0, np.int64)
        return self._edges(first, last), self.counts[first:last]


def exponent_for(largest: float) -> int:
    """Return the smallest exponent of a range that holds values of magnitude ``largest``."""
    # frexp gives a fraction below 1, so that the magnitude is strictly less than two to the exponent.
    return max(math.frexp(largest)[1], SMALLEST_EXPONENT) if largest else SMALLEST_EXPONENT


LOWEST = -np.float32(np.finfo(np.float32).max)

# A tensor with more channels (such as one per word of a vocabulary) has no statistics by channel.
MOST_CHANNELS = 16384
# Minimum number of elements of one run in the histogram. For larger tensors, the histogram counts only some positions.
SAMPLED_ELEMENTS = 2048
# Between these magnitudes, float32 sums of millions of squares neither overflow nor underflow.
_SMALLEST_SINGLE, _LARGEST_SINGLE = 2.0**-40, 2.0**40


@dataclass(eq=False, slots=True)
class Channels:
    """Statistics by index along the last axis, in arrays of its length. A channel without values has inf and -inf."""

    minima: NDArray[np.float32]
    maxima: NDArray[np.float32]
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def means(self) -> NDArray[np.float64]:
        """Return the mean of each channel, or 0 if a channel has no values."""
        return self.sums / np.maximum(self.counts, 1)


class TensorStatistics:
    """Statistics of one tensor, initially empty.

    ``minima`` and ``maxima`` hold a float32 per run with values that count. ``runs_seen`` also counts other runs.
    ``count``, ``total``, ``mean``, ``variance``, ``histogram`` and ``channels`` describe elements of runs with detailed
    statistics. ``channels`` is None if the length of the last axis varies, or exceeds ``MOST_CHANNELS``. Statistics
    from a file with extremes only have runs, and a ``count`` of 0.

    For tensors with more than ``SAMPLED_ELEMENTS``, ``variance`` and ``histogram`` use all channels at some positions
    only. The positions are spread over the tensor, and are the same in all runs with tensors of the same size.
    """

    def __init__(self) -> None:
        self.runs_seen = 0
        self.count = 0
        self.total = 0.0
        self.nan_count = 0
        self.infinite_count = 0
        self.lowest_count = 0
        self.histogram = Histogram()
        self.channels: Channels | None = None
        self._sample_count = 0
        self._sample_mean = 0.0
        self._squares = 0.0  # sum of squared differences from _sample_mean
        self._mixed_channels = False
        self._positions: tuple[int, NDArray[np.intp]] | None = None
        self._extremes: list[NDArray[np.float32]] = []  # [2, runs] each: minima, maxima

    @classmethod
    def of_extremes(cls, minima: Any, maxima: Any) -> TensorStatistics:
        """Make statistics from the minimum and maximum of each run only."""
        result = cls()
        extremes = np.array([minima, maxima], np.float32)
        result._extremes = [extremes] if extremes.size else []
        result.runs_seen = extremes.shape[1]
        return result

    def add(self, value: NDArray[Any]) -> None:
        """Add one run's tensor, of any shape."""
        self.update(value.reshape(1, value.size), channels=value.shape[-1] if value.ndim else 1)

    def update(
        self,
        rows: NDArray[Any],
        *,
        channels: int = 1,
        begins: NDArray[np.bool_] | None = None,
        detail: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add several runs at once: ``rows`` [N, elements], with ``channels`` along the tensor's last axis.

        A row with ``begins`` [N] false continues the run of the row before, because a tensor in a loop has several
        values per run. By default each row is a run. For a row with ``detail`` [N] false, only extremes and left-out
        values are counted, because the rest takes several times as long.
        """
        if len(rows):
            with np.errstate(all="ignore"):  # values beyond float32's range become infinite
                self._update(rows.astype(np.float32, copy=False), channels, begins, detail)

    def _update(
        self,
        rows: NDArray[np.float32],
        channels: int,
        begins: NDArray[np.bool_] | None,
        detail: NDArray[np.bool_] | None,
    ) -> None:
        if not rows.size:
            empty = np.full((2, len(rows)), [[np.inf], [-np.inf]], np.float32)
            self._add_extremes(empty[0], empty[1], begins)
            return
        least, most = rows.min(axis=1), rows.max(axis=1)
        mask: NDArray[np.bool_] | None = None
        # If a row has a NaN, the minimum is NaN, and every comparison with NaN is false.
        if not (bool((least > LOWEST).all()) and bool((most < np.inf).all())):
            mask = np.isfinite(rows) & (rows != LOWEST)
            least = np.where(mask, rows, np.float32(np.inf)).min(axis=1)
            most = np.where(mask, rows, np.float32(-np.inf)).max(axis=1)
            self.nan_count += int(np.isnan(rows).sum())
            self.infinite_count += int(np.isinf(rows).sum())
            self.lowest_count += int((rows == LOWEST).sum())
        self._add_extremes(least, most, begins)
        if detail is not None:
            if not detail.any():
                return
            rows, mask = rows[detail], None if mask is None else mask[detail]
        shape = (len(rows), -1, channels)
        self._add_detail(rows.reshape(shape), None if mask is None else mask.reshape(shape))

    def _add_extremes(
        self, low: NDArray[np.float32], high: NDArray[np.float32], begins: NDArray[np.bool_] | None
    ) -> None:
        if begins is not None and not begins.all():
            if not begins[0] and self.runs_seen:
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
        self._extremes.append(np.array((low, high), np.float32))

    def _add_detail(self, values: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> None:
        """Add the elements of ``values`` [N, positions, channels] selected by ``mask``."""
        channels = values.shape[2]
        largest = self._add_channel_extremes(values, mask)
        if mask is None:
            flat, counts = values.reshape(-1, channels), np.full(channels, values.size // channels, np.int64)
        else:
            flat = np.where(mask, values, np.float32(0)).reshape(-1, channels)
            counts = mask.sum(axis=(0, 1), dtype=np.int64)
        if _single(largest):
            sums = (np.ones(len(flat), np.float32) @ flat).astype(np.float64)
        else:
            sums = np.ones(len(flat)) @ flat.astype(np.float64)
        self.count += int(counts.sum())
        self.total += float(sums.sum())
        self._merge_sums(sums, counts)
        positions = self._sampled(values.shape[1], channels)
        if positions is not None:
            values, mask = values[:, positions], None if mask is None else mask[:, positions]
        kept = values.ravel() if mask is None else values[mask]
        if kept.size:
            self._add_sample(kept if _single(largest) else kept.astype(np.float64))

    def _add_channel_extremes(self, values: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> float:
        together = (1, -1, values.shape[2])
        if mask is None:
            (low,), (high,) = extremes_by_channel(values.reshape(together))
        else:
            (low,), _ = extremes_by_channel(np.where(mask, values, np.float32(np.inf)).reshape(together))
            _, (high,) = extremes_by_channel(np.where(mask, values, np.float32(-np.inf)).reshape(together))
        self._merge_extremes(low, high)
        return max(-float(low.min()), float(high.max()), 0.0)

    def _add_sample(self, values: NDArray[np.float32] | NDArray[np.float64]) -> None:
        """Add finite ``values`` [N] to the variance and the histogram."""
        ones = np.ones_like(values)
        near = values.dtype.type(float(ones @ values) / values.size)
        apart = values - near
        rest = float(ones @ apart) / values.size
        self._add_moments(values.size, float(near) + rest, float(apart @ apart) - values.size * rest * rest)
        self.histogram.add(values, float(max(-values.min(), values.max())))

    def _sampled(self, positions: int, channels: int) -> NDArray[np.intp] | None:
        """Return the positions that the histogram counts, a position in each of many equal strata, or None for all."""
        count = -(-SAMPLED_ELEMENTS // channels)
        if count >= positions:
            return None
        if self._positions is None or self._positions[0] != positions or len(self._positions[1]) != count:
            inside = np.random.default_rng(positions).random(count)
            self._positions = positions, ((np.arange(count) + inside) * positions / count).astype(np.intp)
        return self._positions[1]

    def _add_moments(self, count: int, mean: float, squares: float) -> None:
        total = self._sample_count + count
        if not total:
            return
        apart = mean - self._sample_mean
        self._squares += max(squares, 0.0) + apart * apart * self._sample_count * count / total
        self._sample_mean += apart * count / total
        self._sample_count = total

    def _merge_extremes(self, low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        if self._mixed_channels:
            return
        if len(low) > MOST_CHANNELS or (self.channels is not None and len(self.channels.counts) != len(low)):
            self._mixed_channels, self.channels = True, None
        elif self.channels is None:
            self.channels = Channels(low.copy(), high.copy(), np.zeros(len(low)), np.zeros(len(low), np.int64))
        else:
            self.channels.minima = np.minimum(self.channels.minima, low)
            self.channels.maxima = np.maximum(self.channels.maxima, high)

    def _merge_sums(self, sums: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Add sums and counts by channel, of runs with extremes that have already been added."""
        if self.channels is not None:
            self.channels.sums = self.channels.sums + sums
            self.channels.counts = self.channels.counts + counts

    def merge(self, other: TensorStatistics) -> None:
        """Add the runs in ``other`` as later runs. ``other`` does not change."""
        self.runs_seen += other.runs_seen
        self.count += other.count
        self.total += other.total
        self._add_moments(other._sample_count, other._sample_mean, other._squares)
        self.nan_count += other.nan_count
        self.infinite_count += other.infinite_count
        self.lowest_count += other.lowest_count
        self.histogram.merge(other.histogram)
        if other._mixed_channels:
            self._mixed_channels, self.channels = True, None
        elif other.channels is not None:
            self._merge_extremes(other.channels.minima, other.channels.maxima)
            self._merge_sums(other.channels.sums, other.channels.counts)
        self._extremes += [part.copy() for part in other._extremes if part.size]

    @property
    def runs(self) -> int:
        """Number of runs with a counted value of the tensor."""
        return len(self.minima)

    @property
    def minima(self) -> NDArray[np.float32]:
        """Minima of all runs with values that count, in order."""
        low, _ = self._found_extremes()
        return low

    @property
    def maxima(self) -> NDArray[np.float32]:
        """Maxima of all runs with values that count, in order."""
        _, high = self._found_extremes()
        return high

    @property
    def run_extremes(self) -> NDArray[np.float32]:
        """Array [2, runs_seen]: minimum and maximum of every run, or inf and -inf if a run has no values."""
        if not self._extremes:
            return np.zeros((2, 0), np.float32)
        if len(self._extremes) > 1:
            self._extremes = [np.concatenate(self._extremes, axis=1)]
        return self._extremes[0]

    def _found_extremes(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        low, high = self.run_extremes
        found = low <= high
        return low[found], high[found]

    @property
    def minimum(self) -> float:
        """Minimum over all runs, or NaN if there are no values."""
        return float(self.minima.min()) if self.runs else math.nan

    @property
    def maximum(self) -> float:
        """Maximum over all runs, or NaN if there are no values."""
        return float(self.maxima.max()) if self.runs else math.nan

    @property
    def mean(self) -> float:
        """Mean of all elements, or 0 if there are no values."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """Variance, or 0 if there are no values."""
        return self._squares / self._sample_count if self._sample_count else 0.0

    def to_bytes(self, *, level: int = 1) -> bytes:
        """Return the statistics as bytes for :meth:`from_bytes`. ``level`` is zlib's, 0 to 9."""
        first, last = self.histogram.span()
        counts = self.histogram.counts[first:last]
        arrays: dict[str, NDArray[Any]] = {
            "extremes": self.run_extremes,
            "moments": np.array([self.total, self._sample_mean, self._squares]),
            "histogram": counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        }
        if self.channels is not None:
            arrays |= {name: getattr(self.channels, name) for name in Channels.__slots__}
        facts = {name: getattr(self, name) for name in _FACTS}
        facts |= {"exponent": self.histogram.exponent, "first": first, "mixed": self._mixed_channels}
        return pack(facts, arrays, level=level)

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorStatistics:
        """Return the statistics in ``data``. Raises DamagedError."""
        facts, arrays = unpack(data)
        result = cls()
        try:
            for name in _FACTS:
                setattr(result, name, int(facts[name]))
            result.total, result._sample_mean, result._squares = map(float, arrays["moments"])
            counts = np.zeros(BINS, np.int64)
            first, found = int(facts["first"]), arrays["histogram"]
            counts[first : first + len(found)] = found
            result.histogram = Histogram(int(facts["exponent"]), counts)
            result._mixed_channels = bool(facts["mixed"])
            extremes = arrays["extremes"].reshape(2, result.runs_seen).astype(np.float32)
            result._extremes = [extremes] if extremes.size else []
            if "counts" in arrays:
                result.channels = Channels(*(arrays[name].copy() for name in Channels.__slots__))
        except (KeyError, IndexError, ValueError, TypeError, OverflowError) as error:
            raise DamagedError(f"not the statistics of a tensor: {error!r}") from error
        return result


_FACTS = ("runs_seen", "count", "_sample_count", "nan_count", "infinite_count", "lowest_count")


def _single(largest: float) -> bool:
    """Return whether float32 sums of values up to this magnitude, and of the squares, are accurate to about 1e-6."""
    return _SMALLEST_SINGLE < largest < _LARGEST_SINGLE
