"""Causes of an operator's cycles, and estimates for a better machine.

``explain(program)`` follows the critical path of a run, divides it among the operators of the model, and runs the same
program again on machines that have more of what it waited for. The program stays as it is, so that a compiler could do
more with such a machine: what is found is the least gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from odc_mlir.simulator.counters import Counters
from odc_mlir.simulator.live_bytes import live_bytes
from odc_mlir.simulator.path import PathSpan, critical_path
from odc_mlir.simulator.program import Program
from odc_mlir.simulator.run import simulate
from odc_mlir.simulator.windows import windows
from odc_mlir.targets import Target

LEAST_SHARE = 0.05  # of a run's cycles: what takes less is not worth another machine
LEAST_GAIN = 1.02  # speed-up of an operator that is worth a word
COLUMNS = 160  # parts of the time for which live bytes are told


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A better machine: its change, and the causes that shrink."""

    text: str
    causes: tuple[str, ...]
    better: Callable[[Target], Target]


def _twice(record: Any, *names: str) -> Any:
    return replace(record, **{name: 2 * getattr(record, name) for name in names})


def _without(record: Any, *names: str) -> Any:
    return replace(record, **dict.fromkeys(names, 0))


def _larger_array(t: Target) -> Target:
    """Twice the pixels of every shape, so that weights keep their order, and what belongs to an array of that size."""
    array = _twice(t.array, "macs_per_cycle", "accumulator_ports")
    shapes = tuple((2 * pixels, channels) for pixels, channels in array.shapes)
    depthwise = (2 * array.depthwise_shape[0], array.depthwise_shape[1])
    wider = replace(array, shapes=shapes, depthwise_shape=depthwise)
    return replace(_wider_tile_ports(t), array=wider, vector=_twice(t.vector, "requant_lanes"))


def _wider_tile_ports(t: Target) -> Target:
    return replace(t, tile_ports=_twice(t.tile_ports, "read_bytes_per_cycle", "write_bytes_per_cycle"))


def _no_latency(t: Target) -> Target:
    names = ("read_latency_cycles", "write_latency_cycles")
    return replace(t, sram=_without(t.sram, *names), offchip=_without(t.offchip, *names))


def _free_fetch(t: Target) -> Target:
    return replace(t, fetch=replace(t.fetch, issue_cycles=0, semaphore_cycles=0, buffer_bytes=1 << 20))


def _part(part: str, *names: str) -> Callable[[Target], Target]:
    """Twice of some numbers of one part of a machine."""

    def better(t: Target) -> Target:
        changed: Target = replace(t, **{part: _twice(getattr(t, part), *names)})
        return changed

    return better


WHAT_IFS: dict[str, WhatIf] = {
    "sram": WhatIf("an SRAM port twice as wide", ("sram",), _part("sram", "bytes_per_cycle")),
    "offchip": WhatIf("an off-chip port twice as wide", ("offchip",), _part("offchip", "bytes_per_cycle")),
    "lanes": WhatIf("twice the requantisation lanes", ("lanes",), _part("vector", "requant_lanes")),
    "array": WhatIf("an array of twice the pixels, with its ports and lanes", ("array",), _larger_array),
    "tile_ports": WhatIf("tile buffer ports twice as wide", ("tile_ports",), _wider_tile_ports),
    "vector": WhatIf(
        "a vector engine twice as fast", ("vector",), _part("vector", "reduce_lanes", "softmax_elements_per_cycle")
    ),
    "decoder": WhatIf("a weight decoder twice as fast", ("decoder",), _part("decoder", "symbols_per_cycle")),
    "accumulators": WhatIf("twice the accumulator ports", ("accumulators",), _part("array", "accumulator_ports")),
    "latency": WhatIf("memories without latency", ("latency",), _no_latency),
    "fetch": WhatIf("instructions and tokens in no time", ("fetch", "token"), _free_fetch),
}


def _until(last: PathSpan, end: float) -> PathSpan:
    """The last span of a path until the end of its cycle."""
    longer = (end - last.begin) / (last.end - last.begin)
    return PathSpan(last.begin, end, {cause: cycles * longer for cause, cycles in last.causes.items()})


def _charged(counters: Counters) -> tuple[int, list[tuple[str, int, int]]]:
    """Cycles of a run, and each operator's name and window."""
    ordered = sorted(counters.operators, key=lambda operator: (operator.last_cycle, operator.first_cycle))
    found = windows([operator.last_cycle for operator in ordered], counters.cycles)
    return counters.cycles, [(operator.name, *window) for operator, window in zip(ordered, found, strict=True)]


def causes_of(path: Sequence[PathSpan], charged: Sequence[tuple[int, int]]) -> list[dict[str, float]]:
    """By window, cycles of the path by cause; windows follow each other without gaps."""
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


def explain(program: Program) -> dict[str, Any]:
    """JSON-able: ``causes`` of the run's cycles, ``what_if`` by change, both for every operator, and ``sram_live``.

    ``operators``: in order of their end, each with ``name``, ``cycles``, ``causes`` that add up to them, ``binds`` (the
    largest cause, None where it takes no cycles) and ``helps``: machines on which it would take fewer, best first, as
    ``change`` and ``speedup``. ``sram_live``: see :func:`.live_bytes.live_bytes`.
    """
    result = simulate(program, execute=False, trace=True)
    assert result.trace is not None
    cycles, charged = _charged(result.counters)
    path = critical_path(result.trace)
    path[-1] = _until(path[-1], cycles)
    run = causes_of(path, [(0, cycles)])[0]
    changes = [
        name
        for name, what in WHAT_IFS.items()
        if sum(run.get(cause, 0.0) for cause in what.causes) >= LEAST_SHARE * cycles
    ]
    better: dict[str, list[tuple[str, int, int]]] = {}
    totals: dict[str, int] = {}
    for name in changes:
        other = replace(program, target=WHAT_IFS[name].better(program.target))
        totals[name], better[name] = _charged(simulate(other, execute=False).counters)
    causes = causes_of(path, [(begin, end) for _, begin, end in charged])
    operators = []
    for place, (name, begin, end) in enumerate(charged):
        after = {change: _window(found, name, charged, place) for change, found in better.items()}
        gains = {change: (end - begin) / fewer for change, fewer in after.items() if fewer}
        helps = sorted(((gain, change) for change, gain in gains.items() if gain >= LEAST_GAIN), reverse=True)
        operators.append(
            {
                "name": name,
                "cycles": end - begin,
                "causes": _rounded(causes[place]),
                "binds": max(causes[place], key=lambda cause: causes[place][cause], default=None),
                "helps": [{"change": change, "speedup": round(gain, 2)} for gain, change in helps],
            }
        )
    return {
        "cycles": cycles,
        "causes": _rounded(run),
        "what_if": {name: {"text": WHAT_IFS[name].text, "cycles": totals[name]} for name in changes},
        "operators": operators,
        "sram_live": live_bytes(result.trace, cycles, COLUMNS),
    }


def _window(
    found: Sequence[tuple[str, int, int]], name: str, charged: Sequence[tuple[str, int, int]], place: int
) -> int:
    """Cycles of the operator ``name`` on another machine: of several of a name, the one in the same order."""
    which = [other for other, *_ in charged[:place]].count(name)
    begin, end = [(begin, end) for other, begin, end in found if other == name][which]
    return end - begin


def _rounded(causes: Mapping[str, float]) -> dict[str, float]:
    return {cause: round(cycles, 3) for cause, cycles in sorted(causes.items(), key=lambda item: -item[1])}
