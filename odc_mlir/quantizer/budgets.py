"""Budgets of time and bytes: by how much a model is over its own, and what the least would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.stages import Candidate
from odc_mlir.quantizer.times import decimals, how_known, times_text
from odc_mlir.quantizer.within_budget import WithinBudget


def over_budget_text(driver: Driver, candidate: Candidate, coverage: Mapping[str, Any]) -> list[str]:
    """By how much the model is over the budget that was given."""
    options = driver.options
    if options.max_bytes is not None and (size := driver.size(candidate)) > options.max_bytes:
        return [f"the file has {size:,} bytes, at most {options.max_bytes:,} wanted"]
    if options.max_time_ms is not None and driver.over_budget(candidate):
        ns, how = coverage["target"]["time_ns"], how_known(coverage["target"])
        text = times_text(ns, decimals([ns, 1e6 * options.max_time_ms]))
        return [f"an inference takes {text} ({how}), at most {options.max_time_ms:g} ms wanted"]
    return []


def least_cost(driver: Driver, candidate: Candidate, *, holds: bool) -> dict[str, Any]:
    """The fewest bytes, or the least time, of the models that were made, are covered and keep the limits.

    ``candidate`` keeps these if it ``holds``. The least of all, and that it does not hold, where none does. ``tight``
    tells whether a larger budget has more.
    """
    search = driver.widening
    if not isinstance(search, WithinBudget):
        return _told(driver, candidate) | {"holds": holds, "tight": False}
    found, kept = search.least(candidate, holds=holds)
    return _told(driver, found) | {"holds": kept, "tight": search.is_tight}


def _told(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """The same as verdicts have it, the time by a package where one can be made."""
    if driver.options.max_bytes is not None:
        return {"bytes": driver.size(candidate)}
    assert driver.target is not None
    time = driver.target.time(candidate.module, compiled=True)
    return {"time_ns": time.ns, "modelled": time.modelled}
