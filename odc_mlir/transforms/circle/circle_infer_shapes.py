"""``circle-infer-shapes``: give every result the shape that its operands, constants and options imply.

Before::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<*xf32>

After (``%shape`` being the constant ``[1, 128]``)::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<1x128xf32>

Types of function arguments stay; whatever depends on an unknown dimension stays unknown. A declared shape that
contradicts inference is replaced with a warning. Rejects nothing that verifies.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle_shapes import refine_function
from odc_mlir.support.diagnostics import typed_errors


@dataclass(frozen=True)
class CircleInferShapesPass(ModulePass):
    """Refine result types in every function; see the module's text."""

    name = "circle-infer-shapes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with typed_errors(pass_name=self.name):
            for function in op.body.block.ops:
                if isinstance(function, FuncOp):
                    refine_function(function)
