"""Live bytes of SRAM over the cycles of a run, by writer.

Found from a run alone: a byte is live from the start of the instruction that writes it to the end of the last one that
reads it before it is written again; inputs from cycle 0 on, outputs to the end. Constants and the program that lie in
SRAM for good are not counted, copies of constants are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.container import TensorRecord
from odc_mlir.isa.fields import Region
from odc_mlir.simulator.boxes import view
from odc_mlir.simulator.trace import Trace, TraceEvent

PREFETCHED = "prefetched"  # the owner of copies of constants
_REGIONS = (Region.ARENA, Region.INPUTS, Region.OUTPUTS)
_NEVER = -1
_DIGITS = 3  # of a cycle


class _Life(NamedTuple):
    """Some bytes of an owner, from one time on until another, in cycles."""

    owner: str
    begin: float
    end: float
    size: int


class _Marks:
    """For each byte of a region the number of its writer, and the place in time until which it is read."""

    def __init__(self, size: int) -> None:
        self.writer = np.full(size, _NEVER, np.int32)
        self.until = np.full(size, _NEVER, np.int32)

    def of(self, record: TensorRecord) -> slice:
        """The bytes of an input or output."""
        return slice(record.offset, record.offset + record.bytes)


def live_bytes(trace: Trace, run_cycles: int, columns: int) -> dict[str, Any]:
    """JSON-able: ``peak_bytes``, the most that is live at a time, ``peak_cycle``, ``held`` then and ``owners``.

    ``held``: bytes by owner, largest first. Owners are inputs and operators (results, and what they keep for
    themselves) by name, and :data:`PREFETCHED`. The run of ``run_cycles`` cycles is cut into at most ``columns`` equal
    parts. ``cycles`` are the first, the fullest and the last instant of each at which something changes; an owner has
    its ``bytes`` at them from the one numbered ``first`` on, none before and behind. Empty for a program that keeps
    nothing in SRAM.
    """
    lives = _lives(trace, run_cycles)
    times = np.unique([[life.begin, life.end] for life in lives])
    if not len(times):
        return {}
    totals = _amounts(lives, times)
    shown = times[_shown(times, totals, columns)]
    at = int(totals.argmax())
    held: Counter[str] = Counter()
    for life in lives:
        held[life.owner] += life.size if life.begin <= times[at] < life.end else 0
    return {
        "run_cycles": run_cycles,
        "peak_bytes": int(totals[at]),
        "peak_cycle": float(times[at]),
        "held": {owner: size for owner, size in held.most_common() if size},
        "cycles": shown.tolist(),
        "owners": _by_owner(lives, shown),
    }


def _by_owner(lives: Sequence[_Life], times: NDArray[np.float64]) -> list[dict[str, Any]]:
    owners: dict[str, list[_Life]] = {}
    for life in lives:
        owners.setdefault(life.owner, []).append(life)
    found = []
    for name, own in owners.items():
        amounts = _amounts(own, times)
        some = np.flatnonzero(amounts)
        if len(some):
            first, last = int(some[0]), int(some[-1])
            found.append({"name": name, "first": first, "bytes": amounts[first : last + 1].tolist()})
    return found


def _amounts(lives: Sequence[_Life], times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bytes that are live at each of ``times``, which increase."""
    changes = np.zeros(len(times) + 1, np.int64)
    sizes = [life.size for life in lives]
    np.add.at(changes, np.searchsorted(times, [life.begin for life in lives]), sizes)
    np.subtract.at(changes, np.searchsorted(times, [life.end for life in lives]), sizes)
    return changes[:-1].cumsum()


def _shown(times: NDArray[np.float64], totals: NDArray[np.int64], columns: int) -> list[int]:
    """The places of the first, the largest and the last total in each of ``columns`` equal parts of the time."""
    parts = np.minimum(times * columns // max(times[-1], 1.0), columns - 1)
    starts = np.flatnonzero(np.diff(parts, prepend=-1.0))
    ends = [*starts[1:], len(times)]
    places = set()
    for first, end in zip(starts, ends, strict=True):
        places |= {int(first), int(first + totals[first:end].argmax()), int(end) - 1}
    return sorted(places)


def _lives(trace: Trace, cycles: int) -> list[_Life]:
    """Live ranges in order of their start."""
    program = trace.program
    events = sorted((event for event in trace.events if event.touched), key=lambda event: event.started)
    ends = sorted({event.ended for event in events} | {float(cycles)})
    places = {end: place for place, end in enumerate(ends)}
    marks = {int(region): _Marks(program.container.region_bytes[int(region)]) for region in _REGIONS}
    found: Counter[tuple[int, int]] = Counter()
    for number, record in enumerate(program.inputs):
        marks[record.region].writer[marks[record.region].of(record)] = number
    for number, event in enumerate(events, start=len(program.inputs)):
        _touch(event, number, places[event.ended], marks, found)
    for record in program.outputs:
        marks[record.region].until[marks[record.region].of(record)] = places[float(cycles)]
    for region in marks.values():
        _close(found, region.writer, region.until)
    writers = [(record.name, 0.0) for record in program.inputs]
    writers += [(_owner(trace, event), round(event.started, _DIGITS)) for event in events]
    stops = [min(round(end, _DIGITS), float(cycles)) for end in ends]
    return [_Life(*writers[writer], stops[until], size) for (writer, until), size in sorted(found.items())]


def _touch(event: TraceEvent, number: int, end: int, marks: dict[int, _Marks], found: Counter[tuple[int, int]]) -> None:
    """Record the reads of an instruction up to time ``end``, then its writes as writer ``number``."""
    for touch in sorted(event.touched, key=lambda touch: touch.writes):
        if touch.region not in marks:
            continue
        writer = view(marks[touch.region].writer, touch.area)
        until = view(marks[touch.region].until, touch.area)
        if touch.writes:
            _close(found, writer, until)
            writer[...], until[...] = number, _NEVER
        else:
            np.maximum(until, end, out=until)


def _close(found: Counter[tuple[int, int]], writer: NDArray[np.int32], until: NDArray[np.int32]) -> None:
    """Count the bytes that were read, by writer and by the place in time until which they were."""
    read = (until != _NEVER) & (writer != _NEVER)
    pairs = (writer[read].astype(np.int64) << 32) | until[read]
    for pair, size in zip(*np.unique(pairs, return_counts=True), strict=True):
        found[int(pair) >> 32, int(pair) & 0xFFFFFFFF] += int(size)


def _owner(trace: Trace, event: TraceEvent) -> str:
    """Whose the bytes are that an instruction writes."""
    if any(touch.region == Region.CONSTANTS for touch in event.touched):
        return PREFETCHED
    owner = trace.program.owners[event.index]
    return trace.program.operators[owner].name if owner >= 0 else ""
