"""Exact integer products through floating point, at and beyond the bounds of each type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.sums import exact_matmul
from odc_mlir.numerics import matmul


@given(st.integers(1, 20), st.integers(0, 300), st.integers(1, 8), st.sampled_from([1, 127, 255, 32768, 2**20]))
def test_exact(rows: int, inner: int, columns: int, largest: int) -> None:
    rng = np.random.default_rng(rows + inner)
    a = rng.integers(-largest, largest + 1, (rows, inner))
    b = rng.integers(-255, 256, (inner, columns))
    expected = (a @ b).astype(np.int32)
    found = exact_matmul(a, b)
    assert found.dtype == np.int32
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("largest_sum", "dtype"),
    [(2**24 - 1, "f4"), (2**24, "f8"), (2**53 - 1, "f8"), (2**53, "i8"), (0, "f4")],
)
def test_compute_dtype(largest_sum: int, dtype: str) -> None:
    assert matmul.compute_dtype(largest_sum) == np.dtype(dtype)


def test_sums_that_float32_would_round() -> None:
    """2^24 + 1 is the first integer that float32 lacks."""
    a, b = np.array([[4096, 1]]), np.array([[4096], [1]])
    assert exact_matmul(a, b)[0, 0] == 2**24 + 1


def test_int32_sums_wrap() -> None:
    a = np.full((1, 4), 2**20)
    assert exact_matmul(a, a.T)[0, 0] == 0
    assert exact_matmul(a, a.T, "int64")[0, 0] == 2**42


def test_beyond_float64() -> None:
    a, b = np.array([[2**30, 1]]), np.array([[2**30], [1]])
    assert exact_matmul(a, b, "int64")[0, 0] == 2**60 + 1


def test_largest_magnitude() -> None:
    assert matmul.largest_magnitude(np.array([3, -128], np.int8)) == 128
    assert matmul.largest_magnitude(np.array([], np.int8)) == 0
