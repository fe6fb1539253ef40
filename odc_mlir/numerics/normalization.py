"""Normalisation over channels, the last axis: by L2 norm, energy of neighbours, or root mean square.

RMS normalisation of codes uses 16-bit elements and 32-bit sums.

Each row is first scaled: the largest element fills 16 bits. A common factor does not change the result, and rows of
small codes become as accurate as rows of large codes::

    d = x - zero point                                      # times 128 for 8-bit codes
    t = normaliser[largest |d|]                             # about 128 * 32767 / largest
    e = d * t / 128;   s = e * e / 2^15
    m = mean(s) + epsilon * t^2                             # coarse: units of 4/7; fine, if small: units of 1/112
    r = root[coarse m] + finer root[fine m]                 # about 1 / sqrt(m)
    y = e * r * gamma

Tables have 513 interpolated entries. Products are rounded to 16 bits. See :func:`rms_norm_codes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, multiply, quantize_multiplier, round_half_away
from odc_mlir.numerics.int16 import look_up
from odc_mlir.numerics.pieces import in_rows, limit, row_slices
from odc_mlir.numerics.transcendental import inverse_sqrt

Array = NDArray[Any]

_LEAST_NORM = np.float32(1e-6)
_OUT_BITS = 7  # results have the scale 1/128
_NUDGE = 2.0**-40
_FLOAT32_WHOLE = 1 << 24  # float32 represents all integers up to this limit

Quant = tuple[float, int]
Factor = tuple[int, int]  # (multiplier, exponent)

LOW, HIGH = code_range("int16")
WIDENING = 128  # factor of 8-bit codes, so that differences from the zero point fill 16 bits
OF_ROWS, OF_SQUARES, ONE, HALF = (1 << 30, -6), (1 << 30, -14), (1 << 30, 1), (1 << 30, 0)  # factors
SHIFT = 14  # left shift of sums of codes with the zero point LOW
BACK = (1 << 30, 2 - SHIFT)  # factor that undoes SHIFT after halving

_STEP = 128  # distance between entries of a table, in codes
_ZERO = 256  # index of the entry for code 0
_UNITS = (7 / 4, 112.0)  # codes per unit of a mean of squares, in the coarse and the fine table
_COARSE_FROM = 65536 / _UNITS[1]  # least mean for which the coarse table suffices
_LEAST = 512 / _UNITS[1]  # mean that gives the largest inverse root
_ROOT = HIGH * math.sqrt(_LEAST)  # code of the root of a mean of 1
_MOST_EPSILON = 4096.0  # limit on the contribution of epsilon to a mean
_FULL = 2.0**15  # divisor of squares
_KEPT = 32_600  # largest code of normalised elements, with a margin for errors of roots


def l2_normalize(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``x [..., C]`` divided by the norm along the last axis. Norms below 1e-6 count as 1e-6."""

    def compute(rows: Array) -> Array:
        norms = np.einsum("ij,ij->i", rows, rows)[:, None]
        np.sqrt(norms, out=norms)
        return np.asarray(rows / np.maximum(norms, _LEAST_NORM, out=norms))

    return in_rows(compute, x, np.float32)


def l2_normalize_codes(x: Array, zero_point: int, out_zero: int) -> Array:
    """Return codes (scale 1/128) of 8-bit ``x [..., C]`` divided by the norm along the last axis."""
    least, most, out_code = (np.array(code, np.int16) for code in (*code_range(x.dtype), out_zero))
    gain = _OUT_BITS if x.dtype.kind == "i" else 0  # unsigned codes are shifted left before the multiplication
    columns = x.shape[-1]
    rows, result = x.reshape(-1, columns), np.empty((math.prod(x.shape[:-1]), columns), x.dtype)

    totals = _squares(rows, zero_point)
    q, e = inverse_sqrt(totals)
    exponent = e + gain
    # Fixed-point arithmetic on numbers that float64 represents exactly. The first rounding rounds ties up, the second
    # away from zero: adding less than any other difference moves ties to the right side.
    factor = np.ldexp(q.astype(np.float64), np.maximum(exponent, 0) + _OUT_BITS - gain - 31)
    down = np.ldexp(1 + _NUDGE, np.minimum(exponent, 0))
    factor, down = factor[:, None], down[:, None]
    for part in row_slices(rows):
        scaled = rows[part].astype(np.float64)
        scaled -= zero_point
        scaled *= factor[part]
        scaled += 0.5
        np.floor(scaled, out=scaled)
        if down[part].min() < 1:
            scaled *= down[part]
            np.rint(scaled, out=scaled)
        codes = scaled.astype(np.int16)
        codes += out_code
        result[part] = limit(codes, least, most, out=codes)
    return result.reshape(x.shape)


def _squares(rows: Array, zero_point: int) -> NDArray[np.int64]:
    low, high = code_range(rows.dtype)
    largest = max(abs(low - zero_point), abs(high - zero_point))
    dtype: Any = np.float32 if rows.shape[1] * largest**2 <= _FLOAT32_WHOLE else np.float64
    totals = np.empty(len(rows), np.int64)
    for part in row_slices(rows):
        values: Array = rows[part].astype(dtype)
        values -= zero_point
        totals[part] = np.einsum("ij,ij->i", values, values)
    return totals


def local_response_normalize(
    x: NDArray[np.float32], radius: int, bias: float, alpha: float, beta: float
) -> NDArray[np.float32]:
    """Return ``x / (bias + alpha * energy)^beta`` for ``x [..., C]``.

    The energy of channel c is the sum of squares of channels c - radius to c + radius, in float64.
    """
    channels = x.shape[-1]
    reach = min(radius, channels - 1)

    def compute(rows: Array) -> Array:
        squares = np.square(rows, dtype=np.float64)
        energy = squares.copy()
        for distance in range(1, reach + 1):
            energy[:, distance:] += squares[:, :-distance]
            energy[:, :-distance] += squares[:, distance:]
        power = np.float32(bias) + np.float32(alpha) * energy.astype(np.float32)
        return np.asarray(rows * np.power(power, np.float32(-beta)))

    return in_rows(compute, x, np.float32)


class RootTable(NamedTuple):
    """Table of roots, and factors of the sum of squares and of the squared normaliser (None: negligible)."""

    mean: Factor
    epsilon: Factor | None
    entries: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class RmsNormParams:
    """Integer parameters of a root mean square normalisation.

    ``normal``: factor from normalised elements to 16 bits, or to the result without ``gamma``.
    ``gamma``: int16 codes, or None if all elements are equal.
    """

    zero: int
    widening: int
    normaliser: NDArray[np.int16]
    roots: tuple[RootTable, ...]
    normal: Factor
    gamma: NDArray[np.int16] | None
    scaled: Factor
    out_zero: int
    dtype: str


def rms_norm_params(
    source: Quant, in_dtype: str, gamma: NDArray[np.float32], epsilon: float, count: int, result: Quant, dtype: str
) -> RmsNormParams:
    """Return the parameters for rows of ``count`` codes. ``gamma`` has ``count`` real numbers, or one."""
    widening = 1 if in_dtype == "int16" else WIDENING
    small = epsilon * (widening / source[0]) ** 2 / (_STEP**2 * _FULL)  # epsilon's part of the mean
    normaliser = np.minimum(_normaliser(), _limit(small))
    most = int(normaliser.max())
    # If epsilon is far larger than all squares, means get a coarser unit.
    coarser = min(1.0, (HIGH + _MOST_EPSILON) / (HIGH + small * _STEP**2))
    roots = []
    for unit, entries in zip(_UNITS, _roots(), strict=True):
        added = quantize_multiplier(unit * coarser * small)
        mean = quantize_multiplier(unit * coarser / count)
        roots.append(RootTable(mean, added if multiply(most * most, *added) else None, entries))
    numbers = np.asarray(gamma, np.float64).reshape(-1)
    codes, unit, scaled = None, float(numbers[0]) / result[0], ONE
    if (numbers != numbers[0]).any():
        largest = float(np.abs(numbers).max())
        unit = _KEPT / HIGH * math.sqrt(HIGH**2 / count + small * _STEP**2 * _FULL)  # for a row of HIGH and zeros
        codes = round_half_away(numbers * (HIGH / largest)).astype(np.int16)
        scaled = quantize_multiplier(largest / (HIGH * unit * result[0]))
    return RmsNormParams(
        source[1],
        widening,
        normaliser,
        tuple(roots),
        quantize_multiplier(unit * math.sqrt(coarser) / (_ROOT * math.sqrt(_FULL))),
        codes,
        scaled,
        result[1],
        dtype,
    )


def rms_norm_codes(x: NDArray[Any], p: RmsNormParams) -> NDArray[Any]:
    """Return codes of ``gamma * x / sqrt(mean(x^2) + epsilon)`` along the last axis."""
    low, high = code_range(p.dtype)
    d = _limited((x.astype(np.int32) - p.zero) * p.widening)
    largest = _limited(np.abs(d)).max(axis=-1, keepdims=True)
    t = look_up(p.normaliser.astype(np.int64), largest).astype(np.int32)
    e = _limited(multiply(d * t, *OF_ROWS))
    squares = _limited(multiply(e * e, *OF_SQUARES)).sum(axis=-1, keepdims=True, dtype=np.int64)
    r = np.zeros(t.shape, np.int32)
    for mean, epsilon, entries in p.roots:
        m = _limited(multiply(squares, *mean).astype(np.int64) + LOW)
        if epsilon is not None:
            m = _limited(m - LOW + _limited(multiply(t * t, *epsilon).astype(np.int64) + LOW))
        r = _limited(r + look_up(entries.astype(np.int64), m))
    y = multiply(e * r, *p.normal)
    if p.gamma is not None:
        y = multiply(_limited(y) * p.gamma.astype(np.int32), *p.scaled)
    return np.clip(y.astype(np.int64) + p.out_zero, low, high).astype(p.dtype)


def _limited(values: NDArray[Any]) -> NDArray[np.int32]:
    return np.asarray(values.clip(LOW, HIGH), np.int32)


def _limit(small: float) -> int:
    """Return the largest normaliser for which epsilon leaves room for the mean. Elements never become smaller."""
    return HIGH if small * HIGH**2 <= _MOST_EPSILON else max(_STEP, int(math.sqrt(_MOST_EPSILON / small)))


@cache
def _normaliser() -> NDArray[np.int16]:
    """Return normalisers by the largest element of a row. Products with interpolated normalisers fit in 16 bits."""
    cells = np.arange(1, _ZERO + 1)
    before = np.maximum(cells - 1, 1)  # here, products with interpolated values exceed those with entries
    entries = np.floor(HIGH / cells / (1 + 1 / (4.0 * before * (before + 1))))
    return np.concatenate([np.full(_ZERO + 1, entries[0]), entries]).astype(np.int16)


@cache
def _roots() -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return the tables of ``_ROOT / sqrt(mean)``: coarse, and the fine correction for small means."""
    beyond = _ROOT / math.sqrt(_COARSE_FROM)

    def root(means: NDArray[Any], least: float) -> NDArray[np.float64]:
        return np.asarray(_ROOT / np.sqrt(np.maximum(means, least)))

    return (
        _table(lambda codes: root(codes / _UNITS[0], _COARSE_FROM)),
        _table(lambda codes: root(codes / _UNITS[1], _LEAST) - beyond),
    )


def _table(function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.int16]:
    """Return entries that interpolate a function of ``code - LOW``, minus half of the error in the middle of steps."""
    at = np.arange(2 * _ZERO + 1) * float(_STEP)
    exact = function(at)
    entries = exact.copy()
    entries[:-1] -= ((exact[1:] + exact[:-1]) / 2 - function(at[:-1] + _STEP / 2)) / 2
    return round_half_away(entries).astype(np.int16)
