"""Judging by models that do not know the samples that they are judged on.

What a model knows of samples it would know of no others: ranges that hold all of them clip nothing. So models are made
by the same recipe, each without some samples, and judge these in turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from odc_mlir.calibration.recorded import joined
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.quantizer.building import MOST_REFINING, CandidateBuilder
from odc_mlir.quantizer.data import Data
from odc_mlir.quantizer.evaluation import Reference
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.options import Options
from odc_mlir.quantizer.refinement import Known, Learner, learn
from odc_mlir.quantizer.stages import Candidate, FloatModel, Recipe, Statistics
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
    """What was measured of a candidate of ``model``; ``by_twins``: of models made by its recipe instead of it."""

    model: FloatModel
    candidate: Candidate
    measured: Measurement
    by_twins: bool

    def is_of(self, model: FloatModel, candidate: Candidate) -> bool:
        """Whether it holds for this candidate as well: codes may be refined by more samples, which twins do not see."""
        is_alike = self.by_twins and model is self.model and candidate.recipe == self.candidate.recipe
        return candidate is self.candidate or is_alike


class Judgements:
    """The last judgements of candidates, so that what is best so far is not judged anew for all it is compared with."""

    def __init__(self) -> None:
        self._last: list[Judgement] = []  # in the order in which they were asked for

    def measured(
        self, model: FloatModel, candidate: Candidate, judge: Callable[[FloatModel, Candidate], Judgement]
    ) -> Measurement:
        """What is known of the candidate, or what ``judge`` finds."""
        found = next((known for known in self._last if known.is_of(model, candidate)), None)
        others = [known for known in self._last if known is not found]
        found = found or judge(model, candidate)
        self._last = [*others[-_MOST_KNOWN + 1 :], found]
        return found.measured


class HeldBack:
    """Judges on the samples held back of ``data``, which ``reference`` has; ``say`` tells of models that are made.

    Each part of them is judged by a model that knows the others, and all samples to choose by. Of two parts that is
    worse than what others will find, by what half of those held back tell: prudence in choosing is worth more
    than the truth.
    """

    def __init__(self, options: Options, data: Data, reference: Reference, say: Callable[[str, int], None]) -> None:
        self._data, self._reference, self._say = data, reference, say
        self._builder = CandidateBuilder(options, data.fit)
        self._known = Judgements()

    def measure(self, model: FloatModel, candidate: Candidate) -> Measurement:
        """How far models made of ``model`` as ``candidate`` is are from the float one; outputs are kept.

        It is the candidate itself where the samples take no part in making it, or cannot be left out.
        """
        return self._known.measured(model, candidate, self._judged)

    def _judged(self, model: FloatModel, candidate: Candidate) -> Judgement:
        data, recipe = self._data, candidate.recipe
        twins: list[Candidate] = []
        if data.fit and not data.separate:
            if not self._builder.scheme.weights_only:
                twins = self._twins(model, recipe)
            elif recipe.rounding or recipe.correction:  # codes that know the samples which refined them
                twins = [self._builder.build(model, recipe, {})]
        measured = self._reference.measure(*(twin.graph for twin in twins or [candidate]), keep=True)
        return Judgement(model, candidate, measured, by_twins=bool(twins))

    def _twins(self, model: FloatModel, recipe: Recipe) -> list[Candidate]:
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
    known: dict[int, list[Known]] = field(default_factory=dict)


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
        known = self._shown_by(model).known.setdefault(count, [Known() for _ in runs])
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
        """What was recorded without each fold that judges."""
        shown = self._shown_by(model)
        if not shown.statistics:
            executor, count = HostExecutor(model.graph), self.count(JUDGES)
            records = [record(executor, self.reference.samples[fold::count]) for fold in range(count)]
            others = (joined([*records[:fold], *records[fold + 1 :]]) for fold in range(count))
            shown.statistics = [found.statistics() for found in others]
        return shown.statistics
