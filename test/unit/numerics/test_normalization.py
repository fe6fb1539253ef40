"""Norms, logarithms and their parts against the real functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.numerics import normalization, softmax, transcendental


@given(st.integers(2, 2**31 - 1))
def test_inverse_square_root(n: int) -> None:
    q, e = transcendental.inverse_sqrt(np.array([n]))
    assert float(q[0]) * 2.0 ** (int(e[0]) - 31) * n**0.5 == pytest.approx(1, rel=2e-6)


def test_inverse_square_root_of_little() -> None:
    q, e = transcendental.inverse_sqrt(np.array([0, 1]))
    assert (q.tolist(), e.tolist()) == ([2**31 - 1] * 2, [0, 0])


@given(st.integers(1 << 19, 2**31 - 1))
def test_logarithm(x: int) -> None:
    """Of numbers with 12 integer bits, to 5."""
    found = transcendental.log_from_one(np.array([x], np.int32), 12)[0] / 2.0**26
    assert found == pytest.approx(np.log(x / 2.0**19), abs=2e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_log_softmax_codes(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (50, 10)).astype(dtype)
    for scale in (0.01, 0.1, 1.0):
        params = softmax.log_softmax_params(scale)
        found = softmax.log_softmax_codes(x, *params, limits.max, dtype)
        real = softmax.log_softmax_float((x * scale).astype(np.float32))
        assert np.abs(found - np.maximum(real * 16 + limits.max, limits.min)).max() <= 1.01


def test_log_softmax_of_large_numbers() -> None:
    x = np.array([[1000.0, 1000.0, -1000.0]], np.float32)
    np.testing.assert_allclose(softmax.log_softmax_float(x), [[-np.log(2), -np.log(2), -2000 - np.log(2)]], rtol=1e-6)


def test_l2_norm() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    x[0, 0] = 0
    found = normalization.l2_normalize(x)
    norms = np.linalg.norm(found, axis=-1)
    assert norms[0, 0] == 0
    np.testing.assert_allclose(norms.ravel()[1:], 1, rtol=1e-6)
    codes = np.random.default_rng(1).integers(-128, 128, (40, 7)).astype(np.int8)
    real = (codes.astype(float) - 3) / np.linalg.norm(codes.astype(float) - 3, axis=-1, keepdims=True)
    for dtype, shift in (("int8", 0), ("uint8", 128)):
        shifted = (codes.astype(int) + shift).astype(dtype)
        found = normalization.l2_normalize_codes(shifted, 3 + shift, shift)
        assert np.abs(found - np.clip(real * 128 + shift, -128 + shift, 127 + shift)).max() <= 1


def exact_l2_norm(codes: list[int], zero: int, gain: int) -> list[int]:
    """The fixed-point formula on one row of 8-bit codes, one number at a time; results without zero point."""
    squares = sum((c - zero) ** 2 for c in codes)
    roots, exponents = transcendental.inverse_sqrt(np.array([squares]))
    q, exponent = int(roots[0]), int(exponents[0]) + gain
    left, right = max(exponent, 0) + 7 - gain, max(-exponent, 0)
    results = []
    for code in codes:
        scaled = (((code - zero) * (q << left)) + (1 << 30)) >> 31
        half = 1 << right >> 1
        results.append((scaled + half - (scaled < 0 and right > 0)) >> right)
    return results


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@given(st.integers(1, 40), st.integers(-128, 127), st.integers(1, 255), st.integers(0, 2**32 - 1))
def test_l2_norm_of_codes(dtype: str, columns: int, zero: int, spread: int, seed: int) -> None:
    shift = 128 if dtype == "uint8" else 0
    source = np.clip(zero + np.random.default_rng(seed).integers(-spread, spread + 1, (3, columns)), -128, 127) + shift
    found = normalization.l2_normalize_codes(source.astype(dtype), zero + shift, shift)
    for row, codes in zip(found.tolist(), source.tolist(), strict=True):
        exact = exact_l2_norm(codes, zero + shift, 0 if shift else 7)
        assert row == [min(max(value, -128), 127) + shift for value in exact]


def test_l2_norm_of_many_rows() -> None:
    """Rows by the thousand, whose roots are tabulated, are normalised as one by one."""
    codes = np.random.default_rng(2).integers(-128, 128, (1 << 14, 3)).astype(np.int8)
    found = normalization.l2_normalize_codes(codes, 5, 0)
    parts = [normalization.l2_normalize_codes(part, 5, 0) for part in np.array_split(codes, 8)]
    np.testing.assert_array_equal(found, np.concatenate(parts))


@pytest.mark.parametrize("radius", [0, 2, 50])
def test_local_response(radius: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 2, 9)).astype(np.float32)
    found = normalization.local_response_normalize(x, radius, 1.5, 0.5, 0.75)
    for i in range(9):
        energy = (x[..., max(0, i - radius) : i + radius + 1].astype(float) ** 2).sum(axis=-1)
        np.testing.assert_allclose(found[..., i], x[..., i] / (1.5 + 0.5 * energy) ** 0.75, rtol=1e-5)
