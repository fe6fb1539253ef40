"""Tracing of channels: the elements of tensors that are multiples of each channel, up to layers.

Factors commute with much on the way: with moves of elements, products with anything else, positively homogeneous
functions such as RELU, and sums over elements of one channel, as attention makes of its values. So each element of a
tensor has a label, 1 + its channel, or 0 where no factor belongs to it, and every operator says what it makes of
labels; moves by its own host kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.dialects.circle import CircleOp, NoneOp, node_of, tensor_facts
from odc_mlir.transforms.circle.circle_fold_constants import evaluate
from odc_mlir.transforms.circle.equalizing.fronts import LayerFront
from odc_mlir.transforms.common.rewriting import activation, constant, is_real, shape_of, stack_inputs

RELU6_CLIP = 6.0
_MOST_ELEMENTS = 1 << 24  # of a tensor: labels are float32, whose whole numbers end there

Labels = NDArray[np.float32]
Places = NDArray[np.int64]
Traced = Sequence[Labels | None]  # by operand


@dataclass
class ChannelTrace:
    """Where the channels of one result went.

    ``labels``: of every tensor on the way, of its shape, an unknown first extent counting as 1. ``readers``: the layers
    at the end, with the label that each weight along their last axis multiplies. ``bound``: by channel, whether
    something reads it that no factor commutes with.
    """

    bound: NDArray[np.bool_]
    labels: dict[SSAValue, Labels] = field(default_factory=dict)
    readers: dict[CircleOp, Places] = field(default_factory=dict)

    def bind(self, op: Operation) -> None:
        """Nothing that ``op`` reads can be scaled."""
        for value in op.operands:
            labels = self.labels.get(value)
            if labels is not None:
                found = np.unique(labels).astype(np.int64)
                self.bound[found[found > 0] - 1] = True


@dataclass(frozen=True)
class Tracer:
    """Follows channels through the operators of a function."""

    order: Mapping[Operation, int]  # of the operators
    layers: Mapping[CircleOp, LayerFront]
    crossing: int
    relu6: str

    def trace(self, start: SSAValue, channels: int) -> ChannelTrace | None:
        """Where the channels along the last axis of ``start`` go; None where it has others, or unknown extents."""
        shape = sized(start)
        if not shape or shape[-1] != channels or channels >= _MOST_ELEMENTS:
            return None
        trace = ChannelTrace(np.zeros(channels, np.bool_))
        trace.labels[start] = np.broadcast_to(np.arange(1, channels + 1, dtype=np.float32), shape)
        depths, queue, seen = {start: 0}, list[tuple[int, Operation]](), set[Operation]()
        self._push(start, queue, seen)
        while queue:
            op = heapq.heappop(queue)[1]
            if isinstance(op, CircleOp) and op in self.layers:
                places = self._places(self.layers[op], trace)
                if places is None:
                    trace.bind(op)
                else:
                    trace.readers[op] = places
                continue
            depth = 1 + max(depths[value] for value in op.operands if value in depths)
            made = self._crossed(op, trace) if depth <= self.crossing else None
            if made is None:
                trace.bind(op)
                continue
            for result, labels in zip(op.results, made, strict=True):
                trace.labels[result], depths[result] = labels, depth
                self._push(result, queue, seen)
        return trace

    def _push(self, value: SSAValue, queue: list[tuple[int, Operation]], seen: set[Operation]) -> None:
        for use in value.uses:
            if use.operation not in seen:
                seen.add(use.operation)
                heapq.heappush(queue, (self.order[use.operation], use.operation))

    def _places(self, back: LayerFront, trace: ChannelTrace) -> Places | None:
        """The label that each weight along the last axis multiplies; None where it is not one alone."""
        op, layer = back.layer.op, back.layer
        if any(value in trace.labels for index, value in enumerate(op.operands) if index != layer.input):
            return None
        labels = trace.labels[op.operands[layer.input]]
        if op.SPEC.name == "FULLY_CONNECTED":
            columns = back.weights.shape[-1]
            row = None if not columns or labels.size % columns else _row(labels.reshape(-1, columns))
            return None if row is None else np.asarray(row, np.int64)
        row = _row(labels)
        inputs = None if row is None else stack_inputs(layer, back.weights, len(row))
        return None if row is None or inputs is None else np.asarray(row[inputs], np.int64)

    def _crossed(self, op: Operation, trace: ChannelTrace) -> list[Labels] | None:
        """The labels of the results; None where factors do not commute."""
        rule = _CROSSING.get(op.SPEC.name) if isinstance(op, CircleOp) and op.unverified is None else None
        if rule is None or not isinstance(op, CircleOp) or not commutes(op, self.relu6):
            return None
        traced = [trace.labels.get(value) for value in op.operands]
        shapes = [sized(result) for result in op.results]
        if None in shapes or not all(map(is_real, op.results)) or not _keeps_unknown(op, trace):
            return None
        made = rule(op, traced, [shape for shape in shapes if shape is not None])
        if made is None or [np.shape(labels) for labels in made] != shapes:
            return None
        return made


def sized(value: SSAValue) -> tuple[int, ...] | None:
    """The shape, with 1 for an unknown first extent; None where more is unknown, or there are too many elements."""
    shape = shape_of(value)
    if shape is None or None in shape[1:]:
        return None
    found = tuple(1 if extent is None else extent for extent in shape)
    return found if 0 < np.prod(found, dtype=np.int64) <= _MOST_ELEMENTS else None


def commutes(op: CircleOp, relu6: str) -> bool:
    """Whether the fused activation of ``op`` commutes with positive factors."""
    fused = activation(op)
    return fused in ("none", "relu") or (fused == "relu6" and relu6 == "recorded" and _is_below_clip(op))


def _is_below_clip(op: CircleOp) -> bool:
    record = tensor_facts(op.results[0].type).record
    return record is not None and bool(record.max) and max(record.max) < RELU6_CLIP


def _keeps_unknown(op: CircleOp, trace: ChannelTrace) -> bool:
    """Return whether an unknown first extent stays first; labels are those of one row."""
    unknown = any((shape_of(value) or (0,))[0] is None for value in op.operands if value in trace.labels)
    return not unknown or all((shape_of(result) or (0,))[0] is None for result in op.results)


def _row(labels: Labels) -> Labels | None:
    """The labels along the last axis where the others make no difference."""
    if labels.ndim == 0:
        return None
    row: Labels = labels[(0,) * (labels.ndim - 1)]
    if any(labels.strides[:-1]) and not np.array_equal(np.broadcast_to(row, labels.shape), labels):
        return None
    return row


def _along(labels: Labels, axis: int) -> Labels | None:
    """The labels with extent 1 for ``axis`` where that makes no difference."""
    first = labels.take([0], axis)
    return first if np.array_equal(np.broadcast_to(first, labels.shape), labels) else None


# What operators make of labels: one array for each result, None where factors do not commute.
Shapes = Sequence[tuple[int, ...]]
TraceRule = Callable[[CircleOp, Traced, Shapes], list[Labels] | None]


def _first(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Elements of the first operand times what does not depend on their size."""
    labels = traced[0]
    if labels is None or any(other is not None for other in traced[1:]):
        return None
    return [np.broadcast_to(labels, shapes[0])]


def _product(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """One of two operands is scaled, the other is anything."""
    found = [labels for labels in traced if labels is not None]
    return [np.broadcast_to(found[0], shapes[0])] if len(found) == 1 else None


def _moved(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Elements go elsewhere, or stay away: labels go with them."""
    arrays: list[NDArray[np.generic] | None] = []
    for value, labels in zip(op.operands, traced, strict=True):
        if labels is not None:
            arrays.append(np.ascontiguousarray(labels))
        elif isinstance(value.owner, NoneOp):
            arrays.append(None)
        elif is_real(value):
            shape = sized(value)
            if shape is None:
                return None
            arrays.append(np.zeros(shape, np.float32))
        else:
            known = constant(value)
            if known is None:
                return None
            arrays.append(known)
    results = evaluate(node_of(op), arrays)
    return None if results is None else [np.asarray(result, np.float32) for result in results]


def _pooled(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Windows over elements of one channel."""
    row = None if traced[0] is None else _row(traced[0])
    return None if row is None or len(row) != shapes[0][-1] else [np.broadcast_to(row, shapes[0])]


def _padded(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Give zeros the channel of their neighbour: they are multiples of any factor."""
    return _pooled(op, traced, shapes) or _moved(op, traced, shapes)


def _reduced(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Sums, means and extremes over elements of one channel."""
    labels, axes = traced[0], constant(op.operands[1])
    if labels is None or axes is None:
        return None
    for axis in axes.reshape(-1):
        labels = _along(labels, int(axis))
        if labels is None:
            return None
    return [labels.reshape(shapes[0])]


def _matrix_product(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rows of the left operand, or columns of the right one, that are of one channel each."""
    place = 0 if traced[1] is None else 1
    labels = traced[place]
    if labels is None or (place and traced[0] is not None) or not is_real(op.operands[1 - place]):
        return None
    turned = op.option(("adjoint_lhs", "adjoint_rhs")[place])
    labels = np.swapaxes(labels, -1, -2) if turned else labels
    summed = _along(labels, (-1, -2)[place])
    return None if summed is None else [np.broadcast_to(summed, shapes[0])]


_CROSSING: Mapping[str, TraceRule] = {
    **dict.fromkeys(("RELU", "LEAKY_RELU", "PRELU", "NEG", "ABS", "DIV"), _first),
    "MUL": _product,
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pooled),
    "PAD": _padded,
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _reduced),
    "BATCH_MATMUL": _matrix_product,
    **dict.fromkeys(
        (
            *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V"),
            *("UNPACK", "PACK", "CONCATENATION", "GATHER", "BROADCAST_TO", "TILE", "SPACE_TO_DEPTH"),
            *("DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
        ),
        _moved,
    ),
}
