"""``circle-fuse-channel-shuffle``: fold channel shuffles into the weights of the layers around them.

Before::

    %0 = circle.concatenation(%a, %b) {axis = 3} : … -> tensor<1x8x8x48xf32>
    %1 = circle.reshape(%0, %s) : … -> tensor<1x8x8x2x24xf32>
    %2 = circle.transpose(%1, %p) : … -> tensor<1x8x8x24x2xf32>
    %3 = circle.reshape(%2, %t) : … -> tensor<1x8x8x48xf32>
    %4:2 = circle.split(%axis, %3) : … -> (tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>)
    %5 = circle.conv_2d(%4#1, %w, %c) : … -> tensor<1x8x8x24xf32>

After, if ``%a`` and ``%b`` come from convolutions: the convolutions store the channels of a user side by side. The
weights of the users are permuted to match::

    %6 = circle.slice(%a, …) : … -> tensor<1x8x8x12xf32>
    %7 = circle.slice(%b, …) : … -> tensor<1x8x8x12xf32>
    %8 = circle.concatenation(%6, %7) {axis = 3} : … -> tensor<1x8x8x24xf32>
    %9 = circle.conv_2d(%8, %w2, %c) : … -> tensor<1x8x8x24xf32>

All operators that only move channels around one or more shuffles are considered together. Every user reads its channels
directly from the tensors of the layers. Orders propagate through padding, pooling, depthwise convolutions and unary
functions. Float sums are added in another order.

Unchanged: quantised tensors, and shuffles that are cheaper than the replacement. Costs are the NPU's costs of moving
runs of channels and single channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp, ConstOp, node_of
from odc_mlir.ops.spec import Trait
from odc_mlir.runtime.kernels.conditions import evaluate
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import replace_layer
from odc_mlir.transforms.circle.rewrites.layout import is_simple
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    PatternPass,
    Reals,
    WeightedLayer,
    activation,
    behind,
    constant,
    indices,
    is_real,
    is_returned,
    is_used_once,
    operator,
    part,
    producer,
    reshaped,
    static_shape_of,
)

_DEEPEST = 8  # limit on operators between a layer and the moves of its channels
# Costs of moves on NPUs, in channels of a CONCATENATION, measured on npu-256 for images of 4 to 16 pixels a side.
_SHUFFLED = 3  # cost of a channel that moves alone
_FEWEST = 10  # minimum cost of a slice
_PADS = ("PAD", "PADV2", "MIRROR_PAD")
_DEPTHWISE = "DEPTHWISE_CONV_2D"
_POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
_MOVING = frozenset({"CONCATENATION", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "GATHER"})
_MOST_LABELS = 1 << 24  # integers up to this are exact in float32
_LAST = ("CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")  # layers whose channels are the last dimension


class CircleFuseChannelShufflePass(PatternPass):
    """Reorder channels of layers so that shuffles are unnecessary."""

    name = "circle-fuse-channel-shuffle"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FuseChannelShuffle,)


class FuseChannelShuffle(OperatorPattern):
    """Remove all channel shuffles that move the same channels."""

    names = frozenset({"RESHAPE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        region = ShuffleRegion.around(op)
        if region is None:
            return
        plan = _ShufflePlan(region)
        if plan.cost() < _cost_before(region):
            _Writer(region, plan, rewriter).run()


class Channel(NamedTuple):
    """One channel of a tensor."""

    value: SSAValue
    number: int


Labels = NDArray[np.int64]  # a number for every element


def _channels(result: Labels, labels: Mapping[SSAValue, Labels], axis: int) -> list[Channel] | None:
    """Return the channels along ``axis`` of ``result``, identified by operand labels, or None if a channel is split."""
    rows = {
        int(row[0]): (Channel(value, number), row)
        for value, array in labels.items()
        for number, row in enumerate(np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1))
    }
    found = []
    for row in np.moveaxis(result, axis, 0).reshape(result.shape[axis], -1):
        known = rows.get(int(row[0]))
        if known is None or not np.array_equal(row, known[1]):
            return None
        found.append(known[0])
    return found


class Shuffle(NamedTuple):
    """Permutation of the channels of a value along ``axis``. ``inner``: the view and the TRANSPOSE."""

    axis: int
    order: list[Channel]
    inner: tuple[CircleOp, CircleOp]


def shuffle_of(op: CircleOp) -> Shuffle | None:
    """Return the channel shuffle (RESHAPE, TRANSPOSE, RESHAPE) that ends with ``op``, or None."""
    turned = producer(op.operands[0], "TRANSPOSE") if op.SPEC.name == "RESHAPE" else None
    view = None if turned is None else producer(turned.operands[0], "RESHAPE")
    if turned is None or view is None or not (is_used_once(turned.results[0]) and is_used_once(view.results[0])):
        return None
    shape, parts = static_shape_of(view.operands[0]), static_shape_of(view.results[0])
    order = constant(turned.operands[1])
    if shape is None or parts is None or order is None or 0 in shape or shape != static_shape_of(op.results[0]):
        return None
    labels = np.arange(prod(shape)).reshape(shape)
    moved = labels.reshape(parts).transpose(order).reshape(shape)
    for axis, extent in enumerate(shape):
        found = _channels(moved, {view.operands[0]: labels}, axis)
        if found is not None and [channel.number for channel in found] != list(range(extent)):
            return Shuffle(axis, found, (view, turned))
    return None


def channels_of(op: CircleOp, axis: int) -> list[list[Channel]] | None:
    """Return the channels in each result if ``op`` only moves channels along ``axis``, else None.

    The kernel of the operator runs on labels instead of elements.
    """
    if op.unverified is not None or op.SPEC.name not in _MOVING or activation(op) != "none":
        return None
    labels: dict[SSAValue, Labels] = {}
    count = 0
    for value in op.operands:
        shape = static_shape_of(value) if is_real(value) else None
        if shape is not None and len(shape) > axis and value not in labels:
            labels[value] = count + np.arange(prod(shape)).reshape(shape)
            count += prod(shape)
    arrays = [labels[v].astype(np.float32) if v in labels else constant(v) for v in op.operands]
    if count > _MOST_LABELS or any(array is None for array in arrays):
        return None
    results = [np.asarray(result).astype(np.int64) for result in evaluate(node_of(op), arrays) or ()]
    if any(result.ndim <= axis or not result.size for result in results):
        return None
    found = [made for result in results if (made := _channels(result, labels, axis)) is not None]
    return found if 0 < len(found) == len(op.results) else None


@dataclass
class ShuffleRegion:
    """Operators around a channel shuffle that only move channels.

    ``channels``: channels of ``sources`` in operator results, in program order. ``inner``: view and TRANSPOSE of each
    shuffle.
    """

    axis: int
    shape: tuple[int, ...]  # shape of all tensors, except for the extent along the axis
    movers: dict[Operation, list[list[Channel]]] = field(default_factory=dict)
    inner: dict[Operation, tuple[CircleOp, CircleOp]] = field(default_factory=dict)
    channels: dict[SSAValue, list[Channel]] = field(default_factory=dict)
    sources: dict[SSAValue, None] = field(default_factory=dict)

    @classmethod
    def around(cls, op: CircleOp) -> ShuffleRegion | None:
        """Return the region around the channel shuffle that ends with ``op``, or None for other operators."""
        shuffle = shuffle_of(op)
        if shuffle is None:
            return None
        made = cls(shuffle.axis, static_shape_of(op.results[0]) or ())
        made._spread(op)
        block = op.parent
        for mover in block.ops if block is not None else ():
            for result, given in zip(mover.results, made.movers.get(mover, ()), strict=False):
                made.channels[result] = [made._source(channel) for channel in given]
        return made if op in made.movers else None

    def uses_outside(self, value: SSAValue) -> list[tuple[Operation, int]]:
        """Return the uses of ``value`` by operators outside of the region."""
        inside = {*self.movers, *(op for pair in self.inner.values() for op in pair)}
        return [(use.operation, use.index) for use in value.uses if use.operation not in inside]

    def _spread(self, op: CircleOp) -> None:
        waiting = [op]
        while waiting:
            op = waiting.pop()
            if op in self.movers:
                continue
            shuffle = shuffle_of(op)
            if shuffle is None:
                found = channels_of(op, self.axis)
            else:
                found = [shuffle.order] if shuffle.axis == self.axis else None
            read = dict.fromkeys(channel.value for channels in found or () for channel in channels)
            if found is None or not all(self._fits(value) for value in (*read, *op.results)):
                continue
            self.movers[op] = found
            if shuffle is not None:
                self.inner[op] = shuffle.inner
            waiting += [value.owner for value in read if isinstance(value.owner, CircleOp)]
            waiting += [reader for result in op.results for reader in _movers_behind(result)]

    def _fits(self, value: SSAValue) -> bool:
        shape = static_shape_of(value)
        if shape is None or len(shape) != len(self.shape) or not is_real(value) or not is_simple(value):
            return False
        rest = [extent == wanted for extent, wanted in zip(shape, self.shape, strict=True)]
        return all(fits for place, fits in enumerate(rest) if place != self.axis) and shape[self.axis] > 0

    def _source(self, channel: Channel) -> Channel:
        if channel.value in self.channels:
            return self.channels[channel.value][channel.number]
        self.sources[channel.value] = None
        return channel


def _movers_behind(value: SSAValue) -> Iterator[CircleOp]:
    for use in value.uses:
        op: Operation = use.operation
        for name in ("RESHAPE", "TRANSPOSE"):
            if isinstance(op, CircleOp) and op.SPEC.name == name and is_used_once(op.results[0]):
                (inner,) = op.results[0].uses
                op = inner.operation
        if isinstance(op, CircleOp):
            yield op


@dataclass(frozen=True, slots=True)
class ChannelRun:
    """Adjacent channels of one source."""

    source: SSAValue
    begin: int
    count: int


def _cost_before(region: ShuffleRegion) -> int:
    total = 0
    for op, results in region.movers.items():
        total += sum(map(len, results)) * (_SHUFFLED if op in region.inner else 1)
    return total


class _ShufflePlan:
    """Plan of a shuffle: the source runs of each value that is read, and channel orders of layers."""

    def __init__(self, region: ShuffleRegion) -> None:
        self.region = region
        self.readers = [value for value in region.channels if region.uses_outside(value)]
        self.takes_any = {
            value
            for value in self.readers
            if all(_takes_any(op, place, region.axis) for op, place in region.uses_outside(value))
        }
        self.stored = self._stored()
        places = {Channel(v, number): place for v, order in self.stored.items() for place, number in enumerate(order)}
        self.wanted: dict[SSAValue, list[int]] = {}  # new order of channels, by value read
        self.runs: dict[SSAValue, list[ChannelRun]] = {}
        numbers = {source: number for number, source in enumerate(region.sources)}
        for value in self.readers:
            given = region.channels[value]
            order = list(range(len(given)))
            if value in self.takes_any:
                order.sort(
                    key=lambda place: (numbers[given[place].value], places.get(given[place], given[place].number))
                )
            self.wanted[value] = order
            self.runs[value] = _runs(Channel(given[p].value, places.get(given[p], given[p].number)) for p in order)

    def _stored(self) -> Mapping[SSAValue, list[int]]:
        """Choose channel orders that suit the readers, for sources with free order."""
        free = [value for value in self.region.sources if _gives_any(value, self.region)]
        read_by: dict[Channel, list[int]] = {}
        places: dict[Channel, int] = {}
        for number, value in enumerate(self.readers):
            for place, channel in enumerate(self.region.channels[value]):
                read_by.setdefault(channel, []).append(number)
                if value not in self.takes_any:
                    places.setdefault(channel, place)
        stored: dict[SSAValue, list[int]] = {}
        for value in free:
            keys = {
                number: (read_by.get(Channel(value, number), []), places.get(Channel(value, number), number))
                for number in range(self._extent(value))
            }
            stored[value] = sorted(keys, key=keys.__getitem__)
        return stored

    def _extent(self, value: SSAValue) -> int:
        return (static_shape_of(value) or ())[self.region.axis]

    def is_whole(self, value: SSAValue) -> bool:
        """Return whether ``value`` is exactly one whole source."""
        runs = self.runs[value]
        return len(runs) == 1 and runs[0].begin == 0 and runs[0].count == self._extent(runs[0].source)

    def cost(self) -> int:
        runs = [run for value in self.readers if not self.is_whole(value) for run in self.runs[value]]
        return sum(max(run.count, _FEWEST) for run in set(runs)) + sum(run.count for run in runs)


def _runs(channels: Iterable[Channel]) -> list[ChannelRun]:
    found: list[ChannelRun] = []
    for value, number in channels:
        last = found[-1] if found else None
        if last is not None and last.source is value and last.begin + last.count == number:
            found[-1] = ChannelRun(value, last.begin, last.count + 1)
        else:
            found.append(ChannelRun(value, number, 1))
    return found


def _layer(op: Operation, axis: int) -> WeightedLayer | None:
    """Return ``op`` if it is a float layer with constant weights that sums over channels along the last ``axis``."""
    found = WeightedLayer.with_reals(op)
    if found is None or found[0].op.SPEC.name not in _LAST:
        return None
    layer, weights, _ = found
    given, made = (static_shape_of(value) or () for value in (op.operands[layer.input], layer.result))
    return layer if len(given) == len(made) == axis + 1 and weights.shape[-1] == given[-1] else None


def _keeps_channels(op: Operation, axis: int) -> bool:
    if not isinstance(op, CircleOp) or op.unverified is not None or len(op.results) != 1 or not is_real(op.results[0]):
        return False
    shapes = [static_shape_of(value) for value in (op.operands[0], op.results[0])]
    if not is_real(op.operands[0]) or any(shape is None or len(shape) <= axis for shape in shapes):
        return False
    name = op.SPEC.name
    if name in _PADS:
        pads = constant(op.operands[1])
        return pads is not None and not np.any(pads[axis])
    if name in _POOLS:
        return axis == 3
    if name == _DEPTHWISE:
        found = WeightedLayer.with_reals(op)
        return axis == 3 and found is not None and found[1].shape[-1] == (shapes[0] or ())[axis]
    return Trait.ELEMENTWISE in op.SPEC.traits and len(op.operands) == 1


def _takes_any(op: Operation, place: int, axis: int, depth: int = _DEEPEST) -> bool:
    """Return whether the channels of operand ``place`` may be in any order."""
    layer = _layer(op, axis)
    if layer is not None and layer.op.SPEC.name != "TRANSPOSE_CONV":
        return place == layer.input
    if place != 0 or depth == 0 or not _keeps_channels(op, axis):
        return False
    uses = list(op.results[0].uses)
    return bool(uses) and all(_takes_any(use.operation, use.index, axis, depth - 1) for use in uses)


def _gives_any(value: SSAValue, region: ShuffleRegion) -> bool:
    """Return whether only the region reads ``value``, and its channels can be computed in any order."""
    if region.uses_outside(value):
        return False
    for _ in range(_DEEPEST):
        if not isinstance(value, OpResult):
            return False
        if _layer(value.op, region.axis) is not None:
            return True
        if not _keeps_channels(value.op, region.axis) or not is_used_once(value.op.operands[0]):
            return False
        value = value.op.operands[0]
    return False


class _Writer:
    """Writer of a plan: sources first, then operands of readers, then the readers."""

    def __init__(self, region: ShuffleRegion, plan: _ShufflePlan, rewriter: PatternRewriter) -> None:
        self.region = region
        self.plan = plan
        self.rewriter = rewriter
        self.given: dict[SSAValue, SSAValue] = {}  # sources in their new order
        self.pieces: dict[ChannelRun, SSAValue] = {}

    def run(self) -> None:
        for source in self.region.sources:
            order = self.plan.stored.get(source)
            self.given[source] = source if order is None or _is_natural(order) else self._give(source, order)
        brought = {value: self._brought(value) for value in self.plan.readers}
        readers = {value: self.region.uses_outside(value) for value in brought}
        for value, uses in readers.items():
            for op, place in uses:
                op.operands[place] = brought[value]
                self.rewriter.notify_op_modified(op)
        for value in self.plan.takes_any:
            for op, _ in readers[value] if not _is_natural(self.plan.wanted[value]) else ():
                self._take(op, self.plan.wanted[value])
        for mover in dict.fromkeys(result.owner for result in reversed(self.region.channels)):
            assert isinstance(mover, CircleOp)
            for op in (mover, *reversed(self.region.inner.get(mover, ()))):
                self.rewriter.erase(op)

    def _give(self, source: SSAValue, order: list[int]) -> SSAValue:
        use = next(iter(source.uses))
        value = source
        while isinstance(value, OpResult):
            op = value.op
            value = op.operands[0]
            if _layer(op, self.region.axis) is not None:
                self._reorder(op, order, lambda weights: weights[order])
                break
            if isinstance(op, CircleOp) and op.SPEC.name == _DEPTHWISE:
                self._reorder(op, order, lambda weights: weights[..., order])
        ordered: SSAValue = use.operation.operands[use.index]
        return ordered

    def _reorder(self, op: Operation, outputs: list[int] | None, change: Callable[[Reals], Reals]) -> None:
        found = WeightedLayer.with_reals(op)
        assert found is not None
        layer, weights, bias = found
        replace_layer(layer, layer.op, change(weights), bias if outputs is None else bias[outputs], self.rewriter)

    def _brought(self, value: SSAValue) -> SSAValue:
        """Return the replacement of ``value`` for its readers. A function result keeps its operator and name."""
        pieces = [self._piece(run) for run in self.plan.runs[value]]
        if len(pieces) == 1 and not is_returned(value):
            return pieces[0]
        made: list[CircleOp | ConstOp] = []
        if len(pieces) == 1:
            made += reshaped(pieces[0], value)
        else:
            made.append(operator("CONCATENATION", pieces, value, {"axis": self.region.axis}))
        assert isinstance(value.owner, Operation)
        self.rewriter.insert(made, InsertPoint.before(value.owner))
        return made[-1].results[0]

    def _piece(self, run: ChannelRun) -> SSAValue:
        source, axis = self.given[run.source], self.region.axis
        shape = list(static_shape_of(source) or ())
        if run.count == shape[axis]:
            return source
        if run not in self.pieces:
            begin = [run.begin if place == axis else 0 for place in range(len(shape))]
            shape[axis] = run.count
            role = f"channels_{run.begin}_{run.count}"
            name = f"{value_name(source)}/{role}"
            bounds = [indices(begin, f"{name}/begin"), indices(shape, f"{name}/size")]
            made = part("SLICE", [source, *(bound.result for bound in bounds)], source, role, tuple(shape))
            self.rewriter.insert([*bounds, made], behind(source))
            self.pieces[run] = made.results[0]
        return self.pieces[run]

    def _take(self, op: Operation, order: list[int]) -> None:
        if _layer(op, self.region.axis) is not None:
            self._reorder(op, None, lambda weights: weights[..., order])
            return
        for use in list(op.results[0].uses):
            self._take(use.operation, order)
        if isinstance(op, CircleOp) and op.SPEC.name == _DEPTHWISE:
            self._reorder(op, order, lambda weights: weights[..., order])


def _is_natural(order: list[int]) -> bool:
    return order == sorted(order)
