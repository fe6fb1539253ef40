"""Advice for a model that has not passed: samples, options, another scheme or a larger budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import counted, listed
from odc_mlir.quantizer.policy.schemes import FLOAT, bits_of
from odc_mlir.quantizer.policy.verdict import OF_DROP, OF_METRIC, R2_LIMIT, VARY_MORE, Limit

_LONGER = "raise --max-seconds (in Python max_seconds), which cut the search short"
_IN_USE = "in use"  # as samples should be, where a problem says what to give


def hint_of(verdict: Mapping[str, Any]) -> str | None:
    """What to do about a verdict that is not passed; None where its problems, such as a budget, say it."""
    hint = _hint_of(verdict)
    missed = not all(check["passed"] for check in verdict["limits"])
    if hint is None or not (missed and verdict["samples"].get("made_up")):
        return hint
    return f"give samples (--calibration or --evaluation), as made-up inputs tell little, or {hint}"


def _hint_of(verdict: Mapping[str, Any]) -> str | None:
    if causes := verdict["causes"]:
        return f"leave out {', and '.join(causes)}"
    every = verdict["limits"]
    budget = verdict["coverage"].get("budget")
    if budget is not None and (budget["holds"] or verdict["problems"]):
        missed = [check for check in every if not check["passed"]]
        return _budget_hint(budget, decimals_of(verdict), _LONGER if _is_cut_short(verdict) else _allow_more(missed))
    if len(every) > 1 and [check["metric"] for check in every if not check["passed"]] == [R2_LIMIT.metric]:
        # A limit that nobody asked for, as constant outputs keep all others.
        return None if any(_IN_USE in problem for problem in verdict["problems"]) else VARY_MORE
    told = () if verdict["samples"].get("outputs_vary", True) else (R2_LIMIT.metric,)  # what to do about it
    missed = [check for check in every if not check["passed"] and check["metric"] not in told]
    front = () if _is_cut_short(verdict) else verdict["front"]
    kept = (_of_point(verdict, point) for point in front if point["layers"] and point["holds"])
    others = next(filter(None, kept), None)
    return _remedies(verdict, missed, others) if missed else None


def _is_cut_short(verdict: Mapping[str, Any]) -> bool:
    """Return whether the search ran out of time; a better model may exist."""
    return "max_seconds" in verdict["choices"]


def leaves_some(precisions: Collection[str], schemes: Mapping[str, str], scheme: str) -> bool:
    """Return whether a layer stays in the requested ``scheme`` when these layers get other ``precisions``.

    ``schemes``: what each layer has. No search takes all from the scheme, however little is to be covered.
    """
    return any(name not in precisions for name, type in schemes.items() if type == scheme)


def _of_point(verdict: Mapping[str, Any], point: Mapping[str, Any]) -> str | None:
    """Return the options that give a model of the front within the limits; None if they are given already.

    Another scheme gets help of its own, so that costs are about the same.
    """
    share = math.floor(100 * point["share"]) / 100
    scheme, precisions = verdict["choices"]["scheme"], point["precisions"]
    lacks = share < verdict["coverage"]["least"]
    if not point["share"] and "target" not in verdict["coverage"]:  # nothing that computes is quantised
        return None
    cost, coverage = cost_text(point, decimals_of(verdict)), f"--min-coverage {share:g} (in Python min_coverage)"
    cost += ", which is beyond the budget" if _is_beyond_budget(verdict, point) else ""
    if leaves_some(precisions, verdict["scheme"], scheme):
        layers = counted(point["layers"], "layer")
        return f"{coverage} lets {layers} have other precisions, which keeps the limits in {cost}" if lacks else None
    found = sorted(set(precisions.values()) - {FLOAT}, key=lambda name: bits_of(name, of_weights=True))
    if not found:
        return None
    if FLOAT in precisions.values():
        flags = f"--scheme {found[-1]}" + (f" {coverage}" if lacks else "")
        return f"{listed([*found, FLOAT])} layers keep the limits in about {cost}; {flags} looks for such"
    if len(found) == 1:
        return f"--scheme {found[0]} keeps the limits in about {cost}"
    return (
        f"{listed(found)} layers keep the limits in about {cost}; --scheme {found[-1]} has as many bits in all of them"
    )


def _is_beyond_budget(verdict: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a model of the front takes more than the budget that was given, if any."""
    most_bytes, most_ms = (verdict["choices"].get(name) for name in ("max_bytes", "max_time_ms"))
    if most_bytes is not None:
        return bool(point["bytes"] > most_bytes)
    return most_ms is not None and bool(point["time_ns"] > 1e6 * most_ms)


def _remedies(verdict: Mapping[str, Any], missed: Sequence[Mapping[str, Any]], others: str | None) -> str:
    """Return remedies for missed limits, the likeliest first, without those that were tried.

    More samples do, where the limits hold on those that the model was made by; where they do not, more change
    nothing. So may ``others``, which says how to get other precisions, or a larger budget. Less is to be asked for only
    where nothing else would do.
    """
    alone = verdict["samples"].get("stands_out")
    found = [] if alone is None else [f"look at sample {alone}, whose values lie far from all others'"]
    found += [_LONGER] if _is_cut_short(verdict) else []
    found += [] if verdict["choices"]["help"] else ["let help find better choices"]
    is_open, counts = all(map(_is_open, missed)), [check["deciding"] for check in missed]
    samples = None
    if is_open and all(counts):
        samples = f"give more samples, about {max(counts)}, as these leave open whether the limit holds"
    elif all(check["inherent"] is False for check in missed):
        samples = "give more samples, as on those that ranges were chosen by the limit holds"
    found += [way for way in (samples, others) if way is not None]
    if samples is None and others is None and not _is_cut_short(verdict):
        found += _larger_budget(verdict)
        why = ", as more samples would hardly decide whether this one holds" if is_open else ""
        found.append(f"{_allow_more(missed)}{why}")
    return ", or ".join(found)


def _larger_budget(verdict: Mapping[str, Any]) -> list[str]:
    """The budget that a model keeps which is not accurate enough; empty without one, or where more brings nothing."""
    budget = verdict["coverage"].get("budget")
    if budget is None or not budget["tight"]:
        return []
    flag = "--max-size (in Python max_bytes)" if "bytes" in budget else "--max-time (in Python max_time_ms)"
    return [f"raise {flag}"]


def _allow_more(missed: Sequence[Mapping[str, Any]]) -> str:
    """That more may be lost, with the options that say so of the limits that were ``missed``."""
    flags = dict.fromkeys(map(_flag_of, missed))
    return f"allow more loss ({', '.join(flags)})" if flags else "allow more loss"


def _flag_of(check: Mapping[str, Any]) -> str:
    """The option that changes a limit, by where it came from."""
    if check["option"] == OF_DROP:
        return "--max-drop"
    return f"--metric {check['metric']} --limit" if check["option"] == OF_METRIC else "--limit"


def _is_open(check: Mapping[str, Any]) -> bool:
    """Whether a limit that was missed may hold on other samples: one end of its interval keeps it.

    Not of a model that misses it on those that it was made by as well.
    """
    limit = Limit(check["metric"], check["limit"])
    return not check["inherent"] and check["interval"] is not None and any(map(limit.allows, check["interval"]))


def _budget_hint(budget: Mapping[str, Any], digits: int, otherwise: str) -> str:
    """What budget can be kept: the least that was found, of models within the limits if any, ``otherwise`` in vain."""
    found = "found within the limits" if budget["holds"] else "found"
    if "bytes" in budget:
        size = budget["bytes"]
        what, flag = f"the smallest file {found} has {size:,} bytes", f"--max-size {size} (in Python max_bytes)"
    else:
        kept = math.ceil(budget["time_ns"] * 10.0 ** (digits - 6)) / 10.0**digits
        what = f"the least {how_known(budget)} time {found} is {times_text(budget['time_ns'], digits)}"
        flag = f"--max-time {kept:.{digits}f} (in Python max_time_ms)"
    if budget["holds"]:
        return f"{what}: {flag}"
    return f"{what}, and no model found keeps the limits: {otherwise}"


_FEWEST_DECIMALS, _MOST_DECIMALS = 3, 6  # decimals of milliseconds, which nanoseconds have no more of


def decimals(times_ns: Iterable[float]) -> int:
    """How many decimals of milliseconds tell these times from each other."""
    different = {round(ns) for ns in times_ns}

    def tell(digits: int) -> bool:
        return len({_milliseconds(ns, digits) for ns in different}) == len(different)

    return next(filter(tell, range(_FEWEST_DECIMALS, _MOST_DECIMALS)), _MOST_DECIMALS)


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
    """Return the cost of a ``point`` of the front: modelled or estimated time, or bytes without a target."""
    if point["time_ns"] is None:
        return f"{point['bytes']:,} bytes"
    return f"{times_text(point['time_ns'], digits)} {how_known(point)}"


def how_known(found: Mapping[str, Any]) -> str:
    """Return "modelled" for the time of a package, "estimated" for the time of a plan."""
    return "modelled" if found.get("modelled") else "estimated"


def _milliseconds(ns: float, digits: int) -> str:
    return f"{ns / 1e6:.{digits}f}"
