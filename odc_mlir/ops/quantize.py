"""Conversions between real and quantised values."""

from __future__ import annotations

from odc_mlir.ops.spec import Operand, OpSpec, Trait

_CODES = ("int8", "uint8", "int16")
_INFER = "odc_mlir.ops.infer"
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})

SPECS = (
    OpSpec(
        "QUANTIZE",
        (Operand("input", dtypes=("float32", *_CODES, "int32")),),
        (Operand("output", dtypes=(*_CODES, "int32")),),
        "QuantizeOptions",
        f"{_INFER}.common:declared",
        "odc_mlir.runtime.kernels.quantize:quantize",
        f"{_INFER}.quantize:verify_quantize",
        _ELEMENTWISE,
        max_version=3,
        summary="real values to codes, or codes to another scale, zero point or type",
    ),
    OpSpec(
        "DEQUANTIZE",
        (Operand("input", dtypes=(*_CODES, "int4", "uint4", "float16")),),
        (Operand("output", dtypes=("float32",)),),
        "DequantizeOptions",
        f"{_INFER}.common:declared",
        "odc_mlir.runtime.kernels.quantize:dequantize",
        f"{_INFER}.quantize:verify_dequantize",
        _ELEMENTWISE,
        max_version=6,
        quant="none",
        summary="codes to real values",
    ),
)
