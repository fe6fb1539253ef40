"""Operators that read or write elements at given indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.blocks import decode_blocks
from odc_mlir.ops.indexing import check_fits, check_updates, coordinate_count, gather_axes
from odc_mlir.ops.infer.common import check_elements, normal_axis, option, require_dtype, shape_text
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common


def gather(node: Node) -> Execute:
    """Gather slices of operand 0 along an axis. Rows of a block format are decoded to float32."""
    info = node.operand(0)
    if info.info.kind == "block":
        return _gather_blocks(node)

    def compute(x: Array, indices: Array) -> Array:
        axis, batch = gather_axes(node, x.ndim, indices.ndim)
        if x.shape[:batch] != indices.shape[:batch]:
            raise common.input_error(
                node, f"operand {shape_text(x.shape)} and indices {shape_text(indices.shape)} have different batches"
            )
        common.check_index(node, indices, x.shape[axis], "index")
        sizes = (*x.shape[:axis], *indices.shape[batch:], *x.shape[axis + 1 :])
        check_elements(node, sizes, info.dtype)
        if batch == 0:
            return x.take(indices.reshape(-1), axis).reshape(sizes)
        return _batched_take(x, indices, axis, batch).reshape(sizes)

    return common.computed(node, compute)


def _batched_take(x: Array, indices: Array, axis: int, batch: int) -> Array:
    """Return the elements of batch entries of ``x`` at the indices of the entry: ``[batches, outer, taken, inner]``."""
    batches, outer = math.prod(x.shape[:batch]), math.prod(x.shape[batch:axis])
    entries = x.reshape(batches, outer, x.shape[axis], math.prod(x.shape[axis + 1 :]))
    taken = indices.reshape(batches, math.prod(indices.shape[batch:]))
    return entries[np.arange(batches)[:, None, None], np.arange(outer)[:, None], taken[:, None, :]]


def _gather_blocks(node: Node) -> Execute:
    info = node.operand(0)
    if not info.is_const:
        raise common.unsupported(node, f"a table of {info.dtype} must be constant")
    rank = len(info.static_shape)
    axis, batch = gather_axes(node, rank, rank)
    if axis == rank - 1 or batch:
        raise common.unsupported(
            node, f"{info.dtype} can only be gathered along axes before the last and without batch_dims"
        )

    def compute(x: Array, indices: Array) -> Array:
        common.check_index(node, indices, x.shape[axis], "index")
        sizes = (*info.static_shape[:axis], *indices.shape, *info.static_shape[axis + 1 :])
        check_elements(node, sizes, "float32")
        return decode_blocks(x.take(indices.reshape(-1), axis), info.dtype).reshape(sizes)

    return common.computed(node, compute)


def _coordinates(node: Node, indices: Array, sizes: Sequence[int]) -> tuple[Array, ...]:
    """Return one index array per axis from coordinates in the last axis. Check indices against ``sizes``."""
    parts = indices.transpose(indices.ndim - 1, *range(indices.ndim - 1))
    for axis, part in enumerate(parts):
        common.check_index(node, part, sizes[axis], f"coordinate along axis {axis}")
    return tuple(parts.astype(np.intp))


@common.planning(0, 1)
def gather_nd(node: Node, shape: tuple[int, ...], indices: Array) -> common.PlannedKernel:
    """Gather slices of operand 0 at the coordinates in operand 1."""
    depth = coordinate_count(node, shape, indices.shape) or 0
    sizes = (*indices.shape[:-1], *shape[depth:])
    check_elements(node, sizes, node.operand(0).dtype)
    if depth == 0:
        return lambda x: np.broadcast_to(x, sizes).copy()
    coordinates = _coordinates(node, indices.reshape(-1, depth), shape)
    return lambda x: x[coordinates].reshape(sizes)


_ADDED = ("float32", "uint8", "bool", "int8", "int32", "int64")


def scatter_nd(node: Node) -> Execute:
    """Add the slices in operand 1 to zeros at the coordinates in operand 0, in order. Codes wrap."""
    require_dtype(node, node.operand(1), *_ADDED)

    def compute(indices: Array, updates: Array, shape: Array) -> Array:
        sizes = common.wanted_sizes(node, shape)
        check_updates(node, indices.shape, updates.shape, sizes)
        out = np.zeros(sizes, updates.dtype)
        if indices.shape[-1] == 0:
            out += updates.sum(axis=tuple(range(indices.ndim - 1)), dtype=updates.dtype)
        else:
            np.add.at(out, _coordinates(node, indices, sizes), updates)
        return out

    return common.computed(node, compute)


@common.planning(2, 0, 1, 3)
def sparse_to_dense(
    node: Node, shape: tuple[int, ...], indices: Array, wanted: Array, default: Array
) -> common.PlannedKernel:
    """Fill a tensor with one value, then write operand 2 at coordinates in operand 0. The last duplicate wins."""
    sizes = common.wanted_sizes(node, wanted)
    rows = indices if indices.ndim == 2 else indices.reshape(-1, 1)
    if rows.shape[1] != len(sizes):
        raise common.input_error(node, f"coordinates have {rows.shape[1]} entries, the result's shape {list(sizes)}")
    if shape and math.prod(shape) != rows.shape[0]:
        raise common.input_error(node, f"there are {math.prod(shape)} values for {rows.shape[0]} coordinates")
    places, rest = _coordinates(node, rows, sizes), common.single(node, default, "the default value")

    def scatter(values: Array) -> Array:
        out = np.empty(sizes, values.dtype)
        out.fill(rest[()])
        out[places] = values
        return out

    return scatter


def one_hot(node: Node) -> Execute:
    """Compute ``on_value`` if the index equals the position along the new axis, else ``off_value``."""
    on_of, off_of = common.fetch(node, 2), common.fetch(node, 3)
    place, dtype = int(option(node, "axis")), node.results[0].info.numpy

    def make(shape: tuple[int, ...], wanted: Array) -> Callable[[Array], Array]:
        """Return the mask of ``on_value``."""
        depth = int(common.single(node, wanted, "the depth"))
        if depth < 0:
            raise common.input_error(node, f"the depth is {depth}; it must not be negative")
        axis = normal_axis(node, place, len(shape) + 1)
        check_elements(node, (*shape, depth), node.results[0].dtype)
        steps = np.arange(depth, dtype=node.operand(0).info.numpy).reshape(-1, *(1,) * (len(shape) - axis))
        apart = (*shape[:axis], 1, *shape[axis:])
        return lambda indices: indices.reshape(apart) == steps

    where_of = common.planned(node, 0, (1,), make)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        on, off = (common.single(node, value(operands), "a value") for value in (on_of, off_of))
        return [np.where(where_of(operands)[0], on, off).astype(dtype, copy=False)]

    return execute


@common.computing
def dynamic_update_slice(node: Node, x: Array, update: Array, places: Array) -> Array:
    """Write operand 1 into operand 0 at the position in operand 2, clamped so that it fits."""
    out, start = x.copy(), common.ints(places)
    check_fits(node, out.shape, update.shape)
    if len(start) != out.ndim:
        raise common.input_error(node, f"there are {len(start)} start positions for an operand of rank {out.ndim}")
    firsts = [min(max(s, 0), d - u) for s, d, u in zip(start, out.shape, update.shape, strict=True)]
    out[tuple(slice(s, s + u) for s, u in zip(firsts, update.shape, strict=True))] = update
    return out
