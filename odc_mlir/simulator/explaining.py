"""Explanation of a run: live bytes of SRAM, causes of cycles, and estimates for better machines.

A byte is live from the start of the instruction that writes it to the end of the last instruction that reads the value.
Inputs are live from cycle 0, outputs to the end. Copies of constants count. Constants stored in SRAM do not count.

``explain(program)`` divides the critical path of a run among the operators of the model. It also runs the same program
on machines with more of the limiting resource. A compilation for these machines that prefers the fewest cycles gives at
most these cycles.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir import targets
from odc_mlir.isa.container import TensorRecord
from odc_mlir.isa.fields import Region
from odc_mlir.simulator.boxes import view
from odc_mlir.simulator.counters import Counters
from odc_mlir.simulator.path import PathSpan, critical_path
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.run import MemoryModel, simulate
from odc_mlir.simulator.trace import Trace, TraceEvent, windows
from odc_mlir.targets import Target

PREFETCHED = "prefetched"  # name of the owner of copies of constants
_REGIONS = (Region.ARENA, Region.INPUTS, Region.OUTPUTS)
_NEVER = -1
_DIGITS = 3  # decimal digits of cycles


class _Life(NamedTuple):
    """Live range of ``size`` bytes of one owner, in cycles."""

    owner: str
    begin: float
    end: float
    size: int


class _Marks:
    """Last writer and end of the last read of each byte in a region."""

    def __init__(self, size: int) -> None:
        self.writer = np.full(size, _NEVER, np.int32)
        self.until = np.full(size, _NEVER, np.int32)

    def of(self, record: TensorRecord) -> slice:
        return slice(record.offset, record.offset + record.bytes)


def live_bytes(trace: Trace, run_cycles: int, columns: int) -> dict[str, Any]:
    """Return the live bytes of SRAM over time as JSON data, or {} if the program keeps nothing in SRAM.

    ``peak_bytes``, ``peak_cycle``: maximum of the live bytes, and its cycle.
    ``held``: live bytes at the peak by owner, largest first. Owners are :data:`PREFETCHED`, inputs and operators
        (results and temporaries).
    ``cycles``: sampled instants. The run of ``run_cycles`` cycles is divided into at most ``columns`` equal parts.
    Samples are instants at which live bytes change: the first, the fullest and the last instant of each part.
    ``owners``: live ``bytes`` of each owner at consecutive samples, and the index of the ``first`` of these samples.
        At other samples it has none.
    """
    lives = _lives(trace, run_cycles)
    times = np.unique([[life.begin, life.end] for life in lives])
    if not len(times):
        return {}
    totals = _live_totals(lives, times)
    shown = times[_sampled_indices(times, totals, columns)]
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
        amounts = _live_totals(own, times)
        some = np.flatnonzero(amounts)
        if len(some):
            first, last = int(some[0]), int(some[-1])
            found.append({"name": name, "first": first, "bytes": amounts[first : last + 1].tolist()})
    return found


def _live_totals(lives: Sequence[_Life], times: NDArray[np.float64]) -> NDArray[np.int64]:
    changes = np.zeros(len(times) + 1, np.int64)
    sizes = [life.size for life in lives]
    np.add.at(changes, np.searchsorted(times, [life.begin for life in lives]), sizes)
    np.subtract.at(changes, np.searchsorted(times, [life.end for life in lives]), sizes)
    return changes[:-1].cumsum()


def _sampled_indices(times: NDArray[np.float64], totals: NDArray[np.int64], columns: int) -> list[int]:
    parts = np.minimum(times * columns // max(times[-1], 1.0), columns - 1)
    starts = np.flatnonzero(np.diff(parts, prepend=-1.0))
    ends = [*starts[1:], len(times)]
    places = set()
    for first, end in zip(starts, ends, strict=True):
        places |= {int(first), int(first + totals[first:end].argmax()), int(end) - 1}
    return sorted(places)


def _lives(trace: Trace, cycles: int) -> list[_Life]:
    program = trace.program
    events = sorted((event for event in trace.events if event.touched), key=lambda event: event.started)
    ends = sorted({event.ended for event in events} | {float(cycles)})
    places = {end: place for place, end in enumerate(ends)}
    marks = {int(region): _Marks(program.container.region_bytes[int(region)]) for region in _REGIONS}
    found: Counter[tuple[int, int]] = Counter()
    for number, record in enumerate(program.inputs):
        marks[record.region].writer[marks[record.region].of(record)] = number
    for number, event in enumerate(events, start=len(program.inputs)):
        _record_access(event, number, places[event.ended], marks, found)
    for record in program.outputs:
        marks[record.region].until[marks[record.region].of(record)] = places[float(cycles)]
    for region in marks.values():
        _count_read_bytes(found, region.writer, region.until)
    writers = [(record.name, 0.0) for record in program.inputs]
    writers += [(_owner(trace, event), round(event.started, _DIGITS)) for event in events]
    stops = [min(round(end, _DIGITS), float(cycles)) for end in ends]
    return [_Life(*writers[writer], stops[until], size) for (writer, until), size in sorted(found.items())]


def _record_access(
    event: TraceEvent, number: int, end: int, marks: dict[int, _Marks], found: Counter[tuple[int, int]]
) -> None:
    for touch in sorted(event.touched, key=lambda touch: touch.writes):
        if touch.region not in marks:
            continue
        writer = view(marks[touch.region].writer, touch.area)
        until = view(marks[touch.region].until, touch.area)
        if touch.writes:
            _count_read_bytes(found, writer, until)
            writer[...], until[...] = number, _NEVER
        else:
            np.maximum(until, end, out=until)


def _count_read_bytes(found: Counter[tuple[int, int]], writer: NDArray[np.int32], until: NDArray[np.int32]) -> None:
    read = (until != _NEVER) & (writer != _NEVER)
    pairs = (writer[read].astype(np.int64) << 32) | until[read]
    for pair, size in zip(*np.unique(pairs, return_counts=True), strict=True):
        found[int(pair) >> 32, int(pair) & 0xFFFFFFFF] += int(size)


def _owner(trace: Trace, event: TraceEvent) -> str:
    if any(touch.region == Region.CONSTANTS for touch in event.touched):
        return PREFETCHED
    owner = trace.program.owners[event.index]
    return trace.program.operators[owner].name if owner >= 0 else ""


LEAST_SHARE = 0.05  # least share of cycles of a cause for which a better machine is simulated
LEAST_GAIN = 1.02  # least speed-up that is reported
COLUMNS = 160  # parts of the time in the chart of live bytes
SPAN_PARTS = 500  # pauses of an engine that are shorter than this part of a run do not split its spans


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A better machine: ``factors`` for parameters of the target, and the ``causes`` of cycles that they reduce."""

    text: str
    causes: tuple[str, ...]
    factors: Mapping[str, int]

    def better(self, target: Target) -> Target:
        return targets.scaled(target, {key: 100 * factor for key, factor in self.factors.items()})


_TILE_PORTS = {"tile_ports.read_bytes_per_cycle": 2, "tile_ports.write_bytes_per_cycle": 2}
_ARRAY = ("array.macs_per_cycle", "array.accumulator_ports", "array.shapes", "array.depthwise_shape")
_LATENCIES = [f"{port}.{way}_latency_cycles" for port in ("sram", "offchip") for way in ("read", "write")]

WHAT_IFS: dict[str, WhatIf] = {
    "sram": WhatIf("an SRAM port twice as wide", ("sram",), {"sram.bytes_per_cycle": 2}),
    "offchip": WhatIf("an off-chip port twice as wide", ("offchip",), {"offchip.bytes_per_cycle": 2}),
    "lanes": WhatIf("twice the requantisation lanes", ("lanes",), {"vector.requant_lanes": 2}),
    "array": WhatIf(
        "an array of twice the pixels, with its ports and lanes",
        ("array",),
        {**dict.fromkeys(_ARRAY, 2), **_TILE_PORTS, "vector.requant_lanes": 2},
    ),
    "tile_ports": WhatIf("tile buffer ports twice as wide", ("tile_ports",), _TILE_PORTS),
    "vector": WhatIf(
        "a vector engine twice as fast",
        ("vector",),
        {"vector.reduce_lanes": 2, "vector.softmax_elements_per_cycle": 2},
    ),
    "decoder": WhatIf("a weight decoder twice as fast", ("decoder",), {"decoder.symbols_per_cycle": 2}),
    "accumulators": WhatIf("twice the accumulator ports", ("accumulators",), {"array.accumulator_ports": 2}),
    "latency": WhatIf("memories without latency", ("latency",), dict.fromkeys(_LATENCIES, 0)),
    "fetch": WhatIf(
        "instructions and tokens in no time",
        ("fetch", "token"),
        {"fetch.issue_cycles": 0, "fetch.semaphore_cycles": 0, "fetch.buffer_bytes": 1 << 12},
    ),
}


def engine_spans(trace: Trace, counters: Counters) -> list[dict[str, list[float]]]:
    """Return the busy spans of operators by engine, as begin, end, begin, end, … in cycles.

    Operators are in order of end. Gaps shorter than the run divided by :data:`SPAN_PARTS` are closed.
    """
    found: list[dict[str, list[float]]] = [{} for _ in trace.program.operators]
    for event in sorted(trace.events, key=lambda event: event.alone):
        if (owner := trace.program.owners[event.index]) >= 0:
            spans = found[owner].setdefault(event.queue.name.lower(), [])
            if spans and event.alone - spans[-1] < counters.cycles / SPAN_PARTS:
                spans[-1] = max(spans[-1], round(event.ended, _DIGITS))
            else:
                spans += [round(event.alone, _DIGITS), round(event.ended, _DIGITS)]
    times = zip(counters.operators, found, strict=True)
    return [own for _, own in sorted(times, key=lambda item: (item[0].last_cycle, item[0].first_cycle))]


def _extended_to(last: PathSpan, end: float) -> PathSpan:
    longer = (end - last.begin) / (last.end - last.begin)
    return PathSpan(last.begin, end, {cause: cycles * longer for cause, cycles in last.causes.items()})


def _charge_windows(counters: Counters) -> tuple[int, list[tuple[str, int, int]]]:
    ordered = sorted(counters.operators, key=lambda operator: (operator.last_cycle, operator.first_cycle))
    found = windows([operator.last_cycle for operator in ordered], counters.cycles)
    return counters.cycles, [(operator.name, *window) for operator, window in zip(ordered, found, strict=True)]


def causes_of(path: Sequence[PathSpan], charged: Sequence[tuple[int, int]]) -> list[dict[str, float]]:
    """Return the path's cycles by cause for each window. Windows must be adjacent and in order."""
    found: list[dict[str, float]] = [defaultdict(float) for _ in charged]
    place = 0
    for span in path:
        while place + 1 < len(charged) and charged[place][1] <= span.begin:
            place += 1
        inside = place
        while inside < len(charged) and charged[inside][0] < span.end:
            begin, end = charged[inside]
            part = (min(end, span.end) - max(begin, span.begin)) / (span.end - span.begin)
            for cause, cycles in span.causes.items():
                if part > 0:
                    found[inside][cause] += part * cycles
            inside += 1
    return [dict(causes) for causes in found]


def explain(program: Program, memory_model: MemoryModel = "parity") -> dict[str, Any]:
    """Return JSON data: ``causes`` of the cycles, ``what_if`` by change that helps, ``operators`` and ``sram_live``.

    ``operators``: ``name``, ``cycles`` and ``causes`` of operators, sorted by end. ``causes`` add up to ``cycles``.
        ``binds`` is the largest cause, or None without cycles. ``helps`` lists machines that need fewer cycles, best
        first, as ``change`` and ``speedup``.
    ``spans``: see :func:`engine_spans`.
    ``sram_live``: see :func:`live_bytes`.
    """
    result = simulate(program, memory_model=memory_model, execute=False, trace=True)
    assert result.trace is not None
    cycles, charged = _charge_windows(result.counters)
    path = critical_path(result.trace)
    path[-1] = _extended_to(path[-1], cycles)
    run = causes_of(path, [(0, cycles)])[0]
    better: dict[str, list[tuple[str, int, int]]] = {}
    what_if: dict[str, dict[str, Any]] = {}
    for name, what in WHAT_IFS.items():
        if sum(run.get(cause, 0.0) for cause in what.causes) >= LEAST_SHARE * cycles:
            other = replace(program, target=what.better(program.target))
            total, better[name] = _charge_windows(simulate(other, memory_model=memory_model, execute=False).counters)
            if cycles >= LEAST_GAIN * total:
                what_if[name] = {"text": what.text, "cycles": total}
    causes = causes_of(path, [(begin, end) for _, begin, end in charged])
    spans = engine_spans(result.trace, result.counters)
    operators = []
    for place, (name, begin, end) in enumerate(charged):
        after = {change: _window_cycles(found, name, charged, place) for change, found in better.items()}
        gains = {change: (end - begin) / fewer for change, fewer in after.items() if fewer}
        helps = sorted(((gain, change) for change, gain in gains.items() if gain >= LEAST_GAIN), reverse=True)
        operators.append(
            {
                "name": name,
                "cycles": end - begin,
                "causes": _rounded(causes[place]),
                "binds": max(causes[place], key=lambda cause: causes[place][cause], default=None),
                "helps": [{"change": change, "speedup": round(gain, 2)} for gain, change in helps],
                "spans": spans[place],
            }
        )
    return {
        "cycles": cycles,
        "causes": _rounded(run),
        "what_if": what_if,
        "operators": operators,
        "sram_live": live_bytes(result.trace, cycles, COLUMNS),
    }


def _window_cycles(
    found: Sequence[tuple[str, int, int]], name: str, charged: Sequence[tuple[str, int, int]], place: int
) -> int:
    which = [other for other, *_ in charged[:place]].count(name)
    begin, end = [(begin, end) for other, begin, end in found if other == name][which]
    return end - begin


def _rounded(causes: Mapping[str, float]) -> dict[str, float]:
    return {cause: round(cycles, 3) for cause, cycles in sorted(causes.items(), key=lambda item: -item[1])}
