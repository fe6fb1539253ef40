"""Conversions between real and quantised values, and between element types."""

from __future__ import annotations

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.quantize"
_DECLARED = "odc_mlir.ops.infer.common:declared"
_KERNELS = "odc_mlir.runtime.kernels"
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_CONVERTS = real_only("it converts between element types itself")
_X, _Y = (Operand("input"),), (Operand("output"),)

SPECS = (
    OpSpec(
        "QUANTIZE",
        _X,
        _Y,
        "QuantizeOptions",
        _DECLARED,
        f"{_KERNELS}.quantize:quantize",
        f"{_INFER}:verify_quantize",
        _ELEMENTWISE,
        max_version=4,
        quant=_CONVERTS,
        summary="quantisation, or requantisation to another scale, zero point or type",
    ),
    OpSpec(
        "DEQUANTIZE",
        _X,
        _Y,
        "DequantizeOptions",
        _DECLARED,
        f"{_KERNELS}.quantize:dequantize",
        f"{_INFER}:verify_dequantize",
        _ELEMENTWISE,
        max_version=7,
        quant=_CONVERTS,
        summary="dequantisation",
    ),
    OpSpec(
        "FAKE_QUANT",
        _X,
        _Y,
        "FakeQuantOptions",
        "odc_mlir.ops.infer.common:unary",
        f"{_KERNELS}.quantize:fake_quant",
        f"{_INFER}:verify_fake_quant",
        _ELEMENTWISE,
        max_version=2,
        quant=_CONVERTS,
        summary="rounding of real values to a quantisation grid",
    ),
    OpSpec(
        "CAST",
        _X,
        _Y,
        "CastOptions",
        _DECLARED,
        f"{_KERNELS}.cast:cast",
        traits=_ELEMENTWISE,
        max_version=8,
        quant=_CONVERTS,
        summary="conversion to another element type; scales are ignored",
    ),
    OpSpec(
        "BITCAST",
        _X,
        _Y,
        "BitcastOptions",
        f"{_INFER}:bitcast",
        f"{_KERNELS}.cast:bitcast",
        quant=_CONVERTS,
        summary="reinterpretation of bytes as another element type",
    ),
)
