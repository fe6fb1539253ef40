"""Race detection by the happens-before order of memory accesses.

Every instruction carries a vector clock. For each queue, the clock counts the instructions that are complete before
this instruction starts. Two conflicting accesses are a race if the clocks do not order the accesses, even if they do
not overlap in time. Tokens carry clocks. A semaphore therefore connects one posting queue with one waiting queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import SimulationError
from odc_mlir.isa.fields import SEMAPHORE_MAX, SEMAPHORES, Queue


class Box(NamedTuple):
    """Set of addresses: ``count2`` groups of ``count1`` runs of ``size`` units.

    Groups begin ``stride2`` apart, runs ``stride1`` apart. The first run begins at ``start``. :func:`box` merges
    contiguous runs: if ``count1`` is 1, ``count2`` is 1 as well.
    """

    start: int
    size: int
    count1: int = 1
    stride1: int = 0
    count2: int = 1
    stride2: int = 0

    @property
    def end(self) -> int:
        return self.start + (self.count2 - 1) * self.stride2 + (self.count1 - 1) * self.stride1 + self.size

    @property
    def units(self) -> int:
        """Number of addresses, including repeated addresses."""
        return self.size * self.count1 * self.count2


def box(start: int, size: int, count1: int = 1, stride1: int = 0, count2: int = 1, stride2: int = 0) -> Box:
    """Return the normal form of a box. Counts are at least 1."""
    if count1 > 1 and stride1 == size:
        size, count1 = size * count1, 1
    if count1 == 1:
        count1, stride1, count2, stride2 = count2, stride2, 1, 0
        if stride1 == size:
            size, count1 = size * count1, 1
    if count1 == 1:
        stride1 = 0
    if count2 == 1:
        stride2 = 0
    elif stride2 == count1 * stride1:
        count1, count2, stride2 = count1 * count2, 1, 0
    return Box(start, size, count1, stride1, count2, stride2)


def repeats(b: Box) -> bool:
    """Return whether the box may contain an address twice, because runs overlap."""
    row = (b.count1 - 1) * b.stride1 + b.size
    return (b.count1 > 1 and b.stride1 < b.size) or (b.count2 > 1 and b.stride2 < row)


def overlap(a: Box, b: Box) -> bool:
    """Return whether two boxes share an address."""
    low, high = max(a.start, b.start), min(a.end, b.end)
    if low >= high:
        return False
    if a.count1 == 1 and b.count1 == 1:
        return True
    return bool((_marks(a, low, high) & _marks(b, low, high)).any())


def _marks(b: Box, low: int, high: int) -> NDArray[np.bool_]:
    marks = np.zeros(b.end - b.start, np.bool_)
    view(marks, b._replace(start=0))[...] = True
    return marks[low - b.start : high - b.start]


def view(array: NDArray[Any], b: Box) -> NDArray[Any]:
    """Return the elements of a contiguous vector in a box, as a view ``[size]`` or ``[count2, count1, size]``."""
    if b.count1 == 1:
        return array[b.start : b.start + b.size]
    item = array.itemsize
    return np.ndarray(
        (b.count2, b.count1, b.size),
        array.dtype,
        array.data,
        b.start * item,
        (b.stride2 * item, b.stride1 * item, item),
    )


def burst_bytes(b: Box, burst: int) -> int:
    """Return the bytes that a transfer of a box moves: all whole bursts that its contiguous runs touch."""
    if b.count1 == 1:
        return ((b.start + b.size - 1) // burst - b.start // burst + 1) * burst
    return _strided_bursts(b.start % burst, b.size, b.count1, b.stride1, b.count2, b.stride2, burst) * burst


@lru_cache(maxsize=4096)
def _strided_bursts(start: int, size: int, count1: int, stride1: int, count2: int, stride2: int, burst: int) -> int:
    if stride1 % burst == 0 and stride2 % burst == 0:
        return ((start + size - 1) // burst + 1) * count1 * count2
    starts = (start + np.arange(count1) * stride1)[:, None] + np.arange(count2) * stride2
    return int(((starts % burst + size - 1) // burst + 1).sum())


@lru_cache(maxsize=4096)
def picked_bytes(start: int, size: int, rows: int, count: int, burst: int) -> int:
    """Return an upper bound of the bytes that a transfer of any ``count`` of ``rows`` rows moves.

    ``size`` is the size of a row in bytes.
    """
    starts = start + np.arange(min(rows, burst)) * size  # alignments repeat
    return count * int(((starts % burst + size - 1) // burst + 1).max()) * burst


Clock = tuple[int, ...]
_Access = tuple[int, int, int, Box, int]  # position in the queue, start, end, area, instruction
START: Clock = (0,) * len(Queue)


def join(a: Clock, b: Clock) -> Clock:
    """Return the element-wise maximum of two clocks."""
    return tuple(map(max, a, b)) if a is not b else a


class Semaphores:
    """Counting semaphores whose tokens carry clocks."""

    def __init__(self) -> None:
        self.tokens: list[deque[Clock]] = [deque() for _ in range(SEMAPHORES)]
        self.pending = [0] * SEMAPHORES  # posted, not visible yet
        self._posted_by: dict[int, Queue] = {}
        self._waited_by: dict[int, Queue] = {}

    def ready(self, waits: tuple[int, ...]) -> bool:
        """Return whether a token is available for every wait."""
        if len(waits) == 2 and waits[0] == waits[1]:
            return len(self.tokens[waits[0]]) >= 2
        for semaphore in waits:  # noqa: SIM110 - called at every event: a generator would be slower
            if not self.tokens[semaphore]:
                return False
        return True

    def take(self, waits: tuple[int, ...], queue: Queue, clock: Clock) -> Clock:
        """Consume the tokens for an instruction of ``queue``. Return ``clock`` joined with the tokens' clocks."""
        for semaphore in waits:
            _connect(self._waited_by, semaphore, queue, "waited on")
            clock = join(clock, self.tokens[semaphore].popleft())
        return clock

    def post(self, semaphore: int, queue: Queue) -> None:
        """Post a token from ``queue``. It becomes visible by :meth:`deliver`."""
        _connect(self._posted_by, semaphore, queue, "posted")
        self.pending[semaphore] += 1
        if self.pending[semaphore] + len(self.tokens[semaphore]) > SEMAPHORE_MAX:
            raise SimulationError(f"semaphore {semaphore} exceeds {SEMAPHORE_MAX} tokens")

    def deliver(self, semaphore: int, clock: Clock) -> None:
        self.pending[semaphore] -= 1
        self.tokens[semaphore].append(clock)

    def left(self) -> dict[int, int]:
        """Return the counts of all semaphores that are not zero."""
        counts = {s: len(tokens) + self.pending[s] for s, tokens in enumerate(self.tokens)}
        return {s: count for s, count in counts.items() if count}


def _connect(ends: dict[int, Queue], semaphore: int, queue: Queue, what: str) -> None:
    first = ends.setdefault(semaphore, queue)
    if first != queue:
        raise SimulationError(
            f"semaphore {semaphore} is {what} by queue {queue.name.lower()} and by queue {first.name.lower()}",
            hint="a semaphore connects one posting queue with one waiting queue",
        )


def _conflict(accesses: Sequence[_Access], area: Box, known: int) -> int | None:
    """Return the newest instruction that accesses ``area`` after the first ``known`` instructions of the queue."""
    low, high = area.start, area.end
    for position, start, end, seen, instruction in reversed(accesses):
        if position < known:
            return None
        if start < high and low < end and overlap(area, seen):
            return instruction
    return None


class AccessLog:
    """Log of the accesses to one memory, per queue in program order. Each new access is checked for races."""

    __slots__ = ("_reads", "_writes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._reads: list[list[_Access]] = [[] for _ in Queue]
        self._writes: list[list[_Access]] = [[] for _ in Queue]

    def record(
        self, queue: int, position: int, clock: Clock, area: Box, instruction: int, *, write: bool
    ) -> int | None:
        """Record an access. Return an earlier instruction that races with it, or None.

        ``position`` is the instruction's index in its queue, ``instruction`` its index in the program.
        """
        rival = None
        for log in (self._writes, self._reads) if write else (self._writes,):
            for other, accesses in enumerate(log):
                if rival is None and other != queue:
                    rival = _conflict(accesses, area, clock[other])
        (self._writes if write else self._reads)[queue].append((position, area.start, area.end, area, instruction))
        return rival
