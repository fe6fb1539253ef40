"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.numerics import lut, special
from odc_mlir.numerics.activation import hard_swish_codes, hard_swish_params, prelu_codes, prelu_params
from odc_mlir.numerics.elementwise import leaky_params, leaky_quantized, scale_params, scale_quantized
from odc_mlir.numerics.fixed import activation_bounds, activation_range, code_range
from odc_mlir.numerics.int16 import SigmoidParams, logistic16, sigmoid_params, softmax16_codes, softmax16_params, tanh16
from odc_mlir.numerics.pieces import PART_ELEMENTS, choose, in_pairs, in_pieces, in_rows, limit, pieces
from odc_mlir.numerics.quantize import quantize_real
from odc_mlir.numerics.softmax import (
    log_softmax_codes,
    log_softmax_float,
    log_softmax_params,
    softmax_codes,
    softmax_float,
    softmax_float_table,
    softmax_params,
)
from odc_mlir.ops.infer.common import option, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import CODES, EIGHT_BIT, FLOATS, input_error, limits_of, scale_of, unsupported
from odc_mlir.runtime.kernels.elementwise import broadcasting, coded_pairs, of_reals16
from odc_mlir.runtime.kernels.unary import coded, function_of_codes16, real_function, unary

_LOG_SOFTMAX_SCALE = 1 / 16
_LARGEST_SCALE_16 = 1.0  # limit of the operand's scale in a 16-bit logistic or hyperbolic tangent
_TOLERANCE = 1e-3  # relative tolerance of scales that an operator prescribes


def _rectifier(node: Node, activation: str) -> Execute:
    x, out = node.operand(0), node.results[0]
    require_dtype(node, x, *FLOATS, *CODES)
    least, most = activation_bounds(activation)
    dtype = out.info.numpy
    if out.dtype in FLOATS:
        low, high = limits_of(dtype, least, most)
        return unary(node, lambda values: limit(values, low, high))
    scale, zero = scale_of(node, out)
    act = activation_range(activation, dtype, scale, zero)
    params = scale_params(scale_of(node, x), (scale, zero), act, dtype.name, single=True)
    return coded(node, lambda codes: scale_quantized(codes, params))


relu = partial(_rectifier, activation="relu")
relu6 = partial(_rectifier, activation="relu6")
relu_n1_to_1 = partial(_rectifier, activation="relu_n1_to_1")
relu_0_to_1 = partial(_rectifier, activation="relu_0_to_1")


def leaky_relu(node: Node) -> Execute:
    """Compute ``x`` for positive ``x``, else ``alpha * x``."""
    out = node.results[0]
    require_dtype(node, out, *FLOATS, *CODES)
    dtype, alpha = out.info.numpy, np.float32(option(node, "alpha"))
    if out.dtype in FLOATS:
        return unary(node, _leaky(dtype.type(alpha), dtype))
    params = leaky_params(scale_of(node, node.operand(0)), float(alpha), scale_of(node, out), dtype.name)
    return coded(node, lambda codes: leaky_quantized(codes, params))


def _leaky(slope: np.floating[Any], dtype: np.dtype) -> Callable[[Array], Array]:
    """Return the leaky ReLU: the maximum of ``x`` and ``slope * x``, or the minimum if the slope is above 1."""
    if not slope:  # 0 * infinity would be NaN
        return lambda x: in_pieces(lambda x: choose(x > 0, x, x * slope), x, dtype)
    better = np.maximum if slope <= 1 else np.minimum

    def compute(x: Array) -> Array:
        result = np.empty(x.shape, dtype)
        for part, target in pieces(x, result):
            np.multiply(part, slope, out=target)
            better(part, target, out=target)
        return result

    return compute


def prelu(node: Node) -> Execute:
    """Compute ``x`` for ``x >= 0``, else ``alpha * x``. ``alpha`` broadcasts to ``x``."""
    out, dtype = node.results[0], node.results[0].info.numpy
    require_dtype(node, out, *FLOATS, *CODES)
    compute: Callable[[Array, Array], Array]
    few: Callable[[Array, Array], Array] | None = None
    if out.dtype in FLOATS:

        def few(x: Array, alpha: Array) -> Array:
            return choose(x >= 0, x, x * alpha)

        def compute(x: Array, alpha: Array) -> Array:
            return in_pairs(few, x, alpha, dtype)

    else:
        x, alpha = scale_of(node, node.operand(0)), scale_of(node, node.operand(1))
        params = prelu_params(x, alpha, scale_of(node, out), dtype.name)
        wide = of_reals16(node, lambda x, alpha: np.where(x >= 0, x, x * alpha))
        compute = wide or coded_pairs(node, lambda x, alpha: prelu_codes(x, alpha, params))

    def check(x: tuple[int, ...], alpha: tuple[int, ...]) -> None:
        if x != alpha and np.broadcast_shapes(x, alpha) != x:
            raise input_error(node, f"alpha {list(alpha)} must broadcast to the input {list(x)}")

    return broadcasting(node, compute, few, check)


def gelu(node: Node) -> Execute:
    """Compute ``x`` times the cumulative distribution function of the standard normal distribution at ``x``."""
    if bool(option(node, "approximate")):
        return real_function(node, special.gelu_tanh, tabulated=special.gelu_tanh_exact)
    is_litert = node.context.numerics == "litert"
    return real_function(node, special.gelu_exact if is_litert else special.gelu, tabulated=special.gelu_exact)


def hard_swish(node: Node) -> Execute:
    """Compute ``x * clamp(x + 3, 0, 6) / 6``."""
    out = node.results[0]
    if out.dtype not in EIGHT_BIT:
        return real_function(node, special.hard_swish)
    params = hard_swish_params(scale_of(node, node.operand(0)), scale_of(node, out), out.info.numpy.name)
    if params.out_exponent > 0:
        raise unsupported(node, "the result's scale is finer than 1/128 of the input's")
    return coded(node, lambda codes: hard_swish_codes(codes, params))


def _sigmoid(
    node: Node,
    function: Callable[[Array], Array],
    of_codes: Callable[[Array, SigmoidParams], Array],
    largest_shift: int,
) -> Execute:
    if node.results[0].dtype != "int16":
        return real_function(node, function)
    if (scale := _plain_scale16(node)) is None:
        return function_of_codes16(node, function, interpolated=False)
    params = sigmoid_params(scale, largest_shift=largest_shift)
    return coded(node, lambda codes: of_codes(codes, params))


def _plain_scale16(node: Node) -> float | None:
    """Return the operand's scale if zero points are 0 and the result's scale is 1/32768, as in TensorFlow Lite."""
    (scale, zero), (out_scale, out_zero) = scale_of(node, node.operand(0)), scale_of(node, node.results[0])
    usual = abs(out_scale * (1 << 15) - 1) < _TOLERANCE and scale < _LARGEST_SCALE_16
    return scale if usual and not (zero or out_zero) else None


elu = partial(real_function, function=special.elu)
logistic = partial(_sigmoid, function=lut.logistic, of_codes=logistic16, largest_shift=0)
tanh = partial(_sigmoid, function=np.tanh, of_codes=tanh16, largest_shift=1)


def softmax(node: Node) -> Execute:
    """Compute the softmax along the last axis.

    8-bit codes use TFLite's fixed-point algorithm if the result has the scale 1/256, else ONE's float table.
    """
    x, out, beta = node.operand(0), node.results[0], float(option(node, "beta"))
    require_dtype(node, x, *FLOATS, *CODES)
    dtype = out.info.numpy
    if out.dtype in FLOATS:
        return unary(
            node, lambda values: softmax_float(values.astype(np.float32, copy=False), beta).astype(dtype, copy=False)
        )
    scale, _ = scale_of(node, x)
    out_scale, out_zero = scale_of(node, out)
    if x.dtype not in EIGHT_BIT:
        if abs(out_scale * (1 << 15) - 1) < _TOLERANCE and not out_zero:
            wide = softmax16_params(scale, beta)
            return unary(node, lambda codes: softmax16_codes(codes, *wide))
        step = np.float32(scale)

        def by_reals(codes: Array) -> Array:
            reals = softmax_float(codes.astype(np.float32) * step, beta)
            return quantize_real(reals, np.float32(out_scale), out_zero, dtype)

        return unary(node, lambda codes: in_rows(by_reals, codes, dtype))
    if abs(out_scale * (1 << out.info.bits) - 1) < _TOLERANCE and out_zero == code_range(dtype)[0]:
        params = softmax_params(scale, beta)
        return unary(node, lambda codes: softmax_codes(codes, *params, dtype))
    return unary(node, lambda codes: softmax_float_table(codes, scale, beta, out_scale, out_zero, dtype))


def log_softmax(node: Node) -> Execute:
    """Compute the logarithm of the softmax along the last axis. 8-bit results have the scale 1/16."""
    x, out = node.operand(0), node.results[0]
    require_dtype(node, x, *FLOATS, *EIGHT_BIT)
    dtype = out.info.numpy
    if out.dtype in FLOATS:

        def of_reals(rows: Array) -> Array:
            return log_softmax_float(rows.astype(np.float32, copy=False))

        return unary(node, lambda reals: in_rows(of_reals, reals, dtype, PART_ELEMENTS))
    _require_log_scale(node, out)
    scale, _ = scale_of(node, x)
    params, zero = log_softmax_params(scale), code_range(dtype)[1]
    return unary(node, lambda codes: log_softmax_codes(codes, *params, zero, dtype))


def _require_log_scale(node: Node, out: TensorInfo) -> None:
    scale, zero = scale_of(node, out)
    wanted = code_range(out.info.numpy)[1]
    if abs(scale / _LOG_SOFTMAX_SCALE - 1) > _TOLERANCE or zero != wanted:
        raise unsupported(
            node,
            f"the result has scale {scale:g} and zero point {zero}; {_LOG_SOFTMAX_SCALE} and {wanted} are supported",
        )
