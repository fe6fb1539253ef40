"""What known answers score a model with, before and after quantising: columns of numbers each by itself.

An error over columns in several units is that of the largest: one of hundredths may lose all that it says beside one of
thousands. So few columns of numbers, which may be quantities of their own, are scored each in parts of what its own
labels span, and the one that loses most decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.columns import MOST_SINGLE
from odc_mlir.quantizer.policy.sizes import sizes_differ
from odc_mlir.runtime.reporting.scoring import (
    LOWER_IS_BETTER,
    OF_NUMBERS,
    scores,
    scores_of_numbers,
    scores_of_pictures,
)

_MOST_AXES = 2  # of outputs that are no pictures: the batch and the columns


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """What one column scores, before and after, and by how much the first of these measures falls."""

    column: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    drop: float

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a verdict."""
        metric = next(iter(self.before))
        found = {"column": self.column, "float": self.before[metric], "quantized": self.after[metric]}
        return found | {"drop": self.drop}


@dataclass(frozen=True, slots=True)
class Scored:
    """What a quantised model scores, of all ``columns`` and of each that has a score of its own; and its fall."""

    after: Mapping[str, float]
    drop: float
    columns: Sequence[ColumnScore] = ()

    @property
    def worst(self) -> ColumnScore | None:
        """The column that loses most, which is that of ``drop``; None where all are scored together."""
        return max(self.columns, key=lambda item: item.drop, default=None)


@dataclass(frozen=True, slots=True)
class _Column:
    place: int
    labels: Array  # [samples, rows]
    before: Mapping[str, float]


class Scorer:
    """Scores answers by ``labels``, beside those of the float model.

    ``answers`` are those of each sample, as :func:`odc_mlir.runtime.reporting.scoring.compared` has them.
    """

    def __init__(self, answers: Sequence[Array], labels: Array) -> None:
        self.labels = labels
        self.before = scores(answers, labels)
        self.metric = next(iter(self.before))
        self._columns = [
            _Column(place, wanted, self._of_column(answers, place, wanted))
            for place, wanted in columns_of_labels(answers, labels, self.metric).items()
        ]

    def of(self, answers: Sequence[Array]) -> Scored:
        """What ``answers`` of another model score."""
        after = scores(answers, self.labels)
        columns = []
        for column in self._columns:
            found = self._of_column(answers, column.place, column.labels)
            columns.append(ColumnScore(column.place, column.before, found, _fall(column.before, found, column.labels)))
        drop = max((item.drop for item in columns), default=_fall(self.before, after, self.labels))
        return Scored(after, drop, columns)

    def _of_column(self, answers: Sequence[Array], place: int, labels: Array) -> dict[str, float]:
        given = np.stack([_rows(answer, place).ravel() for answer in answers]).astype(np.float64)
        of = scores_of_numbers if self.metric in LOWER_IS_BETTER else scores_of_pictures
        return of(given, labels.astype(np.float64))


def columns_of_labels(answers: Sequence[Array], labels: Array, metric: str) -> dict[int, Array]:
    """The labels of each column that is scored by itself, [samples, rows]; none where all are scored together.

    Each of few that vary, of numbers; of numbers between 0 and 1, as those of pictures, where these are single rows of
    columns that differ in size. ``metric``: what all are scored by.
    """
    widths = {answer.shape[-1] if answer.ndim else 1 for answer in answers}
    width = widths.pop()
    if widths or not 1 < width <= MOST_SINGLE or metric not in OF_NUMBERS:
        return {}
    rows = labels.reshape(len(labels), -1, width)
    low, high = (end(rows.reshape(-1, width), axis=0).astype(np.float64) for end in (np.min, np.max))
    if metric == "psnr_db" and (answers[0].ndim > _MOST_AXES or not sizes_differ(low, high)):
        return {}
    return {place: rows[..., place] for place in range(width) if (rows[..., place] != rows[:1, :, place]).any()}


def _rows(answer: Array, place: int) -> Array:
    return answer.reshape(-1, answer.shape[-1])[:, place]


def _fall(before: Mapping[str, float], after: Mapping[str, float], labels: Array) -> float:
    """By how much the first measure falls, in percentage points or dB; of an RMSE the growth, in % of labels' range."""
    metric, value = next(iter(before.items()))
    fall = value - after[metric]
    if metric in LOWER_IS_BETTER:
        fall *= -100.0 / (float(np.ptp(labels)) or 1.0)
    return 0.0 if math.isnan(fall) else fall
