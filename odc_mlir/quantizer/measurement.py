"""Measures of a quantised model, and the tests that decide whether one model is better than another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.outputs import Lost, completed
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, OF_LABELS
from odc_mlir.quantizer.scores import Recall, Scored
from odc_mlir.runtime.reporting.metrics import Errors

# The part of an output's signal that its variation must exceed: beyond what 32-bit floats round away.
_ROUNDED = 1e-12


def constant_outputs(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[list[Array]]:
    """Return constant outputs: zeros and, for several samples, the mean of each output in ``every``.

    Where an output is no number, or of ``places``, the most frequent value stands in for the mean. None where the shape
    of an output depends on the sample.
    """
    if any(array.shape != arrays[0].shape for arrays in every for array in arrays):
        return []
    found = [[np.zeros_like(arrays[0]) for arrays in every]]
    if len(every) and len(every[0]) > 1:
        found.append([_most_frequent(a) if place in places else _mean(a) for place, a in enumerate(every)])
    return found


def variation(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[NDArray[np.float64]]:
    """What remains for each output and sample of the best that is the same for all of them, float64 [samples].

    That is the squares of distances from the mean, or how many of the ``places`` are not the most frequent ones. Zeros
    for an output that does not vary but for rounding, and where its shape depends on the sample.
    """
    none = [np.zeros(len(arrays)) for arrays in every]
    means = constant_outputs(every, places)[1:]
    if not means:
        return none
    found = []
    for place, (arrays, mean) in enumerate(zip(every, means[0], strict=True)):
        signal, noise = np.array([signal_and_noise(array, mean, place in places) for array in arrays]).T
        found.append(noise if noise.sum() > _ROUNDED * signal.sum() else none[place])
    return found


def _mean(arrays: Sequence[Array]) -> Array:
    """The mean of finite values, 0 where there are none."""
    if arrays[0].dtype.kind not in "iuf":
        return _most_frequent(arrays)
    total, count = np.zeros(arrays[0].shape), np.zeros(arrays[0].shape, np.int64)
    for array in arrays:
        finite = np.isfinite(array)
        total += np.where(finite, array, 0)
        count += finite
    found = total / np.maximum(count, 1)
    return (np.rint(found) if arrays[0].dtype.kind in "iu" else found).astype(arrays[0].dtype)


def _most_frequent(arrays: Sequence[Array]) -> Array:
    """Of each element the value that most arrays have."""
    stacked = np.stack([np.ravel(array) for array in arrays])
    found = [values[np.argmax(counts)] for values, counts in (np.unique(c, return_counts=True) for c in stacked.T)]
    return np.array(found, dtype=arrays[0].dtype).reshape(arrays[0].shape)


# SQNR of outputs that are exactly the float model's, for comparing choices.
EXACT_DB = 200.0
_FEWEST_SAMPLES = 4  # of fewer a mean is too near to each
# SQNR of an output of which nothing is lost.
GOOD_DB = 25.0
_OF_OUTPUTS = tuple(metric for metric in HIGHER_IS_BETTER if metric not in {*OF_LABELS, "top1_decided", "r2"})


def signal_and_noise(expected: Array, found: Array, counts: bool = False) -> tuple[float, float]:
    """Signal and noise of one tensor; where it ``counts``, as answers that are no numbers do, how many differ.

    Of what is expected to be finite; what is ``found`` instead and is not counts as zero.
    """
    if counts or expected.dtype.kind not in "biuf":
        return float(expected.size), float(np.count_nonzero(expected != found))
    a, b = expected.astype(np.float64), completed(expected, found)[0].astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():
        a, b = a[finite], b[finite]
    return float(np.square(a).sum()), float(np.square(a - b).sum())


@dataclasses.dataclass(slots=True)
class Measurement:
    """Measures of each output over all samples, and the score where answers are known.

    ``decisive`` are those of the tensors that decide the outputs: an output itself, or what its softmax or logistic
    function is taken of. There noise shows for every sample, in the output only for those that are undecided. An
    output of few columns that differ in size counts as that many tensors.

    ``lacking``: how many samples lack numbers that the float model gives, which count as zeros; ``exceeding``: how many
    have numbers where it gives none.
    """

    outputs: list[Errors]
    decisive: Powers
    results: Powers  # of the outputs themselves
    names: list[str]
    scored: Scored | None = None  # by known answers
    # Of each output of answers, by place, the share that is the float model's, or nearly.
    decided: dict[int, float] = dataclasses.field(default_factory=dict)
    r2: list[float | None] = dataclasses.field(default_factory=list)  # of each output, None where it does not vary
    reals: list[list[Array]] = dataclasses.field(default_factory=list)  # of each sample, where they are kept
    lost: list[list[Lost]] = dataclasses.field(default_factory=list)  # columns of each output, as :class:`Lost` has it
    blurred: list[list[Lost]] = dataclasses.field(default_factory=list)  # those that are lost in part
    recalls: list[Recall] = dataclasses.field(default_factory=list)  # of each class, where labels are classes
    lacking: int = 0
    exceeding: int = 0

    @property
    def quality_db(self) -> float:
        """One number to compare choices by: the mean SQNR of the decisive tensors, exactness counting as 200 dB."""
        return self.decisive.quality_db

    def better_than(self, other: Measurement, least_db: float) -> bool:
        """Whether this gains ``least_db`` and more than chance where the other measure loses nothing.

        The measures are the decisive tensors and the outputs. Where many values are near the ends of a squashing
        function, noise that the function hides would pay for noise that is left in the outputs. Columns that are no
        longer lost, or in part, may cost others more than anything else may.
        """
        most = _MOST_PAID_DB if self.tells_more(other) else _MOST_LOST_DB
        pairs = self._pairs(other)
        better = any(ours.better_than(theirs, least_db, most) for ours, theirs in pairs)
        return better and not any(ours.worse_than(theirs, least_db) for ours, theirs in pairs)

    def confirms(self, other: Measurement, least_db: float, most_lost_db: float = 0.0) -> bool:
        """Whether a gain over ``other`` that was measured elsewhere shows here too, if not beyond chance.

        Neither measure is worse by ``least_db`` beyond chance, and one at least as good, but for ``most_lost_db``, or
        fewer columns are lost.
        """
        as_good = any(ours.quality_db >= theirs.quality_db - most_lost_db for ours, theirs in self._pairs(other))
        return (as_good or self.tells_more(other)) and not other.better_than(self, least_db)

    def _pairs(self, other: Measurement) -> list[tuple[Powers, Powers]]:
        return [(self.decisive, other.decisive), (self.results, other.results)]

    def tells_more(self, other: Measurement) -> bool:
        """Return whether columns that ``other`` loses, or loses in part, are kept, and none is lost for them."""
        ours, theirs = _places(self.lost), _places(other.lost)
        ours_in_part, theirs_in_part = ours | _places(self.blurred), theirs | _places(other.blurred)
        return ours <= theirs and ours_in_part <= theirs_in_part and (ours, ours_in_part) != (theirs, theirs_in_part)

    def worst(self) -> dict[str, float | None]:
        """Each measure of the output for which it is worst; none where an output has no finite value to measure."""
        result: dict[str, float | None] = {"differing": sum(errors.differing for errors in self.outputs)}
        result["top1_decided"] = min(self.decided.values(), default=None)
        result["r2"] = min((value for value in self.r2 if value is not None), default=None)
        if any(errors.elements and errors.max_abs is None and errors.top1_match is None for errors in self.outputs):
            return result | dict.fromkeys(_OF_OUTPUTS)
        for metric in _OF_OUTPUTS:
            higher = HIGHER_IS_BETTER[metric]
            values = [value for e in self.outputs if (value := getattr(e, metric)) is not None]
            result[metric] = (min(values) if higher else max(values)) if values else None
        return result

    def by_output(self) -> list[dict[str, Any]]:
        """Return the measures of every output for the verdict."""
        every = zip(self.names, self.outputs, self.r2, strict=True)
        return [{"name": name, **dataclasses.asdict(errors), "r2": r2} for name, errors, r2 in every]


def _places(every: list[list[Lost]]) -> set[tuple[int, int, int]]:
    """Output, axis and place of each column of ``every`` output."""
    return {(at, lost.axis, place) for at, found in enumerate(every) for lost in found for place in lost.places}


def lost_places(measured: Measurement) -> list[int]:
    """Return the varying outputs that their mean over the samples approximates as well."""
    if len(measured.reals) < _FEWEST_SAMPLES:
        return []
    every = enumerate(zip(measured.r2, measured.outputs, strict=True))
    # Places have no distance.
    return [place for place, (r2, errors) in every if r2 is not None and r2 <= 0.0 and errors.max_abs is not None]


@dataclasses.dataclass(slots=True)
class Powers:
    """Sums of squares of tensors, ``signal``, and of their errors, ``noise``: both [tensors, samples]."""

    signal: NDArray[np.float64]
    noise: NDArray[np.float64]

    @property
    def quality_db(self) -> float:
        """The mean SQNR of the tensors over all samples; 200 dB for an exact one."""
        return (
            float(np.mean(_sqnr_db(self.signal.sum(axis=1), self.noise.sum(axis=1)))) if len(self.noise) else EXACT_DB
        )

    def gain_db(self, other: Powers) -> tuple[float, float]:
        """By how much better this is than ``other`` on the same samples, and the standard error of that.

        The error is that of the paired difference: what changes both alike from sample to sample is no doubt.
        """
        gain = self.quality_db - other.quality_db
        parts = self._differences_db(other).sum(axis=0) / max(1, len(self.noise))
        return gain, float(_standard_error(parts))

    def _gains_db(self, other: Powers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same of each tensor alone."""
        ours, theirs = (_sqnr_db(p.signal.sum(axis=1), p.noise.sum(axis=1)) for p in (self, other))
        return ours - theirs, _standard_error(self._differences_db(other))

    def _differences_db(self, other: Powers) -> NDArray[np.float64]:
        """Return the approximate part of each sample in the gain of each tensor; 0 where one is exact."""
        ours, theirs = (p.noise.mean(axis=1, keepdims=True) for p in (self, other))
        compared = (ours > 0) & (theirs > 0)
        found = other.noise / np.where(compared, theirs, 1.0) - self.noise / np.where(compared, ours, 1.0)
        return np.where(compared, found, 0.0) * 10.0 / math.log(10.0)

    def gains_nearly_always(self, other: Powers) -> bool:
        """Whether more samples are better here than in ``other`` than chance would have it, whatever each gains.

        Where few loud samples make most of the noise, these alone decide the gain over all, and leave it in doubt.
        """
        gains = np.mean(_sqnr_db(self.signal, self.noise) - _sqnr_db(other.signal, other.noise), axis=0)
        won, lost = int((gains > 0).sum()), int((gains < 0).sum())
        return won + lost > 0 and (won - lost) / 2 > self._doubts() * math.sqrt(won + lost) / 2

    def better_than(self, other: Powers, least_db: float, most_lost_db: float | None = None) -> bool:
        """Whether this is better by ``least_db`` and by more than chance would make it of so few samples.

        Chance is ruled out by the size of the gain, or by the number of samples that gain. No tensor may pay for the
        others: none gets worse by half a dB, or ``most_lost_db``, and more than chance makes one of so many.
        """
        gain, error = self.gain_db(other)
        if not gain > least_db or not (gain > self._doubts() * error or self.gains_nearly_always(other)):
            return False
        gains, errors = self._gains_db(other)
        most = _MOST_LOST_DB if most_lost_db is None else most_lost_db
        return not bool((gains < -np.maximum(most, self._doubts(len(gains)) * errors)).any())

    def worse_than(self, other: Powers, least_db: float) -> bool:
        """Whether this is worse by ``least_db`` and by more than chance would make it of so few samples."""
        gain, error = self.gain_db(other)
        return gain < -max(least_db, self._doubts() * error)

    def _doubts(self, of: int = 1) -> float:
        """How many standard errors a difference may be by chance, the largest ``of`` so many (Bonferroni).

        Few samples need more, as Student's distribution has it: by Cornish and Fisher's expansion, rounded up.
        """
        errors = NormalDist().inv_cdf(1.0 - _RISK / 2 / max(1, of))
        return float(errors * (1.0 + 0.31 * (errors**2 + 1.0) / max(1, self.noise.shape[1] - 1)))


_MOST_LOST_DB = 0.5
_MOST_PAID_DB = 3.0  # half a bit, for columns of which nothing was left
_RISK = 0.05  # that what chance does is taken for more


def _standard_error(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean along the last axis; 0 for one element."""
    count = parts.shape[-1]
    return np.asarray(parts.std(axis=-1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(parts.shape[:-1]))


def _sqnr_db(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 10.0 * np.log10(signal / noise)
    return np.where(noise == 0, EXACT_DB, np.clip(found, -EXACT_DB, EXACT_DB))
