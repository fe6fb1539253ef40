"""Bounds of integer results: the smallest and the largest value that the bounds of operands allow.

Operators declare their function in the operator table. It returns None if nothing is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

from odc_mlir.ops.infer.common import normal_axis, static_int
from odc_mlir.ops.spec import Interval, Node, TensorInfo


def bounds_of(info: TensorInfo) -> Interval:
    """Return the bounds of plain integers: from a constant, from an analysis, or from the element type."""
    if info.is_const and (values := info.array()).size:
        return int(values.min()), int(values.max())
    return info.bounds or info.info.range


def result_bounds(node: Node) -> Interval | None:
    """Return the bounds of integer results, or None if they are unknown or if results may wrap."""
    function, (lowest, highest) = node.spec.bounds_function, node.results[0].info.range
    found = None if function is None else function(node)
    return found if found is not None and lowest <= found[0] <= found[1] <= highest else None


def _ends(function: Callable[[int, int], int], node: Node) -> Interval | None:
    """Return the bounds of a function that has its extremes at the ends of both operands."""
    if node.options.get("fused_activation_function", "none") != "none":
        return None
    values = [function(a, b) for a in bounds_of(node.operand(0)) for b in bounds_of(node.operand(1))]
    return min(values), max(values)


# Functions of the operators with these names.
add, sub, mul = (partial(_ends, function) for function in (operator.add, operator.sub, operator.mul))
maximum, minimum = partial(_ends, max), partial(_ends, min)


def floor_div(node: Node) -> Interval | None:
    """Bound the quotient by a positive divisor."""
    return _ends(operator.floordiv, node) if bounds_of(node.operand(1))[0] > 0 else None


def floor_mod(node: Node) -> Interval | None:
    """Bound the remainder of a positive divisor."""
    smallest, largest = bounds_of(node.operand(1))
    return (0, largest - 1) if smallest > 0 else None


def _size(node: Node) -> int | None:
    """Return the size of operand 0 along the axis in operand 1, if it is known."""
    sizes, axis = node.operand(0).shape, static_int(node, 1)
    return None if sizes is None or axis is None else sizes[normal_axis(node, axis, len(sizes))]


def place(node: Node) -> Interval | None:
    """Bound an index along the axis in operand 1."""
    size = _size(node)
    return (0, size - 1) if size else None


def running_sum(node: Node) -> Interval | None:
    """Bound sums of up to all elements along the axis in operand 1."""
    size, (low, high) = _size(node), bounds_of(node.operand(0))
    return None if size is None else (min(0, size * low), max(0, size * high))


def cast(node: Node) -> Interval | None:
    """Bound converted integers. Every number but zero becomes true."""
    if node.results[0].dtype == "bool" or node.operand(0).info.kind not in ("int", "uint", "bool"):
        return None
    return bounds_of(node.operand(0))


def moved(node: Node) -> Interval | None:
    """Bound moved elements, and zeros between them."""
    found = [bounds_of(node.operand(index)) for index in node.spec.quant.moved(node.operands)]
    return (min(0, *(low for low, _ in found)), max(0, *(high for _, high in found))) if found else None
