"""Operators that only move elements: repeat, split, pad, reverse, space to batch, dilate, diagonals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odc_mlir.ops import layout
from odc_mlir.ops.infer.common import check_elements, normal_axis, option
from odc_mlir.ops.spec import Array, Execute, Node, Shape
from odc_mlir.runtime.kernels import common
from odc_mlir.runtime.kernels.convolution import image_shape
from odc_mlir.runtime.kernels.shape import pad_pairs, padding


def _known(shape: Shape) -> tuple[int, ...]:
    return tuple(d or 0 for d in shape)


@common.planning(0, 1)
def tile(node: Node, shape: tuple[int, ...], values: Array) -> common.PlannedKernel:
    """Repeat operand 0 along each axis."""
    multiples = common.ints(values)
    sizes = _known(layout.tiled_shape(node, shape, multiples))
    check_elements(node, sizes, node.operand(0).dtype)
    apart = [size for d in shape for size in (1, d)]
    beside = [size for d, count in zip(shape, multiples, strict=True) for size in (count, d)]
    return lambda x: np.broadcast_to(x.reshape(apart), beside).copy().reshape(sizes)


def _pieces(axis: int, sizes: Sequence[int]) -> Callable[[Array], list[Array]]:
    ends = itertools.accumulate(sizes)
    lead = (slice(None),) * axis
    places = [(*lead, slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    return lambda x: [x[place].copy() for place in places]


def split(node: Node) -> Execute:
    """Split operand 1 into equal parts along the axis in operand 0."""
    count = layout.parts(node, "num_splits")

    def make(shape: tuple[int, ...], place: Array) -> Callable[[Array], list[Array]]:
        axis = normal_axis(node, int(common.single(node, place, "the axis")), len(shape))
        size = layout.equal_part(node, shape[axis], count) or 0
        return _pieces(axis, [size] * count)

    return common.planned(node, 1, (0,), make, several=True)


def split_v(node: Node) -> Execute:
    """Split operand 0 into parts of the sizes in operand 1 along the axis in operand 2."""
    count = layout.parts(node, "num_splits")

    def make(shape: tuple[int, ...], wanted: Array, place: Array) -> Callable[[Array], list[Array]]:
        sizes = common.ints(wanted)
        axis = normal_axis(node, int(common.single(node, place, "the axis")), len(shape))
        if len(sizes) != count:
            raise common.input_error(node, f"there are {len(sizes)} sizes, but {count} results")
        return _pieces(axis, _known(tuple(layout.part_sizes(node, shape[axis], sizes))))

    return common.planned(node, 0, (1, 2), make, several=True)


def unpack(node: Node) -> Execute:
    """Split the operand along an axis and remove this axis."""
    count, wanted = layout.parts(node, "num"), int(option(node, "axis"))

    def make(shape: tuple[int, ...]) -> Callable[[Array], list[Array]]:
        axis = normal_axis(node, wanted, len(shape))
        if shape[axis] != count:
            raise common.input_error(node, f"axis {axis} has the size {shape[axis]}, but there are {count} results")
        places: list[Any] = [(*(slice(None),) * axis, i, ...) for i in range(count)]
        return lambda x: [x[place].copy() for place in places]

    return common.planned(node, 0, (), make, several=True)


def padv2(node: Node) -> Execute:
    """Pad operand 0 with operand 2, or with zeros (quantised: zero points) if operand 2 is omitted."""
    info, value_info = node.results[0], node.optional(2)
    zero = common.quantised_zero(node, info) if value_info is None else 0

    def make(shape: tuple[int, ...], pads: Array, *values: Array) -> common.PlannedKernel:
        value = common.single(node, values[0], "the padding value") if values else zero
        return padding(node, shape, pads, value)

    return common.planned(node, 0, (1,) if value_info is None else (1, 2), make)


def mirror_pad(node: Node) -> Execute:
    """Pad operand 0 with elements of operand 0 mirrored at the ends of each axis."""
    edge = layout.mirror_edge(node)

    def make(shape: tuple[int, ...], pads: Array) -> common.PlannedKernel:
        pairs = pad_pairs(node, shape, pads)
        for axis, (size, pair) in enumerate(zip(shape, pairs, strict=True)):
            layout.check_mirror(node, axis, size, pair, edge)
        check_elements(node, (d + a + b for d, (a, b) in zip(shape, pairs, strict=True)), node.results[0].dtype)
        places = []
        for axis, ((before, after), size) in enumerate(zip(pairs, shape, strict=True)):
            if before or after:
                left = np.arange(before, 0, -1) - 1 + edge
                right = size - 1 - edge - np.arange(after)
                places.append((np.concatenate([left, np.arange(size), right]), axis))

        def mirror(x: Array) -> Array:
            for indices, axis in places:
                x = x.take(indices, axis)
            return x

        return mirror

    return common.planned(node, 0, (1,), make)


@common.planning(0, 1)
def reverse_v2(node: Node, shape: tuple[int, ...], values: Array) -> common.PlannedKernel:
    """Reverse operand 0 along the axes in operand 1."""
    axes = layout.reversed_axes(node, common.ints(values), len(shape))
    turned = tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(len(shape)))
    return lambda x: x[turned].copy()


@common.planning(0, 1)
def reverse_sequence(node: Node, shape: tuple[int, ...], values: Array) -> common.PlannedKernel:
    """Reverse the first ``lengths[i]`` elements of batch entry i along the sequence axis."""
    lengths = np.asarray(values).ravel()
    batch, sequence = layout.sequence_axes(node, len(shape))
    steps = shape[sequence]
    if lengths.size != shape[batch]:
        raise common.input_error(node, f"there are {lengths.size} lengths for a batch of {shape[batch]}")
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > steps:
        raise common.input_error(node, f"lengths {lengths.tolist()} must be from 0 to {steps}")
    place = np.arange(steps)[None, :]
    ends = lengths.astype(np.int64)[:, None]
    source = np.where(place < ends, ends - 1 - place, place)
    entries = np.arange(lengths.size)[:, None]
    order = (batch, sequence, *(axis for axis in range(len(shape)) if axis not in (batch, sequence)))
    back = tuple(order.index(axis) for axis in range(len(shape)))
    return lambda x: x.transpose(order)[entries, source].transpose(back).copy()


def space_to_batch_nd(node: Node) -> Execute:
    """Pad ``[N, spatial…, …]``, then move blocks of space into the batch."""
    zero = common.quantised_zero(node, node.results[0])

    def make(shape: tuple[int, ...], block_values: Array, pads: Array) -> common.PlannedKernel:
        block = common.ints(block_values)
        sizes = _known(layout.batched_shape(node, shape, block, common.ints(pads)))
        count = len(block)
        full = np.zeros((len(shape), 2), np.int64)
        full[1 : count + 1] = pads
        pad = padding(node, shape, full, zero) if full.any() else None
        wide = [d + int(a) + int(b) for d, (a, b) in zip(shape, full, strict=True)]
        cells = [size for d, b in zip(wide[1 : count + 1], block, strict=True) for size in (d // b, b)]
        apart = (shape[0], *cells, *shape[count + 1 :])
        # batch, (cell, inside) per axis, rest -> inside of each axis, batch, cell of each axis, rest
        order = [2 * i + 2 for i in range(count)] + [0] + [2 * i + 1 for i in range(count)]
        order += range(2 * count + 1, len(apart))
        return lambda x: (x if pad is None else pad(x)).reshape(apart).transpose(order).copy().reshape(sizes)

    return common.planned(node, 0, (1, 2), make)


@common.planning(0, 1, 2)
def batch_to_space_nd(
    node: Node, shape: tuple[int, ...], block_values: Array, crop_values: Array
) -> common.PlannedKernel:
    """Move batch entries of ``[N * blocks, spatial…, …]`` into blocks of space, then crop."""
    block, crops = common.ints(block_values), common.ints(crop_values)
    sizes = _known(layout.spread_shape(node, shape, block, crops))
    count = len(block)
    apart = (*block, sizes[0], *shape[1:])
    # inside of each axis, batch, cell of each axis, rest -> batch, (cell, inside) per axis, rest
    order = [count] + [axis for i in range(count) for axis in (count + 1 + i, i)]
    order += range(2 * count + 1, len(apart))
    whole = (sizes[0], *(d * b for d, b in zip(shape[1:], block, strict=False)), *sizes[count + 1 :])
    kept = (slice(None), *(slice(crops[2 * i], crops[2 * i] + sizes[i + 1]) for i in range(count)))

    def spread(x: Array) -> Array:
        out = x.reshape(apart).transpose(order).copy().reshape(whole)
        return np.asarray(out[kept], order="C") if any(crops) else out

    return spread


def space_to_depth(node: Node) -> Execute:
    """Rearrange ``[N, H, W, C]`` to ``[N, H/b, W/b, b*b*C]``."""
    size = layout.block_size(node)

    def make(shape: tuple[int, ...]) -> common.PlannedKernel:
        batch, height, width, channels = image_shape(node, shape)
        rows, columns = layout.equal_part(node, height, size) or 0, layout.equal_part(node, width, size) or 0
        cells = batch, rows, size, columns, size, channels
        sizes = batch, rows, columns, size * size * channels
        return lambda x: x.reshape(cells).transpose(0, 1, 3, 2, 4, 5).copy().reshape(sizes)

    return common.planned(node, 0, (), make)


def depth_to_space(node: Node) -> Execute:
    """Rearrange ``[N, H, W, b*b*C]`` to ``[N, H*b, W*b, C]``."""
    size = layout.block_size(node)

    def make(shape: tuple[int, ...]) -> common.PlannedKernel:
        batch, height, width, depth = image_shape(node, shape)
        channels = layout.equal_part(node, depth, size * size) or 0
        cells = batch, height, width, size, size, channels
        sizes = batch, height * size, width * size, channels
        return lambda x: x.reshape(cells).transpose(0, 1, 3, 2, 4, 5).copy().reshape(sizes)

    return common.planned(node, 0, (), make)


@common.computing
def dilate(node: Node, x: Array, factors: Array, value: Array) -> Array:
    """Insert copies of operand 2 between the elements of operand 0."""
    dilations = common.ints(factors)
    sizes = _known(layout.dilated_shape(node, x.shape, dilations))
    check_elements(node, sizes, node.results[0].dtype)
    out = np.full(sizes, common.single(node, value, "the padding value"), x.dtype)
    out[tuple(slice(None, None, by) for by in dilations)] = x
    return out


def matrix_diag(node: Node) -> Execute:
    """Return matrices ``[…, n, n]`` with the operand ``[…, n]`` on the diagonal and zeros elsewhere."""
    zero = common.quantised_zero(node, node.results[0])

    def compute(x: Array) -> Array:
        check_elements(node, (*x.shape, x.shape[-1]), node.results[0].dtype)
        out = np.full((*x.shape, x.shape[-1]), zero, x.dtype)
        place = np.arange(x.shape[-1])
        out[..., place, place] = x
        return out

    return common.computed(node, compute)


@common.computing
def matrix_set_diag(node: Node, x: Array, diagonal: Array) -> Array:
    """Replace the diagonals of ``[…, rows, columns]`` by operand 1."""
    out = x.copy()
    layout.check_diagonal(node, out.shape, diagonal.shape)
    place = np.arange(diagonal.shape[-1])
    out[..., place, place] = diagonal
    return out


@common.planning(0, 1)
def broadcast_to(node: Node, shape: tuple[int, ...], sizes: Array) -> common.PlannedKernel:
    """Repeat operand 0 to the shape in operand 1."""
    wanted = common.ints(sizes)
    layout.check_broadcast(node, shape, wanted)
    return lambda x: np.broadcast_to(x, wanted).copy()
