"""Operators that move elements."""

from __future__ import annotations

import math

from xdsl.ir import Operation

from odc_mlir.ops.spec import Node
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.segment_writer import ELEMENTS, Plan, Segment, Write, refusal, require_same_codes


def view(node: Node, machine: CpuTarget) -> Write:
    """Another shape of the same elements."""
    x = node.operand(0)
    if x.dtype not in ELEMENTS:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    require_same_codes(node, x, node.results[0])

    def write(segment: Segment, op: Operation) -> None:
        segment.tensors[op.results[0]] = segment.tensor(op.operands[0])

    return write


def concatenation(node: Node, machine: CpuTarget) -> Write:
    """Tensors of bytes beside each other."""
    out = node.results[0]
    infos = [node.operand(i) for i in range(len(node.operands))]
    if out.dtype not in ("int8", "uint8") or any(info.is_const for info in infos):
        raise refusal(node, f"operands of {out.dtype} have no native kernel")
    require_same_codes(node, *infos, out)
    axis = int(node.options["axis"]) % len(out.static_shape)
    rows = math.prod(out.static_shape[:axis])
    sizes = [math.prod(info.static_shape[axis:]) for info in infos]

    def write(segment: Segment, op: Operation) -> None:
        target = segment.result(op.results[0], out)
        first = 0
        for value, size in zip(op.operands, sizes, strict=True):
            segment.call(
                "copy_rows",
                {},
                input=segment.tensor(value),
                output=target,
                rows=rows,
                row_bytes=size,
                input_pitch=size,
                first=first,
                pitch=sum(sizes),
            )
            first += size

    return write


PLANS: dict[str, Plan] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), view),
    "CONCATENATION": concatenation,
}
