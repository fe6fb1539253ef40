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
from functools import cached_property, partial
from typing import Any

import numpy as np

from odc_mlir.calibration.recorded import joined
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.quantizer.candidates import MOST_REFINING, CandidateBuilder
from odc_mlir.quantizer.execution import reals_of, reals_where_it_runs
from odc_mlir.quantizer.intervals import Certainty, RareValue, intervals_of, rare_values
from odc_mlir.quantizer.layers import Coverage, Examination, coverage_of
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe
from odc_mlir.quantizer.outputs import output_ends
from odc_mlir.quantizer.policy.options import Options, Progress
from odc_mlir.quantizer.policy.ranges import Statistics
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.refinement import Learner, RefinementCache, learn
from odc_mlir.quantizer.samples import Data, standing_out
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

LOG = logging.getLogger(__name__)

# How many models judge choices, and verdicts: of the latter each knows more of what the result does.
FOLDS, JUDGES = 4, 8
# Into how many parts those held back are divided, each of which a model judges that is made without it.
HALVES = 2
_MOST_KNOWN = 3  # candidates: what is best so far, and the last two that were compared with it


@dataclass(frozen=True, slots=True)
class Judgement:
    """Measures of a candidate of ``model``; ``by_fold_models``: of models built by its recipe without some samples."""

    model: FloatModel
    candidate: Candidate
    measured: Measurement
    by_fold_models: bool

    def is_of(self, model: FloatModel, candidate: Candidate) -> bool:
        """Whether it holds for this candidate as well: codes may be refined by more samples, which twins do not see."""
        is_alike = self.by_fold_models and model is self.model and candidate.recipe == self.candidate.recipe
        return candidate is self.candidate or is_alike


class JudgementCache:
    """Cache of the last judgements, so that the best candidate is not judged again for each comparison."""

    def __init__(self) -> None:
        self._last: list[Judgement] = []  # in the order in which they were asked for

    def measured(
        self, model: FloatModel, candidate: Candidate, judge: Callable[[FloatModel, Candidate], Judgement]
    ) -> Measurement:
        """Return the cached measures of the candidate, or those that ``judge`` finds."""
        found = next((known for known in self._last if known.is_of(model, candidate)), None)
        others = [known for known in self._last if known is not found]
        found = found or judge(model, candidate)
        self._last = [*others[-_MOST_KNOWN + 1 :], found]
        return found.measured


class HeldBackJudge:
    """Judges on the samples held back of ``data``, which ``reference`` has; ``say`` tells of models that are made.

    Each part of them is judged by a model that knows the others, and all samples to choose by. Of two parts that is
    worse than what others will find, by what half of those held back tell: prudence in choosing is worth more
    than the truth.
    """

    def __init__(self, options: Options, data: Data, reference: Reference, say: Callable[[str, int], None]) -> None:
        self._data, self._reference, self._say = data, reference, say
        self._builder = CandidateBuilder(options, data.fit)
        self._known = JudgementCache()

    def measure(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """How far models made of ``model`` as ``candidate`` is are from the float one; outputs are kept.

        It is the candidate itself where the samples take no part in making it, or cannot be left out.
        """
        return self._known.measured(model, candidate, self._judged)

    def _judged(self, model: FloatModel, candidate: Candidate) -> Judgement:
        data, recipe = self._data, candidate.recipe
        fold_models: list[Candidate] = []
        if data.fit and not data.separate:
            if not self._builder.scheme.weights_only:
                fold_models = self._fold_models(model, recipe)
            elif recipe.rounding or recipe.correction:  # codes that know the samples which refined them
                fold_models = [self._builder.build(model, recipe, {})]
        measured = self._reference.measure(*(fold_model.graph for fold_model in fold_models or [candidate]), keep=True)
        return Judgement(model, candidate, measured, by_fold_models=bool(fold_models))

    def _fold_models(self, model: FloatModel, recipe: Recipe) -> list[Candidate]:
        """Models of ``recipe``, each without one recorded part; none where they cannot be made."""
        parts = len(model.held)
        if parts < 2:
            return []
        self._say("judging on samples held back", parts)
        try:
            return [self._builder.build(model, recipe, model.without(part)) for part in range(parts)]
        except OdcError:
            LOG.info("the model cannot be made without the samples held back", exc_info=True)
            return []


@dataclass
class _Shown:
    """What ``model`` has shown without each fold: statistics for those that judge, and what rounding found out.

    That is ``known``, by how many folds there are.
    """

    model: FloatModel
    statistics: list[Statistics] = field(default_factory=list)
    known: dict[int, list[RefinementCache]] = field(default_factory=dict)


@dataclass
class Folds:
    """Judges on the samples of ``reference``, those included that models of ``options`` are made by.

    Models take turns, and each lacks the samples that it judges. That tells more than the samples held back do, by
    which choices are made, and takes longer.
    """

    reference: Reference
    options: Options
    _shown: _Shown | None = field(default=None, init=False, repr=False)

    def count(self, most: int) -> int:
        """How many folds there are if ``most`` are wanted: one for each of fewer samples."""
        return min(most, len(self.reference.samples))

    def measure(self, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Measurement:
        """How far models made of ``model`` by ``recipe``, with ranges by ``statistics``, are from the float one.

        :data:`FOLDS` models are without the samples for all else. Raises OdcError where one cannot be made.
        """
        return self.reference.measure(*self._without(model, recipe, [statistics] * self.count(FOLDS)))

    def judge(self, model: FloatModel, recipe: Recipe) -> Measurement:
        """The same of :data:`JUDGES` models that are without the samples for everything; outputs are kept."""
        return self.reference.measure(*self._without(model, recipe, self._statistics(model)), keep=True)

    def _without(self, model: FloatModel, recipe: Recipe, statistics: Sequence[Statistics]) -> list[Graph]:
        """Models with ranges by ``statistics``, each without the samples of one fold."""
        samples, count = self.reference.samples, len(statistics)
        runs = [[run for run in range(len(samples)) if run % count != fold][:MOST_REFINING] for fold in range(count)]
        # what rounding found out by all samples is not for these
        known = self._shown_by(model).known.setdefault(count, [RefinementCache() for _ in runs])
        builders = [CandidateBuilder(self.options, [samples[run] for run in own]) for own in runs]
        parts = list(zip(builders, statistics, known, strict=True))
        if recipe.rounding or recipe.correction:
            plain = [builder.unrefined(model, recipe, found).graph for builder, found, _ in parts]
            learners = [
                Learner.of(model.graph, *part, rounding=recipe.rounding)
                for part in zip(plain, runs, known, strict=True)
            ]
            with suppress(UnsupportedError):  # which is said where codes are refined
                learn(model.graph, learners, samples[: 1 + max(map(max, runs))])
        return [builder.build(model, recipe, found, shown).graph for builder, found, shown in parts]

    def _shown_by(self, model: FloatModel) -> _Shown:
        """What ``model`` has shown; of those before nothing is kept."""
        if self._shown is None or self._shown.model is not model:
            self._shown = _Shown(model)
        return self._shown

    def _statistics(self, model: FloatModel) -> list[Statistics]:
        """Return the statistics of all samples without each fold."""
        shown = self._shown_by(model)
        if not shown.statistics:
            executor, count = HostExecutor(model.graph), self.count(JUDGES)
            records = [record(executor, self.reference.samples[fold::count]) for fold in range(count)]
            others = (joined([*records[:fold], *records[fold + 1 :]]) for fold in range(count))
            shown.statistics = [found.statistics() for found in others]
        return shown.statistics


# Beyond how many multiply-accumulates models are not made anew to judge all samples, nor often for those held back.
_MOST_JUDGING_MACS = 1 << 30
# Beyond how many the float model is not run once more on the samples that chose ranges.
_MOST_RARE_MACS = 1 << 32
_SEED = 1


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """The best so far."""

    model: FloatModel
    recipe: Recipe
    candidate: Candidate
    measured: Measurement


class Evaluator:
    """Makes models of ``original``, optimised as ``base``, and measures them on the samples held back of ``data``.

    ``reference`` has those, by which choices are made, and ``judging`` the samples that verdicts are of: all, unless
    the model is large. ``steps`` tells what was tried and kept; ``foreseen`` is how many models are going to be made,
    for who waits; ``is_cut_short``: whether time was up before everything was tried.
    """

    def __init__(
        self, original: Graph, base: FloatModel, data: Data, options: Options, progress: Progress | None
    ) -> None:
        self.base, self.data, self.options = base, data, options
        self.builder = CandidateBuilder(options, data.fit)
        self.steps: list[dict[str, Any]] = []
        self.foreseen = 0
        self.is_cut_short = False
        self._original, self._progress = original, progress
        self._start, self._made = time.monotonic(), 0
        self._examinations: dict[int, Examination] = {}
        self.judging, self.reference = self._references()
        self._unseen = JudgementCache()
        self._certainty: tuple[Candidate, Certainty] | None = None  # of the last candidate that was asked for
        self._held_back = HeldBackJudge(options, data, self.reference, self.say)

    def _references(self) -> tuple[Reference, Reference]:
        """What verdicts are by, and choices; raises InputError for labels that cannot be right."""
        data, lacks_labels = self.data, self.data.labels is not None and self.data.fit_labels is None
        if data.separate or lacks_labels or not self._has_judges:
            reference = Reference(self._original, data.held, data.labels, metric=self.options.metric)
            _check_labels(self._original, data)
            return reference, reference
        # What takes turns in them is in every fold.
        order = np.random.default_rng(_SEED).permutation(data.known)
        samples, labels = [*data.fit, *data.held], data.labels
        if labels is not None:
            assert data.fit_labels is not None
            labels = np.concatenate([data.fit_labels, labels])[order]
        judging = Reference(self._original, [samples[i] for i in order], labels, metric=self.options.metric)
        if judging.labels is not None:
            labels = judging.labels[np.argsort(order)][len(data.fit) :]
        return judging, Reference(self._original, data.held, labels, like=judging)

    def record(self, model: FloatModel) -> None:
        """Give ``model`` records of all samples; raises OdcError."""
        if self.builder.scheme.weights_only:
            return
        self.say("recording ranges")
        executor = HostExecutor(model.graph)
        model.records = record(executor, self.data.fit)
        if not self.data.separate:
            parts = min(HALVES, len(self.data.held))
            model.held = [record(executor, self.data.held[part::parts]) for part in range(parts)]

    def statistics_of(self, model: FloatModel) -> Statistics:
        """Return the statistics of all samples, which choose the final ranges of ``model``."""
        return model.fitted if self.data.separate else model.complete

    def built(self, model: FloatModel, recipe: Recipe) -> MeasuredCandidate:
        """What ``recipe`` makes of ``model``, measured; raises OdcError."""
        candidate = self.builder.build(model, recipe, self.statistics_of(model))
        return MeasuredCandidate(model, recipe, candidate, self.measured(candidate))

    def measured(self, candidate: Candidate) -> Measurement:
        """How far the candidate is from the float model on the samples held back, measured once."""
        if candidate.measured is None:
            candidate.measured = self.reference.measure(candidate.graph)
        return candidate.measured

    def measured_unseen(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """How far models made as ``candidate`` is are from the float one on samples that they were not made by.

        Of the samples that verdicts are of. It is the candidate itself where some of these cannot be left out.
        """
        if not self._judges_all:
            return self.measured_by_halves(model, candidate)
        return self._unseen.measured(model, candidate, self._judgement)

    @property
    def judges(self) -> int:
        """How many models :meth:`measured_unseen` makes."""
        return JUDGES if self._judges_all else HALVES

    def _judgement(self, model: FloatModel, candidate: Candidate) -> Judgement:
        return Judgement(model, candidate, self._judged(model, candidate), by_fold_models=True)

    def _judged(self, model: FloatModel, candidate: Candidate) -> Measurement:
        folds = self.folds
        assert folds is not None
        self.say("judging on all samples", made=JUDGES)
        try:
            return folds.judge(model, candidate.recipe)
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return self.judging.measure(candidate.graph, keep=True)

    def measured_itself(self, candidate: Candidate) -> Measurement:
        """How far ``candidate``, which knows them all, is from the float model on the samples that verdicts are of."""
        if not self._judges_all:
            return self.measured(candidate)
        if candidate.measured_itself is None:
            candidate.measured_itself = self.judging.measure(candidate.graph, keep=True)
        return candidate.measured_itself

    def measured_by_halves(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """Measure models without half of the held-back samples, on that half."""
        return self._held_back.measure(model, candidate)

    def coverage(self, candidate: Candidate) -> Coverage:
        """What of ``candidate`` is quantised, by the names of :func:`~odc_mlir.quantizer.layers.precision_of`."""
        if candidate.coverage is None:
            candidate.coverage = coverage_of(candidate.graph, [np.shape(array) for array in self.data.held[0]], {})
        return candidate.coverage

    def lost_values(self, candidate: Candidate) -> list[tuple[RareValue, float]]:
        """Return the rare values of calibration samples that ``candidate`` loses, with its own outputs."""
        if not self._rare_values:
            return []
        if candidate.lost_values is None:
            samples = sorted({witness.sample for witness in self._rare_values})
            runs = reals_where_it_runs(candidate.graph, [self.data.fit[i] for i in samples])
            found = dict(zip(samples, runs, strict=True))
            pairs = ((one, one.seen_in(found[one.sample])) for one in self._rare_values)
            candidate.lost_values = [pair for pair in pairs if pair[0].is_lost(pair[1])]
        return candidate.lost_values

    @cached_property
    def _rare_values(self) -> list[RareValue]:
        """None for weights alone, which have no ranges that cut off, and for models that take long to run."""
        fit = [] if self.data.held is self.data.fit else self.data.fit
        if not fit or self.builder.scheme.weights_only or self.examination(self.base).macs * len(fit) > _MOST_RARE_MACS:
            return []
        found = rare_values(self.reference, list(reals_of(self._original, fit)))
        alone = standing_out(fit)  # which is told of as such
        return [witness for witness in found if witness.sample != alone]

    def examination(self, model: FloatModel) -> Examination:
        """What tells which layers of ``model`` lose accuracy."""
        if id(model) not in self._examinations:
            self._examinations[id(model)] = Examination(model.graph, self.data.held)
        return self._examinations[id(model)]

    def fake_quantized(
        self, model: FloatModel, candidate: Candidate, statistics: Statistics
    ) -> dict[str, float | None] | None:
        """Measures with float arithmetic between quantised values; None where there is no such thing."""
        if self.builder.scheme.weights_only:
            return None
        graph = self.builder.fake_quantized(model, candidate, statistics)
        return self.judging.metrics(self.judging.measure(graph))

    def intervals(self, model: FloatModel, candidate: Candidate) -> Certainty:
        """How sure :meth:`measured_unseen` is; of inputs that are made up more would say nothing either."""
        if self.data.made_up:
            return Certainty({}, 0)
        if self._certainty is None or self._certainty[0] is not candidate:
            measured, judged, itself = self.measured_unseen(model, candidate), None, None
            if self._judges_all:
                itself = self.measured_itself(candidate)
            elif self.data.held is self.data.fit and self._has_judges and self.folds is not None and self.in_time():
                judged = self._judged(model, candidate)
                itself = self.judging.measure(candidate.graph, keep=True)
            ends = output_ends(candidate.graph)
            found = partial(intervals_of, self.judging, measured, judged, itself, ends)
            certainty = Certainty(found(), self.judging.measurable, lambda count: found(of_more=count))
            self._certainty = candidate, certainty
        return self._certainty[1]

    @cached_property
    def folds(self) -> Folds | None:
        """What judges all samples; None where that says no more, or where the model is too large."""
        data, reference = self.data, self.judging
        few = data.held is data.fit
        if self.is_large or (data.separate and not few) or data.known < 2:
            return None
        if not few and reference is self.reference:
            reference = Reference(self._original, [*data.fit, *data.held], like=reference)
        return Folds(reference, self.options)

    @property
    def _has_judges(self) -> bool:
        """Whether models without some samples can tell what others will find: weights alone have no ranges by these."""
        return not (self.is_large or self.builder.scheme.weights_only)

    @property
    def _judges_all(self) -> bool:
        return self.judging is not self.reference

    @cached_property
    def is_large(self) -> bool:
        """Whether models take too long to build and measure for cross-validation."""
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
        """A model is made that was not foreseen."""
        self.foreseen, self._made = self.foreseen + 1, self._made + 1


def _check_labels(original: Graph, data: Data) -> None:
    """Raises InputError for labels that cannot be right, told by all samples where those held back are of one kind."""
    labels, others = data.labels, data.fit_labels
    if labels is not None and others is not None and np.all(labels == labels[:1]):
        Reference(original, [*data.fit, *data.held], np.concatenate([others, labels]))
