"""``npu-elide-reshapes``: merge views of views, and remove views without effect.

Before::

    %1 = npu.reshape %0 : tensor<1x1x1x64x…> -> tensor<1x64x…>
    %2 = npu.reshape %1 : tensor<1x64x…> -> tensor<1x1x1x64x…>

After: users of ``%2`` read ``%0``; ``%1`` stays only if it has other users. Unary element-wise operations (``npu.lut``,
``npu.scale``) are independent of shape and not part of a chain here: they cost the same in any shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.npu import ReshapeOp


@dataclass(frozen=True)
class NpuElideReshapesPass(ModulePass):
    """Shorten chains of views; see the module's text."""

    name = "npu-elide-reshapes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        views = [item for item in op.walk() if isinstance(item, ReshapeOp)]
        for view in views:
            source = view.input
            while isinstance(source, OpResult) and isinstance(source.op, ReshapeOp):
                source = source.op.input
            if source.type == view.output.type:
                view.output.replace_all_uses_with(source)
            elif source is not view.input:
                view.operands[0] = source
        for view in reversed(views):
            if not view.output.uses:
                Rewriter.erase_op(view)
