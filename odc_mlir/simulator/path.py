"""Critical path of a run: the cause of every cycle.

The path is followed backwards. An instruction ends with its phase. Before the phase come a delay, the wait for its turn
in the queue, and the start. It starts as soon as its tokens, its engine and its issue are all available. The path
continues with the last of these. Each cycle thus has an instruction and a cause. The sum of causes is the length of the
run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.queues import DMA_ENGINES
from odc_mlir.simulator.resources import Resource
from odc_mlir.simulator.trace import Issue, Trace, TraceEvent, edges, end_of

CAUSES: dict[str, str] = {
    "array": "steps and start of the multiply-accumulate array",
    "lanes": "requantisation lanes, drain of the last tile included",
    "vector": "start and reductions of the vector engine",
    "tile_ports": "reads and writes of the tile buffer",
    "accumulators": "the accumulator buffer's port",
    "sram": "the SRAM port",
    "offchip": "the off-chip port",
    "decoder": "the weight decoder",
    "latency": "memory latency before a transfer's data",
    "token": "tokens that are not visible yet",
    "fetch": "instructions that have not arrived or are being issued",
}
_OF_RESOURCE = {
    Resource.OFFCHIP: "offchip",
    Resource.SRAM: "sram",
    Resource.TILE_READ: "tile_ports",
    Resource.TILE_WRITE: "tile_ports",
    Resource.REQUANT: "lanes",
    Resource.DECODER: "decoder",
    Resource.ACCUMULATOR_READ: "accumulators",
    Resource.ACCUMULATOR_WRITE: "accumulators",
}
_OF_QUEUE = {Queue.MAC: "array", Queue.VECTOR: "vector", Queue.WEIGHT: "decoder"}
_SAME = 1e-6  # cycles; instants that are closer count as equal


@dataclass(frozen=True, slots=True)
class PathSpan:
    """Cycles ``begin`` to ``end`` of the path. ``causes`` adds up to the length."""

    begin: float
    end: float
    causes: dict[str, float]


def critical_path(trace: Trace) -> list[PathSpan]:
    """Return the spans of a traced run, from the first to the last cycle, without gaps."""
    return _Walk(trace).spans()


Continuation = tuple[Callable[[Any], Any], Any]  # next step, and its argument


class _Walk:
    """Backward walk along the path. Each step records the cycles that it covers and returns the next step."""

    def __init__(self, trace: Trace) -> None:
        self.issues = trace.issues
        self.instructions = trace.program.instructions
        self.events = trace.events
        self.engine_of: dict[Queue, object] = {queue: queues for queues in DMA_ENGINES for queue in queues}
        self.in_queue: dict[Queue, list[TraceEvent]] = defaultdict(list)
        self.before: dict[int, TraceEvent] = {}  # previous event of the same queue
        self.ends: dict[tuple[object, int], list[TraceEvent]] = defaultdict(list)  # by engine and instant
        self.starts: dict[tuple[Queue, int], TraceEvent] = {}
        for event in self.events:
            if queue := self.in_queue[event.queue]:
                self.before[id(event)] = queue[-1]
            queue.append(event)
            self.ends[self.engine_of.get(event.queue, event.queue), _instant(event.ended)].append(event)
            self.starts.setdefault((event.queue, _instant(event.started)), event)
        self.posters: dict[int, list[TraceEvent | Issue]] = defaultdict(list)
        for edge in edges(trace):
            self.posters[id(edge.taker)].append(edge.poster)
        self.numbers = self._numbers()
        self.found: list[PathSpan] = []
        self.seen: set[int] = set()

    def _numbers(self) -> dict[int, int]:
        """Return the issue number of each event. A queue starts its instructions in the order of issue."""
        numbers: dict[int, int] = {}
        counts: dict[Queue, int] = defaultdict(int)
        for number, issue in enumerate(self.issues):
            queue = self.instructions[issue.index].queue
            numbers[id(issue)] = number
            if queue != Queue.FETCH:
                numbers[id(self.in_queue[queue][counts[queue]])] = number
                counts[queue] += 1
        return numbers

    def spans(self) -> list[PathSpan]:
        step: Continuation | None = (self._issue, self.issues[-1])
        while step is not None:
            step = step[0](step[1])
        return self.found[::-1]

    def _cover(self, begin: float, end: float, causes: str | dict[str, float]) -> None:
        if end > begin:
            self.found.append(PathSpan(begin, end, {causes: end - begin} if isinstance(causes, str) else causes))

    def _issue(self, issue: Issue) -> Continuation | None:
        """Cover the time until an instruction leaves the fetch engine: issue, wait for queue space, tokens."""
        if issue.handed > issue.ready + _SAME and (step := self._blocked_by(issue)) is not None:
            return step
        number = self.numbers[id(issue)]
        earlier = self.issues[number - 1] if number else None
        self._cover(issue.ready, issue.handed, "token")
        self._cover(earlier.handed if earlier else 0.0, issue.ready, "fetch")
        return None if earlier is None else (self._issue, earlier)

    def _blocked_by(self, issue: Issue) -> Continuation | None:
        instr = self.instructions[issue.index]
        if instr.queue != Queue.FETCH:  # its queue was full until an older instruction started
            started = self.starts.get((instr.queue, _instant(issue.handed)))
            return None if started is None else (self._start, started)
        awaited = list(self.posters[id(issue)])
        if instr.mnemonic == "halt":
            awaited += [max(self.events, key=end_of)] if self.events else []
        return self._after(max(awaited, key=end_of), issue.handed) if awaited else None

    def _after(self, poster: TraceEvent | Issue, until: float) -> Continuation:
        self._cover(end_of(poster), until, "token")
        return (self._issue if isinstance(poster, Issue) else self._end, poster)

    def _end(self, event: TraceEvent) -> Continuation:
        own = _OF_QUEUE.get(event.queue, "latency")
        self._cover(event.done, event.ended, "lanes")
        self._cover(event.began, event.done, _phase(event, own))
        earlier = self.before.get(id(event))
        if earlier is not None and event.began > event.started + _SAME and abs(earlier.ended - event.began) < _SAME:
            return self._end, earlier
        self._cover(event.began - event.start, event.began, own)
        self._cover(event.started, event.began - event.start, "latency")
        return self._start, event

    def _start(self, event: TraceEvent) -> Continuation:
        """Continue with the event that an instruction waited for last: token, issue, engine, or turn in the queue."""
        when = event.started
        self.seen.add(id(event))
        awaited = self.posters[id(event)]
        if awaited and event.issued < when - _SAME:
            poster = max(awaited, key=end_of)
            if self._engine_until(event, end_of(poster)) is None:
                return self._after(poster, when)
        if event.issued < when - _SAME:
            if (busy := self._engine_until(event, when - _SAME)) is not None:
                return self._end, busy
            earlier = self.before.get(id(event))
            if earlier is not None and abs(earlier.started - when) < _SAME and id(earlier) not in self.seen:
                return self._start, earlier
        issue = self.issues[self.numbers[id(event)]]
        self._cover(issue.handed, when, "token")
        return self._issue, issue

    def _engine_until(self, event: TraceEvent, least: float) -> TraceEvent | None:
        """Return an instruction of the same engine that ended when ``event`` started, but after ``least``."""
        if event.started <= least:
            return None
        engine = self.engine_of.get(event.queue, event.queue)
        for other in self.ends.get((engine, _instant(event.started)), ()):
            if id(other) not in self.seen:
                return other
        return None


def _phase(event: TraceEvent, own: str) -> dict[str, float]:
    """Divide a phase by cause: time lost to shared resources, and the rest, which the slowest resource causes."""
    causes: dict[str, float] = defaultdict(float)
    for resource, cycles in event.lost.items():
        causes[_OF_RESOURCE[Resource(resource)]] += cycles
    alone = "latency" if event.queue in (Queue.LOAD, Queue.STORE, Queue.XFER) else own
    causes[alone if event.bound is None else _OF_RESOURCE[event.bound]] += max(
        0.0, event.done - event.began - sum(event.lost.values())
    )
    return dict(causes)


def _instant(cycle: float) -> int:
    return round(cycle / _SAME)
