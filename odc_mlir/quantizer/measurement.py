"""Measures of a quantised model, and the tests that decide whether one model is better than another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.outputs import Lost, completed
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, OF_LABELS
from odc_mlir.runtime.reporting.metrics import Errors
from odc_mlir.runtime.reporting.scores import Recall, Scored


def constant_outputs(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[list[Array]]:
    """Return constant outputs: zeros and, for several samples, the mean of each output, or [] if shapes vary.

    Outputs that are no numbers, and indices (``places``), have the most frequent value instead of the mean.
    """
    if any(array.shape != arrays[0].shape for arrays in every for array in arrays):
        return []
    found = [[np.zeros_like(arrays[0]) for arrays in every]]
    if len(every) and len(every[0]) > 1:
        found.append([_most_frequent(a) if place in places else _mean(a) for place, a in enumerate(every)])
    return found


def variation(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[NDArray[np.float64]]:
    """Return for each output the squared distance of every sample from the mean, float64 [samples].

    Indices (``places``) count as different or equal. Outputs that vary only by rounding, or in shape, have zeros.
    """
    # Minimum variation relative to an output's signal: smaller variation may come from float32 rounding.
    rounded = 1e-12
    none = [np.zeros(len(arrays)) for arrays in every]
    means = constant_outputs(every, places)[1:]
    if not means:
        return none
    found = []
    for place, (arrays, mean) in enumerate(zip(every, means[0], strict=True)):
        signal, noise = np.array([signal_and_noise(array, mean, place in places) for array in arrays]).T
        found.append(noise if noise.sum() > rounded * signal.sum() else none[place])
    return found


def _mean(arrays: Sequence[Array]) -> Array:
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
    stacked = np.stack([np.ravel(array) for array in arrays])
    found = [values[np.argmax(counts)] for values, counts in (np.unique(c, return_counts=True) for c in stacked.T)]
    return np.array(found, dtype=arrays[0].dtype).reshape(arrays[0].shape)


_MOST_LOST_DB = 0.5  # loss of a tensor that gains of others do not outweigh: an eighth more noise
# SQNR that stands for equal outputs in comparisons: the 24 bits of float32 allow at most 144 dB.
EXACT_DB = 200.0
# SQNR of a good output: the power of noise is 0.3 % of the signal's.
GOOD_DB = 25.0
_OF_OUTPUTS = tuple(metric for metric in HIGHER_IS_BETTER if metric not in {*OF_LABELS, "top1_decided", "r2"})


def finite_pairs(expected: Array, found: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values that are finite in both arrays, or both arrays if all are."""
    finite = np.isfinite(expected) & np.isfinite(found)
    a, b = (expected, found) if finite.all() else (expected[finite], found[finite])
    return a.astype(np.float64), b.astype(np.float64)


def signal_and_noise(expected: Array, found: Array, counts: bool = False) -> tuple[float, float]:
    """Return signal and noise of the finite expected values. If ``counts``, the numbers of all and of wrong values."""
    if counts or expected.dtype.kind not in "biuf":
        return float(expected.size), float(np.count_nonzero(expected != found))
    a, b = finite_pairs(expected, completed(expected, found)[0])
    return float(np.square(a).sum()), float(np.square(a - b).sum())


@dataclasses.dataclass(slots=True)
class Measurement:
    """Measures of each output over all samples, and the score if answers are known.

    In the tensors that decide outputs, such as operands of softmax and logistic functions, every sample shows noise. In
    the outputs, only undecided samples do. Columns in different units count as separate tensors.
    """

    outputs: list[Errors]
    decisive: Powers  # powers of the tensors that decide the outputs
    results: Powers  # powers of the outputs themselves
    names: list[str]
    scored: Scored | None = None  # score by known answers
    # Index of an output with answers -> share of its answers that equal the float model's, or are nearly as likely.
    decided: dict[int, float] = dataclasses.field(default_factory=dict)
    r2: list[float | None] = dataclasses.field(default_factory=list)  # per output, None if it does not vary
    reals: list[list[Array]] = dataclasses.field(default_factory=list)  # outputs per sample, if kept
    lost: list[list[Lost]] = dataclasses.field(default_factory=list)  # lost columns per output
    recalls: list[Recall] = dataclasses.field(default_factory=list)  # per class, if labels are classes
    lacking: int = 0  # number of samples with values that are not finite, which count as zeros, unlike the float model
    exceeding: int = 0  # number of samples with finite values where the float model has none

    @property
    def quality_db(self) -> float:
        """Mean SQNR of the decisive tensors, for comparing choices. Exact tensors count as 200 dB."""
        return self.decisive.quality_db

    def better_than(self, other: Measurement, least_db: float) -> bool:
        """Return whether decisive tensors or outputs gain ``least_db`` beyond chance, and neither of the two loses.

        Tensors and outputs are compared because a squashing function may hide the noise of many values.
        """
        most_paid_db = 3.0  # accepted loss for the recovery of lost columns, half a bit
        most = most_paid_db if _places(self.lost) < _places(other.lost) else _MOST_LOST_DB
        pairs = [(self.decisive, other.decisive), (self.results, other.results)]
        better = any(ours.better_than(theirs, least_db, most) for ours, theirs in pairs)
        return better and not any(ours.worse_than(theirs, least_db) for ours, theirs in pairs)

    def worst(self) -> dict[str, float | None]:
        """Return each measure of the worst output. A measure is None if an output has no finite value to measure."""
        result: dict[str, float | None] = {"differing": sum(errors.differing for errors in self.outputs)}
        result["top1_decided"] = min(self.decided.values(), default=None)
        result["r2"] = min((value for value in self.r2 if value is not None), default=None)
        if any(errors.elements and errors.max_abs is None and not errors.are_answers for errors in self.outputs):
            return result | dict.fromkeys(_OF_OUTPUTS)
        for metric in _OF_OUTPUTS:
            higher = HIGHER_IS_BETTER[metric]
            values = [value for e in self.outputs if (value := getattr(e, metric)) is not None]
            result[metric] = (min(values) if higher else max(values)) if values else None
        return result


def _places(every: list[list[Lost]]) -> set[tuple[int, int, int]]:
    return {(at, lost.axis, place) for at, found in enumerate(every) for lost in found for place in lost.places}


def lost_places(measured: Measurement) -> list[int]:
    """Return varying outputs with errors at least as large as the errors of a constant output, the samples' mean."""
    fewest_samples = 4  # the mean of fewer samples is too close to each sample
    if len(measured.reals) < fewest_samples:
        return []
    # Indices of nearly tied classes may differ from the float model's as often as a constant does.
    shares = ((place, share, measured.outputs[place]) for place, share in measured.decided.items())
    tied = {place for place, share, errors in shares if errors.are_answers and share != errors.top1_match}
    return [place for place, r2 in enumerate(measured.r2) if r2 is not None and r2 <= 0.0 and place not in tied]


@dataclasses.dataclass(slots=True)
class Powers:
    """Sums of squares of tensors (``signal``) and of errors (``noise``), [tensors, samples]."""

    signal: NDArray[np.float64]
    noise: NDArray[np.float64]

    @property
    def quality_db(self) -> float:
        """Mean SQNR of the tensors over all samples. An exact tensor has 200 dB."""
        return float(np.mean(self._totals_db)) if len(self.noise) else EXACT_DB

    @property
    def _totals_db(self) -> NDArray[np.float64]:
        return _sqnr_db(self.signal.sum(axis=1), self.noise.sum(axis=1))

    def gain_db(self, other: Powers) -> tuple[float, float]:
        """Return the gain over ``other`` on the same samples, and the standard error of the paired difference."""
        gain = self.quality_db - other.quality_db
        parts = self._differences_db(other).sum(axis=0) / max(1, len(self.noise))
        return gain, float(_standard_error(parts))

    def _differences_db(self, other: Powers) -> NDArray[np.float64]:
        """Return the approximate contribution of each sample to the gain of each tensor, or 0 for exact tensors."""
        ours, theirs = (p.noise.mean(axis=1, keepdims=True) for p in (self, other))
        compared = (ours > 0) & (theirs > 0)
        found = other.noise / np.where(compared, theirs, 1.0) - self.noise / np.where(compared, ours, 1.0)
        return np.where(compared, found, 0.0) * 10.0 / math.log(10.0)

    def gains_nearly_always(self, other: Powers) -> bool:
        """Return whether more samples gain than chance explains, for cases in which few samples dominate the noise."""
        gains = np.mean(_sqnr_db(self.signal, self.noise) - _sqnr_db(other.signal, other.noise), axis=0)
        won, lost = int((gains > 0).sum()), int((gains < 0).sum())
        return won + lost > 0 and (won - lost) / 2 > self._doubts() * math.sqrt(won + lost) / 2

    def better_than(self, other: Powers, least_db: float, most_lost_db: float = _MOST_LOST_DB) -> bool:
        """Return whether the gain over ``other`` is at least ``least_db``, and size or number of gains exceed chance.

        No tensor may lose ``most_lost_db``, by default half a dB, beyond chance.
        """
        gain, error = self.gain_db(other)
        if not gain > least_db or not (gain > self._doubts() * error or self.gains_nearly_always(other)):
            return False
        gains, errors = self._totals_db - other._totals_db, _standard_error(self._differences_db(other))
        return not bool((gains < -np.maximum(most_lost_db, self._doubts(len(gains)) * errors)).any())

    def worse_than(self, other: Powers, least_db: float) -> bool:
        """Return whether this is worse than ``other`` by ``least_db``, beyond chance."""
        gain, error = self.gain_db(other)
        return gain < -max(least_db, self._doubts() * error)

    def _doubts(self, of: int = 1) -> float:
        """Return how many standard errors chance explains in the largest of ``of`` differences (Bonferroni).

        Student's distribution is approximated by the expansion of Cornish and Fisher, rounded up.
        """
        risk = 0.05  # probability of a false positive
        errors = NormalDist().inv_cdf(1.0 - risk / 2 / max(1, of))
        return float(errors * (1.0 + 0.31 * (errors**2 + 1.0) / max(1, self.noise.shape[1] - 1)))


def _standard_error(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    count = parts.shape[-1]
    return np.asarray(parts.std(axis=-1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(parts.shape[:-1]))


def _sqnr_db(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 10.0 * np.log10(signal / noise)
    return np.where(noise == 0, EXACT_DB, np.clip(found, -EXACT_DB, EXACT_DB))
