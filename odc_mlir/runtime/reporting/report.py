"""The compile report: placement of every operator, and the modelled cost of one inference on the target.

Names and meanings of keys do not change. The page docs/numbers.md lists all keys. There are two lower bounds of a
segment's cycles. ``model_floor_cycles`` holds for any program. It is the largest of three quotients: byte-wide
multiply-accumulates divided by the array's rate, results of these operators divided by requantisation lanes, and
compulsory bytes divided by the rate of a port. Weights count by entropy, or by the bytes that our program stores if
these are fewer. States on the device count if products read them or the run replaces them. ``ideal_cycles`` also counts
the instructions of our program, and constants as stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from odc_mlir.errors import OdcError, PackageError, UnsupportedError
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.isa.container import read as read_container
from odc_mlir.ops.spec import Node, TensorInfo, Trait
from odc_mlir.ops.work import size, tensor_bytes
from odc_mlir.runtime.devices.base import ExplainedProgram, MemoryModel, ModelledProgram
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.work import Measured, graph_work
from odc_mlir.runtime.reporting.clocks import Modelled, host_of, modelled
from odc_mlir.runtime.reporting.report_object import SCHEMA_VERSION, Report, is_modelled
from odc_mlir.runtime.reporting.report_partition import partition_report, placements
from odc_mlir.runtime.reporting.report_table import EXPLAINED, causes_of_segments, what_ifs
from odc_mlir.simulator.trace import windows
from odc_mlir.targets import Target
from odc_mlir.targets.costs import EnergyFigure

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package


def byte_products(node: Node) -> int:
    """Return the byte-wide multiply-accumulates of an operator on the array."""
    if not node.macs:
        return 0
    factors = node.results[0], node.operand(1)
    return node.macs * math.prod(factor.info.numpy.itemsize for factor in factors if factor.dtype == "int16")


_MOVES = ("RESHAPE", "TRANSPOSE", "BROADCAST_TO", "SLICE", "STRIDED_SLICE", "SPLIT", "CONCATENATION")


def state_bytes(graph: Graph, step: SegmentStep, tensors: Sequence[TensorInfo]) -> int:
    """Return the bytes of states on the device that a segment must read from SRAM for products, and write.

    Rows that the run replaces, and slices that no product reads, are not read. An update writes only its rows. Other
    operators write a whole state, even if they only move its rows, because the place of a state does not change.
    """
    sizes = [tensor_bytes(info) for info in tensors]
    states = [(step.inputs[old], step.outputs[new]) for old, new in step.states]
    left = {old: (old, sizes[old]) for old, _ in states}  # by tensor: (state, bytes)
    written = {new: 0 for _, new in states}
    read: Counter[int] = Counter()
    for item in (graph.nodes[index] for index in step.operators):
        kind, made = item.node.spec.name, item.outputs
        updated = sizes[item.inputs[1]] if kind == "DYNAMIC_UPDATE_SLICE" else 0
        if Trait.VIEW not in item.node.spec.traits:
            written |= {index: updated or sizes[index] for index in made if index in written}
        for state, count in [left[index] for index in item.inputs if index in left]:
            if kind in ("BATCH_MATMUL", "FULLY_CONNECTED"):
                read[state] = max(read[state], count)
            elif kind in (*_MOVES, "DYNAMIC_UPDATE_SLICE"):
                left |= {index: (state, min(count, sizes[index]) - updated) for index in made}
    return sum(written.values()) + read.total()


def layer_floor(node: Node, target: Target, memory: str) -> dict[str, int]:
    """Return the lower bounds on cycles of an operator from the array, the lanes, and the port of the weights.

    Inputs and outputs do not count, because these may stay inside the machine.
    """
    port = target.offchip if memory == "flash" else target.sram
    results = size(node.results[0]) if node.macs else 0
    return {
        "array": math.ceil(byte_products(node) / target.array.macs_per_cycle),
        "lanes": math.ceil(results / target.vector.requant_lanes),
        "offchip" if memory == "flash" else "sram": math.ceil(
            sum(map(coded_bytes, _weights([node]))) / port.bytes_per_cycle
        ),
    }


def _weights(nodes: Iterable[Node]) -> Iterable[TensorInfo]:
    """Return the quantised constants that operators with multiply-accumulates read. Equal constants count once.

    Biases do not count, because the stored form depends on the machine.
    """
    read = (info for node in nodes if node.macs for info in node.operands if info is not None)
    return {bytes(i.data): i for i in read if i.data is not None and i.info.numpy.itemsize == 1}.values()


def coded_bytes(info: TensorInfo) -> float:
    """Return the entropy of a constant's bytes: the least size in bytes if each byte is coded separately."""
    counts = np.bincount(np.frombuffer(info.data or b"", np.uint8))
    counts = counts[counts > 0]
    return float(-(counts * np.log2(counts / max(1, counts.sum()))).sum() / 8)


# By action: the key of the energy, and the simulator's counters of the action.
_ACTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "array": ("mac_pj", ("macs",)),
    "requantisation": ("requantisation_pj", ("requant",)),
    "tile_buffer": ("tile_byte_pj", ("tile_read", "tile_write")),
    "weight_buffer": ("weight_byte_pj", ("decoder",)),
    "accumulators": ("accumulator_entry_pj", ("accumulator_read", "accumulator_write")),
    "sram": ("sram_byte_pj", ("sram",)),
    "offchip": ("offchip_byte_pj", ("offchip",)),
}
_PJ_PER_UJ = 1e6


def estimate(amounts: Mapping[str, float], macs: int, cycles: float, target: Target) -> dict[str, Any]:
    """Return the energy in microjoules of ``amounts`` (by resource), ``macs``, and background power during ``cycles``.

    Keys: ``estimate_uj``, bounds ``low_uj`` and ``high_uj`` (all figures at bounds), and ``parts_uj`` by action.
    """
    counts = {**amounts, "macs": macs}
    spent = {action: sum(counts.get(key, 0) for key in keys) / _PJ_PER_UJ for action, (_, keys) in _ACTIONS.items()}
    figures: dict[str, EnergyFigure] = {action: getattr(target.energy, name) for action, (name, _) in _ACTIONS.items()}
    figures["background"], spent["background"] = target.energy.background_mw, 1e3 * (cycles / target.clock_hz)
    low, value, high = (
        sum(spent[action] * getattr(figure, bound) for action, figure in figures.items())
        for bound in ("low", "value", "high")
    )
    parts = {action: spent[action] * figure.value for action, figure in figures.items()}
    return {
        "estimate_uj": round(value, 4),
        "low_uj": round(low, 4),
        "high_uj": round(high, 4),
        "parts_uj": {action: round(part, 4) for action, part in parts.items() if part},
    }


def total_energy(estimates: Iterable[Mapping[str, Any]], description: str | None) -> dict[str, Any]:
    """Return the sum of the segments' energy estimates. ``description``: the figures behind the estimates."""
    parts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for one in estimates:
        parts.update(one["parts_uj"])
        sums.update({key: one[key] for key in ("estimate_uj", "low_uj", "high_uj")})
    return {
        "estimated_with": description,
        **{key: round(sums[key], 4) for key in ("estimate_uj", "low_uj", "high_uj")},
        "parts_uj": {action: round(value, 4) for action, value in parts.most_common()},
    }


def build_report(package: Package, *, quick: bool = False) -> Report:
    """Return the report of ``package``. Raises PackageError or UnsupportedError if nothing is compiled or modelled.

    ``quick`` omits values that need more simulations: causes of cycles, and ``cycles_total_strict`` (None).
    """
    executor, plan = _planned(package)
    work = graph_work(executor.graph, host_of(plan))
    models: tuple[MemoryModel, ...] = ("parity",) if quick else ("parity", "strict")
    found = {step.file: _SegmentCounters(step, executor, models, explained=not quick) for step in plan.segments}
    segments = [segment for segment in found.values() if segment.parity]
    clock_hz = next((segment.target.clock_hz for segment in segments), None)
    figures = next((segment.target.energy.description for segment in segments), None)
    clock = modelled(plan, work, {item.step.file: item.parity["cycles"] for item in segments}, clock_hz)
    layers = _layers(package, plan, work, found)
    on_npu = [layer for layer in layers if layer["placed"] == "npu"]
    cycles = sum(segment.parity["cycles"] for segment in segments)
    peak = segments[0].target.array.macs_per_cycle if segments else 0
    floors = [segment.model_floor_cycles(work) for segment in segments]
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": package.name,
        "target": plan.target,
        "memory": plan.memory,
        "prefer": plan.options.get("prefer"),
        "quantize": plan.options.get("quantize"),
        "quantization": package.verdict,
        "compiler_version": plan.compiler_version,
        "clock_hz": clock_hz,
        "cycles_total": cycles,
        "cycles_total_strict": None if quick else sum(segment.counters["strict"]["cycles"] for segment in segments),
        "latency_ms": clock.latency_ms,
        "modelled": clock.to_dict(),
        "macs": sum(item.macs for item in work.works),
        "mac_utilization": sum(layer["macs"] for layer in on_npu) / (peak * cycles) if cycles else 0.0,
        "model_floor_cycles": sum(floors),
        "ideal_cycles": sum(segment.ideal_cycles(work, least) for segment, least in zip(segments, floors, strict=True)),
        "sram_peak_bytes": max((segment.parity["sram_peak_bytes"] for segment in segments), default=0),
        "sram_peak": _sram_peak(package, segments),
        "sram_live": [
            {"segment": s.step.name, "reserved_bytes": s.parity["sram_peak_bytes"], **s.explanation["sram_live"]}
            for s in segments
            if s.explanation.get("sram_live")
        ],
        "local_peak_bytes": max((sum(s.parity["local_peak_bytes"].values()) for s in segments), default=0),
        "program_bytes": sum(segment.parity["program_bytes"] for segment in segments),
        "weights_encoded_bytes": sum(segment.parity["constant_bytes"] for segment in segments),
        **{
            f"{port}_{way}_bytes": sum(segment.parity["ports"][port][f"{way}_bytes"] for segment in segments)
            for port, way in product(("offchip", "sram"), ("read", "write"))
        },
        "weights_raw_bytes": _constant_bytes(executor, (layer["operator"] for layer in on_npu)),
        "binary_bytes": sum(len(package.files.segment(segment.step.file)) for segment in segments),
        "npu_op_count": len(on_npu),
        "host_op_count": len(layers) - len(on_npu),
        "segment_count": len(plan.segments),
        "host_signatures": package.model.host_signatures,
        "fallbacks": executor.fallbacks,
        "defects": list(plan.partition.get("defects", ())),
        "partition": partition_report(plan, work, clock),
        "layers": layers,
        "engines": _engines(segments),
        "hardware": dict(segments[0].parity["hardware"]) if segments else {},
        "energy": total_energy([segment.energy for segment in segments], figures),
        "causes": causes_of_segments([segment.explanation for segment in segments]),
        "what_if": what_ifs([(segment.explanation, segment.parity["cycles"]) for segment in segments]),
        "measured": dict(package.measured),
    }
    return Report(report)


def modelled_inference(executor: PlanExecutor) -> Modelled:
    """Return the modelled time of one inference, as in reports."""
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
        raise UnsupportedError(text, hint="measure its runs; odc-compile --json has sizes and placement")
    executor = package.executor()
    assert isinstance(executor, PlanExecutor), "plans are run by nothing else"
    return executor, package.plan


def _sram_peak(package: Package, segments: Sequence[_SegmentCounters]) -> Mapping[str, Any]:
    found = []
    for segment in segments:
        peak = read_container(package.files.segment(segment.step.file)).metadata.get("sram_peak")
        if isinstance(peak, dict):
            found.append({"segment": segment.step.name, **peak})
    return max(found, key=lambda peak: peak["arena_bytes"], default={})


class _SegmentCounters:
    """Simulator counters of a segment under each of ``models``. Empty if the device cannot run the segment."""

    def __init__(
        self, step: SegmentStep, executor: PlanExecutor, models: Sequence[MemoryModel], *, explained: bool
    ) -> None:
        self.step, self.graph = step, executor.graph
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
    def target(self) -> Target:
        """Machine of a segment that has counters."""
        assert self.program is not None
        return self.program.target

    def model_floor_cycles(self, work: Measured) -> int:
        """Return the lower bound for any program of the segment's operators (see the module's docstring)."""
        inside = [work.nodes[index] for index in self.step.operators]
        results = sum(size(node.results[0]) for node in inside if node.macs)
        weights = min(float(self.parity["constant_bytes"]), sum(map(coded_bytes, _weights(inside))))
        macs = sum(byte_products(node) for node in inside)
        lanes = math.ceil(results / self.target.vector.requant_lanes)
        return max(lanes, *self._least_cycles(work, weights, macs))

    def ideal_cycles(self, work: Measured, floor_cycles: int) -> int:
        """Return the lower bound of our program. ``floor_cycles``: lower bound of the model's operators."""
        counters = self.parity
        read = min(
            counters["constant_bytes"], counters["constant_bytes_read"]
        )  # a program may read only some rows of a table
        macs: int = sum(operator["macs"] for operator in counters["operators"])
        return max(floor_cycles, *self._least_cycles(work, read + counters["program_bytes"], macs))

    def _least_cycles(self, work: Measured, fixed_bytes: float, macs: int) -> tuple[int, int, int]:
        """Return the least cycles of the array, the off-chip and the SRAM port. ``fixed_bytes``: constants and code."""
        moved = float(sum(tensor_bytes(work.tensors[index]) for indices in self.step.passed for index in indices))
        moved += state_bytes(self.graph, self.step, work.tensors)
        offchip, sram = (fixed_bytes, moved) if self.parity["memory"] == "flash" else (0.0, moved + fixed_bytes)
        return (
            math.ceil(macs / self.target.array.macs_per_cycle),
            math.ceil(offchip / self.target.offchip.bytes_per_cycle),
            math.ceil(sram / self.target.sram.bytes_per_cycle),
        )

    @property
    def energy(self) -> dict[str, Any]:
        parity = self.parity
        return estimate(parity.get("amounts", {}), parity["macs_useful"], parity["cycles"], self.target)

    def layer_energy(self, operator: Mapping[str, Any]) -> dict[str, Any]:
        """Return the energy estimate of an operator. It excludes the energy of reading the program."""
        return estimate(operator.get("amounts", {}), operator["executed_macs"], operator["cycles"], self.target)

    def operator_times(self, nodes: Sequence[Node], data: bytes) -> list[dict[str, Any]]:
        """Return counters, added cycles and causes of each of ``nodes``, the segment's operators.

        An operator that is merged into other operators has no entries. ``data``: the segment's binary.
        """
        own = [[info.name for info in node.results] for node in nodes]
        times = self._named_times()
        found = [
            [times[name].pop(0) for name in names if times.get(name)]
            for names in (read_container(data).result_names(own) if times else own)
        ]
        return [_together(parts) for parts in found]

    def _named_times(self) -> dict[str, list[dict[str, Any]]]:
        result: dict[str, list[dict[str, Any]]] = {}
        ordered = sorted(self.parity.get("operators", ()), key=lambda o: (o["last_cycle"], o["first_cycle"]))
        charged = windows([operator["last_cycle"] for operator in ordered], self.parity.get("cycles", 0))
        why = self.explanation.get("operators", [{}] * len(ordered))
        for operator, (begin, end), reasons in zip(ordered, charged, why, strict=True):
            known = {key: reasons[key] for key in EXPLAINED if key in reasons}
            result.setdefault(operator["name"], []).append({**operator, "cycles": end - begin, **known})
        return result


def _together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up the counters of an operator, which has several entries if results are computed one by one."""
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
    if known.get("spans"):
        engines = sorted({engine for part in parts for engine in part["spans"]})
        known["spans"] = {e: [cycle for part in parts for cycle in part["spans"].get(e, ())] for e in engines}
    if known.get("causes"):
        known["binds"] = max(known["causes"], key=known["causes"].__getitem__)
    return known


def _layers(
    package: Package, plan: Plan, work: Measured, found: Mapping[str, _SegmentCounters]
) -> list[dict[str, Any]]:
    times: dict[int, dict[str, Any]] = {}
    for step in plan.segments:
        inside = [work.nodes[index] for index in step.operators]
        spent_by = found[step.file].operator_times(inside, package.files.segment(step.file))
        times.update(zip(step.operators, spent_by, strict=True))
    segments = {segment.step.name: segment for segment in found.values()}
    layers = placements(package, plan, work, "npu")
    for index, layer in enumerate(layers):
        own, segment = work.works[index], segments.get(layer["segment"])
        layer |= {"cycles": 0, "host_modelled_ns": round(own.host_ns)}
        if layer["op"] == "WHILE":
            layer["trip_count"] = own.trips
        if segment is None:
            continue
        if not segment.parity:
            layer |= {"placed": "host", "reason": segment.failure}
            continue
        spent = times[index]
        layer |= {"cycles": spent.get("cycles", 0), "busy_cycles": spent.get("busy_cycles", {})}
        kept = ("first_cycle", "last_cycle", "amounts", *EXPLAINED)
        layer |= {key: spent[key] for key in kept if key in spent}
        layer |= {"floor": layer_floor(work.nodes[index], segment.target, segment.parity["memory"])}
        if spent:
            layer |= {"energy": segment.layer_energy(spent)}
    return layers


def _engines(segments: Iterable[_SegmentCounters]) -> dict[str, dict[str, Any]]:
    engines: dict[str, dict[str, Any]] = {}
    for segment in segments:
        for name, queue in segment.parity["queues"].items():
            entry = engines.setdefault(name, {"busy_cycles": 0.0, "stall_cycles": 0.0, "idle_cycles": 0.0})
            entry["busy_cycles"] += queue["busy_cycles"]
            entry["stall_cycles"] += sum(queue["stall_cycles"].values())
            entry["idle_cycles"] += queue["idle_cycles"]
    return {name: {key: round(value, 3) for key, value in entry.items()} for name, entry in engines.items()}


def _constant_bytes(executor: PlanExecutor, operators: Iterable[int]) -> int:
    graph = executor.graph
    tensors = {tensor for index in operators for tensor in graph.nodes[index].inputs if tensor >= 0}
    return sum(len(data) for data in (graph.tensors[tensor].data for tensor in tensors) if data is not None)
