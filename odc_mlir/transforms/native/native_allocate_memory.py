"""``native-allocate-memory``: assign every buffer of a segment's function an offset in its arena.

Before::

    %1 = memref.alloc(%c512) : memref<?xi8>

After: buffers that are in use at the same time do not overlap; the module records the size of the arena. Every buffer
is followed by a gap that vectors may overrun into::

    builtin.module attributes {native.arena_bytes = 1216 : i64, …} {
      …
      %1 = memref.view %arena[%c0][%c512] : memref<?xi8> to memref<?xi8>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FixedBitwidthType, IndexType, IntegerAttr, MemRefType, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.native_attributes import ARENA_BYTES
from odc_mlir.isa.fields import Space
from odc_mlir.transforms.native.lowering.segment_writer import ALIGNMENT, KERNEL, SLACK
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate_tightly
from odc_mlir.transforms.npu.schedule.program import Buffer


@dataclass(frozen=True)
class NativeAllocateMemoryPass(ModulePass):
    """Place buffers; see the module's text."""

    name = "native-allocate-memory"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in segment_modules(op):
            function = segment_function(module)
            module.attributes[ARENA_BYTES] = IntegerAttr(_place(function), i64)


def segment_modules(module: ModuleOp) -> list[ModuleOp]:
    """The modules that the segments of ``module`` are lowered to."""
    return [item for item in module.walk() if isinstance(item, ModuleOp) and item is not module]


def segment_function(module: ModuleOp) -> FuncOp:
    """The function of a segment: the only one that is not a kernel."""
    (found,) = [
        item
        for item in module.ops
        if isinstance(item, FuncOp) and KERNEL not in item.attributes and item.sym_visibility is None
    ]
    return found


def _place(function: FuncOp) -> int:
    """Replace all allocations of a function; the bytes that they take."""
    position = {op: index for index, op in enumerate(function.body.block.ops)}
    found = [(op, index) for op, index in position.items() if isinstance(op, memref.AllocOp)]
    intervals = [
        Interval(
            Buffer(op.memref.name_hint or "buffer", Space.ARENA, _size(op) + SLACK),
            index,
            max(index, *_uses(op.memref, position)),
            ALIGNMENT,
        )
        for op, index in found
    ]
    used = allocate_tightly(intervals)
    arena = function.args[-2]
    for (op, _), interval in zip(found, intervals, strict=True):
        assert interval.buffer.address is not None
        place = arith.ConstantOp(IntegerAttr(interval.buffer.address, IndexType()))
        view = memref.ViewOp(arena, place.result, list(op.dynamic_sizes), op.memref.type)
        place.location = view.location = op.location
        Rewriter.insert_op(place, InsertPoint.before(op))
        Rewriter.replace_op(op, view)
    return used


def _uses(value: SSAValue, position: Mapping[Operation, int]) -> list[int]:
    """Where a buffer is used, also by the names that views give it."""
    found = [0]
    for use in value.uses:
        found.append(position[use.operation])
        if isinstance(use.operation, memref.ViewOp):
            found += _uses(use.operation.result, position)
    return found


def _size(op: memref.AllocOp) -> int:
    """Bytes of an allocation."""
    size = op.dynamic_sizes[0].owner
    assert isinstance(size, arith.ConstantOp)
    assert isinstance(size.value, IntegerAttr)
    type = op.memref.type
    assert isinstance(type, MemRefType)
    assert isinstance(type.element_type, FixedBitwidthType)
    return size.value.value.data * type.element_type.size
