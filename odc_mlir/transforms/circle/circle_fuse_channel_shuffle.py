"""``circle-fuse-channel-shuffle``: fold channel shuffles into the weights of the layers around them.

Before::

    %0 = circle.concatenation(%a, %b) {axis = 3} : … -> tensor<1x8x8x48xf32>
    %1 = circle.reshape(%0, %s) : … -> tensor<1x8x8x2x24xf32>
    %2 = circle.transpose(%1, %p) : … -> tensor<1x8x8x24x2xf32>
    %3 = circle.reshape(%2, %t) : … -> tensor<1x8x8x48xf32>
    %4:2 = circle.split(%axis, %3) : … -> (tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>)
    %5 = circle.conv_2d(%4#1, %w, %c) : … -> tensor<1x8x8x24xf32>

After, if ``%a`` and ``%b`` come from convolutions: the channels that one user reads are adjacent in their results, and
the weights of the convolutions that read them are permuted to match::

    %6 = circle.slice(%a, …) : … -> tensor<1x8x8x12xf32>
    %7 = circle.slice(%b, …) : … -> tensor<1x8x8x12xf32>
    %8 = circle.concatenation(%6, %7) {axis = 3} : … -> tensor<1x8x8x24xf32>
    %9 = circle.conv_2d(%8, %w2, %c) : … -> tensor<1x8x8x24xf32>

All operators that only move channels, around one or more shuffles, are considered together: every user reads its
channels directly from where they are computed. Orders propagate through padding, pooling, depthwise convolutions and
unary functions. Float sums are added in another order.

Unchanged: shuffles that are cheaper than the result, by the NPU's cost for moving runs of channels and single ones;
quantised tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.ops.spec import Trait
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import replace_layer
from odc_mlir.transforms.circle.layout.rules import Channel, ShuffleRegion, shuffle_of
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    PatternPass,
    Reals,
    WeightedLayer,
    behind,
    constant,
    indices,
    is_real,
    is_returned,
    is_used_once,
    operator,
    part,
    reshaped,
    static_shape_of,
)

_DEEPEST = 8  # operators between a layer and what moves channels
# What moving costs on the NPUs, in channels that are joined: measured on npu-256, with images of 4 to 16 pixels a side.
_SHUFFLED = 3  # a channel, one by one
_FEWEST = 10  # of a slice: fewer cost the same
_PADS = ("PAD", "PADV2", "MIRROR_PAD")
_DEPTHWISE = "DEPTHWISE_CONV_2D"
_POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
_LAST = ("CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")  # layers whose channels are the last dimension


@dataclass(frozen=True)
class CircleFuseChannelShufflePass(PatternPass):
    """Give layers the channels in an order that needs no shuffle; see the module's text."""

    name = "circle-fuse-channel-shuffle"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FuseChannelShuffle,)


class FuseChannelShuffle(OperatorPattern):
    """All channel shuffles that move the same channels: none is left."""

    names = frozenset({"RESHAPE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        region = ShuffleRegion.around(op)
        if region is None:
            return
        plan = _ShufflePlan(region)
        if plan.cost() < _cost_before(region):
            _Writer(region, plan, rewriter).run()


@dataclass(frozen=True, slots=True)
class ChannelRun:
    """Channels of one source that lie side by side."""

    source: SSAValue
    begin: int
    count: int


def _cost_before(region: ShuffleRegion) -> int:
    """Channels that are moved, one by one or in runs, at their price."""
    total = 0
    for op in region.movers:
        channels = sum(len(region.channels[result]) for result in op.results)
        total += channels * (_SHUFFLED if op.SPEC.name == "RESHAPE" else 1)
    return total


class _ShufflePlan:
    """Plan of a shuffle: runs of sources for each reader, and channel orders of layers."""

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
        self.wanted: dict[SSAValue, list[int]] = {}  # by reader: the numbers of its channels in the order that it gets
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
        """Choose the channel order of sources that can produce any order, from their readers."""
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
        """Return whether a reader gets all of one source as it is."""
        runs = self.runs[value]
        return len(runs) == 1 and runs[0].begin == 0 and runs[0].count == self._extent(runs[0].source)

    def cost(self) -> int:
        """Channels that are moved, at the price of runs."""
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
    """``op`` as a layer on real numbers with constant parts that sums over all channels of ``axis``, its last."""
    found = WeightedLayer.with_reals(op)
    if found is None or found[0].op.SPEC.name not in _LAST:
        return None
    layer, weights, _ = found
    given, made = (static_shape_of(value) or () for value in (op.operands[layer.input], layer.result))
    return layer if len(given) == len(made) == axis + 1 and weights.shape[-1] == given[-1] else None


def _keeps_channels(op: Operation, axis: int) -> bool:
    """Return whether the operator works on every channel of its operand 0 by itself."""
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
    """Return whether what operand ``place`` brings may have its channels in any order."""
    layer = _layer(op, axis)
    if layer is not None and layer.op.SPEC.name != "TRANSPOSE_CONV":
        return place == layer.input
    if place != 0 or depth == 0 or not _keeps_channels(op, axis):
        return False
    uses = list(op.results[0].uses)
    return bool(uses) and all(_takes_any(use.operation, use.index, axis, depth - 1) for use in uses)


def _gives_any(value: SSAValue, region: ShuffleRegion) -> bool:
    """Return whether nothing but the region reads ``value``, and it can come with its channels in any order."""
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
    """Writes a plan: sources first, then what readers get, then the readers."""

    def __init__(self, region: ShuffleRegion, plan: _ShufflePlan, rewriter: PatternRewriter) -> None:
        self.region = region
        self.plan = plan
        self.rewriter = rewriter
        self.given: dict[SSAValue, SSAValue] = {}  # a source in its new order
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
        for result in reversed(self.region.channels):
            self._erase(result.owner)

    def _give(self, source: SSAValue, order: list[int]) -> SSAValue:
        """``source`` with its channels in ``order``, by the weights of the layer that computes them."""
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
        """Give a layer other weights, and its bias the order ``outputs``."""
        found = WeightedLayer.with_reals(op)
        assert found is not None
        layer, weights, bias = found
        replace_layer(layer, layer.op, change(weights), bias if outputs is None else bias[outputs], self.rewriter)

    def _brought(self, value: SSAValue) -> SSAValue:
        """Return the replacement of ``value`` for its readers; a returned value keeps its own operator and name."""
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
        """Let ``op`` take the channels of its operand in ``order``, and what lies behind it up to layers."""
        if _layer(op, self.region.axis) is not None:
            self._reorder(op, None, lambda weights: weights[..., order])
            return
        for use in list(op.results[0].uses):
            self._take(use.operation, order)
        if isinstance(op, CircleOp) and op.SPEC.name == _DEPTHWISE:
            self._reorder(op, order, lambda weights: weights[..., order])

    def _erase(self, op: Operation | Block) -> None:
        if isinstance(op, CircleOp) and op.parent is not None:
            shuffle = shuffle_of(op)
            self.rewriter.erase(op)
            for inner in () if shuffle is None else reversed(shuffle.inner):
                self.rewriter.erase(inner)


def _is_natural(order: list[int]) -> bool:
    return order == sorted(order)
