"""Operators that repeat, cut, turn and space out their operand: elements move, nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.ops.infer.common import check_elements, normal_axis, option
from odc_mlir.ops.infer.layout import (
    batched_shape,
    block_size,
    check_broadcast,
    check_diagonal,
    check_mirror,
    dilated_shape,
    equal_part,
    mirror_edge,
    part_sizes,
    parts,
    reversed_axes,
    sequence_axes,
    spread_shape,
    tiled_shape,
)
from odc_mlir.ops.spec import Array, Execute, Node, Shape
from odc_mlir.runtime.kernels.common import (
    fetch,
    input_error,
    ints,
    quantised_zero,
    require_same_quant,
    single,
)
from odc_mlir.runtime.kernels.convolution import image
from odc_mlir.runtime.kernels.shape import pad_pairs, padded


def _known(shape: Shape) -> tuple[int, ...]:
    """A shape that follows from known sizes, for numpy."""
    return tuple(d or 0 for d in shape)


def tile(node: Node) -> Execute:
    """Operand 0 repeated along each axis."""
    x_of, multiples_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, multiples = x_of(operands), ints(multiples_of(operands))
        check_elements(node, tiled_shape(node, x.shape, multiples), node.operand(0).dtype)
        return [np.tile(x, multiples)]

    return execute


def _pieces(x: Array, axis: int, sizes: Sequence[int]) -> list[Array]:
    """Consecutive parts of ``x`` along ``axis``."""
    ends = np.cumsum(sizes)
    lead = (slice(None),) * axis
    return [np.asarray(x[(*lead, slice(end - size, end))], order="C") for end, size in zip(ends, sizes, strict=True)]


def split(node: Node) -> Execute:
    """Operand 1 in equal parts along the axis in operand 0."""
    axis_of, x_of, count = fetch(node, 0), fetch(node, 1), parts(node, "num_splits")

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        axis = normal_axis(node, int(single(node, axis_of(operands), "the axis")), x.ndim)
        size = equal_part(node, x.shape[axis], count) or 0
        return _pieces(x, axis, [size] * count)

    return execute


def split_v(node: Node) -> Execute:
    """Operand 0 in parts of the sizes in operand 1 along the axis in operand 2."""
    x_of, sizes_of, axis_of, count = fetch(node, 0), fetch(node, 1), fetch(node, 2), parts(node, "num_splits")

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, sizes = x_of(operands), ints(sizes_of(operands))
        axis = normal_axis(node, int(single(node, axis_of(operands), "the axis")), x.ndim)
        if len(sizes) != count:
            raise input_error(node, f"there are {len(sizes)} sizes, but {count} results")
        return _pieces(x, axis, _known(tuple(part_sizes(node, x.shape[axis], sizes))))

    return execute


def unpack(node: Node) -> Execute:
    """Operand's slices along an axis, which they lack."""
    x_of, count, wanted = fetch(node, 0), parts(node, "num"), int(option(node, "axis"))
    require_same_quant(node, node.operand(0), *node.results)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        axis = normal_axis(node, wanted, x.ndim)
        if x.shape[axis] != count:
            raise input_error(node, f"axis {axis} has the size {x.shape[axis]}, but there are {count} results")
        slices = np.moveaxis(x, axis, 0)
        return [np.asarray(slices[i, ...], order="C") for i in range(count)]

    return execute


def padv2(node: Node) -> Execute:
    """Operand 0 with copies of operand 2 around it; without that, with zeros (quantised: zero points)."""
    x_of, pads_of, info = fetch(node, 0), fetch(node, 1), node.results[0]
    value_info = node.optional(2)
    value_of = None if value_info is None else fetch(node, 2)
    if value_info is not None:
        require_same_quant(node, value_info, info)
    zero = quantised_zero(node, info) if value_of is None else 0

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, pads = x_of(operands), np.asarray(pads_of(operands))
        value = zero if value_of is None else single(node, value_of(operands), "the padding value")
        return [padded(node, x, pads, value)]

    return execute


def mirror_pad(node: Node) -> Execute:
    """Operand 0 with its own elements mirrored at the ends of each axis."""
    x_of, pads_of, edge = fetch(node, 0), fetch(node, 1), mirror_edge(node)
    require_same_quant(node, node.operand(0), node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, pads = x_of(operands), np.asarray(pads_of(operands))
        pairs = pad_pairs(node, x, pads)
        for axis, (size, pair) in enumerate(zip(x.shape, pairs, strict=True)):
            check_mirror(node, axis, size, pair, edge)
        check_elements(node, (d + a + b for d, (a, b) in zip(x.shape, pairs, strict=True)), node.results[0].dtype)
        for axis, (before, after) in enumerate(pairs):
            if before or after:
                size = x.shape[axis]
                left = np.arange(before, 0, -1) - 1 + edge
                right = size - 1 - edge - np.arange(after)
                x = x.take(np.concatenate([left, np.arange(size), right]), axis)
        return [x]

    return execute


def reverse_v2(node: Node) -> Execute:
    """Operand 0 with the axes in operand 1 turned round."""
    x_of, axes_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, axes = x_of(operands), ints(axes_of(operands))
        return [np.asarray(np.flip(x, reversed_axes(node, axes, x.ndim)), order="C")]

    return execute


def reverse_sequence(node: Node) -> Execute:
    """Operand 0; of batch entry i the first ``lengths[i]`` elements along the sequence axis turned round."""
    x_of, lengths_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, lengths = x_of(operands), np.asarray(lengths_of(operands)).ravel()
        batch, sequence = sequence_axes(node, x.ndim)
        steps = x.shape[sequence]
        if lengths.size != x.shape[batch]:
            raise input_error(node, f"there are {lengths.size} lengths for a batch of {x.shape[batch]}")
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > steps:
            raise input_error(node, f"lengths {lengths.tolist()} must be from 0 to {steps}")
        place = np.arange(steps)[None, :]
        ends = lengths.astype(np.int64)[:, None]
        source = np.where(place < ends, ends - 1 - place, place)
        rows = np.moveaxis(x, (batch, sequence), (0, 1))
        turned = rows[np.arange(lengths.size)[:, None], source]
        return [np.asarray(np.moveaxis(turned, (0, 1), (batch, sequence)), order="C")]

    return execute


def space_to_batch_nd(node: Node) -> Execute:
    """``[N, spatial…, …]`` padded, then blocks of space moved into the batch."""
    x_of, block_of, pads_of = fetch(node, 0), fetch(node, 1), fetch(node, 2)
    require_same_quant(node, node.operand(0), node.results[0])
    zero = quantised_zero(node, node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, block, pads = x_of(operands), ints(block_of(operands)), np.asarray(pads_of(operands))
        sizes = _known(batched_shape(node, x.shape, block, ints(pads)))
        count = len(block)
        full = np.zeros((x.ndim, 2), np.int64)
        full[1 : count + 1] = pads
        wide = padded(node, x, full, zero)
        cells = [(d // b, b) for d, b in zip(wide.shape[1 : count + 1], block, strict=True)]
        wide = wide.reshape(x.shape[0], *(d for pair in cells for d in pair), *x.shape[count + 1 :])
        # batch, (cell, inside) per axis, rest -> inside of each axis, batch, cell of each axis, rest
        order = [2 * i + 2 for i in range(count)] + [0] + [2 * i + 1 for i in range(count)]
        return [wide.transpose(*order, *range(2 * count + 1, wide.ndim)).reshape(sizes)]

    return execute


def batch_to_space_nd(node: Node) -> Execute:
    """``[N * blocks, spatial…, …]`` with batch entries moved into blocks of space, then cropped."""
    x_of, block_of, crops_of = fetch(node, 0), fetch(node, 1), fetch(node, 2)
    require_same_quant(node, node.operand(0), node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, block, crops = x_of(operands), ints(block_of(operands)), ints(crops_of(operands))
        sizes = _known(spread_shape(node, x.shape, block, crops))
        count = len(block)
        spread = x.reshape(*block, sizes[0], *x.shape[1:])
        # inside of each axis, batch, cell of each axis, rest -> batch, (cell, inside) per axis, rest
        order = [count] + [axis for i in range(count) for axis in (count + 1 + i, i)]
        spread = spread.transpose(*order, *range(2 * count + 1, spread.ndim))
        spread = spread.reshape(
            sizes[0], *(d * b for d, b in zip(x.shape[1:], block, strict=False)), *sizes[count + 1 :]
        )
        kept = [slice(crops[2 * i], crops[2 * i] + sizes[i + 1]) for i in range(count)]
        return [np.asarray(spread[(slice(None), *kept)], order="C")]

    return execute


def space_to_depth(node: Node) -> Execute:
    """``[N, H, W, C]`` to ``[N, H/b, W/b, b*b*C]``."""
    x_of, size = fetch(node, 0), block_size(node)
    require_same_quant(node, node.operand(0), node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = image(node, x_of(operands))
        batch, height, width, channels = x.shape
        rows, columns = equal_part(node, height, size) or 0, equal_part(node, width, size) or 0
        cells = x.reshape(batch, rows, size, columns, size, channels)
        return [cells.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, size * size * channels)]

    return execute


def depth_to_space(node: Node) -> Execute:
    """``[N, H, W, b*b*C]`` to ``[N, H*b, W*b, C]``."""
    x_of, size = fetch(node, 0), block_size(node)
    require_same_quant(node, node.operand(0), node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = image(node, x_of(operands))
        batch, height, width, depth = x.shape
        channels = equal_part(node, depth, size * size) or 0
        cells = x.reshape(batch, height, width, size, size, channels)
        return [cells.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * size, width * size, channels)]

    return execute


def dilate(node: Node) -> Execute:
    """Operand 0 with copies of operand 2 between its elements."""
    x_of, dilations_of, value_of = fetch(node, 0), fetch(node, 1), fetch(node, 2)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, dilations = x_of(operands), ints(dilations_of(operands))
        sizes = _known(dilated_shape(node, x.shape, dilations))
        check_elements(node, sizes, node.results[0].dtype)
        out = np.full(sizes, single(node, value_of(operands), "the padding value"), x.dtype)
        out[tuple(slice(None, None, by) for by in dilations)] = x
        return [out]

    return execute


def matrix_diag(node: Node) -> Execute:
    """``[…, n]`` to ``[…, n, n]`` with the operand on the diagonal."""
    x_of, zero = fetch(node, 0), quantised_zero(node, node.results[0])

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        check_elements(node, (*x.shape, x.shape[-1]), node.results[0].dtype)
        out = np.full((*x.shape, x.shape[-1]), zero, x.dtype)
        place = np.arange(x.shape[-1])
        out[..., place, place] = x
        return [out]

    return execute


def matrix_set_diag(node: Node) -> Execute:
    """``[…, rows, columns]`` with the diagonal in operand 1."""
    x_of, diagonal_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        out, diagonal = x_of(operands).copy(), diagonal_of(operands)
        check_diagonal(node, out.shape, diagonal.shape)
        place = np.arange(diagonal.shape[-1])
        out[..., place, place] = diagonal
        return [out]

    return execute


def broadcast_to(node: Node) -> Execute:
    """Operand 0 repeated to the shape in operand 1."""
    x_of, shape_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, wanted = x_of(operands), ints(shape_of(operands))
        check_broadcast(node, x.shape, wanted)
        return [np.broadcast_to(x, wanted).copy()]

    return execute
