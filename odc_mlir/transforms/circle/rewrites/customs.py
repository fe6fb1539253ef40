"""Custom operators that are builtin ones by another name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, node_of, op_class
from odc_mlir.ops.custom import ALIASES, builtin_node
from odc_mlir.ops.infer.mediapipe import transposed_node, transposed_shape
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.ops.spec import Node
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import OperatorPattern, make_constant, shape_of

TRANSPOSED = "Convolution2DTransposeBias"
CODES = frozenset({*ALIASES, TRANSPOSED})


@dataclass(frozen=True)
class ResolveCustom(OperatorPattern):
    """Replace CUSTOM with one of ``codes`` by the builtin operator, unless the application registered the code."""

    codes: frozenset[str] = CODES
    names: frozenset[str] = field(default=frozenset({"CUSTOM"}))

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        code = str(op.option("custom_code"))
        if code not in self.codes or default_custom_ops().get(code) is not None:
            return
        made = _transposed(op) if code == TRANSPOSED else _renamed(op)
        if made:
            rewriter.replace(op, made, list(made[-1].results))


def _renamed(op: CircleOp) -> list[CircleOp | ConstOp]:
    return [_operator(op, builtin_node(node_of(op)), op.operands)]


def _transposed(op: CircleOp) -> list[CircleOp | ConstOp]:
    node, shape = node_of(op), shape_of(op.operands[0])
    sizes = transposed_shape(node, shape)
    if any(size is None for size in sizes):
        return []
    wanted = make_constant(np.array(sizes, np.int32), "int32", f"{value_name(op.results[0])}/shape")
    x, weights, bias = op.operands
    builtin = transposed_node(node, node.operand(0))  # whose options alone are asked for
    return [wanted, _operator(op, builtin, [wanted.result, weights, x, bias])]


def _operator(op: CircleOp, builtin: Node, operands: Sequence[SSAValue]) -> CircleOp:
    """The operator of ``builtin`` in the place of ``op``; options that it leaves open have their defaults."""
    made = op_class(builtin.spec.name).make(
        operands, [result.type for result in op.results], builtin.options, location=op.location
    )
    missing = {key: option for key, option in made.OPTIONS.items() if key not in made.properties}
    made.properties |= {key: o.encode(o.default) for key, o in missing.items() if o.default is not None}
    return made
