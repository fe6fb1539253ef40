"""Advice for a model that has not passed: samples, options, another scheme or a larger budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import counted, listed
from odc_mlir.quantizer.policy.schemes import FLOAT, bits_of
from odc_mlir.quantizer.policy.verdict import OF_DROP, OF_METRIC, R2_LIMIT, VARY_MORE, Limit

_LONGER = "raise --max-seconds (in Python max_seconds), which cut the search short"
_IN_USE = "in use"  # as samples should be, where a problem says what to give


def hint_of(verdict: Mapping[str, Any]) -> str | None:
    """Return the advice for a verdict that is not passed; None if its problems already give it."""
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
        return _budget_hint(budget, _LONGER if _is_cut_short(verdict) else _allow_more(missed))
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
    return "max_seconds" in verdict["choices"]


def leaves_some(precisions: Collection[str], schemes: Mapping[str, str], scheme: str) -> bool:
    """Return whether a layer stays in ``scheme`` when some get other ``precisions``; ``schemes``: of all."""
    return any(name not in precisions for name, type in schemes.items() if type == scheme)


def _of_point(verdict: Mapping[str, Any], point: Mapping[str, Any]) -> str | None:
    """Return the options that give a model of the front within the limits; None if they are given already."""
    share = math.floor(100 * point["share"]) / 100
    scheme, precisions = verdict["choices"]["scheme"], point["precisions"]
    lacks = share < verdict["coverage"]["least"]
    if not point["share"] and "target" not in verdict["coverage"]:  # nothing that computes is quantised
        return None
    cost, coverage = cost_text(point), f"--min-coverage {share:g} (in Python min_coverage)"
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
    """Return whether a model of the front exceeds the budget, if any."""
    most_bytes, most_ms = (verdict["choices"].get(name) for name in ("max_bytes", "max_time_ms"))
    if most_bytes is not None:
        return bool(point["bytes"] > most_bytes)
    return most_ms is not None and bool(point["time_ns"] > 1e6 * most_ms)


def _remedies(verdict: Mapping[str, Any], missed: Sequence[Mapping[str, Any]], others: str | None) -> str:
    """Return remedies for missed limits, the likeliest first, without those that were tried.

    More samples help if the limits hold on calibration samples, ``others`` gives other precisions. Weaker limits come
    last.
    """
    alone = verdict["samples"].get("stands_out")
    found = [] if alone is None else [f"look at sample {alone}, whose values lie far from all others'"]
    found += [_LONGER] if _is_cut_short(verdict) else []
    found += [] if verdict["choices"]["help"] else ["let help find better choices"]
    if is_kept := all(check["inherent"] is False for check in missed):
        found.append("give more samples, as on those that ranges were chosen by the limit holds")
    elif all(map(_is_open, missed)):
        found.append("give more samples, as these leave open whether the limit holds")
    found += [] if others is None else [others]
    if others is None and not is_kept and not _is_cut_short(verdict):
        found += [*_larger_budget(verdict), _allow_more(missed)]
    return ", or ".join(found)


def _larger_budget(verdict: Mapping[str, Any]) -> list[str]:
    """Return the advice to raise a budget that a larger model would fit."""
    budget = verdict["coverage"].get("budget")
    if budget is None or not budget["tight"]:
        return []
    flag = "--max-size (in Python max_bytes)" if "bytes" in budget else "--max-time (in Python max_time_ms)"
    return [f"raise {flag}"]


def _allow_more(missed: Sequence[Mapping[str, Any]]) -> str:
    """Return the advice to allow more loss, with the options of the ``missed`` limits."""
    flags = dict.fromkeys(map(_flag_of, missed))
    return f"allow more loss ({', '.join(flags)})" if flags else "allow more loss"


def _flag_of(check: Mapping[str, Any]) -> str:
    if check["option"] == OF_DROP:
        return "--max-drop"
    return f"--metric {check['metric']} --limit" if check["option"] == OF_METRIC else "--limit"


def _is_open(check: Mapping[str, Any]) -> bool:
    """Return whether a missed limit may hold on other samples: one end of its interval keeps it."""
    limit = Limit(check["metric"], check["limit"])
    return not check["inherent"] and check["interval"] is not None and any(map(limit.allows, check["interval"]))


def _budget_hint(budget: Mapping[str, Any], otherwise: str) -> str:
    """Return the least budget that was found, within the limits if any, or ``otherwise``."""
    found = "found within the limits" if budget["holds"] else "found"
    if "bytes" in budget:
        size = budget["bytes"]
        what, flag = f"the smallest file {found} has {size:,} bytes", f"--max-size {size} (in Python max_bytes)"
    else:
        what = f"the least {how_known(budget)} time {found} is {time_text(budget['time_ns'])}"
        flag = f"--max-time {math.ceil(budget['time_ns']) / 1e6:.6f} (in Python max_time_ms)"
    if budget["holds"]:
        return f"{what}: {flag}"
    return f"{what}, and no model found keeps the limits: {otherwise}"


def time_text(ns: float) -> str:
    """Return milliseconds with five significant digits, such as ``0.0937 ms``."""
    return f"{ns / 1e6:.5g} ms"


def cost_text(point: Mapping[str, Any]) -> str:
    """Return the cost of a ``point`` of the front: modelled or estimated time, or bytes without a target."""
    if point["time_ns"] is None:
        return f"{point['bytes']:,} bytes"
    return f"{time_text(point['time_ns'])} {how_known(point)}"


def how_known(found: Mapping[str, Any]) -> str:
    """Return "modelled" for the time of a package, "estimated" for the time of a plan."""
    return "modelled" if found.get("modelled") else "estimated"
