from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odc_mlir.quantizer import pareto
from odc_mlir.quantizer.pareto import (
    Border,
    Levels,
    Network,
    Point,
    Problem,
    RoundingNoise,
    first_good,
    front,
    thinned,
    without_needless,
)
from odc_mlir.quantizer.policy.schemes import LADDERS, ladder_of, with_wide_weights

_AMOUNTS = st.integers(0, 12).map(float)


def test_every_full_scheme_ends_in_float() -> None:
    assert all(ladder[-1] == "float" for ladder in LADDERS.values())
    assert ladder_of("int16_wo") == ()
    assert with_wide_weights("int8") == ("int16x8", "int16", "float")
    assert with_wide_weights("int16x8") == ("int16", "float")
    assert with_wide_weights("int16") == ladder_of("int16")


@st.composite
def _problems(draw: st.DrawFn, layers: int = 4) -> Problem:
    count, levels = draw(st.integers(1, layers)), draw(st.integers(2, 3))
    wide = st.lists(_AMOUNTS | st.just(math.inf), min_size=levels - 1, max_size=levels - 1)
    costs = [[draw(_AMOUNTS), *draw(wide)] for _ in range(count)]
    members = st.sets(st.integers(0, count - 1), min_size=1, max_size=3).map(lambda found: tuple(sorted(found)))
    falling = st.lists(_AMOUNTS, min_size=levels, max_size=levels).map(lambda found: tuple(sorted(found, reverse=True)))
    roundings = draw(st.lists(st.builds(RoundingNoise, members, falling), max_size=6))
    prices = st.lists(_AMOUNTS, min_size=levels - 1, max_size=levels - 1).map(tuple)
    borders = draw(st.lists(st.builds(Border, st.just(0), st.integers(0, count - 1), prices), max_size=2))
    return Problem(costs, roundings, borders)


def _all(problem: Problem) -> list[Point]:
    allowed = [[k for k, cost in enumerate(row) if math.isfinite(cost)] for row in problem.costs]
    return [problem.point(levels) for levels in itertools.product(*allowed)]


def _pairs(points: list[Point]) -> list[tuple[float, float]]:
    return [(point.cost, point.noise) for point in points]


@settings(max_examples=30)
@given(_problems())
def test_the_front_is_what_nothing_beats(problem: Problem) -> None:
    everything, found = _all(problem), front(problem)
    assert all(problem.point(point.levels) == point for point in found)
    unbeaten = {
        pair
        for pair in _pairs(everything)
        if not any(c <= pair[0] and n <= pair[1] and (c, n) != pair for c, n in _pairs(everything))
    }
    assert set(_pairs(found)) == unbeaten
    assert _pairs(found) == sorted(unbeaten)


@settings(max_examples=30)
@given(_problems(), st.integers(0, 40).map(lambda n: n / 7))
def test_a_cut_is_best_for_its_price(problem: Problem, price: float) -> None:
    found = pareto._best(problem, price)
    best = min(point.cost + price * point.noise for point in _all(problem))
    assert found.cost + price * found.noise == pytest.approx(best)


def test_the_hull_of_many_layers_lies_on_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve layers in a chain, tried exhaustively and by cuts: every point of the hull is on the front."""
    costs = [[1.0, 2.0 + (i * 5) % 7, 9.0 + (i * 3) % 5] for i in range(12)]
    roundings = [RoundingNoise((i, i + 1), (1.0 + (i * 7) % 5, 0.01, 0.0)) for i in range(11)]
    roundings += [RoundingNoise((i,), (float((i * 4) % 3), float((i * 4) % 3), 0.0)) for i in range(12)]
    problem = Problem(costs, roundings, [Border(i, i + 1, (0.5, 2.0)) for i in range(11)])
    exact = front(problem)
    monkeypatch.setattr(pareto, "_MOST_CHOICES", 0)
    hull = front(problem)
    assert len(hull) > 5
    assert all(any(p.cost == pytest.approx(q.cost) and p.noise == pytest.approx(q.noise) for q in exact) for p in hull)
    assert hull[0].cost == exact[0].cost
    assert hull[-1].noise == pytest.approx(exact[-1].noise)


def test_values_are_fine_only_between_two_wide_layers() -> None:
    problem = Problem([[1.0, 2.0], [1.0, 2.0]], [RoundingNoise((0, 1), (8.0, 1.0))])
    assert [point.levels for point in front(problem)] == [(0, 0), (1, 1)]


def test_a_model_without_choices_has_one_point() -> None:
    assert front(Problem([[3.0, math.inf]], [RoundingNoise((0,), (2.0, 0.0))])) == [Point((0,), 3.0, 2.0)]
    assert front(Problem([], [])) == [Point((), 0.0, 0.0)]


def test_the_smallest_cut_leaves_nothing_that_need_not_be_there() -> None:
    network = Network(4)
    network.connect(0, 2, 3.0)
    network.connect(2, 1, 2.0)
    network.connect(0, 3, 1.0)
    network.connect(3, 1, 1.0)
    network.connect(2, 3, math.inf)
    assert network.source_side(0, 1) == {0, 2} or network.source_side(0, 1) == {0, 2, 3}


@settings(max_examples=30)
@given(st.integers(1, 200), st.data())
def test_bisection_finds_the_first_good_point(count: int, data: st.DataObject) -> None:
    first, tried = data.draw(st.integers(0, count)), []

    def good(place: int) -> bool:
        tried.append(place)
        return place >= first

    assert first_good(count, good, lambda: True) == (None if first == count else first)
    assert len(tried) <= 1 + count.bit_length()


@settings(max_examples=60)
@given(st.integers(1, 200), st.data())
def test_guesses_change_what_is_looked_at_and_nothing_else(count: int, data: st.DataObject) -> None:
    first, tried = data.draw(st.integers(0, count)), []
    is_right = data.draw(st.booleans())

    def good(place: int) -> bool:
        tried.append(place)
        return place >= first

    def guess(low: int, high: int) -> int | None:
        assert high - low > 1
        return first if is_right else data.draw(st.none() | st.integers(-2, count + 1))

    assert first_good(count, good, lambda: True, guess) == (None if first == count else first)
    assert len(tried) == len(set(tried)) <= (4 if is_right else 1 + 2 * count.bit_length())


@given(st.lists(st.floats(1.0, 1e6), max_size=30), st.sampled_from((0.0, 0.02, 0.5)))
def test_of_points_that_cost_the_same_the_last_stays(costs: list[float], part: float) -> None:
    points = [Point((number,), cost, 1.0 / (1 + number)) for number, cost in enumerate(sorted(costs))]
    kept = thinned(points, part)
    assert kept[-1:] == points[-1:]
    assert all(low.cost < high.cost * (1.0 - part) for low, high in itertools.pairwise(kept))
    for point in points:  # one that stays costs hardly more and is no noisier
        assert any(other.noise <= point.noise and other.cost * (1.0 - part) <= point.cost for other in kept)


def test_when_time_is_over_nothing_that_was_not_measured_is_taken() -> None:
    assert first_good(3, lambda place: True, lambda: False) is None
    assert first_good(0, lambda place: True, lambda: True) is None


def test_needless_layers_are_taken_back() -> None:
    costs = [[1.0, 5.0]] * 3

    def good(levels: Levels) -> bool:
        return levels[2] == 1

    assert without_needless((1, 1, 1), costs, good, lambda: True) == (0, 0, 1)
    assert without_needless((1, 1, 1), costs, good, lambda: False) == (1, 1, 1)
