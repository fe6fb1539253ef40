"""The compile report: where every operator went, and what one inference costs on the target.

Keys keep their names and meanings; new ones may be added. Cycles and bytes are the simulator's, summed over the
segments of one inference. Times of the host and of the compiler are measured, everything else follows from the package.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.ops.work import node_macs
from odc_mlir.runtime.devices.base import DeviceProgram, MemoryModel, Port
from odc_mlir.runtime.plan import PlanExecutor
from odc_mlir.runtime.report_partition import host_costs, partition_report
from odc_mlir.runtime.shaping import ShapedGraph

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

SCHEMA_VERSION = 1

# Counters that are sums over segments: report key, path in the counters of one run.
_SUMS = (
    ("program_bytes", ("program_bytes",)),
    ("weights_encoded_bytes", ("constant_bytes",)),
    ("offchip_read_bytes", ("ports", "offchip", "read_bytes")),
    ("offchip_write_bytes", ("ports", "offchip", "write_bytes")),
    ("sram_read_bytes", ("ports", "sram", "read_bytes")),
    ("sram_write_bytes", ("ports", "sram", "write_bytes")),
)


def build_report(package: Package, *, quick: bool = False) -> dict[str, Any]:
    """The report of ``package`` as JSON data; raises PackageError when nothing in it is compiled.

    ``quick`` leaves out, as None, what takes another simulation or a measurement: ``cycles_total_strict`` and
    ``host_seconds``; ``latency_ms`` then is the NPU's share.
    """
    executor = package.executor()
    if not isinstance(executor, PlanExecutor) or package.plan is None:
        raise TypeError("only a package with a plan has a report")
    plan = package.plan
    shaped = _shaped(executor)
    models: tuple[MemoryModel, ...] = ("parity",) if quick else ("parity", "strict")
    measured = {step.file: _Segment(step, executor, package.files.segment(step.file), models) for step in plan.segments}
    segments = [segment for segment in measured.values() if segment.parity]
    macs = [node_macs(node) for node in shaped.nodes]
    layers = _layers(plan, shaped, macs, measured)
    on_npu = [layer for layer in layers if layer["placed"] == "npu"]
    cycles = sum(segment.parity["cycles"] for segment in segments)
    clock_hz = segments[0].clock_hz if segments else None
    peak = segments[0].macs_per_cycle if segments else 0
    host_seconds = None if quick else sum(_host_seconds(shaped, i) for i in _host_operators(plan, measured))
    npu_seconds = cycles / clock_hz if clock_hz else 0.0
    return {
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
        "latency_ms": 1000 * (npu_seconds + (host_seconds or 0.0)),
        "macs": sum(macs),
        "mac_utilization": sum(layer["macs"] for layer in on_npu) / (peak * cycles) if cycles else 0.0,
        "ideal_cycles": sum(segment.ideal_cycles() for segment in segments),
        "sram_peak_bytes": max((segment.parity["sram_peak_bytes"] for segment in segments), default=0),
        "local_peak_bytes": max((sum(s.parity["local_peak_bytes"].values()) for s in segments), default=0),
        **{key: sum(_at(segment.parity, path) for segment in segments) for key, path in _SUMS},
        "weights_raw_bytes": _constant_bytes(shaped, (layer["operator"] for layer in on_npu)),
        "binary_bytes": sum(segment.binary_bytes for segment in segments),
        "npu_op_count": len(on_npu),
        "host_op_count": len(layers) - len(on_npu),
        "segment_count": len(plan.segments),
        "host_seconds": host_seconds,
        "compile_seconds": package.measured.get("compile_seconds"),
        "compile_peak_rss_bytes": package.measured.get("compile_peak_rss_bytes"),
        "fallbacks": executor.fallbacks,
        "partition": partition_report(plan, shaped, macs),
        "layers": layers,
        "engines": _engines(segments),
    }


class _Segment:
    """A segment's counters under each of ``models``; there are none when the device cannot run it."""

    def __init__(self, step: SegmentStep, executor: PlanExecutor, data: bytes, models: Sequence[MemoryModel]) -> None:
        self.step = step
        self.binary_bytes = len(data)
        self.counters: dict[str, Mapping[str, Any]] = {}
        unit = next(unit for unit in executor.segments if unit.step is step)
        self.failure = unit.failure
        self.program: DeviceProgram | None = unit.program if unit.failure is None else None
        if self.program is not None:
            try:
                self.counters = {model: self.program.measure(model).counters for model in models}
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

    def ideal_cycles(self) -> int:
        """What no machine with these memories and multipliers can go below for this program."""
        if self.program is None:
            return 0
        target, counters = self.program.target, self.parity
        fixed = counters["constant_bytes"] + counters["program_bytes"]
        moved = sum(_port_bytes(port) for port in (*self.program.inputs, *self.program.outputs))
        if counters["memory"] == "sram":
            moved, fixed = moved + fixed, 0
        macs: int = sum(operator["macs"] for operator in counters["operators"])
        cycles: int = max(
            math.ceil(macs / target.array.macs_per_cycle),
            math.ceil(fixed / target.offchip.bytes_per_cycle),
            math.ceil(moved / target.sram.bytes_per_cycle),
        )
        return cycles

    def operator_times(self) -> dict[str, list[Mapping[str, Any]]]:
        """Counters of the segment's operators by name, each with the cycles that it adds to the run.

        Operators overlap. An operator is charged what passes between the end of the one that ends before it and its
        own end, so that the charges of a segment add up.
        """
        result: dict[str, list[Mapping[str, Any]]] = {}
        end = 0.0
        for operator in sorted(self.parity.get("operators", ()), key=lambda o: (o["last_cycle"], o["first_cycle"])):
            charged = max(operator["last_cycle"] - end, 0.0)
            end = max(end, operator["last_cycle"])
            result.setdefault(operator["name"], []).append({**operator, "cycles": charged})
        return result


def _port_bytes(port: Port) -> int:
    return math.prod(port.shape) * numpy_dtype(port.dtype).itemsize


def _at(counters: Mapping[str, Any], path: Sequence[str]) -> int:
    value: Any = counters
    for key in path:
        value = value.get(key, 0) if isinstance(value, Mapping) else 0
    return int(value)


def _shaped(executor: PlanExecutor) -> ShapedGraph:
    """The graph for the model's own shapes; unknown dimensions count as 1."""
    shapes = [tuple(1 if dim is None else dim for dim in info.shape or ()) for info in executor.graph.input_infos()]
    return ShapedGraph(executor.graph, shapes)


def _host_operators(plan: Plan, measured: Mapping[str, _Segment]) -> list[int]:
    """Operators that host kernels run, those of segments that cannot run included."""
    return [
        index
        for step in plan.steps
        for index in step.operators
        if not isinstance(step, SegmentStep) or not measured[step.file].parity
    ]


def _layers(
    plan: Plan, shaped: ShapedGraph, macs: Sequence[int], measured: Mapping[str, _Segment]
) -> list[dict[str, Any]]:
    """One record per operator of the model, in its order."""
    layers: dict[int, dict[str, Any]] = {}
    modelled = host_costs(plan)
    for step in plan.steps:
        segment = measured[step.file] if isinstance(step, SegmentStep) else None
        times = segment.operator_times() if segment is not None else {}
        for index in step.operators:
            node = shaped.nodes[index]
            layer: dict[str, Any] = {
                "operator": index,
                "name": node.name,
                "op": node.spec.name,
                "placed": "host",
                "reason": plan.host_reasons.get(index, "not compiled"),
                "segment": None,
                "macs": macs[index],
                "cycles": 0,
                "host_modelled_ns": modelled.get(index),
            }
            if segment is not None and segment.parity:
                found = times.get(node.name)
                spent = found.pop(0) if found else {}
                layer |= {"placed": "npu", "reason": None, "segment": segment.step.name}
                layer |= {"cycles": round(spent.get("cycles", 0)), "busy_cycles": spent.get("busy_cycles", {})}
            elif segment is not None:
                layer |= {"reason": segment.failure, "segment": segment.step.name}
            layers[index] = layer
    return [layers[index] for index in sorted(layers)]


def _engines(segments: Iterable[_Segment]) -> dict[str, dict[str, Any]]:
    """Busy, stalled and idle cycles of every queue, summed over segments."""
    engines: dict[str, dict[str, Any]] = {}
    for segment in segments:
        for name, queue in segment.parity["queues"].items():
            entry = engines.setdefault(name, {"busy_cycles": 0.0, "stall_cycles": 0.0, "idle_cycles": 0.0})
            entry["busy_cycles"] += queue["busy_cycles"]
            entry["stall_cycles"] += sum(queue["stall_cycles"].values())
            entry["idle_cycles"] += queue["idle_cycles"]
    return {name: {key: round(value, 3) for key, value in entry.items()} for name, entry in engines.items()}


def _constant_bytes(shaped: ShapedGraph, operators: Iterable[int]) -> int:
    """Bytes of all constants that ``operators`` read, each counted once."""
    graph = shaped.graph
    tensors = {tensor for index in operators for tensor in graph.nodes[index].inputs if tensor >= 0}
    return sum(len(data) for data in (graph.tensors[tensor].data for tensor in tensors) if data is not None)


def _host_seconds(shaped: ShapedGraph, index: int) -> float:
    """Measured time of one operator's host kernel on zeros; 0 where shapes depend on data or zeros are refused."""
    item, node = shaped.graph.nodes[index], shaped.nodes[index]
    operands: list[Array | None] = []
    for tensor, info in zip(item.inputs, node.operands, strict=True):
        if info is None or info.is_const:
            operands.append(None if info is None else info.array())
        elif info.shape is None or any(dim is None for dim in info.shape):
            return 0.0
        else:
            operands.append(np.zeros(shaped.tensors[tensor].static_shape, info.info.numpy))
    kernel = shaped.kernel(index)
    with np.errstate(all="ignore"):
        start = time.perf_counter()
        try:
            kernel(operands)
        except OdcError:
            return 0.0
        return time.perf_counter() - start
