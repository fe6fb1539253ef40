"""A compile report as a self-contained HTML page, with no external fonts, pictures or scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odc_mlir.formats.quantities import NOTHING, count_text, counted, middle_cut, share_text, size_text, time_text
from odc_mlir.isa import container
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.compact import read_code
from odc_mlir.ops.check import type_text
from odc_mlir.ops.spec import Node, ResultType, TensorInfo
from odc_mlir.pages import charts
from odc_mlir.pages.markup import (
    Column,
    Figure,
    Html,
    Section,
    TableCell,
    bullets,
    folded,
    joined,
    pairs,
    short_name,
    short_names,
    table,
    tag,
)
from odc_mlir.pages.markup import render as render_page
from odc_mlir.runtime.reporting.report_partition import HostGroup, host_groups, plan_text
from odc_mlir.runtime.reporting.report_table import bound_by, explanation_lines, help_text, memory_lines
from odc_mlir.simulator.path import CAUSES

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


MOST_INSTRUCTIONS = 24  # limit on instructions shown per operator
_EXTENSION = "npu"
_MOST_PLAIN = 1000  # instructions of all operators; more are compressed
_LONGEST_NAME = 40  # characters of a name in tooltips


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """Code of an operator. ``source``: the operator as text. ``instructions``: numbers and texts in program order."""

    source: str
    segment: str
    instructions: Sequence[tuple[int, str]]


def operator_code(package: Package) -> dict[int, OperatorCode]:
    """Return the compiled operators by position in the model, or {} for packages of other targets."""
    if package.plan is None or package.plan.extension != _EXTENSION:
        return {}
    found: dict[int, OperatorCode] = {}
    graph = package.executor().graph
    for step in package.plan.segments:
        program = container.read(package.files.segment(step.file))
        lines = [format_instruction(instr) for instr in read_code(program.code).instructions]
        ranges: dict[str, list[Sequence[tuple[int, int]]]] = {}
        for entry in program.operators:
            ranges.setdefault(entry.name, []).append(entry.ranges)
        nodes = [graph.nodes[index].node for index in step.operators]
        results = program.result_names([[info.name for info in node.results] for node in nodes])
        for index, node, names in zip(step.operators, nodes, results, strict=True):
            own = [spans for name in names if ranges.get(name) for spans in ranges[name].pop(0)]
            places = [place for first, count in own for place in range(first, first + count)]
            instructions = [(place, lines[place]) for place in sorted(places)]
            found[index] = OperatorCode(_source(node), step.name, instructions)
    return found


def _source(node: Node) -> str:
    def typed(info: TensorInfo) -> str:
        return f"{info.name}: {type_text(ResultType(info.dtype, info.shape))}"

    operands = ", ".join(typed(info) for info in node.operands if info is not None)
    options = ", ".join(f"{name} = {value}" for name, value in node.options.items() if not isinstance(value, bytes))
    results = ", ".join(typed(info) for info in node.results)
    return f"{results} = {node.spec.name}({operands}) {{{options}}}"


def section(code: Mapping[int, OperatorCode]) -> Html:
    """Return a foldable section for every operator."""
    packed = sum(len(item.instructions) for item in code.values()) > _MOST_PLAIN
    found = []
    for operator, item in code.items():
        count, kind = len(item.instructions), item.source.partition(" = ")[2].partition("(")[0]
        text = f" {counted(count, 'instruction')} of {item.segment}" if count else " none"
        content = tag("pre", *_lines(item), class_="difference")
        summary = joined((tag("strong", f"{operator} {kind}"), text))
        found.append(folded(summary, content, packed=packed, id=f"operator-{operator}", data_op=operator))
    return joined(found)


def _lines(item: OperatorCode) -> Iterator[Html]:
    yield joined((tag("strong", item.source), "\n"))
    if not item.instructions:
        yield Html("it is part of another operator's instructions, or has none\n")
    for place, line in item.instructions[:MOST_INSTRUCTIONS]:
        yield joined((tag("span", f"{place:6d}  ", class_="note"), line, "\n"))
    if (left := len(item.instructions) - MOST_INSTRUCTIONS) > 0:
        yield tag("span", f"and {count_text(left)} more: odc-dump --listing", class_="note")


# By resource in ``amounts``: name, key of the capacity per cycle in ``hardware``, and unit.
_ROOFS = {
    "sram": ("SRAM port", "sram_bytes_per_cycle", "byte over the SRAM port"),
    "offchip": ("off-chip port", "offchip_bytes_per_cycle", "byte over the off-chip port"),
    "requant": ("requantisation lanes", "requant_lanes", "result"),
}


def rooflines(report: Mapping[str, Any]) -> Html:
    """Draw rooflines for all resources in :data:`_ROOFS` that operators use. Return "" if there are no data."""
    machine: Mapping[str, int] = report.get("hardware") or {}
    if not machine:
        return Html("")
    multipliers = charts.Roof("multipliers", value=float(machine["macs_per_cycle"]))
    drawn = []
    for resource, (name, rate, unit) in _ROOFS.items():
        points = list(_points(report["layers"], resource))
        roofs = [multipliers, charts.Roof(name, slope=float(machine[rate]))]
        if chart := charts.roofline(roofs, points, unit, title=f"MACs per cycle over MACs per {unit}"):
            drawn.append(joined((tag("h3", f"MACs per cycle over MACs per {unit}"), chart)))
    return joined(drawn)


def _label(layer: Mapping[str, Any]) -> str:
    return f"{layer['operator']} {layer['op']} {middle_cut(layer['name'], _LONGEST_NAME)}"


def _points(layers: Iterable[Mapping[str, Any]], resource: str) -> Iterator[tuple[int, str, float, float]]:
    for layer in layers:
        used = layer.get("amounts", {}).get(resource, 0)
        if used and layer["macs"] and layer["cycles"]:
            yield layer["operator"], _label(layer), layer["macs"] / used, layer["macs"] / layer["cycles"]


def energy(found: Mapping[str, Any]) -> Html:
    """Format the energy estimate by action."""
    total = found.get("estimate_uj")
    if not total:
        return Html("")
    bounds = f"{total:.3g} µJ, between {found['low_uj']:.3g} and {found['high_uj']:.3g}; {found['estimated_with']}"
    parts = {name.replace("_", " "): part for name, part in Counter(found["parts_uj"]).most_common()}
    return joined((tag("p", bounds), _shares(("action", "µJ"), parts, "{:.3g}".format, total, "energy by action")))


def _shares(
    titles: tuple[str, str],
    parts: Mapping[str, float],
    text: Callable[[float], str],
    total: float,
    caption: str,
    *,
    named: Callable[[str], object] = short_name,
    coloured: Sequence[str] = (),
) -> Html:
    """Format the parts of ``total`` with shares and bars. ``coloured``: names in the order of colours."""
    columns = (Column(titles[0]), Column(titles[1], number=True), Column("share", number=True), Column(" "))
    full = total if coloured else max(parts.values(), default=0)
    rows = [
        (
            named(name),
            TableCell(text(part), part),
            TableCell(share_text(part / total), part),
            charts.stack({name: part}, coloured or [name], full),
        )
        for name, part in parts.items()
    ]
    return table(columns, rows, caption=caption)


def steps(report: Mapping[str, Any]) -> Html:
    """Draw the plan as a row of boxes: segments, and sequences of host operators between segments."""
    segments = {item["name"]: item for item in report["partition"]["segments"]}
    boxes = [_box(name, list(found), segments) for name, found in groupby(_ran(report["layers"]), key=_place)]
    return tag("div", *boxes, class_="steps") if segments else Html("")


def _ran(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    first: dict[str, int] = {}
    for index, layer in enumerate(layers):
        first.setdefault(_place(layer), index)
    return sorted(layers, key=lambda layer: first[_place(layer)] if layer["segment"] else layer["operator"])


def _place(layer: Mapping[str, Any]) -> str:
    return layer["segment"] or "host"


def _box(name: str, layers: Sequence[Mapping[str, Any]], segments: Mapping[str, Mapping[str, Any]]) -> Html:
    count = f"{len(layers)} operator{'s' if len(layers) > 1 else ''}"
    segment = segments.get(name)
    if segment is None:
        kinds = ", ".join(dict.fromkeys(layer["op"] for layer in layers))
        taken = time_text(sum(layer["host_modelled_ns"] for layer in layers))
        return tag("div", tag("strong", "host"), tag("span", count), tag("span", short_name(kinds)), tag("span", taken))
    taken = "" if segment["npu_ns"] is None else _parts(segment)
    ends = (("takes", "inputs"), ("gives", "outputs"))
    passed = [tag("span", f"{word} ", _tensors(segment[key])) for word, key in ends]
    macs = tag("span", f"{count_text(segment['macs'])} MACs")
    return tag("div", tag("strong", name), tag("span", count), macs, tag("span", taken), *passed, class_="device")


def live_bytes(report: Mapping[str, Any]) -> Html:
    """Draw SRAM contents over the cycles of each segment, and list the contents at the peak. Return "" if unknown."""
    names = {layer["name"]: layer["operator"] for layer in report["layers"]}
    return joined(_live_segment(live, names) for live in report.get("sram_live") or ())


def _live_segment(live: Mapping[str, Any], operators: Mapping[str, int]) -> Html:
    peak, owners = live["peak_bytes"], [own["name"] for own in live["owners"]]
    at = f"cycle {count_text(round(live['peak_cycle']))} of {live['segment']}"
    text = f"at most {size_text(peak)} are in use, at {at}; {size_text(live['reserved_bytes'])} are reserved"
    texts = [f"{operators.get(name, '')} {middle_cut(name, _LONGEST_NAME)}".lstrip() for name in owners]
    layers = [
        charts.StackedSeries(shown, own["first"], own["bytes"], operators.get(own["name"]))
        for shown, own in zip(texts, live["owners"], strict=True)
    ]
    title = f"bytes in use over cycles of {live['segment']}"
    chart = charts.layers(layers, live["cycles"], live["run_cycles"], mark=live["peak_cycle"], title=title)
    caption = f"in use at the peak of {live['segment']}"
    held = _shares(
        ("of", "bytes"), live["held"], size_text, peak, caption, named=short_names(owners).__getitem__, coloured=owners
    )
    return joined((tag("h3", live["segment"]), tag("p", text), chart, held))


# Rows of the summary: label, key, and function that formats the value.
_SUMMARY: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("NPU cycles", "cycles_total", count_text),
    ("NPU cycles with limited bursts in flight (odc-sim --memory-model strict)", "cycles_total_strict", count_text),
    ("lower bound on the cycles of this program", "ideal_cycles", count_text),
    ("lower bound on the cycles of any program of the model", "model_floor_cycles", count_text),
    ("multiply-accumulates", "macs", count_text),
    ("use of the multipliers", "mac_utilization", share_text),
)

# Parts of the modelled latency: label, key below ``modelled``.
_LATENCY = (
    ("latency, modelled", "latency_ms"),
    ("… on the NPU", "npu_ms"),
    ("… operators on the host", "host_ms"),
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

# Descriptions of the machine's queues.
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
    "Each dot is an operator. Work for it before its turn, such as fetching weights, is not part of its cycles and "
    "can lift it above a slope."
)

_SRAM_NOTE = (
    "From the first cycle that writes a byte to the last that reads it. Each colour is the result of one operator, an "
    "input of the program, or constants in transfer; point at it for its name. The dashed line marks the peak; its "
    "parts have the same colours below."
)


def render(report: Mapping[str, Any], code: Mapping[int, OperatorCode] = MappingProxyType({})) -> str:
    """Return the page, with all text of the model escaped. ``code``: instructions of operators, if available."""
    layers: Sequence[Mapping[str, Any]] = report["layers"]
    memory = [(label, size_text(report[key])) for label, key in _MEMORY]
    columns = tuple(map(Column, ("operator", "result", "exception", "where")))
    rows = [(item["op"], short_name(item["tensor"]), item["exception"], item["location"]) for item in report["defects"]]
    sections = [
        Section("Defects of the compiler: please report them", table(columns, rows, caption="defects")),
        Section("Why operators are on the host", _reasons(report)),
        Section("Summary", pairs(_summary(report), caption="latency, cycles and work of one inference")),
        Section("What runs where", steps(report), "In the order in which it runs."),
        Section("Where the cycles go", _causes(report), "Every cycle has one cause: what the run waits for."),
        Section(
            "Operators",
            _layers(layers, code),
            "Click a heading to sort. Select an operator, here or in a chart, to see it in all of them; Escape clears.",
        ),
        Section("When operators ran", _time_lines(layers), "Engines over cycles; grey: idle, or waiting."),
        Section("What the engines did", _engines(report["engines"])),
        Section("Rooflines", rooflines(report), _ROOFLINE_NOTE),
        Section("Instructions", section(code), "Instructions of each operator of the model."),
        Section("Memory", pairs(memory, caption="bytes by memory"), "Bytes of one inference."),
        Section("SRAM over time", live_bytes(report), _SRAM_NOTE),
        Section("Energy on the NPU, an estimate", energy(report.get("energy") or {})),
        Section("Choice of the plan", _partition(report["partition"])),
    ]
    note = f"{report['memory']} memory mode, compiler {report['compiler_version']}; modelled, not measured"
    return render_page(f"{report['model']} on {report['target']}", _figures(report), sections, note=note)


def _figures(report: Mapping[str, Any]) -> Iterator[Figure]:
    cycles = f"{count_text(report['cycles_total'])} NPU cycles"
    latency: float = report["modelled"]["latency_ms"]
    yield Figure("latency, modelled", time_text(1e6 * latency), cycles)
    rate = 1e3 / latency if latency else None
    alone = sum(layer["host_modelled_ns"] for layer in report["layers"]) / 1e6
    times = f"{alone / latency:,.3g} times the host alone" if latency and report["npu_op_count"] else "the host alone"
    shown = NOTHING if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    yield Figure("inferences per second", shown, times)
    on_npu = sum(layer["macs"] for layer in report["layers"] if layer["placed"] == "npu")
    share = on_npu / report["macs"] if report["macs"] else None
    placed = f"{report['npu_op_count']} of {report['npu_op_count'] + report['host_op_count']} operators"
    yield Figure("multiply-accumulates on the NPU", share_text(share), placed)
    yield _binding(report)
    yield _helping(report)


def _longest_part(report: Mapping[str, Any]) -> tuple[str, str]:
    return max(_LATENCY[1:], key=lambda part: float(report["modelled"][part[1]]))


def _helping(report: Mapping[str, Any]) -> Figure:
    label = "what would help"
    if _longest_part(report)[1] == "host_ms" and (groups := _groups(report)):
        wanted = f"{counted(report['host_op_count'], 'operator')} on the NPU"
        return Figure(label, wanted, groups[0].remedy or groups[0].cause)
    tried = {what["cycles"]: what["text"] for what in report.get("what_if", {}).values()}
    if not (cycles := min(filter(None, tried), default=0)):
        return Figure(label, NOTHING, "no tried change of the machine")
    return Figure(label, tried[cycles], f"{report['cycles_total'] / cycles:.2f} times as fast on the NPU")


def _binding(report: Mapping[str, Any]) -> Figure:
    """Return the longest part of the latency. If it is the NPU, return the cause of most cycles."""
    label, part = _longest_part(report)
    if part != "npu_ms":
        share = share_text(report["modelled"][part] / (report["modelled"]["latency_ms"] or 1))
        return Figure("what binds", label.removeprefix("… "), f"{share} of the latency")
    causes = report.get("causes") or {"": 0}
    name = max(causes, key=lambda cause: causes[cause])
    share = share_text(causes[name] / (report["cycles_total"] or 1))
    return Figure("what binds", CAUSES.get(name, name) or NOTHING, f"{share} of the cycles" if name else "")


def _summary(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for label, key in _LATENCY:
        yield label, time_text(1e6 * report["modelled"][key])
    for label, key, text in _SUMMARY:
        yield label, NOTHING if report.get(key) is None else text(report[key])


def _causes(report: Mapping[str, Any]) -> Html:
    causes: Mapping[str, float] = report.get("causes", {})
    total = report["cycles_total"] or 1
    if not causes:
        return Html("")
    better = explanation_lines(causes, report.get("what_if", {}), report["cycles_total"])
    better = chain(better, memory_lines(report))

    def named(name: str) -> Html:
        return joined((tag("strong", name), f" {CAUSES.get(name, '')}"))

    shares = _shares(("cause", "cycles"), causes, count_text, total, "cycles by cause", named=named)
    return joined((bullets(better), shares))


def _groups(report: Mapping[str, Any]) -> list[HostGroup]:
    return host_groups(report["layers"], report["target"], quantized=report.get("quantization") is not None)


def _reasons(report: Mapping[str, Any]) -> Html:
    if not (groups := _groups(report)):
        return tag("p", "None: the whole model runs on the NPU.")
    command = f"odc-compile MODEL --target {report['target']} --quantize int8 --calibration DATA.npz -o PACKAGE"
    shown = tag("p", tag("code", command)) if "--quantize" in groups[0].remedy else ""
    return joined((bullets(group.line(report["macs"]) for group in groups), shown))


def _partition(partition: Mapping[str, Any]) -> Html:
    chosen = partition["chosen"]
    if chosen is None:
        return tag("p", "There was only one plan.")
    weighed = [("chosen" if plan == chosen else "", plan_text(plan)) for plan in partition["plans"]]
    return table((Column(""), Column("plan")), weighed, caption="compared plans")


def _tensors(items: Iterable[Mapping[str, Any]]) -> Html:
    return joined((joined((short_name(item["name"]), f" ({size_text(item['bytes'])})")) for item in items), ", ")


def _parts(segment: Mapping[str, Any]) -> str:
    npu, moved, switch = (time_text(segment[key]) for key in ("npu_ns", "transfer_ns", "switch_ns"))
    return f"{npu} NPU + {moved} tensors + {switch} switch"


def _engines(engines: Mapping[str, Mapping[str, float]]) -> Html:
    total = max((sum(entry.values()) for entry in engines.values()), default=0)
    states = ("busy_cycles", "stall_cycles", "idle_cycles")
    names = [state.partition("_")[0] for state in states]
    columns = (Column("engine"), *(Column(name, number=True) for name in names), Column("share of the time"))
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
    found = groupby((layer for layer in _ran(layers) if layer.get("spans")), key=_place)
    return joined(joined((tag("h3", name), _time_line(name, list(own)))) for name, own in found)


def _time_line(segment: str, layers: Sequence[Mapping[str, Any]]) -> Html:
    engines = [name for engine, name in _ENGINES.items() if any(engine in layer["spans"] for layer in layers)]
    operators = []
    for layer in layers:
        number, cycles = layer["operator"], {_ENGINES[engine]: ends for engine, ends in layer["spans"].items()}
        operators.append(charts.BusyOperator(number, (_label(layer), f"{number} {layer['op']}", str(number)), cycles))
    end = max(max(cycles) for item in operators for cycles in item.cycles.values())
    return charts.time_line(engines, operators, end, title=f"engines of {segment} over cycles")


def _layers(layers: Sequence[Mapping[str, Any]], code: Mapping[int, OperatorCode]) -> Html:
    spent = [layer.get("causes") or layer.get("busy_cycles", {}) for layer in layers]
    words = CAUSES if any(layer.get("causes") for layer in layers) else _ENGINES
    parts = [name for name in words if any(name in entry for entry in spent)]
    full = max((sum(entry.values()) for entry in spent), default=0)
    total = sum(layer["cycles"] for layer in layers) or 1
    names = short_names([layer["name"] for layer in layers])
    links = {operator: tag("a", operator, href=f"#operator-{operator}") for operator in code}
    columns = (
        Column("#", number=True, hint="position in the model"),
        Column("operator", tight=True),
        Column("result"),
        Column("placed", tight=True),
        Column("MACs", number=True),
        Column("cycles", number=True, hint="cycles that the operator adds to the run"),
        Column("share", number=True, hint="of all NPU cycles"),
        Column("where they go"),
        Column("bound by", tight=True),
        Column("would help", tight=True, hint="speed-up of the operator with twice the resource"),
        Column("host, modelled", number=True),
        Column("reason", hint="and the line of the model's source, if it is known"),
    )
    rows = [
        (
            TableCell(links.get(layer["operator"], layer["operator"]), layer["operator"]),
            layer["op"],
            names[layer["name"]],
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
            " at ".join(filter(None, (layer["reason"], layer.get("source")))),
        )
        for layer, entry in zip(layers, spent, strict=True)
    ]
    found = table(columns, rows, caption="operators of the model", classes=[layer["placed"] for layer in layers])
    return joined((charts.legend([words[name] for name in parts]), found))
