"""``circle-remove-channels``: remove quantised channels that are constant or unused.

Before, where ``%w`` and ``%b`` make channels 1 and 3 of ``%0`` code -128 whatever ``%x`` is::

    %0 = circle.conv_2d(%x, %w, %b) {activation = relu6, …} : … -> tensor<1x8x8x4x!quant.uniform<i8, 0.02, -128>>
    %1 = circle.depthwise_conv_2d(%0, %v, %c) {…} : … -> tensor<1x8x8x4x!quant.uniform<i8, 0.05, -128>>
    %2 = circle.conv_2d(%1, %u, %d) {…} : … -> tensor<1x8x8x8x!quant.uniform<i8, 0.1, 3>>

After: ``%0`` and ``%1`` have the two other channels, and the weights and biases of all three layers are reduced
accordingly::

    %0 = circle.conv_2d(%x, %w_2, %b_2) {activation = relu6, …} : … -> tensor<1x8x8x2x!quant.uniform<i8, 0.02, -128>>
    %1 = circle.depthwise_conv_2d(%0, %v_2, %c_2) {…} : … -> tensor<1x8x8x2x!quant.uniform<i8, 0.05, -128>>
    %2 = circle.conv_2d(%1, %u_2, %d_2) {…} : … -> tensor<1x8x8x8x!quant.uniform<i8, 0.1, 3>>

Training leaves channels whose weights are practically 0. Their sums vary so little that, requantised and clamped, they
are one code. What they contribute to the sums of the next layer is added to its bias: nothing if the code represents 0;
otherwise the layer must not have padding, which would contribute 0 instead. A channel is also removed if all weights
that multiply it are 0, or all results that depend on it are removed themselves.

Channels are tracked through depthwise layers, additions, pools, pads, means, views and element-wise operators. Inputs
and function results keep all channels, as does anything read by an operator without channels. Every value keeps at
least one. A layer that would lose fewer than one in 16 keeps all: a row of 144 codes takes no longer than one of 143,
and is better aligned in memory. Applies to 8-bit and 16-bit codes with one scale per tensor. Results are bit-exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.transforms.circle.channels.kinds import ChannelKind, Mask, ProductKind
from odc_mlir.transforms.circle.channels.needed import CodeRanges, unneeded_channels
from odc_mlir.transforms.circle.channels.spans import ChannelRange
from odc_mlir.transforms.common.placement import functions
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to


@dataclass(frozen=True)
class CircleRemoveChannelsPass(PatternPass):
    """Take out channels that are constant or that nothing needs; see the module's text."""

    name = "circle-remove-channels"

    share: int = 16
    """Remove channels of a layer only if they are at least one in this many; 0: keep all, for ablations."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (NarrowOperator,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if function.body.blocks and self.share > 0:
                jobs = jobs_of(CodeRanges.of_function(function), self.share)
                apply_patterns_to([NarrowOperator(jobs)], jobs)


class ChannelRemoval(NamedTuple):
    """Removal of channels of one operator: the remaining channels of its result, and of a layer's input."""

    kind: ChannelKind
    kept: Mask
    inputs: Mask | None
    source: ChannelRange | None


def jobs_of(ranges: CodeRanges, share: int) -> dict[Operation, ChannelRemoval]:
    """The operators that change, in program order."""
    kept = unneeded_channels(ranges, share)
    jobs = {}
    for op, kind in ranges.kinds.items() if kept else ():
        value = kind.input if isinstance(kind, ProductKind) else None
        inputs = None if value is None else kept.get(value.owner) if isinstance(value.owner, Operation) else None
        if op in kept or inputs is not None:
            mask = kept.get(op, np.ones(kind.channels, np.bool_))
            jobs[op] = ChannelRemoval(kind, mask, inputs, None if value is None else ranges(value))
    return jobs


@dataclass(frozen=True)
class NarrowOperator(RewritePattern):
    """An operator that loses channels; those before it have lost theirs."""

    jobs: Mapping[Operation, ChannelRemoval]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        job = self.jobs[op]
        job.kind.narrow(job.kept, job.inputs, job.source)
        rewriter.notify_op_modified(op)
