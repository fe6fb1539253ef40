"""Execution of a program: binds inputs, drives fetch and engines, collects outputs and counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, OdcError, OptionError, SimulationError
from odc_mlir.isa.container import TensorRecord
from odc_mlir.isa.fields import Region
from odc_mlir.simulator.boxes import Semaphores
from odc_mlir.simulator.counters import Counters, OperatorTime, PortBytes, hardware, queue_time
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.machine import InstructionCost, Machine
from odc_mlir.simulator.fetch import FetchEngine
from odc_mlir.simulator.memories import Access, Memories
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.queues import Engines, QueueState, StartedInstruction
from odc_mlir.simulator.resources import FINISHED, PORTS, ExecutionPhase, Resource, Shares, Timeline, widths
from odc_mlir.simulator.stepped import SteppedTimeline, charge
from odc_mlir.simulator.trace import Trace


def bind(program: Program, memories: Memories, inputs: Sequence[NDArray[Any]]) -> None:
    """Copy ``inputs`` into input regions. Raises InputError if number, dtypes or shapes differ from the program's."""
    records = program.inputs
    if len(inputs) != len(records):
        raise InputError(f"the program's inputs: {len(inputs)} given, expected {len(records)}")
    for record, value in zip(records, inputs, strict=True):
        array = np.asarray(value)
        if array.dtype != np.dtype(record.dtype) or array.shape != record.shape:
            raise InputError(
                f"input is {array.dtype.name} {list(array.shape)}, expected {record.dtype} {list(record.shape)}",
                tensor=record.name,
            )
        data, written = _bytes_of(memories, record)
        data[...] = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), np.uint8)
        written[...] = True


def outputs(program: Program, memories: Memories) -> tuple[NDArray[Any], ...]:
    """Return copies of the outputs. Raises SimulationError for an output that is not completely written."""
    arrays = []
    for record in program.outputs:
        data, written = _bytes_of(memories, record)
        if not written.all():
            raise SimulationError("parts of an output were never written", tensor=record.name)
        dtype = np.dtype(record.dtype)
        codes = np.frombuffer(data.tobytes(), dtype.newbyteorder("<"))
        arrays.append(codes.astype(dtype).reshape(record.shape))
    return tuple(arrays)


def _bytes_of(memories: Memories, record: TensorRecord) -> tuple[NDArray[Any], NDArray[Any]]:
    space = memories.regions[record.region]
    if space.data is None or space.written is None:
        raise ValueError("a timing-only run has no contents")
    place = slice(record.offset, record.offset + record.bytes)
    return space.data[place], space.written[place]


MemoryModel = Literal["parity", "strict"]
Mode = Literal["fast", "stepped"]
MODES: tuple[Mode, ...] = ("fast", "stepped")
MEMORY_MODELS: tuple[MemoryModel, ...] = ("parity", "strict")
INSTRUCTION_LIMIT = 2_000_000  # limit on issued instructions, far above the number of any model


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run. ``outputs`` is empty in timing-only runs. ``trace`` is None unless requested."""

    outputs: tuple[NDArray[Any], ...]
    counters: Counters
    trace: Trace | None


def simulate(
    program: Program,
    inputs: Sequence[NDArray[Any]] = (),
    *,
    mode: Mode = "fast",
    memory_model: MemoryModel = "parity",
    trace: bool = False,
    execute: bool = True,
    cycle_limit: int | None = None,
    instruction_limit: int = INSTRUCTION_LIMIT,
) -> Result:
    """Run ``program`` once on ``inputs``, with shapes and dtypes of ``program.inputs``.

    ``mode``: "fast" or "stepped". The stepped mode advances by at most one cycle at a time and charges the formulas of
        docs/npu.md. It serves to check the fast mode, is a hundred times slower, and has no trace.
    ``execute``: False for a timing run without values. Cycles are the same, but reads before writes and races are not
        detected.

    Raises InputError for inputs that do not fit, SimulationError if the program is invalid or exceeds a limit.
    """
    if memory_model not in MEMORY_MODELS:
        raise OptionError(f"memory model {memory_model!r} is not one of {', '.join(MEMORY_MODELS)}")
    if mode not in MODES:
        raise OptionError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if mode == "stepped" and trace:
        raise OptionError("mode 'stepped' does not support a trace", hint="use mode 'fast'")
    if program.dynamic_instructions > instruction_limit:
        raise SimulationError(
            f"the program issues {program.dynamic_instructions} instructions, more than {instruction_limit}"
        )
    run = _Simulation(program, memory_model == "strict", trace, execute, mode == "stepped")
    if execute:
        bind(program, run.memories, inputs)
    run.to_the_end(cycle_limit)
    return Result(outputs(program, run.memories) if execute else (), run.counters(memory_model), run.trace)


def simulate_memory(program: Program, regions: Mapping[int, memoryview]) -> Counters:
    """Run ``program`` once on memory of the caller, as a device does.

    ``regions`` maps region numbers to the bytes of arena, inputs and outputs. The bytes are changed in place, and all
    of them count as initialised. Raises SimulationError if the program is invalid.
    """
    run = _Simulation(program, False, False, True, False)
    whole = [TensorRecord("", "uint8", (len(memory),), None, 0, region, 0) for region, memory in regions.items()]
    contents = [_bytes_of(run.memories, record) for record in whole]
    for (data, written), memory in zip(contents, regions.values(), strict=True):
        data[...] = np.frombuffer(memory, np.uint8)
        written[...] = True
    run.to_the_end(None)
    for (data, _), memory in zip(contents, regions.values(), strict=True):
        memory[:] = data.tobytes()
    return run.counters("parity")


class _Account:
    """Totals of completed instructions, for counters and the trace.

    The class does not refer to the engines that fill it: a reference cycle would keep the memories of a run alive until
    the next garbage collection.
    """

    def __init__(self, program: Program, timeline: Timeline, trace: Trace | None) -> None:
        self.operators = [OperatorTime(entry.name, entry.kind, entry.macs) for entry in program.operators]
        self.macs = self.array_macs = 0
        self.amounts = [0.0] * len(Resource)
        self._owners = program.owners
        self._timeline = timeline
        self._trace = trace

    def add(self, job: StartedInstruction) -> None:
        unit, now = job.unit, self._timeline.now
        self.macs += job.work.macs
        self.array_macs += job.work.array_macs
        for resource, amount in enumerate(job.demands):
            self.amounts[resource] += amount
        since = max(job.started, unit.last_end)
        if self._trace is not None:
            self._trace.add(job, since, now)
        owner = self._owners[job.entry.index]
        if owner >= 0:
            amounts = {resource: amount for resource, amount in zip(Resource, job.demands, strict=True) if amount}
            self.operators[owner].add(unit.queue, job.started, since, now, job.work.macs, amounts)


class _Simulation:
    def __init__(self, program: Program, strict: bool, trace: bool, execute: bool, stepped: bool) -> None:
        target, contents = program.target, program.container
        self.program = program
        self.ports = {resource: PortBytes() for resource in PORTS}
        self.memories = Memories(target, program.memory, contents.constants, contents.region_bytes, execute=execute)
        self.access = Access(self.ports, check=execute, strict=strict)
        self.machine = Machine(target, program.memory, self.memories, self.access, execute, {})
        self.strict, self.stepped = strict, stepped
        self.timeline = (SteppedTimeline if stepped else Timeline)(Shares(widths(target)))
        self.semaphores = Semaphores()
        self.trace = Trace(program) if trace else None
        self.account = _Account(program, self.timeline, self.trace)
        self.engines = Engines(
            self.timeline,
            self.semaphores,
            self.account.add,
            depth=target.fetch.queue_depth,
            slots=target.dma.descriptors_in_flight,
            semaphore_cycles=target.fetch.semaphore_cycles,
        )
        self.fetch = FetchEngine(program, self.engines, self.timeline, self.semaphores, self.ports, strict=strict)
        if self.trace is not None:
            self.timeline.segments = self.trace.segments
            self.timeline.shares.blaming = True
            self.access.touched = []
            self.fetch.issues = self.trace.issues
        self._executors = executors()
        self._owners = program.owners

    def to_the_end(self, cycle_limit: int | None) -> None:
        limit = float("inf") if cycle_limit is None else float(cycle_limit)
        while True:
            self._settle()
            if self.fetch.halted:
                break
            if not self.timeline.advance():
                raise SimulationError(self._deadlock())
            if self.timeline.now > limit:
                raise SimulationError(f"the cycle limit of {cycle_limit} is exceeded")
        left = self.semaphores.left()
        if left:
            counts = ", ".join(f"{semaphore} holds {count}" for semaphore, count in left.items())
            raise SimulationError(f"semaphores are not zero at halt: {counts}")

    def _settle(self) -> None:
        if not (self.engines.changed or self.fetch.changed):
            return
        progress = True
        while progress:
            progress = self.fetch.advance()
            unit = self.engines.startable()
            while unit is not None:
                self._start(unit)
                progress = True
                unit = self.engines.startable()
        self.engines.note_states()
        self.fetch.note_state()

    def _start(self, unit: QueueState) -> None:
        entry = unit.pending.popleft()
        clock = unit.next_clock(entry, self.semaphores)
        self.access.begin(unit.queue, clock[unit.queue], clock, entry.index)
        executor = self._executors.get(entry.instr.mnemonic)
        try:
            work = executor(self.machine, entry.values) if executor else InstructionCost()
        except OdcError as error:
            raise type(error)(f"{self._where(entry.index)} {error.message}", hint=error.hint) from error
        demands, latency, shortest = self.access.demands, self.access.latency, max(work.shortest, self.access.shortest)
        if self.stepped:
            target, memory = self.program.target, self.program.memory
            declared = charge(entry.instr.spec, entry.values, target, memory, strict=self.strict)
            work, latency = replace(work, start=declared.start, drain=declared.drain), declared.latency
            demands, shortest = [declared.amounts.get(resource, 0.0) for resource in Resource], declared.shortest
        else:
            demands[Resource.REQUANT] += work.lanes
            demands[Resource.DECODER] += work.symbols
        job = StartedInstruction(entry, unit, clock, work, self.timeline.now, demands, latency)
        job.touched = self.access.touched or ()
        job.phase = ExecutionPhase(shortest, demands, self.timeline.shares.width)
        self.engines.start(unit, job)

    def _where(self, index: int) -> str:
        text = f"instruction {index} ({self.program.instructions[index].mnemonic}"
        owner = self._owners[index]
        return text + (f" of {self.program.operators[owner].name!r})" if owner >= 0 else ")")

    def _deadlock(self) -> str:
        parts = []
        for unit in self.engines.units.values():
            if unit.pending:
                entry = unit.pending[0]
                cause = unit.state(self.semaphores)
                waits = f"semaphores {', '.join(map(str, entry.instr.waits))}" if cause == "semaphore" else cause
                parts.append(f"queue {unit.queue.name.lower()}: {self._where(entry.index)} waits for {waits}")
        cause = {"queue_full": "room in its queue", "drain": "the queues to be empty"}.get(
            self.fetch.state, self.fetch.state
        )
        parts.append(f"queue fetch: {self._where(self.fetch.index)} waits for {cause}")
        return f"deadlock at cycle {self.timeline.now:.0f}: {'; '.join(parts)}"

    def counters(self, memory_model: MemoryModel) -> Counters:
        cycles = math.ceil(self.timeline.now - FINISHED)
        units = self.engines.units.values()
        queues = {u.queue.name.lower(): queue_time(u.meter, cycles, u.contended, u.finished) for u in units}
        queues["fetch"] = queue_time(self.fetch.meter, cycles, 0.0, self.fetch.position)
        amounts = dict(zip(Resource, self.account.amounts, strict=True))
        amounts[self.fetch.resource] += self.fetch.bytes_fetched
        contents, target, memories = self.program.container, self.program.target, self.memories
        local = (memories.tile, memories.weights, memories.accumulators, memories.params, memories.tables)
        return Counters(
            target=target.name,
            memory=self.program.memory,
            memory_model=memory_model,
            cycles=cycles,
            macs_useful=self.account.macs,
            macs_array=self.account.array_macs,
            instructions=sum(queue.instructions for queue in queues.values()),
            program_bytes=len(contents.code),
            program_bytes_fetched=self.fetch.bytes_fetched,
            constant_bytes=len(contents.constants),
            constant_bytes_read=memories.constants.moved,
            sram_peak_bytes=sum(size for region, size in contents.region_bytes.items() if region != Region.CONSTANTS),
            arena_bytes=contents.arena_bytes,
            local_peak_bytes={space.name.replace(" ", "_"): space.high_water * space.unit_bytes for space in local},
            ports={resource.name.lower(): port for resource, port in self.ports.items()},
            amounts={resource.name.lower(): amount for resource, amount in amounts.items() if amount},
            queues=queues,
            operators=self.account.operators,
            halt_status=self.fetch.status,
            hardware=hardware(target),
        )
