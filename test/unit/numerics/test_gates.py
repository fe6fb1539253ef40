"""16-bit logistic function and tangent against real functions, scalar code, and each other's symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar_recurrent as scalar
from odc_mlir.numerics import gates

CODES = np.arange(-32768, 32768).astype(np.int16)
CODE = st.integers(-32768, 32767)


def one(value: int) -> np.ndarray:
    return np.array([value], np.int16)


@given(CODE)
def test_logistic_as_scalar(code: int) -> None:
    assert gates.logistic(one(code))[0] == scalar.logistic(code)


@given(CODE, st.integers(0, gates.LARGEST_BITS))
def test_tanh_as_scalar(code: int, bits: int) -> None:
    assert gates.tanh(one(code), bits)[0] == scalar.tanh(code, bits)


@pytest.mark.parametrize("code", [-32768, -32767, -1, 0, 1, 32767, 4096, -4096])
def test_edges(code: int) -> None:
    assert gates.logistic(one(code))[0] == scalar.logistic(code)
    for bits in range(gates.LARGEST_BITS + 1):
        assert gates.tanh(one(code), bits)[0] == scalar.tanh(code, bits)


def test_logistic_is_close() -> None:
    real = 1 / (1 + np.exp(-CODES.astype(np.float64) / 4096))
    assert np.abs(gates.logistic(CODES) / 32768 - real).max() < 7 / 32768


@pytest.mark.parametrize("bits", range(gates.LARGEST_BITS + 1))
def test_tanh_is_close(bits: int) -> None:
    real = np.tanh(CODES.astype(np.float64) / (1 << 15 - bits))
    assert np.abs(gates.tanh(CODES, bits) / 32768 - real).max() < 13 / 32768


def test_symmetry() -> None:
    positive = CODES[CODES > 0]
    assert (gates.logistic(-positive) == 32767 - gates.logistic(positive)).all()
    for bits in range(gates.LARGEST_BITS + 1):
        assert (gates.tanh(-positive, bits) == -gates.tanh(positive, bits)).all()
    assert gates.logistic(one(0))[0] == 16384
    assert gates.tanh(one(0), 4)[0] == 0


def test_any_shape() -> None:
    codes = CODES[:24].reshape(2, 3, 4)
    assert (gates.logistic(codes) == gates.logistic(codes.reshape(-1)).reshape(codes.shape)).all()
    assert gates.tanh(codes[:0], 3).shape == (0, 3, 4)
