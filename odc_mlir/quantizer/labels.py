"""Labels that cannot be right: what is scored by them would be a number without meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.reporting.scoring import chosen_classes, score

# A model that gets this many times as many right by labels moved by one was labelled from another number on.
_MUCH_BETTER = 2.0
_LEAST_RIGHT_PERCENT = 50.0
_LEAST_LABELS = 10
_LEAST_TO_TELL_LUCK = 20
# What is right by chance is counted up to so many standard deviations, but never beyond half of what is left to 100 %.
_DEVIATIONS = 3.0
_MOST_OF_REST = 0.5


def check_varied(labels: Array) -> None:
    """Raises InputError for labels that are all the same, or not finite: no model's answers can be told apart by them.

    ``labels`` are those of all samples.
    """
    if labels.dtype.kind not in "iuf" or not labels.size:
        return
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels are not finite", hint="remove samples without a label")
    if len(labels) > 1 and (labels == labels[0]).all():
        first = labels[0].item() if labels[0].ndim == 0 else "the same array"
        raise InputError(
            f"all {len(labels)} labels are {first}, which cannot measure accuracy",
            hint="give samples of several classes, or no labels",
        )


def check_classes(outputs: Sequence[Array], labels: Array) -> None:
    """Raises InputError for classes that the first output does not have, or that are counted from another number."""
    classes = outputs[0].shape[-1] if outputs[0].ndim else 0
    if labels.dtype.kind not in "iu" or classes < 2:
        return
    if score(outputs, labels)[0] != "top1_percent":
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise InputError(
            f"labels are {low} to {high}, the model's {classes} classes 0 to {classes - 1}",
            hint="number classes from 0, like the outputs",
        )
    if labels.size < _LEAST_LABELS:
        return
    right = {shift: score(outputs, labels.astype(np.int64) + shift)[1] for shift in (0, -1, 1)}
    for shift in (-1, 1):
        if right[shift] >= max(_LEAST_RIGHT_PERCENT, _MUCH_BETTER * right[0]):
            raise InputError(
                f"the float model gets {right[0]:.0f} % of the labels right, and {right[shift]:.0f} % of them with "
                f"{shift:+d}: they seem to be off by one class",
                hint="number classes from 0, like the outputs",
            )
    found = by_chance(outputs, labels)
    if found is None or labels.size < _LEAST_TO_TELL_LUCK:
        return
    if right[0] <= min(found.most_percent, found.percent + _MOST_OF_REST * (100.0 - found.percent)):
        raise InputError(
            f"the float model gets {right[0]:.3g} % of the labels right, no better than guessing "
            f"({found.percent:.3g} %): they seem to belong to other samples, or to be numbered otherwise",
            hint="give labels in the samples' order and in the model's classes, more of them, or none",
        )


@dataclass(frozen=True, slots=True)
class Chance:
    """``percent``: what the same answers get right of the same labels in any order; ``most_percent``: by luck."""

    percent: float
    most_percent: float


def by_chance(outputs: Sequence[Array], labels: Array) -> Chance | None:
    """How much of ``labels`` the model would get right if they had nothing to do with samples; None: no classes."""
    chosen = chosen_classes(outputs, labels)
    if chosen is None or not chosen.size:
        return None
    classes, counts = np.unique(labels, return_counts=True)
    answers = np.array([np.count_nonzero(chosen == number) for number in classes])
    share = float(np.dot(counts / labels.size, answers / labels.size))
    deviation = float(np.sqrt(share * (1.0 - share) / labels.size))
    return Chance(100.0 * share, 100.0 * (share + _DEVIATIONS * deviation))


def is_telling(outputs: Sequence[Array], labels: Array) -> bool:
    """Whether answers have more to do with ``labels`` than by luck: more are right, or numbers rise and fall with them.

    Answers to other samples, or to another question, are missed by as much before and after quantising.
    """
    found = by_chance(outputs, labels)
    if found is not None:
        return score(outputs, labels)[1] > found.most_percent
    given, wanted = (np.stack([np.ravel(a) for a in arrays]).astype(np.float64) for arrays in (outputs, labels))
    with np.errstate(all="ignore"):
        given, wanted = ((a - a.mean(axis=0)) / np.abs(a).max() for a in (given, wanted))
        related = float((given * wanted).sum() / np.sqrt(np.square(given).sum() * np.square(wanted).sum()))
    return bool(related * np.sqrt(len(labels)) > _DEVIATIONS)
