"""``npu-share-arena``: place inputs and outputs in the arena, where other tensors can reuse their bytes.

Before::

    %x = npu.buffer "x" binds [0] : !npu.buffer<inputs, 1x8x8x16xi8>
    %y = npu.buffer "y" binds [0] : !npu.buffer<outputs, 1x10xi8>

After::

    %x = npu.buffer "x" takes [0] : !npu.buffer<arena, 1x8x8x16xi8>
    %y = npu.buffer "y" gives [0] : !npu.buffer<arena, 1x10xi8>

The host writes inputs before the program starts and reads outputs after it has ended. In between, the bytes of an input
are free after its last use, and those of an output before its first; in regions of their own they would not be. Unused
inputs have no buffer and stay in their region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.npu_isa import BOUND_SPACES, BufferOp
from odc_mlir.dialects.npu_memory import BufferType, buffer_type
from odc_mlir.isa.fields import Space
from odc_mlir.transforms.common.rewriting import apply_patterns_to
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPatternPass, TargetedProgram


@dataclass(frozen=True)
class NpuShareArenaPass(ProgramPatternPass):
    """Share; see the module's text."""

    name = "npu-share-arena"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ShareArena,)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        apply_patterns_to([ShareArena()], [item for item in job.block.ops if type(item) is BufferOp])


class ShareArena(RewritePattern):
    """One input or output becomes a buffer of the arena."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BufferOp, rewriter: PatternRewriter) -> None:
        kind = op.buffer.type
        if not isinstance(kind, BufferType) or kind.space not in BOUND_SPACES or op.binds is None:
            return
        if op.address is not None:
            return
        shared_kind, numbers = buffer_type(Space.ARENA, kind.shape, kind.element), tuple(op.binds.get_values())
        if kind.space is Space.INPUTS:
            shared = BufferOp(op.label.data, shared_kind, takes=numbers)
        else:
            shared = BufferOp(op.label.data, shared_kind, gives=numbers)
        shared.location = op.location
        rewriter.replace(op, shared)
