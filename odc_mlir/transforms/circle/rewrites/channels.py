"""Channels of quantised tensors: intervals of codes, and kinds of operators by effect on channels.

A channel is an index of the last dimension. The interval of its codes is valid for all inputs of the model. The
arithmetic of the kernels maps intervals of operands to intervals of results, by both ends if it is monotone. Each kind
of operator is a class. :data:`KINDS` maps operators to kinds. Operators that :data:`KINDS` lacks are barriers: they
read all channels of all operands, and results may have any code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, node_of, tensor_facts, tensor_type
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import OdcError
from odc_mlir.numerics.fixed import code_range
from odc_mlir.ops.bias import in_units_of_sums
from odc_mlir.ops.context import Context
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import axis_window, window_options
from odc_mlir.ops.spec import Array, Node, QuantParams
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation, weight_scales
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.common.retyping import retype

_BLOCK = 1 << 15  # weights converted to float64 at a time, so that they stay in the cache
_NUMERICS = ("fixed", "litert")  # possible numerics of fully connected layers

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChannelIntervals:
    """Intervals of codes: the smallest and the largest code of each channel, ``[C]``."""

    low: Ints
    high: Ints

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Mask of channels with only one code."""
        return np.asarray(self.low == self.high)

    def tiled(self, count: int) -> ChannelIntervals:
        """Return the intervals repeated ``count`` times."""
        return self if count == 1 else ChannelIntervals(np.tile(self.low, count), np.tile(self.high, count))

    def joined(self, other: ChannelIntervals) -> ChannelIntervals:
        """Return the smallest intervals that contain both operands."""
        return ChannelIntervals(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


def full_intervals(dtype: str, channels: int) -> ChannelIntervals:
    """Return intervals of all codes of the type."""
    low, high = code_range(dtype)
    return ChannelIntervals(np.full(channels, low, np.int64), np.full(channels, high, np.int64))


def channels_of(value: SSAValue) -> int | None:
    """Return the number of channels of a tensor of codes with one scale. None: unknown, or any other tensor."""
    facts = tensor_facts(value.type)
    if facts.dtype not in CODE_DTYPES or facts.quant is None or not facts.quant.per_tensor or not facts.shape:
        return None
    return facts.shape[-1] or None


# --- sums of products


@dataclass(frozen=True)
class ChannelWeights:
    """A layer's constant weights minus the zero point: ``codes [O, taps, I]``, or ``[taps, O]`` if depthwise."""

    layer: rewriting.WeightedLayer
    node: Node
    how: Accumulation
    codes: Array
    bias: Ints  # [O], in units of sums
    is_padded: bool  # whether taps may be outside of the input

    def sums(self, source: Floats, sizes: Floats) -> Floats:
        """Return sums of weights times ``source`` and of magnitudes of weights times ``sizes``, ``[2, O]``.

        ``source`` and ``sizes`` have one number per input channel, ``[I]``, or per result channel ``[O]`` if depthwise.
        """
        codes = self.codes
        if codes.ndim == 2:
            codes = codes.astype(np.float64)
            return np.stack([codes.sum(axis=0) * source, np.abs(codes).sum(axis=0) * sizes])
        found = np.empty((2, len(codes)))
        step = max(1, _BLOCK // max(1, codes[0].size))
        for first in range(0, len(codes), step):
            part = codes[first : first + step].astype(np.float64)
            found[0, first : first + step] = (part @ source).sum(axis=1)
            found[1, first : first + step] = (np.abs(part, out=part) @ sizes).sum(axis=1)
        return found

    @cached_property
    def largest_sum(self) -> Ints:
        """Bound of the sums of each result channel, ``[O]``, including the bias."""
        ones = np.ones(self.codes.shape[-1])
        return np.asarray(self.sums(ones, ones)[1] * (self.how.largest or 0) + np.abs(self.bias)).astype(np.int64)

    @cached_property
    def is_used(self) -> NDArray[np.bool_]:
        """Mask of channel pairs ``[O, I]`` (depthwise: channels ``[O]``) with a nonzero weight."""
        return np.asarray(self.codes.any(axis=self.codes.ndim - 2))

    @cached_property
    def used_columns(self) -> NDArray[np.bool_]:
        """Mask of columns of ``[O, taps, I]`` with a nonzero weight."""
        return np.asarray(self.is_used.any(axis=0))

    def results(self, source: ChannelIntervals) -> ChannelIntervals:
        """Map intervals of input channels to intervals of result channels."""
        zero = self.how.in_zero
        low, high = source.low - zero, source.high - zero
        if self.is_padded:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        ends = self._ends(low, high)
        found = self._rescaled(ends, self.how)
        if self.node.spec.name == "FULLY_CONNECTED":
            for numerics in _NUMERICS[1:]:
                other = replace(self.node, context=Context(numerics=numerics))
                found = found.joined(self._rescaled(ends, _how(self.layer, other)))
        return self._without_overflow(found, self.largest_sum)

    def _ends(self, low: Ints, high: Ints) -> Ints:
        """Return the smallest and largest sums before the bias is added, ``[2, O]``, from the intervals of the input.

        Twice the sums are computed in float64. This is exact for sums up to 2^46. :meth:`_without_overflow` discards
        the intervals of larger sums.
        """
        if self.codes.ndim == 2:
            low, high = (np.repeat(end, self.codes.shape[1] // len(low)) for end in (low, high))
        middle, width = self.sums((low + high).astype(np.float64), (high - low).astype(np.float64))
        return np.asarray((np.stack([middle - width, middle + width]) / 2).astype(np.int64))

    def _rescaled(self, ends: Ints, how: Accumulation) -> ChannelIntervals:
        assert how.rescale is not None  # of codes
        low, high = how.rescale((ends + self.bias).astype(how.sums)).astype(np.int64)
        return ChannelIntervals(low, high)

    def _without_overflow(self, found: ChannelIntervals, limit: Ints) -> ChannelIntervals:
        """Return ``found``, widened to all codes for channels whose sums or rescaled sums may overflow."""
        out, x = self.node.results[0], self.node.operand(self.layer.input)
        scales = np.asarray(weight_scales(self.node, self.node.operand(self.layer.weights), len(limit)), np.float64)
        assert out.quant is not None
        assert x.quant is not None
        grown = limit * np.maximum(2 * x.quant.scale * scales / out.quant.scale, 1)
        safe = grown < (1 << 31) if self.how.sums == "int32" else (limit < 1 << 46) & (grown < 1 << 31)
        every = full_intervals(out.dtype, len(limit))
        return ChannelIntervals(np.where(safe, found.low, every.low), np.where(safe, found.high, every.high))


def _how(layer: rewriting.WeightedLayer, node: Node) -> Accumulation:
    weights = node.operand(layer.weights)
    channels = weights.static_shape[layer.axis]
    return accumulation(node, node.operand(layer.input), weights, node.optional(layer.bias), channels)


def weights_of(layer: rewriting.WeightedLayer, node: Node, is_padded: bool) -> ChannelWeights | None:
    """Return the weights of a quantised layer, or None for unsupported sums or non-constant weights or bias."""
    operands = layer.op.operands
    stored = rewriting.constant(operands[layer.weights])
    bias = rewriting.constant(layer.bias_value)
    if stored is None or stored.dtype.kind == "f" or (layer.bias_value is not None and bias is None):
        return None
    try:
        how = _how(layer, node)
        codes = how.weights(stored, layer.axis)
        row = how.bias_row(bias)
    except OdcError:
        return None
    if how.largest is None or how.hybrid is not None or not _is_in_units(layer, node):
        return None
    taps = (-1, stored.shape[3]) if layer.axis == 3 else (len(stored), -1, stored.shape[-1])
    channels = stored.shape[layer.axis]
    sums = np.zeros(channels, np.int64) if row is None else row.astype(np.int64)
    return ChannelWeights(layer, node, how, codes.reshape(taps), sums, is_padded) if sums.size == channels else None


def _is_in_units(layer: rewriting.WeightedLayer, node: Node) -> bool:
    x, bias = node.operand(layer.input), node.optional(layer.bias)
    if bias is None or bias.quant is None:
        return True
    weights = node.operand(layer.weights)
    assert x.quant is not None
    return in_units_of_sums(bias, x.quant.scale, weight_scales(node, weights, weights.static_shape[layer.axis]))


# --- kinds of operators

IntervalsOf = Callable[[SSAValue], ChannelIntervals]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


class Tie(NamedTuple):
    """Pairs of a channel of an operand and a channel of the result that can only be removed together."""

    value: SSAValue
    of_value: Places
    of_result: Places


class ChannelKind:
    """Operator and its effect on channels. It has one result, a quantised tensor with one scale."""

    def __init__(self, op: CircleOp) -> None:
        self.op = op

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """Return ``op`` as an instance of this kind, or None."""
        raise NotImplementedError

    @property
    def result(self) -> SSAValue:
        return self.op.results[0]

    @property
    def channels(self) -> int:
        """Number of channels of the result."""
        return count_channels(self.result)

    def intervals(self, intervals_of: IntervalsOf) -> ChannelIntervals | None:
        """Return the intervals of the result, or None if the result may have any code."""
        raise NotImplementedError

    def ties(self) -> Iterator[Tie]:
        """Yield the correspondence of channels of each operand, except constants, to channels of the result."""
        return iter(())

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelIntervals | None) -> None:
        """Reduce the operator to the result channels ``kept``, after its operands have been reduced.

        ``inputs``: mask of the remaining channels of a layer's input, None for all. ``source``: intervals of the input.
        """
        shape = rewriting.shape_of(self.result)
        assert shape is not None
        retype(self.result, with_shape(self.result.type, (*shape[:-1], int(kept.sum()))))


def count_channels(value: SSAValue) -> int:
    """Return the number of channels of a value that has channels."""
    found = channels_of(value)
    assert found is not None
    return found


def replace_constant(op: CircleOp, index: int, array: NDArray[np.generic], role: str, kept: Mask | None = None) -> None:
    """Replace the elements of the constant operand ``index``. ``kept`` selects the remaining scales."""
    old = op.operands[index]
    facts = tensor_facts(old.type)
    quant = facts.quant
    if quant is not None and not quant.per_tensor and kept is not None:
        zeros = quant.zero_points
        quant = QuantParams(
            tuple(np.asarray(quant.scales)[kept].tolist()),
            tuple(np.asarray(zeros)[kept].tolist()) if len(zeros) > 1 else zeros,
            quant.axis,
        )
    made = ConstOp(BlobAttr.of(np.ascontiguousarray(array).tobytes()), tensor_type(facts.dtype, array.shape, quant))
    made.location = name_loc(rewriting.constant_name(old, value_name(op.results[0]), role))
    put_operand(op, index, made)


def put_operand(op: CircleOp, index: int, made: ConstOp) -> None:
    """Replace operand ``index`` by a new constant, and erase the old constant if it has no other use."""
    old = op.operands[index]
    Rewriter.insert_op(made, InsertPoint.before(op))
    op.operands[index] = made.result
    if isinstance(old, OpResult) and old.first_use is None:
        Rewriter.erase_op(old.op)


# --- layers


class ProductKind(ChannelKind):
    """CONV_2D and FULLY_CONNECTED: every result reads every channel."""

    def __init__(self, op: CircleOp, weights: ChannelWeights) -> None:
        super().__init__(op)
        self.weights = weights

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        layer = rewriting.WeightedLayer.of(op)
        if layer is None or channels_of(layer.result) is None:
            return None
        shape, channels = rewriting.shape_of(op.operands[layer.weights]), channels_of(op.operands[layer.input])
        if not shape or not channels or not shape[-1] or not cls._fits(op, shape[-1], channels):
            return None
        values = [op.operands[layer.weights], *([layer.bias_value] if layer.bias_value is not None else [])]
        if not all(rewriting.is_stored_whole(value) for value in values):
            return None
        node = node_of(op)
        weights = weights_of(layer, node, _is_padded(node))
        return None if weights is None else cls(op, weights)

    @classmethod
    def _fits(cls, op: CircleOp, columns: int, channels: int) -> bool:
        if op.SPEC.name == "FULLY_CONNECTED":
            return columns % channels == 0 and (columns == channels or not op.option("keep_num_dims"))
        return channels == columns

    @property
    def input(self) -> SSAValue:
        return self.op.operands[self.weights.layer.input]

    @property
    def is_dense(self) -> bool:
        """Whether the layout of the weights is ``[O, taps, I]``."""
        return self.weights.codes.ndim == 3

    def intervals(self, intervals_of: IntervalsOf) -> ChannelIntervals | None:
        source = intervals_of(self.input)
        return self.weights.results(source.tiled(self._repeats(source)) if self.is_dense else source)

    def _repeats(self, source: ChannelIntervals) -> int:
        return int(self.weights.codes.shape[2]) // len(source.low)

    def may_shrink(self, source: ChannelIntervals) -> bool:
        """Return whether some channel of the input is unnecessary for all results."""
        used = self.weights.used_columns.reshape(-1, len(source.low)).any(axis=0)
        return bool((~used | self._absorbed(source)).any())

    def needs(self, kept: Mask, source: ChannelIntervals) -> Mask:
        """Return a mask of inputs that results ``kept`` need: with nonzero weights, and not replaced by the bias."""
        used = self.weights.used_columns if kept.all() else self.weights.is_used[kept].any(axis=0)
        needed: Mask = used.reshape(-1, len(source.low)).any(axis=0) & ~self._absorbed(source)
        return needed

    def _absorbed(self, source: ChannelIntervals) -> Mask:
        """Return the channels of the input with constant contributions to all sums. The bias can replace these."""
        weights = self.weights
        if weights.is_padded or weights.layer.bias_value is None or weights.largest_sum.max(initial=0) >= 1 << 31:
            return np.asarray(source.is_constant & (source.low == weights.how.in_zero))
        return source.is_constant

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelIntervals | None) -> None:
        layer, bias = self.weights.layer, self.weights.bias
        stored = rewriting.constant(self.op.operands[layer.weights])
        assert stored is not None
        if not self.is_dense:
            codes = stored[..., kept]
        elif inputs is None or source is None:
            codes = stored[kept]
        else:
            left = np.tile(inputs, self._repeats(source))
            fixed = np.where(self._absorbed(source) & ~inputs, source.low - self.weights.how.in_zero, 0)
            bias = bias + self.weights.codes.sum(axis=1, dtype=np.int64) @ np.tile(fixed, self._repeats(source))
            codes = stored[kept][..., left]
        replace_constant(self.op, layer.weights, codes, "weights", kept)
        if layer.bias_value is not None:
            row = bias[kept].astype(tensor_facts(layer.bias_value.type).dtype)
            replace_constant(self.op, layer.bias, row, "bias", kept)
        super().narrow(kept, inputs, source)


def _is_padded(node: Node) -> bool:
    if node.spec.name == "FULLY_CONNECTED":
        return False
    try:
        options = window_options(node)
        sizes, taps = node.operand(0).shape, node.operand(1).static_shape[1:3]
        if options.padding == "valid":
            return False
        if sizes is None or None in sizes[1:3]:
            return True
        axes = [
            axis_window(node, "size", sizes[1 + i], taps[i], options.stride[i], options.dilation[i], options.padding)
            for i in range(2)
        ]
    except OdcError:
        return True
    return any(axis.before or axis.after for axis in axes)


class Depthwise(ProductKind):
    """DEPTHWISE_CONV_2D: a result channel reads one input channel."""

    @classmethod
    def _fits(cls, op: CircleOp, columns: int, channels: int) -> bool:
        return channels > 1 and columns % channels == 0

    def ties(self) -> Iterator[Tie]:
        channels = count_channels(self.input)
        yield Tie(self.input, np.repeat(np.arange(channels), self.channels // channels), np.arange(self.channels))


# --- operators that sum over no channels


class Views(ChannelKind):
    """RESHAPE that keeps the last extent, or multiplies or divides it by an integer."""

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        values = op.operands[0], op.results[0]
        source, result = map(channels_of, values)
        if source is None or result is None or any(rewriting.static_shape_of(value) is None for value in values):
            return None
        return (
            cls(op) if rewriting.is_same_element(*values) and (source % result == 0 or result % source == 0) else None
        )

    def intervals(self, intervals_of: IntervalsOf) -> ChannelIntervals | None:
        found, channels = intervals_of(self.op.operands[0]), self.channels
        if channels >= len(found.low):
            return found.tiled(channels // len(found.low))
        return ChannelIntervals(
            found.low.reshape(-1, channels).min(axis=0), found.high.reshape(-1, channels).max(axis=0)
        )

    def ties(self) -> Iterator[Tie]:
        source = count_channels(self.op.operands[0])
        both = np.arange(max(source, self.channels))
        yield Tie(self.op.operands[0], both % source, both % self.channels)

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelIntervals | None) -> None:
        op, shape = self.op, rewriting.static_shape_of(self.result)
        assert shape is not None
        extents = [*shape[:-1], int(kept.sum())]
        if len(op.operands) > 1:
            name = rewriting.constant_name(op.operands[1], value_name(self.result), "shape")
            put_operand(op, 1, rewriting.indices(extents, name))
        op.properties["new_shape"] = op.OPTIONS["new_shape"].encode(extents)
        super().narrow(kept, inputs, source)


KINDS: Mapping[str, type[ChannelKind]] = {
    "CONV_2D": ProductKind,
    "FULLY_CONNECTED": ProductKind,
    "DEPTHWISE_CONV_2D": Depthwise,
    "RESHAPE": Views,
}


def kind_of(op: CircleOp) -> ChannelKind | None:
    """Return the kind of an operator, or None for a barrier."""
    if op.unverified is not None or len(op.results) != 1:
        return None
    kind = KINDS.get(op.SPEC.name)
    return None if kind is None else kind.of(op)
