"""Element-wise arithmetic: ADD, SUB, MUL, DIV."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.elementwise import (
    AddParams,
    add_params,
    add_quantized,
    mul_params,
    mul_quantized,
    sub_quantized,
)
from odc_mlir.numerics.int16 import power_add, power_add_params
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import (
    activation_codes,
    fetch,
    input_error,
    real_clamp,
    scale_of,
    unsupported,
)

Compute = Callable[[Array, Array], Array]
_PLAIN = ("float32", "int32", "int64")


def broadcasting(node: Node, compute: Compute) -> Execute:
    """The kernel of a two-operand function; operands that cannot be broadcast, or only to too much, are refused."""
    a_of, b_of, dtype = fetch(node, 0), fetch(node, 1), node.results[0].dtype

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        a, b = a_of(operands), b_of(operands)
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise input_error(node, f"shapes {list(a.shape)} and {list(b.shape)} cannot be broadcast") from None
        check_elements(node, shape, dtype)
        return [compute(a, b)]

    return execute


def plain(node: Node, compute: Compute) -> Execute:
    """The kernel of a two-operand function on real values or plain integers, with its fused activation."""
    clamp = real_clamp(node)
    if clamp is None:
        return broadcasting(node, compute)

    def clamped(a: Array, b: Array) -> Array:
        return clamp(np.asarray(compute(a, b)))

    return broadcasting(node, clamped)


def add(node: Node) -> Execute:
    """``a + b``."""
    if node.results[0].dtype in _PLAIN:
        return plain(node, np.add)
    return _quantised_sum(node, add_quantized, subtract=False)


def sub(node: Node) -> Execute:
    """``a - b``."""
    if node.results[0].dtype in _PLAIN:
        return plain(node, np.subtract)
    return _quantised_sum(node, sub_quantized, subtract=True)


def _quantised_sum(node: Node, compute: Callable[[Array, Array, AddParams], Array], *, subtract: bool) -> Execute:
    out, act = node.results[0], activation_codes(node, node.results[0])
    a, b, y = scale_of(node, node.operand(0)), scale_of(node, node.operand(1)), scale_of(node, out)
    if out.dtype == "int16" and node.options.get("pot_scale_int16", True) and not (a[1] or b[1] or y[1]):
        shifts = power_add_params(a[0], b[0], y[0], act)
        if shifts is not None:
            return broadcasting(node, lambda a, b: power_add(a, b, shifts, subtract=subtract))
    params = add_params(a, b, y, act, out.info.numpy.name)
    return broadcasting(node, lambda a, b: compute(a, b, params))


def mul(node: Node) -> Execute:
    """``a * b``."""
    out = node.results[0]
    if out.dtype in _PLAIN:
        return plain(node, np.multiply)
    a, b = scale_of(node, node.operand(0)), scale_of(node, node.operand(1))
    params = mul_params(a, b, scale_of(node, out), activation_codes(node, out), out.info.numpy.name)
    return broadcasting(node, lambda a, b: mul_quantized(a, b, params))


def div(node: Node) -> Execute:
    """``a / b``; integers are divided with truncation toward zero."""
    out = node.results[0]
    if out.dtype == "float32":
        return plain(node, _divide)
    if out.dtype != "int32":
        raise unsupported(node, f"element type {out.dtype} is not supported; supported are float32, int32")

    def divide(a: Array, b: Array) -> Array:
        if not b.all():
            raise input_error(node, "division by zero")
        wide = a.astype(np.int64)
        quotient: Array = (np.sign(wide) * np.sign(b) * (np.abs(wide) // np.abs(b.astype(np.int64)))).astype(np.int32)
        return quotient

    return plain(node, divide)


def _divide(a: Array, b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(a / b)
