"""Division: quantised by a fixed-point reciprocal, and of plain integers as C does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import quantize_multiplier, rdbpot, srdhm
from odc_mlir.numerics.pieces import clamp, in_pairs
from odc_mlir.numerics.transcendental import leading_zeros, reciprocal

Array = NDArray[Any]
Quant = tuple[float, int]

# Of integers of this size the rounded float64 quotient is never on the other side of a whole number.
_FLOAT64_BYTES = 4


@dataclass(frozen=True, slots=True)
class DivParams:
    """Integers of a quantised division."""

    a_zero: int
    b_zero: int
    out_zero: int
    multiplier: int
    exponent: int
    act_min: int
    act_max: int
    dtype: str = "int8"


def div_params(a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> DivParams:
    """Parameters of a division of tensors with these (scale, zero point) pairs; the multiplier is formed in float32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        real = np.float32(a[0]) / np.float32(np.float32(b[0]) * np.float32(out[0]))
    return DivParams(a[1], b[1], out[1], *quantize_multiplier(float(real)), *act, dtype)


def div_quantized(a: Array, b: Array, p: DivParams) -> Array:
    """Codes of ``a / b``; operands broadcast. Where ``b`` is zero the result is meaningless: the caller refuses those.

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
    """Redundant sign bits of int32 values: by how many bits each can be shifted left without overflow."""
    magnitude = np.where(x >= 0, x, 2 * -x - 1)
    return leading_zeros(magnitude) - np.where(x >= 0, 1, 0)


def truncated_quotient(a: Array, b: Array) -> Array:
    """``a / b`` of integers, rounded toward zero; the smallest integer by -1 wraps. ``b`` has no zero."""
    if a.dtype.itemsize <= _FLOAT64_BYTES:
        ratio = np.asarray(a.astype(np.float64) / b.astype(np.float64))
        return ratio.astype(np.int64).astype(a.dtype)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact, quotient.dtype)


def floor_quotient(a: Array, b: Array) -> Array:
    """``floor(a / b)``: of reals the floor of the rounded quotient, of integers exact; the smallest by -1 wraps."""
    if a.dtype.kind == "f":
        return np.asarray(np.floor(np.divide(a, b)))
    if a.dtype.itemsize <= _FLOAT64_BYTES:
        quotient = np.asarray(a.astype(np.float64) / b.astype(np.float64))
        return np.floor(quotient, out=quotient).astype(np.int64).astype(a.dtype)
    return np.asarray(np.floor_divide(a, b))


def floor_remainder(a: Array, b: Array) -> Array:
    """``a - b * floor(a / b)`` of integers: has the sign of ``b``, which has no zero."""
    return np.asarray(np.remainder(a, b))
