"""Happens-before: which accesses are ordered by queues and semaphores, whatever the timing.

Every instruction carries a vector clock: for each queue, how many of its instructions are known to be complete before
this one starts. Queues complete in order; a token carries the clock of the instruction that posted it. Two accesses
that conflict and are not ordered by these clocks are a race even if they did not meet in time in this run. The check is
complete: whichever of the two runs second is compared with the first.

This needs tokens to be told apart, so a semaphore connects one posting queue with one waiting queue; anything else is
reported as an error of the program.
"""

from __future__ import annotations

from collections import deque

from odc_mlir.errors import SimulationError
from odc_mlir.isa.fields import SEMAPHORE_MAX, SEMAPHORES, Queue
from odc_mlir.simulator.boxes import Box, overlap

_BLOCK_ENTRIES = 32
Clock = tuple[int, ...]
_Entry = tuple[int, int, int, Box, int]  # position in the queue, first and end address, area, instruction
START: Clock = (0,) * len(Queue)


def join(a: Clock, b: Clock) -> Clock:
    """The clock that knows what either knows."""
    return tuple(map(max, a, b)) if a is not b else a


class Semaphores:
    """Counting semaphores whose tokens carry clocks."""

    def __init__(self) -> None:
        self.tokens: list[deque[Clock]] = [deque() for _ in range(SEMAPHORES)]
        self.pending = [0] * SEMAPHORES  # posted, not visible yet
        self._posted_by: dict[int, Queue] = {}
        self._waited_by: dict[int, Queue] = {}

    def ready(self, waits: tuple[int, ...]) -> bool:
        """Whether every wait can take its token now."""
        if len(waits) == 2 and waits[0] == waits[1]:
            return len(self.tokens[waits[0]]) >= 2
        for semaphore in waits:  # noqa: SIM110 - asked at every event: a generator would cost more than the question
            if not self.tokens[semaphore]:
                return False
        return True

    def take(self, waits: tuple[int, ...], queue: Queue, clock: Clock) -> Clock:
        """Take the tokens for an instruction of ``queue``; returns ``clock`` joined with theirs."""
        for semaphore in waits:
            _connect(self._waited_by, semaphore, queue, "waited on")
            clock = join(clock, self.tokens[semaphore].popleft())
        return clock

    def post(self, semaphore: int, queue: Queue) -> None:
        """``queue`` posts; the token becomes visible by :meth:`deliver`."""
        _connect(self._posted_by, semaphore, queue, "posted")
        self.pending[semaphore] += 1
        if self.pending[semaphore] + len(self.tokens[semaphore]) > SEMAPHORE_MAX:
            raise SimulationError(f"semaphore {semaphore} exceeds {SEMAPHORE_MAX} tokens")

    def deliver(self, semaphore: int, clock: Clock) -> None:
        """Make a posted token visible."""
        self.pending[semaphore] -= 1
        self.tokens[semaphore].append(clock)

    def left(self) -> dict[int, int]:
        """Semaphores that are not zero, with their counts."""
        counts = {s: len(tokens) + self.pending[s] for s, tokens in enumerate(self.tokens)}
        return {s: count for s, count in counts.items() if count}


def _connect(ends: dict[int, Queue], semaphore: int, queue: Queue, what: str) -> None:
    first = ends.setdefault(semaphore, queue)
    if first != queue:
        raise SimulationError(
            f"semaphore {semaphore} is {what} by queue {queue.name.lower()} and by queue {first.name.lower()}",
            hint="a semaphore connects one posting queue with one waiting queue",
        )


class _Accesses:
    """One queue's reads or writes of one memory, in order, in blocks with a common range.

    Long programs leave many accesses unordered between queues that rarely wait for each other; almost all of them are
    elsewhere in memory, so whole blocks are passed over.
    """

    __slots__ = ("blocks", "high", "last", "low")

    def __init__(self) -> None:
        self.blocks: list[list[_Entry]] = []
        self.low: list[int] = []
        self.high: list[int] = []
        self.last: list[int] = []  # position of each block's last entry

    def append(self, position: int, area: Box, instruction: int) -> None:
        """Note an access; positions do not fall."""
        low, high = area.start, area.end
        if not self.blocks or len(self.blocks[-1]) >= _BLOCK_ENTRIES:
            self.blocks.append([])
            self.low.append(low)
            self.high.append(high)
            self.last.append(position)
        self.blocks[-1].append((position, low, high, area, instruction))
        self.low[-1] = min(self.low[-1], low)
        self.high[-1] = max(self.high[-1], high)
        self.last[-1] = position

    def conflict(self, area: Box, known: int) -> int | None:
        """The instruction of the newest access to ``area`` that is not among the first ``known`` of its queue."""
        low, high = area.start, area.end
        for block in range(len(self.blocks) - 1, -1, -1):
            if self.last[block] < known:
                return None
            if self.low[block] >= high or self.high[block] <= low:
                continue
            for position, start, end, seen, instruction in reversed(self.blocks[block]):
                if position < known:
                    return None
                if start < high and low < end and overlap(area, seen):
                    return instruction
        return None


class AccessLog:
    """The accesses to one memory, per queue in program order, compared with every new one."""

    __slots__ = ("_reads", "_writes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._reads = [_Accesses() for _ in Queue]
        self._writes = [_Accesses() for _ in Queue]

    def record(
        self, queue: int, position: int, clock: Clock, area: Box, instruction: int, *, write: bool
    ) -> int | None:
        """Record an access; returns an earlier instruction that it races with, or None.

        ``position``: the instruction's number in its queue; ``instruction``: its index in the program.
        """
        rival = None
        for log in (self._writes, self._reads) if write else (self._writes,):
            for other, accesses in enumerate(log):
                if rival is None and other != queue and accesses.blocks:
                    rival = accesses.conflict(area, clock[other])
        (self._writes if write else self._reads)[queue].append(position, area, instruction)
        return rival
