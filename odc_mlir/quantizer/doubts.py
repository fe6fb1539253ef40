"""What a verdict says of its own search: what was not tried, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.policy.verdict import Limit


def cut_short(driver: Driver) -> list[str]:
    """That time was up before everything was tried."""
    if not driver.making.is_cut_short:
        return []
    return [f"not all improvements were tried within {driver.options.max_seconds:g} s (--max-seconds)"]


def taken_for_scores(driver: Driver, missed: Sequence[Limit]) -> list[str]:
    """That a missed limit is of classes, which nobody said an output has."""
    reference = driver.reference
    is_guessed = reference.classifier == "logits" and reference.labels is None and driver.options.metric is None
    if not is_guessed or all(limit.metric != "top1_decided" for limit in missed):
        return []
    name = reference.graph.tensors[reference.graph.outputs[0]].name
    return [f"output {name!r} is taken for scores of classes; if it has numbers, give labels, or --metric mpeir"]
