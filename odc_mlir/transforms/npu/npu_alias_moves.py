"""``npu-alias-moves``: turn moves of contiguous bytes into views.

Before::

    %1 = npu.move %0 copies [array<i32: 0, 448, 0, 448, 1, 1>] : tensor<1x56x8x4x…> -> tensor<1x14x8x4x…>
    %4 = npu.move %2, %3 copies [array<i32: 0, 0, 0, 64, 1, 1>, array<i32: 1, 0, 64, 64, 1, 1>] : … -> tensor<1x2x8x8x…>

After: both have ``npu.view``. A slice is read in place. Concatenated tensors are written to their final places directly
if each is a result, is used whole and only once in the concatenation, and is not an output of the program. Everything
else remains a move, as does a slice that is an output.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, OpResult, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_tiling import VIEW
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.program_pass import ProgramPass
from odc_mlir.transforms.npu.schedule.tensor_ir import NOTHING_COMPUTED
from odc_mlir.transforms.npu.schedule.views import joins_whole, slice_of, viewed


@dataclass(frozen=True)
class NpuAliasMovesPass(ProgramPass):
    """Mark; see the module's text."""

    name = "npu-alias-moves"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        mark_views(job.program.block)


def mark_views(block: Block) -> None:
    """Mark the moves of ``block`` that are views; operations of other dialects see bytes in their own places."""
    others = (op for op in block.ops if not isinstance(op, npu.NpuTensorOp))
    outputs = {viewed(value) for op in others for value in op.operands}
    joined: set[SSAValue] = set()
    for op in block.ops:
        if not isinstance(op, npu.MoveOp):
            continue
        if slice_of(op) is not None:
            if op.output in outputs:
                continue
        elif _joins(op, outputs | joined):
            joined |= {viewed(value) for value in op.inputs}
        else:
            continue
        op.attributes[VIEW] = UnitAttr()


def _joins(op: npu.MoveOp, taken: set[SSAValue]) -> bool:
    """Whether ``op`` puts whole results one behind the other that are in no such place yet."""
    for value in map(viewed, op.inputs):
        if value in taken or not isinstance(value, OpResult) or isinstance(value.op, NOTHING_COMPUTED):
            return False
        if isinstance(value.op, npu.MoveOp) and VIEW in value.op.attributes and slice_of(value.op) is not None:
            return False
    return joins_whole(op)
