"""Which instruction posted the token that another one took: the same in every run of a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from odc_mlir.isa.fields import Queue
from odc_mlir.simulator.trace import Issue, Trace, TraceEvent


class TokenEdge(NamedTuple):
    """A token of ``semaphore``, posted by one executed instruction and taken by another."""

    semaphore: int
    poster: TraceEvent | Issue
    taker: TraceEvent | Issue


def edges(trace: Trace) -> list[TokenEdge]:
    """Every token that was taken. A semaphore connects two queues, so that its tokens are taken in order."""
    posted: dict[int, list[TraceEvent | Issue]] = defaultdict(list)
    taken: dict[int, list[TraceEvent | Issue]] = defaultdict(list)
    for executed in _executed(trace):
        instr = trace.program.instructions[executed.index]
        for semaphore in instr.posts:
            posted[semaphore].append(executed)
        for semaphore in instr.waits:
            taken[semaphore].append(executed)
    return [TokenEdge(s, *pair) for s in sorted(taken) for pair in zip(posted[s], taken[s], strict=False)]


def _executed(trace: Trace) -> Iterator[TraceEvent | Issue]:
    """Yield all instructions; each queue's instructions are in order."""
    yield from trace.events
    for issue in trace.issues:
        if trace.program.instructions[issue.index].queue == Queue.FETCH:
            yield issue
