"""Logistic function and hyperbolic tangent in 16-bit fixed point, for gates of recurrent operators.

The arithmetic is gemmlowp's for int16: "Qk" has k integer bits and 15 - k fraction bits. Multiplication returns the
saturated, rounded high half of the doubled product. Each function is tabulated once for all 2^16 arguments.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import rdbpot

Wide = NDArray[np.int64]

LOW, HIGH = -(1 << 15), (1 << 15) - 1
GATE_BITS = 3  # integer bits of a gate's argument
LARGEST_BITS = 6  # largest number of integer bits for which tanh is defined

_EXP_MINUS_EIGHTH = 28918  # e^-1/8 in Q0
_ONE_THIRD = 10923  # 1/3 in Q0
_EXP_STEPS = {-2: 25520, -1: 19875, 0: 12055, 1: 4435, 2: 600, 3: 11, 4: 0}  # j: e^-(2^j) in Q0
_48_OVER_17, _MINUS_32_OVER_17 = 23130, -15420  # in Q2
_ONE_Q2 = 1 << 13
_HALF = 1 << 14
_SMALLEST_EXPONENT = -32  # e^x is 0 for smaller x


def saturate16(x: Wide) -> Wide:
    """Return values limited to the int16 range."""
    return np.clip(x, LOW, HIGH)


def srdhm16(a: Wide | int, b: Wide | int) -> Wide:
    """Return the high half of the doubled 16-bit product: ``(a*b + 2^14) >> 15``, saturating."""
    product = np.multiply(a, b, dtype=np.int64)
    return np.asarray(np.minimum((product + (1 << 14)) >> 15, HIGH))


def shift16(x: Wide, n: int) -> Wide:
    """Return ``x * 2^n``: saturating for n > 0, rounded with ties away from zero for n < 0."""
    return saturate16(x << n) if n >= 0 else np.asarray(rdbpot(x, -n), np.int64)


def _wrap(x: Wide) -> Wide:
    return x.astype(np.int16).astype(np.int64)


def _exp_negative(x: Wide, bits: int) -> Wide:
    """Return ``e^x`` in Q0 for ``x <= 0`` in Q``bits``: a polynomial times a factor for each higher bit."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    remainder = (x & (quarter - 1)) - quarter
    y = shift16(remainder, bits) + (1 << 12)
    y2 = srdhm16(y, y)
    tail = shift16(_wrap(srdhm16(_wrap(shift16(srdhm16(y2, y2), -2) + srdhm16(y2, y)), _ONE_THIRD) + y2), -1)
    result = saturate16(srdhm16(_wrap(y + tail), _EXP_MINUS_EIGHTH) + _EXP_MINUS_EIGHTH)
    rest = _wrap(remainder - x)
    for step, factor in _EXP_STEPS.items():
        if bits > step:
            result = np.where(rest >> (fraction + step) & 1, srdhm16(result, factor), result)
    if bits > 5:
        result = np.where(x < _SMALLEST_EXPONENT << fraction, 0, result)
    return np.where(x == 0, HIGH, result)


def _newton(a: Wide) -> Wide:
    """Return ``2 / (1 + a)`` in Q2 for ``a`` in [0, 1] in Q0, by three Newton steps."""
    half = rdbpot(a + HIGH, 1)
    v = _wrap(srdhm16(half, _MINUS_32_OVER_17) + _48_OVER_17)
    for _ in range(3):
        error = _wrap(_ONE_Q2 - srdhm16(half, v))
        v = _wrap(v + shift16(srdhm16(v, error), 2))
    return v


@cache
def _logistic_table() -> NDArray[np.int16]:
    x = _codes()
    positive = shift16(_newton(_exp_negative(-np.abs(x), GATE_BITS)), 1)
    return _table(np.where(x == 0, _HALF, np.where(x > 0, positive, HIGH - positive)))


@cache
def _tanh_table(bits: int) -> NDArray[np.int16]:
    x = _codes()
    ratio = shift16(_newton(_exp_negative(-np.abs(x), bits + 1)) - _ONE_Q2, 2)
    return _table(np.where(x == 0, 0, np.where(x < 0, -ratio, ratio)))


def _codes() -> Wide:
    return np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)


def _table(values: Wide) -> NDArray[np.int16]:
    table = values.astype(np.int16)
    table.flags.writeable = False
    return table


def logistic(x: NDArray[Any]) -> NDArray[np.int16]:
    """Return the logistic function, in Q0, of int16 codes in Q3."""
    return _logistic_table()[x.view(np.uint16)]


def tanh(x: NDArray[Any], integer_bits: int) -> NDArray[np.int16]:
    """Return the hyperbolic tangent, in Q0, of int16 codes in Q``integer_bits`` (0 to 6)."""
    return _tanh_table(integer_bits)[x.view(np.uint16)]
