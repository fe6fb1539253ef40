"""Fixed-point exponential, logarithm, reciprocal and inverse square root of gemmlowp, on int32 arrays.

"Qk" is an int32 with k integer bits and f = 31 - k fraction bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import INT32_MAX, INT32_MIN, Ints, int64, rdbpot, srdhm, wrap32
from odc_mlir.numerics.pieces import pieces

_EXP_MINUS_EIGHTH = 1895147668  # e^-1/8 in Q0
_ONE_THIRD = 715827883  # 1/3 in Q0
_EXP_STEPS = {  # j: e^-(2^j) in Q0
    -2: 1672461947,
    -1: 1302514674,
    0: 790015084,
    1: 290630308,
    2: 39332535,
    3: 720401,
    4: 242,
}
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540  # Q2
_ROOT_HALF = 1518500250  # sqrt(1/2) in Q0
_ROOT_ROOT_HALF = 1805811301  # 2^-1/4 in Q0
_LN_2 = 1488522236  # in Q0
_LOG_NUMERATOR = 117049297  # rational approximation of the logarithm around 2^-1/4, in Q0
_LOG_DENOMINATOR = (1057819769, 638450708, 127690142)


def saturate32(x: NDArray[Any]) -> NDArray[np.int32]:
    """Return int64 values clamped to the int32 range."""
    return wrap32(np.clip(x, INT32_MIN, INT32_MAX))


def shift_pot(x: NDArray[Any], n: int) -> NDArray[np.int32]:
    """Return ``x * 2^n``, saturating for n > 0, rounded with ties away from zero for n < 0."""
    if n >= 0:
        return saturate32(x.astype(np.int64) << n)
    result: NDArray[np.int32] = rdbpot(x, -n)
    return result


def _add(a: NDArray[Any], b: Ints) -> NDArray[np.int32]:
    return wrap32(a.astype(np.int64) + b)


def exp_negative(x: NDArray[Any], integer_bits: int) -> NDArray[np.int32]:
    """Return ``e^x`` in Q0 for int32 ``x <= 0`` in Q``integer_bits`` (at most 5)."""
    x = np.asarray(x, np.int32)
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    remainder_source = wrap32((x.astype(np.int64) & (quarter - 1)) - quarter)
    y = _add(shift_pot(remainder_source, integer_bits), 1 << 28)
    y2 = srdhm(y, y)
    y3, y4 = srdhm(y2, y), srdhm(y2, y2)
    tail = shift_pot(_add(srdhm(_add(shift_pot(y4, -2), y3), _ONE_THIRD), y2), -1)
    result = saturate32(srdhm(_add(y, tail), _EXP_MINUS_EIGHTH).astype(np.int64) + _EXP_MINUS_EIGHTH)
    bits = remainder_source.astype(np.int64) - x
    for step, factor in _EXP_STEPS.items():
        if integer_bits > step:
            result = np.where(bits >> (fraction_bits + step) & 1, srdhm(result, factor), result)
    return np.where(x == 0, np.int32(INT32_MAX), result)


def reciprocal_of_one_plus(a: NDArray[Any]) -> NDArray[np.int32]:
    """Return ``1 / (1 + a)`` in Q0 for ``a`` in [0, 1) in Q0, by three Newton steps.

    All intermediate values fit in 32 bits, and only the last step saturates.
    """
    half = np.asarray(a).astype(np.int64)
    half += int64(INT32_MAX + 1)
    half >>= int64(1)
    v = _product(half, int64(_MINUS_32_OVER_17))
    v += int64(_48_OVER_17)
    for _ in range(3):
        step = _product(v, int64(1 << 29) - _product(half, v))
        step <<= int64(2)
        v += step
    v <<= int64(1)
    return wrap32(v.clip(int64(INT32_MIN), int64(INT32_MAX)))


def leading_zeros(x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of leading zero bits of values in [0, 2^32) as 32-bit words."""
    _, exponent = np.frexp(x.astype(np.float64))
    return 32 - exponent.astype(np.int64)


def reciprocal(x: NDArray[Any], integer_bits: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return ``(r, over)`` with ``1/x = r * 2^-over`` for ``x > 0`` in Q``integer_bits``, ``r`` in Q0."""
    wide = x.astype(np.int64)
    zeros = leading_zeros(wide)
    normal = wrap32((wide << zeros) - (1 << 31))
    return reciprocal_of_one_plus(normal), integer_bits - zeros


def inverse_sqrt(n: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return ``(q, e)`` with ``1 / sqrt(n) ~ q * 2^(e-31)`` for integers ``0 <= n < 2^31``. 0 counts as 1."""
    values = np.asarray(n, np.int64)
    roots, exponents = np.empty(values.shape, np.int32), np.empty(values.shape, np.int64)
    for part, root, exponent in pieces(values, roots, exponents):
        root[...], exponent[...] = _inverse_sqrt(part)
    return roots, exponents


def _inverse_sqrt(n: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    bits = 32 - leading_zeros(n)
    down = np.maximum(bits - 28, 0) >> 1  # number of divisions by 4 until below 2^29
    wide = n >> (2 * down)
    up = np.maximum(((leading_zeros(wide) - 1) >> 1) - 1, 0)
    shift = 11 + down - up
    half = ((wide << (2 * up) >> 1) + 1) >> 1
    # Newton steps from 2^28. No value becomes negative or saturates.
    x = np.asarray(int64(3 << 24) - _product(half, int64(1 << 28)))
    x <<= int64(3)
    for _ in range(4):
        cube = _product(_product(x, x), x)
        cube <<= int64(6)
        step = _product(half, cube)
        x = _product(x, int64(3 << 27))
        x -= step
        x <<= int64(3)
    x = wrap32(_product(x, int64(_ROOT_HALF)) << np.maximum(-shift, 0))
    one = n <= 1
    return np.where(one, np.int32(INT32_MAX), x), np.where(one, 0, np.minimum(-shift, 0))


def _product(a: NDArray[np.int64], b: Ints) -> NDArray[np.int64]:
    """Return ``srdhm`` of 32-bit values in int64 arrays. The values cannot saturate."""
    product = np.asarray(np.multiply(a, b))
    product += int64(1 << 30)
    product >>= int64(31)
    return product


def log_from_one(x: NDArray[Any], integer_bits: int) -> NDArray[np.int32]:
    """Return ``log(x)`` in Q5 for ``x >= 1`` in Q``integer_bits``."""
    x = np.asarray(x, np.int32)
    zeros = leading_zeros(x.astype(np.int64))
    quarter = int(shift_pot(np.asarray(1 << 29), -6))
    first = shift_pot(srdhm(_shifted_left(x, zeros - 1), _ROOT_HALF), 1)
    first_power = saturate32(((integer_bits - zeros) << 25) + quarter)
    b = srdhm(x, _ROOT_HALF)
    headroom = leading_zeros(b.astype(np.int64)) - 1
    second = _shifted_left(x, headroom)
    second_power = saturate32(((integer_bits - headroom) << 25) - quarter)
    ratio = np.minimum(first, second).astype(np.int64)
    power = np.maximum(first_power, second_power)
    p = wrap32(rdbpot(ratio + _ROOT_ROOT_HALF, 1))
    w = wrap32(2 * (ratio - _ROOT_ROOT_HALF))
    square = srdhm(w, w)
    numerator = _add(srdhm(w, ratio), srdhm(srdhm(w, square), _LOG_NUMERATOR))
    constant, linear, quadratic = _LOG_DENOMINATOR
    inner = _add(_add(srdhm(square, quadratic), constant), w)
    denominator = _add(srdhm(p, inner), srdhm(w, linear))
    quotient = srdhm(shift_pot(numerator, -6), reciprocal_of_one_plus(denominator))
    return shift_pot(_add(srdhm(power, _LN_2), quotient), 1)


def _shifted_left(x: NDArray[np.int32], n: NDArray[np.int64]) -> NDArray[np.int32]:
    return saturate32(x.astype(np.int64) << n)
