"""Metrics of outputs whose right answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.errors import InputError
from odc_mlir.quantizer.policy.verdict import COLUMN_DROPS, DEFAULT_DROP_OF_SPAN
from odc_mlir.runtime.reporting.scores import (
    Recall,
    Scored,
    Scorer,
    by_loss,
    recall_drop,
    recall_findings,
    recalls,
    score,
)

COUNT = 48


def _one_hot(label: int) -> np.ndarray:
    return np.eye(4, dtype=np.float32)[label : label + 1]


def test_top1() -> None:
    assert score([_one_hot(2), _one_hot(1)], np.array([2, 3])) == ("top1_percent", 50.0)


def test_ties_go_to_the_lower_class() -> None:
    assert score([np.zeros((1, 4), np.int8)], np.array([0])) == ("top1_percent", 100.0)


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3, 3), (17,)])
def test_psnr(shape: tuple[int, ...]) -> None:
    expected = np.zeros((2, *shape), np.float32)
    outputs = [np.full((1, *shape), 0.1, np.float32)] * 2
    assert score(outputs, expected) == ("psnr_db", pytest.approx(20.0, abs=1e-5))
    assert score([expected[:1]] * 2, expected) == ("psnr_db", float("inf"))


@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (1, 3)])
def test_few_numbers_between_0_and_1_are_no_picture(shape: tuple[int, ...]) -> None:
    expected = np.zeros((2, *shape), np.float32)
    assert score([np.full((1, *shape), 0.1, np.float32)] * 2, expected) == ("rmse", pytest.approx(0.1))


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="got 1 label for 2 samples"):
        score([_one_hot(0)] * 2, np.array([1]))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.array(["cat"]))


@pytest.mark.parametrize("shape", [(5, 3), (1, 5, 3), (5, 1, 3), (15,)])
def test_labels_may_be_flat_or_without_axes_of_one(shape: tuple[int, ...]) -> None:
    values = np.arange(30.0).reshape(2, 5, 3)
    assert score(list(values[:, None]), values.reshape(2, *shape)) == ("rmse", 0.0)
    assert score(list(values.reshape(2, 15)), values.reshape(2, *shape)) == ("rmse", 0.0)


def test_labels_with_axes_in_another_order_do_not_fit() -> None:
    values = np.arange(30.0).reshape(2, 5, 3)
    with pytest.raises(InputError, match=r"float64 \[3, 5\] for each sample, are neither .* output, \[1, 5, 3\]"):
        score(list(values[:, None]), values.swapaxes(1, 2))
    classes = np.arange(30).reshape(2, 3, 5) % 4
    maps = list(np.eye(4, dtype=np.float32)[classes][:, None])
    for fitting in (classes, classes.reshape(2, 15), classes[:, None], classes[..., None]):
        assert score(maps, fitting) == ("top1_percent", 100.0)
    with pytest.raises(InputError, match=r"int64 \[5, 3\] for each sample, are neither"):
        score(maps, classes.swapaxes(1, 2))


@pytest.mark.parametrize("kind", ["logits", "shares", "regression"])
@pytest.mark.parametrize("form", [np.int64, np.float32, bool, "signs"])
@pytest.mark.parametrize("width", [1, 5])
def test_yes_and_no_are_right_or_wrong(kind: str, form: type | str, width: int) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(40, width))
    labels = logits > 0.0
    labels[:2, 0] ^= True  # two are wrong
    values = {"logits": 9.0 * logits, "shares": 1 / (1 + np.exp(-logits)), "regression": 0.5 + logits / 2}[kind]
    given = labels * 2 - 1 if isinstance(form, str) else labels.astype(form)
    metric, right = score(list(values[:, None].astype(np.float32)), given)
    assert (metric, right) == ("top1_percent", pytest.approx(100.0 - 200.0 / labels.size))


def test_two_values_that_signs_do_not_predict_are_numbers() -> None:
    rng = np.random.default_rng(7)
    outputs = list(rng.normal(size=(40, 1, 1)).astype(np.float32))
    for labels in (rng.permutation(np.arange(40) % 2), np.arange(40) % 2 == 1, np.array([0, 2] * 20)):
        assert score(outputs, labels)[0] == "rmse"


def _answers(*sizes: float, noise: float = 0.05, low: float = -1.0) -> tuple[list[np.ndarray], np.ndarray]:
    """What a float model answers, and labels: columns of these sizes, errors a part of each."""
    rng = np.random.default_rng(2)
    labels = rng.uniform(low, 1.0, (COUNT, len(sizes))) * sizes
    wrong = labels + noise * rng.normal(size=labels.shape) * sizes
    return [row[None] for row in wrong], labels


def _scored(answers: list[np.ndarray], labels: np.ndarray, column: int, size: float) -> Scored:
    """The scores with errors of this size in one column."""
    rng, found = np.random.default_rng(3), [answer.copy() for answer in answers]
    for answer in found:
        answer[..., column] += size * rng.normal()
    return Scorer(answers, labels).of(found)


@pytest.mark.parametrize("sizes", [(1000.0, 0.01), (1.0, 1.0)])
def test_the_column_that_loses_most_decides_whatever_its_unit(sizes: tuple[float, ...]) -> None:
    found = _scored(*_answers(*sizes), 1, 0.5 * sizes[1])
    assert (found.worst.column, len(found.columns)) == (1, 2)
    assert found.drop == found.worst.drop > 10.0
    assert found.worst.after["r2"] < 0.5 < found.worst.before["r2"]
    assert [item.drop for item in found.columns if item.column == 0] == [0.0]
    other = _scored(*_answers(*sizes[::-1]), 1, 0.5 * sizes[0])
    assert found.drop == pytest.approx(other.drop)


@pytest.mark.parametrize(("sizes", "of_columns"), [((1.0, 0.01), True), ((1.0, 0.5), False)])
def test_rows_of_shares_in_several_units_are_scored_by_column(sizes: tuple[float, ...], of_columns: bool) -> None:
    answers, labels = _answers(*sizes, low=0.0)
    found = _scored(answers, labels, 1, 0.1 * sizes[1])
    assert next(iter(found.after)) == "rmse"
    assert bool(found.columns) is of_columns
    assert found.drop > 0.5
    pictures = [np.resize(answer, (1, 2, *answer.shape[1:])) for answer in answers]
    of_pictures = Scorer(pictures, np.repeat(labels[:, None], 2, axis=1)).of(pictures)
    assert (list(of_pictures.after), of_pictures.columns) == (["psnr_db"], ())


@pytest.mark.parametrize("float_error", [0.0, 0.001, 0.01])
def test_few_shares_may_lose_a_hundredth_of_what_labels_span(float_error: float) -> None:
    """Half a dB of what is nearly right would be next to nothing."""
    answers, labels = _answers(1.0, 0.5, noise=float_error, low=0.0)
    rng, scorer = np.random.default_rng(6), Scorer(answers, labels)
    drops = [scorer.of([answer + size * rng.normal(size=(1, 2)) for answer in answers]).drop for size in (0.004, 0.04)]
    assert drops[0] < DEFAULT_DROP_OF_SPAN < drops[1]


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
    assert found.drop < DEFAULT_DROP_OF_SPAN < COLUMN_DROPS < 10.0 < found.column_drop
    assert (found.columns[0].column, found.worst, len(found.columns)) == (123, None, 16)
    assert found.parts()["columns_scored"] == 400


@pytest.mark.parametrize("size", [1.0, 0.001])
def test_one_error_of_few_samples_may_be_in_any_of_many_columns(size: float) -> None:
    """As of a value that is cut off; a small column, as a pixel at the edge, has the unit of all."""
    answers, labels = _answers(*[1.0] * 399, size)
    answers, labels = answers[:16], labels[:16]
    found = Scorer(answers, labels).of([answers[0] + np.eye(400)[399] * 0.4 * size, *answers[1:]])
    assert 0.0 < found.column_drop < COLUMN_DROPS


def test_many_columns_most_of_which_are_small_have_their_own_units() -> None:
    found = _scored(*_answers(*[1.0] * 100, *[0.001] * 300), 399, 0.001)
    assert (found.worst.column, found.count, found.column_drop) == (399, 400, None)
    assert found.drop > 10.0


@pytest.mark.parametrize("count", [16, COUNT])
@pytest.mark.parametrize(
    ("float_error", "error", "passes"),
    [(0.1, 0.4, False), (0.1, 0.12, True), (0.0, 0.4, False), (0.0, 0.02, True), (1e-6, 0.02, True), (1.0, 1.02, True)],
)
def test_labels_far_out_do_not_excuse_errors_of_the_others(
    float_error: float, error: float, passes: bool, count: int
) -> None:
    """Labels of 0 to 3 and one of 60, whose own errors are parts of all that labels span."""
    rng = np.random.default_rng(4)
    labels = np.append(rng.uniform(0.0, 3.0, count - 1), 60.0)[:, None]
    wrong = rng.normal(size=labels.shape)
    before, after = (list((labels + size * wrong)[:, None]) for size in (float_error, error))
    found = Scorer(before, labels).of(after)
    assert (found.drop <= 1.0, found.near.far) == (passes, 1)
    right = list(labels[:, None])
    drop = Scorer(right, labels).of([*right[:-1], right[-1] - 3.0]).drop
    assert drop == pytest.approx(100.0 * 3.0 / np.sqrt(count) / np.ptp(labels))


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


def test_what_is_no_number_loses_all_and_what_never_varies_has_no_score() -> None:
    answers, labels = _answers(1.0, 1.0)
    gone = [np.full_like(answer, np.nan) for answer in answers]
    assert Scorer(answers, labels).of(gone).drop == np.inf
    assert Scorer(gone, labels).of(gone).drop == 0.0
    scorer = Scorer(*_answers(1.0, 0.0))
    assert ([item.column for item in scorer.of(answers).columns], scorer.unscored) == ([0], [1])


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
    classes = [{"label": i, "float": 90.0, "quantized": after} for i, after in enumerate((90.0, 50.0, 80.0, 95.0))]
    assert [item["label"] for item in by_loss(classes, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("lost", "gained", "is_lost", "is_told"),
    [(5, 0, False, True), (9, 0, True, True), (4, 0, False, False), (20, 14, False, False), (30, 4, True, True)],
)
def test_a_class_is_lost_where_chance_does_not_explain_it(lost: int, gained: int, is_lost: bool, is_told: bool) -> None:
    fall = 100.0 * (lost - gained) / 40
    found = [Recall(0, 40, 90.0, 90.0, 0, 0), Recall(3, 40, 90.0, 90.0 - fall, lost, gained)]
    assert recall_drop(found) == (pytest.approx(fall) if is_lost else 0.0)
    assert bool(recall_findings(found)) == is_told
    # The probability of many changes is that of few.
    exact, many = Recall(0, 9999, 0, 0, 530, 470), Recall(0, 9999, 0, 0, 531, 470)
    assert many.chance == pytest.approx(exact.chance, rel=0.1)
