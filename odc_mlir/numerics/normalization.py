"""Normalisation over channels, the last axis: by the L2 norm, and by the energy of neighbouring channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.pieces import in_rows, limit, row_slices, row_totals
from odc_mlir.numerics.transcendental import inverse_sqrt

Array = NDArray[Any]

_LEAST_NORM = np.float32(1e-6)
_OUT_BITS = 7  # results have the scale 1/128


def l2_normalize(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """``x [..., C]`` divided by its norm along the last axis, which counts as at least 1e-6."""

    def compute(rows: Array) -> Array:
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        return np.asarray(rows / np.maximum(norms, _LEAST_NORM)[:, None])

    return in_rows(compute, x, np.float32)


def l2_normalize_codes(x: Array, zero_point: int, out_zero: int) -> Array:
    """Codes (scale 1/128) of 8-bit ``x [..., C]`` divided by its norm along the last axis."""
    low, high = code_range(x.dtype)
    gain = _OUT_BITS if x.dtype.kind == "i" else 0  # unsigned codes are shifted up before they are multiplied
    rows = x.reshape(-1, x.shape[-1])

    def squares(codes: Array) -> Array:
        values = np.subtract(codes, zero_point, dtype=np.int32)
        return np.multiply(values, values, out=values)

    q, e = inverse_sqrt(row_totals(squares, rows))
    exponent = e + gain
    factor = q.astype(np.int64) << (np.maximum(exponent, 0) + _OUT_BITS - gain)
    shift = np.maximum(-exponent, 0).astype(np.int32)
    half = np.where(shift > 0, np.int32(1) << np.maximum(shift - 1, 0), 0).astype(np.int32)
    result = np.empty(rows.shape, x.dtype)
    for part in row_slices(rows):
        wide = np.subtract(rows[part], zero_point, dtype=np.int32) * factor[part]
        wide += 1 << 30
        wide >>= 31
        scaled = wide.astype(np.int32)
        scaled += np.where(half[part] > 0, scaled >> 31, 0)  # negative halves go down
        scaled += half[part]
        scaled >>= shift[part]
        scaled += out_zero
        result[part] = limit(scaled, low, high, out=scaled)
    return result.reshape(x.shape)


def local_response_normalize(
    x: NDArray[np.float32], radius: int, bias: float, alpha: float, beta: float
) -> NDArray[np.float32]:
    """``x / (bias + alpha * energy)^beta`` for ``x [..., C]``.

    The energy of channel c is the sum of squares of channels c - radius to c + radius - 1, computed in float64. That
    the last neighbour is left out is how TensorFlow Lite's reference kernel does it; its optimised kernel does not.
    """
    channels = x.shape[-1]
    last = np.minimum(np.arange(channels) + radius, channels)
    first = np.maximum(np.arange(channels) - radius, 0)

    def compute(rows: Array) -> Array:
        totals = np.zeros((rows.shape[0], channels + 1), np.float64)
        np.cumsum(np.square(rows, dtype=np.float64), axis=1, out=totals[:, 1:])
        energy = (totals[:, last] - totals[:, first]).astype(np.float32)
        return np.asarray(rows * np.power(np.float32(bias) + np.float32(alpha) * energy, np.float32(-beta)))

    return in_rows(compute, x, np.float32)
