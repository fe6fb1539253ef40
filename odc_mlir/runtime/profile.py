"""What a series of runs took: statistics, time by operator, and a trace for trace viewers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.runtime.units import Event

SCHEMA_VERSION = 1


@dataclass(slots=True)
class Measurement:
    """Wall-clock times in seconds; ``events`` are of the timed runs."""

    load_seconds: float = 0.0
    prepare_seconds: float = 0.0
    run_seconds: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def execute_ms(self) -> dict[str, float]:
        """Mean, largest, smallest and geometric mean time of a run in milliseconds."""
        times = [1000 * seconds for seconds in self.run_seconds] or [0.0]
        geometric = math.exp(statistics.fmean(math.log(max(time, 1e-9)) for time in times))
        return {"mean": statistics.fmean(times), "max": max(times), "min": min(times), "geomean": geometric}

    def profile(self) -> dict[str, Any]:
        """JSON data: times of loading, preparing and running, and the mean time of each unit with its share."""
        runs = max(len(self.run_seconds), 1)
        units: dict[tuple[str, str, str], float] = {}
        for event in self.events:
            key = (event.name, event.op, event.kind)
            units[key] = units.get(key, 0.0) + event.seconds
        total = sum(units.values()) or 1.0
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": len(self.run_seconds),
            "model_load_ms": 1000 * self.load_seconds,
            "prepare_ms": 1000 * self.prepare_seconds,
            "execute_ms": self.execute_ms(),
            "units": [
                {"name": name, "op": op, "kind": kind, "mean_ms": 1000 * seconds / runs, "share": seconds / total}
                for (name, op, kind), seconds in units.items()
            ],
        }


def trace_events(events: Sequence[Event], inside: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Events in the trace-event format of browsers; times in microseconds.

    The host is one process, its times counting from the first event; each segment in ``inside`` is another, whose
    times count from the segment's start on the device.
    """
    origin = min((event.start_seconds for event in events), default=0.0)
    spans = [
        {
            "name": event.name,
            "cat": event.op,
            "ph": "X",
            "ts": 1e6 * (event.start_seconds - origin),
            "dur": 1e6 * event.seconds,
            "pid": 0,
            "tid": 0,
        }
        for event in events
    ]
    names = [_process_name(process, name) for process, name in enumerate(("host", *inside))]
    device = [{**event, "pid": 1 + segment} for segment, found in enumerate(inside.values()) for event in found]
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *spans, *device]}


def _process_name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
