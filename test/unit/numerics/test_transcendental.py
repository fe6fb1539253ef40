"""Fixed-point exponential and reciprocal against scalar formulas and real functions."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import transcendental


@given(st.integers(-(2**31), 0), st.integers(0, 5))
def test_exp_negative(x: int, bits: int) -> None:
    assert transcendental.exp_negative(np.array([x]), bits)[0] == scalar.exp_negative(x, bits)


@given(st.integers(-(2**31), 0))
def test_exp_negative_is_an_exponential(x: int) -> None:
    found = transcendental.exp_negative(np.array([x]), 5)[0] / 2**31
    assert abs(found - math.exp(x / 2**26)) < 1e-6


@given(st.integers(1, 2**32 - 1))
def test_reciprocal(x: int) -> None:
    value, over = transcendental.reciprocal(np.array([x]), 12)
    assert (value[0], over[0]) == scalar.reciprocal(x, 12)
    assert math.isclose(value[0] / 2**31 * 2.0 ** -over[0], 2**19 / x, rel_tol=1e-6)


def test_leading_zeros() -> None:
    values = np.array([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1])
    assert transcendental.leading_zeros(values).tolist() == [32, 31, 30, 30, 1, 0, 0]


def test_shift_saturates_to_the_left_and_rounds_to_the_right() -> None:
    x = np.array([2**30, -(2**31), 3, -3], np.int32)
    assert transcendental.shift_pot(x, 1).tolist() == [2**31 - 1, -(2**31), 6, -6]
    assert transcendental.shift_pot(x, -1).tolist() == [2**29, -(2**30), 2, -2]
