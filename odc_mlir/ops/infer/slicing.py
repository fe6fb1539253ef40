"""Slices of SLICE and STRIDED_SLICE as numpy indices and result sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odc_mlir.ops.infer.common import option, shape_text
from odc_mlir.ops.spec import Node, Shape

Index = slice | int | None  # None inserts an axis


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of a strided slice: bit i belongs to the i-th entry of begin, end and strides."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int
    offset: bool  # an end is relative to its begin


@dataclass(frozen=True, slots=True)
class Taken:
    """Part of a tensor: one index per entry, and the result's sizes (None if unknown)."""

    indices: tuple[Index, ...]
    shape: Shape


def masks_of(node: Node) -> Masks:
    """Return the masks of a STRIDED_SLICE."""

    def mask(name: str) -> int:
        return int(option(node, f"{name}_mask"))

    return Masks(
        mask("begin"),
        mask("end"),
        mask("ellipsis"),
        mask("new_axis"),
        mask("shrink_axis"),
        bool(option(node, "offset")),
    )


def expand_entries(node: Node, count: int, rank: int, masks: Masks) -> list[int | str | None]:
    """Return the full index: an entry's number, "full" for a whole axis, None for a new axis.

    An ellipsis and missing trailing entries become whole axes. The ellipsis wins if both masks name an entry. Raises
    ModelError for more entries than axes or several ellipses.
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
    """Return the slice of a STRIDED_SLICE; raise ModelError for a single position outside the axis."""
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
    """Return the position of an entry with shrink_axis."""
    if size is None:
        return begin
    start = 0 if masks.begin >> place & 1 else begin + size if begin < 0 else begin
    if not 0 <= start < size:
        raise node.error(f"slice {place} takes position {begin} of an axis of size {size}")
    return start


def _range(size: int | None, place: int, begin: int, end: int, stride: int, masks: Masks) -> tuple[slice, int | None]:
    """Return positions from begin to end as a numpy slice, and their number."""
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
    """Return the slice of a SLICE; a size of -1 means everything from ``begin`` on."""
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
