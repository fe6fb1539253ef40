"""A compile report as one HTML page that needs nothing else: no font, no picture, no script from anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from odc_mlir.formats.quantities import NOTHING, count_text, share_text, size_text, time_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Column, Html, TableCell, bullets, joined, pairs, short_name, table, tag
from odc_mlir.pages.page import Figure, Section
from odc_mlir.pages.page import render as render_page
from odc_mlir.runtime.reporting.explanation import help_text
from odc_mlir.runtime.reporting.report_code import OperatorCode, anchor, section
from odc_mlir.runtime.reporting.report_machine import energy, live_bytes, rooflines, steps
from odc_mlir.runtime.reporting.report_partition import plan_text
from odc_mlir.runtime.reporting.report_table import bound_by
from odc_mlir.simulator.path import CAUSES

# Rows of the summary: label, key, how its value is written.
_SUMMARY: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("target", "target", str),
    ("memory mode", "memory", str),
    ("NPU cycles", "cycles_total", count_text),
    ("NPU cycles, strict memory model", "cycles_total_strict", count_text),
    ("least cycles of this program", "ideal_cycles", count_text),
    ("least cycles of the model's operators on this machine", "model_floor_cycles", count_text),
    ("multiply-accumulates", "macs", count_text),
    ("use of the multipliers", "mac_utilization", share_text),
    ("operators on the NPU", "npu_op_count", count_text),
    ("operators on the host", "host_op_count", count_text),
)

# What the modelled latency consists of: label, key below ``modelled``.
_LATENCY = (
    ("latency, modelled", "latency_ms"),
    ("… on the NPU", "npu_ms"),
    ("… on the host", "host_ms"),
    ("… passing tensors", "transfer_ms"),
    ("… starting segments", "switch_ms"),
)

_MEMORY = (
    ("peak SRAM", "sram_peak_bytes"),
    ("peak of the local memories", "local_peak_bytes"),
    ("read from SRAM", "sram_read_bytes"),
    ("written to SRAM", "sram_write_bytes"),
    ("read from off-chip memory", "offchip_read_bytes"),
    ("constants of the model", "weights_raw_bytes"),
    ("constants as stored", "weights_encoded_bytes"),
    ("program", "program_bytes"),
    ("binaries", "binary_bytes"),
)

# What the queues of the machine do, for readers who do not know its manual.
_ENGINES = {
    "mac": "multiplier array",
    "vector": "vector unit",
    "xfer": "off-chip port",
    "load": "SRAM to tile buffer",
    "store": "tile buffer to SRAM",
    "weight": "weights and parameters",
    "fetch": "instruction fetch",
}


_ROOFLINE_NOTE = (
    "Each dot is an operator. What was done for it before its turn, such as fetching weights, takes none of its "
    "cycles, which can lift it above a slope."
)


_SRAM_NOTE = (
    "From the first cycle that writes a byte to the last that reads it. Each colour is what one operator wrote, an "
    "input of the program, or constants on their way; point at it for its name. The dashed line marks the peak, whose "
    "parts have the same colours below."
)


def render(report: Mapping[str, Any], code: Mapping[int, OperatorCode] = MappingProxyType({})) -> str:
    """The page; every text from the model is escaped. ``code``: what operators became, where the package is there."""
    layers: Sequence[Mapping[str, Any]] = report["layers"]
    sections = [
        Section("Defects of the compiler: please report them", _defects(report["defects"])),
        Section("Summary", pairs(_summary(report), caption="latency, cycles and work of one inference")),
        Section("What runs where", steps(report), "From left to right, in the order in which it runs."),
        Section("Why operators are on the host", _reasons(layers)),
        Section("Where the cycles go", _causes(report), "Every cycle has one cause: what the run waited for then."),
        Section(
            "Operators", _layers(layers, code), "Click a heading to sort; bars show what an operator's cycles went to."
        ),
        Section("When operators ran", _time_lines(layers), "From the first to the last cycle of each operator."),
        Section("What the engines did", _engines(report["engines"])),
        Section("Rooflines", rooflines(report), _ROOFLINE_NOTE),
        Section("Instructions", section(code), "From the operator of the model to what computes it."),
        Section("Memory", _memory(report), "Bytes of one inference."),
        Section("SRAM over time", live_bytes(report), _SRAM_NOTE),
        Section("Energy on the NPU, an estimate", energy(report.get("energy") or {})),
        Section("Why the plan is as it is", _partition(report["partition"])),
    ]
    note = f"{report['memory']} memory mode, compiler {report['compiler_version']}; modelled, not measured"
    return render_page(f"{report['model']} on {report['target']}", _figures(report), sections, note=note)


def _figures(report: Mapping[str, Any]) -> Iterator[Figure]:
    """The three numbers that matter most."""
    cycles = f"{count_text(report['cycles_total'])} NPU cycles"
    yield Figure("latency, modelled", time_text(1e6 * report["modelled"]["latency_ms"]), cycles)
    on_npu = sum(layer["macs"] for layer in report["layers"] if layer["placed"] == "npu")
    share = on_npu / report["macs"] if report["macs"] else None
    placed = f"{report['npu_op_count']} of {report['npu_op_count'] + report['host_op_count']} operators"
    yield Figure("multiply-accumulates on the NPU", share_text(share), placed)
    yield _binding(report)


def _binding(report: Mapping[str, Any]) -> Figure:
    """What most cycles went to; where that is not known, the engine that worked longest."""
    if causes := report.get("causes"):
        name = max(causes, key=lambda cause: causes[cause])
        share = share_text(causes[name] / (report["cycles_total"] or 1))
        return Figure("what binds", CAUSES.get(name, name), f"{share} of the cycles")
    name, part = binding_engine(report["engines"])
    return Figure(
        "busiest part", _ENGINES.get(name, name) or NOTHING, f"{share_text(part)} of the time" if name else ""
    )


def binding_engine(engines: Mapping[str, Mapping[str, float]]) -> tuple[str, float | None]:
    """The engine that worked longest, and its share of the time; an empty name where nothing ran."""
    if not engines:
        return "", None
    name, entry = max(engines.items(), key=lambda item: item[1]["busy_cycles"])
    total = sum(entry.values())
    return name, entry["busy_cycles"] / total if total else None


def _summary(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and value."""
    for label, key in _LATENCY:
        yield label, time_text(1e6 * report["modelled"][key])
    for label, key, text in _SUMMARY:
        yield label, NOTHING if report.get(key) is None else text(report[key])


def _memory(report: Mapping[str, Any]) -> Html:
    return pairs(((label, size_text(report[key])) for label, key in _MEMORY), caption="bytes by memory")


def _causes(report: Mapping[str, Any]) -> Html:
    """Cycles by cause, and what a better machine would make of them."""
    causes: Mapping[str, float] = report.get("causes", {})
    total = report["cycles_total"] or 1
    if not causes:
        return Html("")
    columns = (Column("cause"), Column("cycles", number=True), Column("share", number=True), Column(" "))
    full = max(causes.values()) or 1
    rows = [
        (
            joined((tag("strong", name), f" {CAUSES.get(name, '')}")),
            TableCell(count_text(cycles), cycles),
            TableCell(share_text(cycles / total), cycles),
            charts.stack({name: cycles}, [name], full),
        )
        for name, cycles in causes.items()
    ]
    better = [
        f"with {what['text']}: {count_text(what['cycles'])} cycles, {total / what['cycles']:.2f} times as fast"
        for what in sorted(report.get("what_if", {}).values(), key=lambda what: what["cycles"])
        if what["cycles"]
    ]
    return joined((bullets(better), table(columns, rows, caption="cycles by cause")))


def _defects(defects: Sequence[Mapping[str, str]]) -> Html:
    """What the compiler failed on; nothing where it did not."""
    columns = tuple(map(Column, ("operator", "result", "exception", "where")))
    rows = [(item["op"], short_name(item["tensor"]), item["exception"], item["location"]) for item in defects]
    return table(columns, rows, caption="defects")


def _reasons(layers: Iterable[Mapping[str, Any]]) -> Html:
    counts = Counter((layer["op"], layer["reason"]) for layer in layers if layer["placed"] != "npu")
    if not counts:
        return tag("p", "None is: the whole model runs on the NPU.")
    columns = (Column("count", number=True), Column("operator"), Column("reason"))
    rows = [(count, op, reason or "") for (op, reason), count in counts.most_common()]
    return table(columns, rows, caption="operators on the host by reason")


def _partition(partition: Mapping[str, Any]) -> Html:
    """The plans that were weighed, and what each segment takes and gives."""
    if partition["chosen"] is None:
        return tag("p", "There was nothing to choose.")
    plans = [plan for plan in partition["plans"] if plan != partition["chosen"]]
    rows = [("chosen", partition["chosen"]), *(("", plan) for plan in plans)]
    weighed = table(
        (Column(""), Column("plan")),
        [(mark, plan_text(plan)) for mark, plan in rows],
        caption="plans that were weighed",
    )
    columns = (
        Column("segment"),
        Column("operators", number=True),
        Column("MACs", number=True),
        Column("takes"),
        Column("gives"),
        Column("modelled"),
    )
    segments = [
        (
            item["name"],
            len(item["operators"]),
            TableCell(count_text(item["macs"]), item["macs"]),
            _tensors(item["inputs"]),
            _tensors(item["outputs"]),
            None if item["npu_ns"] is None else _parts(item),
        )
        for item in partition["segments"]
    ]
    return joined((weighed, table(columns, segments, caption="segments")))


def _tensors(items: Iterable[Mapping[str, Any]]) -> Html:
    return joined((joined((short_name(item["name"]), f" ({size_text(item['bytes'])})")) for item in items), ", ")


def _parts(segment: Mapping[str, Any]) -> str:
    npu, moved, switch = (time_text(segment[key]) for key in ("npu_ns", "transfer_ns", "switch_ns"))
    return f"{npu} NPU + {moved} tensors + {switch} switch"


def _engines(engines: Mapping[str, Mapping[str, float]]) -> Html:
    total = max((sum(entry.values()) for entry in engines.values()), default=0)
    states = ("busy_cycles", "stall_cycles", "idle_cycles")
    names = [state.partition("_")[0] for state in states]
    columns = (
        Column("engine"),
        *(Column(name, number=True) for name in names),
        Column("share of the time"),
    )
    rows = [
        (
            joined((tag("strong", engine), f" {_ENGINES.get(engine, '')}")),
            *(TableCell(count_text(entry[state]), entry[state]) for state in states),
            charts.stack({name: entry[state] for name, state in zip(names, states, strict=True)}, names, total),
        )
        for engine, entry in engines.items()
    ]
    return joined((charts.legend(names), table(columns, rows, caption="cycles of the engines"))) if rows else Html("")


def _time_lines(layers: Sequence[Mapping[str, Any]]) -> Html:
    """One time line per segment; operators that overlap lie on different rows."""
    segments: dict[str, list[Mapping[str, Any]]] = {}
    for layer in layers:
        if layer["placed"] == "npu" and "first_cycle" in layer:
            segments.setdefault(layer["segment"], []).append(layer)
    return joined(
        joined((tag("h3", name), _time_line(name, found))) for name, found in segments.items() if len(found) > 1
    )


def _time_line(segment: str, layers: Sequence[Mapping[str, Any]]) -> Html:
    ends: list[float] = []
    spans = []
    for index, layer in enumerate(sorted(layers, key=lambda item: item["first_cycle"])):
        row = next((i for i, end in enumerate(ends) if end <= layer["first_cycle"]), len(ends))
        ends[row : row + 1] = [layer["last_cycle"]]
        label = f"{layer['op']} {layer['name']}"
        spans.append(charts.TimelineSpan(str(row + 1), layer["first_cycle"], layer["last_cycle"], label, index))
    rows = [str(row + 1) for row in range(len(ends))]
    return charts.time_line(rows, spans, max(ends), title=f"operators of {segment} over cycles")


def _number(operator: int, code: Mapping[int, OperatorCode]) -> TableCell:
    """The place of an operator in the model, which leads to its instructions where they are known."""
    known = operator in code
    return TableCell(tag("a", operator, href=f"#{anchor(operator)}") if known else operator, operator)


def _layers(layers: Sequence[Mapping[str, Any]], code: Mapping[int, OperatorCode]) -> Html:
    spent = [layer.get("causes") or layer.get("busy_cycles", {}) for layer in layers]
    words = CAUSES if any(layer.get("causes") for layer in layers) else _ENGINES
    parts = [name for name in words if any(name in entry for entry in spent)]
    full = max((sum(entry.values()) for entry in spent), default=0)
    total = sum(layer["cycles"] for layer in layers) or 1
    columns = (
        Column("#", number=True, hint="place in the model"),
        Column("operator", tight=True),
        Column("result"),
        Column("placed", tight=True),
        Column("MACs", number=True),
        Column("cycles", number=True, hint="what the operator adds to the run"),
        Column("share", number=True, hint="of all NPU cycles"),
        Column("where they go"),
        Column("bound by", tight=True),
        Column("would help", tight=True, hint="twice as much of it makes the operator so many times as fast"),
        Column("host, modelled", number=True),
        Column("reason"),
    )
    rows = [
        (
            _number(layer["operator"], code),
            layer["op"],
            short_name(layer["name"]),
            layer["segment"] or layer["placed"],
            TableCell(count_text(layer["macs"]), layer["macs"]),
            TableCell(count_text(layer["cycles"]), layer["cycles"]),
            TableCell(share_text(layer["cycles"] / total), layer["cycles"]) if layer["placed"] == "npu" else None,
            TableCell(charts.stack(entry, parts, full), sum(entry.values())),
            bound_by(layer),
            help_text(layer),
            None
            if layer["placed"] == "npu"
            else TableCell(time_text(layer["host_modelled_ns"]), layer["host_modelled_ns"]),
            layer["reason"] or "",
        )
        for layer, entry in zip(layers, spent, strict=True)
    ]
    found = table(columns, rows, caption="operators of the model", classes=[layer["placed"] for layer in layers])
    return joined((charts.legend([words[name] for name in parts]), found))
