"""What a verdict says of its own search: what was not tried, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odc_mlir.formats.quantities import listed
from odc_mlir.quantizer.deciding import remedy_of_guess
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.options import Options
from odc_mlir.quantizer.policy.boundaries import FLOAT
from odc_mlir.quantizer.policy.ladders import LADDERS, wider_values
from odc_mlir.quantizer.policy.limits import OF_ANSWERS, Limit, Measures
from odc_mlir.quantizer.policy.readers import LITERT, litert_refuses
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.quantizer.pricing import bits_of
from odc_mlir.quantizer.widening import Tried, Widening
from odc_mlir.runtime.execution.graph import Graph

_OF_GUESS = "top1_decided"  # what logits are limited by


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
    if wider is None or wider.activations is None:
        return None
    return litert_refuses("FULLY_CONNECTED", wider.activations, wider.weights)


def _bits(scheme: str) -> tuple[int, int]:
    return bits_of(scheme, of_weights=False), bits_of(scheme, of_weights=True)


def real_ends(options: Options, graph: Graph) -> list[str]:
    """That inputs and outputs which were to have codes are real, as of layers that stay so."""
    ends = {"input": (graph.input_infos(), options.input_types), "output": (graph.output_infos(), options.output_types)}
    kept = {
        kind: [
            repr(info.name)
            for info in infos
            if info.dtype == "float32" and given.get(info.name, given.get("", options.io)) != FLOAT
        ]
        for kind, (infos, given) in ends.items()
    }
    texts = [f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}" for kind, names in kept.items() if names]
    them = "them" if sum(map(len, kept.values())) > 1 else "it"
    what = f"codes were asked for, but what reads or makes {them} stays float"
    return [f"real numbers stay in {' and '.join(texts)}: {what}"] if texts else []


def are_not_asked_for(driver: Driver, place: int) -> bool:
    """Whether classes of output ``place`` are but a guess, and who gave limits asked for none of answers."""
    return place in driver.reference.logits and all(limit.metric not in OF_ANSWERS for limit in driver.limits)


def _taken_for_scores(driver: Driver, missed: Sequence[Limit]) -> list[str]:
    """That a limit which was missed, or which layers have other precisions for, is of classes by a guess."""
    reference = driver.reference
    labelled = {0} if reference.labels is not None else set()
    guessed = [] if driver.options.metric is not None else sorted(reference.logits - labelled)
    doubted = reference.doubts_of_scores if guessed else {}
    changed = bool(guessed) and _widened_for(driver, _OF_GUESS)
    why, found = ", for which layers have other precisions" if changed else "", []
    for place in guessed:
        name = reference.graph.tensors[reference.graph.outputs[place]].name
        is_missed = any(limit.metric == _OF_GUESS and limit.output in (None, name) for limit in missed)
        if place not in doubted and (changed or is_missed):
            remedy = remedy_of_guess(place == 0)
            found.append(
                f"output {name!r} is taken for scores of classes{why}; if it has numbers, {remedy} --metric mpeir"
            )
    return found


def _widened_for(driver: Driver, metric: str) -> bool:
    """Whether layers have other precisions as models without missed the limit of ``metric``, and no other."""
    widening = driver.widening
    if widening is None or widening.chosen is None or not widening.chosen.precisions or driver.options.has_budget:
        return False
    return any(
        {limit.metric for limit in limits if not limit.holds(measures)} == {metric}
        for tried in widening.tried.values()
        for limits, measures in _measured(driver, widening, tried)
    )


def _measured(driver: Driver, widening: Widening, tried: Tried) -> Iterator[tuple[Sequence[Limit], Measures]]:
    """What was measured of a model that was tried: in the search and, where it held there, as verdicts do."""
    yield widening.limits, tried.measures
    if widening.is_known(tried) and tried.holds(widening.limits):
        yield driver.limits, driver.measures(tried.candidate)
