"""What one instruction costs: the formulas of docs/npu.md, evaluated, and what its transfers move there ("Time")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from odc_mlir.isa.codec import split_address
from odc_mlir.isa.cost import WIDTHS
from odc_mlir.isa.effects import Area, Runs
from odc_mlir.isa.fields import Instruction, Kind, Region
from odc_mlir.simulator.resources import Resource
from odc_mlir.targets import MemoryMode, MemoryPort, Target

Values = Mapping[str, int]
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
    """Phases of one instruction in order, with cycles and amounts of resources."""

    latency: float = 0.0
    start: float = 0.0
    shortest: float = 0.0
    amounts: dict[Resource, float] = field(default_factory=dict)
    drain: float = 0.0

    def use(self, resource: Resource, amount: float) -> None:
        """Add an amount of a resource."""
        self.amounts[resource] = self.amounts.get(resource, 0.0) + amount


def charge(spec: Instruction, v: Values, target: Target, memory: MemoryMode, *, strict: bool) -> Charge:
    """The cost of an instruction with field values ``v``."""
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
    """The port that an address lies behind."""
    if split_address(address)[0] == Region.CONSTANTS and memory == "flash":
        return target.offchip, Resource.OFFCHIP
    return target.sram, Resource.SRAM


def _move(c: Charge, address: int, area: Area, port: tuple[MemoryPort, Resource], *, write: bool, strict: bool) -> None:
    """Charge latency and bursts for the contiguous runs of ``area`` from ``address`` on."""
    (memory, resource), offset = port, split_address(address)[1]
    burst = memory.burst_bytes
    if area.picked is not None:
        count, size = area.picked
        rows = range(min(area.size // size, burst))  # the alignments of those that follow are the same again
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
    """Bursts that ``size`` bytes from ``first`` on touch."""
    return (first + size - 1) // burst - first // burst + 1


def _contiguous(runs: Runs) -> Iterator[tuple[int, int]]:
    """(first unit, units) of each contiguous run, as seen from the first unit."""
    size, count, stride, groups, group_stride = runs
    if count == 1 or stride == size:  # a group is one run
        size, count = size * count, 1
        if groups == 1 or group_stride == size:
            size, groups = size * groups, 1
    for group in range(groups):
        for run in range(count):
            yield group * group_stride + run * stride, size
