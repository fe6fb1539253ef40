"""Constants on their way from off-chip memory to SRAM.

Constants are merged into chunks in the order of their first use. Each chunk is copied to SRAM by one large transfer, as
early as SRAM has room for it until its last use: for a fixed order, that keeps the off-chip port busy for as long as
any schedule could. Copies enter the program where an estimated timeline says that the copy queue has room, so that
waiting copies never stop the instruction fetch.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from odc_mlir.errors import AllocationError
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate, live_intervals, lowest_gap
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Space, command
from odc_mlir.transforms.npu.schedule.timeline import Timeline

SMALLEST_CHUNK = 512
LARGEST_CHUNK = 16_384
GROWTH = 4  # a chunk is at most 1/GROWTH of what comes before it and after it: layers start early and end early
SPILL = 4  # what is smaller than 1/SPILL of a chunk joins it even so: a chunk of its own would waste part of a burst
FEW_COPIES, MANY_COPIES = 0.25, 0.625  # of the copy queue's depth: when a batch starts and ends


@dataclass(eq=False, slots=True)
class Chunk:
    """Constants that are copied together, and the commands that read them."""

    items: list[Buffer] = field(default_factory=list)
    size: int = 0
    first_use: int = 0
    last_use: int = 0
    settled: int = 0  # end of the layers that use it: reusing its SRAM earlier would make later layers wait for it
    required: bool = False  # read by a load, which cannot reach off-chip memory
    earliest: int = 0  # program position from which on its SRAM is free
    source: Buffer | None = None
    target: Buffer | None = None


def stage_constants(commands: Sequence[Command], target: Target, sram_bytes: int, held_bytes: int = 0) -> list[Command]:
    """``commands`` with copies of constants to SRAM; ``sram_bytes``: size of the arena they may use.

    ``held_bytes`` of inputs and outputs lie beside it.

    Everything in the arena gets its address here, because free room at each time decides what can be copied when.
    Constants for which SRAM has no room stay off-chip and are read from there; AllocationError where that is
    impossible or the tensors alone exceed the arena.
    """
    intervals = live_intervals(commands, target.sram.burst_bytes)
    used = allocate(intervals)
    if used > sram_bytes:
        raise arena_too_small(intervals, used, sram_bytes, held_bytes)
    chunks = _chunks(commands)
    _place(chunks, intervals, sram_bytes, held_bytes, target.sram.burst_bytes)
    copied = [chunk for chunk in chunks if chunk.target is not None]
    result, live = _insert_copies(commands, copied, target)
    _place_again([*intervals, *live])
    return result


def too_small(message: str, needed_bytes: int, allowed_bytes: int) -> AllocationError:
    """The error of SRAM that does not do; both amounts are with inputs and outputs."""
    error = AllocationError(message, hint=f"raise the SRAM limit (--sram-limit) to {needed_bytes} bytes")
    error.needed_bytes, error.allowed_bytes = needed_bytes, allowed_bytes
    return error


def arena_too_small(intervals: Sequence[Interval], used: int, limit: int, held: int) -> AllocationError:
    """The error that names the largest tensors at the busiest time; ``held`` bytes are of inputs and outputs."""
    busiest = max(intervals, key=lambda i: sum(o.size for o in intervals if o.first <= i.first <= o.last))
    alive = sorted((o for o in intervals if o.first <= busiest.first <= o.last), key=lambda o: -o.size)
    largest = ", ".join(f"{o.buffer.name!r} ({o.buffer.size} bytes)" for o in alive[:3])
    text = f"tensors need {used} bytes of SRAM at a time, inputs and outputs leave {limit}; the largest are {largest}"
    return too_small(text, used + held, limit + held)


def _chunks(commands: Sequence[Command]) -> list[Chunk]:
    """Constants merged in order of first use."""
    uses: dict[Buffer, list[int]] = {}
    layer_end = {item.layer: index for index, item in enumerate(commands)}
    required: set[Buffer] = set()
    for index, item in enumerate(commands):
        for buffer, _ in item.places.values():
            if buffer.space is Space.CONSTANTS:
                uses.setdefault(buffer, []).append(index)
                if item.mnemonic == "load":
                    required.add(buffer)
    chunks: list[Chunk] = []
    total, left = 0, sum(buffer.size for buffer in uses)
    for buffer, indices in uses.items():
        limit = min(LARGEST_CHUNK, max(SMALLEST_CHUNK, min(total, left) // GROWTH))
        chunk = chunks[-1] if chunks else None
        room = limit - (chunk.size if chunk is not None else 0)
        fits = buffer.size <= max(room, limit // SPILL)
        if chunk is None or not fits or chunk.required or buffer in required:
            chunk = Chunk(first_use=indices[0])
            chunks.append(chunk)
        chunk.items.append(buffer)
        chunk.size += buffer.size
        chunk.last_use = max(chunk.last_use, indices[-1])
        chunk.settled = max(chunk.settled, layer_end[commands[indices[-1]].layer])
        chunk.required |= buffer in required
        total += buffer.size
        left -= buffer.size
    return chunks


def _place(
    chunks: Sequence[Chunk], tensors: Sequence[Interval], sram_bytes: int, held_bytes: int, alignment: int
) -> None:
    """Give chunks a buffer and the earliest program position from which their SRAM is free until their last use."""
    taken = [(i.buffer.address or 0, (i.buffer.address or 0) + i.size, i.first, i.last) for i in tensors]
    taken.sort()
    start = 0
    for chunk in chunks:
        size = -(-chunk.size // alignment) * alignment
        for last in (chunk.settled, chunk.last_use):
            found = _earliest_gap(taken, start, chunk.first_use, last, size, sram_bytes)
            if found is not None:
                break
        else:
            if chunk.required:
                beyond = max((end for _, end, _, _ in taken), default=0) + size
                text = f"constant {chunk.items[0].name!r} of {chunk.size} bytes finds no room in {sram_bytes} bytes"
                raise too_small(text, beyond + held_bytes, sram_bytes + held_bytes)
            continue
        start, address = found
        chunk.earliest = start
        chunk.target = Buffer("staged", Space.ARENA, chunk.size, address)
        insort(taken, (address, address + size, start, last))


def _earliest_gap(
    taken: Sequence[tuple[int, int, int, int]], start: int, first_use: int, last_use: int, size: int, limit: int
) -> tuple[int, int] | None:
    """(position, address): from ``start`` on, the earliest at which ``size`` bytes are free until ``last_use``."""
    relevant = [t for t in taken if t[3] >= start and t[2] <= last_use]

    def gap(position: int) -> int:
        return lowest_gap([(s, e) for s, e, _, last in relevant if last >= position], size)

    candidates = sorted({start} | {t[3] + 1 for t in relevant if t[3] < first_use})
    low, high = 0, len(candidates)
    while low < high:  # later positions conflict with fewer buffers
        middle = (low + high) // 2
        if gap(candidates[middle]) + size <= limit:
            high = middle
        else:
            low = middle + 1
    return (candidates[low], gap(candidates[low])) if low < len(candidates) else None


class _CopyQueue:
    """The copies of chunks in order, and estimates of when they run."""

    def __init__(self, chunks: Sequence[Chunk], target: Target, timeline: Timeline) -> None:
        self.chunks, self.target, self.timeline = chunks, target, timeline
        self.arrival: dict[Chunk, float] = {}
        self._few, self._many = (int(target.fetch.queue_depth * part) for part in (FEW_COPIES, MANY_COPIES))
        self.starts: list[float] = []
        self.positions: list[int] = []
        self._port_free = 0.0
        self._filling = False

    def take(self, index: int) -> Iterator[Chunk]:
        """The chunks whose copies stand before command ``index``."""
        while len(self.starts) < len(self.chunks):
            chunk = self.chunks[len(self.starts)]
            waiting = len(self.starts) - bisect_right(self.starts, self.timeline.fetched)
            self._filling = waiting < (self._many if self._filling else self._few)
            if chunk.earliest > index or (not self._filling and chunk.first_use > index):
                return
            self._issue(chunk)
            self.positions.append(index)
            yield chunk

    def _issue(self, chunk: Chunk) -> None:
        port = self.target.offchip
        freed = self.timeline.finish[chunk.earliest - 1] if chunk.earliest else 0.0
        start = max(self.timeline.fetched, self._port_free, freed)
        self.starts.append(start)
        self._port_free = start + chunk.size / port.bytes_per_cycle
        self.arrival[chunk] = self._port_free + port.read_latency_cycles


def _insert_copies(
    commands: Sequence[Command], chunks: Sequence[Chunk], target: Target
) -> tuple[list[Command], list[Interval]]:
    """The program with a copy per chunk and commands reading the copies, and when the copies' SRAM is in use.

    That is from the first command that may still run when the copy starts, in positions of ``commands``.
    """
    homes: dict[Buffer, tuple[Chunk, int]] = {}
    for chunk in chunks:
        offset = 0
        for constant in chunk.items:
            homes[constant] = (chunk, offset)
            offset += constant.size
    timeline = Timeline(target)
    queue = _CopyQueue(chunks, target, timeline)
    result: list[Command] = []
    for index, (item, before) in enumerate(zip(commands, dependences(commands), strict=True)):
        result += (_copy(chunk, commands[chunk.first_use].layer) for chunk in queue.take(index))
        needed = [queue.arrival[homes[buffer][0]] for buffer, _ in item.places.values() if buffer in homes]
        timeline.visit(item, before, max(needed, default=0.0))
        result.append(_redirected(item, homes))
    done = list(accumulate(timeline.finish, max))
    live = [
        Interval(chunk.target, min(bisect_right(done, start), position), chunk.settled, target.sram.burst_bytes)
        for chunk, start, position in zip(chunks, queue.starts, queue.positions, strict=True)
        if chunk.target is not None
    ]
    return result, live


def _place_again(intervals: Sequence[Interval]) -> None:
    """Pack everything tighter, now that the time of every copy is known; keep the old addresses where that fails."""
    planned = [interval.buffer.address for interval in intervals]
    used = max(((interval.buffer.address or 0) + interval.size for interval in intervals), default=0)
    for interval in intervals:
        interval.buffer.address = None
    if allocate(intervals) > used:
        for interval, address in zip(intervals, planned, strict=True):
            interval.buffer.address = address


def _copy(chunk: Chunk, layer: int) -> Command:
    data = b"".join(item.data or b"" for item in chunk.items)
    chunk.source = Buffer(chunk.items[0].name, Space.CONSTANTS, len(data), data=data)
    assert chunk.target is not None, "only placed chunks are copied"
    return command("copy", layer, source=(chunk.source, 0), target=(chunk.target, 0), bytes=len(data))


def _redirected(item: Command, homes: dict[Buffer, tuple[Chunk, int]]) -> Command:
    """``item`` reading staged constants."""
    for name, (buffer, offset) in item.places.items():
        if buffer in homes:
            chunk, base = homes[buffer]
            assert chunk.target is not None, "only placed chunks have a home"
            item.places[name] = (chunk.target, base + offset)
    return item
