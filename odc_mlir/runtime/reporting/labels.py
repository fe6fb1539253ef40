"""Checks of labels for wrong numbering, order, sign or unit, and for a fit no better than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.reporting import scores

FEWEST_OF_CLASS = 3  # least number of equal wrong answers from which a class counts as moved
_FEWEST_MOVED = 2  # least number of moved classes or columns; a model may confuse a single one
_NAMED = 4

Moved = Mapping[int, int]


def check_class_order(chosen: Array, labels: Array, classes: int, model: str) -> None:
    """Raise InputError if answers ``chosen`` equal ``labels`` after a renumbering of classes."""
    # If fewer answers are right even after renumbering, the inputs may also be wrong, such as mirrored images.
    least_renumbered_percent = 75.0
    moved = classes_moved(chosen, labels, classes)
    if not moved:
        return
    both = (labels, _renumbered(labels, moved))
    right, renumbered = (100.0 * float(np.mean(chosen.ravel() == found.ravel())) for found in both)
    shifts = {(answer - label) % classes for label, answer in moved.items()}
    what = "numbered in another order"
    if len(shifts) == 1 and len(moved) >= FEWEST_OF_CLASS:
        back = classes - next(iter(shifts))
        what = f"rotated by {back if back <= classes // 2 else back - classes} of {classes} classes"
    pairs = [f"{answer} for label {label}" for label, answer in moved.items()]
    hint = "number classes in the order of the outputs"
    if renumbered < least_renumbered_percent:
        hint += ", or give inputs in the unit and order that the model was trained for"
    raise InputError(
        f"{model} gets {right:.0f} % of the labels right, and {renumbered:.0f} % of them renumbered as it answers: "
        f"they seem to be {what} (it mostly answers {', '.join(pairs[:_NAMED])}{', …' if pairs[_NAMED:] else ''})",
        hint=hint,
    )


def classes_moved(chosen: Array, labels: Array, classes: int) -> Moved:
    """Return the labels whose answers are mostly another class, beyond chance, with this class.

    The answered classes are distinct. A class that the model merely confuses with another class does not count.
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
    # Drop a label if the answer has not moved as well: the model may only confuse these two classes.
    moved = {label: answer for label, answer in moved.items() if answer in moved or label in moved.values()}
    return moved if len(moved) >= _FEWEST_MOVED and _is_beyond_luck(chosen, labels, moved, classes) else {}


def _are_of(numbers: Array, classes: int) -> bool:
    return bool(numbers.size) and int(numbers.min()) >= 0 and int(numbers.max()) < classes


def _is_beyond_luck(chosen: Array, labels: Array, moved: Moved, classes: int) -> bool:
    """Return whether answers in random order would almost never fit any renumbering as well (union bound)."""
    concerned = np.isin(labels, list(moved))
    answers, given = chosen[concerned], _renumbered(labels[concerned], moved)
    count, hits = len(answers), int(np.count_nonzero(answers == given))
    likeliest = np.bincount(chosen).max() / chosen.size  # chance of a hit if answers do not depend on labels
    # Chernoff bound on the probability of as many hits.
    share = hits / count
    if share <= likeliest:
        return False
    divergence = share * math.log(share / likeliest)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - likeliest))
    ways = math.lgamma(classes + 1) - math.lgamma(classes - len(moved) + 1)
    return ways - count * divergence < math.log(scores.UNLIKELY)


def _renumbered(labels: Array, moved: Moved) -> Array:
    found = labels.copy()
    for label, answer in moved.items():
        found[labels == label] = answer
    return found


def check_column_order(outputs: Sequence[Array], labels: Array, model: str) -> None:
    """Raise InputError if columns of ``labels`` fit ``outputs`` far better in another order."""
    moved = columns_moved(outputs, labels)
    if moved:
        pairs = [f"{label} fits column {output} of the output" for label, output in moved.items()]
        raise InputError(
            f"columns of the labels fit what {model} answers far better in another order: "
            f"{', '.join(pairs[:_NAMED])}{', …' if pairs[_NAMED:] else ''}",
            hint="give labels whose columns have the order of the first output's",
        )


def columns_moved(outputs: Sequence[Array], labels: Array) -> Moved:
    """Return, by label column, the output column that explains it far better than the column at the same position."""
    least_moved_explained = 0.5
    # Limit on the variance not explained by the better column, relative to the column at the same position.
    far_better = 0.25
    fewest_rows = 20  # of columns
    width = outputs[0].shape[-1] if outputs[0].ndim else 1
    if not 1 < width <= scores.MOST_SINGLE or any(o.size != e.size for o, e in zip(outputs, labels, strict=True)):
        return {}
    if len(labels) < fewest_rows:
        return {}
    explained = _explained_shares(np.concatenate([o.reshape(-1, width) for o in outputs]), labels.reshape(-1, width))
    places = np.arange(width)
    best = explained.argmax(axis=1)
    own, other = explained[places, places], explained[places, best]
    is_moved = (best != places) & (other >= least_moved_explained) & (1.0 - other <= far_better * (1.0 - own))
    moved = {int(place): int(best[place]) for place in np.flatnonzero(is_moved)}
    return moved if len(moved) >= _FEWEST_MOVED and len(set(moved.values())) == len(moved) else {}


def _explained_shares(given: Array, wanted: Array) -> Array:
    """Return the share of each ``wanted`` column's variance that each ``given`` column explains, [wanted, given]."""
    units = []
    for array in (wanted, given):
        varying = array.astype(np.float64)
        with np.errstate(all="ignore"):  # normalise first, as squares may overflow or underflow
            varying = varying / np.abs(varying).max(axis=0)
            varying = varying - varying.mean(axis=0)
            units.append(varying / np.sqrt(np.square(varying).sum(axis=0)))
    related = np.nan_to_num(units[0].T @ units[1], nan=0.0)
    return np.asarray(np.square(np.clip(related, 0.0, 1.0)))


FLOAT_MODEL = "the float model"

_LEAST_LABELS = 10
_OTHERS = 8  # limit on other samples whose labels are compared with a sample's own
# Shares of the variance that optimally scaled and shifted answers explain. If the answers as given explain less than
# the first share of it, labels are a poor measure of errors. Below the second share, labels have another unit.
_LEAST_EXPLAINED, _OTHER_UNIT = 0.5, 0.1


def check_varied(labels: Array) -> None:
    """Raise InputError if the labels of all samples are equal or not finite."""
    if labels.dtype.kind not in "biuf" or not labels.size:
        return
    check_finite(labels)
    if len(labels) > 1 and (labels == labels[0]).all():
        first = labels[0].item() if labels[0].ndim == 0 else "the same array"
        hint = "give samples of several classes, or no labels"
        raise InputError(f"all {len(labels)} labels are {first}, which cannot measure accuracy", hint=hint)


def check_finite(labels: Array) -> None:
    """Raise InputError for labels that are not finite."""
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels are not finite", hint="remove samples without a label")


def doubt(outputs: Sequence[Array], labels: Array, model: str) -> str | None:
    """Return why ``labels`` may be wrong for scoring ``model``, or None."""
    outputs, labels = scores.compared(outputs, labels)
    try:
        check_finite(labels)
        check_class_numbers(outputs, labels)
        check_answers(outputs, labels, model)
    except InputError as error:
        return str(error)
    what = misfit(outputs, labels) if len(labels) >= _LEAST_LABELS else None  # few labels may fit by chance
    return None if what is None else misfit_text(what, len(labels), model)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Labels, or columns of labels, that fit answers no better than chance.

    ``common``: the most frequent class and the share in percent, if too large to distinguish a fit from chance
    """

    what: str
    common: tuple[int, float] | None = None


def misfit_text(found: Misfit, count: int, model: str) -> str:
    """Return a message about a misfit of ``count`` labels."""
    if found.common is not None:
        return (
            f"{found.common[1]:.0f} % of the labels of {counted(count, 'sample')} are of class {found.common[0]}, so "
            f"that chance may get as many right as {model}; give more samples of other classes"
        )
    return (
        f"{found.what} of {counted(count, 'sample')} fit the answers of {model} no better than chance, or are far "
        "from them, so they cannot measure accuracy; give correct labels, more labels, or a better model"
    )


def unscored_text(places: Sequence[int]) -> str:
    """Return a message about columns with equal labels for all samples."""
    return (
        f"{scores.same_labels_text(places)} and cannot score these columns: limits also apply without labels; "
        "give samples for which they vary"
    )


@contextmanager
def meant_for(names: Sequence[str], place: int) -> Iterator[None]:
    """For a model with several outputs, add to errors that labels are compared with the output at ``place`` only."""
    try:
        yield
    except InputError as error:
        if len(names) < 2:
            raise
        only = f"labels are compared with output {names[place]!r} alone, none of the other {len(names) - 1}"
        raise InputError(error.message, hint=only if error.hint is None else f"{only}: {error.hint}") from error


def check_answers(outputs: Sequence[Array], labels: Array, model: str = FLOAT_MODEL) -> None:
    """Raise InputError for labels that contradict the first output of ``model``.

    Such labels have unknown, shifted or renumbered classes, columns in another order, inverted signs or another unit.
    """
    if scores.is_yes_or_no(labels) or scores.score(outputs, labels)[0] != "top1_percent":
        check_column_order(outputs, labels, model)
    if scores.score(outputs, labels)[0] == "top1_percent":
        _check_classes(*scores.compared(outputs, labels), model)
        return
    if scores.is_yes_or_no(labels):
        _check_yes_and_no(outputs, labels, model)
        return  # yes-or-no labels have no unit
    for place, found in _columns(outputs, labels).items():
        if found.at_best >= _LEAST_EXPLAINED:  # another check reports badly predicted columns
            _check_unit(f"labels of column {place}", len(labels), found, model)
    _check_unit("labels", len(labels), _explained(outputs, labels), model)


def _check_yes_and_no(outputs: Sequence[Array], labels: Array, model: str) -> None:
    inverse = np.where(labels > 0, 0, 1)
    if (threshold := scores.yes_above(outputs, inverse)) is None:
        return
    answers = scores.said(outputs, threshold)
    right = scores.score(answers, inverse)[1]
    if _luck(np.stack(answers).ravel() > 0, inverse.ravel() > 0) < scores.UNLIKELY:
        raise InputError(
            f"{model} gets {100.0 - right:.3g} % of the labels right, and {right:.3g} % of their inverse: yes and no "
            "seem to be exchanged",
            hint="give 1 where the first output says yes, else 0, or none",
        )


def _luck(answers: Array, labels: Array) -> float:
    """Return the probability that a random order gives at least as many matching yes answers (Fisher's exact test)."""
    said_yes, yes, met = (int(np.count_nonzero(a)) for a in (answers, labels, answers & labels))
    no = labels.size - yes
    ways = sum(math.comb(yes, k) * math.comb(no, said_yes - k) for k in range(met, min(yes, said_yes) + 1))
    return ways / math.comb(labels.size, said_yes)


def _check_unit(what: str, count: int, found: _Explained, model: str) -> None:
    if -found.related * math.sqrt(count) > scores.DEVIATIONS and found.at_best >= _LEAST_EXPLAINED:
        raise InputError(
            f"{what} fall where the answers of {model} rise (correlation {found.related:.2g}): they seem to be negated",
            hint="give labels with the sign of the first output, or none",
        )
    if found.is_related(count) and found.as_given <= _OTHER_UNIT * found.at_best:
        raise InputError(
            f"{what} rise and fall with the answers of {model}, but are far from them: the answers explain "
            f"{found.at_best:.2g} of their variance if scaled and shifted, {found.as_given:.2g} as given (R2): labels "
            "seem to be in another unit, or the model is poor",
            hint="give labels in the unit of the first output and from the same zero, or a better model, or no labels",
        )


def check_class_numbers(outputs: Sequence[Array], labels: Array) -> None:
    """Raise InputError for class labels that are not indices into the first output's classes."""
    outputs, labels = scores.compared(outputs, labels)
    classes = _classes_of(outputs)
    if classes is None or not labels.size or scores.chosen_classes(outputs, labels) is None:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        hint = "number classes from 0, like the outputs"
        raise InputError(f"labels are {low} to {high}, the model's {classes} classes 0 to {classes - 1}", hint=hint)


def _classes_of(outputs: Sequence[Array]) -> int | None:
    return outputs[0].shape[-1] if outputs[0].dtype.kind not in "iu" and outputs[0].ndim else None


def _check_classes(outputs: Sequence[Array], labels: Array, model: str) -> None:
    least_to_tell_luck = 20
    least_right_percent = 50.0
    # Labels shifted by one count as right if the number of right answers grows by this factor.
    much_better = 2.0
    if labels.size < _LEAST_LABELS:
        return
    chosen = scores.chosen_classes(outputs, labels)
    assert chosen is not None
    many = _classes_of(outputs) or max(int(labels.max()), int(chosen.max())) + 1
    right = {shift: scores.score(outputs, labels.astype(np.int64) + shift)[1] for shift in (0, -1, 1)}
    for shift in (-1, 1):
        if right[shift] >= max(least_right_percent, much_better * right[0]):
            what, hint = _shifted(chosen, labels.ravel(), shift, many)
            raise InputError(
                f"{model} gets {right[0]:.0f} % of the labels right, and {right[shift]:.0f} % of them with "
                f"{shift:+d}: they seem to be {what}",
                hint=hint,
            )
    check_class_order(chosen, labels, many, model)
    _check_own(chosen.reshape(len(labels), -1), labels.reshape(len(labels), -1), model)
    found = scores.by_chance(outputs, labels)
    if found is None or labels.size < least_to_tell_luck:
        return
    guessed = scores.guessing(outputs, labels)
    is_luck = found.may_be(right[0])
    if is_luck or right[0] < guessed.least_percent:
        than = f"no better than guessing ({found.percent:.3g} %)" if is_luck else f"guessing {guessed.percent:.3g} %"
        common = _common(labels) if is_luck else None
        more = (
            "more of them" if common is None else f"more samples of other classes than {common[0]} ({common[1]:.0f} %)"
        )
        raise InputError(
            f"{model} gets {right[0]:.3g} % of the labels right, {than}: they seem to belong to other samples, or to "
            "be numbered otherwise, or inputs to have another unit or order than in training, or the model is poor",
            hint=f"give labels in the samples' order and in the model's classes, {more}, a better model, or no labels",
        )


def _check_own(answers: Array, labels: Array, model: str) -> None:
    """Raise InputError if ``answers``, [samples, rows], fit labels of wrong samples as well as of the right samples.

    This detects exchanged samples even if many rows are right by chance, as when each row usually has the same class.
    """
    shifts = range(1, min(len(labels), 1 + _OTHERS))
    if labels.shape[1] < 2 or not shifts:
        return
    own = np.mean(answers == labels, axis=1)
    others = np.mean([np.mean(answers == np.roll(labels, by, axis=0), axis=1) for by in shifts], axis=0)
    better, worse = int(np.count_nonzero(own > others)), int(np.count_nonzero(own < others))
    if better + worse >= _LEAST_LABELS and scores.sign_test(better, worse) > scores.UNLIKELY:
        raise InputError(
            f"{model} gets {100.0 * own.mean():.3g} % of the labels right, and {100.0 * others.mean():.3g} % of those "
            f"of other samples, which its answers fit as well for {worse} of {better + worse}: labels seem to belong "
            "to other samples",
            hint="give labels in the samples' order, or none",
        )


def _common(labels: Array) -> tuple[int, float] | None:
    """Return the most frequent class of labels and the share in percent, or None if it is not too frequent."""
    # With this share of the most frequent class or more, chance gives too many right answers.
    most_common = 2.0 / 3.0
    classes, counts = np.unique(labels, return_counts=True)
    most = int(counts.argmax())
    share = float(counts[most]) / labels.size
    return (int(classes[most]), 100.0 * share) if share >= most_common else None


def _shifted(chosen: Array, labels: Array, shift: int, classes: int) -> tuple[str, str]:
    """Return the likely numbering of labels that fit after adding ``shift``, and the remedy."""
    first, last = (0, classes - 1) if shift < 0 else (classes - 1, 0)
    at_end = chosen[labels == first]
    hint = "number classes in the order of the outputs"
    if at_end.size and 2 * np.count_nonzero(at_end == last) > at_end.size:
        return f"rotated by one class, as those with {first} are mostly answered by {last}", hint
    is_from_one = shift < 0 and not at_end.size
    return "off by one class", "number classes from 0, like the outputs" if is_from_one else hint


def misfit(outputs: Sequence[Array], labels: Array) -> Misfit | None:
    """Return the labels that fit answers no better than chance, or None if all fit better.

    Labels of wrong samples or in another unit are useless: errors are the same before and after quantising.
    """
    outputs, labels = scores.compared(outputs, labels)
    found = scores.by_chance(outputs, labels)
    if found is not None:
        right = scores.score(outputs, labels)[1]
        if right > found.most_percent:
            return None
        return Misfit("labels", _common(labels) if right > found.percent else None)
    columns = [place for place, at in _columns(outputs, labels).items() if not at.is_near(len(labels))]
    if columns:
        return Misfit(f"labels of {'columns' if len(columns) > 1 else 'column'} {', '.join(map(str, columns))}")
    return None if _explained(outputs, labels).is_near(len(labels)) else Misfit("labels")


@dataclass(frozen=True, slots=True)
class _Explained:
    """Correlation of answers and labels, and the explained share of the labels' variance.

    ``as_given``: share that the answers explain. ``at_best``: share that optimally scaled and shifted answers explain.
    """

    related: float
    as_given: float

    @property
    def at_best(self) -> float:
        return self.related**2

    def is_related(self, count: int) -> bool:
        """Return whether ``count`` labels correlate with answers beyond chance."""
        return self.related * math.sqrt(count) > scores.DEVIATIONS

    def is_near(self, count: int) -> bool:
        """Return whether labels correlate with answers and are close to answers."""
        return self.is_related(count) and self.as_given > _LEAST_EXPLAINED * self.at_best


def _columns(outputs: Sequence[Array], labels: Array) -> dict[int, _Explained]:
    """Return :class:`_Explained` by column, for outputs of few columns, each possibly a separate quantity."""
    if scores.score(outputs, labels)[0] != "rmse":
        return {}
    found = scores.columns_of_labels(outputs, labels, "rmse")
    return {place: _explained([output[..., place] for output in outputs], wanted) for place, wanted in found.items()}


def _explained(outputs: Sequence[Array], labels: Array) -> _Explained:
    given, wanted = (np.stack([np.ravel(a) for a in arrays]).astype(np.float64) for arrays in (outputs, labels))
    with np.errstate(all="ignore"):
        unit = np.abs(wanted).max()  # squares of very large or small numbers overflow or underflow
        given, wanted = given / unit, wanted / unit
        varying = wanted - wanted.mean(axis=0)
        as_given = 1.0 - float(np.square(given - wanted).sum() / np.square(varying).sum())
        given = given - given.mean(axis=0)
        given /= np.abs(given).max()
        related = float((given * varying).sum() / np.sqrt(np.square(given).sum() * np.square(varying).sum()))
    return _Explained(related, as_given)
