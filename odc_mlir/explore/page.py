"""A study as a page: the best points, how they lie to each other, what each axis is worth, and all points."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.explore.evaluate import MEASURES
from odc_mlir.explore.results import effects, front, point_text, sentence, usable
from odc_mlir.explore.space import ParameterAxis
from odc_mlir.explore.study import Definition, Trial
from odc_mlir.formats.quantities import count_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Column, Html, TableCell, bullets, table
from odc_mlir.pages.page import Figure, Section
from odc_mlir.pages.page import render as render_page


def render(definition: Definition, trials: Sequence[Trial]) -> str:
    """The page of a study."""
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
        *(Column(axis.key, number=_is_number(axis)) for axis in definition.axes),
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


def _is_number(axis: ParameterAxis) -> bool:
    return all(isinstance(value, int) for value in axis.values)
