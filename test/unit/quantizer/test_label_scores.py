"""What numbers as known answers score: columns of several units each by itself, and the one that loses most decides."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.policy.verdict import COLUMN_DROPS, DEFAULT_DROP_OF_SPAN, describe
from odc_mlir.quantizer.report import render
from odc_mlir.quantizer.scores import Scored, Scorer
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
    rng, width = np.random.default_rng(5), len(sizes)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, width))
    weights = (rng.normal(size=(width, 8)) * np.array(sizes)[:, None]).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("y/w", (width, 8), data=weights), -1], [y])
    file = bytes(write_model(builder.finish([x], [y])))
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
    page = render(verdict, {})
    assert "drop of column 1" in page
    assert "rmse of column 1" in page
    assert "score of each column" in page


def test_columns_whose_labels_never_vary_are_told_of_and_judged_without_them() -> None:
    verdict = _made(constant=True)
    assert [item["column"] for item in verdict["scores"]["columns"]] == [0]
    assert [check["metric"] for check in verdict["limits"]] == ["drop", "mpeir"]
    (told,) = [item for item in verdict["findings"] if "labels of column 1 are the same for all samples" in item]
    assert any(told[:60] in line for line in summary("m.circle", verdict))
    assert "labels of column 1 are the same for all samples" in render(verdict, {})


def test_summary_and_page_say_what_is_scored_without_labels_far_out() -> None:
    verdict = _made(constant=True, far=True)
    near = verdict["scores"]["without_far"]
    assert near["far"] == verdict["scores"]["columns"][0]["without_far"]["far"] == 1
    assert near["quantized"] > 2.0 * near["float"]
    assert any(line.startswith("  without 1 label far out ") for line in summary("m.circle", verdict))
    assert "rmse of column 0 without 1 label far out" in render(verdict, {})


def test_many_columns_have_a_limit_of_their_own() -> None:
    file, samples, labels = _model(*[1.0] * 20)
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    every, worst = verdict["limits"]
    assert (every["metric"], every["column"]) == ("drop", None)
    assert (worst["metric"], worst["column"]) == ("column_drop", verdict["scores"]["columns"][0]["column"])
    assert worst["value"] == verdict["scores"]["columns"][0]["drop"] > every["value"]
    assert "column" not in verdict["scores"]
    assert any(f"column_drop of column {worst['column']} " in line for line in summary("m.circle", verdict))
    page = render(verdict, {})
    assert "4 columns that lose less are left out" in page
    file, samples, labels = _model(1.0, 1.0)
    with pytest.raises(OptionError, match="the model has no column_drop: labels are no numbers in many columns"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, metric="column_drop", help=False)
