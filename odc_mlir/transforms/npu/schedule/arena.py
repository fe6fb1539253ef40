"""Live ranges and allocation of arena buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from odc_mlir.isa.fields import Space
from odc_mlir.transforms.npu.schedule.program import Buffer, Command

OwnerT = TypeVar("OwnerT")


@dataclass(eq=False, slots=True)
class Interval(Generic[OwnerT]):
    """Live range of a buffer, in command numbers, and the buffer's address.

    ``owner``: the caller's object for the buffer. ``used``: bytes of the buffer. ``alignment``: bytes of an SRAM burst.
    Aligned transfers touch no extra burst. ``size``: ``used`` rounded up to the alignment. ``address``: None before
    allocation.
    """

    owner: OwnerT
    used: int
    first: int
    last: int
    alignment: int
    address: int | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = -(-self.used // self.alignment) * self.alignment

    @property
    def start(self) -> int:
        """Address of an allocated buffer."""
        return self.address or 0

    def meets(self, other: AnyInterval) -> bool:
        """Return whether the two live ranges overlap."""
        return self.first <= other.last and other.first <= self.last


AnyInterval = Interval[Any]


def _interval(buffer: Buffer, first: int, last: int, alignment: int) -> Interval[Buffer]:
    return Interval(buffer, buffer.size, first, last, alignment, buffer.address)


def live_intervals(commands: Sequence[Command], alignment: int) -> list[Interval[Buffer]]:
    """Return the live ranges of arena buffers in order of first use. Addresses are multiples of ``alignment``.

    Inputs are in use from the start, outputs until the end. Buffers with an explicit lifetime (``live``) come last.
    """
    found: dict[int, Interval[Buffer]] = {}
    kept: dict[int, Interval[Buffer]] = {}
    index = -1
    arena = Space.ARENA
    for command in commands:
        names = command.immediates.spec.memory_names
        if not names:  # a computation, as most commands are
            index += 1
            continue
        prefetch = is_prefetch(command)
        index += not prefetch
        places = command.places
        for name in names:
            if name not in places:
                continue
            buffer = places[name][0]
            if buffer.space is not arena:
                continue
            if buffer.live is not None:
                held = kept.setdefault(id(buffer), _interval(buffer, *buffer.live, alignment))
                used = index + prefetch  # a copy precedes the next command
                held.first, held.last = min(held.first, used), max(held.last, used)
                continue
            interval = found.get(id(buffer))
            if interval is None:
                found[id(buffer)] = _interval(buffer, 0 if buffer.takes else index, index, alignment)
            else:
                interval.last = index
    for interval in found.values():
        if interval.owner.gives:
            interval.last = index
    return [*found.values(), *kept.values()]


def is_prefetch(command: Command) -> bool:
    """Return whether ``command`` copies constants to a buffer with an explicit lifetime."""
    return command.mnemonic == "copy" and command.places["target"][0].live is not None


def end_of(interval: AnyInterval) -> int:
    """Return the end address of an allocated buffer."""
    return interval.start + interval.size


def _levels(intervals: Iterable[AnyInterval]) -> Iterator[tuple[int, int]]:
    """Yield (command, bytes in use from this command on) for all commands that change the bytes in use."""
    changes: Counter[int] = Counter()
    for interval in intervals:
        if interval.first <= interval.last:
            changes[interval.first] += interval.size
            changes[interval.last + 1] -= interval.size
    live = 0
    for command in sorted(changes):
        live += changes[command]
        yield command, live


def busiest(intervals: Sequence[Interval[OwnerT]]) -> tuple[int, list[Interval[OwnerT]]]:
    """Return the command at which most bytes are in use, and the buffers in use at that command, largest first."""
    command, _ = max(_levels(intervals), key=lambda level: (level[1], -level[0]), default=(0, 0))
    live = [interval for interval in intervals if interval.first <= command <= interval.last]
    return command, sorted(live, key=lambda interval: -interval.size)


def most_live_bytes(intervals: Iterable[AnyInterval]) -> int:
    """Return the peak number of bytes in use, a lower bound for every allocation."""
    return max((live for _, live in _levels(intervals)), default=0)


def overlapping(intervals: Sequence[Interval[OwnerT]]) -> tuple[Interval[OwnerT], Interval[OwnerT]] | None:
    """Return two allocated buffers that share bytes while both are in use, or None."""
    active: list[Interval[OwnerT]] = []
    for interval in sorted(intervals, key=lambda i: i.first):
        active = [other for other in active if other.last >= interval.first]
        start, end = interval.start, interval.start + interval.used
        for other in active:
            if other.start < end and start < other.start + other.used:
                return other, interval
        active.append(interval)
    return None


def lowest_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """Return the lowest address of ``size`` free bytes. ``taken``: (start, end) ranges sorted by start."""
    address = 0
    for start, end in taken:
        if start - address >= size:
            return address
        address = max(address, end)
    return address


ORDERS: tuple[Callable[[AnyInterval], tuple[int, ...]], ...] = (
    lambda i: (-i.size, i.first),
    lambda i: (-i.size * (i.last - i.first + 1), i.first),
    lambda i: (i.first, -i.size),
    lambda i: (i.last - i.first, -i.size),
)


def allocate_around(tensors: Sequence[AnyInterval], copies: Sequence[AnyInterval]) -> int:
    """Allocate tensors and constant copies together, or tensors first if that is better. Returns the bytes used.

    The prefetch plan allocated the copies around tensors, so the result never exceeds that plan.
    """
    intervals = [*tensors, *copies]
    given = [interval.address for interval in intervals]
    used = allocate(intervals)
    if used == most_live_bytes(intervals) or not copies:
        return used
    together = [interval.address for interval in intervals]
    _move(intervals, given)
    allocate(tensors)
    around = _place(tensors, copies)
    if used <= around:
        _move(intervals, together)
    return min(used, around)


def _move(intervals: Iterable[AnyInterval], addresses: Iterable[int | None]) -> None:
    for interval, address in zip(intervals, addresses, strict=True):
        interval.address = address


def allocate(intervals: Sequence[AnyInterval]) -> int:
    """Assign an address to every buffer that has none, and return the bytes used.

    A buffer gets the lowest address that is free during the lifetime of the buffer. The function tries several orders
    of the buffers and keeps the best result. It stops early at the lower bound.
    """
    bound = most_live_bytes(intervals)
    fixed = [interval for interval in intervals if interval.address is not None]
    free = [interval for interval in intervals if interval.address is None]
    best: list[int | None] = []
    best_bytes = -1
    for order in ORDERS:
        used = _place(fixed, sorted(free, key=order))
        if best_bytes < 0 or used < best_bytes:
            best, best_bytes = [interval.address for interval in free], used
        if best_bytes == bound:
            break
    _move(free, best)
    return best_bytes


def _place(fixed: Sequence[AnyInterval], free: Sequence[AnyInterval]) -> int:
    """Give each buffer of ``free`` the lowest address that is free for the whole lifetime. Returns the bytes used."""
    count = len(fixed)
    placed = np.zeros((4, count + len(free)), np.int64)  # rows: start, end, first, last; columns by start
    rows = sorted((i.start, end_of(i), i.first, i.last) for i in fixed)
    placed[:, :count] = np.array(rows, np.int64).reshape(-1, 4).T
    used = int(placed[1].max(initial=0))
    for interval in free:
        starts, ends, firsts, lasts = placed[:, :count]
        alive = ((firsts <= interval.last) & (lasts >= interval.first)).nonzero()[0]
        taken = zip(starts[alive].tolist(), ends[alive].tolist(), strict=True)
        address = interval.address = lowest_gap(taken, interval.size)
        place = int(starts.searchsorted(address))
        placed[:, place + 1 : count + 1] = placed[:, place:count].copy()
        placed[:, place] = address, address + interval.size, interval.first, interval.last
        count += 1
        used = max(used, address + interval.size)
    return used


_SEARCH_STEPS = 4096  # limit on the placements that one search tries
_SEARCH_LIMITS = (1.0, 1.01, 1.03, 1.06, 1.1)  # sizes to search for, relative to the lower bound


def allocate_tightly(intervals: Sequence[AnyInterval]) -> int:
    """Allocate buffers that have no addresses, by a search if :func:`allocate` is not optimal. Returns the size.

    The search places buffers in order of first use, at the lowest or highest free address below a limit, and
    backtracks. Two addresses suffice, because a chain uses only two or three buffers at a time.
    """
    used = allocate(intervals)
    bound = most_live_bytes(intervals)
    for factor in _SEARCH_LIMITS:
        limit = int(bound * factor)
        if limit >= used:
            break
        in_order = sorted(intervals, key=lambda i: (i.first, -i.size))
        addresses = _search(in_order, limit)
        if addresses is not None:
            _move(in_order, addresses)
            return max(map(end_of, intervals))
    return used


def _search(intervals: Sequence[AnyInterval], limit: int) -> list[int] | None:
    """Return addresses below ``limit`` for all intervals, or None if the search exceeds the step limit."""
    earlier = [[j for j in range(i) if intervals[j].meets(interval)] for i, interval in enumerate(intervals)]
    places: list[Iterator[int]] = []
    addresses: list[int] = []
    for _ in range(_SEARCH_STEPS):
        index = len(places)
        if index == len(intervals):
            return addresses
        taken = sorted((addresses[j], addresses[j] + intervals[j].size) for j in earlier[index])
        places.append(_ends_of_room(taken, intervals[index], limit))
        while (address := next(places[-1], None)) is None:
            places.pop()
            if not places:
                return None
        addresses[len(places) - 1 :] = [address]
    return None


def _ends_of_room(taken: Sequence[tuple[int, int]], interval: AnyInterval, limit: int) -> Iterator[int]:
    """Yield the lowest and the highest free address for ``interval`` below ``limit``."""
    lowest = lowest_gap(taken, interval.size)
    if lowest + interval.size > limit:
        return
    yield lowest
    highest = limit // interval.alignment * interval.alignment
    for start, end in reversed(taken):
        if highest - end >= interval.size:
            break
        highest = min(highest, start)
    if highest - interval.size > lowest:
        yield highest - interval.size
