"""The search: from a float model and data to a quantised model with a verdict.

1. The model is optimised and folded; its ranges are recorded on three quarters of the samples.
2. With help: equalisation, ways to choose ranges, rounding of weights and correction of biases are tried one after the
   other on the samples held back. Each is kept only if it makes the outputs better.
3. The final ranges come from all samples. If the limits do not hold on those held back, layers are taken to more bits
   or to float (:mod:`.mixed`).
4. The verdict compares the result with the original float model on the samples held back.

Everything is deterministic: the same model, data and options give the same bytes, unless ``max_seconds`` cuts the
search short.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.quantizer.data import Data
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.mixed import ladder_of, plan_moves, search
from odc_mlir.quantizer.options import Options, Progress
from odc_mlir.quantizer.policy.precision import Choice
from odc_mlir.quantizer.policy.verdict import Evidence, LayerError, Limit, choose_limits, make_verdict
from odc_mlir.quantizer.stages import Builder, Candidate, FloatModel, Recipe, Statistics, equalized, float_reasons
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

LOG = logging.getLogger(__name__)

# A choice must improve the outputs by this much to be kept; one that often does harm, by more than what chance does.
LEAST_GAIN_DB = 0.1


_Measure = Callable[[Mapping[str, str]], tuple[Candidate, dict[str, float | None]]]


@dataclass
class Driver:
    """Quantises one model; ``steps`` tells what was tried and kept."""

    original: Graph
    base: FloatModel
    data: Data
    options: Options
    progress: Progress | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._builder = Builder(self.options, self.data.fit)
        self._start = time.monotonic()
        self._fixed: dict[str, Choice] = self.options.plan.resolve(_names(self.base))
        self._examinations: dict[int, Examination] = {}
        self.reference = Reference(self.original, self.data.held, self.data.labels)
        self.limits = self._limits()
        self.findings = list(self.data.findings)
        if self.data.fit and not self._builder.scheme.weights_only:
            self._record(self.base)
            self.findings += [str(finding) for finding in self.base.records.findings if finding.severity != "note"]
        self.model, self.statistics = self.base, self.base.fitted

    def _limits(self) -> tuple[Limit, ...]:
        return choose_limits(
            metric=self.options.metric,
            limit=self.options.limit,
            max_drop=self.options.max_drop,
            score=self.reference.metric,
            classifier=self.reference.classifies,
            samples=len(self.data.held),
        )

    # Choosing.

    def run(self) -> Candidate:
        """The best model that could be made within the limits, or the best at all; see :meth:`verdict`."""
        if self._builder.scheme.weights_only:
            return self._weights_only()
        model, recipe = self._choose()
        statistics = model.fitted if self.data.separate else model.complete
        candidate = self._builder.build(model, recipe, statistics)
        self.model, self.statistics = model, statistics
        if self.options.searches_precisions:
            candidate = self._widened(model, candidate, statistics)
        return candidate

    def _weights_only(self) -> Candidate:
        """Weights as codes, rounded by what samples show unless that does harm."""
        recipe = self._recipe()
        if self.data.fit:
            nothing = _Choice(self.base, recipe, float("-inf"))
            best = self._better(nothing, self.base, recipe, "rounding", recipe.rounding, gain_db=0.0)
            recipe = self._without_harm(best).recipe
        return self._builder.build(self.base, recipe, {})

    def _choose(self) -> tuple[FloatModel, Recipe]:
        """Try what help there is, one kind after the other, each on top of the best so far.

        Rounding by samples and corrected biases help as a rule: they are part of everything that is compared, and at
        last it is tried without.
        """
        models = {"none": self.base}
        best = _Choice(self.base, self._recipe(), float("-inf"))
        for kind in self.options.equalizations:
            model = self._equalized(models, kind)
            if model is not None:
                recipe = replace(best.recipe, equalize=kind)
                best = self._better(best, model, recipe, "equalize", kind, gain_db=LEAST_GAIN_DB)
        best = self._without_harm(self._ranged(best))
        return best.model, best.recipe

    def _ranged(self, best: _Choice) -> _Choice:
        """The choice with other ranges, if that is better. They are compared without refining codes, which is slow."""
        options, chance_db = self.options, self._chance_db
        if len(options.range_modes) == len(options.headrooms) == 1 or not self._in_time():
            return best
        model, plain = best.model, replace(best.recipe, rounding=False, correction=False)
        tried = self._better(_Choice(model, plain, float("-inf")), model, plain, "ranges", plain.ranges, gain_db=0.0)
        for mode in options.range_modes[1:]:
            tried = self._better(tried, model, replace(tried.recipe, ranges=mode), "ranges", mode, gain_db=chance_db)
        for part in options.headrooms[1:]:
            tried = self._better(
                tried, model, replace(tried.recipe, headroom=part), "headroom", part, gain_db=chance_db
            )
        found = replace(best.recipe, ranges=tried.recipe.ranges, headroom=tried.recipe.headroom)
        if found == best.recipe:
            return best
        value = f"{found.ranges}, headroom {found.headroom:g}"
        return self._better(best, model, found, "refined ranges", value, gain_db=LEAST_GAIN_DB)

    def _without_harm(self, best: _Choice) -> _Choice:
        """The choice without refined codes where those make the outputs clearly worse."""
        for switch in ("correction", "rounding"):
            if len(self.options.switched(getattr(self.options, switch))) > 1 and getattr(best.recipe, switch):
                off = (
                    replace(best.recipe, rounding=False)
                    if switch == "rounding"
                    else replace(best.recipe, correction=False)
                )
                best = self._better(best, best.model, off, switch, False, gain_db=self._chance_db)
        return best

    def _recipe(self) -> Recipe:
        """What is tried first."""
        options = self.options
        return Recipe(
            ranges=options.range_modes[0],
            range_options=tuple(sorted(options.range_options.items())),
            headroom=options.headrooms[0],
            rounding=bool(self.data.fit) and options.switched(options.rounding)[-1],
            correction=bool(self.data.fit) and options.switched(options.correction)[-1],
            precisions=tuple(sorted(self._fixed.items())),
        )

    def _equalized(self, models: dict[str, FloatModel], kind: str) -> FloatModel | None:
        """The model equalised in this way, recorded; None where that is no other model."""
        if kind not in models:
            # A model that nothing but ranges are known of cannot be recorded anew.
            found = equalized(self.base, kind, self.base.fitted) if self.data.fit else None
            if found is None:
                return None
            self._record(found)
            models[kind] = found
        return models[kind]

    def _record(self, model: FloatModel) -> None:
        """Give ``model`` records of all samples; raises OdcError."""
        self._say("recording ranges", 0, len(self.data.fit))
        executor = HostExecutor(model.graph)
        model.records = record(executor, self.data.fit)
        if not self.data.separate:
            model.held = record(executor, self.data.held)

    def _better(
        self, best: _Choice, model: FloatModel, recipe: Recipe, what: str, value: Any, *, gain_db: float
    ) -> _Choice:
        """The choice with this recipe if its outputs are better by ``gain_db`` than the best so far, else that."""
        first = best.quality_db == float("-inf")
        if not first and not self._in_time():
            return best
        try:
            candidate = self._builder.build(model, recipe, model.fitted)
            quality = self.reference.measure(candidate.graph).quality_db
        except OdcError:
            if first:
                raise
            LOG.info("%s=%s cannot be used", what, value, exc_info=True)
            return best
        kept = first or quality > best.quality_db + gain_db
        self.steps.append({"step": what, "value": value, "sqnr_db": quality, "kept": kept})
        self._say(f"{what} {value}: {quality:.2f} dB{', kept' if kept else ''}")
        return _Choice(model, recipe, quality) if kept else best

    @property
    def _chance_db(self) -> float:
        """One standard deviation of an SQNR that is estimated from as many values as decide the outputs here.

        The power of n independent errors varies by sqrt(2 / n) of itself.
        """
        return max(LEAST_GAIN_DB, 10.0 / math.log(10.0) * math.sqrt(2.0 / self.reference.decisive_elements))

    # More bits where they are needed.

    def _widened(self, model: FloatModel, candidate: Candidate, statistics: Statistics) -> Candidate:
        """``candidate``, or where limits do not hold one in which as few layers as possible have other precisions."""
        ladder = ladder_of(self.options.scheme)
        if not ladder or _all_hold(self.limits, self._metrics(candidate)):
            return candidate
        self._say("the limits do not hold; looking for layers that need more bits")
        tried: dict[tuple[tuple[str, Choice], ...], tuple[Candidate, dict[str, float | None]]] = {}

        def measure(precisions: Mapping[str, str]) -> tuple[Candidate, dict[str, float | None]]:
            recipe = candidate.recipe.with_precisions(precisions, self._fixed)
            if recipe.precisions not in tried:
                wider = self._builder.build(model, recipe, statistics)
                tried[recipe.precisions] = wider, self._metrics(wider)
                self._say(f"{len(precisions)} layers in other precisions", len(tried))
            return tried[recipe.precisions]

        moves = self._moves(model, candidate, statistics, ladder)
        # A model that needs help gets some to spare, for few samples are checked on; or just enough.
        for limits in (tuple(limit.with_margin() for limit in self.limits), self.limits):
            good_enough = partial(_keeps, measure, limits)
            found = search(moves, good_enough, in_time=self._in_time)
            if found is not None:
                chosen = dict(sorted(found.items()))
                self.steps.append({"step": "mixed", "value": chosen, "tried": len(tried), "kept": True})
                return measure(found)[0]
        LOG.warning("%s: no choice of precisions keeps the limits", self.original.name or "the model")
        return candidate

    def _moves(self, model: FloatModel, candidate: Candidate, statistics: Statistics, ladder: Sequence[str]) -> Any:
        examination = self._examination(model)
        narrow = [layer for layer in examination.layers(candidate.graph, accumulated=False) if self._may_move(layer)]
        wide: dict[str, list[LayerError]] = {}
        for step in ladder[:-1]:
            recipe = candidate.recipe.with_precisions({layer.name: step for layer in narrow}, self._fixed)
            try:
                all_wide = self._builder.build(model, recipe, statistics)
            except OdcError as error:
                LOG.info("layers cannot be taken to %s: %s", step, error)
                continue
            wide[step] = examination.layers(all_wide.graph, accumulated=False)
        return plan_moves(narrow, wide, examination.work(), ladder)

    def _may_move(self, layer: LayerError) -> bool:
        return layer.precision != "float" and layer.name not in self._fixed

    def _metrics(self, candidate: Candidate) -> dict[str, float | None]:
        """What limits are checked against."""
        return self.reference.metrics(self.reference.measure(candidate.graph))

    # Judging.

    def verdict(self, candidate: Candidate) -> dict[str, Any]:
        """The verdict over ``candidate``, see :func:`odc_mlir.quantizer.policy.verdict.make_verdict`."""
        measured = self.reference.measure(candidate.graph)
        examination = self._examination(self.model)
        layers = examination.layers(candidate.graph)
        return make_verdict(
            Evidence(
                self.limits,
                self.reference.metrics(measured),
                measured.by_output(),
                self._fake_quantized(candidate),
                self._scores(measured),
                layers,
                {layer.name: self._scheme_of(layer) for layer in layers},
                float_reasons(candidate.module),
                {
                    "chosen_by": len(self.data.fit) + (0 if self.data.separate else len(self.data.held)),
                    "checked_on": len(self.data.held),
                    "layers_examined_on": examination.samples,
                },
                saturated_biases(candidate.graph),
                self.findings,
                self.steps,
                self._choices(candidate),
            )
        )

    def _scheme_of(self, layer: LayerError) -> str:
        """The scheme of a layer; without weights, int16 is the same in the schemes that have it."""
        if layer.precision == "int16" and "int16x8" in (self.options.scheme, *ladder_of(self.options.scheme)):
            layer.precision = "int16x8"
        return layer.precision

    def _examination(self, model: FloatModel) -> Examination:
        if id(model) not in self._examinations:
            self._examinations[id(model)] = Examination(model.graph, self.data.held)
        return self._examinations[id(model)]

    def _fake_quantized(self, candidate: Candidate) -> dict[str, float | None] | None:
        """Measures with float arithmetic between quantised values; None where there is no such thing."""
        if self._builder.scheme.weights_only:
            return None
        graph = self._builder.fake_quantized(self.model, candidate, self.statistics)
        return self.reference.metrics(self.reference.measure(graph))

    def _scores(self, measured: Measurement) -> dict[str, Any] | None:
        before = self.reference.score
        if before is None or measured.score is None:
            return None
        return {"metric": before[0], "float": before[1], "quantized": measured.score[1]}

    def _choices(self, candidate: Candidate) -> dict[str, Any]:
        """What the model was made by, as it stands in the verdict."""
        scheme, recipe = self._builder.scheme, candidate.recipe
        result: dict[str, Any] = {"scheme": scheme.name, "granularity": scheme.granularity, "io": self.options.io}
        result |= {"rounding": recipe.rounding, "correction": recipe.correction}
        if not scheme.weights_only:
            result |= {
                "equalize": recipe.equalize,
                "ranges": recipe.ranges,
                "headroom": recipe.headroom,
                "precisions": {name: choice.precision for name, choice in recipe.precisions},
            }
        return result

    def _in_time(self) -> bool:
        most = self.options.max_seconds
        return most is None or time.monotonic() - self._start < most

    def _say(self, text: str, done: int = 0, total: int | None = None) -> None:
        LOG.info("%s", text)
        if self.progress is not None:
            self.progress(text, done, total)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The best so far."""

    model: FloatModel
    recipe: Recipe
    quality_db: float


def _keeps(measure: _Measure, limits: Sequence[Limit], precisions: Mapping[str, str]) -> bool:
    return _all_hold(limits, measure(precisions)[1])


def _all_hold(limits: Sequence[Limit], metrics: Mapping[str, float | None]) -> bool:
    return all(limit.holds(metrics) for limit in limits)


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


def _names(model: FloatModel) -> list[str]:
    """Every name that a layer can be asked for by."""
    graph = model.graph
    return [graph.tensors[i].name for i in (*graph.inputs, *(out for item in graph.nodes for out in item.outputs))]
