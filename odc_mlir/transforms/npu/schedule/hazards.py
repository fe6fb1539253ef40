"""Dependences between commands of different queues.

Commands conflict when they touch a common address and at least one writes it. Program order says which comes first.
Queues complete in order, so for each other queue only the latest conflicting command matters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from odc_mlir.isa.fields import Queue, Space
from odc_mlir.transforms.npu.schedule.accesses import accesses
from odc_mlir.transforms.npu.schedule.program import Accesses, Buffer, Command

Latest = dict[Queue, int]
"""Queue -> index of its latest command."""


class _Segment:
    """Addresses with the same history: the last writer, and the last reader of each queue since."""

    __slots__ = ("readers", "writer", "writer_queue")

    def __init__(self, writer: int = -1, writer_queue: Queue = Queue.FETCH, readers: Latest | None = None) -> None:
        self.writer, self.writer_queue = writer, writer_queue
        self.readers: Latest = {} if readers is None else readers

    def copy(self) -> _Segment:
        return _Segment(self.writer, self.writer_queue, dict(self.readers))


class _History:
    """Who touched which addresses of one memory: disjoint segments that cover ``[starts[0], infinity)``."""

    __slots__ = ("segments", "starts")

    def __init__(self) -> None:
        self.starts = [0]
        self.segments = [_Segment()]

    def _cut(self, address: int) -> int:
        """Index of the segment that starts at ``address``, made by splitting if need be."""
        index = bisect_left(self.starts, address)
        if index == len(self.starts) or self.starts[index] != address:
            self.starts.insert(index, address)
            self.segments.insert(index, self.segments[index - 1].copy())
        return index

    def _between(self, start: int, end: int) -> tuple[int, int]:
        """The indices of the first segment of ``[start, end)`` and of the first one behind it."""
        starts = self.starts
        first = bisect_left(starts, start)
        if first == len(starts) or starts[first] != start:
            first = self._cut(start)
        last = first + 1
        if last < len(starts) and starts[last] == end:  # mostly what one command wrote is what another reads
            return first, last
        return first, self._cut(end)

    def read(self, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Command ``index`` of ``queue`` reads ``[start, end)``; adds what must precede it to ``found``."""
        first, last = self._between(start, end)
        segments = self.segments
        for place in range(first, last):
            segment = segments[place]
            writer = segment.writer
            if writer >= 0 and writer > found.get(segment.writer_queue, -1):
                found[segment.writer_queue] = writer
            segment.readers[queue] = index

    def write(self, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Command ``index`` of ``queue`` writes ``[start, end)``."""
        first, last = self._between(start, end)
        segments = self.segments
        for place in range(first, last):
            segment = segments[place]
            writer = segment.writer
            if writer >= 0 and writer > found.get(segment.writer_queue, -1):
                found[segment.writer_queue] = writer
            for reader_queue, reader in segment.readers.items():
                if reader != index and reader > found.get(reader_queue, -1):  # a command may write what it reads
                    found[reader_queue] = reader
        if last == first + 1:
            segment = segments[first]
            segment.writer, segment.writer_queue = index, queue
            if segment.readers:
                segment.readers = {}
        else:
            self.starts[first:last] = [start]
            segments[first:last] = [_Segment(index, queue)]


class Hazards:
    """Feeds on commands in program order and tells what each depends on.

    Buffers with an address share the memory of their space; buffers without one are memories of their own.
    """

    def __init__(self) -> None:
        self._memories: dict[Space, _History] = {}
        self._homes: dict[int, tuple[_History, int]] = {}  # by the id of the buffer

    def _home(self, buffer: Buffer) -> tuple[_History, int]:
        """The history of the memory that ``buffer`` lies in, and where."""
        if buffer.address is None:
            home = _History(), 0
        else:
            home = self._memories.setdefault(buffer.space, _History()), buffer.address
        self._homes[id(buffer)] = home
        return home

    def visit(self, index: int, command: Command) -> Latest:
        """The latest conflicting command of each queue before ``command``, its own queue included."""
        return self.visit_accesses(index, command, accesses(command))

    def visit_accesses(self, index: int, command: Command, touched: Accesses) -> Latest:
        """As :meth:`visit`; ``touched``: what ``command`` reads and writes, where that is known already."""
        reads, writes = touched
        found: Latest = {}
        homes, queue = self._homes, command.queue
        for buffer, start, end in reads:
            if buffer.data is None:  # constants are never written
                history, base = homes.get(id(buffer)) or self._home(buffer)
                history.read(base + start, base + end, index, queue, found)
        for buffer, start, end in writes:
            history, base = homes.get(id(buffer)) or self._home(buffer)
            history.write(base + start, base + end, index, queue, found)
        return found


def dependences(commands: Sequence[Command]) -> list[Latest]:
    """For each command, the latest conflicting command of every queue before it, its own queue included."""
    hazards = Hazards()
    return [hazards.visit(index, command) for index, command in enumerate(commands)]


def reordered(found: Sequence[Latest], before: Sequence[Command], after: Sequence[Command]) -> list[Latest]:
    """``found``, the dependences of the commands ``before``, as those of ``after``: the same in another order.

    Where conflicting commands and those of one queue keep their order, nothing conflicts that did not, and the latest
    of a queue stays the latest.
    """
    places = {id(command): place for place, command in enumerate(after)}
    moved = [places[id(command)] for command in before]
    result: list[Latest] = [{}] * len(moved)
    for place, latest in zip(moved, found, strict=True):
        result[place] = {queue: moved[index] for queue, index in latest.items()}
    return result
