"""The search along the front, with measures that are made up: what is taken, and what is not looked at."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odc_mlir.quantizer import precisions
from odc_mlir.quantizer.layers import Effect
from odc_mlir.quantizer.models import Candidate, Recipe
from odc_mlir.quantizer.pareto import Problem, RoundingNoise
from odc_mlir.quantizer.policy.options import PrecisionChoice, make_options
from odc_mlir.quantizer.policy.verdict import Limit
from odc_mlir.quantizer.precisions import GAIN_DB, PrecisionSearch, Tried

LAYERS = 6
PLAIN_DB = 10.0


class _Search(PrecisionSearch):
    """A model of six layers that are worth the more bits the earlier they come, on a target that runs both widths."""

    wide_cost = 2.0
    hosts: list[bool]  # whether layers could leave the target, each time that was asked

    def _sensitivity(self, candidate: Candidate) -> list[Effect]:
        return []

    def _problem(self, candidate: Candidate, *, host: bool) -> Problem:
        self.hosts.append(host)
        costs = [[1.0, self.wide_cost, math.inf, math.inf]] * LAYERS
        return Problem(costs, [RoundingNoise((i,), (2.0**-i, 0.0, 0.0, 0.0)) for i in range(LAYERS)])


def _search(
    db: Callable[[int], float],
    mpeir: Callable[[int], float],
    *,
    may_refine: bool = False,
    sizes: Sequence[int] = (0,) * (LAYERS + 1),
    macs: int = 1,
    is_large: bool = False,
    wide_cost: float = 2.0,
    **chosen: Any,
) -> tuple[_Search, list[bool]]:
    """Models with so many wide layers have this SQNR and error; the list takes in whether each one is refined.

    ``sizes``: of models with so many layers in another precision. ``macs`` of a run, whether the model is large, what a
    wide layer costs, and options that were ``chosen``.
    """
    refined: list[bool] = []

    def build(precisions: Mapping[str, str], *, refines: bool = False) -> Candidate:
        refined.append(refines)
        layers = tuple((name, PrecisionChoice(precision)) for name, precision in precisions.items())
        return Candidate(Recipe(precisions=layers), module)

    def measure(precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        wide = len(precisions)
        return Tried(precisions, candidate, {"mpeir": mpeir(wide)}, (db(wide),))

    module: Any = None
    rules: Any = SimpleNamespace(takes=lambda scheme: True)
    weights = {f"layer{i}": 100 for i in range(LAYERS - 1)}
    examination: Any = SimpleNamespace(macs=macs, samples=1, weights=lambda: weights)
    models: Any = SimpleNamespace(
        build=build,
        draft=build,
        measure=measure,
        holds_unseen=lambda candidate: True,
        size=lambda candidate: sizes[len(candidate.recipe.precisions)],
        share=lambda candidate: 1.0,
        in_time=lambda: True,
        say=lambda text: None,
    )
    options = make_options(**{"scheme": "int8", **chosen})
    search = _Search(
        options,
        (Limit("mpeir", 0.1),),
        {},
        examination,
        models,
        least_share=0.9,
        rules=rules,
        plain=None,
        plain_db=(PLAIN_DB,),
        names=[f"layer{i}" for i in range(LAYERS)],
        may_refine=may_refine,
        is_large=is_large,
    )
    search.wide_cost, search.hosts = wide_cost, []
    return search, refined


def _taken(search: _Search) -> int:
    """How many layers are wide in what the search takes; 0: it takes the plain model."""
    plain = Candidate(Recipe(), None)  # type: ignore[arg-type]
    found = search.run(plain)
    assert search.chosen is not None
    assert (found is plain) == (not search.chosen.precisions)
    return len(search.chosen.precisions)


@pytest.mark.parametrize(
    ("gains", "wide"),
    [
        pytest.param([0.0, 3.0, 9.9, 10.1, 11.0, 12.0], 3, id="the whole gain, at the least price"),
        pytest.param([0.0, 2.0, 4.6, 5.0, 5.4, 5.5], 2, id="within a decibel of the nearest"),
        pytest.param([0.0, 2.0, 4.4, 5.0, 5.4, 5.5], 3, id="more than a decibel below the nearest is not enough"),
        pytest.param([0.0, 0.5, 1.0, 2.0, 4.0, 5.0], 4, id="the nearest lacks half of the gain"),
        pytest.param([0.0, 0.5, 1.0, 2.0, 4.0, 4.9], 0, id="the nearest lacks more than half of the gain"),
    ],
)
def test_what_comes_near_what_outputs_should_gain_is_taken(gains: Sequence[float], wide: int) -> None:
    assert GAIN_DB == 10.0
    search, _ = _search(lambda count: PLAIN_DB + gains[count], lambda count: 0.01)
    assert _taken(search) == wide


@pytest.mark.parametrize(("scheme", "wide"), [("int8", LAYERS - 1), ("int8x4", LAYERS - 2)])
def test_some_of_what_was_asked_for_is_left(scheme: str, wide: int) -> None:
    """The last layer has no weights: it is no part of a scheme that differs from the next in weights alone."""
    search, _ = _search(lambda count: PLAIN_DB + 2.1 * count, lambda count: 0.01, scheme=scheme)
    assert _taken(search) == wide


@pytest.mark.parametrize(
    ("scheme", "reader", "levels"),
    [
        ("int8", None, ("int8", "int16x8", "int16", "float")),
        ("int8", "litert", ("int8", "int16x8", "float")),
        ("int16x8", None, ("int16x8", "int16", "float")),
        ("int16x8", "litert", ("int16x8", "float")),
        ("uint8", None, ("uint8", "int16", "float")),
        ("uint8", "litert", ("uint8", "float")),
        ("int8_wo", None, ("int8_wo", "int16_wo", "float")),
        ("int8_wo", "litert", ("int8_wo", "float")),
    ],
)
def test_layers_are_taken_to_what_the_target_and_the_reader_run(
    scheme: str, reader: str | None, levels: tuple[str, ...]
) -> None:
    search, _ = _search(lambda count: PLAIN_DB, lambda count: 0.01, scheme=scheme, reader=reader)
    search.run(Candidate(Recipe(), None))  # type: ignore[arg-type]
    assert search._levels == levels


@pytest.mark.parametrize("budget", [{}, {"max_bytes": 1000}])
def test_nothing_is_taken_of_which_nothing_is_quantised(budget: dict[str, int]) -> None:
    """Also where no coverage is asked for."""
    search, _ = _search(lambda count: PLAIN_DB + 5.0 * count, lambda count: 0.01, **budget)
    search.models.share, search.least_share = lambda candidate: float(len(candidate.recipe.precisions) < 2), 0.0
    assert _taken(search) == (1 if budget else 0)


def test_a_larger_file_is_no_worse() -> None:
    """Neither sizes nor errors are as estimated: more layers of 4 bits may take more bytes, and give less noise."""
    sizes, decibels = [170, 160, 150, 120, 140, 110, 100], [19.0, 18.0, 15.0, 20.0, 13.0, 14.0, 10.0]
    found = []
    for budget in range(100, 180, 5):
        search, refined = _search(lambda count: decibels[count], lambda count: 0.01, sizes=sizes, max_bytes=budget)
        found.append(decibels[_taken(search)])
        assert found[-1] == max(db for size, db in zip(sizes, decibels, strict=True) if size <= budget)
        assert len(refined) == LAYERS  # all but the plain one
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("errors", "wide", "hosts"),
    [
        pytest.param([0.01] * 7, 3, [False], id="the most accurate keeps limits"),
        pytest.param([0.01, 0.01, 0.01, 0.2, 0.2, 0.2, 0.2], 2, [False], id="another keeps them"),
        pytest.param([0.2] * 7, 3, [False, True], id="none keeps them"),
    ],
)
def test_of_what_fits_a_budget_what_keeps_limits_is_taken(errors: list[float], wide: int, hosts: list[bool]) -> None:
    """Layers leave the target for limits alone: bytes do not say how long that takes."""
    sizes = [110, 120, 130, 140, 150, 160, 170]
    search, _ = _search(lambda count: PLAIN_DB + count, errors.__getitem__, sizes=sizes, max_bytes=140)
    assert _taken(search) == wide
    assert search.hosts == hosts


@pytest.mark.parametrize("kept", range(LAYERS))
def test_what_alone_keeps_limits_is_looked_for_below_the_most_accurate(kept: int) -> None:
    """Scores need not follow the noise, and bisection does not measure all that is cheaper."""
    sizes = list(range(110, 180, 10))
    search, _ = _search(
        lambda count: PLAIN_DB + count,
        lambda count: 0.01 if count == kept else 0.2,
        sizes=sizes,
        macs=1 << 26,
        max_bytes=sizes[LAYERS - 1],
    )
    assert _taken(search) == kept


@pytest.mark.parametrize(("real", "is_taken"), [(135.0, True), (145.0, False)])
def test_an_estimate_that_is_too_high_does_not_deny_what_keeps_limits(real: float, is_taken: bool) -> None:
    """Its package says how long it takes."""

    def time(module: float, *, compiled: bool = False) -> Any:
        return SimpleNamespace(ns=real if compiled else module)

    search, _ = _search(lambda count: 0.0, lambda count: 0.0, max_time_ms=140e-6, target="npu-256")
    search._levels = ("int8", "int16x8", "float")
    search.rules = SimpleNamespace(time=time, is_timed=lambda module: False)  # type: ignore[assignment]
    chosen, other = (
        Tried({}, Candidate(Recipe(), estimate), {"mpeir": error}, (10.0,))  # type: ignore[arg-type]
        for estimate, error in ((130.0, 0.2), (150.0, 0.01))
    )
    search.tried = {(False, (("layer", str(number)),)): tried for number, tried in enumerate((chosen, other))}
    assert search._holding() is (other if is_taken else None)


def test_of_a_network_that_takes_long_few_points_are_measured_for_a_budget() -> None:
    sizes = list(range(170, 100, -10))
    search, refined = _search(lambda count: -count, lambda count: 0.01, sizes=sizes, macs=1 << 26, max_bytes=145)
    assert sizes[_taken(search)] == 140
    assert len(refined) < LAYERS


@pytest.mark.parametrize("wide", range(1, 2 * LAYERS))
def test_who_knows_how_noise_falls_measures_few_models(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one, the first that gains enough, one between, and the one before."""
    monkeypatch.setattr(precisions, "without_needless", lambda levels, *rest: levels)
    monkeypatch.setattr(sys.modules[__name__], "LAYERS", 2 * LAYERS)
    noise = [sum(2.0**-i for i in range(count, LAYERS)) for count in range(LAYERS)]
    gains = [10.0 * math.log10(noise[0] / part) for part in noise]
    scale = (GAIN_DB + 0.01) / gains[wide]
    search, refined = _search(lambda count: PLAIN_DB + scale * gains[count], lambda count: 0.01)
    assert _taken(search) == wide
    assert len(refined) <= 4


@pytest.mark.parametrize(("is_large", "wide"), [(False, 2), (True, 3)])
def test_of_a_large_model_hardly_cheaper_points_are_not_measured(
    is_large: bool, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "without_needless", lambda levels, *rest: levels)
    search, refined = _search(
        lambda count: PLAIN_DB + 5.0 * count, lambda count: 0.01, is_large=is_large, wide_cost=1.1
    )
    assert _taken(search) == wide
    assert len(refined) == (3 if is_large else 4)


def test_what_comes_near_but_misses_a_limit_is_not_taken() -> None:
    search, _ = _search(lambda count: PLAIN_DB + count, lambda count: 0.2 if count > 2 else 0.01)
    assert _taken(search) == 0


@pytest.mark.parametrize(("error", "refines"), [(0.15, True), (0.25, False)])
def test_codes_are_not_refined_where_that_could_not_help(error: float, refines: bool) -> None:
    """Errors more than twice as large as any limit allows stay too large."""
    search, refined = _search(lambda count: 40.0, lambda count: 2 * error if not count else error, may_refine=True)
    assert _taken(search) == 0
    assert any(refined) == refines
