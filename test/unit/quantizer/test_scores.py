"""Scores by labels: columns, rows and recall of classes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import activation, normal
from helpers.models import ModelBuilder, dense_model
from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.outputs import Places, share_of_ties
from odc_mlir.quantizer.policy.verdict import describe, reservation
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.report import render
from odc_mlir.quantizer.summary import conclusion, summary
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.tools.odc_quantize import details

COUNT = 48
Samples = list[list[np.ndarray]]


@cache
def _model(*sizes: float) -> tuple[bytes, Samples, np.ndarray]:
    """A layer with columns of these sizes, samples, and labels near to what it answers."""
    rng = np.random.default_rng(5)
    file = dense_model(rng.normal(size=(len(sizes), 8)) * np.array(sizes)[:, None], names="y")
    samples = normal(rng, COUNT, 1, 8)
    labels = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    return file, samples, labels * (1.0 + 0.1 * rng.normal(size=labels.shape))


def verdict_of(file: bytes, samples: Samples, labels: np.ndarray | None = None, **options: Any) -> dict[str, Any]:
    """The verdict without help."""
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
    with pytest.raises(OptionError, match="the model has no column_drop: labels are no numbers in many columns"):
        verdict_of(*_model(1.0, 1.0), metric="column_drop")


@cache
def close() -> bytes:
    """A classifier of which two classes are nearer than a step of int8, as a rare third makes codes coarse."""
    return dense_model(np.array([[1.0, 0.0, 0.0], [1.0, 0.004, 0.0], [0.0, 0.0, 2.0]]), names="y")


def drawn(seed: int) -> tuple[Samples, np.ndarray]:
    """Samples, and what the model answers."""
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


@pytest.mark.parametrize(
    ("rows", "tail", "share"), [(1, False, 0.95), (4, False, 0.9875), (1, True, 0.95), (4, True, 0.9875)]
)
def test_answers_are_rows_of_shares_and_places(rows: int, tail: bool, share: float) -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, rows, 6))
    y = builder.made("y", (1, rows, 6), "SOFTMAX", x, beta=1.0)
    if tail:
        axis = builder.constant("axis", [2], "int32")
        y = builder.made("z", (1, rows), "ARG_MAX", y, axis, dtype="int32", output_type="int32")
    found = _bounds(verdict_of(builder.file([x], [y]), normal(np.random.default_rng(9), 20, 1, rows, 6)))
    assert found["top1_decided" if tail or rows > 1 else "top1_match"] == pytest.approx(share)


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
    assert reference.classes(0) == (4 if len(set(lengths)) == 1 else None)
    assert verdict_of(file, samples)["outputs"][0]["top1_match"] is not None
    graph = build_graph(
        read_model(activation("SOFTMAX", (1, 4, 5), (1, 20)))
    )  # classes behind a reshape are those before it
    assert Reference(graph, [[np.zeros((1, 4, 5), np.float32)]]).classes(0) == 5


def _heads(*rows: int, count: int) -> tuple[bytes, Samples]:
    """A SOFTMAX over so many rows for each output, and samples."""
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
    assert "top1_match of output 'y0'" in reservation(verdict)
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
