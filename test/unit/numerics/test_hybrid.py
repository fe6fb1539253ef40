"""Rows quantised on the fly, and their products with 8-bit weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from helpers.scalar import clamp, half_away
from odc_mlir.numerics.hybrid import HybridMatrix, quantize_rows

# Zero, or large enough that 127 divided by it is finite.
MAGNITUDES = st.floats(2.0**-100, 2.0**20, width=32)
REALS = st.just(0.0) | MAGNITUDES | MAGNITUDES.map(lambda v: -v)
ROWS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=REALS)


def symmetric(row: np.ndarray) -> tuple[list[int], np.float32]:
    """Codes and scale of one row, value by value."""
    largest = max(abs(float(v)) for v in row)
    if largest == 0:
        return [0] * len(row), np.float32(1)
    inverse = np.float32(127) / np.float32(largest)
    codes = [clamp(half_away(float(np.float32(v * inverse))), -127, 127) for v in row]
    return codes, np.float32(largest) / np.float32(127)


def asymmetric(row: np.ndarray) -> tuple[list[int], np.float32]:
    """Codes without the zero point, and scale of one row, value by value."""
    least, most = min(0.0, *map(float, row)), max(0.0, *map(float, row))
    if least == most:
        return [0] * len(row), np.float32(1)
    step = float(np.float32(most) - np.float32(least)) / 255
    below, above = -128 - least / step, 127 - most / step
    real = below if 128 + abs(least / step) < 127 + abs(most / step) else above
    zero = clamp(half_away(Fraction(real)), -128, 127)
    inverse = np.float32(1) / np.float32(step)
    codes = [zero + half_away(float(np.float32(v * inverse))) for v in row]
    return [clamp(code, -128, 127) - zero for code in codes], np.float32(step)


@given(ROWS)
def test_symmetric_rows(x: np.ndarray) -> None:
    found = quantize_rows(x)
    for row, codes, scale in zip(x, found.centred, found.scales, strict=True):
        assert (codes.tolist(), scale) == symmetric(row)


@given(arrays(np.float32, (3, 4), elements=st.floats(-1000, 1000, width=16)))
def test_asymmetric_rows(x: np.ndarray) -> None:
    found = quantize_rows(x, asymmetric=True)
    for row, codes, scale in zip(x, found.centred, found.scales, strict=True):
        assert (codes.tolist(), scale) == asymmetric(row)


def test_the_range_is_rounded_to_float32() -> None:
    x = np.array([[-4.023889, 4.0840464]], np.float32)
    assert quantize_rows(x, asymmetric=True).scales == np.float32((x[0, 1] - x[0, 0]) / np.float32(255))
    assert quantize_rows(x, asymmetric=True).scales != np.float32((float(x[0, 1]) - float(x[0, 0])) / 255)


def test_halves_are_rounded_before_the_zero_point_is_added() -> None:
    x = np.array([[-8, 247, 0.5, -0.5, 2.5], [-247, 8, 0.5, -0.5, 2.5]], np.float32)
    assert quantize_rows(x, asymmetric=True).centred[:, 2:].tolist() == [[1, -1, 3], [1, -1, 3]]


@given(arrays(np.float32, (2, 5), elements=st.floats(-1000, 1000, width=16)), st.booleans())
def test_rows_come_back(x: np.ndarray, uneven: bool) -> None:
    """Within a step, as the zero point of an uneven range is rounded too."""
    found = quantize_rows(x, asymmetric=uneven)
    error = np.abs(found.centred * found.scales[:, None] - x).max(axis=1)
    assert (error <= found.scales * (1.01 if uneven else 0.501)).all()


def test_odd_rows() -> None:
    empty = quantize_rows(np.zeros((2, 0), np.float32))
    assert (empty.centred.shape, empty.scales.tolist()) == ((2, 0), [1.0, 1.0])
    strange = quantize_rows(np.array([[np.nan, 1], [np.inf, 1], [2, 1]], np.float32))
    assert strange.centred[2].tolist() == [127, 64]


@pytest.mark.parametrize("uneven", [False, True])
def test_products_are_exact_in_codes(uneven: bool) -> None:
    rng = np.random.default_rng(3)
    x, weights = rng.normal(size=(4, 700)).astype(np.float32), rng.integers(-128, 128, (6, 700)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, 6).astype(np.float32)
    rows = quantize_rows(x, asymmetric=uneven)
    sums = rows.centred.astype(np.int64) @ weights.T.astype(np.int64)
    expected = sums.astype(np.float32) * (rows.scales[:, None] * scales)
    assert (HybridMatrix(weights, scales).product(rows) == expected).all()
    single = HybridMatrix(weights, np.array([0.5], np.float32)).product(rows)
    assert (single == sums.astype(np.float32) * (rows.scales[:, None] * np.float32(0.5))).all()


def test_products_are_close_to_real_ones() -> None:
    rng = np.random.default_rng(4)
    x, weights = rng.normal(size=(3, 50)).astype(np.float32), rng.integers(-128, 128, (5, 50)).astype(np.int8)
    found = HybridMatrix(weights, np.array([0.01])).product(quantize_rows(x))
    np.testing.assert_allclose(found, x @ (weights.T * 0.01), atol=0.15)
