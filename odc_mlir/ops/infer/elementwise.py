"""Checks of element-wise operators; their shapes follow the shared rules."""

from __future__ import annotations

from odc_mlir.ops.infer.common import (
    binary,
    result,
    same_dim,
    shape_of,
    shape_text,
    unary,
    verified,
    verify_first_dtype,
    verify_same_dtype,
)
from odc_mlir.ops.spec import Node, ResultType, Shape

verify_binary = verified(verify_same_dtype, binary)
verify_unary = verified(verify_first_dtype, unary)


def add_n(node: Node) -> list[ResultType]:
    """Infer the sum of tensors of one shape."""
    found: Shape | None = None
    for index in range(len(node.operands)):
        shape = shape_of(node, index)
        if found is None or shape is None:
            found = shape if found is None else found
            continue
        if len(shape) != len(found):
            raise node.error(f"the operands are {shape_text(found)} and {shape_text(shape)}; they must be equal")
        what = "sizes of operands, which are not broadcast,"
        found = tuple(same_dim(node, a, b, what) for a, b in zip(found, shape, strict=True))
    return result(node, node.operand(0).dtype, found)


def _check_add_n(node: Node) -> None:
    if not node.operands:
        raise node.error("takes at least 1 operand, found 0")
    verify_same_dtype(node)


verify_add_n = verified(_check_add_n, add_n)
