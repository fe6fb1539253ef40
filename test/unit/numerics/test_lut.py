"""Tables of 8-bit functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import lut


@given(st.floats(2.0**-10, 0.5, width=32), st.integers(-128, 127), st.integers(-128, 127))
def test_real_table(scale: float, zero: int, code: int) -> None:
    """Codes of a function of real numbers, where float32 has no doubt about the rounding."""
    table = lut.real_table(lut.logistic, (scale, zero), (1 / 256, -128), "int8", "int8")
    real = 256 / (1 + math.exp(-scale * (code - zero)))
    if abs(real % 1 - 0.5) > 1e-3:
        expected = scalar.clamp(scalar.half_away(real) - 128, -128, 127)
        assert lut.apply(table, np.array([code], np.int8))[0] == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_tabulate_every_code(dtype: str) -> None:
    limits = np.iinfo(dtype)
    codes = np.arange(limits.min, limits.max + 1).astype(dtype)
    table = lut.tabulate(lambda x: x ^ 0x55, dtype)
    assert (lut.apply(table, codes) == codes ^ 0x55).all()
    assert (lut.apply(table, codes[:1].reshape(1, 1)) == codes[0] ^ 0x55).all()


def test_infinities_and_nan_saturate() -> None:
    table = lut.real_table(lambda x: np.log(x), (1.0, 0), (0.01, 0), "int8", "int8")
    at = dict(zip(lut.codes_by_bits("int8").tolist(), table.tolist(), strict=True))
    assert at[0] == -128
    assert at[-5] == -128
    assert at[127] == 127
    assert at[2] == 69


def test_logistic_of_large_values() -> None:
    assert lut.logistic(np.array([-1000.0, 0.0, 1000.0], np.float32)).tolist() == [0.0, 0.5, 1.0]
