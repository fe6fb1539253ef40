"""Element-wise operators that are no arithmetic of reals or codes: comparisons, choices, integers, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import is_quantised
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.elements import arity, element_of
from odc_mlir.transforms.native.lowering import layers_elementwise
from odc_mlir.transforms.native.lowering.broadcasting import broadcast
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    raised,
    refusal,
    require_same_codes,
)

_EIGHT_BIT = ("int8", "uint8")
_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
_CHOICES = ("SELECT", "SELECT_V2")
_OF_CODES = ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU", "DIV", *_COMPARISONS)


def elements(node: Node, machine: CpuTarget) -> Write:
    """An operation on any types that does not look at scales."""
    name, out = node.spec.name, node.results[0]
    infos = [node.operand(i) for i in range(len(node.operands))]
    coded = any(is_quantised(info) for info in (*infos, out))
    if name in _CHOICES:
        require_same_codes(node, *infos[1:], out)
    elif coded and all(info.dtype in _EIGHT_BIT for info in infos):
        return of_pairs(node, machine) if len(infos) == 2 else layers_elementwise.by_table(node, machine)
    elif coded:
        raise refusal(node, f"quantised operands of {infos[0].dtype} have no native kernel")
    if node.options.get("fused_activation_function", "none") not in ("none", None):
        raise refusal(node, "a fused activation has no native kernel")
    found = element_of(name, [info.dtype for info in infos], out.dtype)
    if found is None:
        raise refusal(node, f"operands of {' and '.join(info.dtype for info in infos)} have no native kernel")
    operation, taken = found, infos[: arity(found)]
    if name in _CHOICES:
        taken = _beside(taken, out)
    spread = broadcast(taken, out)

    def write(segment: SegmentFunction, op: Operation) -> None:
        spread.call(segment, op, "map_elements", {"operation": operation}, taken, out)

    return write


def _beside(infos: Sequence[TensorInfo], out: TensorInfo) -> list[TensorInfo]:
    """SELECT's condition may be one number per row of the others."""
    condition, *others = infos
    shape, rank = condition.static_shape, len(out.static_shape)
    if len(shape) == 1 and rank > 1 and len(others[0].static_shape) == rank and shape[0] == out.static_shape[0]:
        condition = replace(condition, shape=(*shape, *(1,) * (rank - 1)))
    return [condition, *others]


def of_pairs(node: Node, machine: CpuTarget) -> Write:
    """A function of two 8-bit codes: the host kernel says what it gives for each pair."""
    a, b, out = node.operand(0), node.operand(1), node.results[0]
    if a.dtype not in _EIGHT_BIT or b.dtype not in _EIGHT_BIT or out.dtype not in (*_EIGHT_BIT, "bool"):
        raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
    for info in (a, b, out):
        if info.quant is not None and not info.quant.per_tensor:
            raise refusal(node, f"{info.name!r} has several scales")
    table = _of_all_pairs(node)
    spread = broadcast((a, b), out)

    def write(segment: SegmentFunction, op: Operation) -> None:
        spread.call(segment, op, "look_up_pairs", {}, (a, b), out, table=segment.constant(table))

    return write


def _of_all_pairs(node: Node) -> NDArray[np.uint8]:
    """What the host kernel gives for each pair of codes, as they are held."""
    shape, out = (256, 256), node.results[0]
    codes = [(np.arange(256) - raised(node.operand(i))).astype(node.operand(i).info.numpy) for i in range(2)]
    given = [np.broadcast_to(codes[0][:, None], shape).copy(), np.broadcast_to(codes[1], shape).copy()]
    infos = tuple(replace(node.operand(i), shape=shape, data=None) for i in range(2))
    paired = replace(node, operands=infos, results=(replace(out, shape=shape),))
    with np.errstate(all="ignore"):
        found = np.asarray(paired.spec.kernel_function(paired)(given)[0])
    return (found.astype(np.int16) + raised(out)).astype(np.uint8)


PLANS: dict[str, CallPlanner] = {
    **dict.fromkeys((*_COMPARISONS, *_CHOICES, "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "CAST"), elements),
}
"""Whatever the types are."""

OTHERS: dict[str, CallPlanner] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "NEG", "ABS"), elements),
    **dict.fromkeys(_OF_CODES, elements),
}
"""Of results that are neither real nor codes with arithmetic of their own."""
