"""The compile report for Python, notebooks and JSON files. If a target has no time model, there are no times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir import targets
from odc_mlir.errors import PackageError, UnsupportedError, parsing
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import NOTHING, count_text, counted, size_text, time_text
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.reporting import report_table
from odc_mlir.runtime.reporting.clocks import host_of
from odc_mlir.runtime.reporting.report_partition import placements

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

SCHEMA_VERSION = 2
_LARGEST = 1e18  # more than any count, time or size
_ROWS = 12  # limit on rows of operators in text and notebooks


@dataclass(frozen=True, slots=True)
class ReportedOperator:
    """An operator of the model. ``cycles``: 0 on the host. ``host_ns``: modelled time on the host.

    ``name``: name of the result. ``op``: kind. ``placed``: npu or host. ``reason``: why it is on the host.
    ``bound_by``: the engine that the operator keeps busy longest, ``host``, or a dash if unknown.
    """

    index: int
    name: str
    op: str
    placed: str
    segment: str | None
    reason: str | None
    macs: int
    cycles: int
    host_ns: int
    bound_by: str


class Report(dict[str, Any]):
    """Report of a compilation: a dictionary with methods that format it. :mod:`.report` describes the keys.

    ``json.dumps(report)`` and ``report["cycles_total"]`` work as for any dictionary.
    """

    @property
    def latency_ms(self) -> float:
        """Modelled latency of one inference."""
        return float(self["latency_ms"])

    @property
    def cycles(self) -> int:
        """NPU cycles of one inference."""
        return int(self["cycles_total"])

    @property
    def operators(self) -> tuple[ReportedOperator, ...]:
        """The model's operators, in the order of the model."""
        same = ("name", "op", "placed", "segment", "reason", "macs", "cycles")
        return tuple(
            ReportedOperator(
                index=layer["operator"],
                host_ns=layer["host_modelled_ns"],
                bound_by=report_table.bound_by(layer),
                **{key: layer[key] for key in same},
            )
            for layer in self["layers"]
        )

    def to_json(self) -> str:
        """Return the report as JSON text, as ``--json`` writes it."""
        return json.dumps(self, indent=1) + "\n"

    def to_html(self) -> str:
        """Return the report as a self-contained page."""
        from odc_mlir.runtime.reporting.report_html import render

        return render(self)

    def to_csv(self) -> str:
        """Return one line per operator (see docs/reports.md)."""
        return report_table.layer_csv([self])

    def compare(self, *others: Report) -> str:
        """Describe the differences of ``others`` from this report, as text."""
        from odc_mlir.runtime.reporting.report_compare import text_lines

        return "\n".join(text_lines([self, *others], top=_ROWS))

    def __str__(self) -> str:
        lines = report_table.layer_lines(self, width=report_table.terminal_width(), top=_ROWS)
        return "\n".join((report_table.headline(self), *lines))

    def _repr_html_(self) -> str:
        rows = []
        for item in sorted(self.operators, key=lambda item: (-item.cycles, -item.host_ns))[:_ROWS]:
            host = time_text(item.host_ns) if item.placed != "npu" else NOTHING
            counts = (count_text(item.macs), count_text(item.cycles))
            rows.append((item.op, item.name, item.placed, *counts, host, item.bound_by))
        titles = ("operator", "result", "placed", "MACs", "cycles", "host, modelled", "bound by")
        return small_table(report_table.headline(self), titles, rows)


def small_table(lead: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a sentence and a table as markup for notebooks, with no style."""
    from odc_mlir.pages.markup import joined, short_name, tag

    head = tag("tr", *(tag("th", title) for title in titles))
    body = [tag("tr", *(tag("td", short_name(cell)) for cell in row)) for row in rows]
    return joined((tag("p", lead), tag("table", tag("thead", head), tag("tbody", *body))))


def read_report(path: str | Path) -> dict[str, Any]:
    """Read the report in the file ``path``. Raises PackageError for other files, versions, and invalid values."""
    try:
        document = json.loads(Path(path).read_bytes(), parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError) as error:
        document, why = None, "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
    else:
        why = "it has no layers"
    if not isinstance(document, dict) or "layers" not in document:
        raise PackageError(f"{path} is not a compile report: {why}", hint="odc-compile --json writes one")
    if (seen := document.get("schema_version")) != SCHEMA_VERSION:
        raise PackageError(
            f"{path} is a report of version {seen!r}, this is version {SCHEMA_VERSION}", hint="compile the model again"
        )
    if "compiled_op_count" in document:
        raise PackageError(
            f"{path} is not a report of an NPU: there is no model of code for {document.get('target')}",
            hint="compile for an NPU",
        )
    with parsing(f"{path} is damaged", PackageError):
        report = Report(document)
        report.to_html()
        report.to_csv()
        report.compare(report)
        report_table.network_csv([report])
        str(report)
    return document


def _refuse(text: str) -> Any:
    raise ValueError(f"{text[:40]} is not a number of a report")


def _number(text: str) -> int | float:
    value = float(text)
    if not -_LARGEST <= value <= _LARGEST:
        _refuse(text)
    return value if value != round(value) or not text.lstrip("-").isdigit() else int(text)


_OF_MODELS = frozenset({"latency_ms", "cycles", "operators", "to_html", "to_csv", "compare"})


class UnmodelledReport(Report):
    """A report that has no cycles and no times. Attributes that need these raise UnsupportedError."""

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute. Raises UnsupportedError if the attribute needs a modelled machine."""
        if name in _OF_MODELS:
            raise UnsupportedError(f"there is no model of code for {self['target']}", hint="measure its runs")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        rows = [f"  {kind:20} {name}: {where}" for kind, name, where in self._rows()]
        return "\n".join((self.headline(), *rows))

    def _repr_html_(self) -> str:
        return small_table(self.headline(), ("operator", "result", "placed"), self._rows())

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            (layer["op"], layer["name"], layer["segment"] or f"host: {layer['reason']}")
            for layer in self["layers"][:_ROWS]
        ]

    def headline(self) -> str:
        """Format model, target, and number and size of compiled operators in one line."""
        total = counted(len(self["layers"]), "operator")
        where = f" in {counted(self['segment_count'], 'segment')}" if self["segment_count"] else ""
        size = size_text(self["binary_bytes"])
        return f"{self['model']}: {self['compiled_op_count']} of {total} as code for {self['target']}{where}, {size}"


def is_modelled(plan: Plan) -> bool:
    """Return whether the package's machine has modelled cycles and times. Machines with memories have these."""
    return plan.memory is not None or plan.target in targets.names()


def unmodelled_report(package: Package, plan: Plan) -> UnmodelledReport:
    """Return the report of ``package`` with this ``plan``: placement and bytes of files. Raises PackageError."""
    work = graph_work(package.graph, host_of(plan))
    files = package.files
    layers = placements(package, plan, work, plan.target)
    compiled = sum(layer["segment"] is not None for layer in layers)
    segments = [_segment(files.segment(step.file), step, layers) for step in plan.segments]
    found = {
        "schema_version": SCHEMA_VERSION,
        "model": package.name,
        "target": plan.target,
        "quantize": plan.options.get("quantize"),
        "quantization": package.verdict,
        "compiler_version": plan.compiler_version,
        "macs": sum(layer["macs"] for layer in layers),
        "compiled_macs": sum(segment["macs"] for segment in segments),
        "compiled_op_count": compiled,
        "host_op_count": len(layers) - compiled,
        "segment_count": len(segments),
        "host_signatures": package.model.host_signatures,
        "binary_bytes": sum(segment["bytes"] for segment in segments),
        "files": {name: len(data) for name, data in sorted(files.members.items())},
        "segments": segments,
        "layers": layers,
        "measured": dict(package.measured),
    }
    return UnmodelledReport(found)


def _segment(data: bytes, step: SegmentStep, layers: list[dict[str, Any]]) -> dict[str, Any]:
    found = {
        "name": step.name,
        "file": step.file,
        "bytes": len(data),
        "operators": list(step.operators),
        "macs": sum(layers[index]["macs"] for index in step.operators),
    }
    if data.startswith(MAGIC):
        segment = parse_native_segment(data)
        found |= {"code_bytes": len(segment.code), "constants_bytes": len(segment.constants)}
        found |= {"arena_bytes": segment.arena_bytes}
    return found
