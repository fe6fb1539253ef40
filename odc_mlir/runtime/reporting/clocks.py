"""Modelled time of the target, statistics of runs measured on this machine, and traces of target and machine.

The modelled clock is a function of the package alone. Measured times include the simulator and thus differ from times
of the target. Every number names a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odc_mlir import targets
from odc_mlir.errors import TargetError
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.runtime.execution.units import Event
from odc_mlir.runtime.execution.work import Measured
from odc_mlir.targets.costs import REFERENCE, HostCosts, load_host, parse_host


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """Modelled nanoseconds of an operator on the host, or of a segment (``operator`` None) including transfers.

    ``op``: the operator's kind
    """

    name: str
    op: str
    operator: int | None
    host_ns: float = 0.0
    npu_ns: float = 0.0
    transfer_ns: float = 0.0
    switch_ns: float = 0.0

    @property
    def ns(self) -> float:
        return self.host_ns + self.npu_ns + self.transfer_ns + self.switch_ns


@dataclass(frozen=True, slots=True)
class Modelled:
    """Modelled time of an inference, as a sequence of parts."""

    parts: tuple[ModelledTime, ...]

    @property
    def latency_ns(self) -> float:
        return sum(part.ns for part in self.parts)

    @property
    def latency_ms(self) -> float:
        return self.latency_ns / 1e6

    def to_dict(self) -> dict[str, float]:
        """Return the latency and the parts, in milliseconds."""
        sums = {
            key: sum(getattr(part, f"{key}_ns") for part in self.parts) for key in ("npu", "host", "transfer", "switch")
        }
        return {"latency_ms": self.latency_ms, **{f"{key}_ms": value / 1e6 for key, value in sums.items()}}


def host_of(plan: Plan) -> HostCosts:
    """Return the host costs of the plan, else of the target, else of the reference host."""
    if "host" in plan.partition:
        return parse_host(plan.partition["host"], "plan.json")
    try:
        return targets.load(plan.target or "").host
    except TargetError:
        return load_host(REFERENCE, "plan.json")


def modelled(plan: Plan, measured: Measured, cycles: Mapping[str, float], clock_hz: int | None) -> Modelled:
    """Return the modelled time of ``plan``. ``cycles``: cycles of segments by file. Other segments run on the host."""
    host, parts = host_of(plan), list[ModelledTime]()
    for step in plan.steps:
        if isinstance(step, SegmentStep) and step.file in cycles and clock_hz:
            tensors = [measured.tensors[index] for indices in step.passed for index in indices]
            npu_ns = 1e9 * cycles[step.file] / clock_hz
            moved_ns = host.transfer_ns(len(tensors), sum(map(tensor_bytes, tensors)))
            parts.append(ModelledTime(step.name, "SEGMENT", None, 0.0, npu_ns, moved_ns, host.switch_ns))
        else:
            nodes = ((index, measured.nodes[index]) for index in step.operators)
            parts += [ModelledTime(n.name, n.spec.name, i, measured.works[i].host_ns) for i, n in nodes]
    return Modelled(tuple(parts))


SCHEMA_VERSION = 2

Inside = Mapping[str, Sequence[Mapping[str, Any]]]

# Process numbers in a trace. Activity inside segments has the numbers from _INSIDE on.
_WHOLE, _INSIDE = 0, 1
_HOST, _WAY, _NPU = range(3)  # threads of the process _WHOLE in modelled traces


@dataclass(slots=True)
class LatencyProfile:
    """Wall-clock times of this machine in seconds. ``events``: units of the timed runs, without warm-up."""

    load_seconds: float = 0.0
    prepare_seconds: float = 0.0
    warmup_runs: int = 0
    run_seconds: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def execute_ms(self) -> dict[str, float]:
        """Return mean, largest, smallest and geometric mean time of a run in milliseconds."""
        import statistics  # slow to import, and not needed to compile

        times = [1000 * seconds for seconds in self.run_seconds] or [0.0]
        geometric = math.exp(statistics.fmean(math.log(max(time, 1e-9)) for time in times))
        return {"mean": statistics.fmean(times), "max": max(times), "min": min(times), "geomean": geometric}

    def profile(self) -> dict[str, Any]:
        """Return JSON data: times of loading, preparing and running, and the mean time and share of each unit."""
        runs = max(len(self.run_seconds), 1)
        units: dict[tuple[str, str, str], float] = {}
        for event in self.events:
            key = (event.name, event.op, event.kind)
            units[key] = units.get(key, 0.0) + event.seconds
        total = sum(units.values()) or 1.0
        measured = {
            "runs": len(self.run_seconds),
            "warmup_runs": self.warmup_runs,
            "model_load_ms": 1000 * self.load_seconds,
            "prepare_ms": 1000 * self.prepare_seconds,
            "execute_ms": self.execute_ms(),
            "units": [
                {"name": name, "op": op, "kind": kind, "mean_ms": 1000 * seconds / runs, "share": seconds / total}
                for (name, op, kind), seconds in units.items()
            ],
        }
        return {"schema_version": SCHEMA_VERSION, "measured": measured}


def measured_trace(events: Sequence[Event]) -> dict[str, Any]:
    """Return measured runs in the trace-event format of browsers, in microseconds from the first event."""
    found = list(_process(_WHOLE, "measured here: wall time of this machine"))
    origin = min((event.start_seconds for event in events), default=0.0)
    for item in events:
        start = 1e6 * (item.start_seconds - origin)
        found.append(_span(item.name, item.op, start, 1e6 * item.seconds, _WHOLE, 0))
    return {"displayTimeUnit": "ms", "traceEvents": found}


def modelled_trace(modelled: Modelled, inside: Inside) -> dict[str, Any]:
    """Return a modelled inference in the trace-event format, with activity inside segments."""
    starts: dict[str, float] = {}
    found = list(_process(_WHOLE, "modelled: one inference", {_HOST: "host", _WAY: "way to the NPU", _NPU: "NPU"}))
    found += _modelled_spans(modelled, starts)
    for number, (name, segment) in enumerate(inside.items(), _INSIDE):
        found += _process(number, f"modelled: inside {name}")
        start = starts.get(name, 0.0)
        for event in segment:
            if event["name"] == "process_name":
                continue
            own: dict[str, Any] = {"pid": number}
            own |= {"ts": event["ts"] + start} if "ts" in event else {}
            own |= {"id": f"{number}:{event['id']}"} if "id" in event else {}  # ids of arrows differ between segments
            found.append({**event, **own})
    return {"displayTimeUnit": "ms", "traceEvents": found}


def _modelled_spans(modelled: Modelled, starts: dict[str, float]) -> Iterator[dict[str, Any]]:
    now = 0.0
    for part in modelled.parts:
        threads = ((_HOST, part.host_ns), (_WAY, part.transfer_ns + part.switch_ns), (_NPU, part.npu_ns))
        for thread, nanoseconds in threads:
            if thread == _NPU and part.operator is None:
                starts[part.name] = now
            if nanoseconds:
                yield _span(part.name, part.op, now, nanoseconds / 1000, _WHOLE, thread)
                now += nanoseconds / 1000


def _span(name: str, category: str, start: float, duration: float, process: int, thread: int) -> dict[str, Any]:
    times = {"ts": start, "dur": duration}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": process, "tid": thread}


def _process(process: int, name: str, threads: Mapping[int, str] | None = None) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for thread, title in (threads or {}).items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": title}}
