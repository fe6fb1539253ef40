"""QUANTIZE, DEQUANTIZE and FAKE_QUANT."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from odc_mlir.numerics.elementwise import scale_params, scale_quantized
from odc_mlir.numerics.quantize import dequantizer, fake_quant_params, real_quantizer
from odc_mlir.numerics.quantize import fake_quant as fake_quant_real
from odc_mlir.ops.infer.common import option, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import CODES, PlannedKernel, check_scales, scale_of
from odc_mlir.runtime.kernels.unary import coded, unary

_WIDE_CODES = (*CODES, "int32")
_FOUR_BIT = ("int4", "uint4")


def _axis_params(node: Node, info: TensorInfo) -> tuple[Array, Array, int]:
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
    """Convert real values to codes, or codes to another scale, zero point or type."""
    x, out = node.operand(0), node.results[0]
    require_dtype(node, x, "float32", *_WIDE_CODES)
    require_dtype(node, out, *_WIDE_CODES, *_FOUR_BIT)
    dtype = out.info.numpy
    if x.dtype == "float32":
        return unary(node, _to_codes(node, out, dtype))
    act = out.info.range
    params = scale_params(scale_of(node, x), scale_of(node, out), act, dtype.name, single=False)
    return coded(node, lambda codes: scale_quantized(codes, params))


def _to_codes(node: Node, out: TensorInfo, dtype: np.dtype) -> Callable[[Array], Array]:
    scales: Any
    zeros: Any
    if out.quant is not None and not out.quant.per_tensor:
        scales, zeros, axis = _axis_params(node, out)
    else:
        scales, zeros = scale_of(node, out)
        axis = 0
    convert = of_rank(lambda rank: real_quantizer(scales, zeros, dtype, axis, rank))
    if out.dtype in _FOUR_BIT:
        low, high = out.info.range
        return lambda values: np.clip(convert(values), low, high)
    return convert


def of_rank(make: Callable[[int], PlannedKernel]) -> PlannedKernel:
    """Return a kernel for arrays of any rank. It calls ``make(rank)`` once per rank."""
    made = cache(make)
    return lambda values: made(values.ndim)(values)


def dequantize(node: Node) -> Execute:
    """Convert codes to float32. Half-precision numbers are widened."""
    x = node.operand(0)
    require_dtype(node, x, *_WIDE_CODES, *_FOUR_BIT, "float16", "bfloat16")
    require_dtype(node, node.results[0], "float32")
    if x.info.kind == "float":
        return unary(node, lambda values: values.astype(np.float32))
    dtype = x.info.numpy
    if x.quant is not None and not x.quant.per_tensor:
        scales, zeros, axis = _axis_params(node, x)
        return unary(node, of_rank(lambda rank: dequantizer(scales, zeros, dtype, axis, rank)))
    scale, zero = scale_of(node, x)
    return unary(node, dequantizer(np.float32(scale), zero, dtype, 0, 0))


def fake_quant(node: Node) -> Execute:
    """Round real values to the grid of ``num_bits`` bits over ``min`` to ``max``."""
    require_dtype(node, node.operand(0), "float32")
    least, most, bits = option(node, "min"), option(node, "max"), int(option(node, "num_bits"))
    params = fake_quant_params(least, most, bits, narrow=bool(option(node, "narrow_range")))
    return unary(node, lambda values: fake_quant_real(values, params))
