"""The verdict over a quantised model: measures, findings, coverage, scores and the front of precisions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odc_mlir.calibration.coverage import unreal_inputs
from odc_mlir.calibration.recorded import TensorKey
from odc_mlir.formats.quantities import listed, quality_text
from odc_mlir.quantizer.advice import decimals, how_known, leaves_some, times_text
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.execution import float_names, same_inputs
from odc_mlir.quantizer.intervals import FEWEST_TO_TRUST, Certainty, deciding, lost_witness_text, sample_advice, wilson
from odc_mlir.quantizer.layers import UNIT_NAMES, Coverage, coverage_of, leaked
from odc_mlir.quantizer.measurement import Measurement, lost_places
from odc_mlir.quantizer.models import Candidate, Recipe, float_reasons, precisions_before
from odc_mlir.quantizer.outputs import lost_output_text, one_sided, output_ends, remedy_of_guess, unreached
from odc_mlir.quantizer.policy.options import (
    FITTED,
    INPUTS,
    OFF,
    ON,
    OUTPUTS,
    RANGE,
    Options,
    escaped,
    overrides_text,
)
from odc_mlir.quantizer.policy.ranges import MINMAX
from odc_mlir.quantizer.policy.readers import LITERT, litert_refuses
from odc_mlir.quantizer.policy.schemes import (
    FLOAT,
    LADDERS,
    NARROW,
    NARROWER,
    SCHEMES,
    bits_of,
    ladder_of,
    wider_values,
    with_wide_weights,
)
from odc_mlir.quantizer.policy.verdict import (
    FOLLOWING,
    OF_ANSWERS,
    OF_LABELS,
    Evidence,
    LayerError,
    Limit,
    Measures,
    kept_by_constants,
    make_verdict,
)
from odc_mlir.quantizer.precisions import Tried, Widening, WithinBudget
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.scores import never_answered, recall_findings
from odc_mlir.runtime.execution.graph import Graph

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement


# Of what the values of a tensor span, the part beyond the codes' range that does harm; and the part of that range
# which values must fill at least: less costs two bits and more.
_MOST_BEYOND, _LEAST_FILLED = 0.05, 0.25
# The widest headroom that leaves most codes to values, and that of 16 bits, which have codes to spare.
_WIDEST, _WIDEST_OF_MANY = 1.0, 7.0


def likely_causes(driver: Driver, graph: Graph) -> list[str]:
    """What leaves few codes of the quantised ``graph`` to values or cuts them off, each with what it does."""
    options, found = driver.options, list[str]()
    if driver.differing_units:
        found.append("the samples to check on, which seem to be in another unit than the model was calibrated in")
    headroom = options.headroom or 0.0
    if headroom > (_WIDEST_OF_MANY if options.has_codes_to_spare else _WIDEST):
        found.append(f"--headroom {headroom:g}, which leaves {100.0 / (1.0 + headroom):.2g} % of the codes to values")
    of_values = {name: (seen.minimum, seen.maximum) for name, seen in driver.statistics.items() if seen.runs}
    seen = _of_constants(driver.reference.graph) | of_values
    outputs = zip((info.name for info in graph.output_infos()), output_ends(graph), strict=True)
    ends = {name: found for name, found in outputs if found is not None} | dict(_ends_of_codes(graph))
    for name in options.parameters:
        found += _misfit(f"--parameters of {name!r}", ends.get(name), seen.get(name))
    for name, source in options.copied_parameters.items():
        copied = f"{escaped(name, '=')}={escaped(source, '=')}"
        found += _misfit(f"--copy-parameters {copied}", ends.get(name), seen.get(name))
    return found


def _misfit(option: str, ends: tuple[float, float] | None, seen: tuple[float, float] | None) -> list[str]:
    """What an ``option`` does whose codes reach from one of ``ends`` to the other, if what was ``seen`` is another."""
    if ends is None or seen is None:
        return []
    (least, most), (low, high) = ends, seen
    whole = max(high, 0.0) - min(low, 0.0)  # codes hold zero
    beyond = max(least - low, high - most)
    if whole <= 0.0 or (beyond <= _MOST_BEYOND * whole and whole >= _LEAST_FILLED * (most - least)):
        return []
    return [f"{option}, whose codes reach from {least:.3g} to {most:.3g} where values lie from {low:.3g} to {high:.3g}"]


def _of_constants(graph: Graph) -> dict[str, tuple[float, float]]:
    """The ends of what float constants hold, by name."""
    arrays = ((info.name, info.array()) for info in graph.tensors if info.is_const and info.dtype == "float32")
    return {name: (float(array.min()), float(array.max())) for name, array in arrays if array.size}


def _ends_of_codes(graph: Graph) -> Iterator[tuple[str, tuple[float, float]]]:
    """What the least and the largest code of each tensor with one scale stand for."""
    for info in graph.tensors:
        if info.quant is not None and np.size(info.quant.scales) == 1:
            scale, zero = (float(np.ravel(of)[0]) for of in (info.quant.scales, info.quant.zero_points))
            low, high = info.info.range
            yield info.name, (scale * (low - zero), scale * (high - zero))


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


# The part of a SOFTMAX's shares that may lie where the float model has none.
_MOST_LEAKED = 0.005
_SEARCHED = "the search for precisions chose float"
PERCENT = frozenset({"top1_percent"})  # scores that are shares of samples
_LEAST_TOLD = 0.5  # of the samples, of which the float model has to make numbers
_PRICED = 6  # points of the front, each of which takes a plan of the partitioner


def verdict_of(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """The verdict, see :func:`make_verdict`."""
    data, reference, options = driver.data, driver.reference, driver.options
    measured = driver.making.measured_unseen(driver.model, candidate)
    examination = driver.making.examination(driver.model)
    layers = examination.layers(candidate.graph)
    weights = examination.weights()
    for layer in layers:
        if not weights.get(layer.name):
            layer.precision = _scheme_name(options.scheme, layer.precision)
    metrics = driver.measures(candidate)
    found = _coverage(driver, candidate)
    coverage = _coverage_entry(driver, candidate, found)
    shares = leaked(reference.graph, candidate.graph, data.held)
    certainty = driver.making.intervals(driver.model, candidate)
    over = over_budget_text(driver, candidate, coverage)
    silent, notes = _silent(driver, candidate, measured)
    lost, lacks_samples = _lost_outputs(driver, candidate, measured)
    doubts = _doubts(driver, certainty, metrics)
    missed = [limit for limit in driver.limits if not limit.holds(metrics)]
    holds = not (missed or doubts or measured.lacking)
    if over or (missed and driver.options.has_budget):
        coverage["budget"] = least_cost(driver, candidate, holds=holds and not (silent or lost))
    others_missed = any(limit is not FOLLOWING for limit in missed)  # which is a reason enough
    if others_missed:
        lost, notes = [], [*notes, *lost]
    little = [] if driver.outputs_vary else [kept_by_constants(follows=FOLLOWING not in missed)]
    # What is lost of outputs that keep the limits others may show more of.
    tells = not reference.constant and (others_missed or not (doubts or little or silent or lacks_samples))
    same = [] if data.made_up else same_inputs(reference.graph, [*data.fit, *data.held])
    inherent = _inherent(driver, candidate) if missed else {}
    wanted = deciding([limit for limit in driver.limits if not inherent.get(limit.key)], certainty)
    front = _front(driver, holds=holds)
    return make_verdict(
        Evidence(
            driver.limits,
            metrics,
            _outputs(reference, measured),
            driver.making.fake_quantized(driver.model, candidate, driver.statistics),
            _scores(driver, measured),
            layers,
            {layer.name: layer.precision for layer in layers},
            _float_reasons(driver, candidate),
            _samples(driver, same) | {"telling": tells, "layers_examined_on": examination.samples},
            saturated_biases(candidate.graph),
            driver.findings
            + doubts_of(driver, missed)
            + real_ends(options, candidate.graph)
            + _never_varied(same)
            + _in_vain(driver, front, layers)
            + notes
            + recall_findings(measured.recalls)
            + _of_classes(driver, measured)
            + _untold(driver)
            + ([] if missed == [FOLLOWING] else little)
            + sample_advice(driver.limits, certainty, wanted),
            driver.making.steps,
            _choices(driver, candidate),
            [
                *_problems(driver, found, coverage, shares),
                *([] if data.made_up else lost),
                *silent,
                *(little if missed == [FOLLOWING] and not lost else ()),
                *_not_finite(driver, measured),
                *unreached(candidate.graph),
                *over,
            ],
            coverage | {"leaked_attention": shares},
            dict(certainty.intervals),
            wanted,
            inherent,
            front,
            likely_causes(driver, candidate.graph) if missed or lost or silent else [],
            data.made_up,
            data.seen,
            doubts,
        )
    )


def _samples(driver: Driver, same: Sequence[str]) -> dict[str, Any]:
    """How many samples there are for what, and what they do not show; inputs that are the ``same`` in all of them."""
    data, base, reference = driver.data, driver.base, driver.reference
    return {
        "chosen_by": data.known,
        "checked_on": reference.measurable,
        "outputs_vary": driver.outputs_vary,
        "stands_out": data.stands_out,
        "made_up": data.made_up,
        "same_inputs": list(same),
        "unreal_inputs": unreal_inputs(base.records, _input_keys(base.graph)),
        "one_sided": one_sided(base.graph, base.complete),
        "other_units": list(driver.differing_units),
        "labels_tell": None if reference.labels is None else reference.misfit is None,
    }


def _outputs(reference: Reference, measured: Measurement) -> list[dict[str, Any]]:
    """The measures of each output, and what it is."""
    return [
        {
            **found,
            "interval": reference.spans[place],
            "classifies": reference.classifies(place),
            "classes": reference.classes(place) if reference.classifies(place) else None,
        }
        for place, found in enumerate(measured.by_output())
    ]


def _input_keys(graph: Graph) -> list[TensorKey]:
    return [(0, info.name) for info in graph.input_infos() if info.info.kind == "float"]


def _inherent(driver: Driver, candidate: Candidate) -> dict[str, bool]:
    """Whether limits are missed on samples that ranges were chosen by too, by key: more of them change nothing.

    Nothing of samples to check on that took no part in that.
    """
    if driver.data.separate and driver.data.held is not driver.data.fit:
        return {}
    metrics = driver.reference.metrics(driver.making.measured_itself(candidate))
    return {limit.key: not limit.holds(metrics) for limit in driver.limits}


def _doubts(driver: Driver, certainty: Certainty, metrics: Measures) -> list[str]:
    """Limits that others may miss, where samples are few: the doubt then counts."""
    found = []
    for limit in certainty.doubtful(driver.limits, metrics):
        low, high = (quality_text(limit.metric, end) for end in certainty.intervals[limit.key])
        found.append(
            f"{certainty.count} samples are too few: {limit.name} keeps its limit on these, but is {low} to {high} "
            f"(95 %); give {FEWEST_TO_TRUST} or more"
        )
    return found


def _scheme_name(scheme: str, precision: str) -> str:
    """What the precision of a layer without weights is called: int16 is the same in the schemes that have it."""
    return "int16x8" if precision == "int16" and "int16x8" in (scheme, *ladder_of(scheme)) else precision


def _float_reasons(driver: Driver, candidate: Candidate) -> dict[str, str]:
    """Why operators stayed real, by name; of those that nobody asked for as float it was the search."""
    found = float_reasons(candidate.module)
    chosen = {name for name, choice in candidate.recipe.precisions if choice.precision == FLOAT}
    return found | dict.fromkeys(found.keys() & chosen - driver.asked_for, _SEARCHED)


def _coverage(driver: Driver, candidate: Candidate) -> Coverage:
    names = {"int16": _scheme_name(driver.options.scheme, "int16")}
    return coverage_of(candidate.graph, [np.shape(array) for array in driver.data.held[0]], names)


def _coverage_entry(driver: Driver, candidate: Candidate, found: Coverage) -> dict[str, Any]:
    """What is quantised and, with a target, what it runs: shares of all products, and of those that it could run."""
    entry: dict[str, Any] = found.to_dict() | {"least": driver.min_coverage}
    if driver.target is None:
        return entry
    plan = driver.target.judge(candidate.module, plan=True)
    placed, decides = driver.target.judge(candidate.module), driver.options.max_time_ms is not None
    time = driver.target.time(candidate.module, compiled=decides)
    return entry | {
        "target": {
            "name": driver.target.name,
            "runs": placed.share(),
            "runs_of_possible": None if driver.possible is None else placed.share(driver.possible),
            "planned": plan.share(),
            "time_ns": time.ns,
            "modelled": time.modelled,
            "on_host": _on_host(driver, candidate, plan),
        }
    }


def _on_host(driver: Driver, candidate: Candidate, plan: Placement) -> list[dict[str, str]]:
    """The layers that the target leaves to the host, called as in the float model."""
    graph, known = candidate.graph, {info.name: index for index, info in enumerate(driver.model.graph.tensors)}
    names = {graph.tensors[index].name: name for index, name in float_names(graph, known).items()}
    return [found | {"name": names.get(found["name"], found["name"])} for found in plan.on_host()]


def _never_varied(same: Sequence[str]) -> list[str]:
    """What to do about inputs that are the same in all samples, though outputs depend on them."""
    return [f"give samples in which input {name!r} varies as it does in use: outputs depend on it" for name in same]


def _of_classes(driver: Driver, measured: Measurement) -> list[str]:
    """What the limits of a classifier leave out: classes that no sample has, and values that labels do not score."""
    reference, found = driver.reference, []
    for place, name in enumerate(measured.names):
        is_told = place not in reference.places and not (driver.data.made_up or are_not_asked_for(driver, place))
        if reference.classifies(place) and is_told:
            scores = [outputs[place] for outputs in reference.outputs]
            missing = never_answered(name, scores, reference.classes(place) or scores[0].size)
            found += [] if missing is None else [missing]
    if reference.metric in PERCENT and all(limit.metric in OF_LABELS for limit in driver.limits):
        for name, r2 in zip(measured.names, measured.r2, strict=True):
            if r2 is not None and not FOLLOWING.allows(r2):
                found.append(
                    f"the values of output {name!r} are far from the float model's (R² {r2:.2f}): labels score which "
                    "class is the answer, and nothing else; use it for that alone, or limit --metric r2 instead"
                )
    return found


def _in_vain(driver: Driver, points: Sequence[Mapping[str, Any]], layers: Sequence[LayerError]) -> list[str]:
    """That other precisions were looked for, and do not help; ``points`` are those of the front."""
    if driver.widening is None or not driver.widening.is_in_vain or driver.making.is_cut_short:
        return []
    best = next((point for point in points if point["holds"]), None)
    if best is None:
        return ["no choice of precisions meets the limits"]
    schemes = {layer.name: layer.precision for layer in layers}
    options, text = driver.options, "no choice of precisions that {} meets the limits, others do"
    if options.has_budget and best["share"] >= driver.min_coverage:
        return [text.format("is within the budget")]
    if best["share"] < driver.min_coverage and leaves_some(best["precisions"], schemes, options.scheme):
        what = "quantised" if driver.target is None else f"to {driver.target.name}"
        return [text.format(f"leaves {100 * driver.min_coverage:g} % {what} (--min-coverage)")]
    return [text.format(f"leaves layers in {options.scheme}")]


def _front(driver: Driver, *, holds: bool) -> list[dict[str, Any]]:
    """What was measured with other precisions: the accuracy that time or bytes buy; empty where nothing was.

    ``search``: on samples held back, of models as they are, whose ranges know these too. The verdict is of models
    made without the samples, which would take eight more of these for each point: those that were ``confirmed``, all
    where no choice is good enough. Limits ``holds`` of the one that was chosen.
    """
    if driver.widening is None:
        return []
    widening, chosen = driver.widening, driver.widening.chosen
    points: list[dict[str, Any]] = []
    for tried in _spread(widening):
        module = tried.candidate.module
        plan = None if driver.target is None else driver.target.judge(module, plan=True)
        time = None if driver.target is None else driver.target.time(module)
        is_told = tried is chosen or widening.is_known(tried) or widening.is_in_vain
        holds_here = widening.confirmed(tried) if is_told else tried.holds(widening.limits)
        points.append(
            {
                "layers": len(tried.precisions),
                "precisions": dict(tried.precisions),
                "time_ns": None if time is None else time.ns,
                "modelled": time is not None and time.modelled,
                "bytes": driver.size(tried.candidate),
                "runs": None if plan is None else plan.share(),
                "share": driver.share(tried.candidate),
                "search": {metric: tried.measures.get(metric) for metric in _shown(driver)},
                "holds": holds if tried is chosen else holds_here,
                "confirmed": is_told,
                "chosen": tried is chosen,
            }
        )
    return distinct(points)


def distinct(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ``points`` without those that say the same as another, as precisions may change nothing; the chosen stays."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for point in points:
        time = None if point["time_ns"] is None else round(point["time_ns"] / 1e3)
        measures = (quality_text(metric, value) for metric, value in point["search"].items())
        says = (time, point["bytes"], point["runs"], point["share"], point["holds"], *measures)
        if says not in found or point["chosen"]:
            found[says] = point
    return list(found.values())


def _shown(driver: Driver) -> list[str]:
    """The measures that people look at: those that are limited, and the SQNR, which says the same in all units."""
    return list(dict.fromkeys([*(limit.key for limit in driver.limits), "sqnr_db"]))


def _spread(widening: Widening) -> list[Tried]:
    """A few of what was tried, from the fewest layers to the most: the plain model, the chosen one and others."""
    ordered = sorted(widening.tried.values(), key=lambda item: len(item.precisions))
    if len(ordered) <= _PRICED:
        return ordered
    places = {round(i * (len(ordered) - 1) / (_PRICED - 1)) for i in range(_PRICED)}
    wanted = [widening.chosen]
    if widening.is_in_vain:  # what would do, if it might be taken
        wanted.append(next((item for item in ordered if widening.is_known(item) and widening.confirmed(item)), None))
    return [item for place, item in enumerate(ordered) if place in places or any(item is one for one in wanted)]


def _problems(driver: Driver, found: Coverage, coverage: Mapping[str, Any], shares: Mapping[str, float]) -> list[str]:
    """What stands in the way of passing whatever the limits say."""
    problems = []
    scheme, target = driver.options.scheme, driver.target
    if driver.reference.constant:
        count = len(driver.reference.samples)
        what = "one sample says" if count == 1 else f"the outputs are the same for all {count} samples, which so say"
        problems.append(f"{what} nothing of accuracy")
    elif len(driver.reference.samples) == 1:
        of_both = driver.data.held is driver.data.fit
        what = "the only sample both chose the ranges and checked" if of_both else "a single sample checked"
        problems.append(f"{what} the model, which says nothing of others")
    # Who limits time or bytes takes any type that keeps them.
    others = (NARROWER.get(scheme, scheme), *with_wide_weights(scheme)[:-1])
    if not any(map(found.has, (scheme, *(others if driver.options.has_budget else ())))):
        moving = " but operators that only move values" if scheme in found.by_precision else ""
        problems.append(f"nothing{moving} is quantised to {scheme}")
    elif target is not None and driver.scheme_is_taken:
        share = coverage["target"]["runs_of_possible"]
        if share is None:
            problems.append(f"{target.name} can run nothing of the model")
        elif share < driver.min_coverage:
            narrow = overrides_text(dict.fromkeys(driver.narrow_alone, NARROW))
            problems.append(
                f"{target.name} runs {100 * share:.1f} % of the products that it could, at least "
                f"{100 * driver.min_coverage:g} % wanted"
                + (f"; --overrides {shlex.quote(narrow)} (in Python overrides) has it run more" if narrow else "")
            )
    elif (share := found.share()) is None or share < driver.min_coverage:
        unit = UNIT_NAMES[found.unit]
        text = "none" if share is None else f"{100 * share:.1f} %"
        problems.append(f"{text} of the {unit} are quantised, at least {100 * driver.min_coverage:g} % wanted")
    for name, share in shares.items():
        if share > _MOST_LEAKED:
            problems.append(f"{100 * share:.1f} % of the shares of SOFTMAX {name!r} lie where the float model has none")
            break
    return problems


def _lost_outputs(driver: Driver, candidate: Candidate, measured: Measurement) -> tuple[list[str], bool]:
    """What is said of outputs to which the mean over the samples, or zeros, would be as near as ``measured`` is.

    Also whether other samples might show more: these hardly vary the outputs, or ``candidate``, which knows them all,
    follows them.
    """
    reference, texts, lacking = driver.reference, list[str](), list[bool]()
    names = [reference.graph.tensors[index].name for index in reference.graph.outputs]
    lost, itself = lost_places(measured), driver.making.measured_itself(candidate)
    for place in lost:
        varies_by, known = reference.varies_slightly(place), not FOLLOWING.allows(itself.r2[place] or 0.0)
        shares = reference.are_shares(place)
        texts.append(lost_output_text(names[place], varies_by=varies_by, are_shares=shares, known=known))
        lacking.append(varies_by is not None or not known)
    for place, errors in enumerate(measured.outputs):
        if place not in lost and errors.sqnr_db is not None and errors.sqnr_db <= 0.0:
            seen = quality_text("sqnr_db", errors.sqnr_db)
            texts.append(f"the SQNR of output {names[place]!r} is {seen}: zeros would be as near")
            lacking.append(False)
    return texts, bool(lacking) and all(lacking)


def _silent(driver: Driver, candidate: Candidate, measured: Measurement) -> tuple[list[str], list[str]]:
    """Outputs that tell nothing of accuracy, and columns that are lost: what stands in the way, and what is noted.

    Columns are those of ``candidate``, of outputs of which ``measured`` tells something.
    """
    reference = driver.reference
    problems: list[str] = []
    notes: list[str] = []
    names = [reference.graph.tensors[index].name for index in reference.graph.outputs]
    for place, may_be in () if reference.constant else reference.untold():
        count = len(reference.samples)
        text = f"output {names[place]!r} is the same for all {count} samples, which so say nothing of it"
        (notes if may_be else problems).append(text if may_be else f"{text}: give some for which it varies")
    known, itself = lost_places(measured), driver.making.measured_itself(candidate)
    for place, every in enumerate(itself.lost):
        if place in known:
            continue
        notes.extend(blurred.text(names[place]) for blurred in itself.blurred[place])
        (problems if reference.has_own_columns(place) else notes).extend(lost.text(names[place]) for lost in every)
    for witness, found in driver.making.lost_witnesses(candidate)[:1]:
        is_clipped = candidate.recipe.ranges != MINMAX
        problems.append(lost_witness_text(names[witness.output], witness, found, is_clipped=is_clipped))
    return problems, notes


def _not_finite(driver: Driver, measured: Measurement) -> list[str]:
    """Samples of which one model makes a number and the other does not, and too few of which the float model does."""
    every, told, found = len(driver.reference.samples), driver.reference.measurable, []
    given = every + driver.data.left_out
    if measured.lacking:
        found.append(
            f"the quantised model lacks finite outputs of {measured.lacking} of {every} samples: these count as zeros"
        )
    if measured.exceeding:
        found.append(f"{measured.exceeding} of {every} samples have finite outputs in the quantised model alone")
    if told < _LEAST_TOLD * given:
        found.append(
            f"only {told} of {given} samples have finite outputs in the float model, which is too few for a verdict: "
            "give samples of which it makes numbers"
        )
    return found


def _untold(driver: Driver) -> list[str]:
    """That the float model makes no numbers of some samples, where that is not a problem."""
    told = driver.reference.measurable
    every = len(driver.reference.samples) + driver.data.left_out
    if not _LEAST_TOLD * every <= told < every:
        return []
    return [f"measures are of {told} of {every} samples: of the others the float model has outputs that are not finite"]


def _scores(driver: Driver, measured: Measurement) -> dict[str, Any] | None:
    """What both models score; of columns that are scored each by itself the one that loses most, and a list of all."""
    all_before, scored = driver.reference.scores, measured.scored
    if all_before is None or scored is None:
        return None
    worst = scored.worst
    before, after = (all_before, scored.after) if worst is None else (worst.before, worst.after)
    metric = next(iter(before))
    result: dict[str, Any] = {"metric": metric, "float": before[metric], "quantized": after[metric]}
    if metric in PERCENT:
        count = len(driver.reference.samples)
        result["intervals"] = {
            side: [100.0 * end for end in wilson(result[side] / 100.0, count)] for side in ("float", "quantized")
        }
    result |= scored.parts()
    others = {name: [before[name], after[name]] for name in before if name != metric}
    classes = [item.to_dict() for item in measured.recalls]
    return result | ({"others": others} if others else {}) | ({"classes": classes} if classes else {})


def _choices(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """What the model was made by, as it stands in the verdict."""
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
    told = ("max_bytes", "max_time_ms", *(("max_seconds",) if driver.making.is_cut_short else ()))
    budgets = {name: getattr(driver.options, name) for name in told}
    result |= {name: budget for name, budget in budgets.items() if budget is not None}
    return result | {"precisions": {name: choice.precision for name, choice in precisions.items()}}


def _normalized(recipe: Recipe) -> str:
    """The word of ``--normalize`` for what is normalised."""
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
