"""Operators that change how a constant is stored."""

from odc_mlir.ops.quantization import moved
from odc_mlir.ops.spec import Operand, OpSpec, Trait

SPECS = (
    OpSpec(
        name="DENSIFY",
        operands=(Operand("input"),),
        results=(Operand("output"),),
        options="DensifyOptions",
        infer="odc_mlir.ops.infer.common:unary",
        kernel="odc_mlir.runtime.kernels.storage:densify",
        verify="odc_mlir.ops.infer.common:verify_first_dtype",
        traits=frozenset({Trait.PURE, Trait.SAME_QUANT}),
        quant=moved(),
        summary="dense form of a sparse constant",
    ),
)
