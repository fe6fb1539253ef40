"""Conversions: QUANTIZE, DEQUANTIZE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from odc_mlir.numerics.elementwise import scale_params, scale_quantized
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.quantize import dequantize_codes, quantize_real
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.activation import coded, unary
from odc_mlir.runtime.kernels.common import check_scales, scale_of


def _axis_params(node: Node, info: TensorInfo) -> tuple[Array, Array, int]:
    """Scales (float32), zero points (int64) and axis of a tensor quantised per axis."""
    quant = info.quant
    if quant is None:
        raise node.error(f"tensor {info.name!r} has no scale")
    check_scales(node, info, quant.scales)
    size = len(quant.scales)
    shape = info.shape
    if shape is not None and not (0 <= quant.axis < len(shape) and shape[quant.axis] in (size, None)):
        raise node.error(f"tensor {info.name!r} has {size} scales, which fit no axis of its shape")
    if len(quant.zero_points) != size:
        raise node.error(f"tensor {info.name!r} has {size} scales and {len(quant.zero_points)} zero points")
    return np.asarray(quant.scales, np.float32), np.asarray(quant.zero_points, np.int64), quant.axis


def quantize(node: Node) -> Execute:
    """Real values to codes, or codes to codes of another scale, zero point or type."""
    x, out = node.operand(0), node.results[0]
    dtype = out.info.numpy
    if x.dtype == "float32":
        return unary(node, _to_codes(node, out, dtype))
    act = code_range(dtype)
    params = scale_params(scale_of(node, x), scale_of(node, out), act, dtype.name, single=False)
    return coded(node, lambda codes: scale_quantized(codes, params))


def _to_codes(node: Node, out: TensorInfo, dtype: np.dtype) -> Callable[[Array], Array]:
    if out.quant is not None and not out.quant.per_tensor:
        scales, zeros, axis = _axis_params(node, out)
        return lambda values: quantize_real(values, scales, zeros, dtype, axis)
    scale, zero = scale_of(node, out)
    return lambda values: quantize_real(values, np.float32(scale), zero, dtype)


def dequantize(node: Node) -> Execute:
    """Codes to float32; float16 is widened."""
    x = node.operand(0)
    if x.dtype == "float16":
        return unary(node, lambda values: values.astype(np.float32))
    if x.quant is not None and not x.quant.per_tensor:
        scales, zeros, axis = _axis_params(node, x)
        return unary(node, lambda codes: dequantize_codes(codes, scales, zeros, axis))
    scale, zero = scale_of(node, x)
    return unary(node, lambda codes: dequantize_codes(codes, scale, zero))
