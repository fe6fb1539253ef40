"""Loaded program: decoded and checked contents of the container, and the target."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from odc_mlir import targets
from odc_mlir.errors import PackageError, SimulationError, TargetError, UnsupportedError
from odc_mlir.isa import container
from odc_mlir.isa.codec import Instr
from odc_mlir.isa.compact import Code, read_code
from odc_mlir.isa.container import Container, MapEntry, TensorRecord
from odc_mlir.isa.fields import GRANULE_BYTES, Region
from odc_mlir.targets import MemoryMode, Target

TARGET_DESCRIPTION = "target_description"  # metadata key for the canonical text of a custom target


@dataclass(frozen=True, slots=True)
class DynamicInstruction:
    """Execution of an instruction: ``index`` in the program, loop ``iteration``, and issue cost."""

    index: int
    iteration: int
    fetched_bytes: int
    issue_cycles: int


@dataclass(frozen=True)
class Program:
    """A checked program. Instructions are static. :meth:`steps` unrolls loops."""

    container: Container
    target: Target
    memory: MemoryMode
    code: Code

    @property
    def instructions(self) -> tuple[Instr, ...]:
        return self.code.instructions

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        return self.container.inputs

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        return self.container.outputs

    @property
    def operators(self) -> tuple[MapEntry, ...]:
        return self.container.operators

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Index of the operator of each instruction, or -1."""
        owners = [-1] * len(self.instructions)
        for number, entry in enumerate(self.operators):
            for first, count in entry.ranges:
                owners[first : first + count] = [number] * count
        return tuple(owners)

    @cached_property
    def dynamic_instructions(self) -> int:
        """Number of instructions issued in one run, including halt."""
        total, index = 0, 0
        while self.instructions[index].mnemonic != "halt":
            length = 1
            if self.instructions[index].mnemonic == "loop":
                length = self._body_length(index) + 2
                total += self.instructions[index]["count"] * (length - 1)  # body and end of the loop
            total += 1
            index += length
        return total + 1

    @cached_property
    def fetched_bytes(self) -> int:
        """Number of program bytes fetched in one run. A loop body in the loop buffer is fetched once."""
        return sum(step.fetched_bytes for step in self.steps())

    def steps(self) -> Iterator[DynamicInstruction]:
        """Yield instructions in issue order, up to halt."""
        index = 0
        while True:
            instr = self.instructions[index]
            yield self._step(index)
            if instr.mnemonic == "halt":
                return
            index += 1
            if instr.mnemonic == "loop":
                body = range(index, index + self._body_length(index - 1) + 1)
                kept = instr["body_bytes"] <= self.target.fetch.loop_buffer_bytes
                for iteration in range(instr["count"]):
                    for inner in body:
                        yield self._step(inner, iteration, kept=kept and iteration > 0)
                index = body.stop

    def _step(self, index: int, iteration: int = 0, *, kept: bool = False) -> DynamicInstruction:
        fetched, cycles = 0 if kept else self.code.sizes[index], self.target.fetch.issue_cycles
        if self.code.history_bytes is not None:
            cycles *= max(1, -(-fetched // GRANULE_BYTES))
        return DynamicInstruction(index, iteration, fetched, cycles)

    def _body_length(self, loop: int) -> int:
        end = loop + 1
        while self.instructions[end].mnemonic != "end":
            end += 1
        return end - loop - 1


def load(
    data: bytes | memoryview, *, target: Target | str | os.PathLike[str] | None = None, location: str | None = None
) -> Program:
    """Load the program in the bytes of a ``.npu`` file.

    ``target`` is the NPU to run on, by default the target of the program. ``location`` names the file in errors. Raises
    PackageError for a malformed file, SimulationError for malformed code, UnsupportedError for instructions that this
    version does not implement, and TargetError for a program for other hardware.
    """
    contents = container.read(data, location)
    memory: MemoryMode = "sram" if contents.memory == "sram" else "flash"
    npu = _resolve(contents, target, location)
    if npu.digest(memory) != contents.target_digest:
        raise TargetError(
            f"the program was compiled for another version of target {contents.target!r} or another memory mode",
            location=location,
            hint="compile the model again",
        )
    _check_sizes(contents, npu, location)
    try:
        code = read_code(contents.code)
        _check_structure(code, npu)
    except (SimulationError, UnsupportedError) as error:
        raise type(error)(error.message, location=location, hint=error.hint) from None
    _check_map(contents, len(code.instructions), location)
    return Program(contents, npu, memory, code)


def _resolve(contents: Container, target: Target | str | os.PathLike[str] | None, location: str | None) -> Target:
    if isinstance(target, Target):
        return target
    if target is not None:
        return targets.load(target)
    description = contents.metadata.get(TARGET_DESCRIPTION)
    if contents.target in targets.names():
        return targets.load(contents.target)
    if isinstance(description, str):
        return targets.from_canonical(description, location or "target description of the program")
    raise TargetError(
        f"the program was compiled for target {contents.target!r}, which is not known here",
        location=location,
        hint=f"give its description; known are {', '.join(targets.names())}",
    )


def _check_sizes(contents: Container, target: Target, location: str | None) -> None:
    needed = sum(contents.region_bytes[r] for r in (Region.ARENA, Region.INPUTS, Region.OUTPUTS))
    if needed > target.sram.capacity_bytes:
        raise PackageError(
            f"arena, inputs and outputs take {needed} bytes, {target.name} has {target.sram.capacity_bytes} of SRAM",
            location=location,
        )


def _check_structure(code: Code, target: Target) -> None:
    """Check that the program halts, that loops end, do not nest and have the stated size.

    Only instructions in loops may have steps. In compact form, the loop buffer must have room for the history and for
    the bodies of loops.
    """
    kept = target.fetch.loop_buffer_bytes
    if code.history_bytes is not None and code.history_bytes > kept:
        raise SimulationError(f"the program refers {code.history_bytes} bytes back, {target.name} keeps {kept}")
    offset = 0
    loop: tuple[int, int] | None = None  # first byte of the body, stated end
    for index, instr in enumerate(code.instructions):
        where = f"instruction {index} ({instr.mnemonic})"
        if instr.steps is not None and loop is None:
            raise SimulationError(f"{where} has address steps but is not in a loop")
        if instr.mnemonic in ("loop", "halt") and loop is not None:
            raise SimulationError(f"{where} is inside a loop")
        offset += instr.size_bytes
        if instr.mnemonic == "loop":
            if instr["count"] < 1 or instr["body_bytes"] < 1:
                raise SimulationError(f"{where} repeats {instr['body_bytes']} bytes {instr['count']} times")
            if code.history_bytes is not None and instr["body_bytes"] > kept:
                raise SimulationError(f"{where} repeats {instr['body_bytes']} bytes, {target.name} keeps {kept}")
            loop = (offset, offset + instr["body_bytes"])
        elif instr.mnemonic == "end":
            if loop is None or offset - instr.size_bytes != loop[1]:
                raise SimulationError(f"{where} does not close a loop whose body ends there")
            loop = None
        elif instr.mnemonic == "halt":
            return
    raise SimulationError("the program has no halt" if loop is None else "the program ends inside a loop")


def _check_map(contents: Container, count: int, location: str | None) -> None:
    taken = bytearray(count)
    for entry in contents.operators:
        for first, length in entry.ranges:
            if first + length > count or length < 1 or any(taken[first : first + length]):
                raise PackageError(
                    f"the map gives instructions {first}..{first + length - 1} of {count} to {entry.name!r}"
                    " or gives them twice",
                    location=location,
                )
            taken[first : first + length] = b"\1" * length
