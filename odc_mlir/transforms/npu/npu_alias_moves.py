"""``npu-alias-moves``: turn moves of contiguous bytes into views.

Before::

    %1 = npu.move %0 copies [array<i32: 0, 448, 0, 448, 1, 1>] : tensor<1x56x8x4x…> -> tensor<1x14x8x4x…>
    %4 = npu.move %2, %3 copies [array<i32: 0, 0, 0, 64, 1, 1>, array<i32: 1, 0, 64, 64, 1, 1>] : … -> tensor<1x2x8x8x…>

After: both moves are marked ``npu.view``. Users of a slice read the source in place. The producers of concatenated
tensors write into the buffer of the concatenation. Each tensor must be the result of an operation, occur once and as a
whole, and not be an output of the program. If only matrix products read the joined rows, such as a cache and a new row,
the move is marked ``npu.parts``. The products and moves of some of the rows then read the original tensors. Other moves
do not change, including slices that are outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_tiling import PARTS, VIEW
from odc_mlir.transforms.common.rewriting import apply_patterns_to
from odc_mlir.transforms.npu.schedule.geometry import clip
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPatternPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.tensor_ir import (
    NOTHING_COMPUTED,
    is_slice_view,
    joins_whole,
    loads_parts,
    readers,
    row_copy,
    row_parts,
    row_slice,
    slice_of,
    viewed,
)

MOST_PARTS = 4  # limit, because each part needs a separate transfer for every image


class SliceOfJoined(RewritePattern):
    """Make a move of some rows of a concatenation read the original tensors, unless either move is a view."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MoveOp, rewriter: PatternRewriter) -> None:
        joined, rows = viewed(op.inputs[0]).owner, row_slice(op)
        if (
            rows is None
            or not isinstance(joined, npu.MoveOp)
            or (slice_of(op) is not None and not _is_output(op.output))
        ):
            return
        parts = row_parts(joined)
        if parts is None or all(map(_can_be_placed, map(viewed, joined.inputs))):
            return
        taken = [(part, clip(rows.start - part.first, len(rows), part.rows)) for part in parts]
        taken = [(part, found) for part, found in taken if found.length]
        images, row = math.prod(npu.shape_of(op.output)[:-2]), npu.shape_of(op.output)[-1]
        copies = [
            row_copy(number, (images, found.length, row), part.rows, len(rows), found.first, found.before)
            for number, (part, found) in enumerate(taken)
        ]
        made = npu.MoveOp([part.value for part, _ in taken], op.output.type, copies=copies)
        made.location = op.location
        # Move as early as possible: at the end of a program, no other work would hide the transfers. The result may
        # replace a state in place, so it comes after all operations that read the state, or views of its parts.
        users = {user for value in (joined.output, *made.inputs) for user in (value.owner, *_moved_readers(value))}
        users.discard(op)
        before = op.prev_op
        while before is not None and before not in users:
            before = before.prev_op
        assert before is not None, "the tensors are joined before a slice of them is moved"
        rewriter.insert(made, InsertPoint.after(before))
        rewriter.replace(op, [], [made.output])
        if not list(readers(joined.output)):
            for unused in (*(use.operation for use in joined.output.uses), joined):
                rewriter.erase(unused)


class AliasSlice(RewritePattern):
    """Mark a move of one contiguous run of bytes as a view if the result is not an output."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MoveOp, rewriter: PatternRewriter) -> None:
        if slice_of(op) is not None and not _is_output(op.output):
            _mark(op, rewriter)


class AliasConcatenation(RewritePattern):
    """Mark a move that joins whole results as a view if no other view determines the addresses of the results."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MoveOp, rewriter: PatternRewriter) -> None:
        if slice_of(op) is None and all(map(_can_be_placed, map(viewed, op.inputs))) and joins_whole(op):
            _mark(op, rewriter)


class LoadParts(RewritePattern):
    """Mark a move that joins rows if only matrix products read it. The products then load the original tensors."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MoveOp, rewriter: PatternRewriter) -> None:
        parts = None if VIEW in op.attributes else row_parts(op)
        if parts is not None and 1 < len(parts) <= MOST_PARTS and loads_parts(op):
            _mark(op, rewriter, PARTS)


class NpuAliasMovesPass(ProgramPatternPass):
    """Mark moves of contiguous bytes as views."""

    name = "npu-alias-moves"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (SliceOfJoined, AliasSlice, AliasConcatenation, LoadParts)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        mark_views(job.program.block)


def mark_views(block: Block) -> None:
    """Mark the moves of ``block`` that are views. Moves that operations of other dialects read are not views."""
    first, *others = (kind() for kind in NpuAliasMovesPass.patterns())
    for patterns in ([first], others):
        apply_patterns_to(patterns, [op for op in block.ops if isinstance(op, npu.MoveOp)])


def _mark(op: npu.MoveOp, rewriter: PatternRewriter, name: str = VIEW) -> None:
    op.attributes[name] = UnitAttr()
    rewriter.notify_op_modified(op)


def _moved_readers(value: SSAValue) -> Iterator[Operation]:
    for user in readers(value):
        yield user
        if isinstance(user, npu.MoveOp):
            yield from _moved_readers(user.output)


def _is_output(value: SSAValue) -> bool:
    return not all(isinstance(op, npu.NpuTensorOp) for op in readers(value))


def _can_be_placed(value: SSAValue) -> bool:
    if not isinstance(value, OpResult) or isinstance(value.op, NOTHING_COMPUTED) or is_slice_view(value.op):
        return False
    joined = (isinstance(op, npu.MoveOp) and VIEW in op.attributes and not is_slice_view(op) for op in readers(value))
    return not (_is_output(value) or any(joined))
