"""The checks behind the placement rules of operators that find elements, and of those that go by computed positions."""

from __future__ import annotations

import math
from typing import NamedTuple

from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.fixed import code_range
from odc_mlir.ops.infer.common import normal_axis
from odc_mlir.ops.infer.indexing import gather_axes
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.partition.rules.checks import MOST_DIMENSIONS, Check, PlacementLimits, moves, shape_text

MOST_TABLES = 64  # of a GATHER by computed numbers: each takes an instruction


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


def searched_row(node: Node, limits: PlacementLimits) -> str | None:
    """Check that the searched operand fits the instruction and the tile buffer."""
    size, item = searched(node).size, node.operand(0).info.numpy.itemsize
    spare = 4 * limits.target.sram.burst_bytes
    highest = min(field_range("reduce", "channels")[1], (limits.target.local.tile_bytes - spare) // item)
    return None if size <= highest else f"{size} elements along the axis, at most {highest}"


def updated_axis(node: Node) -> int | None:
    """The only axis along which a DYNAMIC_UPDATE_SLICE changes less than everything, 0 where there is none.

    None where there are several, or more than one slice changes.
    """
    pairs = zip(node.operand(0).static_shape, node.operand(1).static_shape, strict=True)
    axes = [(axis, part) for axis, (whole, part) in enumerate(pairs) if part != whole]
    if not axes:
        return 0 if node.operand(1).static_shape[:1] == (1,) else None
    return axes[0][0] if len(axes) == 1 and axes[0][1] == 1 else None


def updated_slice(node: Node, _: PlacementLimits) -> str | None:
    """Check that a computed position has one element, for one slice, and a valid mask."""
    whole, part, start = node.operand(0), node.operand(1), node.operand(2)
    if start.is_const:
        return None
    if start.dtype != "int32":
        return f"{start.name!r} is {start.dtype}"
    axis = updated_axis(node)
    if axis is None or len(whole.static_shape) > MOST_DIMENSIONS:
        return f"{part.name!r} has {shape_text(part)}, {whole.name!r} {shape_text(whole)}, and the position is computed"
    size = whole.static_shape[axis]
    highest = code_range("int16")[1]
    return None if size <= highest else f"{size} positions, at most {highest}"


class GatherShape(NamedTuple):
    """``taken`` of the ``rows`` of ``batches`` x ``outer`` tables, each of ``inner`` elements.

    All tables of a batch have one list of row numbers.
    """

    batches: int
    outer: int
    rows: int
    inner: int
    taken: int


def gathered(node: Node) -> GatherShape:
    """What GATHER takes of its operand; raises ModelError for an axis that there is not."""
    shape, places = node.operand(0).static_shape, node.operand(1).static_shape
    axis, batch = gather_axes(node, len(shape), len(places))
    return GatherShape(
        math.prod(shape[:batch]),
        math.prod(shape[batch:axis]),
        shape[axis],
        math.prod(shape[axis + 1 :]),
        math.prod(places[batch:]),
    )


def gathered_rows(node: Node, _: PlacementLimits) -> str | None:
    """Rows and their numbers fit the instruction, and there are few tables."""
    if node.operand(1).is_const:
        return None
    found = gathered(node)
    if (tables := found.batches * found.outer) > MOST_TABLES:
        return f"{tables} tables, at most {MOST_TABLES}"
    row_bytes = found.inner * node.operand(0).info.numpy.itemsize
    for what, value, field in (
        ("rows taken", found.taken, "count"),
        ("rows", found.rows, "rows"),
        ("bytes of a row", row_bytes, "row_bytes"),
    ):
        if value > (highest := field_range("gather", field)[1]):
            return f"{value} {what}, at most {highest}"
    return None


def moves_where_constant(index: int) -> Check:
    """Check that codes move, where operand ``index`` says at compile time which."""

    def check(node: Node, limits: PlacementLimits) -> str | None:
        return moves(node, limits) if node.operand(index).is_const else None

    return check
