"""Ranges chosen from statistics, and tails of extremes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError, OptionError
from odc_mlir.quantizer.policy.ranges import MODES, Tail, choose_range, with_room

VALUES = st.floats(-1e6, 1e6, width=32)


RUNS = st.lists(st.lists(VALUES, min_size=1, max_size=9), min_size=1, max_size=40)


def _of(runs: list[list[float]]) -> TensorStatistics:
    stats = TensorStatistics()
    for run in runs:
        stats.add(np.array(run, np.float32))
    return stats


def _normal(runs: int = 20, size: int = 2000) -> TensorStatistics:
    random = np.random.default_rng(0)
    stats = TensorStatistics()
    for _ in range(runs):
        stats.add(random.normal(size=size).astype(np.float32))
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


def test_moving_average() -> None:
    stats = _of([[-k, k] for k in range(40)])
    high = (15 * 0.9 + 31 * 0.1) * 0.9 + 39 * 0.1
    assert choose_range(stats, "moving-average") == pytest.approx((-high, high))
    assert choose_range(stats, "moving-average", batch=1, constant=1.0) == (-39.0, 39.0)
    assert choose_range(stats, "moving-average", batch=100) == (-39.0, 39.0)


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_constant_tensors(mode: str, value: float) -> None:
    assert choose_range(_of([[value] * 5] * 3), mode) == (value, value)


def test_refusals() -> None:
    stats = _normal(2, 10)
    with pytest.raises(OptionError, match=r"unknown range mode 'max'; use one of minmax, "):
        choose_range(stats, "max")
    with pytest.raises(OptionError, match="percentile has no option 'batch'; it takes low, high"):
        choose_range(stats, "percentile", batch=3)
    with pytest.raises(OptionError, match="minmax has no option 'low'; it takes none"):
        choose_range(stats, "minmax", low=3)
    for options in ({"low": -1}, {"high": 101}, {"low": 60, "high": 50}):
        with pytest.raises(OptionError, match="expected 0 <= low <= high <= 100"):
            choose_range(stats, "percentile", **options)
    with pytest.raises(OptionError, match="batch is 0, expected at least 1 run"):
        choose_range(stats, "moving-average", batch=0)
    with pytest.raises(OptionError, match=r"constant is 1\.5, expected 0 to 1"):
        choose_range(stats, "moving-average", constant=1.5)
    with pytest.raises(InputError, match="no usable value has been recorded"):
        choose_range(TensorStatistics(), "minmax")


def test_extremes_alone_are_enough() -> None:
    stats = TensorStatistics.of_extremes([-1, -2], [1, 3])
    assert choose_range(stats, "minmax") == (-2.0, 3.0)
    assert choose_range(stats, "moving-average", batch=1) == pytest.approx((-1.1, 1.2))


Draw = Callable[[np.random.Generator, int], np.ndarray]


DRAWS: dict[str, Draw] = {
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
    true = np.square(np.maximum(others - end, 0.0)).mean()
    (found,) = Tail.of(seen).cut_off(np.array([end]))
    assert found == pytest.approx(true, rel=0.4)


def test_values_beyond_the_largest_are_those_of_the_tail() -> None:
    random = np.random.default_rng(2)
    tail, others = Tail.of(random.exponential(size=3000)), random.exponential(size=1_000_000)
    beyond = others[others > 3.0]
    lost, power = tail.beyond(3.0, 4.0, np.array([0.0]))
    assert lost[0] == pytest.approx(np.square(np.maximum(beyond - 4.0, 0.0)).mean(), rel=0.3)
    assert power[0] == pytest.approx(np.square(beyond).mean(), rel=0.1)
    assert tail.beyond(3.0, 2.0, np.array([0.0]))[0][0] == pytest.approx(2.0, rel=0.3)  # beyond 3 itself


def test_equal_values_have_no_tail() -> None:
    tail = Tail.of(np.ones(20))
    assert tail.cut_off(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert tail.beyond(1.0, 2.0, np.array([0.1, -0.1]))[0].tolist() == [0.0, 0.0]


def _statistics(rows: np.ndarray) -> TensorStatistics:
    found = TensorStatistics()
    found.update(rows.astype(np.float32))
    return found


def _room(rows: np.ndarray, bits: int = 8) -> tuple[float, float]:
    """By which parts of what was seen the ends lie beyond it."""
    stats = _statistics(rows)
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
        stats = _statistics(seen)
        ends = [(stats.minimum, stats.maximum), with_room(stats, 1, 8)]
        plain, with_output_room = (
            ((high - low) / 255) ** 2 / 12 + np.square(others - np.clip(others, low, high)).mean() for low, high in ends
        )
        gains.append(10 * np.log10(plain / with_output_room))
    assert np.mean(gains) > 5.0


def test_an_end_at_zero_stays_there() -> None:
    rows = np.random.default_rng(5).exponential(size=(30, 1))
    rows[0] = 0.0
    low, high = with_room(_statistics(rows), 1, 8)
    assert low == 0.0
    assert high > rows.max()


@pytest.mark.parametrize("rows", [np.zeros((4, 1)), np.ones((1, 1))])
def test_what_does_not_vary_or_was_seen_once_gets_no_room(rows: np.ndarray) -> None:
    assert with_room(_statistics(rows), 1, 8) == (rows.min(), rows.max())
