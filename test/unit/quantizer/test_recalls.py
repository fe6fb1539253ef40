"""What single classes lose: a share of right answers over all may rise while one of the classes is given up."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.outputs import Places, share_of_ties
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.scores import Recall, by_loss, recall_drop, recall_findings, recalls
from odc_mlir.runtime.execution.graph import build_graph

COUNT = 96


@cache
def close() -> bytes:
    """A classifier of which two classes are nearer than a step of int8, as a rare third makes codes coarse."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 3)), builder.tensor("y", (1, 3))
    weights = np.float32([[1.0, 0.0, 0.0], [1.0, 0.004, 0.0], [0.0, 0.0, 2.0]])
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("w", (3, 3), data=weights), -1], [y])
    return write_model(builder.finish([x], [y]))


def drawn(seed: int) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Samples, and what the model answers."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.uniform(40, 60, COUNT), rng.choice([-30.0, 30.0], COUNT), np.zeros(COUNT)], axis=-1)
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
