"""Sources of channels that can be scaled (fronts), tracing of the channels, and pairs for equalisation.

Fronts hold weights and biases in double precision. :meth:`Front.write` writes weights and biases to operations. Factors
commute with moves of elements, products, positively homogeneous functions such as RELU, and sums over elements of one
channel. For the tracing, each element of a tensor has a label: 1 + the channel number, or 0 if no factor applies. A
rule per operator maps the labels of operands to labels of results. The rule for moves runs the host kernel on labels.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, NoneOp, node_of, tensor_facts, tensor_type
from odc_mlir.dialects.circle_types import QuantRecord
from odc_mlir.errors import OptionError
from odc_mlir.runtime.kernels.conditions import evaluate
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.common.retyping import retype

LARGEST = float(np.finfo(np.float32).max)
_NORMS = frozenset({"RMS_NORM", "INSTANCE_NORM"})

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Front(ABC):
    """Factors and summands of the channels along a result's last axis."""

    weights: Floats
    axis: int  # axis of the channels in the weights
    bias: Floats
    record: Floats | None = field(default=None, init=False)  # largest magnitude of each channel
    factors: Floats = field(init=False)  # product of the divisors of each channel
    is_changed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.factors = np.ones(len(self.bias))

    @property
    @abstractmethod
    def ops(self) -> Sequence[CircleOp]:
        """Operators whose results are divided. The last operator defines the result of the front."""

    @property
    def result(self) -> OpResult:
        """Tensor with the channels."""
        return self.ops[-1].results[0]

    @property
    def name(self) -> str:
        """Name of the result."""
        return value_name(self.result)

    def take_record(self, records: Mapping[str, Floats]) -> None:
        """Set the recorded range of the result. Raises OptionError if the number of channels differs."""
        record = records.get(self.name)
        if record is not None and len(record) != len(self.bias):
            raise OptionError(
                f"{self.ops[-1].SPEC.name} {self.name!r} has {len(self.bias)} channels, its ranges are for "
                f"{len(record)}",
                hint="record ranges with this model",
            )
        self.record = record

    def output_ranges(self) -> Floats:
        """Return the range of each channel: recorded ranges of results if known, else ranges of weights."""
        if self.record is not None:
            return self.record
        others = tuple(axis for axis in range(self.weights.ndim) if axis != self.axis)
        return np.asarray(np.abs(self.weights).max(axis=others, initial=0.0))

    def can_scale(self, factors: Floats) -> bool:
        """Return whether the constants after :meth:`scale_outputs` fit in float32."""
        scaled = (self.weights / self._by_channel(factors), self.bias / factors)
        return all(np.abs(values).max(initial=0.0) <= LARGEST for values in scaled)

    def scale_outputs(self, factors: Floats) -> None:
        """Divide the channels by ``factors``."""
        self.weights /= self._by_channel(factors)
        self.bias /= factors
        self.factors = self.factors * factors
        self.record = None if self.record is None else self.record / factors
        self.is_changed = True

    def _by_channel(self, vector: Floats) -> Floats:
        shape = [1] * self.weights.ndim
        shape[self.axis] = -1
        return vector.reshape(shape)

    def write(self) -> None:
        """Write the new constants to the operations."""
        if self.is_changed:
            self._write()

    @abstractmethod
    def _write(self) -> None: ...


@dataclass(eq=False)
class LayerFront(Front):
    """Layer with its new constants."""

    layer: rewriting.WeightedLayer

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """Return ``op`` as a front if it is a layer with constant float weights that no other layer uses."""
        found = rewriting.WeightedLayer.with_reals(op)
        if (
            found is None
            or not np.isfinite(found[1]).all()
            or not rewriting.is_used_once(op.operands[found[0].weights])
        ):
            return None
        layer, weights, bias = found
        return cls(weights.astype(np.float64), layer.axis, bias.astype(np.float64), layer)

    @property
    def ops(self) -> Sequence[CircleOp]:
        return (self.layer.op,)

    def _write(self) -> None:
        layer = self.layer
        old = [layer.op.operands[layer.weights], *([layer.bias_value] if layer.bias_value is not None else [])]
        layer.set_constants(self.weights, self.bias if len(old) > 1 else None)
        _erase_unread(old)


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    op: CircleOp
    index: int

    @property
    def value(self) -> SSAValue:
        return self.op.operands[self.index]


@dataclass(eq=False)
class Affine(Front):
    """Product with a constant per channel, optionally followed by a sum: ``gamma`` and ``beta`` of normalisations.

    The constants are operands of RMS_NORM or INSTANCE_NORM, or of MUL and ADD.
    """

    gamma: ConstantOperand
    beta: ConstantOperand | None

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """Return the front that ends in ``op``: a normalisation, MUL by a constant per channel, or an ADD after it."""
        if op.unverified is not None or len(op.results) != 1 or not rewriting.is_real(op.results[0]):
            return None
        slots = _slots_of_norm(op) if op.SPEC.name in _NORMS else _slots_of_products(op)
        if slots is None:
            return None
        channels = (rewriting.shape_of(op.results[0]) or (None,))[-1]
        gamma, beta = (None if slot is None else rewriting.real_constant(slot.value) for slot in slots)
        if channels is None or not _has_channels(gamma, channels) or (slots[1] and not _has_channels(beta, channels)):
            return None
        scale = np.ravel(np.asarray(gamma, np.float64))
        shift = np.zeros(channels) if beta is None else np.ravel(np.asarray(beta, np.float64))
        return cls(scale, 0, shift, *slots) if np.isfinite(scale).all() and np.isfinite(shift).all() else None

    @property
    def ops(self) -> Sequence[CircleOp]:
        own = self.gamma.op
        return (own,) if self.beta is None or self.beta.op is own else (own, self.beta.op)

    def _write(self) -> None:
        for slot, role, values in ((self.gamma, "gamma", self.weights), (self.beta, "beta", self.bias)):
            if slot is None:
                continue
            old = slot.value
            made = rewriting.real(
                values.reshape(rewriting.static_shape_of(old) or -1), rewriting.constant_name(old, self.name, role)
            )
            Rewriter.insert_op(made, InsertPoint.before(slot.op))
            slot.op.operands[slot.index] = made.result
            _erase_unread([old])


def _slots_of_norm(op: CircleOp) -> tuple[ConstantOperand, ConstantOperand | None] | None:
    names = [operand.name for operand in op.SPEC.operands]
    if op.SPEC.name == "INSTANCE_NORM" and len(rewriting.shape_of(op.results[0]) or ()) != 4:
        return None  # the channels use another axis
    return ConstantOperand(op, names.index("gamma")), ConstantOperand(
        op, names.index("beta")
    ) if "beta" in names else None


def _slots_of_products(op: CircleOp) -> tuple[ConstantOperand, ConstantOperand | None] | None:
    """Return the constants of a MUL, or of an ADD and the MUL before it whose only reader is the ADD."""
    if op.SPEC.name == "ADD":
        beta = _constant_slot(op)
        product = None if beta is None else rewriting.plain(op.operands[1 - beta.index], "MUL")
        if product is None or not rewriting.is_used_once(product.results[0]):
            return None
        gamma = _constant_slot(product)
        return None if gamma is None else (gamma, beta)
    gamma = _constant_slot(op) if op.SPEC.name == "MUL" else None
    return None if gamma is None else (gamma, None)


def _constant_slot(op: CircleOp) -> ConstantOperand | None:
    found = [index for index, value in enumerate(op.operands) if rewriting.real_constant(value) is not None]
    return ConstantOperand(op, found[0]) if len(found) == 1 else None


def _has_channels(array: NDArray[np.float32] | None, channels: int) -> bool:
    return array is not None and array.ndim > 0 and array.shape[-1] == array.size == channels > 1


def fronts_of(ops: Sequence[CircleOp], layers: Mapping[CircleOp, LayerFront]) -> list[Front]:
    """Return all fronts among ``ops`` in order. Products that belong to another front are not fronts."""
    found = [front for op in ops if (front := layers.get(op) or Affine.of(op)) is not None]
    inner = {op for front in found for op in front.ops[:-1]}
    return [front for front in found if front.ops[-1] not in inner]


def _erase_unread(values: Sequence[SSAValue]) -> None:
    for value in dict.fromkeys(values):
        if isinstance(value, OpResult) and value.first_use is None:
            Rewriter.erase_op(value.op)


RELU6_CLIP = 6.0
_MOST_CROSSED = 12  # limit on operators between two layers
_MOST_ELEMENTS = 1 << 24  # size limit of tensors, up to which float32 labels are exact

Labels = NDArray[np.float32]
Places = NDArray[np.int64]
Traced = Sequence[Labels | None]  # by operand


@dataclass
class ChannelTrace:
    """Trace of the channels of one result.

    ``labels``: labels of each traced tensor, in the tensor's shape. An unknown first extent counts as 1. ``readers``:
    layers at the end, each with the label that every weight along the last axis multiplies. ``bound``: for each
    channel, whether an operator that does not commute with factors reads the channel.
    """

    bound: NDArray[np.bool_]
    labels: dict[SSAValue, Labels] = field(default_factory=dict)
    readers: dict[CircleOp, Places] = field(default_factory=dict)

    def bind(self, op: Operation) -> None:
        """Mark all channels that ``op`` reads as not scalable."""
        for value in op.operands:
            labels = self.labels.get(value)
            if labels is not None:
                found = np.unique(labels).astype(np.int64)
                self.bound[found[found > 0] - 1] = True


@dataclass(frozen=True)
class Tracer:
    """Tracer of channels through the operators of a function."""

    order: Mapping[Operation, int]  # positions of operators
    layers: Mapping[CircleOp, LayerFront]
    relu6: str

    def trace(self, start: SSAValue, channels: int) -> ChannelTrace | None:
        """Trace the channels along the last axis of ``start``. Returns None for other axes or unknown extents."""
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
            made = self._crossed(op, trace) if depth <= _MOST_CROSSED else None
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
        """Return the label that each weight along the last axis multiplies, or None if any multiplies several."""
        op, layer = back.layer.op, back.layer
        if any(value in trace.labels for index, value in enumerate(op.operands) if index != layer.input):
            return None
        labels = trace.labels[op.operands[layer.input]]
        if op.SPEC.name == "FULLY_CONNECTED":
            columns = back.weights.shape[-1]
            row = None if not columns or labels.size % columns else _row(labels.reshape(-1, columns))
            return None if row is None else np.asarray(row, np.int64)
        row = _row(labels)
        inputs = None if row is None else rewriting.stack_inputs(layer, back.weights, len(row))
        return None if row is None or inputs is None else np.asarray(row[inputs], np.int64)

    def _crossed(self, op: Operation, trace: ChannelTrace) -> list[Labels] | None:
        rule = _CROSSING.get(op.SPEC.name) if isinstance(op, CircleOp) and op.unverified is None else None
        if rule is None or not isinstance(op, CircleOp) or not commutes(op, self.relu6):
            return None
        traced = [trace.labels.get(value) for value in op.operands]
        shapes = [sized(result) for result in op.results]
        if None in shapes or not all(map(rewriting.is_real, op.results)) or not _keeps_unknown(op, trace):
            return None
        made = rule(op, traced, [shape for shape in shapes if shape is not None])
        if made is None or [np.shape(labels) for labels in made] != shapes:
            return None
        return made


def sized(value: SSAValue) -> tuple[int, ...] | None:
    """Return the shape with 1 for an unknown first extent, or None if any later extent is unknown or too large."""
    shape = rewriting.shape_of(value)
    if shape is None or None in shape[1:]:
        return None
    found = tuple(1 if extent is None else extent for extent in shape)
    return found if 0 < np.prod(found, dtype=np.int64) <= _MOST_ELEMENTS else None


def commutes(op: CircleOp, relu6: str) -> bool:
    """Return whether the fused activation of ``op`` commutes with positive factors."""
    fused, record = rewriting.activation(op), tensor_facts(op.results[0].type).record
    is_below = record is not None and bool(record.max) and max(record.max) < RELU6_CLIP
    return fused in ("none", "relu") or (fused == "relu6" and relu6 == "recorded" and is_below)


def _keeps_unknown(op: CircleOp, trace: ChannelTrace) -> bool:
    """Return whether an unknown first extent stays the first extent. Labels of one row are then sufficient."""
    unknown = any((rewriting.shape_of(value) or (0,))[0] is None for value in op.operands if value in trace.labels)
    return not unknown or all((rewriting.shape_of(result) or (0,))[0] is None for result in op.results)


def _row(labels: Labels) -> Labels | None:
    if labels.ndim == 0:
        return None
    row: Labels = labels[(0,) * (labels.ndim - 1)]
    if any(labels.strides[:-1]) and not np.array_equal(np.broadcast_to(row, labels.shape), labels):
        return None
    return row


def _along(labels: Labels, axis: int) -> Labels | None:
    first = labels.take([0], axis)
    return first if np.array_equal(np.broadcast_to(first, labels.shape), labels) else None


# Rules return the labels of each result, or None if factors do not commute with the operator.
Shapes = Sequence[tuple[int, ...]]
TraceRule = Callable[[CircleOp, Traced, Shapes], list[Labels] | None]


def _first(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of operators that multiply elements of operand 0 by factors independent of the elements' magnitude."""
    labels = traced[0]
    if labels is None or any(other is not None for other in traced[1:]):
        return None
    return [np.broadcast_to(labels, shapes[0])]


def _product(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of products: one operand has labels, and the second operand is arbitrary."""
    found = [labels for labels in traced if labels is not None]
    return [np.broadcast_to(found[0], shapes[0])] if len(found) == 1 else None


def _moved(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of operators that move or omit elements. Labels move with the elements."""
    arrays: list[NDArray[np.generic] | None] = []
    for value, labels in zip(op.operands, traced, strict=True):
        if labels is not None:
            arrays.append(np.ascontiguousarray(labels))
        elif isinstance(value.owner, NoneOp):
            arrays.append(None)
        elif rewriting.is_real(value):
            shape = sized(value)
            if shape is None:
                return None
            arrays.append(np.zeros(shape, np.float32))
        else:
            known = rewriting.constant(value)
            if known is None:
                return None
            arrays.append(known)
    results = evaluate(node_of(op), arrays)
    return None if results is None else [np.asarray(result, np.float32) for result in results]


def _pooled(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    row = None if traced[0] is None else _row(traced[0])
    return None if row is None or len(row) != shapes[0][-1] else [np.broadcast_to(row, shapes[0])]


def _padded(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of padding: zeros get the label of the nearest element, because factors do not change zeros."""
    return _pooled(op, traced, shapes) or _moved(op, traced, shapes)


def _reduced(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of sums, means and extremes over elements of one channel."""
    labels, axes = traced[0], rewriting.constant(op.operands[1])
    if labels is None or axes is None:
        return None
    for axis in axes.reshape(-1):
        labels = _along(labels, int(axis))
        if labels is None:
            return None
    return [labels.reshape(shapes[0])]


def _matrix_product(op: CircleOp, traced: Traced, shapes: Shapes) -> list[Labels] | None:
    """Rule of matrix products. Each row of the left operand, or each column of the right operand, has one label."""
    place = 0 if traced[1] is None else 1
    labels = traced[place]
    if labels is None or (place and traced[0] is not None) or not rewriting.is_real(op.operands[1 - place]):
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
            *(*rewriting.VIEWS, "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V"),
            *("UNPACK", "PACK", "CONCATENATION", "GATHER", "BROADCAST_TO", "TILE", "SPACE_TO_DEPTH"),
            *("DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
        ),
        _moved,
    ),
}


NEARLY_NOTHING = 1e-6  # channels with a smaller part of the largest range are not balanced


@dataclass(frozen=True)
class Balance:
    """Choice of factors: the exponent ``alpha``, and whether factors are powers of two."""

    alpha: float
    powers_of_two: bool
    tolerance: float

    def rounded(self, factors: Floats) -> Floats:
        """Return the factors or, with ``powers_of_two``, the nearest powers of two."""
        return np.asarray(np.exp2(np.rint(np.log2(factors))) if self.powers_of_two else factors)


@dataclass(eq=False)
class Pair:
    """Front and the layers that read its channels.

    ``backs``: layers with the labels that weights along the last axis multiply. ``labels``: labels of the tensors in
    between, including the front's result. ``bound``: mask of channels that keep the scale.
    """

    front: Front
    backs: list[tuple[LayerFront, Places]]
    labels: Mapping[SSAValue, Labels]
    bound: NDArray[np.bool_]
    is_moved: bool = False

    @classmethod
    def of(cls, front: Front, tracer: Tracer) -> Pair | None:
        """Return the pair that begins with ``front``, or None if no channel can be scaled."""
        if not all(commutes(op, tracer.relu6) for op in front.ops):
            return None
        trace = tracer.trace(front.result, len(front.bias))
        if trace is None or not trace.readers or trace.bound.all():
            return None
        backs = [(tracer.layers[op], places) for op, places in trace.readers.items()]
        return cls(front, backs, trace.labels, trace.bound)

    @cached_property
    def has_company(self) -> bool:
        """Whether unscaled channels share a tensor, and so a quantisation scale, with scaled channels.

        The scaled channel that was largest must then stay the largest of all to preserve the resolution of the others.
        """
        return bool(self.bound.any()) or any((labels == 0).any() for labels in self.labels.values())

    def add_records(self, records: Mapping[str, Floats]) -> None:
        """Raise the recorded range of a channel to its largest share of a recorded range between the layers."""
        own = self.front.record
        if own is None:
            return
        shares = own / (own.max(initial=0.0) or 1.0)
        for value, labels in self.labels.items():
            found, row = records.get(value_name(value)), labels[(0,) * (labels.ndim - 1)]
            if found is None or not found.max(initial=0.0) or len(found) != len(row):
                continue
            if np.array_equal(np.broadcast_to(row, labels.shape), labels):
                places = row.astype(np.int64)
                np.maximum.at(shares, places[places > 0] - 1, (found / found.max())[places > 0])
        self.front.record = shares * own.max(initial=0.0)

    def equalize(self, balance: Balance) -> bool:
        """Move factors once, unless all are nearly 1. Returns whether factors were moved."""
        ranges = self.front.output_ranges()
        factors = channel_factors(ranges, self.input_ranges(), balance.alpha)
        if self.has_company:
            factors *= np.where(self.bound, 0.0, ranges / factors).max() / (ranges.max() or 1.0) or 1.0
        if self.front.record is None:
            factors = np.maximum(factors, least_factors(self.front.bias))
        factors = np.where(self.bound, 1.0, balance.rounded(factors))
        if np.max(np.abs(factors - 1), initial=0.0) <= balance.tolerance:
            return False
        return self.move(factors)

    def move(self, factors: Floats) -> bool:
        """Divide the channels by ``factors``. Returns False if results do not fit in float32."""
        by_label = np.concatenate([[1.0], factors])
        grown = [back.weights * by_label[places] for back, places in self.backs]
        if not self.front.can_scale(factors) or any(np.abs(array).max(initial=0.0) > LARGEST for array in grown):
            return False
        self.front.scale_outputs(factors)
        for (back, _), weights in zip(self.backs, grown, strict=True):
            back.weights = weights
            back.is_changed = True
        self.is_moved = True
        return True

    def input_ranges(self) -> Floats:
        """Return the largest weight of the reading layers by channel."""
        ranges = np.zeros(1 + len(self.front.bias))
        for back, places in self.backs:
            columns = np.abs(back.weights).reshape(-1, back.weights.shape[-1]).max(axis=0, initial=0.0)
            np.maximum.at(ranges, places, columns)
        return ranges[1:]

    def settle(self) -> None:
        """Adapt types and activations between the layers to the new values."""
        if not self.is_moved:
            return
        for op in dict.fromkeys([*self.front.ops, *(value.owner for value in self.labels)]):
            assert isinstance(op, CircleOp)
            for result in op.results:
                labels = self.labels.get(result)
                if op in self.front.ops or (labels is not None and (self._by_element(labels) != 1).any()):
                    _forget_range(result)
            if rewriting.activation(op) == "relu6":
                op.properties["fused_activation_function"] = op.OPTIONS["fused_activation_function"].encode("relu")

    def moved_factors(self) -> dict[str, Floats]:
        """Return the divisors of tensors by name: arrays with extent 1 along axes without differences."""
        if not self.is_moved:
            return {}
        found = {value: self._by_element(labels) for value, labels in self.labels.items()}
        found |= {op.results[0]: self.front.factors for op in self.front.ops}
        return {value_name(value): factors for value, factors in found.items() if (factors != 1).any()}

    def _by_element(self, labels: Labels) -> Floats:
        return np.concatenate([[1.0], self.front.factors])[_narrowed(labels).astype(np.int64)]


def _narrowed(labels: Labels) -> Labels:
    """Reduce axes with equal labels, except the last axis, to extent 1, and drop leading extents of 1."""
    for axis in range(labels.ndim - 1):
        first = labels.take([0], axis)
        if np.array_equal(np.broadcast_to(first, labels.shape), labels):
            labels = first
    while labels.ndim > 1 and labels.shape[0] == 1:
        labels = labels[0]
    return labels


def channel_factors(front: Floats, back: Floats, alpha: float = 0.5) -> Floats:
    """Return ``front ** alpha / back ** (1 - alpha)`` for each channel, or 1 if front and back are nearly 0.

    A range of nearly 0 is balanced if the other range is large enough.
    """
    lowest = [NEARLY_NOTHING * ranges.max(initial=0.0) for ranges in (front, back, front * back)]
    lives = ((front > lowest[0]) & (back > lowest[1])) | (front * back > lowest[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lives, front**alpha / back ** (1 - alpha), 1.0)


def least_factors(bias: Floats) -> Floats:
    """Return the factors, at most 1, that make every bias as large as the largest bias."""
    sizes = np.abs(bias)
    largest = sizes.max(initial=0.0)
    return sizes / largest if largest else np.zeros_like(sizes)


def _forget_range(value: SSAValue) -> None:
    facts = tensor_facts(value.type)
    if facts.record is None:
        return
    old = facts.record
    left = QuantRecord(old.scale, old.zero_point, old.axis, (), (), old.details)
    record = left if any(chain(left.scale, left.details or ())) else None
    retype(value, tensor_type(facts.dtype, facts.shape, facts.quant, record))
