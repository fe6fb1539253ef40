"""Labels that cannot be right: other classes, units, signs, and orders of classes and columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from odc_mlir.errors import InputError
from odc_mlir.runtime.reporting import labels as checks
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, Misfit, check_answers, classes_moved, columns_moved, misfit

COUNT = 24


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


NO_FOR_YES = r"gets 0 % of the labels right, and 100 % of their inverse: .*exchanged"


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


IN_A_UNIT, NEGATED = (
    r"labels of column 2 rise and fall .* explain 1 of .*, -.* as given",
    r"labels of column 2 .*negated",
)


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
            r"labels fall where .* rise \(correlation -1\): they seem to be negated",
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
    assert text.startswith("92 % of the labels of 50 samples are of class 1, so that chance may get as many right")
    assert text.endswith("give more samples of other classes")


def test_a_poor_model_is_among_the_causes_of_labels_that_do_not_fit() -> None:
    """Its answers are related to the labels, and far from them, as labels in another unit are."""
    rng = np.random.default_rng(4)
    labels = rng.normal(size=COUNT)
    poor = numbers(1.2 * labels + 0.8 + 0.9 * rng.normal(size=COUNT))
    assert "a better model" in check(poor, labels, r"\(R2\): labels seem to be in another unit, or the model is poor")
    guessed = rng.permutation(np.arange(COUNT) % 4)
    assert "a better model" in check(rows(np.arange(COUNT) % 4, 4), guessed, "or the model is poor")
    assert checks.doubt(numbers(rng.normal(size=COUNT)), labels, "the model").endswith("or a better model")


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
