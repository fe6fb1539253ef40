"""Addresses in the local memories.

Every layer gets slots of its own; a layer's slots lie beside those of the layer before where there is room, so that
its first transfers overlap with the last instructions of that layer. Hazards between layers are left to
synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.targets import Target
from odc_mlir.transforms.schedule.program import Buffer, Space, local_sizes


class LocalMemory:
    """One local memory, handed out layer by layer."""

    def __init__(self, space: Space, size: int) -> None:
        self.space, self.size = space, size
        self._last = (0, 0)  # bytes of the previous layer: start and end

    def take(self, sizes: Sequence[int], names: Sequence[str]) -> list[Buffer]:
        """Adjacent slots of ``sizes``; they must fit together."""
        total = sum(sizes)
        start = self._place(total)
        if total:
            self._last = (start, start + total)
        buffers = []
        for size, name in zip(sizes, names, strict=True):
            buffers.append(Buffer(name, self.space, size, start))
            start += size
        return buffers

    def _place(self, total: int) -> int:
        """Where the least of the previous layer's slots is overwritten."""
        first, last = self._last
        candidates = [start for start in (0, last, self.size - total) if start + total <= self.size]
        return min(candidates, key=lambda start: max(0, min(last, start + total) - max(first, start)), default=0)


class LocalMemories:
    """All local memories of a target."""

    def __init__(self, target: Target) -> None:
        sizes = local_sizes(target)
        self._memories = {space: LocalMemory(space, sizes[space]) for space in sizes}
        self.accumulators = Buffer("accumulators", Space.ACCUMULATOR, sizes[Space.ACCUMULATOR], 0)

    def take(self, space: Space, size: int, slots: int, name: str) -> list[Buffer]:
        """``slots`` slots of ``size``, adjacent."""
        return self.take_mixed(space, [(size, name)] * slots)

    def take_mixed(self, space: Space, slots: Sequence[tuple[int, str]]) -> list[Buffer]:
        """Adjacent slots of the given (size, name)."""
        return self._memories[space].take([size for size, _ in slots], [name for _, name in slots])
