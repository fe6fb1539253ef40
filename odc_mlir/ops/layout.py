"""Operators that repeat, split, reverse and space out an operand. They do not compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from odc_mlir.ops.infer import common
from odc_mlir.ops.shape import pad
from odc_mlir.ops.spec import MOVES, Node, OperatorFamily, ResultType, Shape, joined, moved


def tile(node: Node) -> list[ResultType]:
    """Infer operand 0, repeated along each axis by operand 1."""
    return _by_axis(node, "multiples", tiled_shape)


def _by_axis(node: Node, what: str, sizes: Callable[[Node, Shape, Sequence[int]], Shape]) -> list[ResultType]:
    x, dtype = common.shape_of(node, 0), node.operand(0).dtype
    length, numbers = common.vector_length(node, 1), common.static_ints(node, 1)
    if x is None:
        return common.result(node, dtype, common.unknown_shape(length))
    if length not in (None, len(x)):
        raise node.error(f"there are {length} {what} for an operand of rank {len(x)}; each axis needs one")
    return common.result(node, dtype, common.unknown_shape(len(x)) if numbers is None else sizes(node, x, numbers))


def tiled_shape(node: Node, x: Shape, multiples: Sequence[int]) -> Shape:
    """Return sizes times ``multiples``. Raises ModelError if an axis has no valid multiple."""
    if len(multiples) != len(x) or any(m < 0 for m in multiples):
        raise node.error(f"multiples {list(multiples)} must be {len(x)} numbers that are not negative")
    return tuple(None if d is None else d * m for d, m in zip(x, multiples, strict=True))


def parts(node: Node, name: str) -> int:
    """Return the number of results. Raises ModelError if the option ``name`` differs."""
    count, written = len(node.results), int(common.option(node, name))
    if written != count:
        raise node.error(f"{name} is {written}, but there are {count} results")
    return count


def _pieces(node: Node, dtype: str, x: Shape | None, axis: int | None, sizes: Sequence[int | None]) -> list[ResultType]:
    pieces: list[ResultType] = []
    for size in sizes:
        if x is None or axis is None:
            pieces += common.result(node, dtype, common.unknown_shape(None if x is None else len(x)))
        else:
            pieces += common.result(node, dtype, (*x[:axis], size, *x[axis + 1 :]))
    return pieces


def split(node: Node) -> list[ResultType]:
    """Infer ``num_splits`` equal parts of operand 1 along the axis in operand 0."""
    count, x, dtype = parts(node, "num_splits"), common.shape_of(node, 1), node.operand(1).dtype
    axis = common.static_int(node, 0)
    if x is None or axis is None:
        return _pieces(node, dtype, x, None, [None] * count)
    place = common.normal_axis(node, axis, len(x))
    return _pieces(node, dtype, x, place, [equal_part(node, x[place], count)] * count)


def equal_part(node: Node, size: int | None, count: int) -> int | None:
    """Return the size of each of ``count`` equal parts. Raises ModelError if there is a remainder."""
    if size is None:
        return None
    if count < 1 or size % count:
        raise node.error(f"an axis of size {size} cannot be split into {count} equal parts")
    return size // count


def split_v(node: Node) -> list[ResultType]:
    """Infer parts of operand 0 with the sizes in operand 1 along the axis in operand 2."""
    count, x, dtype = parts(node, "num_splits"), common.shape_of(node, 0), node.operand(0).dtype
    length, sizes, axis = common.vector_length(node, 1), common.static_ints(node, 1), common.static_int(node, 2)
    if length not in (None, count):
        raise node.error(f"there are {length} sizes, but {count} results")
    if x is None or axis is None:
        return _pieces(node, dtype, x, None, [None] * count)
    place = common.normal_axis(node, axis, len(x))
    filled = [None] * count if sizes is None else part_sizes(node, x[place], sizes)
    return _pieces(node, dtype, x, place, filled)


def part_sizes(node: Node, size: int | None, sizes: Sequence[int]) -> list[int | None]:
    """Return ``sizes`` with the rest of ``size`` instead of -1. Raises ModelError if the sum differs."""
    if any(s < -1 for s in sizes) or sum(s == -1 for s in sizes) > 1:
        raise node.error(f"sizes {list(sizes)} must have at most one -1 and no other negative size")
    taken = sum(s for s in sizes if s >= 0)
    if size is None:
        return [None if s == -1 else s for s in sizes]
    if taken > size or (-1 not in sizes and taken != size):
        raise node.error(f"sizes {list(sizes)} do not add up to the axis of size {size}")
    return [size - taken if s == -1 else s for s in sizes]


def unpack(node: Node) -> list[ResultType]:
    """Infer the operand's slices along ``axis``, without this axis."""
    count, x, dtype = parts(node, "num"), common.shape_of(node, 0), node.operand(0).dtype
    if x is None:
        return _pieces(node, dtype, None, None, [None] * count)
    axis = common.normal_axis(node, int(common.option(node, "axis")), len(x))
    common.same_dim(node, x[axis], count, f"size of axis {axis} and number of results")
    return common.result(node, dtype, (*x[:axis], *x[axis + 1 :])) * count


def padv2(node: Node) -> list[ResultType]:
    """Infer operand 0 padded by operand 1 (``[rank, 2]``: before, after)."""
    if node.optional(2) is not None:
        common.check_single(node, 2)
    return pad(node)


def mirror_pad(node: Node) -> list[ResultType]:
    """Infer operand 0 with mirrored elements. An axis cannot gain more elements than it has."""
    x, flat, edge = common.shape_of(node, 0), common.static_ints(node, 1), mirror_edge(node)
    padded = pad(node)
    if x is not None and flat is not None:
        for axis, size in enumerate(x):
            check_mirror(node, axis, size, flat[2 * axis : 2 * axis + 2], edge)
    return padded


def mirror_edge(node: Node) -> int:
    """Return the number of elements at each end that are not repeated: 1 for reflect, 0 for symmetric."""
    return int(common.choice(node, "mode", "reflect", "symmetric") == "reflect")


def check_mirror(node: Node, axis: int, size: int | None, pads: Sequence[int], edge: int) -> None:
    """Raise ModelError if an axis has too few elements to mirror."""
    if size is not None and max(pads) > max(size - edge, 0):
        raise node.error(f"axis {axis} of size {size} is padded by {max(pads)}; at most {max(size - edge, 0)} can be")


def reverse_v2(node: Node) -> list[ResultType]:
    """Infer the type of operand 0."""
    x, axes = common.shape_of(node, 0), common.static_ints(node, 1)
    common.vector_length(node, 1)
    if x is not None and axes is not None:
        reversed_axes(node, axes, len(x))
    return common.unary(node)


def reversed_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return ``axes`` counted from the front. Raises ModelError for duplicates."""
    places = tuple(common.normal_axis(node, axis, rank) for axis in axes)
    if len(set(places)) != len(places):
        raise node.error(f"axes {list(axes)} name one axis twice")
    return places


def reverse_sequence(node: Node) -> list[ResultType]:
    """Infer the type of operand 0. Operand 1 has one length per index of ``batch_dim``."""
    x, length = common.shape_of(node, 0), common.vector_length(node, 1)
    if x is not None:
        batch, _ = sequence_axes(node, len(x))
        common.same_dim(node, x[batch], length, "batch size and number of lengths")
    return common.unary(node)


def sequence_axes(node: Node, rank: int) -> tuple[int, int]:
    """Return batch axis and sequence axis. Raises ModelError if they are equal."""
    batch = common.normal_axis(node, int(common.option(node, "batch_dim")), rank)
    sequence = common.normal_axis(node, int(common.option(node, "seq_dim")), rank)
    if batch == sequence:
        raise node.error(f"batch_dim and seq_dim are both {batch}")
    return batch, sequence


def _blocks(node: Node, what: str, sizes: Callable[..., Shape]) -> list[ResultType]:
    x, length = common.shape_of(node, 0), common.vector_length(node, 1)
    pairs_shape = common.shape_of(node, 2, 2)
    if x is not None and length is not None and not 1 <= length < len(x):
        raise node.error(f"a block shape of {length} entries does not fit the operand {common.shape_text(x)}")
    if pairs_shape is not None:
        common.same_dim(node, pairs_shape[0], length, f"numbers of {what} and of block sizes")
        common.same_dim(node, pairs_shape[1], 2, f"columns of the {what}")
    block, pairs = common.static_ints(node, 1), common.static_ints(node, 2)
    known = x is not None and block is not None and pairs is not None
    shape = sizes(node, x, block, pairs) if known else common.unknown_shape(None if x is None else len(x))
    return common.result(node, node.operand(0).dtype, shape)


def space_to_batch_nd(node: Node) -> list[ResultType]:
    """Infer ``[N * blocks, spatial / block…, …]`` from ``[N, spatial…, …]`` padded by operand 2."""
    return _blocks(node, "paddings", batched_shape)


def batched_shape(node: Node, x: Shape, block: Sequence[int], pads: Sequence[int]) -> Shape:
    """Return the result shape of SPACE_TO_BATCH_ND. Raises ModelError if blocks leave a remainder."""
    check_blocks(node, x, block, pads)
    sizes, batch = list(x), x[0]
    for axis, count in enumerate(block, 1):
        size = sizes[axis]
        if size is not None:
            padded = size + pads[2 * axis - 2] + pads[2 * axis - 1]
            if padded % count:
                raise node.error(
                    f"axis {axis} has {padded} elements after padding; not a multiple of the block {count}"
                )
            sizes[axis] = padded // count
        batch = None if batch is None else batch * count
    return (batch, *sizes[1:])


def check_blocks(node: Node, x: Shape, block: Sequence[int], pairs: Sequence[int]) -> None:
    """Raise ModelError unless block sizes are positive and pairs are valid for the operand's axes."""
    if not 1 <= len(block) < len(x) or len(pairs) != 2 * len(block):
        raise node.error(
            f"{len(block)} block sizes and {len(pairs)} paddings do not fit the operand {common.shape_text(x)}"
        )
    if min(block) < 1 or min(pairs) < 0:
        raise node.error(f"block sizes {list(block)} must be positive, {list(pairs)} not negative")


def batch_to_space_nd(node: Node) -> list[ResultType]:
    """Infer ``[N, spatial * block…, …]``, cropped by operand 2, from ``[N * blocks, spatial…, …]``."""
    return _blocks(node, "crops", spread_shape)


def spread_shape(node: Node, x: Shape, block: Sequence[int], crops: Sequence[int]) -> Shape:
    """Return the result shape of BATCH_TO_SPACE_ND. Raises ModelError for invalid blocks or crops."""
    check_blocks(node, x, block, crops)
    sizes, batch = list(x), x[0]
    for axis, count in enumerate(block, 1):
        if batch is not None:
            if batch % count:
                raise node.error(f"a batch of {x[0]} cannot be divided into blocks {list(block)}")
            batch //= count
        size = sizes[axis]
        if size is not None:
            left = size * count - crops[2 * axis - 2] - crops[2 * axis - 1]
            if left < 0:
                raise node.error(
                    f"axis {axis} has {size * count} elements, fewer than are cropped: {size * count - left}"
                )
            sizes[axis] = left
    return (batch, *sizes[1:])


def block_size(node: Node) -> int:
    """Return the option ``block_size``. Raises ModelError if it is below 1."""
    size = int(common.option(node, "block_size"))
    if size < 1:
        raise node.error(f"block_size is {size}; it must be positive")
    return size


def space_to_depth(node: Node) -> list[ResultType]:
    """Infer ``[N, H/b, W/b, C*b*b]`` from ``[N, H, W, C]``."""
    x, size = common.shape_of(node, 0, 4), block_size(node)
    if x is None:
        return common.result(node, node.operand(0).dtype, (None,) * 4)
    rows, columns = equal_part(node, x[1], size), equal_part(node, x[2], size)
    channels = None if x[3] is None else x[3] * size * size
    return common.result(node, node.operand(0).dtype, (x[0], rows, columns, channels))


def depth_to_space(node: Node) -> list[ResultType]:
    """Infer ``[N, H*b, W*b, C]`` from ``[N, H, W, C*b*b]``."""
    x, size = common.shape_of(node, 0, 4), block_size(node)
    if x is None:
        return common.result(node, node.operand(0).dtype, (None,) * 4)
    rows, columns = (None if d is None else d * size for d in x[1:3])
    return common.result(node, node.operand(0).dtype, (x[0], rows, columns, equal_part(node, x[3], size * size)))


def dilate(node: Node) -> list[ResultType]:
    """Infer operand 0 with ``d - 1`` elements between neighbours of each axis. Operand 1 contains ``d``."""
    common.check_single(node, 2)
    return _by_axis(node, "dilations", dilated_shape)


def dilated_shape(node: Node, x: Shape, dilations: Sequence[int]) -> Shape:
    """Return sizes after dilation. Empty axes stay empty. Raises ModelError for a dilation below 1."""
    if len(dilations) != len(x) or any(d < 1 for d in dilations):
        raise node.error(f"dilations {list(dilations)} must be {len(x)} positive numbers")
    return tuple(None if d is None else max((d - 1) * by + 1, 0) for d, by in zip(x, dilations, strict=True))


def matrix_diag(node: Node) -> list[ResultType]:
    """Infer ``[…, n, n]`` from ``[…, n]``."""
    x, dtype = common.shape_of(node, 0, least=1), node.operand(0).dtype
    return common.result(node, dtype, None if x is None else (*x, x[-1]))


def matrix_set_diag(node: Node) -> list[ResultType]:
    """Infer the type of operand 0 ``[…, rows, columns]``. Operand 1 is ``[…, min(rows, columns)]``."""
    x, diagonal = common.shape_of(node, 0, least=2), common.shape_of(node, 1)
    if x is not None and diagonal is not None:
        check_diagonal(node, x, diagonal)
    return common.unary(node)


def check_diagonal(node: Node, x: Shape, diagonal: Shape) -> None:
    """Raise ModelError if ``diagonal`` is not one vector per matrix with the length of the matrix's shorter side."""
    rows, columns = x[-2:]
    wanted: Shape = (*x[:-2], None if rows is None or columns is None else min(rows, columns))
    if not common.compatible(wanted, diagonal):
        raise node.error(
            f"the diagonal has the shape {common.shape_text(diagonal)}; it must be {common.shape_text(wanted)}"
        )


def broadcast_to(node: Node) -> list[ResultType]:
    """Infer operand 0 with the shape in operand 1."""
    x, dtype = common.shape_of(node, 0), node.operand(0).dtype
    found, wanted = common.wanted_shape(node, 1, dtype), common.static_ints(node, 1)
    if wanted is not None:
        check_broadcast(node, x, wanted)
    return found


def check_broadcast(node: Node, x: Shape | None, wanted: Sequence[int]) -> None:
    """Raise ModelError if the shape ``x`` does not broadcast to the shape ``wanted``."""
    if any(d < 0 for d in wanted):
        raise node.error(f"the new shape {list(wanted)} must not have negative sizes")
    if x is None:
        return
    aligned = wanted[len(wanted) - len(x) :] if len(x) <= len(wanted) else ()
    if len(aligned) != len(x) or any(a not in (None, 1, b) for a, b in zip(x, aligned, strict=True)):
        raise node.error(f"{common.shape_text(x)} cannot be broadcast to {list(wanted)}")
    common.check_elements(node, wanted, node.operand(0).dtype)


def verify_pieces(node: Node) -> None:
    """Check that every result has the operand's element type."""
    expected = node.operand(node.spec.quant.source or 0).dtype
    for info in node.results:
        if info.dtype != expected:
            raise node.error(
                f"the operand is {expected}, the result {info.dtype}; they must be equal", tensor=info.name
            )


_op = OperatorFamily(__name__, quant=moved(), traits=MOVES, bounds="moved")
_parts = replace(_op, gives="outputs...", version=5, verify="verify_pieces")
_joined = replace(_op, quant=joined(0, 2), verify="same")

SPECS = (
    _op("TILE", "input multiples:int", "repetition along each axis", version=3),
    _parts("SPLIT", "axis:int input", "split into equal parts along an axis", quant=moved(1)),
    _parts("SPLIT_V", "input sizes:int axis:int", "split into parts of given sizes along an axis", version=3),
    _parts("UNPACK", "input", "slices along an axis, which is removed"),
    _joined(
        "PADV2", "input paddings:int|int8|int16 value?", "padding with one value", options="PadV2Options", version=5
    ),
    _op("MIRROR_PAD", "input paddings:int", "padding with mirrored elements", version=4),
    _op("REVERSE_V2", "input axes:int", "reversal along some axes", version=4),
    _op("REVERSE_SEQUENCE", "input lengths:int", "reversal of the first elements of each batch entry"),
    _op(
        "SPACE_TO_BATCH_ND",
        "input block_shape:int paddings:int",
        "padding, then blocks of space to batch entries",
        options="SpaceToBatchNDOptions",
        version=4,
    ),
    _op(
        "BATCH_TO_SPACE_ND",
        "input block_shape:int crops:int",
        "batch entries to blocks of space, then cropping",
        options="BatchToSpaceNDOptions",
        version=4,
    ),
    _op("SPACE_TO_DEPTH", "input", "blocks of pixels to channels", version=3),
    _op("DEPTH_TO_SPACE", "input", "channels to blocks of pixels", version=3),
    _joined("DILATE", "input dilations:int padding_value", "insertion of one value between elements"),
    _op("MATRIX_DIAG", "input", "matrices with the operand on the diagonal"),
    _op("MATRIX_SET_DIAG", "input diagonal", "matrices with a given diagonal", quant=joined(0, 1), verify="same"),
    _op("BROADCAST_TO", "input shape:int", "broadcast to a shape", version=4),
)
