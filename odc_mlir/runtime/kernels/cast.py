"""Conversions between element types: CAST, BITCAST."""

from __future__ import annotations

import numpy as np

from odc_mlir.numerics import casts
from odc_mlir.ops.infer.common import require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import input_error, unsupported
from odc_mlir.runtime.kernels.unary import unary

_WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMBERS = ("float32", "float16", "bfloat16", "float64", *_WHOLE, "bool", "complex64")
_FOUR_BIT = ("int4", "uint4")


def cast(node: Node) -> Execute:
    """Convert to another type: reals saturate, integers wrap, complex numbers lose the imaginary part."""
    x, out = node.operand(0), node.results[0]
    for info, other in ((x, out), (out, x)):
        require_dtype(node, info, *_NUMBERS, *_FOUR_BIT)
        if info.dtype in _FOUR_BIT and other.dtype not in ("float32", info.dtype):
            raise unsupported(
                node, f"a cast from {x.dtype} to {out.dtype} is not supported; {info.dtype} goes with float32"
            )
    dtype = out.info.numpy
    if x.dtype == out.dtype:
        return unary(node, lambda values: values)
    if out.dtype in _FOUR_BIT:
        low, high = out.info.range
        return unary(node, lambda values: casts.to_integers(values, dtype, low, high))
    if out.dtype == "bfloat16":
        return unary(node, lambda values: casts.round_bfloat16(casts.cast(values, dtype)))
    if x.info.kind == "float" and dtype.kind in "iu":
        return unary(node, casts.integer_converter(x.info.numpy, dtype))
    if x.info.kind in ("int", "uint", "bool") and dtype.kind in "iu":
        return unary(node, lambda values: values.astype(dtype))
    return unary(node, lambda values: casts.cast(values, dtype))


def bitcast(node: Node) -> Execute:
    """Reinterpret the bytes as elements of another type."""
    x, out = node.operand(0), node.results[0]
    for info in (x, out):
        if info.info.bits != 8 * info.info.numpy.itemsize:
            raise unsupported(node, f"element type {info.dtype} is not supported")
    source, target = x.info.numpy, out.info.numpy

    def compute(values: Array) -> Array:
        data: Array = np.ascontiguousarray(values).reshape(values.shape)
        if source.itemsize == target.itemsize:
            return data.view(target)
        if source.itemsize > target.itemsize:
            return data.reshape(*data.shape, 1).view(target)
        if not data.ndim or data.shape[-1] * source.itemsize != target.itemsize:
            raise input_error(node, f"the input has the shape {list(data.shape)}; its rows must make up {out.dtype}")
        return data.view(target).reshape(data.shape[:-1])

    return unary(node, compute)
