"""BATCH_MATMUL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer, code_range, quantize_multipliers
from odc_mlir.numerics.hybrid import quantize_rows
from odc_mlir.numerics.matmul import compute_dtype, largest_magnitude, narrow
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import check_scales, fetch, input_error, scale_of, unsupported

Product = Callable[[Array, Array], Array]

# Elements of right matrices that go with codes on the left; results have the left ones' type.
_NARROW = ("int8", "uint8", "int4", "uint4")
_RIGHT_OF = {"int8": _NARROW, "uint8": _NARROW, "int16": (*_NARROW, "int16")}


def batch_matmul(node: Node) -> Execute:
    """Multiply ``[..., M, K] @ [..., K, N]``; leading axes broadcast."""
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
    if dtypes[2] != dtypes[0] or dtypes[1] not in _RIGHT_OF.get(dtypes[0], ()):
        raise unsupported(node, f"products of {dtypes[0]} and {dtypes[1]} as {dtypes[2]} are not supported")
    return _quantised(node)


def _quantised(node: Node) -> Product:
    a_info, out = node.operand(0), node.results[0]
    (a_scale, a_zero), (y_scale, y_zero) = scale_of(node, a_info), scale_of(node, out)
    b_scales, b_zeros = _columns(node)
    scales = tuple(float(scale) for scale in b_scales)
    q, e = quantize_multipliers(real_multipliers(a_scale, scales, y_scale, single_product=len(scales) == 1))
    low, high = code_range(out.info.numpy)
    finish = (WideRequantizer if out.dtype == "int16" else Requantizer)(q, e, y_zero, low, high, out.info.numpy)
    sums = "int64" if out.dtype == "int16" else "int32"

    def product(a: Array, b: Array) -> Array:
        return finish(_sums(a.astype(np.int32) - a_zero, b.astype(np.int32) - b_zeros, sums))

    return product


def _hybrid(node: Node) -> Product:
    """Return the product of dynamically quantised left rows and codes on the right."""
    asymmetric = bool(option(node, "asymmetric_quantize_inputs"))
    scales, zeros = _columns(node)

    def product(a: Array, b: Array) -> Array:
        rows = quantize_rows(a.reshape(-1, a.shape[-1]), asymmetric=asymmetric)
        sums = _sums(rows.centred.reshape(a.shape), b.astype(np.int32) - zeros, "int32").astype(np.float32)
        return np.asarray(sums * (rows.scales.reshape(*a.shape[:-1], 1) * scales), np.float32)

    return product


def _columns(node: Node) -> tuple[Array, Array]:
    """Return scales (float32) and zero points of the right matrices, each one or one per column."""
    info = node.operand(1)
    if info.quant is None or info.quant.per_tensor:
        scale, zero = scale_of(node, info)
        return np.array([scale], np.float32), np.array([zero], np.int32)
    shape, quant = info.static_shape, info.quant
    check_scales(node, info, quant.scales)
    column = len(shape) - (2 if option(node, "adjoint_rhs") else 1)
    if quant.axis != column or len(quant.scales) != shape[column]:
        raise unsupported(node, f"scales of {info.name!r} along axis {quant.axis} are not one per column")
    low, high = info.info.range
    if not all(low <= zero <= high for zero in quant.zero_points):
        raise node.error(f"a zero point of {info.name!r} is outside {info.dtype}'s {low} to {high}")
    return np.asarray(quant.scales, np.float32), np.asarray(quant.zero_points, np.int32)


def _sums(a: Array, b: Array, dtype: str) -> Array:
    """Return exact integer products ``a @ b``, wrapped to ``dtype``, by floating-point BLAS."""
    bound = max(1, largest_magnitude(a)) * max(1, largest_magnitude(b)) * max(1, a.shape[-1])
    compute = compute_dtype(bound)
    return narrow(a.astype(compute) @ b.astype(compute), np.dtype(dtype))
