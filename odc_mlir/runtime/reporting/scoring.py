"""Scores of outputs against known answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array

_MOST_CLASSES = 1 << 31
# What is right by chance is counted up to so many standard deviations, but never beyond half of what is left to 100 %.
DEVIATIONS = 3.0
UNLIKELY = math.erfc(DEVIATIONS / math.sqrt(2.0)) / 2.0  # the probability of more than these
_MOST_OF_REST = 0.5
_MOST_EXACT = 1000  # trials; of more the normal distribution says the same
# Above these, logits and shares say yes.
_LOGIT, _SHARE = 0.0, 0.5
_NO_AND_YES = ([0.0, 1.0], [-1.0, 1.0])
LOWER_IS_BETTER = frozenset({"rmse", "mae"})
MOST_SINGLE = 16  # columns of an output in which each is taken for a quantity of its own, whatever their sizes
OF_NUMBERS = frozenset({"rmse", "psnr_db"})  # of labels that are as many numbers as the output has


def score(outputs: Sequence[Array], expected: Array) -> tuple[str, float]:
    """Return a metric's name and value for one output per sample: the first of :func:`scores`."""
    return next(iter(scores(outputs, expected).items()))


def scores(outputs: Sequence[Array], expected: Array) -> dict[str, float]:
    """Return the scores for this kind of answers, the decisive one first.

    Classes (see :func:`as_classes`), one per sample or one for each row of an output's last axis: ``top1_percent``,
    ties going to the lower class; the same for integers if the output has as many, and for yes and no (see
    :func:`yes_above`). Numbers between 0 and 1 in pictures (several axes, or more than 16): ``psnr_db``. Other
    numbers, as many as the output has: ``rmse``, ``mae`` and ``r2``, the explained share of the answers' variance.
    Raises InputError if none fits.
    """
    if len(outputs) != len(expected):
        raise InputError(f"got {counted(len(expected), 'label')} for {counted(len(outputs), 'sample')}")
    outputs, expected = compared(outputs, expected)
    if (chosen := chosen_classes(outputs, expected)) is not None:
        return {"top1_percent": 100.0 * float(np.mean(chosen == expected.ravel()))}
    if expected.dtype.kind not in "fiu" or not all(_are_alike(o, e) for o, e in zip(outputs, expected, strict=True)):
        raise InputError(
            f"the labels, {_kind(expected)} {list(expected.shape[1:])} for each sample, are neither class numbers "
            f"nor arrays like the first output, {list(outputs[0].shape)}",
            hint="give a whole number from 0 for each sample or row, one-hot rows, or arrays of the output's shape",
        )
    given = np.stack([o.ravel().astype(np.float64) for o in outputs])
    wanted = expected.reshape(len(expected), -1).astype(np.float64)
    if are_shares(expected) and any(_may_be_picture(output) for output in outputs):
        return scores_of_pictures(given, wanted)
    return scores_of_numbers(given, wanted)


def _kind(labels: Array) -> str:
    return "text" if labels.dtype.kind in "SU" else labels.dtype.name


def are_shares(labels: Array) -> bool:
    """Return whether labels are reals between 0 and 1."""
    return labels.dtype.kind == "f" and float(labels.min(initial=0.0)) >= 0.0 and float(labels.max(initial=1.0)) <= 1.0


def _may_be_picture(output: Array) -> bool:
    """Return whether labels have several axes or many elements: the RMSE of a short row is no noise level."""
    return output.size > MOST_SINGLE or np.squeeze(output).ndim > 1


def _are_alike(output: Array, labels: Array) -> bool:
    """Return whether both have the same elements in the same order: equal shapes without axes of 1, or one is flat.

    Equal sizes in other shapes are labels in another order, such as channels first.
    """
    forms = [tuple(extent for extent in array.shape if extent != 1) for array in (output, labels)]
    return output.size == labels.size and (forms[0] == forms[1] or min(map(len, forms)) <= 1)


def scores_of_pictures(given: NDArray[np.float64], wanted: NDArray[np.float64]) -> dict[str, float]:
    """Return ``psnr_db`` of numbers between 0 and 1, [samples, elements]; infinite if they are equal."""
    with np.errstate(divide="ignore"):
        return {"psnr_db": float(-10.0 * np.log10(np.square(given - wanted).mean()))}


def scores_of_numbers(given: NDArray[np.float64], wanted: NDArray[np.float64]) -> dict[str, float]:
    """Return ``rmse``, ``mae`` and ``r2`` of numbers, [samples, elements]; R² is NaN if no element varies."""
    squares = float(np.square(given - wanted).mean())
    spread = float(np.square(wanted - wanted.mean(axis=0)).mean())
    r2 = 1.0 - squares / spread if spread else float("nan")
    return {"rmse": float(np.sqrt(squares)), "mae": float(np.abs(given - wanted).mean()), "r2": r2}


def compared(outputs: Sequence[Array], expected: Array) -> tuple[Sequence[Array], Array]:
    """Convert both to class numbers if labels are classes, or to yes and no; else leave them as they are."""
    if (threshold := yes_above(outputs, expected)) is not None:
        return said(outputs, threshold), (expected > 0).astype(np.int64)
    return outputs, as_classes(outputs, expected)


def said(outputs: Sequence[Array], threshold: float) -> list[Array]:
    """Convert outputs to 1 for yes, above ``threshold``, and 0 for no; int64."""
    return [(output > threshold).astype(np.int64) for output in outputs]


def yes_above(outputs: Sequence[Array], expected: Array) -> float | None:
    """Return the threshold of yes in outputs: 0 for logits, 0.5 for shares; None unless labels are yes and no.

    Such labels have two values, 0 or -1 and 1 or booleans, that the outputs predict better than chance. Outputs near 0
    and 1, as of regressions, count as shares.
    """
    if len(outputs) != len(expected) or expected.dtype.kind not in "biuf":
        return None
    if any(o.dtype.kind != "f" or o.size != e.size for o, e in zip(outputs, expected, strict=True)):
        return None
    if not is_yes_or_no(expected) or _one_hot(outputs, expected) is not None:
        return None
    wanted = (expected > 0).astype(np.int64)
    given = np.stack([np.ravel(output) for output in outputs]).astype(np.float64)
    are_shares = bool(((given >= 0.0) & (given <= 1.0)).all())
    is_near = float(np.square(given - wanted.reshape(given.shape)).mean()) < _SHARE**2
    threshold = _SHARE if are_shares or is_near else _LOGIT
    right = 100.0 * float(np.mean((given > threshold) == wanted.reshape(given.shape)))
    chance = by_chance(said(outputs, threshold), wanted)
    return None if chance is None or chance.may_be(right) else threshold


def is_yes_or_no(expected: Array) -> bool:
    """Return whether labels have two values, 0 or -1, and 1."""
    return expected.dtype.kind in "biuf" and np.unique(expected).astype(np.float64).tolist() in _NO_AND_YES


@dataclass(frozen=True, slots=True)
class Chance:
    """Chance level: ``percent`` of labels right, with bounds of three standard deviations."""

    percent: float
    deviation: float

    @property
    def most_percent(self) -> float:
        return self.percent + DEVIATIONS * self.deviation

    @property
    def least_percent(self) -> float:
        return self.percent - DEVIATIONS * self.deviation

    def may_be(self, right_percent: float) -> bool:
        """Return whether a score is no better than chance; half of the rest to 100 % always is better."""
        return right_percent <= min(self.most_percent, self.percent + _MOST_OF_REST * (100.0 - self.percent))


def by_chance(outputs: Sequence[Array], labels: Array) -> Chance | None:
    """Estimate the score of the same answers in random order; None unless they are classes."""
    labels = as_classes(outputs, labels)
    chosen = chosen_classes(outputs, labels)
    if chosen is None or not chosen.size:
        return None
    classes, counts = np.unique(labels, return_counts=True)
    answers = np.array([np.count_nonzero(chosen == number) for number in classes])
    share = float(np.dot(counts / labels.size, answers / labels.size))
    return _chance(share, labels.size)


def guessing(outputs: Sequence[Array], labels: Array) -> Chance:
    """Return the chance level of guessing one of the classes in labels and answers.

    If most answers are classes that no label has, only the labels' classes count: the answers are to another question.
    """
    labels = as_classes(outputs, labels)
    chosen = chosen_classes(outputs, labels)
    assert chosen is not None
    classes = np.unique(labels)
    if 2 * np.count_nonzero(np.isin(chosen, classes)) >= chosen.size:
        classes = np.union1d(classes, chosen)
    return _chance(1.0 / len(classes), labels.size)


def _chance(share: float, count: int) -> Chance:
    return Chance(100.0 * share, 100.0 * math.sqrt(share * (1.0 - share) / count))


def sign_test(more: int, less: int) -> float:
    """Return the probability that, of this many differing samples, ``more`` or more go one way by chance."""
    changed = more + less
    if changed > _MOST_EXACT:
        return math.erfc((more - less - 1) / math.sqrt(2.0 * changed)) / 2.0
    return sum(math.comb(changed, k) for k in range(more, changed + 1)) / (1 << changed)


def as_classes(outputs: Sequence[Array], expected: Array) -> Array:
    """Convert one-hot rows or whole reals in ``expected`` to class numbers, int64; return others unchanged.

    One-hot rows are as long as the outputs' last axis, each of zeros and a single one. Booleans are 0 and 1.
    """
    if len(outputs) != len(expected) or not len(outputs) or expected.dtype.kind not in "biuf":
        return expected
    if (classes := _one_hot(outputs, expected)) is not None:
        return classes
    if expected.dtype.kind == "b":
        return expected.astype(np.int64)
    if expected.dtype.kind == "f" and _are_classes(outputs, expected):
        is_whole = (expected == np.floor(expected)).all() and np.abs(expected).max() < _MOST_CLASSES
        return expected.astype(np.int64) if is_whole else expected
    return expected


def _one_hot(outputs: Sequence[Array], expected: Array) -> Array | None:
    """Return the classes of one-hot rows; None for others."""
    width = _classes(outputs[0]) if len(outputs) else 0
    if not width or any(o.size != e.size or _classes(o) != width for o, e in zip(outputs, expected, strict=True)):
        return None
    rows = expected.reshape(-1, width)
    is_one_hot = ((rows == 0) | (rows == 1)).all() and (np.count_nonzero(rows, axis=1) == 1).all()
    return rows.argmax(axis=1).reshape(len(expected), -1) if is_one_hot else None


def chosen_classes(outputs: Sequence[Array], expected: Array) -> Array | None:
    """Return the answered class for each element of ``expected``; None unless these are classes.

    The class is the index of the largest element, or an integer output itself.
    """
    if expected.dtype.kind not in "iu":
        return None
    if all(o.dtype.kind in "iu" and o.size == e.size for o, e in zip(outputs, expected, strict=True)):
        return np.concatenate([o.ravel() for o in outputs])
    if not _are_classes(outputs, expected):
        return None
    if _has_rows(outputs, expected):
        return np.concatenate([o.reshape(-1, o.shape[-1]).argmax(axis=1) for o in outputs])
    return np.array([int(np.argmax(o)) for o in outputs])


def _are_classes(outputs: Sequence[Array], expected: Array) -> bool:
    """Return whether there are as many labels as rows of the outputs, or one for each output of several elements."""
    return _has_rows(outputs, expected) or (expected.ndim == 1 and all(o.size > 1 for o in outputs))


def _has_rows(outputs: Sequence[Array], expected: Array) -> bool:
    return all(_classes(o) > 0 and _are_alike(o[..., 0], e) for o, e in zip(outputs, expected, strict=True))


def _classes(output: Array) -> int:
    return output.shape[-1] if output.ndim and output.shape[-1] > 1 else 0
