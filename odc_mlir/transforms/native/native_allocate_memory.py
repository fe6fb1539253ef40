"""``native-allocate-memory``: assign every buffer of a segment's function an offset in its arena.

Before::

    %1 = memref.alloc(%c512) : memref<?xi8>

After: buffers in use at the same time do not overlap, and the module records the size of the arena. A gap, into which
vectors may overrun, follows every buffer::

    builtin.module attributes {native.arena_bytes = 1216 : i64, …} {
      …
      %1 = memref.view %arena[%c0][%c512] : memref<?xi8> to memref<?xi8>

The pass computes the offsets for a whole function, and a pattern then replaces each allocation. A check verifies that
buffers in use at the same time share no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FixedBitwidthType, IndexType, IntegerAttr, MemRefType, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.native_attributes import ARENA_BYTES, KERNEL
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.conversion import LoweringPattern
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to
from odc_mlir.transforms.native.lowering.segment_writer import ALIGNMENT, SLACK
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate_tightly, overlapping


@dataclass
class PlaceBuffer(LoweringPattern[memref.AllocOp]):
    """Replace ``memref.alloc`` by a view of the arena at the offset of the buffer."""

    arena: SSAValue
    offsets: Mapping[Operation, int]

    def lower(self, op: memref.AllocOp, rewriter: PatternRewriter, /) -> None:
        offset = arith.ConstantOp(IntegerAttr(self.offsets[op], IndexType()))
        view = memref.ViewOp(self.arena, offset.result, list(op.dynamic_sizes), op.memref.type)
        rewriter.replace(op, [offset, view])


class NativeAllocateMemoryPass(PatternPass):
    """Assign offsets to buffers."""

    name = "native-allocate-memory"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (PlaceBuffer,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in segment_modules(op):
            function = segment_function(module)
            offsets, size = _offsets(function)
            apply_patterns_to([PlaceBuffer(function.args[-2], offsets)], list(offsets))
            module.attributes[ARENA_BYTES] = IntegerAttr(size, i64)
            verify_arena(function)


def segment_modules(module: ModuleOp) -> list[ModuleOp]:
    """Return the modules to which the segments of ``module`` were lowered."""
    return [item for item in module.walk() if isinstance(item, ModuleOp) and item is not module]


def segment_function(module: ModuleOp) -> FuncOp:
    """Return the function of a segment, the only one that is not a kernel."""
    found = [
        item
        for item in module.ops
        if isinstance(item, FuncOp) and KERNEL not in item.attributes and item.sym_visibility is None
    ]
    if len(found) != 1:
        raise CompileError(f"a lowered segment has {len(found)} functions besides kernels, exactly one is required")
    return found[0]


def _offsets(function: FuncOp) -> tuple[dict[Operation, int], int]:
    position = {op: index for index, op in enumerate(function.body.block.ops)}
    intervals = [
        Interval(
            op,
            known_number(op.dynamic_sizes[0]) * item_bytes(op.memref) + SLACK,
            index,
            max(index, *_uses(op.memref, position)),
            ALIGNMENT,
        )
        for op, index in position.items()
        if isinstance(op, memref.AllocOp)
    ]
    size = allocate_tightly(intervals)
    return {interval.owner: interval.start for interval in intervals}, size


def _uses(value: SSAValue, position: Mapping[Operation, int]) -> list[int]:
    found = [0]
    for use in value.uses:
        found.append(position[use.operation])
        if isinstance(use.operation, memref.ViewOp):
            found += _uses(use.operation.result, position)
    return found


def verify_arena(function: FuncOp) -> None:
    """Raise CompileError if two buffers of the arena that are in use at the same time share bytes.

    The check collects uses from the operations, independently of the intervals used for the allocation.
    """
    arena, roots = function.args[-2], dict[SSAValue, SSAValue]()
    places: dict[SSAValue, tuple[int, int]] = {}  # bytes used and address
    lives: dict[SSAValue, Interval[SSAValue]] = {}  # in order of the first use
    for index, op in enumerate(function.body.block.ops):
        if isinstance(op, memref.ViewOp) and op.source is arena:
            roots[op.result] = op.result
            places[op.result] = known_number(op.sizes[0]) * item_bytes(op.result) + SLACK, known_number(op.byte_shift)
        elif isinstance(op, memref.ViewOp) and op.source in roots:
            roots[op.result] = roots[op.source]
        else:
            for root in (roots[value] for value in op.operands if value in roots):
                size, address = places[root]
                lives.setdefault(root, Interval(root, size, index, index, ALIGNMENT, address)).last = index
    if (found := overlapping(list(lives.values()))) is not None:
        other, later = found
        raise CompileError(
            f"bytes {later.start} to {later.start + later.used} of the arena are used while"
            f" {value_name(other.owner)!r} is in some of them",
            tensor=value_name(later.owner),
        )


def known_number(value: SSAValue) -> int:
    """Return the integer of a value that a constant operation defines."""
    assert isinstance(value.owner, arith.ConstantOp)
    assert isinstance(value.owner.value, IntegerAttr)
    return value.owner.value.value.data


def item_bytes(value: SSAValue) -> int:
    """Return the size of an element of a buffer in bytes."""
    assert isinstance(value.type, MemRefType)
    assert isinstance(value.type.element_type, FixedBitwidthType)
    return value.type.element_type.size
