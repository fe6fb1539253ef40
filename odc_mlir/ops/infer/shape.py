"""Shapes and checks of operators that move elements without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from odc_mlir.ops.infer.common import (
    normal_axis,
    option,
    result,
    same_dim,
    shape_of,
    shape_text,
    static_ints,
    unknown_shape,
    vector_length,
    verified,
    verify_first_dtype,
    verify_same_dtype,
)
from odc_mlir.ops.infer.slicing import expand_entries, masks_of, plain_slice, strided_slice
from odc_mlir.ops.spec import Node, ResultType, Shape


def reshape(node: Node) -> list[ResultType]:
    """Infer operand 0 with the shape in operand 1, or in the option ``new_shape``.

    The option counts if operand 1 is omitted or not a vector; without both, the declared shape of the result counts.
    """
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    wanted = written_shape(node)
    if wanted is None:
        wanted = static_ints(node, 1)
    if wanted is None:
        sizes = shape_of(node, 1)
        known = sizes is not None and None not in sizes
        return result(node, dtype, unknown_shape(math.prod(d or 0 for d in sizes or ()) if known else None))
    return result(node, dtype, new_shape(node, x, wanted))


def written_shape(node: Node) -> tuple[int, ...] | None:
    """Return the shape in the option, or None if operand 1 determines it.

    The option counts if operand 1 is omitted or, unless the option is empty, not a vector.
    """
    info, written = node.optional(1), tuple(node.options.get("new_shape") or ())
    if info is not None and (info.shape is None or len(info.shape) == 1 or not written):
        return None
    if info is None and not written:
        return tuple(-1 if d is None else d for d in node.results[0].shape or ())
    return () if written == (0,) else written  # old files say "scalar" this way


def new_shape(node: Node, x: Shape | None, wanted: Sequence[int]) -> Shape:
    """Return ``wanted`` with -1 replaced by the rest; raise ModelError if the element count differs."""
    if sum(d == -1 for d in wanted) > 1 or any(d < -1 for d in wanted):
        raise node.error(f"the new shape {list(wanted)} must have at most one -1 and no other negative size")
    known = math.prod(d for d in wanted if d >= 0)
    total = None if x is None or any(d is None for d in x) else math.prod(d for d in x if d is not None)
    if total is None:
        return tuple(None if d == -1 else d for d in wanted)
    if -1 not in wanted:
        if total != known:
            raise node.error(f"{shape_text(x)} has {total} elements, the new shape {list(wanted)} has {known}")
        return tuple(wanted)
    if (known == 0 and total != 0) or (known and total % known):
        raise node.error(f"{total} elements of {shape_text(x)} cannot fill the new shape {list(wanted)}")
    return tuple((total // known if known else 0) if d == -1 else d for d in wanted)


def squeeze(node: Node) -> list[ResultType]:
    """Infer the operand without the axes in ``squeeze_dims`` (all of size 1 if it is empty)."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    if x is None:
        return result(node, dtype, None)
    axes = squeezed_axes(node, x)
    return result(node, dtype, None if axes is None else tuple(d for i, d in enumerate(x) if i not in axes))


def squeezed_axes(node: Node, x: Shape) -> frozenset[int] | None:
    """Return the axes that SQUEEZE drops, None if unknown; raise ModelError for sizes other than 1."""
    named = tuple(option(node, "squeeze_dims") or ())
    if not named:
        return None if None in x else frozenset(i for i, d in enumerate(x) if d == 1)
    axes = frozenset(normal_axis(node, axis, len(x)) for axis in named)
    for axis in axes:
        if x[axis] not in (1, None):
            raise node.error(f"axis {axis} of {shape_text(x)} cannot be dropped; its size must be 1")
    return axes


def expand_dims(node: Node) -> list[ResultType]:
    """Infer operand 0 with an axis of size 1 inserted at the position in operand 1."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    if vector_length(node, 1) not in (None, 1):
        raise node.error("the axis must be one number")
    axis = static_ints(node, 1)
    if x is None:
        return result(node, dtype, None)
    if axis is None:
        return result(node, dtype, unknown_shape(len(x) + 1))
    place = normal_axis(node, axis[0], len(x) + 1)
    return result(node, dtype, (*x[:place], 1, *x[place:]))


def shape(node: Node) -> list[ResultType]:
    """Infer a vector of ``out_type`` with the operand's sizes."""
    x = shape_of(node, 0)
    return result(node, option(node, "out_type"), (None if x is None else len(x),))


def _check_shape(node: Node) -> None:
    if option(node, "out_type") not in ("int32", "int64"):
        raise node.error(f"out_type is {option(node, 'out_type')}; allowed are int32, int64")


def strided(node: Node) -> list[ResultType]:
    """Infer operand 0 from begin (operand 1) to end (2) by strides (3)."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    lengths = [vector_length(node, i) for i in (1, 2, 3)]
    entries = [static_ints(node, i) for i in (1, 2, 3)]
    if x is None:
        return result(node, dtype, None)
    masks = masks_of(node)
    begin, end, strides = entries
    if begin is not None and end is not None and strides is not None:
        return result(node, dtype, strided_slice(node, x, begin, end, strides, masks).shape)
    count = next((length for length in lengths if length is not None), None)
    if count is None:
        return result(node, dtype, None)
    places = expand_entries(node, count, len(x), masks)
    kept = [p for p in places if not (isinstance(p, int) and masks.shrink_axis >> p & 1)]
    return result(node, dtype, tuple(1 if p is None else None for p in kept))


def slice_(node: Node) -> list[ResultType]:
    """Infer ``size`` (operand 2) elements of operand 0 from ``begin`` (1) on."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    lengths = [vector_length(node, i) for i in (1, 2)]
    begin, size = static_ints(node, 1), static_ints(node, 2)
    if x is None:
        return result(node, dtype, unknown_shape(next((n for n in lengths if n is not None), None)))
    if begin is None or size is None or min(begin, default=0) < 0:  # refused when it runs, but files exist
        known = [None if d == -1 else d for d in size] if size is not None and len(size) == len(x) else [None] * len(x)
        if any(d is not None and d < 0 for d in known):
            raise node.error(f"size is {size}; entries must not be below -1")
        return result(node, dtype, tuple(known))
    return result(node, dtype, plain_slice(node, x, begin, size).shape)


def pack(node: Node) -> list[ResultType]:
    """Infer operands of one shape stacked along a new axis."""
    count, dtype = len(node.operands), node.operand(0).dtype
    if option(node, "values_count") != count:
        raise node.error(f"values_count is {option(node, 'values_count')}, but there are {count} operands")
    shapes = [s for i in range(count) if (s := shape_of(node, i)) is not None]
    if not shapes:
        return result(node, dtype, None)
    merged = shapes[0]
    for other in shapes[1:]:
        if len(other) != len(merged):
            raise node.error(f"operands {shape_text(merged)} and {shape_text(other)} must have one shape")
        merged = tuple(same_dim(node, a, b, "sizes of packed operands") for a, b in zip(merged, other, strict=True))
    axis = normal_axis(node, int(option(node, "axis")), len(merged) + 1)
    return result(node, dtype, (*merged[:axis], count, *merged[axis:]))


def concatenation(node: Node) -> list[ResultType]:
    """Infer operands joined along ``axis``; their other sizes must agree. Scalars make a vector."""
    dtype = node.operand(0).dtype
    shapes = [shape_of(node, i) for i in range(len(node.operands))]
    known = [s for s in shapes if s is not None]
    if not known:
        return result(node, dtype, None)
    rank = len(known[0])
    axis = normal_axis(node, int(option(node, "axis")), max(rank, 1))
    sizes: list[int | None] = list(known[0])
    for other in known[1:]:
        if len(other) != rank:
            raise node.error(f"operands {shape_text(known[0])} and {shape_text(other)} must have one rank")
        sizes = [d if i == axis else same_dim(node, d, other[i], f"size of axis {i}") for i, d in enumerate(sizes)]
    if rank == 0:
        return result(node, dtype, (len(shapes),))
    joined = [s[axis] if s is not None else None for s in shapes]
    sizes[axis] = None if None in joined else sum(d for d in joined if d is not None)
    return result(node, dtype, tuple(sizes))


def pad(node: Node) -> list[ResultType]:
    """Infer operand 0 padded by operand 1 (``[rank, 2]``: before, after)."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    pads_shape = shape_of(node, 1, 2)
    if x is None:
        return result(node, dtype, unknown_shape(pads_shape[0] if pads_shape else None))
    if pads_shape is not None and (pads_shape[0] not in (None, len(x)) or pads_shape[1] not in (None, 2)):
        raise node.error(f"the paddings have the shape {shape_text(pads_shape)}; it must be [{len(x)}, 2]")
    flat = static_ints(node, 1)
    if flat is None:
        return result(node, dtype, unknown_shape(len(x)))
    pairs = list(zip(flat[0::2], flat[1::2], strict=True))
    if any(d < 0 for d in flat):
        raise node.error(f"the paddings are {pairs}; they must not be negative")
    return result(node, dtype, tuple(None if d is None else d + a + b for d, (a, b) in zip(x, pairs, strict=True)))


def transpose(node: Node) -> list[ResultType]:
    """Infer operand 0 with its axes in the order of operand 1."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    length = vector_length(node, 1)
    order = static_ints(node, 1)
    if x is None:
        return result(node, dtype, unknown_shape(length))
    if order is None:
        return result(node, dtype, unknown_shape(len(x)))
    return result(node, dtype, tuple(x[i] for i in permutation(node, order, len(x))))


def permutation(node: Node, order: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return ``order`` counted from the front; raise ModelError unless it permutes ``rank`` axes."""
    axes = tuple(normal_axis(node, axis, rank) for axis in order)
    if sorted(axes) != list(range(rank)):
        raise node.error(f"the permutation {list(order)} must name each of the {rank} axes once")
    return axes


verify_reshape = verified(verify_first_dtype, reshape)
verify_squeeze = verified(verify_first_dtype, squeeze)
verify_expand_dims = verified(verify_first_dtype, expand_dims)
verify_shape = verified(_check_shape, shape)
verify_strided_slice = verified(verify_first_dtype, strided)
verify_slice = verified(verify_first_dtype, slice_)
verify_pack = verified(verify_same_dtype, pack)
verify_concatenation = verified(verify_same_dtype, concatenation)
verify_pad = verified(verify_first_dtype, pad)
verify_transpose = verified(verify_first_dtype, transpose)
