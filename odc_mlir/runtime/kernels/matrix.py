"""BATCH_MATMUL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import code_range, quantize_multiplier, requantize, requantize64
from odc_mlir.numerics.matmul import compute_dtype, largest_magnitude, narrow
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, scale_of, unsupported

Product = Callable[[Array, Array], Array]


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
    if dtypes == ("int8", "int8", "int32"):
        return lambda a, b: _sums(a, b, "int32")
    if dtypes not in (("int8",) * 3, ("int16",) * 3):
        raise unsupported(node, f"products of {dtypes[0]} and {dtypes[1]} as {dtypes[2]} are not supported")
    return _quantised(node)


def _quantised(node: Node) -> Product:
    a_info, b_info, out = node.operand(0), node.operand(1), node.results[0]
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = (scale_of(node, i) for i in (a_info, b_info, out))
    q, e = quantize_multiplier(float(real_multipliers(a_scale, (b_scale,), y_scale, single_product=True)[0]))
    low, high = code_range(out.info.numpy)
    wide = out.dtype == "int16"
    sums, scale = ("int64", requantize64) if wide else ("int32", requantize)

    def product(a: Array, b: Array) -> Array:
        left, right = a.astype(np.int32) - a_zero, b.astype(np.int32) - b_zero
        return scale(_sums(left, right, sums), q, e, y_zero, low, high, out.info.numpy)

    return product


def _sums(a: Array, b: Array, dtype: str) -> Array:
    """Exact integer products ``a @ b``, wrapped to ``dtype``; batched through floating-point BLAS."""
    bound = max(1, largest_magnitude(a)) * max(1, largest_magnitude(b)) * max(1, a.shape[-1])
    compute = compute_dtype(bound)
    return narrow(a.astype(compute) @ b.astype(compute), np.dtype(dtype))
