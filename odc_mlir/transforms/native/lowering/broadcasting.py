"""How operands of element-wise operators broadcast, as far as kernels can."""

from __future__ import annotations

import math

from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.transforms.native.kernels.pairs import BY_COLUMN, BY_ROW, FULL, SINGLE
from odc_mlir.transforms.native.lowering.segment_writer import refusal


def broadcast(node: Node, a: TensorInfo, b: TensorInfo, out: TensorInfo) -> tuple[int, int, tuple[int, int]]:
    """The result as rows and columns, and how either operand is read there."""
    shape = out.static_shape
    shapes = [(1,) * (len(shape) - len(info.static_shape)) + info.static_shape for info in (a, b)]
    for split in range(len(shape) + 1):
        found = [_way(own, shape, split) for own in shapes]
        if None not in found:
            rows, columns = math.prod(shape[:split]), math.prod(shape[split:])
            return rows, columns, (found[0] or FULL, found[1] or FULL)
    raise refusal(
        node, f"operands of the shapes {list(a.static_shape)} and {list(b.static_shape)} have no native kernel"
    )


def _way(own: tuple[int, ...], shape: tuple[int, ...], split: int) -> int | None:
    """How an operand is read where dimensions before ``split`` are rows; None where that is no way."""
    if own == shape:
        return FULL
    if all(size == 1 for size in own):
        return SINGLE
    if own[split:] == shape[split:] and all(size == 1 for size in own[:split]):
        return BY_COLUMN
    if own[:split] == shape[:split] and all(size == 1 for size in own[split:]):
        return BY_ROW
    return None
