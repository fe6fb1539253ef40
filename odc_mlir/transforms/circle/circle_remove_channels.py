"""``circle-remove-channels``: remove quantised channels that are constant or unused.

Before, if channels 1 and 3 of ``%0`` are code -128 for every ``%x`` because of ``%w`` and ``%b``::

    %0 = circle.conv_2d(%x, %w, %b) {activation = relu6, …} : … -> tensor<1x8x8x4x!quant.uniform<i8, 0.02, -128>>
    %1 = circle.depthwise_conv_2d(%0, %v, %c) {…} : … -> tensor<1x8x8x4x!quant.uniform<i8, 0.05, -128>>
    %2 = circle.conv_2d(%1, %u, %d) {…} : … -> tensor<1x8x8x8x!quant.uniform<i8, 0.1, 3>>

After: ``%0`` and ``%1`` have only the two other channels, and the weights and biases of all three layers shrink
accordingly::

    %0 = circle.conv_2d(%x, %w_2, %b_2) {activation = relu6, …} : … -> tensor<1x8x8x2x!quant.uniform<i8, 0.02, -128>>
    %1 = circle.depthwise_conv_2d(%0, %v_2, %c_2) {…} : … -> tensor<1x8x8x2x!quant.uniform<i8, 0.05, -128>>
    %2 = circle.conv_2d(%1, %u_2, %d_2) {…} : … -> tensor<1x8x8x8x!quant.uniform<i8, 0.1, 3>>

Training leaves channels with weights of practically 0. All sums of such a channel are requantised to the same code. The
pass adds the constant contribution of such a channel to the bias of the next layer. If the code does not represent 0,
the next layer must not have padding, because padding contributes 0. The pass also removes a channel if all weights that
multiply it are 0, or if all results that depend on it are removed.

Channels are tracked through depthwise layers and views. Inputs, function results and values that other operators read
keep all channels. Every value keeps at least one channel. A layer that would lose less than a sixteenth of its channels
keeps all: rows of 144 and 143 codes take the same time. Applies to 8-bit and 16-bit codes with one scale per tensor.
Results are bit-exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.transforms.circle.rewrites.channels import (
    ChannelIntervals,
    ChannelKind,
    Depthwise,
    Mask,
    Places,
    ProductKind,
    channels_of,
    full_intervals,
    kind_of,
)
from odc_mlir.transforms.common.placement import functions
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to


@dataclass(frozen=True)
class CircleRemoveChannelsPass(PatternPass):
    """Remove channels that are constant or unused."""

    name = "circle-remove-channels"

    share: int = 16
    """Remove channels of a layer only if at least one in this many can be removed. 0 keeps all."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (NarrowOperator,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if function.body.blocks and self.share > 0:
                jobs = jobs_of(FunctionIntervals.of_function(function), self.share)
                apply_patterns_to([NarrowOperator(jobs)], jobs)


class ChannelRemoval(NamedTuple):
    """Masks of the channels that remain in the result of an operator and, for a layer, in the input."""

    kind: ChannelKind
    kept: Mask
    inputs: Mask | None
    source: ChannelIntervals | None


def jobs_of(intervals: FunctionIntervals, share: int) -> dict[Operation, ChannelRemoval]:
    """Return the operators that change, in program order."""
    kept = unneeded_channels(intervals, share)
    jobs = {}
    for op, kind in intervals.kinds.items() if kept else ():
        value = kind.input if isinstance(kind, ProductKind) else None
        inputs = None if value is None else kept.get(value.owner) if isinstance(value.owner, Operation) else None
        if op in kept or inputs is not None:
            mask = kept.get(op, np.ones(kind.channels, np.bool_))
            jobs[op] = ChannelRemoval(kind, mask, inputs, None if value is None else intervals(value))
    return jobs


@dataclass(frozen=True)
class NarrowOperator(RewritePattern):
    """Remove channels of an operator. Channels of the operators before it are already removed."""

    jobs: Mapping[Operation, ChannelRemoval]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        job = self.jobs[op]
        job.kind.narrow(job.kept, job.inputs, job.source)
        rewriter.notify_op_modified(op)


@dataclass(frozen=True)
class FunctionIntervals:
    """Intervals of every channel in a function. ``kinds``: operators except barriers, in program order."""

    kinds: Mapping[Operation, ChannelKind]
    of_values: dict[SSAValue, ChannelIntervals] = field(default_factory=dict)

    @classmethod
    def of_function(cls, function: FuncOp) -> FunctionIntervals:
        """Compute the intervals of the results in ``function``."""
        kinds = ((op, kind_of(op)) for op in function.body.block.ops if isinstance(op, CircleOp))
        known = cls({op: kind for op, kind in kinds if kind is not None})
        for kind in known.kinds.values():
            found = kind.intervals(known)
            if found is not None:
                known.of_values[kind.result] = found
        return known

    def __call__(self, value: SSAValue) -> ChannelIntervals:
        """Return the intervals of ``value``, a tensor that has channels. By default, they contain all codes."""
        found = self.of_values.get(value)
        if found is None:
            channels = channels_of(value)
            assert channels is not None
            found = full_intervals(tensor_facts(value.type).dtype, channels)
            self.of_values[value] = found
        return found

    @property
    def layers(self) -> list[ProductKind]:
        """Layers that sum over channels, in program order."""
        return [
            kind for kind in self.kinds.values() if isinstance(kind, ProductKind) and not isinstance(kind, Depthwise)
        ]


def unneeded_channels(intervals: FunctionIntervals, share: int) -> dict[Operation, Mask]:
    """Return masks of kept channels, ``[C]``, by operator.

    A layer loses at least one in ``share`` channels, or none.
    """
    if not any(layer.may_shrink(intervals(layer.input)) for layer in intervals.layers):
        return {}
    classes = _Classes(intervals)
    kept = classes.kept(share)
    found = {op: kept[classes.of(kind.result)] for op, kind in intervals.kinds.items()}
    return {op: mask for op, mask in found.items() if not mask.all()}


class _Classes:
    """Classes of channels that can only be removed together, such as operand and result of a depthwise layer.

    All channels of all values have consecutive numbers. A class is needed if a function result, a barrier or a needed
    result of a layer depends on any channel of the class.
    """

    def __init__(self, intervals: FunctionIntervals) -> None:
        self.intervals = intervals
        self.first: dict[SSAValue, int] = {}
        total = 0
        for kind in intervals.kinds.values():
            inputs = (kind.input,) if isinstance(kind, ProductKind) else ()
            for value in (*(tie.value for tie in kind.ties()), *inputs, kind.result):
                if value not in self.first:
                    self.first[value] = total
                    total += channels_of(value) or 0
        self.labels = self._joined(np.arange(total))

    def places(self, value: SSAValue) -> Places:
        return self.first[value] + np.arange(channels_of(value) or 0)

    def of(self, value: SSAValue) -> Places:
        return self.labels[self.places(value)]

    def _joined(self, labels: Places) -> Places:
        ties = [
            (self.first[tie.value] + tie.of_value, self.first[kind.result] + tie.of_result)
            for kind in self.intervals.kinds.values()
            for tie in kind.ties()
        ]
        if not ties:
            return labels
        ends = [np.concatenate(side) for side in zip(*ties, strict=True)]
        while True:
            a, b = (labels[side] for side in ends)
            if np.array_equal(a, b):
                return labels
            least = np.minimum(a, b)
            for side in (*ends, a, b):
                np.minimum.at(labels, side, least)
            labels = labels[labels]

    def kept(self, share: int) -> Mask:
        """Return a mask of kept classes. A value keeps at least one channel, and all if few would be removed."""
        needed = np.zeros(len(self.labels), np.bool_)
        known = self.intervals.kinds
        results = [kind.result for kind in known.values() if isinstance(kind, ProductKind)]
        for value in self.first:
            if value.owner not in known or any(use.operation not in known for use in value.uses):
                needed[self.of(value)] = True
        while True:
            self._spread(needed)
            whole = [value for value in results if _is_little(needed[self.of(value)], share)]
            empty = [value for value in self.first if not needed[self.of(value)].any()]
            for value in whole:
                needed[self.of(value)] = True
            if empty and not whole:
                needed[self.of(empty[0])[:1]] = True
            if not (whole or empty):
                return needed

    def _spread(self, needed: Mask) -> None:
        """Propagate needed channels from results to operands of layers until nothing changes."""
        pairs = [(layer, self.of(layer.input), self.of(layer.result)) for layer in reversed(self.intervals.layers)]
        seen = -1
        while (count := int(needed.sum())) != seen:
            seen = count
            for layer, inputs, results in pairs:
                needed[inputs[layer.needs(needed[results], self.intervals(layer.input))]] = True


def _is_little(kept: Mask, share: int) -> bool:
    return 0 < share * int((~kept).sum()) < len(kept)
