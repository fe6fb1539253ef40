"""BATCH_MATMUL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import code_range, quantize_multiplier, requantize, requantize64
from odc_mlir.numerics.hybrid import quantize_rows
from odc_mlir.numerics.matmul import compute_dtype, largest_magnitude, narrow
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import check_scales, fetch, input_error, scale_of, unsupported

Product = Callable[[Array, Array], Array]

_CODES = (("int8",) * 3, ("int16",) * 3, ("int16", "int8", "int16"))


def batch_matmul(node: Node) -> Execute:
    """``[..., M, K] @ [..., K, N]``; leading axes broadcast."""
    a_of, b_of = fetch(node, 0), fetch(node, 1)
    flip_a, flip_b = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
    product = _product(node)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        a, b = a_of(operands), b_of(operands)
        if min(a.ndim, b.ndim) < 2:
            raise input_error(node, f"shapes {list(a.shape)} and {list(b.shape)} are not matrices")
        a, b = (a.swapaxes(-1, -2) if flip_a else a), (b.swapaxes(-1, -2) if flip_b else b)
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            batch = None
        if batch is None or a.shape[-1] != b.shape[-2]:
            raise input_error(node, f"matrices {list(a.shape)} and {list(b.shape)} cannot be multiplied")
        check_elements(node, (*batch, a.shape[-2], b.shape[-1]), node.results[0].dtype)
        return [product(a, b)]

    return execute


def _product(node: Node) -> Product:
    dtypes = tuple(info.dtype for info in (node.operand(0), node.operand(1), node.results[0]))
    if dtypes == ("float32",) * 3:
        return lambda a, b: np.asarray(a @ b, np.float32)
    if dtypes == ("float32", "int8", "float32"):
        return _hybrid(node)
    if dtypes == ("int8", "int8", "int32"):
        return lambda a, b: _sums(a, b, "int32")
    if dtypes not in _CODES:
        raise unsupported(node, f"products of {dtypes[0]} and {dtypes[1]} as {dtypes[2]} are not supported")
    return _quantised(node)


def _quantised(node: Node) -> Product:
    a_info, b_info, out = node.operand(0), node.operand(1), node.results[0]
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = (scale_of(node, i) for i in (a_info, b_info, out))
    q, e = quantize_multiplier(float(real_multipliers(a_scale, (b_scale,), y_scale, single_product=True)[0]))
    low, high = code_range(out.info.numpy)
    wide = out.dtype == "int16"
    if wide and (a_zero, b_zero, y_zero) != (0, 0, 0):
        raise unsupported(node, f"zero points {a_zero}, {b_zero} and {y_zero} of 16-bit products must be 0")
    sums, scale = ("int64", requantize64) if wide else ("int32", requantize)

    def product(a: Array, b: Array) -> Array:
        left, right = a.astype(np.int32) - a_zero, b.astype(np.int32) - b_zero
        return scale(_sums(left, right, sums), q, e, y_zero, low, high, out.info.numpy)

    return product


def _hybrid(node: Node) -> Product:
    """Left matrices are quantised row by row, on the fly; right ones are symmetric, with scales per column or one."""
    quant, asymmetric = node.operand(1).quant, bool(option(node, "asymmetric_quantize_inputs"))
    if quant is None:
        raise node.error(f"int8 tensor {node.operand(1).name!r} has no scale", hint="quantise the model again")
    check_scales(node, node.operand(1), quant.scales)
    if not quant.per_tensor:
        rank = len(node.operand(1).static_shape)
        column = rank - 2 if option(node, "adjoint_rhs") else rank - 1
        if quant.axis != column or len(quant.scales) != node.operand(1).static_shape[column]:
            raise unsupported(
                node, f"scales of {node.operand(1).name!r} along axis {quant.axis} are not one per column"
            )
    scales = np.asarray(quant.scales, np.float32)

    def product(a: Array, b: Array) -> Array:
        rows = quantize_rows(a.reshape(-1, a.shape[-1]), asymmetric=asymmetric)
        sums = _sums(rows.centred.reshape(a.shape), b, "int32").astype(np.float32)
        return np.asarray(sums * (rows.scales.reshape(*a.shape[:-1], 1) * scales), np.float32)

    return product


def _sums(a: Array, b: Array, dtype: str) -> Array:
    """Exact integer products ``a @ b``, wrapped to ``dtype``; batched through floating-point BLAS."""
    bound = max(1, largest_magnitude(a)) * max(1, largest_magnitude(b)) * max(1, a.shape[-1])
    compute = compute_dtype(bound)
    return narrow(a.astype(compute) @ b.astype(compute), np.dtype(dtype))
