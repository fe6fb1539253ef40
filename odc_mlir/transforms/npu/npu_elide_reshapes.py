"""``npu-elide-reshapes``: merge views of views, and remove views without effect.

Before::

    %1 = npu.reshape %0 : tensor<1x1x1x64x…> -> tensor<1x64x…>
    %2 = npu.reshape %1 : tensor<1x64x…> -> tensor<1x1x1x64x…>

After: users of ``%2`` read ``%0``; ``%1`` stays only if it has other users. Unary element-wise operations (``npu.lut``,
``npu.scale``) are independent of shape and not part of a chain here: they cost the same in any shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import OpResult
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.npu import ReshapeOp
from odc_mlir.transforms.common.rewriting import PatternPass


class MergeReshapes(RewritePattern):
    """A reshape of a reshape reads the source of the first."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if isinstance(op.input, OpResult) and isinstance(op.input.op, ReshapeOp):
            op.operands[0] = op.input.op.input
            rewriter.notify_op_modified(op)


class DropReshape(RewritePattern):
    """A reshape to the type of its source is the source."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if op.input.type == op.output.type:
            rewriter.replace(op, [], [op.input])


@dataclass(frozen=True)
class NpuElideReshapesPass(PatternPass):
    """Shorten chains of views; see the module's text."""

    name = "npu-elide-reshapes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MergeReshapes, DropReshape)
