"""Labels in every form, and labels that cannot be right: order, unit, numbering, and columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import normal, regressor, two_layers
from helpers.float_nets import FloatNet
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import embed_ranges
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting import labels as checks
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, Misfit, check_answers, classes_moved, columns_moved, misfit

Samples = list[list[np.ndarray]]
COUNT = 24


@cache
def dense(outputs: int, *tail: str, scale: float = 1.0, order: str = "") -> tuple[bytes, Samples]:
    """Two layers and the operators behind them, and samples."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(outputs, scale, rng)
    found = [y]
    for op in tail:
        if op == "TOPK_V2":
            values, places = builder.tensor("values", (1, 2)), builder.tensor("places", (1, 2), "int32")
            builder.operator(op, [y, builder.constant("k", 2, "int32")], [values, places])
            found = {"": [places], "first": [places, values], "last": [values, places]}[order]
        elif op in ("ARG_MAX", "ARG_MIN"):
            axis = builder.constant("axis", 1, "int32")
            found = [builder.made(op, (1,), op, found[0], axis, dtype="int64", output_type="int64")]
        elif op == "CAST":
            found = [builder.made(op, (1,), op, *found, in_data_type="int64", out_data_type="float32")]
        else:
            found = [builder.made(op, (1, outputs), op, *found, beta=1.0)]
    return builder.file([x], found), normal(rng, COUNT, 1, 8)


def outputs_by_run(file: bytes, samples: Samples) -> np.ndarray:
    """The first output for all samples, [samples, ...]."""
    return np.concatenate([odc_mlir.run(file, sample)[0] for sample in samples])


def classes(logits: np.ndarray) -> np.ndarray:
    return logits.argmax(axis=1)


@pytest.mark.parametrize(
    ("outputs", "tail", "order", "labels"),
    [
        (4, (), "", classes),
        (4, (), "", lambda logits: classes(logits).astype(np.float32)),
        (4, (), "", lambda logits: np.eye(4, dtype=np.int64)[classes(logits)]),
        (4, (), "", lambda logits: np.eye(4)[classes(logits)][:, None]),
        (4, (), "", lambda logits: np.eye(4, dtype=bool)[classes(logits)]),
        (4, ("ARG_MAX",), "", classes),
        (4, ("TOPK_V2",), "", classes),
        (4, ("TOPK_V2",), "first", classes),
        (4, ("TOPK_V2",), "last", classes),
        (1, (), "", lambda logits: logits > 0.0),
        (5, (), "", lambda logits: logits > 0.0),
    ],
)
def test_right_labels_have_all_points_in_every_form(outputs: int, tail: tuple, order: str, labels: Callable) -> None:
    """Class numbers, rows of one class, places found by the model, and signs of logits for yes and no."""
    file, samples = dense(outputs, *tail, order=order)
    right = labels(outputs_by_run(regressor(outputs)[0], samples))
    verdict = odc_mlir.quantize(file, calibration=samples, labels=right, help=False).verdict
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    assert "drop" in verdict["intervals"]
    if right.dtype == bool and outputs != 4:  # yes and no
        assert [check["metric"] for check in verdict["limits"]] == ["drop", "recall_drop"]


@pytest.mark.parametrize(
    ("outputs", "tail", "options", "text"),
    [
        (
            4,
            (),
            {"labels": np.arange(COUNT) % 4 + 0.5},
            "neither class numbers nor arrays .*; give a whole number from",
        ),
        (4, ("ARG_MAX",), {"metric": "sqnr"}, "the model has no SQNR: its outputs are places"),
        (1, (), {"metric": "top1"}, "the model has no top1_match"),
        (4, (), {"metric": "top5"}, "the model has no top5_match: no output has more than 5"),
    ],
)
def test_what_outputs_lack_is_refused_first(
    outputs: int, tail: tuple[str, ...], options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "run", lambda driver: pytest.fail("searched"))
    file, samples = dense(outputs, *tail)
    with pytest.raises(OdcError, match=text):
        odc_mlir.quantize(file, calibration=samples, **options)


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_what_only_a_sample_far_from_others_shows_is_lost_without_it(factor: float) -> None:
    """The mean is near to the others, and so keeps the limit as well."""
    file, samples = regressor()
    held = split(samples).held
    far = next(number for number, sample in enumerate(samples) if sample is held[len(held) // 2])
    spread = [[x * (factor if number == far else 1.0)] for number, (x,) in enumerate(samples)]
    plain, made = (odc_mlir.quantize(file, calibration=given, help=False).verdict for given in (samples, spread))
    assert (plain["passed"], plain["problems"], plain["samples"]["outputs_vary"]) == (True, [], True)
    (problem,) = made["problems"]
    assert "is lost in the quantised one, made without the samples that it is judged on: give more" in problem
    assert all(check["passed"] for check in made["limits"] if check["metric"] == "mpeir")
    assert not made["samples"]["telling"]


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


def test_a_column_of_other_labels_is_named_and_shares_are_numbers() -> None:
    file, samples = regressor(3)
    labels = outputs_by_run(file, samples)
    labels[:, 1] = labels[::-1, 1]
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "mpeir"]
    assert any(text.startswith("labels of column 1 of ") for text in verdict["findings"])
    file, samples = dense(4, "SOFTMAX")  # shares as labels leave the agreement of classes
    verdict = odc_mlir.quantize(file, calibration=samples, labels=outputs_by_run(file, samples), help=False).verdict
    assert verdict["scores"]["metric"] == "rmse"
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "top1_match"]


def rows(chosen: np.ndarray, count: int) -> list[np.ndarray]:
    """Outputs of a classifier that answers ``chosen``."""
    return list(3 * np.eye(count, dtype=np.float32)[chosen][:, None])


def numbers(values: np.ndarray) -> list[np.ndarray]:
    """Outputs of one number each."""
    return list(np.asarray(values)[:, None, None])


def check(outputs: list[np.ndarray], labels: np.ndarray, refused: str | None = None) -> str:
    """Expect that labels are taken, or ``refused`` with an error, whose text and hint are returned."""
    if refused is None:
        check_answers(outputs, labels)
        return ""
    with pytest.raises(InputError, match=refused) as caught:
        check_answers(outputs, labels)
    return f"{caught.value}; {caught.value.hint}"


LOGITS = 4 * np.random.default_rng(3).normal(size=COUNT)
SHARES = 1 / (1 + np.exp(-LOGITS))
YES = LOGITS > 0
RARE = np.where(np.arange(40) % 20 == 0, 0.9, 0.02)
NO_FOR_YES = r"gets 0 % of the labels right, and 100 % of their inverse: .*yes for no"
DIGITS = np.arange(200) % 10
UNEVEN = np.repeat([0, 1, 2, 3], [100, 100, 96, 4])
FEW_RIGHT = np.where(np.arange(300) // 20 == 5, 1, 3)


def guessed(right: float, kinds: int, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Answers of so many kinds of four classes, and labels for which this share of them is right."""
    answers = np.arange(count) % kinds
    answers[::20] = 3  # so that there is more than one
    wrong = np.arange(count) * 7919 % count >= right * count
    return rows(answers, 4), np.where(wrong, (answers + 1 + np.arange(count) // kinds % 3) % 4, answers)


def three_columns(change: Callable[[np.ndarray], np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Answers and labels whose last column is so small that it does not count in what all are explained by."""
    labels = np.random.default_rng(5).normal(size=(COUNT, 3)) * [1.0, 40.0, 1e-4]
    outputs = list((0.99 * labels)[:, None])
    labels[:, 2] = change(labels[:, 2].copy())
    return outputs, labels


GUESSING = r"gets 2[0-9.]* % of the labels right, no better than guessing"
IN_A_UNIT, NEGATED = r"labels of column 2 rise and fall .* explains 1 of .* as it is -", r"labels of column 2 .*negated"
ONE_CLASS = rows(np.repeat([1, 0], [46, 4]), 2), np.repeat([1, 0], [46, 4])


@pytest.mark.parametrize(
    ("outputs", "labels", "refused", "found"),
    [
        (*guessed(1.0, 4, 200), None, None),
        (*guessed(0.4, 4, 200), None, None),
        (*guessed(0.25, 4, 200), GUESSING, Misfit),  # as guessing does
        (*guessed(0.98, 1, 200), None, None),  # nearly all of one class, and the others are told
        (*guessed(1.0, 1, 12), None, Misfit),  # right, but too few to know
        (*guessed(0.0, 4, 8), None, Misfit),
        (*three_columns(lambda column: column), None, None),
        (*three_columns(lambda column: 1000 * column), IN_A_UNIT, Misfit("labels of column 2")),
        (*three_columns(lambda column: -column), NEGATED, Misfit("labels of column 2")),
        (*three_columns(lambda column: column[::-1]), None, Misfit("labels of column 2")),
        (*three_columns(lambda column: 0 * column), None, None),  # nothing to tell
        # Logits that rise with labels but are all below zero.
        (numbers(-9.0 + np.arange(COUNT) / 10), (np.arange(COUNT) >= COUNT - 3).astype(int), None, Misfit("labels")),
        (*ONE_CLASS, None, Misfit),
        *((numbers(x), np.where(YES, 1, low), None, None) for x in (LOGITS, SHARES) for low in (0, -1)),
        *((numbers(x), np.where(YES, low, 1), NO_FOR_YES, Misfit) for x in (LOGITS, SHARES) for low in (0, -1)),
        (numbers(LOGITS[:6]), np.where(YES, 0, 1)[:6], None, Misfit),  # which may be luck
        (numbers(LOGITS), np.arange(COUNT) % 2, None, Misfit),  # of other samples: a finding
        (numbers(RARE), (RARE < 0.5).astype(np.int64), "gets 0 % of the labels right", Misfit),
        (numbers(LOGITS), LOGITS, None, None),
        (
            numbers(LOGITS),
            -3 * LOGITS,
            r"labels fall where .* rises \(correlation -1\): they seem to be negated",
            Misfit,
        ),
        (numbers(LOGITS[:6]), -LOGITS[:6], None, Misfit),
        # Odd or even, of ten digits: two of ten answers are right more often than by luck, and less than a guess.
        (rows(DIGITS, 10), DIGITS % 2, r"gets 2[0-9.]* % of the labels right, guessing 50 %", ...),
        # A rare class is told, and answered to nearly all: better than luck has these answers, worse than any guess.
        (rows(FEW_RIGHT, 4), UNEVEN, r"gets 8 % of the labels right, guessing 25 %: .* unit or order", ...),
        (rows(np.where(np.arange(300) < 60, 0, FEW_RIGHT), 4), UNEVEN, None, ...),
        # Of many classes few are among the labels.
        (rows(np.where(np.arange(300) % 4, 4 + np.arange(300) % 36, UNEVEN), 40), UNEVEN, None, ...),
        (
            rows(np.where(np.arange(50) == 0, 0, 1), 2),
            ONE_CLASS[1],
            r"no better than guessing .* more samples of other classes than 1 \(92 %\)",
            Misfit,
        ),
    ],
)
def test_labels_that_the_float_model_denies_are_refused(
    outputs: list, labels: np.ndarray, refused: Any, found: Any
) -> None:
    check(outputs, labels, refused)
    seen = misfit(outputs, labels)
    assert isinstance(seen, Misfit) if found is Misfit else found in (..., seen)


def test_labels_of_one_class_are_named_as_such() -> None:
    text = checks.misfit_text(misfit(*ONE_CLASS), 50, FLOAT_MODEL)
    assert text.startswith("92 % of the labels of 50 samples are of class 1, so that luck may have as many right")
    assert text.endswith("give more samples of other classes")


def test_labels_of_one_kind_that_are_held_back_are_told_by_all() -> None:
    file, samples = regressor()
    held = set(stratified(COUNT // 2, COUNT))
    order = iter(np.argsort(outputs_by_run(file, samples).ravel()))  # those held back have the least: all say no
    places = [*sorted(held), *sorted(set(range(COUNT)) - held)]
    given = {place: samples[number] for place, number in zip(places, order, strict=True)}
    ordered = [given[place] for place in range(COUNT)]
    said_no = (outputs_by_run(file, ordered).ravel() <= 0).astype(np.int64)
    assert said_no[sorted(held)].all()
    with pytest.raises(InputError, match="yes for no"):
        odc_mlir.quantize(file, calibration=ordered, labels=said_no, help=False)


def test_a_poor_model_is_among_the_causes_of_labels_that_do_not_fit() -> None:
    """Its answers are related to the labels, and far from them, as labels in another unit are."""
    rng = np.random.default_rng(4)
    labels = rng.normal(size=COUNT)
    poor = numbers(1.2 * labels + 0.8 + 0.9 * rng.normal(size=COUNT))
    assert "a better model" in check(poor, labels, r"\(R2\), as of labels in another unit or of a poor model")
    guessed = rng.permutation(np.arange(COUNT) % 4)
    assert "a better model" in check(rows(np.arange(COUNT) % 4, 4), guessed, "or the model is poor")
    assert checks.doubt(numbers(rng.normal(size=COUNT)), labels, "the model").endswith("or a better model")


@pytest.mark.parametrize(("limit", "is_least"), [(10.0, True), (30.0, False), (60.0, None)])
def test_who_misses_a_budget_is_told_of_one_that_leaves_the_limits(limit: float, is_least: bool | None) -> None:
    """The smallest of all may miss them, however it looks on samples that its ranges know; all may."""
    file, samples = regressor(4)
    options = {"calibration": samples, "help": False, "metric": "sqnr", "limit": limit}
    missed = odc_mlir.quantize(file, **options, max_bytes=1)
    budget = missed.verdict["coverage"]["budget"]
    size, least = budget["bytes"], min(point["bytes"] for point in missed.verdict["front"])
    with pytest.raises(OdcError) as caught:
        missed.require_passed()
    if is_least is None:
        assert not budget["holds"]
        assert str(caught.value).endswith("bytes, and no model found meets the limits: allow more loss (--limit)")
        assert "--max-size" not in str(caught.value)
        return
    assert (size == least) is is_least
    assert "the smallest file found within the limits has " in str(caught.value)
    assert f" bytes: --max-size {size} " in str(caught.value)
    made = odc_mlir.quantize(file, **options, max_bytes=size)
    made.require_passed()
    assert len(made.to_circle()) <= size


CLASSES, ORDERED = 8, 48


def answered(seed: int = 1, right: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and answers: at least this share of them is right, but for one of each class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), ORDERED // CLASSES)
    wrong = rng.random(ORDERED) >= right
    wrong[:: ORDERED // CLASSES] = True
    order = rng.permutation(ORDERED)
    return labels[order], np.where(wrong, rng.integers(0, CLASSES, ORDERED), labels)[order]


@pytest.mark.parametrize("swapped", [(0, 1), (2, 5, 7), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_classes_in_another_order_are_refused_with_what_is_answered(swapped: tuple[int, ...]) -> None:
    (labels, chosen), order, whole = answered(), np.arange(CLASSES), len(swapped) == CLASSES
    order[list(swapped)] = np.roll(swapped, 3 if whole else 1)
    assert classes_moved(chosen, order[labels], CLASSES) == {int(order[i]): i for i in swapped}
    text = check(rows(chosen, CLASSES), order[labels], f"{order[swapped[0]]}")
    assert ("rotated by -3 of 8 classes" if whole else "numbered in another order") in text
    check(rows(chosen, CLASSES), labels)


def test_labels_that_are_rotated_by_one_are_not_told_to_start_at_0() -> None:
    labels, chosen = answered()
    every, last, first = labels >= 0, labels < CLASSES - 1, labels > 0
    for shift, among, said in (
        (1, every, "rotated by one class, as those with 0 are mostly answered by 7; number classes in the order of"),
        (-1, every, "rotated by one class, as those with 7 are mostly answered by 0; number classes in the order of"),
        (1, last, "off by one class; number classes from 0"),
        (-1, first, "off by one class; number classes in the order of the outputs"),
    ):
        check(rows(chosen[among], CLASSES), (labels[among] + shift) % CLASSES, said)
    # Inputs are named where no numbering makes labels right.
    labels, guessed = np.repeat(np.arange(CLASSES), 20), np.random.default_rng(2).integers(0, CLASSES, 160)
    for right, of_inputs in ((0.9, False), (0.55, True)):
        chosen = np.where(np.arange(160) % 20 < 20 * right, labels, guessed)
        text = check(rows(chosen, CLASSES), np.array([1, 0, *range(2, CLASSES)])[labels], "another order")
        assert ("unit and order that the model was trained for" in text) is of_inputs


def test_what_a_model_confuses_and_few_samples_are_not_another_order() -> None:
    labels, chosen = answered()
    confused = np.where(chosen == 1, 0, chosen)  # two classes in one
    assert not classes_moved(confused, labels, CLASSES)
    without = labels != 0  # and the one has no sample
    assert not classes_moved(confused[without], labels[without], CLASSES)
    in_two = np.where(np.isin(chosen, (1, 2)), 0, chosen)
    assert not classes_moved(in_two[without], labels[without], CLASSES)
    few = np.arange(2 * CLASSES) % CLASSES
    assert not classes_moved((few + 3) % CLASSES, few, CLASSES)


@pytest.mark.parametrize("right", [0.0, 0.3, 0.6])
def test_what_luck_may_have_is_not_another_order(right: float) -> None:
    for seed in range(200):
        labels, chosen = answered(seed, right)
        checks.check_class_order(chosen, labels, CLASSES, "the model")


UNITS = np.array([1e5, 2e-3, 300.0])


def columned(count: int = ORDERED, noise: float = 0.05) -> tuple[list[np.ndarray], np.ndarray]:
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
    check(outputs, labels[:, order] * unit, f"another order: {place} fits column {at} of the output, .*; give labels")


def test_columns_in_their_order_are_taken() -> None:
    outputs, labels = columned()
    checks.check_column_order(outputs, labels, "the model")
    poor, _ = columned(noise=0.0)
    rng = np.random.default_rng(5)
    checks.check_column_order(poor, labels + 3 * rng.normal(size=labels.shape) * UNITS, "the model")
    few, others = columned(8)
    checks.check_column_order(few, others[:, ::-1], "the model")
    labels[:, 0] = labels[:, 1]  # one that fits another one is a finding at most
    assert not columns_moved(outputs, labels)
    yes = (np.random.default_rng(7).random((ORDERED, 4)) < 0.4).astype(np.int64)
    answers = [np.where(row, 0.9, 0.1)[None] for row in yes]
    check(answers, yes)
    check(answers, yes[:, [1, 0, 2, 3]], "0 fits column 1 of the output, 1 fits column 0")


PICTURES, KINDS, PIXELS = 48, 6, 16
PLAIN: dict[str, Any] = {"help": False, "mixed": "off"}
RANGES = {"0..1": (0.0, 1.0), "-1..1": (-1.0, 1.0), "0..255": (0.0, 255.0)}


def _bars() -> tuple[np.ndarray, np.ndarray]:
    """Pictures from 0 to 1 whose class is the place of their bright pixel, and these classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(PICTURES) % KINDS
    pictures = rng.uniform(0, 0.3, (PICTURES, 1, PIXELS))
    pictures[np.arange(PICTURES), 0, labels] = rng.uniform(0.8, 1.0, PICTURES)
    return pictures, labels


def _trained_for(low: float, high: float) -> bytes:
    """A network that finds the bright pixel where black is ``low`` and white ``high``.

    One class more wins where no pixel is bright, and where too many are.
    """
    net = FloatNet(0)
    x = net.input(np.zeros((1, PIXELS), np.float32))
    unit, black = 1.0 / (high - low), -low / (high - low)
    bright = np.concatenate([np.eye(KINDS, PIXELS), np.ones((1, PIXELS))]) * unit
    thresholds = np.array([black - 0.6] * KINDS + [PIXELS * black - 7.0])
    found = net.add("FULLY_CONNECTED", x, net.const(bright), net.const(thresholds), fused_activation_function="relu")
    answers, none = np.diag([10.0] * KINDS + [100.0]), np.array([0.0] * KINDS + [0.5])
    y = net.add("FULLY_CONNECTED", found, net.const(answers), net.const(none))
    return bytes(write_model(export_model(net.module(y))))


def _in_unit(pictures: np.ndarray, unit: str) -> Samples:
    low, high = RANGES[unit]
    return [[(low + (high - low) * picture).astype(np.float32)] for picture in pictures]


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
    file, samples, as_trained = _trained_for(*RANGES[trained]), _in_unit(pictures, given), _in_unit(pictures, trained)
    right = [np.mean(classes(outputs_by_run(file, seen)) == labels) for seen in (samples, as_trained)]
    assert right[0] < 0.5
    assert right[1] == 1.0
    graph = build_graph(read_model(file))
    with pytest.raises(InputError, match=rf"gets 0 % of the labels right, and 100 % of them with input 'in0' {what}: "):
        Reference(graph, samples, labels)
    Reference(graph, as_trained, labels)
    poor = (labels + np.where(np.arange(PICTURES) % 5 < 2, 0, 2 + np.arange(PICTURES) % 2)) % KINDS
    Reference(graph, as_trained, poor)  # has no unit that helps


def test_samples_in_another_unit_than_others_or_than_ranges_are_told() -> None:
    """Ranges in the model's file, as record-minmax writes them, and recorded ones."""
    file, (pictures, _) = _trained_for(0.0, 1.0), _bars()
    plain, bright = _in_unit(pictures, "0..1"), _in_unit(pictures, "0..255")

    def told(model: Any = file, **options: Any) -> tuple[Any, str]:
        made = odc_mlir.quantize(model, **options, **PLAIN)
        return made, "; ".join(made.verdict["findings"])

    found, text = told(calibration=bright[:24], evaluation=plain[24:])
    assert "in the samples to check on, 254 in calibration samples: one" in text
    assert found.verdict["samples"]["other_units"] == ["in0"]
    assert not found.verdict["certain"]
    assert "input 'in0' was in another unit in the calibration samples" in unshown(found.verdict["samples"])
    clipped, text = told(calibration=plain[:24], evaluation=bright[24:])
    assert not clipped.passed
    assert "one of both is in another unit" in text
    alike, text = told(calibration=plain[:24], evaluation=plain[24:])
    assert "another unit" not in text
    assert alike.verdict["samples"]["other_units"] == []
    ranged, records = embed_ranges(file, plain)
    assert "255 in calibration samples, 0.999 in the ranges that the" in told(ranged, calibration=bright)[1]
    assert "255 in the samples to check on, 0.999 in recorded ranges" in told(records=records, evaluation=bright)[1]
