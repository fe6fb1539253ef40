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

Clock = tuple[int, ...]
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


class AccessLog:
    """The accesses to one memory, per queue in program order, compared with every new one."""

    __slots__ = ("_reads", "_writes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._reads: list[list[tuple[int, int, int, Box, int]]] = [[] for _ in Queue]
        self._writes: list[list[tuple[int, int, int, Box, int]]] = [[] for _ in Queue]

    def record(
        self, queue: int, position: int, clock: Clock, area: Box, instruction: int, *, write: bool
    ) -> int | None:
        """Record an access; returns an earlier instruction that it races with, or None.

        ``position``: the instruction's number in its queue; ``instruction``: its index in the program.
        """
        low, high = area.start, area.end
        rival = self._rival(self._writes, queue, clock, area, low, high)
        if rival is None and write:
            rival = self._rival(self._reads, queue, clock, area, low, high)
        log = self._writes if write else self._reads
        log[queue].append((position, low, high, area, instruction))
        return rival

    @staticmethod
    def _rival(
        log: list[list[tuple[int, int, int, Box, int]]], queue: int, clock: Clock, area: Box, low: int, high: int
    ) -> int | None:
        for other, accesses in enumerate(log):
            if other == queue or not accesses:
                continue
            known = clock[other]
            for position, start, end, seen, instruction in reversed(accesses):
                if position < known:
                    break
                if start < high and low < end and overlap(area, seen):
                    return instruction
        return None
