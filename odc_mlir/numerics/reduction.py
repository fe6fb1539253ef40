"""Reductions over axes: quantised mean, sum and product, maximum and minimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import fixed
from odc_mlir.numerics.pieces import PART_ELEMENTS, parts, reduce


def sum_params(in_scale: float, out_scale: float) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of a sum of codes."""
    return fixed.quantize_multiplier(float(np.float64(np.float32(in_scale)) / np.float64(np.float32(out_scale))))


def mean_params(in_scale: float, out_scale: float, count: int) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of a mean over ``count`` elements, including the division."""
    multiplier, exponent = sum_params(in_scale, out_scale)
    shift = max(min(count.bit_length() - 1, 32, 31 + exponent), 0)
    return (multiplier << shift) // count, exponent - shift


def codes_mean(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    params: tuple[int, int],
    in_zero: int,
    out_zero: int,
    act: tuple[int, int],
    dtype: str | np.dtype[Any],
    *,
    keep_dims: bool = True,
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function from codes of ``shape`` to the mean or sum over ``axes``, clamped to ``act``.

    ``params`` is the (multiplier, exponent) of :func:`mean_params` or :func:`sum_params`.
    """
    finish = fixed.Requantizer(*params, out_zero, *act, dtype)
    count = math.prod(shape[a] for a in axes)
    offset = np.array(in_zero * count, np.int64)

    def compute(x: NDArray[Any]) -> NDArray[Any]:
        sums = reduce(np.add, x, axes, np.int64, keep=keep_dims)
        return finish(fixed.wrap32(sums - offset))

    return compute


def product_params(in_scale: float, out_scale: float, count: int) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of one step of a product of ``count`` codes.

    Each step applies an equal share of the result's scale. The running product then stays in range.
    """
    share = float(np.float32(out_scale)) ** (1.0 / count)
    return fixed.quantize_multiplier(float(np.float32(in_scale)) / share)


def product_codes(
    x: NDArray[Any],
    axes: tuple[int, ...],
    multiplier: int,
    exponent: int,
    in_zero: int,
    out_zero: int,
    low: int,
    high: int,
    dtype: str | np.dtype[Any],
    *,
    keep_dims: bool = True,
) -> NDArray[Any]:
    """Return the product of codes over ``axes`` in row-major order, rounded after each step.

    No axis may be empty.
    """
    kept = [i for i in range(x.ndim) if i not in axes]
    count = math.prod(x.shape[i] for i in axes)

    def codes_of(x: NDArray[Any]) -> NDArray[Any]:
        source = np.ascontiguousarray(x.transpose(*axes, *kept).reshape(count, -1))
        products = fixed.multiply64(_products(source, multiplier, exponent, in_zero), multiplier, exponent)
        codes = np.clip(products.astype(np.int64) + out_zero, low, high).astype(dtype)
        return codes.reshape([1 if i in axes else d for i, d in enumerate(x.shape)])

    if x.size <= PART_ELEMENTS:
        out = codes_of(x)
    else:
        out = np.empty([1 if i in axes else d for i, d in enumerate(x.shape)], dtype)
        for place in parts(x.shape, axes, PART_ELEMENTS):
            out[place] = codes_of(x[place])
    return out if keep_dims else out.reshape([x.shape[i] for i in kept])


def _products(source: NDArray[Any], multiplier: int, exponent: int, in_zero: int) -> NDArray[np.int64]:
    factors = np.subtract(source, in_zero, dtype=np.int64)
    total: NDArray[np.int64] = factors[0]
    for row in factors[1:]:
        total = fixed.multiply64(total * row, multiplier, exponent).astype(np.int64)
    return total


def extreme(x: NDArray[Any], axes: tuple[int, ...], *, largest: bool, keep_dims: bool = True) -> NDArray[Any]:
    """Return the largest or smallest elements over ``axes``. NaN is ignored.

    Without any number, a maximum is the lowest value of the type, a minimum the highest. For floats, these are
    infinite.
    """
    if x.dtype.kind == "b":
        return np.asarray((np.any if largest else np.all)(x, axis=axes, keepdims=keep_dims))
    better: Any = np.fmax if largest else np.fmin
    ends: Any = (-np.inf, np.inf) if x.dtype.kind == "f" else fixed.code_range(x.dtype)
    return np.asarray(better.reduce(x, axis=axes, keepdims=keep_dims, initial=ends[not largest]), x.dtype)
