"""Simulated time: timers and running phases, in one order that depends on nothing but the program."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from odc_mlir.simulator.resources import ExecutionPhase, Shares

BUSY, IDLE = "busy", "idle"  # states of queues that are not stalls
_SAME_INSTANT = 1e-9  # cycles: timers this close together are due together
Action = Callable[[Any], None]


class Timeline:
    """Actions at fixed times, and phases that slow down while they share resources."""

    def __init__(self, shares: Shares) -> None:
        self.now = 0.0
        self.shares = shares
        self._timers: list[tuple[float, int, Action, Any]] = []
        self._sequence = 0
        self._actions: dict[int, tuple[Action, Any]] = {}
        self.segments: list[tuple[float, float, tuple[float, ...]]] | None = None

    def after(self, cycles: float, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` in ``cycles``; at once when that is 0."""
        if cycles <= 0:
            action(argument)
            return
        heapq.heappush(self._timers, (self.now + cycles, self._sequence, action, argument))
        self._sequence += 1

    def run(self, phase: ExecutionPhase, action: Action, argument: Any) -> None:
        """Run ``phase`` and then call ``action(argument)``; at once when there is nothing to do."""
        if phase.solo <= 0:
            action(argument)
            return
        self._actions[id(phase)] = action, argument
        self.shares.add(phase)

    def advance(self) -> bool:
        """Go to the next instant at which something happens, and let it happen; False when nothing ever will."""
        # Cycles are kept apart from the instant: late in a long run a short phase may not move the clock at all.
        cycles = self.shares.next_finish()
        if self._timers:
            cycles = min(cycles, self._timers[0][0] - self.now)
        instant = self.now + cycles
        if instant == float("inf"):
            return False
        if self.segments is not None and instant > self.now:
            self.segments.append((self.now, instant, self.shares.usage()))
        done = self.shares.advance(cycles)
        self.now = instant
        for phase in done:
            action, argument = self._actions.pop(id(phase))
            action(argument)
        while self._timers and self._timers[0][0] <= instant + _SAME_INSTANT:
            _, _, action, argument = heapq.heappop(self._timers)
            action(argument)
        return True


class Meter:
    """Accumulates how long something was in each of its states."""

    __slots__ = ("since", "state", "totals")

    def __init__(self, state: str) -> None:
        self.state = state
        self.since = 0.0
        self.totals: dict[str, float] = {}

    def set(self, state: str, now: float) -> None:
        """Enter ``state``."""
        if state != self.state:
            self.totals[self.state] = self.totals.get(self.state, 0.0) + now - self.since
            self.state, self.since = state, now

    def close(self, now: float) -> dict[str, float]:
        """Cycles per state up to ``now``."""
        self.set("", now)
        return {state: cycles for state, cycles in self.totals.items() if cycles > 0}
