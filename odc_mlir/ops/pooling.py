"""Pooling over windows of NHWC images."""

from __future__ import annotations

from odc_mlir.ops.quantization import OWN, QuantRule, moved
from odc_mlir.ops.spec import Operand, OpSpec


def _pool(name: str, summary: str, quant: QuantRule) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input"),),
        (Operand("output"),),
        "Pool2DOptions",
        "odc_mlir.ops.infer.pooling:pool_2d",
        f"odc_mlir.runtime.kernels.pooling:{name.lower()}",
        "odc_mlir.ops.infer.pooling:verify_pool_2d",
        max_version=3,
        quant=quant,
        summary=summary,
    )


SPECS = (
    _pool("AVERAGE_POOL_2D", "average of each window, padding not counted", moved()),
    _pool("MAX_POOL_2D", "maximum of each window", moved()),
    _pool("L2_POOL_2D", "root of the mean square of each window", OWN),
)
