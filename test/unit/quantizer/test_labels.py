"""Labels that cannot be right: order, unit, numbering, and columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import two_layers
from helpers.float_nets import FloatNet
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import embed_ranges
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.reporting.labels import (
    Misfit,
    check_answers,
    check_class_order,
    check_column_order,
    classes_moved,
    columns_moved,
    doubt,
    misfit,
)

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


CLASSES, COUNT_LABEL_ORDER = 8, 48


def answered(seed: int = 1, right: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and what a model says: at least this share of the answers is right, but for one of each class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), COUNT_LABEL_ORDER // CLASSES)
    wrong = rng.random(COUNT_LABEL_ORDER) >= right
    wrong[:: COUNT_LABEL_ORDER // CLASSES] = True
    order = rng.permutation(COUNT_LABEL_ORDER)
    return labels[order], np.where(wrong, rng.integers(0, CLASSES, COUNT_LABEL_ORDER), labels)[order]


def outputs_of(chosen: np.ndarray) -> list[np.ndarray]:
    return list(np.eye(CLASSES, dtype=np.float32)[chosen][:, None] * 3)


@pytest.mark.parametrize("swapped", [(0, 1), (2, 5, 7), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_classes_in_another_order_are_refused_with_what_is_answered(swapped: tuple[int, ...]) -> None:
    labels, chosen = answered()
    order = np.arange(CLASSES)
    order[list(swapped)] = np.roll(swapped, 3 if len(swapped) == CLASSES else 1)
    assert classes_moved(chosen, order[labels], CLASSES) == {int(order[i]): i for i in swapped}
    with pytest.raises(InputError, match=f"{order[swapped[0]]}") as caught:
        check_answers(outputs_of(chosen), order[labels])
    whole = len(swapped) == CLASSES
    assert ("rotated by -3 of 8 classes" if whole else "numbered in another order") in str(caught.value)
    check_answers(outputs_of(chosen), labels)


@pytest.mark.parametrize(("shift", "end"), [(1, "0 are mostly answered by 7"), (-1, "7 are mostly answered by 0")])
def test_labels_that_are_rotated_by_one_are_not_told_to_start_at_0(shift: int, end: str) -> None:
    labels, chosen = answered()
    with pytest.raises(InputError, match=f"rotated by one class, as those with {end}; number classes in the order of"):
        check_answers(outputs_of(chosen), (labels + shift) % CLASSES)


@pytest.mark.parametrize(("right", "of_inputs"), [(0.9, False), (0.55, True)])
def test_inputs_are_named_where_no_numbering_makes_labels_right(right: float, of_inputs: bool) -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(CLASSES), 20)
    chosen = np.where(np.arange(160) % 20 < 20 * right, labels, rng.integers(0, CLASSES, 160))
    swapped = np.array([1, 0, *range(2, CLASSES)])[labels]
    with pytest.raises(InputError, match="another order") as caught:
        check_answers(outputs_of(chosen), swapped)
    assert str(caught.value).endswith("unit and order that the model was trained for") is of_inputs


def test_labels_from_1_on_are_off_by_one() -> None:
    labels, chosen = answered()
    some = labels < CLASSES - 1
    with pytest.raises(InputError, match="off by one class; number classes from 0"):
        check_answers(outputs_of(chosen[some]), labels[some] + 1)
    some = labels > 0
    with pytest.raises(InputError, match="off by one class; number classes in the order of the outputs"):
        check_answers(outputs_of(chosen[some]), labels[some] - 1)


def test_what_a_model_confuses_is_not_another_order() -> None:
    labels, chosen = answered()
    confused = np.where(chosen == 1, 0, chosen)  # two classes in one
    assert not classes_moved(confused, labels, CLASSES)
    without = labels != 0  # and the one has no sample
    assert not classes_moved(confused[without], labels[without], CLASSES)
    in_two = np.where(np.isin(chosen, (1, 2)), 0, chosen)
    assert not classes_moved(in_two[without], labels[without], CLASSES)


@pytest.mark.parametrize("right", [0.0, 0.3, 0.6])
def test_what_luck_may_have_is_not_another_order(right: float) -> None:
    for seed in range(200):
        labels, chosen = answered(seed, right)
        check_class_order(chosen, labels, CLASSES, "the model")


def test_few_samples_tell_nothing_of_the_order() -> None:
    labels = np.arange(2 * CLASSES) % CLASSES
    assert not classes_moved((labels + 3) % CLASSES, labels, CLASSES)


UNITS = np.array([1e5, 2e-3, 300.0])


def columned(count: int = COUNT_LABEL_ORDER, noise: float = 0.05) -> tuple[list[np.ndarray], np.ndarray]:
    """Outputs of three columns in units of their own, the last two much alike, and labels that they nearly are."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(count, 3))
    values[:, 2] = 0.8 * values[:, 1] + 0.6 * values[:, 2]
    labels = (values + noise * rng.normal(size=values.shape)) * UNITS
    return [row[None] for row in values * UNITS], labels


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_columns_in_another_order_are_refused(order: tuple[int, ...], unit: float) -> None:
    outputs, labels = columned()
    moved = {place: at for place, at in enumerate(order) if place != at}
    assert columns_moved(outputs, labels[:, order] * unit) == moved
    (place, at), *_ = moved.items()
    with pytest.raises(InputError, match=f"another order: {place} fits column {at} of the output, .*; give labels"):
        check_answers(outputs, labels[:, order] * unit)


def test_columns_in_their_order_are_taken() -> None:
    outputs, labels = columned()
    check_column_order(outputs, labels, "the model")
    poor, _ = columned(noise=0.0)
    rng = np.random.default_rng(5)
    check_column_order(poor, labels + 3 * rng.normal(size=labels.shape) * UNITS, "the model")
    few, others = columned(8)
    check_column_order(few, others[:, ::-1], "the model")


def test_one_column_that_fits_another_one_is_a_finding_at_most() -> None:
    outputs, labels = columned()
    labels[:, 0] = labels[:, 1]
    assert not columns_moved(outputs, labels)


def test_columns_of_yes_and_no_are_in_an_order_too() -> None:
    rng = np.random.default_rng(7)
    labels = (rng.random((COUNT_LABEL_ORDER, 4)) < 0.4).astype(np.int64)
    outputs = [np.where(row, 0.9, 0.1)[None] for row in labels]
    check_answers(outputs, labels)
    with pytest.raises(InputError, match="0 fits column 1 of the output, 1 fits column 0"):
        check_answers(outputs, labels[:, [1, 0, 2, 3]])


COUNT_UNITS, CLASSES_UNITS, PIXELS = 48, 6, 16


PLAIN: dict[str, Any] = {"help": False, "mixed": "off"}


def _bars() -> tuple[np.ndarray, np.ndarray]:
    """Pictures from 0 to 1 whose class is the place of their bright pixel, and these classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT_UNITS) % CLASSES_UNITS
    pictures = rng.uniform(0, 0.3, (COUNT_UNITS, 1, PIXELS))
    pictures[np.arange(COUNT_UNITS), 0, labels] = rng.uniform(0.8, 1.0, COUNT_UNITS)
    return pictures, labels


def _trained_for(low: float, high: float) -> bytes:
    """A network that finds the bright pixel where black is ``low`` and white ``high``.

    One class more wins where no pixel is bright, and where too many are.
    """
    net = FloatNet(0)
    x = net.input(np.zeros((1, PIXELS), np.float32))
    unit, black = 1.0 / (high - low), -low / (high - low)
    bright = np.concatenate([np.eye(CLASSES_UNITS, PIXELS), np.ones((1, PIXELS))]) * unit
    thresholds = np.array([black - 0.6] * CLASSES_UNITS + [PIXELS * black - 7.0])
    found = net.add("FULLY_CONNECTED", x, net.const(bright), net.const(thresholds), fused_activation_function="relu")
    answers = np.diag([10.0] * CLASSES_UNITS + [100.0])
    none = np.array([0.0] * CLASSES_UNITS + [0.5])
    y = net.add("FULLY_CONNECTED", found, net.const(answers), net.const(none))
    return bytes(write_model(export_model(net.module(y))))


UNITS_UNITS = {"0..1": (0.0, 1.0), "-1..1": (-1.0, 1.0), "0..255": (0.0, 255.0)}


def _in_unit(pictures: np.ndarray, unit: str) -> list[list[np.ndarray]]:
    low, high = UNITS_UNITS[unit]
    return [[(low + (high - low) * picture).astype(np.float32)] for picture in pictures]


def _graph(file: bytes) -> Graph:
    return build_graph(read_model(file))


def _percent(file: bytes, samples: list[list[np.ndarray]], labels: np.ndarray) -> float:
    answers = [int(np.argmax(odc_mlir.run(file, sample)[0])) for sample in samples]
    return 100.0 * float(np.mean(answers == labels))


@pytest.mark.parametrize(
    ("trained", "given", "what"),
    [
        ("0..1", "0..255", "divided by 255"),
        ("-1..1", "0..255", "divided by 127.5, less 1"),
        ("0..255", "0..1", "times 255"),
        ("0..255", "-1..1", "times 127.5, plus 127.5"),
    ],
)
def test_labels_tell_the_unit_of_pixels(trained: str, given: str, what: str) -> None:
    pictures, labels = _bars()
    file, samples = _trained_for(*UNITS_UNITS[trained]), _in_unit(pictures, given)
    assert _percent(file, samples, labels) < 50
    with pytest.raises(InputError, match=rf"gets 0 % of the labels right, and 100 % of them with input 'in0' {what}: "):
        Reference(_graph(file), samples, labels)
    as_trained = _in_unit(pictures, trained)
    assert _percent(file, as_trained, labels) == 100
    Reference(_graph(file), as_trained, labels)


def test_a_poor_model_has_no_unit_that_helps() -> None:
    pictures, labels = _bars()
    graph = _graph(_trained_for(0.0, 1.0))
    wrong = np.where(np.arange(COUNT_UNITS) % 5 < 2, 0, 2 + np.arange(COUNT_UNITS) % 2)
    Reference(graph, _in_unit(pictures, "0..1"), (labels + wrong) % CLASSES_UNITS)


def test_samples_to_check_on_in_another_unit_are_told() -> None:
    pictures, _ = _bars()
    file = _trained_for(0.0, 1.0)
    bright, plain = _in_unit(pictures[:24], "0..255"), _in_unit(pictures, "0..1")
    found = odc_mlir.quantize(file, calibration=bright, evaluation=plain[24:], **PLAIN)
    assert [t for t in found.verdict["findings"] if "in the samples to check on, 254 in calibration samples: one" in t]
    assert found.verdict["samples"]["other_units"] == ["in0"]
    assert not found.verdict["certain"]
    assert "input 'in0' was in another unit in those to calibrate by" in unshown(found.verdict["samples"])
    clipped = odc_mlir.quantize(file, calibration=plain[:24], evaluation=_in_unit(pictures[24:], "0..255"), **PLAIN)
    assert not clipped.passed
    assert [t for t in clipped.verdict["findings"] if "one of both is in another unit" in t]
    alike = odc_mlir.quantize(file, calibration=plain[:24], evaluation=plain[24:], **PLAIN)
    assert not [t for t in alike.verdict["findings"] if "another unit" in t]
    assert alike.verdict["samples"]["other_units"] == []


def test_samples_that_contradict_ranges_are_told() -> None:
    """Ranges in the model's file, as record-minmax writes them, and recorded ones."""
    pictures, _ = _bars()
    plain, bright = _in_unit(pictures, "0..1"), _in_unit(pictures, "0..255")
    ranged, records = embed_ranges(_trained_for(0.0, 1.0), plain)
    found = odc_mlir.quantize(ranged, calibration=bright, **PLAIN)
    assert [t for t in found.verdict["findings"] if "255 in calibration samples, 0.999 in the ranges that the" in t]
    found = odc_mlir.quantize(_trained_for(0.0, 1.0), records=records, evaluation=bright, **PLAIN)
    assert [t for t in found.verdict["findings"] if "255 in the samples to check on, 0.999 in recorded ranges" in t]
