"""``npu-fuse-padding``: fuse ``npu.pad`` into convolutions, which pad while they load, or replace it by a copy.

Before::

    %1 = npu.pad %0 pads [0, 0, 1, 1] zero -3 : …
    %2 = npu.conv %1 kernel [3, 3] stride [2, 2] … zeros(-3, 0, 5) … : …

After: ``%2 = npu.conv %0 kernel [3, 3] stride [2, 2] pads [0, 0, 1, 1] …``: a padded tap is the zero point in both
forms, so it adds nothing to the sums.

Any other user (a pool ignores padding, a pad does not) reads a depthwise 1x1 convolution with weights and scale of one,
whose windows in the padding yield the zero point.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr

IDENTITY = (1 << 30, 1)  # multiplier and exponent of the factor 1


@dataclass(frozen=True)
class NpuFusePaddingPass(ModulePass):
    """Move padding into convolutions; see the module's text."""

    name = "npu-fuse-padding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pad in [item for item in op.walk() if isinstance(item, npu.PadOp)]:
            for use in list(pad.output.uses):
                if isinstance(use.operation, npu.ConvOp) and use.operation.in_zero == pad.zero:
                    fuse(pad, use.operation)
            if pad.output.uses:
                copy = as_convolution(pad)
                Rewriter.insert_op(copy, InsertPoint.before(pad))
                Rewriter.replace_op(pad, [], [copy.output])
            else:
                Rewriter.erase_op(pad)


def fuse(pad: npu.PadOp, conv: npu.ConvOp) -> None:
    """Let ``conv`` read what ``pad`` reads, with the sum of both paddings."""
    both = zip(pad.pads.get_values(), conv.pads.get_values(), strict=True)
    conv.properties["pads"] = npu.ints(a + b for a, b in both)
    conv.operands[0] = pad.input


def as_convolution(pad: npu.PadOp) -> npu.ConvOp:
    """The depthwise convolution that computes ``pad``."""
    channels = npu.shape_of(pad.output)[3]
    dtype = npu.dtype_of(pad.output)
    zero = pad.zero.value.data
    top, left, bottom, right = pad.pads.get_values()
    copy = npu.ConvOp(
        pad.input,
        pad.output.type,
        depthwise=True,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pads=(top, left, bottom, right),
        weights=BlobAttr.of(bytes([1]) * channels),
        weight_type=npu.CodeType.I8,
        in_zero=zero,
        weight_zero=0,
        out_zero=zero,
        clamp=npu.code_range(dtype),
        bias=npu.ChannelsAttr.of([0] * channels),
        multiplier=npu.ChannelsAttr.of([IDENTITY[0]] * channels),
        exponent=npu.ChannelsAttr.of([IDENTITY[1]] * channels),
    )
    copy.location = pad.location
    return copy
