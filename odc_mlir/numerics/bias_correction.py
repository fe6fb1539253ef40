"""Correction of biases by the mean error of quantised results.

Rounded weights and clipped activations shift the mean of a layer's results. The bias is added to all results of a
channel. The difference of the means, in units of the bias scale, therefore corrects the shift. See Nagel et al.,
"Data-free quantization through weight equalization and bias correction", 2019, section 4.2. Here, means are measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError
from odc_mlir.numerics.fixed import round_half_away

Floats = NDArray[np.float64]
Deltas = NDArray[np.int64]

_LARGEST_DELTA = float(1 << 62)


def believable(means: Floats, variances: Floats, count: int) -> Floats:
    """Return ``means`` over ``count`` samples, reduced by the sampling noise.

    The positive-part James-Stein estimator per channel sets a mean within its standard error to 0.
    """
    squares = means**2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = 1 - variances / (max(1, count) * squares)
    return np.where(squares > 0, means * np.clip(parts, 0.0, 1.0), 0.0)


def bias_deltas(expected: NDArray[Any], found: NDArray[Any], scales: NDArray[Any]) -> Deltas:
    """Return corrections of a bias in units of ``scales``: ``expected`` minus ``found`` channel means.

    All arrays have one number per channel. ``scales`` may be a single number. A scale of 0, or a mean that is not
    finite, gives 0. Raises ModelError for shapes that do not match.
    """
    means = [np.asarray(array, np.float64).reshape(-1) for array in (expected, found)]
    steps = np.asarray(scales, np.float64).reshape(-1)
    if len(means[0]) != len(means[1]) or len(steps) not in (1, len(means[0])):
        raise ModelError(f"{len(means[0])} expected means, {len(means[1])} found, {len(steps)} scales; they must agree")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        wanted = (means[0] - means[1]) / steps
    known = np.where(np.isfinite(wanted), wanted, 0.0)
    return round_half_away(np.clip(known, -_LARGEST_DELTA, _LARGEST_DELTA)).astype(np.int64)


def corrected(codes: NDArray[Any], deltas: NDArray[Any]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return ``codes + deltas`` saturated to the dtype of ``codes``, and a mask of saturated channels.

    Float biases take float corrections. Raises ModelError for shapes that do not match.
    """
    flat, moves = codes.reshape(-1), np.asarray(deltas).reshape(-1)
    if len(flat) != len(moves):
        raise ModelError(f"{len(moves)} corrections for a bias of {len(flat)} channels")
    if codes.dtype.kind == "f":
        return np.asarray(codes + moves.reshape(codes.shape), codes.dtype), ()
    limits = np.iinfo(codes.dtype)
    # Python integers, because the sums of int64 codes may overflow int64.
    sums = [int(code) + int(move) for code, move in zip(flat, moves, strict=True)]
    limited = [min(max(value, int(limits.min)), int(limits.max)) for value in sums]
    stopped = tuple(i for i, (value, kept) in enumerate(zip(sums, limited, strict=True)) if value != kept)
    return np.array(limited, codes.dtype).reshape(codes.shape), stopped
