"""Operators that create tensors from sizes, shapes and single values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from odc_mlir.ops.filling import range_length
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common

_NUMBERS = ("float32", "int8", "int16", "int32", "int64")


def range_(node: Node) -> Execute:
    """Count from operand 0 to operand 1 (excluded) in steps of operand 2, rounding each sum."""
    info, sources = node.operand(0), [common.fetch(node, i) for i in range(3)]
    require_dtype(node, info, *_NUMBERS)
    if info.quant is not None:
        raise common.unsupported(node, f"a range of quantised {info.dtype} is not supported")

    def numbers(operands: Sequence[Array | None]) -> Array:
        start, limit, delta = (common.single(node, source(operands), "an end or step") for source in sources)
        with common.given_values(node, range(3)):
            length = range_length(node, start[()], limit[()], delta[()])
        check_elements(node, (length,), info.dtype)
        steps = np.full(length, delta, start.dtype)
        steps[:1] = start
        return np.asarray(steps.cumsum(dtype=start.dtype))

    if not all(node.operand(i).is_const for i in range(3)):
        return lambda operands: [numbers(operands)]
    known = cache(partial(numbers, ()))
    return lambda _: [known().copy()]


def rank(node: Node) -> Execute:
    """Compute the number of the operand's axes."""
    return common.computed(node, lambda x: np.array(x.ndim, np.int32))


def fill(node: Node) -> Execute:
    """Fill a tensor of the shape in operand 0 with operand 1."""
    dtype = node.results[0].info.numpy
    return common.computed(
        node,
        lambda dims, value: np.full(common.wanted_sizes(node, dims), common.single(node, value, "the value"), dtype),
    )


def zeros_like(node: Node) -> Execute:
    """Fill a tensor of the operand's shape with zeros."""
    info = node.operand(0)
    if info.quant is not None or info.info.kind not in ("float", "int", "uint", "bool"):
        what = "quantised " if info.quant is not None else ""
        raise common.unsupported(node, f"zeros of {what}{info.dtype} are not supported")
    return common.computed(node, lambda x: np.zeros(x.shape, info.info.numpy))


def broadcast_args(node: Node) -> Execute:
    """Compute the shape to which the shapes in operands 0 and 1 broadcast."""
    dtype = node.results[0].info.numpy

    def compute(first: Array, second: Array) -> Array:
        shapes = common.ints(first), common.ints(second)
        try:
            return np.array(np.broadcast_shapes(*shapes), dtype)
        except ValueError:
            raise common.input_error(
                node, f"shapes {list(shapes[0])} and {list(shapes[1])} cannot be broadcast"
            ) from None

    return common.computed(node, compute)
