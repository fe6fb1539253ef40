"""Scores by known answers, before and after quantising: classes with their recall, numbers by column.

Few columns of numbers may be quantities in different units. Each is scored in parts of the range of its own labels,
and the column that loses most decides. Many columns are of one kind, such as steps of a forecast, unless most are
small beside others. They are scored together and, so that a single lost column shows, one by one in parts of the
common range.

Outliers stretch the range of labels and hide errors of all others. The allowed loss therefore also applies without
labels beyond the outer fences (Tukey, "Exploratory Data Analysis", 1977: three times the distance of the quartiles).

The recall of each class is compared sample by sample with a sign test: a frequent class may gain the answers that a
rare one loses, and the share of right answers then does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.formats.quantities import counted, score_text, without_far_text
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.ranges import most_sizes_differ, sizes_differ
from odc_mlir.runtime.reporting.scoring import (
    LOWER_IS_BETTER,
    MOST_SINGLE,
    OF_NUMBERS,
    are_shares,
    chosen_classes,
    compared,
    scores,
    scores_of_numbers,
    scores_of_pictures,
    sign_test,
)

Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Near:
    """The RMSE before and after over labels without so many that are ``far`` out."""

    far: int
    before: float
    after: float

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        return {"far": self.far, "float": self.before, "quantized": self.after}


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """What one column scores, before and after, and by how much the first of these measures falls."""

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
    """Scores of a quantised model: of all columns and of single ``columns``, the worst first.

    ``count``: number of scored columns. Columns of one kind have a common ``drop``, and the worst of them
    ``column_drop``. ``near``: scores without outlying labels.
    """

    after: Mapping[str, float]
    drop: float
    columns: Sequence[ColumnScore] = ()
    count: int = 0
    near: Near | None = None
    column_drop: float | None = None

    @property
    def worst(self) -> ColumnScore | None:
        """Column that loses most and sets ``drop``; None if all are scored together."""
        return self.columns[0] if self.columns and self.column_drop is None else None

    def parts(self) -> dict[str, Any]:
        """Return the verdict's entries: the deciding column, the others, and the score without outliers."""
        worst = self.worst
        found: dict[str, Any] = {} if worst is None else {"column": worst.column}
        if self.columns:
            found |= {"columns": [item.to_dict() for item in self.columns], "columns_scored": self.count}
        near = self.near if worst is None else worst.near
        return found if near is None else found | {"without_far": near.to_dict()}


class Scorer:
    """Scorer of answers by ``labels``, relative to the float model's ``answers``, one array for each sample.

    ``before``: scores of the float model; ``unscored``: columns whose labels never vary.
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
        """Whether labels are numbers in many columns of one kind."""
        return self._many is not None

    def of(self, answers: Sequence[Array]) -> Scored:
        """What ``answers`` of another model score."""
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
    """Return score lines for the ``answers`` of one model: all together, or by column, the worst first."""
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
    lines += [f"{left} columns that are told better are left out"] if left > 0 else []
    return lines + ([f"{same_labels_text(scorer.unscored)} and have no score"] if scorer.unscored else [])


def _without_far(metric: str, near: Near | None) -> list[str]:
    return [] if near is None else [f"  {without_far_text(near.far)} {score_text(metric, near.before)}"]


def same_labels_text(places: Sequence[int]) -> str:
    """That labels of the columns at ``places`` never vary."""
    named = 4
    some = ", ".join(map(str, places[:named])) + (", …" if len(places) > named else "")
    return f"labels of column{'s' if len(places) > 1 else ''} {some} are the same for all samples"


def columns_of_labels(answers: Sequence[Array], labels: Array, metric: str) -> dict[int, Array]:
    """The labels of each of few columns that may be quantities of their own, [samples, rows]; without constant ones."""
    if metric not in OF_NUMBERS or _cube(answers, labels).shape[-1] > MOST_SINGLE:
        return {}
    return {place: _cube(answers, labels)[..., place] for place in _own_columns(answers, labels)}


def _cube(answers: Sequence[Array], labels: Array) -> Array:
    """Labels as [samples, rows, columns]; a single column where answers have several widths, or none."""
    widths = {answer.shape[-1] if answer.ndim else 1 for answer in answers}
    return labels.reshape(len(labels), -1, widths.pop() if len(widths) == 1 else 1)


def _own_columns(answers: Sequence[Array], labels: Array) -> list[int]:
    """Return the varying columns that are quantities of their own: few columns, or most of them small.

    Shares between 0 and 1 are of one kind, unless they are single rows of columns that differ in size.
    """
    most_axes = 2  # of outputs that are no pictures: the batch and the columns
    cube = _cube(answers, labels)
    width, rows = cube.shape[-1], cube.reshape(-1, cube.shape[-1])
    low, high = (end(rows, axis=0).astype(np.float64) for end in (np.min, np.max))
    is_of_one_kind = are_shares(labels) and (answers[0].ndim > most_axes or not sizes_differ(low, high))
    if width == 1 or is_of_one_kind or (width > MOST_SINGLE and not most_sizes_differ(low, high)):
        return []
    return np.flatnonzero((cube != cube[:1]).any(axis=(0, 1))).tolist()


class _Numbers:
    """Numeric labels, [samples, rows, columns], with the float model's answers.

    ``places``: scored columns, default all. ``alike``: columns are of one kind, and errors relative to the range of
    all.
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
        """How many columns are scored."""
        return len(self._places)

    def compared(self, answers: Sequence[Array]) -> list[ColumnScore]:
        """Return the scores of the columns that lose most, the worst first; of equal ones the worst before."""
        listed = 16  # columns, of which those that lose most are told of
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
        """Return the drop of each column in dB, or the growth of its RMSE in % of the labels' range."""
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
    """Labels ``where`` errors count, with the range and the float model's error of each column."""

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
        """RMSE of the float model by column, in parts of the labels' range."""
        return self._before / self._spans

    def growth(self, labels: Reals, after: Reals) -> Reals:
        """Return the growth of each column's RMSE in % of the labels' range."""
        return _falls(-self._before, -_rmse(labels, after, self._where)) * 100.0 / self._spans

    def column(self, number: int, labels: Reals, after: Reals) -> Near | None:
        """What one column scores here; None where no label of it is far out."""
        one = slice(number, number + 1)
        where = self._where[..., one]
        if where.all():
            return None
        found = _rmse(labels[..., one], after[..., one], where)
        return Near(int(np.count_nonzero(~where)), float(self._before[number]), float(found[0]))


def _rmse(labels: Reals, given: Reals, where: NDArray[np.bool_] | None = None) -> Reals:
    """Return the RMSE of each column over labels ``where`` they count; 0 for columns without any."""
    squares, mask = np.square(given - labels), np.ones(labels.shape, bool) if where is None else where
    means = squares.sum(axis=(0, 1), where=mask) / np.maximum(1, np.count_nonzero(mask, axis=(0, 1)))
    return np.asarray(np.sqrt(means))


def _falls(before: Reals, after: Reals) -> Reals:
    """Return the drop of measures; infinite where a number becomes NaN."""
    with np.errstate(invalid="ignore"):
        falls = np.where(before == after, 0.0, before - after)
    return np.asarray(np.where(np.isnan(falls), np.where(np.isnan(before), 0.0, np.inf), falls))


def _near(labels: Reals, alike: bool) -> NDArray[np.bool_]:
    """Return which labels are no outliers, among all or in their column."""
    if alike:
        return _within_fences(labels)
    return np.stack([_within_fences(labels[..., number]) for number in range(labels.shape[-1])], axis=-1)


def _within_fences(labels: Reals) -> NDArray[np.bool_]:
    fences = 3.0  # times the distance of the quartiles
    low, high = np.percentile(np.unique(labels), (25.0, 75.0))
    reach = fences * (high - low)
    return np.asarray((labels >= low - reach) & (labels <= high + reach))


# That chance does what is taken for more: to any class of those that limits are checked on, to one that is told of.
_RISK, _RISK_TOLD = 0.01, 0.05
_NAMED_CLASSES = 3


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall of the class ``label`` in percent, ``before`` and ``after`` quantising, over ``samples`` that have it.

    ``lost`` and ``gained``: samples with fewer and with more right answers.
    """

    label: int
    samples: int
    before: float
    after: float
    lost: int
    gained: int

    @property
    def fall(self) -> float:
        """By how many percentage points it falls."""
        return self.before - self.after

    @property
    def chance(self) -> float:
        """The probability that chance alone loses so many, or more, of those that change."""
        return sign_test(self.lost, self.gained)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        return {"label": self.label, "samples": self.samples, "float": self.before, "quantized": self.after}


def recalls(before: Sequence[Array], after: Sequence[Array], labels: Array) -> list[Recall]:
    """Return the recall of each class that ``labels`` have, by two models' answers; none for other labels."""
    was_chosen, is_chosen = (chosen_classes(answers, labels) for answers in (before, after))
    if was_chosen is None or is_chosen is None or not labels.size:
        return []
    classes, places = np.unique(labels.ravel(), return_inverse=True)
    places = places.reshape(-1)
    was, is_right = ((found == labels.ravel()).astype(np.float64) for found in (was_chosen, is_chosen))
    samples = np.repeat(np.arange(len(labels)), labels.size // len(labels))
    # By how many answers more are right, of each sample that has the class.
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
    """By how many points the recall of a class falls at most that is lost beyond chance; 0 where none is."""
    return max((item.fall for item in found if item.chance <= _RISK / len(found)), default=0.0)


def recall_findings(found: Sequence[Recall]) -> list[str]:
    """Return texts for classes that lose more than ten points of recall."""
    # What is told of, in percentage points.
    told_points = 10.0
    lost = [item for item in found if item.fall > told_points and item.chance <= _RISK_TOLD]
    lost.sort(key=lambda item: -item.fall)
    luck = "" if recall_drop(found) else ", or it is luck, which recall_drop leaves out"
    return [
        f"recall of class {item.label} falls from {item.before:.1f} to {item.after:.1f} % "
        f"({counted(item.samples, 'sample')}): what tells it from others is finer than codes{luck}; more bits for the "
        "last layers may keep it"
        for item in lost[:_NAMED_CLASSES]
    ]


def never_answered(name: str, outputs: Sequence[Array], classes: int) -> str | None:
    """Return the text for ``classes`` that no sample has; None if all occur or samples are fewer.

    ``outputs``: scores of each sample, [..., classes] in rows, of the output called ``name``.
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
        "whether the quantised one does is not checked; give samples of them"
    )


def by_loss(classes: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Of a verdict's classes so many at ``most``, those first that lose most."""
    return sorted(classes, key=lambda item: item["quantized"] - item["float"])[:most]
