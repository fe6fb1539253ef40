"""Ordering of operators into as few segments as possible; works on indices, without IR."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Round = tuple[bool, list[int]]
"""Whether it runs on the NPU, and its operators in order."""


def alternate(needs: Sequence[set[int]], on_npu: Sequence[bool]) -> list[Round]:
    """Rounds (NPU or host, operators in order) as few as possible: starting on either side, the shorter list wins.

    ``needs``: for each operator the ones that must run before it. Within a round, operators come in index order as far
    as their needs allow. No operator of a round depends on a later one, so rounds are convex.
    """
    starts = [_rounds(needs, on_npu, side) for side in (True, False)]
    return min(starts, key=len)


def _rounds(needs: Sequence[set[int]], on_npu: Sequence[bool], side: bool) -> list[Round]:
    waiting = [len(n) for n in needs]
    users: list[list[int]] = [[] for _ in needs]
    for index, producers in enumerate(needs):
        for producer in producers:
            users[producer].append(index)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for index, count in enumerate(waiting):
        if count == 0:
            heapq.heappush(ready[on_npu[index]], index)
    rounds: list[Round] = []
    while ready[True] or ready[False]:
        members: list[int] = []
        while ready[side]:
            index = heapq.heappop(ready[side])
            members.append(index)
            for user in users[index]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready[on_npu[user]], user)
        if members:
            rounds.append((side, members))
        side = not side
    return rounds
