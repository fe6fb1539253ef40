"""Commands of operations on indices: the largest code of each row, a number as a position, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.targets import MemoryPort, Target
from odc_mlir.transforms.npu.schedule import cost
from odc_mlir.transforms.npu.schedule.geometry import parts
from odc_mlir.transforms.npu.schedule.layers import Layer
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots
from odc_mlir.transforms.npu.schedule.program import Command, Place, command
from odc_mlir.transforms.npu.schedule.transfers import flat_load, flat_store
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice
from odc_mlir.transforms.npu.schedule.window_tiling import aligned

BUFFERS = 2  # slots of rows and of results
_WORD = 4  # bytes of a result; one of 64 bits is two of them, the upper one 0
_MOST_ROWS = field_range("reduce", "width")[1]


def argmax_rows(rows: int, row_bytes: int, number: int, room: int) -> tuple[int, int]:
    """Return (rows of a tile, slots) with ``room`` bytes of the tile buffer; raise CompileError if a row does not fit.

    ``row_bytes``: 0 if the rows are resident; ``number``: bytes of a result.
    """
    each, least = row_bytes + number + (_WORD if number > _WORD else 0), aligned(row_bytes) + 2 * aligned(2 * _WORD)
    buffers = BUFFERS if BUFFERS * least <= room else 1
    if buffers * least > room:
        raise CompileError(f"rows of {row_bytes} bytes, the tile buffer has {room}")
    most = max(1, min(rows, _MOST_ROWS, (room // buffers - least + row_bytes) // each))
    return -(-rows // -(-rows // most)), buffers


def argmax_commands(layer: Layer[npu.ArgMaxOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands, some rows at a time; raise CompileError if a row does not fit in the tile buffer."""
    columns, item, number = layer.source.shape[-1], layer.source.item_bytes, npu.item_bytes(layer.op.output)
    rows, row_bytes, words = layer.source.elements // columns, columns * item, number // _WORD
    stays = layer.source.layout is not None
    most, buffers = argmax_rows(rows, 0 if stays else row_bytes, number, memories.tile_room)
    slot = Slot("rows", (most, columns), layer.source.type)
    inputs = Slots(memories.take(Space.TILE, [] if stays else [slot] * buffers))
    results = Slots(memories.take(Space.TILE, [Slot("output", (most * words,), "i32")] * buffers))
    halves = memories.take(Space.TILE, [Slot("places", (most,), "i32")] * (buffers if words > 1 else 0))
    lower = Slots(halves) if halves else results
    for first, count in parts(rows, most):
        output = results.take()
        found = output if words == 1 else lower.take()
        source: Place = (layer.source.buffer, first * row_bytes) if stays else (inputs.take(), 0)
        if not stays:
            yield flat_load(layer.source.at(first * row_bytes), source, count * row_bytes)
        yield command(
            "reduce",
            kind="argmax",
            init="zero",
            emit=1,
            in_type=layer.source.type,
            out_type="i32",
            input=source,
            in_stride_x=row_bytes,
            in_stride_y=count * row_bytes,
            width=count,
            height=1,
            channels=columns,
            output=(found, 0),
        )
        if words > 1:
            yield command("fill", target=(output, 0), bytes=count * number, value=0, type="i32")
            yield command(
                "vop",
                kind="copy",
                a_type="i32",
                b_type="i32",
                out_type="i32",
                size0=1,
                size1=count,
                size2=1,
                a=(found, 0),
                a_stride0=1,
                a_stride1=_WORD,
                output=(output, 0),
                out_stride1=number,
            )
        yield flat_store(layer.result.at(first * number), (output, 0), count * number)


def position_commands(layer: Layer[npu.PositionOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands that clamp one number to a code."""
    source, result = memories.take(Space.TILE, [Slot("number", (1,), "i32"), Slot("position", (1,), "i16")])
    yield flat_load(layer.source.at(layer.op.index.value.data * _WORD), (source, 0), _WORD)
    yield command(
        "vop",
        kind="min",
        a_type="i32",
        b_type="i32",
        out_type="i16",
        size0=1,
        size1=1,
        size2=1,
        a=(source, 0),
        a_stride0=1,
        b=(source, 0),
        b_stride0=1,
        output=(result, 0),
        act_min=0,
        act_max=layer.op.highest.value.data,
    )
    yield flat_store(layer.result.at(0), (result, 0), layer.result.item_bytes)


_WIDE_BYTES = 8  # of a number of 64 bits


def gather_commands(layer: Layer[npu.GatherOp]) -> Iterator[Command]:
    """Yield one command for each table, for all rows in its list of indices."""
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
            wide=int(number == _WIDE_BYTES),
        )


def gathered_bytes(op: npu.GatherOp, port: MemoryPort) -> int:
    """Return the bytes of tables that cross ``port``, at most all of them, which are then copied as a whole."""
    batches, tables, _, _ = npu.shape_of(op.table)
    count = batches * tables * npu.shape_of(op.indices)[1]
    return min(npu.size_bytes(op.table), cost.picked_bytes(count, op.row_bytes, port.burst_bytes))


def gather_choice(op: npu.GatherOp, target: Target) -> TilingChoice:
    """Return the only choice, with its cost if the tables lie in SRAM."""
    batches, tables, _, _ = npu.shape_of(op.table)
    commands, sram = batches * tables, target.sram
    moved = gathered_bytes(op, sram) + npu.size_bytes(op.indices) * tables + npu.size_bytes(op.output)
    latency = 2 * sram.read_latency_cycles + sram.write_latency_cycles
    cycles = latency + max(moved / sram.bytes_per_cycle, commands * npu.shape_of(op.indices)[1])
    return TilingChoice(
        None, cycles + commands * cost.step_cycles(target) / 2, commands * cost.instruction_bytes("gather")
    )
