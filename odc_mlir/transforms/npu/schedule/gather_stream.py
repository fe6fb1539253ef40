"""Commands that copy the rows of a table whose numbers are computed."""

from __future__ import annotations

from collections.abc import Iterator

from odc_mlir.dialects import npu
from odc_mlir.targets import MemoryPort, Target
from odc_mlir.transforms.npu.schedule import cost
from odc_mlir.transforms.npu.schedule.layers import Layer
from odc_mlir.transforms.npu.schedule.program import Command, command
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice

_WIDE_BYTES = 8  # of a number of 64 bits


def gather_commands(layer: Layer[npu.GatherOp]) -> Iterator[Command]:
    """One command for each table: all rows that its list of numbers asks for."""
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
    """Bytes of tables behind ``port`` that cross it, at most all of them: those are copied as a whole."""
    batches, tables, _, _ = npu.shape_of(op.table)
    count = batches * tables * npu.shape_of(op.indices)[1]
    return min(npu.size_bytes(op.table), cost.picked_bytes(count, op.row_bytes, port.burst_bytes))


def gather_choice(op: npu.GatherOp, target: Target) -> TilingChoice:
    """The only choice: what the commands cost where the tables lie in SRAM."""
    batches, tables, _, _ = npu.shape_of(op.table)
    commands, sram = batches * tables, target.sram
    moved = gathered_bytes(op, sram) + npu.size_bytes(op.indices) * tables + npu.size_bytes(op.output)
    latency = 2 * sram.read_latency_cycles + sram.write_latency_cycles
    cycles = latency + max(moved / sram.bytes_per_cycle, commands * npu.shape_of(op.indices)[1])
    return TilingChoice(
        None, cycles + commands * cost.step_cycles(target) / 2, commands * cost.instruction_bytes("gather")
    )
