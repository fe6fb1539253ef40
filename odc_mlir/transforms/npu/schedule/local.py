"""Addresses in the local memories.

Every layer gets slots of its own; a layer's slots lie beside those of the layer before where there is room, so that
its first transfers overlap with the last instructions of that layer. Hazards between layers are left to
synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.program import Buffer, Space, local_sizes
from odc_mlir.transforms.npu.schedule.residence import Resident, gaps


class LocalMemory:
    """One local memory, handed out layer by layer."""

    def __init__(self, space: Space, size: int) -> None:
        self.space = space
        self.gaps: Sequence[tuple[int, int]] = [(0, size)]
        self._last = (0, 0)  # bytes of the previous layer: start and end

    def take(self, sizes: Sequence[int], names: Sequence[str]) -> list[Buffer]:
        """Adjacent slots of ``sizes``; they must fit together in one of the gaps."""
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
        candidates = [
            start
            for low, high in self.gaps
            for start in (low, last, high - total)
            if low <= start and start + total <= high
        ]
        return min(candidates, key=lambda start: max(0, min(last, start + total) - max(first, start)), default=0)


class LocalMemories:
    """All local memories of a target. ``residents``: tensors that stay in the tile buffer for some layers."""

    def __init__(self, target: Target, residents: Sequence[Resident] = ()) -> None:
        sizes = local_sizes(target)
        self._memories = {space: LocalMemory(space, sizes[space]) for space in sizes}
        self._residents = residents
        self._tile_bytes = target.local.tile_bytes
        self.accumulators = Buffer("accumulators", Space.ACCUMULATOR, sizes[Space.ACCUMULATOR], 0)

    def enter(self, layer: int) -> None:
        """The slots taken from now on are those of ``layer``."""
        self._memories[Space.TILE].gaps = gaps(self._residents, layer, self._tile_bytes)

    @property
    def tile_room(self) -> int:
        """Bytes of the tile buffer that slots of the present layer can take together."""
        return max((high - low for low, high in self._memories[Space.TILE].gaps), default=0)

    def take(self, space: Space, size: int, slots: int, name: str) -> list[Buffer]:
        """``slots`` slots of ``size``, adjacent."""
        return self.take_mixed(space, [(size, name)] * slots)

    def take_mixed(self, space: Space, slots: Sequence[tuple[int, str]]) -> list[Buffer]:
        """Adjacent slots of the given (size, name)."""
        return self._memories[space].take([size for size, _ in slots], [name for _, name in slots])
