"""What commands read and write, as address ranges of buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odc_mlir.isa.effects import Area
from odc_mlir.transforms.npu.schedule.program import Accesses, Command, Place, Span


def accesses(command: Command) -> Accesses:
    """The ranges that ``command`` reads and writes."""
    places, immediates, known = command.places, command.immediates, command.touches
    if known is None or known[0] is not places or known[1] is not immediates:
        reads, writes = immediates.effects
        known = command.touches = places, immediates, (_spans(places, reads), _spans(places, writes))
    return known[2]


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
