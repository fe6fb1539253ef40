"""Conversion patterns for operators that move elements (views, slices, indexing, scattering, padding) and constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from xdsl.ir import SSAValue as V

from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.torch.elementwise import Pattern, divide, of_scalars, rows, where
from odc_mlir.frontend.torch.graph import Builder, Extent, Operand
from odc_mlir.frontend.torch.layers import Ints, padded
from odc_mlir.ops.dtypes import DTYPES

Extents = Sequence[Extent]

_LAST = (1 << 31) - 1  # end of a slice without a limit
_MOST_UPDATES = 64  # rows of a cache that an operator updates one by one


def view(g: Builder, x: V, size: Extents) -> Any:
    """Change the shape."""
    known = all(isinstance(extent, int) for extent in g.out.shape)
    return g.reshape(x, list(g.out.shape) if known else size)


def unsqueeze(g: Builder, x: V, dim: int) -> Any:
    """Add an axis of size 1."""
    dims = g.dims(x)
    dims.insert(dim % (len(dims) + 1), 1)
    return g.reshape(x, dims)


def squeeze(g: Builder, x: V, dims: Ints) -> Any:
    """Remove axes of size 1."""
    axes = {axis % max(g.rank(x), 1) for axis in dims}
    return g.reshape(x, [extent for axis, extent in enumerate(g.dims(x)) if axis not in axes or extent != 1])


def expand(g: Builder, x: V, size: Extents, implicit: bool = False) -> Any:
    """Repeat axes of size 1."""
    dims = [1] * (len(size) - g.rank(x)) + g.dims(x)
    return g.broadcast(x, [old if new == -1 else new for old, new in zip(dims, size, strict=True)])


def concatenate(g: Builder, tensors: Sequence[V], dim: int = 0) -> Any:
    """Join tensors. As in PyTorch, some may be empty vectors."""
    parts = [g.cast(part, g.out_dtype) for part in tensors if g.shape(part) != (0,)] or [tensors[0]]
    return parts[0] if len(parts) == 1 else g("CONCATENATION", *parts, axis=dim % g.rank(parts[0]))


def split(g: Builder, x: V, sizes: Ints, dim: int = 0) -> Any:
    """Divide a tensor into parts."""
    parts = g("SPLIT_V", x, sizes, g.number(dim % g.rank(x), "int32"), num_splits=len(sizes), results=len(sizes))
    return parts if isinstance(parts, tuple) else (parts,)


def _limit(size: int | None, place: Extent | None, default: Extent) -> Any:
    if place is None or isinstance(place, V):
        return default if place is None else place
    if size is None:
        return min(place, _LAST)
    return min(max(place + size if place < 0 else place, 0), size)


def cut(g: Builder, x: V, dim: int = 0, start: Extent | None = None, end: Extent | None = None, step: int = 1) -> Any:
    """Return a slice along one axis."""
    rank, size = g.rank(x), (g.shape(x) or ())[dim]
    first, last = _limit(size, start, 0), _limit(size, end, _LAST if size is None else size)
    if (first, last, step) in ((0, size, 1), (0, _LAST, 1)):
        return x
    if isinstance(first, int) and isinstance(last, int) and size is not None:
        last = max(first, last)
    ends = [[place if axis == dim % rank else 0 for axis in range(rank)] for place in (first, last)]
    steps = [step if axis == dim % rank else 1 for axis in range(rank)]
    others = (1 << rank) - 1 - (1 << dim % rank)
    end_mask = (1 << rank) - 1 if last == _LAST else others
    return g("STRIDED_SLICE", x, *ends, steps, begin_mask=others, end_mask=end_mask)


def select(g: Builder, x: V, dim: int, index: Extent) -> Any:
    """Return one entry of an axis."""
    if isinstance(index, V):
        return g("GATHER", x, index, axis=dim % g.rank(x))
    row = cut(g, x, dim, index, index + 1 if index != -1 else None)
    dims = g.dims(row)
    del dims[dim]
    return g.reshape(row, dims)


def repeat(g: Builder, x: V, repeats: Extents) -> Any:
    """Repeat along axes."""
    x = g.reshape(x, [1] * (len(repeats) - g.rank(x)) + g.dims(x))
    return g("TILE", x, repeats) if any(count != 1 for count in repeats) else x


def _pairs(rank: int, pads: Ints) -> list[tuple[int, int]]:
    """Return padding by axis. PyTorch lists it from the last axis to the first."""
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def pad(g: Builder, x: V, pads: Ints, value: float = 0) -> Any:
    """Pad with a number. Negative padding removes elements."""
    pairs = _pairs(g.rank(x), pads)
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            x = cut(g, x, axis, max(-low, 0), g.static(x, axis)[0] - max(-high, 0))
    return padded(g, x, [(max(low, 0), max(high, 0)) for low, high in pairs], value)


def filled(g: Builder, size: Extents, value: float = 0, **options: Any) -> Any:
    """Return a tensor filled with one number. Uninitialised memory becomes zero."""
    number = g.number(value, g.out_dtype)
    if not all(isinstance(extent, int) for extent in size):
        return g("FILL", g.ints(size), number, dtype=g.out_dtype)
    return g.constant(np.full(size, g.array(number), DTYPES[g.out_dtype].numpy))  # type: ignore[arg-type]


def arange(g: Builder, *ends: Operand, **options: Any) -> Any:
    """Return a range of numbers."""
    dtype = g.out_dtype
    if not any(isinstance(item, V) for item in ends):
        return g.constant(np.arange(*ends).astype(DTYPES[dtype].numpy))  # type: ignore[arg-type]
    start, end, step = (*ends, 1)[:3]
    return g("RANGE", *(g.cast(item, dtype) for item in (start, end, step)), dtype=dtype)  # type: ignore[arg-type]


def _wrapped(g: Builder, index: V, size: Extent) -> Any:
    if index in g.places:
        return g.cast(index, "int32")
    index = g.cast(index, "int32")
    if isinstance(size, V):
        return g("FLOOR_MOD", index, size)
    if (array := g.array(index)) is not None:
        return g.constant(np.where(array < 0, array + size, array).astype(np.int32))
    return g("SELECT_V2", g("LESS", index, 0), g("ADD", index, size), index)


def _coordinates(g: Builder, indices: Sequence[V], sizes: Extents) -> Any:
    shape = np.broadcast_shapes(*(g.static(item) for item in indices))
    parts = [g.broadcast(_wrapped(g, item, size), shape) for item, size in zip(indices, sizes, strict=True)]
    return g("PACK", *parts, values_count=len(parts), axis=len(shape))


def _given_indices(g: Builder, indices: Sequence[V | None]) -> list[tuple[int, V]]:
    found = [(axis, item) for axis, item in enumerate(indices) if item is not None]
    if any(g.dtype(item) == "bool" for _, item in found):
        raise UnsupportedError("a mask as an index gives a tensor of unknown size", hint="use torch.where")
    return found


def _order(g: Builder, x: V, axes: Ints, count: int) -> tuple[list[int], list[int]]:
    """Return the order of ``x``'s axes with ``axes`` first, and the order that moves ``count`` new axes back.

    The new axes replace the indexed axes if these are neighbours, otherwise they come first.
    """
    order = [*axes, *(axis for axis in range(g.rank(x)) if axis not in axes)]
    first = axes[0] if list(axes) == list(range(axes[0], axes[-1] + 1)) else 0
    rank = count + g.rank(x) - len(axes)
    return order, [*range(count, count + first), *range(count), *range(count + first, rank)]


def index(g: Builder, x: V, indices: Sequence[V | None]) -> Any:
    """Convert ``x[i, :, j]`` with tensors as indices."""
    found = _given_indices(g, indices)
    axes = [axis for axis, _ in found]
    if len(found) == 1:
        return g("GATHER", x, _wrapped(g, found[0][1], g.dim(x, axes[0])), axis=axes[0])
    places = _coordinates(g, [item for _, item in found], [g.dim(x, axis) for axis in axes])
    order, back = _order(g, x, axes, g.rank(places) - 1)
    return g.transpose(g("GATHER_ND", g.transpose(x, order), places), back)


def _replaced(g: Builder, x: V, places: V, updates: V, accumulate: bool) -> Any:
    """Return ``x`` with ``updates`` at coordinates of the first axes. Updates replace old elements or are added.

    SCATTER_ND adds up updates with equal coordinates. The mean of the updates replaces the old element.
    """
    made = g("SCATTER_ND", places, updates, g.static(x))
    if accumulate:
        return g("ADD", x, made)
    counts = g("SCATTER_ND", places, np.ones(g.static(updates), np.float32), g.static(x))
    mean = g("DIV", made, g.cast(g("MAXIMUM", counts, 1.0), g.dtype(made)))
    return g("SELECT_V2", g("GREATER", counts, 0.0), mean, x)


def index_put(g: Builder, x: V, indices: Sequence[V | None], values: V, accumulate: bool = False) -> Any:
    """Convert ``x[i, :, j] = values``. Few indices along one axis become updates of slices."""
    given, values = [item for item in indices if item is not None], g.cast(values, g.dtype(x))
    if len(given) == 1 and g.dtype(given[0]) == "bool" and math.prod(g.static(values)) == 1:
        mask = given[0]
        ones = [1] * (g.rank(x) - g.rank(mask) - indices.index(mask))
        return where(g, g.reshape(mask, [*g.dims(mask), *ones]), g.reshape(values, []), x)
    found = _given_indices(g, indices)
    axes, shape = [axis for axis, _ in found], g.static(x)
    count = math.prod(g.static(found[0][1]))
    if len(found) == 1 and not accumulate and (count == 1 or (g.rank(found[0][1]) == 1 and count <= _MOST_UPDATES)):
        part = [count if axis == axes[0] else extent for axis, extent in enumerate(shape)]
        places, values = _wrapped(g, found[0][1], shape[axes[0]]), g.broadcast(values, part)
        places = g.reshape(places, [count])
        for i in range(count):
            place = g.reshape(cut(g, places, 0, i, i + 1), [])
            x = _update(g, x, cut(g, values, axes[0], i, i + 1), axes[0], place)
        return x
    places = _coordinates(g, [item for _, item in found], [shape[axis] for axis in axes])
    order, back = _order(g, x, axes, g.rank(places) - 1)
    wanted = [*g.static(places)[:-1], *(shape[axis] for axis in order[len(axes) :])]
    spread = g.broadcast(values, [wanted[axis] for axis in back])  # axes in PyTorch's order
    updates = g.transpose(spread, np.argsort(back).tolist())
    made = _replaced(g, g.transpose(x, order), places, updates, accumulate)
    return g.transpose(made, np.argsort(order).tolist())


def _update(g: Builder, x: V, part: V, axis: int, start: Extent) -> Any:
    return g("DYNAMIC_UPDATE_SLICE", x, part, [start if i == axis else 0 for i in range(g.rank(x))])


def _grid(g: Builder, dim: int, index: V) -> Any:
    """Return coordinates for the elements of ``index``: the value along ``dim``, the position along other axes."""
    shape = g.static(index)
    parts: list[Any] = list(np.indices(shape, np.int32))
    parts[dim] = g.cast(index, "int32")
    return g("PACK", parts[dim], *parts[:dim], *parts[dim + 1 :], values_count=len(shape), axis=len(shape))


def gather(g: Builder, x: V, dim: int, index: V, sparse_grad: bool = False) -> Any:
    """Return the elements along ``dim`` that ``index`` selects."""
    order, _ = _order(g, x, [dim := dim % g.rank(x)], 0)
    return g("GATHER_ND", g.transpose(x, order), _grid(g, dim, g.reshape(index, g.dims(index) or [1])))


def scatter(g: Builder, x: V, dim: int, index: V, source: Any, reduce: str = "", include_self: bool = True) -> Any:
    """Replace, or add to, the elements along ``dim`` that ``index`` selects."""
    if reduce not in ("", "sum", "mean") or (reduce and not include_self):
        raise UnsupportedError(f"scatter_reduce with {reduce!r}", hint="use scatter_add, or include_self=True")
    dim, index = dim % g.rank(x), g.reshape(index, g.dims(index) or [1])
    shape = g.static(index)
    if isinstance(source, V) and g.rank(source):
        for axis, size in enumerate(shape):
            source = cut(g, source, axis, 0, size)
    updates = g.broadcast(g.cast(source, g.dtype(x)), shape)
    places, first = _grid(g, dim, index), g.transpose(x, _order(g, x, [dim], 0)[0])
    made = _replaced(g, first, places, updates, bool(reduce))
    if reduce == "mean":
        counts = g("ADD", g("SCATTER_ND", places, np.ones(shape, np.float32), g.static(first)), 1.0)
        made = divide(g, made, counts)
    return g.transpose(made, [*range(1, dim + 1), 0, *range(dim + 1, g.rank(x))])


def slice_scatter(g: Builder, x: V, source: V, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Replace a slice."""
    axis, first, source = dim % g.rank(x), _limit(g.static(x, dim)[0], start, 0), g.cast(source, g.dtype(x))
    if step == 1:
        return _update(g, x, source, axis, first)
    places = np.arange(first, first + step * g.static(source, axis)[0], step, dtype=np.int32)
    return index_put(g, x, [*[None] * axis, g.constant(places)], source)


def select_scatter(g: Builder, x: V, source: V, dim: int, index: Extent) -> Any:
    """Replace one entry of an axis."""
    place = index % g.static(x, dim)[0] if isinstance(index, int) else index
    return _update(g, x, unsqueeze(g, g.cast(source, g.dtype(x)), dim % g.rank(x)), dim % g.rank(x), place)


def as_strided(g: Builder, x: V, size: Ints, stride: Ints, offset: int | None = 0) -> Any:
    """Convert a strided view of a contiguous tensor."""
    if not g.node.args[0].meta["val"].is_contiguous():
        raise UnsupportedError("strides of a tensor whose elements are not in order", hint="call contiguous() before")
    places = np.asarray(offset or 0)
    for extent, step in zip(size, stride, strict=True):
        places = np.add.outer(places, np.arange(extent) * step)
    return _gather_flat(g, x, places)


def _gather_flat(g: Builder, x: V, places: Any) -> Any:
    return g("GATHER", g.reshape(x, [-1]), np.ascontiguousarray(places, np.int32))


def diagonal(g: Builder, x: V, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal."""
    places = np.arange(math.prod(g.static(x))).reshape(g.static(x))
    return _gather_flat(g, x, np.diagonal(places, offset, dim1, dim2))


def unfold(g: Builder, x: V, dim: int, size: int, step: int) -> Any:
    """Return windows along one axis."""
    axis, rank = dim % g.rank(x), g.rank(x)
    starts = np.arange(0, g.static(x, axis)[0] - size + 1, step)
    taken = g("GATHER", x, np.add.outer(starts, np.arange(size)).astype(np.int32), axis=axis)
    return g.transpose(taken, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


def elements(g: Builder, x: V) -> Any:
    """Return the number of elements of a tensor with extents known only at run time."""
    return reduce(lambda total, size: g("MUL", total, size), g.dims(x), g.number(1, "int32"))


def item(g: Builder, x: V) -> Any:
    """Convert a tensor of one element to a number."""
    return g.reshape(g.cast(x, "int32") if type(g.out).__name__ == "SymInt" else x, [])


_SAME = "alias clone detach lift_fresh_copy contiguous dropout lift_fresh resolve_conj"
_CHECKS = "_assert_async _assert_async.msg sym_constrain_range sym_constrain_range_for_size _assert_scalar"
_CHECKED = "index_copy.default index_select.default gather.default scatter.src scatter.value scatter_add.default"
CHECKED_INDICES = {**{f"aten.{name}": 2 for name in _CHECKED.split()}, "aten.embedding.default": 1}
"""Place of the argument of indices that PyTorch requires to be non-negative, by operator."""

ROWS: Mapping[str, Pattern] = rows(
    (_SAME, lambda g, x, *rest, **options: x),
    (f"{_CHECKS} _assert_tensor_metadata", lambda g, *rest, **options: None),
    ("_to_copy to.dtype to.dtype_layout", lambda g, x, *rest, **options: g.cast(x, g.out_dtype)),
    ("copy", lambda g, x, value, *rest: g.broadcast(g.cast(value, g.out_dtype), g.dims(x))),
    ("view reshape _unsafe_view", view),
    ("unsqueeze", unsqueeze),
    ("squeeze.dims", squeeze),
    ("permute", lambda g, x, dims: g.transpose(x, dims)),
    ("expand", expand),
    ("cat", concatenate),
    ("split_with_sizes", split),
    ("slice.Tensor", cut),
    ("select.int", select),
    ("flip", lambda g, x, dims: g("REVERSE_V2", x, sorted(axis % g.rank(x) for axis in dims)) if dims else x),
    ("repeat", repeat),
    ("constant_pad_nd", pad),
    (
        "reflection_pad1d reflection_pad2d reflection_pad3d",
        lambda g, x, pads: g("MIRROR_PAD", x, np.array(_pairs(g.rank(x), pads), np.int32), mode="reflect"),
    ),
    ("full empty.memory_format", filled),
    ("empty_strided empty_permuted", lambda g, size, stride, **options: filled(g, size)),
    ("full_like fill.Scalar", lambda g, x, value, **options: filled(g, g.dims(x), value)),
    ("arange.start_step", arange),
    ("scalar_tensor", lambda g, value, **options: g.cast(value, g.out_dtype)),
    ("embedding", lambda g, table, indices, *rest, **options: g("GATHER", table, g.cast(indices, "int32"))),
    ("index_select", lambda g, x, dim, index: g("GATHER", x, g.cast(index, "int32"), axis=dim % g.rank(x))),
    ("index.Tensor", index),
    ("gather", of_scalars(gather)),
    ("index_put", index_put),
    ("index_copy", lambda g, x, dim, index, source: index_put(g, x, [*[None] * (dim % g.rank(x)), index], source)),
    ("scatter.src scatter.value scatter_reduce.two", of_scalars(scatter)),
    ("scatter_add", of_scalars(lambda g, x, dim, index, source: scatter(g, x, dim, index, source, "sum"))),
    ("slice_scatter", slice_scatter),
    ("select_scatter", select_scatter),
    ("as_strided", as_strided),
    ("diagonal", diagonal),
    ("unfold", unfold),
    ("nonzero", lambda g, x: g.cast(g("WHERE", g.cast(x, "bool")), "int32")),
    ("sym_size.int", lambda g, x, dim: g.dim(x, dim)),
    ("sym_numel", elements),
    ("_local_scalar_dense item", item),
)
