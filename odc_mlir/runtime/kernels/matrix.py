"""BATCH_MATMUL."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer, code_range, quantize_multipliers
from odc_mlir.numerics.hybrid import quantize_rows
from odc_mlir.numerics.matmul import compute_dtype, largest_magnitude, narrow, product_in_order
from odc_mlir.numerics.pieces import Place, part_of, parts
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import check_scales, computed, input_error, scale_of, unsupported

Product = Callable[[Array, Array], Array]

_NO_ZERO = np.zeros(1, np.int32)
_PART_BYTES = 1 << 22  # size of the operands and sums of a part of a product

# Element types of right matrices, by type of the left matrix and result.
_NARROW = ("int8", "uint8", "int4", "uint4")
_RIGHT_OF = {"int8": _NARROW, "uint8": _NARROW, "int16": (*_NARROW, "int16")}


def batch_matmul(node: Node) -> Execute:
    """Multiply ``[..., M, K] @ [..., K, N]``. Leading axes broadcast."""
    flip_a, flip_b = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
    product = _product(node)

    def compute(a: Array, b: Array) -> Array:
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
        return product(a, b)

    return computed(node, compute)


def _product(node: Node) -> Product:
    dtypes = tuple(info.dtype for info in (node.operand(0), node.operand(1), node.results[0]))
    if dtypes == ("float32",) * 3:
        return product_in_order if node.context.numerics == "litert" else lambda a, b: np.asarray(a @ b, np.float32)
    if dtypes == ("float32", "int8", "float32"):
        return _hybrid(node)
    if dtypes == ("int8", "int8", "int32"):
        multiply = _product_of_codes(_NO_ZERO, _NO_ZERO, "int32", np.dtype(np.int32))
        return lambda a, b: multiply(a, b, lambda sums, _: sums)
    if dtypes[2] != dtypes[0] or dtypes[1] not in _RIGHT_OF.get(dtypes[0], ()):
        raise unsupported(node, f"products of {dtypes[0]} and {dtypes[1]} as {dtypes[2]} are not supported")
    return _quantised(node)


def code_parameters(node: Node) -> tuple[int, Array, Array, Array]:
    """Return the left zero point, and right zero points, multipliers and exponents: one, or one per column."""
    a_scale, a_zero = scale_of(node, node.operand(0))
    y_scale, _ = scale_of(node, node.results[0])
    b_scales, b_zeros = _columns(node)
    scales = tuple(float(scale) for scale in b_scales)
    multipliers = real_multipliers(a_scale, scales, y_scale, single_product=len(scales) == 1)
    return a_zero, b_zeros, *quantize_multipliers(multipliers)


def _quantised(node: Node) -> Product:
    out = node.results[0]
    a_zero, b_zeros, q, e = code_parameters(node)
    _, y_zero = scale_of(node, out)
    low, high = code_range(out.info.numpy)
    kind = WideRequantizer if out.dtype == "int16" else Requantizer
    whole = kind(q, e, y_zero, low, high, out.info.numpy)

    def finish(sums: Array, place: Place) -> Array:
        if len(b_zeros) in (1, sums.shape[-1]):
            return whole(sums)
        return kind(part_of(q, place), part_of(e, place), y_zero, low, high, out.info.numpy)(sums)

    multiply = _product_of_codes(
        np.array([a_zero], np.int32), b_zeros, "int64" if out.dtype == "int16" else "int32", out.info.numpy
    )
    return lambda a, b: multiply(a, b, finish)


def _hybrid(node: Node) -> Product:
    """Return the product of left rows, quantised dynamically, and right codes."""
    asymmetric = bool(option(node, "asymmetric_quantize_inputs"))
    scales, zeros = _columns(node)
    multiply = _product_of_codes(_NO_ZERO, zeros, "int32", np.dtype(np.float32))

    def product(a: Array, b: Array) -> Array:
        rows = quantize_rows(a.reshape(-1, a.shape[-1]), asymmetric=asymmetric)
        factors = rows.scales.reshape(*a.shape[:-1], 1)

        def finish(sums: Array, place: Place) -> Array:
            return np.asarray(sums.astype(np.float32) * (part_of(factors, place) * part_of(scales, place)))

        return multiply(rows.centred.reshape(a.shape), b, finish)

    return product


def _columns(node: Node) -> tuple[Array, Array]:
    """Return the right matrices' scales (float32) and zero points, as arrays of one element or one per column."""
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


def _centred(x: Array, zeros: Array | None, dtype: np.dtype, place: Place = ()) -> Array:
    shifted = x.astype(dtype)
    if zeros is not None:
        shifted -= part_of(zeros, place).astype(dtype)
    return shifted


def _product_of_codes(
    a_zeros: Array, b_zeros: Array, sums: str, dtype: np.dtype
) -> Callable[[Array, Array, Callable[[Array, Place], Array]], Array]:
    """Return a function that computes exact products ``a [..., M, K] @ b [..., K, N]`` of codes by BLAS, in parts.

    ``a_zeros`` has one element. ``b_zeros`` has one element, or one per column. The function's third argument maps sums
    and the position of the sums (empty for the whole product) to results of ``dtype``.
    """
    wide, a_zero, zeros = np.dtype(sums), int(a_zeros[0]), {int(b_zeros.min()), int(b_zeros.max())}
    a_shift, b_shift = (shift if shift.any() else None for shift in (a_zeros, b_zeros))

    def multiply(a: Array, b: Array, finish: Callable[[Array, Place], Array]) -> Array:
        rows, depth, columns = *a.shape[-2:], b.shape[-1]
        largest = max(1, *(largest_magnitude(b, zero) for zero in zeros)) * max(1, largest_magnitude(a, a_zero))
        compute = compute_dtype(largest * max(1, depth))
        shape = (*(a.shape[:-2] if b.ndim == 2 else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])), rows, columns)
        if (a.size + b.size + 2 * math.prod(shape)) * compute.itemsize <= _PART_BYTES:
            return finish(narrow(_centred(a, a_shift, compute) @ _centred(b, b_shift, compute), wide), ())
        out = np.empty(shape, dtype)
        most = max(_PART_BYTES, (a.nbytes + b.nbytes + out.nbytes) // 2) // compute.itemsize
        product = rows * depth + depth * columns + 2 * rows * columns  # elements of operands and sums
        side = max(1, int((math.sqrt(depth**2 + 2 * most) - depth) / 2))  # of a square part with ``most`` elements
        least = (*(1,) * (len(shape) - 2), side, side)
        for place in parts(shape, (), most * rows * columns // max(product, 1), least):
            *lead, of_rows, of_columns = place
            left = _centred(part_of(a, (*lead, of_rows, slice(None))), a_shift, compute)
            right = _centred(part_of(b, (*lead, slice(None), of_columns)), b_shift, compute, place)
            out[place] = finish(narrow(left @ right, wide), place)
        return out

    return multiply
