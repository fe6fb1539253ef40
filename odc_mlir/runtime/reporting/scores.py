"""Scores by known answers, before and after quantising: recall of classes, errors of numbers by column.

If columns are few, a column is scored relative to the range of the labels of this column, and the worst score decides.
Many columns of the same kind are scored together, relative to the common range. Outliers hide other errors. Therefore
the allowed loss also applies to labels inside the outer fences (Tukey, "Exploratory Data Analysis", 1977).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError
from odc_mlir.formats.quantities import counted, score_text, without_far_text
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.ranges import most_sizes_differ, sizes_differ

_MOST_CLASSES = 1 << 31
# Number of standard deviations above the chance level that still count as chance, at most half-way to 100 %.
DEVIATIONS = 3.0
UNLIKELY = math.erfc(DEVIATIONS / math.sqrt(2.0)) / 2.0  # probability of a larger deviation to one side
_MOST_OF_REST = 0.5
_MOST_EXACT = 1000  # largest number of trials for an exact test instead of the normal approximation
# Logits and shares above these values mean yes.
_LOGIT, _SHARE = 0.0, 0.5
_NO_AND_YES = ([0.0, 1.0], [-1.0, 1.0])
LOWER_IS_BETTER = frozenset({"rmse", "mae"})
MOST_SINGLE = 16  # largest number of columns that may be separate quantities
OF_NUMBERS = frozenset({"rmse", "psnr_db"})  # metrics for labels with as many numbers as the output


def score(outputs: Sequence[Array], expected: Array) -> tuple[str, float]:
    """Return the name and value of the first score of :func:`scores`, for one output per sample."""
    return next(iter(scores(outputs, expected).items()))


def scores(outputs: Sequence[Array], expected: Array) -> dict[str, float]:
    """Return the scores for this kind of answers, the decisive score first. Raises InputError if no kind fits.

    Classes (:func:`as_classes`), yes and no (:func:`yes_above`), and integers: ``top1_percent`` (the lower class wins
    ties). Numbers between 0 and 1 in pictures (several axes, or more than 16 elements): ``psnr_db``. Other numbers:
    ``rmse``, ``mae`` and ``r2``, the explained share of the variance of ``expected``.
    """
    if len(outputs) != len(expected):
        raise InputError(f"got {counted(len(expected), 'label')} for {counted(len(outputs), 'sample')}")
    outputs, expected = compared(outputs, expected)
    if (chosen := chosen_classes(outputs, expected)) is not None:
        return {"top1_percent": 100.0 * float(np.mean(chosen == expected.ravel()))}
    if expected.dtype.kind not in "fiu" or not all(_are_alike(o, e) for o, e in zip(outputs, expected, strict=True)):
        kind = "text" if expected.dtype.kind in "SU" else expected.dtype.name
        raise InputError(
            f"the labels, {kind} {list(expected.shape[1:])} for each sample, are neither class numbers "
            f"nor arrays like the first output, {list(outputs[0].shape)}",
            hint="give a whole number from 0 for each sample or row, one-hot rows, or arrays of the output's shape",
        )
    given = np.stack([o.ravel().astype(np.float64) for o in outputs])
    wanted = expected.reshape(len(expected), -1).astype(np.float64)
    # PSNR is meaningless for few numbers.
    if are_shares(expected) and any(output.size > MOST_SINGLE or np.squeeze(output).ndim > 1 for output in outputs):
        return scores_of_pictures(given, wanted)
    return scores_of_numbers(given, wanted)


def are_shares(labels: Array) -> bool:
    """Return whether labels are reals between 0 and 1."""
    return labels.dtype.kind == "f" and float(labels.min(initial=0.0)) >= 0.0 and float(labels.max(initial=1.0)) <= 1.0


def _are_alike(output: Array, labels: Array) -> bool:
    """Return whether the order of elements is the same: equal shapes apart from axes of 1, or a flat shape.

    Equal sizes with different shapes mean another order of labels, such as channels first.
    """
    forms = [tuple(extent for extent in array.shape if extent != 1) for array in (output, labels)]
    return output.size == labels.size and (forms[0] == forms[1] or min(map(len, forms)) <= 1)


def scores_of_pictures(given: NDArray[np.float64], wanted: NDArray[np.float64]) -> dict[str, float]:
    """Return ``psnr_db`` of numbers between 0 and 1, [samples, elements]. It is infinite for equal numbers."""
    with np.errstate(divide="ignore"):
        return {"psnr_db": float(-10.0 * np.log10(np.square(given - wanted).mean()))}


def scores_of_numbers(given: NDArray[np.float64], wanted: NDArray[np.float64]) -> dict[str, float]:
    """Return ``rmse``, ``mae`` and ``r2`` of numbers, [samples, elements]. R² is NaN if no element varies."""
    squares = float(np.square(given - wanted).mean())
    spread = float(np.square(wanted - wanted.mean(axis=0)).mean())
    r2 = 1.0 - squares / spread if spread else float("nan")
    return {"rmse": float(np.sqrt(squares)), "mae": float(np.abs(given - wanted).mean()), "r2": r2}


def compared(outputs: Sequence[Array], expected: Array) -> tuple[Sequence[Array], Array]:
    """Convert labels and answers to class numbers, if labels are classes, or to 0 and 1, if labels are yes or no."""
    if (threshold := yes_above(outputs, expected)) is not None:
        return said(outputs, threshold), (expected > 0).astype(np.int64)
    return outputs, as_classes(outputs, expected)


def said(outputs: Sequence[Array], threshold: float) -> list[Array]:
    """Convert outputs to int64: 1 (yes) above ``threshold``, else 0 (no)."""
    return [(output > threshold).astype(np.int64) for output in outputs]


def yes_above(outputs: Sequence[Array], expected: Array) -> float | None:
    """Return the threshold above which outputs mean yes: 0 for logits, 0.5 for shares, or None for other labels.

    These labels are booleans, or have two values (1, and 0 or -1), and the outputs predict labels better than chance.
    Outputs near 0 and 1, such as outputs of regressions, count as shares.
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
    """Return whether labels have two values: 1, and either 0 or -1."""
    return expected.dtype.kind in "biuf" and np.unique(expected).astype(np.float64).tolist() in _NO_AND_YES


@dataclass(frozen=True, slots=True)
class Chance:
    """Chance level: ``percent`` of right labels, with bounds at three standard deviations."""

    percent: float
    deviation: float

    @property
    def most_percent(self) -> float:
        return self.percent + DEVIATIONS * self.deviation

    @property
    def least_percent(self) -> float:
        return self.percent - DEVIATIONS * self.deviation

    def may_be(self, right_percent: float) -> bool:
        """Return whether a score may be due to chance. A score more than half-way from chance to 100 % is not."""
        return right_percent <= min(self.most_percent, self.percent + _MOST_OF_REST * (100.0 - self.percent))


def by_chance(outputs: Sequence[Array], labels: Array) -> Chance | None:
    """Estimate the score of the same answers in random order, or None if answers are no classes."""
    labels = as_classes(outputs, labels)
    chosen = chosen_classes(outputs, labels)
    if chosen is None or not chosen.size:
        return None
    classes, counts = np.unique(labels, return_counts=True)
    answers = np.array([np.count_nonzero(chosen == number) for number in classes])
    share = float(np.dot(counts / labels.size, answers / labels.size))
    return _chance(share, labels.size)


def guessing(outputs: Sequence[Array], labels: Array) -> Chance:
    """Return the chance level of guessing one of the classes of labels and answers.

    If no label has the classes of most answers, classes are unrelated, and only the labels' classes count.
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
    """Return the probability that chance changes at least ``more`` of ``more + less`` samples in the same direction."""
    changed = more + less
    if changed > _MOST_EXACT:
        return math.erfc((more - less - 1) / math.sqrt(2.0 * changed)) / 2.0
    return sum(math.comb(changed, k) for k in range(more, changed + 1)) / (1 << changed)


def as_classes(outputs: Sequence[Array], expected: Array) -> Array:
    """Convert one-hot rows or whole reals in ``expected`` to class numbers, int64. Return other labels unchanged.

    One-hot rows are as long as the outputs' last axis, and have a single one among zeros. Booleans become 0 and 1.
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
    width = _classes(outputs[0]) if len(outputs) else 0
    if not width or any(o.size != e.size or _classes(o) != width for o, e in zip(outputs, expected, strict=True)):
        return None
    rows = expected.reshape(-1, width)
    is_one_hot = ((rows == 0) | (rows == 1)).all() and (np.count_nonzero(rows, axis=1) == 1).all()
    return rows.argmax(axis=1).reshape(len(expected), -1) if is_one_hot else None


def chosen_classes(outputs: Sequence[Array], expected: Array) -> Array | None:
    """Return the answered class for each element of ``expected``, or None if ``expected`` holds no classes.

    The class is the index of the largest element, or the value of an integer output.
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
    return _has_rows(outputs, expected) or (expected.ndim == 1 and all(o.size > 1 for o in outputs))


def _has_rows(outputs: Sequence[Array], expected: Array) -> bool:
    return all(_classes(o) > 0 and _are_alike(o[..., 0], e) for o, e in zip(outputs, expected, strict=True))


def _classes(output: Array) -> int:
    return output.shape[-1] if output.ndim and output.shape[-1] > 1 else 0


Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Near:
    """RMSE except outliers, before and after quantising. ``far``: number of outliers."""

    far: int
    before: float
    after: float

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        return {"far": self.far, "float": self.before, "quantized": self.after}


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """Score of one column before and after quantising. ``drop``: decrease of the first metric."""

    column: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    drop: float
    near: Near | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        metric = next(iter(self.before))
        found = {"column": self.column, "float": self.before[metric], "quantized": self.after[metric]}
        return found | {"drop": self.drop} | ({} if self.near is None else {"without_far": self.near.to_dict()})


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of a quantised model over all columns, and of single ``columns``, worst first.

    ``count``: number of scored columns. ``drop``: loss, common to columns of the same kind. ``column_drop``: loss of
        the worst of these columns. ``near``: scores over labels that are no outliers.
    """

    after: Mapping[str, float]
    drop: float
    columns: Sequence[ColumnScore] = ()
    count: int = 0
    near: Near | None = None
    column_drop: float | None = None

    @property
    def worst(self) -> ColumnScore | None:
        """Column with the largest loss, which is ``drop``, or None if all columns are scored together."""
        return self.columns[0] if self.columns and self.column_drop is None else None

    def parts(self) -> dict[str, Any]:
        """Return the verdict's entries: the deciding column, all other columns, and the score without outliers."""
        worst = self.worst
        found: dict[str, Any] = {} if worst is None else {"column": worst.column}
        if self.columns:
            found |= {"columns": [item.to_dict() for item in self.columns], "columns_scored": self.count}
        near = self.near if worst is None else worst.near
        return found if near is None else found | {"without_far": near.to_dict()}


class Scorer:
    """Scorer by ``labels`` of answers relative to the float model's ``answers`` (one array per sample).

    ``before``: scores of the float model. ``unscored``: columns with labels that never vary
    """

    def __init__(self, answers: Sequence[Array], labels: Array) -> None:
        self.labels = labels
        self.before = scores(answers, labels)
        self.metric = next(iter(self.before))
        self.unscored: list[int] = []
        self._all, self._own, self._many = None, None, None
        if self.metric not in OF_NUMBERS:
            return
        cube = _cube(answers, labels)
        width = cube.shape[-1]
        if places := _own_columns(answers, labels):
            self.unscored = sorted(set(range(width)).difference(places))
            self._own = _Numbers(answers, cube, self.metric, places)
            return
        self._all = _Numbers(answers, cube.reshape(len(cube), -1, 1), self.metric)
        if self.metric in LOWER_IS_BETTER and width > MOST_SINGLE:
            self._many = _Numbers(answers, cube, self.metric, alike=True)

    @property
    def has_many(self) -> bool:
        """Whether labels are numbers in many columns of the same kind."""
        return self._many is not None

    def of(self, answers: Sequence[Array]) -> Scored:
        """Return the score of another model's ``answers``."""
        after = scores(answers, self.labels)
        if self._own is not None:
            found = self._own.compared(answers)
            return Scored(after, found[0].drop, found, self._own.count)
        if self._all is None:
            return Scored(after, self.before[self.metric] - after[self.metric])
        every = self._all.compared(answers)[0]
        if self._many is None:
            return Scored(after, every.drop, near=every.near)
        found = self._many.compared(answers)
        return Scored(after, every.drop, found, self._many.count, every.near, found[0].drop)


def score_lines(answers: Sequence[Array], labels: Array) -> list[str]:
    """Return score lines for the ``answers`` of one model: for all columns together, or by column, worst first."""
    answers, labels = compared(answers, labels)
    scorer = Scorer(answers, labels)
    found = scorer.of(answers)
    over = f"over {counted(len(answers), 'sample')}"
    lines = []
    if found.worst is None:
        lines = [f"{scorer.metric} {score_text(scorer.metric, scorer.before[scorer.metric])} {over}"]
        lines += _without_far(scorer.metric, found.near)
    for item in found.columns:
        metric, value = next(iter(item.before.items()))
        r2 = f" (r2 {item.before['r2']:.3g})" if "r2" in item.before else ""
        lines.append(f"{metric} of column {item.column} {score_text(metric, value)}{r2} {over}")
        lines += _without_far(metric, item.near)
    left = found.count - len(found.columns)
    lines += [f"{left} columns with better scores are left out"] if left > 0 else []
    return lines + ([f"{same_labels_text(scorer.unscored)} and have no score"] if scorer.unscored else [])


def _without_far(metric: str, near: Near | None) -> list[str]:
    return [] if near is None else [f"  {without_far_text(near.far)} {score_text(metric, near.before)}"]


def same_labels_text(places: Sequence[int]) -> str:
    """Return a message about columns with labels that never vary."""
    named = 4
    some = ", ".join(map(str, places[:named])) + (", …" if len(places) > named else "")
    return f"labels of column{'s' if len(places) > 1 else ''} {some} are the same for all samples"


def columns_of_labels(answers: Sequence[Array], labels: Array, metric: str) -> dict[int, Array]:
    """Return labels [samples, rows] by varying column, if columns are few and may be separate quantities."""
    if metric not in OF_NUMBERS or _cube(answers, labels).shape[-1] > MOST_SINGLE:
        return {}
    return {place: _cube(answers, labels)[..., place] for place in _own_columns(answers, labels)}


def _cube(answers: Sequence[Array], labels: Array) -> Array:
    """Return labels as [samples, rows, columns], with a single column if answers differ in width or are scalars."""
    widths = {answer.shape[-1] if answer.ndim else 1 for answer in answers}
    return labels.reshape(len(labels), -1, widths.pop() if len(widths) == 1 else 1)


def _own_columns(answers: Sequence[Array], labels: Array) -> list[int]:
    """Return the varying columns that are separate quantities: there are few columns, or most differ in size.

    Columns of shares between 0 and 1 are separate only if each sample is one row, and columns differ in size.
    """
    most_axes = 2  # an output with more axes than batch and columns is a picture
    cube = _cube(answers, labels)
    width, rows = cube.shape[-1], cube.reshape(-1, cube.shape[-1])
    low, high = (end(rows, axis=0).astype(np.float64) for end in (np.min, np.max))
    is_of_one_kind = are_shares(labels) and (answers[0].ndim > most_axes or not sizes_differ(low, high))
    if width == 1 or is_of_one_kind or (width > MOST_SINGLE and not most_sizes_differ(low, high)):
        return []
    return np.flatnonzero((cube != cube[:1]).any(axis=(0, 1))).tolist()


class _Numbers:
    """Numeric labels, [samples, rows, columns], with the float model's answers.

    ``places``: scored columns (default: all). ``alike``: columns of one kind, with errors relative to the common range.
    """

    def __init__(
        self, answers: Sequence[Array], labels: Array, metric: str, places: Sequence[int] = (), *, alike: bool = False
    ) -> None:
        self._metric, self._shape = metric, labels.shape
        self._places = places or range(labels.shape[-1])
        self._labels = self._chosen(labels)
        self._before = self._given(answers)
        near = _near(self._labels, alike)
        counted_by = [np.ones_like(near), *([] if near.all() else [near])]
        self._parts = [_Part(self._labels, self._before, where, alike) for where in counted_by]

    @property
    def count(self) -> int:
        """Number of scored columns."""
        return len(self._places)

    def compared(self, answers: Sequence[Array]) -> list[ColumnScore]:
        """Return the scores of the columns with the largest loss, worst first. Equal losses are ordered by score."""
        listed = 16  # limit on columns
        after = self._given(answers)
        drops = self._drops(after)
        order = np.lexsort((-self._parts[0].shares, -drops))[:listed].tolist()
        return [self._column(number, after, float(drops[number])) for number in order]

    def _given(self, answers: Sequence[Array]) -> Reals:
        return self._chosen(np.stack([np.ravel(answer) for answer in answers]).reshape(self._shape))

    def _chosen(self, cube: Array) -> Reals:
        wide = cube.astype(np.float64)
        return wide if self.count == cube.shape[-1] else wide[..., self._places]

    def _drops(self, after: Reals) -> Reals:
        if self._metric in LOWER_IS_BETTER:
            return np.asarray(np.max([part.growth(self._labels, after) for part in self._parts], axis=0))
        with np.errstate(divide="ignore"):
            before, after = (-20.0 * np.log10(_rmse(self._labels, given)) for given in (self._before, after))
        return _falls(before, after)

    def _column(self, number: int, after: Reals, drop: float) -> ColumnScore:
        of = scores_of_numbers if self._metric in LOWER_IS_BETTER else scores_of_pictures
        labels = self._labels[..., number]
        before, found = (of(given[..., number], labels) for given in (self._before, after))
        near = self._parts[-1].column(number, self._labels, after) if self._metric in LOWER_IS_BETTER else None
        return ColumnScore(self._places[number], before, found, drop, near)


class _Part:
    """The labels selected by ``where``, with the range and the float model's error of each column."""

    def __init__(self, labels: Reals, before: Reals, where: NDArray[np.bool_], alike: bool) -> None:
        self._where = where
        axes = None if alike else (0, 1)
        low, high = (
            end(labels, axis=axes, where=where, initial=start) for end, start in ((np.min, np.inf), (np.max, -np.inf))
        )
        self._spans = np.where(high > low, high - low, 1.0)
        self._before = _rmse(labels, before, where)

    @property
    def shares(self) -> Reals:
        """RMSE of the float model by column, relative to the labels' range."""
        return self._before / self._spans

    def growth(self, labels: Reals, after: Reals) -> Reals:
        """Return the growth of each column's RMSE in % of the labels' range."""
        return _falls(-self._before, -_rmse(labels, after, self._where)) * 100.0 / self._spans

    def column(self, number: int, labels: Reals, after: Reals) -> Near | None:
        """Return the score of one column over the selected labels, or None if the column has no outliers."""
        one = slice(number, number + 1)
        where = self._where[..., one]
        if where.all():
            return None
        found = _rmse(labels[..., one], after[..., one], where)
        return Near(int(np.count_nonzero(~where)), float(self._before[number]), float(found[0]))


def _rmse(labels: Reals, given: Reals, where: NDArray[np.bool_] | None = None) -> Reals:
    """Return the RMSE of each column over labels selected by ``where``, or 0 for columns with no selected labels."""
    squares, mask = np.square(given - labels), np.ones(labels.shape, bool) if where is None else where
    means = squares.sum(axis=(0, 1), where=mask) / np.maximum(1, np.count_nonzero(mask, axis=(0, 1)))
    return np.asarray(np.sqrt(means))


def _falls(before: Reals, after: Reals) -> Reals:
    """Return the decrease of metrics, which is infinite if a number becomes NaN."""
    with np.errstate(invalid="ignore"):
        falls = np.where(before == after, 0.0, before - after)
    return np.asarray(np.where(np.isnan(falls), np.where(np.isnan(before), 0.0, np.inf), falls))


def _near(labels: Reals, alike: bool) -> NDArray[np.bool_]:
    """Return a mask of labels that are no outliers, among all labels or in a column."""
    if alike:
        return _within_fences(labels)
    return np.stack([_within_fences(labels[..., number]) for number in range(labels.shape[-1])], axis=-1)


def _within_fences(labels: Reals) -> NDArray[np.bool_]:
    fences = 3.0  # times the distance of the quartiles
    low, high = np.percentile(np.unique(labels), (25.0, 75.0))
    reach = fences * (high - low)
    return np.asarray((labels >= low - reach) & (labels <= high + reach))


# Accepted probabilities of a loss by chance: over all classes checked against limits, and per reported class.
_RISK, _RISK_REPORTED = 0.01, 0.05
_NAMED_CLASSES = 3


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall of the class ``label`` in percent, ``before`` and ``after`` quantising. ``samples``: samples with it.

    ``lost`` and ``gained``: samples with fewer and with more right answers
    """

    label: int
    samples: int
    before: float
    after: float
    lost: int
    gained: int

    @property
    def fall(self) -> float:
        """Decrease of the recall in percentage points."""
        return self.before - self.after

    @property
    def chance(self) -> float:
        """Probability that chance worsens at least ``lost`` of the changed samples."""
        return sign_test(self.lost, self.gained)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        return {"label": self.label, "samples": self.samples, "float": self.before, "quantized": self.after}


def recalls(before: Sequence[Array], after: Sequence[Array], labels: Array) -> list[Recall]:
    """Return the recall of each class in ``labels``, by the answers of two models, or [] if labels are no classes."""
    was_chosen, is_chosen = (chosen_classes(answers, labels) for answers in (before, after))
    if was_chosen is None or is_chosen is None or not labels.size:
        return []
    classes, places = np.unique(labels.ravel(), return_inverse=True)
    places = places.reshape(-1)
    was, is_right = ((found == labels.ravel()).astype(np.float64) for found in (was_chosen, is_chosen))
    samples = np.repeat(np.arange(len(labels)), labels.size // len(labels))
    # Growth of the number of right answers for each pair of sample and class.
    pairs, inverse = np.unique(samples * len(classes) + places, return_inverse=True)
    change = np.bincount(inverse.reshape(-1), weights=is_right - was)

    def count(of: Array, weights: Array | None = None) -> Array:
        return np.bincount(of, weights, minlength=len(classes))

    total, of_pair = count(places), pairs % len(classes)
    percent = [100.0 * count(places, right) / total for right in (was, is_right)]
    lost, gained = count(of_pair[change < 0]), count(of_pair[change > 0])
    having, (before_percent, after_percent) = count(of_pair), percent
    return [
        Recall(label, int(having[i]), float(before_percent[i]), float(after_percent[i]), int(lost[i]), int(gained[i]))
        for i, label in enumerate(classes.tolist())
    ]


def recall_drop(found: Sequence[Recall]) -> float:
    """Return the largest decrease in recall of a class, in points, beyond chance, or 0 if there is none."""
    return max((item.fall for item in found if item.chance <= _RISK / len(found)), default=0.0)


def recall_findings(found: Sequence[Recall]) -> list[str]:
    """Return messages about classes that lose more than ten points of recall."""
    least_points = 10.0  # percentage points
    lost = [item for item in found if item.fall > least_points and item.chance <= _RISK_REPORTED]
    lost.sort(key=lambda item: -item.fall)
    luck = "" if recall_drop(found) else ", or chance explains it, which recall_drop leaves out"
    return [
        f"recall of class {item.label} falls from {item.before:.1f} to {item.after:.1f} % "
        f"({counted(item.samples, 'sample')}): its scores differ from others by less than the error of codes{luck}; "
        "more bits may keep it"
        for item in lost[:_NAMED_CLASSES]
    ]


def never_answered(name: str, outputs: Sequence[Array], classes: int) -> str | None:
    """Return a message about classes that are never answered, or None if all occur or samples are too few.

    ``outputs``: class scores ``[..., classes]`` of each sample, from the output ``name``
    """
    if len(outputs) < classes or any(output.size % classes for output in outputs):
        return None
    answers = np.concatenate([output.reshape(-1, classes).argmax(axis=1) for output in outputs])
    missing = np.setdiff1d(np.arange(classes), answers)
    if not missing.size:
        return None
    names = ", ".join(map(str, missing[:_NAMED_CLASSES].tolist())) + (", …" if missing.size > _NAMED_CLASSES else "")
    return (
        f"the float model answers {missing.size} of {classes} classes for no sample ({names}) in output {name!r}: "
        "the quantised model is not checked for these; give samples of them"
    )


def by_loss(classes: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return at most ``most`` classes of a verdict, in order of decreasing loss."""
    return sorted(classes, key=lambda item: item["quantized"] - item["float"])[:most]
