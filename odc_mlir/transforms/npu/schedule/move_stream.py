"""Commands of operations that only move codes: strided copies, and reads and updates of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.isa.fields import Runs, Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.isa.table.transfers import POSITION_BYTES
from odc_mlir.targets import MemoryPort, Target
from odc_mlir.transforms.npu.schedule.cost import (
    instruction_bytes,
    picked_bytes,
    step_cycles,
    transfer_bytes,
)
from odc_mlir.transforms.npu.schedule.geometry import parts
from odc_mlir.transforms.npu.schedule.layers import Layer
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots, flat
from odc_mlir.transforms.npu.schedule.program import Command, command
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT

BUFFERS = 2
LARGEST_RUN = field_range("load", "size0")[1]
LARGEST_COUNT = field_range("load", "size1")[1]
_LARGEST_COPY = field_range("copy", "bytes")[1]
LEVELS = 3  # loops of one transfer, including the contiguous one
BURSTS = 64  # elements per run with good use of bursts
ROLLED_TRANSFERS = 12  # transfers of a copy in the program after loop rolling


class Transfer(NamedTuple):
    """One load or store: write and read offsets from the start of a tile, and loops. All in bytes.

    ``size`` bytes are contiguous on both sides. Each loop is (count, write stride, read stride). The second loop
    contains the first.
    """

    written: int
    read: int
    size: int
    loops: tuple[tuple[int, int, int], tuple[int, int, int]]

    def fields(self, *, load: bool) -> dict[str, int]:
        """Return the size and stride fields of the instruction."""
        (count1, *steps1), (count2, *steps2) = self.loops
        tile, memory = (0, 1) if load else (1, 0)
        return {
            "size0": self.size,
            "size1": count1,
            "size2": count2,
            "memory_stride1": steps1[memory],
            "memory_stride2": steps2[memory],
            "tile_stride1": steps1[tile],
            "tile_stride2": steps2[tile],
        }

    def runs(self, *, load: bool) -> Runs:
        """Return the runs in memory with adjacent runs merged, for costs."""
        (count1, *steps1), (count2, *steps2) = self.loops
        stride1, stride2 = (steps1[1], steps2[1]) if load else (steps1[0], steps2[0])
        size = self.size
        if stride1 == size:
            size, count1, stride1, count2, stride2 = size * count1, count2, stride2, 1, 0
        return Runs(size, count1, stride1 or size, count2, stride2 or count1 * stride1)


class CopyTile(NamedTuple):
    """Part of a copy that is in the tile buffer at a time.

    ``source``: operand number. ``start``, ``to``: offsets in source and result.
    """

    source: int
    start: int
    to: int
    bytes: int
    loads: tuple[Transfer, ...]
    stores: tuple[Transfer, ...]


def tiles(copy: StridedCopy, room: int, item: int = 1) -> Iterator[CopyTile]:
    """Divide ``copy`` into tiles of at most ``room`` bytes.

    Tiles that read the same codes are adjacent. A tile holds codes of ``item`` bytes each, in the order of reading.
    """
    axes = sorted(zip(copy.sizes, copy.reads, copy.writes, strict=True), key=lambda loop: (abs(loop[2]), loop[1]))
    counts = _tile_counts(axes, room // item, LARGEST_RUN // item)
    order = sorted(range(len(axes)), key=lambda i: axes[i][1] == 0)  # loops that read the same codes again vary fastest
    for firsts in product(*(range(0, axes[i][0], counts[i]) for i in order)):
        first = dict(zip(order, firsts, strict=True))
        times = [min(counts[i], axes[i][0] - first[i]) for i in range(len(axes))]
        inside, taken = [0] * len(axes), 1
        for i in sorted(range(len(axes)), key=lambda i: abs(axes[i][1])):
            if axes[i][1]:
                inside[i] = taken
                taken *= times[i]
        loops = list(zip(times, axes, inside, strict=True))
        yield CopyTile(
            copy.source,
            (copy.start + sum(first[i] * axes[i][1] for i in first)) * item,
            (copy.to + sum(first[i] * axes[i][2] for i in first)) * item,
            taken * item,
            tuple(_transfers([(count, tile, read) for count, (_, read, _), tile in loops if tile], item)),
            tuple(_transfers([(count, write, tile) for count, (_, _, write), tile in loops], item)),
        )


def _tile_counts(axes: Sequence[tuple[int, int, int]], room: int, longest: int) -> list[int]:
    """Return the iterations of each loop in a tile. They fill whole bursts on both sides, then grow to the limit.

    ``room`` and the ``longest`` run of a transfer are in elements. A loop that reads the same codes again needs no
    room. A transfer has at most two loops in addition to the contiguous loop.
    """
    counts = [1] * len(axes)
    able = [i for i, (_, read, write) in enumerate(axes) if read >= 0 and write >= 0]
    runs = [i for i in able if axes[i][1:] == (1, 1)]

    def grow(index: int, most: int) -> None:
        size, read, _ = axes[index]
        used = sum(counts[i] > 1 for i in range(len(axes)) if i not in runs)
        if index not in runs and counts[index] == 1 and used == LEVELS - 1:
            return
        others = math.prod(count for i, count in enumerate(counts) if i != index and axes[i][1])
        limit = min(size, most, longest if index in runs else LARGEST_COUNT)
        counts[index] = max(counts[index], limit if read == 0 else min(limit, max(1, room // others)))

    by_read = sorted((i for i in able if axes[i][1]), key=lambda i: axes[i][1])
    for index in (*able[:1], *by_read[:1]):
        grow(index, BURSTS)
    for index in (*able[:1], *by_read[:1], *able):
        grow(index, LARGEST_RUN)
    return counts


def _transfers(loops: Sequence[tuple[int, int, int]], item: int) -> Iterator[Transfer]:
    """Yield transfers that perform ``loops`` of (count, write stride, read stride), in elements."""
    ordered = sorted((loop for loop in loops if loop[0] > 1), key=lambda loop: abs(loop[1]))
    size = 1
    if ordered and ordered[0][1:] == (1, 1):
        size = ordered.pop(0)[0]
    inner: list[tuple[int, int, int]] = []
    outer: list[tuple[int, int, int]] = []
    extent = size
    for loop in ordered:
        count, written, read = loop
        fits = len(inner) < LEVELS - 1 and written >= extent and read >= 0
        (inner if fits else outer).append(loop)
        if fits:
            extent = written * (count - 1) + extent
    levels = [*inner, *[(1, extent, 0)] * (LEVELS - 1 - len(inner))]
    for steps in product(*(range(count) for count, _, _ in outer)):
        written = sum(step * loop[1] for step, loop in zip(steps, outer, strict=True))
        read = sum(step * loop[2] for step, loop in zip(steps, outer, strict=True))
        inner1, inner2 = ((count, to * item, start * item) for count, to, start in levels)
        yield Transfer(written * item, read * item, size * item, (inner1, inner2))


def move_cycles(
    copies: Sequence[StridedCopy], filled: int, room: int, target: Target, item: int = 1
) -> tuple[float, float]:
    """Return (cycles, program bytes) of moving ``copies`` through ``room`` bytes after filling ``filled`` bytes.

    ``item``: bytes of an element.
    """
    burst, width = target.sram.burst_bytes, target.sram.bytes_per_cycle
    moved, count = float(filled), -(-filled // max(1, min(room, LARGEST_RUN)))
    for copy in copies:
        previous = None
        for tile in tiles(copy, tile_room(room), item):
            loads = tile.loads if (tile.start, tile.loads) != previous else ()
            previous = (tile.start, tile.loads)
            moved += sum(transfer_bytes(item.runs(load=True), burst) for item in loads)
            moved += sum(transfer_bytes(item.runs(load=False), burst) for item in tile.stores)
            count += len(loads) + len(tile.stores)
    latency = target.sram.read_latency_cycles
    cycles = max(moved / width, (moved / width + count * latency) / target.dma.descriptors_in_flight) + 2 * latency
    return cycles, instruction_bytes("load") * min(count, ROLLED_TRANSFERS * len(copies))


def tile_room(room: int) -> int:
    """Return the bytes of one of the slots that share ``room`` bytes of the tile buffer."""
    return max(room // BUFFERS // TILE_ALIGNMENT * TILE_ALIGNMENT, 1)


def _in_words(copy: StridedCopy, words: int) -> StridedCopy:
    """Return ``copy`` in words, for elements of ``words`` adjacent words each."""
    if words == 1:
        return copy
    reads, writes = ((*(step * words for step in steps), 1) for steps in (copy.reads, copy.writes))
    return StridedCopy(copy.source, copy.start * words, copy.to * words, (*copy.sizes, words), reads, writes)


def move_commands(layer: Layer[npu.MoveOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a move: the fill of elements without a source, then every copy."""
    room, item_bytes = tile_room(memories.tile_room), layer.result.item_bytes
    words = npu.item_bytes(layer.op.output) // item_bytes  # a 64-bit element has two words
    copies = [_in_words(copy, words) for copy in layer.op.strided_copies()]
    fill = None if layer.op.fill is None else layer.op.fill.value.data
    most = max((tile.bytes for copy in copies for tile in tiles(copy, room, item_bytes)), default=0)
    total = layer.result.elements * item_bytes
    filled = min(room // item_bytes * item_bytes, total) if fill is not None else 0
    slots = memories.take(Space.TILE, [Slot("moved", (max(most, filled) // item_bytes,), layer.result.type)] * BUFFERS)
    if fill is not None:
        slot = slots[0]
        yield command("fill", target=(slot, 0), bytes=filled, value=fill, type=layer.result.type)
        for start, size in parts(total, min(filled, LARGEST_RUN)):
            yield flat("store", layer.result.at(start), (slot, 0), size)
    turns = Slots(slots)
    for copy in copies:
        for tile in tiles(copy, room, item_bytes):
            slot, empty = turns.get((tile.source, tile.start, tile.loads))
            source = layer.sources[tile.source]
            for item in tile.loads if empty else ():
                place = source.at(tile.start + item.read)
                fields = item.fields(load=True)
                yield command("load", source=place, target=(slot, item.written), **fields)
            for item in tile.stores:
                place = layer.result.at(tile.to + item.written)
                fields = item.fields(load=False)
                yield command("store", target=place, source=(slot, item.read), **fields)


def gather_commands(layer: Layer[npu.GatherOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield one command per table. It gathers all rows in the table's list of indices."""
    table, indices = layer.sources
    batches, tables, rows, _ = table.shape
    count, row_bytes, number = indices.shape[1], layer.op.row_bytes, npu.item_bytes(layer.op.indices)
    for index in range(batches * tables):
        yield command(
            "gather",
            source=table.at(index * rows * row_bytes),
            indices=indices.at(index // tables * count * number),
            target=layer.result.at(index * count * row_bytes),
            count=count,
            rows=rows,
            row_bytes=row_bytes,
            wide=int(number == 8),
        )


def gathered_bytes(op: npu.GatherOp, port: MemoryPort) -> int:
    """Return the table bytes that cross ``port``: the gathered rows, or whole tables if they are smaller."""
    batches, tables, _, _ = npu.shape_of(op.table)
    count = batches * tables * npu.shape_of(op.indices)[1]
    return min(npu.size_bytes(op.table), picked_bytes(count, op.row_bytes, port.burst_bytes))


def gather_choice(op: npu.GatherOp, target: Target) -> TilingChoice:
    """Return the only tiling, with the cost of gathering from tables in SRAM."""
    batches, tables, _, _ = npu.shape_of(op.table)
    commands, sram = batches * tables, target.sram
    moved = gathered_bytes(op, sram) + npu.size_bytes(op.indices) * tables + npu.size_bytes(op.output)
    latency = 2 * sram.read_latency_cycles + sram.write_latency_cycles
    cycles = latency + max(moved / sram.bytes_per_cycle, commands * npu.shape_of(op.indices)[1])
    return TilingChoice(None, cycles + commands * step_cycles(target) / 2, commands * instruction_bytes("gather"))


def update_commands(layer: Layer[npu.UpdateOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield a copy of all tables and the update of rows. A later pass removes an unnecessary copy."""
    tables, rows, position = layer.sources
    count, size, _ = tables.shape
    for start, part in parts(npu.size_bytes(layer.op.output), _LARGEST_COPY):
        yield command("copy", source=tables.at(start), target=layer.result.at(start), bytes=part)
    number = position.at(layer.op.index.value.data * POSITION_BYTES)
    fields = {"count": count, "rows": size, "row_bytes": layer.op.row_bytes, "taken": rows.shape[1]}
    yield command("scatter", source=rows.at(0), position=number, target=layer.result.at(0), **fields)


def update_choice(op: npu.UpdateOp, target: Target) -> TilingChoice:
    """Return the only tiling, with the cost of copying all tables."""
    sram, moved = target.sram, 2 * npu.size_bytes(op.output) + 2 * npu.size_bytes(op.rows)
    cycles = 2 * (sram.read_latency_cycles + sram.write_latency_cycles) + moved / sram.bytes_per_cycle
    return TilingChoice(None, cycles + step_cycles(target), instruction_bytes("copy") + instruction_bytes("scatter"))
