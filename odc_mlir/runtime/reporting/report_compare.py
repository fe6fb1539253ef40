"""Comparison of compile reports, operator by operator, with causes, as text and as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odc_mlir.formats.quantities import NOTHING, count_text, middle_cut, time_text
from odc_mlir.pages.markup import Column, Figure, Html, Section, TableCell, bullets, joined, short_names, table, tag
from odc_mlir.pages.markup import render as render_page
from odc_mlir.runtime.reporting.report_table import bound_by

Report = Mapping[str, Any]

# Compared measures: label and key. Smaller values are better.
MEASURES = (
    ("latency, modelled, ms", "latency_ms"),
    ("NPU cycles", "cycles_total"),
    ("peak SRAM, bytes", "sram_peak_bytes"),
    ("read off-chip, bytes", "offchip_read_bytes"),
    ("SRAM traffic, bytes", "sram_bytes"),
    ("constants as stored, bytes", "weights_encoded_bytes"),
    ("program, bytes", "program_bytes"),
    ("operators on the host", "host_op_count"),
)


_CAUSES_SHOWN = 3
_TITLE = 40  # characters of a model's name in a title


@dataclass(frozen=True, slots=True)
class LayerChange:
    """An operator in the first report and in another, or None if a report lacks it.

    ``cause``: the changes of cycles by cause, which add up to the difference, or the change of placement.
    """

    name: str
    op: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    cause: str

    @property
    def cycles(self) -> int:
        """Additional cycles of the other report. Negative if the other report has fewer cycles."""
        return _cycles(self.after) - _cycles(self.before)


def measure(report: Report, key: str) -> float:
    """Return a value of :data:`MEASURES`."""
    if key == "sram_bytes":
        return float(report["sram_read_bytes"] + report["sram_write_bytes"])
    return float(report[key])


def changes(before: Report, after: Report) -> list[LayerChange]:
    """Return every operator of either report, the largest change of cycles first.

    Operators correspond if the kinds and the names of the results are equal. Duplicates correspond in order.
    """
    rest: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for layer in after["layers"]:
        rest[layer["op"], layer["name"]].append(layer)
    found = []
    for layer in before["layers"]:
        others = rest[layer["op"], layer["name"]]
        other = others.pop(0) if others else None
        found.append(LayerChange(layer["name"], layer["op"], layer, other, _cause(layer, other)))
    for others in rest.values():
        found += [LayerChange(layer["name"], layer["op"], None, layer, "only in the second") for layer in others]
    return sorted(found, key=lambda change: -abs(change.cycles))


def explanation(before: Report, after: Report) -> Iterator[str]:
    """Yield sentences that explain the total difference, most important first."""
    difference = after["cycles_total"] - before["cycles_total"]
    if before["target"] != after["target"] or before["memory"] != after["memory"]:
        yield (f"other machine: {before['target']} ({before['memory']}) against {after['target']} ({after['memory']})")
    if before["compiler_version"] != after["compiler_version"]:
        yield f"other compiler: {before['compiler_version']} against {after['compiler_version']}"
    causes = sorted(_changes_of(before, after), key=lambda item: -abs(item[1]))
    if difference and causes:
        yield f"cycles by cause, {difference:+,} in all: " + _listed(causes)
    for label, key in MEASURES[3:]:
        a, b = measure(before, key), measure(after, key)
        if a != b:
            yield f"{label}: {a:,.0f} -> {b:,.0f}"


def _changes_of(before: Report, after: Report) -> list[tuple[str, float]]:
    first, second = before.get("causes", {}), after.get("causes", {})
    if not first or not second:
        return []
    found = ((name, second.get(name, 0) - first.get(name, 0)) for name in dict.fromkeys((*first, *second)))
    return [(name, cycles) for name, cycles in found if abs(cycles) >= 0.5]


def _listed(causes: Sequence[tuple[str, float]]) -> str:
    rest = sum(cycles for _, cycles in causes[_CAUSES_SHOWN:])
    parts = [f"{name} {cycles:+,.0f}" for name, cycles in causes[:_CAUSES_SHOWN]]
    return ", ".join([*parts, *([f"others {rest:+,.0f}"] if abs(rest) >= 0.5 else [])])


def _cycles(layer: Mapping[str, Any] | None) -> int:
    return 0 if layer is None else int(layer["cycles"])


def _cause(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> str:
    if after is None:
        return "only in the first"
    if before["placed"] != after["placed"]:
        reason = after["reason"] or before["reason"] or ""
        return f"{before['placed']} -> {after['placed']}{f': {reason}' if reason else ''}"
    if before["cycles"] == after["cycles"]:
        return ""
    causes = sorted(_changes_of(before, after), key=lambda item: -abs(item[1]))
    bound = f"bound by {bound_by(before)} -> {bound_by(after)}"
    return f"{_listed(causes)}; {bound}" if causes else bound


def titles(reports: Sequence[Report]) -> list[str]:
    """Return a title for each report: model, target and memory mode where these differ, or else numbers."""
    parts = [[middle_cut(report["model"], _TITLE), report["target"], report["memory"]] for report in reports]
    differing = [i for i in range(3) if len({part[i] for part in parts}) > 1]
    names = [" ".join(part[i] for i in differing) for part in parts]
    return names if len(set(names)) == len(names) else [f"{i + 1}: {name}".rstrip(": ") for i, name in enumerate(names)]


_NAME = 60  # characters of an operator's name on a line


def render(reports: Sequence[Report]) -> str:
    """Return the page that compares ``reports`` (at least two) with the first one."""
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
        ratios = ("", *(f" ({value / values[0]:.2f})" if values[0] else "" for value in values[1:]))
        rows.append([label, *map(TableCell, map("".join, zip(shown, ratios, strict=True)), values)])
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
    names = short_names([change.name for change in found])
    rows = [
        (
            change.op,
            names[change.name],
            _cycles_cell(change.before),
            _cycles_cell(change.after),
            TableCell(f"{change.cycles:+,}", change.cycles),
            change.cause,
        )
        for change in found
    ]
    same = len(before["layers"]) - sum(change.before is not None for change in found)
    rest = tag("p", f"{count_text(same)} operators take the same cycles in both.") if same else ""
    return joined((bullets(explanation(before, after)), table(columns, rows, caption="operators that changed"), rest))


def _cycles_cell(layer: Mapping[str, Any] | None) -> TableCell:
    return TableCell(NOTHING) if layer is None else TableCell(count_text(layer["cycles"]), layer["cycles"])


def text_lines(reports: Sequence[Report], *, top: int) -> Iterator[str]:
    """Yield the comparison as lines of text, with the ``top`` operators of every difference."""
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
