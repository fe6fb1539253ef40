"""The checks behind the placement rules of operators that find elements."""

from __future__ import annotations

import math
from typing import NamedTuple

from odc_mlir.isa.instructions import field_range
from odc_mlir.ops.infer.common import normal_axis
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.partition.rules.checks import Limits


class Searched(NamedTuple):
    """A tensor as ``outer`` x ``size`` x ``inner`` elements, which are searched along the second axis."""

    outer: int
    size: int
    inner: int


def searched(node: Node) -> Searched:
    """What ARG_MAX or ARG_MIN with a constant axis goes through; raises ModelError for an axis that there is not."""
    shape = node.operand(0).static_shape
    axis = normal_axis(node, int(node.const(1).reshape(-1)[0]), len(shape))
    return Searched(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def searched_row(node: Node, limits: Limits) -> str | None:
    """What is searched fits the instruction and the tile buffer."""
    size, item = searched(node).size, node.operand(0).info.numpy.itemsize
    spare = 4 * limits.target.sram.burst_bytes
    highest = min(field_range("reduce", "channels")[1], (limits.target.local.tile_bytes - spare) // item)
    return None if size <= highest else f"{size} elements along the axis, at most {highest}"
