"""``npu-interleave-heads``: compute attention in parts that overlap.

Before::

    %1 = npu.matmul %q, %k … : tensor<8x1x32x8x…>, tensor<8x1x8x128x…> -> tensor<8x1x32x128x…>
    %2 = npu.softmax %1 … : tensor<8x1x32x128x…> -> tensor<8x1x32x128x…>
    %3 = npu.matmul %2, %v … : tensor<8x1x32x128x…>, tensor<8x1x128x8x…> -> tensor<8x1x32x8x…>

After, with a part for each of the 8 heads::

    %4 = npu.matmul %q1, %k1 … : tensor<1x1x32x8x…>, tensor<1x1x8x128x…> -> tensor<1x1x32x128x…>
    %5 = npu.softmax %s0 … : tensor<1x1x32x128x…> -> tensor<1x1x32x128x…>
    …
    %3 = npu.move %y0, %y1, … : … -> tensor<8x1x32x8x…>

The array computes products of the next and of the previous part while the vector engine works on a part. Most results
stay in the tile buffer, of which a part takes at most a quarter. Applies to two products with a softmax, and maybe
other element-wise operations, between them. Each matrix must fit in a quarter of the weight buffer, so that the next
matrix can be loaded early. Heads that share keys and values and have a single query are one part. ``dce`` removes the
old operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.lowering.site import tensor_of
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.tensor_ir import Elementwise, loads_parts, row_copy, row_parts, viewed

MOST_PARTS = 32
LEAST_ROWS = 32  # of a part of a larger head, because every part loads the matrices again
PASSES = 3  # of a softmax over a part: the softmax of a smaller part takes less time than its start
SHARE = 4  # a part and a matrix take at most one in SHARE of their memories
_BETWEEN = Elementwise | npu.SoftmaxOp
Shape = tuple[int, ...]


class NpuInterleaveHeadsPass(ProgramPass):
    """Compute attention in parts that overlap."""

    name = "npu-interleave-heads"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        for op in [item for item in job.block.ops if isinstance(item, npu.MatmulOp)]:
            between = _between(op)
            if between is not None and (count := _part_rows(between, op, job.target)):
                _divide(between, op, count)


def _divide(between: Sequence[Operation], last: npu.MatmulOp, count: int) -> None:
    """Divide the operations from a product to ``last`` into parts of ``count`` rows."""
    stages: list[tuple[int, int, list[Operation]]] = []
    made: list[SSAValue] = []
    for number in range(math.prod(npu.shape_of(last.a)[:3]) // count):
        value: SSAValue | None = None
        for stage, items in enumerate((between[:1], between[1:], [last])):
            part = _Part(number * count, count, npu.shape_of(last.a)[3])
            for item in items:
                value = part.compute(item, value)
            stages.append((number + stage, stage, part.ops))
        assert value is not None, "stages have operations"
        made.append(value)
    stages.sort(key=lambda stage: stage[:2])
    size = math.prod(npu.shape_of(made[0]))
    copies = [StridedCopy(number, 0, number * size, (size,), (1,), (1,)) for number in range(len(made))]
    joined = npu.MoveOp(made, last.output.type, copies=copies)
    joined.location = last.location
    Rewriter.replace_op(last, [*(item for *_, ops in stages for item in ops), joined], [joined.output])


def _between(last: npu.MatmulOp) -> list[Operation] | None:
    """Return the product before ``last`` and the operations between the two, or None if others use their results."""
    value, found = last.a, list[Operation]()
    while isinstance(value, OpResult) and value.uses.get_length() == 1:
        op = value.op
        if isinstance(op, npu.MatmulOp):
            return [op, *found] if any(isinstance(item, npu.SoftmaxOp) for item in found) else None
        if isinstance(op, _BETWEEN):
            found.insert(0, op)
        elif not isinstance(op, npu.ReshapeOp):
            return None
        if (index := _main_operand(op)) == len(op.operands):  # both operands are broadcast
            return None
        value = op.operands[index]
    return None


def _main_operand(op: Operation) -> int:
    """Return the index of the operand with as many elements as the result, or the number of operands."""
    sizes = [math.prod(npu.shape_of(value)) for value in (*op.operands, op.results[0])]
    return sizes.index(sizes[-1])


def _part_rows(between: Sequence[Operation], last: npu.MatmulOp, target: Target) -> int:
    """Return the rows of the softmax in each part, or 0 if parts do not help. Images of ``last`` hold whole parts."""
    first, *inner = between
    assert isinstance(first, npu.MatmulOp), "products surround the other operations"
    *outer, depth = npu.shape_of(last.a)
    image, most = math.prod(npu.shape_of(first.output)[1:]), target.local.tile_bytes // SHARE // depth
    if image % depth or depth % npu.shape_of(first.output)[3]:
        return 0
    rows = image // depth
    height = outer[2] if npu.shape_of(first.a)[0] == outer[0] else math.gcd(rows, outer[2])
    for op in inner:
        *_, columns = shape = npu.shape_of(op.results[0])
        item = max(npu.item_bytes(value) for value in (*op.operands, *op.results))
        most = min(most, target.local.tile_bytes // SHARE // depth // item)
        others = [npu.shape_of(value) for value in op.operands]
        height = math.gcd(height, *(own[-2] for own in others if math.prod(own[-2:-1]) > 1))
        if columns != depth or any(math.prod(own[:-2]) > 1 and math.prod(own) != math.prod(shape) for own in others):
            return 0
    matrices = [math.prod(npu.shape_of(op.b)[1:]) * npu.item_bytes(op.b) for op in (first, last)]
    if max(matrices) > target.local.weight_bytes // SHARE:
        return 0
    divisors = (count for count in range(min(height, most), 0, -1) if height % count == 0)
    count = next((count for count in divisors if max(count, rows) % min(count, rows) == 0), 0)
    started = target.vector.softmax_start_cycles * target.vector.softmax_elements_per_cycle / PASSES
    enough = count >= max(1, min(height, rows, LEAST_ROWS)) and count * depth >= started
    return count if enough and 1 < math.prod(outer) // count <= MOST_PARTS else 0


class _Part:
    """Rows ``[first, first + count)`` of all results, in rows of ``row`` elements. ``ops``: new operations."""

    def __init__(self, first: int, count: int, row: int) -> None:
        self.first, self.count, self.row, self.ops = first, count, row, list[Operation]()

    def compute(self, op: Operation, value: SSAValue | None) -> SSAValue:
        """Add the operation that computes this part of ``op`` from ``value``, and return the result."""
        shape, operands = self._product(op, value) if isinstance(op, npu.MatmulOp) else self._elements(op, value)
        kind = with_shape(tensor_of(op.results[0]), shape)
        return self._add(type(op).create(operands=operands, properties=dict(op.properties), result_types=[kind]), op)

    def _product(self, op: npu.MatmulOp, value: SSAValue | None) -> tuple[Shape, list[SSAValue]]:
        (images, _, rows, columns), depth = npu.shape_of(op.output), npu.shape_of(op.a)[3]
        width = columns if value is None else depth  # of the elements that parts divide
        image, start = divmod(self.first * self.row, rows * width)
        count = min(rows, self.count * self.row // width)
        several = max(1, self.count * self.row // (rows * width))
        left, right = (image * npu.shape_of(operand)[0] // images for operand in op.operands)
        shape, place = (1, 1, count, depth), left * rows * depth + start // width * depth
        a = self._slice(op.a, place, shape, op) if value is None else self._view(value, op.a, shape, op)
        b = self._slice(op.b, right * depth * columns, (several, 1, depth, columns), op)
        return (several, 1, count, columns), [a, b]

    def _elements(self, op: Operation, value: SSAValue | None) -> tuple[Shape, list[SSAValue]]:
        shape, operands = npu.shape_of(op.results[0]), list(op.operands)
        made = (*(1,) * (len(shape) - 2), self.count, self.row)
        for number, operand in enumerate(operands):
            own = npu.shape_of(operand)
            if number == _main_operand(op) and value is not None:
                operands[number] = self._view(value, operand, made, op)
            elif math.prod(own) == math.prod(shape):
                operands[number] = self._slice(operand, self.first * self.row, made, op)
            elif math.prod(own[-2:-1]) > self.count:
                start = self.first % own[-2] * own[-1]
                operands[number] = self._slice(operand, start, (*own[:-2], self.count, own[-1]), op)
        return made, operands

    def _slice(self, value: SSAValue, first: int, shape: Shape, origin: Operation) -> SSAValue:
        """Return the elements of ``value`` from ``first`` in ``shape``. A slice of joined rows is joined again."""
        size, joined, kind = math.prod(shape), viewed(value).owner, with_shape(tensor_of(value), shape)
        if size == math.prod(npu.shape_of(value)):
            return self._view(value, value, shape, origin)
        parts = row_parts(joined) if isinstance(joined, npu.MoveOp) and loads_parts(joined, sliced=True) else None
        if parts is None or size != math.prod(shape[:-2]) * shape[-1] * sum(part.rows for part in parts):
            copies = [StridedCopy(0, first, 0, (size,), (1,), (1,))]
            return self._add(npu.MoveOp([value], kind, copies=copies), origin)
        image, row = first // size, shape[-1]
        values = [self._slice(item, image * rows * row, (1, 1, rows, row), origin) for item, _, rows in parts]
        copies = [row_copy(n, (1, rows, row), rows, shape[-2], 0, to) for n, (_, to, rows) in enumerate(parts)]
        return self._add(npu.MoveOp(values, kind, copies=copies), origin)

    def _view(self, value: SSAValue, operand: SSAValue, shape: Shape, origin: Operation) -> SSAValue:
        """Return ``value`` in ``shape``, with the zero point of ``operand``, because views may change it."""
        kind = with_shape(tensor_of(operand), shape)
        return value if value.type == kind else self._add(npu.ReshapeOp(value, kind), origin)

    def _add(self, made: Operation, origin: Operation) -> SSAValue:
        made.location = origin.location
        self.ops.append(made)
        return made.results[0]
