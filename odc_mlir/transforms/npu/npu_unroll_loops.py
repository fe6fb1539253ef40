"""``npu-unroll-loops``: expand hardware loops into the instructions that they issue.

Before::

    npu.loop 16 {
      npu.isa.load source %x step 64 target %slot …
      npu.isa.conv … input %slot …
    }

After::

    npu.isa.load source %x target %slot …
    npu.isa.conv … input %slot …
    npu.isa.load source %x + 64 target %slot …
    npu.isa.conv … input %slot …
    …

The same instructions are issued with the same addresses. The unrolled program is easier to read. ``npu-verify-memory``
can check it again, and it can be rolled again. Rejects nothing: the verifier rejects addresses outside of buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.npu_isa import InstructionOp, LoopOp
from odc_mlir.transforms.common.rewriting import apply_patterns_to
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPatternPass, TargetedProgram


class NpuUnrollLoopsPass(ProgramPatternPass):
    """Expand hardware loops."""

    name = "npu-unroll-loops"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (Unroll,)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        apply_patterns_to([Unroll()], [item for item in job.block.ops if isinstance(item, LoopOp)])


class Unroll(RewritePattern):
    """Replace a loop by a copy of the body for each iteration."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LoopOp, rewriter: PatternRewriter) -> None:
        issued = [_issued(inner, iteration) for iteration in range(op.iterations) for inner in op.instructions]
        rewriter.replace(op, issued, [])


def _issued(op: InstructionOp, iteration: int) -> InstructionOp:
    made, fields = op.clone(), op.field_values
    steps = fields.step_of()
    offsets = tuple(
        None if offset is None else offset + iteration * steps.get(name, 0)
        for name, offset in zip(fields.immediates.spec.place_names, fields.offsets, strict=True)
    )
    made.set_fields(fields._replace(offsets=offsets, steps=None))
    return made
