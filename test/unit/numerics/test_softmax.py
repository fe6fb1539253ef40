"""8-bit softmax against the scalar algorithm and the real function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import softmax

ROW = st.lists(st.integers(-128, 127), min_size=1, max_size=12)


@given(ROW, st.floats(2.0**-12, 4.0, width=32), st.sampled_from([1.0, 0.5, 3.0]))
def test_codes(row: list[int], scale: float, beta: float) -> None:
    params = softmax.softmax_params(scale, beta)
    found = softmax.softmax_codes(np.array(row, np.int8), *params, "int8")
    assert found.tolist() == scalar.softmax(row, scale, beta)


@given(ROW)
def test_uint8_and_int8_differ_by_the_offset(row: list[int]) -> None:
    params = softmax.softmax_params(0.1, 1.0)
    signed = softmax.softmax_codes(np.array(row, np.int8), *params, "int8")
    unsigned = softmax.softmax_codes((np.array(row) + 128).astype(np.uint8), *params, "uint8")
    assert (unsigned.astype(int) - 128 == signed).all()


@given(ROW, st.floats(0.01, 0.5))
def test_close_to_the_real_function(row: list[int], scale: float) -> None:
    real = np.exp((np.array(row) - max(row)) * scale)
    real /= real.sum()
    for dtype, levels in (("int8", 256), ("int16", 65536)):
        codes = softmax.softmax_codes(np.array(row, np.int8), *softmax.softmax_params(scale, 1.0), dtype)
        assert np.abs((codes.astype(float) + levels // 2) / levels - real).max() <= 1.01 / levels


def test_many_equal_values() -> None:
    """Sums beyond 31 bits of shift, where the scalar shift of a C kernel would be undefined."""
    row = np.zeros((1, 2000), np.int8)
    assert set(softmax.softmax_codes(row, *softmax.softmax_params(0.1, 1.0), "int8").ravel()) == {-128}
    assert set(softmax.softmax_codes(row[:, :500], *softmax.softmax_params(0.1, 1.0), "int8").ravel()) == {-127}


def test_rows_are_independent() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 3, 7)).astype(np.int8)
    params = softmax.softmax_params(0.07, 1.0)
    found = softmax.softmax_codes(x, *params, "int8")
    for i, j in np.ndindex(2, 3):
        assert (found[i, j] == softmax.softmax_codes(x[i, j], *params, "int8")).all()


def test_float_table_variant_agrees_within_a_code() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (50, 10)).astype(np.uint8)
    fixed = softmax.softmax_codes(x, *softmax.softmax_params(0.05, 1.0), "uint8")
    table = softmax.softmax_float_table(x, 0.05, 1.0, 1 / 256, 0, "uint8")
    assert np.abs(fixed.astype(int) - table).max() <= 1
    wider = softmax.softmax_float_table(x, 0.05, 1.0, 1 / 255, 0, "uint8")
    real = np.exp(x * 0.05) / np.exp(x * 0.05).sum(axis=1, keepdims=True)
    assert np.abs(wider / 255 - real).max() <= 0.51 / 255


def test_float() -> None:
    x = np.array([[1.0, 2.0, 3.0], [1000.0, 1000.0, -1000.0]], np.float32)
    found = softmax.softmax_float(x, 1.0)
    assert found.dtype == np.float32
    assert found.sum(axis=1) == pytest.approx([1, 1])
    assert found[1].tolist() == [0.5, 0.5, 0.0]
