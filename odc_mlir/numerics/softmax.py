"""Softmax and log-softmax along the last axis, of 8-bit codes and reals."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import INT32_MIN, code_range, multiply, quantize_multiplier, rdbpot, srdhm, wrap32
from odc_mlir.numerics.pieces import below_maximum, clamp, in_rows, limit, reduce, row_slices, row_totals
from odc_mlir.numerics.special import exp
from odc_mlir.numerics.transcendental import exp_negative, log_from_one, reciprocal

_DIFF_BITS = 5  # integer bits of scaled differences
_SUM_BITS = 12  # integer bits of the sum of exponentials
_LOG_STEP = 2.0 ** (_DIFF_BITS + 4 - 31)  # a step of Q5 in sixteenths
_KEPT_ELEMENTS = 1 << 18  # largest number of elements with differences kept in memory


def softmax_params(scale: float, beta: float) -> tuple[int, int, int]:
    """Return ``(multiplier, exponent, diff_min)`` of a softmax over codes with this scale.

    Differences from the maximum below ``diff_min`` give the lowest code.
    """
    product = float(np.float64(np.float32(beta)) * np.float64(np.float32(scale)))
    real = min(product * (1 << (31 - _DIFF_BITS)), 2.0**31 - 1)
    multiplier, exponent = quantize_multiplier(real)
    radius = math.floor(((1 << _DIFF_BITS) - 1) * 2.0 ** (31 - _DIFF_BITS) / 2.0**exponent)
    return multiplier, exponent, max(-radius, INT32_MIN)


@lru_cache(maxsize=256)
def exponentials(multiplier: int, exponent: int, diff_min: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``e^(beta*scale*d)`` for differences d = 0, -1 ... -255, in Q0, and rounded to Q12 for sums.

    For differences below ``diff_min``, the exponential is 0.
    """
    scaled, counts = _scaled_differences(multiplier, exponent, diff_min)
    values = np.where(counts, exp_negative(scaled, _DIFF_BITS), 0)
    terms = rdbpot(values, _SUM_BITS)
    found = values.astype(np.int64), terms.astype(np.int64)
    for table in found:
        table.flags.writeable = False
    return found


def _scaled_differences(multiplier: int, exponent: int, diff_min: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    diff = -np.arange(256, dtype=np.int64)
    counts = diff >= diff_min
    scaled = srdhm(wrap32(np.where(counts, diff, 0) << max(exponent, 0)), multiplier)
    return rdbpot(scaled, max(-exponent, 0)), counts


def softmax_codes(
    x: NDArray[Any], multiplier: int, exponent: int, diff_min: int, dtype: str | np.dtype[Any]
) -> NDArray[Any]:
    """Return softmax codes of 8-bit ``x [..., C]``, with scale 1/256, or 1/65536 for int16 results.

    The zero point is the lowest code. Exponentials are tabulated, because they depend only on the difference from the
    row's maximum.
    """
    values, terms = exponentials(multiplier, exponent, diff_min)
    low, high = code_range(dtype)
    bits = 8 * np.dtype(dtype).itemsize

    rows = x.reshape(-1, x.shape[-1])
    totals = row_totals(lambda codes: np.take(terms, below_maximum(codes)), rows) & 0xFFFFFFFF
    inverse, over = reciprocal(np.maximum(totals, 1), _SUM_BITS)
    shift = np.minimum(over + 31 - bits, 62)
    half = (np.int64(1) << shift) >> 1
    result = np.empty(rows.shape, dtype)
    for part in row_slices(rows):
        # Both roundings can add half and shift, because all numbers are non-negative.
        scaled = np.take(values, below_maximum(rows[part]))
        scaled *= inverse[part]
        scaled += 1 << 30
        scaled >>= 31
        scaled += half[part]
        scaled >>= shift[part]
        scaled += low
        result[part] = np.minimum(scaled, high, out=scaled)
    return result.reshape(x.shape)


def softmax_float_table(
    x: NDArray[Any], scale: float, beta: float, out_scale: float, out_zero: int, dtype: str | np.dtype[Any]
) -> NDArray[Any]:
    """Return softmax codes by float32 exponentials, for scales other than 1/256 (ONE uses 1/255)."""
    step = np.float32(-np.float32(scale) * np.float32(beta))
    table = np.exp(step * np.arange(256, dtype=np.float32), dtype=np.float32)
    low, high = code_range(dtype)

    def compute(codes: NDArray[Any]) -> NDArray[Any]:
        rows = codes.astype(np.int16)
        terms = table[rows.max(axis=1, keepdims=True) - rows]
        total = np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1:]  # sums in the order of the scalar loop
        inverse = np.float32(1) / (total * np.float32(out_scale))
        results = np.floor((terms * inverse).astype(np.float64) + 0.5).astype(np.int64) + out_zero
        return clamp(results, low, high)

    return in_rows(compute, x, dtype)


def softmax_float(x: NDArray[Any], beta: float) -> NDArray[Any]:
    """Return the softmax of float32 ``x`` along the last axis. Subnormal exponentials count as 0."""
    powers = x - reduce(np.maximum, x, (-1,), keep=True) if x.size else x.copy()
    if beta != 1:
        powers *= np.float32(beta)
    exp(powers, powers)
    powers /= reduce(np.add, powers, (-1,), keep=True)
    return powers


def log_softmax_params(scale: float) -> tuple[int, int, int, int, int]:
    """Return ``(multiplier, exponent, diff_min, back_multiplier, back_exponent)`` of a log-softmax.

    The first three equal the parameters of a softmax with beta 1. The last two convert back to differences of codes.
    """
    multiplier, exponent, diff_min = softmax_params(scale, 1.0)
    back = 2.0 ** (31 - exponent) / multiplier if multiplier else 0.0
    return multiplier, exponent, diff_min, *quantize_multiplier(back)


def log_softmax_codes(
    x: NDArray[Any],
    multiplier: int,
    exponent: int,
    diff_min: int,
    back_multiplier: int,
    back_exponent: int,
    out_zero: int,
    dtype: str | np.dtype[Any],
) -> NDArray[Any]:
    """Return log-softmax codes (scale 1/16) of 8-bit ``x [..., C]``."""
    differences, terms = _log_tables(multiplier, exponent, diff_min)
    low, high = code_range(dtype)
    bounds = np.array(low - out_zero, np.float64), np.array(high - out_zero, np.float64)
    offset = np.array(out_zero, np.int16)

    rows = x.reshape(-1, x.shape[-1])
    result, lowest = np.empty(rows.shape, dtype), np.dtype(dtype).type(low)
    for part in row_slices(rows, _KEPT_ELEMENTS):
        below = below_maximum(rows[part])
        log = log_from_one(wrap32(row_totals(lambda diff: np.take(terms, diff), below)), _SUM_BITS).astype(np.int64)
        reach = multiply(log + INT32_MIN, back_multiplier, back_exponent).astype(np.int64)
        last = np.minimum(-diff_min, -1 - reach)  # greater differences give the lowest code
        some_left_out = bool((last < 255).any())
        last = last.clip(-1, 255).astype(np.int16)
        scaled_log = log * _LOG_STEP
        for part in row_slices(below):
            scaled = np.take(differences, below[part])
            scaled -= scaled_log[part]
            np.floor(scaled, out=scaled)
            codes = limit(scaled, *bounds, out=scaled).astype(np.int16)
            codes += offset
            target = result[part][part]
            target[...] = codes
            if some_left_out:
                np.copyto(target, lowest, where=below[part] > last[part])
    return result.reshape(x.shape)


@lru_cache(maxsize=256)
def _log_tables(multiplier: int, exponent: int, diff_min: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scaled differences 0, -1 ... -255 in sixteenths, and the exponentials in Q12.

    The differences include an addend. Subtracting the logarithm and rounding down then rounds to nearest, halves away
    from zero, because no result is positive. All numbers are exact in float64.
    """
    scaled = _scaled_differences(multiplier, exponent, diff_min)[0].astype(np.float64) * _LOG_STEP
    scaled += 0.5 - _LOG_STEP
    scaled.flags.writeable = False
    return scaled, exponentials(multiplier, exponent, diff_min)[1]


def log_softmax_float(x: NDArray[Any]) -> NDArray[Any]:
    """Return the log-softmax of float32 ``x`` along the last axis."""
    shifted = x - reduce(np.maximum, x, (-1,), keep=True)
    totals = reduce(np.add, np.exp(shifted), (-1,), keep=True)
    shifted -= np.log(totals, out=totals)
    return np.asarray(shifted)
