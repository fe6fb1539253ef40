"""How sure a verdict's numbers are: bootstrap intervals over the samples that it was passed on.

Samples are drawn again with replacement, a thousand times with a fixed seed, and the measure is computed of each draw;
the middle 95 % are its interval (Efron, "Bootstrap methods: another look at the jackknife", 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, Limit

_DRAWS = 1000
_SEED = 1
_ENDS = (2.5, 97.5)  # percentiles
_FEWEST = 4  # samples of which draws differ enough to say anything

Interval = tuple[float, float]


def intervals_of(reference: Reference, measured: Measurement) -> dict[str, Interval]:
    """The interval of each measure that is made of what single samples give; those of few samples are left out."""
    count = len(measured.reals)
    if count < _FEWEST:
        return {}
    draws = np.random.default_rng(_SEED).integers(0, count, (_DRAWS, count))
    found: dict[str, list[NDArray[np.float64]]] = {}
    for place, span in enumerate(reference.spans):
        pairs = [(a[place], b[place]) for a, b in zip(reference.outputs, measured.reals, strict=True)]
        for metric, values in _of_output(pairs, span, draws).items():
            found.setdefault(metric, []).append(values)
    worst = {m: (np.min if HIGHER_IS_BETTER[m] else np.max)(np.stack(v), axis=0) for m, v in found.items()}
    if reference.classifier == "logits":
        alike = np.array([float(reference.decides_alike(i, reals[0])) for i, reals in enumerate(measured.reals)])
        worst["top1_decided"] = alike[draws].mean(axis=1)
    if reference.labels is not None and reference.metric == "top1_percent":
        worst["drop"] = _drops(reference, measured, draws)
    ends = {metric: np.percentile(values, _ENDS) for metric, values in worst.items()}
    return {metric: (float(low), float(high)) for metric, (low, high) in ends.items() if np.isfinite([low, high]).all()}


def _of_output(
    pairs: Sequence[tuple[Array, Array]], span: float | None, draws: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """The measures of one output for each draw."""
    if pairs[0][0].dtype.kind not in "iuf":
        return {}
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    errors = [np.abs(a - b) for a, b in wide]
    sizes = np.array([max(1, error.size) for error in errors], np.float64)[draws].sum(axis=1)
    noise = np.array([np.square(error).sum() for error in errors])[draws].sum(axis=1)
    signal = np.array([np.square(a).sum() for a, _ in wide])[draws].sum(axis=1)
    result = {"mae": np.array([error.sum() for error in errors])[draws].sum(axis=1) / sizes, "mse": noise / sizes}
    if span:
        result["mpeir"] = (np.array([error.max(initial=0.0) for error in errors]) / span)[draws].mean(axis=1)
    if noise.all() and signal.all():
        result["sqnr_db"] = 10.0 * np.log10(signal / noise)
    agree = np.array([float(np.argmax(a) == np.argmax(b)) if a.size else 1.0 for a, b in wide])
    result["top1_match"] = agree[draws].mean(axis=1)
    return result


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
        half = (high - low) / 2
        nearest = min(abs(limit.bound - low), abs(high - limit.bound))
        factor = (half / (half - nearest)) ** 2 if half > nearest else 4.0
        wanted = min(4096, max(2 * count, math.ceil(count * min(factor, 16.0))))
        found.append(
            f"with {count} samples {limit.metric} is {low:.3g} to {high:.3g} (95 %), the limit {limit.bound:.3g}; "
            f"{wanted} samples would make that ±{half * math.sqrt(count / wanted):.2g}"
        )
    return found
