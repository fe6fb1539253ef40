"""Decompositions of operators into forms that the NPU computes. The module does not use the IR.

- Operators that only move codes: the host kernel runs on element numbers instead of codes. The result maps each result
  element to a source element, and a few strided copies are derived from this map. Lowering such an operator therefore
  needs only a host kernel, and host and NPU give the same result by construction.
- BATCH_MATMUL: products of plain matrices. Transposed operands are moved, and leading axes that broadcast are repeated.
  If all left matrices share one right matrix, the left matrices become the rows of one matrix. A row times a transposed
  matrix becomes the matrix times a column.
- TRANSPOSE_CONV: a convolution per polyphase component. A component consists of the result pixels ``first + step * t``
  of an axis. A window with some of the taps slides over the source with stride 1 and yields these pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.errors import OdcError
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.resize import Lines, bilinear_lines, nearest_line
from odc_mlir.ops.convolution import transposed_options
from odc_mlir.ops.infer.common import option, transposed_pad
from odc_mlir.ops.resize import resize_modes
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.targets import NUMBER_TYPES

MOST_COPIES = 64  # limit on the copies of one result
MOST_ELEMENTS = 1 << 22  # limit on the elements of a tensor and so on the size of its map


def element_maps(node: Node) -> list[Array]:
    """Return the source element number of every result element, counted through all moved operands.

    FILLED represents the zero point. Raises OdcError for an operator that does more than move.
    """
    offset, moved = 1, node.spec.quant.moved(node.operands)
    operands: list[TensorInfo | None] = []
    arrays: list[Array | None] = []
    for index, info in enumerate(node.operands):
        if index in moved:
            assert info is not None, "moved operands are given"
            numbers = np.arange(offset, offset + math.prod(info.static_shape), dtype=np.int32)
            offset += numbers.size
            operands.append(_numbered(info))
            arrays.append(numbers.reshape(info.static_shape))
        else:
            operands.append(info)
            arrays.append(None if info is None else info.array())
    probe = replace(node, operands=tuple(operands), results=tuple(map(_numbered, node.results)))
    with np.errstate(all="ignore"):
        found = node.spec.kernel_function(probe)(arrays)
    return [np.asarray(result) - 1 for result in found]  # element number 0, the kernel's zero, becomes FILLED


def _numbered(info: TensorInfo) -> TensorInfo:
    return replace(info, dtype="int32", quant=None, data=None, _array=None)


def result_copies(node: Node) -> list[list[StridedCopy]] | str:
    """Return the strided copies of every result, or the reason why there are none."""
    sizes = [math.prod(node.operand(index).static_shape) for index in node.spec.quant.moved(node.operands)]
    largest = max([*sizes, *(math.prod(result.static_shape) for result in node.results)])
    if largest > MOST_ELEMENTS:
        return f"a tensor of {largest} elements, at most {MOST_ELEMENTS}"
    try:
        maps = element_maps(node)
    except OdcError as error:
        return error.message
    except (ValueError, IndexError, TypeError) as error:  # the kernel does not accept element numbers
        return f"the host kernel moves codes only: {error}"
    found = []
    for result, index in zip(node.results, maps, strict=True):
        if index.shape != result.static_shape or index.min(initial=0) < FILLED or index.max(initial=0) >= sum(sizes):
            return f"{result.name!r} holds more than codes of the operands"
        copies = strided_copies(index, sizes, MOST_COPIES)
        if copies is None:
            return f"{result.name!r} takes more than {MOST_COPIES} strided copies"
        if result.dtype in NUMBER_TYPES and index.min(initial=0) == FILLED:
            return f"{result.name!r} is {result.dtype} with zeros between elements"
        found.append(copies)
    return found


FILLED = -1  # entry of a map without a source element, for the fill code


def indices(copy: StridedCopy) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the source and target element of every move, in loop order."""
    source, target = np.array([copy.start]), np.array([copy.to])
    for size, read, write in zip(copy.sizes, copy.reads, copy.writes, strict=True):
        steps = np.arange(size)
        source = (source[:, None] + steps * read).reshape(-1)
        target = (target[:, None] + steps * write).reshape(-1)
    return source, target


class _Blocks(NamedTuple):
    """Copies of the same shape: start positions in source and target, and loops of (size, read, write)."""

    source: int
    starts: NDArray[np.int64]
    targets: NDArray[np.int64]
    loops: tuple[tuple[int, int, int], ...]


def strided_copies(index: NDArray[Any], sources: Sequence[int], limit: int) -> list[StridedCopy] | None:
    """Return the copies that perform the moves of ``index``, or None if more than ``limit`` are needed.

    ``index``: source element of every result element in order, counted through all sources, or FILLED. ``sources``:
    number of elements of each source.
    """
    flat = np.asarray(index, np.int64).reshape(-1)
    owner = np.searchsorted(np.cumsum(sources), flat, side="right")
    owner[flat < 0] = FILLED
    first = np.concatenate([[0], np.flatnonzero((np.diff(flat) != 1) | (np.diff(owner) != 0)) + 1])
    found = _copies(flat, owner, first, sources, limit)
    # If a run happens to continue another run, copies become irregular. Runs of one common length may be regular.
    step = int(np.gcd.reduce(np.append(first, flat.size)))
    if found is None or len(found) > 1:
        regular = _copies(flat, owner, np.arange(0, flat.size, step), sources, limit)
        if regular is not None and (found is None or len(regular) < len(found)):
            return regular
    return found


def _copies(
    flat: NDArray[np.int64], owner: NDArray[np.int64], first: NDArray[np.int64], sources: Sequence[int], limit: int
) -> list[StridedCopy] | None:
    length, owners = np.diff(np.append(first, flat.size)), owner[first]
    bases = np.cumsum(sources) - sources
    todo: list[_Blocks] = []
    for number, size in sorted(set(zip(owners.tolist(), length.tolist(), strict=True))):
        if number != FILLED:
            chosen = first[(owners == number) & (length == size)]
            todo.append(_Blocks(number, flat[chosen] - bases[number], chosen, ((size, 1, 1),)))
    found: list[StridedCopy] = []
    while todo:
        blocks = todo.pop()
        if len(blocks.starts) == 1:
            found.append(_copy_of(blocks))
        else:
            todo += _with_another_loop(blocks)
        if len(found) + len(todo) > limit:
            return None
    return sorted(found, key=lambda copy: copy.to)


def _copy_of(blocks: _Blocks) -> StridedCopy:
    loops = [loop for loop in reversed(blocks.loops) if loop[0] > 1] or [(1, 1, 1)]
    merged = [loops[-1]]
    for size, read, write in reversed(loops[:-1]):
        inner, inner_read, inner_write = merged[0]
        if (read, write) == (inner * inner_read, inner * inner_write):
            merged[0] = (size * inner, inner_read, inner_write)
        else:
            merged.insert(0, (size, read, write))
    sizes, reads, writes = zip(*merged, strict=True)
    return StridedCopy(blocks.source, int(blocks.starts[0]), int(blocks.targets[0]), sizes, reads, writes)


def _with_another_loop(blocks: _Blocks) -> list[_Blocks]:
    """Return the same moves with one more loop for blocks at equal distances."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for start, count in _runs(blocks.starts, blocks.targets):
        read = write = 0
        if count > 1:
            read = int(blocks.starts[start + 1] - blocks.starts[start])
            write = int(blocks.targets[start + 1] - blocks.targets[start])
        groups.setdefault((count, read, write), []).append(start)
    made = []
    for (count, read, write), firsts in sorted(groups.items()):
        loops = (*blocks.loops, (count, read, write)) if count > 1 else blocks.loops
        made.append(_Blocks(blocks.source, blocks.starts[firsts], blocks.targets[firsts], loops))
    if any(more.loops != blocks.loops for more in made):
        return made
    each = range(len(blocks.starts))  # nothing repeats
    return [blocks._replace(starts=blocks.starts[i : i + 1], targets=blocks.targets[i : i + 1]) for i in each]


def _runs(starts: NDArray[np.int64], targets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    steps = np.stack([np.diff(starts), np.diff(targets)])
    total = len(starts)
    changes = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(0)) + 1
    count = int(changes[0]) + 1 if len(changes) else total
    if total % count == 0:
        rows = np.stack([starts, targets]).reshape(2, total // count, count)
        if (np.diff(rows, axis=2) == steps[:, :1, None]).all():
            yield from ((first, count) for first in range(0, total, count))
            return
    boundaries = iter([*changes.tolist(), total - 1])
    position = 0
    end = next(boundaries)
    while position < total:
        while end <= position and end < total - 1:
            end = next(boundaries)
        last = min(end, total - 1) if position < total - 1 else position
        yield position, last - position + 1
        position = last + 1


@dataclass(frozen=True, slots=True)
class Matrices:
    """``images`` products of ``rows`` x ``depth`` matrices by ``depth`` x ``columns`` matrices.

    ``order``: indices of the left and the right operand. ``maps``: for each operand, None if the codes are in dense
    order already, else source elements of the dense matrices ``[images, rows, depth]`` or ``[images, depth, columns]``.
    ``moves``: the maps as strided copies.
    """

    images: int
    rows: int
    depth: int
    columns: int
    maps: tuple[Array | None, Array | None]
    moves: tuple[list[StridedCopy], list[StridedCopy]]
    order: tuple[int, int] = (0, 1)


def matrices(node: Node) -> Matrices | str:
    """Return the products of a BATCH_MATMUL with static shapes, or the reason why there are too many moves."""
    flips = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
    *batch, rows, columns = node.results[0].static_shape
    shapes = [node.operand(index).static_shape for index in (0, 1)]
    depth = shapes[0][-2 if flips[0] else -1]
    left = right = tuple(batch)
    images, order = math.prod(batch), (0, 1)
    a, b = node.operand(0), node.operand(1)
    if math.prod(shapes[1][:-2]) == 1:
        rows, images, right = images * rows, 1, ()
    if rows == 1 < columns and flips[1] and a.dtype == b.dtype and not b.is_const:
        rows, columns, order = columns, rows, (1, 0)
        shapes, flips = [shapes[1], shapes[0]], (False, not flips[0])
    maps: list[Array | None] = []
    moves: list[list[StridedCopy]] = []
    for index, (flip, leading) in enumerate(zip(flips, (left, right), strict=True)):
        found = _map(shapes[index], leading, flip=flip)
        if found is not None and found.size > MOST_ELEMENTS:
            return f"{found.size} elements of {node.operand(order[index]).name!r} to be moved, at most {MOST_ELEMENTS}"
        copies = [] if found is None else strided_copies(found, [math.prod(shapes[index])], MOST_COPIES)
        if copies is None:
            return f"{node.operand(order[index]).name!r} takes more than {MOST_COPIES} strided copies"
        maps.append(found)
        moves.append(copies)
    return Matrices(images, rows, depth, columns, (maps[0], maps[1]), (moves[0], moves[1]), order)


def _map(shape: tuple[int, ...], leading: tuple[int, ...], *, flip: bool) -> Array | None:
    """Return the element numbers of ``shape``, broadcast to ``leading`` axes, or None if all are in order.

    ``flip``: whether to swap the last two axes.
    """
    if (not flip or 1 in shape[-2:]) and math.prod(leading) == math.prod(shape[:-2]):
        return None
    numbers = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    if flip:
        numbers = numbers.swapaxes(-1, -2)
    if math.prod(leading) == 1:
        return numbers.reshape(numbers.shape[-2:])
    return np.broadcast_to(numbers, (*leading, *numbers.shape[-2:]))


class Component(NamedTuple):
    """``results`` result pixels of one axis: ``first, first + step, …``.

    ``taps``: taps of the transposed convolution's kernel, in window order. ``before``, ``after``: padding.
    """

    first: int
    results: int
    taps: tuple[int, ...]
    before: int
    after: int


def transposed_components(node: Node) -> tuple[list[Component], list[Component]] | str:
    """Return the components of both axes of a TRANSPOSE_CONV, or the reason why there are none."""
    (stride, padding), kernel = transposed_options(node), node.operand(1).static_shape[1:3]
    source, result = node.operand(2).static_shape, node.results[0].static_shape
    found = []
    for axis, name in ((0, "height"), (1, "width")):
        size, output = source[axis + 1], result[axis + 1]
        pad = transposed_pad(size, kernel[axis], stride[axis], padding, output)
        components = [
            _transposed_component(a, size, kernel[axis], stride[axis], pad, output) for a in range(stride[axis])
        ]
        if any(
            component.results < 1 or not component.taps or min(component.before, component.after) < 0
            for component in components
        ):
            return f"{name} {size} to {output} with a kernel of {kernel[axis]} and stride {stride[axis]}"
        found.append(components)
    return found[0], found[1]


def _transposed_component(offset: int, size: int, kernel: int, stride: int, pad: int, output: int) -> Component:
    """Return the component whose taps ``offset + stride * j`` add to pixels ``stride * q + offset - pad``."""
    taps = tuple(reversed(range(offset, kernel, stride)))
    first = -((offset - pad) // stride)  # smallest q with a result pixel >= 0
    last = (output - 1 + pad - offset) // stride
    return Component(stride * first + offset - pad, last - first + 1, taps, len(taps) - 1 - first, last - (size - 1))


_LARGEST_STEP = field_range("resize", "start_x")[1]  # limit, so that the start of every tile also fits


def resize_lines(node: Node) -> Lines | str:
    """Return the source positions of a resize operator, or the reason why they are not linear."""
    (_, *source, _), (_, *result, _) = node.operand(0).static_shape, node.results[0].static_shape
    size, output = (source[0], source[1]), (result[0], result[1])
    dtype, modes = node.operand(0).dtype, resize_modes(node)
    what = f"{size[0]}x{size[1]} to {output[0]}x{output[1]}"
    lines: Lines | None
    if node.spec.name == "RESIZE_BILINEAR":
        lines = bilinear_lines(size, output, dtype, *modes)
        if lines is None:
            return f"{dtype} is interpolated in real numbers, and {what} with these options is not exact"
    else:
        rows, columns = (nearest_line(a, b, *modes) for a, b in zip(size, output, strict=True))
        if rows is None or columns is None:
            return f"{what} with these options has positions that rounding moves"
        lines = Lines(rows, columns)
    if max(line.step for line in lines) > _LARGEST_STEP:
        return f"{what} has steps that the instruction does not hold"
    return lines
