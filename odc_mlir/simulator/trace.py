"""Trace of a run: instructions of queues, use of every resource, and the format of trace viewers.

The format has one process. The first thread shows the layers. A layer lasts from the end of the previous layer to the
end of this layer. The other threads show the instructions of the engines. Slices of a thread never overlap. An arrow
leads from the instruction that posted a token to the instruction that started as soon as the token was visible.
Counters are averages. The number of counters is limited to keep other events visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.memories import Touch
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.queues import StartedInstruction
from odc_mlir.simulator.resources import Resource

TraceSpan = tuple[float, float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One executed instruction. Times are in cycles of the run.

    ``issued``, ``started``: times at which the instruction entered and left the queue. ``alone``: time at which the
    previous instruction of the queue ended, or ``started`` if that is later. ``start``: start-up cycles before the
    phase. ``began``, ``done``: begin and end of the phase. ``bound``, ``lost``: see ExecutionPhase. ``touched``: areas
    of regions read and written.
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
    """An instruction in the fetch engine: cycles at which issue ``begins``, is ``ready``, and is ``handed`` over."""

    index: int
    begins: float
    ready: float
    handed: float


@dataclass
class Trace:
    """Trace of a run.

    ``events``: executed instructions, sorted by end. ``issues``: issued instructions in program order. ``segments``:
    intervals of time, with the use of each resource in units per cycle.
    """

    program: Program
    events: list[TraceEvent] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    segments: list[TraceSpan] = field(default_factory=list)

    def add(self, job: StartedInstruction, alone: float, ended: float) -> None:
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
        """Return the trace for chrome://tracing and Perfetto, in microseconds. Instructions also have cycles."""
        target, instructions = self.program.target, self.program.instructions
        found = list(_names(f"{target.name}, memory {self.program.memory}"))
        found += _layers(self)
        found += [_instruction(self, event) for event in self.events]
        for issue in self.issues:
            instr = instructions[issue.index]
            if instr.queue == Queue.FETCH:
                text = {"instruction": issue.index, "text": format_instruction(instr)}
                found.append(_slice(instr.mnemonic, "fetch", Queue.FETCH, issue.begins, issue.handed, text))
        for number, edge in enumerate(edge for edge in edges(self) if _waited(self, edge)):
            found += _arrow(number, edge)
        found += _counters(self, len(found))
        for event in found:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] *= 1e6 / target.clock_hz
        return {"traceEvents": found, "displayTimeUnit": "ns"}


class TokenEdge(NamedTuple):
    """A token of ``semaphore`` from the instruction that posted it to the instruction that consumed it."""

    semaphore: int
    poster: TraceEvent | Issue
    taker: TraceEvent | Issue


def edges(trace: Trace) -> list[TokenEdge]:
    """Return all consumed tokens. A semaphore connects two queues. Tokens are therefore consumed in order."""
    posted: dict[int, list[TraceEvent | Issue]] = defaultdict(list)
    taken: dict[int, list[TraceEvent | Issue]] = defaultdict(list)
    for executed in _executed(trace):
        instr = trace.program.instructions[executed.index]
        for semaphore in instr.posts:
            posted[semaphore].append(executed)
        for semaphore in instr.waits:
            taken[semaphore].append(executed)
    return [TokenEdge(s, *pair) for s in sorted(taken) for pair in zip(posted[s], taken[s], strict=False)]


def _executed(trace: Trace) -> Iterator[TraceEvent | Issue]:
    yield from trace.events
    for issue in trace.issues:
        if trace.program.instructions[issue.index].queue == Queue.FETCH:
            yield issue


def windows(last_cycles: Sequence[float], cycles: int) -> list[tuple[int, int]]:
    """Return the windows of operators, from the end of the previous operator to the operator's end, in rounded cycles.

    Operators overlap. An operator is therefore charged the time since the end of the previous operator. The last
    operator is also charged the rest of the run, so that all charges add up to the run.
    """
    found: list[tuple[int, int]] = []
    end = 0
    for place, last in enumerate(last_cycles):
        until = cycles if place == len(last_cycles) - 1 else max(end, round(last))
        found.append((end, until))
        end = until
    return found


_LAYERS = len(Queue)  # index of the thread for layers
_ENGINES = {
    Queue.FETCH: "fetch engine",
    Queue.XFER: "xfer: off-chip DMA",
    Queue.LOAD: "load: SRAM DMA",
    Queue.STORE: "store: SRAM DMA",
    Queue.WEIGHT: "weight: SRAM DMA, decoder",
    Queue.MAC: "mac: array",
    Queue.VECTOR: "vector engine",
}
_COUNTERS = {
    Resource.SRAM: "SRAM port, bytes/cycle",
    Resource.OFFCHIP: "off-chip port, bytes/cycle",
    Resource.REQUANT: "lanes, results/cycle",
}
_COUNTED = 0.2  # largest share of counters among all events
_SAMPLES = 1000  # largest number of samples of a counter
_SAME = 1e-6  # cycles: instants that are closer count as equal


def _names(process: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": process}}
    for place, (thread, name) in enumerate([(_LAYERS, "layers"), *_ENGINES.items()]):
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": int(thread), "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": int(thread), "args": {"sort_index": place}}


def _layers(trace: Trace) -> Iterator[dict[str, Any]]:
    times: dict[int, tuple[float, float]] = {}
    for event in trace.events:
        owner = trace.program.owners[event.index]
        if owner >= 0:
            last, first = times.get(owner, (event.ended, event.started))
            times[owner] = max(last, event.ended), min(first, event.started)
    ordered = sorted(times, key=lambda owner: times[owner])
    found = windows([times[owner][0] for owner in ordered], round(trace.issues[-1].handed))
    for owner, (begin, end) in zip(ordered, found, strict=True):
        entry = trace.program.operators[owner]
        if end > begin:
            yield _slice(entry.name, entry.kind, _LAYERS, begin, end, {"cycles": end - begin, "macs": entry.macs})


def _slice(name: str, category: str, thread: int, begin: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": float(begin), "dur": float(end - begin)}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": int(thread), **times, "args": args}


def _instruction(trace: Trace, event: TraceEvent) -> dict[str, Any]:
    instr = trace.program.instructions[event.index]
    owner = trace.program.owners[event.index]
    entry = trace.program.operators[owner] if owner >= 0 else None
    args = {
        "instruction": event.index,
        "text": format_instruction(instr),
        "issued_cycle": event.issued,
        "started_cycle": event.started,
        "ended_cycle": event.ended,
        "contended_cycles": event.contended,
    }
    name = f"{instr.mnemonic} {entry.name}" if entry else instr.mnemonic
    return _slice(name, entry.kind if entry else "other", event.queue, event.alone, event.ended, args)


def _waited(trace: Trace, edge: TokenEdge) -> bool:
    taken = edge.taker.handed if isinstance(edge.taker, Issue) else edge.taker.started
    return abs(end_of(edge.poster) + trace.program.target.fetch.semaphore_cycles - taken) < _SAME


def end_of(executed: TraceEvent | Issue) -> float:
    """Return the cycle in which an instruction ends."""
    return executed.handed if isinstance(executed, Issue) else executed.ended


def _arrow(number: int, edge: TokenEdge) -> Iterator[dict[str, Any]]:
    for phase, executed in (("s", edge.poster), ("f", edge.taker)):
        fetch = isinstance(executed, Issue)
        begin = executed.begins if isinstance(executed, Issue) else executed.alone
        end = end_of(executed)
        place = begin + 0.99 * (end - begin) if phase == "s" or fetch else begin
        thread = Queue.FETCH if isinstance(executed, Issue) else executed.queue
        event = {"ph": phase, "name": "token", "cat": "token", "id": number, "pid": 0, "tid": int(thread), "ts": place}
        yield event | {"args": {"semaphore": edge.semaphore}} | ({"bp": "e"} if phase == "f" else {})


def _counters(trace: Trace, others: int) -> Iterator[dict[str, Any]]:
    used = [r for r in _COUNTERS if any(usage[r] for _, _, usage in trace.segments)]
    samples = min(_SAMPLES, int(others * _COUNTED / (1 - _COUNTED)) // max(1, len(used)))
    if not samples or not trace.segments:
        return
    edges_of = np.array([start for start, _, _ in trace.segments] + [trace.segments[-1][1]])
    grid = np.linspace(0.0, edges_of[-1], samples + 1)
    for resource in used:
        moved = np.array([(end - start) * usage[resource] for start, end, usage in trace.segments])
        total = np.interp(grid, edges_of, np.concatenate([[0.0], np.cumsum(moved)]))
        for start, amount in zip(grid, np.diff(total) / np.diff(grid), strict=False):
            args = {"average": round(float(amount), 3)}
            yield {"ph": "C", "name": _COUNTERS[resource], "pid": 0, "ts": float(start), "args": args}
