"""``circle-infer-shapes``: infer the shape of every result from operands, constants and options.

Before::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<*xf32>

After (``%shape`` being the constant ``[1, 128]``)::

    %1 = circle.reshape(%0, %shape) : (tensor<1x4x4x8xf32>, tensor<2xi32>) -> tensor<1x128xf32>

Inference evaluates operators on shapes and constants (``shape``, ``strided_slice``, ``pack`` …). These operators and
the types of function arguments stay. Dimensions that depend on an unknown dimension stay unknown. An inferred shape
replaces a contradicting declared shape, with a warning. Rejects no module that verifies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import KNOWN, BlobAttr, CircleOp, node_of, refine_results
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.kernels.conditions import evaluate, operand_arrays
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.transforms.circle.circle_fold_constants import is_candidate
from odc_mlir.transforms.common.retyping import set_function_type
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once, static_shape_of

SHAPE_BYTES = 512  # size limit of values to evaluate as shapes, at eight bytes per element


class CircleInferShapesPass(PatternPass):
    """Refine result types in every function."""

    name = "circle-infer-shapes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (InferShape,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with typed_errors(pass_name=self.name):
            for function in op.body.block.ops:
                if isinstance(function, FuncOp):
                    infer_shapes(function)
                    forget_known(function)


def infer_shapes(function: FuncOp) -> None:
    """Refine all result types of ``function``, and attach the values that shapes and constants imply."""
    apply_once(function, InferShape())
    set_function_type(function)


def forget_known(function: FuncOp) -> None:
    """Remove the values that :func:`infer_shapes` attached."""
    for op in function.walk():
        op.attributes.pop(KNOWN, None)


class InferShape(RewritePattern):
    """Refine the result types of an operator with the shape function, and evaluate operators on shapes."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, CircleOp) or not op.SPEC.infer or op.unverified is not None:
            return
        changed = refine_results(op)
        if (value := _small_value(op)) is not None:
            op.attributes[KNOWN] = BlobAttr.of(np.ascontiguousarray(value).tobytes())
            changed = True
        if changed:
            rewriter.notify_op_modified(op)


def _small_value(op: CircleOp) -> Array | None:
    if len(op.results) != 1 or not is_candidate(op):
        return None
    shape = static_shape_of(op.results[0])
    if shape is None or math.prod(shape) * 8 > SHAPE_BYTES:
        return None
    node = node_of(op)
    arrays = operand_arrays(node)
    results = None if arrays is None else evaluate(node, arrays)
    return results[0] if results and results[0].shape == shape else None
