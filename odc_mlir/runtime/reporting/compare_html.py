"""Two or more compile reports side by side, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import NOTHING, count_text, middle_cut, time_text
from odc_mlir.pages.markup import Column, Html, TableCell, bullets, joined, short_name, table, tag
from odc_mlir.pages.page import Figure, Section
from odc_mlir.pages.page import render as render_page
from odc_mlir.runtime.reporting.report_compare import MEASURES, LayerChange, changes, explanation, measure, titles

Report = Mapping[str, Any]

_NAME = 60  # characters of an operator's name on a line


def render(reports: Sequence[Report]) -> str:
    """The page; the first report is what the others are compared with. ``reports``: at least two."""
    names = titles(reports)
    sections = [Section("Side by side", _measures(reports, names), "Ratios are to the first; less is better.")]
    for name, other in zip(names[1:], reports[1:], strict=True):
        title = f"{names[0]} → {name}" if len(reports) > 2 else "What makes the difference"
        sections.append(Section(title, _difference(reports[0], other)))
    return render_page(
        f"{len(reports)} compile reports", list(_figures(reports, names)), sections, note=", ".join(names)
    )


def _figures(reports: Sequence[Report], names: Sequence[str]) -> Iterator[Figure]:
    first = reports[0]["latency_ms"]
    for report, name in zip(reports, names, strict=True):
        ratio = f"{report['latency_ms'] / first:.2f} of the first" if first and report is not reports[0] else ""
        verdict = "" if not ratio else "good" if report["latency_ms"] <= first else "bad"
        yield Figure(name, time_text(1e6 * report["latency_ms"]), ratio or "latency, modelled", verdict)


def _measures(reports: Sequence[Report], names: Sequence[str]) -> Html:
    columns = [Column("measure"), *(Column(name, number=True) for name in names)]
    rows = []
    for label, key in MEASURES:
        values = [measure(report, key) for report in reports]
        shown = (f"{value:,.4g}" if key == "latency_ms" else count_text(value) for value in values)
        rows.append(
            [
                label,
                *(
                    TableCell(
                        text if value is values[0] or not values[0] else f"{text} ({value / values[0]:.2f})", value
                    )
                    for text, value in zip(shown, values, strict=True)
                ),
            ]
        )
    return table(columns, rows, caption="measures of every report")


def _difference(before: Report, after: Report) -> Html:
    columns = (
        Column("operator", tight=True),
        Column("result"),
        Column("before", number=True),
        Column("after", number=True),
        Column("difference", number=True),
        Column("what explains it"),
    )
    found = [change for change in changes(before, after) if change.cause]
    rows = [
        (
            change.op,
            short_name(change.name),
            _cycles(change.before),
            _cycles(change.after),
            TableCell(f"{change.cycles:+,}", change.cycles),
            change.cause,
        )
        for change in found
    ]
    same = len(before["layers"]) - sum(change.before is not None for change in found)
    rest = tag("p", f"{count_text(same)} operators take the same cycles in both.") if same else ""
    return joined((bullets(explanation(before, after)), table(columns, rows, caption="operators that changed"), rest))


def _cycles(layer: Mapping[str, Any] | None) -> TableCell:
    return TableCell(NOTHING) if layer is None else TableCell(count_text(layer["cycles"]), layer["cycles"])


def text_lines(reports: Sequence[Report], *, top: int) -> Iterator[str]:
    """The same as lines of text; of every difference the ``top`` operators."""
    names = titles(reports)
    for name, report in zip(names, reports, strict=True):
        yield f"{name}: " + ", ".join(_value(label, measure(report, key)) for label, key in MEASURES)
    for name, other in zip(names[1:], reports[1:], strict=True):
        yield f"{names[0]} -> {name}"
        yield from (f"  {sentence}" for sentence in explanation(reports[0], other))
        found = [change for change in changes(reports[0], other) if change.cause]
        yield from map(_line, found[:top])
        if len(found) > top:
            yield f"  and {len(found) - top} more operators that changed"


def _value(label: str, value: float) -> str:
    return f"{label} {value:,.4g}" if label.endswith("ms") else f"{label} {count_text(value)}"


def _line(change: LayerChange) -> str:
    before, after = (
        NOTHING if layer is None else count_text(layer["cycles"]) for layer in (change.before, change.after)
    )
    return f"  {change.op} {middle_cut(change.name, _NAME)}: {before} -> {after} cycles ({change.cause})"
