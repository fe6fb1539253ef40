"""``circle-infer-shapes``: give every result the shape that its operands, constants and options imply.

Before::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<*xf32>

After (``%shape`` being the constant ``[1, 128]``)::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<1x128xf32>

Types of function arguments stay; whatever depends on an unknown dimension stays unknown. A declared shape that
contradicts inference is replaced with a warning. Rejects nothing that verifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.circle_shapes import refine_results
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.transforms.common.retyping import set_function_type
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once


@dataclass(frozen=True)
class CircleInferShapesPass(PatternPass):
    """Refine result types in every function; see the module's text."""

    name = "circle-infer-shapes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (InferShape,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with typed_errors(pass_name=self.name):
            for function in op.body.block.ops:
                if isinstance(function, FuncOp):
                    apply_once(function, InferShape())
                    set_function_type(function)


class InferShape(RewritePattern):
    """Refine the result types of an operator by its shape function."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if isinstance(op, CircleOp) and op.SPEC.infer and op.unverified is None and refine_results(op):
            rewriter.notify_op_modified(op)
