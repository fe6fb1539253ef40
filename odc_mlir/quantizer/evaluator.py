"""Evaluation of candidates: measures on held-back samples, and cross-validation over all samples.

A model has seen the samples that its ranges were chosen by; on them nothing is clipped. Cross-validation therefore
builds models by the same recipe, each without a part of the samples, and measures each on the part it lacks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from odc_mlir.calibration.recorded import joined
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.candidates import MOST_REFINING, CandidateBuilder
from odc_mlir.quantizer.intervals import Certainty, intervals_of
from odc_mlir.quantizer.layers import Coverage, Examination, coverage_of
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe
from odc_mlir.quantizer.outputs import output_ends
from odc_mlir.quantizer.policy.options import Options, Progress
from odc_mlir.quantizer.policy.ranges import Statistics
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.refinement import Learner, RefinementCache, learn
from odc_mlir.quantizer.samples import Data
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

LOG = logging.getLogger(__name__)

# Numbers of models in cross-validation: for choices, and for verdicts, where each model knows more of what the result
# knows. The held-back samples are divided into halves.
FOLDS, JUDGES, HALVES = 4, 8, 2
_MOST_JUDGING_MACS = 1 << 30  # of all samples: cross-validation of larger models takes minutes


class JudgementCache:
    """Cache of the last judgements, so that the best candidate is not judged again for each comparison.

    ``judge`` returns measures and whether they are of fold models: those are the same for each candidate of the recipe.
    """

    def __init__(self, judge: Callable[[FloatModel, Candidate], tuple[Measurement, bool]]) -> None:
        self._judge = judge
        self._last: list[tuple[FloatModel, Candidate, Measurement, bool]] = []

    def measure(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """Return the measures of the candidate, judged now or before."""
        most_known = 3  # the best candidate so far, and the last two that were compared with it

        def is_of(known: tuple[FloatModel, Candidate, Measurement, bool]) -> bool:
            is_alike = known[3] and known[0] is model and known[1].recipe == candidate.recipe
            return known[1] is candidate or is_alike

        found = next(filter(is_of, self._last), None)
        others = [known for known in self._last if known is not found]
        found = found or (model, candidate, *self._judge(model, candidate))
        self._last = [*others[-most_known + 1 :], found]
        return found[2]


@dataclass
class _Shown:
    """Statistics of ``model`` without each fold, and refined codes by the number of folds."""

    model: FloatModel
    statistics: list[Statistics] = field(default_factory=list)
    known: dict[int, list[RefinementCache]] = field(default_factory=dict)


@dataclass
class Folds:
    """Cross-validation over the samples of ``reference``, calibration samples included.

    Each model lacks the samples that it is measured on. This tells more than the held-back samples, and takes longer.
    """

    reference: Reference
    options: Options
    _shown: _Shown | None = field(default=None, init=False, repr=False)

    def count(self, most: int) -> int:
        """Return the number of folds if ``most`` are wanted: at most one for each sample."""
        return min(most, len(self.reference.samples))

    def measure(self, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Measurement:
        """Measure :data:`FOLDS` models with ranges by ``statistics`` that refine codes without the samples of a fold.

        Raises OdcError where one cannot be built.
        """
        return self.reference.measure(*self._without(model, recipe, [statistics] * self.count(FOLDS)))

    def judge(self, model: FloatModel, recipe: Recipe) -> Measurement:
        """Measure :data:`JUDGES` models that do not know the samples of a fold at all; outputs are kept."""
        return self.reference.measure(*self._without(model, recipe, self._statistics(model)), keep=True)

    def _without(self, model: FloatModel, recipe: Recipe, statistics: Sequence[Statistics]) -> list[Graph]:
        """Return models with ranges by ``statistics``, each without the samples of one fold."""
        samples, count = self.reference.samples, len(statistics)
        runs = [[run for run in range(len(samples)) if run % count != fold][:MOST_REFINING] for fold in range(count)]
        # Codes refined by all samples are not for these.
        known = self._shown_by(model).known.setdefault(count, [RefinementCache() for _ in runs])
        builders = [CandidateBuilder(self.options, [samples[run] for run in own]) for own in runs]
        parts = list(zip(builders, statistics, known, strict=True))
        if recipe.rounding or recipe.correction:
            plain = [builder.unrefined(model, recipe, found).graph for builder, found, _ in parts]
            learners = [
                Learner.of(model.graph, *part, rounding=recipe.rounding)
                for part in zip(plain, runs, known, strict=True)
            ]
            with suppress(UnsupportedError):  # logged where codes are refined
                learn(model.graph, learners, samples[: 1 + max(map(max, runs))])
        return [builder.build(model, recipe, found, shown).graph for builder, found, shown in parts]

    def _shown_samples(self, fold: int, count: int) -> Sequence[Sequence[Array]]:
        samples, rollout = self.reference.samples[fold::count], self.reference.rollout
        return samples if rollout is None else rollout.with_given(samples)

    def _shown_by(self, model: FloatModel) -> _Shown:
        if self._shown is None or self._shown.model is not model:
            self._shown = _Shown(model)
        return self._shown

    def _statistics(self, model: FloatModel) -> list[Statistics]:
        """Return the statistics of all samples without each fold."""
        shown = self._shown_by(model)
        if not shown.statistics:
            executor, count = HostExecutor(model.graph), self.count(JUDGES)
            records = [record(executor, self._shown_samples(fold, count)) for fold in range(count)]
            others = (joined([*records[:fold], *records[fold + 1 :]]) for fold in range(count))
            shown.statistics = [found.statistics() for found in others]
        return shown.statistics


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with its float model, recipe and measures."""

    model: FloatModel
    recipe: Recipe
    candidate: Candidate
    measured: Measurement


class Evaluator:
    """Builder and judge of candidates of ``original``, optimised as ``base``.

    ``reference`` holds the held-back samples of ``data``, by which choices are made. ``judging`` holds the samples of
    the verdict: all, unless the model is large. ``steps``: log of the search; ``foreseen``: expected number of models,
    for progress; ``is_cut_short``: time was up before everything was tried.
    """

    def __init__(
        self, original: Graph, base: FloatModel, data: Data, options: Options, progress: Progress | None
    ) -> None:
        self.base, self.data, self.options = base, data, options
        self.builder, self._folds_builder = CandidateBuilder(options, data.fit), CandidateBuilder(options, data.fit)
        self.steps: list[dict[str, Any]] = []
        self.foreseen = 0
        self.is_cut_short = False
        self._original, self._progress = original, progress
        self._start, self._made = time.monotonic(), 0
        self._examinations: dict[int, Examination] = {}
        self.judging, self.reference = self._references()
        self._unseen, self._by_halves = JudgementCache(self._judged), JudgementCache(self._judged_by_halves)
        self._certainty: tuple[Candidate, Certainty] | None = None  # of the last candidate

    def _references(self) -> tuple[Reference, Reference]:
        """Return the references of verdicts and of choices; raise InputError for labels that cannot be right."""
        data, lacks_labels = self.data, self.data.labels is not None and self.data.fit_labels is None
        if data.separate or lacks_labels or not self._has_judges:
            reference = Reference(
                self._original, data.held, data.labels, metric=self.options.metric, rollout=data.rollout
            )
            _check_labels(self._original, data)
            return reference, reference
        samples, labels = [*data.fit, *data.held], data.labels
        if data.rollout is None:
            order = np.random.default_rng(1).permutation(data.known)  # samples that take turns are in every fold
        else:
            order = data.rollout.in_blocks(samples, JUDGES)
        if labels is not None:
            assert data.fit_labels is not None
            labels = np.concatenate([data.fit_labels, labels])[order]
        every = [samples[i] for i in order]
        judging = Reference(self._original, every, labels, metric=self.options.metric, rollout=data.rollout)
        if judging.labels is not None:
            labels = judging.labels[np.argsort(order)][len(data.fit) :]
        return judging, Reference(self._original, data.held, labels, like=judging)

    def record(self, model: FloatModel) -> None:
        """Record the ranges of ``model`` on all samples; raise OdcError."""
        if self.builder.scheme.weights_only:
            return
        self.say("recording ranges")
        executor = HostExecutor(model.graph)
        model.records = record(executor, self.data.shown(self.data.fit))
        if not self.data.separate:
            parts = min(HALVES, len(self.data.held))
            model.held = [record(executor, self.data.shown(self.data.held[part::parts])) for part in range(parts)]

    def statistics_of(self, model: FloatModel) -> Statistics:
        """Return the statistics of all samples, which choose the final ranges of ``model``."""
        return model.fitted if self.data.separate else model.complete

    def built(self, model: FloatModel, recipe: Recipe) -> MeasuredCandidate:
        """Build and measure the candidate of ``recipe``; raise OdcError."""
        candidate = self.builder.build(model, recipe, self.statistics_of(model))
        return MeasuredCandidate(model, recipe, candidate, self.measured(candidate))

    def measured(self, candidate: Candidate) -> Measurement:
        """Return the errors of the candidate on the held-back samples."""
        if candidate.measured is None:
            candidate.measured = self.reference.measure(candidate.graph)
        return candidate.measured

    def measured_unseen(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """Return the errors of models built like the candidate on the verdict's samples, which they do not know.

        Where samples cannot be left out, the candidate itself is measured.
        """
        return (self._unseen if self._judges_all else self._by_halves).measure(model, candidate)

    @property
    def judges(self) -> int:
        """Number of models that :meth:`measured_unseen` builds."""
        return JUDGES if self._judges_all else HALVES

    def _judged(self, model: FloatModel, candidate: Candidate) -> tuple[Measurement, bool]:
        assert self.folds is not None
        self.say("judging on all samples", made=JUDGES)
        try:
            return self.folds.judge(model, candidate.recipe), True
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return self.judging.measure(candidate.graph, keep=True), True

    def measured_itself(self, candidate: Candidate) -> Measurement:
        """Return the errors of ``candidate``, which knows all samples, on the verdict's samples."""
        if not self._judges_all:
            return self.measured(candidate)
        if candidate.measured_itself is None:
            candidate.measured_itself = self.judging.measure(candidate.graph, keep=True)
        return candidate.measured_itself

    def measured_by_halves(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """Measure models without half of the held-back samples on that half; outputs are kept.

        Two such models are worse than the result will be, by what half of the held-back samples tell: in choosing,
        prudence is worth more than the truth. The candidate itself is measured where samples take no part in building
        it, or cannot be left out.
        """
        return self._by_halves.measure(model, candidate)

    def _judged_by_halves(self, model: FloatModel, candidate: Candidate) -> tuple[Measurement, bool]:
        data, recipe, builder = self.data, candidate.recipe, self._folds_builder
        fold_models: list[Candidate] = []
        if data.fit and not data.separate:
            if not builder.scheme.weights_only:
                fold_models = self._half_models(model, recipe)
            elif recipe.rounding or recipe.correction:  # refined without the held-back samples
                fold_models = [builder.build(model, recipe, {})]
        graphs = [fold_model.graph for fold_model in fold_models or [candidate]]
        return self.reference.measure(*graphs, keep=True), bool(fold_models)

    def _half_models(self, model: FloatModel, recipe: Recipe) -> list[Candidate]:
        """Return models of ``recipe`` without one recorded part each; none where they cannot be built."""
        parts = len(model.held)
        if parts < 2:
            return []
        self.say("judging on samples held back", parts)
        try:
            return [self._folds_builder.build(model, recipe, model.without(part)) for part in range(parts)]
        except OdcError:
            LOG.info("the model cannot be made without the samples held back", exc_info=True)
            return []

    def coverage(self, candidate: Candidate) -> Coverage:
        """Return layers, weights and products of ``candidate`` by precision."""
        if candidate.coverage is None:
            candidate.coverage = coverage_of(candidate.graph, [np.shape(array) for array in self.data.held[0]], {})
        return candidate.coverage

    def examination(self, model: FloatModel) -> Examination:
        """Return the examination of the layers of ``model``."""
        if id(model) not in self._examinations:
            self._examinations[id(model)] = Examination(model.graph, self.data.held)
        return self._examinations[id(model)]

    def intervals(self, model: FloatModel, candidate: Candidate) -> Certainty:
        """Return the intervals of :meth:`measured_unseen`; none for made-up inputs."""
        if self.data.made_up:
            return Certainty({}, 0)
        if self._certainty is None or self._certainty[0] is not candidate:
            measured, judged, itself = self.measured_unseen(model, candidate), None, None
            if self._judges_all:
                itself = self.measured_itself(candidate)
            elif self.data.held is self.data.fit and self._has_judges and self.folds is not None and self.in_time():
                judged, _ = self._judged(model, candidate)
                itself = self.judging.measure(candidate.graph, keep=True)
            ends = output_ends(candidate.graph)
            found = intervals_of(self.judging, measured, judged, itself, ends)
            self._certainty = candidate, Certainty(found, self.judging.measurable)
        return self._certainty[1]

    @cached_property
    def folds(self) -> Folds | None:
        """Cross-validation over all samples; None where that says no more, or the model is too large."""
        data, reference = self.data, self.judging
        few = data.held is data.fit
        if self.is_large or (data.separate and not few) or data.known < 2:
            return None
        if not few and reference is self.reference:
            reference = Reference(self._original, [*data.fit, *data.held], like=reference)
        return Folds(reference, self.options)

    @property
    def _has_judges(self) -> bool:
        """True if models without some samples differ; weights alone have no ranges."""
        return not (self.is_large or self.builder.scheme.weights_only)

    @property
    def _judges_all(self) -> bool:
        return self.judging is not self.reference

    @cached_property
    def is_large(self) -> bool:
        """True if models take too long for cross-validation."""
        samples = len(self.data.fit) + len(self.data.held)
        return samples * self.examination(self.base).macs > _MOST_JUDGING_MACS

    def in_time(self) -> bool:
        """Return whether there is time to try more, and note if not: the search then is cut short."""
        most = self.options.max_seconds
        is_in_time = most is None or time.monotonic() - self._start < most
        self.is_cut_short = self.is_cut_short or not is_in_time
        return is_in_time

    def say(self, text: str, made: int = 0) -> None:
        """Report progress: a text and the number of models built of those expected."""
        LOG.info("%s", text)
        self._made += made
        if self._progress is not None:
            self._progress(text, self._made, max(self.foreseen, self._made) or None)

    def count_one_more(self) -> None:
        """Count a model that was not foreseen."""
        self.foreseen, self._made = self.foreseen + 1, self._made + 1


def _check_labels(original: Graph, data: Data) -> None:
    """Raise InputError for labels that cannot be right, by all samples where those held back are of one class."""
    labels, others = data.labels, data.fit_labels
    if labels is not None and others is not None and np.all(labels == labels[:1]):
        Reference(original, [*data.fit, *data.held], np.concatenate([others, labels]))
