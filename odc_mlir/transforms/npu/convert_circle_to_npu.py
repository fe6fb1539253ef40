"""``convert-circle-to-npu``: create a program for every segment, and lower its ``circle`` operators to ``npu``.

Before::

    %r = odc.segment @segment_0(%0) : … circle {
    ^bb0(%x: tensor<1x8x8x1x…>):
      %w = circle.const #circle.blob<…> : tensor<8x3x3x1x!quant.uniform<i8:f32, 0.5>>
      %y = circle.conv_2d(%x, %w, %b) {padding = same, …} : …
      odc.yield %y : …
    }

After: the segment keeps its body, and the module has a program of its name. Scales have become multipliers, padding
rules numbers, constants properties::

    %r = odc.segment @segment_0(%0) : … circle {
      … as before …
    }
    npu.program @segment_0(%x: tensor<1x8x8x1x…>) -> tensor<1x8x8x8x…> {
      %y = npu.conv %x kernel [3, 3] pads [1, 1, 1, 1] weights <…> i8 zeros (-128, 0, 3) … : …
      odc.yield %y : …
    }

Tensor names stay on the locations. In a program that exists already, the pass lowers the ``circle`` operations that are
left. The partitioner applies the same patterns to single operators of a copy, to estimate their costs
(:mod:`odc_mlir.transforms.partition.plans.costs`).

The placement rules guarantee that some pattern matches every operator of a segment. An operator that no pattern
matches, or that a pattern refuses, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import ConstOp, NoneOp
from odc_mlir.dialects.npu_program import create_programs, programs
from odc_mlir.dialects.odc import SegmentOp
from odc_mlir.legality import NPU_TENSORS
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu.lowering import (
    elementwise,
    functions,
    moves,
    normalisation,
    polyphase,
    products,
    recurrent,
    wide_weights,
    windows,
)


class EraseUnusedConstant(LoweringPattern[ConstOp | NoneOp]):
    """A constant without uses, to nothing."""

    def matches(self, op: ConstOp | NoneOp, /) -> bool:
        return not op.result.uses

    def lower(self, op: ConstOp | NoneOp, rewriter: PatternRewriter, /) -> None:
        rewriter.erase(op)


class ConvertCircleToNpuPass(PatternPass):
    """Create programs and lower their operators; see the module's text."""

    name = "convert-circle-to-npu"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        """Return the patterns, general ones after the special ones for the same operator."""
        return (
            wide_weights.LowerConv2DInParts,
            wide_weights.LowerDepthwiseInParts,
            wide_weights.LowerFullyConnectedInParts,
            wide_weights.LowerInChannelGroups,
            products.LowerConv2D,
            products.LowerChannelwiseConv2D,
            products.LowerGroupedConv2D,
            products.LowerDepthwiseConv2D,
            products.LowerFullyConnected,
            polyphase.LowerTransposeConvInParts,
            polyphase.LowerTransposeConvInGroups,
            polyphase.LowerTransposeConv,
            products.LowerMatmulByConstant,
            products.LowerMatmul,
            recurrent.LowerLstm,
            windows.LowerPool2D,
            windows.LowerReduceMax,
            windows.LowerReduceMin,
            windows.LowerRowSum,
            windows.LowerImageSum,
            windows.LowerSoftmax,
            windows.LowerSoftmax16,
            windows.LowerArgMax,
            normalisation.LowerRmsNorm,
            windows.LowerResize,
            moves.LowerReshape,
            windows.LowerImagePad,
            moves.LowerConcatenation,
            moves.LowerGather,
            moves.LowerDynamicUpdateSlice,
            moves.LowerMove,
            functions.LowerIsland,
            elementwise.LowerQuantize,
            elementwise.LowerRelu,
            elementwise.LowerConstantSelect,
            functions.LowerByTable,
            elementwise.LowerMaximumMinimum,
            products.LowerMulByChannels,
            elementwise.LowerMul,
            elementwise.LowerAddSub,
            elementwise.LowerSquaredDifference,
            elementwise.LowerPrelu,
            functions.LowerLeakyRelu16,
            functions.LowerNeg16,
            functions.LowerAbs16,
            functions.LowerSigmoid16,
            functions.LowerTableSum16,
            functions.LowerByTable16,
            EraseUnusedConstant,
        )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        create_programs(op, [item for item in op.walk() if isinstance(item, SegmentOp)])
        patterns = [kind() for kind in self.patterns()]
        for program in programs(op).values():
            apply_conversion(ctx, program.body, NPU_TENSORS, patterns)
