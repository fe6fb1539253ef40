"""What commands read and write, as address ranges of buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odc_mlir.isa.effects import Area
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place

Span = tuple[Buffer, int, int]
"""A buffer, and the first unit and the one behind the last of it; a plain tuple, as programs have very many."""

Accesses = tuple[list[Span], list[Span]]
"""What is read, and what is written."""


def accesses(command: Command) -> Accesses:
    """The ranges that ``command`` reads and writes."""
    places = command.places
    reads, writes = command.immediates.effects
    return _spans(places, reads), _spans(places, writes)


def _spans(places: Mapping[str, Place], areas: Iterable[Area]) -> list[Span]:
    """Where ``areas`` lie; in a ring, they are up to two ranges."""
    found: list[Span] = []
    for field, size, ring, *_ in areas:
        buffer, start = places[field]
        if ring is not None:
            home, base = places[ring[0]]
            end = base + ring[1]
            if start + size > end:
                found.append((home, base, start + size - ring[1]))
                size = end - start
        found.append((buffer, start, start + size))
    return found
