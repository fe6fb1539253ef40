"""Normalised rows of codes against real numbers: rows of all sizes, with and without outliers, epsilon and gamma."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from odc_mlir.numerics.normalization import HIGH, rms_norm_codes, rms_norm_params

ROWS = 24


def decibels(x: NDArray[np.float64], dtype: str, epsilon: float, gamma: NDArray[np.float32]) -> tuple[float, float]:
    """Signal-to-noise ratio of codes, and the one of exact results rounded to codes."""
    high = int(np.iinfo(dtype).max)
    scale = float(np.float32(1 / 256)) if dtype == "int16" else float(np.float32(0.02))
    codes = np.clip(np.round(x * high), -high, high).astype(dtype)
    reals = codes * scale
    exact = gamma * reals / np.sqrt(np.maximum((reals**2).mean(axis=-1, keepdims=True) + epsilon, 1e-30))
    step = float(np.float32(max(np.abs(exact).max(), 1e-9) / high))
    params = rms_norm_params((scale, 0), dtype, gamma, epsilon, x.shape[-1], (step, 0), dtype)
    found = rms_norm_codes(codes, params) * step
    rounded = np.round(exact / step) * step
    power = (exact**2).sum()
    return tuple(float(10 * np.log10(power / max(((y - exact) ** 2).sum(), 1e-30))) for y in (found, rounded))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 10.0, 1e6])
@pytest.mark.parametrize("count", [1, 7, 64, 1024])
@pytest.mark.parametrize("size", [0.3, 0.02])
def test_rows_of_any_size_are_normalised(count: int, size: float, epsilon: float, dtype: str) -> None:
    rng = np.random.default_rng([count, int(1000 * size)])
    x = rng.normal(size=(ROWS, count)) * size
    for gamma in (np.ones(1, np.float32), rng.uniform(-2, 3, count).astype(np.float32)):
        seen, ideal = decibels(x, dtype, epsilon, gamma)
        wide = 60.0 if epsilon < 1e3 else 55.0  # where it hides all squares
        assert seen >= min(ideal - 8.0, 40.0 if dtype == "int8" else wide)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("times", [20.0, 200.0])
def test_a_channel_far_beyond_the_others_leaves_their_shares(times: float, dtype: str) -> None:
    """Language models have such channels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 512))
    x[:, 7] = rng.choice([-times, times], ROWS)
    seen, ideal = decibels(x / (1.2 * times), dtype, 1e-6, np.ones(1, np.float32))
    assert seen >= min(ideal - 8.0, 40.0 if dtype == "int8" else 55.0)


def test_no_product_with_the_normaliser_exceeds_16_bits() -> None:
    """Codes of one row each: the largest of 16 bits, and all of 8."""
    params = rms_norm_params((1.0, 0), "int16", np.ones(1, np.float32), 0.0, 1, (1 / 16384, 0), "int16")
    codes = np.arange(-HIGH - 1, HIGH + 1, dtype=np.int16)[:, None]
    found = rms_norm_codes(codes, params)[:, 0].astype(np.int64)
    large = np.abs(codes[:, 0].astype(np.int64)) > 32
    assert np.abs(np.abs(found[large]) - 16384).max() <= 16384 // 300
    assert (np.sign(found) == np.sign(codes[:, 0])).all()
