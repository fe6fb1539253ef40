"""The search: from a float model and data to a quantised model with a verdict.

1. The model is optimised and folded; its ranges are recorded on all samples.
2. With help: equalisation, rounding of weights, correction of biases and ways to choose ranges are tried one after the
   other on the samples held back. Each is kept only if it makes the outputs better, sample by sample, than chance
   would; ranges are those that the result will have, codes are rounded by the other samples.
3. If the limits do not hold on those held back, layers are taken to more bits or to float (:mod:`.widening`), where the
   target leaves a choice.
4. The verdict compares the result with the original float model on the samples held back (:mod:`.judging`); twins of it
   stand in for it, each made without the half of them that it is judged on.

Everything is deterministic: the same model, data and options give the same bytes, unless ``max_seconds`` cuts the
search short.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.quantities import counted
from odc_mlir.formats.visq import read as read_visq
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.coverage import LEAST_COVERAGE, LEAST_TARGET_COVERAGE, coverage_of
from odc_mlir.quantizer.data import Data
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.folds import Folds, HeldBack
from odc_mlir.quantizer.intervals import Judged
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.mixed import wider_values
from odc_mlir.quantizer.options import Options, Progress
from odc_mlir.quantizer.patterns import layers_of
from odc_mlir.quantizer.policy.precision import PrecisionChoice
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.verdict import Limit, choose_limits
from odc_mlir.quantizer.stages import (
    PARTS,
    Candidate,
    CandidateBuilder,
    FloatModel,
    Recipe,
    Statistics,
    equalized,
    layer_names,
    normalized,
)
from odc_mlir.quantizer.widening import Tried, Widening, outputs_db
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement, TargetRules

LOG = logging.getLogger(__name__)

# A choice must improve the outputs by this much to be kept, and by more than what chance does.
LEAST_GAIN_DB = 0.1

# Beyond that many multiply-accumulates codes are not refined by the samples held back as well.
_MOST_REFINING_MACS = 4 << 30

# Beyond how many multiply-accumulates models are not made anew to judge all samples.
_MOST_JUDGING_MACS = 1 << 30


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
        self._builder = CandidateBuilder(self.options, self.data.fit)
        self._start = time.monotonic()
        self._made = self._foreseen = 0  # models, for who waits
        self.findings = list(self.data.findings)
        self._fixed = self._fixed_precisions()
        self._examinations: dict[int, Examination] = {}
        self._known_errors = self._errors_told()
        self.reference = Reference(self.original, self.data.held, self.data.labels)
        self._held_back = HeldBack(self.options, self.data, self.reference, self._say)
        self.limits = self._limits()
        if self.reference.scores is not None and not self.reference.is_telling:
            self.findings.append(
                f"the {counted(len(self.data.held), 'label')} fit what the float model answers no better than luck may "
                "have it, so that scores by them say nothing; give right ones, or more of them"
            )
        if self.data.fit:
            self._record(self.base)
            self.findings += [str(finding) for finding in self.base.records.findings if finding.severity != "note"]
        self.model, self.statistics = self.base, self._statistics(self.base)
        self.target = None if self.options.target is None else _rules(self.options.target)
        self.plain: Placement | None = None
        self.widening: Widening | None = None
        self._plain: _BestCandidate | None = None  # what was tried first
        self._rounding_helps = False  # on the average, if not beyond doubt

    def _fixed_precisions(self) -> dict[str, PrecisionChoice]:
        """Precisions that the user chose; parameters are given for codes of the scheme, or of what is chosen."""
        names = _names(self.base)
        given = {*self.options.parameters, *self.options.copied_parameters}.intersection(names)
        found = dict.fromkeys(sorted(given), PrecisionChoice(self.options.scheme))
        for pattern in self.options.patterns:
            layers = layers_of(self.base.graph, pattern)
            found |= dict.fromkeys(layers, PrecisionChoice(wider_values(self.options.scheme)))
            if not layers:
                self.findings.append(f"the pattern {pattern} is nowhere in the optimised model")
        return found | self.options.plan.resolve(names)

    def _errors_told(self) -> tuple[str, Mapping[str, float]] | None:
        """Metric and errors of layers that a file holds; raises OptionError for one of another model."""
        file = self.options.visq_file
        if file is None:
            return None
        metric, errors = read_visq(file)
        if errors.keys().isdisjoint(layer_names(self.base.module)):
            raise OptionError("the errors are of no layer of the optimised model", location=file)
        return metric, errors

    def _limits(self) -> tuple[Limit, ...]:
        return choose_limits(
            metric=self.options.metric,
            limit=self.options.limit,
            max_drop=self.options.max_drop,
            score=self.reference.metric,
            is_telling=self.reference.is_telling,
            classifier=self.reference.classifier,
            samples=len(self.data.held),
        )

    @property
    def scheme_is_taken(self) -> bool:
        """Whether there is a target that computes with values of the model's scheme."""
        return self.target is not None and self.target.takes(self.options.scheme)

    @property
    def min_coverage(self) -> float:
        """The least share of the products that must be quantised or, with a target, be run by it.

        Who asks for a type that the target does not compute with knows that it will not.
        """
        if self.options.min_coverage is not None:
            return self.options.min_coverage
        return LEAST_TARGET_COVERAGE if self.scheme_is_taken else LEAST_COVERAGE

    # Choosing.

    def run(self) -> Candidate:
        """The best model that could be made within the limits, or the best at all."""
        self._foreseen = self._models_to_make()
        if self._builder.scheme.weights_only:
            return self._weights_only()
        best = self._choose()
        self.model, self.statistics = best.model, self._statistics(best.model)
        candidate = best.candidate
        if self.target is not None:
            # What it could run, whatever the user asks for; codes as they are decide nothing there.
            recipe = replace(best.recipe, precisions=(), rounding=False, correction=False)
            free = self._builder.build(best.model, recipe, self.statistics) if self._fixed else candidate
            self.plain = self.target.judge(free.module)
        if self.options.searches_precisions:
            candidate = self._widened(best, candidate)
        return candidate

    def _weights_only(self) -> Candidate:
        """Weights as codes, rounded by what samples show where that helps."""
        if not self.data.fit:
            return self._builder.build(self.base, replace(self._recipe(), fitted=self.options.help), {})
        model, recipe = self._root()
        best = self._first(model, recipe, "codes", "nearest")
        if self.options.help:
            best = self._better(best, model, replace(recipe, fitted=True), "scales", "fitted")
        best = self._refit(self._refined(best))
        self.model, self.statistics = best.model, {}
        return self._widened(best, best.candidate) if self.options.searches_precisions else best.candidate

    def _choose(self) -> _BestCandidate:
        """Try what help there is, one kind after the other, each on top of the best so far."""
        root, recipe = self._root()
        models = {"none": root}
        kinds = [kind for kind in self.options.equalizations if self._equalized(models, kind) is not None]
        if not kinds:
            self.findings.append(f"equalize {self.options.equalize} changes nothing: no pair of layers it could change")
            kinds = ["none"]
        best = self._first(models[kinds[0]], replace(recipe, equalize=kinds[0]), "equalize", kinds[0])
        for kind in kinds[1:]:
            best = self._better(best, models[kind], replace(best.recipe, equalize=kind), "equalize", kind)
        # Rounding and corrections last: of channels that one scale cannot hold they say nothing. What did not help is
        # tried again with other ranges.
        best = self._refined(best)
        if best.recipe.rounding or best.recipe.correction:  # which shows gains that noise of weights hid before
            for kind in kinds:
                if kind != best.recipe.equalize:
                    self._foreseen += 1
                    recipe = replace(best.recipe, equalize=kind)
                    best = self._better(best, models[kind], recipe, "refined equalize", kind)
        ranged = self._ranged(best)
        return self._refit(best if ranged is best else self._refined(ranged))

    def _root(self) -> tuple[FloatModel, Recipe]:
        """The float model to start from, whose inputs are normalised where that helps, and the recipe for it."""
        recipe, states = self._recipe(), self.options.switched(self.options.normalization)
        # who gives codes has lost already what a normalisation could keep
        asks = states[-1] and self.options.io == FLOAT and bool(self.data.fit)
        found = normalized(self.base, self.data.fit) if asks else None
        if found is None:
            if states[0]:
                self.findings.append("normalize on changes nothing: no input has channels that differ in size")
            return self.base, recipe
        self._record(found)
        chosen = replace(recipe, normalize=True)
        if states[0]:
            return found, chosen
        best = self._first(self.base, recipe, "normalize", False)
        best = self._better(best, found, chosen, "normalize", True)
        return best.model, best.recipe

    def _refined(self, best: _BestCandidate) -> _BestCandidate:
        """The choice with weights rounded by samples, and with corrected biases, where each helps and is not done."""
        options = self.options
        if self.data.fit and not best.recipe.rounding and len(options.switched(options.rounding)) > 1:
            before = best.measured.quality_db
            best = self._better(best, best.model, replace(best.recipe, rounding=True), "rounding", True)
            last = self.steps[-1]
            self._rounding_helps = last["step"] == "rounding" and last["quality_db"] >= before
        if self.data.fit and not best.recipe.correction and len(options.switched(options.correction)) > 1:
            best = self._better(best, best.model, replace(best.recipe, correction=True), "correction", True)
        return self._refined_by_all(best)

    def _refined_by_all(self, best: _BestCandidate) -> _BestCandidate:
        """The choice with both where neither helps alone: what the samples held back leave in doubt, all of them tell.

        Ranges are those of the result. The models that judge lack samples to refine codes by, nothing else.
        """
        switches = (self.options.rounding, self.options.correction)
        recipe = replace(best.recipe, rounding=True, correction=True)
        refined = best.recipe.rounding or best.recipe.correction
        fixed = any(len(self.options.switched(switch)) == 1 for switch in switches)
        if refined or fixed or self._folds is None or not self._in_time():
            return best
        try:
            made = self._built(best.model, recipe)
            kept = made.measured.better_than(best.measured, LEAST_GAIN_DB)
            if not kept and made.measured.quality_db > best.measured.quality_db and self._in_time():
                self._say("judging on all samples")
                statistics = self._statistics(best.model)
                ours, theirs = (self._folds.measure(best.model, each, statistics) for each in (recipe, best.recipe))
                kept = ours.better_than(theirs, LEAST_GAIN_DB)
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return best
        self._noted(made, "rounding, correction", True, kept=kept)
        return made if kept else best

    def _refit(self, best: _BestCandidate) -> _BestCandidate:
        """The choice with codes refined by all samples, where those not held back are few: each one more counts.

        In large models each sample gives many rows to refine by, and takes long.
        """
        samples = len(self.data.fit) + len(self.data.held)
        if self.data.separate or samples * self.examination(best.model).macs > _MOST_REFINING_MACS:
            return best
        if not self._builder.add_samples(self.data.held):
            return best
        candidate = self._builder.build(best.model, best.recipe, self._statistics(best.model))
        self._say("refined by all samples", made=1)
        return replace(best, candidate=candidate)

    def _ranged(self, best: _BestCandidate) -> _BestCandidate:
        """The choice with other ranges, if that is better. They are compared without refining codes, which is slow."""
        options = self.options
        if len(options.range_modes) == 1 or not self._in_time():
            return best
        model, plain = best.model, replace(best.recipe, rounding=False, correction=False)
        tried = self._first(model, plain, "ranges", plain.ranges)
        for mode in options.range_modes[1:]:
            tried = self._better(tried, model, replace(tried.recipe, ranges=mode), "ranges", mode)
        found = replace(best.recipe, ranges=tried.recipe.ranges)
        if found in (best.recipe, tried.recipe):
            return best if found == best.recipe else tried
        return self._better(best, model, found, "refined ranges", found.ranges)

    def _recipe(self) -> Recipe:
        """What is tried first."""
        options = self.options
        return Recipe(
            ranges=options.range_modes[0],
            range_options=tuple(sorted(options.range_options.items())),
            headroom=options.chosen_headroom,
            rounding=bool(self.data.fit) and options.switched(options.rounding)[0],
            correction=bool(self.data.fit) and options.switched(options.correction)[0],
            precisions=tuple(sorted(self._fixed.items())),
        )

    def _equalized(self, models: dict[str, FloatModel], kind: str) -> FloatModel | None:
        """The model equalised in this way, recorded; None where that is no other model."""
        if kind not in models:
            # A model that nothing but ranges are known of cannot be recorded anew.
            root = models["none"]
            found = equalized(root, kind, root.fitted) if self.data.fit else None
            if found is None:
                return None
            self._record(found)
            models[kind] = found
        return models[kind]

    def _record(self, model: FloatModel) -> None:
        """Give ``model`` records of all samples; raises OdcError."""
        if self._builder.scheme.weights_only:
            return
        self._say("recording ranges")
        executor = HostExecutor(model.graph)
        model.records = record(executor, self.data.fit)
        if not self.data.separate:
            parts = min(PARTS, len(self.data.held))
            model.held = [record(executor, self.data.held[part::parts]) for part in range(parts)]

    def _statistics(self, model: FloatModel) -> Statistics:
        """What ranges of ``model`` are chosen by: all samples. What is judged has the ranges of the result."""
        return model.fitted if self.data.separate else model.complete

    def _first(self, model: FloatModel, recipe: Recipe, what: str, value: Any) -> _BestCandidate:
        """The choice that others are compared with."""
        choice = self._plain
        if choice is None or choice.model is not model or choice.recipe != recipe:
            choice = self._built(model, recipe)
        self._plain = self._plain or choice
        return self._noted(choice, what, value, kept=True)

    def _built(self, model: FloatModel, recipe: Recipe) -> _BestCandidate:
        """What ``recipe`` makes of ``model``, measured; raises OdcError."""
        candidate = self._builder.build(model, recipe, self._statistics(model))
        return _BestCandidate(model, recipe, candidate, self.measured(candidate))

    def measured(self, candidate: Candidate) -> Measurement:
        """How far the candidate is from the float model on the samples held back, measured once."""
        if candidate.measured is None:
            candidate.measured = self.reference.measure(candidate.graph)
        return candidate.measured

    def _better(self, best: _BestCandidate, model: FloatModel, recipe: Recipe, what: str, value: Any) -> _BestCandidate:
        """The choice with this recipe if its outputs are better than those of the best so far, else that."""
        if not self._in_time():
            return best
        try:
            found = self._built(model, recipe)
        except OdcError:
            LOG.info("%s=%s cannot be used", what, value, exc_info=True)
            return best
        kept = found.measured.better_than(best.measured, LEAST_GAIN_DB) and self._holds_others(found, best)
        self._noted(found, what, value, kept=kept)
        return found if kept else best

    def _holds_others(self, choice: _BestCandidate, best: _BestCandidate) -> bool:
        """Whether other ranges or channels hold samples that they were not chosen by as well as those of ``best``.

        Channels that are all as large as the largest, and ranges that clip, leave less room for what was not seen.
        """
        is_same = choice.model is best.model and choice.recipe.ranges == best.recipe.ranges
        if is_same or self.data.separate:  # samples that chose nothing have judged both already
            return True
        self._foreseen += len(choice.model.held) + len(best.model.held)
        # The one so far first: it was judged last if it was the last to be kept.
        theirs, ours = (self._held_back.measure(each.model, each.candidate) for each in (best, choice))
        return not theirs.better_than(ours, LEAST_GAIN_DB)

    def _noted(self, choice: _BestCandidate, what: str, value: Any, *, kept: bool) -> _BestCandidate:
        quality = choice.measured.quality_db
        self.steps.append({"step": what, "value": value, "quality_db": quality, "kept": kept})
        self._say(f"{what} {value}: {quality:.2f} dB{', kept' if kept else ''}", made=1)
        return choice

    # More bits where they are needed.

    def _widened(self, best: _BestCandidate, candidate: Candidate) -> Candidate:
        """``candidate``, or where limits do not hold one in which as few layers as possible have other precisions."""
        model, first, plain = best.model, candidate.recipe, self._plain
        assert plain is not None

        def build(precisions: Mapping[str, str], refines: bool, holds_all: bool) -> Candidate:
            recipe = first.with_precisions(precisions, self._fixed)
            if holds_all:
                recipe = replace(recipe, ranges=plain.recipe.ranges)
            if refines:
                recipe = replace(recipe, rounding=True, correction=True)
            self._foreseen, self._made = self._foreseen + 1, self._made + 1
            return self._builder.build(model, recipe, self.statistics)

        self.widening = Widening(
            self.options,
            self.limits,
            self._fixed,
            self.examination(model),
            build,
            self._tried,
            self._holds_unseen,
            file_bytes,
            self.share,
            self.min_coverage,
            self._in_time,
            self._say,
            self.target,
            self.plain,
            outputs_db(self.measured(plain.candidate)),
            layer_names(model.module),
            self._rounding_helps and len(self.options.switched(self.options.correction)) > 1,
            first.ranges != plain.recipe.ranges,
            self._known_errors,
            steps=self.steps,
        )
        found = self.widening.run(candidate)
        if found is candidate or found.recipe.correction or len(self.options.switched(self.options.correction)) == 1:
            return found
        return self._corrected(_BestCandidate(model, found.recipe, found, self.measured(found)))

    def _corrected(self, choice: _BestCandidate) -> Candidate:
        """The choice with corrected biases, where that helps and limits still hold: wide values show more of it."""
        recipe = replace(choice.recipe, correction=True)
        better = self._better(choice, choice.model, recipe, "mixed, correction", True)
        most = self.options.max_bytes
        if better is choice or (most is not None and file_bytes(better.candidate) > most):
            return choice.candidate
        old, new = (self._tried({}, item.candidate).holds(self.limits) for item in (choice, better))
        return better.candidate if new or not old else choice.candidate

    def share(self, candidate: Candidate) -> float:
        """The part of the model that coverage is about: what is not float, or what the target runs of what it could."""
        if self.plain is not None and self.target is not None and self.scheme_is_taken:
            found = self.target.judge(candidate.module).share(self.plain.taken())
        else:
            shapes = [np.shape(array) for array in self.data.held[0]]
            found = coverage_of(candidate.graph, shapes, {}).share()
        return 0.0 if found is None else found

    def _tried(self, precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        measured = self.measured(candidate)
        return Tried(precisions, candidate, self.reference.metrics(measured), outputs_db(measured))

    def _holds_unseen(self, candidate: Candidate) -> bool:
        """Whether limits hold as the verdict measures them."""
        metrics = self.reference.metrics(self.measured_unseen(candidate))
        return all(limit.holds(metrics) for limit in self.limits)

    def measured_unseen(self, candidate: Candidate) -> Measurement:
        """How far models made as ``candidate`` is are from the float one on samples that they were not made by."""
        return self._held_back.measure(self.model, candidate)

    def examination(self, model: FloatModel) -> Examination:
        """What tells which layers of ``model`` lose accuracy."""
        if id(model) not in self._examinations:
            self._examinations[id(model)] = Examination(model.graph, self.data.held)
        return self._examinations[id(model)]

    def fake_quantized(self, candidate: Candidate) -> dict[str, float | None] | None:
        """Measures with float arithmetic between quantised values; None where there is no such thing."""
        if self._builder.scheme.weights_only:
            return None
        graph = self._builder.fake_quantized(self.model, candidate, self.statistics)
        return self.reference.metrics(self.reference.measure(graph))

    def judged(self, candidate: Candidate) -> Judged | None:
        """All samples, each judged by a model made as ``candidate`` is, but without it; None for large models.

        Recorded ranges and samples that take no part in choosing need no such thing.
        """
        if self._folds is None or not self._in_time():
            return None
        self._say("judging on all samples", made=self._folds.count)
        try:
            found = self._folds.measure(self.model, candidate.recipe, keep=True)
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return None
        return Judged(self._folds.reference.outputs, found.reals)

    @cached_property
    def _folds(self) -> Folds | None:
        """What judges all samples; None where that says no more, or where the model is too large."""
        data = self.data
        samples = data.fit if data.held is data.fit else [*data.fit, *data.held]
        if (data.separate and data.held is not data.fit) or len(samples) < 2 or self._builder.scheme.weights_only:
            return None
        is_large = len(samples) * self.examination(self.base).macs > _MOST_JUDGING_MACS
        return None if is_large else Folds(self.original, samples, self.options)

    def _in_time(self) -> bool:
        most = self.options.max_seconds
        return most is None or time.monotonic() - self._start < most

    def _say(self, text: str, made: int = 0) -> None:
        """Tell what is being done, and how many models are made of those that are foreseen."""
        LOG.info("%s", text)
        self._made += made
        if self.progress is not None:
            self.progress(text, self._made, max(self._foreseen, self._made) or None)

    def _models_to_make(self) -> int:
        """How many models are made, those that judge included, if no layer needs more bits; none for weights alone."""
        if self._builder.scheme.weights_only:
            return 0
        options, fit, held = self.options, bool(self.data.fit), len(self.base.held)
        switches = (options.rounding, options.correction)
        tried = sum(len(options.switched(switch)) - 1 for switch in switches) if fit else 0
        ranges = len(options.range_modes) if len(options.range_modes) > 1 else 0
        return (
            tried + len(options.equalizations) + ranges + 1 + held + (0 if self._folds is None else self._folds.count)
        )


@dataclass(frozen=True, slots=True)
class _BestCandidate:
    """The best so far."""

    model: FloatModel
    recipe: Recipe
    candidate: Candidate
    measured: Measurement


def _rules(name: str) -> TargetRules:
    """The rules of a target: only who names one waits for the NPU's back end to be imported."""
    from odc_mlir.quantizer.target import TargetRules

    return TargetRules(name)


def file_bytes(candidate: Candidate) -> int:
    """The length of the candidate's Circle file."""
    return len(write_model(export_model(candidate.module)))


def _names(model: FloatModel) -> list[str]:
    """Every name that a layer can be asked for by."""
    graph = model.graph
    return [graph.tensors[i].name for i in (*graph.inputs, *(out for item in graph.nodes for out in item.outputs))]
