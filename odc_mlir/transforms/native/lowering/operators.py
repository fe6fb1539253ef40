"""Patterns that lower circle operators to kernels, and reasons for operators without a pattern."""

from __future__ import annotations

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.native.lowering import elementwise, moves, products, recurrent, reductions
from odc_mlir.transforms.native.lowering.segment_writer import KernelPattern

PATTERNS: tuple[type[KernelPattern], ...] = (
    products.LowerConv2DToKernels,
    products.LowerTransposeConvToKernels,
    products.LowerDepthwiseConv2DToKernels,
    products.LowerFullyConnectedToKernels,
    products.LowerBatchMatMulToKernels,
    reductions.LowerPool2DToKernels,
    reductions.LowerResizeBilinearToKernels,
    elementwise.LowerFloatBinaryToKernels,
    elementwise.LowerPowToKernels,
    elementwise.LowerFloatUnaryToKernels,
    elementwise.LowerAddNToKernels,
    elementwise.LowerCodesArithmeticToKernels,
    elementwise.LowerElementsToKernels,
    elementwise.LowerQuantizeToKernels,
    elementwise.LowerDequantizeToKernels,
    elementwise.LowerByTableToKernels,
    reductions.LowerReductionToKernels,
    reductions.LowerMeanToKernels,
    reductions.LowerPlaceOfExtremeToKernels,
    reductions.LowerCumsumToKernels,
    reductions.LowerSoftmaxToKernels,
    reductions.LowerLogSoftmaxToKernels,
    reductions.LowerL2NormalizationToKernels,
    reductions.LowerRmsNormToKernels,
    recurrent.LowerSequenceLstmToKernels,
    moves.LowerViewToKernels,
    moves.LowerConcatenationToKernels,
    moves.LowerMoveToKernels,
    moves.LowerSplitToKernels,
    moves.LowerMoveIntoZerosToKernels,
    moves.LowerPadToKernels,
    moves.LowerGatherToKernels,
    moves.LowerDynamicUpdateSliceToKernels,
    moves.LowerFillToKernels,
)
"""All patterns. The first match for an operator applies."""


def kernel_reason(node: Node) -> str | None:
    """Return the reason why an operator stays on the host, or None if a pattern lowers it."""
    for pattern in PATTERNS:
        if pattern.matches_node(node):
            try:
                pattern.checked(node)
            except OdcError as error:
                return error.message
            return None
    return "there is no native kernel for this operator"
