"""Decisions on copies of constants from off-chip memory to SRAM: a heuristic over the whole program.

Constants are merged into chunks in the order of the last layers that use the constants. A large transfer copies a chunk
as early as SRAM has room until the last use of the chunk. For a fixed order, no schedule keeps the off-chip port
busier. An estimated timeline of queues, dependences and ports shows when the copy queue has room, so that waiting
copies never stop the instruction fetch. The estimate is coarser than the simulator, but takes linear time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Literal, NamedTuple

from odc_mlir.errors import AllocationError
from odc_mlir.isa.fields import Queue, Runs, Space
from odc_mlir.isa.immediates import Immediates
from odc_mlir.targets import MemoryPort, Target
from odc_mlir.transforms.npu.schedule import cost
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate, busiest, end_of, live_intervals, lowest_gap
from odc_mlir.transforms.npu.schedule.hazards import Latest
from odc_mlir.transforms.npu.schedule.program import Buffer, Command

SMALLEST_CHUNK = 512
LARGEST_CHUNK = 16_384
CHUNKS_AT_A_TIME = 4  # chunks that fit in a small arena, because some are read while others arrive
SHARE = 0.33  # limit of a chunk, as a share of the bytes before and after
SHORT_SHARE = 0.25  # the same for little SRAM
# Constants stay off-chip if the estimated time falls below this share, with a narrow and with a wide off-chip port.
NARROW_GAIN, WIDE_GAIN = 0.99, 0.975
COPY_CYCLES = 64  # time that a separate copy costs, apart from its bytes
FEW_COPIES, MANY_COPIES = 0.5, 0.625  # shares of the copy queue's depth at which a batch of copies starts and ends


Room = Literal["best", "all", "rest", "none"]  # arena bytes that constants may use


class PrefetchedConstant(NamedTuple):
    """Constant and the commands that read it.

    ``first_use``: the earliest first use of this constant and of all constants copied later. ``settled``: end of the
    layers that use the constant. Earlier reuse of its SRAM would delay later layers. ``required``: whether an
    instruction that cannot access off-chip memory reads the constant.
    """

    buffer: Buffer
    first_use: int
    last_use: int
    settled: int
    required: bool


@dataclass(eq=False, slots=True)
class Chunk:
    """One or more constants that one transfer copies.

    The SRAM at ``address`` is reserved from program position ``earliest`` to ``held_until``.
    """

    items: list[PrefetchedConstant]
    earliest: int = 0
    held_until: int = 0
    address: int = 0
    size: int = field(init=False)
    last_use: int = field(init=False)
    settled: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(item.buffer.size for item in self.items)
        self.last_use = max(item.last_use for item in self.items)
        self.settled = max(item.settled for item in self.items)

    @property
    def first_use(self) -> int:
        return self.items[0].first_use

    @property
    def required(self) -> bool:
        return any(item.required for item in self.items)

    def halves(self) -> list[Chunk]:
        """Split a chunk of several items into two."""
        middle = len(self.items) // 2
        return [Chunk(self.items[:middle]), Chunk(self.items[middle:])]


class ConstantCopy(NamedTuple):
    """Decision to copy ``constants`` to one SRAM buffer before command ``position``.

    ``layer``: layer of the first command that reads the copy. ``live``: first and last command of the buffer's live
    range.
    """

    constants: tuple[Buffer, ...]
    position: int
    layer: int
    live: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes of the copy."""
        return sum(constant.size for constant in self.constants)


def prefetch_constants(
    commands: Sequence[Command],
    before: Sequence[Latest],
    target: Target,
    sram_bytes: int,
    held_bytes: int = 0,
    *,
    room: Room = "best",
) -> list[ConstantCopy]:
    """Return the copies of constants to SRAM, in order.

    ``before``: dependences of each command. ``sram_bytes``: limit on the arena for tensors and copies. ``held_bytes``:
    bytes of inputs and outputs outside of the arena. ``room``: "all" uses the arena up to the limit. "rest" makes it no
    larger than the tensors need. "none" copies only constants that cannot be read off-chip. "best" estimates.

    The function plans addresses, because constants can be copied only when there is free room. Constants without room
    are read from off-chip memory. Raises AllocationError for a constant that cannot be read off-chip, or if tensors
    alone exceed the arena.
    """
    intervals = live_intervals(commands, target.sram.burst_bytes)
    used = allocate(intervals)
    if used > sram_bytes:
        raise arena_too_small(intervals, used, sram_bytes, held_bytes)
    alignment, reads = target.sram.burst_bytes, _reads(commands)
    items = _items(commands, reads, target.offchip.burst_bytes)

    def schedule(most: int) -> _Schedule:
        chunks = _chunks(items, min(LARGEST_CHUNK, most // CHUNKS_AT_A_TIME), target.offchip)
        found = _Schedule(_place(chunks, intervals, (most, sram_bytes), held_bytes, alignment), target)
        for index, (item, earlier) in enumerate(zip(commands, before, strict=True)):
            found.visit(index, item, earlier, reads.get(index, ()))
        return found

    best = schedule({"rest": used, "none": 0}.get(room, sram_bytes))
    wide = is_wide(target)
    for most in (used, 0)[: 1 + wide] if room == "best" else ():
        if (found := schedule(most)).end < (WIDE_GAIN if wide else NARROW_GAIN) * best.end:
            best = found
    planned = [
        Interval(chunk, chunk.size, chunk.earliest, chunk.held_until, alignment, chunk.address) for chunk in best.chunks
    ]
    used = max([*map(end_of, intervals), *map(end_of, planned)], default=0)
    live = _live(best, alignment)
    fits = allocate([*live_intervals(commands, alignment), *live]) <= used
    return [
        ConstantCopy(
            tuple(item.buffer for item in chunk.items),
            position,
            commands[chunk.first_use].layer,
            (interval.first, interval.last),
        )
        for chunk, position, interval in zip(best.chunks, best.positions, live if fits else planned, strict=True)
    ]


def is_wide(target: Target) -> bool:
    """Return whether direct reads off-chip may be faster, because each copied byte crosses the port to SRAM twice."""
    return 4 * target.offchip.bytes_per_cycle >= target.sram.bytes_per_cycle


def too_small(message: str, needed_bytes: int, allowed_bytes: int) -> AllocationError:
    """Return the error for too little SRAM. Both amounts include inputs and outputs."""
    error = AllocationError(message, hint=f"raise the SRAM limit (--sram-limit) to {needed_bytes} bytes")
    error.needed_bytes, error.allowed_bytes = needed_bytes, allowed_bytes
    return error


def arena_too_small(intervals: Sequence[Interval[Buffer]], used: int, limit: int, held: int) -> AllocationError:
    """Return the error with the largest tensors at the busiest command. ``held``: bytes of inputs and outputs."""
    _, alive = busiest(intervals)
    largest = ", ".join(f"{o.owner.name!r} ({o.used} bytes)" for o in alive[:3])
    left = f"inputs and outputs leave {limit}" if held else f"{limit} are allowed"
    text = f"tensors need {used} bytes of SRAM at a time, {left}; the largest are {largest}"
    return too_small(text, used + held, limit + held)


def _chunks(items: Sequence[PrefetchedConstant], largest: int, port: MemoryPort) -> list[Chunk]:
    """Divide ``items`` into chunks with the least overhead per byte: unused parts of bursts, and time of the copy."""
    ends = [0, *accumulate(item.buffer.size for item in items)]
    start, found = 0, list[Chunk]()
    share = SHARE if largest == LARGEST_CHUNK else SHORT_SHARE
    while start < len(items):
        limit = min(largest, max(SMALLEST_CHUNK, share * min(ends[start], ends[-1] - ends[start])))
        best, least = start + 1, math.inf
        for end in range(start + 1, len(items) + 1):
            size = ends[end] - ends[start]
            if end > start + 1 and (items[start].required or items[end - 1].required or size > limit):
                break
            waste = (-size % port.burst_bytes + COPY_CYCLES * port.bytes_per_cycle) / size
            best, least = (end, waste) if waste <= least else (best, least)
        found.append(Chunk(list(items[start:best])))
        start = best
    return found


Reads = dict[int, list[Buffer]]
"""Constants that commands read, by command index."""


def _reads(commands: Sequence[Command]) -> Reads:
    found: Reads = {}
    for index, item in enumerate(commands):
        for name in item.immediates.spec.memory_names:
            place = item.places.get(name)
            if place is not None and place[0].space is Space.CONSTANTS:
                found.setdefault(index, []).append(place[0])
    return found


def _items(commands: Sequence[Command], reads: Reads, burst: int) -> list[PrefetchedConstant]:
    uses: dict[Buffer, list[int]] = {}
    layer_end = {item.layer: index for index, item in enumerate(commands)}
    required: set[Buffer] = set()
    for index, constants in reads.items():
        read = commands[index]
        required.update(
            b for name, (b, _) in read.places.items() if b in constants and read.immediates.spec[name].in_sram
        )
        for buffer in constants:
            uses.setdefault(buffer, []).append(index)
    found: list[PrefetchedConstant] = []
    needed = len(commands)
    in_order = sorted(uses.items(), key=lambda item: min(layer_end[commands[index].layer] for index in item[1]))
    for buffer, indices in in_order[::-1]:
        if buffer.size < sum(_read_bytes(commands[index], buffer, burst) for index in indices) or buffer in required:
            needed = min(needed, indices[0])
            settled = layer_end[commands[indices[-1]].layer]
            found.append(PrefetchedConstant(buffer, needed, indices[-1], settled, buffer in required))
    return found[::-1]


def _read_bytes(read: Command, buffer: Buffer, burst: int) -> float:
    """Return the off-chip bytes of ``buffer`` that a row-picking ``read`` moves, or infinity for other commands."""
    for area in read.immediates.effects.reads:
        if area.picked is not None and read.places[area.field][0] is buffer:
            return cost.picked_bytes(*area.picked, burst)
    return math.inf


def _place(
    chunks: Sequence[Chunk],
    tensors: Sequence[Interval[Buffer]],
    limits: tuple[int, int],
    held_bytes: int,
    alignment: int,
) -> list[Chunk]:
    """Return the chunks that have room, with addresses and the earliest position at which the SRAM is free.

    The SRAM stays free from this position until the last use. A chunk without room is split. A single constant without
    room stays off-chip. ``limits``: arena bytes for optional chunks, and for required chunks.
    """
    sram_bytes = limits[1]
    taken = [(i.start, end_of(i), i.first, i.last) for i in tensors]
    taken.sort()
    start = pruned = 0
    placed: list[Chunk] = []
    waiting = list(reversed(chunks))
    while waiting:
        chunk = waiting.pop()
        size = -(-chunk.size // alignment) * alignment
        if size * CHUNKS_AT_A_TIME > limits[0] and len(chunk.items) == 1 and not chunk.required:
            continue  # while it is read, there is too little room for other chunks to arrive
        if start > pruned:  # copies are in order: ranges that end before ``start`` affect no later copy
            taken, pruned = [t for t in taken if t[3] >= start], start
        wanted = product(limits if chunk.required else limits[:1], (chunk.settled, chunk.last_use))
        for limit, last in wanted:
            found = _earliest_gap(taken, start, chunk.first_use, last, size, limit)
            if found is not None:
                break
        else:
            if len(chunk.items) > 1:
                waiting += reversed(chunk.halves())
            elif chunk.required:
                beyond = max((end for _, end, _, _ in taken), default=0) + size
                text = (
                    f"constant {chunk.items[0].buffer.name!r} of {chunk.size} bytes finds no room in {sram_bytes} bytes"
                )
                raise too_small(text, beyond + held_bytes, sram_bytes + held_bytes)
            continue
        start, address = found
        chunk.earliest, chunk.held_until, chunk.address = start, last, address
        placed.append(chunk)
        insort(taken, (address, address + size, start, last))
    return placed


def _earliest_gap(
    taken: Sequence[tuple[int, int, int, int]], start: int, first_use: int, last_use: int, size: int, limit: int
) -> tuple[int, int] | None:
    """Return the earliest (position, address) with ``size`` bytes free until ``last_use``, or None.

    Positions before ``start`` are excluded.
    """
    relevant = [(s, e, last) for s, e, first, last in taken if first <= last_use and last >= start]

    def gap(position: int) -> int:
        return lowest_gap([(first, end) for first, end, last in relevant if last >= position], size)

    candidates = sorted({start, *(last + 1 for _, _, last in relevant if last < first_use)})
    # later positions conflict with fewer buffers
    first = bisect_left(candidates, True, key=lambda position: gap(position) + size <= limit)
    return (candidates[first], gap(candidates[first])) if first < len(candidates) else None


class _Schedule:
    """Chunks in order, the positions of copies, and estimated times of copies and commands."""

    def __init__(self, chunks: list[Chunk], target: Target) -> None:
        self.chunks, self.target, self.timeline = chunks, target, EstimatedTimeline(target)
        self.homes = {item.buffer: chunk for chunk in chunks for item in chunk.items}
        self.arrival: dict[Chunk, float] = {}
        self._few, self._many = (int(target.fetch.queue_depth * part) for part in (FEW_COPIES, MANY_COPIES))
        self.starts: list[float] = []
        self.positions: list[int] = []
        self._filling = False

    @property
    def end(self) -> float:
        return max(self.timeline.finish, default=0.0)

    def visit(self, index: int, command: Command, before: Latest, constants: Sequence[Buffer]) -> None:
        self._issue_until(index)
        ready = max((self.arrival[self.homes[buffer]] for buffer in constants if buffer in self.homes), default=0.0)
        self.timeline.visit(command, before, ready, offchip=any(buffer not in self.homes for buffer in constants))

    def _issue_until(self, index: int) -> None:
        port, timeline = self.target.offchip, self.timeline
        while len(self.starts) < len(self.chunks):
            chunk = self.chunks[len(self.starts)]
            waiting = len(self.starts) - bisect_right(self.starts, timeline.fetched)
            self._filling = waiting < (self._many if self._filling else self._few)
            if chunk.earliest > index or (not self._filling and chunk.first_use > index):
                return
            freed = timeline.finish[chunk.earliest - 1] if chunk.earliest else 0.0
            start = max(timeline.fetched, timeline.offchip_free, freed)
            self.starts.append(start)
            self.positions.append(index)
            timeline.offchip_free = start + chunk.size / port.bytes_per_cycle
            timeline.port_free += chunk.size / self.target.sram.bytes_per_cycle
            self.arrival[chunk] = timeline.offchip_free + port.read_latency_cycles


def _live(schedule: _Schedule, alignment: int) -> list[Interval[Chunk]]:
    done = list(accumulate(schedule.timeline.finish, max))
    return [
        Interval(chunk, chunk.size, min(bisect_right(done, start), position), chunk.settled, alignment)
        for chunk, position, start in zip(schedule.chunks, schedule.positions, schedule.starts, strict=True)
    ]


TRANSFERS = frozenset({Queue.LOAD, Queue.STORE, Queue.WEIGHT})


class EstimatedTimeline:
    """Estimated start and end of commands, visited in program order."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.offchip_free = 0.0  # the end of all transfers on the off-chip port
        self.finish: list[float] = []
        self._queue_free = dict.fromkeys(Queue, 0.0)
        self._waiting: dict[Queue, deque[float]] = {queue: deque() for queue in Queue}
        self.port_free = 0.0
        self._known: dict[int, float] = {}  # by the id of the immediates, which commands share
        self._fetch = target.fetch
        self.fetched = 0.0  # when the latest command was issued

    def visit(self, command: Command, before: Latest, ready: float = 0.0, *, offchip: bool = False) -> None:
        """Add a command that depends on ``before`` and starts no earlier than ``ready``.

        ``offchip``: whether the command reads constants in off-chip memory.
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
        latency = 0
        if offchip:
            moved = read_bytes(command.immediates, target.offchip.burst_bytes) / target.offchip.bytes_per_cycle
            end = self.offchip_free = max(start + target.offchip.read_latency_cycles, self.offchip_free) + moved
        elif queue in TRANSFERS:
            moved = self._cycles(transfer_cycles, command.immediates)
            end = max(start + target.sram.read_latency_cycles, self.port_free) + moved
            # A transfer that waits leaves the port to transfers of other queues.
            self.port_free = min(end, max(self.port_free, self.fetched) + moved)
            latency = target.sram.read_latency_cycles
        else:
            end = start + self._cycles(_compute_cycles, command.immediates)
        # The latency of a transfer overlaps with the transfer before it.
        self._queue_free[queue] = end - latency
        finish.append(end)

    def _cycles(self, of: Callable[[Target, Immediates], float], immediates: Immediates) -> float:
        found = self._known.get(id(immediates))
        if found is None:
            found = self._known[id(immediates)] = of(self.target, immediates)
        return found


def transfer_cycles(target: Target, immediates: Immediates) -> float:
    """Return the cycles of a transfer on the SRAM port or, if it is slower, in the weight decoder."""
    v, mnemonic = immediates.values, immediates.mnemonic
    burst, width = target.sram.burst_bytes, target.sram.bytes_per_cycle
    reads, writes = immediates.effects
    if mnemonic in ("load", "store"):
        (area,) = reads if mnemonic == "load" else writes
        return cost.transfer_bytes(area.runs or Runs(area.size), burst) / width
    size = read_bytes(immediates, burst)
    if mnemonic in ("gather", "scatter"):
        size += v["count"] * v.get("taken", 1) * v["row_bytes"]  # rows are written to SRAM, too, not to a local memory
    if mnemonic not in ("wload", "mload"):
        return cost.transfer_bytes(Runs(size), burst) / width
    runs = reads[0].runs  # not None for a matrix of computed codes
    moved = (size if runs is None else cost.transfer_bytes(runs, burst)) / width
    decoded = immediates.spec.cost.evaluate(immediates.spec.words(v), target)["symbols"]
    return max(moved, float(decoded / target.decoder.symbols_per_cycle))


def read_bytes(immediates: Immediates, burst: int) -> int:
    """Return the bytes that a transfer reads. Picked rows count in whole bursts of ``burst`` bytes."""
    areas = immediates.effects.reads
    return sum(cost.picked_bytes(*area.picked, burst) if area.picked else area.size for area in areas)


def _compute_cycles(target: Target, immediates: Immediates) -> float:
    return immediates.spec.cost.alone(immediates.spec.words(immediates.values), target)
