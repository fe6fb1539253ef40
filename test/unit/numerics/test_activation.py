"""Hard swish, slopes and roots of codes against the real functions; GELU, ELU and hard swish of reals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.numerics import activation, special

CODES = np.arange(-128, 128, dtype=np.int8)


def test_gelu() -> None:
    x = np.concatenate([np.linspace(-12, 12, 4001), [-300, 300, -1e-30, 1e-30, 0]]).astype(np.float32)
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    np.testing.assert_allclose(special.gelu(x), exact, rtol=3e-6, atol=1e-8)
    np.testing.assert_allclose(special.gelu_exact(x), exact, rtol=1e-5, atol=1e-30)
    assert np.abs(special.gelu_tanh(x) - exact).max() < 5e-4
    np.testing.assert_allclose(special.gelu_tanh_exact(x), special.gelu_tanh(x), rtol=1e-5, atol=1e-6)


def test_gelu_at_the_ends() -> None:
    with np.errstate(invalid="ignore"):
        found = special.gelu(np.array([np.inf, -np.inf, np.nan], np.float32))
    assert found[0] == np.inf
    assert np.isnan(found[1:]).all()


def test_elu_and_hard_swish() -> None:
    x = np.linspace(-9, 9, 999, dtype=np.float32)
    np.testing.assert_allclose(special.elu(x), np.where(x < 0, np.expm1(x.astype(float)), x), rtol=1e-6)
    np.testing.assert_array_equal(special.hard_swish(x), x * np.clip(x + 3.0, 0, 6) / 6)  # each step rounded


def test_exponentials_are_normal_numbers_or_zero() -> None:
    x = np.array([-87.0, -88.0, -103.0, -np.inf], np.float32)
    assert (np.exp(x)[1:3] > 0).all()
    np.testing.assert_array_equal(special.exp(x), [np.exp(x[0]), 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(special.exp(x[:1]), np.exp(x[:1]))
    assert special.exp(x[:0]).shape == (0,)


@pytest.mark.parametrize(("scale", "zero"), [(0.05, -20), (0.1, 7), (0.02, 100)])
def test_hard_swish_codes(scale: float, zero: int) -> None:
    """Within two codes: the intermediate results have only 16 bits."""
    p = activation.hard_swish_params((scale, zero), (scale / 2, -10), "int8")
    x = (CODES.astype(float) - zero) * scale
    codes = x * np.clip(x + 3, 0, 6) / 6 / (scale / 2) - 10
    assert np.abs(activation.hard_swish_codes(CODES, p) - np.clip(codes, -128, 127)).max() < 2


@given(st.floats(0.001, 0.5), st.floats(0.001, 0.5), st.integers(-128, 0))
def test_roots(scale: float, out_scale: float, zero: int) -> None:
    x = np.arange(zero, 128, dtype=np.int8)
    real = (x.astype(float) - zero) * float(np.float32(scale))
    found = activation.sqrt_codes(x, (scale, zero), (out_scale, -128))
    assert np.abs(found - np.minimum(np.sqrt(real) / out_scale - 128, 127)).max() <= 1.001
    inverse = activation.rsqrt_codes(x, zero, -128, *activation.rsqrt_params((scale, zero), (out_scale, -128)))
    assert inverse[0] == 127
    assert np.abs(inverse[1:] - np.minimum(1 / np.sqrt(real[1:]) / out_scale - 128, 127)).max() <= 0.51
