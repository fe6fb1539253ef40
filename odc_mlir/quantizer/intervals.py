"""How sure a verdict's numbers are: bootstrap intervals over the samples that it was passed on.

Samples are drawn again with replacement, a thousand times with a fixed seed. A few samples that are far worse than the
others decide most measures, and may be missing among those held back: the spread of draws alone would promise too much.
So each draw's distance from what was measured is taken in units of the draw's own standard error, in dB or logarithms,
and the middle 95 % of these are the interval (the bootstrap-t of Efron and Tibshirani, "An introduction to the
bootstrap", 1993, chapter 12). Shares have Wilson's interval, which is not empty where all samples agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, Limit

_DRAWS = 1000
_SEED = 1
_ENDS = (2.5, 97.5)  # percentiles
_FEWEST = 4  # samples of which draws differ enough to say anything
_SHARES = frozenset({"top1_match", "top1_decided"})
_NORMAL = 1.96  # standard errors of 95 %
_MOST_ERRORS = 25.0  # a draw of one sample alone has no error of its own

Interval = tuple[float, float]


def intervals_of(reference: Reference, measured: Measurement) -> dict[str, Interval]:
    """The interval of each measure that is made of what single samples give; those of few samples are left out."""
    count = len(measured.reals)
    if count < _FEWEST:
        return {}
    draws = np.random.default_rng(_SEED).integers(0, count, (_DRAWS, count))
    found: dict[str, list[NDArray[np.float64]]] = {}
    agreeing: list[float] = []
    for place, span in enumerate(reference.spans):
        pairs = [(a[place], b[place]) for a, b in zip(reference.outputs, measured.reals, strict=True)]
        if pairs[0][0].dtype.kind not in "iuf":
            continue
        for metric, values in _of_output(pairs, span, draws).items():
            found.setdefault(metric, []).append(values)
        agreeing.append(float(np.mean([np.argmax(a) == np.argmax(b) if a.size else True for a, b in pairs])))
    worst = {m: (np.min if HIGHER_IS_BETTER[m] else np.max)(np.stack(v), axis=0) for m, v in found.items()}
    if reference.labels is not None and reference.metric == "top1_percent":
        worst["drop"] = _drops(reference, measured, draws)
    ends = {metric: np.percentile(values, _ENDS) for metric, values in worst.items()}
    result = {m: (float(low), float(high)) for m, (low, high) in ends.items() if np.isfinite([low, high]).all()}
    if agreeing:
        result["top1_match"] = wilson(min(agreeing), count)
    if measured.decided is not None:
        result["top1_decided"] = wilson(measured.decided, count)
    return result


def wilson(share: float, count: int) -> Interval:
    """The 95 % interval of a share of ``count`` samples (Wilson, 1927)."""
    squared = _NORMAL**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = _NORMAL * math.sqrt(share * (1 - share) / count + squared / (4 * count)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def _of_output(
    pairs: Sequence[tuple[Array, Array]], span: float | None, draws: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """The measures of one output for each draw, as far from what was measured as the draw lets expect."""
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    errors = [np.abs(a - b) for a, b in wide]
    sizes = np.array([max(1, error.size) for error in errors], np.float64)
    noise = np.array([np.square(error).sum() for error in errors])
    signal = np.array([np.square(a).sum() for a, _ in wide])
    result = {
        "mae": np.exp(_pivoted(np.array([error.sum() for error in errors]), sizes, draws)),
        "mse": np.exp(_pivoted(noise, sizes, draws)),
    }
    if span:
        largest = np.array([error.max(initial=0.0) for error in errors]) / span
        result["mpeir"] = np.exp(_pivoted(largest, np.ones(len(errors)), draws))
    if noise.all() and signal.all():
        result["sqnr_db"] = 10.0 / math.log(10.0) * _pivoted(signal, noise, draws)
    return result


def _pivoted(above: NDArray[np.float64], below: NDArray[np.float64], draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each draw the logarithm of the ratio of sums, ``above`` to ``below``, that its distance speaks for."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole, error = _log_ratio(above, below)
        drawn, errors = _log_ratio(above[draws], below[draws])
        distances = np.nan_to_num((drawn - whole) / errors, nan=0.0)
    return np.asarray(whole - np.clip(distances, -_MOST_ERRORS, _MOST_ERRORS) * error)


def _log_ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[Any, Any]:
    """The logarithm of the ratio of sums along the last axis, and its standard error."""
    parts = above / above.mean(axis=-1, keepdims=True) - below / below.mean(axis=-1, keepdims=True)
    error = parts.std(axis=-1, ddof=1) / math.sqrt(parts.shape[-1])
    return np.log(above.sum(axis=-1) / below.sum(axis=-1)), error


def _drops(reference: Reference, measured: Measurement, draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """By how many points fewer answers are right, for each draw."""
    labels = reference.labels
    assert labels is not None

    def right(outputs: Sequence[Array]) -> NDArray[np.float64]:
        rows = [o.reshape(-1, o.shape[-1]).argmax(axis=1) for o in outputs]
        return np.array([float(np.mean(row == np.ravel(label))) for row, label in zip(rows, labels, strict=True)])

    lost = right([found[0] for found in reference.outputs]) - right([found[0] for found in measured.reals])
    return np.asarray(100.0 * lost[draws].mean(axis=1))


def sample_advice(limits: Sequence[Limit], intervals: Mapping[str, Interval], count: int) -> list[str]:
    """What more samples would bring, where the interval of a limited measure reaches across its limit."""
    found = []
    for limit in limits:
        low, high = intervals.get(limit.metric, (limit.bound, limit.bound))
        if limit.allows(low) == limit.allows(high):
            continue
        if limit.metric in _SHARES and high >= 1.0:
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
