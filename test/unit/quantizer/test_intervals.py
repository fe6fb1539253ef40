"""Intervals of verdicts: they hold the truth about as often as they say, also where single samples decide."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.quantizer import intervals
from odc_mlir.quantizer.intervals import wilson


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_most_intervals_of_skewed_errors_hold_the_true_ratio(spread: float) -> None:
    random = np.random.default_rng(2)
    truth = -(spread**2) / 2  # of the mean of exp(N(0, spread)), which is the noise of samples of power 1
    held = 0
    for _ in range(120):
        noise = np.exp(random.normal(0.0, spread, 16))
        draws = random.integers(0, 16, (400, 16))
        low, high = np.percentile(intervals._pivoted(np.ones(16), noise, draws), (2.5, 97.5))
        held += low <= truth <= high
    assert 0.86 * 120 <= held <= 120


def test_equal_samples_leave_no_doubt_and_no_crash() -> None:
    draws = np.random.default_rng(0).integers(0, 8, (50, 8))
    assert intervals._pivoted(np.full(8, 2.0), np.ones(8), draws) == pytest.approx(np.log(2.0))


@pytest.mark.parametrize(
    ("share", "count", "low", "high"), [(1.0, 16, 0.806, 1.0), (0.5, 100, 0.404, 0.596), (0.0, 4, 0.0, 0.49)]
)
def test_shares_are_never_certain(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
