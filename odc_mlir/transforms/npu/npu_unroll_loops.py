"""``npu-unroll-loops``: hardware loops become the instructions that they issue; undoes ``npu-roll-loops``.

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

The same instructions are issued with the same addresses, so that a program can be read without loops, checked by
``npu-verify-memory`` once more, and rolled again. Refuses nothing: an address that would leave its buffer does not
verify before.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.npu_isa import InstructionOp, LoopOp


@dataclass(frozen=True)
class NpuUnrollLoopsPass(ModulePass):
    """Unroll; see the module's text."""

    name = "npu-unroll-loops"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(_Unroll(), apply_recursively=False).rewrite_module(op)


class _Unroll(RewritePattern):
    """A loop becomes its iterations, one after the other."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LoopOp, rewriter: PatternRewriter) -> None:
        issued = [_issued(inner, iteration) for iteration in range(op.iterations) for inner in op.instructions]
        rewriter.replace(op, issued, [])


def _issued(op: InstructionOp, iteration: int) -> InstructionOp:
    """``op`` as the loop around it issues it in ``iteration``."""
    made, fields = op.clone(), op.field_values
    steps = fields.step_of()
    offsets = tuple(
        None if offset is None else offset + iteration * steps.get(name, 0)
        for name, offset in zip(fields.immediates.spec.place_names, fields.offsets, strict=True)
    )
    made.set_fields(fields._replace(offsets=offsets, steps=None))
    return made
