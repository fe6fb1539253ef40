"""Operators that move elements without arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from odc_mlir.ops.infer.common import (
    normal_axis,
    option,
    result,
    same_dim,
    same_shape,
    shape_of,
    shape_text,
    static_ints,
    unknown_shape,
    vector_length,
)
from odc_mlir.ops.spec import MOVES, NONE, PURE, Node, OperatorFamily, ResultType, Shape, Trait, joined, moved

Index = slice | int | None  # None inserts an axis


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of a strided slice. Bit i belongs to entry i of begin, end and strides."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int
    offset: int  # if not 0, an end is relative to its begin


@dataclass(frozen=True, slots=True)
class Taken:
    """Slice of a tensor: one index per entry, and the result's sizes (None if unknown)."""

    indices: tuple[Index, ...]
    shape: Shape


def masks_of(node: Node) -> Masks:
    """Return the masks of a STRIDED_SLICE."""
    names = "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "offset"
    return Masks(*(int(option(node, name)) for name in names))


def expand_entries(node: Node, count: int, rank: int, masks: Masks) -> list[int | str | None]:
    """Return the full index: an entry's index, "full" for a whole axis, or None for a new axis.

    An ellipsis and missing trailing entries become whole axes. An entry in both the ellipsis mask and the new-axis mask
    is an ellipsis. Raises ModelError for more entries than axes, or for several ellipses.
    """
    ellipses = [i for i in range(count) if masks.ellipsis >> i & 1]
    if len(ellipses) > 1:
        raise node.error(f"ellipsis_mask {masks.ellipsis} names {len(ellipses)} entries; at most one is allowed")
    added = [i for i in range(count) if masks.new_axis >> i & 1 and i not in ellipses]
    whole = rank - (count - len(ellipses) - len(added))
    if whole < 0:
        raise node.error(f"there are {count - len(added)} slices for an operand of rank {rank}")
    places: list[int | str | None] = []
    for i in range(count):
        if i in ellipses:
            places += ["full"] * whole
        else:
            places.append(None if i in added else i)
    return places if ellipses else places + ["full"] * whole


def strided_slice(
    node: Node, shape: Shape, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], masks: Masks
) -> Taken:
    """Return the slice of a STRIDED_SLICE. Raises ModelError for a single position outside of the axis."""
    if not len(begin) == len(end) == len(strides):
        raise node.error(f"begin, end and strides have {len(begin)}, {len(end)} and {len(strides)} entries")
    if 0 in strides:
        raise node.error(f"strides are {list(strides)}; they must not be 0")
    indices: list[Index] = []
    sizes: list[int | None] = []
    axis = 0
    for place in expand_entries(node, len(begin), len(shape), masks):
        if place is None:
            indices.append(None)
            sizes.append(1)
            continue
        size = shape[axis]
        axis += 1
        if not isinstance(place, int):
            indices.append(slice(None))
            sizes.append(size)
        elif masks.shrink_axis >> place & 1:
            indices.append(_single(node, size, place, begin[place], strides[place], masks))
        else:
            index, taken = _range(size, place, begin[place], end[place], strides[place], masks)
            indices.append(index)
            sizes.append(taken)
    return Taken(tuple(indices), tuple(sizes))


def _start(size: int, place: int, begin: int, stride: int, masks: Masks) -> int:
    if masks.begin >> place & 1:
        return 0 if stride > 0 else size - 1
    start = begin + size if begin < 0 else begin
    return min(max(start, 0), size) if stride > 0 else min(max(start, -1), size - 1)


def _single(node: Node, size: int | None, place: int, begin: int, stride: int, masks: Masks) -> int:
    if size is None:
        return begin
    start = 0 if masks.begin >> place & 1 else begin + size if begin < 0 else begin
    if not 0 <= start < size:
        raise node.error(f"slice {place} takes position {begin} of an axis of size {size}")
    return start


def _range(size: int | None, place: int, begin: int, end: int, stride: int, masks: Masks) -> tuple[slice, int | None]:
    if size is None:
        return slice(None), None
    start = _start(size, place, begin, stride, masks)
    stop = end + start if masks.offset else end
    if masks.end >> place & 1:
        stop = size if stride > 0 else -1
    else:
        stop = stop + size if stop < 0 else stop
        stop = min(max(stop, 0), size) if stride > 0 else min(max(stop, -1), size - 1)
    taken = max(-((stop - start) // -stride), 0)
    if not taken:
        return slice(0, 0), 0
    return slice(start, None if stop < 0 else stop, stride), taken


def plain_slice(node: Node, shape: Shape, begin: Sequence[int], size: Sequence[int]) -> Taken:
    """Return the slice of a SLICE. A size of -1 means all elements from ``begin`` on."""
    if not len(begin) == len(size) == len(shape):
        raise node.error(
            f"begin has {len(begin)} entries, size {len(size)}; the operand {shape_text(shape)} needs {len(shape)}"
        )
    indices: list[Index] = []
    sizes: list[int | None] = []
    for dim, first, count in zip(shape, begin, size, strict=True):
        if first < 0 or count < -1:
            raise node.error(f"begin {list(begin)} must not be negative, size {list(size)} not below -1")
        if dim is None:
            indices.append(slice(None))
            sizes.append(None if count == -1 else count)
            continue
        taken = dim - first if count == -1 else count
        if taken < 0 or first + taken > dim:
            raise node.error(f"begin {list(begin)} and size {list(size)} reach outside the operand {shape_text(shape)}")
        indices.append(slice(first, first + taken))
        sizes.append(taken)
    return Taken(tuple(indices), tuple(sizes))


def reshape(node: Node) -> list[ResultType]:
    """Infer operand 0 with the shape in operand 1, or in the option ``new_shape``.

    The option is used if operand 1 is omitted or not a vector. Without either, the declared shape is used.
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
    """Return the shape in the option, or None if operand 1 determines the shape.

    The option is used if operand 1 is omitted, or if operand 1 is not a vector and the option is not empty.
    """
    info, written = node.optional(1), tuple(node.options.get("new_shape") or ())
    if info is not None and (info.shape is None or len(info.shape) == 1 or not written):
        return None
    if info is None and not written:
        return tuple(-1 if d is None else d for d in node.results[0].shape or ())
    return () if written == (0,) else written  # old files write a scalar's shape this way


def new_shape(node: Node, x: Shape | None, wanted: Sequence[int]) -> Shape:
    """Return ``wanted`` with the remaining size instead of -1. Raises ModelError if the element count differs."""
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
    """Infer the operand without the axes in ``squeeze_dims``. By default, all axes of size 1 are removed."""
    x, dtype = shape_of(node, 0), node.operand(0).dtype
    if x is None:
        return result(node, dtype, None)
    axes = squeezed_axes(node, x)
    return result(node, dtype, None if axes is None else tuple(d for i, d in enumerate(x) if i not in axes))


def squeezed_axes(node: Node, x: Shape) -> frozenset[int] | None:
    """Return the axes that SQUEEZE removes, or None if unknown. Raises ModelError for sizes other than 1."""
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
    if begin is None or size is None or min(begin, default=0) < 0:  # kernels reject a begin below 0, but files have it
        known = [None if d == -1 else d for d in size] if size is not None and len(size) == len(x) else [None] * len(x)
        if any(d is not None and d < 0 for d in known):
            raise node.error(f"size is {size}; entries must not be below -1")
        return result(node, dtype, tuple(known))
    return result(node, dtype, plain_slice(node, x, begin, size).shape)


def pack(node: Node) -> list[ResultType]:
    """Infer operands of equal shape, stacked along a new axis."""
    count, dtype = len(node.operands), node.operand(0).dtype
    if option(node, "values_count") != count:
        raise node.error(f"values_count is {option(node, 'values_count')}, but there are {count} operands")
    merged: Shape | None = None
    for index in range(count):
        merged = same_shape(node, merged, shape_of(node, index), "packed operands")
    if merged is None:
        return result(node, dtype, None)
    axis = normal_axis(node, int(option(node, "axis")), len(merged) + 1)
    return result(node, dtype, (*merged[:axis], count, *merged[axis:]))


def concatenation(node: Node) -> list[ResultType]:
    """Infer operands joined along ``axis``. All other sizes must agree. Scalars form a vector."""
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
    """Return ``order`` counted from the front. Raises ModelError unless it permutes ``rank`` axes."""
    axes = tuple(normal_axis(node, axis, rank) for axis in order)
    if sorted(axes) != list(range(rank)):
        raise node.error(f"the permutation {list(order)} must name each of the {rank} axes once")
    return axes


_op = OperatorFamily(__name__, quant=moved(), traits=MOVES, bounds="moved")

SPECS = (
    _op("RESHAPE", "input shape?:int", "change of shape", traits=MOVES | {Trait.VIEW}),
    _op("SQUEEZE", "input", "removal of axes of size 1", version=2, traits=MOVES | {Trait.VIEW}),
    _op("EXPAND_DIMS", "input axis:int", "insertion of an axis of size 1", traits=MOVES | {Trait.VIEW}),
    _op("SHAPE", "input", "sizes of the operand", gives="output:int", verify=None, quant=NONE, traits=PURE),
    _op(
        "STRIDED_SLICE",
        "input begin:int end:int strides:int",
        "every n-th element of a range along each axis",
        version=8,
        infer="strided",
        kernel="strided",
    ),
    _op("SLICE", "input begin:int size:int", "range along each axis", version=6, infer="slice_", kernel="slice_"),
    _op("PACK", "values...", "stacking of operands along a new axis", version=4, quant=joined(), verify="same"),
    _op("CONCATENATION", "values...", "concatenation along an axis", version=4, quant=joined(), verify="same"),
    _op("PAD", "input paddings:int|int8|int16", "padding with zeros", version=5),
    _op("TRANSPOSE", "input permutation:int", "permutation of axes", version=6),
)
