"""Matrix products of two activations."""

from __future__ import annotations

from odc_mlir.ops.spec import Operand, OpSpec

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
        summary="matrix products over the last two axes, leading axes broadcast",
        macs="odc_mlir.ops.macs:batch_matmul",
    ),
)
