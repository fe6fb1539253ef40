"""Counters of a run: cycles, bytes, multiply-accumulates, and times of queues by cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.resources import BUSY, IDLE, Meter, Resource
from odc_mlir.targets import Target

_DIGITS = 3  # decimal digits of cycles: times are sums of fractions


@dataclasses.dataclass(slots=True)
class PortBytes:
    """Traffic of one port. ``*_bytes`` counts whole bursts, ``*_payload_bytes`` only requested bytes."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_payload_bytes: int = 0
    write_payload_bytes: int = 0

    def add(self, moved: int, payload: int, *, write: bool) -> None:
        if write:
            self.write_bytes += moved
            self.write_payload_bytes += payload
        else:
            self.read_bytes += moved
            self.read_payload_bytes += payload


@dataclasses.dataclass(slots=True)
class QueueTime:
    """Cycles of one queue. The sum of busy, stall and idle cycles is the length of the run.

    Causes of stalls: ``semaphore`` (no token for the first instruction), ``descriptor`` (no free transfer slot),
    ``program`` (bytes have not arrived), ``queue_full`` and ``drain`` (halt waits). The last three occur in the fetch
    engine. ``contended_cycles``: part of ``busy_cycles`` caused by sharing ports and lanes with other queues.
    """

    busy_cycles: float = 0.0
    stall_cycles: dict[str, float] = dataclasses.field(default_factory=dict)
    idle_cycles: float = 0.0
    contended_cycles: float = 0.0
    instructions: int = 0


@dataclasses.dataclass(slots=True)
class OperatorTime:
    """Time and resources that one operator of the model uses.

    ``macs``: multiply-accumulates of the operator in the graph.
    ``executed_macs``: multiply-accumulates that the array executed.
    ``busy_cycles``: cycles by queue.
    ``first_cycle``, ``last_cycle``: start of the first and end of the last instruction.
    ``amounts``: bytes by port in whole bursts, results of lanes, weights of the decoder, entries of accumulators.
    """

    name: str
    kind: str
    macs: int
    executed_macs: int = 0
    instructions: int = 0
    busy_cycles: dict[str, float] = dataclasses.field(default_factory=dict)
    first_cycle: float = 0.0
    last_cycle: float = 0.0
    amounts: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(
        self, queue: Queue, started: float, since: float, ended: float, macs: int, amounts: Mapping[Resource, float]
    ) -> None:
        """Count an instruction of ``queue``, which left the queue at ``started`` and ended at ``ended``.

        No earlier instruction of the queue ran after ``since``.
        """
        for resource, amount in amounts.items():
            key = resource.name.lower()
            self.amounts[key] = self.amounts.get(key, 0.0) + amount
        self.first_cycle = min(self.first_cycle, started) if self.instructions else started
        self.last_cycle = max(self.last_cycle, ended)
        self.instructions += 1
        self.executed_macs += macs
        name = queue.name.lower()
        self.busy_cycles[name] = self.busy_cycles.get(name, 0.0) + ended - since


@dataclasses.dataclass(slots=True)
class Counters:
    """Measurements of one run. Times are in cycles of the target's clock, sizes in bytes.

    ``macs_useful``: multiply-accumulates whose results the program uses.
    ``macs_array``: occupied multiplier slots, including idle lanes of edge tiles.
    ``constant_bytes_read``: bytes of constants read, in whole bursts, without the program.
    ``sram_peak_bytes``: bytes of arena, inputs and outputs.
    ``local_peak_bytes``: end of the last byte used, for each local memory.
    ``amounts``: use of each resource as in :class:`OperatorTime`, with the program's own bytes.
    ``hardware``: parameters of the target that limit a run.
    """

    target: str
    memory: str
    memory_model: str
    cycles: int
    macs_useful: int
    macs_array: int
    instructions: int
    program_bytes: int
    program_bytes_fetched: int
    constant_bytes: int
    constant_bytes_read: int
    sram_peak_bytes: int
    arena_bytes: int
    local_peak_bytes: dict[str, int]
    ports: dict[str, PortBytes]
    amounts: dict[str, float]
    queues: dict[str, QueueTime]
    operators: list[OperatorTime]
    halt_status: int
    hardware: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as JSON data, with times rounded to thousandths of a cycle."""
        rounded = _rounded(dataclasses.asdict(self))
        assert isinstance(rounded, dict)
        return rounded


def queue_time(meter: Meter, cycles: int, contended: float, instructions: int) -> QueueTime:
    """Return the cycles of one queue. Idle time is ``cycles`` minus work and stalls."""
    states = meter.close(cycles)
    states.pop(IDLE, 0.0)
    busy = states.pop(BUSY, 0.0)
    return QueueTime(busy, states, max(0.0, cycles - busy - sum(states.values())), contended, instructions)


def hardware(target: Target) -> dict[str, int]:
    """Return the parameters of a target that limit a run."""
    return {
        "clock_hz": target.clock_hz,
        "macs_per_cycle": target.array.macs_per_cycle,
        "sram_bytes_per_cycle": target.sram.bytes_per_cycle,
        "sram_burst_bytes": target.sram.burst_bytes,
        "sram_read_latency_cycles": target.sram.read_latency_cycles,
        "sram_write_latency_cycles": target.sram.write_latency_cycles,
        "sram_capacity_bytes": target.sram.capacity_bytes,
        "offchip_bytes_per_cycle": target.offchip.bytes_per_cycle,
        "offchip_burst_bytes": target.offchip.burst_bytes,
        "offchip_read_latency_cycles": target.offchip.read_latency_cycles,
        "offchip_write_latency_cycles": target.offchip.write_latency_cycles,
        "local_memory_bytes": target.local.total_bytes,
        "requant_lanes": target.vector.requant_lanes,
        "weight_decoder_symbols_per_cycle": target.decoder.symbols_per_cycle,
        "dma_descriptors_in_flight": target.dma.descriptors_in_flight,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value
