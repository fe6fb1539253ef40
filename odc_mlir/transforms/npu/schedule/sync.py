"""Semaphores: the fewest tokens that order every pair of conflicting commands.

Each ordered pair of queues has one semaphore. Vector clocks tell what a command already knows to be complete, through
earlier waits of its queue and whatever the posting commands knew; only what they do not cover costs a token. Tokens of
one semaphore are posted and taken in the same order, so counting is enough to tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.isa.codec import MAX_POSTS, MAX_WAITS
from odc_mlir.isa.fields import Queue
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.program import Command, sync

Clock = list[int]
"""Per queue, the program index of the last command that is known to be complete; -1 for none."""

WORKING: tuple[Queue, ...] = tuple(queue for queue in Queue if queue is not Queue.FETCH)


def semaphore(source: Queue, target: Queue) -> int:
    """The semaphore that ``source`` posts and ``target`` waits on."""
    others = [queue for queue in WORKING if queue is not source]
    return WORKING.index(source) * len(others) + others.index(target)


SEMAPHORE_OF: dict[tuple[Queue, Queue], int] = {(s, t): semaphore(s, t) for s in WORKING for t in WORKING if s is not t}


def join(clock: Clock, other: Clock) -> None:
    """Add to ``clock`` what ``other`` knows."""
    for queue, known in enumerate(other):
        if known > clock[queue]:
            clock[queue] = known


def insert_sync(commands: Sequence[Command]) -> list[Command]:
    """``commands`` with waits and posts, and ``sync`` commands for what an instruction cannot hold itself."""
    found = dependences(commands)
    known = {queue: [-1] * len(Queue) for queue in Queue}  # by the command about to start in each queue
    complete: list[Clock] = []  # per command: what is known once it is complete
    waits: list[list[int]] = []
    posts: list[list[int]] = [[] for _ in commands]
    for index, (command, before) in enumerate(zip(commands, found, strict=True)):
        queue, clock = command.queue, known[command.queue]
        taken = []
        needed = [(last, other) for other, last in before.items() if other is not queue and last > clock[other]]
        for last, other in sorted(needed, reverse=True):  # the latest first: it may know of the others
            if last > clock[other]:
                join(clock, complete[last])
                posts[last].append(SEMAPHORE_OF[other, queue])
                taken.append(SEMAPHORE_OF[other, queue])
        waits.append(taken)
        done = list(clock)
        done[queue] = index
        complete.append(done)
    return _with_tokens(commands, waits, posts)


def _with_tokens(commands: Sequence[Command], waits: list[list[int]], posts: list[list[int]]) -> list[Command]:
    result: list[Command] = []
    for command, taken, given in zip(commands, waits, posts, strict=True):
        own = taken[:MAX_WAITS]
        for start in range(MAX_WAITS, len(taken), MAX_WAITS):
            helper = sync(command.queue)
            helper.waits, helper.layer = tuple(taken[start : start + MAX_WAITS]), command.layer
            result.append(helper)
        command.waits, command.posts = tuple(own), tuple(given[:MAX_POSTS])
        result.append(command)
        for start in range(MAX_POSTS, len(given), MAX_POSTS):
            helper = sync(command.queue)
            helper.posts, helper.layer = tuple(given[start : start + MAX_POSTS]), command.layer
            result.append(helper)
    return result
