"""Judging on all samples, those included that models are made by: each one is judged by a model made without it.

Four models are made by a recipe, each without every fourth sample, and take turns. That tells more than the samples
held back do, and takes four times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from odc_mlir.calibration.recorded import Records, joined
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.options import Options
from odc_mlir.quantizer.stages import Candidate, CandidateBuilder, FloatModel, Recipe, Statistics
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

FOLDS = 4


@dataclass
class Folds:
    """``samples`` in as many folds as :data:`FOLDS`, for models of ``options``; ``original`` is the float model."""

    original: Graph
    samples: Sequence[Sequence[Array]]
    options: Options
    _records: dict[int, tuple[FloatModel, list[Records]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        """How many folds there are: one for each of fewer samples."""
        return min(FOLDS, len(self.samples))

    @cached_property
    def reference(self) -> Reference:
        """The float model's outputs for all samples."""
        return Reference(self.original, self.samples)

    def measure(
        self, model: FloatModel, recipe: Recipe, statistics: Statistics | None = None, *, keep: bool = False
    ) -> Measurement:
        """How far models made of ``model`` by ``recipe`` are from the original; ``keep`` their outputs.

        With ``statistics`` all have ranges by these, and are without the samples for all else. Raises OdcError where no
        model can be made without some of the samples.
        """
        graphs = [self._without(model, recipe, fold, statistics).graph for fold in range(self.count)]
        return self.reference.measure(*graphs, keep=keep)

    def _without(self, model: FloatModel, recipe: Recipe, fold: int, statistics: Statistics | None) -> Candidate:
        others = [sample for number, sample in enumerate(self.samples) if number % self.count != fold]
        if statistics is None:
            kept = [found for place, found in enumerate(self._recorded(model)) if place != fold]
            statistics = joined(kept).statistics()
        # what rounding found out by all samples is not for this one
        return CandidateBuilder(self.options, others).build(FloatModel(model.module), recipe, statistics)

    def _recorded(self, model: FloatModel) -> list[Records]:
        """What was recorded of each fold."""
        if id(model) not in self._records:
            executor = HostExecutor(model.graph)
            found = [record(executor, self.samples[fold :: self.count]) for fold in range(self.count)]
            self._records[id(model)] = model, found
        return self._records[id(model)][1]
