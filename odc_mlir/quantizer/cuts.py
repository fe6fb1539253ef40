"""Smallest cuts of a network of arcs: what is exact and quick for choices of which some need others.

Dinic's algorithm (1970): augmenting paths along shortest distances, until the sink is out of reach.
"""

from __future__ import annotations

import math
from collections import deque

_NOTHING = 1e-12  # part of the largest finite capacity below which an arc is full


class Network:
    """Nodes ``0 … count - 1`` and arcs with capacities; ``source_side`` is what a smallest cut leaves the source."""

    def __init__(self, count: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(count)]
        self._ends: list[int] = []
        self._left: list[float] = []

    def connect(self, start: int, end: int, capacity: float, backward: float = 0.0) -> None:
        """An arc of this capacity, which may be infinite, and one in the other direction."""
        self._arcs[start].append(len(self._ends))
        self._arcs[end].append(len(self._ends) + 1)
        self._ends += [end, start]
        self._left += [capacity, backward]

    def source_side(self, source: int, sink: int) -> set[int]:
        """The nodes on the source's side of the smallest cut; of several such cuts the one with fewest nodes there.

        Every path from source to sink must have a finite arc. Uses the network up.
        """
        nothing = _NOTHING * max((left for left in self._left if left < math.inf), default=0.0)
        while True:
            levels = self._levels(source, nothing)
            if sink not in levels:
                return set(levels)
            tried = [0] * len(self._arcs)
            while self._augment(source, sink, levels, tried, nothing):
                pass

    def _levels(self, source: int, nothing: float) -> dict[int, int]:
        """The distance of each node that can be reached."""
        levels, waiting = {source: 0}, deque([source])
        while waiting:
            node = waiting.popleft()
            for arc in self._arcs[node]:
                end = self._ends[arc]
                if self._left[arc] > nothing and end not in levels:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _augment(self, source: int, sink: int, levels: dict[int, int], tried: list[int], nothing: float) -> bool:
        """Send what one more shortest path can take; False where there is none."""
        path: list[int] = []
        node = source
        while node != sink:
            arc = self._usable(node, levels, tried, nothing)
            if arc is not None:
                path.append(arc)
                node = self._ends[arc]
            elif path:
                back = path.pop()
                node = self._ends[back ^ 1]
                tried[node] += 1
            else:
                return False
        flow = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= flow
            self._left[arc ^ 1] += flow
        return True

    def _usable(self, node: int, levels: dict[int, int], tried: list[int], nothing: float) -> int | None:
        """The next arc of ``node`` that leads on."""
        arcs = self._arcs[node]
        while tried[node] < len(arcs):
            arc = arcs[tried[node]]
            if self._left[arc] > nothing and levels.get(self._ends[arc]) == levels[node] + 1:
                return arc
            tried[node] += 1
        return None
