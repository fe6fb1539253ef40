"""Batching of the values of a tensor for statistics. Batches save numpy's overhead per call."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.ops.spec import Array

Shape = tuple[int, ...]

# The first DETAILED values of a tensor, and then one in DETAILED_EACH, get detailed statistics. These are slow and need
# only a sample. Extremes cover all values.
DETAILED = 24
DETAILED_EACH = 16

_NO = np.zeros(1, np.bool_)


@dataclass(slots=True, eq=False)
class TensorGatherer:
    """Statistics of a tensor, with a buffer of ``room`` elements. Row i of the buffer belongs to run ``_runs[i]``.

    Without ``detailed``, there are only extremes.
    """

    room: int
    detailed: bool = True
    statistics: TensorStatistics = field(default_factory=TensorStatistics)
    _shape: Shape | None = None
    _rows: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    _runs: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    _fill: int = 0
    _capacity: int = 0
    _direct: bool = False
    _looked: int = 0  # number of values in the statistics
    _last_run: int = -1  # run of the last of these values

    def add(self, value: Array, run: int) -> None:
        """Add a value. The caller may change the array afterwards."""
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
        self.flush()
        self._shape = value.shape
        self._capacity = self.room // max(1, value.size)
        self._direct = self._capacity <= 1
        if not self._direct:
            self._rows = np.empty((self._capacity, *value.shape), np.float32)
            self._runs = np.empty(self._capacity, np.int64)

    def flush(self) -> None:
        """Add all pending values to the statistics."""
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
        detail = None if self.detailed else np.zeros(len(rows), np.bool_)
        if detail is None and self._looked + len(rows) > DETAILED:
            numbers = np.arange(self._looked, self._looked + len(rows))
            detail = (numbers < DETAILED) | (numbers % DETAILED_EACH == 0)
        self._looked += len(rows)
        channels = max(1, values.shape[-1]) if values.ndim > 1 else 1
        self.statistics.update(rows, channels=channels, begins=begins, detail=detail)

    def take(self) -> TensorStatistics:
        """Return the statistics of all values, including pending values."""
        self.flush()
        return self.statistics

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of the pending values."""
        return int(self._rows[: self._fill].nbytes)

    def successor(self) -> TensorGatherer:
        """Return an empty gatherer for further values. It continues the count of detailed values."""
        found = TensorGatherer(self.room, self.detailed)
        found._looked = self._looked + self._fill
        return found
