"""What happened when: instructions on their queues, and how much of every resource was in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.queues import Job
from odc_mlir.simulator.resources import Resource

Segment = tuple[float, float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Event:
    """One executed instruction, in cycles. ``started``: left its queue; ``alone``: no earlier one runs any more.

    ``issued``: entered its queue; ``turn``: its latency was over and its data next; ``began``, ``done``: its phase;
    ``bound``: what the phase takes longest on alone (None: its shortest duration); ``lost``: to whom it lost how much.
    """

    queue: Queue
    index: int
    started: float
    alone: float
    ended: float
    contended: float
    issued: float = 0.0
    turn: float = 0.0
    began: float = 0.0
    done: float = 0.0
    bound: Resource | None = None
    lost: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Issue:
    """One instruction in the fetch engine, in cycles: ``begins`` to be issued, then ``ready``, then ``handed`` over."""

    index: int
    begins: float
    ready: float
    handed: float


@dataclass
class Trace:
    """``events`` in order of their end; ``issues`` in program order; ``segments``: (from, to, units per cycle of each
    resource).
    """

    program: Program
    events: list[Event] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def add(self, job: Job, alone: float, ended: float) -> None:
        """Note a finished instruction."""
        phase, entry = job.phase, job.entry
        bound = None if phase.bound is None else Resource(phase.bound)
        times = (entry.issued, job.turn, job.phase_began, job.phase_ended)
        queue = job.unit.queue
        self.events.append(
            Event(queue, entry.index, job.started, alone, ended, job.contended, *times, bound, phase.lost)
        )

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
