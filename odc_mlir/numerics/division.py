"""Division of codes by a fixed-point reciprocal, of integers as in C, and of reals. Integer powers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.elementwise import MulParams
from odc_mlir.numerics.fixed import quantize_multiplier, rdbpot, srdhm
from odc_mlir.numerics.pieces import clamp, in_pairs
from odc_mlir.numerics.transcendental import leading_zeros, reciprocal

Array = NDArray[Any]
Quant = tuple[float, int]


def div_params(a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> MulParams:
    """Return parameters of a division of tensors with these (scale, zero point) pairs, computed in float32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        real = np.float32(a[0]) / np.float32(np.float32(b[0]) * np.float32(out[0]))
    return MulParams(a[1], b[1], out[1], *quantize_multiplier(float(real)), *act, dtype)


def div_quantized(a: Array, b: Array, p: MulParams) -> Array:
    """Return codes of ``a / b``. Operands broadcast. ``b`` must not contain zeros.

    A shift by more than 31 bits, undefined in the C kernels, gives zero here.
    """

    def compute(a: Array, b: Array) -> Array:
        top, bottom = a.astype(np.int64) - p.a_zero, b.astype(np.int64) - p.b_zero
        top = np.where(bottom < 0, -top, top)
        inverse, over = reciprocal(np.maximum(np.abs(bottom), 1), 31)
        headroom = sign_bits(top)
        quotient = srdhm(top << headroom, inverse)
        shift = over + headroom - p.exponent
        scaled = srdhm(quotient, p.multiplier).astype(np.int64)
        left = np.clip(-shift, 0, 31)
        codes = rdbpot(scaled << left, np.clip(shift, 0, 62)) + np.int64(p.out_zero)
        return clamp(codes, p.act_min, p.act_max)

    return in_pairs(compute, a, b, p.dtype)


def sign_bits(x: Array) -> NDArray[np.int64]:
    """Return the number of redundant sign bits of int32 values, which is the largest left shift."""
    magnitude = np.where(x >= 0, x, 2 * -x - 1)
    return leading_zeros(magnitude) - np.where(x >= 0, 1, 0)


def truncated_quotient(a: Array, b: Array) -> Array:
    """Return ``a / b`` of integers, rounded toward zero, wrapping on overflow. ``b`` must not contain 0."""
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact, quotient.dtype)


def floor_quotient(a: Array, b: Array) -> Array:
    """Return ``floor(a / b)``, for reals in float64. The smallest integer divided by -1 wraps."""
    if a.dtype.kind == "f":
        return np.asarray(np.floor(np.divide(a, b, dtype=np.float64)), a.dtype)
    return np.asarray(np.floor_divide(a, b))


def floor_remainder(a: Array, b: Array) -> Array:
    """Return ``a - b * floor(a / b)``, with the sign of ``b``. An integer ``b`` must not contain 0."""
    with np.errstate(all="ignore"):
        return np.asarray(np.remainder(a, b))


def integer_power(a: Array, b: Array) -> Array:
    """Return ``a`` to the power of ``b >= 0`` in int32. Overflow gives the smallest integer.

    Repeated squaring uses integers if no result overflows, else float64, which is exact up to 2^53.
    """
    shape = np.broadcast_shapes(a.shape, b.shape)
    if not math.prod(shape):
        return np.empty(shape, np.int32)
    limits = np.iinfo(np.int32)
    # Powers with exponents >= 62 overflow, except powers of -1, 0 and 1. These depend only on the exponent's parity.
    left = np.minimum(b, 62 | (b & 1)) if int(b.max()) > 62 else b
    if max(int(a.max()), -int(a.min())) ** int(left.max()) <= limits.max:
        return np.broadcast_to(_power(a, left), shape).astype(np.int32, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.broadcast_to(_power(a.astype(np.float64), left), shape)
    outside = (result < limits.min) | (result > limits.max)
    return np.where(outside, limits.min, result).astype(np.int32) if outside.any() else result.astype(np.int32)


def _power(base: Array, exponent: Array) -> Array:
    one = base.dtype.type(1)
    result: Array | None = None
    while True:
        odd = (exponent & 1).astype(bool)
        if odd.any():
            factor = base if odd.all() else np.where(odd, base, one)
            result = factor if result is None else result * factor
        exponent = exponent >> 1
        if not exponent.any():
            return np.full_like(base, one) if result is None else result
        base = base * base
