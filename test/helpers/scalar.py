"""The quantised formulas once more, for single Python integers: slow, and sharing no code with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

INT32_MAX = 2**31 - 1


def half_away(x: Fraction | float) -> int:
    """Nearest integer, halves away from zero."""
    exact = Fraction(x)
    magnitude = math.floor(abs(exact) + Fraction(1, 2))
    return -magnitude if exact < 0 else magnitude


def wrap(x: int, bits: int = 32) -> int:
    """Two's complement value of the low bits."""
    return (x + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def clamp(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """``(q, e)`` by search for the exponent instead of frexp."""
    if real == 0:
        return 0, 0
    e = 0
    value = Fraction(real)
    while value >= 1:
        value, e = value / 2, e + 1
    while value < Fraction(1, 2):
        value, e = value * 2, e - 1
    q = half_away(value * 2**31)
    if q == 2**31:
        q, e = q // 2, e + 1
    return (0, 0) if e < -31 else (q, e)


def srdhm(a: int, b: int) -> int:
    return min(math.floor(Fraction(a * b, 2**31) + Fraction(1, 2)), INT32_MAX)


def rdbpot(x: int, n: int) -> int:
    return half_away(Fraction(x, 2**n))


def multiply(x: int, q: int, e: int) -> int:
    return rdbpot(srdhm(wrap(x * 2 ** max(e, 0)), q), max(-e, 0))


def multiply64(x: int, q: int, e: int) -> int:
    reduced = 0x7FFF if q >= 0x7FFF0000 else (q + 2**15) // 2**16
    return wrap(math.floor(Fraction(x * reduced, 2 ** (15 - e)) + Fraction(1, 2)))


def requantize(x: int, q: int, e: int, zero: int, low: int, high: int) -> int:
    return clamp(multiply(x, q, e) + zero, low, high)


def code(real: float, scale: float, zero: int, low: int, high: int) -> int:
    """Code of a float32 value."""
    return clamp(half_away(float(np.float32(real) / np.float32(scale))) + zero, low, high)


def _saturate(x: int) -> int:
    return clamp(x, -(2**31), INT32_MAX)


def _power(x: int, n: int) -> int:
    return _saturate(x * 2**n) if n >= 0 else rdbpot(x, -n)


def exp_negative(x: int, k: int) -> int:
    """e^x in Q0.31 for x <= 0 with k integer bits: a quarter-wide polynomial, then one factor per set bit."""
    if x == 0:
        return INT32_MAX
    f = 31 - k
    quarter = 2 ** (f - 2)
    remainder = x % quarter - quarter
    y = _power(remainder, k) + 2**28
    y2 = srdhm(y, y)
    tail = _power(srdhm(_power(srdhm(y2, y2), -2) + srdhm(y2, y), 715827883) + y2, -1)
    result = _saturate(1895147668 + srdhm(1895147668, y + tail))
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for j, factor in zip(range(-2, 5), factors, strict=True):
        if k > j and (remainder - x) // 2 ** (f + j) % 2:
            result = srdhm(result, factor)
    return result


def reciprocal(x: int, k: int) -> tuple[int, int]:
    """``(r, over)``: 1/x for x > 0 with k integer bits."""
    zeros = 32 - x.bit_length()
    half = half_away(Fraction(wrap(x * 2**zeros - 2**31) + INT32_MAX, 2))
    v = 1515870810 + srdhm(half, -1010580540)
    for _ in range(3):
        v += _power(srdhm(v, 2**29 - srdhm(half, v)), 2)
    return _power(v, 1), k - zeros


def softmax(row: Sequence[int], scale: float, beta: float, low: int = -128) -> list[int]:
    """Softmax of one row of 8-bit codes; results have the scale 1/256 and the zero point ``low``."""
    q, e = quantize_multiplier(min(float(np.float32(beta)) * float(np.float32(scale)) * 2**26, INT32_MAX))
    reach = math.floor(31 * 2**26 / 2.0**e)
    differences = [code - max(row) for code in row]
    powers = [exp_negative(srdhm(wrap(d * 2**e), q), 5) if d >= -reach else None for d in differences]
    inverse, over = reciprocal(sum(rdbpot(p, 12) for p in powers if p is not None), 12)
    return [low if p is None else clamp(rdbpot(srdhm(inverse, p), over + 23) + low, low, low + 255) for p in powers]


def average(values: Sequence[int]) -> int:
    """Quantised average: half the count away from zero, then truncating division."""
    total, count = sum(values), len(values)
    biased = total + count // 2 if total > 0 else total - count // 2
    return int(Fraction(biased, count))


def add(a: int, b: int, scales: tuple[float, float, float], zeros: tuple[int, int, int], *, sign: int = 1) -> int:
    """Unclamped 8-bit sum (or difference, ``sign`` -1)."""
    twice = 2 * max(scales[:2])
    left = multiply((a - zeros[0]) << 20, *quantize_multiplier(scales[0] / twice))
    right = multiply((b - zeros[1]) << 20, *quantize_multiplier(scales[1] / twice))
    return multiply(left + sign * right, *quantize_multiplier(twice / (2**20 * scales[2]))) + zeros[2]


def mul(a: int, b: int, scales: tuple[float, float, float], zeros: tuple[int, int, int]) -> int:
    """Unclamped 8-bit product."""
    real = np.float32(np.float32(scales[0]) * np.float32(scales[1])) / np.float32(scales[2])
    return multiply((a - zeros[0]) * (b - zeros[1]), *quantize_multiplier(float(real))) + zeros[2]


def mean(values: Sequence[int], in_scale: float, in_zero: int, out_scale: float, out_zero: int) -> int:
    """Unclamped 8-bit mean."""
    q, e = quantize_multiplier(in_scale / out_scale)
    count = len(values)
    shift = min(int(math.log2(count)), 32, 31 + e)
    return multiply(sum(values) - in_zero * count, q * 2**shift // count, e - shift) + out_zero
