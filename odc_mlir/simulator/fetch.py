"""Fetch engine: reads the program, issues instructions to queues in program order, runs loops and halt.

Program bytes arrive in requests of half the prefetch buffer, at most two at a time. Issuing takes a fixed time. If a
queue is full, the next instruction for this queue blocks all later instructions. A loop body that fits in the loop
buffer is fetched once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from odc_mlir.errors import SimulationError
from odc_mlir.isa.codec import Instr
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.boxes import START, Clock, Semaphores
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.memories import strict_cycles
from odc_mlir.simulator.program import DynamicInstruction, Program
from odc_mlir.simulator.queues import Engines, Entry, with_own
from odc_mlir.simulator.resources import BUSY, ExecutionPhase, Meter, Resource, Timeline
from odc_mlir.simulator.trace import Issue


class FetchEngine:
    """Fetch engine that feeds :class:`Engines`. If ``halted``, halt was reached and all work is finished."""

    def __init__(
        self,
        program: Program,
        engines: Engines,
        timeline: Timeline,
        semaphores: Semaphores,
        ports: dict[Resource, PortBytes],
        *,
        strict: bool,
    ) -> None:
        self._program = program
        self._engines = engines
        self._timeline = timeline
        self._semaphores = semaphores
        self._steps: Iterator[DynamicInstruction] = program.steps()
        flash = program.memory == "flash"
        self._port = program.target.offchip if flash else program.target.sram
        self.resource = Resource.OFFCHIP if flash else Resource.SRAM
        self._ports = ports
        self._strict = strict
        self._buffer_bytes = program.target.fetch.buffer_bytes
        burst = self._port.burst_bytes
        self._request_bytes = max(burst, self._buffer_bytes // 2 // burst * burst)
        self._stream_bytes = program.fetched_bytes
        self._requested = 0
        self._arrived = 0
        self._consumed = 0
        self._requests = deque[list[bool]]()  # requests in flight, in order: whether the latency is over
        self._moving = False
        self._step = next(self._steps)
        self._instr = program.instructions[self._step.index]
        self._stage = "program"  # program: waits for bytes; issuing; issued: waits for room, tokens or the end
        self.clock: Clock = START
        self.position = 0
        self.meter = Meter("program")
        self.halted = False
        self.status = 0
        self.bytes_fetched = 0
        self.changed = True  # an event may allow the engine to continue
        self.issues: list[Issue] | None = None  # data for a trace
        self._begun = self._ready = 0.0
        self._request()

    @property
    def index(self) -> int:
        """Index of the instruction that is being fetched or issued."""
        return self._step.index

    @property
    def state(self) -> str:
        """Current state of the engine: busy, or the cause of a stall."""
        if self._stage == "program":
            return "program"
        if self._stage == "issuing":
            return BUSY
        if self._instr.queue != Queue.FETCH:
            return "queue_full"
        return "drain" if self._semaphores.ready(self._instr.waits) else "semaphore"

    def advance(self) -> bool:
        """Advance as far as possible at this instant. Return whether anything changed."""
        if self._stage == "issued" and not self.halted:
            return self._control() if self._instr.queue == Queue.FETCH else self._push()
        if self._stage != "program" or self._arrived - self._consumed < self._step.fetched_bytes:
            return False
        self._consumed += self._step.fetched_bytes
        self._request()
        self._stage = "issuing"
        self._begun = self._timeline.now
        self._timeline.after(self._step.issue_cycles, self._issued, None)
        return True

    def note_state(self) -> None:
        """Record the engine's state at the end of this instant."""
        self.changed = False
        self.meter.set(self.state, self._timeline.now)

    def _issued(self, _: None) -> None:
        self._stage = "issued"
        self._ready = self._timeline.now
        self.changed = True

    def _push(self) -> bool:
        if self._engines.units[self._instr.queue].full:
            return False
        values = field_values(self._instr, self._step.iteration)
        self._engines.push(Entry(self._step.index, self._instr, values, self.clock))
        self._note()
        self._next()
        return True

    def _control(self) -> bool:
        instr = self._instr
        if not self._semaphores.ready(instr.waits) or (instr.mnemonic == "halt" and not self._engines.drained):
            return False
        self.clock = with_own(self._semaphores.take(instr.waits, Queue.FETCH, self.clock), Queue.FETCH, self.position)
        self.position += 1
        self._note()
        self._engines.post(instr.posts, Queue.FETCH, with_own(self.clock, Queue.FETCH, self.position))
        if instr.mnemonic == "halt":
            self.halted, self.status = True, instr["status"]
        else:
            self._next()
        return True

    def _note(self) -> None:
        if self.issues is not None:
            self.issues.append(Issue(self._step.index, self._begun, self._ready, self._timeline.now))

    def _next(self) -> None:
        self._step = next(self._steps)
        self._instr = self._program.instructions[self._step.index]
        self._stage = "program"

    def _request(self) -> None:
        while (
            self._requested < self._stream_bytes
            and self._requested - self._consumed + self._request_bytes <= self._buffer_bytes
        ):
            self._requested += self._request_bytes
            request = [False]
            self._requests.append(request)
            self._timeline.after(self._port.read_latency_cycles, self._respond, request)

    def _respond(self, request: list[bool]) -> None:
        request[0] = True
        self._move()

    def _move(self) -> None:
        """Transfer the bytes of the oldest request. Requests are served in order, one at a time."""
        if self._moving or not self._requests or not self._requests[0][0]:
            return
        self._moving = True
        burst, wanted = self._port.burst_bytes, self._stream_bytes - self._arrived
        moved = min(self._request_bytes, -(-wanted // burst) * burst)
        self._ports[self.resource].add(moved, min(moved, wanted), write=False)
        self.bytes_fetched += moved
        demands = [0.0] * len(Resource)
        demands[self.resource] = moved
        shortest = strict_cycles(self._port, moved, write=False) if self._strict else 0.0
        self._timeline.run(ExecutionPhase(shortest, demands, self._timeline.shares.width), self._land, moved)

    def _land(self, moved: int) -> None:
        self._arrived += moved
        self._requests.popleft()
        self._moving = False
        self.changed = True
        self._move()


def field_values(instr: Instr, iteration: int) -> Mapping[str, int]:
    """Return the field values in an iteration of the enclosing loop. Addresses advance by steps."""
    if instr.steps is None or not iteration:
        return instr.values
    values = dict(instr.values)
    for field, step in zip(instr.spec.addresses, instr.steps, strict=True):
        values[field.name] = values.get(field.name, 0) + iteration * step
        low, high = field.range
        if not low <= values[field.name] <= high:
            raise SimulationError(
                f"iteration {iteration} steps field {field.name} of {instr.mnemonic} to {values[field.name]}"
            )
    return values
