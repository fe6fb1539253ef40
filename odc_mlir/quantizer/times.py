"""How long an inference takes on a target, as verdicts say it: modelled or estimated, with as many digits as decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_FEWEST, _MOST = 3, 6  # decimals of milliseconds, which nanoseconds have no more of


def decimals(times_ns: Iterable[float]) -> int:
    """How many decimals of milliseconds tell these times from each other."""
    different = {round(ns) for ns in times_ns}

    def tell(digits: int) -> bool:
        return len({_milliseconds(ns, digits) for ns in different}) == len(different)

    return next(filter(tell, range(_FEWEST, _MOST)), _MOST)


def decimals_of(verdict: Mapping[str, Any]) -> int:
    """How many decimals tell the times of a ``verdict`` from each other, and from its budget."""
    coverage, budget = verdict["coverage"], verdict["choices"].get("max_time_ms")
    found = [point["time_ns"] for point in verdict["front"]]
    found += [coverage.get(key, {}).get("time_ns") for key in ("target", "budget")]
    found += [None if budget is None else 1e6 * budget]
    return decimals(ns for ns in found if ns is not None)


def times_text(ns: float, digits: int) -> str:
    """``0.0937 ms``, with so many ``digits`` behind the point."""
    return f"{_milliseconds(ns, digits)} ms"


def cost_text(point: Mapping[str, Any], digits: int) -> str:
    """What a ``point`` of the front costs: time and how that is known, or without a target bytes."""
    if point["time_ns"] is None:
        return f"{point['bytes']:,} bytes"
    return f"{times_text(point['time_ns'], digits)} {how_known(point)}"


def how_known(found: Mapping[str, Any]) -> str:
    """Whether a time is that of a package, or a plan's."""
    return "modelled" if found.get("modelled") else "estimated"


def _milliseconds(ns: float, digits: int) -> str:
    return f"{ns / 1e6:.{digits}f}"
