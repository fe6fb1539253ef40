"""Judging by models that do not know the samples that they are judged on.

What a model knows of samples it would know of no others: ranges that hold all of them clip nothing. So models are made
by the same recipe, each without some samples, and judge these in turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from odc_mlir.calibration.recorded import Records, joined
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.building import CandidateBuilder
from odc_mlir.quantizer.data import Data
from odc_mlir.quantizer.evaluation import Reference
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.options import Options
from odc_mlir.quantizer.stages import Candidate, FloatModel, Recipe, Statistics
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.recording import record

LOG = logging.getLogger(__name__)

FOLDS = 4
_MOST_KNOWN = 2  # candidates: what is best so far, and what is compared with it


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What was measured of a candidate of ``model``; ``by_twins``: of models made by its recipe instead of it."""

    model: FloatModel
    candidate: Candidate
    parts: int
    measured: Measurement
    by_twins: bool

    def is_of(self, model: FloatModel, candidate: Candidate, parts: int) -> bool:
        """Whether it holds for this candidate as well: codes may be refined by more samples, which twins do not see."""
        if candidate is self.candidate:
            return parts == self.parts or not self.by_twins
        return (
            self.by_twins and parts == self.parts and model is self.model and candidate.recipe == self.candidate.recipe
        )


class HeldBack:
    """Judges on the samples held back of ``data``, which ``reference`` has; ``say`` tells of models that are made.

    Each part of them is judged by a model that knows the others, and all samples to choose by.
    """

    def __init__(self, options: Options, data: Data, reference: Reference, say: Callable[[str, int], None]) -> None:
        self._data, self._reference, self._say = data, reference, say
        self._builder = CandidateBuilder(options, data.fit)
        self._known: list[_Judgement] = []  # the last ones, in order

    def measure(self, model: FloatModel, candidate: Candidate, parts: int) -> Measurement:
        """How far models made of ``model`` as ``candidate`` is are from the float one; outputs are kept.

        Each of ``parts``, a divisor of the recorded ones, is judged by a model that lacks it. It is the candidate
        itself where the samples take no part in making it, or cannot be left out.
        """
        found = next((known for known in self._known if known.is_of(model, candidate, parts)), None)
        others = [known for known in self._known if known is not found]
        found = found or self._judged(model, candidate, parts)
        self._known = [*others[-_MOST_KNOWN + 1 :], found]
        return found.measured

    def _judged(self, model: FloatModel, candidate: Candidate, parts: int) -> _Judgement:
        data, recipe = self._data, candidate.recipe
        twins: list[Candidate] = []
        if data.fit and not data.separate:
            if not self._builder.scheme.weights_only:
                twins = self._twins(model, recipe, parts)
            elif recipe.rounding or recipe.correction:  # codes that know the samples which refined them
                twins = [self._builder.build(model, recipe, {})]
        measured = self._reference.measure(*(twin.graph for twin in twins or [candidate]), keep=True)
        return _Judgement(model, candidate, parts, measured, by_twins=bool(twins))

    def _twins(self, model: FloatModel, recipe: Recipe, parts: int) -> list[Candidate]:
        """Models of ``recipe``, each without one of ``parts`` of the samples; none where they cannot be made."""
        if parts < 2:
            return []
        self._say("judging on samples held back", parts)
        try:
            return [self._builder.build(model, recipe, model.without(part, parts)) for part in range(parts)]
        except OdcError:
            LOG.info("the model cannot be made without the samples held back", exc_info=True)
            return []


@dataclass
class Folds:
    """Judges on ``samples``, those included that models of ``options`` are made by; ``original`` is the float model.

    ``like``: its answers to some of them, which say what its outputs are.

    Each of four models lacks every fourth sample. That tells more than the samples held back do, and takes four times
    as long.
    """

    original: Graph
    samples: Sequence[Sequence[Array]]
    options: Options
    like: Reference | None = None
    _records: dict[int, tuple[FloatModel, list[Records]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        """How many folds there are: one for each of fewer samples."""
        return min(FOLDS, len(self.samples))

    @cached_property
    def reference(self) -> Reference:
        """The float model's outputs for all samples."""
        return Reference(self.original, self.samples, like=self.like)

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
