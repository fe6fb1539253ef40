"""Search for precisions of layers: fronts, budgets, 4 bits and known errors."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odc_mlir
from helpers.float_models import (
    dense_layers,
    normal,
    only,
    recurrent,
    rescaled_mobilenet,
    squeeze_excite,
    without_ranges,
)
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir import loading
from odc_mlir.errors import OptionError
from odc_mlir.formats import one
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer import pareto
from odc_mlir.quantizer.layers import Effect
from odc_mlir.quantizer.models import Candidate, Recipe, layers_of, prepare
from odc_mlir.quantizer.pareto import Border, Network, Point, Problem, RoundingNoise, first_good, front
from odc_mlir.quantizer.policy import schemes
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.verdict import Limit
from odc_mlir.quantizer.precisions import GAIN_DB, PrecisionSearch, Tried
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.runtime.execution.graph import Graph, build_graph

LAYERS = 6
PLAIN_DB = 10.0
PLAIN = only("mixed")  # no help but other precisions


class _Search(PrecisionSearch):
    """A model of six layers that are worth the more bits the earlier they come, on a target that runs both widths."""

    hosts: list[bool]  # whether layers could leave the target, each time that was asked
    figures: Callable[[int], tuple[float, float]]  # SQNR and error by the number of wide layers

    def measured(self, precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        db, mpeir = self.figures(len(precisions))
        return Tried(precisions, candidate, {"mpeir": mpeir}, (db,))

    def _sensitivity(self, candidate: Candidate) -> list[Effect]:
        return []

    def _problem(self, candidate: Candidate, *, host: bool) -> Problem:
        self.hosts.append(host)
        costs = [[1.0, 2.0, math.inf, math.inf]] * LAYERS
        return Problem(costs, [RoundingNoise((i,), (2.0**-i, 0.0, 0.0, 0.0)) for i in range(LAYERS)])


def _search(
    db: Callable[[int], float],
    mpeir: Callable[[int], float] = lambda count: 0.01,
    *,
    sizes: Sequence[int] = (0,) * (LAYERS + 1),
    macs: int = 1,
    **chosen: Any,
) -> tuple[_Search, list[Recipe]]:
    """Models with so many wide layers have this SQNR and error; the list takes in the recipes that are built.

    ``sizes``: of models with so many layers in another precision. ``macs`` of a run,
    and options that were ``chosen``.
    """
    built: list[Recipe] = []

    def build(model: Any, recipe: Recipe) -> Candidate:
        built.append(recipe)
        return _candidate(recipe)

    weights = {f"layer{i}": 100 for i in range(LAYERS - 1)}
    evaluator: Any = SimpleNamespace(
        options=make_options(**{"scheme": "int8", **chosen}),
        search_limits=(Limit("mpeir", 0.1),),
        min_coverage=0.9,
        target=SimpleNamespace(takes=lambda scheme: True),
        plain=None,
        steps=[],
        examination=lambda model: SimpleNamespace(macs=macs, samples=1, weights=lambda: weights),
        built=build,
        holds_unseen=lambda candidate: True,
        size=lambda candidate: sizes[len(candidate.recipe.precisions)],
        over_budget=lambda candidate: evaluator.size(candidate) > chosen["max_bytes"],
        share=lambda candidate: 1.0,
        in_time=lambda: True,
        say=lambda text, made=0: None,
    )
    search = _Search(evaluator, {}, [f"layer{i}" for i in range(LAYERS)], (PLAIN_DB,))
    search.hosts, search.figures = [], lambda wide: (db(wide), mpeir(wide))
    return search, built


def _candidate(recipe: Recipe, module: Any = None) -> Candidate:
    return Candidate(None, recipe, module)


def _taken(search: _Search) -> int:
    """How many layers are wide in what the search takes; 0: it takes the plain model."""
    plain = _candidate(Recipe())
    found = search.run(plain)
    assert (found is plain) == (not search.chosen.precisions)
    return len(search.chosen.precisions)


@pytest.mark.parametrize(
    ("gains", "errors", "wide"),
    [
        pytest.param([0.0, 3.0, 8.9, 10.1, 11.0, 12.0], 0.1, 3, id="the whole gain, at the least price"),
        pytest.param([0.0, 2.0, 4.6, 5.0, 5.4, 5.5], 0.1, 2, id="within a decibel of the nearest"),
        pytest.param([0.0, 2.0, 4.4, 5.0, 5.4, 5.5], 0.1, 3, id="more than a decibel below the nearest is not enough"),
        pytest.param([0.0, 0.5, 1.0, 2.0, 4.0, 5.0], 0.1, 4, id="the nearest lacks half of the gain"),
        pytest.param([0.0, 0.5, 1.0, 2.0, 4.0, 4.9], 0.1, 0, id="the nearest lacks more than half of the gain"),
        pytest.param([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.2, 0, id="what comes near misses a limit"),
    ],
)
def test_what_comes_near_what_outputs_should_gain_is_taken(gains: Sequence[float], errors: float, wide: int) -> None:
    assert GAIN_DB == 10.0
    search, _ = _search(lambda count: PLAIN_DB + gains[count], lambda count: errors if count > 2 else 0.01)
    assert _taken(search) == wide


@pytest.mark.parametrize(("scheme", "wide"), [("int8", LAYERS - 1), ("int8x4", LAYERS - 2)])
def test_some_of_what_was_asked_for_is_left(scheme: str, wide: int) -> None:
    """The last layer has no weights: it is no part of a scheme that differs from the next in weights alone."""
    search, _ = _search(lambda count: PLAIN_DB + 2.1 * count, scheme=scheme)
    assert _taken(search) == wide


@pytest.mark.parametrize(
    ("scheme", "reader", "levels"),
    [
        ("int8", None, ("int8", "int16x8", "int16", "float")),
        ("int8", "litert", ("int8", "int16x8", "float")),
        ("int16x8", None, ("int16x8", "int16", "float")),
        ("int16x8", "litert", ("int16x8", "float")),
        ("int16", None, ("int16", *schemes.ladder_of("int16"))),
        ("uint8", None, ("uint8", "int16", "float")),
        ("uint8", "litert", ("uint8", "float")),
        ("int8_wo", None, ("int8_wo", "int16_wo", "float")),
        ("int8_wo", "litert", ("int8_wo", "float")),
    ],
)
def test_layers_are_taken_to_what_the_reader_runs(scheme: str, reader: str | None, levels: tuple[str, ...]) -> None:
    search, _ = _search(lambda count: PLAIN_DB, scheme=scheme, reader=reader)
    search.run(_candidate(Recipe()))
    assert search._levels == levels


@pytest.mark.parametrize("budget", [{}, {"max_bytes": 1000}])
def test_nothing_is_taken_of_which_nothing_is_quantised(budget: dict[str, int]) -> None:
    search, _ = _search(lambda count: PLAIN_DB + 5.0 * count, **budget)
    evaluator: Any = search.evaluator
    evaluator.share, evaluator.min_coverage = lambda candidate: float(len(candidate.recipe.precisions) < 2), 0.0
    assert _taken(search) == (1 if budget else 0)


def test_a_larger_file_is_no_worse() -> None:
    """Neither sizes nor errors are as estimated: more layers of 4 bits may take more bytes, and give less noise."""
    sizes, decibels = [170, 160, 150, 120, 140, 110, 100], [19.0, 18.0, 15.0, 20.0, 13.0, 14.0, 10.0]
    found = []
    for budget in range(100, 180, 5):
        search, built = _search(decibels.__getitem__, sizes=sizes, max_bytes=budget)
        found.append(decibels[_taken(search)])
        assert found[-1] == max(db for size, db in zip(sizes, decibels, strict=True) if size <= budget)
        assert len(built) == LAYERS  # all but the plain one
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
    options: dict[str, Any] = {"sizes": sizes, "macs": 1 << 26, "max_bytes": sizes[LAYERS - 1]}
    search, _ = _search(lambda count: PLAIN_DB + count, lambda count: 0.01 if count == kept else 0.2, **options)
    assert _taken(search) == kept


@pytest.mark.parametrize("wide", range(1, 2 * LAYERS))
def test_bisection_measures_few_models(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LAYERS", 2 * LAYERS)
    search, built = _search(lambda count: PLAIN_DB + (GAIN_DB + 0.01 if count >= wide else 0.0))
    assert _taken(search) == wide
    assert len(built) <= 2 + math.ceil(math.log2(LAYERS)), "even if measured errors do not follow the estimates"


_AMOUNTS = st.integers(0, 12).map(float)


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


def _pairs(points: list[Point]) -> list[tuple[float, float]]:
    return [(point.cost, point.noise) for point in points]


@settings(max_examples=30)
@given(_problems(), st.integers(0, 40).map(lambda n: n / 7))
def test_the_front_is_the_convex_hull_and_a_cut_is_best_for_its_price(problem: Problem, price: float) -> None:
    allowed = [[k for k, cost in enumerate(row) if math.isfinite(cost)] for row in problem.costs]
    everything, found = _pairs([problem.point(levels) for levels in itertools.product(*allowed)]), front(problem)
    assert all(problem.point(point.levels) == point for point in found)
    assert found[0].cost == min(cost for cost, _ in everything)
    assert found[-1].noise == pytest.approx(min(noise for _, noise in everything))
    between = [(b.cost - a.cost) / (a.noise - b.noise) for a, b in itertools.pairwise(found)]
    for worth, best in [(price, pareto._best(problem, price)), *zip(between, found, strict=False)]:
        least = min(cost + worth * noise for cost, noise in everything)
        assert best.cost + worth * best.noise == pytest.approx(least)


def test_small_problems_and_cuts() -> None:
    fine = Problem([[1.0, 2.0], [1.0, 2.0]], [RoundingNoise((0, 1), (8.0, 1.0))])
    assert [point.levels for point in front(fine)] == [(0, 0), (1, 1)], "values are fine only between two wide layers"
    assert front(Problem([[3.0, math.inf]], [RoundingNoise((0,), (2.0, 0.0))])) == [Point((0,), 3.0, 2.0)]
    assert front(Problem([], [])) == [Point((), 0.0, 0.0)]
    network = Network(4)
    for edge in ((0, 2, 3.0), (2, 1, 2.0), (0, 3, 1.0), (3, 1, 1.0), (2, 3, math.inf)):
        network.connect(*edge)
    assert network.source_side(0, 1) in ({0, 2}, {0, 2, 3}), "nothing that need not be there"


@settings(max_examples=30)
@given(st.integers(1, 200), st.data())
def test_bisection_finds_the_first_good_point(count: int, data: st.DataObject) -> None:
    first, tried = data.draw(st.integers(0, count)), []

    def good(place: int) -> bool:
        tried.append(place)
        return place >= first

    assert first_good(count, good, lambda: True) == (None if first == count else first)
    assert len(tried) <= 1 + count.bit_length()
    guesses = data.draw(st.lists(st.integers(0, count - 1), max_size=4))
    assert first_good(count, good, lambda: True, iter(guesses)) == (None if first == count else first)
    assert first_good(0, lambda place: True, lambda: True) is None
    assert first_good(3, lambda place: True, lambda: False) is None, "time is over, and nothing was measured"


SCHEME = "int8x4"


def _graph(made: Any) -> Graph:
    return build_graph(read_model(made.to_circle()))


def test_what_a_scheme_is_widened_to() -> None:
    assert all(ladder[-1] == "float" for ladder in schemes.LADDERS.values())
    assert (schemes.ladder_of("int16_wo"), schemes.ladder_of(SCHEME)) == ((), ("int8", "int16x8", "float"))
    wider = {"int8": "int16x8", "uint8": "int16", "int16": "float", SCHEME: "int16x8"}
    assert {name: schemes.wider_values(name) for name in wider} == wider
    for wide, narrow in schemes.NARROWER.items():
        assert schemes.values_of(wide) == schemes.values_of(narrow)


def test_weights_are_int4_and_values_int8_also_on_the_target() -> None:
    module, samples = squeeze_excite()
    made, plain = (
        quantize(module, scheme=scheme, calibration=samples, target="npu-256", help=False)
        for scheme in (SCHEME, "int8")
    )
    graph = _graph(made)
    layers = [item for item in graph.nodes if item.node.spec.quant.biases]
    assert layers
    dtypes = [{graph.tensors[item.inputs[place]].dtype for item in layers} for place in (0, 1)]
    assert dtypes == [{"int8"}, {"int4"}]
    assert made.verdict["scheme"][graph.tensors[layers[0].outputs[0]].name] == SCHEME
    assert made.verdict["coverage"]["precisions"][SCHEME]["weights"] > 0
    assert made.verdict["coverage"]["target"]["runs_of_possible"] == 1.0
    package, wide = (odc_mlir.compile(found.model, target="npu-256") for found in (made, plain))
    for sample in samples[:2]:
        for ours, theirs in zip(odc_mlir.run(package, sample), odc_mlir.run(made.model, sample), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert package.report["weights_encoded_bytes"] < 0.8 * wide.report["weights_encoded_bytes"]


def test_layers_get_eight_bits_where_four_are_too_coarse() -> None:
    module, samples = dense_layers()
    made = quantize(module, scheme=SCHEME, calibration=samples, metric="sqnr", limit=17.0, **PLAIN)
    assert made.passed, made
    assert "int8" in made.verdict["choices"]["precisions"].values()
    assert {"int4", "int8"} <= {tensor.dtype for tensor in _graph(made).tensors if tensor.is_const}


def test_cells_of_one_scale_keep_weights_of_eight_bits() -> None:
    module, samples = recurrent()
    graph = _graph(quantize(module, scheme=SCHEME, calibration=samples, help=False))
    (cell,) = (item for item in graph.nodes if item.node.spec.name == "UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert {graph.tensors[cell.inputs[place]].dtype for place in range(1, 9)} == {"int8"}
    (layer,) = (item for item in graph.nodes if item.node.spec.name == "FULLY_CONNECTED")
    assert graph.tensors[layer.inputs[1]].dtype == "int4"


@pytest.mark.parametrize("budget", ["bytes", "time"])
def test_a_budget_may_take_weights_to_four_bits(budget: str) -> None:
    module, samples = dense_layers()
    options: dict[str, Any] = {"calibration": samples, "metric": "sqnr", "limit": 5.0, **PLAIN}
    options |= {"target": "npu-256"} if budget == "time" else {}
    plain, least = (quantize(module, scheme=name, **{**options, "mixed": "off"}) for name in ("int8", SCHEME))
    if budget == "bytes":
        limit: dict[str, Any] = {"max_bytes": sum(len(made.to_circle()) for made in (plain, least)) // 2}
    else:
        times = [made.verdict["coverage"]["target"]["time_ns"] for made in (plain, least)]
        assert times[1] < times[0]
        limit = {"max_time_ms": sum(times) / 2 / 1e6}
    made = quantize(module, **options, **limit)
    assert made.passed, made
    assert SCHEME in made.verdict["choices"]["precisions"].values()
    assert len(made.to_circle()) <= limit.get("max_bytes", math.inf)
    assert made.verdict["metrics"]["sqnr_db"] > least.verdict["metrics"]["sqnr_db"] - 0.5


def test_weights_alone_get_eight_bits_where_four_are_too_coarse() -> None:
    rng, net = np.random.default_rng(3), FloatNet(2)
    ids = net.input(rng.integers(0, 100, (1, 6)).astype(np.int32))
    words = net.add("GATHER", net.weights(100, 24), ids, axis=0, name="words")
    hidden = net.add("FULLY_CONNECTED", words, net.weights(24, 24), net.weights(24), name="hidden", keep_num_dims=True)
    scores = net.add("FULLY_CONNECTED", hidden, net.weights(8, 24), net.weights(8), name="scores", keep_num_dims=True)
    module = net.module(scores)
    options: dict[str, Any] = {"calibration": [[rng.integers(0, 100, (1, 6)).astype(np.int32)] for _ in range(16)]}
    options |= {"metric": "sqnr", "rounding": "off", "correction": "off", "normalize": "off"}
    narrow, wide = (quantize(module, scheme=f"{name}_wo", limit=2.0, **options) for name in ("int4", "int8"))
    best, least = (made.verdict["metrics"]["sqnr_db"] for made in (wide, narrow))
    mixed = quantize(module, scheme="int4_wo", limit=least + 3, **options)
    assert mixed.passed, mixed
    assert best > mixed.verdict["metrics"]["sqnr_db"] > least
    assert set(mixed.verdict["choices"]["precisions"].values()) == {"int8_wo"}
    sizes = [len(made.to_circle()) for made in (narrow, mixed, wide)]
    assert sizes == sorted(set(sizes))
    small = quantize(module, scheme="int8_wo", limit=2.0, max_bytes=sizes[1] + 16, **options)
    assert small.passed, small
    assert len(small.to_circle()) <= sizes[1] + 16
    assert "int4_wo" in small.verdict["choices"]["precisions"].values()


NORM, SOFTMAX = ["sq", "v", "ve", "r"], ["s", "e"]


@cache
def _normalised(square: str) -> bytes:
    """A layer, a normalisation, and a softmax, both made of operators."""
    builder, wide, narrow = ModelBuilder(), (1, 4, 8), (1, 4, 1)
    make, axis = builder.made, builder.constant("axis", [-1], "int32")
    x = builder.tensor("x", wide)
    h = builder.dense("h", x, np.random.default_rng(0).normal(size=(8, 8)), keep_num_dims=True)
    mean = make("m", narrow, "MEAN", h, axis, keep_dims=True)
    d = make("d", wide, "SUB", h, mean)
    sq = make("sq", wide, square, *((d, d) if square == "MUL" else (h, mean)))
    variance = make("v", narrow, "MEAN", sq, axis, keep_dims=True)
    root = make("r", narrow, "RSQRT", make("ve", narrow, "ADD", variance, builder.constant("eps", 1e-5)))
    z = make("z", wide, "MUL", make("y", wide, "MUL", d, root), builder.constant("g", np.linspace(0.5, 2, 8)))
    e = make("e", wide, "EXP", make("s", wide, "SUB", z, make("mx", narrow, "REDUCE_MAX", z, axis, keep_dims=True)))
    return builder.file([x], [make("o", wide, "DIV", e, make("t", narrow, "SUM", e, axis, keep_dims=True))])


SAMPLES = normal(np.random.default_rng(0), 12, 1, 4, 8)


def _made(**chosen: Any) -> Quantized:
    return quantize(_normalised("MUL"), **{"calibration": SAMPLES, "help": False, **chosen})


@pytest.mark.parametrize("square", ["MUL", "SQUARED_DIFFERENCE"])
def test_patterns_name_what_needs_more_bits(square: str) -> None:
    graph = prepare(loading.load(_normalised(square))).graph
    assert (layers_of(graph, "layernorm"), layers_of(graph, "softmax")) == (NORM, SOFTMAX)


@pytest.mark.parametrize(("scheme", "wide"), [("int8", "int16x8"), ("uint8", "int16")])
def test_layers_of_patterns_are_wide(scheme: str, wide: str) -> None:
    many = normal(np.random.default_rng(5), 48, 1, 4, 8)  # few are judged by chance
    made, plain = (_made(calibration=many, patterns=names, scheme=scheme) for names in ("LayerNorm,softmax", ()))
    assert made.verdict["choices"]["precisions"] == dict.fromkeys(sorted([*NORM, *SOFTMAX]), wide)
    assert made.verdict["scheme"]["sq"] != plain.verdict["scheme"]["sq"] == scheme
    assert made.verdict["metrics"]["sqnr_db"] > plain.verdict["metrics"]["sqnr_db"]


def test_overrides_win_over_patterns_and_a_pattern_that_is_not_there_is_said() -> None:
    made = _made(patterns=["layernorm"], overrides="v:float")
    assert made.verdict["choices"]["precisions"]["v"] == "float"
    file, samples = without_ranges(rescaled_mobilenet)
    made = quantize(file, calibration=samples, help=False, patterns="layernorm")
    assert "the pattern layernorm is nowhere in the optimised model" in made.verdict["findings"]


def test_errors_that_are_known_say_where_to_look(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text(json.dumps(one.document("m", "mpeir", {"h": 0.5, "nothing": 1.0})))
    chosen: dict[str, Any] = {"help": True, **PLAIN, "mixed": "on", "limit": 0.001, "visq_file": str(path)}
    tried = [set(point["precisions"]) for point in _made(**chosen).verdict["front"]]
    known = [names for names in tried if names <= {"h"}]
    # Codes of 16 bits in all layers are told of, however they are found.
    assert known
    assert all(len(names) > len(tried) for names in tried if names not in known)
    measured = _made(**{**chosen, "visq_file": None})
    assert any(len(point["precisions"]) > 1 for point in measured.verdict["front"])
    path.write_text(json.dumps(one.document("m", "mpeir", {"nothing": 1.0})))
    with pytest.raises(OptionError, match="the file has no error of a layer of the optimised model"):
        _made(**chosen)


def test_a_file_of_pairs_is_equalised(tmp_path: Path) -> None:
    file, samples = without_ranges(rescaled_mobilenet)
    path, (front, back) = tmp_path / "pairs.json", ("block0/expand", "block0/depthwise")
    plain = quantize(file, calibration=samples, help=False, equalize="none")
    assert plain.equalization == []
    path.write_text(json.dumps([{"front": front, "back": back, "type": "ScaleOnly"}]))
    made = quantize(file, calibration=samples, help=False, equalize=str(path))
    assert made.verdict["choices"]["equalize"] == str(path)
    assert [(entry["front"], entry["type"], bool(entry["act_scale"])) for entry in made.equalization] == [
        (front, "ScaleOnly", True)
    ]
    before, after = (
        {layer["name"]: layer["isolated"]["sqnr_db"] for layer in found.verdict["layers"]} for found in (plain, made)
    )
    assert after[front] > before[front] + 2
    assert after["block1/project"] == pytest.approx(before["block1/project"], abs=0.5), "it is not named"
    path.write_text(json.dumps([{"front": front, "back": "block1/expand", "type": "ScaleOnly"}]))
    with pytest.raises(OptionError, match=f"not a pair of layers that can be equalised.* '{front}' and '{back}'"):
        quantize(file, calibration=samples, help=False, equalize=str(path))
