"""What commands read and write, as address ranges of buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odc_mlir.isa.effects import Area
from odc_mlir.transforms.npu.schedule.program import Buffer, Command


class Span(NamedTuple):
    """Units ``[start, end)`` of a buffer."""

    buffer: Buffer
    start: int
    end: int


Accesses = tuple[list[Span], list[Span]]
"""What is read, and what is written."""


def accesses(command: Command) -> Accesses:
    """The ranges that ``command`` reads and writes."""
    reads, writes = command.immediates.effects
    return _spans(command, reads), _spans(command, writes)


def _spans(command: Command, areas: Iterable[Area]) -> list[Span]:
    """Where ``areas`` lie; in a ring, they are up to two ranges."""
    found = []
    for field, size, ring, _ in areas:
        buffer, start = command.places[field]
        if ring is not None:
            home, base = command.places[ring[0]]
            end = base + ring[1]
            if start + size > end:
                found.append(Span(home, base, start + size - ring[1]))
                size = end - start
        found.append(Span(buffer, start, start + size))
    return found
