"""Normalisation over channels, the last axis."""

from __future__ import annotations

from odc_mlir.ops.quantization import fixed
from odc_mlir.ops.spec import Operand, OpSpec

_INFER = "odc_mlir.ops.infer.normalization"
_KERNELS = "odc_mlir.runtime.kernels.normalization"

SPECS = (
    OpSpec(
        "L2_NORMALIZATION",
        (Operand("input"),),
        (Operand("output"),),
        "L2NormOptions",
        "odc_mlir.ops.infer.common:unary",
        f"{_KERNELS}:l2_normalization",
        f"{_INFER}:verify_l2_normalization",
        max_version=2,
        quant=fixed("l2_normalization"),
        summary="channels divided by their L2 norm",
    ),
    OpSpec(
        "LOCAL_RESPONSE_NORMALIZATION",
        (Operand("input"),),
        (Operand("output"),),
        "LocalResponseNormalizationOptions",
        "odc_mlir.ops.infer.common:unary",
        f"{_KERNELS}:local_response_normalization",
        f"{_INFER}:verify_local_response_normalization",
        summary="channels divided by a power of their neighbours' energy",
    ),
)
