"""Matrix products of two activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from odc_mlir.ops.quantization import QuantRule
from odc_mlir.ops.spec import Operand, OpSpec


def _columns(options: Mapping[str, Any]) -> int:
    """Return the axis of the right matrix that holds the results' columns."""
    return -2 if options["adjoint_rhs"] else -1


SPECS = (
    OpSpec(
        "BATCH_MATMUL",
        (Operand("lhs"), Operand("rhs")),
        (Operand("output"),),
        "BatchMatMulOptions",
        "odc_mlir.ops.infer.matrix:batch_matmul",
        "odc_mlir.runtime.kernels.matrix:batch_matmul",
        "odc_mlir.ops.infer.matrix:verify_batch_matmul",
        max_version=4,
        quant=QuantRule(stored=MappingProxyType({1: _columns})),
        summary="matrix products over the last two axes, leading axes broadcast",
        macs="odc_mlir.ops.macs:batch_matmul",
    ),
)
