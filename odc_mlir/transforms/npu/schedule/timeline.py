"""Estimated times of commands: in-order queues, dependences, one SRAM and one off-chip port, bounded queues.

Coarser than the simulator (no bandwidth sharing: the port serves one transfer after the other in program order), but
linear and good enough to decide where in the program a copy from off-chip memory belongs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from odc_mlir.isa.code_types import TYPE_BYTES
from odc_mlir.isa.fields import Queue
from odc_mlir.isa.immediates import Immediates
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule import cost
from odc_mlir.transforms.npu.schedule.cost import ArrayWork, PlaneWork, StridedRuns
from odc_mlir.transforms.npu.schedule.hazards import Latest
from odc_mlir.transforms.npu.schedule.program import Command

TRANSFERS = frozenset({Queue.LOAD, Queue.STORE, Queue.WEIGHT})


class EstimatedTimeline:
    """Start and finish of commands, visited in program order."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.offchip_free = 0.0  # when the off-chip port has carried all that it was asked for
        self.finish: list[float] = []
        self._queue_free = dict.fromkeys(Queue, 0.0)
        self._waiting: dict[Queue, deque[float]] = {queue: deque() for queue in Queue}
        self._port_free = 0.0
        self._known: dict[int, float] = {}  # by the id of the immediates, which commands share
        self._fetch = target.fetch
        self.fetched = 0.0  # when the latest command was issued

    def visit(self, command: Command, before: Latest, ready: float = 0.0, *, offchip: bool = False) -> None:
        """Add a command that depends on ``before`` and starts no earlier than ``ready``.

        ``offchip``: it reads constants in off-chip memory.
        """
        target, fetch, queue = self.target, self._fetch, command.queue
        waiting, finish = self._waiting[queue], self.finish
        self.fetched += fetch.issue_cycles
        if len(waiting) >= fetch.queue_depth:
            self.fetched = max(self.fetched, waiting.popleft())
        start = max(self.fetched, self._queue_free[queue], ready)
        for other, index in before.items():
            if other is not queue and finish[index] + fetch.semaphore_cycles > start:
                start = finish[index] + fetch.semaphore_cycles
        waiting.append(start)
        if offchip:
            moved = read_bytes(command.immediates, target.offchip.burst_bytes) / target.offchip.bytes_per_cycle
            end = self.offchip_free = max(start + target.offchip.read_latency_cycles, self.offchip_free) + moved
        elif queue in TRANSFERS:
            moved = self._cycles(transfer_cycles, command.immediates)
            data = max(start + target.sram.read_latency_cycles, self._port_free)
            self._port_free = end = data + moved
        else:
            end = start + self._cycles(compute_cycles, command.immediates)
        self._queue_free[queue] = end
        finish.append(end)

    def _cycles(self, of: Callable[[Target, Immediates], float], immediates: Immediates) -> float:
        """What ``of`` says, asked once."""
        found = self._known.get(id(immediates))
        if found is None:
            found = self._known[id(immediates)] = of(self.target, immediates)
        return found


def transfer_cycles(target: Target, immediates: Immediates) -> float:
    """Cycles that a transfer occupies the SRAM port or, for weights, the decoder."""
    v = immediates.values
    burst, width = target.sram.burst_bytes, target.sram.bytes_per_cycle
    if immediates.mnemonic in ("load", "store"):
        runs = StridedRuns(v["size0"], v["size1"], v.get("memory_stride1", 0), v["size2"], v.get("memory_stride2", 0))
        return cost.transfer_bytes(runs, burst) / width
    if immediates.mnemonic == "mload":
        return cost.matrix_load_cycles(target, v["rows"], v["columns"], v["row_stride"], v["group"])
    size = read_bytes(immediates, burst)
    if immediates.mnemonic == "wload":
        return max(size / width, v["bytes"] / target.decoder.symbols_per_cycle)
    if immediates.mnemonic == "gather":
        size += v["count"] * v["row_bytes"]  # written where other transfers have a local memory
    return cost.transfer_bytes(StridedRuns(size), burst) / width


def read_bytes(immediates: Immediates, burst: int) -> int:
    """Bytes that a transfer reads; of rows that data say, the bursts of ``burst`` bytes around them."""
    areas = immediates.effects.reads
    return sum(cost.picked_bytes(*area.picked, burst) if area.picked else area.size for area in areas)


def compute_cycles(target: Target, immediates: Immediates) -> float:
    """Cycles of a command of the array or the vector engine, as charged where no estimate of its own is kept here."""
    v, mnemonic = immediates.values, immediates.mnemonic
    if mnemonic == "conv":
        return _conv_cycles(target, v)
    if mnemonic == "vop":
        count = v["size0"] * v["size1"] * v["size2"]
        if any(area.field == "table" for area in immediates.effects.reads) and TYPE_BYTES[v.get("a_type", 0)] > 1:
            return cost.interpolated_cycles(target, count)
        read = TYPE_BYTES[v.get("a_type", 0)] + TYPE_BYTES[v.get("b_type", 0)]
        return cost.vector_cycles(target, count, read * count)
    if mnemonic == "pool":
        results = v["out_width"] * v["out_height"] * v["channels"]
        taps = results * v["kernel_height"] * v["kernel_width"]
        return cost.vector_cycles(target, results, taps * TYPE_BYTES[v.get("type", 0)], elements=taps)
    if mnemonic == "reduce":
        count = v["width"] * v["height"] * v["channels"]
        return cost.vector_cycles(target, v["channels"], count * TYPE_BYTES[v.get("in_type", 0)], elements=count)
    if mnemonic == "softmax":
        return cost.softmax_cycles(target, v["rows"] * v["columns"], TYPE_BYTES[v.get("in_type", 0)])
    return immediates.spec.cost.alone(immediates.spec.words(v), target)


def _conv_cycles(target: Target, v: Mapping[str, int]) -> float:
    item = TYPE_BYTES[v.get("in_type", 0)]
    passes = item * TYPE_BYTES[v.get("weight_type", 0)]
    if v.get("depthwise"):
        plane = PlaneWork(
            v["out_height"],
            v["out_width"],
            v["channels"],
            v["kernel_height"],
            v["kernel_width"],
            v["stride_y"],
            v["stride_x"],
            v["dilation_y"],
            v["dilation_x"],
            item,
            passes,
        )
        return cost.depthwise_cycles(target, plane)
    taps, channels = v["kernel_height"] * v["kernel_width"], v["in_channels"]
    joined = v["in_stride_x"] == channels * item and v["dilation_x"] == 1
    run = channels * (v["kernel_width"] if joined else 1)
    emit = bool(v.get("emit"))
    work = ArrayWork(
        v["out_width"] * v["out_height"],
        v["channels"],
        taps * channels,
        run,
        taps * channels // run,
        emit=emit,
        accumulate=v.get("init", 0) == 2 or not emit,
        item_bytes=item,
        passes=passes,
    )
    return cost.conv_cycles(target, v.get("shape", 0), work)
