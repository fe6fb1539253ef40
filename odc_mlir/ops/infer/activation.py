"""Checks of activation functions; their results are shaped like the operand."""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import declared, option, shape_of, unary, verified, verify_first_dtype
from odc_mlir.ops.spec import Node, ResultType


def _check_softmax(node: Node) -> None:
    first, last = node.operand(0).dtype, node.results[0].dtype
    if first != last and (first, last) != ("int8", "int16"):
        raise node.error(f"the operand is {first}, the result {last}; they must be equal, or int8 and int16")
    if not math.isfinite(option(node, "beta")):
        raise node.error(f"beta is {option(node, 'beta')}; it must be finite")
    shape = shape_of(node, 0)
    if shape is not None and not shape:
        raise node.error("the operand is a scalar; it must have at least one dimension")


def softmax(node: Node) -> list[ResultType]:
    """Shaped like the operand, of the declared element type (int8 may give int16)."""
    return declared(node)


def _check_leaky_relu(node: Node) -> None:
    verify_first_dtype(node)
    if not math.isfinite(option(node, "alpha")):
        raise node.error(f"alpha is {option(node, 'alpha')}; it must be finite")


verify_softmax = verified(_check_softmax, softmax)
verify_leaky_relu = verified(_check_leaky_relu, unary)
