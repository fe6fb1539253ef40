"""Memories of the NPU, and all accesses to them.

Instructions access memories through :class:`Access`. It checks bounds, writes before reads, and the order by
semaphores. It also counts bytes, and the timeline converts bytes to time. Every transfer therefore has a cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import SimulationError
from odc_mlir.isa.codec import split_address
from odc_mlir.isa.fields import Region
from odc_mlir.simulator.boxes import START, AccessLog, Box, Clock, burst_bytes, overlap, repeats, view
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.resources import Resource
from odc_mlir.targets import MemoryMode, MemoryPort, Target

PARAM_COLUMNS = 3  # bias, multiplier, exponent


@dataclass(slots=True, eq=False)
class SimulatedMemory:
    """One memory of ``size`` units: bytes, or entries of accumulators and parameters.

    ``data`` is None in timing-only runs. ``written`` marks units that have been written.
    """

    name: str
    size: int
    data: NDArray[Any] | None = field(kw_only=True)
    port: MemoryPort | None = None
    read_resource: Resource | None = None
    write_resource: Resource | None = None
    writable: bool = True
    unit_bytes: int = 1
    region: Region | None = None
    burst: int = field(init=False)
    written: NDArray[np.bool_] | None = field(init=False)
    log: AccessLog = field(init=False)
    high_water: int = 0  # end of the last unit ever written
    moved: int = 0  # units that the port transferred, in whole bursts
    version: int = 0  # incremented by every write, to detect stale cached data

    def __post_init__(self) -> None:
        self.burst = self.port.burst_bytes if self.port else 1
        self.written = None if self.data is None else np.zeros(self.size, np.bool_)
        self.log = AccessLog(self.name)


class Memories:
    """All memories of one run. They have contents only if ``execute``."""

    def __init__(
        self,
        target: Target,
        memory: MemoryMode,
        constants: bytes | memoryview,
        sizes: Mapping[int, int],
        *,
        execute: bool,
    ) -> None:
        def bytes_of(size: int) -> NDArray[Any] | None:
            return np.zeros(size, np.uint8) if execute else None

        sram: dict[str, Any] = {"port": target.sram, "read_resource": Resource.SRAM, "write_resource": Resource.SRAM}
        flash: dict[str, Any] = {"port": target.offchip, "read_resource": Resource.OFFCHIP}
        tile: dict[str, Any] = {"read_resource": Resource.TILE_READ, "write_resource": Resource.TILE_WRITE}
        local = target.local
        self.constants = SimulatedMemory(
            "constants",
            len(constants),
            data=np.frombuffer(constants, np.uint8) if execute else None,
            writable=False,
            region=Region.CONSTANTS,
            **(flash if memory == "flash" else sram),
        )
        if self.constants.written is not None:
            self.constants.written[:] = True
        self.regions = {int(Region.CONSTANTS): self.constants}
        for region in (Region.ARENA, Region.INPUTS, Region.OUTPUTS):
            size = sizes[region]
            self.regions[int(region)] = SimulatedMemory(
                region.name.lower(), size, data=bytes_of(size), region=region, **sram
            )
        self.tile = SimulatedMemory("tile buffer", local.tile_bytes, data=bytes_of(local.tile_bytes), **tile)
        self.weights = SimulatedMemory("weight buffer", local.weight_bytes, data=bytes_of(local.weight_bytes))
        self.tables = SimulatedMemory("table buffer", local.table_bytes, data=bytes_of(local.table_bytes))
        self.accumulators = SimulatedMemory(
            "accumulator buffer",
            local.accumulators,
            data=np.zeros(local.accumulators, np.int64) if execute else None,
            read_resource=Resource.ACCUMULATOR_READ,
            write_resource=Resource.ACCUMULATOR_WRITE,
            unit_bytes=local.accumulator_bytes,
        )
        self.params = SimulatedMemory(
            "parameter buffer",
            local.param_entries,
            data=np.zeros((local.param_entries, PARAM_COLUMNS), np.int64) if execute else None,
            unit_bytes=local.param_entry_bytes,
        )

    def at(self, address: int) -> tuple[SimulatedMemory, int]:
        """Return memory and byte offset of an address. Raises SimulationError for an unbound region."""
        region, offset = split_address(address)
        space = self.regions.get(region)
        if space is None:
            raise SimulationError(f"region {region} is not bound to a memory")
        return space, offset


def strict_cycles(port: MemoryPort, moved: int, *, write: bool) -> float:
    """Return the minimum duration of a transfer with limited bursts in flight (memory model "strict")."""
    latency = port.write_latency_cycles if write else port.read_latency_cycles
    return moved * latency / (port.strict_outstanding_bursts * port.burst_bytes)


class Touch(NamedTuple):
    """Bytes of a region that an instruction reads or writes."""

    region: int
    area: Box
    writes: bool


class Access:
    """Memory access for one instruction at a time: call :meth:`begin`, then read and write.

    Afterwards, ``demands`` has the used amounts of resources. ``latency`` has the cycles until data arrive.
    ``shortest`` has the minimum duration that ports allow.
    """

    def __init__(self, ports: Mapping[Resource, PortBytes], *, check: bool, strict: bool) -> None:
        self._ports = ports
        self._check = check
        self._strict = strict
        self.touched: list[Touch] | None = None  # touched bytes of regions; None: not recorded
        self.begin(0, 0, START, 0)

    def begin(self, queue: int, position: int, clock: Clock, instruction: int) -> None:
        """Begin an instruction. ``position`` is its index in ``queue``, ``instruction`` its index in the program."""
        self._queue, self._position, self._clock, self._instruction = queue, position, clock, instruction
        self._own_reads: list[tuple[SimulatedMemory, Box]] = []
        self.demands = [0.0] * len(Resource)
        self.latency = self.shortest = 0.0
        if self.touched is not None:
            self.touched = []

    def read(
        self, space: SimulatedMemory, area: Box, *, moved: int | None = None, payload: int | None = None
    ) -> NDArray[Any] | None:
        """Return a view of the units of ``area``, or None in timing-only runs.

        ``moved``: bytes on the memory's port. By default, the engine fetches each byte exactly once. ``payload``:
        number of requested bytes. By default, all bytes of the area.
        """
        self._bounds(space, area, "reads")
        if space.read_resource is not None:
            self._count(space, space.read_resource, area, moved, payload, write=False)
        if self._check:
            self._order(space, area, write=False)
            self._own_reads.append((space, area))
        if space.data is None or space.written is None:
            return None
        if not view(space.written, area).all():
            raise SimulationError(f"reads {_range(area)} of the {space.name}, parts of which were never written")
        return view(space.data, area) if space.data.ndim == 1 else space.data[area.start : area.end]

    def write(
        self, space: SimulatedMemory, area: Box, *, moved: int | None = None, in_place: Box | None = None
    ) -> NDArray[Any] | None:
        """Return a writable view of the units of ``area``, or None in timing-only runs.

        An instruction must not write bytes that it reads, except element by element at the same address (``in_place``).
        """
        self._bounds(space, area, "writes")
        if not space.writable:
            raise SimulationError(f"writes {_range(area)} of the {space.name}, which is read only")
        if repeats(area):
            raise SimulationError(f"writes {_range(area)} of the {space.name}, some of it more than once")
        if space.write_resource is not None:
            self._count(space, space.write_resource, area, moved, None, write=True)
        space.version += 1
        space.high_water = max(space.high_water, area.end)
        if self._check:
            self._order(space, area, write=True)
            for other, seen in self._own_reads:
                if other is space and overlap(area, seen) and not seen == area == in_place:
                    raise SimulationError(f"writes {_range(area)} of the {space.name}, which it reads itself")
        if space.data is None or space.written is None:
            return None
        view(space.written, area)[...] = True
        return view(space.data, area) if space.data.ndim == 1 else space.data[area.start : area.end]

    def _bounds(self, space: SimulatedMemory, area: Box, what: str) -> None:
        if area.size < 1 or area.count1 < 1 or area.count2 < 1:
            raise SimulationError(f"{what} nothing: a size is 0")
        if area.start < 0 or area.end > space.size:
            raise SimulationError(f"{what} {_range(area)} of the {space.name}, which has {space.size} units")

    def _count(
        self,
        space: SimulatedMemory,
        resource: Resource,
        area: Box,
        moved: int | None,
        payload: int | None,
        *,
        write: bool,
    ) -> None:
        if self.touched is not None and space.region is not None:
            self.touched.append(Touch(space.region, area, write))
        payload = area.units if payload is None else payload
        if moved is None:
            moved = burst_bytes(area, space.burst) if space.burst > 1 else payload
        self.demands[resource] += moved
        space.moved += moved
        port = self._ports.get(resource)  # None for a local memory, whose traffic is counted in entries
        if port is not None:
            port.add(moved, payload, write=write)
        if space.port is None:
            return
        self.latency += space.port.write_latency_cycles if write else space.port.read_latency_cycles
        if self._strict:
            self.shortest = max(self.shortest, strict_cycles(space.port, moved, write=write))

    def _order(self, space: SimulatedMemory, area: Box, *, write: bool) -> None:
        if not space.writable:
            return
        rival = space.log.record(self._queue, self._position, self._clock, area, self._instruction, write=write)
        if rival is not None:
            raise SimulationError(
                f"{'writes' if write else 'reads'} {_range(area)} of the {space.name} in a race with"
                f" instruction {rival}: no semaphore orders the two"
            )


def _range(area: Box) -> str:
    return f"{area.start}..{area.end - 1}"
