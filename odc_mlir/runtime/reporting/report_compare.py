"""What changed from one compile report to others, and what of the machine explains it, operator by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odc_mlir.formats.quantities import middle_cut
from odc_mlir.runtime.reporting.report_table import bound_by

Report = Mapping[str, Any]

# What reports are compared by: label, key; less is better in all of them.
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


_TITLE = 40  # characters of a model's name in a title


@dataclass(frozen=True, slots=True)
class LayerChange:
    """An operator in the first report and in another; None where it is not there.

    ``cause``: the engine whose busy cycles changed most, or what changed of its place.
    """

    name: str
    op: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    cause: str

    @property
    def cycles(self) -> int:
        """By how many cycles it takes longer; negative where less."""
        return _cycles(self.after) - _cycles(self.before)


def measure(report: Report, key: str) -> float:
    """A value of :data:`MEASURES`."""
    if key == "sram_bytes":
        return float(report["sram_read_bytes"] + report["sram_write_bytes"])
    return float(report[key])


def changes(before: Report, after: Report) -> list[LayerChange]:
    """Every operator of either report, the largest change of cycles first.

    Operators are the same when kind and result's name are; of several that share both, the first is the first.
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
    """Sentences that say what makes the difference as a whole, the weightiest first."""
    difference = after["cycles_total"] - before["cycles_total"]
    if before["target"] != after["target"] or before["memory"] != after["memory"]:
        yield (f"other machine: {before['target']} ({before['memory']}) against {after['target']} ({after['memory']})")
    if before["compiler_version"] != after["compiler_version"]:
        yield f"other compiler: {before['compiler_version']} against {after['compiler_version']}"
    busiest = sorted(_engine_changes(before, after), key=lambda item: -abs(item[1]))
    if difference and busiest:
        name, cycles = busiest[0]
        yield f"busy cycles changed most in engine {name}: {cycles:+,.0f} of {difference:+,} cycles in all"
    for label, key in MEASURES[3:]:
        a, b = measure(before, key), measure(after, key)
        if a != b:
            yield f"{label}: {a:,.0f} -> {b:,.0f}"


def _engine_changes(before: Report, after: Report) -> Iterator[tuple[str, float]]:
    for name in {*before["engines"], *after["engines"]}:
        first, second = (report["engines"].get(name, {}).get("busy_cycles", 0) for report in (before, after))
        yield name, second - first


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
    first, second = before.get("busy_cycles", {}), after.get("busy_cycles", {})
    deltas = {name: second.get(name, 0) - first.get(name, 0) for name in {*first, *second}}
    name = max(deltas, key=lambda key: (abs(deltas[key]), key), default="")
    if not name or abs(deltas[name]) < 0.5:
        return "waits"
    return f"{name} {deltas[name]:+,.0f}, bound by {bound_by(before)} -> {bound_by(after)}"


def titles(reports: Sequence[Report]) -> list[str]:
    """What tells reports apart: model, target and memory mode, as far as they differ; else their numbers."""
    parts = [[middle_cut(report["model"], _TITLE), report["target"], report["memory"]] for report in reports]
    differing = [i for i in range(3) if len({part[i] for part in parts}) > 1]
    names = [" ".join(part[i] for i in differing) for part in parts]
    return names if len(set(names)) == len(names) else [f"{i + 1}: {name}".rstrip(": ") for i, name in enumerate(names)]
