"""Normalisation over channels, the last axis: by the L2 norm, and by the energy of neighbouring channels."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.pieces import in_rows, limit, row_slices
from odc_mlir.numerics.transcendental import inverse_sqrt

Array = NDArray[Any]

_LEAST_NORM = np.float32(1e-6)
_OUT_BITS = 7  # results have the scale 1/128
_NARROW = 16  # rows with fewer columns are transposed
_NUDGE = 2.0**-40
_MANY = 1 << 13  # roots from which a table of all possible ones pays off
_TABULATED = 1 << 18
_FLOAT32_WHOLE = 1 << 24  # up to which float32 holds all integers


def l2_normalize(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``x [..., C]`` divided by its norm along the last axis, which counts as at least 1e-6."""

    def compute(rows: Array) -> Array:
        norms = np.einsum("ij,ij->i", rows, rows)[:, None]
        np.sqrt(norms, out=norms)
        return np.asarray(rows / np.maximum(norms, _LEAST_NORM, out=norms))

    return in_rows(compute, x, np.float32)


def l2_normalize_codes(x: Array, zero_point: int, out_zero: int) -> Array:
    """Return codes (scale 1/128) of 8-bit ``x [..., C]`` divided by its norm along the last axis."""
    least, most, out_code = (np.array(code, np.int16) for code in (*code_range(x.dtype), out_zero))
    gain = _OUT_BITS if x.dtype.kind == "i" else 0  # unsigned codes are shifted up before they are multiplied
    columns = x.shape[-1]
    rows, result = x.reshape(-1, columns), np.empty((math.prod(x.shape[:-1]), columns), x.dtype)
    source, target = (rows.T, result.T) if columns < _NARROW else (rows, result)

    totals = _squares(rows, zero_point)
    if totals.size >= _MANY and int(totals.max()) < _TABULATED:
        q, e = (table.take(totals) for table in _inverse_roots())
    else:
        q, e = inverse_sqrt(totals)
    exponent = e + gain
    # Fixed-point arithmetic on numbers that are exact in float64. The first rounding takes halves up, the second away
    # from zero: a nudge smaller than any other difference moves them.
    factor = np.ldexp(q.astype(np.float64), np.maximum(exponent, 0) + _OUT_BITS - gain - 31)
    down = np.ldexp(1 + _NUDGE, np.minimum(exponent, 0))
    if columns >= _NARROW:
        factor, down = factor[:, None], down[:, None]
    for part in row_slices(rows):
        place = (slice(None), part) if columns < _NARROW else part
        scaled = np.ascontiguousarray(source[place]).astype(np.float64)
        scaled -= zero_point
        scaled *= factor[part]
        scaled += 0.5
        np.floor(scaled, out=scaled)
        if down[part].min() < 1:
            scaled *= down[part]
            np.rint(scaled, out=scaled)
        codes = scaled.astype(np.int16)
        codes += out_code
        target[place] = limit(codes, least, most, out=codes)
    return result.reshape(x.shape)


@cache
def _inverse_roots() -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return ``inverse_sqrt`` of the first whole numbers."""
    tables = inverse_sqrt(np.arange(_TABULATED))
    for table in tables:
        table.flags.writeable = False
    return tables


def _squares(rows: Array, zero_point: int) -> NDArray[np.int64]:
    """Return the sum of squares of each row of 8-bit codes without zero point."""
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

    The energy of channel c is the sum of squares of channels c - radius to c + radius, summed in float64.
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
