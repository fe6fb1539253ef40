"""16-bit functions against real ones, and additions by shifts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import int16

CODES = np.arange(-32768, 32768, dtype=np.int16)


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 3e-4, 1e-4, 2.0**-15])
def test_logistic_and_tanh(scale: float) -> None:
    real = CODES * scale
    logistic = int16.logistic16(CODES, int16.sigmoid_params(scale, largest_shift=0)) / 32768
    tanh = int16.tanh16(CODES, int16.sigmoid_params(scale, largest_shift=1)) / 32768
    assert np.abs(logistic - 1 / (1 + np.exp(-real))).max() < 4 / 32768
    assert np.abs(tanh - np.tanh(real)).max() < 6 / 32768


def test_powers_of_two_need_no_shift() -> None:
    assert int16.sigmoid_params(2.0**-12, largest_shift=0) == int16.SigmoidParams(3, 0)
    assert int16.sigmoid_params(2.0**-11, largest_shift=1) == int16.SigmoidParams(6, 0)
    assert int16.sigmoid_params(2.0**-11, largest_shift=0).shift > 0


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=9), st.floats(1e-5, 1e-3))
def test_softmax(row: list[int], scale: float) -> None:
    codes = int16.softmax16_codes(np.array(row, np.int16), *int16.softmax16_params(scale, 1.0))
    real = np.exp((np.array(row) - max(row)) * scale)
    real /= real.sum()
    assert np.abs(codes / 32768 - real).max() < (12 + 2 * len(row)) / 32768  # the table of e^x ends at -10


def test_softmax_of_many_rows() -> None:
    """Rows enough for a table of exponentials and for several stretches are those of a few rows."""
    codes = np.random.default_rng(0).integers(-32768, 32768, (5000, 60)).astype(np.int16)
    params = int16.softmax16_params(2e-4, 1.0)
    parts = [int16.softmax16_codes(part, *params) for part in np.array_split(codes, 4)]
    np.testing.assert_array_equal(int16.softmax16_codes(codes, *params), np.concatenate(parts))


def test_wide_table_interpolates() -> None:
    table = int16.wide_table(lambda x: x, -1.0, 1.0, -1.0, 1.0)
    assert len(table) == 513
    assert np.abs(int16.look_up(table, CODES) - CODES).max() <= 1


@given(st.integers(-32768, 32767), st.integers(-32768, 32767), st.integers(0, 9), st.booleans())
def test_power_add(a: int, b: int, shift: int, subtract: bool) -> None:
    params = int16.power_add_params(2.0**-9, 2.0 ** (-9 - shift), 2.0**-9, (-30000, 32767))
    assert params is not None
    right = scalar.rdbpot(b, shift)
    expected = scalar.clamp(scalar.clamp(a - right if subtract else a + right, -32768, 32767), -30000, 32767)
    assert int16.power_add(np.array([a], np.int16), np.array([b], np.int16), params, subtract=subtract)[0] == expected


@pytest.mark.parametrize(
    "scales",
    [(0.3, 0.25, 0.25), (0.25, 0.5, 0.125), (0.125, 0.125, 0.5), (2.0**-40, 1.0, 1.0)],
    ids=["no power of two", "to the left", "both shifted", "too far"],
)
def test_no_power_add(scales: tuple[float, float, float]) -> None:
    assert int16.power_add_params(*scales, (-32768, 32767)) is None
