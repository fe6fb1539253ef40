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


_CAUSES_SHOWN = 3
_TITLE = 40  # characters of a model's name in a title


@dataclass(frozen=True, slots=True)
class LayerChange:
    """An operator in the first report and in another; None where it is not there.

    ``cause``: by how much cycles of each cause changed, which adds up to the difference, or what changed of its place.
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
    causes = sorted(_changes_of(before, after), key=lambda item: -abs(item[1]))
    if difference and causes:
        yield f"cycles by cause, {difference:+,} in all: " + _listed(causes)
    for label, key in MEASURES[3:]:
        a, b = measure(before, key), measure(after, key)
        if a != b:
            yield f"{label}: {a:,.0f} -> {b:,.0f}"


def _changes_of(before: Report, after: Report) -> list[tuple[str, float]]:
    """By how much cycles of every cause changed; none where a report, or an operator's record, does not know causes."""
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
    """What tells reports apart: model, target and memory mode, as far as they differ; else their numbers."""
    parts = [[middle_cut(report["model"], _TITLE), report["target"], report["memory"]] for report in reports]
    differing = [i for i in range(3) if len({part[i] for part in parts}) > 1]
    names = [" ".join(part[i] for i in differing) for part in parts]
    return names if len(set(names)) == len(names) else [f"{i + 1}: {name}".rstrip(": ") for i, name in enumerate(names)]
