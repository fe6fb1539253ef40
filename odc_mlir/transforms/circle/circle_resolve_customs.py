"""``circle-resolve-customs``: replace custom operators that equal builtin operators.

Before::

    %0 = circle.custom(%x, %w, %b) {custom_code = "Convolution2DTransposeBias", custom_options = …} : … -> …

After: ``%0 = circle.transpose_conv(%shape, %w, %x, %b)``, which can be quantised and run on the NPU.

The custom codes are TensorFlow's ``AddV2``, ``All``, ``BatchMatMulV2``, ``BroadcastTo``, ``MatMul`` and ``SplitV``, and
MediaPipe's ``Convolution2DTransposeBias`` if the result shape is known. Codes that the application has registered stay
custom. Results are bit-exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, ConstOp, node_of
from odc_mlir.ops.custom import ALIASES, builtin_node
from odc_mlir.ops.infer.mediapipe import transposed_node, transposed_shape
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.ops.spec import Node
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import rewriting

TRANSPOSED = "Convolution2DTransposeBias"
CODES = frozenset({*ALIASES, TRANSPOSED})


class CircleResolveCustomsPass(rewriting.PatternPass):
    """Replace custom operators by equivalent builtin operators."""

    name = "circle-resolve-customs"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ResolveCustom,)


@dataclass(frozen=True)
class ResolveCustom(rewriting.OperatorPattern):
    """Replace CUSTOM by the builtin operator if ``codes`` has the code and the application has not registered it."""

    codes: frozenset[str] = CODES
    names: frozenset[str] = field(default=frozenset({"CUSTOM"}))

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        code = str(op.option("custom_code"))
        if code not in self.codes or default_custom_ops().get(code) is not None:
            return
        if made := _transposed(op) if code == TRANSPOSED else [_operator(op, builtin_node(node_of(op)), op.operands)]:
            rewriter.replace(op, made)


def _transposed(op: CircleOp) -> list[CircleOp | ConstOp]:
    node, shape = node_of(op), rewriting.shape_of(op.operands[0])
    sizes = transposed_shape(node, shape)
    if None in sizes:
        return []
    wanted = rewriting.make_constant(np.array(sizes, np.int32), "int32", f"{value_name(op.results[0])}/shape")
    x, weights, bias = op.operands
    builtin = transposed_node(node, node.operand(0))  # only its options matter
    return [wanted, _operator(op, builtin, [wanted.result, weights, x, bias])]


def _operator(op: CircleOp, builtin: Node, operands: Sequence[SSAValue]) -> CircleOp:
    types = [result.type for result in op.results]
    return rewriting.build(builtin.spec.name, operands, types, builtin.options, op.location)
