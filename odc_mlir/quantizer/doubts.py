"""What a verdict says of its own search: what was not tried, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.policy.ladders import LADDERS, wider_values
from odc_mlir.quantizer.policy.readers import LITERT, litert_refuses
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.quantizer.policy.verdict import Limit
from odc_mlir.quantizer.pricing import bits_of


def doubts_of(driver: Driver, missed: Sequence[Limit]) -> list[str]:
    """All that is said; ``missed`` are the limits that do not hold."""
    return [*_cut_short(driver), *_refused_steps(driver), *_taken_for_scores(driver, missed)]


def _cut_short(driver: Driver) -> list[str]:
    """That time was up before everything was tried."""
    if not driver.making.is_cut_short:
        return []
    return [f"not all improvements were tried within {driver.options.max_seconds:g} s (--max-seconds)"]


def _refused_steps(driver: Driver) -> list[str]:
    """That the file's reader has no kernels for more bits of the scheme, where it has of another with as many."""
    options, widening = driver.options, driver.widening
    if options.reader != LITERT or widening is None or not widening.is_in_vain:
        return []
    refused = _refused_step(options.scheme)
    others = [name for name in LADDERS if _bits(name) == _bits(options.scheme) and _refused_step(name) is None]
    if refused is None or not others:
        return []
    return [f"{refused}, as wider layers of {options.scheme} have; those of --scheme {others[0]} are run with 16 bits"]


def _refused_step(scheme: str) -> str | None:
    """Why LiteRT does not run layers with weights in the next wider precision; None where it does."""
    wider = SCHEMES.get(wider_values(scheme))
    return (
        None
        if wider is None or wider.activations is None
        else litert_refuses("FULLY_CONNECTED", wider.activations, wider.weights)
    )


def _bits(scheme: str) -> tuple[int, int]:
    return bits_of(scheme, of_weights=False), bits_of(scheme, of_weights=True)


def _taken_for_scores(driver: Driver, missed: Sequence[Limit]) -> list[str]:
    """That a missed limit is of classes, which nobody said an output has."""
    reference = driver.reference
    is_guessed = reference.classifier == "logits" and reference.labels is None and driver.options.metric is None
    if not is_guessed or all(limit.metric != "top1_decided" for limit in missed):
        return []
    name = reference.graph.tensors[reference.graph.outputs[0]].name
    return [f"output {name!r} is taken for scores of classes; if it has numbers, give labels, or --metric mpeir"]
