"""Evaluation of candidates: measures on held-out samples, cross-validation over all samples, confidence intervals.

A model seldom clips values of the samples that determine ranges. Cross-validation therefore divides samples into parts.
For every part, it builds a model by the same recipe from the other parts, and measures the model on this part.
Confidence intervals (95 %) give each sample, and an unseen input, a random weight (Learned-Miller and Thomas, 2019).
The error of the unseen input is between zero and a Pareto tail (Hill, 1975). See docs/quantisation.md.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.calibration.recorded import joined
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.candidates import MOST_REFINING, CandidateBuilder
from odc_mlir.quantizer.layers import LEAST_COVERAGE, LEAST_TARGET_COVERAGE, Coverage, Examination, coverage_of
from odc_mlir.quantizer.measurement import Measurement, finite_pairs
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe, layer_names
from odc_mlir.quantizer.outputs import Interval, ends_of, is_measurable
from odc_mlir.quantizer.policy import verdict as rules
from odc_mlir.quantizer.policy.declarations import LITERT
from odc_mlir.quantizer.policy.options import Options, Progress
from odc_mlir.quantizer.policy.ranges import Statistics, Tail
from odc_mlir.quantizer.policy.schemes import NARROW, WIDE_VALUES, ladder_of
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, R2_LIMIT, Limit
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.refinement import Learner, RefinementCache, layer_pairs, learn
from odc_mlir.quantizer.samples import FEWEST_TO_SPLIT, Data
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record
from odc_mlir.runtime.reporting.scores import chosen_classes
from odc_mlir.transforms.quant.quant_limit_far import limited

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement, TargetRules

LOG = logging.getLogger(__name__)

# Numbers of models in cross-validation over samples (each lacks 1/4), sequences (1/8: there are few), held-out samples.
JUDGES, JUDGES_OF_SEQUENCES, HALVES = 4, 8, 2
_MOST_JUDGING_MACS = 1 << 30  # limit over all samples: a run takes about 0.3 s of a core, and a search makes dozens


@dataclass
class Folds:
    """Cross-validation over the samples of ``reference``, with caches for the last float model."""

    reference: Reference
    options: Options
    _model: FloatModel | None = field(default=None, init=False, repr=False)
    _statistics: list[Statistics] = field(default_factory=list, init=False, repr=False)
    _known: list[RefinementCache] = field(default_factory=list, init=False, repr=False)

    def judge(self, model: FloatModel, recipe: Recipe) -> Measurement:
        """Measure models that lack one fold each, and keep the outputs. Raises OdcError if a model cannot be built."""
        samples, rollout = self.reference.samples, self.reference.rollout
        count = min(JUDGES if rollout is None else JUDGES_OF_SEQUENCES, len(samples))
        if self._model is not model:
            parts = [samples[fold::count] for fold in range(count)]
            shown, executor = parts if rollout is None else map(rollout.with_given, parts), HostExecutor(model.graph)
            records = [record(executor, part, detailed=False) for part in shown]
            others = (joined([*records[:fold], *records[fold + 1 :]]) for fold in range(count))
            self._statistics = [found.statistics() for found in others]
            self._model, self._known = model, [RefinementCache() for _ in parts]
        runs = [[run for run in range(len(samples)) if run % count != fold][:MOST_REFINING] for fold in range(count)]
        builders = [CandidateBuilder(self.options, [samples[run] for run in own]) for own in runs]
        folds = list(zip(builders, self._statistics, self._known, strict=True))
        if recipe.rounding or recipe.correction:
            plain = [builder.unrefined(model, recipe, found).graph for builder, found, _ in folds]
            pairs = [layer_pairs(model.graph, graph) for graph in plain]
            learners = [Learner(*fold, recipe.rounding) for fold in zip(pairs, runs, self._known, strict=True)]
            with suppress(UnsupportedError):  # refining has logged it already
                learn(model.graph, learners, samples[: 1 + max(map(max, runs))])
        graphs = [builder.build(model, recipe, found, known).graph for builder, found, known in folds]
        return self.reference.measure(*graphs, keep=True)


class Evaluator:
    """Builder and judge of candidates. ``original``: the float model. ``base``: the optimised float model."""

    def __init__(
        self, original: Graph, base: FloatModel, data: Data, options: Options, progress: Progress | None
    ) -> None:
        self.base, self.data, self.options = base, data, options
        self.steps: list[dict[str, Any]] = []  # log of the search
        self.is_cut_short = False  # whether the time limit ended the search
        self._original, self._progress = original, progress
        self._start, self._made = time.monotonic(), 0
        self._examinations: dict[int, Examination] = {}
        # Codes of weights limit the accuracy, not ranges of values, unless values have few bits.
        are_weights_the_limit = options.definition.weights_only or options.has_codes_to_spare
        by_all = are_weights_the_limit and not (data.separate or self.is_large)
        refining = [*data.fit, *data.held] if by_all else data.fit
        self.builder, self._folds_builder = CandidateBuilder(options, refining), CandidateBuilder(options, data.fit)
        # References for the verdict, on all samples if the model is not large, and for choices, on held-out samples.
        self.judging, self.reference = self._references()
        self.target: TargetRules | None = None
        self.plain: Placement | None = None  # placement of the model, and the layers that the target could run
        self.possible: list[bool] | None = None

    def settle(self) -> None:
        """Determine limits and target after the removal of unmeasurable samples. Raises OptionError if wrong."""
        self.limits, self.outputs_vary = self._limits(len(self.judging.samples))
        self.search_limits, _ = self._limits(len(self.data.held))
        if self.options.target is not None:
            from odc_mlir.quantizer.target import TargetRules  # imports the NPU's back end

            self.target = TargetRules(self.options.target)

    def _references(self) -> tuple[Reference, Reference]:
        """Return both references. Raises InputError for labels that do not fit the model."""
        data, lacks_labels = self.data, self.data.labels is not None and self.data.fit_labels is None
        if data.separate or lacks_labels or not self.has_judges:
            reference = Reference(
                self._original, data.held, data.labels, metric=self.options.metric, rollout=data.rollout
            )
            others = data.fit_labels
            if data.labels is not None and others is not None and np.all(data.labels == data.labels[:1]):
                # The held-out labels have a single class, so check the labels of all samples.
                Reference(self._original, [*data.fit, *data.held], np.concatenate([others, data.labels]))
            return reference, reference
        samples, labels = [*data.fit, *data.held], data.labels
        if data.rollout is None:
            order = np.random.default_rng(1).permutation(data.known)  # samples may be periodic
        else:
            order = data.rollout.in_blocks(samples, JUDGES_OF_SEQUENCES)
        if labels is not None:
            assert data.fit_labels is not None
            labels = np.concatenate([data.fit_labels, labels])[order]
        every = [samples[i] for i in order]
        judging = Reference(self._original, every, labels, metric=self.options.metric, rollout=data.rollout)
        if judging.labels is not None:
            labels = judging.labels[np.argsort(order)][len(data.fit) :]
        return judging, Reference(self._original, data.held, labels, like=judging)

    def record(self, model: FloatModel, *, detailed: bool = True) -> None:
        """Record the ranges of ``model`` on all samples, and if ``detailed``, all statistics. Raises OdcError."""
        if self.builder.scheme.weights_only:
            return
        self.say("recording ranges")
        executor = HostExecutor(model.graph)
        model.records = record(executor, self.data.shown(self.data.fit), detailed=detailed)
        if not self.data.separate:
            parts = min(HALVES, len(self.data.held))
            held = (self.data.shown(self.data.held[part::parts]) for part in range(parts))
            model.held = [record(executor, part, detailed=detailed) for part in held]

    def statistics_of(self, model: FloatModel) -> Statistics:
        """Return the statistics of all samples, which determine the final ranges of ``model``."""
        return model.fitted if self.data.separate else model.complete

    def built(self, model: FloatModel, recipe: Recipe) -> Candidate:
        return self.builder.build(model, recipe, self.statistics_of(model))

    def measured(self, candidate: Candidate) -> Measurement:
        """Return the errors of the candidate on the held-out samples."""
        if candidate.measured is None:
            candidate.measured = self.reference.measure(candidate.graph)
        return candidate.measured

    def measured_unseen(self, candidate: Candidate) -> Measurement:
        """Return errors by cross-validation, or errors of the candidate itself if samples cannot be left out."""
        if not self._judges_all:
            return self.measured_by_halves(candidate)
        if candidate.unseen is None:
            candidate.unseen = self._judged(candidate)
        return candidate.unseen

    def _judged(self, candidate: Candidate) -> Measurement:
        assert self.folds is not None
        self.say("judging on all samples", made=JUDGES)
        try:
            return self.folds.judge(candidate.model, candidate.recipe)
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return self.judging.measure(candidate.graph, keep=True)

    def measured_itself(self, candidate: Candidate) -> Measurement:
        """Return the errors of ``candidate``, which is built from all samples, on the verdict's samples."""
        if not self._judges_all:
            return self.measured(candidate)
        if candidate.measured_itself is None:
            candidate.measured_itself = self.judging.measure(candidate.graph, keep=True)
        return candidate.measured_itself

    def measured_by_halves(self, candidate: Candidate) -> Measurement:
        """Measure two models, each on the half of the held-out samples that it lacks, and keep the outputs.

        The estimate is cautious, because the final model is built from the two halves. If halves cannot be left out, or
        models do not depend on samples, the candidate itself is measured.
        """
        if candidate.by_halves is None:
            graphs = [made.graph for made in self._half_models(candidate) or [candidate]]
            candidate.by_halves = self.reference.measure(*graphs, keep=True)
        return candidate.by_halves

    def _half_models(self, candidate: Candidate) -> list[Candidate]:
        """Return models by the same recipe, each built with one part of the samples left out, or [] on failure."""
        model, recipe, parts = candidate.model, candidate.recipe, len(candidate.model.held)
        if not self.data.fit or self.data.separate:
            return []
        if self._folds_builder.scheme.weights_only:  # such models are refined without the held-out samples
            refines = recipe.rounding or recipe.correction
            return [self._folds_builder.build(model, recipe, {})] if refines else []
        if parts < 2:
            return []
        self.say("judging on samples held back", parts)
        try:
            return [self._folds_builder.build(model, recipe, statistics) for statistics in model.without_parts]
        except OdcError:
            LOG.info("the model cannot be made without the samples held back", exc_info=True)
            return []

    def coverage(self, candidate: Candidate) -> Coverage:
        """Return the numbers of layers, weights and multiplications of ``candidate`` in each precision."""
        if candidate.coverage is None:
            shapes = [np.shape(array) for array in self.data.held[0]]
            candidate.coverage = coverage_of(candidate.graph, shapes, {"int16": self.precision_name("int16")})
        return candidate.coverage

    def precision_name(self, precision: str) -> str:
        """Return the name of a precision for coverage: in int16x8 schemes, int16 layers without weights are int16x8."""
        has_wide = WIDE_VALUES in (self.options.scheme, *ladder_of(self.options.scheme))
        return WIDE_VALUES if precision == "int16" and has_wide else precision

    def examination(self, model: FloatModel) -> Examination:
        if id(model) not in self._examinations:
            self._examinations[id(model)] = Examination(model.graph, self.data.held)
        return self._examinations[id(model)]

    def intervals(self, candidate: Candidate) -> Mapping[str, Interval]:
        """Return the interval of each measure of :meth:`measured_unseen`. Random inputs have no intervals."""
        if self.data.made_up:
            return {}
        if candidate.intervals is None:
            measured, judged, itself = self.measured_unseen(candidate), None, None
            if self._judges_all:
                itself = self.measured_itself(candidate)
            elif self.data.held is self.data.fit and self.has_judges and self.folds is not None and self.in_time():
                judged = self._judged(candidate)
                itself = self.judging.measure(candidate.graph, keep=True)
            ends = ends_of(candidate.graph, candidate.graph.outputs)
            candidate.intervals = intervals_of(self.judging, measured, judged, itself, ends)
        return candidate.intervals

    @cached_property
    def folds(self) -> Folds | None:
        """Cross-validation over all samples, or None if it adds no information or the model is too large."""
        has_own = self.data.separate and self.data.held is not self.data.fit
        return None if self.is_large or has_own or self.data.known < 2 else Folds(self.judging, self.options)

    @property
    def has_judges(self) -> bool:
        """True if all samples check the result: weight-only models have no ranges from samples."""
        return not (self.is_large or self.builder.scheme.weights_only)

    @property
    def _judges_all(self) -> bool:
        return self.judging is not self.reference

    @cached_property
    def is_large(self) -> bool:
        """True if the model takes too long for cross-validation."""
        samples = len(self.data.fit) + len(self.data.held)
        return samples * self.examination(self.base).macs > _MOST_JUDGING_MACS

    def in_time(self) -> bool:
        """Return whether there is time to try more. If not, record that the search is cut short."""
        most = self.options.max_seconds
        is_late = most is not None and time.monotonic() - self._start >= most
        self.is_cut_short |= is_late
        return not is_late

    def say(self, text: str, made: int = 0) -> None:
        """Report progress: a text, and the number of models built since the last report."""
        LOG.info("%s", text)
        self._made += made
        if self._progress is not None:
            self._progress(text, self._made, None)

    # Limits, costs and shares of multiplications.

    def _limits(self, samples: int) -> tuple[tuple[Limit, ...], bool]:
        """Return the limits for a number of samples, and whether constant outputs would miss them."""
        options, reference = self.options, self.judging
        scorer, labels = reference.scorer, reference.labels
        limits = rules.choose_limits(
            metric=options.metric,
            limit=options.limit,
            max_drop=options.max_drop,
            score=reference.metric,
            is_telling=reference.misfit is None and samples >= FEWEST_TO_SPLIT,
            answering=[replace(found, count=samples * found.count) for found in reference.answers_of_one],
            has_values=reference.has_values,
            has_unscored=len(reference.graph.outputs) > 1 or (scorer is not None and bool(scorer.unscored)),
            has_many_columns=scorer is not None and scorer.has_many,
            labels=samples if labels is None else round(samples * labels.size / len(reference.samples)),
        )
        given = {"drop"} if options.max_drop is not None else set()
        if options.metric is not None or options.limit is not None:
            given.add("mpeir" if options.metric is None else rules.metric_name(options.metric))
        # A verdict on random inputs never passes, and random inputs need not vary as real inputs do.
        nothing = [] if self.data.made_up else reference.constant_measures
        if rules.check_can_be_missed(limits, given, nothing, has_values=reference.has_values):
            return limits, True
        # Columns in different units share the range of the largest column, even if small columns hardly vary here.
        has_units = all(map(reference.varies_in_units, range(len(reference.graph.outputs))))
        return (*limits, R2_LIMIT), has_units

    @property
    def scheme_is_taken(self) -> bool:
        """True if a target is given and computes with values of the model's scheme."""
        return self.target is not None and self.target.takes(self.options.scheme)

    @property
    def min_coverage(self) -> float:
        """Minimum share of multiplications that are quantised or, if the target runs the scheme, run on the target."""
        if self.options.min_coverage is not None:
            return self.options.min_coverage
        return LEAST_TARGET_COVERAGE if self.scheme_is_taken else LEAST_COVERAGE

    def place(self, best: Candidate, *, has_own: bool) -> None:
        """Determine the placement of ``best`` on the target. ``has_own``: ignore precisions of single layers."""
        assert self.target is not None
        recipe = replace(best.recipe, precisions=(), rounding=False, correction=False)  # codes do not affect placement
        self.plain = self.target.judge((self.built(best.model, recipe) if has_own else best).module)
        self.possible = found = self.plain.taken()
        lost = [bool(layer.reason and layer.macs) for layer in self.plain.layers]
        if self.options.scheme == NARROW or not self.scheme_is_taken or not any(lost):
            return
        # Long sums of products of 16-bit codes exceed the target's accumulators. Sums of 8-bit codes do not.
        narrow = recipe.with_precisions(dict.fromkeys(layer_names(best.model.module), NARROW), {})
        with suppress(OdcError):
            others = self.target.judge(self.built(best.model, narrow).module).taken()
            self.possible = [
                now or (was_lost and then) for now, was_lost, then in zip(found, lost, others, strict=True)
            ]

    def share(self, candidate: Candidate) -> float:
        """Return the quantised share, or the share that the target runs of the multiplications that it could run."""
        if self.possible is not None and self.target is not None and self.scheme_is_taken:
            return self.target.judge(candidate.module).share(self.possible) or 0.0
        return self.coverage(candidate).share() or 0.0

    def size(self, candidate: Candidate) -> int:
        return self.size_of(export_model(self.finished(candidate)))

    def size_of(self, model: Model) -> int:
        """Return the size of a file of ``model``."""
        return len(write_tflite(model) if self.options.reader == LITERT else write_model(model))

    def finished(self, candidate: Candidate) -> ModuleOp:
        """Return the module for the file, with float constants limited to numbers that readers can represent."""
        return limited(
            candidate.module, {} if self.builder.scheme.weights_only else self.statistics_of(candidate.model)
        )

    def over_budget(self, candidate: Candidate) -> bool:
        most_bytes, most_ms = self.options.max_bytes, self.options.max_time_ms
        if most_bytes is not None and self.size(candidate) > most_bytes:
            return True
        if most_ms is None or self.target is None:
            return False
        return self.target.time(candidate.module, compiled=True).ns > 1e6 * most_ms

    def measures(self, candidate: Candidate) -> dict[str, float | None]:
        """Return the measures for the verdict's limits, by cross-validation."""
        found = self.judging.metrics(self.measured_unseen(candidate))
        if R2_LIMIT in self.limits:  # models without the rare samples in which outputs vary would clip them
            found["r2"] = self.judging.metrics(self.measured_itself(candidate))["r2"]
        return found

    def holds_unseen(self, candidate: Candidate) -> bool:
        """Return whether the limits hold for the verdict's measures, and enough samples confirm them."""
        return self.keeps_limits(candidate) and not self.doubtful(candidate, self.measures(candidate))

    def keeps_limits(self, candidate: Candidate) -> bool:
        """Return whether the limits hold for the verdict's measures, however few samples there are."""
        metrics = self.measures(candidate)
        return not self.measured_unseen(candidate).lacking and all(limit.holds(metrics) for limit in self.limits)

    def doubtful(self, candidate: Candidate, measures: Mapping[str, float | None]) -> list[Limit]:
        """Return limits that ``measures`` keep but too few samples confirm, except limits on shares of samples."""
        if not 1 < self.judging.measurable < FEWEST_TO_SPLIT or self.data.made_up:
            return []
        found = self.intervals(candidate)
        limits = (limit for limit in self.limits if limit.key in found and limit.metric not in rules.OF_ANSWERS)
        return [limit for limit in limits if limit.holds(measures) and not limit.is_certain(measures, found)]


# Confidence intervals.

_DRAWS = 1000  # of which 25 lie beyond each end of a 95 % interval: fewer would leave the ends to chance
_NORMAL = 1.96  # standard errors of a 95 % interval

Reals = NDArray[np.float64]
Outputs = Sequence[Sequence[Array]]
# Two arrays over draws: the squares of the clipped parts of unseen values, and the squares of these values.
_CutOff = tuple[Reals, Reals]


def intervals_of(
    reference: Reference,
    measured: Measurement,
    judged: Measurement | None = None,
    itself: Measurement | None = None,
    ends: Sequence[Interval | None] = (),
) -> dict[str, Interval]:
    """Return the interval of each measure that is a sum over samples. A single sample has no intervals.

    ``measured``: the verdict's measures, which lie within the intervals. ``judged``: measures of models built without
    the samples, if different. ``itself``: measures of the model itself. ``ends``: ranges of the model's outputs.
    """
    if min(len(measured.reals), reference.measurable) < 2:
        return {}
    judged = measured if judged is None else judged
    numbers = [number for number, outputs in enumerate(reference.outputs) if is_measurable(outputs)]
    blocks = [[number] for number in numbers]
    if reference.rollout is not None:
        blocks = reference.rollout.blocks(reference.samples, numbers)
    count = len(blocks)
    result = _ends(reference, judged.reals, blocks, ends, reference.unsettled(judged))
    if itself is not None:
        better = _ends(reference, itself.reals, blocks)
        for metric in result.keys() & better.keys():
            (low, high), (least, most) = result[metric], better[metric]
            result[metric] = (low, max(high, most)) if HIGHER_IS_BETTER[metric] else (min(low, least), high)
    is_known = measured.worst()["top1_match"] is not None
    agreeing = {place: errors.top1_match for place, errors in enumerate(judged.outputs) if is_known}
    for metric, shares in (("top1_match", agreeing), ("top1_decided", judged.decided)):
        found = reference.by_output(metric, shares)
        result |= {key: wilson(share, count) for key, share in found.items() if share is not None}
    for metric, value in reference.metrics(measured).items():
        if metric in result and value is not None:
            low, high = result[metric]
            result[metric] = min(low, value), max(high, value)
    if reference.labels is not None and reference.metric == "top1_percent":
        result["drop"] = _drops(reference, measured)
    return result


def _ends(
    reference: Reference,
    reals: Outputs,
    blocks: Sequence[Sequence[int]],
    ranges: Sequence[Interval | None] = (),
    unsettled: Mapping[int, float] | None = None,
) -> dict[str, Interval]:
    """Return the interval of each measure for the worst output. ``blocks`` of samples are independent."""
    draws = _Draws(len(blocks))
    ends: dict[str, list[Interval]] = {}
    values = enumerate(reference.outputs[0])
    for place in (i for i, value in values if value.dtype.kind in "iuf" and i not in reference.equalities):
        pairs = [[finite_pairs(reference.outputs[i][place], reals[i][place]) for i in block] for block in blocks]
        rows = [np.concatenate([a.ravel() for a, _ in block]) for block in pairs]
        span = reference.spans[place]
        spans = None if span is None else np.full(_DRAWS, span)
        if spans is not None and not reference.is_bounded(place):
            spans = draws.spans(rows, len(blocks), spans)
        cut = draws.cut_off(rows, ranges[place]) if place < len(ranges) else None
        half = 0.0 if unsettled is None else unsettled.get(place, 0.0)
        varies = np.array([reference.variation[place][block].sum() for block in blocks])
        for metric, interval in _of_output(pairs, spans, varies, draws, cut, half).items():
            ends.setdefault(metric, []).append(interval)
    result: dict[str, Interval] = {}
    for metric, every in ends.items():
        worst = min if HIGHER_IS_BETTER[metric] else max
        low, high = map(worst, zip(*every, strict=True))
        if np.isfinite((low, high)).all():
            result[metric] = low, high
    return result


class _Draws:
    """Random draws: weights of the samples, and the error of one unseen sample."""

    def __init__(self, count: int) -> None:
        seed = 1
        self.count = count
        self._random = np.random.default_rng(seed)
        weights = self._random.standard_exponential((_DRAWS, count + 1))
        weights /= weights.sum(axis=1, keepdims=True)
        self._seen, self._rest = weights[:, :-1], weights[:, -1]
        self._odds = self._random.random(_DRAWS)

    def spans(self, values: Sequence[Array], count: int, spans: Reals) -> Reals:
        """Draw the ranges of ``count`` samples, given the ``spans`` of the judged samples."""
        ends = [(value.min(), value.max()) for value in values if value.size and np.isfinite(value).all()]
        if not ends:
            return spans
        low, high = np.array(ends).T
        chosen = self._random.integers(0, len(ends), (_DRAWS, count))
        found = high[chosen].max(axis=1) - low[chosen].min(axis=1)
        found = np.where(found > 0, found, spans)
        # Draws from judged samples never exceed the judged ranges. Unseen samples are larger as often as smaller.
        is_larger = self._random.random(_DRAWS) < 0.5
        return np.asarray(np.where(is_larger, spans**2 / found, found))

    def unseen(self, errors: Reals, most: float, power: float = 1.0, unsettled: float = 0.0) -> Reals:
        """Draw the worst error of an unseen sample, at most ``most``. ``unsettled``: squared error of a 0.5 score."""
        half = (unsettled * -np.log(self._odds)) ** power
        ordered = np.sort(errors[errors > 0])[::-1]
        if not ordered.size:
            return np.asarray(np.minimum(half, most))
        tail = min(ordered.size // 2, math.ceil(math.sqrt(12 * ordered.size)))  # half of up to 48 errors
        logs = float(np.log(ordered[:tail] / ordered[tail]).sum())
        prior, weight = 1.0, 2.0  # prior of the tail index, and its weight as a number of errors
        index = (logs + power * prior * weight) / (tail + weight)
        largest = float(ordered[0])
        beyond = np.maximum(largest * self._odds**-index, half)
        return np.asarray(np.minimum(beyond, max(most, largest)))

    def cut_off(self, values: Sequence[Array], ends: Interval | None) -> _CutOff | None:
        """Draw unseen values that exceed all ``values`` and the ``ends`` of an output's range."""
        rows = [np.asarray(value, np.float64) for value in values if value.size and np.isfinite(value).all()]
        if ends is None or len(rows) < 2:
            return None
        extremes = np.array([(-row.min(), row.max()) for row in rows])
        lost, power = np.zeros(_DRAWS), np.zeros(_DRAWS)
        for column, end in zip(extremes.T, (-ends[0], ends[1]), strict=True):
            tail = Tail.of(column)
            indices = tail.indices(self._random.standard_normal(_DRAWS))
            beyond, square = tail.beyond(float(column.max()), end, indices)
            is_more = beyond > lost
            lost, power = np.where(is_more, beyond, lost), np.where(is_more, square, power)
        return lost, power

    def ends(
        self, above: Reals, below: Reals, unseen: Reals, unit: Reals | float = 1.0, cut: _CutOff | None = None
    ) -> Interval:
        """Return the interval of ``above / (below * unit)``, weighted sums with unseen errors from 0 to ``unseen``.

        If the error of clipped unseen values (``cut``) is larger, it replaces ``unseen``, and adds power.
        """
        ends = (2.5, 97.5)  # percentiles
        sums = (self._seen @ below + self._rest * below.mean()) * unit
        seen = self._seen @ above
        least, most = seen / sums, (seen + self._rest * unseen) / sums
        if cut is not None:
            most = np.maximum(most, (seen + self._rest * cut[0]) / (sums + self._rest * cut[1]))
        return float(np.percentile(least, ends[0])), float(np.percentile(most, ends[1]))


def _of_output(
    blocks: Sequence[Sequence[tuple[Array, Array]]],
    spans: Reals | None,
    variation: Reals,
    draws: _Draws,
    cut: _CutOff | None = None,
    unsettled: float = 0.0,
) -> dict[str, Interval]:
    """Return the intervals of one output's measures. MPEIR is relative to the ``spans`` of the draws."""
    errors = [[np.abs(a - b) for a, b in block] for block in blocks]

    def summed(every: Sequence[Sequence[Array]], value: Callable[[Array], float]) -> Reals:
        return np.array([math.fsum(map(value, block)) for block in every])

    values = [[a for a, _ in block] for block in blocks]
    sizes, total = summed(errors, lambda error: max(1, error.size)), summed(errors, np.sum)
    noise, signal = (summed(every, lambda array: np.square(array).sum()) for every in (errors, values))
    magnitude = summed(values, lambda value: np.abs(value).sum()).max()
    odd = draws.unseen(noise, float(signal.max()), unsettled=unsettled)
    result = {
        "mae": draws.ends(total, sizes, draws.unseen(total, magnitude, 0.5, 2.0 * unsettled)),
        "mse": draws.ends(noise, sizes, odd),
    }
    if spans is not None:
        largest, counts = summed(errors, lambda error: error.max(initial=0.0)), np.array([*map(len, blocks)])
        most = float(np.median(spans)) * counts.max()
        result["mpeir"] = draws.ends(largest, counts, draws.unseen(largest, most, 0.5, unsettled), spans)
    if noise.any() and signal.any():
        low, high = draws.ends(noise, signal, odd, cut=cut)
        if low > 0.0:
            result["sqnr_db"] = (-10.0 * math.log10(high), -10.0 * math.log10(low))
    if variation.any():
        low, high = draws.ends(noise, variation, odd, cut=cut)
        result["r2"] = (1.0 - high, 1.0 - low)
    return result


def wilson(share: float, count: int) -> Interval:
    """Return the 95 % interval of a share of ``count`` samples (Wilson, 1927)."""
    squared = _NORMAL**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = _NORMAL * math.sqrt(share * (1 - share) / count + squared / (4 * count)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def _drops(reference: Reference, measured: Measurement) -> Interval:
    """Return the interval of the drop in points (Bonett and Price, 2012). It has a width even if nothing is lost."""
    labels = reference.labels
    assert labels is not None

    def right(outputs: Outputs) -> Reals:
        pairs = zip(reference.answers(outputs), labels, strict=True)
        return np.array([float(np.mean(chosen_classes([o], label[None]) == np.ravel(label))) for o, label in pairs])

    changed = right(reference.outputs) - right(measured.reals)
    count = len(changed) + 2
    lost, gained = ((float(np.maximum(sign * changed, 0.0).sum()) + 1.0) / count for sign in (1, -1))
    half = _NORMAL * math.sqrt((lost + gained - (lost - gained) ** 2) / count)
    return 100.0 * max(lost - gained - half, -1.0), 100.0 * min(lost - gained + half, 1.0)
