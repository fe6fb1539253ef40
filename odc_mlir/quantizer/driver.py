"""The quantiser's driver: from a float model and samples to the best quantised model.

1. The model is optimised and folded; its ranges are recorded on all samples.
2. Help: optional steps are tried one after the other (:mod:`odc_mlir.quantizer.help`).
3. If limits do not hold on the held-back samples, layers get more bits or float
   (:mod:`odc_mlir.quantizer.precisions`), where the target leaves a choice.
4. The verdict compares the result with the float model on all samples by cross-validation
   (:mod:`odc_mlir.quantizer.verdict`). Large models are judged on the held-back samples only.

The same model, data and options give the same bytes, unless ``max_seconds`` cuts the search short.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from odc_mlir.calibration.recorded import FEW_RUNS, RecordFinding, amount
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.formats.one import read as read_visq
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.evaluator import Evaluator, MeasuredCandidate
from odc_mlir.quantizer.help import CORRECTION_OF_MIXED, HelpSearch, RecipeChange
from odc_mlir.quantizer.intervals import FEWEST_TO_TRUST
from odc_mlir.quantizer.layers import LEAST_COVERAGE, LEAST_TARGET_COVERAGE
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe, layer_names, layers_of, precisions_in
from odc_mlir.quantizer.policy.declarations import LITERT
from odc_mlir.quantizer.policy.options import Options, PrecisionChoice, Progress
from odc_mlir.quantizer.policy.schemes import NARROW, wider_values
from odc_mlir.quantizer.policy.verdict import R2_LIMIT, Limit, check_can_be_missed, choose_limits, metric_name
from odc_mlir.quantizer.precisions import PrecisionSearch, Tried, outputs_db
from odc_mlir.quantizer.samples import Data, units_that_differ
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, misfit_text, unscored_text
from odc_mlir.transforms.circle.circle_equalize_channels import drop_factors, without_factors
from odc_mlir.transforms.quant.quant_limit_far import limited

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement, TargetRules, Time


class Driver:
    """Driver for one model: ``original``, optimised as ``base``; ``evaluator.steps`` records the search."""

    def __init__(
        self, original: Graph, base: FloatModel, data: Data, options: Options, progress: Progress | None = None
    ) -> None:
        self.base, self.options = base, options
        self.findings = list(data.findings)
        self._fixed = self._fixed_precisions()
        self._known_errors = self._errors_told()
        self.evaluator = Evaluator(original, base, data, options, progress)
        told = data.without(self.evaluator.judging.silent)  # samples without finite outputs have no measure
        if told is not data:
            self.evaluator = Evaluator(original, base, told, options, progress)
        self.data = data = self.evaluator.data
        self.reference = self.evaluator.judging
        self.limits, self.outputs_vary = self._limits(len(self.reference.samples))
        self.search_limits, _ = self._limits(len(data.held))
        if self.reference.misfit is not None:
            self.findings.append(misfit_text(self.reference.misfit, len(self.reference.samples), FLOAT_MODEL))
        if self.reference.scorer is not None and self.reference.scorer.unscored:
            self.findings.append(unscored_text(self.reference.scorer.unscored))
        if options.metric is None:
            # Labels say what the output is that they are compared with.
            labelled = {0} if self.reference.labels is not None else set()
            doubts = self.reference.doubts_of_scores
            self.findings += [text for place, text in doubts.items() if place not in labelled]
        if self.data.fit:
            self.evaluator.record(self.base)
            self.findings += [str(finding) for finding in self._of_records() if finding.severity != "note"]
        self.model, self.statistics = self.base, self.evaluator.statistics_of(self.base)
        self.differing_units: dict[str, str] = {}  # texts about inputs in another unit, by name
        if data.separate and not data.made_up:
            by = "calibration samples" if data.fit else "recorded ranges"
            self.differing_units = units_that_differ(
                self.base.graph, self.statistics, data.held, by=by, among="the samples to check on"
            )
            self.findings += self.differing_units.values()
        self.target: TargetRules | None = None
        if options.target is not None:
            from odc_mlir.quantizer.target import TargetRules  # imports the NPU's back end

            self.target = TargetRules(options.target)
        self.plain: Placement | None = None
        self.possible: list[bool] | None = None  # which layers the target could run
        self.precision_search: PrecisionSearch | None = None

    def _of_records(self) -> list[RecordFinding]:
        """Return the findings about the records, counted over all samples that choose the final ranges."""
        data, found = self.data, self.base.records.findings
        return [*amount(data.known), *(finding for finding in found if finding.kind != FEW_RUNS)]

    def _fixed_precisions(self) -> dict[str, PrecisionChoice]:
        """Return the precisions that the user chose; layers with given parameters keep the scheme."""
        graph = self.base.graph
        outputs = (out for item in graph.nodes for out in item.outputs)
        names = [graph.tensors[index].name for index in (*graph.inputs, *outputs)]
        asked = {*self.options.parameters, *self.options.copied_parameters}
        given = (asked | self._readers_of(asked)).intersection(names)
        found = dict.fromkeys(sorted(given), PrecisionChoice(self.options.scheme))
        for pattern in self.options.patterns:
            layers = layers_of(self.base.graph, pattern)
            found |= dict.fromkeys(layers, PrecisionChoice(wider_values(self.options.scheme)))
            if not layers:
                self.findings.append(f"the pattern {pattern} is nowhere in the optimised model")
        return found | self.options.plan.resolve(names)

    def _readers_of(self, names: Set[str]) -> set[str]:
        """Return the layers that read a constant with one of these ``names``."""
        graph = self.base.graph
        constants = {index for index, info in enumerate(graph.tensors) if info.is_const and info.name in names}
        return {graph.tensors[node.outputs[0]].name for node in graph.nodes if constants.intersection(node.inputs)}

    def _errors_told(self) -> tuple[str, Mapping[str, float]] | None:
        """Return metric and errors of layers from a file; raise OptionError for a file of another model."""
        file = self.options.visq_file
        if file is None:
            return None
        metric, errors = read_visq(file)
        if errors.keys().isdisjoint(layer_names(self.base.module)):
            raise OptionError("the errors are of no layer of the optimised model", location=file)
        return metric, errors

    def _limits(self, samples: int) -> tuple[tuple[Limit, ...], bool]:
        """Return the limits for a number of samples, and whether constant outputs would miss them."""
        options, reference = self.options, self.reference
        scorer = reference.scorer
        limits = choose_limits(
            metric=options.metric,
            limit=options.limit,
            max_drop=options.max_drop,
            score=reference.metric,
            is_telling=reference.misfit is None and samples >= FEWEST_TO_TRUST,
            answering=[replace(found, count=samples * found.count) for found in reference.answers_of_one],
            has_values=reference.has_values,
            has_unscored=len(reference.graph.outputs) > 1 or (scorer is not None and bool(scorer.unscored)),
            has_many_columns=scorer is not None and scorer.has_many,
            labels=round(samples * reference.labels_of_one),
        )
        given = {"drop"} if options.max_drop is not None else set()
        if options.metric is not None or options.limit is not None:
            given.add("mpeir" if options.metric is None else metric_name(options.metric))
        # Made-up inputs pass nothing, and need not vary as real ones do.
        nothing = [] if self.data.made_up else reference.constant_measures
        tells = check_can_be_missed(limits, given, nothing, has_values=reference.has_values)
        if tells:
            return limits, True
        # Columns in several units share the range of the largest, whatever samples show of the others.
        has_units = all(map(reference.varies_in_units, range(len(reference.graph.outputs))))
        return (*limits, R2_LIMIT), has_units

    @property
    def asked_for(self) -> Set[str]:
        """Layers whose precision the user chose."""
        return self._fixed.keys()

    @property
    def scheme_is_taken(self) -> bool:
        """True if there is a target that computes with values of the model's scheme."""
        return self.target is not None and self.target.takes(self.options.scheme)

    @property
    def min_coverage(self) -> float:
        """Least share of the products that must be quantised or, if it takes the scheme, run on the target."""
        if self.options.min_coverage is not None:
            return self.options.min_coverage
        return LEAST_TARGET_COVERAGE if self.scheme_is_taken else LEAST_COVERAGE

    def run(self) -> Candidate:
        """Return the best candidate within the limits, or the best one at all."""
        choosing = HelpSearch(self.evaluator, self._fixed, self.findings)
        best = choosing.run()
        weights_only = self.evaluator.builder.scheme.weights_only
        self.model, candidate = best.model, best.candidate
        self.statistics = {} if weights_only else self.evaluator.statistics_of(best.model)
        if self.target is not None and not weights_only:
            # Placement without the user's precisions; refined codes do not change it.
            recipe = replace(best.recipe, precisions=(), rounding=False, correction=False)
            free = self.evaluator.builder.build(best.model, recipe, self.statistics) if self._fixed else candidate
            self.plain = self.target.judge(free.module)
            self.possible = self._possible(best.model, recipe)
        # Made-up inputs do not show the accuracy that weights need, but a budget must be kept.
        is_informative = bool(self.data.fit) or not weights_only or self.options.has_budget
        if self.options.searches_precisions and is_informative:
            candidate = self._widened(choosing, best)
            if self.data.made_up and (self.options.has_budget or candidate is not best.candidate):
                self.findings.append("made-up inputs say which layers need more bits; give samples, which know better")
        return self._fitting(self.evaluator.builder.verify(candidate))

    def _possible(self, model: FloatModel, recipe: Recipe) -> list[bool]:
        """Return which layers the target runs in the scheme, or else, for layers with products, with 8-bit codes.

        Sums of many products of 16-bit codes exceed its accumulators. ``recipe`` has no precisions.
        """
        assert self.target is not None
        assert self.plain is not None
        found = self.plain.taken()
        lost = [bool(layer.reason and layer.macs) for layer in self.plain.layers]
        if self.options.scheme == NARROW or not self.scheme_is_taken or not any(lost):
            return found
        try:
            narrow = recipe.with_precisions(dict.fromkeys(layer_names(model.module), NARROW), {})
            others = self.target.judge(self.evaluator.builder.build(model, narrow, self.statistics).module).taken()
        except OdcError:
            return found
        return [now or (was_lost and then) for now, was_lost, then in zip(found, lost, others, strict=True)]

    @property
    def narrow_alone(self) -> list[str]:
        """Layers that the target runs with 8-bit codes but not in the scheme."""
        if self.plain is None or self.possible in (None, self.plain.taken()):
            return []
        found = zip(layer_names(self.model.module), self.possible, self.plain.taken(), strict=True)
        return [name for name, may_run, runs in found if may_run and not runs]

    def size(self, candidate: Candidate) -> int:
        """Return the size of the candidate's file; beyond the budget without factors of channels."""
        found, most = self._file_bytes(candidate.module), self.options.max_bytes
        if most is None or found <= most:
            return found
        with without_factors(candidate.module) as had_some:
            return self._file_bytes(candidate.module) if had_some else found

    def time(self, candidate: Candidate) -> Time | None:
        """Return the latency of the candidate's package; None without a target."""
        return None if self.target is None else self.target.time(candidate.module, compiled=True)

    def over_budget(self, candidate: Candidate) -> bool:
        """Return whether the candidate exceeds the budget of bytes or time."""
        most_bytes, most_ms = self.options.max_bytes, self.options.max_time_ms
        if most_bytes is not None and self.size(candidate) > most_bytes:
            return True
        return most_ms is not None and (time := self.time(candidate)) is not None and time.ns > 1e6 * most_ms

    def finished(self, module: ModuleOp) -> ModuleOp:
        """Return the module for the file, with float constants limited to numbers that readers represent."""
        return limited(module, self.statistics)

    def _file_bytes(self, module: ModuleOp) -> int:
        model = export_model(self.finished(module))
        return len(write_tflite(model) if self.options.reader == LITERT else write_model(model))

    def _fitting(self, candidate: Candidate) -> Candidate:
        """Return ``candidate``, without factors of channels if they exceed the budget."""
        most = self.options.max_bytes
        if most is not None and self._file_bytes(candidate.module) > most and drop_factors(candidate.module):
            self.findings.append("the budget leaves no room for factors of channels, by which tools compare tensors")
        return candidate

    # More bits where they are needed.

    def _widened(self, choosing: HelpSearch, best: MeasuredCandidate) -> Candidate:
        """Return the best candidate, or where limits are missed one with other precisions in few layers."""
        model, candidate, evaluator, plain = best.model, best.candidate, self.evaluator, choosing.plain
        assert plain is not None
        first, may_correct = candidate.recipe, len(self.options.switched(self.options.correction)) > 1
        fixed = precisions_in(model, self._fixed)

        self.precision_search = PrecisionSearch(
            self.options,
            self.search_limits,
            fixed,
            evaluator.examination(model),
            _Models(self, model, first, fixed),
            self.min_coverage,
            self.target,
            self.plain,
            outputs_db(evaluator.measured(plain.candidate)),
            layer_names(model.module),
            choosing.rounding_helps and may_correct,
            self._known_errors,
            steps=evaluator.steps,
        )
        found = self.precision_search.run(candidate)
        if found is candidate or found.recipe.correction or not may_correct:
            return found
        return self._corrected(choosing, MeasuredCandidate(model, found.recipe, found, evaluator.measured(found)))

    def _corrected(self, choosing: HelpSearch, choice: MeasuredCandidate) -> Candidate:
        """Return the choice with corrected biases, where that helps and limits still hold."""
        recipe = replace(choice.recipe, correction=True)
        better = choosing.tried(CORRECTION_OF_MIXED, RecipeChange(True, choice.model, recipe), choice)
        if better is choice or self.over_budget(better.candidate):
            return choice.candidate
        assert self.precision_search is not None
        assert self.precision_search.chosen is not None
        precisions = self.precision_search.chosen.precisions
        old, new = (self.tried(precisions, item.candidate) for item in (choice, better))
        held = old.holds(self.search_limits) and self.holds_unseen(choice.candidate)
        if held and not (new.holds(self.search_limits) and self.holds_unseen(better.candidate)):
            self.evaluator.steps[-1]["kept"] = False
            return choice.candidate
        self.precision_search.replace_chosen(new)
        return better.candidate

    def share(self, candidate: Candidate) -> float:
        """Return the quantised share, or the share of possible products that the target runs."""
        if self.possible is not None and self.target is not None and self.scheme_is_taken:
            found = self.target.judge(candidate.module).share(self.possible)
        else:
            found = self.evaluator.coverage(candidate).share()
        return 0.0 if found is None else found

    def tried(self, precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        measured = self.evaluator.measured(candidate)
        metrics = self.evaluator.reference.metrics(measured)
        return Tried(precisions, candidate, metrics, outputs_db(measured), measured.lacking)

    def measures(self, candidate: Candidate) -> dict[str, float | None]:
        """Return the measures for the verdict's limits, by cross-validation.

        R² of outputs that vary in rare samples only is measured on the model itself: fold models would clip them.
        """
        found = self.reference.metrics(self.evaluator.measured_unseen(self.model, candidate))
        if R2_LIMIT in self.limits:
            found["r2"] = self.reference.metrics(self.evaluator.measured_itself(candidate))["r2"]
        return found

    def holds_unseen(self, candidate: Candidate) -> bool:
        """Return whether the limits hold as the verdict measures them."""
        evaluator = self.evaluator
        metrics = self.measures(candidate)
        lacking = evaluator.measured_unseen(self.model, candidate).lacking
        if lacking or not all(limit.holds(metrics) for limit in self.limits):
            return False
        if self.reference.measurable >= FEWEST_TO_TRUST:
            return True
        return not evaluator.intervals(self.model, candidate).doubtful(self.limits, metrics)


class _Models:
    """Models with other precisions for the search: the recipe ``first`` of ``model`` with ``fixed`` precisions."""

    def __init__(self, driver: Driver, model: FloatModel, first: Recipe, fixed: Mapping[str, PrecisionChoice]) -> None:
        self._driver, self._model, self._first, self._fixed = driver, model, first, fixed
        self.size, self.share, self.holds_unseen = driver.size, driver.share, driver.holds_unseen
        self.measure, self.in_time, self.say = driver.tried, driver.evaluator.in_time, driver.evaluator.say

    def build(self, precisions: Mapping[str, str], *, refines: bool = False) -> Candidate:
        recipe = self._first.with_precisions(precisions, self._fixed)
        return self._made(replace(recipe, rounding=True, correction=True) if refines else recipe)

    def draft(self, precisions: Mapping[str, str]) -> Candidate:
        recipe = self._first.with_precisions(precisions, self._fixed)
        return self._made(replace(recipe, rounding=False, correction=False))

    def _made(self, recipe: Recipe) -> Candidate:
        evaluator = self._driver.evaluator
        evaluator.count_one_more()
        return evaluator.builder.build(self._model, recipe, self._driver.statistics)
