"""Labels in another order than the outputs: classes that are numbered otherwise, columns that have changed places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.reporting.scoring import MOST_SINGLE, UNLIKELY

FEWEST_OF_CLASS = 3  # samples with a label, most of which have one other answer
_FEWEST_MOVED = 2  # classes or columns: one alone may be what the model confuses
_FEWEST_ROWS = 20  # of columns
# What a column leaves unexplained of labels is at most this part of what the column in their place leaves.
_FAR_BETTER = 0.25
_LEAST_EXPLAINED = 0.5
# Where fewer are right whatever classes are called, inputs may be to blame, as mirrored images are.
_LEAST_RIGHT_PERCENT = 75.0
_NAMED = 4

Moved = Mapping[int, int]


def check_class_order(chosen: Array, labels: Array, classes: int, model: str) -> None:
    """Raises InputError where answers ``chosen`` follow from ``labels``, both class numbers, by another numbering."""
    moved = classes_moved(chosen, labels, classes)
    if not moved:
        return
    right, renumbered = (_right(chosen, found) for found in (labels, _renumbered(labels, moved)))
    shifts = {(answer - label) % classes for label, answer in moved.items()}
    what = "numbered in another order"
    if len(shifts) == 1 and len(moved) >= FEWEST_OF_CLASS:
        back = classes - next(iter(shifts))
        what = f"rotated by {back if back <= classes // 2 else back - classes} of {classes} classes"
    pairs = [f"{answer} for label {label}" for label, answer in moved.items()]
    hint = "number classes in the order of the outputs"
    if renumbered < _LEAST_RIGHT_PERCENT:
        hint += ", or give inputs in the unit and order that the model was trained for"
    raise InputError(
        f"{model} gets {right:.0f} % of the labels right, and {renumbered:.0f} % of them renumbered as it answers: "
        f"they seem to be {what} (it mostly answers {', '.join(pairs[:_NAMED])}{', …' if pairs[_NAMED:] else ''})",
        hint=hint,
    )


def classes_moved(chosen: Array, labels: Array, classes: int) -> Moved:
    """What is mostly answered where that is another class than the label, by label; none where luck may have it.

    Labels are told apart by their answers, and those answers are labels, or answers to labels, that have moved too:
    classes that a model confuses, or has in one, are not moved.
    """
    chosen, labels = chosen.ravel(), labels.ravel()
    if not _are_of(chosen, classes) or not _are_of(labels, classes):
        return {}
    mostly: dict[int, int] = {}
    for label in np.unique(labels).tolist():
        answers, counts = np.unique(chosen[labels == label], return_counts=True)
        best = int(counts.argmax())
        if counts[best] >= FEWEST_OF_CLASS and 2 * counts[best] > counts.sum():
            mostly[label] = int(answers[best])
    given = list(mostly.values())
    moved = {label: answer for label, answer in mostly.items() if label != answer and given.count(answer) == 1}
    # One alone, whose answer's own label has stayed or is not there, may be what the model takes for that.
    moved = {label: answer for label, answer in moved.items() if answer in moved or label in moved.values()}
    return moved if len(moved) >= _FEWEST_MOVED and _is_beyond_luck(chosen, labels, moved, classes) else {}


def _are_of(numbers: Array, classes: int) -> bool:
    return bool(numbers.size) and int(numbers.min()) >= 0 and int(numbers.max()) < classes


def _is_beyond_luck(chosen: Array, labels: Array, moved: Moved, classes: int) -> bool:
    """Whether answers in any order would hardly fit any such renumbering as well (a union bound)."""
    concerned = np.isin(labels, list(moved))
    answers, given = chosen[concerned], _renumbered(labels[concerned], moved)
    count, hits = len(answers), int(np.count_nonzero(answers == given))
    likeliest = np.bincount(chosen).max() / chosen.size  # of answers that have nothing to do with labels
    # Chernoff's bound of as many hits.
    share = hits / count
    if share <= likeliest:
        return False
    divergence = share * math.log(share / likeliest)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - likeliest))
    ways = math.lgamma(classes + 1) - math.lgamma(classes - len(moved) + 1)
    return ways - count * divergence < math.log(UNLIKELY)


def _renumbered(labels: Array, moved: Moved) -> Array:
    found = labels.copy()
    for label, answer in moved.items():
        found[labels == label] = answer
    return found


def _right(chosen: Array, labels: Array) -> float:
    return 100.0 * float(np.mean(chosen.ravel() == labels.ravel()))


def check_column_order(outputs: Sequence[Array], labels: Array, model: str) -> None:
    """Raises InputError where columns of ``labels`` fit other columns of ``outputs`` far better than those in place."""
    moved = columns_moved(outputs, labels)
    if moved:
        pairs = [f"{label} fits column {output} of the output" for label, output in moved.items()]
        raise InputError(
            f"columns of the labels fit what {model} answers far better in another order: "
            f"{', '.join(pairs[:_NAMED])}{', …' if pairs[_NAMED:] else ''}",
            hint="give labels whose columns have the order of the first output's",
        )


def columns_moved(outputs: Sequence[Array], labels: Array) -> Moved:
    """The columns of ``outputs`` that explain columns of ``labels`` far better than those in place, by the latter.

    Both have the same elements, in few columns along the last axis. In any unit: units may differ as well.
    """
    width = outputs[0].shape[-1] if outputs[0].ndim else 1
    if not 1 < width <= MOST_SINGLE or any(o.size != e.size for o, e in zip(outputs, labels, strict=True)):
        return {}
    if len(labels) < _FEWEST_ROWS:
        return {}
    explained = _explained(np.concatenate([o.reshape(-1, width) for o in outputs]), labels.reshape(-1, width))
    places = np.arange(width)
    best = explained.argmax(axis=1)
    own, other = explained[places, places], explained[places, best]
    is_moved = (best != places) & (other >= _LEAST_EXPLAINED) & (1.0 - other <= _FAR_BETTER * (1.0 - own))
    moved = {int(place): int(best[place]) for place in np.flatnonzero(is_moved)}
    return moved if len(moved) >= _FEWEST_MOVED and len(set(moved.values())) == len(moved) else {}


def _explained(given: Array, wanted: Array) -> Array:
    """The share of the variance of each column of labels ``wanted`` that each of answers ``given`` explains, scaled.

    [labels, answers]; 0 where they do not vary together.
    """
    units = []
    for array in (wanted, given):
        varying = array.astype(np.float64)
        with np.errstate(all="ignore"):  # squares of what is very large or small are not finite, or none
            varying = varying / np.abs(varying).max(axis=0)
            varying = varying - varying.mean(axis=0)
            units.append(varying / np.sqrt(np.square(varying).sum(axis=0)))
    related = np.nan_to_num(units[0].T @ units[1], nan=0.0)
    return np.asarray(np.square(np.clip(related, 0.0, 1.0)))
