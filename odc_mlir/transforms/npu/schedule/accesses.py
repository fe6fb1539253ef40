"""What commands read and write, as address ranges of buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odc_mlir.isa.effects import Area
from odc_mlir.transforms.npu.schedule.program import BufferRange, Place


def spans(places: Mapping[str, Place], area: Area) -> Iterator[BufferRange]:
    """Where ``area`` lies; in a ring, that is up to two ranges."""
    buffer, start = places[area.field]
    size, ring = area.size, area.ring
    if ring is not None:
        home, base = places[ring[0]]
        end = base + ring[1]
        if start + size > end:
            yield home, base, start + size - ring[1]
            size = end - start
    yield buffer, start, start + size
