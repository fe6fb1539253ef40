"""The checks behind the placement rules of reductions, and what their axes become."""

from __future__ import annotations

import math
from dataclasses import dataclass

from odc_mlir.isa.instructions import field_range
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.partition.rules.checks import PlacementLimits

_HIGHEST = field_range("reduce", "width")[1]


@dataclass(frozen=True, slots=True)
class ReductionShape:
    """A reduction as ``outer`` images of ``height`` x ``width`` pixels with ``inner`` channels.

    ``order``: the axes of the operand as they then lie behind each other.
    """

    outer: int
    height: int
    width: int
    inner: int
    order: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Whether axes change places."""
        return self.order != tuple(sorted(self.order))


def reduced(node: Node) -> ReductionShape | None:
    """How an operator reduces; None where there is no axis, or more pixels than two sides hold.

    Axes that stay between those that go are brought to the front.
    """
    shape = node.operand(0).static_shape
    axes = sorted({int(axis) % len(shape) for axis in node.const(1).reshape(-1)}) if shape else []
    if not axes:
        return None
    kept, rest = [a for a in range(axes[-1]) if a not in axes], range(axes[-1] + 1, len(shape))
    image = sides([shape[axis] for axis in axes if shape[axis] != 1])
    if image is None:
        return None
    order = tuple(axis for axis in (*kept, *axes, *rest) if shape[axis] != 1)
    outer, inner = (math.prod(shape[axis] for axis in some) for some in (kept, rest))
    return ReductionShape(outer, *image, inner, order)


def sides(sizes: list[int]) -> tuple[int, int] | None:
    """Height and width of an image of as many pixels as axes of these ``sizes`` have."""
    height, width = math.prod(sizes[:-1]), sizes[-1] if sizes else 1
    if max(height, width) <= _HIGHEST:
        return height, width
    count = height * width
    width = next(side for side in range(min(_HIGHEST, count), 0, -1) if count % side == 0)
    return (count // width, width) if count // width <= _HIGHEST else None


def reduction(node: Node, _: PlacementLimits) -> str | None:
    """Check that the operand is an image that an instruction can reduce."""
    if reduced(node) is not None:
        return None
    shape, axes = node.operand(0).static_shape, [int(axis) for axis in node.const(1).reshape(-1)]
    sizes = "x".join(str(shape[axis]) for axis in axes)
    return f"{sizes} elements along axes {axes}, at most {_HIGHEST}x{_HIGHEST}"
