"""Tensors that are part of others, byte for byte: views of all, slices of one, parts that are joined to one."""

from __future__ import annotations

import math
from collections.abc import Iterator

from xdsl.ir import Block, Operation, OpResult, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.dialects.npu_tiling import VIEW
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name


class ViewSources:
    """Whose bytes every value of a program shows, as its views and the moves marked as views say.

    Raises CompileError for a marked move that is none.
    """

    def __init__(self, block: Block) -> None:
        self._joined: dict[SSAValue, tuple[SSAValue, int]] = {}
        for op in block.ops:
            if isinstance(op, npu.MoveOp) and VIEW in op.attributes and slice_of(op) is None:
                if not joins_whole(op):
                    raise CompileError("the move is not a view", op=op.name, tensor=op_name(op))
                for copy in op.strided_copies():
                    self._joined[viewed(op.inputs[copy.source])] = (op.output, copy.to * npu.item_bytes(op.output))

    def place(self, value: SSAValue) -> tuple[SSAValue, int]:
        """The value whose bytes ``value`` shows, and its first byte there."""
        start = 0
        while True:
            value = viewed(value)
            if value in self._joined:
                value, offset = self._joined[value]
            elif isinstance(value, OpResult) and isinstance(value.op, npu.MoveOp) and VIEW in value.op.attributes:
                copy = slice_of(value.op)
                if copy is None:
                    return value, start
                value, offset = value.op.inputs[0], copy.start * npu.item_bytes(value)
            else:
                return value, start
            start += offset


def viewed(value: SSAValue) -> SSAValue:
    """The value that ``value`` shows with another shape."""
    while isinstance(value, OpResult) and isinstance(value.op, npu.ReshapeOp):
        value = value.op.input
    return value


def readers(value: SSAValue) -> Iterator[Operation]:
    """Yield the operations that read ``value`` or a view of it with another shape."""
    for use in value.uses:
        if isinstance(use.operation, npu.ReshapeOp):
            yield from readers(use.operation.output)
        else:
            yield use.operation


def is_slice_view(op: Operation) -> bool:
    """Return whether ``op`` is a move that is marked as a view of a slice."""
    return isinstance(op, npu.MoveOp) and VIEW in op.attributes and slice_of(op) is not None


def slice_of(op: npu.MoveOp) -> StridedCopy | None:
    """The only copy of a move that takes neighbouring elements of one tensor in order, None for all others."""
    copies = list(op.strided_copies())
    if op.fill is not None or len(copies) != 1 or len(op.inputs) != 1 or not is_run(copies[0]):
        return None
    return copies[0]


def joins_whole(op: npu.MoveOp) -> bool:
    """Whether a move puts whole tensors, each once, one behind the other."""
    sources, copies = [viewed(value) for value in op.inputs], list(op.strided_copies())
    if op.fill is not None or len(set(sources)) != len(sources) or len(copies) != len(sources):
        return False
    sizes = [math.prod(npu.shape_of(value)) for value in sources]
    whole = all(copy.elements == sizes[copy.source] and copy.start == 0 and is_run(copy) for copy in copies)
    return whole and {copy.source for copy in copies} == set(range(len(sources)))


def is_run(copy: StridedCopy) -> bool:
    """Whether ``copy`` moves neighbours to neighbours in order."""
    distance = 1
    for size, read, write in reversed(list(zip(copy.sizes, copy.reads, copy.writes, strict=True))):
        if size > 1 and not read == write == distance:
            return False
        distance *= size
    return True
