"""What numbers as known answers score: columns of several units each by itself, and the one that loses most decides."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.label_scores import Scorer
from odc_mlir.quantizer.policy.verdict import describe
from odc_mlir.quantizer.report_html import render
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
    assert found.columns[0].drop == 0.0


def test_the_unit_of_a_column_decides_nothing() -> None:
    one, other = (_answers(*sizes) for sizes in ((1000.0, 0.01), (0.01, 1000.0)))
    drops = [
        Scorer(answers, labels).of(_with_errors(answers, 1, 0.2 * size)).drop
        for (answers, labels), size in ((one, 0.01), (other, 1000.0))
    ]
    assert drops[0] == pytest.approx(drops[1])


@pytest.mark.parametrize(("sizes", "of_columns"), [((1.0, 0.01), True), ((1.0, 0.5), False)])
def test_rows_of_shares_in_several_units_are_no_picture(sizes: tuple[float, ...], of_columns: bool) -> None:
    answers, labels = _answers(*sizes, low=0.0)
    found = Scorer(answers, labels).of(_with_errors(answers, 1, 0.1 * sizes[1]))
    assert list(found.after) == ["psnr_db"]
    assert bool(found.columns) is of_columns
    assert found.drop > 0.5
    pictures = [np.resize(answer, (1, 1, *answer.shape[1:])) for answer in answers]
    assert not Scorer(pictures, labels).of(pictures).columns


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(COUNT) % 2,
        np.arange(COUNT)[:, None] / 7.0,
        np.eye(17)[:1] + np.ones((COUNT, 17)) * np.arange(COUNT)[:, None],
    ],
)
def test_classes_single_numbers_and_many_columns_are_scored_together(labels: np.ndarray) -> None:
    width = labels.shape[1] if labels.ndim > 1 else 2
    answers = [np.eye(width)[[row % width]] + row for row in range(COUNT)]
    assert not Scorer(answers, labels).of(answers).columns


def test_a_column_whose_labels_never_vary_has_no_score() -> None:
    answers, labels = _answers(1.0, 0.0)
    found = Scorer(answers, labels).of(answers)
    assert [item.column for item in found.columns] == [0]


@cache
def _made() -> dict[str, Any]:
    """The verdict over a layer whose second column is a hundred-thousandth of the first, by labels near to both."""
    rng = np.random.default_rng(5)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 2))
    weights = (rng.normal(size=(2, 8)) * np.array([[1000.0], [0.01]])).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("y/w", (2, 8), data=weights), -1], [y])
    file = bytes(write_model(builder.finish([x], [y])))
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    labels = np.concatenate([odc_mlir.run(file, list(sample))[0] for sample in samples])
    labels = labels * (1.0 + 0.1 * rng.normal(size=labels.shape))
    return odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict


def test_verdict_summary_and_page_name_the_column() -> None:
    verdict = _made()
    (drop,) = [check for check in verdict["limits"] if check["metric"] == "drop"]
    assert (drop["column"], drop["passed"]) == (1, False)
    assert drop["value"] > 10.0
    scores = verdict["scores"]
    assert (scores["metric"], scores["column"]) == ("rmse", 1)
    assert [item["column"] for item in scores["columns"]] == [0, 1]
    assert scores["columns"][1]["quantized"] == scores["quantized"] > 2.0 * scores["float"]
    assert "drop of column 1 " in describe(verdict)
    lines = list(summary("m.circle", verdict))
    assert any(line.startswith("  drop of column 1 ") and line.endswith("<- not kept") for line in lines)
    assert any(line.startswith("  rmse of column 1, which loses most, 0.00") for line in lines)
    page = render(verdict, {})
    assert "drop of column 1" in page
    assert "rmse of column 1" in page
    assert "score of each column" in page
