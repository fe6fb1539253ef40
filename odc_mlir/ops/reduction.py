"""Reductions over axes."""

from __future__ import annotations

from odc_mlir.ops.spec import Operand, OpSpec

_NUMBERS = ("float32", "int8", "uint8", "int16", "int32", "int64")

SPECS = (
    OpSpec(
        "MEAN",
        (Operand("input", dtypes=_NUMBERS), Operand("axes", dtypes=("int32",))),
        (Operand("output", dtypes=_NUMBERS),),
        "ReducerOptions",
        "odc_mlir.ops.infer.common:reduce",
        "odc_mlir.runtime.kernels.reduction:mean",
        "odc_mlir.ops.infer.reduction:verify_reduce",
        max_version=3,
        summary="mean over some axes",
    ),
)
