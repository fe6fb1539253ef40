"""What a study found: its table, the points that no other beats, and what each axis is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from odc_mlir.explore.evaluate import MEASURES
from odc_mlir.explore.space import OPTIONS, ParameterAxis, Point
from odc_mlir.explore.study import Definition, Trial
from odc_mlir.formats.tables import csv_text


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """What doubling an axis does to a measure on average: 0.9 means a tenth less. None where it cannot be told."""

    key: str
    measure: str
    factor: float | None


def usable(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """Trials that succeeded and hold all constraints."""
    return [
        trial
        for trial in trials
        if trial.outcome.failure is None and all(bound.excess(trial.outcome) <= 0 for bound in definition.bounds)
    ]


def front(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """The usable trials than which no other is better somewhere and nowhere worse, by the first objective."""
    named = [([t.outcome.value(name) for name in definition.objectives], t) for t in usable(definition, trials)]
    best = [
        (values, trial)
        for values, trial in named
        if not any(all(a <= b for a, b in zip(other, values, strict=True)) and other != values for other, _ in named)
    ]
    return [trial for _, trial in sorted(best, key=lambda item: item[0])]


def effects(definition: Definition, trials: Sequence[Trial]) -> Iterator[AxisEffect]:
    """Of every axis of numbers on every objective: the exponent of a power law fitted to all trials, for a doubling.

    Least squares of the logarithm of the measure over the logarithms of all axes together, so that axes do not answer
    for one another.
    """
    import numpy as np

    found = [trial for trial in trials if trial.outcome.failure is None]
    axes = [axis for axis in definition.axes if _is_positive(axis) and len(axis.values) > 1]
    columns = [[math.log2(float(trial.point[axis.key])) for axis in axes] for trial in found]
    matrix = np.array([[1.0, *row] for row in columns]) if found else np.empty((0, len(axes) + 1))
    known = len(found) > len(axes) and np.linalg.matrix_rank(matrix) == len(axes) + 1
    for measure in definition.objectives:
        values = [trial.outcome.value(measure) for trial in found]
        if not known or any(value <= 0 for value in values):
            yield from (AxisEffect(axis.key, measure, None) for axis in axes)
            continue
        slopes = np.linalg.lstsq(matrix, np.log2(values), rcond=None)[0][1:]
        yield from (AxisEffect(axis.key, measure, float(2**slope)) for axis, slope in zip(axes, slopes, strict=True))


def sentence(effect: AxisEffect) -> str:
    """What an effect says, in words."""
    if effect.factor is None:
        return f"doubling {effect.key}: nothing can be said of {MEASURES[effect.measure]}"
    change = 100 * (effect.factor - 1)
    word = "no change" if abs(change) < 0.05 else f"{change:+.1f} %"
    return f"doubling {effect.key}: {word} of {MEASURES[effect.measure]}"


def _is_positive(axis: ParameterAxis) -> bool:
    return axis.key not in OPTIONS and all(isinstance(value, int) and value > 0 for value in axis.values)


def document(definition: Definition, trials: Sequence[Trial]) -> dict[str, Any]:
    """Everything as JSON data."""
    best = [trial.point for trial in front(definition, trials)]
    return {
        "study": {
            "models": list(definition.models),
            "target": definition.target,
            "axes": {axis.key: list(axis.values) for axis in definition.axes},
            "objectives": list(definition.objectives),
            "constraints": [f"{bound.measure}<={bound.limit:g}" for bound in definition.bounds],
            "sampler": definition.sampler,
            "seed": definition.seed,
            "options": dict(definition.options),
        },
        "points": [
            {
                "point": trial.point,
                "failure": trial.outcome.failure,
                "by_model": {name: dict(values) for name, values in trial.outcome.by_model.items()},
                "best": trial.point in best,
            }
            for trial in trials
        ],
        "effects": [
            {"axis": effect.key, "measure": effect.measure, "doubling": effect.factor}
            for effect in effects(definition, trials)
        ],
    }


def to_csv(definition: Definition, trials: Sequence[Trial]) -> str:
    """One line per point: axes, measures over all models, whether it is one of the best, and what failed."""
    best = [trial.point for trial in front(definition, trials)]
    keys = [axis.key for axis in definition.axes]
    rows: list[list[object]] = [["odc-explore", *keys, *MEASURES, "best", "failure"]]
    for index, trial in enumerate(trials):
        failed = trial.outcome.failure is not None
        values = ["" if failed else f"{trial.outcome.value(name):.10g}" for name in MEASURES]
        point = (trial.point[key] for key in keys)
        rows.append([index, *point, *values, int(trial.point in best), trial.outcome.failure])
    return csv_text(rows)


def point_text(point: Point) -> str:
    """``array.macs_per_cycle 256, memory flash``."""
    return ", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in point.items())
