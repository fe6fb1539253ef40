"""The verdict over a quantised model: measures, findings, coverage, scores and the front of precisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from odc_mlir.calibration.recorded import unreal_inputs
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.findings import SHARES_OF_ANSWERS, JudgedCandidate, findings_of
from odc_mlir.quantizer.intervals import wilson
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.models import Candidate, Recipe, float_reasons, precisions_before
from odc_mlir.quantizer.outputs import one_sided
from odc_mlir.quantizer.policy.options import FITTED, INPUTS, OFF, ON, OUTPUTS, RANGE
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.verdict import Evidence, make_verdict
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import Graph

_SEARCHED = "the search for precisions chose float"


def verdict_of(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """Return the verdict, a dictionary for JSON; see :func:`make_verdict`."""
    outcome = JudgedCandidate(driver, candidate)
    coverage = outcome.coverage.to_dict() | {"least": driver.min_coverage, "leaked_attention": outcome.leaked}
    if outcome.placement:
        coverage["target"] = outcome.placement
    if outcome.over_budget or (outcome.missed and driver.options.has_budget):
        coverage["budget"] = outcome.least_cost()
    return make_verdict(
        Evidence(
            driver.limits,
            outcome.metrics,
            outputs=_outputs(driver.reference, outcome.measured),
            fake_quantized=driver.evaluator.fake_quantized(driver.model, candidate, driver.statistics),
            scores=_scores(driver, outcome.measured),
            layers=outcome.layers,
            schemes={layer.name: layer.precision for layer in outcome.layers},
            float_reasons=_float_reasons(driver, candidate),
            samples=_samples(outcome),
            saturated_biases=saturated_biases(candidate.graph),
            findings=findings_of(outcome),
            steps=driver.evaluator.steps,
            choices=_choices(driver, candidate),
            coverage=coverage,
            intervals=dict(outcome.certainty.intervals),
            deciding=outcome.wanted,
            inherent=outcome.inherent,
            front=outcome.front,
            made_up=driver.data.made_up,
            seen=driver.data.seen,
        )
    )


def _samples(outcome: JudgedCandidate) -> dict[str, Any]:
    """Return the numbers of samples, and the parts of inputs and outputs that they do not cover."""
    driver, data, base, reference = outcome.driver, outcome.data, outcome.driver.base, outcome.reference
    inputs = [(0, info.name) for info in base.graph.input_infos() if info.info.kind == "float"]
    return {
        "chosen_by": data.known,
        "checked_on": reference.measurable,
        "outputs_vary": driver.outputs_vary,
        "stands_out": data.stands_out,
        "made_up": data.made_up,
        "same_inputs": list(outcome.same_inputs),
        "unreal_inputs": unreal_inputs(base.records, inputs),
        "one_sided": one_sided(base.graph, base.complete),
        "other_units": list(driver.differing_units),
        "labels_tell": None if reference.labels is None else reference.misfit is None,
        "telling": outcome.are_informative,
        "layers_examined_on": outcome.examination.samples,
    }


def _outputs(reference: Reference, measured: Measurement) -> list[dict[str, Any]]:
    """Return the measures and the kind of each output."""
    return [
        {
            **found,
            "interval": reference.spans[place],
            "classifies": reference.classifies(place),
            "classes": reference.classes(place) if reference.classifies(place) else None,
        }
        for place, found in enumerate(measured.by_output())
    ]


def _float_reasons(driver: Driver, candidate: Candidate) -> dict[str, str]:
    """Why operators stayed real, by name; of those that nobody asked for as float it was the search."""
    found = float_reasons(candidate.module)
    chosen = {name for name, choice in candidate.recipe.precisions if choice.precision == FLOAT}
    return found | dict.fromkeys(found.keys() & chosen - driver.asked_for, _SEARCHED)


def _scores(driver: Driver, measured: Measurement) -> dict[str, Any] | None:
    """What both models score; of columns that are scored each by itself the one that loses most, and a list of all."""
    all_before, scored = driver.reference.scores, measured.scored
    if all_before is None or scored is None:
        return None
    worst = scored.worst
    before, after = (all_before, scored.after) if worst is None else (worst.before, worst.after)
    metric = next(iter(before))
    result: dict[str, Any] = {"metric": metric, "float": before[metric], "quantized": after[metric]}
    if metric in SHARES_OF_ANSWERS:
        count = len(driver.reference.samples)
        result["intervals"] = {
            side: [100.0 * end for end in wilson(result[side] / 100.0, count)] for side in ("float", "quantized")
        }
    result |= scored.parts()
    others = {name: [before[name], after[name]] for name in before if name != metric}
    classes = [item.to_dict() for item in measured.recalls]
    return result | ({"others": others} if others else {}) | ({"classes": classes} if classes else {})


def _choices(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """Return the choices of the recipe and the options for the verdict."""
    scheme, recipe = driver.options.definition, candidate.recipe
    result: dict[str, Any] = {"scheme": scheme.name, "granularity": scheme.granularity, "io": driver.options.io}
    for name in ("input_types", "output_types", "parameters", "copied_parameters"):
        if given := getattr(driver.options, name):
            result[name] = dict(given)
    result |= {"help": driver.options.help, "rounding": recipe.rounding, "correction": recipe.correction}
    if scheme.weights_only:
        result["scales"] = FITTED if recipe.fitted else RANGE
        if driver.data.fit:  # without samples weights alone decide
            result["normalize"] = _normalized(recipe)
    else:
        result |= {
            "normalize": _normalized(recipe),
            "equalize": recipe.equalize,
            "ranges": recipe.ranges,
            "range_options": dict(recipe.range_options),
            "headroom": recipe.headroom,
            "output_room": recipe.output_room,
        }
    precisions = precisions_before(driver.base, dict(recipe.precisions))
    if finer := {name: choice.granularity for name, choice in precisions.items() if choice.granularity is not None}:
        result["granularities"] = finer
    told = ("max_bytes", "max_time_ms", *(("max_seconds",) if driver.evaluator.is_cut_short else ()))
    budgets = {name: getattr(driver.options, name) for name in told}
    result |= {name: budget for name, budget in budgets.items() if budget is not None}
    return result | {"precisions": {name: choice.precision for name, choice in precisions.items()}}


def _normalized(recipe: Recipe) -> str:
    """Return the value of ``--normalize`` that describes the recipe."""
    return {(False, False): OFF, (True, False): INPUTS, (False, True): OUTPUTS, (True, True): ON}[
        recipe.normalize, recipe.normalize_outputs
    ]


def saturated_biases(graph: Graph) -> dict[str, list[int]]:
    """The channels of biases whose codes are at the end of their type, by tensor name."""
    result: dict[str, list[int]] = {}
    for info in graph.tensors:
        if info.is_const and info.quant is not None and info.dtype in ("int32", "int64"):
            low, high = info.info.range
            codes = info.array().reshape(-1)
            if (channels := np.flatnonzero((codes == low) | (codes == high))).size:
                result[info.name] = channels.tolist()
    return result
