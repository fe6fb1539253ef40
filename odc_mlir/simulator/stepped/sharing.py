"""How phases that run at once share resources, read from docs/npu.md ("Time")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odc_mlir.simulator.resources import Resource

_ROUNDS = 1000
_SETTLED = 1e-12


def speeds(rates: Sequence[Mapping[Resource, float]], widths: Sequence[float]) -> list[float]:
    """Compute the speed of each phase, at most 1. ``rates``: its use of each resource per cycle at full speed."""
    total = [sum(phase.get(resource, 0.0) for phase in rates) for resource in Resource]
    levels = {r: float("inf") for r in Resource if total[r] > widths[r] * (1 + _SETTLED)}
    for _ in range(_ROUNDS if levels else 0):
        before = dict(levels)
        for resource in levels:
            wanted = []
            for phase in rates:
                elsewhere = {r: rate for r, rate in phase.items() if r != resource}
                wanted.append(phase.get(resource, 0.0) * _speed(elsewhere, levels))
            levels[resource] = _level(wanted, widths[resource])
        if all(levels[r] == before[r] or abs(levels[r] - before[r]) < _SETTLED for r in levels):
            break
    return [_speed(phase, levels) for phase in rates]


def _speed(phase: Mapping[Resource, float], levels: Mapping[Resource, float]) -> float:
    """The largest speed, at most 1, at which a phase passes no level."""
    return min([1.0, *(levels[r] / rate for r, rate in phase.items() if r in levels and rate)])


def _level(wanted: Sequence[float], width: float) -> float:
    """The largest level at which the wishes, each cut to the level, fit in ``width``."""
    if sum(wanted) <= width:
        return float("inf")
    # from below: whoever wants less than an equal part of what is left gets it, until nobody does
    open_wishes, left = sorted(wanted), width
    while open_wishes[0] <= left / len(open_wishes):
        left -= open_wishes.pop(0)
    return left / len(open_wishes)
