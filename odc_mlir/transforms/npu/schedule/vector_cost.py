"""Estimates for operations that have one way to be cut: element-wise, reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import Operation

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule import cost, vector_stream
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.cost import instruction_bytes, instruction_cycles
from odc_mlir.transforms.npu.schedule.search_stream import argmax_rows
from odc_mlir.transforms.npu.schedule.window_search import ROLLED_TILES, TilingChoice
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT

SLOTS = 2  # of the tile buffer for each operand


class VectorWork(NamedTuple):
    """Work of an operation in ``tiles`` equal parts.

    Bytes loaded and stored, transfers of a tile, and ``cycles`` of one instruction. ``table_bytes``: bytes read before
    the first instruction.
    """

    tiles: int
    loaded: float
    stored: float
    transfers: int
    cycles: float
    table_bytes: int = 0


def vector_choice(mnemonic: str, work: VectorWork, target: Target) -> tuple[TilingChoice, ...]:
    """Return the only choice of an operation: loads, instructions and stores overlap, except at the ends."""
    port, issue = target.sram, target.fetch.issue_cycles + target.fetch.semaphore_cycles
    width, latency = port.bytes_per_cycle, port.read_latency_cycles
    moved = (work.loaded + work.stored) / width
    load, store = work.loaded / work.tiles / width, work.stored / work.tiles / width
    begin = load + latency if work.loaded else 0.0
    end = store + port.write_latency_cycles if work.stored else 0.0
    if work.table_bytes:
        begin = max(begin, latency) + work.table_bytes / width
    computing = work.tiles * (work.cycles + issue) + begin + end
    moving = moved + latency + max(0.0, work.cycles + end - 2 * store) if moved else 0.0
    turns = work.tiles * work.transfers * latency + moved
    # A tile is loaded into a slot once the result of the one before in it has been stored: there are two, and transfers
    # wait for one another in order.
    waiting = (turns + work.tiles * (work.cycles + issue)) / SLOTS + work.cycles if work.tiles > SLOTS else 0.0
    size = instruction_bytes(mnemonic) + work.transfers * instruction_bytes("load")
    return (TilingChoice(None, max(computing, moving, waiting), size * min(work.tiles, ROLLED_TILES)),)


def vector_choices(
    op: Operation, target: Target, room: int, sources: Sequence[bool], *, result: bool
) -> tuple[TilingChoice, ...]:
    """Return the choice of an element-wise operation, a reduction or a softmax.

    Raise CompileError if ``room`` bytes of the tile buffer are too few. ``sources``, ``result``: flags of resident
    operands and of a resident result.
    """
    loaded = [npu.size_bytes(value) for value, stays in zip(op.operands, sources, strict=True) if not stays]
    stored = [] if result else [npu.size_bytes(op.results[0])]
    transfers, least = len(loaded) + len(stored), 4 * TILE_ALIGNMENT * max(1, len(loaded) + len(stored))
    if isinstance(op, npu.SoftmaxOp):
        row = (math.prod(npu.shape_of(op.input)) if result or any(sources) else npu.shape_of(op.input)[-1]) * (
            npu.item_bytes(op.input)
        )
        least = row + TILE_ALIGNMENT if transfers else 0
    if transfers and room < min(least, target.local.tile_bytes):
        raise CompileError(f"{room} bytes of the tile buffer are too few")
    tiles, cycles, mnemonic = _instructions(op, target, room, sources, result=result)
    work = VectorWork(tiles, sum(loaded), sum(stored), transfers, cycles, stored_bytes(op))
    return vector_choice(mnemonic, work, target)


def _instructions(
    op: Operation, target: Target, room: int, sources: Sequence[bool], *, result: bool
) -> tuple[int, float, str]:
    """Return the number of instructions, the cycles of one, and its mnemonic."""
    shape, item = npu.shape_of(op.operands[0]), npu.item_bytes(op.operands[0])
    type_ = cost.code_type(item)
    if isinstance(op, npu.ReduceOp):
        channels, pixels = vector_stream.reduced_slice(shape, item, target, room, resident=sources[0])
        parts = 1 if sources[0] else -(-shape[1] * shape[2] // pixels)
        tiles = shape[0] * -(-shape[3] // channels) * parts
        elements = math.prod(shape) // tiles
        return (
            tiles,
            instruction_cycles("reduce", target, in_type=type_, height=1, width=elements, channels=1),
            "reduce",
        )
    if isinstance(op, npu.ArgMaxOp):
        rows = math.prod(shape) // shape[-1]
        row_bytes = 0 if sources[0] else shape[-1] * item
        tiles = -(-rows // argmax_rows(rows, row_bytes, npu.item_bytes(op.output), room)[0])
        elements = math.prod(shape) // tiles
        return (
            tiles,
            instruction_cycles("reduce", target, in_type=type_, height=1, width=elements, channels=1),
            "reduce",
        )
    if isinstance(op, npu.SoftmaxOp):
        columns = shape[-1]
        rows = math.prod(shape) // columns
        tiles = (
            1 if result or sources[0] else -(-rows // max(1, vector_stream.softmax_rows(rows, columns, item, room)[0]))
        )
        elements = rows * columns // tiles
        return tiles, instruction_cycles("softmax", target, in_type=type_, rows=1, columns=elements), "softmax"
    return (*_elementwise(op, target, room, sources, result=result), "vop")


def _elementwise(
    op: Operation, target: Target, room: int, sources: Sequence[bool], *, result: bool
) -> tuple[int, float]:
    shapes = [npu.shape_of(value) for value in op.operands]
    dims = vector_stream.merged_dims(npu.shape_of(op.results[0]), shapes[0], shapes[-1])
    values = zip((*op.operands, *op.results), (*sources, result), strict=True)
    moved = sum(npu.item_bytes(value) for value, stays in values if not stays)
    sizes = vector_stream.elementwise_sizes(dims, moved, room)
    tiles = math.prod(-(-size // step) for size, step in zip(dims.sizes, sizes, strict=True))
    elements = -(-math.prod(dims.sizes) // tiles)
    kind = "lut" if isinstance(op, npu.LutOp | npu.SigmoidOp) else "scale" if len(op.operands) == 1 else "add"
    a, b = (cost.code_type(npu.item_bytes(op.operands[index])) for index in (0, -1))
    fields = {"kind": kind, "a_type": a, "b_type": b, "a_stride0": 1, "b_stride0": 1}
    return tiles, instruction_cycles("vop", target, size0=elements, size1=1, size2=1, **fields)
