"""The tensor operations of a program as rows: which rows of its operands each row of a result needs.

What is asked here is whether operations can be computed for some rows of an image at a time, and what that takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.cost import ports, softmax_cycles
from odc_mlir.transforms.npu.schedule.resize_stream import ResizeAxis, lane_turns
from odc_mlir.transforms.npu.schedule.tensor_ir import layer_ops
from odc_mlir.transforms.npu.schedule.views import viewed

_BY_ROWS = (
    npu.ConvOp
    | npu.PoolOp
    | npu.ElementwiseOp
    | npu.ScaleOp
    | npu.LutOp
    | npu.SigmoidOp
    | npu.ResizeOp
    | npu.SoftmaxOp
    | npu.ArgMaxOp
)
START_CYCLES = 256  # of an operation: its first load and last store, which nothing of it hides


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows ``[first, end)`` of an image."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first

    def union(self, other: Rows) -> Rows:
        """The rows from the first to the last of both."""
        return Rows(min(self.first, other.first), max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class RowSource:
    """An operand: ``layer`` computes it (None: nothing in reach), ``root`` holds its bytes.

    ``stride``, ``span``, ``before``: a row of the result needs ``span`` rows from ``row * stride - before`` on; those
    outside of the image are padding. ``stride`` 0: it needs all rows. ``resized``: the rows that it needs of an image
    that gets another size.
    """

    value: SSAValue
    root: SSAValue
    layer: int | None
    rows: int
    stride: int = 1
    span: int = 1
    before: int = 0
    resized: ResizeAxis | None = None

    def needed(self, rows: Rows) -> Rows:
        """The rows of the operand that ``rows`` of the result need."""
        if not self.stride:
            return Rows(0, self.rows)
        if self.resized is not None:
            return Rows(int(self.resized.low[rows.first]), int(self.resized.high[rows.end - 1]) + 1)
        first = rows.first * self.stride - self.before
        end = (rows.end - 1) * self.stride - self.before + self.span
        return Rows(max(0, first), min(self.rows, end))


@dataclass(slots=True)
class RowLayer:
    """An operation. ``rows``: those of its result where it may be computed for some of them, else 0."""

    op: Operation
    sources: tuple[RowSource, ...]
    rows: int
    row_bytes: int
    row_cycles: float
    weight_cycles: float


@dataclass(slots=True)
class RowGraph:
    """The operations of a program in order, and the tensors that they keep in memory."""

    layers: list[RowLayer] = field(default_factory=list)
    sizes: dict[SSAValue, int] = field(default_factory=dict)  # bytes of inputs and results, by root
    last_use: dict[SSAValue, int] = field(default_factory=dict)  # the layer; behind the last one for outputs
    defined: dict[SSAValue, int] = field(default_factory=dict)  # the layer; -1 for inputs
    readers: dict[SSAValue, set[int]] = field(default_factory=dict)  # the layers
    escapes: set[int] = field(default_factory=set)  # layers whose result is an output or has views
    apart_bytes: int = 0  # of inputs that nothing reads: they have a region of their own


def read_rows(block: Block, target: Target, memory: MemoryMode) -> RowGraph:
    """The graph of a body of tensor operations."""
    graph, ops = RowGraph(), layer_ops(block)
    index: dict[SSAValue, int] = {op.results[0]: number for number, op in enumerate(ops)}
    for argument in block.args:
        if not argument.uses:
            graph.apart_bytes += -(-npu.size_bytes(argument) // REGION_ALIGNMENT_BYTES) * REGION_ALIGNMENT_BYTES
            continue
        graph.sizes[argument], graph.defined[argument], graph.last_use[argument] = npu.size_bytes(argument), -1, 0
    for number, op in enumerate(ops):
        result = op.results[0]
        sources = tuple(_source(op, value, index) for value in op.operands)
        graph.layers.append(_layer(op, sources, target, memory))
        graph.sizes[result], graph.defined[result], graph.last_use[result] = npu.size_bytes(result), number, number
        for source in sources:
            if source.root in graph.sizes:
                graph.last_use[source.root] = number
                graph.readers.setdefault(source.root, set()).add(number)
        if any(isinstance(use.operation, npu.ReshapeOp | YieldOp) for use in result.uses):
            graph.escapes.add(number)
    last = block.last_op
    for value in last.operands if last is not None else ():
        if viewed(value) in graph.last_use:
            graph.last_use[viewed(value)] = len(ops)
    return graph


def _source(op: Operation, value: SSAValue, index: dict[SSAValue, int]) -> RowSource:
    shape = npu.shape_of(value)
    rows = shape[-3] if len(shape) >= 3 else 1
    found = RowSource(value, viewed(value), index.get(value), rows)
    if isinstance(op, npu.ConvOp | npu.PoolOp):
        dilation = op.dilation.get_values()[0] if isinstance(op, npu.ConvOp) else 1
        kernel, stride, before = op.kernel.get_values()[0], op.stride.get_values()[0], op.pads.get_values()[0]
        return RowSource(value, found.root, found.layer, rows, stride, (kernel - 1) * dilation + 1, before)
    if rows == 1:
        return RowSource(value, found.root, found.layer, rows, stride=0)
    if isinstance(op, npu.ResizeOp):
        return RowSource(value, found.root, found.layer, rows, resized=ResizeAxis(op, 0))
    return found


def _layer(op: Operation, sources: tuple[RowSource, ...], target: Target, memory: MemoryMode) -> RowLayer:
    rows = _rows(op, sources)
    port = ports(target, memory)
    moved = npu.size_bytes(op.results[0]) + sum(npu.size_bytes(source.value) for source in sources)
    cycles = max(moved / port.sram.bytes_per_cycle, _computing(op, target))
    weights = 0
    if isinstance(op, npu.ConvOp):
        pixels, channels = target.array.depthwise_shape if op.depthwise is not None else (1, 1)
        rate = pixels * channels if op.depthwise is not None else target.array.macs_per_cycle
        cycles, weights = max(cycles, op.macs / rate), op.weights.data.size
    row_bytes = npu.size_bytes(op.results[0]) // rows if rows else 0
    return RowLayer(op, sources, rows, row_bytes, cycles / max(rows, 1), weights / port.constants.bytes_per_cycle)


def _computing(op: Operation, target: Target) -> float:
    """Cycles of the vector engine that the results of ``op`` take."""
    count = math.prod(npu.shape_of(op.results[0]))
    if isinstance(op, npu.ArgMaxOp):
        return math.prod(npu.shape_of(op.input)) / target.vector.reduce_lanes
    if isinstance(op, npu.SoftmaxOp):
        return softmax_cycles(target, count, npu.item_bytes(op.input))
    turns = lane_turns(op) if isinstance(op, npu.ResizeOp) else 1
    return turns * count / target.vector.requant_lanes


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, npu.ConstantOp)


def _rows(op: Operation, sources: tuple[RowSource, ...]) -> int:
    """Rows of the result of an operation that may be computed for some of them, 0 of one that may not."""
    if not isinstance(op, _BY_ROWS):
        return 0
    result = npu.shape_of(op.results[0])
    if isinstance(op, npu.ArgMaxOp):
        result = (*result, 1)  # a number for each pixel
    images = [result, *(npu.shape_of(source.value) for source in sources if source.stride)]
    if any(len(shape) != 4 or shape[0] != 1 for shape in images) or result[1] < 2:
        return 0
    if any(source.stride and source.before >= source.span for source in sources):
        return 0  # windows that lie in the padding
    if any(source.stride and _is_constant(source.root) for source in sources):
        return 0  # a constant that is loaded is in SRAM as a whole
    return result[1]
