"""What known answers and limits say of a model: labels in all forms, places, and limits that nothing misses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import two_layers
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.labels import Misfit, check_answers, doubt, misfit
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.graph import build_graph

Samples = list[list[np.ndarray]]
COUNT = 24


@cache
def dense(outputs: int = 1, *tail: str, scale: float = 1.0, order: str = "") -> tuple[bytes, Samples]:
    """Two layers and what comes after these, a row of ``outputs`` numbers, and samples."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(outputs, scale, rng)
    found = [y]
    for op in tail:
        if op in ("ARG_MAX", "ARG_MIN"):
            axis = builder.tensor("axis", (), "int32", data=np.array(1, np.int32))
            found, given = [builder.tensor(op, (1,), "int64")], [found[0], axis]
            builder.operator(op, given, found, options={"output_type": "int64"})
        elif op == "TOPK_V2":
            k = builder.tensor("k", (), "int32", data=np.array(2, np.int32))
            values, places = builder.tensor("values", (1, 2)), builder.tensor("places", (1, 2), "int32")
            builder.operator(op, [found[0], k], [values, places])
            found = {"": [places], "first": [places, values], "last": [values, places]}[order]
        elif op == "CAST":
            result = builder.tensor("cast", found[0].shape if hasattr(found[0], "shape") else (1,))
            builder.operator(op, found, [result], options={"in_data_type": "int64", "out_data_type": "float32"})
            found = [result]
        else:
            result = builder.tensor(op, (1, outputs))
            builder.operator(op, found, [result], options={"beta": 1.0} if op == "SOFTMAX" else None)
            found = [result]
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    return bytes(write_model(builder.finish([x], found))), samples


@pytest.mark.parametrize("form", ["numbers", "reals", "one-hot", "one-hot reals", "one-hot truths"])
def test_labels_are_classes_in_every_form(form: str) -> None:
    file, samples = dense(4)
    answers = np.array([int(np.argmax(odc_mlir.run(file, list(sample))[0])) for sample in samples])
    rows = np.eye(4, dtype=np.int64)[answers]
    forms = {"numbers": answers, "reals": answers.astype(np.float32), "one-hot": rows}
    forms |= {"one-hot reals": rows.astype(np.float64)[:, None], "one-hot truths": rows.astype(bool)}
    verdict = odc_mlir.quantize(file, calibration=samples, labels=forms[form], help=False).verdict
    assert verdict["scores"]["metric"] == "top1_percent"
    assert verdict["scores"]["float"] == 100.0


def test_shares_as_labels_leave_the_agreement_of_classes() -> None:
    file, samples = dense(4, "SOFTMAX")
    labels = np.stack([odc_mlir.run(file, list(sample))[0][0] for sample in samples])
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert verdict["scores"]["metric"] == "rmse"
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "top1_match"]


def test_reals_that_are_no_classes_are_refused_with_a_remedy() -> None:
    file, samples = dense(4)
    with pytest.raises(OdcError, match=r"neither class numbers nor arrays .*; give a whole number from 0"):
        odc_mlir.quantize(file, calibration=samples, labels=np.arange(COUNT) % 4 + 0.5, help=False)


@pytest.mark.parametrize(
    ("metric", "text"),
    [("top1", "the model has no top1_match"), ("top5", "the model has no top5_match: no output has more than 5")],
)
def test_answers_that_no_output_has_are_refused_before_the_search(
    metric: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "run", lambda driver: pytest.fail("searched"))
    file, samples = dense(4 if metric == "top5" else 1)
    with pytest.raises(OptionError, match=text):
        odc_mlir.quantize(file, calibration=samples, metric=metric)


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_what_only_a_sample_far_from_others_shows_is_lost_without_it(factor: float) -> None:
    """The mean is near to the others, and so keeps the limit as well."""
    file, samples = dense()
    held = split(samples).held
    far = next(number for number, sample in enumerate(samples) if sample is held[len(held) // 2])
    spread = [[x * (factor if number == far else 1.0)] for number, (x,) in enumerate(samples)]
    plain, made = (odc_mlir.quantize(file, calibration=given, help=False).verdict for given in (samples, spread))
    assert (plain["passed"], plain["problems"], plain["samples"]["outputs_vary"]) == (True, [], True)
    (problem,) = made["problems"]
    assert "is lost in the quantised one, made without the samples that it is judged on: give more" in problem
    assert all(check["passed"] for check in made["limits"] if check["metric"] == "mpeir")
    assert not made["samples"]["telling"]


def test_a_search_in_vain_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    file, samples = dense()
    made = odc_mlir.quantize(file, calibration=samples, metric="mae", limit=0.0)
    (told,) = (text for text in made.verdict["findings"] if text.startswith("no choice of precisions"))
    assert told == "no choice of precisions that leaves layers in int8 meets the limits, others do"
    assert not caplog.records


def test_what_is_not_quantised_is_said_in_products() -> None:
    file, samples = dense()
    made = odc_mlir.quantize(file, calibration=samples, help=False, overrides={"hidden": "float"})
    assert any("of the products are quantised, at least 50 % wanted" in text for text in made.verdict["problems"])


@pytest.mark.parametrize(
    "tail", [("ARG_MAX",), ("ARG_MIN",), ("TOPK_V2",), ("ARG_MAX", "CAST"), ("SOFTMAX", "ARG_MAX")]
)
def test_places_are_right_or_wrong(tail: tuple[str, ...]) -> None:
    file, samples = dense(4, *tail)
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["top1_decided"]
    (errors,) = verdict["outputs"]
    assert (errors["mpeir"], errors["sqnr_db"]) == (None, None)
    assert errors["top1_match"] is not None
    assert "mpeir" not in verdict["intervals"]


@pytest.mark.parametrize(("scale", "near"), [(1e-3, 1.0), (1e3, 0.0)])
def test_places_may_differ_where_logits_are_nearly_alike(scale: float, near: float) -> None:
    """As the same logits do without ARG_MAX."""
    file, samples = dense(4, "ARG_MAX", scale=scale)
    graph = build_graph(export_model(odc_mlir.load(file)))
    reference = Reference(graph, samples)
    assert reference.classifier == "places"
    assert not reference.has_values
    other = build_graph(export_model(odc_mlir.load(dense(4, "ARG_MIN", scale=scale)[0])))
    found = reference.measure(other)
    assert (found.outputs[0].top1_match, found.decided) == (0.0, {0: near})


def test_answers_of_places_are_scored_by_equality() -> None:
    file, samples = dense(4, "ARG_MAX")
    labels = np.array([odc_mlir.run(file, list(sample))[0].item() for sample in samples])
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    with pytest.raises(OptionError, match="the model has no SQNR: its outputs are places"):
        odc_mlir.quantize(file, calibration=samples, metric="sqnr", help=False)


@pytest.mark.parametrize("outputs", [1, 5])
def test_yes_and_no_of_logits_are_scored_by_their_signs(outputs: int) -> None:
    file, samples = dense(outputs)
    logits = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    verdict = odc_mlir.quantize(file, calibration=samples, labels=logits > 0.0, help=False).verdict
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    assert [check["metric"] for check in verdict["limits"]] == ["drop", "recall_drop"]
    assert "drop" in verdict["intervals"]


def test_yes_and_no_that_few_samples_show_are_no_numbers_of_another_unit() -> None:
    """Logits that rise with labels but are all below zero."""
    outputs = [np.array([[-9.0 + number / 10]]) for number in range(COUNT)]
    labels = np.arange(COUNT) >= COUNT - 3
    check_answers(outputs, labels.astype(np.int64))
    assert misfit(outputs, labels) == Misfit("labels")


@pytest.mark.parametrize("order", ["", "first", "last"])
def test_the_first_of_the_best_is_the_answer(order: str) -> None:
    """Where indices alone are outputs, before values, and after these."""
    file, samples = dense(4, "TOPK_V2", order=order)
    logits = dense(4)[0]
    labels = np.array([int(np.argmax(odc_mlir.run(logits, list(sample))[0])) for sample in samples])
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    assert "drop" in verdict["intervals"]


@pytest.mark.parametrize(
    ("change", "refused", "found"),
    [
        (lambda column: column, False, None),
        (lambda column: 1000 * column, True, "labels of column 2"),
        (lambda column: -column, True, "labels of column 2"),
        (lambda column: column[::-1], False, "labels of column 2"),
        (lambda column: 0 * column, False, None),  # nothing to tell
    ],
)
def test_columns_of_numbers_are_checked_each(
    change: Callable[[np.ndarray], np.ndarray], refused: bool, found: str | None
) -> None:
    """The last is so small that it does not count in what all are explained by."""
    labels = np.random.default_rng(5).normal(size=(COUNT, 3)) * [1.0, 40.0, 1e-4]
    outputs = list((0.99 * labels)[:, None])
    labels[:, 2] = change(labels[:, 2].copy())
    assert misfit(outputs, labels) == (None if found is None else Misfit(found))
    if not refused:
        return check_answers(outputs, labels)
    with pytest.raises(
        InputError, match=r"labels of column 2 (rise and fall .* explains 1 of .* as it is -|.*negated)"
    ):
        check_answers(outputs, labels)


def test_a_column_of_other_labels_is_named() -> None:
    file, samples = dense(3)
    labels = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    labels[:, 1] = labels[::-1, 1]
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "mpeir"]
    assert any(text.startswith("labels of column 1 of ") for text in verdict["findings"])


@pytest.mark.parametrize("as_shares", [False, True])
@pytest.mark.parametrize("low", [0, -1])
def test_yes_for_no_is_refused(low: int, as_shares: bool) -> None:
    logits = np.random.default_rng(3).normal(size=COUNT) * 4
    outputs = [np.array([[1 / (1 + np.exp(-x)) if as_shares else x]]) for x in logits]
    check_answers(outputs, np.where(logits > 0, 1, low))
    with pytest.raises(InputError, match=r"gets 0 % of the labels right, and 100 % of their inverse: .*yes for no"):
        check_answers(outputs, np.where(logits > 0, low, 1))
    check_answers(outputs[:6], np.where(logits > 0, low, 1)[:6])  # which may be luck
    check_answers(outputs, np.arange(COUNT) % 2)  # of other samples: a finding


def test_yes_for_no_is_told_by_few_that_are_rare() -> None:
    shares = np.where(np.arange(40) % 20 == 0, 0.9, 0.02)
    with pytest.raises(InputError, match="gets 0 % of the labels right"):
        check_answers([np.array([[share]]) for share in shares], (shares < 0.5).astype(np.int64))


def test_labels_of_one_kind_that_are_held_back_are_told_by_all() -> None:
    file, samples = dense(1)
    held = set(stratified(COUNT // 2, COUNT))
    logits = [float(odc_mlir.run(file, list(sample))[0].ravel()[0]) for sample in samples]
    order = iter(np.argsort(logits))  # those held back have the least: all say no
    places = [*sorted(held), *sorted(set(range(COUNT)) - held)]
    given = {place: samples[number] for place, number in zip(places, order, strict=True)}
    ordered = [given[place] for place in range(COUNT)]
    said_no = np.array([odc_mlir.run(file, list(sample))[0].ravel()[0] <= 0 for sample in ordered]).astype(np.int64)
    assert said_no[sorted(held)].all()
    with pytest.raises(InputError, match="yes for no"):
        odc_mlir.quantize(file, calibration=ordered, labels=said_no, help=False)


def test_negated_numbers_are_refused() -> None:
    numbers = np.random.default_rng(3).normal(size=COUNT)
    outputs = [np.array([[x]]) for x in numbers]
    check_answers(outputs, numbers)
    with pytest.raises(InputError, match=r"labels fall where .* rises \(correlation -1\): they seem to be negated"):
        check_answers(outputs, -3 * numbers)
    check_answers(outputs[:6], -numbers[:6])  # which may be luck


def test_a_poor_model_is_among_the_causes_of_labels_that_do_not_fit() -> None:
    """Its answers are related to the labels, and far from them, as labels in another unit are."""
    rng = np.random.default_rng(4)
    labels = rng.normal(size=COUNT)
    outputs = [
        np.array([[1.2 * x + 0.8 + 0.9 * noise]]) for x, noise in zip(labels, rng.normal(size=COUNT), strict=True)
    ]
    with pytest.raises(InputError, match=r"\(R2\), as of labels in another unit or of a poor model") as caught:
        check_answers(outputs, labels)
    assert "a better model" in (caught.value.hint or "")
    classes = [np.eye(4)[[number % 4]] for number in range(COUNT)]
    with pytest.raises(InputError, match="or the model is poor") as caught:
        check_answers(classes, rng.permutation(np.arange(COUNT) % 4))
    assert "a better model" in (caught.value.hint or "")
    told = doubt([np.array([[x]]) for x in rng.normal(size=COUNT)], labels, "the model")
    assert told is not None
    assert told.endswith("or a better model")


@pytest.mark.parametrize(("limit", "is_least"), [(10.0, True), (30.0, False)])
def test_who_misses_a_budget_is_told_of_one_that_leaves_the_limits(limit: float, is_least: bool) -> None:
    """The smallest of all may miss them, however it looks on samples that its ranges know."""
    file, samples = dense(4)
    options = {"calibration": samples, "help": False, "metric": "sqnr", "limit": limit}
    missed = odc_mlir.quantize(file, **options, max_bytes=1)
    size, least = missed.verdict["coverage"]["budget"]["bytes"], min(p["bytes"] for p in missed.verdict["front"])
    assert (size == least) is is_least
    with pytest.raises(OdcError, match=f"the smallest file found within the limits has .* bytes: --max-size {size} "):
        missed.require_passed()
    made = odc_mlir.quantize(file, **options, max_bytes=size)
    made.require_passed()
    assert len(made.to_circle()) <= size


def test_who_misses_a_budget_is_told_that_nothing_keeps_the_limits() -> None:
    file, samples = dense(4)
    missed = odc_mlir.quantize(file, calibration=samples, help=False, metric="sqnr", limit=60.0, max_bytes=1)
    assert not missed.verdict["coverage"]["budget"]["holds"]
    said = r"bytes, and no model found keeps the limits: allow more loss \(--limit\)$"
    with pytest.raises(OdcError, match=said) as caught:
        missed.require_passed()
    assert "--max-size" not in str(caught.value)
