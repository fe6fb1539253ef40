from __future__ import annotations

import json
import math

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.quantizer.intervals import wilson
from odc_mlir.quantizer.policy.verdict import (
    DEFAULT_DROP_DB,
    DOUBT,
    FAILED,
    NOTE,
    PASSED,
    PROBLEM,
    UNCHECKED,
    Answers,
    LayerError,
    Limit,
    VerdictFinding,
    caution,
    check_text,
    choose_limits,
    describe,
    make_verdict,
    metric_name,
    types_text,
    worst_layers,
)


def _layer(name: str, noise: float = 0.0, isolated: float | None = None) -> LayerError:
    return LayerError(name, "CONV_2D", "int8", {"sqnr_db": isolated}, noise)


@pytest.mark.parametrize(
    ("limit", "measures", "holds"),
    [
        (Limit("mpeir", 0.1), {"mpeir": 0.1}, True),
        (Limit("mpeir", 0.1), {"mpeir": 0.1001}, False),
        (Limit("sqnr_db", 20.0), {"sqnr_db": 20.0}, True),
        (Limit("sqnr_db", 20.0), {"sqnr_db": 19.9}, False),
        (Limit("sqnr_db", 20.0), {"sqnr_db": None, "differing": 0, "max_abs": 0.0}, True),
        (Limit("mpeir", 0.1), {"mpeir": None, "differing": 0, "max_abs": None}, False),
        (Limit("mpeir", 0.1), {"mpeir": math.nan}, False),
        (Limit("sqnr_db", 20.0), {"sqnr_db": math.inf, "differing": 1}, False),
        (Limit("sqnr_db", 20.0), {"sqnr_db": None, "differing": 1}, False),
        (Limit("top1_match", 1.0 - 1 / 49), {"top1_match": 48 / 49}, True),
        (Limit("drop", 1.0), {"drop": -3.0}, True),
        (Limit("drop", 1.0), {"drop": 1.5, "differing": 0}, False),
    ],
)
def test_a_limit_holds_up_to_its_bound(limit: Limit, measures: dict[str, float | None], holds: bool) -> None:
    assert limit.holds(measures) is holds


def test_regressions_are_limited_by_the_interval_of_their_outputs() -> None:
    assert choose_limits() == (Limit("mpeir", 0.1),)


@pytest.mark.parametrize(("answers", "bound"), [(1, 0.9), (10, 0.9), (50, 0.98), (100, 0.99), (1000, 0.99)])
def test_classifiers_must_agree_but_for_one_answer(answers: int, bound: float) -> None:
    limits = choose_limits(answering=[Answers("y", "top1_match", answers)])
    assert [limit.metric for limit in limits] == ["mpeir", "top1_match"]
    assert limits[1].bound == pytest.approx(bound)


@pytest.mark.parametrize(("count", "is_certain"), [(8, False), (180, False), (380, False), (381, True)])
def test_certain_is_the_same_of_few_samples(count: int, is_certain: bool) -> None:
    """What is forgiven for a sample of a small set is no part of being certain."""
    for held in (8, 50, count):
        limits = choose_limits(answering=[Answers("y", "top1_match", held)])[1:]
        found = {"top1_match": wilson(1.0, count)}
        verdict = make_verdict(limits, {"top1_match": 1.0}, samples={}, intervals=found)
        assert (verdict["passed"], verdict["certain"]) == (True, is_certain)


@pytest.mark.parametrize("samples", [12, 100])
def test_a_loss_that_few_samples_are_forgiven_is_not_certain(samples: int) -> None:
    limit, _ = choose_limits(score="top1_percent", labels=samples)
    assert not limit.is_certain({"drop": 0.0}, {"drop": (-5.0, 5.0)})
    assert limit.is_certain({"drop": 0.0}, {"drop": (-0.9, 0.9)})


def test_known_answers_limit_the_drop() -> None:
    recall = Limit("recall_drop", 10.0)
    assert choose_limits(score="top1_percent", answering=[Answers("y", "top1_match", 200)], labels=200) == (
        Limit("drop", 1.0),
        recall,
    )
    assert choose_limits(score="top1_percent", labels=20) == (Limit("drop", 5.0, of_many=1.0), recall)
    assert choose_limits(score="psnr_db", labels=20) == (Limit("drop", DEFAULT_DROP_DB),)
    assert choose_limits(score="psnr_db", max_drop=0.1) == (Limit("drop", 0.1),)


@pytest.mark.parametrize(("drop", "recall"), [(0.5, 5.0), (3.0, 30.0), (10.0, None)])
def test_a_class_may_lose_ten_times_what_all_may(drop: float, recall: float | None) -> None:
    found = [limit.bound for limit in choose_limits(score="top1_percent", max_drop=drop, labels=20)]
    assert found == [drop, *([] if recall is None else [recall])]


@pytest.mark.parametrize(("drop", "of_column"), [(None, 4.0), (0.5, 2.0), (30.0, 120.0)])
def test_one_of_many_columns_may_lose_four_times_what_all_may(drop: float | None, of_column: float) -> None:
    found = choose_limits(score="rmse", max_drop=drop, has_many_columns=True)
    assert found == (Limit("drop", drop or 1.0), Limit("column_drop", of_column))
    assert choose_limits(score="rmse", max_drop=drop) == found[:1]
    assert choose_limits(score="rmse", metric="mae", limit=1.0, has_many_columns=True) == (Limit("mae", 1.0),)
    assert choose_limits(score="rmse", metric="column_drop") == (Limit("column_drop", 4.0),)


def test_what_the_user_asks_for_wins() -> None:
    assert choose_limits(limit=0.02, answering=[Answers("y", "top1_match", 200)]) == (Limit("mpeir", 0.02),)
    assert choose_limits(metric="sqnr") == (Limit("sqnr_db", 20.0),)
    assert choose_limits(metric="mae", limit=3) == (Limit("mae", 3.0),)
    assert choose_limits(metric="drop", max_drop=2, score="top1_percent") == (Limit("drop", 2.0),)
    both = choose_limits(metric="cosine", max_drop=2, score="top1_percent")
    assert both == (Limit("cosine", 0.99), Limit("drop", 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_drop": 1.0}, "max_drop needs labels"),
        ({"metric": "drop"}, "'drop' needs labels"),
        ({"metric": "mse"}, "'mse' has no default limit"),
        ({"metric": "luck"}, "unknown metric 'luck'; use one of mpeir"),
        ({"metric": "psnr"}, "unknown metric 'psnr'; did you mean 'sqnr'\\? use one of mpeir"),
        ({"metric": "top_1"}, "unknown metric 'top_1'; did you mean 'top1'\\? use one of mpeir"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        choose_limits(**options)  # type: ignore[arg-type]


def test_short_names() -> None:
    assert [metric_name(text) for text in ("sqnr", "top1", "mpeir")] == ["sqnr_db", "top1_match", "mpeir"]


@pytest.mark.parametrize(
    ("limit", "spare"),
    [
        (Limit("mpeir", 0.1), 0.05),
        (Limit("sqnr_db", 20.0), 26.0),
        (Limit("cosine", 0.99), 0.995),
        (Limit("top1_match", 0.99), 0.99),
        (Limit("drop", 1.0), 1.0),
    ],
)
def test_a_margin_halves_the_error(limit: Limit, spare: float) -> None:
    assert limit.with_errors(0.5) == Limit(limit.metric, pytest.approx(spare))


def test_worst_layers_are_those_that_harm_the_outputs() -> None:
    layers = [_layer("a", 0.1, 3.0), _layer("b", 0.0, 1.0), _layer("c", 0.5, 9.0), _layer("d", 0.1, 2.0)]
    assert [layer.name for layer in worst_layers(layers)] == ["c", "a", "d"]
    assert [layer.name for layer in worst_layers(layers, 1)] == ["c"]


def test_without_effects_isolated_errors_rank() -> None:
    layers = [_layer("a", isolated=30.0), _layer("b", isolated=None), _layer("c", isolated=10.0)]
    assert [layer.name for layer in worst_layers(layers)] == ["c", "a"]


def test_a_verdict_names_what_failed() -> None:
    verdict = make_verdict(
        limits=(Limit("mpeir", 0.1), Limit("top1_match", 0.99)),
        metrics={"mpeir": 0.05, "top1_match": 0.5},
        layers=[_layer("bad", 0.5), _layer("good", 0.001)],
        choices={"scheme": "int8"},
    )
    assert not verdict["passed"]
    assert (verdict["metric"], verdict["limit"], verdict["value"]) == ("top1_match", 0.99, 0.5)
    assert [layer["name"] for layer in verdict["worst_layers"]] == ["bad", "good"]
    assert json.loads(json.dumps(verdict)) == verdict
    assert describe(verdict) == (
        "failed: top1_match 50.0 % (at least 99.0 % allowed); worst layers: 'bad' (CONV_2D), 'good' (CONV_2D)"
    )


def test_a_verdict_that_passes_tells_the_first_limit() -> None:
    verdict = make_verdict((Limit("mpeir", 0.1), Limit("drop", 1.0)), {"mpeir": 0.05, "drop": None})
    assert not verdict["passed"]
    kept, samples = {"mpeir": 0.05, "drop": 0.5}, {"checked_on": 12}
    sure = {"mpeir": (0.01, 0.09), "drop": (-0.5, 0.9)}
    text = "mpeir 0.05 (at most 0.1 allowed), drop 0.5 (at most 1 allowed)"
    for intervals, seen, said in (
        (sure, False, "passed"),
        ({**sure, "mpeir": (0.01, 0.11)}, False, "passed on 12 samples (on others mpeir may miss)"),
        ({"mpeir": (0.01, 0.09)}, False, "passed on 12 samples (on others drop may miss)"),
        (sure, True, "passed on 12 samples (on others mpeir, drop may miss)"),
    ):
        limits = (Limit("mpeir", 0.1), Limit("drop", 1.0))
        verdict = make_verdict(limits, kept, samples=samples, intervals=intervals, seen=seen)
        assert verdict["passed"]
        assert verdict["certain"] is (said == "passed")
        assert describe(verdict) == f"{said}: {text}"


@pytest.mark.parametrize(
    ("precisions", "value", "text"),
    [
        ({"int8": (3, 9, 9), "float": (2, 0, 0)}, 0.0, "int8"),
        ({"int8": (3, 9, 9), "float": (2, 4, 4)}, 0.0, "int8 and float"),
        ({"int8": (2, 2, 9), "int16x8": (46, 8, 1)}, 0.0, "int16x8 and int8"),
        ({"int8": (7, 0, 0), "int16x8": (46, 8, 8), "float": (1, 0, 0)}, 0.0, "int16x8 and int8"),
        ({"float": (1, 1, 1), "int16x8": (1, 8, 8)}, 0.0, "int16x8 and float instead of int8"),
        (
            {"float": (1, 1, 1), "int16": (1, 2, 2), "int16x8": (1, 8, 8)},
            0.0,
            "int16x8, int16 and float instead of int8",
        ),
        ({"float": (1, 1, 1), "int16x8": (1, 8, 8)}, 1.0, "int16x8 and float instead of int8"),
        ({"int8": (2, 0, 5), "float": (1, 0, 2)}, 0.0, "int8 and float"),
        ({"int8": (2, 0, 0), "float": (1, 0, 0)}, 0.0, "int8 and float"),
        ({}, 0.0, "int8"),
        ({"int8": (1, 0, 0), "int8x4": (1, 9, 9)}, 0.0, "int8x4 instead of int8"),  # whose values are int8
        ({"int8": (1, 1, 1), "int8x4": (1, 9, 9)}, 0.0, "int8x4 and int8"),
        ({"int8": (3, 9, 9), "float": (4, 0, 0)}, 0.0, "int8 (float: 4 of 7 layers and 0.0 % of the products)"),
        (
            {"int8": (3, 3, 9), "float": (2, 9, 0)},
            0.0,
            "float and int8 (float: 2 of 5 layers and 75.0 % of the products)",
        ),
        ({"int8": (1, 0, 0), "float": (2, 0, 0)}, 0.0, "float and int8 (float: 2 of 3 layers)"),
        ({"float": (4, 0, 0), "int8": (3, 9, 9)}, 1.0, "int8 (float: 4 of 7 layers and 0.0 % of the products)"),
    ],
)
def test_types_are_those_that_there_are(precisions: dict[str, tuple[int, ...]], value: float, text: str) -> None:
    counts = {name: dict(zip(("layers", "macs", "weights"), every, strict=True)) for name, every in precisions.items()}
    coverage = {"precisions": counts}
    verdict = make_verdict((Limit("mpeir", 0.1),), {"mpeir": value}, choices={"scheme": "int8"}, coverage=coverage)
    assert types_text(verdict) == text


def test_of_weights_alone_the_rest_is_real_by_what_was_asked_for() -> None:
    counts = {
        name: {"layers": layers, "macs": 0, "weights": 9 - layers} for name, layers in (("int8_wo", 1), ("float", 8))
    }
    verdict = make_verdict(
        (Limit("mpeir", 0.1),), {"mpeir": 0.0}, choices={"scheme": "int8_wo"}, coverage={"precisions": counts}
    )
    assert types_text(verdict) == "int8_wo and float"


@pytest.mark.parametrize(
    ("made_up", "value", "status"), [(True, 0.05, UNCHECKED), (True, 0.5, FAILED), (False, 0.05, PASSED)]
)
def test_made_up_inputs_pass_nothing(made_up: bool, value: float, status: str) -> None:
    sure = {"mpeir": (value, value)}
    verdict = make_verdict((Limit("mpeir", 0.1),), {"mpeir": value}, intervals=sure, made_up=made_up)
    assert (verdict["status"], verdict["passed"]) == (status, status == PASSED)
    assert (caution(verdict) is None) is (status != UNCHECKED)
    assert describe(verdict).startswith({UNCHECKED: "not checked: no samples were given"}.get(status, f"{status}: "))


@pytest.mark.parametrize(
    ("severity", "status", "key"),
    [(PROBLEM, FAILED, "problems"), (DOUBT, FAILED, "problems"), (NOTE, PASSED, "findings")],
)
def test_the_status_follows_from_the_severities_of_findings(severity: str, status: str, key: str) -> None:
    verdict = make_verdict((Limit("mpeir", 0.1),), {"mpeir": 0.0}, findings=[VerdictFinding(severity, "a text")])
    assert verdict["status"] == status
    assert {name: verdict[name] for name in ("problems", "findings") if verdict[name]} == {key: ["a text"]}
    assert verdict["too_few_samples"] is (severity == DOUBT)


def test_a_score_that_luck_may_have_does_not_count_alone() -> None:
    assert choose_limits(score="top1_percent", labels=200) == (Limit("drop", 1.0), Limit("recall_drop", 10.0))
    both = (Limit("drop", 1.0), Limit("mpeir", 0.1), Limit("recall_drop", 10.0))
    assert choose_limits(score="top1_percent", labels=200, is_telling=False) == both
    assert choose_limits(score="top1_percent", is_telling=False, metric="drop", limit=2.0) == (Limit("drop", 2.0),)


def test_a_missed_limit_does_not_look_kept() -> None:
    assert check_text("top1_match", 0.99, 95 / 96) == "top1_match 98.96 % (at least 99.0 % allowed)"
