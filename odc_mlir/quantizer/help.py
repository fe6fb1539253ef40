"""Help for a model: optional quantisation steps. A step is kept if a paired test on held-out samples confirms the gain.

A row of the help table (``OF_VALUES``, ``OF_WEIGHTS``) is a kind of help. The changes of a row are applied in turn to
the best trial so far. :meth:`HelpSearch.accepts` decides about each change by the row's samples and the change's
tolerance. To add help, add a row. A new field of :class:`Recipe` also needs code in ``CandidateBuilder``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.quantizer import models as float_models
from odc_mlir.quantizer.candidates import has_outputs_with_tails
from odc_mlir.quantizer.evaluator import Evaluator
from odc_mlir.quantizer.layers import LEAST_COVERAGE
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe
from odc_mlir.quantizer.policy.declarations import AUTO, INPUTS, OFF, OUTPUTS
from odc_mlir.quantizer.policy.options import PrecisionChoice
from odc_mlir.quantizer.policy.ranges import MINMAX
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.transforms.circle.circle_equalize_channels import drop_factors

LOG = logging.getLogger(__name__)

# Minimum gain of a change beyond chance. Half or twice the value changes no network of benchmarks/ablation.py.
LEAST_GAIN_DB = 0.1
# Headrooms to try. With 8 bits, 10 and 30 % cost at most 0.8 and 2.3 dB, because steps are wider. With 16 bits, four
# times the range cost one bit more than WIDE_HEADROOM.
HEADROOMS, WIDER_HEADROOMS = (0.1, 0.3), (3.0,)
# Headrooms are tried if unseen samples are worse than known samples by about half the cost of 10 % (8 bits).
_LEAST_LOST_DB = 0.5
# Headroom -> largest number of samples for which the headroom is presumed to help, and the cost in dB accepted then.
# An unseen sample exceeds the maximum of n samples with probability 1 / (n + 1): 1 in 100, or 1 in 17. The cost of the
# second headroom is the cost beyond the first.
_FEW = 99
_PRESUMED = {0.1: (_FEW, 0.5), 0.3: (16, 1.5), 3.0: (_FEW, 0.5)}
_NARROW = (("high", 90.0), ("low", 10.0))  # ranges without the extremes of the lowest and the highest tenth of runs

_IMPLIED = (
    "the first layer's weights differ by channel, as if they included a normalisation of inputs: inputs are scaled by "
    "these weights; with calibration samples, inputs are normalised by their values"
)
NORMALIZED = {INPUTS: "normalize", OUTPUTS: "normalize outputs"}  # names of steps

# Samples that judge a row: the held-out samples, or all samples in cross-validation.
HELD_BACK, UNSEEN = "held back", "unseen"


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """Model and recipe to try."""

    value: Any
    model: FloatModel
    recipe: Recipe
    is_presumed: bool = False  # whether the change is kept unless it is worse beyond chance
    most_lost_db: float = 0.0  # accepted loss of a presumed change on unseen samples


@dataclass(frozen=True, slots=True)
class Help:
    """A row of the help table: name of the step, condition, generator of changes, and samples that judge the changes.

    A change builds on ``search.best``, which the previous change may have replaced. ``applies`` also reads the options:
    without help, and for options that the user gives, a row has no changes.
    """

    name: str
    applies: Callable[[HelpSearch], bool]
    changes: Callable[[HelpSearch], Iterator[RecipeChange]]
    judged_on: str = HELD_BACK


class HelpSearch:
    """Search for the help that improves a model. ``fixed``: precisions that the user chose."""

    best: Candidate

    def __init__(self, evaluator: Evaluator, fixed: Mapping[str, PrecisionChoice], findings: list[str]) -> None:
        self.evaluator, self.fixed, self._findings = evaluator, fixed, findings
        self.measured, self.data = evaluator.measured, evaluator.data
        self.options = options = evaluator.options
        self.weights_only = options.definition.weights_only
        self.models: dict[str, FloatModel] = {}  # equalised models by kind
        self.plain: Candidate | None = None  # the first trial, without help
        self._last_trials: list[Candidate] = []  # last trials

    def run(self) -> Candidate:
        if self.weights_only and not self.data.fit:
            return self._by_weights_alone()
        model, recipe = self._start()
        if self.weights_only:
            recipe = replace(recipe, fitted=self.options.fits_scales[0])
            self.best = self.first(model, recipe, "codes", "nearest")
            self._try_all(OF_WEIGHTS)
            return self.best
        self.models = {"none": model}
        kind = self.options.equalizations[0]
        if self.equalized(kind) is None:
            self._findings.append(f"equalize {kind} changes nothing: no pair of layers it could change")
            kind = "none"
        self.best = self.first(self.models[kind], replace(recipe, equalize=kind), "equalize", kind)
        self._try_all(OF_VALUES)
        return self.best

    def _by_weights_alone(self) -> Candidate:
        model, recipe = self.evaluator.base, replace(self._recipe(), fitted=self.options.fits_scales[-1])
        asks = self.options.io == FLOAT and self.options.normalizes(INPUTS)[-1]
        if asks and (found := float_models.normalized(model, (), by_weights=True)) is not None:
            self._findings.append(_IMPLIED)
            model, recipe = found, replace(recipe, normalize=True)
        self.plain = self.evaluator.built(model, recipe)
        return self.plain

    def _try_all(self, rows: tuple[Help, ...]) -> None:
        for row in rows:
            if row.applies(self):
                for change in row.changes(self):
                    self.best = self.tried(row.name, change, self.best, row.judged_on)

    def tried(self, name: str, change: RecipeChange, best: Candidate, judged_on: str = HELD_BACK) -> Candidate:
        """Return the trial of ``change`` if it is accepted on the samples ``judged_on``, else ``best``."""
        if not self.evaluator.in_time():
            return best
        try:
            known = (each for each in self._last_trials if each.model is change.model and each.recipe == change.recipe)
            found = next(known, None) or self.evaluator.built(change.model, change.recipe)
            kept = self.accepts(judged_on, change, found, best)
        except OdcError:
            LOG.info("%s=%s cannot be used", name, change.value, exc_info=True)
            return best
        self._noted(found, name, change.value, kept=kept)
        self._last_trials = [*self._last_trials[-1:], found]
        return found if kept else best

    # Acceptance.

    def accepts(self, judged_on: str, change: RecipeChange, found: Candidate, best: Candidate) -> bool:
        """Return whether ``found`` replaces ``best``: it gains on the judging samples, and no layer turns float."""
        gains = self.foreseen(change, found, best) if judged_on == UNSEEN else None
        if gains is None:
            gains = self._gains(judged_on, change, found, best)
        # Float layers do not count as a gain: sufficient coverage takes precedence over accuracy.
        least = LEAST_COVERAGE if self.options.min_coverage is None else self.options.min_coverage
        share, before = (self.evaluator.coverage(each).share() or 0.0 for each in (found, best))
        return (gains and not self.loses_layers(found, best)) or before < least <= share

    def foreseen(self, change: RecipeChange, found: Candidate, best: Candidate) -> bool | None:
        """Return whether a wider range gains, or None if only cross-validation of ``found`` can tell.

        Known samples show the cost of wider steps. Unseen samples regain at most their present loss by clipping.
        """
        lost_db = self.measured(best).quality_db - self.measured(found).quality_db
        if change.is_presumed and lost_db <= change.most_lost_db:
            return True
        clipped_db = self.evaluator.measured_itself(best).quality_db - self.evaluator.measured_unseen(best).quality_db
        least_db = -change.most_lost_db if change.is_presumed else _LEAST_LOST_DB
        return False if clipped_db - lost_db < least_db else None

    def _gains(self, judged_on: str, change: RecipeChange, found: Candidate, best: Candidate) -> bool:
        measure = self.measured if judged_on == HELD_BACK else self.evaluator.measured_unseen
        ours, theirs = map(measure, (found, best))
        if not change.is_presumed:
            return ours.better_than(theirs, LEAST_GAIN_DB)
        if judged_on == HELD_BACK:
            return not theirs.better_than(ours, max(LEAST_GAIN_DB, change.most_lost_db))
        return ours.quality_db - theirs.quality_db >= -change.most_lost_db

    def loses_layers(self, found: Candidate, best: Candidate) -> bool:
        """Return whether ``found`` has more float multiplications, or infinite or NaN outputs for more samples."""
        ours, theirs = (self.evaluator.coverage(each).left("macs") for each in (found, best))
        return ours > theirs or self.measured(found).lacking > self.measured(best).lacking

    # Models and recipes.

    def _start(self) -> tuple[FloatModel, Recipe]:
        """Return the first model and the model's recipe. Inputs and outputs are normalised if that helps."""
        model, recipe = self.evaluator.base, self._recipe()
        for kind, name in NORMALIZED.items():
            found = self.normalized(model, kind)
            if found is None:
                continue
            chosen = recipe.normalizing(kind, found)
            if not self.options.normalizes(kind)[0]:
                plain = self.first(model, recipe, name, False)
                presumed = kind == INPUTS and found.mends_columns and not self.weights_only
                best = self.tried(name, RecipeChange(True, found, chosen, presumed), plain)
                found, chosen = best.model, best.recipe
            model, recipe = found, chosen
        if self.options.normalization not in (AUTO, OFF) and model is self.evaluator.base:
            self._findings.append(
                f"normalize {self.options.normalize} changes nothing: no input has channels, and no output of a "
                "quantised layer without given type or parameters has columns, that differ and could be normalised"
            )
        return model, recipe

    def _recipe(self) -> Recipe:
        options = self.options
        return Recipe(
            ranges=MINMAX if options.ranges == AUTO else options.ranges,
            range_options=tuple(sorted(options.range_options.items())),
            headroom=options.chosen_headroom,
            output_room=options.switched(options.output_room)[0],
            rounding=bool(self.data.fit) and options.switched(options.rounding)[0],
            correction=bool(self.data.fit) and options.switched(options.correction)[0],
            precisions=tuple(sorted(self.fixed.items())),
        )

    def normalized(self, model: FloatModel, kind: str) -> FloatModel | None:
        """Return ``model`` with normalised inputs or outputs, and records, or None if not requested or if quantised."""
        if self.options.io != FLOAT or not self.data.fit or not self.options.normalizes(kind)[-1]:
            return None
        if kind == INPUTS:
            # With 8 bits, columns of images get separate channels. 16 bits have enough codes for small columns.
            activations = self.evaluator.builder.scheme.activations
            has_few_codes = activations is not None and DTYPES[activations].bits == 8
            found = float_models.normalized(model, self.data.fit, columns=has_few_codes)
        else:
            found = self._outputs_normalized(model)
        if found is not None:
            self.evaluator.record(found)
        return found

    def _outputs_normalized(self, model: FloatModel) -> FloatModel | None:
        """Normalise outputs, except outputs of float layers and outputs with given parameters or types."""
        if self.weights_only or self.options.output_types:
            return None
        reference, infos = self.evaluator.reference, model.graph.output_infos()
        axes = {info.name: reference.columns(place).axis for place, info in enumerate(infos) if reference.splits(place)}
        kept = {name for name, choice in self.fixed.items() if choice.precision == FLOAT}
        kept |= {*self.options.parameters, *self.options.copied_parameters}
        asked = {name: axis for name, axis in axes.items() if name not in kept}
        moved = {info.name for place, info in enumerate(infos) if not reference.has_scores(place)} - kept
        return float_models.outputs_normalized(model, asked, moved, self.evaluator.statistics_of(model), self.data.fit)

    def equalized(self, kind: str) -> FloatModel | None:
        """Return the equalised model with records, or None if nothing changes, or if there are no samples to record."""
        if kind not in self.models:
            root = self.models["none"]
            found = float_models.equalized(root, kind, root.fitted) if self.data.fit else None
            if found is None:
                return None
            if self.options.max_bytes is not None:
                drop_factors(found.module)
            self.evaluator.record(found, detailed=False)
            self.models[kind] = found
        return self.models[kind]

    # Trials.

    def first(self, model: FloatModel, recipe: Recipe, what: str, value: Any) -> Candidate:
        """Return the first trial, the reference for later trials."""
        trial = self.plain
        if trial is None or trial.model is not model or trial.recipe != recipe:
            trial = self.evaluator.built(model, recipe)
        if self.plain is None:
            self.evaluator.builder.verify(trial)  # raises an error for impossible parameters
            self.plain = trial
        return self._noted(trial, what, value, kept=True)

    def _noted(self, trial: Candidate, what: str, value: Any, *, kept: bool) -> Candidate:
        quality = self.measured(trial).quality_db
        self.evaluator.steps.append({"step": what, "value": value, "quality_db": quality, "kept": kept})
        self.evaluator.say(f"{what} {value}: {quality:.2f} dB{', kept' if kept else ''}", made=1)
        return trial


# Changes of the rows.


def _equalizations(search: HelpSearch) -> Iterator[RecipeChange]:
    # Judging large models takes long. Hence, their activations are tried before weights, and a gain ends the row.
    is_large = search.evaluator.is_large
    for kind in sorted(search.options.equalizations[1:], key=lambda kind: is_large and kind == "weights"):
        if (model := search.equalized(kind)) is not None:
            yield RecipeChange(kind, model, replace(search.best.recipe, equalize=kind))
        if is_large and search.best.recipe.equalize == kind:
            return


def _next_equalizations(search: HelpSearch) -> Iterator[RecipeChange]:
    """Yield the best kind without refined codes, except the chosen kind, and if limits are missed, the other kinds."""
    seen = {step["value"]: step["quality_db"] for step in search.evaluator.steps if step["step"] == "equalize"}
    others = sorted(seen.keys() - {search.best.recipe.equalize}, key=lambda kind: (-seen[kind], kind))
    metrics = search.evaluator.reference.metrics(search.measured(search.best))
    are_met = all(limit.holds(metrics) for limit in search.evaluator.search_limits)
    for kind in others[: 1 if are_met else None]:
        yield RecipeChange(kind, search.models[kind], replace(search.best.recipe, equalize=kind))


def _switched(
    search: HelpSearch, is_presumed: bool = False, most_lost_db: float = 0.0, **fields: Any
) -> Iterator[RecipeChange]:
    recipe = replace(search.best.recipe, **fields)
    yield RecipeChange(next(iter(fields.values())), search.best.model, recipe, is_presumed, most_lost_db)


def _headrooms(search: HelpSearch) -> Iterator[RecipeChange]:
    """Yield headrooms if unseen samples have larger errors, or if calibration samples are few."""
    evaluator = search.evaluator
    for headroom in WIDER_HEADROOMS if search.options.has_codes_to_spare else HEADROOMS:
        before = search.best
        few, most_lost_db = _PRESUMED.get(headroom, (0, 0.0))
        is_presumed = search.data.independent <= few
        if search.data.rollout is not None:  # the frames of the roll-out show whether ranges are too narrow
            most_lost_db = min(most_lost_db, _PRESUMED[0.1][1])
        if not is_presumed:
            seen_db = evaluator.measured_unseen(before).quality_db
            if seen_db > evaluator.measured_itself(before).quality_db - _LEAST_LOST_DB:
                continue
        yield RecipeChange(headroom, before.model, replace(before.recipe, headroom=headroom), is_presumed, most_lost_db)
        # If a headroom harms, a larger headroom also harms. Judging large models takes long.
        if search.best is before or evaluator.is_large:
            return


# Conditions of rows.


def _may_switch(search: HelpSearch, option: str) -> bool:
    is_open = len(search.options.switched(getattr(search.options, option))) > 1
    return bool(search.data.fit) and is_open and not getattr(search.best.recipe, option)


def _has_refined(search: HelpSearch) -> bool:
    assert search.plain is not None
    first, best = search.plain.recipe, search.best.recipe
    return not search.evaluator.is_large and (first.rounding, first.correction) != (best.rounding, best.correction)


def _has_unseen(search: HelpSearch) -> bool:
    return bool(search.data.fit) and search.data.held is not search.data.fit


def _may_narrow_ranges(search: HelpSearch) -> bool:
    has_many = search.data.independent > _FEW  # else, wider ranges are presumed to help
    return has_many and search.options.help and search.options.ranges == AUTO and not search.options.has_codes_to_spare


def _may_make_output_room(search: HelpSearch) -> bool:
    model = search.best.model
    may_ask = _has_unseen(search) and not search.evaluator.is_large and not search.options.has_codes_to_spare
    is_open = may_ask and _may_switch(search, "output_room")
    return is_open and has_outputs_with_tails(model.module, search.evaluator.statistics_of(model))


ROUNDING = Help("rounding", partial(_may_switch, option="rounding"), partial(_switched, rounding=True))
CORRECTION = Help("correction", partial(_may_switch, option="correction"), partial(_switched, correction=True))
OF_VALUES = (
    Help("equalize", lambda search: True, _equalizations),
    ROUNDING,
    CORRECTION,
    # Rounding nearly always helps small models, but few held-out samples cannot confirm this gain.
    Help(
        "rounding unless worse",
        lambda search: (
            _may_switch(search, "rounding")
            and not (search.best.recipe.correction and search.options.has_codes_to_spare)
            and not search.evaluator.is_large
        ),
        partial(_switched, is_presumed=True, rounding=True),
    ),
    # Rounding noise of weights hides gains of other changes, and refined codes reduce this noise.
    Help("refined equalize", _has_refined, _next_equalizations),
    Help("ranges", _may_narrow_ranges, partial(_switched, ranges="percentile", range_options=_NARROW)),
    # A loss of one decibel is accepted for output room, because samples seldom show the gain for rare values.
    Help(
        "output room",
        _may_make_output_room,
        partial(_switched, is_presumed=True, most_lost_db=1.0, output_room=True),
        UNSEEN,
    ),
    Help(
        "headroom",
        lambda search: search.options.help and search.options.headroom is None and _has_unseen(search),
        _headrooms,
        UNSEEN,
    ),
)
OF_WEIGHTS = (
    Help("fitted scales", lambda search: len(search.options.fits_scales) > 1, partial(_switched, fitted=True)),
    # Few samples cannot confirm the gain.
    replace(ROUNDING, changes=partial(_switched, is_presumed=True, rounding=True)),
    replace(CORRECTION, changes=partial(_switched, is_presumed=True, correction=True)),
)
