"""Ranges of codes of channels: the smallest and the largest code for any input of the model.

Channels are the elements of the last dimension. Bounds are found with the arithmetic that runs: what is monotone is
computed at both ends, what has one operand of 8 bits for every code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp, info_of, node_of, tensor_facts
from odc_mlir.errors import OdcError
from odc_mlir.numerics.fixed import code_range
from odc_mlir.ops.bias import in_units_of_sums
from odc_mlir.ops.context import Context
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation, weight_scales
from odc_mlir.transforms.common.rewriting import WeightedLayer, constant

_BLOCK = 1 << 15  # weights that are made float64 at a time: they should stay in the cache
_NUMERICS = ("fixed", "litert")  # what a run may ask of fully connected layers

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChannelRange:
    """Smallest and largest code of each channel, ``[C]``."""

    low: Ints
    high: Ints

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Return a mask of channels that hold one code only."""
        return np.asarray(self.low == self.high)

    def with_code(self, code: int | Ints) -> ChannelRange:
        """The channels where ``code`` may stand, too."""
        return ChannelRange(np.minimum(self.low, code), np.maximum(self.high, code))

    def within(self, low: int, high: int) -> ChannelRange:
        """The channels after a clamp."""
        return ChannelRange(self.low.clip(low, high), self.high.clip(low, high))

    def tiled(self, count: int) -> ChannelRange:
        """The channels ``count`` times in a row."""
        return self if count == 1 else ChannelRange(np.tile(self.low, count), np.tile(self.high, count))

    def joined(self, other: ChannelRange) -> ChannelRange:
        """Return the union of both spans."""
        return ChannelRange(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


def full_span(dtype: str, channels: int) -> ChannelRange:
    """Every code of the type."""
    low, high = code_range(dtype)
    return ChannelRange(np.full(channels, low, np.int64), np.full(channels, high, np.int64))


def channels_of(value: SSAValue) -> int | None:
    """The last extent of a tensor of codes with one scale; None for any other."""
    facts = tensor_facts(value.type)
    if facts.dtype not in CODE_DTYPES or facts.quant is None or not facts.quant.per_tensor or not facts.shape:
        return None
    return facts.shape[-1] or None


def zero_point(value: SSAValue) -> int:
    """Return the code of 0."""
    quant = tensor_facts(value.type).quant
    assert quant is not None
    return quant.zero_point


def is_same_code(a: SSAValue, b: SSAValue) -> bool:
    """Return whether codes of both types represent the same numbers."""
    first, second = tensor_facts(a.type), tensor_facts(b.type)
    return first.dtype == second.dtype and first.quant == second.quant


def constant_span(value: SSAValue) -> ChannelRange | None:
    """Return the codes of a constant, None for other values."""
    array, channels = constant(value), channels_of(value)
    if array is None or channels is None:
        return None
    rows = array.reshape(-1, channels)
    return ChannelRange(rows.min(axis=0).astype(np.int64), rows.max(axis=0).astype(np.int64)) if len(rows) else None


# --- sums of products


@dataclass(frozen=True)
class ChannelWeights:
    """A layer's constant weights: ``codes [O, taps, I]`` without zero point, or ``[taps, O]`` of a depthwise layer."""

    layer: WeightedLayer
    node: Node
    how: Accumulation
    codes: Array
    bias: Ints  # [O], in units of sums
    is_padded: bool  # whether taps may lie outside of the input

    def sums(self, source: Floats, sizes: Floats) -> Floats:
        """Sums of weights times ``source`` and of magnitudes of weights times ``sizes``, ``[2, O]``.

        ``source``, ``sizes``: of every input channel, ``[I]``; of every result channel, ``[O]``, of a depthwise layer.
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
        """Bound of the sums of each result channel, ``[O]``, bias included."""
        ones = np.ones(self.codes.shape[-1])
        return np.asarray(self.sums(ones, ones)[1] * (self.how.largest or 0) + np.abs(self.bias)).astype(np.int64)

    @cached_property
    def is_used(self) -> NDArray[np.bool_]:
        """Return a mask of weights with a tap other than 0, ``[O, I]``; ``[O]`` of a depthwise layer."""
        return np.asarray(self.codes.any(axis=self.codes.ndim - 2))

    @cached_property
    def used_columns(self) -> NDArray[np.bool_]:
        """Return a mask of columns of ``[O, taps, I]`` that hold a weight other than 0."""
        return np.asarray(self.is_used.any(axis=0))

    def results(self, source: ChannelRange) -> ChannelRange:
        """The codes of the result's channels for an input of these."""
        zero = self.how.in_zero
        low, high = source.low - zero, source.high - zero
        if self.is_padded:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        ends = self._ends(low, high)
        found = self._codes(ends, self.how)
        if self.node.spec.name == "FULLY_CONNECTED":
            for numerics in _NUMERICS[1:]:
                other = replace(self.node, context=Context(numerics=numerics))
                found = found.joined(self._codes(ends, _how(self.layer, other)))
        return self._without_overflow(found, self.largest_sum)

    def _ends(self, low: Ints, high: Ints) -> Ints:
        """Smallest and largest sums without bias, ``[2, O]``: each product is at one of its ends.

        Exact: half of integers that float64 holds, for sums of 32 bits and of the 46 that bound others.
        """
        if self.codes.ndim == 2:
            low, high = (np.repeat(end, self.codes.shape[1] // len(low)) for end in (low, high))
        middle, width = self.sums((low + high).astype(np.float64), (high - low).astype(np.float64))
        return np.asarray((np.stack([middle - width, middle + width]) / 2).astype(np.int64))

    def _codes(self, ends: Ints, how: Accumulation) -> ChannelRange:
        assert how.rescale is not None  # of codes
        low, high = how.rescale((ends + self.bias).astype(how.sums)).astype(np.int64)
        return ChannelRange(low, high)

    def _without_overflow(self, found: ChannelRange, limit: Ints) -> ChannelRange:
        """``found`` where no sum, and nothing that requantising makes of it, leaves its type: it wraps around there."""
        out, x = self.node.results[0], self.node.operand(self.layer.input)
        scales = np.asarray(weight_scales(self.node, self.node.operand(self.layer.weights), len(limit)), np.float64)
        assert out.quant is not None
        assert x.quant is not None
        grown = limit * np.maximum(2 * x.quant.scale * scales / out.quant.scale, 1)
        safe = grown < (1 << 31) if self.how.sums == "int32" else (limit < 1 << 46) & (grown < 1 << 31)
        every = full_span(out.dtype, len(limit))
        return ChannelRange(np.where(safe, found.low, every.low), np.where(safe, found.high, every.high))


def _how(layer: WeightedLayer, node: Node) -> Accumulation:
    weights = node.operand(layer.weights)
    channels = weights.static_shape[layer.axis]
    return accumulation(node, node.operand(layer.input), weights, node.optional(layer.bias), channels)


def weights_of(layer: WeightedLayer, node: Node, is_padded: bool) -> ChannelWeights | None:
    """The weights of a layer on codes; None where they, or the bias, are not constants, or their sums are refused."""
    operands = layer.op.operands
    stored = constant(operands[layer.weights])
    bias = constant(layer.bias_value)
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


def _is_in_units(layer: WeightedLayer, node: Node) -> bool:
    """Return whether the bias, where there is one, counts in units of sums and says so."""
    x, bias = node.operand(layer.input), node.optional(layer.bias)
    if bias is None or bias.quant is None:
        return True
    weights = node.operand(layer.weights)
    assert x.quant is not None
    return in_units_of_sums(bias, x.quant.scale, weight_scales(node, weights, weights.static_shape[layer.axis]))


# --- element by element

_RISING = {"ADD": (1, 1), "SUB": (1, -1), "MAXIMUM": (1, 1), "MINIMUM": (1, 1)}
_RISING_ALONE = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE"})


def elementwise_span(op: CircleOp, spans: Sequence[ChannelRange]) -> ChannelRange:
    """The result of an operator that works element by element, for operands of these spans, one for each channel."""
    result, name = op.results[0], op.SPEC.name
    facts, channels = tensor_facts(result.type), channels_of(result)
    assert channels is not None
    every = full_span(facts.dtype, channels)
    widened = [ChannelRange(*(np.broadcast_to(end, channels) for end in (span.low, span.high))) for span in spans]
    if len(spans) == 1 and tensor_facts(op.operands[0].type).dtype != "int16":
        return _tabulated(op, widened[0]) or every
    rising = (1,) if len(spans) == 1 and name in _RISING_ALONE else _RISING.get(name)
    if rising is not None or name == "MUL":
        return _at_ends(op, widened, rising) or every
    if len(spans) == 1:  # of 16 bits, by tables of which there are several
        return every
    known = np.all([span.is_constant for span in widened], axis=0)
    found = _evaluated(op, [span.low[None] for span in widened]) if known.any() else None
    if found is None:
        return every
    return ChannelRange(np.where(known, found[0], every.low), np.where(known, found[0], every.high))


def _at_ends(op: CircleOp, spans: Sequence[ChannelRange], rising: tuple[int, ...] | None) -> ChannelRange | None:
    """Range of a result that is monotonic in each operand; None for a product, whose direction depends on signs."""
    if rising is None:
        a, b = spans
        rows = [np.stack([a.low, a.low, a.high, a.high]), np.stack([b.low, b.high, b.low, b.high])]
    else:
        rows = [np.stack((s.low, s.high)[::way]) for s, way in zip(spans, rising, strict=True)]
    found = _evaluated(op, rows)
    return None if found is None else ChannelRange(found.min(axis=0), found.max(axis=0))


def _tabulated(op: CircleOp, span: ChannelRange) -> ChannelRange | None:
    """Compute the range from the result for every code of 8 bits."""
    low, high = code_range(tensor_facts(op.operands[0].type).dtype)
    codes = np.arange(low, high + 1)
    found = _evaluated(op, [codes[None]])
    if found is None:
        return None
    table = found[0]
    met = (codes >= span.low[:, None]) & (codes <= span.high[:, None])
    least, most = table.max(), table.min()
    return ChannelRange(np.where(met, table, least).min(axis=1), np.where(met, table, most).max(axis=1))


def _evaluated(op: CircleOp, rows: Sequence[Ints]) -> Ints | None:
    """Run the operator's kernel on codes ``[K, C]``; None if it raises."""
    node = node_of(op)
    infos = [_stand_in(info_of(value), rows[0].shape) for value in (*op.operands, op.results[0])]
    alone = replace(node, operands=tuple(infos[:-1]), results=(infos[-1],))
    return evaluated(alone, [row.astype(info.info.numpy) for row, info in zip(rows, infos, strict=False)])


def _stand_in(info: TensorInfo, shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(info.name, info.dtype, shape, info.quant)


def evaluated(node: Node, arrays: Sequence[Array | None]) -> Ints | None:
    """The first result of a kernel as integers, None where it refuses."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(node.spec.kernel_function(node)(arrays)[0]).astype(np.int64)
    except OdcError:
        return None


Ranges = Callable[[SSAValue], ChannelRange]
