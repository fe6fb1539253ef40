"""Operators that read or write elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import MOVES, PURE, Node, OperatorFamily, ResultType, Shape, joined, moved, real_only


def gather(node: Node) -> list[ResultType]:
    """Infer the shape of ``params`` with ``axis`` replaced by the axes of the indices after ``batch_dims``.

    Block formats are decoded to the declared element type.
    """
    x, indices = common.shape_of(node, 0), common.shape_of(node, 1)
    dtype = node.results[0].dtype if node.operand(0).info.kind == "block" else node.operand(0).dtype
    if x is None or indices is None:
        return common.result(node, dtype, None)
    axis, batch = gather_axes(node, len(x), len(indices))
    for i in range(batch):
        common.same_dim(node, x[i], indices[i], f"size of batch axis {i}")
    return common.result(node, dtype, (*x[:axis], *indices[batch:], *x[axis + 1 :]))


def gather_axes(node: Node, rank: int, index_rank: int) -> tuple[int, int]:
    """Return axis and number of batch axes of a GATHER. Raises ModelError for invalid axes."""
    axis = common.normal_axis(node, int(common.option(node, "axis")), rank)
    written = int(common.option(node, "batch_dims"))
    batch = written + index_rank if written < 0 else written
    if not 0 <= batch <= min(axis, index_rank):
        raise node.error(
            f"batch_dims is {written}; with axis {axis} and indices of rank {index_rank} "
            f"it must be from 0 to {min(axis, index_rank)}"
        )
    return axis, batch


def gather_nd(node: Node) -> list[ResultType]:
    """Infer slices of ``params`` at the coordinates in the last axis of the indices."""
    x, indices, dtype = common.shape_of(node, 0), common.shape_of(node, 1), node.operand(0).dtype
    if x is None or indices is None:
        return common.result(node, dtype, None)
    depth = coordinate_count(node, x, indices)
    return common.result(node, dtype, None if depth is None else (*indices[:-1], *x[depth:]))


def coordinate_count(node: Node, x: Shape, indices: Shape) -> int | None:
    """Return the number of coordinates per index. Raises ModelError if ``x`` has fewer axes."""
    if not indices:
        raise node.error("the indices are a scalar; their last axis must hold coordinates")
    depth = indices[-1]
    if depth is not None and depth > len(x):
        raise node.error(f"coordinates have {depth} entries, the operand {common.shape_text(x)} has {len(x)} axes")
    return depth


def scatter_nd(node: Node) -> list[ResultType]:
    """Infer a tensor with the shape in operand 2."""
    indices, updates, wanted = common.shape_of(node, 0), common.shape_of(node, 1), common.static_ints(node, 2)
    found = common.wanted_shape(node, 2, node.operand(1).dtype)
    if indices is not None and updates is not None and wanted is not None:
        check_updates(node, indices, updates, wanted)
    return found


def check_updates(node: Node, indices: Shape, updates: Shape, wanted: Sequence[int]) -> None:
    """Raise ModelError if updates do not have a slice of shape ``wanted`` per coordinate."""
    depth = coordinate_count(node, tuple(wanted), indices)
    if depth is None:
        return
    expected: Shape = (*indices[:-1], *wanted[depth:])
    if not common.compatible(expected, updates):
        raise node.error(
            f"the updates have the shape {common.shape_text(updates)}; it must be {common.shape_text(expected)}"
        )


def sparse_to_dense(node: Node) -> list[ResultType]:
    """Infer a tensor with the shape in operand 1."""
    common.shape_of(node, 0, (0, 1, 2))
    common.shape_of(node, 2, (0, 1))
    common.check_single(node, 3)
    return common.wanted_shape(node, 1, node.operand(2).dtype)


def one_hot(node: Node) -> list[ResultType]:
    """Infer the indices with an axis of ``depth`` elements inserted at ``axis`` (-1: last)."""
    indices, dtype, depth = common.shape_of(node, 0), node.operand(2).dtype, common.static_int(node, 1)
    for index in (2, 3):
        common.check_single(node, index)
    if indices is None:
        return common.result(node, dtype, None)
    if depth is not None and depth < 0:
        raise node.error(f"the depth is {depth}; it must not be negative")
    axis = common.normal_axis(node, int(common.option(node, "axis")), len(indices) + 1)
    return common.result(node, dtype, (*indices[:axis], depth, *indices[axis:]))


def dynamic_update_slice(node: Node) -> list[ResultType]:
    """Infer the type of operand 0. Operand 1 must fit into it."""
    x, update, length = common.shape_of(node, 0), common.shape_of(node, 1), common.vector_length(node, 2)
    if x is not None:
        common.same_dim(node, len(x), length, "rank of the operand and number of start positions")
        if update is not None:
            check_fits(node, x, update)
    return common.unary(node)


def check_fits(node: Node, x: Shape, update: Shape) -> None:
    """Raise ModelError if ``update`` has another rank or is larger than ``x`` along an axis."""
    fits = len(x) == len(update)
    if not fits or any(None not in (a, b) and (b or 0) > (a or 0) for a, b in zip(x, update, strict=True)):
        raise node.error(f"the update {common.shape_text(update)} does not fit into the operand {common.shape_text(x)}")


def verify_scatter_nd(node: Node) -> None:
    """Check that the updates have the result's element type."""
    if (found := node.operand(1).dtype) != (expected := node.results[0].dtype):
        raise node.error(f"operand 1 (updates) is {found}, the result {expected}; they must be equal")


def verify_gather(node: Node) -> None:
    """Check the element types. Block formats yield float32."""
    if node.operand(0).info.kind != "block":
        common.verify_first_dtype(node)
    elif node.results[0].dtype != "float32":
        raise node.error(f"the operand is {node.operand(0).dtype}, the result {node.results[0].dtype} must be float32")


_op = OperatorFamily(__name__, traits=MOVES)
_filled = replace(_op, quant=joined(2, 3), verify="same")

SPECS = (
    _op(
        "GATHER",
        "params indices:int16|int",
        "slices at given indices along an axis",
        version=7,
        quant=moved(table=itemgetter("axis")),
        verify="own",
        bounds="moved",
    ),
    _op("GATHER_ND", "params indices:int16|int", "slices at coordinates", version=5, quant=moved(table=0)),
    _op(
        "SCATTER_ND",
        "indices:int16|int updates shape:int",
        "sum of slices into zeros at coordinates",
        quant=real_only("it adds to the code 0, which may not represent zero"),
        traits=PURE,
        verify="own",
    ),
    _filled(
        "SPARSE_TO_DENSE",
        "indices:int16|int shape:int values default",
        "tensor of one value, with other values at coordinates",
        version=3,
    ),
    _filled("ONE_HOT", "indices:int16|int depth:int32 on_value off_value", "one-hot encoding along a new axis"),
    _op(
        "DYNAMIC_UPDATE_SLICE",
        "operand update start:int",
        "operand with a replaced part",
        version=5,
        quant=joined(0, 1),
        verify="same",
        bounds="moved",
    ),
)
