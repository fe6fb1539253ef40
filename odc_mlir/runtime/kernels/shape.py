"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from odc_mlir.numerics.elementwise import joined_codes
from odc_mlir.ops.infer.common import check_elements, normal_axis, option
from odc_mlir.ops.shape import (
    masks_of,
    new_shape,
    permutation,
    plain_slice,
    squeezed_axes,
    strided_slice,
    written_shape,
)
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels import common


def reshape(node: Node) -> Execute:
    """Reshape operand 0 to operand 1 or to the option."""
    written = written_shape(node)

    def make(shape: tuple[int, ...], *values: Array) -> common.PlannedKernel:
        wanted = written if written is not None else common.ints(values[0])
        return _reshaped(d or 0 for d in new_shape(node, shape, wanted))

    return common.planned(node, 0, () if written is not None else (1,), make)


def _reshaped(sizes: Iterable[int]) -> common.PlannedKernel:
    wanted = tuple(sizes)
    return lambda x: x.reshape(wanted)


@common.planning(0)
def squeeze(node: Node, shape: tuple[int, ...]) -> common.PlannedKernel:
    """Remove axes of size 1."""
    axes = squeezed_axes(node, shape) or ()
    return _reshaped(d for i, d in enumerate(shape) if i not in axes)


@common.planning(0, 1)
def expand_dims(node: Node, shape: tuple[int, ...], value: Array) -> common.PlannedKernel:
    """Insert an axis of size 1 at operand 1."""
    axis = common.ints(value)
    if len(axis) != 1:
        raise common.input_error(node, f"the axis {list(axis)} must be one number")
    place = normal_axis(node, axis[0], len(shape) + 1)
    return _reshaped((*shape[:place], 1, *shape[place:]))


def shape(node: Node) -> Execute:
    """Compute the operand's sizes."""
    dtype = node.results[0].info.numpy
    return common.computed(node, lambda x: np.array(x.shape, dtype))


def strided(node: Node) -> Execute:
    """Slice a range with a stride along each axis."""
    masks = masks_of(node)

    def make(shape: tuple[int, ...], *values: Array) -> common.PlannedKernel:
        begin, end, strides = map(common.ints, values)
        taken = strided_slice(node, shape, begin, end, strides, masks)
        indices, sizes = (*taken.indices, ...), tuple(d or 0 for d in taken.shape)
        return lambda x: np.asarray(x[indices], order="C").reshape(sizes)

    return common.planned(node, 0, (1, 2, 3), make)


@common.planning(0, 1, 2)
def slice_(node: Node, shape: tuple[int, ...], begin: Array, size: Array) -> common.PlannedKernel:
    """Slice a range along each axis."""
    indices = plain_slice(node, shape, common.ints(begin), common.ints(size)).indices
    return lambda x: np.asarray(x[indices], order="C")


def pack(node: Node) -> Execute:
    """Stack operands of the same shape along a new axis."""
    axis = int(option(node, "axis"))

    def compute(*values: Array) -> Array:
        shape = values[0].shape
        if any(v.shape != shape for v in values):
            raise common.input_error(node, f"operands have the shapes {[list(v.shape) for v in values]}; one is needed")
        place = normal_axis(node, axis, len(shape) + 1)
        slices = (*shape[:place], 1, *shape[place:])
        return np.concatenate([v.reshape(slices) for v in values], place)

    return common.computed(node, compute)


def concatenation(node: Node) -> Execute:
    """Concatenate operands along an axis. First rescale uint8 operands with another scale than the result's."""
    axis = int(option(node, "axis"))
    clamp = common.real_clamp(node, finite=False) if node.results[0].dtype == "float32" else None
    if clamp is None and common.fused_activation(node) != "none":
        raise common.unsupported(node, f"fused activation {common.fused_activation(node)!r} is not supported here")
    rescale = [_rescaling(node, info) for info in node.operands if info is not None]
    rescaled = any(r is not None for r in rescale)
    shapes: list[tuple[int, ...]] = []
    place = 0

    def check(values: list[Array]) -> int:
        place = normal_axis(node, axis, values[0].ndim)
        rest = {(v.ndim, v.shape[:place], v.shape[place + 1 :]) for v in values}
        if len(rest) != 1:
            raise common.input_error(
                node, f"shapes {[list(v.shape) for v in values]} cannot be joined along axis {place}"
            )
        check_elements(node, (sum(v.size for v in values),), node.results[0].dtype)
        return place

    def compute(*given: Array) -> Array:
        nonlocal shapes, place
        values: Sequence[Array] = given
        if rescaled:
            values = [v if r is None else r(v) for r, v in zip(rescale, given, strict=True)]
        values = [v if v.ndim else v.reshape(1) for v in values]
        found = [v.shape for v in values]
        if found != shapes:
            place = check(values)
            shapes = found
        joined = np.concatenate(values, place)
        return joined if clamp is None else clamp(joined)

    return common.computed(node, compute)


def _rescaling(node: Node, info: TensorInfo) -> Callable[[Array], Array] | None:
    """Return the function that rescales a quantised operand to the result's scale, or None if the scales agree."""
    out = node.results[0]
    if info.quant is None or out.quant is None or not info.info.is_integer:
        return None
    if info.quant.agrees(out.quant):
        return None
    if info.dtype != "uint8":
        raise node.error(
            f"{info.name!r} and the result have different scales or zero points; {info.dtype} needs equal ones"
        )
    codes = joined_codes(common.scale_of(node, info), common.scale_of(node, out))
    return lambda values: codes[values]


def pad(node: Node) -> Execute:
    """Pad operand 0 with zeros (quantised: zero points)."""
    zero = common.quantised_zero(node, node.results[0])
    return common.planned(node, 0, (1,), lambda shape, pads: padding(node, shape, pads, zero))


def padding(node: Node, shape: tuple[int, ...], pads: Array, value: Array | int) -> common.PlannedKernel:
    """Return the function that pads arrays of ``shape`` with ``value``. ``pads`` is ``[rank, 2]``."""
    pairs = pad_pairs(node, shape, pads)
    sizes = tuple(d + a + b for d, (a, b) in zip(shape, pairs, strict=True))
    check_elements(node, sizes, node.results[0].dtype)
    inside = tuple(slice(a, a + d) for d, (a, _) in zip(shape, pairs, strict=True))
    blank = isinstance(value, int) and value == 0

    def pad(x: Array) -> Array:
        if blank:
            out = np.zeros(sizes, x.dtype)
        else:
            out = np.empty(sizes, x.dtype)
            out.fill(value)
        out[inside] = x
        return out

    return pad


def pad_pairs(node: Node, shape: tuple[int, ...], pads: Array) -> list[tuple[int, int]]:
    """Return the padding of each axis of ``shape``. Raises InputError if a pair is invalid."""
    if pads.shape != (len(shape), 2) or pads.min(initial=0) < 0:
        raise common.input_error(node, f"the paddings {pads.tolist()} must be {len(shape)} pairs that are not negative")
    return [(int(a), int(b)) for a, b in pads]


@common.planning(0, 1)
def transpose(node: Node, shape: tuple[int, ...], order: Array) -> common.PlannedKernel:
    """Permute the axes of operand 0 by operand 1."""
    places = permutation(node, common.ints(order), len(shape))
    return lambda x: x.transpose(places).copy()
