"""``npu-verify-memory``: prove that a finished program is safe. Changes nothing.

The pass checks that buffers are inside memories, and that accesses are inside buffers. No byte of a value may be
overwritten through another buffer before its last read. Arena buffers that share bytes must be in use at different
times. Semaphores must order conflicts between queues, an earlier post must satisfy every wait, and no token may be left
over. The program thus terminates with queues of any depth.

Rejects loops: run ``npu-unroll-loops`` first. A write through a whole memory (``npu.memory``) may belong to any buffer,
so it never counts as overwriting a value. Tokens are checked in program order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence

from xdsl.context import Context

from odc_mlir.dialects.npu_isa import missing_address
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import SEMAPHORE_MAX, Queue, Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.arena import live_intervals, overlapping
from odc_mlir.transforms.npu.schedule.hazards import Clock, Hazards, Latest, join
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, local_sizes, spans
from odc_mlir.transforms.npu.schedule.regions import arena_bytes, region_bytes


class NpuVerifyMemoryPass(ProgramPass):
    """Verify all memory accesses of a program."""

    name = "npu-verify-memory"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        ends = [(b.address or 0) + b.size for b in program.buffers if b.space is Space.CONSTANTS]
        regions = region_bytes(job, program) | {
            Space.ARENA: arena_bytes(job, program),
            Space.CONSTANTS: max(ends, default=0),
        }
        verify_program(program.working, job.target, regions, program.layer_names)


def verify_program(
    commands: Sequence[Command],
    target: Target,
    region_bytes: dict[Space, int],
    layers: Mapping[Buffer, str] | None = None,
) -> None:
    """Raise CompileError with the instruction's name unless the program is safe on ``target``.

    ``region_bytes``: size of each region that is bound at run time. ``layers``: name of each buffer's layer.
    """
    names = _Names(commands, layers or {})
    last_uses = {buffer: index for index, command in enumerate(commands) for buffer, _ in command.places.values()}
    _verify_buffers(last_uses, local_sizes(target) | region_bytes, names)
    _verify_arena(commands, target.sram.burst_bytes, names)
    _verify_bounds(commands, names)
    hazards = Hazards(last_uses)
    before = [hazards.visit(index, command) for index, command in enumerate(commands)]
    _verify_values(hazards, names)
    _verify_order(commands, before, names)


class _Names:
    def __init__(self, commands: Sequence[Command], layers: Mapping[Buffer, str]) -> None:
        self.commands, self.layers = commands, layers

    def command(self, index: int) -> str:
        command = self.commands[index]
        return f"instruction {index} ({command.mnemonic} in queue {command.queue.name.lower()})"

    def buffer(self, buffer: Buffer) -> str:
        layer = self.layers.get(buffer, "")
        of = f" of {layer!r}" if layer and layer != buffer.name else ""
        first = buffer.address or 0
        return f"{buffer.name!r}{of} ({buffer.space} {first}..{first + buffer.size - 1})"


def _verify_buffers(buffers: Collection[Buffer], sizes: dict[Space, int], names: _Names) -> None:
    homeless = next((buffer for buffer in buffers if buffer.address is None), None)
    if homeless is not None:
        raise missing_address(homeless.name, homeless.space, names.layers.get(homeless, ""))
    for buffer in buffers:
        end = (buffer.address or 0) + buffer.size
        if end > sizes[buffer.space]:
            raise CompileError(
                f"buffer {names.buffer(buffer)} ends at {end}, {buffer.space} has {sizes[buffer.space]} units"
            )


_MOVE_ONE = "move one of them, or remove their addresses and allocate again"


def _verify_arena(commands: Sequence[Command], alignment: int, names: _Names) -> None:
    intervals = [item for item in live_intervals(commands, alignment) if not item.owner.is_memory]
    if (clash := overlapping(intervals)) is not None:
        first, second = clash
        raise CompileError(
            f"buffers {names.buffer(first.owner)} and {names.buffer(second.owner)} share bytes while both are in use",
            hint=_MOVE_ONE,
        )


def _verify_values(hazards: Hazards, names: _Names) -> None:
    if (lost := hazards.missed) is not None:
        raise CompileError(
            f"buffers {names.buffer(lost.buffer)} and {names.buffer(lost.by)} share bytes while both are in use: "
            f"{names.command(lost.overwritten)} overwrites the result of {names.command(lost.written)} too early",
            hint=_MOVE_ONE,
        )


def _verify_bounds(commands: Sequence[Command], names: _Names) -> None:
    for index, command in enumerate(commands):
        places = command.places
        for areas in command.immediates.effects:
            for area in areas:
                buffer, start = places[area.field]
                if area.ring is None and 0 <= start < start + area.size <= buffer.size:
                    continue
                for buffer, start, end in spans(places, area):
                    if not 0 <= start < end <= buffer.size:
                        raise CompileError(
                            f"{names.command(index)} touches {start}..{end - 1} of buffer "
                            f"{buffer.name!r}, which has {buffer.size} units"
                        )


def _verify_order(commands: Sequence[Command], dependences: Sequence[Latest], names: _Names) -> None:
    known: dict[Queue, Clock] = {queue: [-1] * len(Queue) for queue in Queue}
    tokens: dict[int, deque[Clock]] = defaultdict(deque)
    for index, (command, before) in enumerate(zip(commands, dependences, strict=True)):
        own, clock = command.queue, known[command.queue]
        for number in command.waits:
            if not tokens[number]:
                raise CompileError(f"{names.command(index)} waits on semaphore {number} before anything posts it")
            join(clock, tokens[number].popleft())
        for queue, last in before.items():
            if clock[queue] < last and queue != own:
                raise CompileError(
                    f"{names.command(index)} races with {names.command(last)}: no semaphore orders the two"
                )
        if not command.posts:
            continue
        done = list(clock)
        done[own] = index
        for number in command.posts:
            tokens[number].append(done)
            if len(tokens[number]) > SEMAPHORE_MAX:
                raise CompileError(f"{names.command(index)} raises semaphore {number} above {SEMAPHORE_MAX}")
    if left := sorted(number for number, queue in tokens.items() if queue):
        raise CompileError(f"semaphore {left[0]} is posted more often than waited on")
