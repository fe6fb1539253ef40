"""Quantised mean and sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import Requantizer, quantize_multiplier, wrap32


def sum_params(in_scale: float, out_scale: float) -> tuple[int, int]:
    """``(multiplier, exponent)`` that turn a sum of codes into result codes."""
    return quantize_multiplier(float(np.float64(np.float32(in_scale)) / np.float64(np.float32(out_scale))))


def mean_params(in_scale: float, out_scale: float, count: int) -> tuple[int, int]:
    """``(multiplier, exponent)`` of a mean over ``count`` elements: the division is folded into the multiplier."""
    multiplier, exponent = sum_params(in_scale, out_scale)
    shift = max(min(count.bit_length() - 1, 32, 31 + exponent), 0)
    return (multiplier << shift) // count, exponent - shift


def mean_codes(
    x: NDArray[Any],
    axes: tuple[int, ...],
    multiplier: int,
    exponent: int,
    in_zero: int,
    out_zero: int,
    low: int,
    high: int,
    dtype: str | np.dtype[Any],
    *,
    keep_dims: bool = True,
) -> NDArray[Any]:
    """Mean or sum (depending on the multiplier) of codes over ``axes``, as codes clamped to ``[low, high]``."""
    sums = x.sum(axis=axes, dtype=np.int64, keepdims=keep_dims)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    centred = np.asarray(wrap32(np.asarray(sums - in_zero * count)))
    return Requantizer(multiplier, exponent, out_zero, low, high, dtype)(centred)
