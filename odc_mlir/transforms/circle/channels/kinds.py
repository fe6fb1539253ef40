"""Kinds of operators by their effect on channels: ranges, classes, and removal.

One class for each kind, one entry of :data:`KINDS` for each operator; any other is a barrier: it reads all channels of
its operands, and its results may hold every code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, node_of, tensor_facts, tensor_type
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import OdcError
from odc_mlir.ops.infer.common import axis_window, window_options
from odc_mlir.ops.spec import Node, QuantParams, Trait
from odc_mlir.runtime.kernels.common import activation_codes
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.channels.spans import (
    ChannelRange,
    ChannelWeights,
    Ranges,
    channels_of,
    elementwise_span,
    evaluated,
    is_same_code,
    weights_of,
    zero_point,
)
from odc_mlir.transforms.common.retyping import retype
from odc_mlir.transforms.common.rewriting import (
    WeightedLayer,
    activation,
    constant,
    constant_name,
    is_stored_whole,
    make_constant,
    shape_of,
    static_shape_of,
)

_LARGEST_MEAN = 1 << 18  # elements over which a mean is computed to know its bounds

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


class Tie(NamedTuple):
    """Channels of an operand and of the result that stay or go together, pair by pair."""

    value: SSAValue
    of_value: Places
    of_result: Places


class ChannelKind:
    """One operator by how it treats channels. It has one result, a tensor of codes with one scale."""

    def __init__(self, op: CircleOp) -> None:
        self.op = op

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """``op`` as one of this kind; None where it is none."""
        raise NotImplementedError

    @property
    def result(self) -> SSAValue:
        return self.op.results[0]

    @property
    def channels(self) -> int:
        """Return the channels of the result."""
        return count_channels(self.result)

    def span(self, ranges: Ranges) -> ChannelRange | None:
        """The codes of the result; None where any may be."""
        raise NotImplementedError

    def ties(self) -> Iterator[Tie]:
        """Return the correspondence of operands' channels, without constants, to the result's."""
        return iter(())

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelRange | None) -> None:
        """Make the operator one of the channels ``kept``; its operands are narrow already.

        ``inputs``, ``source``: which channels of a layer's input are left, None for all, and the codes of all.
        """
        set_channels(self.op, int(kept.sum()))


def count_channels(value: SSAValue) -> int:
    """The channels of a value that has some."""
    found = channels_of(value)
    assert found is not None
    return found


def set_channels(op: CircleOp, count: int) -> None:
    """Give the result another last extent."""
    result = op.results[0]
    shape = shape_of(result)
    assert shape is not None
    retype(result, with_shape(result.type, (*shape[:-1], count)))


def replace_constant(op: CircleOp, index: int, array: NDArray[np.generic], role: str, kept: Mask | None = None) -> None:
    """Give operand ``index``, a constant, these elements; ``kept``: which of its scales stay, where it has several."""
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
    made.location = name_loc(constant_name(old, value_name(op.results[0]), role))
    put_operand(op, index, made)


def put_operand(op: CircleOp, index: int, made: ConstOp) -> None:
    """Make a new constant operand ``index``; the old one goes where nothing else reads it."""
    old = op.operands[index]
    Rewriter.insert_op(made, InsertPoint.before(op))
    op.operands[index] = made.result
    if isinstance(old, OpResult) and old.first_use is None:
        Rewriter.erase_op(old.op)


# --- layers


class ProductKind(ChannelKind):
    """CONV_2D, FULLY_CONNECTED, and a depthwise layer of one channel: every result reads every channel."""

    def __init__(self, op: CircleOp, weights: ChannelWeights) -> None:
        super().__init__(op)
        self.weights = weights

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        layer = WeightedLayer.of(op)
        if layer is None or channels_of(layer.result) is None or not cls._fits(layer):
            return None
        values = [op.operands[layer.weights], *([layer.bias_value] if layer.bias_value is not None else [])]
        if not all(is_stored_whole(value) for value in values):
            return None
        node = node_of(op)
        weights = weights_of(layer, node, _is_padded(node))
        return None if weights is None else cls(op, weights)

    @classmethod
    def _fits(cls, layer: WeightedLayer) -> bool:
        shape, channels = shape_of(layer.op.operands[layer.weights]), channels_of(layer.op.operands[layer.input])
        if not shape or not channels or not shape[-1]:
            return False
        if layer.op.SPEC.name == "FULLY_CONNECTED":
            return shape[-1] % channels == 0 and (shape[-1] == channels or not layer.op.option("keep_num_dims"))
        return channels == (1 if layer.axis == 3 else shape[-1])

    @property
    def input(self) -> SSAValue:
        return self.op.operands[self.weights.layer.input]

    @property
    def is_dense(self) -> bool:
        """Return whether the weights lie ``[O, taps, I]``."""
        return self.weights.codes.ndim == 3

    def span(self, ranges: Ranges) -> ChannelRange | None:
        source = ranges(self.input)
        return self.weights.results(source.tiled(self._repeats(source)) if self.is_dense else source)

    def _repeats(self, source: ChannelRange) -> int:
        """Return how many times a row of dense weights repeats over the input's channels."""
        return int(self.weights.codes.shape[2]) // len(source.low)

    def may_shrink(self, source: ChannelRange) -> bool:
        """Return whether some channel of the input is not needed for all results."""
        if not self.is_dense:
            return False
        used = self.weights.used_columns.reshape(-1, len(source.low)).any(axis=0)
        return bool((~used | self._absorbed(source)).any())

    def needs(self, kept: Mask, source: ChannelRange) -> Mask:
        """The channels of the input on which the results ``kept`` depend: of varying codes, with a weight but 0."""
        if not self.is_dense:
            return np.ones(len(source.low), np.bool_)
        used = self.weights.used_columns if kept.all() else self.weights.is_used[kept].any(axis=0)
        needed: Mask = used.reshape(-1, len(source.low)).any(axis=0) & ~self._absorbed(source)
        return needed

    def _absorbed(self, source: ChannelRange) -> Mask:
        """Return the channels of the input that add the same to every sum, so that the bias can replace them."""
        weights = self.weights
        if weights.is_padded or weights.layer.bias_value is None or weights.largest_sum.max(initial=0) >= 1 << 31:
            return np.asarray(source.is_constant & (source.low == weights.how.in_zero))
        return source.is_constant

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelRange | None) -> None:
        layer, bias = self.weights.layer, self.weights.bias
        stored = constant(self.op.operands[layer.weights])
        assert stored is not None
        if not self.is_dense:
            codes = stored[..., kept]
            if count_channels(self.input) == 1:
                self.op.properties["depth_multiplier"] = self.op.OPTIONS["depth_multiplier"].encode(int(kept.sum()))
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
    """Return whether the window reaches out of the input, as far as is known."""
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
    """DEPTHWISE_CONV_2D: some results for each channel."""

    @classmethod
    def _fits(cls, layer: WeightedLayer) -> bool:
        shape, channels = shape_of(layer.op.operands[layer.weights]), channels_of(layer.op.operands[layer.input])
        return bool(shape and channels and shape[3] and channels > 1 and shape[3] % channels == 0)

    def ties(self) -> Iterator[Tie]:
        channels = count_channels(self.input)
        yield Tie(self.input, np.repeat(np.arange(channels), self.channels // channels), np.arange(self.channels))


# --- what keeps each channel at its place


class Elementwise(ChannelKind):
    """Operators element by element, of tensors and constants that broadcast."""

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        result = channels_of(op.results[0])
        is_one = result is not None and all(channels_of(value) in (1, result) for value in op.operands)
        return cls(op) if is_one else None

    def span(self, ranges: Ranges) -> ChannelRange | None:
        return elementwise_span(self.op, [ranges(value) for value in self.op.operands])

    def ties(self) -> Iterator[Tie]:
        places = np.arange(self.channels)
        for value in self.op.operands:
            if constant(value) is None:
                yield Tie(value, places % count_channels(value), places)

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelRange | None) -> None:
        for index, value in enumerate(self.op.operands):
            array = constant(value)
            if array is not None and array.shape[-1] == len(kept) > 1:
                replace_constant(self.op, index, array[..., kept], f"operand{index}")
        super().narrow(kept, inputs, source)


class Moves(ChannelKind):
    """Operators whose result holds codes of the same channel of the operand, or something between them."""

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        channels = channels_of(op.operands[0])
        is_one = channels is not None and channels == channels_of(op.results[0]) and cls._keeps_channels(op)
        return cls(op) if is_one else None

    @classmethod
    def _keeps_channels(cls, op: CircleOp) -> bool:
        return True

    def span(self, ranges: Ranges) -> ChannelRange | None:
        op = self.op
        if not is_same_code(op.operands[0], self.result):
            return None
        found = ranges(op.operands[0])
        if activation(op) == "none":
            return found
        node = node_of(op)
        try:
            return found.within(*activation_codes(node, node.results[0]))
        except OdcError:
            return None

    def ties(self) -> Iterator[Tie]:
        places = np.arange(self.channels)
        yield Tie(self.op.operands[0], places, places)


class Blends(Moves):
    """Operators whose arithmetic between two codes may leave their range."""

    def span(self, ranges: Ranges) -> ChannelRange | None:
        return None


class Pads(Moves):
    """PAD and its kin, around the image."""

    @classmethod
    def _keeps_channels(cls, op: CircleOp) -> bool:
        widths = constant(op.operands[1])
        return widths is not None and widths.ndim == 2 and not widths[-1].any()

    def span(self, ranges: Ranges) -> ChannelRange | None:
        found, op = super().span(ranges), self.op
        if found is None or op.SPEC.name == "MIRROR_PAD":
            return found
        if op.SPEC.name == "PAD":
            return found.with_code(zero_point(op.operands[0]))
        code = constant(op.operands[2])
        return None if code is None or code.size != 1 else found.with_code(int(code.reshape(-1)[0]))


class Means(Moves):
    """MEAN over other dimensions than the last."""

    @classmethod
    def _keeps_channels(cls, op: CircleOp) -> bool:
        axes, shape = constant(op.operands[1]), shape_of(op.operands[0])
        return axes is not None and shape is not None and len(shape) - 1 not in {int(a) % len(shape) for a in axes.flat}

    def span(self, ranges: Ranges) -> ChannelRange | None:
        shape = static_shape_of(self.op.operands[0])
        if shape is None or math.prod(shape) > _LARGEST_MEAN:
            return None
        node, source = node_of(self.op), ranges(self.op.operands[0])
        dtype = node.operand(0).info.numpy
        rows = []
        for end in (source.low, source.high):
            found = evaluated(node, [np.broadcast_to(end.astype(dtype), shape), node.operand(1).array()])
            if found is None:
                return None
            rows.append(found.reshape(-1, shape[-1])[0])
        return ChannelRange(*rows)


class Views(ChannelKind):
    """RESHAPE where the last dimension stays, takes in others, or gives some up."""

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        values = op.operands[0], op.results[0]
        source, result = map(channels_of, values)
        if source is None or result is None or any(static_shape_of(value) is None for value in values):
            return None
        return cls(op) if is_same_code(*values) and (source % result == 0 or result % source == 0) else None

    def span(self, ranges: Ranges) -> ChannelRange | None:
        found, channels = ranges(self.op.operands[0]), self.channels
        if channels >= len(found.low):
            return found.tiled(channels // len(found.low))
        return ChannelRange(found.low.reshape(-1, channels).min(axis=0), found.high.reshape(-1, channels).max(axis=0))

    def ties(self) -> Iterator[Tie]:
        source = count_channels(self.op.operands[0])
        both = np.arange(max(source, self.channels))
        yield Tie(self.op.operands[0], both % source, both % self.channels)

    def narrow(self, kept: Mask, inputs: Mask | None, source: ChannelRange | None) -> None:
        op, shape = self.op, static_shape_of(self.result)
        assert shape is not None
        extents = [*shape[:-1], int(kept.sum())]
        if len(op.operands) > 1:
            name = constant_name(op.operands[1], value_name(self.result), "shape")
            put_operand(op, 1, make_constant(np.array(extents, np.int32), "int32", name))
        op.properties["new_shape"] = op.OPTIONS["new_shape"].encode(extents)
        super().narrow(kept, inputs, source)


class Joins(ChannelKind):
    """CONCATENATION of channels, or of images of the same channels."""

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        is_one = all(channels_of(value) is not None and constant(value) is None for value in op.operands)
        return cls(op) if is_one and channels_of(op.results[0]) is not None else None

    @property
    def _is_along_channels(self) -> bool:
        shape = shape_of(self.result)
        assert shape is not None
        return int(self.op.option("axis")) % len(shape) == len(shape) - 1

    def span(self, ranges: Ranges) -> ChannelRange | None:
        op = self.op
        if activation(op) != "none" or not all(is_same_code(value, self.result) for value in op.operands):
            return None
        spans = [ranges(value) for value in op.operands]
        if self._is_along_channels:
            return ChannelRange(np.concatenate([s.low for s in spans]), np.concatenate([s.high for s in spans]))
        return reduce(ChannelRange.joined, spans)

    def ties(self) -> Iterator[Tie]:
        first = 0
        for value in self.op.operands:
            places = np.arange(count_channels(value))
            yield Tie(value, places, first + places)
            first += len(places) if self._is_along_channels else 0


KINDS: Mapping[str, tuple[type[ChannelKind], ...]] = {
    "CONV_2D": (ProductKind,),
    "FULLY_CONNECTED": (ProductKind,),
    "DEPTHWISE_CONV_2D": (Depthwise, ProductKind),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_NEAREST_NEIGHBOR"), (Moves,)),
    "RESIZE_BILINEAR": (Blends,),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), (Pads,)),
    "MEAN": (Means,),
    "RESHAPE": (Views,),
    "CONCATENATION": (Joins,),
}


def kind_of(op: CircleOp) -> ChannelKind | None:
    """Return the kind of an operator; None for a barrier."""
    if op.unverified is not None or len(op.results) != 1:
        return None
    kinds = KINDS.get(op.SPEC.name)
    if kinds is None:
        is_elementwise = Trait.ELEMENTWISE in op.SPEC.traits and op.SPEC.name != "CUSTOM"
        kinds = (Elementwise,) if is_elementwise else ()
    return next((found for kind in kinds if (found := kind.of(op)) is not None), None)
