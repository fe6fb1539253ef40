"""How BATCH_MATMUL divides into products of plain matrices, and what its operands' codes have to be moved for. No IR.

Transposed operands are put the right way round, and leading axes that broadcast are repeated, except where one right
matrix serves all left ones: then they are the rows of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Array, Node
from odc_mlir.transforms.npu.lowering.move_maps import MOST_COPIES, MOST_ELEMENTS
from odc_mlir.transforms.npu.schedule.moves import strided_copies


@dataclass(frozen=True, slots=True)
class Matrices:
    """``images`` products of ``rows`` x ``depth`` by ``depth`` x ``columns``.

    ``maps``: for each operand the number of the element that each element of the dense matrices is, as
    ``[images, rows, depth]`` and ``[images, depth, columns]``; None where codes stand in this order already.
    ``moves``: the same as strided copies.
    """

    images: int
    rows: int
    depth: int
    columns: int
    maps: tuple[Array | None, Array | None]
    moves: tuple[list[StridedCopy], list[StridedCopy]]


def matrices(node: Node) -> Matrices | str:
    """The products of a BATCH_MATMUL with static shapes, or why they would take too many moves."""
    flips = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
    *batch, rows, columns = node.results[0].static_shape
    shapes = [node.operand(index).static_shape for index in (0, 1)]
    depth = shapes[0][-2 if flips[0] else -1]
    left = right = tuple(batch)
    images = math.prod(batch)
    if math.prod(shapes[1][:-2]) == 1:
        rows, images, right = images * rows, 1, ()
    maps: list[Array | None] = []
    moves: list[list[StridedCopy]] = []
    for index, (flip, leading) in enumerate(zip(flips, (left, right), strict=True)):
        found = _map(shapes[index], leading, flip=flip)
        if found is not None and found.size > MOST_ELEMENTS:
            return f"{found.size} elements of {node.operand(index).name!r} to be moved, at most {MOST_ELEMENTS}"
        copies = [] if found is None else strided_copies(found, [math.prod(shapes[index])], MOST_COPIES)
        if copies is None:
            return f"{node.operand(index).name!r} takes more than {MOST_COPIES} strided copies"
        maps.append(found)
        moves.append(copies)
    return Matrices(images, rows, depth, columns, (maps[0], maps[1]), (moves[0], moves[1]))


def _map(shape: tuple[int, ...], leading: tuple[int, ...], *, flip: bool) -> Array | None:
    """Numbers of the elements of ``shape`` with ``leading`` axes, last axes swapped if ``flip``; None: as they are."""
    if (not flip or 1 in shape[-2:]) and math.prod(leading) == math.prod(shape[:-2]):
        return None
    numbers = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    if flip:
        numbers = numbers.swapaxes(-1, -2)
    if math.prod(leading) == 1:
        return numbers.reshape(numbers.shape[-2:])
    return np.broadcast_to(numbers, (*leading, *numbers.shape[-2:]))
