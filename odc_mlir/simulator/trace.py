"""What happened when: instructions on their queues, and how much of every resource was in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.memories import Touch
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.queues import StartedInstruction
from odc_mlir.simulator.resources import Resource

TraceSpan = tuple[float, float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One executed instruction, in cycles. ``started``: left its queue; ``alone``: no earlier one runs any more.

    ``issued``: entered its queue; ``start``: of its engine before the phase; ``began``, ``done``: its phase;
    ``bound``: what the phase takes longest on alone (None: its shortest duration); ``lost``: to whom it lost how much;
    ``touched``: what of the regions it read and wrote.
    """

    queue: Queue
    index: int
    started: float
    alone: float
    ended: float
    contended: float
    issued: float = 0.0
    start: float = 0.0
    began: float = 0.0
    done: float = 0.0
    bound: Resource | None = None
    lost: Mapping[int, float] = field(default_factory=dict)
    touched: Sequence[Touch] = ()


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
    events: list[TraceEvent] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    segments: list[TraceSpan] = field(default_factory=list)

    def add(self, job: StartedInstruction, alone: float, ended: float) -> None:
        """Note a finished instruction."""
        phase, entry = job.phase, job.entry
        bound = None if phase.bound is None else Resource(phase.bound)
        times = (entry.issued, job.work.start, job.phase_began, job.phase_ended)
        queue = job.unit.queue
        self.events.append(
            TraceEvent(
                queue, entry.index, job.started, alone, ended, job.contended, *times, bound, phase.lost, job.touched
            )
        )

    def to_chrome(self) -> dict[str, Any]:
        """The trace as chrome://tracing and Perfetto read it, see :mod:`.chrome`."""
        from odc_mlir.simulator.chrome import chrome_events

        return chrome_events(self)
