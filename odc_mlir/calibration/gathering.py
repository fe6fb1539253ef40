"""Batching of values for statistics, because numpy's overhead for single values takes longer.

A ``TensorGatherer`` collects the values of one tensor; a ``Block`` collects those of many tensors that each run
computes once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import LOWEST, TensorStatistics
from odc_mlir.ops.spec import Array

Shape = tuple[int, ...]
Between = Callable[[], object]
"""Is called between one tensor and the next, where looking at all of them takes long."""

# The first values of a tensor are looked at in all detail, later ones in turn: by then there are enough, and it takes
# long. The extremes of all are taken.
DETAILED = 24
DETAILED_EACH = 16

# Elements of a block's rows that are looked at together: they should still be in the cache.
_ROWS_ELEMENTS = 1 << 15
_MOST_ROWS = 32
# Limit on the runs whose extremes a block keeps.
_KEPT_RUNS = 128
# Rows that wait for a look in detail at most.
_MOST_KEPT = 64
_NO = np.zeros(1, np.bool_)


class TensorGatherer:
    """Statistics of one tensor, and values that wait to be looked at: row i of ``_rows`` is of run ``_runs[i]``.

    ``room`` is how many elements may wait.
    """

    __slots__ = (
        "_capacity",
        "_direct",
        "_fill",
        "_last_run",
        "_looked",
        "_room",
        "_rows",
        "_runs",
        "_shape",
        "statistics",
    )

    def __init__(self, room: int) -> None:
        self.statistics = TensorStatistics()
        self._room = room
        self._shape: Shape | None = None
        self._rows: NDArray[np.float32] = np.empty(0, np.float32)
        self._runs: NDArray[np.int64] = np.empty(0, np.int64)
        self._fill = self._capacity = 0
        self._direct = False
        self._looked = 0  # so many values
        self._last_run = -1  # of the last of them

    def add(self, value: Array, run: int) -> None:
        """Take in a value, which may change afterwards."""
        if value.shape != self._shape:
            self._fit(value)
        if self._direct:
            self._look(value[np.newaxis], _NO if run == self._last_run else None)
            self._last_run = run
            return
        fill = self._fill
        self._rows[fill] = value
        self._runs[fill] = run
        self._fill = fill + 1
        if self._fill == self._capacity:
            self.flush()

    def _fit(self, value: Array) -> None:
        """Make room for values like this one."""
        self.flush()
        self._shape = value.shape
        self._capacity = self._room // max(1, value.size)
        self._direct = self._capacity <= 1
        if not self._direct:
            self._rows = np.empty((self._capacity, *value.shape), np.float32)
            self._runs = np.empty(self._capacity, np.int64)

    def flush(self) -> None:
        """Look at all values that wait."""
        if self._fill:
            runs = self._runs[: self._fill]
            first, last = int(runs[0]), int(runs[-1])
            begins = None
            if first == self._last_run or last - first != self._fill - 1:
                begins = runs != np.concatenate([[self._last_run], runs[:-1]])
            self._look(self._rows[: self._fill], begins)
            self._last_run = last
            self._fill = 0

    def _look(self, values: Array, begins: NDArray[np.bool_] | None) -> None:
        rows = values.reshape(len(values), math.prod(values.shape[1:]))
        detail = None
        if self._looked + len(rows) > DETAILED:
            numbers = np.arange(self._looked, self._looked + len(rows))
            detail = (numbers < DETAILED) | (numbers % DETAILED_EACH == 0)
        self._looked += len(rows)
        self.statistics.update(rows, channels=_channels(values.shape[1:]), begins=begins, detail=detail)

    def take(self) -> TensorStatistics:
        """Return the statistics of all values, pending ones included."""
        self.flush()
        return self.statistics

    @property
    def nbytes(self) -> int:
        """Return the bytes of the waiting values."""
        return int(self._rows[: self._fill].nbytes)

    def successor(self) -> TensorGatherer:
        """Return an empty gatherer for further values, with the same number of detailed ones left."""
        found = TensorGatherer(self._room)
        found._looked = self._looked + self._fill
        return found


class Block:
    """Buffers for the values of the tensors of ``slots``, with fixed, non-empty ``shapes``.

    Each run computes each of them once. ``room`` is how many elements may wait to be looked at in detail.
    """

    def __init__(self, slots: Sequence[TensorGatherer], shapes: Sequence[Shape], room: int) -> None:
        self.shapes = list(shapes)
        self._slots = slots
        bounds = np.cumsum([0, *map(math.prod, shapes)])
        self._starts = bounds[:-1]
        self._parts = [slice(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        total = int(bounds[-1])
        self._capacity = max(1, min(_ROWS_ELEMENTS // total, _MOST_ROWS))
        # A tensor with its own row is processed in place.
        self._direct = len(slots) == self._capacity == 1
        self._rows = np.empty((0 if self._direct else self._capacity, total), np.float32)
        self._targets = list(self._rows)
        self._marks = [False] * self._capacity
        self._fill = 0
        # Extremes and detailed rows of several looks: what comes afterwards takes its time for each tensor.
        self._extremes = np.empty((2, _KEPT_RUNS, len(slots)), np.float32)
        self._runs = 0
        self._kept = np.empty((min(room // total, _MOST_KEPT), total), np.float32)
        self._kept_fill = 0

    def add(self, values: Sequence[Array], *, detail: bool) -> None:
        """Add one run's values, which may change afterwards; with ``detail``, not only their extremes.

        Values beyond float32 become infinite; runs have turned off numpy's warning.
        """
        fill = self._fill
        self._marks[fill] = detail
        if self._direct:
            self._look(values[0].reshape(1, -1).astype(np.float32, copy=False))
            return
        np.concatenate([value.ravel() for value in values], out=self._targets[fill], casting="unsafe")
        self._fill = fill + 1
        if self._fill == self._capacity:
            self._fill = 0
            self._look(self._rows)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the waiting values."""
        return int(self._rows[: self._fill].nbytes + self._kept[: self._kept_fill].nbytes)

    def flush(self, between: Between = bool) -> None:
        """Add all values to the statistics of the slots."""
        if self._fill:
            fill, self._fill = self._fill, 0
            self._look(self._rows[:fill])
        self._hand_over_extremes()
        self._hand_over_detail(between)

    @np.errstate(all="ignore")
    def _look(self, rows: NDArray[np.float32]) -> None:
        count = len(rows)
        if self._runs + count > _KEPT_RUNS:
            self._hand_over_extremes()
        low, high = self._extremes[:, self._runs : self._runs + count]
        np.minimum.reduceat(rows, self._starts, axis=1, out=low)
        np.maximum.reduceat(rows, self._starts, axis=1, out=high)
        marked = [place for place, mark in enumerate(self._marks[:count]) if mark]
        # A NaN makes a minimum NaN, for which every comparison is false.
        if low.min() > LOWEST and high.max() < np.inf:
            self._runs += count
            if marked:
                self._keep(rows if len(marked) == count else rows[marked])
            return
        self._hand_over_extremes()
        detail = np.array(self._marks[:count])
        for slot, part, channels in self._each(rows):
            slot.statistics.update(part, channels=channels, detail=detail)

    def _keep(self, rows: NDArray[np.float32]) -> None:
        """Keep rows for detailed statistics, or compute these now if rows are too large."""
        if self._kept_fill + len(rows) > len(self._kept):
            self._hand_over_detail()
        if len(rows) > len(self._kept):
            self._detail(rows)
            return
        self._kept[self._kept_fill : self._kept_fill + len(rows)] = rows
        self._kept_fill += len(rows)

    def _each(self, rows: NDArray[np.float32]) -> Iterator[tuple[TensorGatherer, NDArray[np.float32], int]]:
        """Yield each tensor's slot, its part of the rows, and its channels."""
        for slot, part, shape in zip(self._slots, self._parts, self.shapes, strict=True):
            yield slot, np.ascontiguousarray(rows[:, part]), _channels(shape)

    def _detail(self, rows: NDArray[np.float32], between: Between = bool) -> None:
        for slot, part, channels in self._each(rows):
            slot.statistics.add_detail(part, channels)
            between()

    def _hand_over_detail(self, between: Between = bool) -> None:
        if self._kept_fill:
            count, self._kept_fill = self._kept_fill, 0
            self._detail(self._kept[:count], between)

    def _hand_over_extremes(self) -> None:
        if self._runs:
            by_tensor = self._extremes[:, : self._runs].transpose(2, 0, 1).copy()
            self._runs = 0
            for slot, extremes in zip(self._slots, by_tensor, strict=True):
                slot.statistics.add_extremes(extremes)


def detailed(number: int) -> bool:
    """Return whether the values of a run, counted from 0, are looked at in all detail."""
    return number < DETAILED or number % DETAILED_EACH == 0


def _channels(shape: Shape) -> int:
    return max(1, shape[-1]) if shape else 1
