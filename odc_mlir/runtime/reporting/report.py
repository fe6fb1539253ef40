"""The compile report: where every operator went, and what one inference costs on the target.

Keys keep their names and meanings; new ones may be added. Everything follows from the package and is by the modelled
clock (see :mod:`.clocks`): cycles and bytes are the simulator's, summed over the segments of one inference; times of
the host are those of the target's host. What was measured on this machine is under ``measured``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OdcError, PackageError, UnsupportedError
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.isa.container import read as read_container
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.devices.base import ExplainedProgram, MemoryModel, ModelledProgram
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.work import Measured, graph_work
from odc_mlir.runtime.reporting.bounds import ideal_cycles, layer_floor, model_floor_cycles
from odc_mlir.runtime.reporting.clocks import Modelled, host_of, modelled
from odc_mlir.runtime.reporting.explanation import EXPLAINED, causes_of_segments, live_in_segments, what_ifs
from odc_mlir.runtime.reporting.report_energy import estimate
from odc_mlir.runtime.reporting.report_energy import total as total_energy
from odc_mlir.runtime.reporting.report_file import SCHEMA_VERSION
from odc_mlir.runtime.reporting.report_object import Report
from odc_mlir.runtime.reporting.report_partition import partition_report
from odc_mlir.runtime.reporting.report_unmodelled import is_modelled
from odc_mlir.simulator.windows import windows

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

# Counters that are sums over segments: report key, path in the counters of one run.
_SUMS = (
    ("program_bytes", ("program_bytes",)),
    ("weights_encoded_bytes", ("constant_bytes",)),
    ("offchip_read_bytes", ("ports", "offchip", "read_bytes")),
    ("offchip_write_bytes", ("ports", "offchip", "write_bytes")),
    ("sram_read_bytes", ("ports", "sram", "read_bytes")),
    ("sram_write_bytes", ("ports", "sram", "write_bytes")),
)


def build_report(package: Package, *, quick: bool = False) -> Report:
    """The report of ``package``; raises PackageError when nothing in it is compiled.

    Raises UnsupportedError for code of which nothing is modelled.

    ``quick`` leaves out what takes more simulations: ``cycles_total_strict``, which is None, and why cycles are spent.
    """
    executor, plan = _planned(package)
    work = graph_work(executor.graph, host_of(plan))
    models: tuple[MemoryModel, ...] = ("parity",) if quick else ("parity", "strict")
    found = {step.file: _SegmentCounters(step, executor, models, explained=not quick) for step in plan.segments}
    segments = [segment for segment in found.values() if segment.parity]
    clock = _modelled(plan, work, segments)
    layers = _layers(package, plan, work, found)
    on_npu = [layer for layer in layers if layer["placed"] == "npu"]
    cycles = sum(segment.parity["cycles"] for segment in segments)
    peak = segments[0].macs_per_cycle if segments else 0
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": package.name,
        "target": plan.target,
        "memory": plan.memory,
        "prefer": plan.options.get("prefer"),
        "quantize": plan.options.get("quantize"),
        "quantization": package.verdict,
        "compiler_version": plan.compiler_version,
        "clock_hz": _clock_hz(segments),
        "cycles_total": cycles,
        "cycles_total_strict": None if quick else sum(segment.counters["strict"]["cycles"] for segment in segments),
        "latency_ms": clock.latency_ms,
        "modelled": clock.to_dict(),
        "macs": sum(item.macs for item in work.works),
        "mac_utilization": sum(layer["macs"] for layer in on_npu) / (peak * cycles) if cycles else 0.0,
        "model_floor_cycles": sum(segment.model_floor_cycles(work) for segment in segments),
        "ideal_cycles": sum(segment.ideal_cycles(work) for segment in segments),
        "sram_peak_bytes": max((segment.parity["sram_peak_bytes"] for segment in segments), default=0),
        "sram_peak": _sram_peak(package, segments),
        "sram_live": live_in_segments(
            (segment.step.name, segment.parity["sram_peak_bytes"], segment.explanation) for segment in segments
        ),
        "local_peak_bytes": max((sum(s.parity["local_peak_bytes"].values()) for s in segments), default=0),
        **{key: sum(_at(segment.parity, path) for segment in segments) for key, path in _SUMS},
        "weights_raw_bytes": _constant_bytes(executor, (layer["operator"] for layer in on_npu)),
        "binary_bytes": sum(len(package.files.segment(segment.step.file)) for segment in segments),
        "npu_op_count": len(on_npu),
        "host_op_count": len(layers) - len(on_npu),
        "segment_count": len(plan.segments),
        "fallbacks": executor.fallbacks,
        "defects": list(plan.partition.get("defects", ())),
        "partition": partition_report(plan, work, clock),
        "layers": layers,
        "engines": _engines(segments),
        "hardware": dict(segments[0].parity["hardware"]) if segments else {},
        "energy": total_energy([segment.energy for segment in segments], _energy_figures(segments)),
        "causes": causes_of_segments([segment.explanation for segment in segments]),
        "what_if": what_ifs([(segment.explanation, segment.parity["cycles"]) for segment in segments]),
        "measured": dict(package.measured),
    }
    return Report(report)


def modelled_inference(executor: PlanExecutor) -> Modelled:
    """One inference by the modelled clock, as reports have it."""
    plan, segments = executor.plan, executor.segments
    cycles = {unit.step.file: unit.cycles() for unit in segments}
    programs = [unit.program for unit in segments if isinstance(unit.program, ModelledProgram)]
    clock_hz = next((program.target.clock_hz for program in programs), None)
    usable = {file: value for file, value in cycles.items() if value is not None}
    return modelled(plan, graph_work(executor.graph, host_of(plan)), usable, clock_hz)


def _planned(package: Package) -> tuple[PlanExecutor, Plan]:
    if package.plan is None:
        raise PackageError(
            "nothing in this package is compiled, so there is no report", location=package.files.location
        )
    if not is_modelled(package.plan):
        text = f"there is no model of code for {package.plan.target}"
        raise UnsupportedError(text, hint="measure its runs; odc-compile --report-json has sizes and placement")
    executor = package.executor()
    assert isinstance(executor, PlanExecutor), "plans are run by nothing else"
    return executor, package.plan


def _energy_figures(segments: Sequence[_SegmentCounters]) -> str | None:
    """What energy is estimated with."""
    targets = [segment.program.target for segment in segments if segment.program is not None]
    return targets[0].energy.description if targets else None


def _modelled(plan: Plan, work: Measured, segments: Sequence[_SegmentCounters]) -> Modelled:
    cycles = {segment.step.file: segment.parity["cycles"] for segment in segments}
    return modelled(plan, work, cycles, _clock_hz(segments))


def _clock_hz(segments: Sequence[_SegmentCounters]) -> int | None:
    return segments[0].clock_hz if segments else None


def _sram_peak(package: Package, segments: Sequence[_SegmentCounters]) -> Mapping[str, Any]:
    """What the arena of the segment with the largest one is full of; nothing where binaries do not say it."""
    found = []
    for segment in segments:
        peak = read_container(package.files.segment(segment.step.file)).metadata.get("sram_peak")
        if isinstance(peak, dict):
            found.append({"segment": segment.step.name, **peak})
    return max(found, key=lambda peak: peak["arena_bytes"], default={})


class _SegmentCounters:
    """A segment's counters under each of ``models``; there are none when the device cannot run it."""

    def __init__(
        self, step: SegmentStep, executor: PlanExecutor, models: Sequence[MemoryModel], *, explained: bool
    ) -> None:
        self.step = step
        self.counters: dict[str, Mapping[str, Any]] = {}
        self.explanation: Mapping[str, Any] = {}
        unit = next(unit for unit in executor.segments if unit.step is step)
        self.failure = unit.failure
        program = unit.program if unit.failure is None else None
        self.program: ModelledProgram | None = program if isinstance(program, ModelledProgram) else None
        if self.program is not None:
            try:
                self.counters = {model: self.program.measure(model).counters for model in models}
                if explained and isinstance(self.program, ExplainedProgram):
                    self.explanation = self.program.explain()
            except OdcError as error:
                self.failure = f"cannot measure the segment: {error}"

    @property
    def parity(self) -> Mapping[str, Any]:
        return self.counters.get("parity", {})

    @property
    def clock_hz(self) -> int:
        return self.program.target.clock_hz if self.program is not None else 0

    @property
    def macs_per_cycle(self) -> int:
        return self.program.target.array.macs_per_cycle if self.program is not None else 0

    def ideal_cycles(self, work: Measured) -> int:
        """The bound of our program."""
        if self.program is None:
            return 0
        floor_cycles = self.model_floor_cycles(work)
        return ideal_cycles(self.step, work.tensors, self.program.target, self.parity, floor_cycles)

    def model_floor_cycles(self, work: Measured) -> int:
        """The bound of the model's operators, whatever the program."""
        if self.program is None:
            return 0
        memory, stored = str(self.parity["memory"]), int(self.parity["constant_bytes"])
        return model_floor_cycles(self.step, work.nodes, work.tensors, self.program.target, memory, stored)

    @property
    def energy(self) -> dict[str, Any]:
        """An estimate of one run's energy."""
        assert self.program is not None
        parity = self.parity
        return estimate(parity.get("amounts", {}), parity["macs_useful"], parity["cycles"], self.program.target)

    def layer_energy(self, operator: Mapping[str, Any]) -> dict[str, Any]:
        """An estimate of one operator's energy, without the program."""
        assert self.program is not None
        macs, cycles = operator["executed_macs"], operator["cycles"]
        return estimate(operator.get("amounts", {}), macs, cycles, self.program.target)

    def layer_floor(self, node: Node) -> dict[str, int]:
        """The least cycles of an operator by what it cannot do without."""
        return {} if self.program is None else layer_floor(node, self.program.target, self.parity["memory"])

    def operator_times(self, nodes: Sequence[Node], data: bytes) -> list[dict[str, Any]]:
        """Counters of the segment's operators, each with the cycles that it adds to the run, and why.

        In the order of ``nodes``, its operators; nothing of one that became part of others. ``data``: its binary.
        """
        own = [[info.name for info in node.results] for node in nodes]
        times = self._named_times()
        found = [
            [times[name].pop(0) for name in names if times.get(name)]
            for names in (read_container(data).result_names(own) if times else own)
        ]
        return [_together(parts) for parts in found]

    def _named_times(self) -> dict[str, list[dict[str, Any]]]:
        """The same by the names that the program's map has."""
        result: dict[str, list[dict[str, Any]]] = {}
        ordered = sorted(self.parity.get("operators", ()), key=lambda o: (o["last_cycle"], o["first_cycle"]))
        charged = windows([operator["last_cycle"] for operator in ordered], self.parity.get("cycles", 0))
        why = self.explanation.get("operators", [{}] * len(ordered))
        for operator, (begin, end), reasons in zip(ordered, charged, why, strict=True):
            known = {key: reasons[key] for key in EXPLAINED if key in reasons}
            result.setdefault(operator["name"], []).append({**operator, "cycles": end - begin, **known})
        return result


def _together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counters of one operator, whose results may be computed one by one."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    longest = max(parts, key=lambda part: part["cycles"])
    known: dict[str, Any] = dict(longest)
    known |= {key: sum(part[key] for part in parts) for key in ("cycles", "executed_macs")}
    known |= {"first_cycle": min(part["first_cycle"] for part in parts)}
    known |= {"last_cycle": max(part["last_cycle"] for part in parts)}
    for key in ("busy_cycles", "amounts", "causes"):
        total: Counter[str] = Counter()
        for part in parts:
            total.update(part.get(key, {}))
        if key in longest:
            known[key] = dict(total)
    if known.get("causes"):
        known["binds"] = max(known["causes"], key=known["causes"].__getitem__)
    return known


def _at(counters: Mapping[str, Any], path: Sequence[str]) -> int:
    value: Any = counters
    for key in path:
        value = value.get(key, 0) if isinstance(value, Mapping) else 0
    return int(value)


def _layers(
    package: Package, plan: Plan, work: Measured, found: Mapping[str, _SegmentCounters]
) -> list[dict[str, Any]]:
    """One record per operator of the model, in its order."""
    layers: dict[int, dict[str, Any]] = {}
    for step in plan.steps:
        segment = found[step.file] if isinstance(step, SegmentStep) else None
        times: Sequence[Mapping[str, Any]] = [{}] * len(step.operators)
        if isinstance(step, SegmentStep) and segment is not None:
            inside = [work.nodes[index] for index in step.operators]
            times = segment.operator_times(inside, package.files.segment(step.file))
        for index, spent in zip(step.operators, times, strict=True):
            node, own = work.nodes[index], work.works[index]
            layer: dict[str, Any] = {
                "operator": index,
                "name": node.name,
                "op": node.spec.name,
                "placed": "host",
                "reason": plan.host_reasons.get(index, "not compiled"),
                "segment": None,
                "macs": own.macs,
                "cycles": 0,
                "host_modelled_ns": round(own.host_ns),
            }
            if node.spec.name == "WHILE":
                layer["trip_count"] = own.trips
            if segment is not None and segment.parity:
                layer |= {"placed": "npu", "reason": None, "segment": segment.step.name}
                layer |= {"cycles": spent.get("cycles", 0), "busy_cycles": spent.get("busy_cycles", {})}
                kept = ("first_cycle", "last_cycle", "amounts", *EXPLAINED)
                layer |= {key: spent[key] for key in kept if key in spent}
                layer |= {"floor": segment.layer_floor(node)}
                if spent:
                    layer |= {"energy": segment.layer_energy(spent)}
            elif segment is not None:
                layer |= {"reason": segment.failure, "segment": segment.step.name}
            layers[index] = layer
    return [layers[index] for index in sorted(layers)]


def _engines(segments: Iterable[_SegmentCounters]) -> dict[str, dict[str, Any]]:
    """Busy, stalled and idle cycles of every queue, summed over segments."""
    engines: dict[str, dict[str, Any]] = {}
    for segment in segments:
        for name, queue in segment.parity["queues"].items():
            entry = engines.setdefault(name, {"busy_cycles": 0.0, "stall_cycles": 0.0, "idle_cycles": 0.0})
            entry["busy_cycles"] += queue["busy_cycles"]
            entry["stall_cycles"] += sum(queue["stall_cycles"].values())
            entry["idle_cycles"] += queue["idle_cycles"]
    return {name: {key: round(value, 3) for key, value in entry.items()} for name, entry in engines.items()}


def _constant_bytes(executor: PlanExecutor, operators: Iterable[int]) -> int:
    """Bytes of all constants that ``operators`` read, each counted once."""
    graph = executor.graph
    tensors = {tensor for index in operators for tensor in graph.nodes[index].inputs if tensor >= 0}
    return sum(len(data) for data in (graph.tensors[tensor].data for tensor in tensors) if data is not None)
