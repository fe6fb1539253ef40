"""Addresses in the local memories.

Every layer has slots of its own; a layer's slots lie beside those of the layer before where there is room, so that its
first transfers overlap with the last instructions of that layer. Hazards between layers are left to synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence


class LocalMemory:
    """One local memory, handed out layer by layer. ``gaps``: the parts of it that are free for slots at present."""

    def __init__(self, size: int) -> None:
        self.gaps: Sequence[tuple[int, int]] = [(0, size)]
        self._last = (0, 0)  # the previous layer's slots: start and end

    def place(self, sizes: Sequence[int], following: int = 0) -> list[int] | None:
        """Addresses of adjacent slots of ``sizes``; None where they do not fit in one gap together.

        ``following``: units that the next layer's slots will take together.
        """
        total = sum(sizes)
        start = self._start(total, following)
        if start is None:
            return None
        if total:
            self._last = (start, start + total)
        addresses = []
        for size in sizes:
            addresses.append(start)
            start += size
        return addresses

    def _start(self, total: int, following: int) -> int | None:
        """Where the least of the previous layer's slots is overwritten.

        Of several such places the last one if the next layer will not fit beside this one: its first slots, which are
        filled first, then lie where nothing is in use any more.
        """
        first, last = self._last
        candidates = [
            start
            for low, high in self.gaps
            for start in (low, last, high - total)
            if low <= start and start + total <= high
        ]
        if total + following > max((high - low for low, high in self.gaps), default=0):
            candidates.reverse()
        return min(candidates, key=lambda start: max(0, min(last, start + total) - max(first, start)), default=None)
