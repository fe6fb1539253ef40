"""Intervals of verdicts: they hold the truth about as often as they say, also where single samples decide."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.quantizer import intervals
from odc_mlir.quantizer.intervals import wilson


def _judged(noise: np.ndarray, tail: float = intervals.TAIL) -> tuple[float, float]:
    """The interval of the SQNR of samples of power 1 with this noise each."""
    expected = [[np.ones(1)] for _ in noise]
    found = [[1.0 + np.sqrt(np.array([power]))] for power in noise]
    return intervals._ends([1.0], intervals.Judged(expected, found, tail))["sqnr_db"]


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_most_intervals_of_skewed_errors_hold_the_true_ratio(spread: float) -> None:
    random, held = np.random.default_rng(2), 0
    truth = 40.0 - 10.0 * np.log10(np.exp(spread**2 / 2))  # of the mean of exp(N(0, spread)), -40 dB
    for _ in range(60):
        low, high = _judged(1e-4 * np.exp(random.normal(0.0, spread, 16)))
        held += low <= truth <= high
    assert held >= 0.95 * 60


def test_intervals_hold_what_one_sample_of_fifty_decides() -> None:
    random, held, truth = np.random.default_rng(3), 0, -10.0 * np.log10(0.98 * 1e-4 + 0.02 * 3e-2)
    for _ in range(60):
        low, high = _judged(np.where(random.random(48) < 0.02, 3e-2, 1e-4), tail=300.0)
        held += low <= truth <= high
    assert held >= 0.95 * 60


def test_an_interval_becomes_narrower_with_more_samples_and_never_reaches_below_the_signal() -> None:
    widths = [high - low for low, high in (_judged(np.full(count, 1e-4)) for count in (4, 16, 64))]
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    assert _judged(np.full(2, 0.5), tail=1e6)[0] >= 0.0


@pytest.mark.parametrize(
    ("share", "count", "low", "high"), [(1.0, 16, 0.806, 1.0), (0.5, 100, 0.404, 0.596), (0.0, 4, 0.0, 0.49)]
)
def test_shares_are_never_certain(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
