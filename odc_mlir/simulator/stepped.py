"""Stepped simulation: a slow reference for the fast simulation, advancing cycle by cycle.

It evaluates the cost formulas of the instruction table and computes shares of resources by iteration. Between steps, it
keeps only the remaining amounts of phases. Fetch, queues and values are common to both simulations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odc_mlir.isa.codec import split_address
from odc_mlir.isa.fields import WIDTHS, Area, Instruction, Kind, Region, Runs, Values
from odc_mlir.simulator.resources import FINISHED, Action, ExecutionPhase, Resource, Shares, Timeline
from odc_mlir.targets import MemoryMode, MemoryPort, Target

_RESOURCES = (
    Resource.REQUANT,
    Resource.DECODER,
    Resource.TILE_READ,
    Resource.TILE_WRITE,
    Resource.ACCUMULATOR_READ,
    Resource.ACCUMULATOR_WRITE,
)
RESOURCES = dict(zip(WIDTHS, _RESOURCES, strict=True))


@dataclass
class Charge:
    """Cost of one instruction: phases in order, with cycles and amounts of resources."""

    latency: float = 0.0
    start: float = 0.0
    shortest: float = 0.0
    amounts: dict[Resource, float] = field(default_factory=dict)
    drain: float = 0.0

    def use(self, resource: Resource, amount: float) -> None:
        self.amounts[resource] = self.amounts.get(resource, 0.0) + amount


def charge(spec: Instruction, v: Values, target: Target, memory: MemoryMode, *, strict: bool) -> Charge:
    """Return the cost of an instruction with field values ``v``."""
    found = spec.cost.evaluate(spec.words(v), target)
    c = Charge(start=found.get("start", 0.0), shortest=found.get("shortest", 0.0), drain=found.get("drain", 0.0))
    for name, resource in RESOURCES.items():
        if amount := found.get(name, 0.0):
            c.use(resource, amount)
    effects = spec.effects(v)
    for areas, write in ((effects.reads, False), (effects.writes, True)):
        for area in areas:
            if spec[area.field].kind is Kind.MEMORY:
                _move(c, v[area.field], area, _port(v[area.field], target, memory), write=write, strict=strict)
    return c


def _port(address: int, target: Target, memory: MemoryMode) -> tuple[MemoryPort, Resource]:
    if split_address(address)[0] == Region.CONSTANTS and memory == "flash":
        return target.offchip, Resource.OFFCHIP
    return target.sram, Resource.SRAM


def _move(c: Charge, address: int, area: Area, port: tuple[MemoryPort, Resource], *, write: bool, strict: bool) -> None:
    (memory, resource), offset = port, split_address(address)[1]
    burst = memory.burst_bytes
    if area.picked is not None:
        count, size = area.picked
        rows = range(min(area.size // size, burst))  # alignments repeat after ``burst`` runs
        bursts = count * max(_bursts(offset + row * size, size, burst) for row in rows)
    else:
        bursts = sum(_bursts(offset + first, size, burst) for first, size in _contiguous(area.runs or Runs(area.size)))
    moved = bursts * burst
    latency = memory.write_latency_cycles if write else memory.read_latency_cycles
    c.latency += latency
    c.use(resource, moved)
    if strict:
        c.shortest = max(c.shortest, moved * latency / (memory.strict_outstanding_bursts * burst))


def _bursts(first: int, size: int, burst: int) -> int:
    return (first + size - 1) // burst - first // burst + 1


def _contiguous(runs: Runs) -> Iterator[tuple[int, int]]:
    size, count, stride, groups, group_stride = runs
    if count == 1 or stride == size:  # a group is one run
        size, count = size * count, 1
        if groups == 1 or group_stride == size:
            size, groups = size * groups, 1
    for group in range(groups):
        for run in range(count):
            yield group * group_stride + run * stride, size


_ROUNDS = 1000
_SETTLED = 1e-12


def speeds(rates: Sequence[Mapping[Resource, float]], widths: Sequence[float]) -> list[float]:
    """Return the speed of each phase, at most 1. ``rates``: uses of resources per cycle at full speed."""
    total = [sum(phase.get(resource, 0.0) for phase in rates) for resource in Resource]
    levels = {r: float("inf") for r in Resource if total[r] > widths[r] * (1 + _SETTLED)}
    for _ in range(_ROUNDS if levels else 0):
        before = dict(levels)
        for resource in levels:
            wanted = []
            for phase in rates:
                elsewhere = {r: rate for r, rate in phase.items() if r != resource}
                wanted.append(phase.get(resource, 0.0) * _speed(elsewhere, levels))
            levels[resource] = _level(wanted, widths[resource])
        if all(levels[r] == before[r] or abs(levels[r] - before[r]) < _SETTLED for r in levels):
            break
    return [_speed(phase, levels) for phase in rates]


def _speed(phase: Mapping[Resource, float], levels: Mapping[Resource, float]) -> float:
    """Return the largest speed, at most 1, at which a phase exceeds no level."""
    return min([1.0, *(levels[r] / rate for r, rate in phase.items() if r in levels and rate)])


def _level(wanted: Sequence[float], width: float) -> float:
    """Return the largest level ``l`` for which the sum of ``min(use, l)`` over all uses fits in ``width``."""
    if sum(wanted) <= width:
        return float("inf")
    # in ascending order, grant each use that is below an equal part of the remaining width
    open_wishes, left = sorted(wanted), width
    while open_wishes[0] <= left / len(open_wishes):
        left -= open_wishes.pop(0)
    return left / len(open_wishes)


@dataclass(slots=True)
class _Pending:
    """An action after ``left`` cycles at full speed. ``rates`` is the use of resources per cycle, {} for a delay."""

    left: float
    rates: Mapping[Resource, float]
    action: Action
    argument: object


class SteppedTimeline(Timeline):
    """Timeline that advances by at most one cycle at a time."""

    def __init__(self, shares: Shares) -> None:
        super().__init__(shares)
        self._pending: list[_Pending] = []

    def after(self, cycles: float, action: Action, argument: object) -> None:
        self._add(_Pending(cycles, {}, action, argument))

    def run(self, phase: ExecutionPhase, action: Action, argument: object) -> None:
        self._add(_Pending(phase.solo, {Resource(r): rate for r, rate in phase.rates}, action, argument))

    def _add(self, item: _Pending) -> None:
        if item.left > 0:
            self._pending.append(item)
        else:
            item.action(item.argument)

    def advance(self) -> bool:
        """Advance to the end of this cycle or an earlier end of a delay or phase. Return False if none is left."""
        if not self._pending:
            return False
        found = list(zip(self._pending, speeds([item.rates for item in self._pending], self.shares.width), strict=True))
        step = math.floor(self.now + FINISHED) + 1 - self.now
        step = min([step, *(item.left / speed for item, speed in found)])
        self.now += step
        for item, speed in found:
            item.left -= step * speed
        self._pending = [item for item, _ in found if item.left > FINISHED]
        for item in sorted((item for item, _ in found if item.left <= FINISHED), key=lambda item: not item.rates):
            item.action(item.argument)
        return True
