"""Dependences between commands of different queues.

Commands conflict if they access the same address and at least one command writes. Program order determines which comes
first. A queue completes commands in order. Of every queue, only the latest conflicting command matters.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odc_mlir.isa.fields import Queue, Space
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, spans

Latest = dict[Queue, int]
"""Map from a queue to the index of its latest command."""


class LostBytes(NamedTuple):
    """Bytes of a value in ``buffer`` that a command overwrites through another buffer.

    ``written``, ``overwritten``: numbers of the two writing commands. ``by``: buffer of the second command.
    """

    buffer: Buffer
    written: int
    by: Buffer
    overwritten: int


class _AccessHistory:
    """Last accesses to a range of addresses that ends at ``end``.

    ``writer``: the last writer. ``readers``: last reader of each queue since that write. ``holder``: buffer of the last
    writer, None before the first write. ``lost``: overwritten bytes of other buffers that are still in use.
    """

    __slots__ = ("end", "holder", "lost", "readers", "writer", "writer_queue")

    def __init__(self, end: int, writer: int, writer_queue: Queue, readers: Latest) -> None:
        self.end, self.writer, self.writer_queue, self.readers = end, writer, writer_queue, readers
        self.holder: Buffer | None = None
        self.lost: tuple[LostBytes, ...] = ()


class _History:
    """Access histories of one memory: disjoint segments that cover ``[0, infinity)``.

    Segments are indexed by start, because a command mostly reads exactly the bytes that an earlier command wrote.
    """

    __slots__ = ("last_uses", "missed", "segments", "starts")

    def __init__(self, last_uses: Mapping[Buffer, int]) -> None:
        self.starts = [0]  # in order
        self.segments = {0: _AccessHistory(sys.maxsize, -1, Queue.FETCH, {})}
        self.last_uses = last_uses
        self.missed: LostBytes | None = None

    def _cut(self, address: int) -> _AccessHistory:
        index = bisect_left(self.starts, address)
        whole = self.segments[self.starts[index - 1]]
        self.starts.insert(index, address)
        made = self.segments[address] = _AccessHistory(whole.end, whole.writer, whole.writer_queue, dict(whole.readers))
        made.holder, made.lost = whole.holder, whole.lost
        whole.end = address
        return made

    def read(self, buffer: Buffer, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Record that command ``index`` of ``queue`` reads ``[start, end)``. Add its predecessors to ``found``."""
        segments = self.segments
        segment = segments.get(start) or self._cut(start)
        while True:
            if segment.end > end:
                self._cut(end)
            writer = segment.writer
            if writer >= 0 and writer > found.get(segment.writer_queue, -1):
                found[segment.writer_queue] = writer
            segment.readers[queue] = index
            if segment.lost and self.missed is None:
                self.missed = next((item for item in segment.lost if item.buffer is buffer), None)
            if segment.end == end:
                return
            segment = segments[segment.end]

    def write(self, buffer: Buffer, start: int, end: int, index: int, queue: Queue, found: Latest) -> None:
        """Record that command ``index`` of ``queue`` writes ``[start, end)``. Add its predecessors to ``found``."""
        segments = self.segments
        first = segment = segments.get(start) or self._cut(start)
        lost: tuple[LostBytes, ...] = ()
        while True:
            if segment.end > end:
                self._cut(end)
            writer = segment.writer
            if writer >= 0 and writer > found.get(segment.writer_queue, -1):
                found[segment.writer_queue] = writer
            for reader_queue, reader in segment.readers.items():
                if reader != index and reader > found.get(reader_queue, -1):  # a command may write what it reads
                    found[reader_queue] = reader
            if segment.holder is not buffer or segment.lost:
                lost += self._lost(segment, buffer, index)
            if segment.end == end:
                break
            segment = segments[segment.end]
        if first.end != end:
            self._join(start, end)
        first.writer, first.writer_queue, first.holder, first.lost = index, queue, buffer, lost
        if first.readers:
            first.readers = {}

    def _lost(self, segment: _AccessHistory, buffer: Buffer, index: int) -> tuple[LostBytes, ...]:
        if buffer.is_memory:  # the access may belong to any buffer
            return ()
        lost = [item for item in segment.lost if item.buffer is not buffer and self._last_use(item.buffer) > index]
        holder = segment.holder
        if holder is None or holder is buffer or holder.is_memory:
            return tuple(lost)
        last_use = self._last_use(holder)
        if last_use >= index:
            found = LostBytes(holder, segment.writer, buffer, index)
            if index in segment.readers.values():
                self.missed = self.missed or found  # the command reads what it overwrites
            if last_use > index:
                lost.append(found)
        return tuple(lost)

    def _last_use(self, buffer: Buffer) -> int:
        return self.last_uses.get(buffer, -1)

    def _join(self, start: int, end: int) -> None:
        low = bisect_left(self.starts, start) + 1
        high = bisect_left(self.starts, end, low)
        for inner in self.starts[low:high]:
            del self.segments[inner]
        del self.starts[low:high]
        self.segments[start].end = end


class Hazards:
    """Dependences of commands, visited in program order.

    Buffers with an address share the memory of the space. A buffer that has no address is a separate memory.
    ``last_uses``: number of the last command that names a buffer. :attr:`missed` covers these buffers.
    """

    def __init__(self, last_uses: Mapping[Buffer, int] | None = None) -> None:
        self._memories: dict[Space, _History] = {}
        self._homes: dict[int, tuple[_History, int]] = {}  # by the id of the buffer
        self._last_uses = last_uses or {}

    def _home(self, buffer: Buffer) -> tuple[_History, int]:
        if buffer.address is None:
            home = _History(self._last_uses), 0
        else:
            if buffer.space not in self._memories:
                self._memories[buffer.space] = _History(self._last_uses)
            home = self._memories[buffer.space], buffer.address
        self._homes[id(buffer)] = home
        return home

    @property
    def missed(self) -> LostBytes | None:
        """The first value that a command overwrites before its last read."""
        return next((memory.missed for memory in self._memories.values() if memory.missed is not None), None)

    def visit(self, index: int, command: Command) -> Latest:
        """Return the latest conflicting command of each queue, including the queue of the command."""
        found: Latest = {}
        homes, queue, places = self._homes, command.queue, command.places
        reads, writes = command.immediates.effects
        for areas, record in ((reads, _History.read), (writes, _History.write)):
            for area in areas:
                buffer, start = places[area.field]
                if buffer.data is not None:  # constants are never written
                    continue
                if area.ring is None:
                    history, base = homes.get(id(buffer)) or self._home(buffer)
                    record(history, buffer, base + start, base + start + area.size, index, queue, found)
                    continue
                for buffer, start, end in spans(places, area):
                    history, base = homes.get(id(buffer)) or self._home(buffer)
                    record(history, buffer, base + start, base + end, index, queue, found)
        return found


def dependences(commands: Sequence[Command]) -> list[Latest]:
    """Return the latest conflicting command of each queue for each command."""
    hazards = Hazards()
    return [hazards.visit(index, command) for index, command in enumerate(commands)]


Clock = list[int]
"""Program index of the last command of each queue that is known to be complete, -1 for none."""


def join(clock: Clock, other: Clock) -> None:
    """Update ``clock`` to the element-wise maximum of ``clock`` and ``other``."""
    for queue, known in enumerate(other):
        if known > clock[queue]:
            clock[queue] = known
