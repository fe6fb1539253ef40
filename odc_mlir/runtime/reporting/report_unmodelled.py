"""The report of a package of which nothing is modelled: native code, and what plugins compile for targets of their own.

Where operators went and why, and how large everything is, under the keys that reports of modelled machines have as
well; there are no cycles and no times, which a run measures (``odc-run --profile``). Nothing is loaded or run, so that
the machine may be another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odc_mlir import targets
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import counted, size_text
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.reporting.clocks import host_of
from odc_mlir.runtime.reporting.report_file import SCHEMA_VERSION
from odc_mlir.runtime.reporting.report_object import Report, small_table

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

_ROWS = 12  # of operators, in text


class UnmodelledReport(Report):
    """A report without cycles and times; what shows those raises UnsupportedError."""

    @property
    def latency_ms(self) -> float:
        """Not known."""
        raise self._refusal()

    @property
    def cycles(self) -> int:
        """Not known."""
        raise self._refusal()

    @property
    def operators(self) -> Any:
        """Not known with cycles; ``report["layers"]`` has the rest."""
        raise self._refusal()

    def to_html(self) -> str:
        """Not made."""
        raise self._refusal()

    def to_csv(self) -> str:
        """Not made."""
        raise self._refusal()

    def compare(self, *others: Report) -> str:
        """Not made."""
        raise self._refusal()

    def _refusal(self) -> UnsupportedError:
        return UnsupportedError(f"there is no model of code for {self['target']}", hint="measure its runs")

    def __str__(self) -> str:
        rows = [f"  {kind:20} {name}: {where}" for kind, name, where in self._rows()]
        return "\n".join((self._headline(), *rows))

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary and the first operators."""
        return small_table(self._headline(), ("operator", "result", "placed"), self._rows())

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            (layer["op"], layer["name"], layer["segment"] or f"host: {layer['reason']}")
            for layer in self["layers"][:_ROWS]
        ]

    def _headline(self) -> str:
        total = counted(len(self["layers"]), "operator")
        where = f" in {counted(self['segment_count'], 'segment')}" if self["segment_count"] else ""
        size = size_text(self["binary_bytes"])
        return f"{self['model']}: {self['compiled_op_count']} of {total} as code for {self['target']}{where}, {size}"


def is_modelled(plan: Plan) -> bool:
    """Whether what was compiled is for a machine of which cycles and times are modelled: only those have memories."""
    return plan.memory is not None or plan.target in targets.names()


def unmodelled_report(package: Package, plan: Plan) -> UnmodelledReport:
    """The report of ``package`` with this ``plan``; raises PackageError for a damaged one.

    ``files``: bytes of each member of the package. ``segments``: bytes of each, and of native code bytes of code,
    constants and arena.
    """
    work = graph_work(package.graph, host_of(plan))
    files = package.files
    segment_of = {index: step for step in plan.segments for index in step.operators}
    layers: list[dict[str, Any]] = []
    for index, (node, own) in enumerate(zip(work.nodes, work.works, strict=True)):
        step = segment_of.get(index)
        layers.append(
            {
                "operator": index,
                "name": node.name,
                "op": node.spec.name,
                "placed": "host" if step is None else plan.target,
                "reason": plan.host_reasons.get(index, "not compiled") if step is None else None,
                "segment": None if step is None else step.name,
                "macs": own.macs,
            }
        )
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
        "compiled_op_count": len(segment_of),
        "host_op_count": len(layers) - len(segment_of),
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
