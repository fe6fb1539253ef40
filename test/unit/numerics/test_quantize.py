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
