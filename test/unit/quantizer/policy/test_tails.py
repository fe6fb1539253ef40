"""How far values reach that were not seen, by the tail of those that were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.quantizer.policy.ranges import Tail, with_room

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
