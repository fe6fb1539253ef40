"""How sure a verdict's numbers are: 95 % intervals, over the samples that a model was judged on.

Few samples tell little of rare ones, and these decide most measures: a value beyond the ranges is clipped, and one such
sample may be noisier than a hundred others. A bootstrap of what was seen promises too much then. So each of n samples
stands for a random share of all inputs, and the share 1 / (n + 1) that was not seen for one more (n + 1 exponential
weights; Learned-Miller and Thomas, "A new confidence interval for the mean of a bounded random variable", 2019, Rubin's
Bayesian bootstrap of 1981 without the bound). At best that share adds no error at all. At worst its noise is
:data:`TAIL` times the largest that was seen, though no more than the signal: a bound that must be assumed, as no sample
shows it, and was checked on trained networks (``benchmarks/verdict_ranks.py``).

The worse end is of models that were made without the samples they are judged on; the better end also of the model as
it is, whose ranges hold all samples, as it is judged by those that were held back. Shares have Wilson's interval, which
is not empty where all samples agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, Limit

_DRAWS = 1000
_SEED = 1
_ENDS = (2.5, 97.5)  # percentiles
_FEWEST = 2  # samples that differ
SHARES = frozenset({"top1_match", "top1_decided"})  # of samples
_NORMAL = 1.96  # standard errors of 95 %
# How much more noise than any sample that was judged, in power, an unseen one is taken to have: where all samples were
# judged, and where only those held back were, among which the oddest need not be.
TAIL, TAIL_OF_HELD = 4.0, 32.0

Interval = tuple[float, float]
Outputs = Sequence[Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Judged:
    """What the float model and quantised ones gave for each sample; ``tail``: see :data:`TAIL`."""

    expected: Outputs
    found: Outputs
    tail: float = TAIL_OF_HELD


def intervals_of(
    reference: Reference, measured: Measurement, judged: Judged | None = None, itself: Measurement | None = None
) -> dict[str, Interval]:
    """The interval of each measure that is made of what single samples give; none of a single sample.

    ``measured`` are models made without the samples held back, which ``reference`` has; ``judged`` the same of more
    samples, where that was done; ``itself`` the model as it is. What ``measured`` says lies within.
    """
    count = len(measured.reals)
    if count < _FEWEST:
        return {}
    result = _ends(reference.spans, judged or Judged(reference.outputs, measured.reals))
    if itself is not None:
        result = _bettered(result, _ends(reference.spans, Judged(reference.outputs, itself.reals)))
    for metric, value in measured.worst().items():
        if metric in result and value is not None:
            low, high = result[metric]
            result[metric] = min(low, value), max(high, value)
    agreeing = [
        float(np.mean([np.argmax(a[place]) == np.argmax(b[place]) if a[place].size else True for a, b in pairs]))
        for pairs in [list(zip(reference.outputs, measured.reals, strict=True))]
        for place in _numbers(reference.outputs)
    ]
    if agreeing:
        result["top1_match"] = wilson(min(agreeing), count)
    if measured.decided is not None:
        result["top1_decided"] = wilson(measured.decided, count)
    if reference.labels is not None and reference.metric == "top1_percent":
        result["drop"] = _drops(reference, measured)
    return result


def _numbers(outputs: Outputs) -> list[int]:
    """The places of the outputs that are numbers."""
    return [place for place, value in enumerate(outputs[0]) if value.dtype.kind in "iuf"]


def _ends(spans: Sequence[float | None], judged: Judged) -> dict[str, Interval]:
    """The interval of each measure, of the output for which that is worst."""
    count = len(judged.expected)
    weights = np.random.default_rng(_SEED).standard_exponential((_DRAWS, count + 1))
    weights /= weights.sum(axis=1, keepdims=True)
    found: dict[str, list[Interval]] = {}
    for place in _numbers(judged.expected):
        pairs = [(a[place], b[place]) for a, b in zip(judged.expected, judged.found, strict=True)]
        for metric, interval in _of_output(pairs, spans[place], weights, judged.tail).items():
            found.setdefault(metric, []).append(interval)
    worst = {m: (min if HIGHER_IS_BETTER[m] else max) for m in found}
    ends = {m: (worst[m](low for low, _ in every), worst[m](high for _, high in every)) for m, every in found.items()}
    return {metric: interval for metric, interval in ends.items() if np.isfinite(interval).all()}


def _bettered(one: dict[str, Interval], other: dict[str, Interval]) -> dict[str, Interval]:
    """The intervals with the better end of both."""
    found = dict(one)
    for metric in set(one) & set(other):
        (low, high), (least, most) = one[metric], other[metric]
        found[metric] = (low, max(high, most)) if HIGHER_IS_BETTER[metric] else (min(low, least), high)
    return found


def wilson(share: float, count: int) -> Interval:
    """The 95 % interval of a share of ``count`` samples (Wilson, 1927)."""
    squared = _NORMAL**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = _NORMAL * math.sqrt(share * (1 - share) / count + squared / (4 * count)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def _of_output(
    pairs: Sequence[tuple[Array, Array]], span: float | None, weights: NDArray[np.float64], tail: float
) -> dict[str, Interval]:
    """The intervals of one output's measures."""
    errors = [np.abs(a.astype(np.float64) - b) for a, b in pairs]
    sizes = np.array([max(1, error.size) for error in errors], np.float64)
    noise = np.array([np.square(error).sum() for error in errors])
    signal = np.array([np.square(a.astype(np.float64)).sum() for a, _ in pairs])
    total = np.array([error.sum() for error in errors])
    root = math.sqrt(tail)
    largest_noise = tail * float(noise.max())
    result = {
        "mae": _ratio_ends(total, sizes, weights, root * float(total.max())),
        "mse": _ratio_ends(noise, sizes, weights, largest_noise),
    }
    if span:
        largest = np.array([error.max(initial=0.0) for error in errors]) / span
        most = float(largest.max())
        result["mpeir"] = _ratio_ends(largest, np.ones(len(errors)), weights, min(root * most, max(most, 1.0)))
    if noise.any() and signal.any():
        bound = min(largest_noise, max(float(signal.max()), float(noise.max())))
        low, high = _ratio_ends(noise, signal, weights, bound)
        if low > 0.0:
            result["sqnr_db"] = (-10.0 * math.log10(high), -10.0 * math.log10(low))
    return result


def _ratio_ends(
    above: NDArray[np.float64], below: NDArray[np.float64], weights: NDArray[np.float64], unseen: float
) -> Interval:
    """The ends of the ratio of weighted sums, where the last weight is of 0 at best and of ``unseen`` at worst."""
    seen, rest = weights[:, :-1], weights[:, -1]
    sums = seen @ below + rest * below.mean()
    least, most = seen @ above / sums, (seen @ above + rest * unseen) / sums
    return float(np.percentile(least, _ENDS[0])), float(np.percentile(most, _ENDS[1]))


def _drops(reference: Reference, measured: Measurement) -> Interval:
    """By how many points fewer answers are right, by bootstrap."""
    labels = reference.labels
    assert labels is not None

    def right(outputs: Sequence[Array]) -> NDArray[np.float64]:
        rows = [o.reshape(-1, o.shape[-1]).argmax(axis=1) for o in outputs]
        return np.array([float(np.mean(row == np.ravel(label))) for row, label in zip(rows, labels, strict=True)])

    lost = right([found[0] for found in reference.outputs]) - right([found[0] for found in measured.reals])
    draws = np.random.default_rng(_SEED).integers(0, len(lost), (_DRAWS, len(lost)))
    low, high = np.percentile(100.0 * lost[draws].mean(axis=1), _ENDS)
    return float(low), float(high)


def sample_advice(limits: Sequence[Limit], intervals: Mapping[str, Interval], count: int) -> list[str]:
    """What more samples would bring, where the interval of a limited measure reaches across its limit."""
    found = []
    for limit in limits:
        low, high = intervals.get(limit.metric, (limit.bound, limit.bound))
        if limit.allows(low) == limit.allows(high):
            continue
        if limit.metric in SHARES and high >= 1.0:
            continue  # no sample speaks against it
        half = (high - low) / 2
        nearest = min(abs(limit.bound - low), abs(high - limit.bound))
        factor = (half / (half - nearest)) ** 2 if half > nearest else 4.0
        wanted = min(4096, max(2 * count, math.ceil(count * min(factor, 16.0))))
        found.append(
            f"with {count} samples {limit.metric} is {low:.3g} to {high:.3g} (95 %), the limit {limit.bound:.3g}; "
            f"{wanted} samples would make that ±{half * math.sqrt(count / wanted):.2g}"
        )
    return found
