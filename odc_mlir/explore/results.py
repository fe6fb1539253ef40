"""Results of a study: table of trials, Pareto front, effect of each axis, and the HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from odc_mlir.explore.space import OPTIONS, Point
from odc_mlir.explore.study import MEASURES, Definition, Trial
from odc_mlir.formats.quantities import count_text, csv_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Column, Figure, Html, Section, TableCell, bullets, table
from odc_mlir.pages.markup import render as render_page


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """Mean factor of a measure when an axis doubles: 0.9 is a tenth less. None if it cannot be estimated."""

    key: str
    measure: str
    factor: float | None


def usable(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """Return trials that succeeded and meet all constraints."""
    return [
        trial
        for trial in trials
        if trial.outcome.failure is None and all(bound.excess(trial.outcome) <= 0 for bound in definition.bounds)
    ]


def front(definition: Definition, trials: Sequence[Trial]) -> list[Trial]:
    """Return the Pareto front of usable trials, sorted by the first objective."""
    named = [([t.outcome.value(name) for name in definition.objectives], t) for t in usable(definition, trials)]
    best = [
        (values, trial)
        for values, trial in named
        if not any(all(a <= b for a, b in zip(other, values, strict=True)) and other != values for other, _ in named)
    ]
    return [trial for _, trial in sorted(best, key=lambda item: item[0])]


def effects(definition: Definition, trials: Sequence[Trial]) -> Iterator[AxisEffect]:
    """Estimate the effect of doubling each numeric axis on every objective by a power law.

    Least squares of logarithms over all axes together separate the effects of correlated axes.
    """
    import numpy as np

    found = [trial for trial in trials if trial.outcome.failure is None]
    numeric = [axis for axis in definition.axes if axis.key not in OPTIONS and len(axis.values) > 1]
    axes = [axis for axis in numeric if all(isinstance(value, int) and value > 0 for value in axis.values)]
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
    """Describe an effect in a sentence."""
    if effect.factor is None:
        return f"doubling {effect.key}: nothing can be said of {MEASURES[effect.measure]}"
    change = 100 * (effect.factor - 1)
    word = "no change" if abs(change) < 0.05 else f"{change:+.1f} %"
    return f"doubling {effect.key}: {word} of {MEASURES[effect.measure]}"


def document(definition: Definition, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return everything as JSON data."""
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
    """Return one line per point: axes, measures over all models, membership of the front, and failures."""
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


def render(definition: Definition, trials: Sequence[Trial]) -> str:
    """Return the page of a study."""
    best = front(definition, trials)
    first = definition.objectives[0]
    figures = [
        Figure("points tried", count_text(len(trials)), f"{count_text(len(usable(definition, trials)))} usable"),
        Figure("best points", count_text(len(best)), "no other is better in one objective and as good in the rest"),
    ]
    if best:
        value = best[0].outcome.value(first)
        figures.append(Figure(f"least {MEASURES[first]}", _number(value), point_text(best[0].point)))
    sections = [
        Section("Best points", _table(definition, best, "best points")),
        Section("Objectives against each other", _scatter(definition, trials, best)),
        Section("What each axis is worth", bullets(map(sentence, effects(definition, trials))), _WORTH),
        Section("All points", _table(definition, trials, "all points")),
    ]
    names = ", ".join(name.rpartition("/")[2] for name in definition.models)
    return render_page(
        f"Exploration of {definition.target}", figures, sections, note=f"{names}; modelled, not measured"
    )


_WORTH = "By a power law fitted to all points together: an average over the space, not a promise for one machine."


def _scatter(definition: Definition, trials: Sequence[Trial], best: Sequence[Trial]) -> Html:
    if len(definition.objectives) < 2:
        return Html("")
    x, y = definition.objectives[:2]
    places = [
        (point_text(t.point), t.outcome.value(x), t.outcome.value(y), t in best)
        for t in trials
        if t.outcome.failure is None
    ]
    return charts.scatter(places, (MEASURES[x], MEASURES[y]), title=f"{MEASURES[y]} over {MEASURES[x]}")


def _table(definition: Definition, trials: Sequence[Trial], caption: str) -> Html:
    columns = [
        *(Column(axis.key, number=all(isinstance(v, int) for v in axis.values)) for axis in definition.axes),
        *(Column(name, number=True) for name in MEASURES.values()),
        Column("failure"),
    ]
    rows = []
    for trial in trials:
        outcome = trial.outcome
        cells = [TableCell(f"{v:,}" if isinstance(v, int) else v, v) for v in trial.point.values()]
        if outcome.failure is None:
            cells += [TableCell(_number(v), v) for v in map(outcome.value, MEASURES)]
        else:
            cells += [TableCell(None)] * len(MEASURES)
        rows.append([*cells, outcome.failure or ""])
    return table(columns, rows, caption=caption)


def _number(value: float) -> str:
    return count_text(value) if value == round(value) else f"{value:,.4g}"
