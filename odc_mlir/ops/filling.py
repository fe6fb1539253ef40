"""Operators that create tensors from sizes, shapes and single values."""

from __future__ import annotations

import numpy as np

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import MOVES, NONE, Node, OperatorFamily, ResultType, moved, real_only


def range_(node: Node) -> list[ResultType]:
    """Infer a vector with one element per step. Its length is known if all operands are constant."""
    for index in range(3):
        common.check_single(node, index)
    infos = [node.operand(i) for i in range(3)]
    length = None
    if all(info.is_const for info in infos):
        start, limit, delta = (info.array().reshape(()) for info in infos)
        length = range_length(node, start[()], limit[()], delta[()])
    return common.result(node, infos[0].dtype, (length,))


def range_length(node: Node, start: object, limit: object, delta: object) -> int:
    """Return the number of steps. Raises ModelError if steps lead away from the limit."""
    first, last, step = np.asarray(start), np.asarray(limit), np.asarray(delta)
    leads_there = (first >= last and step < 0) or (first <= last and step > 0)
    if not leads_there:
        raise node.error(f"steps of {step} do not lead from {first} to {last}")
    if first.dtype.kind == "f":
        with np.errstate(over="ignore"):
            count = np.ceil(np.abs((last - first) / step))
        if not np.isfinite(count):
            raise node.error(f"the number of steps of {step} from {first} to {last} is not finite")
        return int(count)
    return -(-abs(int(last) - int(first)) // abs(int(step)))


def rank(node: Node) -> list[ResultType]:
    """Infer a scalar."""
    return common.result(node, "int32", ())


def fill(node: Node) -> list[ResultType]:
    """Infer a tensor with the shape in operand 0."""
    common.check_single(node, 1)
    return common.wanted_shape(node, 0, node.operand(1).dtype)


def broadcast_args(node: Node) -> list[ResultType]:
    """Infer a vector with the length of the longer shape."""
    shapes = [common.shape_of(node, index, 1) for index in (0, 1)]
    lengths = [None if shape is None else shape[0] for shape in shapes]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return common.result(node, node.operand(0).dtype, (longest,))


_op = OperatorFamily(__name__)

SPECS = (
    _op(
        "RANGE",
        "start limit delta",
        "numbers from start to limit in steps of delta",
        version=2,
        quant=real_only("its result counts in steps that codes would round"),
        infer="range_",
        verify="same",
        kernel="range_",
    ),
    _op("RANK", "input", "number of the operand's axes", quant=NONE, verify="shapes"),
    _op("FILL", "dims:int value", "tensor of one value", version=4, quant=moved(1), traits=MOVES),
    _op(
        "ZEROS_LIKE",
        "input",
        "zeros of the operand's shape",
        quant=real_only("its result is real zeros"),
        infer="infer.common:unary",
    ),
    _op("BROADCAST_ARGS", "shape0:int shape1:int", "broadcast of two shapes", options=None, quant=NONE, verify="same"),
)
