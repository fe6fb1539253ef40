"""Compile reports as JSON files: read again, and checked as what comes from outside is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import lt
from pathlib import Path
from typing import Any

from odc_mlir.errors import PackageError

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
    """The report in the file ``path``; raises PackageError where it is none, or another version's."""
    try:
        document = json.loads(Path(path).read_bytes(), parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{path} is not a compile report: {error}") from None
    if not isinstance(document, dict) or "layers" not in document:
        raise PackageError(f"{path} is not a compile report", hint="odc-compile --report-json writes one")
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
    """What the report may leave out: cycles by engine and by cause, and what would help."""
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
    """What lies in SRAM over the time of a segment: that it is complete, in order, and adds up."""
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
    """A number as reports have them; raises ValueError for one that none can have."""
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
