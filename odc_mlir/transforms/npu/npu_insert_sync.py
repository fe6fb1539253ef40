"""``npu-insert-sync``: order conflicting instructions of different queues by semaphores.

Before::

    npu.isa.load source %x target %slot
    npu.isa.conv … input %slot

After::

    npu.isa.load source %x target %slot posts [8]
    npu.isa.conv … input %slot waits [8]

An instruction has room for two waits and two posts. ``npu.isa.sync`` holds further ones. All buffers need addresses.

Every ordered pair of queues has a semaphore. Vector clocks record which commands are complete when a command starts. A
clock follows from earlier waits of the queue and from clocks of posting commands. Only a dependence that the clocks do
not cover costs a token. Tokens of a semaphore are posted and taken in order, so a counter is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.ir import Block

from odc_mlir.dialects.npu_isa import BY_MNEMONIC, Fields, InstructionOp
from odc_mlir.isa.codec import MAX_POSTS, MAX_WAITS
from odc_mlir.isa.fields import Queue
from odc_mlir.isa.immediates import shared
from odc_mlir.transforms.npu.schedule.hazards import Clock, dependences, join
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram, set_semaphores
from odc_mlir.transforms.npu.schedule.program import Command


class NpuInsertSyncPass(ProgramPass):
    """Insert semaphores."""

    name = "npu-insert-sync"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        program.require_addresses()
        insert_sync(job.block, program)


Tokens = dict[int, list[int]]
"""Semaphores that commands wait on or post, by command index."""

WORKING: tuple[Queue, ...] = tuple(queue for queue in Queue if queue is not Queue.FETCH)


def semaphore(source: Queue, target: Queue) -> int:
    """Return the semaphore that ``source`` posts and ``target`` waits on."""
    others = [queue for queue in WORKING if queue is not source]
    return WORKING.index(source) * len(others) + others.index(target)


SEMAPHORE_OF: dict[tuple[Queue, Queue], int] = {(s, t): semaphore(s, t) for s in WORKING for t in WORKING if s is not t}


def find_tokens(commands: Sequence[Command]) -> tuple[Tokens, Tokens]:
    """Return the semaphores that commands must wait on, and the semaphores that they must post."""
    # The clock at the head of each queue, and the clock after each command. If there is no wait between commands of a
    # queue, they share a clock. The clock does not count the queue itself.
    known = {queue: [-1] * len(Queue) for queue in Queue}
    complete: list[Clock] = []
    waits: Tokens = {}
    posts: Tokens = {}
    for index, (command, before) in enumerate(zip(commands, dependences(commands), strict=True)):
        queue, clock = command.queue, known[command.queue]
        needed = [(last, other) for other, last in before.items() if last > clock[other] and other is not queue]
        if needed:
            known[queue] = clock = list(clock)
            needed.sort(reverse=True)  # latest first: a wait for the latest may cover the others
        for last, other in needed:
            if last > clock[other]:
                join(clock, complete[last])
                clock[other] = last
                number = SEMAPHORE_OF[other, queue]
                posts.setdefault(last, []).append(number)
                waits.setdefault(index, []).append(number)
        complete.append(clock)
    return waits, posts


def insert_sync(block: Block, program: DecodedProgram) -> None:
    """Set waits and posts of the instructions in ``block``.

    ``sync`` instructions take tokens beyond an instruction's limit. ``program`` becomes invalid.
    """
    waits, posts = find_tokens(program.working)
    for index, op in enumerate(program.ops[: len(program.working)]):
        taken, given = waits.get(index, ()), posts.get(index, ())
        if not taken and not given and len(op.properties) == 1:  # no stale tokens to clear
            continue
        set_semaphores(op, waits=taken[:MAX_WAITS], posts=given[:MAX_POSTS])
        queue = program.commands[index].queue
        for at in range(MAX_WAITS, len(taken), MAX_WAITS):
            block.insert_op_before(_sync(queue, op, waits=taken[at : at + MAX_WAITS]), op)
        for at in reversed(range(MAX_POSTS, len(given), MAX_POSTS)):
            block.insert_op_after(_sync(queue, op, posts=given[at : at + MAX_POSTS]), op)


def _sync(queue: Queue, like: InstructionOp, **tokens: Sequence[int]) -> InstructionOp:
    made = BY_MNEMONIC["sync"].of(Fields(shared("sync", {}), (), queue), [], like.location)
    set_semaphores(made, **tokens)
    return made
