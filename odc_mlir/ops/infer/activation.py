"""Shapes and checks of activation functions; their results are shaped like the operand."""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import (
    broadcast,
    declared,
    option,
    result,
    shape_of,
    shape_text,
    unary,
    verified,
    verify_first_dtype,
    verify_same_dtype,
)
from odc_mlir.ops.spec import Node, ResultType

# Element types of softmax results with finer steps than the operand's type.
SOFTMAX_PAIRS = (("int8", "int16"), ("uint8", "int16"))


def _check_rows(node: Node) -> None:
    shape = shape_of(node, 0)
    if shape is not None and not shape:
        raise node.error("the operand is a scalar; it must have at least one dimension")


def _check_softmax(node: Node) -> None:
    first, last = node.operand(0).dtype, node.results[0].dtype
    if first != last and (first, last) not in SOFTMAX_PAIRS:
        allowed = " or ".join(f"{a} and {b}" for a, b in SOFTMAX_PAIRS)
        raise node.error(f"the operand is {first}, the result {last}; they must be equal, or {allowed}")
    if not math.isfinite(option(node, "beta")):
        raise node.error(f"beta is {option(node, 'beta')}; it must be finite")
    _check_rows(node)


def softmax(node: Node) -> list[ResultType]:
    """Infer the operand's shape and the declared element type (int8 may give int16)."""
    return declared(node)


def _check_log_softmax(node: Node) -> None:
    verify_first_dtype(node)
    _check_rows(node)


def _check_leaky_relu(node: Node) -> None:
    verify_first_dtype(node)
    if not math.isfinite(option(node, "alpha")):
        raise node.error(f"alpha is {option(node, 'alpha')}; it must be finite")


def prelu(node: Node) -> list[ResultType]:
    """Infer the type of the first operand, to which the slopes must broadcast."""
    x, alpha = shape_of(node, 0), shape_of(node, 1)
    if x is not None and alpha is not None:
        both = broadcast(node, x, alpha)
        if len(both) != len(x) or any(a is not None and b is not None and a != b for a, b in zip(x, both, strict=True)):
            raise node.error(f"alpha has the shape {shape_text(alpha)}; it must broadcast to {shape_text(x)}")
    return result(node, node.operand(0).dtype, x)


verify_softmax = verified(_check_softmax, softmax)
verify_log_softmax = verified(_check_log_softmax, unary)
verify_leaky_relu = verified(_check_leaky_relu, unary)
verify_prelu = verified(verify_same_dtype, prelu)
