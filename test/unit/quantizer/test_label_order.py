"""Labels in another order than the outputs: classes that are numbered otherwise, columns that have changed places."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.errors import InputError
from odc_mlir.quantizer.labels import check_answers, check_class_order, check_column_order, classes_moved, columns_moved

CLASSES, COUNT = 8, 48


def answered(seed: int = 1, right: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and what a model says: at least this share of the answers is right, but for one of each class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), COUNT // CLASSES)
    wrong = rng.random(COUNT) >= right
    wrong[:: COUNT // CLASSES] = True
    order = rng.permutation(COUNT)
    return labels[order], np.where(wrong, rng.integers(0, CLASSES, COUNT), labels)[order]


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


def columned(count: int = COUNT, noise: float = 0.05) -> tuple[list[np.ndarray], np.ndarray]:
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
    labels = (rng.random((COUNT, 4)) < 0.4).astype(np.int64)
    outputs = [np.where(row, 0.9, 0.1)[None] for row in labels]
    check_answers(outputs, labels)
    with pytest.raises(InputError, match="0 fits column 1 of the output, 1 fits column 0"):
        check_answers(outputs, labels[:, [1, 0, 2, 3]])
