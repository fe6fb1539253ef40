"""Labels in every form, and scores by them: columns, rows and recall of classes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import activation, normal, regressor, two_layers
from helpers.models import ModelBuilder, Samples, dense_model
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.measurement import lost_places
from odc_mlir.quantizer.outputs import Places, share_of_ties
from odc_mlir.quantizer.policy.verdict import describe, reservation, unshown
from odc_mlir.quantizer.quantize import embed_ranges
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.report import render
from odc_mlir.quantizer.samples import split
from odc_mlir.quantizer.summary import conclusion, summary
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.tools.odc_quantize import details

COUNT = 24


@cache
def dense(outputs: int, *tail: str, scale: float = 1.0, order: str = "") -> tuple[bytes, Samples]:
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
        (4, ("ARG_MAX",), {"metric": "sqnr"}, "sqnr_db does not apply to the model: its outputs are places"),
        (1, (), {"metric": "top1"}, "top1_match does not apply to the model"),
        (4, (), {"metric": "top5"}, "top5_match does not apply to the model: no output has more than 5"),
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
    *others, problem = made["problems"]
    assert len(others) == (factor > 100.0)  # the other samples miss the limit
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


@cache
def _truths(bias: float = 0.0) -> tuple[bytes, Samples]:
    """Outputs: numbers, truths, truths as integers, a number of truths, and the row of a best place in a grid."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(32, 1.0, rng)
    truths = builder.made("m", (1, 32), "GREATER", y, builder.constant("bias", bias), dtype="bool")
    ones = builder.made("ones", (1, 32), "CAST", truths, dtype="int32", in_data_type="bool", out_data_type="int32")
    axis = builder.constant("axis", [1], "int32")
    count = builder.made("count", (1,), "SUM", ones, axis, dtype="int32", keep_dims=False)
    best = builder.made("best", (1,), "ARG_MAX", y, axis, dtype="int32", output_type="int32")
    row = builder.made("row", (1,), "FLOOR_DIV", best, builder.constant("width", 4, "int32"), dtype="int32")
    return builder.file([x], [y, truths, ones, count, row]), normal(rng, COUNT, 1, 8)


def test_truths_and_integers_of_places_are_compared_by_the_share_of_equal_values() -> None:
    verdict = verdict_of(*_truths())
    found = {(check["metric"], check["output"]): check for check in verdict["limits"]}
    assert set(found) == {("mpeir", None), *(("top1_match", name) for name in ("m", "ones", "row"))}
    truths = found["top1_match", "m"]
    assert truths["limit"] == 0.99
    assert 0.9 < truths["value"] < 1.0
    assert truths["value"] == verdict["metrics"]["top1_match:m"] == found["top1_match", "ones"]["value"]
    distances = {output["name"]: (output["equality"], output["mpeir"] is None) for output in verdict["outputs"]}
    assert {name: both for name, both in distances.items() if both == (True, True)}.keys() == {"m", "ones", "row"}
    assert distances["count"] == (False, False)
    (share,) = re.findall(r"([\d.]+) % of the answers of output 'm' are the float model's", conclusion(verdict))
    assert float(share) == pytest.approx(100.0 * truths["value"], abs=0.1)


def test_truths_that_become_constant_are_lost_though_nearly_all_are_equal() -> None:
    reference, other = (build_graph(read_model(_truths(bias)[0])) for bias in (26.0, 1e3))
    measured = Reference(reference, _truths()[1]).measure(other, keep=True)
    assert 0.99 < measured.outputs[1].top1_match < 1.0
    assert lost_places(measured) == [1, 2, 3]


@pytest.mark.parametrize(("scale", "near"), [(1e-3, 1.0), (1e3, 0.0)])
def test_places_may_differ_where_logits_are_nearly_alike(scale: float, near: float) -> None:
    file, samples = dense(4, "ARG_MAX", scale=scale)
    graph = build_graph(export_model(odc_mlir.load(file)))
    reference = Reference(graph, samples)
    assert reference.has_scores(0)
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


def test_labels_of_one_kind_that_are_held_back_are_told_by_all() -> None:
    file, samples = regressor()
    held = set(stratified(COUNT // 2, COUNT))
    order = iter(np.argsort(outputs_by_run(file, samples).ravel()))  # those held back have the least: all say no
    places = [*sorted(held), *sorted(set(range(COUNT)) - held)]
    given = {place: samples[number] for place, number in zip(places, order, strict=True)}
    ordered = [given[place] for place in range(COUNT)]
    said_no = (outputs_by_run(file, ordered).ravel() <= 0).astype(np.int64)
    assert said_no[sorted(held)].all()
    with pytest.raises(InputError, match="yes and no seem to be exchanged"):
        odc_mlir.quantize(file, calibration=ordered, labels=said_no, help=False)


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
    unit, black = 1.0 / (high - low), -low / (high - low)
    bright = np.concatenate([np.eye(KINDS, PIXELS), np.ones((1, PIXELS))]) * unit
    thresholds = np.array([black - 0.6] * KINDS + [PIXELS * black - 7.0])
    answers, none = np.diag([10.0] * KINDS + [100.0]), np.array([0.0] * KINDS + [0.5])
    return dense_model(bright, answers, biases=(thresholds, none), activations=("relu", "none"))


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
    with pytest.raises(InputError, match=rf"gets 0 % of the labels right, and 100 % of them with input 'x' {what}: "):
        Reference(graph, samples, labels)
    Reference(graph, as_trained, labels)
    poor = (labels + np.where(np.arange(PICTURES) % 5 < 2, 0, 2 + np.arange(PICTURES) % 2)) % KINDS
    Reference(graph, as_trained, poor)  # has no unit that helps


def test_samples_in_another_unit_than_others_or_than_ranges_are_told() -> None:
    file, (pictures, _) = _trained_for(0.0, 1.0), _bars()
    plain, bright = _in_unit(pictures, "0..1"), _in_unit(pictures, "0..255")

    def told(model: Any = file, **options: Any) -> tuple[Any, str]:
        made = odc_mlir.quantize(model, **options, **PLAIN)
        return made, "; ".join(made.verdict["findings"])

    found, text = told(calibration=bright[:24], evaluation=plain[24:])
    assert "in the samples to check on, 254 in calibration samples: they differ" in text
    assert found.verdict["samples"]["other_units"] == ["x"]
    assert not found.verdict["certain"]
    assert "input 'x' was in another unit in the calibration samples" in unshown(found.verdict["samples"])
    clipped, text = told(calibration=plain[:24], evaluation=bright[24:])
    assert not clipped.passed
    assert "they differ in unit or content" in text
    with pytest.raises(OdcError, match="give all samples in the unit of training: input 'x' was in another in the"):
        clipped.require_passed()
    alike, text = told(calibration=plain[:24], evaluation=plain[24:])
    assert "differ in unit" not in text
    assert alike.verdict["samples"]["other_units"] == []
    ranged, records = embed_ranges(file, plain)
    assert "255 in calibration samples, 0.999 in the ranges that the" in told(ranged, calibration=bright)[1]
    assert "255 in the samples to check on, 0.999 in recorded ranges" in told(records=records, evaluation=bright)[1]


ROWS = 48


@cache
def _model(*sizes: float) -> tuple[bytes, Samples, np.ndarray]:
    """A layer with columns of these sizes, samples, and labels near to what it answers."""
    rng = np.random.default_rng(5)
    file = dense_model(rng.normal(size=(len(sizes), 8)) * np.array(sizes)[:, None], names="y")
    samples = normal(rng, ROWS, 1, 8)
    labels = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    return file, samples, labels * (1.0 + 0.1 * rng.normal(size=labels.shape))


def verdict_of(file: bytes, samples: Samples, labels: np.ndarray | None = None, **options: Any) -> dict[str, Any]:
    return odc_mlir.quantize(file, calibration=samples, labels=labels, help=False, **options).verdict


def test_verdict_summary_and_page_name_the_column() -> None:
    verdict = verdict_of(*_model(1000.0, 0.01))
    (drop,) = [check for check in verdict["limits"] if check["metric"] == "drop"]
    assert (drop["column"], drop["passed"]) == (1, False)
    assert drop["value"] > 10.0
    scores = verdict["scores"]
    assert (scores["metric"], scores["column"]) == ("rmse", 1)
    assert [item["column"] for item in scores["columns"]] == [1, 0]
    assert scores["columns"][0]["quantized"] == scores["quantized"] > 2.0 * scores["float"]
    assert "drop of column 1 " in describe(verdict)
    lines = list(details(verdict))
    assert re.search(
        r"^FAILED: a loss of \S+ % of the labels' range in rmse of column 1 .*not kept", conclusion(verdict)
    )
    assert next(summary("m", verdict)).startswith("m: int8, rmse of column 1 0.00")
    assert any(line.startswith("  drop of column 1 ") for line in lines)
    assert any(line.startswith("  rmse of column 1, which loses most, 0.00") for line in lines)
    page = render(verdict)
    assert all(text in page for text in ("drop of column 1", "rmse of column 1", "score of each column"))


def test_columns_whose_labels_never_vary_and_labels_far_out_are_told_and_left_out() -> None:
    file, samples, labels = _model(1000.0, 0.01)
    labels = labels * [1.0, 0.0] + [0.0, 0.01]
    verdict = verdict_of(file, samples, labels)
    assert [item["column"] for item in verdict["scores"]["columns"]] == [0]
    assert [check["metric"] for check in verdict["limits"]] == ["drop", "mpeir"]
    (told,) = [item for item in verdict["findings"] if "labels of column 1 are the same for all samples" in item]
    assert any(told[:60] in line for line in summary("m.circle", verdict))
    assert "labels of column 1 are the same for all samples" in render(verdict)
    samples, labels = [[100.0 * samples[0][0]], *samples[1:]], np.append(labels[:1] * [100.0, 1.0], labels[1:], 0)
    verdict = verdict_of(file, samples, labels)
    near = verdict["scores"]["without_far"]
    assert near["far"] == verdict["scores"]["columns"][0]["without_far"]["far"] == 1
    assert near["quantized"] > 2.0 * near["float"]
    assert any(line.startswith("  without 1 label far out ") for line in details(verdict))
    assert "rmse of column 0 without 1 label far out" in render(verdict)


def test_many_columns_have_a_limit_of_their_own() -> None:
    verdict = verdict_of(*_model(*[1.0] * 20))
    every, worst = verdict["limits"]
    assert (every["metric"], every["column"]) == ("drop", None)
    assert (worst["metric"], worst["column"]) == ("column_drop", verdict["scores"]["columns"][0]["column"])
    assert worst["value"] == verdict["scores"]["columns"][0]["drop"] > every["value"]
    assert "column" not in verdict["scores"]
    assert any(f"column_drop of column {worst['column']} " in line for line in details(verdict))
    assert "4 columns that lose less are left out" in render(verdict)
    with pytest.raises(
        OptionError, match="column_drop does not apply to the model: labels are no numbers in many columns"
    ):
        verdict_of(*_model(1.0, 1.0), metric="column_drop")


@cache
def close() -> bytes:
    """A classifier of which two classes are nearer than a step of int8, as a rare third makes codes coarse."""
    return dense_model(np.array([[1.0, 0.0, 0.0], [1.0, 0.004, 0.0], [0.0, 0.0, 2.0]]), names="y")


def drawn(seed: int) -> tuple[Samples, np.ndarray]:
    rng, count = np.random.default_rng(seed), 96
    rows = np.stack([rng.uniform(40, 60, count), rng.choice([-30.0, 30.0], count), np.zeros(count)], axis=-1)
    rows[:4, 2] = 100.0
    labels = np.where(rows[:, 2] > 0, 2, rows[:, 1] > 0).astype(np.int64)
    return [[row[None].astype(np.float32)] for row in rows], labels


def test_a_class_that_is_given_up_fails_though_as_many_answers_are_right() -> None:
    (samples, _), (others, answers) = drawn(1), drawn(2)
    labels = np.where((answers == 1) & (np.cumsum(answers == 1) % 2 == 0), 0, answers)  # it is right in every other
    made = odc_mlir.quantize(close(), calibration=samples, evaluation=others, labels=labels, help=False, max_drop=5)
    verdict, count = made.verdict, np.count_nonzero(labels == 1)
    (lost,) = [item for item in verdict["scores"]["classes"] if item["label"] == 1]
    assert (lost["samples"], lost["float"]) == (count, 100.0)
    checks = {check["metric"]: (check["passed"], check["value"]) for check in verdict["limits"]}
    assert checks["drop"][0]
    assert checks["recall_drop"] == (False, pytest.approx(lost["float"] - lost["quantized"]))
    assert not made.passed
    (text,) = [text for text in verdict["findings"] if text.startswith("recall of ")]
    assert text.startswith(f"recall of class 1 falls from 100.0 to {lost['quantized']:.1f} % ({count} samples)")
    assert "recall of each class" in made.report_html()


@pytest.mark.parametrize(
    ("expected", "found", "share"),
    [
        ([3.0, 1.0, 0.0], [3.0, 1.0, 0.0], 1.0),
        ([3.0, 2.9, 0.0], [3.0, 3.0, 0.0], 0.5),  # a toss of two that are nearly as likely
        ([3.0, 2.9, 0.0], [2.0, 3.0, 0.0], 1.0),  # the other is chosen
        ([3.0, 1.0, 0.0], [3.0, 3.0, 0.0], 0.0),  # a toss of what is not
        ([3.0, 3.0, 0.0], [3.0, 3.0, 0.0], 1.0),  # which the float model cannot tell apart either
        ([3.0, 1.0, 0.0], [2.0, 3.0, 0.0], 0.0),
    ],
)
def test_tied_codes_are_a_toss(expected: list[float], found: list[float], share: float) -> None:
    a, b = np.array([expected]), np.array([found])
    assert share_of_ties(a, a.max(axis=-1) - np.log(2.0), b, b.max(axis=-1)).tolist() == [share]


def test_places_and_answers_found_in_ties_are_a_toss() -> None:
    searched, decisive = np.array([[3.0, 2.9, -4.0, 0.0]]), np.array([[3.0, 3.0, -4.0, 0.0]])
    places, best = Places(0, -1, True, True), np.array([[0, 1, 3]])
    assert places.shares_of_ties(searched, best, best, decisive).tolist() == [0.5, 0.5, 1.0]
    assert places.shares_of_ties(searched, best, best, searched).tolist() == [1.0, 1.0, 1.0]
    columns = Places(0, 0, True, True)
    assert columns.shares_of_ties(searched.T, best[0, :1], best[0, :1], decisive.T).tolist() == [0.5]
    samples, _ = drawn(1)
    reference = Reference(build_graph(read_model(close())), samples)
    expected = reference.outputs[-1][0]
    assert expected[0, 0] != expected[0, 1]
    assert [reference.decides_alike(95, found) for found in (expected, np.round(expected))] == [1.0, 0.5]


SIDE, CHANNELS, CLASSES = 8, 6, 3


@cache
def _segments(form: str = "shares") -> tuple[bytes, Samples]:
    """Shares or logits of classes of pixels, whose left part is mostly of one; ``boxes``: beside the shares."""
    builder, rng = ModelBuilder(), np.random.default_rng(3)
    x, shape = builder.tensor("x", (1, SIDE, SIDE, CHANNELS)), (1, SIDE, SIDE, CLASSES)
    weights = rng.normal(size=(CLASSES, 1, 1, CHANNELS)).astype(np.float32)
    constants = builder.constant("w", weights), builder.constant("b", np.zeros(CLASSES))
    logits = builder.made("logits", shape, "CONV_2D", x, *constants, stride_h=1, stride_w=1, padding="same")
    outputs = [logits if form == "logits" else builder.made("shares", shape, "SOFTMAX", logits, beta=1.0)]
    if form == "boxes":
        outputs.append(builder.made("boxes", (1, SIDE, SIDE, CHANNELS), "ABS", x))
    left = np.linspace(3.0, 0.0, SIDE)[:, None] * weights[0, 0, 0]
    samples = [[(rng.normal(size=(1, SIDE, SIDE, CHANNELS)) + left).astype(np.float32)] for _ in range(24)]
    return builder.file([x], outputs), samples


def _labels(file: bytes, samples: Samples) -> np.ndarray:
    return np.stack([odc_mlir.run(file, sample)[0][0].argmax(axis=-1) for sample in samples])


def _bounds(verdict: dict[str, Any]) -> dict[str, float]:
    return {check["metric"]: check["limit"] for check in verdict["limits"]}


@pytest.mark.parametrize("form", ["shares", "boxes", "logits"])
def test_each_row_is_an_answer_that_may_be_forgiven(form: str) -> None:
    """A wrong pixel is a 1536th of what 24 images answer; rows of logits are scores if somebody asks for classes."""
    file, samples = _segments(form)
    made = odc_mlir.quantize(file, calibration=samples, help=False, metric="top1_decided" if form == "logits" else None)
    alike = np.mean(_labels(file, samples) == _labels(made.to_circle(), samples))
    assert 0.9 < alike < 1.0
    assert made.verdict["metrics"]["top1_match"] == pytest.approx(alike, abs=0.003)
    (decided,) = [check for check in made.verdict["limits"] if check["metric"] == "top1_decided"]
    assert alike < decided["value"] < 1.0  # tied codes are half an answer
    assert decided["limit"] == 0.99
    outputs = [(output["classes"], output["top1_match"] is None) for output in made.verdict["outputs"]]
    assert outputs == [(CLASSES, False), (None, True)][: 1 + (form == "boxes")]
    if form == "logits":
        numbers = verdict_of(file, samples)
        assert [check["metric"] for check in numbers["limits"]] == ["mpeir"]
        assert [(output["classifies"], output["classes"]) for output in numbers["outputs"]] == [(False, None)]


@pytest.mark.parametrize(("rows", "share"), [(1, 0.95), (4, 0.9875)])
def test_places_are_answers_of_rows(rows: int, share: float) -> None:
    builder = ModelBuilder()
    x, axis = builder.tensor("x", (1, rows, 6)), builder.constant("axis", [2], "int32")
    y = builder.made("y", (1, rows, 6), "SOFTMAX", x, beta=1.0)
    z = builder.made("z", (1, rows), "ARG_MAX", y, axis, dtype="int32", output_type="int32")
    found = _bounds(verdict_of(builder.file([x], [z]), normal(np.random.default_rng(9), 20, 1, rows, 6)))
    assert found["top1_decided"] == pytest.approx(share)


@pytest.mark.parametrize("kind", ["SOFTMAX", "LOG_SOFTMAX"])
def test_rows_may_answer_what_is_nearly_as_likely(kind: str) -> None:
    graph = build_graph(read_model(activation(kind, (1, 4, 3))))
    reference = Reference(graph, [[np.array([[[0.5, 0.0, -3.0]] * 4], np.float32)]])
    expected = reference.outputs[0][0]
    found = expected.copy()
    found[0, 0] = found[0, 0, [1, 0, 2]]  # 0.6 nats less: more than half the odds
    found[0, 1] = found[0, 1, [2, 1, 0]]
    assert reference.decides_alike(0, found) == 0.75


@pytest.mark.parametrize("lengths", [(4, 5, 6), (4, 4, 4)])
def test_rows_of_several_lengths_are_no_classes(lengths: tuple[int, ...]) -> None:
    file, rng = activation("SOFTMAX", (1, 2, 1), signature=(1, 2, -1)), np.random.default_rng(8)
    samples = [[rng.normal(size=(1, 2, length)).astype(np.float32)] for length in lengths * 8]
    reference = Reference(build_graph(read_model(file)), samples)
    assert reference.classes[0] == (4 if len(set(lengths)) == 1 else None)
    assert verdict_of(file, samples)["outputs"][0]["top1_match"] is not None
    # Classes behind a reshape are those before it.
    graph = build_graph(read_model(activation("SOFTMAX", (1, 4, 5), (1, 20))))
    assert Reference(graph, [[np.zeros((1, 4, 5), np.float32)]]).classes[0] == 5


def _heads(*rows: int, count: int) -> tuple[bytes, Samples]:
    builder, rng = ModelBuilder(), np.random.default_rng(4)
    shapes = [(1, count, 6) for count in rows]
    inputs = [builder.tensor(f"x{place}", shape) for place, shape in enumerate(shapes)]
    outputs = [builder.made(f"y{x}", shape, "SOFTMAX", x, beta=1.0) for x, shape in zip(inputs, shapes, strict=True)]
    samples = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(count)]
    return builder.file(inputs, outputs), samples


def test_each_head_has_its_limit_by_its_own_answers() -> None:
    """A wrong row of 80 is forgiven beside 20 that may have one too."""
    verdict = verdict_of(*_heads(1, 4, 50, count=20))
    found = {check["output"]: check for check in verdict["limits"]}
    bounds = {None: ("mpeir", 0.1), "y0": ("top1_match", 0.95), "y1": ("top1_decided", 0.9875)}
    bounds["y2"] = ("top1_decided", 0.99)
    assert {name: (check["metric"], pytest.approx(check["limit"])) for name, check in found.items()} == bounds
    for name, metric in (("y0", "top1_match"), ("y1", "top1_decided")):
        key = f"{metric}:{name}"
        assert found[name]["value"] == verdict["metrics"][key]
        assert found[name]["interval"] == verdict["intervals"][key]
    assert "same answers of output 'y0'" in reservation(verdict)
    alike = verdict_of(*_heads(1, 1, count=20))["limits"]
    assert [(check["metric"], check["output"]) for check in alike] == [("mpeir", None), ("top1_match", None)]


def test_classes_that_no_sample_has_are_told() -> None:
    file, samples = _heads(1, 1, count=40)
    lacking = [[a - 9.0 * np.isin(np.arange(6), (1, 4)).astype(np.float32), b] for a, b in samples]
    told = "answers 2 of 6 classes for no sample (1, 4) in output 'y0'"
    for given, is_told in ((samples, False), (lacking, True)):
        assert any(told in text for text in verdict_of(file, given)["findings"]) is is_told


def test_labels_of_rows_are_those_of_the_same_samples() -> None:
    """Half of the labels of other samples are right by where they are."""
    file, samples = _segments()
    labels = _labels(file, samples)
    verdict = verdict_of(file, samples, labels)
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    assert _bounds(verdict)["drop"] == 1.0
    for by in (1, 5):
        with pytest.raises(InputError, match="labels seem to belong to other samples"):
            verdict_of(file, samples, np.roll(labels, by, axis=0))
    few = np.concatenate([np.roll(labels[:3], 1, axis=0), labels[3:]])
    verdict_of(file, samples, few)  # right by chance where a model is wrong about some samples
    scaled = [[array / 8.0] for (array,) in samples]  # which fit 0 to 1, and no label
    with pytest.raises(InputError, match="labels are 1 to 3, the model's 3 classes 0 to 2"):
        verdict_of(file, scaled, labels + 1)


def test_values_that_labels_do_not_score_are_told() -> None:
    """Logarithms of shares end at -16 as codes."""
    samples = normal(np.random.default_rng(5), 64, 1, 8, size=40.0)
    labels = np.array([int(np.argmax(array)) for (array,) in samples])
    findings = verdict_of(activation("LOG_SOFTMAX", (1, 8)), samples, labels)["findings"]
    assert [text for text in findings if "the values of output 'y' are far" in text]
