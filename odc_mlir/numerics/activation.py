"""Quantised activations and roots with special fixed-point algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, multiply, quantize_multiplier, rdbpot, requantizer
from odc_mlir.numerics.gates import HIGH, saturate16, srdhm16
from odc_mlir.numerics.pieces import choose, in_pairs
from odc_mlir.numerics.transcendental import inverse_sqrt

Array = NDArray[Any]
Quant = tuple[float, int]  # scale, zero point

_ROOT_SHIFT = 20  # fraction bits of an inverse root
_HIRES_BITS = 7  # left shift that widens codes to 16 bits
_RELUISH_SCALE = np.float32(np.float32(3) / np.float32(1 << 15))


@dataclass(frozen=True, slots=True)
class HardSwishParams:
    """Integer parameters of a hard swish: 16-bit multipliers and exponents of its two factors."""

    in_zero: int
    out_zero: int
    out_multiplier: int
    out_exponent: int
    gate_multiplier: int
    gate_exponent: int
    dtype: str = "int8"


def hard_swish_params(x: Quant, out: Quant, dtype: str) -> HardSwishParams:
    """Return parameters of HARD_SWISH. The result's scale must be at least 1/128 of the input's."""
    fine = np.float32(np.float32(1 / (1 << _HIRES_BITS)) * np.float32(x[0]))
    out_multiplier, out_exponent = quantize_multiplier(float(np.float32(fine / np.float32(out[0]))))
    gate_multiplier, gate_exponent = quantize_multiplier(float(np.float32(fine / _RELUISH_SCALE)))
    return HardSwishParams(
        x[1], out[1], _high_half(out_multiplier), out_exponent, _high_half(gate_multiplier), gate_exponent, dtype
    )


def _high_half(multiplier: int) -> int:
    return min((multiplier + (1 << 15)) >> 16, HIGH)


def hard_swish_codes(x: Array, p: HardSwishParams) -> Array:
    """Return codes of ``x * clamp(x + 3, 0, 6) / 6`` for 8-bit codes."""
    low, high = code_range(p.dtype)
    fine = ((x.astype(np.int64) - p.in_zero) << _HIRES_BITS).astype(np.int16).astype(np.int64)
    plain = srdhm16(fine, p.out_multiplier)
    gate = fine
    if p.gate_exponent > 0:
        gate = saturate16(gate << (p.gate_exponent - 1))
    gate = srdhm16(gate, p.gate_multiplier)
    if p.gate_exponent > 0:
        gate = saturate16(gate << 1)
    elif p.gate_exponent < 0:
        gate = rdbpot(gate, -p.gate_exponent)
    gate = (gate + (1 << 15)) >> 1
    product = gate * plain
    truncated = np.sign(product) * (np.abs(product) >> 15)
    return np.asarray(np.clip(rdbpot(truncated, -p.out_exponent) + p.out_zero, low, high), p.dtype)


@dataclass(frozen=True, slots=True)
class PreluParams:
    """Integer parameters of PRELU and LEAKY_RELU: scales of non-negative inputs and of products with slopes."""

    in_zero: int
    alpha_zero: int
    out_zero: int
    multiplier: int
    exponent: int
    alpha_multiplier: int
    alpha_exponent: int
    dtype: str = "int8"


def prelu_params(x: Quant, alpha: Quant, out: Quant, dtype: str) -> PreluParams:
    """Return parameters of PRELU. Scale ratios are computed in float32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plain = float(np.float32(x[0]) / np.float32(out[0]))
        below = float(np.float32(np.float32(x[0]) * np.float32(alpha[0])) / np.float32(out[0]))
    return PreluParams(x[1], alpha[1], out[1], *quantize_multiplier(plain), *quantize_multiplier(below), dtype)


def prelu_codes(x: Array, alpha: Array, p: PreluParams) -> Array:
    """Return codes of ``x`` for non-negative elements, else of ``alpha * x``. ``alpha`` broadcasts."""
    limits = code_range(p.dtype)
    above = requantizer(p.multiplier, p.exponent, p.out_zero, *limits, p.dtype)
    below = requantizer(p.alpha_multiplier, p.alpha_exponent, p.out_zero, *limits, p.dtype)
    in_zero, alpha_zero = np.int32(p.in_zero), np.int32(p.alpha_zero)

    def compute(x: Array, alpha: Array) -> Array:
        value = np.subtract(x, in_zero, dtype=np.int32)
        product = value * np.subtract(alpha, alpha_zero, dtype=np.int32)
        return choose(value >= 0, above(value), below(product))

    return in_pairs(compute, x, alpha, p.dtype)


def rsqrt_params(x: Quant, out: Quant) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of an inverse square root, computed in float32."""
    product = float(np.float32(np.sqrt(np.float32(x[0])) * np.float32(out[0])))
    return quantize_multiplier(1.0 / product if product else float("inf"))


def rsqrt_codes(x: Array, in_zero: int, out_zero: int, multiplier: int, exponent: int) -> Array:
    """Return 8-bit codes of ``1 / sqrt(x)``. Numbers <= 0 give the largest code."""
    low, high = code_range(x.dtype)
    value = x.astype(np.int64) - in_zero
    q, e = inverse_sqrt(np.maximum(value, 1))
    root = multiply(1, q, e + _ROOT_SHIFT)
    codes = multiply(root, multiplier, exponent - _ROOT_SHIFT).astype(np.int64) + out_zero
    return np.asarray(np.where(value > 0, np.clip(codes, low, high), high), x.dtype)


def sqrt_codes(x: Array, in_quant: Quant, out_quant: Quant) -> Array:
    """Return codes of ``sqrt(x)``, truncated in float32 as in LiteRT. Negative numbers give 0."""
    low, high = code_range(x.dtype)
    real = np.float32(in_quant[0]) * np.maximum(x.astype(np.int64) - in_quant[1], 0).astype(np.float32)
    with np.errstate(over="ignore"):
        steps = np.sqrt(real) / np.float32(out_quant[0])
    whole = np.minimum(steps, np.float32(1 << 24)).astype(np.int64)
    return np.asarray(np.clip(whole + out_quant[1], low, high), x.dtype)
