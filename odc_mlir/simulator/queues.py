"""In-order queues and the engines behind them.

An instruction leaves its queue when its tokens are available and its engine has room. A compute engine runs one
instruction at a time. A DMA engine takes a few descriptors: latencies overlap, but data move in queue order. An
instruction is executed when it starts. Its cost becomes timers and a phase. When these end, its tokens are posted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from odc_mlir.isa.codec import Instr
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.boxes import START, Clock, Semaphores, join
from odc_mlir.simulator.engines.machine import InstructionCost
from odc_mlir.simulator.memories import Touch
from odc_mlir.simulator.resources import BUSY, IDLE, ExecutionPhase, Meter, Timeline

COMPUTE_QUEUES = (Queue.MAC, Queue.VECTOR)
# Queues that share a DMA engine and its descriptors.
DMA_ENGINES = ((Queue.XFER,), (Queue.LOAD, Queue.STORE, Queue.WEIGHT))


@dataclass(slots=True)
class Entry:
    """An instruction issued at time ``issued``. ``known`` is the clock of the fetch engine at this time."""

    index: int
    instr: Instr
    values: Mapping[str, int]
    known: Clock
    issued: float = 0.0


@dataclass(slots=True)
class StartedInstruction:
    """A started instruction with its vector clock, cost and progress."""

    entry: Entry
    unit: QueueState
    clock: Clock
    work: InstructionCost
    started: float
    demands: Sequence[float]  # needed amount of every resource
    latency: float
    phase: ExecutionPhase = field(init=False)
    data_ready: bool = False
    data_begun: bool = False
    phase_began: float = 0.0
    phase_ended: float = 0.0
    contended: float = 0.0
    touched: Sequence[Touch] = ()  # recorded only for traces


class DmaEngine:
    """DMA engine with a number of free descriptors."""

    __slots__ = ("free", "turn")

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.turn = 0  # index of the queue with the highest priority; advances with every grant


@dataclass(slots=True, eq=False)
class QueueState:
    """A queue with its waiting and running instructions."""

    queue: Queue
    engine: DmaEngine | None  # None for a compute queue, which runs one instruction at a time
    depth: int
    pending: deque[Entry] = field(default_factory=deque)
    running: deque[StartedInstruction] = field(default_factory=deque)
    position: int = 0  # number of started instructions
    finished: int = 0
    clock: Clock = START
    meter: Meter = field(default_factory=lambda: Meter(IDLE))
    last_end: float = 0.0
    contended: float = 0.0
    dirty: bool = False  # an event may allow the first instruction to start

    @property
    def full(self) -> bool:
        return len(self.pending) >= self.depth

    @property
    def drained(self) -> bool:
        return not self.pending and not self.running

    def obstacle(self, semaphores: Semaphores) -> str | None:
        """Return why the first waiting instruction cannot start, or None if it can."""
        instr = self.pending[0].instr
        if self.engine is None:
            if self.running:
                return BUSY
        elif instr.mnemonic != "sync" and self.engine.free == 0:
            return "descriptor" if semaphores.ready(instr.waits) else "semaphore"
        return None if semaphores.ready(instr.waits) else "semaphore"

    def state(self, semaphores: Semaphores) -> str:
        """Return the state: busy, idle, or the cause of a stall."""
        if self.running:
            return BUSY
        return self.obstacle(semaphores) or BUSY if self.pending else IDLE

    def next_clock(self, entry: Entry, semaphores: Semaphores) -> Clock:
        """Consume the tokens of ``entry``. Return the clock: a count of all earlier instructions of the queue."""
        clock = semaphores.take(entry.instr.waits, self.queue, join(self.clock, entry.known))
        self.clock = with_own(clock, self.queue, self.position)
        self.position += 1
        return self.clock


def with_own(clock: Clock, queue: Queue, completed: int) -> Clock:
    """Return ``clock`` with ``completed`` instructions of ``queue``."""
    return (*clock[:queue], completed, *clock[queue + 1 :])


class Engines:
    """All queues except the fetch engine's."""

    def __init__(
        self,
        timeline: Timeline,
        semaphores: Semaphores,
        finished: Callable[[StartedInstruction], None],
        *,
        depth: int,
        slots: int,
        semaphore_cycles: int,
    ) -> None:
        self.timeline = timeline
        self.semaphores = semaphores
        self._finished = finished  # called when an instruction is complete
        self._semaphore_cycles = semaphore_cycles
        self.units: dict[Queue, QueueState] = {queue: QueueState(queue, None, depth) for queue in COMPUTE_QUEUES}
        self._groups: list[tuple[DmaEngine, list[QueueState]]] = []
        for queues in DMA_ENGINES:
            engine = DmaEngine(slots)
            group = [QueueState(queue, engine, depth) for queue in queues]
            self.units |= {unit.queue: unit for unit in group}
            self._groups.append((engine, group))
        self._compute = [self.units[queue] for queue in COMPUTE_QUEUES]
        self._all = list(self.units.values())
        self.changed = False  # True if a queue is dirty
        self._sharing = {u.queue: group for _, group in self._groups for u in group} | {
            u.queue: [u] for u in self._compute
        }

    @property
    def drained(self) -> bool:
        return all(unit.drained for unit in self.units.values())

    def startable(self) -> QueueState | None:
        """Return a queue whose first instruction can start now. Compute queues come first, then DMA queues in turn."""
        if not self.changed:
            return None
        for unit in self._compute:
            if unit.dirty and unit.pending and unit.obstacle(self.semaphores) is None:
                return unit
        for engine, group in self._groups:
            for step in range(len(group)):
                unit = group[(engine.turn + step) % len(group)]
                if unit.dirty and unit.pending and unit.obstacle(self.semaphores) is None:
                    engine.turn = (engine.turn + step + 1) % len(group)
                    return unit
        return None

    def note_states(self) -> None:
        """Record the state of changed queues at the end of this instant."""
        now = self.timeline.now
        self.changed = False
        for unit in self._all:
            if unit.dirty:
                unit.dirty = False
                unit.meter.set(unit.state(self.semaphores), now)

    def push(self, entry: Entry) -> None:
        """Append an issued instruction to its queue."""
        unit = self.units[entry.instr.queue]
        entry.issued = self.timeline.now
        unit.pending.append(entry)
        unit.dirty = self.changed = True

    def start(self, unit: QueueState, job: StartedInstruction) -> None:
        """Start the timers of ``job``, which has been executed."""
        unit.running.append(job)
        if unit.engine is not None and job.entry.instr.mnemonic != "sync":
            unit.engine.free -= 1
        self.timeline.after(job.latency + job.work.start, self._ready, job)

    def _ready(self, job: StartedInstruction) -> None:
        job.data_ready = True
        self._begin_first(job.unit)

    def _begin_first(self, unit: QueueState) -> None:
        """Begin the phase of the oldest running instruction. Phases run in queue order."""
        if unit.running and unit.running[0].data_ready and not unit.running[0].data_begun:
            job = unit.running[0]
            job.data_begun = True
            job.phase_began = self.timeline.now
            self.timeline.run(job.phase, self._drain, job)

    def _drain(self, job: StartedInstruction) -> None:
        job.phase_ended = self.timeline.now
        job.contended = max(0.0, self.timeline.now - job.phase_began - job.phase.solo)
        job.unit.contended += job.contended
        self.timeline.after(job.work.drain, self._complete, job)

    def _complete(self, job: StartedInstruction) -> None:
        unit = job.unit
        unit.running.popleft()
        if unit.engine is not None and job.entry.instr.mnemonic != "sync":
            unit.engine.free += 1
        self._finished(job)
        unit.finished += 1
        unit.last_end = self.timeline.now
        self.post(job.entry.instr.posts, unit.queue, with_own(job.clock, unit.queue, job.clock[unit.queue] + 1))
        for sharing in self._sharing[unit.queue]:
            sharing.dirty = self.changed = True
        self._begin_first(unit)

    def post(self, posts: tuple[int, ...], queue: Queue, clock: Clock) -> None:
        """Post tokens. They become visible ``semaphore_cycles`` later."""
        for semaphore in posts:
            self.semaphores.post(semaphore, queue)
            self.timeline.after(self._semaphore_cycles, self._deliver, (semaphore, clock))

    def _deliver(self, token: tuple[int, Clock]) -> None:
        self.semaphores.deliver(*token)
        self.changed = True  # the fetch engine may wait for this event
        for unit in self._all:
            if unit.pending and token[0] in unit.pending[0].instr.waits:
                unit.dirty = self.changed = True
