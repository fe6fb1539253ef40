"""What happened when: instructions on their queues, and how much of every resource was in use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.resources import Resource

Segment = tuple[float, float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Event:
    """One executed instruction, in cycles. ``started``: left its queue; ``alone``: no earlier one runs any more."""

    queue: Queue
    index: int
    started: float
    alone: float
    ended: float
    contended: float


@dataclass
class Trace:
    """``events`` in order of their end; ``segments``: (from, to, units per cycle of each resource)."""

    program: Program
    events: list[Event] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def add(self, queue: Queue, index: int, started: float, alone: float, ended: float, contended: float) -> None:
        """Note a finished instruction."""
        self.events.append(Event(queue, index, started, alone, ended, contended))

    def to_chrome(self) -> dict[str, Any]:
        """The Chrome trace format (chrome://tracing, Perfetto): one thread per queue, one counter per resource.

        Time stamps are microseconds at the target's clock; every event also has its cycles.
        """
        microseconds = 1e6 / self.program.target.clock_hz
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": int(queue), "args": {"name": queue.name.lower()}}
            for queue in Queue
        ]
        for event in self.events:
            instr = self.program.instructions[event.index]
            owner = self.program.owners[event.index]
            entry = self.program.operators[owner] if owner >= 0 else None
            events.append(
                {
                    "ph": "X",
                    "name": f"{instr.mnemonic} {entry.name}" if entry else instr.mnemonic,
                    "cat": entry.kind if entry else "other",
                    "pid": 0,
                    "tid": int(event.queue),
                    "ts": event.alone * microseconds,
                    "dur": (event.ended - event.alone) * microseconds,
                    "args": {
                        "instruction": event.index,
                        "text": format_instruction(instr),
                        "started_cycle": event.started,
                        "ended_cycle": event.ended,
                        "contended_cycles": event.contended,
                    },
                }
            )
        for start, _, usage in self.segments:
            for resource, amount in zip(Resource, usage, strict=True):
                events.append(
                    {
                        "ph": "C",
                        "name": resource.name.lower(),
                        "pid": 0,
                        "ts": start * microseconds,
                        "args": {"units_per_cycle": amount},
                    }
                )
        return {"traceEvents": events, "displayTimeUnit": "ns"}
