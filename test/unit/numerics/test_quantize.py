"""Real values to codes and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import quantize

REAL = st.floats(-1000, 1000, width=32)
SCALE = st.floats(2.0**-10, 10.0, width=32)


@given(st.lists(REAL, min_size=1, max_size=5), SCALE, st.integers(-128, 127))
def test_quantize(values: list[float], scale: float, zero: int) -> None:
    found = quantize.quantize_real(np.array(values, np.float32), scale, zero, "int8")
    assert found.tolist() == [scalar.code(v, scale, zero, -128, 127) for v in values]


@pytest.mark.parametrize(
    ("value", "code"), [(0.5, 1), (-0.5, -1), (1.5, 2), (np.inf, 127), (-np.inf, -128), (np.nan, -128)]
)
def test_edges(value: float, code: int) -> None:
    assert quantize.quantize_real(np.array([value], np.float32), 1.0, 0, "int8")[0] == code


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=5), SCALE, st.integers(-128, 127))
def test_round_trip(codes: list[int], scale: float, zero: int) -> None:
    real = quantize.dequantize_codes(np.array(codes, np.int8), scale, zero)
    assert real.dtype == np.float32
    assert quantize.quantize_real(real, scale, zero, "int8").tolist() == codes


def test_per_axis() -> None:
    scales, zeros = np.array([0.5, 2.0], np.float32), np.array([1, -1])
    codes = np.array([[3, 3], [5, 5]], np.int8)
    assert quantize.dequantize_codes(codes, scales, zeros, 1).tolist() == [[1.0, 8.0], [2.0, 12.0]]
    assert quantize.dequantize_codes(codes, scales, zeros, 0).tolist() == [[1.0, 1.0], [12.0, 12.0]]
    real = quantize.dequantize_codes(codes, scales, zeros, 1)
    assert (quantize.quantize_real(real, scales, zeros, "int8", 1) == codes).all()


@given(st.lists(st.floats(-300, 300, width=32), min_size=1), st.sampled_from(["int8", "int16", "int32"]))
def test_rounding_is_half_away_from_zero(values: list[float], dtype: str) -> None:
    """Also next to a half, where adding 1/2 would be a step too much."""
    x = np.array([*values, 0.49999997, -0.49999997, 2.5, -2.5, 8388609.0, 4194304.5], np.float32)
    limits = np.iinfo(dtype)
    expected = [scalar.clamp(scalar.half_away(float(v)), limits.min, limits.max) for v in x]
    assert quantize.quantize_real(x, 1.0, 0, dtype).tolist() == expected


def test_wide_codes() -> None:
    """Codes that float32 cannot hold are multiplied in float64."""
    codes = np.array([2**31 - 1, -(2**31), 16777217], np.int32)
    found = quantize.dequantize_codes(codes, 0.1, 3)
    assert found.tolist() == [float(np.float32(float(np.float32(0.1)) * (int(c) - 3))) for c in codes]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_rank_zero(dtype: str) -> None:
    found = quantize.quantize_real(np.array(3.0, np.float32), 0.5, 1, dtype)
    assert (found.shape, int(found)) == ((), 7)
    assert quantize.dequantize_codes(found, 0.5, 1) == 3.0
