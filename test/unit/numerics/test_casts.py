"""Saturation, rounding to bfloat16 and conversions between types."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.numerics import casts

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@given(st.floats(allow_nan=False))
def test_to_integers(value: float) -> None:
    for dtype, real in itertools.product(INTEGERS, ("float16", "float32", "float64")):
        limits = np.iinfo(dtype)
        with np.errstate(over="ignore"):
            x = np.array([value], real)
        exact = float(x[0])
        expected = limits.max if exact > limits.max else limits.min if exact < limits.min else int(exact)
        assert int(casts.to_integers(x, np.dtype(dtype))[0]) == expected


def test_nan_is_the_largest_integer() -> None:
    for dtype in INTEGERS:
        assert casts.to_integers(np.array([np.nan]), np.dtype(dtype)).item() == np.iinfo(dtype).max
    assert casts.to_integers(np.array([np.nan, -9, 9]), np.dtype("int8"), -8, 7).tolist() == [7, -8, 7]


@given(st.floats(width=32))
def test_round_bfloat16(value: float) -> None:
    """The nearest number of eight bits of precision; of two, the one whose last bit is 0."""
    found = float(casts.round_bfloat16(np.array([value], np.float32))[0])
    if np.isnan(value) or np.isinf(value):
        assert np.array_equal(found, value, equal_nan=True)
        return
    bits = int(np.array([value], np.float32).view(np.uint32)[0]) & 0xFFFF0000
    near = np.array([bits, bits + 0x10000], np.uint64).astype(np.uint32).view(np.float32).astype(np.float64)
    if np.isinf(near[1]):
        near[1] = np.sign(value) * 2.0**128
    distance = np.abs(near - value)
    chosen = near[0] if distance[0] < distance[1] or (distance[0] == distance[1] and not bits >> 16 & 1) else near[1]
    assert found == (chosen if abs(chosen) < 2.0**128 else np.sign(value) * np.inf)


def test_between_integers_and_booleans() -> None:
    assert casts.cast(np.array([300, -1]), np.dtype("uint8")).tolist() == [44, 255]
    assert casts.cast(np.array([0.0, -0.5, np.nan]), np.dtype("bool")).tolist() == [False, True, True]
    assert casts.cast(np.array([1.5 - 2j, 2j]), np.dtype("int32")).tolist() == [1, 0]
    assert casts.cast(np.array([2]), np.dtype("complex64")).tolist() == [2 + 0j]
    # by way of float32, which a half cannot tell from one rounding; the number lies just above a tie
    tie = 1 + 2.0**-11
    assert casts.cast(np.array([tie + 2.0**-40]), np.dtype("float16")).item() == np.float16(np.float32(tie))
