"""Compile reports as JSON files, and reports of packages for targets without a model of time.

The latter say where operators are placed and how large everything is; nothing is loaded or run for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir import targets
from odc_mlir.errors import PackageError, UnsupportedError, parsing
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import counted, size_text
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.reporting.clocks import host_of
from odc_mlir.runtime.reporting.report_object import Report, small_table
from odc_mlir.runtime.reporting.report_partition import placements
from odc_mlir.runtime.reporting.report_table import network_csv

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


SCHEMA_VERSION = 2
_LARGEST = 1e18  # more than any count, time or size


def read_report(path: str | Path) -> dict[str, Any]:
    """Read the report in the file ``path``; raise PackageError for another file or version, or what cannot be shown."""
    try:
        document = json.loads(Path(path).read_bytes(), parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError) as error:
        document, why = None, "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
    else:
        why = "it has no layers"
    if not isinstance(document, dict) or "layers" not in document:
        raise PackageError(f"{path} is not a compile report: {why}", hint="odc-compile --report-json writes one")
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
        _show_all(Report(document))
    return document


def _show_all(report: Report) -> None:
    """Make every form of a report."""
    report.to_html()
    report.to_csv()
    report.compare(report)
    network_csv([report])
    str(report)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text[:40]} is not a number of a report")


def _number(text: str) -> int | float:
    """Check a number; raise ValueError for a value that no report can have."""
    value = float(text)
    if not -_LARGEST <= value <= _LARGEST:
        _refuse(text)
    return value if value != round(value) or not text.lstrip("-").isdigit() else int(text)


_ROWS = 12  # of operators, in text
_OF_MODELS = frozenset({"latency_ms", "cycles", "operators", "to_html", "to_csv", "compare"})


class UnmodelledReport(Report):
    """A report without cycles and times: attributes that show those raise UnsupportedError."""

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute; raise UnsupportedError for one of a modelled machine."""
        if name in _OF_MODELS:
            raise UnsupportedError(f"there is no model of code for {self['target']}", hint="measure its runs")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        rows = [f"  {kind:20} {name}: {where}" for kind, name, where in self._rows()]
        return "\n".join((self.headline(), *rows))

    def _repr_html_(self) -> str:
        """Show the summary and the first operators in a notebook."""
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
    """Return whether a package's machine has modelled cycles and times: only those have memories."""
    return plan.memory is not None or plan.target in targets.names()


def unmodelled_report(package: Package, plan: Plan) -> UnmodelledReport:
    """Return the report of ``package`` with this ``plan``; raise PackageError for a damaged one.

    ``files``: bytes of each member of the package. ``segments``: bytes of each, and of native code bytes of code,
    constants and arena.
    """
    work = graph_work(package.graph, host_of(plan))
    files = package.files
    layers = placements(plan, work, plan.target)
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
