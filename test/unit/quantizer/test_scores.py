"""Scores by labels: columns, rows and recall of classes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, dense_model, model_bytes
from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.outputs import Places, share_of_ties
from odc_mlir.quantizer.policy.verdict import COLUMN_DROPS, DEFAULT_DROP_OF_SPAN, describe, reservation
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.report import render
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.scores import Recall, Scored, Scorer, by_loss, recall_drop, recall_findings, recalls
from odc_mlir.tools.odc_quantize import summary

COUNT = 48


def _answers(*sizes: float, noise: float = 0.05, low: float = -1.0) -> tuple[list[np.ndarray], np.ndarray]:
    """What a float model answers, and labels: columns of these sizes, errors a part of each."""
    rng = np.random.default_rng(2)
    labels = rng.uniform(low, 1.0, (COUNT, len(sizes))) * sizes
    wrong = labels + noise * rng.normal(size=labels.shape) * sizes
    return [row[None] for row in wrong], labels


def _with_errors(answers: list[np.ndarray], column: int, size: float) -> list[np.ndarray]:
    rng, found = np.random.default_rng(3), [answer.copy() for answer in answers]
    for answer in found:
        answer[..., column] += size * rng.normal()
    return found


@pytest.mark.parametrize("sizes", [(1000.0, 0.01), (1.0, 1.0)])
def test_the_column_that_loses_most_decides(sizes: tuple[float, ...]) -> None:
    answers, labels = _answers(*sizes)
    found = Scorer(answers, labels).of(_with_errors(answers, 1, 0.5 * sizes[1]))
    assert found.worst is not None
    assert (found.worst.column, len(found.columns)) == (1, 2)
    assert found.drop == found.worst.drop > 10.0
    assert found.worst.after["r2"] < 0.5 < found.worst.before["r2"]
    assert [item.drop for item in found.columns if item.column == 0] == [0.0]


def test_the_unit_of_a_column_decides_nothing() -> None:
    one, other = (_answers(*sizes) for sizes in ((1000.0, 0.01), (0.01, 1000.0)))
    drops = [
        Scorer(answers, labels).of(_with_errors(answers, 1, 0.2 * size)).drop
        for (answers, labels), size in ((one, 0.01), (other, 1000.0))
    ]
    assert drops[0] == pytest.approx(drops[1])


@pytest.mark.parametrize(("sizes", "of_columns"), [((1.0, 0.01), True), ((1.0, 0.5), False)])
def test_rows_of_shares_in_several_units_are_scored_by_column(sizes: tuple[float, ...], of_columns: bool) -> None:
    answers, labels = _answers(*sizes, low=0.0)
    found = Scorer(answers, labels).of(_with_errors(answers, 1, 0.1 * sizes[1]))
    assert next(iter(found.after)) == "rmse"
    assert bool(found.columns) is of_columns
    assert found.drop > 0.5
    pictures = [np.resize(answer, (1, 2, *answer.shape[1:])) for answer in answers]
    of_pictures = Scorer(pictures, np.repeat(labels[:, None], 2, axis=1)).of(pictures)
    assert list(of_pictures.after) == ["psnr_db"]
    assert not of_pictures.columns


@pytest.mark.parametrize("float_error", [0.0, 0.001, 0.01])
def test_few_shares_may_lose_a_hundredth_of_what_labels_span(float_error: float) -> None:
    """Half a dB of what is nearly right would be next to nothing."""
    answers, labels = _answers(1.0, 0.5, noise=float_error, low=0.0)
    rng = np.random.default_rng(6)
    scorer = Scorer(answers, labels)
    assert scorer.of([answer + 0.004 * rng.normal(size=(1, 2)) for answer in answers]).drop < DEFAULT_DROP_OF_SPAN
    assert scorer.of([answer + 0.04 * rng.normal(size=(1, 2)) for answer in answers]).drop > DEFAULT_DROP_OF_SPAN


@pytest.mark.parametrize("labels", [np.arange(COUNT) % 2, np.arange(COUNT)[:, None] / 7.0])
def test_classes_and_single_numbers_are_scored_together(labels: np.ndarray) -> None:
    width = labels.shape[1] if labels.ndim > 1 else 2
    answers = [np.eye(width)[[row % width]] + row for row in range(COUNT)]
    assert not Scorer(answers, labels).of(answers).columns


def test_one_lost_of_many_columns_is_seen() -> None:
    """Over all of 400 columns its errors are as small as 1 % of what labels span, which passes."""
    answers, labels = _answers(*[1.0] * 400)
    for row in (lost := [answer.copy() for answer in answers]):
        row[..., 123] = 0.0
    scorer = Scorer(answers, labels)
    found = scorer.of(lost)
    assert scorer.has_many
    assert found.column_drop is not None
    assert found.drop < DEFAULT_DROP_OF_SPAN < COLUMN_DROPS < 10.0 < found.column_drop
    assert (found.columns[0].column, found.worst, len(found.columns)) == (123, None, 16)
    assert found.parts()["columns_scored"] == 400


@pytest.mark.parametrize("size", [1.0, 0.001])
def test_one_error_of_few_samples_may_be_in_any_of_many_columns(size: float) -> None:
    """As of a value that is cut off; a small column, as a pixel at the edge, has the unit of all."""
    answers, labels = _answers(*[1.0] * 399, size)
    answers, labels = answers[:16], labels[:16]
    after = [answers[0] + np.eye(400)[399] * 0.4 * size, *answers[1:]]
    found = Scorer(answers, labels).of(after)
    assert found.column_drop is not None
    assert 0.0 < found.column_drop < COLUMN_DROPS


def test_many_columns_most_of_which_are_small_have_their_own_units() -> None:
    answers, labels = _answers(*[1.0] * 100, *[0.001] * 300)
    found = Scorer(answers, labels).of(_with_errors(answers, 399, 0.001))
    assert found.worst is not None
    assert (found.worst.column, found.count, found.column_drop) == (399, 400, None)
    assert found.drop > 10.0


def _far(*, float_error: float, error: float, count: int = COUNT) -> Scored:
    """What answers score that are wrong by these errors, by labels of 0 to 3 and one of 60."""
    rng = np.random.default_rng(4)
    labels = np.append(rng.uniform(0.0, 3.0, count - 1), 60.0)[:, None]
    wrong = rng.normal(size=labels.shape)
    before, after = (list((labels + size * wrong)[:, None]) for size in (float_error, error))
    return Scorer(before, labels).of(after)


@pytest.mark.parametrize("count", [16, COUNT])
@pytest.mark.parametrize(
    ("float_error", "error", "passes"),
    [(0.1, 0.4, False), (0.1, 0.12, True), (0.0, 0.4, False), (0.0, 0.02, True), (1e-6, 0.02, True), (1.0, 1.02, True)],
)
def test_labels_far_out_do_not_excuse_errors_of_the_others(
    float_error: float, error: float, passes: bool, count: int
) -> None:
    found = _far(float_error=float_error, error=error, count=count)
    assert (found.drop <= 1.0) is passes
    assert found.near is not None
    assert found.near.far == 1


def test_errors_of_labels_far_out_are_parts_of_all_that_labels_span() -> None:
    labels = np.append(np.linspace(0.0, 3.0, COUNT - 1), 60.0)[:, None]
    before = list(labels[:, None])
    after = [*before[:-1], before[-1] - 3.0]
    assert Scorer(before, labels).of(after).drop == pytest.approx(100.0 * 3.0 / np.sqrt(COUNT) / 60.0)


@pytest.mark.parametrize(
    "labels",
    [
        np.random.default_rng(1).normal(size=(200, 1)),
        np.random.default_rng(1).uniform(size=(200, 1)),
        np.append(np.zeros(150), np.arange(50.0))[:, None],
        np.arange(16.0)[:, None],
    ],
)
def test_normal_labels_and_rare_ones_are_not_far_out(labels: np.ndarray) -> None:
    answers = list(labels[:, None] + 0.1)
    assert Scorer(answers, labels).of(answers).near is None


def test_what_is_no_number_any_more_loses_all() -> None:
    answers, labels = _answers(1.0, 1.0)
    gone = [np.full_like(answer, np.nan) for answer in answers]
    assert Scorer(answers, labels).of(gone).drop == np.inf
    assert Scorer(gone, labels).of(gone).drop == 0.0


def test_a_column_whose_labels_never_vary_has_no_score() -> None:
    answers, labels = _answers(1.0, 0.0)
    scorer = Scorer(answers, labels)
    assert [item.column for item in scorer.of(answers).columns] == [0]
    assert scorer.unscored == [1]


@cache
def _model(*sizes: float) -> tuple[bytes, list[list[np.ndarray]], np.ndarray]:
    """A layer with columns of these sizes, samples, and labels near to what it answers."""
    rng = np.random.default_rng(5)
    file = dense_model(rng.normal(size=(len(sizes), 8)) * np.array(sizes)[:, None], names="y")
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    labels = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    return file, samples, labels * (1.0 + 0.1 * rng.normal(size=labels.shape))


@cache
def _made(constant: bool = False, far: bool = False) -> dict[str, Any]:
    """The verdict over a layer whose second column is a hundred-thousandth of the first.

    ``constant``: labels of the second never vary; ``far``: one of the first is far out, that of the first sample, which
    is a hundred times as large.
    """
    file, samples, labels = _model(1000.0, 0.01)
    if constant:
        labels = labels * [1.0, 0.0] + [0.0, 0.01]
    if far:
        samples, labels = [[100.0 * samples[0][0]], *samples[1:]], np.append(labels[:1] * [100.0, 1.0], labels[1:], 0)
    return odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict


def test_verdict_summary_and_page_name_the_column() -> None:
    verdict = _made()
    (drop,) = [check for check in verdict["limits"] if check["metric"] == "drop"]
    assert (drop["column"], drop["passed"]) == (1, False)
    assert drop["value"] > 10.0
    scores = verdict["scores"]
    assert (scores["metric"], scores["column"]) == ("rmse", 1)
    assert [item["column"] for item in scores["columns"]] == [1, 0]
    assert scores["columns"][0]["quantized"] == scores["quantized"] > 2.0 * scores["float"]
    assert "drop of column 1 " in describe(verdict)
    lines = list(summary("m.circle", verdict))
    assert any(line.startswith("  drop of column 1 ") and line.endswith("<- not kept") for line in lines)
    assert any(line.startswith("  rmse of column 1, which loses most, 0.00") for line in lines)
    page = render(verdict)
    assert "drop of column 1" in page
    assert "rmse of column 1" in page
    assert "score of each column" in page


def test_columns_whose_labels_never_vary_are_told_of_and_judged_without_them() -> None:
    verdict = _made(constant=True)
    assert [item["column"] for item in verdict["scores"]["columns"]] == [0]
    assert [check["metric"] for check in verdict["limits"]] == ["drop", "mpeir"]
    (told,) = [item for item in verdict["findings"] if "labels of column 1 are the same for all samples" in item]
    assert any(told[:60] in line for line in summary("m.circle", verdict))
    assert "labels of column 1 are the same for all samples" in render(verdict)


def test_summary_and_page_say_what_is_scored_without_labels_far_out() -> None:
    verdict = _made(constant=True, far=True)
    near = verdict["scores"]["without_far"]
    assert near["far"] == verdict["scores"]["columns"][0]["without_far"]["far"] == 1
    assert near["quantized"] > 2.0 * near["float"]
    assert any(line.startswith("  without 1 label far out ") for line in summary("m.circle", verdict))
    assert "rmse of column 0 without 1 label far out" in render(verdict)


def test_many_columns_have_a_limit_of_their_own() -> None:
    file, samples, labels = _model(*[1.0] * 20)
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    every, worst = verdict["limits"]
    assert (every["metric"], every["column"]) == ("drop", None)
    assert (worst["metric"], worst["column"]) == ("column_drop", verdict["scores"]["columns"][0]["column"])
    assert worst["value"] == verdict["scores"]["columns"][0]["drop"] > every["value"]
    assert "column" not in verdict["scores"]
    assert any(f"column_drop of column {worst['column']} " in line for line in summary("m.circle", verdict))
    page = render(verdict)
    assert "4 columns that lose less are left out" in page
    file, samples, labels = _model(1.0, 1.0)
    with pytest.raises(OptionError, match="the model has no column_drop: labels are no numbers in many columns"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, metric="column_drop", help=False)


COUNT_RECALLS = 96


@cache
def close() -> bytes:
    """A classifier of which two classes are nearer than a step of int8, as a rare third makes codes coarse."""
    return dense_model(np.array([[1.0, 0.0, 0.0], [1.0, 0.004, 0.0], [0.0, 0.0, 2.0]]), names="y")


def drawn(seed: int) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Samples, and what the model answers."""
    rng = np.random.default_rng(seed)
    rows = np.stack(
        [rng.uniform(40, 60, COUNT_RECALLS), rng.choice([-30.0, 30.0], COUNT_RECALLS), np.zeros(COUNT_RECALLS)], axis=-1
    )
    rows[:4, 2] = 100.0
    labels = np.where(rows[:, 2] > 0, 2, rows[:, 1] > 0).astype(np.int64)
    return [[row[None].astype(np.float32)] for row in rows], labels


def test_a_class_that_is_given_up_fails_though_as_many_answers_are_right() -> None:
    (samples, _), (others, answers) = drawn(1), drawn(2)
    labels = np.where((answers == 1) & (np.cumsum(answers == 1) % 2 == 0), 0, answers)  # it is right in every other
    given = {"calibration": samples, "evaluation": others, "labels": labels, "help": False}
    made = odc_mlir.quantize(close(), **given, max_drop=5)
    verdict, count = made.verdict, np.count_nonzero(labels == 1)
    (lost,) = [item for item in verdict["scores"]["classes"] if item["label"] == 1]
    assert (lost["samples"], lost["float"]) == (count, 100.0)
    assert [(check["metric"], check["passed"]) for check in verdict["limits"]] == [
        ("drop", True),
        ("recall_drop", False),
    ]
    assert verdict["limits"][1]["value"] == pytest.approx(lost["float"] - lost["quantized"])
    assert not made.passed
    (text,) = [text for text in verdict["findings"] if text.startswith("recall of ")]
    assert text.startswith(f"recall of class 1 falls from 100.0 to {lost['quantized']:.1f} % ({count} samples)")
    assert "recall of each class" in made.report_html()


def test_answers_of_tied_codes_are_half_decided() -> None:
    samples, _ = drawn(1)
    reference = Reference(build_graph(read_model(close())), samples)
    expected = reference.outputs[-1][0]
    assert expected[0, 0] != expected[0, 1]
    assert reference.decides_alike(len(samples) - 1, expected) == 1.0
    assert reference.decides_alike(len(samples) - 1, np.round(expected)) == 0.5


def test_recalls_count_samples_not_elements() -> None:
    labels = np.array([[0, 0, 1], [0, 1, 1], [2, 2, 2]])
    before = [np.eye(3)[row] for row in labels]
    after = [np.eye(3)[row] for row in ([1, 1, 1], [0, 1, 0], [2, 2, 2])]
    assert recalls(before, after, labels) == [
        Recall(0, 2, 100.0, pytest.approx(100 / 3), 1, 0),
        Recall(1, 2, 100.0, pytest.approx(200 / 3), 1, 0),
        Recall(2, 1, 100.0, 100.0, 0, 0),
    ]
    assert recalls([np.zeros(2)], [np.zeros(2)], np.zeros((1, 2))) == []  # numbers


@pytest.mark.parametrize(
    ("lost", "gained", "is_lost", "is_told"),
    [(5, 0, False, True), (9, 0, True, True), (4, 0, False, False), (20, 14, False, False), (30, 4, True, True)],
)
def test_a_class_counts_as_lost_where_chance_does_not_explain_it(
    lost: int, gained: int, is_lost: bool, is_told: bool
) -> None:
    fall = 100.0 * (lost - gained) / 40
    found = [Recall(0, 40, 90.0, 90.0, 0, 0), Recall(3, 40, 90.0, 90.0 - fall, lost, gained)]
    assert recall_drop(found) == (pytest.approx(fall) if is_lost else 0.0)
    assert bool(recall_findings(found)) == is_told


def test_the_probability_of_many_changes_is_that_of_few() -> None:
    exact, normal = Recall(0, 9999, 0, 0, 530, 470), Recall(0, 9999, 0, 0, 531, 470)
    assert normal.chance == pytest.approx(exact.chance, rel=0.1)


def test_classes_that_lose_most_are_first() -> None:
    classes = [{"label": i, "float": 90.0, "quantized": after} for i, after in enumerate((90.0, 50.0, 80.0, 95.0))]
    assert [item["label"] for item in by_loss(classes, 2)] == [1, 2]


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


def test_places_found_in_ties_are_a_toss() -> None:
    searched, decisive = np.array([[3.0, 2.9, -4.0, 0.0]]), np.array([[3.0, 3.0, -4.0, 0.0]])
    places = Places(0, -1, True, True)
    best = np.array([[0, 1, 3]])
    assert places.shares_of_ties(searched, best, best, decisive).tolist() == [0.5, 0.5, 1.0]
    assert places.shares_of_ties(searched, best, best, searched).tolist() == [1.0, 1.0, 1.0]
    columns = Places(0, 0, True, True)
    assert columns.shares_of_ties(searched.T, best[0, :1], best[0, :1], decisive.T).tolist() == [0.5]


SIDE, CHANNELS, CLASSES, COUNT_ROWS = 8, 6, 3, 24


Samples = list[list[np.ndarray]]


def _segments(boxes: bool = False) -> tuple[bytes, Samples]:
    """Classes of the pixels of images, whose left part is mostly of one; with ``boxes`` beside them."""
    builder, rng = ModelBuilder(), np.random.default_rng(3)
    x = builder.tensor("x", (1, SIDE, SIDE, CHANNELS))
    weights = rng.normal(size=(CLASSES, 1, 1, CHANNELS)).astype(np.float32)
    w, b = (builder.tensor(n, a.shape, data=a) for n, a in (("w", weights), ("b", np.zeros(CLASSES, np.float32))))
    logits = builder.tensor("logits", (1, SIDE, SIDE, CLASSES))
    builder.operator("CONV_2D", [x, w, b], [logits], options={"stride_h": 1, "stride_w": 1, "padding": "same"})
    shares = builder.tensor("shares", (1, SIDE, SIDE, CLASSES))
    builder.operator("SOFTMAX", [logits], [shares], options={"beta": 1.0})
    outputs = [shares]
    if boxes:
        outputs.append(builder.tensor("boxes", (1, SIDE, SIDE, CHANNELS)))
        builder.operator("ABS", [x], [outputs[1]])
    left = np.linspace(3.0, 0.0, SIDE)[:, None] * weights[0, 0, 0]
    samples = [[(rng.normal(size=(1, SIDE, SIDE, CHANNELS)) + left).astype(np.float32)] for _ in range(COUNT_ROWS)]
    return bytes(model_bytes(builder.finish([x], outputs))), samples


def _labels(file: bytes, samples: Samples) -> np.ndarray:
    return np.stack([odc_mlir.run(file, sample)[0][0].argmax(axis=-1) for sample in samples])


def _checks(verdict: dict[str, Any]) -> dict[str, float]:
    return {check["metric"]: check["value"] for check in verdict["limits"]}


@pytest.mark.parametrize("boxes", [False, True])
def test_each_row_is_an_answer(boxes: bool) -> None:
    file, samples = _segments(boxes=boxes)
    made = odc_mlir.quantize(file, calibration=samples, help=False)
    found = made.to_circle()
    alike = [
        np.mean(odc_mlir.run(file, sample)[0].argmax(axis=-1) == odc_mlir.run(found, sample)[0].argmax(axis=-1))
        for sample in samples
    ]
    assert 0.9 < np.mean(alike) < 1.0
    assert made.verdict["metrics"]["top1_match"] == pytest.approx(np.mean(alike), abs=0.003)
    assert np.mean(alike) < _checks(made.verdict)["top1_decided"] < 1.0  # tied codes are half an answer
    assert [output["classes"] for output in made.verdict["outputs"]] == [CLASSES, None][: 1 + boxes]
    assert [output["top1_match"] is None for output in made.verdict["outputs"]] == [False, True][: 1 + boxes]


def _bounds(verdict: dict[str, Any]) -> dict[str, float]:
    return {check["metric"]: check["limit"] for check in verdict["limits"]}


def test_what_is_forgiven_is_an_answer_and_not_a_sample() -> None:
    """A wrong pixel is a 1536th of what 24 images of 64 answer."""
    file, samples = _segments()
    assert _bounds(odc_mlir.quantize(file, calibration=samples, help=False).verdict)["top1_decided"] == 0.99
    labels = _labels(file, samples)
    assert _bounds(odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict)["drop"] == 1.0


@pytest.mark.parametrize(
    ("rows", "tail", "share"), [(1, False, 0.95), (4, False, 0.9875), (1, True, 0.95), (4, True, 0.9875)]
)
def test_answers_are_rows_of_shares_and_places(rows: int, tail: bool, share: float) -> None:
    builder, rng = ModelBuilder(), np.random.default_rng(9)
    x, y = builder.tensor("x", (1, rows, 6)), builder.tensor("y", (1, rows, 6))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    if tail:
        axis, z = (
            builder.tensor("axis", (1,), "int32", data=np.array([2], np.int32)),
            builder.tensor("z", (1, rows), "int32"),
        )
        builder.operator("ARG_MAX", [y, axis], [z], options={"output_type": "int32"})
    file = bytes(model_bytes(builder.finish([x], [z if tail else y])))
    samples = [[rng.normal(size=(1, rows, 6)).astype(np.float32)] for _ in range(20)]
    found = _bounds(odc_mlir.quantize(file, calibration=samples, help=False).verdict)
    assert found["top1_decided" if tail or rows > 1 else "top1_match"] == pytest.approx(share)


@pytest.mark.parametrize("kind", ["SOFTMAX", "LOG_SOFTMAX"])
def test_rows_may_answer_what_is_nearly_as_likely(kind: str) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4, 3)), builder.tensor("y", (1, 4, 3))
    builder.operator(kind, [x], [y], options={"beta": 1.0} if kind == "SOFTMAX" else {})
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))
    reference = Reference(graph, [[np.array([[[0.5, 0.0, -3.0]] * 4], np.float32)]])
    expected = reference.outputs[0][0]
    found = expected.copy()
    found[0, 0] = found[0, 0, [1, 0, 2]]  # 0.6 nats less: more than half the odds
    found[0, 1] = found[0, 1, [2, 1, 0]]
    assert reference.decides_alike(0, found) == 0.75


def _heads(rows: tuple[int, ...]) -> tuple[bytes, Samples]:
    """A SOFTMAX over so many rows for each output."""
    builder, rng, inputs, outputs = ModelBuilder(), np.random.default_rng(4), [], []
    for place, count in enumerate(rows):
        x, y = (builder.tensor(f"{name}{place}", (1, count, 6)) for name in "xy")
        builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
        inputs.append(x)
        outputs.append(y)
    samples = [[rng.normal(size=(1, count, 6)).astype(np.float32) for count in rows] for _ in range(20)]
    return bytes(model_bytes(builder.finish(inputs, outputs))), samples


def test_each_head_has_its_limit_by_its_own_answers() -> None:
    """A wrong row of 80 is forgiven beside 20 that may have one too."""
    file, samples = _heads((1, 4, 50))
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    found = {check["output"]: check for check in verdict["limits"]}
    bounds = {None: ("mpeir", 0.1), "y0": ("top1_match", 0.95), "y1": ("top1_decided", 0.9875)}
    bounds["y2"] = ("top1_decided", 0.99)
    assert {name: (check["metric"], pytest.approx(check["limit"])) for name, check in found.items()} == bounds
    for name, metric in (("y0", "top1_match"), ("y1", "top1_decided")):
        key = f"{metric}:{name}"
        assert found[name]["value"] == verdict["metrics"][key]
        assert found[name]["interval"] == verdict["intervals"][key]
    assert "top1_match of output 'y0'" in reservation(verdict)


def test_heads_alike_have_one_limit() -> None:
    file, samples = _heads((1, 1))
    limits = odc_mlir.quantize(file, calibration=samples, help=False).verdict["limits"]
    assert [(check["metric"], check["output"]) for check in limits] == [("mpeir", None), ("top1_match", None)]


def test_classes_behind_a_reshape_are_those_of_the_softmax() -> None:
    builder = ModelBuilder()
    x, shares, flat = (builder.tensor(n, s) for n, s in (("x", (1, 4, 5)), ("shares", (1, 4, 5)), ("flat", (1, 20))))
    builder.operator("SOFTMAX", [x], [shares], options={"beta": 1.0})
    shape = builder.tensor("shape", (2,), "int32", data=np.array([1, 20], np.int32))
    builder.operator("RESHAPE", [shares, shape], [flat])
    graph = build_graph(read_model(model_bytes(builder.finish([x], [flat]))))
    assert Reference(graph, [[np.zeros((1, 4, 5), np.float32)]]).classes(0) == 5


@pytest.mark.parametrize("lengths", [(4, 5, 6), (4, 4, 4)])
def test_rows_of_several_lengths_are_no_classes(lengths: tuple[int, ...]) -> None:
    """As shares of attention over as many words as there are."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 2, 1), signature=(1, 2, -1)) for n in "xy")
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    rng, file = np.random.default_rng(8), bytes(model_bytes(builder.finish([x], [y])))
    samples = [[rng.normal(size=(1, 2, length)).astype(np.float32)] for length in lengths * 8]
    reference = Reference(build_graph(read_model(file)), samples)
    assert reference.classes(0) == (4 if len(set(lengths)) == 1 else None)
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert verdict["outputs"][0]["top1_match"] is not None


def test_labels_of_rows() -> None:
    file, samples = _segments()
    verdict = odc_mlir.quantize(file, calibration=samples, labels=_labels(file, samples), help=False).verdict
    assert verdict["scores"]["metric"] == "top1_percent"
    assert verdict["scores"]["float"] == 100.0


@pytest.mark.parametrize("by", [1, 5])
def test_rows_of_other_samples_are_refused(by: int) -> None:
    """Half of them are right by where they are."""
    file, samples = _segments()
    labels = np.roll(_labels(file, samples), by, axis=0)
    with pytest.raises(InputError, match="labels seem to belong to other samples"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)


def test_few_rows_of_others_are_no_reason() -> None:
    """A model that is wrong about some samples has the others' labels right by chance."""
    file, samples = _segments()
    labels = _labels(file, samples)
    labels[:3] = np.roll(labels[:3], 1, axis=0)
    odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)


def test_labels_that_no_class_has_are_told_before_the_unit_of_inputs() -> None:
    file, samples = _segments()
    scaled = [[array / 8.0] for (array,) in samples]  # which fit 0 to 1, and no label
    with pytest.raises(InputError, match="labels are 1 to 3, the model's 3 classes 0 to 2"):
        odc_mlir.quantize(file, calibration=scaled, labels=_labels(file, samples) + 1, help=False)


def test_values_that_labels_do_not_score_are_told() -> None:
    """Logarithms of shares end at -16 as codes."""
    builder, rng = ModelBuilder(), np.random.default_rng(5)
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 8))
    builder.operator("LOG_SOFTMAX", [x], [y])
    file = bytes(model_bytes(builder.finish([x], [y])))
    samples = [[(40.0 * rng.normal(size=(1, 8))).astype(np.float32)] for _ in range(64)]
    labels = np.array([int(np.argmax(array)) for (array,) in samples])
    findings = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict["findings"]
    assert [text for text in findings if "the values of output 'y' are far" in text]


def test_classes_that_no_sample_has_are_told() -> None:
    """Of each head that has classes."""
    builder, rng = ModelBuilder(), np.random.default_rng(6)
    x, z, y, other = (builder.tensor(name, (1, 6)) for name in ("x", "z", "y", "other"))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    builder.operator("SOFTMAX", [z], [other], options={"beta": 1.0})
    file = bytes(model_bytes(builder.finish([x, z], [other, y])))
    samples = [[rng.normal(size=(1, 6)).astype(np.float32) for _ in range(2)] for _ in range(40)]
    told = "answers 2 of 6 classes for no sample (1, 4) in output 'y'"
    for lacking, expected in ((False, False), (True, True)):
        for array, _ in samples:
            array[0, [1, 4]] -= 9.0 * lacking
        findings = odc_mlir.quantize(file, calibration=samples, help=False).verdict["findings"]
        assert any(told in text for text in findings) == expected
