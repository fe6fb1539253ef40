"""Quantised element-wise arithmetic with broadcasting: add, subtract, multiply, squared difference, rescale."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.activation import PreluParams
from odc_mlir.numerics.fixed import code_range, multiply, quantize_multiplier, requantizer, round_half_away
from odc_mlir.numerics.lut import TABLE_16_THRESHOLD, apply, codes_by_bits
from odc_mlir.numerics.pieces import clamp, in_pairs, in_pieces

LEFT_SHIFT_8BIT, LEFT_SHIFT_16BIT, LEFT_SHIFT_SQUARED = 20, 15, 7
_ONE_HALF = (1 << 30, 0)  # multiplier and exponent of 1/2


@dataclass(frozen=True, slots=True)
class AddParams:
    """Integer parameters of a quantised addition or subtraction."""

    a_zero: int
    b_zero: int
    out_zero: int
    left_shift: int
    a_multiplier: int
    a_exponent: int
    b_multiplier: int
    b_exponent: int
    out_multiplier: int
    out_exponent: int
    act_min: int
    act_max: int
    dtype: str = "int8"


@dataclass(frozen=True, slots=True)
class MulParams:
    """Integer parameters of a quantised multiplication or division."""

    a_zero: int
    b_zero: int
    out_zero: int
    multiplier: int
    exponent: int
    act_min: int
    act_max: int
    dtype: str = "int8"


@dataclass(frozen=True, slots=True)
class ScaleParams:
    """Integer parameters of a change of scale with a clamp, which covers several activations."""

    in_zero: int
    out_zero: int
    multiplier: int
    exponent: int
    act_min: int
    act_max: int
    dtype: str = "int8"


Quant = tuple[float, int]  # scale, zero point


def add_params(a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> AddParams:
    """Return parameters of an addition or subtraction of tensors with these (scale, zero point) pairs.

    ``act`` and ``dtype`` are code range and storage dtype of the result (8-bit, or int16 except the power-of-two path).
    Raises ModelError for scale ratios that cannot be represented.
    """
    return _sum_params(a, b, out, act, dtype, LEFT_SHIFT_16BIT if np.dtype(dtype).itemsize == 2 else LEFT_SHIFT_8BIT, 1)


def squared_difference_params(a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> AddParams:
    """Return parameters of a squared difference: a subtraction whose last step scales the square."""
    left_shift = 0 if np.dtype(dtype).itemsize == 2 else LEFT_SHIFT_SQUARED  # the square must fit in 32 bits
    return _sum_params(a, b, out, act, dtype, left_shift, 2)


def _sum_params(
    a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str, left_shift: int, power: int
) -> AddParams:
    (sa, za), (sb, zb), (sy, zy) = a, b, out
    twice = 2.0 * max(sa, sb)
    qa, ea = quantize_multiplier(_ratio(sa, twice))
    qb, eb = quantize_multiplier(_ratio(sb, twice))
    qy, ey = quantize_multiplier(_ratio(twice**power, (1 << power * left_shift) * sy))
    return AddParams(za, zb, zy, left_shift, qa, ea, qb, eb, qy, ey, *act, dtype)


def mul_params(a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> MulParams:
    """Return parameters of a multiplication. The real multiplier is computed in float32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        real = np.float32(np.float32(a[0]) * np.float32(b[0])) / np.float32(out[0])
    q, e = quantize_multiplier(float(real))
    return MulParams(a[1], b[1], out[1], q, e, *act, dtype)


def scale_params(x: Quant, out: Quant, act: tuple[int, int], dtype: str, *, single: bool) -> ScaleParams:
    """Return parameters of a change of scale, computed in float32 if ``single``, else in float64."""
    if single:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            real = float(np.float32(x[0]) / np.float32(out[0]))
    else:
        real = _ratio(x[0], out[0])
    q, e = quantize_multiplier(real)
    return ScaleParams(x[1], out[1], q, e, *act, dtype)


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("inf")


def add_quantized(a: NDArray[Any], b: NDArray[Any], p: AddParams) -> NDArray[Any]:
    """Return codes of ``a + b``. Operands broadcast."""
    return _scaled_sum(a, b, p, np.add)


def sub_quantized(a: NDArray[Any], b: NDArray[Any], p: AddParams) -> NDArray[Any]:
    """Return codes of ``a - b``. Operands broadcast."""
    return _scaled_sum(a, b, p, np.subtract)


def squared_difference_quantized(a: NDArray[Any], b: NDArray[Any], p: AddParams) -> NDArray[Any]:
    """Return codes of ``(a - b)^2``. Operands broadcast."""
    return _scaled_sum(a, b, p, lambda a, b: np.square(a - b))


def _scaled_sum(a: NDArray[Any], b: NDArray[Any], p: AddParams, combine: Callable[..., Any]) -> NDArray[Any]:
    left = _shifted(a, p.a_zero, p.left_shift, p.a_multiplier, p.a_exponent)
    right = _shifted(b, p.b_zero, p.left_shift, p.b_multiplier, p.b_exponent)
    finish = requantizer(p.out_multiplier, p.out_exponent, p.out_zero, p.act_min, p.act_max, p.dtype)
    return in_pairs(lambda a, b: finish(combine(left(a), right(b))), a, b, p.dtype)


def _shifted(x: NDArray[Any], zero: int, left_shift: int, q: int, e: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function ``multiply((x - zero) << left_shift, q, e)``, as a cached table for many elements."""
    if (q, e) == _ONE_HALF and left_shift:  # the operand with the larger scale needs no rounding
        return functools.partial(_shift, zero=int32(zero) if zero else None, by=int32(left_shift - 1))
    if x.dtype.itemsize == 1 or (x.dtype.itemsize == 2 and x.size > TABLE_16_THRESHOLD):
        table = _shifted_table(x.dtype.name, zero, left_shift, q, e)
        return lambda codes: apply(table, codes)
    return lambda codes: _shift_and_scale(codes, zero, left_shift, q, e)


def _shift(codes: NDArray[Any], zero: NDArray[Any] | None, by: NDArray[Any]) -> NDArray[np.int32]:
    wide = _centred(codes, zero)
    wide <<= by
    return wide


def _centred(codes: NDArray[Any], zero: NDArray[Any] | None) -> NDArray[np.int32]:
    wide = np.asarray(codes.astype(np.int32))
    if zero is not None:
        wide -= zero
    return wide


def _shift_and_scale(codes: NDArray[Any], zero: int, left_shift: int, q: int, e: int) -> NDArray[np.int32]:
    return multiply(_shift(codes, int32(zero) if zero else None, int32(left_shift)), q, e)


@lru_cache(maxsize=1024)
def int32(value: int) -> NDArray[np.int32]:
    """Return ``value`` as a read-only array of rank 0, which is faster in numpy than a Python integer."""
    array = np.array(value, np.int32)
    array.flags.writeable = False
    return array


@lru_cache(maxsize=256)
def _shifted_table(dtype: str, zero: int, left_shift: int, q: int, e: int) -> NDArray[np.int32]:
    return _shift_and_scale(codes_by_bits(dtype), zero, left_shift, q, e)


def mul_quantized(a: NDArray[Any], b: NDArray[Any], p: MulParams) -> NDArray[Any]:
    """Return codes of ``a * b``. Operands broadcast."""
    finish = requantizer(p.multiplier, p.exponent, p.out_zero, p.act_min, p.act_max, p.dtype)
    a_zero, b_zero = (int32(zero) if zero else None for zero in (p.a_zero, p.b_zero))
    return in_pairs(lambda a, b: finish(_centred(a, a_zero) * _centred(b, b_zero)), a, b, p.dtype)


def scale_quantized(
    x: NDArray[Any], p: ScaleParams, function: Callable[..., NDArray[Any]] | None = None
) -> NDArray[Any]:
    """Requantise codes ``x`` to another scale, zero point or dtype, and clamp them.

    ``function``, such as absolute value or negation, is applied to codes minus zero point before scaling.
    """
    finish = requantizer(p.multiplier, p.exponent, p.out_zero, p.act_min, p.act_max, p.dtype)

    def compute(codes: NDArray[Any]) -> NDArray[Any]:
        shifted = np.subtract(codes, p.in_zero, dtype=np.int32)
        return finish(shifted if function is None else function(shifted))

    return in_pieces(compute, x, p.dtype)


def joined_codes(x: Quant, out: Quant) -> NDArray[np.uint8]:
    """Return the table from uint8 codes of a concatenation's operand to codes of its result.

    The entries are computed in float32.
    """
    ratio = np.float32(x[0]) * (np.float32(1) / np.float32(out[0]))
    table = np.arange(256, dtype=np.float32) * ratio + np.float32(np.float32(-x[1]) * ratio)
    codes: NDArray[np.uint8] = np.clip(round_half_away(table) + out[1], 0, 255).astype(np.uint8)
    return codes


def leaky_params(x: Quant, alpha: float, out: Quant, dtype: str) -> PreluParams:
    """Return parameters of LEAKY_RELU, computed in float32. A negative alpha has a negative multiplier."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plain = float(np.float32(x[0]) / np.float32(out[0]))
        below = float(np.float32(np.float32(x[0]) * np.float32(alpha)) / np.float32(out[0]))
    q, e = quantize_multiplier(plain)
    qa, ea = quantize_multiplier(abs(below))
    return PreluParams(x[1], 0, out[1], q, e, -qa if below < 0 else qa, ea, dtype)


def leaky_quantized(x: NDArray[Any], p: PreluParams) -> NDArray[Any]:
    """Return codes of ``x`` for positive elements, else of ``alpha * x``."""
    low, high = code_range(p.dtype)

    def compute(codes: NDArray[Any]) -> NDArray[Any]:
        shifted = np.subtract(codes, p.in_zero, dtype=np.int32)
        above = multiply(shifted, p.multiplier, p.exponent).astype(np.int64)
        below = multiply(shifted, abs(p.alpha_multiplier), p.alpha_exponent).astype(np.int64)
        scaled = np.where(shifted >= 0, above, -below if p.alpha_multiplier < 0 else below)
        return clamp(scaled + p.out_zero, low, high)

    return in_pieces(compute, x, p.dtype)


COMPARED_SHIFT = 8  # left shift of compared codes


def compare_params(scale: float) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of the ratio of ``scale`` to the common scale 1/256."""
    return quantize_multiplier(float(np.float32(scale)))


def common_scale(codes: NDArray[Any], zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    """Return codes at the common scale. Small scales map neighbours to one value, as in TensorFlow Lite."""
    if codes.dtype.itemsize == 1:
        return apply(_compared_table(codes.dtype.name, zero_point, multiplier, exponent), codes)
    return _compared(codes, zero_point, multiplier, exponent)


def _compared(codes: NDArray[Any], zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    return multiply((codes.astype(np.int64) - zero_point) << COMPARED_SHIFT, multiplier, exponent)


@lru_cache(maxsize=256)
def _compared_table(dtype: str, zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    return _compared(codes_by_bits(dtype), zero_point, multiplier, exponent)
