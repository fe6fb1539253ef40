"""Dependences between commands of different queues.

Commands conflict when they touch a common address and at least one writes it. Program order says which comes first.
Queues complete in order, so for each other queue only the latest conflicting command matters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from odc_mlir.isa.fields import Queue
from odc_mlir.transforms.npu.schedule.accesses import Accesses, Span, accesses
from odc_mlir.transforms.npu.schedule.program import Command

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

    def read(self, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Command ``index`` of ``queue`` reads ``[start, end)``; adds what must precede it to ``found``."""
        first = self._cut(start)
        latest = found.get
        for segment in self.segments[first : self._cut(end)]:
            if segment.writer > latest(segment.writer_queue, -1):
                found[segment.writer_queue] = segment.writer
            segment.readers[queue] = index

    def write(self, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Command ``index`` of ``queue`` writes ``[start, end)``."""
        first = self._cut(start)
        last = self._cut(end)
        latest = found.get
        for segment in self.segments[first:last]:
            if segment.writer > latest(segment.writer_queue, -1):
                found[segment.writer_queue] = segment.writer
            for reader_queue, reader in segment.readers.items():
                if reader != index and reader > latest(reader_queue, -1):  # a command may write what it reads
                    found[reader_queue] = reader
        self.starts[first:last] = [start]
        self.segments[first:last] = [_Segment(index, queue)]

    def writers(self, start: int, end: int) -> Iterable[int]:
        """Last writers of ``[start, end)``; -1 where nobody wrote."""
        first = bisect_right(self.starts, start) - 1
        return (s.writer for s in self.segments[first : bisect_left(self.starts, end)])


class Hazards:
    """Feeds on commands in program order and tells what each depends on.

    Buffers with an address share the memory of their space; buffers without one are memories of their own.
    """

    def __init__(self) -> None:
        self._memories: dict[object, _History] = {}

    def _history(self, span: Span) -> tuple[_History, int]:
        buffer = span.buffer
        key: object = buffer.space if buffer.address is not None else id(buffer)
        history = self._memories.get(key)
        if history is None:
            history = self._memories[key] = _History()
        return history, buffer.address or 0

    def visit(self, index: int, command: Command) -> Latest:
        """The latest conflicting command of each queue before ``command``, its own queue included."""
        return self.visit_accesses(index, command, accesses(command))

    def visit_accesses(self, index: int, command: Command, touched: Accesses) -> Latest:
        """As :meth:`visit`; ``touched``: what ``command`` reads and writes, where that is known already."""
        reads, writes = touched
        found: Latest = {}
        for span in reads:
            if span.buffer.data is None:  # constants are never written
                history, base = self._history(span)
                history.read(base + span.start, base + span.end, index, command.queue, found)
        for span in writes:
            history, base = self._history(span)
            history.write(base + span.start, base + span.end, index, command.queue, found)
        return found


def dependences(commands: Sequence[Command]) -> list[Latest]:
    """For each command, the latest conflicting command of every queue before it, its own queue included."""
    hazards = Hazards()
    return [hazards.visit(index, command) for index, command in enumerate(commands)]
