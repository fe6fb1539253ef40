"""Commands of operations that only move codes: strided copies, and reads and updates of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import NamedTuple

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.isa.fields import Runs, Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.isa.table.transfers import POSITION_BYTES
from odc_mlir.targets import MemoryPort, Target
from odc_mlir.transforms.npu.schedule.cost import instruction_bytes, picked_bytes, step_cycles, transfer_bytes
from odc_mlir.transforms.npu.schedule.geometry import parts
from odc_mlir.transforms.npu.schedule.layers import Layer
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots, flat, loop_fields
from odc_mlir.transforms.npu.schedule.program import Command, command
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT

BUFFERS = 2
LARGEST_RUN = field_range("load", "size0")[1]
LARGEST_COUNT = field_range("load", "size1")[1]
_LARGEST_COPY = field_range("copy", "bytes")[1]
LEVELS = 3  # loops of one transfer, including the contiguous one
BURSTS = 64  # elements per run with good use of bursts
Loop = tuple[int, int, int]  # count, distance of writes, distance of reads
ROLLED_TRANSFERS = 12  # transfers of a copy in the program after loop rolling


class Transfer(NamedTuple):
    """One load or store: offsets of the first byte written and read, and loops. All in bytes.

    ``size`` bytes are contiguous on both sides. Each loop is (count, write stride, read stride). The second loop
    contains the first. ``source``: operand number of a load.
    """

    written: int
    read: int
    size: int
    loops: tuple[Loop, Loop]
    source: int = 0

    def fields(self, *, load: bool) -> dict[str, int]:
        """Return the size and stride fields of the instruction."""
        loops = ((count, read, written) if load else (count, written, read) for count, written, read in self.loops)
        return loop_fields(self.size, *loops)

    def runs(self, *, load: bool) -> Runs:
        """Return the runs in memory with adjacent runs merged, for costs."""
        (count1, *steps1), (count2, *steps2) = self.loops
        stride1, stride2 = (steps1[1], steps2[1]) if load else (steps1[0], steps2[0])
        size = self.size
        if stride1 == size:
            size, count1, stride1, count2, stride2 = size * count1, count2, stride2, 1, 0
        return Runs(size, count1, stride1 or size, count2, stride2 or count1 * stride1)


class CopyTile(NamedTuple):
    """Part of a move that is in the tile buffer at a time."""

    bytes: int
    loads: tuple[Transfer, ...]
    stores: tuple[Transfer, ...]


def move_tiles(copies: Sequence[StridedCopy], room: int, target: Target, item: int = 1) -> list[CopyTile]:
    """Divide ``copies`` into tiles of at most ``room`` bytes, in the way with the fewest estimated cycles.

    Short runs in memory cost whole bursts. A tile therefore also loads the codes between the runs, or holds whole rows
    of a result in which copies fill different columns.
    """
    ways = [[tile for copy in copies for tile in copy_tiles(copy, room, item)]]
    ways += (list(_joined_rows(copies, room // item, item, whole=whole)) for whole in (False, True))
    return min(filter(None, ways), key=lambda tiles: _estimate(tiles, target), default=[])


def _joined_rows(copies: Sequence[StridedCopy], room: int, item: int, *, whole: bool) -> Iterator[CopyTile]:
    """Yield tiles of whole result rows, if each copy fills other columns of the same rows. Otherwise yield nothing.

    Each copy is loaded to its columns, or with ``whole`` as one run with the codes between its columns. The tile then
    holds one source after another, and the store takes equally many columns of each.
    """
    pieces = [piece for piece in map(_columns, copies) if piece is not None]
    if len(pieces) < len(copies) or len({(rows, row) for rows, _, row, _ in pieces}) != 1:
        return
    rows, distance, row, width = pieces[0]
    differ = len({(step, columns) for _, step, _, columns in pieces}) > 1 or distance < width
    if (whole and differ) or [copy.to for copy in copies] + [row] != [0, *accumulate(piece[3] for piece in pieces)]:
        return
    size = distance * len(pieces) if whole else row
    most = min(room // size, LARGEST_RUN // (item * size), LARGEST_COUNT)
    for first, count in parts(rows, most) if most else ():
        loads: list[Transfer] = []
        for k, (copy, (_, step, _, columns)) in enumerate(zip(copies, pieces, strict=True)):
            run, to = (count - 1) * step + columns, k * count * step
            loops, to = ([(run, 1, 1)], to) if whole else ([(count, row, step), (columns, 1, 1)], copy.to)
            loads += _transfers(loops, item, to, copy.start + first * step, copy.source)
        taken = [(count, row, distance), (len(pieces), width, count * distance), (width, 1, 1)]
        stores = _transfers(taken if whole else [(count * row, 1, 1)], item, first * row)
        yield CopyTile(count * size * item, tuple(loads), tuple(stores))


def _columns(copy: StridedCopy) -> tuple[int, int, int, int] | None:
    """Return (rows, source distance, result distance, columns) of a copy of part of each row, or None."""
    loops = list(zip(copy.sizes, copy.reads, copy.writes, strict=True))
    columns = loops.pop()[0] if loops[-1][1:] == (1, 1) else 1
    return (*loops[0], columns) if len(loops) == 1 and min(loops[0]) > 0 else None


def copy_tiles(copy: StridedCopy, room: int, item: int = 1) -> Iterator[CopyTile]:
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
        start, to = (begin + sum(first[i] * axes[i][k] for i in first) for k, begin in ((1, copy.start), (2, copy.to)))
        reads = [(count, tile, read) for count, (_, read, _), tile in loops if tile]
        yield CopyTile(
            taken * item,
            tuple(_transfers(reads, item, 0, start, copy.source)),
            tuple(_transfers([(count, write, tile) for count, (_, _, write), tile in loops], item, to)),
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


def _transfers(loops: Sequence[Loop], item: int, to: int = 0, start: int = 0, source: int = 0) -> Iterator[Transfer]:
    """Yield transfers to ``to`` that perform ``loops`` of (count, write stride, read stride), in elements."""
    ordered = sorted((loop for loop in loops if loop[0] > 1), key=lambda loop: abs(loop[1]))
    size = 1
    if ordered and ordered[0][1:] == (1, 1):
        size = ordered.pop(0)[0]
    inner, outer = list[Loop](), list[Loop]()
    extent = size
    for loop in ordered:
        count, written, read = loop
        fits = len(inner) < LEVELS - 1 and written >= extent and read >= 0
        (inner if fits else outer).append(loop)
        if fits:
            extent = written * (count - 1) + extent
    levels = [*inner, *[(1, extent, 0)] * (LEVELS - 1 - len(inner))]
    for steps in product(*(range(count) for count, _, _ in outer)):
        written = to + sum(step * loop[1] for step, loop in zip(steps, outer, strict=True))
        read = start + sum(step * loop[2] for step, loop in zip(steps, outer, strict=True))
        inner1, inner2 = ((count, w * item, r * item) for count, w, r in levels)
        yield Transfer(written * item, read * item, size * item, (inner1, inner2), source)


def move_cycles(
    copies: Sequence[StridedCopy], filled: int, room: int, target: Target, item: int = 1
) -> tuple[float, float]:
    """Return (cycles, program bytes) of moving ``copies`` through ``room`` bytes after filling ``filled`` bytes.

    ``item``: bytes of an element.
    """
    fills = -(-filled // max(1, min(room, LARGEST_RUN)))
    cycles, count = _estimate(move_tiles(copies, tile_room(room), target, item), target, filled, fills)
    return cycles, instruction_bytes("load") * min(count, ROLLED_TRANSFERS * len(copies))


def _estimate(tiles: Sequence[CopyTile], target: Target, moved: float = 0, count: int = 0) -> tuple[float, int]:
    """Return (cycles, transfers) of ``tiles`` after ``count`` transfers of ``moved`` bytes."""
    burst, latency, previous = target.sram.burst_bytes, target.sram.read_latency_cycles, None
    for tile in tiles:
        loads = tile.loads if tile.loads != previous else ()
        previous = tile.loads
        moved += sum(transfer_bytes(item.runs(load=True), burst) for item in loads)
        moved += sum(transfer_bytes(item.runs(load=False), burst) for item in tile.stores)
        count += len(loads) + len(tile.stores)
    needed = moved / target.sram.bytes_per_cycle
    return max(needed, (needed + count * latency) / target.dma.descriptors_in_flight) + 2 * latency, count


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
    tiles = move_tiles(copies, room, memories.target, item_bytes)
    most = max((tile.bytes for tile in tiles), default=0)
    total = layer.result.elements * item_bytes
    filled = min(room // item_bytes * item_bytes, total) if fill is not None else 0
    slots = memories.take(Space.TILE, [Slot("moved", (max(most, filled) // item_bytes,), layer.result.type)] * BUFFERS)
    if fill is not None:
        slot = slots[0]
        yield command("fill", target=(slot, 0), bytes=filled, value=fill, type=layer.result.type)
        for start, size in parts(total, min(filled, LARGEST_RUN)):
            yield flat("store", layer.result.at(start), (slot, 0), size)
    turns = Slots(slots)
    for tile in tiles:
        slot, empty = turns.get(tile.loads)
        for item in tile.loads if empty else ():
            place = layer.sources[item.source].at(item.read)
            yield command("load", source=place, target=(slot, item.written), **item.fields(load=True))
        for item in tile.stores:
            place = layer.result.at(item.written)
            yield command("store", target=place, source=(slot, item.read), **item.fields(load=False))


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
