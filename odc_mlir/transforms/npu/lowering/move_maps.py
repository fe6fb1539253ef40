"""Where operators that only move codes take every element from, by asking their host kernels.

A kernel that runs on the numbers of elements in place of codes tells the whole map; strided copies are found in it. So
an operator that moves codes can be lowered as soon as it has a host kernel, with the same result by construction. Knows
no IR.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.targets import ELEMENT_TYPES
from odc_mlir.transforms.npu.schedule.moves import FILLED, strided_copies

MOST_COPIES = 64  # that one result may take
MOST_ELEMENTS = 1 << 22  # of one tensor: the map is made element by element


def moved_operands(node: Node) -> list[int]:
    """The operands whose codes the operator moves; the others say how."""
    return [index for index, info in enumerate(node.operands) if info is not None and info.dtype in ELEMENT_TYPES]


def element_maps(node: Node) -> list[Array]:
    """For every result, the number of the element that each of its elements is, counting through all moved operands.

    FILLED where it is the zero point. Raises OdcError for an operator that does more than move.
    """
    offset, moved = 1, moved_operands(node)
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
    return [np.asarray(result) - 1 for result in found]  # 0, the kernels' zero, becomes FILLED


def _numbered(info: TensorInfo) -> TensorInfo:
    """``info`` as a tensor of numbers that are computed at run time."""
    return replace(info, dtype="int32", quant=None, data=None, _array=None)


def result_copies(node: Node) -> list[list[StridedCopy]] | str:
    """The strided copies of every result, or why there are none."""
    sizes = [math.prod(node.operand(index).static_shape) for index in moved_operands(node)]
    largest = max([*sizes, *(math.prod(result.static_shape) for result in node.results)])
    if largest > MOST_ELEMENTS:
        return f"a tensor of {largest} elements, at most {MOST_ELEMENTS}"
    try:
        maps = element_maps(node)
    except OdcError as error:
        return error.message
    except (ValueError, IndexError, TypeError) as error:  # numbers of elements are not what the kernel computes with
        return f"the host kernel moves codes only: {error}"
    found = []
    for result, index in zip(node.results, maps, strict=True):
        if index.shape != result.static_shape or index.min(initial=0) < FILLED or index.max(initial=0) >= sum(sizes):
            return f"{result.name!r} holds more than codes of the operands"
        copies = strided_copies(index, sizes, MOST_COPIES)
        if copies is None:
            return f"{result.name!r} takes more than {MOST_COPIES} strided copies"
        found.append(copies)
    return found
