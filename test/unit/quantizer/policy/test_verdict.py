from __future__ import annotations

import json
import math
from typing import Any

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.quantizer.evaluator import wilson
from odc_mlir.quantizer.policy import verdict as rules
from odc_mlir.quantizer.policy.verdict import Answers, Limit, choose_limits, describe, make_verdict
from odc_mlir.quantizer.summary import conclusion

ANSWERS = [Answers("y", "top1_match", 200)]
MPEIR, RECALL = Limit("mpeir", 0.1), Limit("recall_drop", 10.0)


def _layer(name: str, noise: float = 0.0, isolated: float | None = None) -> dict[str, Any]:
    effect = -10.0 * math.log10(noise) if noise else None
    return {"name": name, "op": "CONV_2D", "output_sqnr_db": effect, "isolated": {"sqnr_db": isolated}}


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


@pytest.mark.parametrize(("answers", "bound"), [(1, 0.9), (10, 0.9), (50, 0.98), (100, 0.99), (1000, 0.99)])
def test_classifiers_must_agree_but_for_one_answer(answers: int, bound: float) -> None:
    mpeir, agreement = choose_limits(answering=[Answers("y", "top1_match", answers)])
    assert (mpeir, agreement.metric, agreement.bound) == (MPEIR, "top1_match", pytest.approx(bound))


@pytest.mark.parametrize(("count", "is_certain"), [(8, False), (180, False), (380, False), (381, True)])
def test_certain_is_the_same_of_few_samples(count: int, is_certain: bool) -> None:
    """What is forgiven for a sample of a small set is no part of being certain."""
    for held in (8, 50, count):
        limits = choose_limits(answering=[Answers("y", "top1_match", held)])[1:]
        found = {"top1_match": wilson(1.0, count)}
        verdict = make_verdict(limits, {"top1_match": 1.0}, samples={}, intervals=found)
        assert (verdict["passed"], verdict["certain"]) == (True, is_certain)
    for samples in (12, 100):
        limit, _ = choose_limits(score="top1_percent", labels=samples)
        assert not limit.is_certain({"drop": 0.0}, {"drop": (-5.0, 5.0)})
        assert limit.is_certain({"drop": 0.0}, {"drop": (-0.9, 0.9)})


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, [MPEIR]),
        ({"score": "top1_percent", "answering": ANSWERS, "labels": 200}, [Limit("drop", 1.0), RECALL]),
        ({"score": "top1_percent", "labels": 20}, [Limit("drop", 5.0, of_many=1.0), RECALL]),
        # A score that luck may have does not count alone.
        ({"score": "top1_percent", "labels": 200, "is_telling": False}, [Limit("drop", 1.0), MPEIR, RECALL]),
        ({"score": "top1_percent", "is_telling": False, "metric": "drop", "limit": 2.0}, [Limit("drop", 2.0)]),
        # A class may lose ten times what all may.
        ({"score": "top1_percent", "max_drop": 0.5, "labels": 20}, [Limit("drop", 0.5), Limit("recall_drop", 5.0)]),
        ({"score": "top1_percent", "max_drop": 3.0, "labels": 20}, [Limit("drop", 3.0), Limit("recall_drop", 30.0)]),
        ({"score": "top1_percent", "max_drop": 10.0, "labels": 20}, [Limit("drop", 10.0)]),
        ({"score": "psnr_db", "labels": 20}, [Limit("drop", rules.DEFAULT_DROP_DB)]),
        ({"score": "psnr_db", "max_drop": 0.1}, [Limit("drop", 0.1)]),
        # One of many columns may lose four times what all may.
        ({"score": "rmse", "has_many_columns": True}, [Limit("drop", 1.0), Limit("column_drop", 4.0)]),
        ({"score": "rmse", "max_drop": 0.5, "has_many_columns": True}, [Limit("drop", 0.5), Limit("column_drop", 2.0)]),
        (
            {"score": "rmse", "max_drop": 30.0, "has_many_columns": True},
            [Limit("drop", 30.0), Limit("column_drop", 120.0)],
        ),
        ({"score": "rmse", "max_drop": 30.0}, [Limit("drop", 30.0)]),
        ({"score": "rmse", "metric": "mae", "limit": 1.0, "has_many_columns": True}, [Limit("mae", 1.0)]),
        ({"score": "rmse", "metric": "column_drop"}, [Limit("column_drop", 4.0)]),
        # The user's limits win.
        ({"limit": 0.02, "answering": ANSWERS}, [Limit("mpeir", 0.02)]),
        ({"metric": "sqnr"}, [Limit("sqnr_db", 20.0)]),
        ({"metric": "mae", "limit": 3}, [Limit("mae", 3.0)]),
        ({"metric": "drop", "max_drop": 2, "score": "top1_percent"}, [Limit("drop", 2.0)]),
        ({"metric": "cosine", "max_drop": 2, "score": "top1_percent"}, [Limit("cosine", 0.99), Limit("drop", 2)]),
    ],
)
def test_limits_follow_from_outputs_labels_and_options(given: dict[str, object], limits: list[Limit]) -> None:
    assert list(choose_limits(**given)) == limits


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_drop": 1.0}, "max_drop needs labels"),
        ({"metric": "drop"}, "'drop' needs labels"),
        ({"metric": "mse"}, "'mse' has no default limit"),
        ({"metric": "luck"}, "unknown metric 'luck'; use one of mpeir"),
        ({"metric": "psnr"}, "unknown metric 'psnr'; did you mean 'sqnr'\\? use one of mpeir"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        choose_limits(**options)
    assert [rules.metric_name(text) for text in ("sqnr", "top1", "mpeir")] == ["sqnr_db", "top1_match", "mpeir"]


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
    alone = [_layer("a", isolated=30.0), _layer("b", isolated=None), _layer("c", isolated=10.0)]
    for given, count, worst in ((layers, 5, ["c", "a", "d"]), (layers, 1, ["c"]), (alone, 5, ["c", "a"])):
        assert [layer["name"] for layer in rules.worst_layers(given, count)] == worst


def test_a_verdict_names_what_failed() -> None:
    verdict = make_verdict(
        limits=(MPEIR, Limit("top1_match", 0.99)),
        metrics={"mpeir": 0.05, "top1_match": 0.5},
        layers=[_layer("bad", 0.5), _layer("good", 0.001)],
        choices={"scheme": "int8"},
    )
    assert not verdict["passed"]
    assert (verdict["metric"], verdict["limit"], verdict["value"]) == ("top1_match", 0.99, 0.5)
    assert [layer["name"] for layer in verdict["worst_layers"]] == ["bad", "good"]
    assert json.loads(json.dumps(verdict)) == verdict
    assert describe(verdict) == (
        "failed: same answers 50.0 % (at least 99.0 % allowed); worst layers: 'bad' (CONV_2D), 'good' (CONV_2D)"
    )
    assert rules.check_text("top1_match", 0.99, 95 / 96) == "same answers 98.96 % (at least 99.0 % allowed)"


@pytest.mark.parametrize(
    ("severity", "said"),
    [
        (rules.NOTE, "passed"),
        (rules.OPEN, "not checked as in use, though limits hold on these frames (a finding)"),
        (rules.DOUBT, "FAILED on too few samples (9 samples; all limits are met on them)"),
        (rules.PROBLEM, "FAILED: a finding"),
    ],
)
def test_a_finding_of_each_severity_is_told(severity: str, said: str) -> None:
    samples = {"made_up": False, "checked_on": 9}
    verdict = make_verdict([MPEIR], {"mpeir": 0.05}, findings=[(severity, "a finding")], samples=samples)
    verdict |= {"certain": verdict["passed"]}
    assert conclusion(verdict).startswith(said)
    assert "a finding" in [*verdict["problems"], *verdict["findings"]]


def test_a_verdict_that_passes_tells_the_first_limit() -> None:
    limits, samples = (MPEIR, Limit("drop", 1.0)), {"checked_on": 12}
    assert not make_verdict(limits, {"mpeir": 0.05, "drop": None})["passed"]
    sure = {"mpeir": (0.01, 0.09), "drop": (-0.5, 0.9)}
    for intervals, seen, said in (
        (sure, False, "passed"),
        (
            {**sure, "mpeir": (0.01, 0.11)},
            False,
            "passed on 12 samples (on other samples, the largest error may miss the limit)",
        ),
        ({"mpeir": (0.01, 0.09)}, False, "passed on 12 samples (on other samples, drop may miss the limit)"),
        (sure, True, "passed on 12 samples (on other samples, the largest error and drop may miss the limit)"),
    ):
        verdict = make_verdict(limits, {"mpeir": 0.05, "drop": 0.5}, samples=samples, intervals=intervals, seen=seen)
        assert (verdict["passed"], verdict["certain"]) == (True, said == "passed")
        assert describe(verdict) == f"{said}: mpeir 0.05 (at most 0.1 allowed), drop 0.5 (at most 1 allowed)"


@pytest.mark.parametrize(
    ("precisions", "text"),
    [
        ({"int8": (3, 9, 9), "float": (2, 0, 0)}, "int8"),
        ({"int8": (3, 9, 9), "float": (2, 4, 4)}, "int8 and float"),
        ({"int8": (2, 2, 9), "int16x8": (46, 8, 1)}, "int16x8 and int8"),
        ({"int8": (7, 0, 0), "int16x8": (46, 8, 8), "float": (1, 0, 0)}, "int16x8 and int8"),
        ({"float": (1, 1, 1), "int16x8": (1, 8, 8)}, "int16x8 and float instead of int8"),
        ({"float": (1, 1, 1), "int16": (1, 2, 2), "int16x8": (1, 8, 8)}, "int16x8, int16 and float instead of int8"),
        ({"int8": (2, 0, 5), "float": (1, 0, 2)}, "int8 and float"),
        ({"int8": (2, 0, 0), "float": (1, 0, 0)}, "int8 and float"),
        ({}, "int8"),
        ({"int8": (1, 0, 0), "int8x4": (1, 9, 9)}, "int8x4 instead of int8"),  # whose values are int8
        ({"int8": (1, 1, 1), "int8x4": (1, 9, 9)}, "int8x4 and int8"),
        ({"int8": (3, 9, 9), "float": (4, 0, 0)}, "int8 (float: 4 of 7 layers and 0.0 % of the products)"),
        ({"int8": (3, 3, 9), "float": (2, 9, 0)}, "float and int8 (float: 2 of 5 layers and 75.0 % of the products)"),
        ({"int8": (1, 0, 0), "float": (2, 0, 0)}, "float and int8 (float: 2 of 3 layers)"),
        # Of weights alone the rest is real, as was asked for.
        ({"int8_wo": (1, 0, 8), "float": (8, 0, 1)}, "int8_wo and float"),
    ],
)
def test_types_are_those_that_there_are(precisions: dict[str, tuple[int, ...]], text: str) -> None:
    counts = {name: dict(zip(("layers", "macs", "weights"), every, strict=True)) for name, every in precisions.items()}
    choices = {"scheme": "int8_wo" if "int8_wo" in precisions else "int8"}
    for value in (0.0, 1.0):
        verdict = make_verdict((MPEIR,), {"mpeir": value}, choices=choices, coverage={"precisions": counts})
        assert rules.types_text(verdict) == text


@pytest.mark.parametrize(
    ("made_up", "value", "status"),
    [(True, 0.05, rules.UNCHECKED), (True, 0.5, rules.FAILED), (False, 0.05, rules.PASSED)],
)
def test_made_up_inputs_pass_nothing(made_up: bool, value: float, status: str) -> None:
    verdict = make_verdict((MPEIR,), {"mpeir": value}, intervals={"mpeir": (value, value)}, made_up=made_up)
    assert (verdict["status"], verdict["passed"]) == (status, status == rules.PASSED)
    unchecked = status == rules.UNCHECKED
    assert (rules.caution(verdict) is not None) is unchecked
    assert describe(verdict).startswith("not checked: no samples were given" if unchecked else f"{status}: ")


@pytest.mark.parametrize(
    ("severity", "status", "key"),
    [
        (rules.PROBLEM, rules.FAILED, "problems"),
        (rules.DOUBT, rules.FAILED, "problems"),
        (rules.OPEN, rules.UNCHECKED, "findings"),
        (rules.NOTE, rules.PASSED, "findings"),
    ],
)
def test_the_status_follows_from_the_severities_of_findings(severity: str, status: str, key: str) -> None:
    verdict = make_verdict((MPEIR,), {"mpeir": 0.0}, findings=[(severity, "a text")])
    assert verdict["status"] == status
    assert {name: verdict[name] for name in ("problems", "findings") if verdict[name]} == {key: ["a text"]}
    assert verdict["too_few_samples"] is (severity == rules.DOUBT)
