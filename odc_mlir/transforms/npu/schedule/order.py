"""Order of the program: transfers move up to where their slots become free.

Streams come in plain order, each transfer just before its use. Queues run on their own, so a transfer that is issued
earlier overlaps with what it moved past. A transfer moves up to the last command it depends on, across tiles and
layers; the order within each queue stays. How far ahead of its own place a transfer may be is bounded, because a full
queue stops the fetch of everything behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.isa.fields import Queue
from odc_mlir.transforms.npu.schedule.hazards import Latest
from odc_mlir.transforms.npu.schedule.program import Command

MOVED = frozenset({Queue.LOAD, Queue.WEIGHT})


def hoist_transfers(commands: Sequence[Command], found: Sequence[Latest], queue_depth: int) -> list[Command]:
    """``commands`` with loads as early as their dependences, ``found``, allow.

    They are at most half a queue ahead of their plain place.
    """
    lookahead = max(1, queue_depth // 2)
    fixed = 0  # commands that do not move, so far
    place: list[int] = []  # per command: how many fixed commands stand before it
    plain: dict[Queue, list[int]] = {queue: [] for queue in MOVED}
    last: dict[Queue, int] = dict.fromkeys(MOVED, 0)
    buckets: list[list[Command]] = [[]]
    for command, before in zip(commands, found, strict=True):
        queue = command.queue
        if queue not in MOVED:
            place.append(fixed)
            buckets[fixed].append(command)
            fixed += 1
            buckets.append([])
            continue
        earliest = last[queue]
        for other, index in before.items():
            earliest = max(earliest, place[index] + (0 if other in MOVED else 1))
        places = plain[queue]
        if len(places) >= lookahead:
            earliest = max(earliest, places[-lookahead])
        places.append(fixed)
        last[queue] = earliest
        place.append(earliest)
        bucket = buckets[earliest]
        # the fixed command that ends an older bucket stays last
        bucket.insert(len(bucket) - 1, command) if earliest < fixed else bucket.append(command)
    return [command for bucket in buckets for command in bucket]
