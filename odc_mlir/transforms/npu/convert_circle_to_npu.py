"""``convert-circle-to-npu``: create a program for every segment, lowering ``circle`` operations to ``npu`` operations.

Before::

    %r = odc.segment @segment_0(%0) : … circle {
    ^bb0(%x: tensor<1x8x8x1x…>):
      %w = circle.const #circle.blob<…> : tensor<8x3x3x1x!quant.uniform<i8:f32, 0.5>>
      %y = circle.conv_2d(%x, %w, %b) {padding = same, …} : …
      odc.yield %y : …
    }

After: the segment is unchanged, and the module has a program of its name. Scales have become multipliers, padding rules
numbers, constants properties::

    npu.program @segment_0(%x: tensor<1x8x8x1x…>) -> tensor<1x8x8x8x…> {
      %y = npu.conv %x kernel [3, 3] pads [1, 1, 1, 1] weights <…> i8 zeros (-128, 0, 3) … : …
      odc.yield %y : …
    }

In an existing program, only ``circle`` operations are lowered.

The placement rules guarantee that every operator in a segment can be converted; one without a lowering is an error.
Tensor names stay on the locations.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp
from odc_mlir.dialects.npu_program import ProgramOp, make_program, programs
from odc_mlir.dialects.odc import SegmentOp, lowered_symbols
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.npu.lowering import lowerings
from odc_mlir.transforms.npu.lowering.channel_groups import lower_in_channel_groups, needs_channel_groups
from odc_mlir.transforms.npu.lowering.elementwise import lower_by_table
from odc_mlir.transforms.npu.lowering.site import Site
from odc_mlir.transforms.npu.lowering.weight_parts import lower_with_parts, takes_parts
from odc_mlir.transforms.partition.rules.table import works_by_table

PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")  # may be computed for some result channels at a time


def lower(op: CircleOp) -> None:
    """Replace one operator; element-wise ones without a lowering of their own become a table of codes."""
    if (lowering := lowerings().get(op.SPEC.name)) is not None:
        site = Site(op)
        if op.SPEC.name in PRODUCTS and needs_channel_groups(site):
            lowering = lower_with_parts if takes_parts(site) else lower_in_channel_groups
        lowering(site)
    elif works_by_table(op.SPEC):
        lower_by_table(Site(op))
    else:
        raise CompileError("no NPU form of this operator", op=op.SPEC.name, tensor=op_name(op))


@dataclass(frozen=True)
class ConvertCircleToNpuPass(ModulePass):
    """Make programs and lower their operators; see the module's text."""

    name = "convert-circle-to-npu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        known = lowered_symbols(op)
        for segment in [item for item in op.walk() if isinstance(item, SegmentOp)]:
            other = known.get(segment.sym_name.data)
            if isinstance(other, ProgramOp):
                continue
            if other is not None:  # for another target
                Rewriter.erase_op(other)
            op.body.block.add_op(make_program(segment))
        for program in programs(op).values():
            for item in [inner for inner in program.body.walk() if isinstance(inner, CircleOp)]:
                lower(item)
            for constant in [inner for inner in program.body.walk() if isinstance(inner, ConstOp | NoneOp)]:
                if not constant.result.uses:
                    Rewriter.erase_op(constant)
