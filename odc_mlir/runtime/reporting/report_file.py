"""Compile reports as JSON files, and the report of packages without a model of time.

Where operators went and why, and how large everything is, under the keys that reports of modelled machines have as
well; there are no cycles and no times, which a run measures (``odc-run --profile``). Nothing is loaded or run, so that
the machine may be another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir import targets
from odc_mlir.errors import PackageError, UnsupportedError
from odc_mlir.formats.native_segment import MAGIC, parse_native_segment
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.formats.quantities import counted, size_text
from odc_mlir.runtime.execution.work import graph_work
from odc_mlir.runtime.reporting.clocks import host_of
from odc_mlir.runtime.reporting.report_object import Report, small_table

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


SCHEMA_VERSION = 2
_LARGEST = 1e18  # more than any count, time or size

_NUMBER, _TEXT, _TABLE, _LIST = (int, float), (str,), (dict,), (list,)
_COUNTS = (
    ("cycles_total", "macs", "mac_utilization", "model_floor_cycles", "ideal_cycles", "latency_ms")
    + ("sram_peak_bytes", "local_peak_bytes", "program_bytes", "binary_bytes", "weights_raw_bytes")
    + ("weights_encoded_bytes", "offchip_read_bytes", "offchip_write_bytes", "sram_read_bytes", "sram_write_bytes")
    + ("npu_op_count", "host_op_count", "segment_count")
)
_SIGNED = frozenset({"difference_ns"})
_Fields = Mapping[str, tuple[type, ...]]
_REPORT: _Fields = {
    **dict.fromkeys(_COUNTS, _NUMBER),
    **dict.fromkeys(("model", "target", "memory", "compiler_version"), _TEXT),
    **dict.fromkeys(("modelled", "engines", "partition"), _TABLE),
    **dict.fromkeys(("layers", "defects"), _LIST),
}
_LAYER: _Fields = {
    **dict.fromkeys(("operator", "macs", "cycles", "host_modelled_ns"), _NUMBER),
    **dict.fromkeys(("name", "op", "placed"), _TEXT),
    **dict.fromkeys(("reason", "segment"), (str, type(None))),
}
_MAYBE = (int, float, type(None))
_OPTIONAL: _Fields = dict.fromkeys(("first_cycle", "last_cycle", "cycles_total_strict", "clock_hz"), _MAYBE)
_MODELLED = dict.fromkeys(("latency_ms", "npu_ms", "host_ms", "transfer_ms", "switch_ms"), _NUMBER)
_ENGINE = dict.fromkeys(("busy_cycles", "stall_cycles", "idle_cycles"), _NUMBER)
_DEFECT = dict.fromkeys(("op", "tensor", "exception", "location"), _TEXT)
_EACH = {"layers": _LAYER, "engines": _ENGINE, "defects": _DEFECT}
_PLAN = {"name": _TEXT, **dict.fromkeys(("estimate_ns", "segments", "npu_operators"), _NUMBER)}
_LIVE: _Fields = {
    **dict.fromkeys(("peak_bytes", "reserved_bytes", "run_cycles"), (int,)),
    "peak_cycle": _NUMBER,
    "segment": _TEXT,
    "held": _TABLE,
    "cycles": _LIST,
    "owners": _LIST,
}
_OWNER: _Fields = {"name": _TEXT, "first": (int,), "bytes": _LIST}
_TENSOR = {"name": _TEXT, "bytes": _NUMBER}
_SEGMENT = {"name": _TEXT, "macs": _NUMBER, **dict.fromkeys(("operators", "inputs", "outputs"), _LIST)}


def read_report(path: str | Path) -> dict[str, Any]:
    """Read the report in the file ``path``; raise PackageError for another file or version."""
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
    _check(document, _REPORT, str(path))
    _check(document["modelled"], _MODELLED, f"{path}: modelled")
    for key, fields in _EACH.items():
        entries = document[key].values() if isinstance(document[key], dict) else document[key]
        for place, entry in enumerate(entries):
            _check(entry, fields, f"{path}: {key}[{place}]")
    for place, layer in enumerate(document["layers"]):
        _check_explanation(layer, f"{path}: layers[{place}]")
    _check_explanation(document, path=str(path))
    _check({"sram_live": [], **document}, {"sram_live": _LIST}, str(path))
    for place, live in enumerate(document.get("sram_live", ())):
        _check_live(live, f"{path}: sram_live[{place}]")
    _check_partition(document["partition"], f"{path}: partition")
    return document


def _check_explanation(found: Mapping[str, Any], path: str) -> None:
    """Check the optional parts of a report: cycles by engine and by cause, and possible improvements."""
    _check({**dict.fromkeys(_OPTIONAL), **found}, _OPTIONAL, path)
    for key in ("busy_cycles", "causes"):
        table = found.get(key, {})
        _check(table, dict.fromkeys(table, _NUMBER) if isinstance(table, dict) else {}, f"{path}.{key}")
    what_if = found.get("what_if", {})
    _check(what_if, dict.fromkeys(what_if, _TABLE) if isinstance(what_if, dict) else {}, f"{path}.what_if")
    for what in what_if.values():
        _check(what, {"text": _TEXT, "cycles": _NUMBER}, f"{path}.what_if")
    _check({"helps": [], **found}, {"helps": (list, tuple)}, path)
    for what in found.get("helps", ()):
        _check(what, {"change": _TEXT, "speedup": _NUMBER}, f"{path}.helps")


def _check_live(live: object, where: str) -> None:
    """Check SRAM contents over time of a segment: complete, in order, with correct sums."""
    _check(live, _LIVE, where)
    assert isinstance(live, dict)
    cycles, peak = live["cycles"], live["peak_bytes"]
    _check_numbers(live["held"], f"{where}.held")
    _check_numbers(cycles, f"{where}.cycles")
    for own in live["owners"]:
        _check(own, _OWNER, f"{where}.owners")
        _check_numbers(own["bytes"], f"{where}.owners")
    behind = [own["first"] + len(own["bytes"]) for own in live["owners"]]
    names = [own["name"] for own in live["owners"]]
    for right, text in (
        (peak > 0 and sum(live["held"].values()) == peak, "what is held at the peak is not 'peak_bytes'"),
        (all(map(lt, cycles, cycles[1:])), "'cycles' do not increase"),
        (bool(cycles) and cycles[-1] <= live["run_cycles"], "'cycles' do not end with the run"),
        (live["peak_cycle"] in cycles, "'peak_cycle' is none of the cycles"),
        (len(set(names)) == len(names), "an owner is there twice"),
        (all(own["bytes"] for own in live["owners"]), "an owner has no bytes"),
        (all(end <= len(cycles) for end in behind), "an owner has more bytes than there are cycles"),
    ):
        if not right:
            raise PackageError(f"{where} is damaged: {text}")


def _check_numbers(found: Mapping[str, Any] | list[Any], where: str) -> None:
    numbers = found if isinstance(found, dict) else {str(place): value for place, value in enumerate(found)}
    _check(numbers, dict.fromkeys(numbers, _NUMBER), where)


def _check_partition(partition: Mapping[str, Any], where: str) -> None:
    if partition.get("chosen") is None:
        return
    _check(partition, {"chosen": _TABLE, "plans": _LIST, "segments": _LIST}, where)
    for plan in (partition["chosen"], *partition["plans"]):
        _check(plan, _PLAN, f"{where}: a plan")
    for segment in partition["segments"]:
        _check(segment, _SEGMENT, f"{where}: a segment")
        _check(segment, dict.fromkeys(("npu_ns", "transfer_ns", "switch_ns"), _MAYBE), where)
        for tensor in (*segment["inputs"], *segment["outputs"]):
            _check(tensor, _TENSOR, f"{where}: a tensor")


def _refuse(text: str) -> Any:
    raise ValueError(f"{text[:40]} is not a number of a report")


def _number(text: str) -> int | float:
    """Check a number; raise ValueError for a value that no report can have."""
    value = float(text)
    if not -_LARGEST <= value <= _LARGEST:
        _refuse(text)
    return value if value != round(value) or not text.lstrip("-").isdigit() else int(text)


def _check(found: object, fields: _Fields, where: str) -> None:
    if not isinstance(found, dict):
        raise PackageError(f"{where} is damaged: a table is expected, not {type(found).__name__}")
    for key, types in fields.items():
        value = found.get(key)
        if isinstance(value, int | float) and value < 0 and key not in _SIGNED:
            raise PackageError(f"{where} is damaged: {key!r} is {value}")
        if isinstance(value, bool) or not isinstance(value, types) or key not in found:
            raise PackageError(f"{where} is damaged: {key!r} is {type(value).__name__ if key in found else 'missing'}")


_ROWS = 12  # of operators, in text


class UnmodelledReport(Report):
    """A report without cycles and times; methods that show those raise UnsupportedError."""

    @property
    def latency_ms(self) -> float:
        """Raise UnsupportedError."""
        raise self._refusal()

    @property
    def cycles(self) -> int:
        """Raise UnsupportedError."""
        raise self._refusal()

    @property
    def operators(self) -> Any:
        """Raise UnsupportedError; ``report["layers"]`` has placement."""
        raise self._refusal()

    def to_html(self) -> str:
        """Raise UnsupportedError."""
        raise self._refusal()

    def to_csv(self) -> str:
        """Raise UnsupportedError."""
        raise self._refusal()

    def compare(self, *others: Report) -> str:
        """Raise UnsupportedError."""
        raise self._refusal()

    def _refusal(self) -> UnsupportedError:
        return UnsupportedError(f"there is no model of code for {self['target']}", hint="measure its runs")

    def __str__(self) -> str:
        rows = [f"  {kind:20} {name}: {where}" for kind, name, where in self._rows()]
        return "\n".join((self._headline(), *rows))

    def _repr_html_(self) -> str:
        """Show the summary and the first operators in a notebook."""
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
    """Return whether a package's machine has modelled cycles and times: only those have memories."""
    return plan.memory is not None or plan.target in targets.names()


def unmodelled_report(package: Package, plan: Plan) -> UnmodelledReport:
    """Return the report of ``package`` with this ``plan``; raise PackageError for a damaged one.

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
