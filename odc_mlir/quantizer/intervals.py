"""Confidence intervals (95 %) of measures over samples.

Each of n samples gets a random weight, and a share of 1 / (n + 1) belongs to unseen inputs (exponential weights;
Learned-Miller and Thomas, "A new confidence interval for the mean of a bounded random variable", 2019). At best the
unseen share adds no error. At worst its error follows a Pareto tail through the larger half of the observed errors
(Hill, "A simple general approach to inference about the tail of a distribution", 1975), bounded by the signal; values
beyond an output's range are clipped, and scores near 0 and 1, which hide errors of their logits, become undecided.

The range that MPEIR divides by is resampled too. The worse end is computed with models that do not know the samples
they are judged on, the better end also with the model itself. Shares have Wilson's interval, differences of shares
Bonett and Price's; several answers of one sample count as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.outputs import Interval, is_measurable
from odc_mlir.quantizer.policy.ranges import Tail
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, Limit
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import FEWEST_TO_SPLIT
from odc_mlir.runtime.reporting.metrics import top_match
from odc_mlir.runtime.reporting.scores import chosen_classes

_DRAWS = 1000
_FEWEST = 2  # samples that differ
SHARES = frozenset({"top1_match", "top1_decided"})  # of samples
_OF_ANSWERS = SHARES | {"drop"}
# Of fewer samples than this measures count with what they may be by chance.
FEWEST_TO_TRUST = FEWEST_TO_SPLIT
_NORMAL = 1.96  # standard errors of 95 %
# Tails of few errors are drawn to this index, as by so many errors.
_INDEX, _INDEX_WEIGHT = 1.0, 2.0
# Fewer samples than this know too little of their tail: errors are taken to be larger by this power of what is missing.
_KNOWING, _FEW = 48, 1.5

Reals = NDArray[np.float64]
Outputs = Sequence[Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Certainty:
    """Intervals by measure over ``count`` samples."""

    intervals: Mapping[str, Interval]
    count: int

    def doubtful(self, limits: Sequence[Limit], measures: Mapping[str, float | None]) -> list[Limit]:
        """Return the limits that ``measures`` keep, but that too few samples confirm; not of shares of samples."""
        if not 1 < self.count < FEWEST_TO_TRUST:
            return []
        found = (limit for limit in limits if limit.key in self.intervals and limit.metric not in _OF_ANSWERS)
        return [item for item in found if item.holds(measures) and not item.is_certain(measures, self.intervals)]


def intervals_of(
    reference: Reference,
    measured: Measurement,
    judged: Measurement | None = None,
    itself: Measurement | None = None,
    ends: Sequence[Interval | None] = (),
) -> dict[str, Interval]:
    """Return the interval of each measure that sums over samples; none for a single sample.

    ``measured``: the verdict's measures, which lie within; ``judged``: measures of models without the samples, if they
    are others; ``itself``: measures of the model, whose outputs have the ranges ``ends``. ``of_more``: as if there were
    so many samples like these.
    """
    if min(len(measured.reals), reference.measurable) < _FEWEST:
        return {}
    judged = measured if judged is None else judged
    count = reference.measurable
    result = _ends(reference, judged.reals, count, ends, reference.unsettled(judged))
    if itself is not None:
        better = _ends(reference, itself.reals, count)
        for metric in result.keys() & better.keys():
            (low, high), (least, most) = result[metric], better[metric]
            result[metric] = (low, max(high, most)) if HIGHER_IS_BETTER[metric] else (min(low, least), high)
    pairs = list(zip(reference.outputs, judged.reals, strict=True))
    agreeing = {
        place: float(np.mean([top_match(a[place], b[place], 1, classes) if a[place].size else 1.0 for a, b in pairs]))
        for place, classes in ((place, reference.classes(place)) for place in _numbers(reference))
        if place in reference.answering_places
    }
    agreeing |= {place: float(np.mean([np.mean(a[place] == b[place]) for a, b in pairs])) for place in reference.places}
    if measured.worst()["top1_match"] is None:  # as of outputs of one number
        agreeing = {}
    for metric, shares in (("top1_match", agreeing), ("top1_decided", judged.decided)):
        found = reference.by_output(metric, shares)
        result |= {key: wilson(share, count) for key, share in found.items() if share is not None}
    for metric, value in reference.metrics(measured).items():
        if metric in result and value is not None:
            low, high = result[metric]
            result[metric] = min(low, value), max(high, value)
    if reference.labels is not None and reference.metric == "top1_percent":
        result["drop"] = _drops(reference, measured)
    return result


def _numbers(reference: Reference) -> list[int]:
    return [
        number
        for number, value in enumerate(reference.outputs[0])
        if value.dtype.kind in "iuf" and number not in reference.places
    ]


def _ends(
    reference: Reference,
    reals: Outputs,
    count: int,
    ranges: Sequence[Interval | None] = (),
    unsettled: Mapping[int, float] | None = None,
) -> dict[str, Interval]:
    """Return the interval of each measure for ``count`` samples, of the output for which it is worst.

    ``reals``: outputs of the model; ``ranges``: limits of its outputs; ``unsettled``: see :meth:`Reference.unsettled`.
    """
    draws = _Draws(count)
    measurable = [number for number, outputs in enumerate(reference.outputs) if is_measurable(outputs)]
    ends: dict[str, list[Interval]] = {}
    for place in _numbers(reference):
        pairs = []
        for number in measurable:
            expected, found = reference.outputs[number][place], reals[number][place]
            finite = np.isfinite(expected) & np.isfinite(found)
            a, b = (expected, found) if finite.all() else (expected[finite], found[finite])
            pairs.append((a.astype(np.float64), b))
        span = reference.spans[place]
        spans = None if span is None else np.full(_DRAWS, span)
        if spans is not None and not reference.is_bounded(place):
            spans = draws.spans([a for a, _ in pairs], len(reference.samples), spans)
        cut = draws.cut_off([a for a, _ in pairs], ranges[place]) if place < len(ranges) else None
        half = 0.0 if unsettled is None else unsettled.get(place, 0.0)
        for metric, interval in _of_output(
            pairs, spans, reference.variation[place][measurable], draws, cut, half
        ).items():
            ends.setdefault(metric, []).append(interval)
    result: dict[str, Interval] = {}
    for metric, every in ends.items():
        worst = min if HIGHER_IS_BETTER[metric] else max
        low, high = map(worst, zip(*every, strict=True))
        if np.isfinite((low, high)).all():
            result[metric] = low, high
    return result


class CutOff(NamedTuple):
    """Clipped part of an unseen value and the square of that value, for each draw."""

    lost: Reals
    power: Reals


class _Draws:
    """Random draws: weights of the samples, and the oddness of one unseen sample."""

    def __init__(self, count: int) -> None:
        seed = 1
        self.count = count
        self._random = np.random.default_rng(seed)
        weights = self._random.standard_exponential((_DRAWS, count + 1))
        weights /= weights.sum(axis=1, keepdims=True)
        self._seen, self._rest = weights[:, :-1], weights[:, -1]
        self._odds = self._random.random(_DRAWS)
        self._factor = max(1.0, _KNOWING / count) ** _FEW

    def spans(self, values: Sequence[Array], count: int, spans: Reals) -> Reals:
        """Draw the ranges of ``count`` samples, given the ``spans`` of the judged ones."""
        ends = [(value.min(), value.max()) for value in values if value.size and np.isfinite(value).all()]
        if not ends:
            return spans
        low, high = np.array(ends).T
        chosen = self._random.integers(0, len(ends), (_DRAWS, count))
        found = high[chosen].max(axis=1) - low[chosen].min(axis=1)
        found = np.where(found > 0, found, spans)
        # Draws from what was seen never exceed it, but others do as often as they fall short of it.
        is_larger = self._random.random(_DRAWS) < 0.5
        return np.asarray(np.where(is_larger, spans**2 / found, found))

    def unseen(self, errors: Reals, most: float, power: float = 1.0, unsettled: float = 0.0) -> Reals:
        """Draw the worst error of one more sample, at most ``most``, or the error of a score of a half."""
        half = (unsettled * -np.log(self._odds)) ** power
        ordered = np.sort(errors[errors > 0])[::-1]
        if not ordered.size:
            return np.asarray(np.minimum(half, most))
        tail = min(ordered.size // 2, math.ceil(math.sqrt(_KNOWING * ordered.size) / 2))
        logs = float(np.log(ordered[:tail] / ordered[tail]).sum())
        index = (logs + power * _INDEX * _INDEX_WEIGHT) / (tail + _INDEX_WEIGHT)
        largest = float(ordered[0])
        beyond = np.maximum(self._factor**power * largest * self._odds**-index, half)
        return np.asarray(np.minimum(beyond, max(most, largest)))

    def cut_off(self, values: Sequence[Array], ends: Interval | None) -> CutOff | None:
        """Draw unseen values beyond the ``ends`` of an output's range, farther out than all ``values``."""
        rows = [np.asarray(value, np.float64) for value in values if value.size and np.isfinite(value).all()]
        if ends is None or len(rows) < _FEWEST:
            return None
        extremes = np.array([(-row.min(), row.max()) for row in rows])
        lost, power = np.zeros(_DRAWS), np.zeros(_DRAWS)
        for column, end in zip(extremes.T, (-ends[0], ends[1]), strict=True):
            tail = Tail.of(column)
            indices = tail.indices(self._random.standard_normal(_DRAWS))
            beyond, square = tail.beyond(float(column.max()), end, indices)
            is_more = beyond > lost
            lost, power = np.where(is_more, beyond, lost), np.where(is_more, square, power)
        return CutOff(lost, power)

    def ends(
        self, above: Reals, below: Reals, unseen: Reals, unit: Reals | float = 1.0, cut: CutOff | None = None
    ) -> Interval:
        """Return the ends of a ratio of weighted sums in ``unit``; the unseen share is 0 at best, ``unseen`` at worst.

        Where the ``cut`` off part of unseen values is larger, it counts, with its own power.
        """
        ends = (2.5, 97.5)  # percentiles
        sums = (self._seen @ below + self._rest * below.mean()) * unit
        seen = self._seen @ above
        least, most = seen / sums, (seen + self._rest * unseen) / sums
        if cut is not None:
            most = np.maximum(most, (seen + self._rest * cut.lost) / (sums + self._rest * cut.power))
        return float(np.percentile(least, ends[0])), float(np.percentile(most, ends[1]))


def _of_output(
    pairs: Sequence[tuple[Array, Array]],
    spans: Reals | None,
    variation: Reals,
    draws: _Draws,
    cut: CutOff | None = None,
    unsettled: float = 0.0,
) -> dict[str, Interval]:
    """Return the intervals of one output's measures.

    MPEIR is relative to ``spans`` in each draw, R² to the ``variation`` of each sample. ``unsettled``: square of the
    error in scores of a half, which two scores share.
    """

    def by_sample(values: Iterable[float]) -> Reals:
        return np.resize(np.array(list(values), np.float64), draws.count)

    errors = [np.abs(a - b) for a, b in pairs]
    sizes = by_sample(max(1, error.size) for error in errors)
    noise = by_sample(np.square(error).sum() for error in errors)
    total = by_sample(error.sum() for error in errors)
    signal = by_sample(np.square(a).sum() for a, _ in pairs)
    magnitude = max(float(np.abs(a).sum()) for a, _ in pairs)
    odd = draws.unseen(noise, float(signal.max()), unsettled=unsettled)
    result = {
        "mae": draws.ends(total, sizes, draws.unseen(total, magnitude, 0.5, 2.0 * unsettled)),
        "mse": draws.ends(noise, sizes, odd),
    }
    if spans is not None:
        largest = by_sample(error.max(initial=0.0) for error in errors)
        result["mpeir"] = draws.ends(
            largest, np.ones(draws.count), draws.unseen(largest, float(np.median(spans)), 0.5, unsettled), spans
        )
    if noise.any() and signal.any():
        low, high = draws.ends(noise, signal, odd, cut=cut)
        if low > 0.0:
            result["sqnr_db"] = (-10.0 * math.log10(high), -10.0 * math.log10(low))
    if variation.any():
        low, high = draws.ends(noise, by_sample(variation), odd, cut=cut)
        result["r2"] = (1.0 - high, 1.0 - low)
    return result


def wilson(share: float, count: int) -> Interval:
    """The 95 % interval of a share of ``count`` samples (Wilson, 1927)."""
    squared = _NORMAL**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = _NORMAL * math.sqrt(share * (1 - share) / count + squared / (4 * count)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def _drops(reference: Reference, measured: Measurement) -> Interval:
    """Return the interval of the drop in points (Bonett and Price, 2012), not empty without any loss."""
    labels = reference.labels
    assert labels is not None

    def right(outputs: Outputs) -> Reals:
        pairs = zip(reference.answers(outputs), labels, strict=True)
        return np.array([float(np.mean(chosen_classes([o], label[None]) == np.ravel(label))) for o, label in pairs])

    changed = right(reference.outputs) - right(measured.reals)
    count = len(changed) + 2
    lost, gained = ((float(np.maximum(sign * changed, 0.0).sum()) + 1.0) / count for sign in (1, -1))
    half = _NORMAL * math.sqrt((lost + gained - (lost - gained) ** 2) / count)
    return 100.0 * max(lost - gained - half, -1.0), 100.0 * min(lost - gained + half, 1.0)
