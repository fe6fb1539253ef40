"""Simulated time: shared bandwidth of ports and lanes (docs/npu.md, "Time"), timers and running phases.

A phase has a minimum duration and needs amounts (bytes, results, symbols) of resources. Alone, it takes the maximum of
its minimum duration and amount / width over all resources. If phases together request more than the width of a
resource, they share it fairly, as in round-robin arbitration. A phase exceeds a fair share only if no other needs it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Sequence
from enum import IntEnum
from typing import Any

from odc_mlir.targets import Target

_ROUNDS = 1000  # limit on refinements of fair levels if several resources are overloaded; a few mostly suffice
_SETTLED = 1e-12  # change of a level per round that counts as none
FINISHED = 1e-7  # a phase with fewer cycles of work left is done: far above rounding errors, far below a cycle


class Resource(IntEnum):
    """Resource that running phases share. Widths come from the target."""

    OFFCHIP = 0
    SRAM = 1
    TILE_READ = 2
    TILE_WRITE = 3
    REQUANT = 4
    DECODER = 5
    ACCUMULATOR_READ = 6
    ACCUMULATOR_WRITE = 7


PORTS = (Resource.OFFCHIP, Resource.SRAM, Resource.TILE_READ, Resource.TILE_WRITE)  # resources that carry bytes


def widths(target: Target) -> tuple[float, ...]:
    """Return the units per cycle of every resource, in :class:`Resource` order."""
    return (
        target.offchip.bytes_per_cycle,
        target.sram.bytes_per_cycle,
        target.tile_ports.read_bytes_per_cycle,
        target.tile_ports.write_bytes_per_cycle,
        target.vector.requant_lanes,
        target.decoder.symbols_per_cycle,
        target.array.accumulator_ports,
        target.array.accumulator_ports,
    )


class ExecutionPhase:
    """A running phase.

    ``remaining``: cycles left at full speed.
    ``speed``: current speed, at most 1.
    ``bound``: slowest resource of the phase, or None if the minimum duration is longer.
    ``limiter``: overloaded resource that currently limits the speed.
    ``lost``: cycles lost so far by resource, counted for traces.
    """

    __slots__ = ("bound", "limiter", "lost", "rates", "remaining", "solo", "speed")

    def __init__(self, shortest: float, demands: Sequence[float], width: Sequence[float]) -> None:
        used = [(resource, amount) for resource, amount in enumerate(demands) if amount]
        self.solo = shortest
        self.bound: int | None = None
        self.limiter = 0
        self.lost: dict[int, float] = {}
        for resource, amount in used:
            if amount / width[resource] > self.solo:
                self.solo, self.bound = amount / width[resource], resource
        self.rates = [(resource, amount / self.solo) for resource, amount in used]
        self.remaining = self.solo
        self.speed = 1.0


class Shares:
    """Running phases and speeds."""

    def __init__(self, width: Sequence[float]) -> None:
        self.width = width
        self.running: list[ExecutionPhase] = []
        self.blaming = False  # whether phases record the cycles that they lose by sharing
        self._stale = False

    def add(self, phase: ExecutionPhase) -> None:
        """Start a phase. Speeds are adjusted before time advances again."""
        self.running.append(phase)
        self._stale = True

    def next_finish(self) -> float:
        """Return the cycles until the first phase ends at current speeds (infinity without phases)."""
        if self._stale:
            self._share()
            self._stale = False
        soonest = float("inf")
        for phase in self.running:
            cycles = phase.remaining / phase.speed
            if cycles < soonest:
                soonest = cycles
        return soonest

    def advance(self, cycles: float) -> list[ExecutionPhase]:
        """Let ``cycles`` pass, at most :meth:`next_finish`. Return the phases that ended, sorted by start."""
        done = []
        if self.blaming:
            for phase in self.running:
                if phase.speed < 1.0:
                    phase.lost[phase.limiter] = phase.lost.get(phase.limiter, 0.0) + cycles * (1.0 - phase.speed)
        for phase in self.running:
            phase.remaining -= cycles * phase.speed
            if phase.remaining <= FINISHED:
                done.append(phase)
        if done:
            self.running = [phase for phase in self.running if phase.remaining > FINISHED]
            self._stale = True
        return done

    def usage(self) -> tuple[float, ...]:
        """Return the used units per cycle of every resource at current speeds."""
        load = [0.0] * len(self.width)
        for phase in self.running:
            for resource, rate in phase.rates:
                load[resource] += rate * phase.speed
        return tuple(load)

    def _share(self) -> None:
        load = [0.0] * len(self.width)
        for phase in self.running:
            phase.speed = 1.0
            for resource, rate in phase.rates:
                load[resource] += rate
        crowded = [r for r, amount in enumerate(load) if amount > self.width[r] * (1 + 1e-12)]
        if not crowded:
            return
        if len(crowded) > 1:
            self._settle(crowded)
        # Speeds only decrease here, so no further resource becomes overloaded.
        for resource in crowded:
            self._limit(resource)

    def _limit(self, resource: int) -> None:
        """Slow down phases that use more than a fair share of ``resource``, until it is not overloaded."""
        users = [(phase, rate) for phase in self.running for r, rate in phase.rates if r == resource]
        level = fair_level([rate * phase.speed for phase, rate in users], self.width[resource])
        for phase, rate in users:
            if rate * phase.speed > level:
                phase.speed, phase.limiter = level / rate, resource

    def _settle(self, crowded: list[int]) -> None:
        """Compute fair levels of several overloaded resources.

        A phase that a resource slows down uses less of all other resources. The levels are therefore refined in turn: a
        level is computed for the uses that all other levels allow.
        """
        levels = dict.fromkeys(crowded, float("inf"))
        users = {resource: [self._wish(phase, resource, levels) for phase in self.running] for resource in crowded}
        for _ in range(_ROUNDS):
            before = dict(levels)
            for resource in crowded:
                allowed = [
                    rate if not others else rate * min(1.0, min(levels[r] / other for r, other in others))
                    for rate, others in users[resource]
                    if rate
                ]
                levels[resource] = fair_level(allowed, self.width[resource])
            if all(levels[r] == before[r] or abs(levels[r] - before[r]) < _SETTLED for r in crowded):
                break
        for phase in self.running:
            for resource, rate in phase.rates:
                if resource in levels and rate * phase.speed > levels[resource]:
                    phase.speed, phase.limiter = levels[resource] / rate, resource

    @staticmethod
    def _wish(phase: ExecutionPhase, resource: int, crowded: Container[int]) -> tuple[float, list[tuple[int, float]]]:
        wanted, others = 0.0, []
        for r, rate in phase.rates:
            if r == resource:
                wanted = rate
            elif r in crowded:
                others.append((r, rate))
        return wanted, others


def fair_level(wanted: Sequence[float], width: float) -> float:
    """Return the largest share for which all uses ``min(wanted, share)`` fit in ``width`` (infinity: all fit)."""
    left = width
    ordered = sorted(wanted)
    for served, amount in enumerate(ordered):
        share = left / (len(ordered) - served)
        if amount > share:
            return share
        left -= amount
    return float("inf")


BUSY, IDLE = "busy", "idle"  # states of queues that are not stalls
_SAME_INSTANT = 1e-9  # cycles; timers that are closer are due at the same instant
Action = Callable[[Any], None]


class Timeline:
    """Actions at fixed times, and phases that share resources."""

    def __init__(self, shares: Shares) -> None:
        self.now = 0.0
        self.shares = shares
        self._timers: list[tuple[float, int, Action, Any]] = []
        self._sequence = 0
        self._actions: dict[int, tuple[Action, Any]] = {}
        self.segments: list[tuple[float, float, tuple[float, ...]]] | None = None

    def after(self, cycles: float, action: Action, argument: Any) -> None:
        """Call ``action(argument)`` after ``cycles``, or at once if ``cycles`` is 0."""
        if cycles <= 0:
            action(argument)
            return
        heapq.heappush(self._timers, (self.now + cycles, self._sequence, action, argument))
        self._sequence += 1

    def run(self, phase: ExecutionPhase, action: Action, argument: Any) -> None:
        """Run ``phase``, then call ``action(argument)``. An empty phase takes no time."""
        if phase.solo <= 0:
            action(argument)
            return
        self._actions[id(phase)] = action, argument
        self.shares.add(phase)

    def advance(self) -> bool:
        """Advance to the next event and handle it. Return False if there are no more events."""
        # Advance phases by cycles, not by clock differences: late in a long run a short phase may not move the clock.
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
    """Accumulated time in each state of a queue or of the fetch engine."""

    __slots__ = ("since", "state", "totals")

    def __init__(self, state: str) -> None:
        self.state = state
        self.since = 0.0
        self.totals: dict[str, float] = {}

    def set(self, state: str, now: float) -> None:
        if state != self.state:
            self.totals[self.state] = self.totals.get(self.state, 0.0) + now - self.since
            self.state, self.since = state, now

    def close(self, now: float) -> dict[str, float]:
        """Return the cycles spent in each state up to ``now``."""
        self.set("", now)
        return {state: cycles for state, cycles in self.totals.items() if cycles > 0}
