"""What a choice must not do to be kept, beside making outputs better on the samples that choices are made by."""

from __future__ import annotations

from odc_mlir.quantizer.coverage import LEAST_COVERAGE
from odc_mlir.quantizer.folds import HALVES
from odc_mlir.quantizer.making import BestCandidate, Making
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.yes_scores import unreached

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
        ours, theirs = (self._making.lost_witnesses(each.candidate) for each in (choice, best))
        return len(ours) > len(theirs)


def has_same_ranges(choice: BestCandidate, best: BestCandidate) -> bool:
    """Whether both have the same ranges for the same float model."""
    return choice.model is best.model and choice.recipe.ranges == best.recipe.ranges
