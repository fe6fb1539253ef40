"""Static proof that a finished program is free of races, deadlocks and accesses out of bounds.

Tokens are followed in program order, independently of how they were placed: the instruction fetch is in order, so a
program in which every wait is satisfied by an earlier post cannot deadlock whatever the queue depth.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import SEMAPHORE_MAX, Queue, Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.accesses import spans
from odc_mlir.transforms.npu.schedule.arena import Interval, live_intervals, overlapping
from odc_mlir.transforms.npu.schedule.hazards import Hazards
from odc_mlir.transforms.npu.schedule.program import Command, buffers_of, local_sizes
from odc_mlir.transforms.npu.schedule.sync import Clock, join


def verify_program(commands: Sequence[Command], target: Target, region_bytes: dict[Space, int]) -> None:
    """Raise CompileError, naming the instruction, unless the program is safe on ``target``.

    ``region_bytes``: size of each region that is bound at run time.
    """
    _verify_buffers(commands, local_sizes(target) | region_bytes, target.sram.burst_bytes)
    _verify_bounds(commands)
    _verify_order(commands)


def _name(commands: Sequence[Command], index: int) -> str:
    return f"instruction {index} ({commands[index].mnemonic} in queue {commands[index].queue.name.lower()})"


def _verify_buffers(commands: Sequence[Command], sizes: dict[Space, int], alignment: int) -> None:
    for buffer in buffers_of(commands):
        if buffer.address is None:
            raise CompileError(f"buffer {buffer.name!r} in {buffer.space} has no address")
        if buffer.address + buffer.size > sizes[buffer.space]:
            raise CompileError(
                f"buffer {buffer.name!r} ends at {buffer.address + buffer.size}, "
                f"{buffer.space} has {sizes[buffer.space]} units"
            )
    intervals: list[Interval] = live_intervals(commands, alignment)
    if (clash := overlapping(intervals)) is not None:
        first, second = clash
        raise CompileError(
            f"buffers {first.buffer.name!r} and {second.buffer.name!r} share bytes while both are in use"
        )


def _verify_bounds(commands: Sequence[Command]) -> None:
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
                            f"{_name(commands, index)} touches {start}..{end - 1} of buffer "
                            f"{buffer.name!r}, which has {buffer.size} units"
                        )


def _verify_order(commands: Sequence[Command]) -> None:
    hazards = Hazards()
    known: dict[Queue, Clock] = {queue: [-1] * len(Queue) for queue in Queue}
    tokens: dict[int, deque[Clock]] = defaultdict(deque)
    for index, command in enumerate(commands):
        before = hazards.visit(index, command)
        own, clock = command.queue, known[command.queue]
        for number in command.waits:
            if not tokens[number]:
                raise CompileError(f"{_name(commands, index)} waits on semaphore {number} before anything posts it")
            join(clock, tokens[number].popleft())
        for queue, last in before.items():
            if clock[queue] < last and queue != own:
                raise CompileError(
                    f"{_name(commands, index)} races with {_name(commands, last)}: no semaphore orders the two"
                )
        if not command.posts:
            continue
        done = list(clock)
        done[own] = index
        for number in command.posts:
            tokens[number].append(done)
            if len(tokens[number]) > SEMAPHORE_MAX:
                raise CompileError(f"{_name(commands, index)} raises semaphore {number} above {SEMAPHORE_MAX}")
    if left := sorted(number for number, queue in tokens.items() if queue):
        raise CompileError(f"semaphore {left[0]} is posted more often than waited on")
