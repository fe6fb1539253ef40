"""Stepped simulation: the state of the machine, cycle by cycle, charged by the formulas of the table.

It is slow, and exists to be compared with the fast one: costs are written down again from the document, nothing is kept
from one step to the next but how much is left of what runs, and there is no event queue. Values come from the same
engines.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odc_mlir.errors import OdcError, SimulationError
from odc_mlir.isa.codec import Instr, split_address
from odc_mlir.isa.fields import WIDTHS, Area, Instruction, Kind, Queue, Region, Runs
from odc_mlir.simulator.boxes import START
from odc_mlir.simulator.counters import Counters, OperatorTime, PortBytes, QueueTime, collect
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.machine import InstructionCost, Machine
from odc_mlir.simulator.fetch import field_values
from odc_mlir.simulator.memories import Access, Memories
from odc_mlir.simulator.program import DynamicInstruction, Program
from odc_mlir.simulator.resources import PORTS, Resource, widths
from odc_mlir.targets import MemoryMode, MemoryPort, Target

Values = Mapping[str, int]
_RESOURCES = (
    Resource.REQUANT,
    Resource.DECODER,
    Resource.TILE_READ,
    Resource.TILE_WRITE,
    Resource.ACCUMULATOR_READ,
    Resource.ACCUMULATOR_WRITE,
)
RESOURCES = dict(zip(WIDTHS, _RESOURCES, strict=True))


@dataclass
class Charge:
    """Phases of one instruction in order, with cycles and amounts of resources."""

    latency: float = 0.0
    start: float = 0.0
    shortest: float = 0.0
    amounts: dict[Resource, float] = field(default_factory=dict)
    drain: float = 0.0

    def use(self, resource: Resource, amount: float) -> None:
        """Add an amount of a resource."""
        self.amounts[resource] = self.amounts.get(resource, 0.0) + amount


def charge(spec: Instruction, v: Values, target: Target, memory: MemoryMode, *, strict: bool) -> Charge:
    """The cost of an instruction with field values ``v``."""
    found = spec.cost.evaluate(spec.words(v), target)
    c = Charge(start=found.get("start", 0.0), shortest=found.get("shortest", 0.0), drain=found.get("drain", 0.0))
    for name, resource in RESOURCES.items():
        if amount := found.get(name, 0.0):
            c.use(resource, amount)
    effects = spec.effects(v)
    for areas, write in ((effects.reads, False), (effects.writes, True)):
        for area in areas:
            if spec[area.field].kind is Kind.MEMORY:
                _move(c, v[area.field], area, _port(v[area.field], target, memory), write=write, strict=strict)
    return c


def _port(address: int, target: Target, memory: MemoryMode) -> tuple[MemoryPort, Resource]:
    """The port that an address lies behind."""
    if split_address(address)[0] == Region.CONSTANTS and memory == "flash":
        return target.offchip, Resource.OFFCHIP
    return target.sram, Resource.SRAM


def _move(c: Charge, address: int, area: Area, port: tuple[MemoryPort, Resource], *, write: bool, strict: bool) -> None:
    """Charge latency and bursts for the contiguous runs of ``area`` from ``address`` on."""
    (memory, resource), offset = port, split_address(address)[1]
    burst = memory.burst_bytes
    if area.picked is not None:
        count, size = area.picked
        rows = range(min(area.size // size, burst))  # the alignments of those that follow are the same again
        bursts = count * max(_bursts(offset + row * size, size, burst) for row in rows)
    else:
        bursts = sum(_bursts(offset + first, size, burst) for first, size in _contiguous(area.runs or Runs(area.size)))
    moved = bursts * burst
    latency = memory.write_latency_cycles if write else memory.read_latency_cycles
    c.latency += latency
    c.use(resource, moved)
    if strict:
        c.shortest = max(c.shortest, moved * latency / (memory.strict_outstanding_bursts * burst))


def _bursts(first: int, size: int, burst: int) -> int:
    """Bursts that ``size`` bytes from ``first`` on touch."""
    return (first + size - 1) // burst - first // burst + 1


def _contiguous(runs: Runs) -> Iterator[tuple[int, int]]:
    """(first unit, units) of each contiguous run, as seen from the first unit."""
    size, count, stride, groups, group_stride = runs
    if count == 1 or stride == size:  # a group is one run
        size, count = size * count, 1
        if groups == 1 or group_stride == size:
            size, groups = size * groups, 1
    for group in range(groups):
        for run in range(count):
            yield group * group_stride + run * stride, size


_ROUNDS = 1000
_SETTLED = 1e-12


def speeds(rates: Sequence[Mapping[Resource, float]], widths: Sequence[float]) -> list[float]:
    """Compute the speed of each phase, at most 1. ``rates``: its use of each resource per cycle at full speed."""
    total = [sum(phase.get(resource, 0.0) for phase in rates) for resource in Resource]
    levels = {r: float("inf") for r in Resource if total[r] > widths[r] * (1 + _SETTLED)}
    for _ in range(_ROUNDS if levels else 0):
        before = dict(levels)
        for resource in levels:
            wanted = []
            for phase in rates:
                elsewhere = {r: rate for r, rate in phase.items() if r != resource}
                wanted.append(phase.get(resource, 0.0) * _speed(elsewhere, levels))
            levels[resource] = _level(wanted, widths[resource])
        if all(levels[r] == before[r] or abs(levels[r] - before[r]) < _SETTLED for r in levels):
            break
    return [_speed(phase, levels) for phase in rates]


def _speed(phase: Mapping[Resource, float], levels: Mapping[Resource, float]) -> float:
    """The largest speed, at most 1, at which a phase passes no level."""
    return min([1.0, *(levels[r] / rate for r, rate in phase.items() if r in levels and rate)])


def _level(wanted: Sequence[float], width: float) -> float:
    """The largest level at which the wishes, each cut to the level, fit in ``width``."""
    if sum(wanted) <= width:
        return float("inf")
    # from below: whoever wants less than an equal part of what is left gets it, until nobody does
    open_wishes, left = sorted(wanted), width
    while open_wishes[0] <= left / len(open_wishes):
        left -= open_wishes.pop(0)
    return left / len(open_wishes)


_NOTHING = 1e-7  # cycles: less than this is over
# What passes between leaving the queue and the end: fixed delays, but for the turn (behind others of the same queue)
# and the phase (which shares resources).
_STAGES = ("latency", "start", "turn", "phase", "drain", "over")


@dataclass
class SteppedPhase:
    """A phase in progress. ``left``: cycles at full speed; ``rates``: use of resources per such cycle."""

    left: float
    rates: dict[Resource, float]


def make_phase(shortest: float, amounts: Mapping[Resource, float], width: Sequence[float]) -> SteppedPhase:
    """Make a phase whose time alone is the maximum of ``shortest`` and each amount over its capacity."""
    alone = max([shortest, *(amount / width[resource] for resource, amount in amounts.items())])
    return SteppedPhase(alone, {resource: amount / alone for resource, amount in amounts.items() if alone and amount})


@dataclass
class Running:
    """An instruction that has left its queue. ``left``: cycles of the stage it is in, where that has a fixed length."""

    index: int
    instr: Instr
    delays: dict[str, float]
    phase: SteppedPhase
    amounts: dict[Resource, float]
    work: InstructionCost
    started: float
    stage: str = "latency"
    left: float = 0.0
    alone: float = 0.0  # what its phase takes with everything to itself
    phase_began: float = 0.0


@dataclass
class Lane:
    """A queue: waiting and running instructions, and time in each state."""

    waiting: deque[tuple[int, Instr, Mapping[str, int]]] = field(default_factory=deque)
    running: list[Running] = field(default_factory=list)
    cycles: dict[str, float] = field(default_factory=dict)
    contended: float = 0.0
    started: int = 0
    finished: int = 0
    last_end: float = 0.0


@dataclass
class Request:
    """A part of the program on its way. ``left``: of its latency."""

    bytes: int
    left: float
    phase: SteppedPhase | None = None


@dataclass
class Engine:
    """Queues that share the array or descriptors; ``turn``: the queue that is served first."""

    queues: tuple[Queue, ...]
    descriptors: int
    turn: int = 0


class Stepped:
    """One run."""

    def __init__(self, program: Program, *, strict: bool, execute: bool) -> None:
        target = program.target
        self.program, self.target, self.strict = program, target, strict
        self.width = widths(target)
        self.ports = {resource: PortBytes() for resource in PORTS}
        contents = program.container
        self.memories = Memories(target, program.memory, contents.constants, contents.region_bytes, execute=execute)
        self.access = Access(self.ports, check=False, strict=False)
        self.machine = Machine(target, program.memory, self.memories, self.access, execute, {})
        self.now = 0.0
        self.tokens: dict[int, int] = {}
        self.posted: list[list[float]] = []  # [cycles until visible, semaphore]
        self.lanes = {queue: Lane() for queue in Queue}
        dma = target.dma.descriptors_in_flight
        self.engines = [Engine((Queue.MAC,), 1), Engine((Queue.VECTOR,), 1), Engine((Queue.XFER,), dma)]
        self.engines.append(Engine((Queue.LOAD, Queue.STORE, Queue.WEIGHT), dma))
        self.operators = [OperatorTime(entry.name, entry.kind, entry.macs) for entry in program.operators]
        self.macs = self.array_macs = 0
        self.amounts: dict[Resource, float] = {}
        self._start_fetch()

    # The fetch engine.

    def _start_fetch(self) -> None:
        program, target = self.program, self.target
        self.port = target.offchip if program.memory == "flash" else target.sram
        self.resource = Resource.OFFCHIP if program.memory == "flash" else Resource.SRAM
        burst = self.port.burst_bytes
        self.request_bytes = max(burst, target.fetch.buffer_bytes // 2 // burst * burst)
        self.stream = program.fetched_bytes
        self.steps = program.steps()
        self.step: DynamicInstruction = next(self.steps)
        self.requests: deque[Request] = deque()
        self.requested = self.arrived = self.consumed = self.fetched = 0
        self.fetching = "program"  # or issuing, issued
        self.issue_left = 0.0
        self.halted, self.status = False, 0
        self._ask()

    @property
    def instr(self) -> Instr:
        """The instruction that the fetch engine is at."""
        return self.program.instructions[self.step.index]

    def _ask(self) -> None:
        buffer = self.target.fetch.buffer_bytes
        while self.requested < self.stream and self.requested - self.consumed + self.request_bytes <= buffer:
            self.requested += self.request_bytes
            self.requests.append(Request(0, self.port.read_latency_cycles))

    def _program_arrives(self) -> bool:
        """Let the oldest request's bytes begin or finish to move."""
        if not self.requests or self.requests[0].left > _NOTHING:
            return False
        first = self.requests[0]
        if first.phase is None:
            burst = self.port.burst_bytes
            missing = -(-(self.stream - self.arrived) // burst) * burst
            first.bytes = min(self.request_bytes, missing)
            self.ports[self.resource].add(first.bytes, min(first.bytes, self.stream - self.arrived), write=False)
            in_flight = self.port.strict_outstanding_bursts * self.port.burst_bytes
            least = first.bytes * self.port.read_latency_cycles / in_flight if self.strict else 0.0
            first.phase = make_phase(least, {self.resource: first.bytes}, self.width)
            return True
        if first.phase.left > _NOTHING:
            return False
        self.arrived += first.bytes
        self.fetched += first.bytes
        self.requests.popleft()
        return True

    def _fetch(self) -> bool:
        """Start an issue, complete it, or run an instruction; return whether anything changed."""
        if self.halted:
            return False
        if self.fetching == "program" and self.arrived - self.consumed >= self.step.fetched_bytes:
            self.consumed += self.step.fetched_bytes
            self._ask()
            self.fetching, self.issue_left = "issuing", self.step.issue_cycles
            return True
        if self.fetching == "issuing" and self.issue_left <= _NOTHING:
            self.fetching = "issued"
            return True
        return self.fetching == "issued" and self._issued()

    def _issued(self) -> bool:
        instr = self.instr
        lane = self.lanes[instr.queue]
        if instr.queue != Queue.FETCH:
            if len(lane.waiting) >= self.target.fetch.queue_depth:
                return False
            lane.waiting.append((self.step.index, instr, field_values(instr, self.step.iteration)))
        else:
            if not self._ready(instr) or (instr.mnemonic == "halt" and not self._drained()):
                return False
            self._take(instr)
            self._post(instr)
            lane.finished += 1
            if instr.mnemonic == "halt":
                self.halted, self.status = True, instr["status"]
                return True
        self.step = next(self.steps)
        self.fetching = "program"
        return True

    def _drained(self) -> bool:
        return not any(lane.waiting or lane.running for lane in self.lanes.values())

    # Tokens.

    def _ready(self, instr: Instr) -> bool:
        return all(self.tokens.get(s, 0) >= instr.waits.count(s) for s in instr.waits)

    def _take(self, instr: Instr) -> None:
        for semaphore in instr.waits:
            self.tokens[semaphore] -= 1

    def _post(self, instr: Instr) -> None:
        self.posted += [[self.target.fetch.semaphore_cycles, semaphore] for semaphore in instr.posts]

    # The other engines.

    def _may_start(self, queue: Queue) -> str | None:
        """Return why the first instruction of a queue cannot start, None if it can."""
        instr = self.lanes[queue].waiting[0][1]
        engine = next(engine for engine in self.engines if queue in engine.queues)
        running = [r.instr.mnemonic for q in engine.queues for r in self.lanes[q].running]
        if queue in (Queue.MAC, Queue.VECTOR):
            if running:
                return "busy"
        elif instr.mnemonic != "sync" and len(running) - running.count("sync") >= engine.descriptors:
            return "descriptor" if self._ready(instr) else "semaphore"
        return None if self._ready(instr) else "semaphore"

    def _start_one(self) -> bool:
        """Start an instruction if any may; queues of one engine take turns."""
        for engine in self.engines:
            count = len(engine.queues)
            for step in range(count):
                place = (engine.turn + step) % count
                queue = engine.queues[place]
                if self.lanes[queue].waiting and self._may_start(queue) is None:
                    engine.turn = (place + 1) % count
                    self._start(queue)
                    return True
        return False

    def _start(self, queue: Queue) -> None:
        lane = self.lanes[queue]
        index, instr, values = lane.waiting.popleft()
        self._take(instr)
        executor = executors().get(instr.mnemonic)
        self.access.begin(queue, lane.started, START, index)
        try:
            work = executor(self.machine, values) if executor else InstructionCost()
        except OdcError as error:
            raise type(error)(f"instruction {index} ({instr.mnemonic}) {error.message}", hint=error.hint) from error
        c = charge(instr.spec, values, self.target, self.program.memory, strict=self.strict)
        delays = {"latency": c.latency, "start": c.start, "drain": c.drain}
        running = Running(
            index, instr, delays, make_phase(c.shortest, c.amounts, self.width), c.amounts, work, self.now
        )
        running.left, running.alone = c.latency, running.phase.left
        lane.started += 1
        lane.running.append(running)

    def _advance_stage(self, lane: Lane, running: Running) -> bool:
        """Go to the next stage if this one is over."""
        first = running is lane.running[0]
        if running.stage == "turn" and not first:
            return False
        if running.stage == "phase" and running.phase.left > _NOTHING:
            return False
        if running.stage not in ("turn", "phase") and running.left > _NOTHING:
            return False
        if running.stage == "phase":
            lane.contended += max(0.0, self.now - running.phase_began - running.alone)
        running.stage = _STAGES[_STAGES.index(running.stage) + 1]
        running.left = running.delays.get(running.stage, 0.0)
        if running.stage == "phase":
            running.phase_began = self.now
        elif running.stage == "over":
            self._finish(lane, running)
        return True

    def _finish(self, lane: Lane, running: Running) -> None:
        lane.running.remove(running)
        lane.finished += 1
        self._post(running.instr)
        self.macs += running.work.macs
        self.array_macs += running.work.array_macs
        for resource, amount in running.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0.0) + amount
        since = max(running.started, lane.last_end)
        lane.last_end = self.now
        owner = self.program.owners[running.index]
        if owner >= 0:
            times = (running.started, since, self.now)
            self.operators[owner].add(running.instr.queue, *times, running.work.macs, running.amounts)

    # Time.

    def to_the_end(self, cycle_limit: int | None) -> None:
        """Step until halt; raises SimulationError for a deadlock, a limit passed, or tokens left."""
        while True:
            self._act()
            if self.halted:
                break
            self._pass_time()
            if cycle_limit is not None and self.now > cycle_limit:
                raise SimulationError(f"the cycle limit of {cycle_limit} is exceeded")
        left = [s for s, count in self.tokens.items() if count] + [int(s) for _, s in self.posted]
        if left:
            raise SimulationError(f"semaphores are not zero at halt: {', '.join(map(str, sorted(set(left))))}")

    def _act(self) -> None:
        """Everything that happens at this instant."""
        changed = True
        while changed:
            changed = False
            for token in [t for t in self.posted if t[0] <= _NOTHING]:
                self.posted.remove(token)
                self.tokens[int(token[1])] = self.tokens.get(int(token[1]), 0) + 1
                changed = True
            for lane in self.lanes.values():
                for running in list(lane.running):
                    while running in lane.running and self._advance_stage(lane, running):
                        changed = True
            changed |= self._program_arrives() or changed
            if not changed:
                changed = self._fetch() or self._start_one()

    def _pass_time(self) -> None:
        """Advance to the end of this cycle, or to the end of a phase before it."""
        fixed = [r for lane in self.lanes.values() for r in lane.running if r.stage not in ("turn", "phase")]
        phases = [r.phase for lane in self.lanes.values() for r in lane.running if r.stage == "phase"]
        phases += [request.phase for request in self.requests if request.phase is not None]
        waiting = [r for r in self.requests if r.phase is None and r.left > _NOTHING]
        issuing = self.fetching == "issuing"
        if not (fixed or phases or waiting or self.posted or issuing):
            raise SimulationError(f"deadlock at cycle {self.now:.0f}: {', '.join(self._stuck())}")
        speed = speeds([p.rates for p in phases], self.width)
        step = math.floor(self.now + _NOTHING) + 1 - self.now
        step = min([step, *(r.left for r in fixed), *(r.left for r in waiting), *(t[0] for t in self.posted)])
        step = min([step, *(p.left / s for p, s in zip(phases, speed, strict=True))])
        step = min(step, self.issue_left) if issuing else step
        self._note_states(step)
        self.now += step
        for running in fixed:
            running.left -= step
        for request in waiting:
            request.left -= step
        for token in self.posted:
            token[0] -= step
        for p, s in zip(phases, speed, strict=True):
            p.left -= step * s
        self.issue_left -= step

    def _note_states(self, step: float) -> None:
        for queue, lane in self.lanes.items():
            state = self._state(queue, lane)
            lane.cycles[state] = lane.cycles.get(state, 0.0) + step

    def _state(self, queue: Queue, lane: Lane) -> str:
        if queue == Queue.FETCH:
            if self.fetching != "issued":
                return "program" if self.fetching == "program" else "busy"
            if self.instr.queue != Queue.FETCH:
                return "queue_full"
            return "drain" if self._ready(self.instr) else "semaphore"
        if lane.running:
            return "busy"
        return (self._may_start(queue) or "busy") if lane.waiting else "idle"

    def _stuck(self) -> list[str]:
        stuck = [
            f"queue {q.name.lower()} waits for {self._state(q, lane)}" for q, lane in self.lanes.items() if lane.waiting
        ]
        return [*stuck, f"queue fetch waits for {self._state(Queue.FETCH, self.lanes[Queue.FETCH])}"]

    def counters(self, memory_model: str) -> Counters:
        """Return the counters of the run."""
        cycles = math.ceil(self.now - _NOTHING)
        self._note_states(max(0.0, cycles - self.now))  # the rest of the last cycle
        queues = {}
        for queue, lane in self.lanes.items():
            states = {state: total for state, total in lane.cycles.items() if total > 0}
            states.pop("idle", 0.0)
            busy = states.pop("busy", 0.0)
            idle = max(0.0, cycles - busy - sum(states.values()))
            queues[queue.name.lower()] = QueueTime(busy, states, idle, lane.contended, lane.finished)
        amounts = {**self.amounts, self.resource: self.amounts.get(self.resource, 0.0) + self.fetched}
        return collect(
            self.program,
            self.memories,
            self.ports,
            amounts,
            memory_model=memory_model,
            cycles=cycles,
            macs_useful=self.macs,
            macs_array=self.array_macs,
            program_bytes_fetched=self.fetched,
            queues=queues,
            operators=self.operators,
            halt_status=self.status,
        )
