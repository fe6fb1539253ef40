"""The quantiser's driver, which searches for the best quantised model of a float model and samples.

The same model, data and options give the same bytes if ``max_seconds`` does not cut the search short.
"""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.calibration.recorded import FEW_RUNS, amount
from odc_mlir.errors import OptionError
from odc_mlir.formats.one import read as read_visq
from odc_mlir.quantizer.evaluator import Evaluator
from odc_mlir.quantizer.help import HelpSearch
from odc_mlir.quantizer.models import Candidate, FloatModel, layer_names, layers_of, precisions_in
from odc_mlir.quantizer.policy.options import Options, PrecisionChoice, Progress
from odc_mlir.quantizer.policy.schemes import wider_values
from odc_mlir.quantizer.precisions import PrecisionSearch, outputs_db
from odc_mlir.quantizer.samples import Data, units_that_differ
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, misfit_text, unscored_text


class Driver:
    """Driver for one model. ``original``: the imported float model. ``base``: the optimised float model."""

    def __init__(
        self, original: Graph, base: FloatModel, data: Data, options: Options, progress: Progress | None = None
    ) -> None:
        self.base, self.options = base, options
        self.findings = list(data.findings)
        self.fixed = self._fixed_precisions()  # keyed by layer name
        self._known_errors = self._visq_errors()
        self.evaluator = Evaluator(original, base, data, options, progress)
        measurable = data.without(self.evaluator.judging.silent)  # without samples that have no finite outputs
        if measurable is not data:
            self.evaluator = Evaluator(original, base, measurable, options, progress)
        self.evaluator.settle()
        self.data = data = self.evaluator.data
        self.reference = reference = self.evaluator.judging
        if reference.misfit is not None:
            self.findings.append(misfit_text(reference.misfit, len(reference.samples), FLOAT_MODEL))
        if reference.scorer is not None and reference.scorer.unscored:
            self.findings.append(unscored_text(reference.scorer.unscored))
        if options.metric is None:
            # Labels determine the kind of the output that is compared with the labels.
            labelled = {0} if reference.labels is not None else set()
            self.findings += [text for place, text in reference.doubts_of_scores.items() if place not in labelled]
        if data.fit:
            self.evaluator.record(base)
            # All samples determine the final ranges. Therefore all samples count as runs.
            found = [*amount(data.known), *(found for found in base.records.findings if found.kind != FEW_RUNS)]
            self.findings += map(str, found)
        self.differing_units: dict[str, str] = {}  # texts by input name
        if data.separate and not data.made_up:
            by = "calibration samples" if data.fit else "recorded ranges"
            self.differing_units = units_that_differ(
                base.graph, self.evaluator.statistics_of(base), data.held, by=by, among="the samples to check on"
            )
            self.findings += self.differing_units.values()
        self.precision_search: PrecisionSearch | None = None
        self.plain: Candidate | None = None  # candidate without help

    def _fixed_precisions(self) -> dict[str, PrecisionChoice]:
        """Return the precisions that the user chose. Layers with given parameters keep the scheme."""
        graph = self.base.graph
        outputs = (out for item in graph.nodes for out in item.outputs)
        names = [graph.tensors[index].name for index in (*graph.inputs, *outputs)]
        asked = {*self.options.parameters, *self.options.copied_parameters}
        constants = {index for index, info in enumerate(graph.tensors) if info.is_const and info.name in asked}
        readers = (node.outputs[0] for node in graph.nodes if constants.intersection(node.inputs))
        given = asked.union(graph.tensors[index].name for index in readers).intersection(names)
        found = dict.fromkeys(sorted(given), PrecisionChoice(self.options.scheme))
        for pattern in self.options.patterns:
            layers = layers_of(graph, pattern)
            found |= dict.fromkeys(layers, PrecisionChoice(wider_values(self.options.scheme)))
            if not layers:
                self.findings.append(f"the pattern {pattern} is nowhere in the optimised model")
        return found | self.options.plan.resolve(names)

    def _visq_errors(self) -> tuple[str, Mapping[str, float]] | None:
        file = self.options.visq_file
        if file is None:
            return None
        metric, errors = read_visq(file)
        if errors.keys().isdisjoint(layer_names(self.base.module)):
            raise OptionError("the file has no error of a layer of the optimised model", location=file)
        return metric, errors

    def run(self) -> Candidate:
        """Return the best candidate within the limits, or the best of all if no candidate holds the limits."""
        evaluator, options = self.evaluator, self.options
        choosing = HelpSearch(evaluator, self.fixed, self.findings)
        best = found = choosing.run()
        self.plain = choosing.plain
        weights_only = evaluator.builder.scheme.weights_only
        if evaluator.target is not None and not weights_only:
            evaluator.place(best, has_own=bool(self.fixed))
        # Random inputs do not show which precision weights need, but a budget requires a search anyway.
        is_informative = bool(self.data.fit) or not weights_only or options.has_budget
        if options.searches_precisions and is_informative:
            assert self.plain is not None
            found = self._widened(self.plain, best)
            if self.data.made_up and (options.has_budget or found is not best):
                self.findings.append("made-up inputs decided which layers get more bits; give samples instead")
        return evaluator.builder.verify(found)

    def _widened(self, plain: Candidate, best: Candidate) -> Candidate:
        """Return ``best``, or a candidate with other precisions in few layers if ``best`` misses limits."""
        self.precision_search = PrecisionSearch(
            self.evaluator,
            precisions_in(best.model, self.fixed),
            layer_names(best.model.module),
            outputs_db(self.evaluator.measured(plain)),
            self._known_errors,
        )
        return self.precision_search.run(best)
