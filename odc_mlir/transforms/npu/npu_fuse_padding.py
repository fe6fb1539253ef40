"""``npu-fuse-padding``: fuse ``npu.pad`` into loads of convolutions, or replace it by a convolution.

Before::

    %1 = npu.pad %0 pads [0, 0, 1, 1] zero -3 : …
    %2 = npu.conv %1 kernel [3, 3] stride [2, 2] … zeros(-3, 0, 5) … : …

After: ``%2 = npu.conv %0 kernel [3, 3] stride [2, 2] pads [0, 0, 1, 1] …``. The padding holds the zero point before and
after, and adds nothing to the sums.

For other users, a depthwise 1x1 convolution with weights of 1 and scale 1 replaces the pad. Windows in the padding
yield the zero point. Other users are pools, because they ignore padding, and convolutions with another zero point or
with a total padding that exceeds the field of a load. The walker erases a pad without users. Only PAD of an image
becomes ``npu.pad``. Any other PAD becomes ``npu.move``.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu.schedule.geometry import MAX_PAD

IDENTITY = (1 << 30, 1)  # multiplier and exponent of the factor 1


class FusePadding(RewritePattern):
    """Make a convolution read the source of a pad with the same zero point, and add both paddings."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.PadOp, rewriter: PatternRewriter) -> None:
        for conv in _fusing_users(op):
            conv.properties["pads"] = npu.ints(_summed_pads(op, conv))
            conv.operands[0] = op.input
            rewriter.notify_op_modified(conv)
        if rewriter.has_done_action:
            rewriter.notify_op_modified(op)  # the pad may have other users, or none


class PadByConvolution(RewritePattern):
    """Replace a pad by a depthwise 1x1 convolution if no user can fuse it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.PadOp, rewriter: PatternRewriter) -> None:
        if not _fusing_users(op):
            rewriter.replace(op, as_convolution(op))


def _fusing_users(pad: npu.PadOp) -> list[npu.ConvOp]:
    users = (use.operation for use in pad.output.uses)
    convolutions = [user for user in users if isinstance(user, npu.ConvOp) and user.in_zero == pad.zero]
    return [conv for conv in convolutions if max(_summed_pads(pad, conv)) <= MAX_PAD]


def _summed_pads(pad: npu.PadOp, conv: npu.ConvOp) -> list[int]:
    return [a + b for a, b in zip(pad.pads.get_values(), conv.pads.get_values(), strict=True)]


class NpuFusePaddingPass(PatternPass):
    """Fuse padding into convolutions."""

    name = "npu-fuse-padding"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FusePadding, PadByConvolution)


def as_convolution(pad: npu.PadOp) -> npu.ConvOp:
    """Return the depthwise convolution that computes ``pad``."""
    channels = npu.shape_of(pad.output)[3]
    copy = npu.ConvOp(
        pad.input,
        pad.output.type,
        depthwise=True,
        kernel=(1, 1),
        pads=pad.pads,
        weights=BlobAttr.of(bytes([1]) * channels),
        weight_type=npu.CodeType.I8,
        in_zero=pad.zero,
        weight_zero=0,
        out_zero=pad.zero,
        clamp=npu.code_range(npu.dtype_of(pad.output)),
        bias=npu.ChannelsAttr.of([0] * channels),
        multiplier=npu.ChannelsAttr.of([IDENTITY[0]] * channels),
        exponent=npu.ChannelsAttr.of([IDENTITY[1]] * channels),
    )
    copy.location = pad.location
    return copy
