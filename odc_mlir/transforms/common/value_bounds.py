"""Analysis of the values of plain integers, such as indices, computed from the IR and never written back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.ops.infer.bounds import result_bounds
from odc_mlir.ops.spec import Interval, Node


def value_bounds(operators: Iterable[CircleOp]) -> dict[SSAValue, Interval]:
    """Return the smallest and the largest value of integer results, if they are known. Operators are in order."""
    found: dict[SSAValue, Interval] = {}
    for op in operators:
        if op.SPEC.bounds and op.unverified is None:
            node = bounded_node(op, found)
            whole = all(info.info.is_integer and info.quant is None for info in node.results)
            if whole and (bounds := result_bounds(node)) is not None:
                found |= dict.fromkeys(op.results, bounds)
    return found


def bounded_node(op: CircleOp, bounds: Mapping[SSAValue, Interval]) -> Node:
    """Return ``op`` as a node whose operands have ``bounds``."""
    node = node_of(op)
    for value, info in zip(op.operands, node.operands, strict=True):
        if info is not None:
            info.bounds = bounds.get(value)
    return node
