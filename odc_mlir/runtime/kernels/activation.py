"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics import lut
from odc_mlir.numerics.elementwise import leaky_params, leaky_quantized, scale_params, scale_quantized
from odc_mlir.numerics.fixed import activation_bounds, activation_range, code_range
from odc_mlir.numerics.int16 import logistic16, sigmoid_params, softmax16_codes, softmax16_params, tanh16
from odc_mlir.numerics.softmax import softmax_codes, softmax_float, softmax_float_table, softmax_params
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import EIGHT_BIT, fetch, scale_of, unsupported

Function = Callable[[Array], Array]


def unary(node: Node, compute: Function) -> Execute:
    """The kernel of a one-operand function."""
    x_of = fetch(node, 0)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        return [compute(x_of(operands))]

    return execute


def coded(node: Node, compute: Function) -> Execute:
    """The kernel of a function from codes to codes: tabulated where there are only 256 of them."""
    dtype = node.operand(0).info.numpy
    if dtype.itemsize > 1:
        return unary(node, compute)
    table = lut.tabulate(compute, dtype)
    return unary(node, lambda x: lut.apply(table, x))


def _rectifier(node: Node, activation: str) -> Execute:
    x, out = node.operand(0), node.results[0]
    least, most = activation_bounds(activation)
    if out.dtype == "float32":
        low = None if least is None else np.float32(least)
        high = None if most is None else np.float32(most)
        return unary(node, lambda values: np.asarray(np.clip(values, low, high)))
    scale, zero = scale_of(node, out)
    act = activation_range(activation, out.info.numpy, scale, zero)
    params = scale_params(scale_of(node, x), (scale, zero), act, out.info.numpy.name, single=True)
    return coded(node, lambda codes: scale_quantized(codes, params))


def relu(node: Node) -> Execute:
    """``max(x, 0)``."""
    return _rectifier(node, "relu")


def relu6(node: Node) -> Execute:
    """``x`` clamped to [0, 6]."""
    return _rectifier(node, "relu6")


def relu_n1_to_1(node: Node) -> Execute:
    """``x`` clamped to [-1, 1]."""
    return _rectifier(node, "relu_n1_to_1")


def leaky_relu(node: Node) -> Execute:
    """``x`` where positive, else ``alpha * x``."""
    out, alpha = node.results[0], np.float32(option(node, "alpha"))
    if out.dtype == "float32":
        return unary(node, lambda x: np.where(x > 0, x, x * alpha))
    params = leaky_params(scale_of(node, node.operand(0)), float(alpha), scale_of(node, out), out.info.numpy.name)
    return coded(node, lambda codes: leaky_quantized(codes, params))


def real_function(node: Node, function: Function) -> Execute:
    """The kernel of a real function: float32, or 8-bit codes by a table."""
    x, out = node.operand(0), node.results[0]
    if out.dtype == "float32":
        return unary(node, function)
    if out.dtype not in EIGHT_BIT:
        raise unsupported(node, f"element type {out.dtype} is not supported")
    table = lut.real_table(function, scale_of(node, x), scale_of(node, out), x.info.numpy, out.info.numpy)
    return unary(node, lambda codes: lut.apply(table, codes))


def logistic(node: Node) -> Execute:
    """``1 / (1 + e^-x)``."""
    if node.results[0].dtype == "int16":
        params = sigmoid_params(scale_of(node, node.operand(0))[0], largest_shift=0)
        return unary(node, lambda codes: logistic16(codes, params))
    return real_function(node, lut.logistic)


def tanh(node: Node) -> Execute:
    """Hyperbolic tangent."""
    if node.results[0].dtype == "int16":
        params = sigmoid_params(scale_of(node, node.operand(0))[0], largest_shift=1)
        return unary(node, lambda codes: tanh16(codes, params))
    return real_function(node, np.tanh)


def softmax(node: Node) -> Execute:
    """Softmax along the last axis.

    8-bit codes use TFLite's fixed-point algorithm where the result has its scale (1/256), ONE's float table otherwise.
    """
    x, out, beta = node.operand(0), node.results[0], float(option(node, "beta"))
    if out.dtype == "float32":
        return unary(node, lambda values: softmax_float(values, beta))
    dtype = out.info.numpy
    scale, _ = scale_of(node, x)
    if x.dtype not in EIGHT_BIT:
        wide = softmax16_params(scale, beta)
        return unary(node, lambda codes: softmax16_codes(codes, *wide))
    out_scale, out_zero = scale_of(node, out)
    if abs(out_scale * (1 << out.info.bits) - 1) < 1e-3 and out_zero == code_range(dtype)[0]:
        params = softmax_params(scale, beta)
        return unary(node, lambda codes: softmax_codes(codes, *params, dtype))
    return unary(node, lambda codes: softmax_float_table(codes, scale, beta, out_scale, out_zero, dtype))
