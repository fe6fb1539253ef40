"""Operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.ops.infer.common import check_elements, normal_axis, option
from odc_mlir.ops.infer.shape import new_shape, permutation, squeezed_axes, written_shape
from odc_mlir.ops.infer.slicing import masks_of, plain_slice, strided_slice
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import (
    fetch,
    fused_activation,
    input_error,
    ints,
    quantised_zero,
    real_clamp,
    scale_of,
    unsupported,
)


def reshape(node: Node) -> Execute:
    """Operand 0 in the shape of operand 1, or of the option."""
    x_of = fetch(node, 0)
    written = written_shape(node)
    shape_from = None if written is not None else fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        wanted = ints(shape_from(operands)) if shape_from is not None else written or ()
        return [x.reshape([d or 0 for d in new_shape(node, x.shape, wanted)])]

    return execute


def squeeze(node: Node) -> Execute:
    """Operand without axes of size 1."""
    x_of = fetch(node, 0)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        axes = squeezed_axes(node, x.shape) or ()
        return [x.reshape([d for i, d in enumerate(x.shape) if i not in axes])]

    return execute


def expand_dims(node: Node) -> Execute:
    """Operand 0 with an axis of size 1 inserted at operand 1."""
    x_of, axis_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, axis = x_of(operands), ints(axis_of(operands))
        if len(axis) != 1:
            raise input_error(node, f"the axis {list(axis)} must be one number")
        place = normal_axis(node, axis[0], x.ndim + 1)
        return [x.reshape(*x.shape[:place], 1, *x.shape[place:])]

    return execute


def shape(node: Node) -> Execute:
    """The operand's sizes."""
    x_of, dtype = fetch(node, 0), node.results[0].info.numpy
    return lambda operands: [np.array(x_of(operands).shape, dtype)]


def strided(node: Node) -> Execute:
    """Every n-th element of a range of each axis."""
    x_of, parts, masks = fetch(node, 0), [fetch(node, i) for i in (1, 2, 3)], masks_of(node)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        begin, end, strides = (ints(part(operands)) for part in parts)
        taken = strided_slice(node, x.shape, begin, end, strides, masks)
        return [np.ascontiguousarray(x[(*taken.indices, ...)]).reshape([d or 0 for d in taken.shape])]

    return execute


def slice_(node: Node) -> Execute:
    """A range of each axis."""
    x_of, begin_of, size_of = fetch(node, 0), fetch(node, 1), fetch(node, 2)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        taken = plain_slice(node, x.shape, ints(begin_of(operands)), ints(size_of(operands)))
        return [np.ascontiguousarray(x[taken.indices])]

    return execute


def _values(node: Node) -> Callable[[Sequence[Array | None]], list[Array]]:
    sources = [fetch(node, i) for i in range(len(node.operands))]
    return lambda operands: [source(operands) for source in sources]


def pack(node: Node) -> Execute:
    """Operands of one shape stacked along a new axis."""
    values_of, axis = _values(node), int(option(node, "axis"))

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        values = values_of(operands)
        if len({v.shape for v in values}) != 1:
            raise input_error(node, f"operands have the shapes {[list(v.shape) for v in values]}; one is needed")
        return [np.stack(values, normal_axis(node, axis, values[0].ndim + 1))]

    return execute


def concatenation(node: Node) -> Execute:
    """Operands joined along an axis, scalars to a vector; uint8 operands of other scales are rescaled first."""
    values_of, axis = _values(node), int(option(node, "axis"))
    clamp = real_clamp(node) if node.results[0].dtype == "float32" else None
    if clamp is None and fused_activation(node) != "none":
        raise unsupported(node, f"fused activation {fused_activation(node)!r} is not supported here")
    rescale = [_rescaling(node, info) for info in node.operands if info is not None]

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        values = [v if r is None else r(v) for r, v in zip(rescale, values_of(operands), strict=True)]
        values = [v if v.ndim else v.reshape(1) for v in values]
        place = normal_axis(node, axis, values[0].ndim)
        rest = {(v.ndim, v.shape[:place], v.shape[place + 1 :]) for v in values}
        if len(rest) != 1:
            raise input_error(node, f"shapes {[list(v.shape) for v in values]} cannot be joined along axis {place}")
        check_elements(node, (sum(v.size for v in values),), node.results[0].dtype)
        joined = np.concatenate(values, place)
        return [joined if clamp is None else clamp(joined)]

    return execute


def _rescaling(node: Node, info: TensorInfo) -> Callable[[Array], Array] | None:
    """How to bring a quantised operand to the result's scale; None where there is nothing to do."""
    out = node.results[0]
    if info.quant is None or out.quant is None or not info.info.is_integer:
        return None
    if info.quant.scales == out.quant.scales and info.quant.zero_points == out.quant.zero_points:
        return None
    if info.dtype != "uint8":
        raise node.error(
            f"{info.name!r} and the result have different scales or zero points; {info.dtype} needs equal ones"
        )
    (scale, zero), (out_scale, out_zero) = scale_of(node, info), scale_of(node, out)
    ratio = np.float32(scale) * (np.float32(1) / np.float32(out_scale))
    table = np.arange(256, dtype=np.float32) * ratio + np.float32(np.float32(-zero) * ratio)
    codes = np.clip(round_half_away(table) + out_zero, 0, 255).astype(np.uint8)
    return lambda values: codes[values]


def pad(node: Node) -> Execute:
    """Operand 0 with zeros (quantised: zero points) around it."""
    x_of, pads_of, zero = fetch(node, 0), fetch(node, 1), quantised_zero(node, node.results[0])
    return lambda operands: [padded(node, x_of(operands), np.asarray(pads_of(operands)), zero)]


def padded(node: Node, x: Array, pads: Array, value: Array | int) -> Array:
    """``x`` with copies of ``value`` around it; ``pads`` is ``[rank, 2]``: elements before and after each axis."""
    pairs = pad_pairs(node, x, pads)
    sizes = [d + a + b for d, (a, b) in zip(x.shape, pairs, strict=True)]
    check_elements(node, sizes, node.results[0].dtype)
    out = np.full(sizes, value, x.dtype)
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, pairs, strict=True))] = x
    return out


def pad_pairs(node: Node, x: Array, pads: Array) -> list[tuple[int, int]]:
    """Elements before and after each axis of ``x``; refused unless one pair per axis, none negative."""
    if pads.shape != (x.ndim, 2) or pads.min(initial=0) < 0:
        raise input_error(node, f"the paddings {pads.tolist()} must be {x.ndim} pairs that are not negative")
    return [(int(a), int(b)) for a, b in pads]


def transpose(node: Node) -> Execute:
    """Operand 0 with its axes in the order of operand 1."""
    x_of, order_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        return [np.ascontiguousarray(x.transpose(permutation(node, ints(order_of(operands)), x.ndim)))]

    return execute
