"""Help for a model: optional quantisation steps, each kept if a paired test on held-back samples confirms it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.formats.quantities import listed
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.quantizer.candidates import takes_room
from odc_mlir.quantizer.evaluator import HALVES, JUDGES, BestCandidate, Making
from odc_mlir.quantizer.layers import LEAST_COVERAGE
from odc_mlir.quantizer.measurement import GOOD_DB, Measurement
from odc_mlir.quantizer.models import (
    FloatModel,
    Recipe,
    equalized,
    normalized,
    normalized_by_weights,
    outputs_normalized,
)
from odc_mlir.quantizer.outputs import unreached
from odc_mlir.quantizer.policy.options import AUTO, INPUTS, OFF, OUTPUTS, PrecisionChoice
from odc_mlir.quantizer.policy.schemes import FLOAT

# A choice must improve the outputs by this much to be kept, and by more than what chance does.
LEAST_GAIN_DB = 0.1

# The part of a gain that samples which chose no ranges may lose, if not beyond chance, for columns that are told again.
_FORGIVEN = 0.1


class Criteria:
    """Compares choices that ``making`` made."""

    def __init__(self, making: Making) -> None:
        self._making, self._options, self._data = making, making.options, making.data

    def holds_others(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether other ranges or channels are no worse than ``best`` for samples that they were not chosen by.

        Channels that are all as large as the largest, and ranges that clip, leave less room for what was not seen.
        """
        if self._data.separate or has_same_ranges(choice, best):  # samples that chose nothing have judged both already
            return True
        theirs, ours = self._by_halves(best, choice)
        if choice.recipe.ranges == best.recipe.ranges:
            most_lost_db = 0.0
            if choice.measured.tells_more(best.measured):
                most_lost_db = _FORGIVEN * (choice.measured.quality_db - best.measured.quality_db)
            return ours.confirms(theirs, LEAST_GAIN_DB, most_lost_db)
        if not ours.confirms(theirs, LEAST_GAIN_DB):
            return False
        # What is clipped of samples to choose by tells as much of others, and they are more.
        theirs, ours = (self._making.measured_itself(each.candidate) for each in (best, choice))
        return ours.confirms(theirs, LEAST_GAIN_DB)

    def harms(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether ``choice`` is worse, beyond chance, for samples held back that did not choose its ranges."""
        theirs, ours = self._by_halves(best, choice)
        return theirs.better_than(ours, LEAST_GAIN_DB)

    def _by_halves(self, *choices: BestCandidate) -> list[Measurement]:
        """What models that lack half of the samples held back tell of each choice."""
        self._making.foreseen += HALVES * len(choices)
        return [self._making.measured_by_halves(each.model, each.candidate) for each in choices]

    def leaves_more(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether ``choice`` has products in float that ``best`` has in codes, which is no gain of what was chosen, or
        lacks numbers of more samples.

        A reader may run no codes with the scales that a choice leads to.
        """
        ours, theirs = (self._making.coverage(each.candidate).left("macs") for each in (choice, best))
        return ours > theirs or choice.measured.lacking > best.measured.lacking

    def covers(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether enough of ``choice`` has codes to pass, and of ``best`` not: what is real for lack of a kernel is no
        accuracy to keep. Ranges that clip for that are none."""
        least = LEAST_COVERAGE if self._options.min_coverage is None else self._options.min_coverage
        is_like = choice.recipe.ranges == best.recipe.ranges
        return is_like and self._share(best) < least <= self._share(choice)

    def _share(self, choice: BestCandidate) -> float:
        return self._making.coverage(choice.candidate).share() or 0.0

    def reaches_more(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether ``choice`` gives more outputs scores on both sides of a half, which ``best`` cannot on any input."""
        ours, theirs = (unreached(each.candidate.graph) for each in (choice, best))
        return len(ours) < len(theirs)

    def loses_more(self, choice: BestCandidate, best: BestCandidate) -> bool:
        """Whether ``choice`` loses more of the rare values that only samples which chose ranges show."""
        ours, theirs = (self._making.lost_values(each.candidate) for each in (choice, best))
        return len(ours) > len(theirs)


def has_same_ranges(choice: BestCandidate, best: BestCandidate) -> bool:
    """Whether both have the same ranges for the same float model."""
    return choice.model is best.model and choice.recipe.ranges == best.recipe.ranges


LOG = logging.getLogger(__name__)

# What ranges that clip what was seen must gain: others have rarer and larger values, which few samples do not show.
_LEAST_CLIPPED_DB = 1.0

# By how much ranges may be wider than what was seen, and how much worse samples that did not choose them must be for
# that to be tried.
HEADROOMS = (0.1, 0.3)
# The same of 16 bits, beyond what they always have: where weights have 8, steps do not show.
WIDER_HEADROOMS = (3.0, 7.0)
_LEAST_LOST_DB = 0.5
# Up to how many samples each is kept unless it does harm, or costs so many dB of what all samples show: what few show
# others exceed, mostly by more the fewer they are. It costs at most 0.8 and 2.3 dB of steps, or two bits of 16; values
# cut off cost more, and few samples held back show none. Where steps are all noise, all samples show what they cost.
_PRESUMED = {0.1: (99, 0.5), 0.3: (16, math.inf), 3.0: (99, math.inf), 7.0: (16, math.inf)}
# What room for rare values of outputs may cost of what samples show: these seldom show what it gains.
_MOST_FOR_ROOM_DB = 1.0

_NORMALIZED = {INPUTS: "normalize", OUTPUTS: "normalize outputs"}  # what steps call it

_FEW_BITS = 8  # of values, with which small columns of inputs have too few codes

# Beyond that many multiply-accumulates codes are not refined by the samples held back as well.
_MOST_REFINING_MACS = 4 << 30

_IMPLIED = (
    "the first weights differ by channel as if a normalisation of raw columns was folded into them: inputs are scaled "
    "by what these weights say; with calibration samples they are normalised by what the columns are"
)


class Choosing:
    """Chooses help for the model that ``making`` makes; ``fixed``: precisions that the user chose.

    ``findings`` are added to. ``plain``: what was tried first; ``rounding_helps``: on the average, if not beyond doubt.
    """

    def __init__(self, making: Making, fixed: Mapping[str, PrecisionChoice], findings: list[str]) -> None:
        self._making, self._fixed, self._findings = making, fixed, findings
        self._options, self._data = making.options, making.data
        self._criteria = Criteria(making)
        self._given = {*self._options.parameters, *self._options.copied_parameters}
        self.plain: BestCandidate | None = None
        self.rounding_helps = False

    def run(self) -> BestCandidate:
        """The best choice."""
        self._making.foreseen = self._models_to_make()
        return self._of_weights() if self._making.builder.scheme.weights_only else self._of_values()

    def _of_weights(self) -> BestCandidate:
        """Weights as codes, rounded by what samples show where that helps."""
        if not self._data.fit:
            model, recipe = self._making.base, replace(self._recipe(), fitted=self._options.fits_scales[-1])
            asks = self._options.io == FLOAT and self._options.normalizes(INPUTS)[-1]
            if asks and (found := normalized_by_weights(model)) is not None:
                self._findings.append(_IMPLIED)
                model, recipe = found, replace(recipe, normalize=True)
            self.plain = self._making.built(model, recipe)
            return self.plain
        model, recipe = self._root()
        fits = self._options.fits_scales
        best = self._first(model, replace(recipe, fitted=fits[0]), "codes", "nearest")
        if len(fits) > 1:
            best = self.better(best, model, replace(recipe, fitted=True), "scales", "fitted")
        return self._refit(self._refined(best))

    def _of_values(self) -> BestCandidate:
        """Try what help there is, one kind after the other, each on top of the best so far."""
        root, recipe = self._root()
        models = {"none": root}
        kinds = [kind for kind in self._options.equalizations if self._equalized(models, kind) is not None]
        if not kinds:
            self._findings.append(
                f"equalize {self._options.equalize} changes nothing: no pair of layers it could change"
            )
            kinds = ["none"]
        best = self._first(models[kinds[0]], replace(recipe, equalize=kinds[0]), "equalize", kinds[0])
        for kind in kinds[1:]:
            best = self.better(best, models[kind], replace(best.recipe, equalize=kind), "equalize", kind)
        best, models = self._together(best, models)
        kinds = [kind for kind in kinds if kind in models]
        # Rounding and corrections last: of channels that one scale cannot hold they say nothing. What did not help is
        # tried again with other ranges.
        unrefined = best
        best = self._refined(best)
        if best is not unrefined and not self._making.is_large:  # which shows gains that noise of weights hid before
            for kind in kinds:
                if kind != best.recipe.equalize:
                    self._making.foreseen += 1
                    recipe = replace(best.recipe, equalize=kind)
                    best = self.better(best, models[kind], recipe, "refined equalize", kind)
        ranged = self._ranged(best, unrefined)
        best = self._roomier(best if ranged is best else self._refined(ranged))
        return self._refit(self._roomier_outputs(best))

    def _together(
        self, best: BestCandidate, models: dict[str, FloatModel]
    ) -> tuple[BestCandidate, dict[str, FloatModel]]:
        """The choice with all that makes columns and channels alike, and the models by equalisation that it is of.

        Where several are lost, to mend one of them shows nothing beside what the others lose. Where nothing is, more
        scales that few samples choose would only clip others.
        """
        if best.measured.quality_db >= GOOD_DB and not any(best.measured.lost):
            return best, models
        model, recipe = models["none"], best.recipe
        for kind in _NORMALIZED:
            found = None if recipe.normalizes(kind) else self._normalized(model, kind)
            if found is not None:
                model, recipe = found, recipe.normalizing(kind, found)
        if model is models["none"]:
            return best, models
        others = {"none": model}
        for kind in self._options.equalizations:
            if self._equalized(others, kind) is not None:
                self._making.foreseen += 1
                chosen = replace(recipe, equalize=kind)
                best = self.better(best, others[kind], chosen, "normalize and equalize", kind)
        return best, others if best.model in others.values() else models

    def _root(self) -> tuple[FloatModel, Recipe]:
        """The float model to start from, whose inputs and outputs are normalised where that helps, and its recipe."""
        model, recipe = self._making.base, self._recipe()
        for kind, what in _NORMALIZED.items():
            found = self._normalized(model, kind)
            if found is None:
                continue
            chosen = recipe.normalizing(kind, found)
            if self._options.normalizes(kind)[0]:
                model, recipe = found, chosen
                continue
            plain = self._first(model, recipe, what, False)
            presumed = kind == INPUTS and found.mends_columns and not self._making.builder.scheme.weights_only
            best = (self._unless_worse if presumed else self.better)(plain, found, chosen, what, True)
            model, recipe = best.model, best.recipe
        if self._options.normalization not in (AUTO, OFF) and model is self._making.base:
            self._findings.append(
                f"normalize {self._options.normalize} changes nothing: no input has channels that differ in size where "
                f"layers can make up for it, and {self._why_no_outputs(model)}"
            )
        return model, recipe

    def _why_no_outputs(self, model: FloatModel) -> str:
        """Why no output of ``model`` is normalised."""
        if self._options.output_types:
            return "beside types that are given for outputs these stay as they are"
        given = [repr(info.name) for info in model.graph.output_infos() if info.name in self._given]
        other = f" but {listed(given)}, whose parameters are given," if given else ""
        return f"no layer{other} that may have codes gives outputs such columns"

    def _normalized(self, model: FloatModel, kind: str) -> FloatModel | None:
        """``model`` whose inputs, or outputs, are normalised, recorded; None where that is not to be, or no other one.

        Who gives codes has lost already what a normalisation could keep.
        """
        if self._options.io != FLOAT or not self._data.fit or not self._options.normalizes(kind)[-1]:
            return None
        found = self._inputs_normalized(model) if kind == INPUTS else self._outputs_normalized(model)
        if found is not None:
            self._making.record(found)
        return found

    def _inputs_normalized(self, model: FloatModel) -> FloatModel | None:
        """Columns of images are split where they share few codes: 16 bits have some for the small as well."""
        activations = self._making.builder.scheme.activations
        return normalized(
            model, self._data.fit, columns=activations is not None and DTYPES[activations].bits == _FEW_BITS
        )

    def _outputs_normalized(self, model: FloatModel) -> FloatModel | None:
        """Units that weights alone have are their own; layers in float, or with given parameters, stay as they are."""
        if self._making.builder.scheme.weights_only or self._options.output_types:
            return None
        reference = self._making.reference
        infos = model.graph.output_infos()
        axes = {info.name: reference.columns(place).axis for place, info in enumerate(infos) if reference.splits(place)}
        kept = {name for name, choice in self._fixed.items() if choice.precision == FLOAT}
        kept |= self._given
        asked = {name: axis for name, axis in axes.items() if name not in kept}
        moved = {info.name for place, info in enumerate(infos) if not reference.has_scores(place)} - kept
        return outputs_normalized(model, asked, moved, self._making.statistics_of(model), self._data.fit)

    def _refined(self, best: BestCandidate) -> BestCandidate:
        """The choice with weights rounded by samples, and with corrected biases, where each helps and is not done."""
        options = self._options
        if self._data.fit and not best.recipe.rounding and len(options.switched(options.rounding)) > 1:
            before = best.measured.quality_db
            best = self.better(best, best.model, replace(best.recipe, rounding=True), "rounding", True)
            last = self._making.steps[-1]
            self.rounding_helps = last["step"] == "rounding" and last["quality_db"] >= before
        if self._data.fit and not best.recipe.correction and len(options.switched(options.correction)) > 1:
            best = self.better(best, best.model, replace(best.recipe, correction=True), "correction", True)
        return self._rounded(self._refined_by_all(best))

    def _rounded(self, best: BestCandidate) -> BestCandidate:
        """The choice with rounded weights unless that does harm: it nearly always helps small models, which few samples
        held back leave in doubt, and corrections alone help less often.

        Of weights alone all samples have judged it. Beside values of 16 bits those held back tell corrections better.
        """
        options, weights_only = self._options, self._making.builder.scheme.weights_only
        may_ask = bool(self._data.fit) and len(options.switched(options.rounding)) > 1 and not weights_only
        is_refined = best.recipe.rounding or (best.recipe.correction and options.has_codes_to_spare)
        if not may_ask or is_refined or self._making.is_large:
            return best
        self._making.foreseen += 1
        return self._unless_worse(best, best.model, replace(best.recipe, rounding=True), "rounding unless worse", True)

    def _refined_by_all(self, best: BestCandidate) -> BestCandidate:
        """The choice with both where neither helps alone: what the samples held back leave in doubt, all of them tell.

        Ranges are those of the result. The models that judge lack samples to refine codes by, nothing else. Weights
        alone are judged so whatever those held back say: the few others refine them less than all will. That rounding
        helps them is presumed, in scales that samples did not choose: it nearly always does.
        """
        making, options = self._making, self._options
        weights_only = making.builder.scheme.weights_only
        recipe = replace(best.recipe, rounding=True, correction=True)
        fixed = any(len(options.switched(switch)) == 1 for switch in (options.rounding, options.correction))
        if fixed:
            return best
        if not weights_only:
            is_refined = best.recipe.rounding or best.recipe.correction
            return best if is_refined else self._judged_by_all(best, recipe)
        if not (best.recipe.rounding and best.recipe.correction):
            best = self._judged_by_all(best, recipe, is_presumed=True)
        recipe = replace(recipe, fitted=options.fits_scales[-1])
        is_refined = best.recipe.rounding and best.recipe.fitted == recipe.fitted
        return best if is_refined else self._judged_by_all(best, recipe)

    def _judged_by_all(self, best: BestCandidate, recipe: Recipe, *, is_presumed: bool = False) -> BestCandidate:
        """The choice with this refining ``recipe`` if models that lack some of all samples are better with it.

        Where that is presumed, if they are not worse beyond chance.
        """
        making, folds, weights_only = self._making, self._making.folds, self._making.builder.scheme.weights_only
        if folds is None or not making.in_time():
            return best
        try:
            made = making.built(best.model, recipe)
            kept = made.measured.better_than(best.measured, LEAST_GAIN_DB)
            may_help = weights_only or made.measured.quality_db > best.measured.quality_db
            if not kept and may_help and making.in_time():
                making.say("judging on all samples")
                statistics = making.statistics_of(best.model)
                ours, theirs = (folds.measure(best.model, each, statistics) for each in (recipe, best.recipe))
                kept = ours.better_than(theirs, LEAST_GAIN_DB)
                kept = kept or (is_presumed and not theirs.better_than(ours, LEAST_GAIN_DB))
            kept = kept and not self._criteria.leaves_more(made, best)
        except OdcError:
            LOG.info("the model cannot be made without some of the samples", exc_info=True)
            return best
        scales = "scales, " if recipe.fitted != best.recipe.fitted else ""
        self._noted(made, f"{scales}rounding, correction", True, kept=kept)
        return made if kept else best

    def _refit(self, best: BestCandidate) -> BestCandidate:
        """The choice with codes refined by all samples, where those not held back are few: each one more counts.

        In large models each sample gives many rows to refine by, and takes long.
        """
        if self._data.separate or self._data.known * self._making.examination(best.model).macs > _MOST_REFINING_MACS:
            return best
        if not self._making.builder.add_samples(self._data.held):
            return best
        if not (best.recipe.rounding or best.recipe.correction):
            return best  # a search for precisions may refine codes by them
        candidate = self._making.builder.build(best.model, best.recipe, self._making.statistics_of(best.model))
        self._making.say("refined by all samples", made=1)
        return replace(best, candidate=candidate)

    def _ranged(self, best: BestCandidate, unrefined: BestCandidate) -> BestCandidate:
        """The choice with other ranges, if that is better. They are compared without refining codes, which is slow.

        ``unrefined``: what was best before codes were refined.
        """
        options = self._options
        if len(options.range_modes) == 1 or not self._making.in_time():
            return best
        model, plain = best.model, replace(best.recipe, rounding=False, correction=False)
        tried = self._first(model, plain, "ranges", plain.ranges, best, unrefined)
        for mode in options.range_modes[1:]:
            least_db = _LEAST_CLIPPED_DB if tried.recipe.ranges == plain.ranges else LEAST_GAIN_DB
            tried = self.better(tried, model, replace(tried.recipe, ranges=mode), "ranges", mode, least_db)
        found = replace(best.recipe, ranges=tried.recipe.ranges)
        if found in (best.recipe, tried.recipe):
            return best if found == best.recipe else tried
        # Models that lack samples have judged the ranges; of large ones that they do so again takes long.
        return self.better(best, model, found, "refined ranges", found.ranges, is_judged=self._making.is_large)

    def _roomier(self, best: BestCandidate) -> BestCandidate:
        """The choice with wider ranges, where samples that did not choose them show that they hold too little.

        Where few samples chose them, that is presumed, unless all of them are much worse on the average, or worse and
        those held back, which leave more in doubt, beyond chance: rarer values cost more than finer steps gain, but
        where noise of steps is most of it.
        """
        making, options, data = self._making, self._options, self._data
        if not options.help or options.headroom is not None or not data.fit or data.held is data.fit:
            return best
        seen = making.measured_unseen(best.model, best.candidate)
        shows = seen.quality_db <= making.measured_itself(best.candidate).quality_db - _LEAST_LOST_DB
        for headroom in WIDER_HEADROOMS if options.has_codes_to_spare else HEADROOMS:
            few, most = _PRESUMED.get(headroom, (0, 0.0))
            is_presumed = data.known <= few
            if not (shows or is_presumed):
                continue
            recipe = replace(best.recipe, headroom=headroom)
            found, ours = self._with_room(best, recipe, "headroom", headroom)
            if found is None or ours is None:
                continue
            helps = kept = ours.better_than(seen, LEAST_GAIN_DB)
            if is_presumed and not kept:
                gain = ours.quality_db - seen.quality_db
                kept = gain > 0.0 or (gain > -most and not self._criteria.harms(found, best))
            kept = kept and not self._criteria.leaves_more(found, best)
            self._noted(found, "headroom", headroom, kept=kept)
            # What some room makes worse, more of it does; what some does not show, in large models, takes long to ask.
            does_harm = not kept and ours.quality_db < seen.quality_db
            best, seen = (found, ours) if kept else (best, seen)
            if does_harm or (making.is_large and not helps):
                break
        return best

    def _roomier_outputs(self, best: BestCandidate) -> BestCandidate:
        """The choice with room for rare values of its outputs: these are what samples lack, so that it may cost a
        little on all that there are."""
        making, options = self._making, self._options
        may_ask = bool(self._data.fit) and self._data.held is not self._data.fit and not making.is_large
        is_fixed = best.recipe.output_room or len(options.switched(options.output_room)) == 1
        if is_fixed or not may_ask or options.has_codes_to_spare:
            return best
        if not takes_room(best.model.module, making.statistics_of(best.model)):
            return best
        found, ours = self._with_room(best, replace(best.recipe, output_room=True), "output room", True)
        if found is None or ours is None:
            return best
        seen = making.measured_unseen(best.model, best.candidate)
        kept = ours.quality_db >= seen.quality_db - _MOST_FOR_ROOM_DB or self._criteria.reaches_more(found, best)
        kept = kept and not self._criteria.leaves_more(found, best)
        self._noted(found, "output room", True, kept=kept)
        return found if kept else best

    def _with_room(
        self, best: BestCandidate, recipe: Recipe, what: str, value: Any
    ) -> tuple[BestCandidate | None, Measurement | None]:
        """The choice with the wider ranges of ``recipe``, and how it is for samples that it does not know."""
        self._making.foreseen += 1 + self._making.judges
        found = self._tried(best.model, recipe, what, value)
        return found, None if found is None else self._making.measured_unseen(best.model, found.candidate)

    def _recipe(self) -> Recipe:
        """What is tried first."""
        options = self._options
        return Recipe(
            ranges=options.range_modes[0],
            range_options=tuple(sorted(options.range_options.items())),
            headroom=options.chosen_headroom,
            output_room=options.switched(options.output_room)[0],
            rounding=bool(self._data.fit) and options.switched(options.rounding)[0],
            correction=bool(self._data.fit) and options.switched(options.correction)[0],
            precisions=tuple(sorted(self._fixed.items())),
        )

    def _equalized(self, models: dict[str, FloatModel], kind: str) -> FloatModel | None:
        """The model equalised in this way, recorded; None where that is no other model."""
        if kind not in models:
            # A model that nothing but ranges are known of cannot be recorded anew.
            root = models["none"]
            found = equalized(root, kind, root.fitted) if self._data.fit else None
            if found is None:
                return None
            self._making.record(found)
            models[kind] = found
        return models[kind]

    def _first(self, model: FloatModel, recipe: Recipe, what: str, value: Any, *known: BestCandidate) -> BestCandidate:
        """The choice that others are compared with; one of those ``known`` may be it."""
        made = known if self.plain is None else (self.plain, *known)
        choice = next((item for item in made if item.model is model and item.recipe == recipe), None)
        if choice is None:
            choice = self._making.built(model, recipe)
        if self.plain is None:
            self._making.builder.verify(choice.candidate)  # parameters that cannot be are told of at once
            self.plain = choice
        return self._noted(choice, what, value, kept=True)

    def better(
        self,
        best: BestCandidate,
        model: FloatModel,
        recipe: Recipe,
        what: str,
        value: Any,
        least_db: float = LEAST_GAIN_DB,
        *,
        is_judged: bool = False,
    ) -> BestCandidate:
        """The choice with this recipe if its outputs are better than those of the best so far, else that.

        ``is_judged``: whether it is known to hold other samples no worse.
        """
        found = self._tried(model, recipe, what, value)
        if found is None:
            return best
        kept = found.measured.better_than(best.measured, least_db)
        kept = kept and not self._criteria.leaves_more(found, best)
        kept = (
            kept
            and (is_judged or self._criteria.holds_others(found, best))
            and not self._criteria.loses_more(found, best)
        )
        kept = kept or self._criteria.covers(found, best)
        self._noted(found, what, value, kept=kept)
        return found if kept else best

    def _unless_worse(
        self, best: BestCandidate, model: FloatModel, recipe: Recipe, what: str, value: Any
    ) -> BestCandidate:
        """The choice with this recipe, unless samples that did not choose its ranges are worse with it."""
        found = self._tried(model, recipe, what, value)
        if found is None:
            return best
        if self._data.separate or has_same_ranges(found, best):
            kept = not best.measured.better_than(found.measured, LEAST_GAIN_DB)
        else:
            kept = not self._criteria.harms(found, best)
        kept = kept and not self._criteria.leaves_more(found, best) and not self._criteria.loses_more(found, best)
        kept = kept or self._criteria.covers(found, best)
        self._noted(found, what, value, kept=kept)
        return found if kept else best

    def _tried(self, model: FloatModel, recipe: Recipe, what: str, value: Any) -> BestCandidate | None:
        """What ``recipe`` makes of ``model``; None where it makes nothing, or for lack of time."""
        if not self._making.in_time():
            return None
        try:
            return self._making.built(model, recipe)
        except OdcError:
            LOG.info("%s=%s cannot be used", what, value, exc_info=True)
            return None

    def _noted(self, choice: BestCandidate, what: str, value: Any, *, kept: bool) -> BestCandidate:
        quality = choice.measured.quality_db
        self._making.steps.append({"step": what, "value": value, "quality_db": quality, "kept": kept})
        self._making.say(f"{what} {value}: {quality:.2f} dB{', kept' if kept else ''}", made=1)
        return choice

    def _models_to_make(self) -> int:
        """How many models are made, those that judge included, if no layer needs more bits; none for weights alone."""
        if self._making.builder.scheme.weights_only:
            return 0
        options, fit, held = self._options, bool(self._data.fit), len(self._making.base.held)
        switches = (options.rounding, options.correction)
        tried = sum(len(options.switched(switch)) - 1 for switch in switches) if fit else 0
        ranges = len(options.range_modes) if len(options.range_modes) > 1 else 0
        folds = 0 if self._making.folds is None else self._making.folds.count(JUDGES)
        return tried + len(options.equalizations) + ranges + 1 + held + folds
