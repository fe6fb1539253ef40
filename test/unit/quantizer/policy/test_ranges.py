"""Ranges chosen from statistics, and tails of extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import OdcError
from odc_mlir.quantizer.policy.ranges import MODES, Tail, choose_range, with_room

VALUES = st.floats(-1e6, 1e6, width=32)
RUNS = st.lists(st.lists(VALUES, min_size=1, max_size=9), min_size=1, max_size=40)


def _of(runs: Any) -> TensorStatistics:
    stats = TensorStatistics()
    for run in runs:
        stats.add(np.array(run, np.float32))
    return stats


@given(RUNS, st.sampled_from(sorted(MODES)))
def test_every_range_lies_within_what_was_seen(runs: list[list[float]], mode: str) -> None:
    stats = _of(runs)
    low, high = choose_range(stats, mode)
    assert stats.minimum <= low <= high <= stats.maximum


@given(RUNS, st.floats(0, 100), st.floats(0, 100))
def test_percentile_is_numpys(runs: list[list[float]], a: float, b: float) -> None:
    stats, (low, high) = _of(runs), sorted((a, b))
    expected = sorted((np.percentile(stats.minima.astype(float), low), np.percentile(stats.maxima.astype(float), high)))
    assert choose_range(stats, "percentile", low=low, high=high) == tuple(expected)


def test_percentile_as_record_minmax_has_it() -> None:
    stats = _of([[-0.5, 1], [-1, 2], [-1.5, 3], [-2, 4], [-2.5, 5]])
    assert choose_range(stats, "percentile") == pytest.approx((-2.48, 4.96))
    assert choose_range(stats, "percentile", low=0, high=100) == choose_range(stats, "minmax") == (-2.5, 5.0)
    assert choose_range(_of([[3, 4]]), "percentile") == (3.0, 4.0)


def test_moving_average_also_of_extremes_alone() -> None:
    stats = _of([[-k, k] for k in range(40)])
    high = (15 * 0.9 + 31 * 0.1) * 0.9 + 39 * 0.1
    assert choose_range(stats, "moving-average") == pytest.approx((-high, high))
    assert choose_range(stats, "moving-average", batch=1, constant=1.0) == (-39.0, 39.0)
    assert choose_range(stats, "moving-average", batch=100) == (-39.0, 39.0)
    extremes = TensorStatistics.of_extremes([-1, -2], [1, 3])
    assert choose_range(extremes, "minmax") == (-2.0, 3.0)
    assert choose_range(extremes, "moving-average", batch=1) == pytest.approx((-1.1, 1.2))


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_constant_tensors(mode: str, value: float) -> None:
    assert choose_range(_of([[value] * 5] * 3), mode) == (value, value)


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("max", {}, r"unknown range mode 'max'; use one of minmax, "),
        ("percentile", {"batch": 3}, "percentile has no option 'batch'; it takes low, high"),
        ("minmax", {"low": 3}, "minmax has no option 'low'; it takes none"),
        ("percentile", {"low": -1}, "expected 0 <= low <= high <= 100"),
        ("percentile", {"high": 101}, "expected 0 <= low <= high <= 100"),
        ("percentile", {"low": 60, "high": 50}, "expected 0 <= low <= high <= 100"),
        ("moving-average", {"batch": 0}, "batch is 0, expected at least 1 run"),
        ("moving-average", {"constant": 1.5}, r"constant is 1\.5, expected 0 to 1"),
        ("minmax", None, "no usable value has been recorded"),
    ],
)
def test_refusals(mode: str, options: dict[str, float] | None, text: str) -> None:
    with pytest.raises(OdcError, match=text):
        choose_range(TensorStatistics() if options is None else _of([[1, 2]] * 2), mode, **options or {})


DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential": lambda random, count: random.exponential(size=count),
    "normal": lambda random, count: random.normal(size=count),
    "lognormal": lambda random, count: np.exp(0.5 * random.normal(size=count)),
    "uniform": lambda random, count: random.random(count),
}


@pytest.mark.parametrize("name", DRAWS)
def test_many_values_tell_what_an_end_cuts_off(name: str) -> None:
    random = np.random.default_rng(1)
    seen, others = DRAWS[name](random, 3000), DRAWS[name](random, 1_000_000)
    end = np.quantile(others, 0.9)
    (found,) = Tail.of(seen).cut_off(np.array([end]))
    assert found == pytest.approx(np.square(np.maximum(others - end, 0.0)).mean(), rel=0.4)


def test_values_beyond_the_largest_are_those_of_the_tail() -> None:
    random = np.random.default_rng(2)
    tail, others = Tail.of(random.exponential(size=3000)), random.exponential(size=1_000_000)
    beyond = others[others > 3.0]
    lost, power = tail.beyond(3.0, 4.0, np.array([0.0]))
    assert lost[0] == pytest.approx(np.square(np.maximum(beyond - 4.0, 0.0)).mean(), rel=0.3)
    assert power[0] == pytest.approx(np.square(beyond).mean(), rel=0.1)
    assert tail.beyond(3.0, 2.0, np.array([0.0]))[0][0] == pytest.approx(2.0, rel=0.3)  # beyond 3 itself
    even = Tail.of(np.ones(20))  # equal values have none
    assert even.cut_off(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert even.beyond(1.0, 2.0, np.array([0.1, -0.1]))[0].tolist() == [0.0, 0.0]


def _room(rows: np.ndarray, bits: int = 8) -> tuple[float, float]:
    """By which parts of what was seen the ends lie beyond it."""
    stats = _of(rows)
    low, high = with_room(stats, rows.shape[1], bits)
    span = stats.maximum - stats.minimum
    return (stats.minimum - low) / span, (high - stats.maximum) / span


def test_heavier_tails_get_more_room_and_many_elements_hardly_any() -> None:
    random = np.random.default_rng(3)
    for tail in (random.normal(size=(48, 1)), random.standard_t(3, size=(48, 1)), random.laplace(size=(48, 1))):
        assert min(_room(tail)) > 0.1
    assert max(_room(random.normal(size=(48, 4096)))) < 0.1
    assert max(_room(random.random((100, 1)))) < 0.2


def test_the_same_room_pays_on_values_that_were_not_seen() -> None:
    """Rounding and cutting off together, on the average of draws, against ends as they were seen."""
    random, gains = np.random.default_rng(4), []
    for _ in range(40):
        seen, others = random.normal(size=(32, 1)), random.normal(size=4000)
        stats = _of(seen)
        plain, wide = (
            ((high - low) / 255) ** 2 / 12 + np.square(others - np.clip(others, low, high)).mean()
            for low, high in ((stats.minimum, stats.maximum), with_room(stats, 1, 8))
        )
        gains.append(10 * np.log10(plain / wide))
    assert np.mean(gains) > 5.0


def test_ends_at_zero_and_of_what_does_not_vary_or_was_seen_once_stay() -> None:
    rows = np.random.default_rng(5).exponential(size=(30, 1))
    rows[0] = 0.0
    low, high = with_room(_of(rows), 1, 8)
    assert low == 0.0
    assert high > rows.max()
    for rows in (np.zeros((4, 1)), np.ones((1, 1))):
        assert with_room(_of(rows), 1, 8) == (rows.min(), rows.max())
