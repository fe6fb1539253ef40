"""Quantised and integer division against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from odc_mlir.numerics import division

BYTE = st.integers(-128, 127)


@given(BYTE, BYTE, BYTE, BYTE, BYTE, st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1))
def test_quotients_are_rounded(a: int, b: int, za: int, zb: int, zy: int, sa: float, sb: float, sy: float) -> None:
    """Within a code of the exact quotient, which two roundings of 31 bits can move only where it is at a half."""
    assume(b != zb)
    p = division.div_params((sa, za), (sb, zb), (sy, zy), (-128, 127), "int8")
    found = division.div_quantized(np.array([a], np.int8), np.array([b], np.int8), p).item()
    real = (a - za) * float(np.float32(sa)) / ((b - zb) * float(np.float32(sb)) * float(np.float32(sy)))
    assert abs(found - min(max(real + zy, -128), 127)) <= 0.5 + 1e-4


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(-(2**31), 2**31 - 1).filter(bool))
def test_plain_quotients(a: int, b: int) -> None:
    pair = np.array([a], np.int32), np.array([b], np.int32)
    assert division.truncated_quotient(*pair).item() == int(Fraction(a, b))
    assert division.floor_quotient(*pair).item() == math.floor(Fraction(a, b))


def test_sign_bits() -> None:
    for value in (0, 1, -1, 2, -2, 255, -256, 2**30, 2**31 - 1, -(2**31)):
        bits = int(division.sign_bits(np.array([value])).item())
        assert -(2**31) <= value << bits < 2**31
        assert value in (0, -1) or not -(2**31) <= value << (bits + 1) < 2**31


def test_real_floor() -> None:
    a, b = np.array([2, -3, 7, 0.3], np.float32), np.array([3, 2, -2, 0.1], np.float32)
    assert division.floor_quotient(a, b).tolist() == [0, -2, -4, 3]


WIDE = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@given(st.data(), st.sampled_from(sorted(WIDE)))
def test_whole_remainders(data: st.DataObject, dtype: str) -> None:
    top = 1 << WIDE[dtype] - 1
    whole = st.integers(-top, top - 1) | st.integers(-5, 5)
    count = data.draw(st.integers(1, 4))
    a = data.draw(st.lists(whole, min_size=count, max_size=count))
    b = data.draw(st.lists(whole.filter(bool), min_size=count, max_size=count))
    expected = [x % y for x, y in zip(a, b, strict=True)]
    found = division.floor_remainder(np.array(a, dtype), np.array(b, dtype))
    assert found.dtype == dtype
    assert found.tolist() == expected


INT32 = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(INT32 | st.integers(-9, 9), st.integers(0, 2**31 - 1) | st.integers(0, 70)), min_size=1))
def test_whole_powers(pairs: list[tuple[int, int]]) -> None:
    bases, exponents = np.array(pairs, np.int32).T.copy()
    found = division.integer_power(bases, exponents)
    for a, b, power in zip(bases.tolist(), exponents.tolist(), found.tolist(), strict=True):
        exact = a ** min(b, 64 + b % 2)
        assert power == (exact if -(2**31) <= exact < 2**31 else -(2**31))
