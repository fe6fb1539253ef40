"""Real values to codes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.pieces import clamp, in_pieces

Zeros = int | NDArray[Any]


def _along(values: Any, axis: int, rank: int) -> NDArray[Any]:
    """Per-axis parameters shaped to broadcast along ``axis``; scalars unchanged."""
    array = np.asarray(values)
    return array.reshape([-1 if i == axis else 1 for i in range(rank)]) if array.ndim else array


def quantize_real(
    x: NDArray[Any], scale: Any, zero_point: Zeros, dtype: str | np.dtype[Any], axis: int = 0
) -> NDArray[Any]:
    """Codes of float32 ``x``: a float32 division, rounded half away from zero, plus zero point, clamped.

    ``scale`` (float32) and ``zero_point`` are scalars or vectors along ``axis``. NaN gives the zero point.
    """
    low, high = code_range(dtype)
    scales, zeros = _along(scale, axis, x.ndim).astype(np.float32), _along(zero_point, axis, x.ndim)

    def compute(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = values / scales
        return clamp(round_half_away(np.nan_to_num(ratio)) + zeros, low, high)

    return np.asarray(compute(x), dtype) if scales.ndim else in_pieces(compute, x, dtype)


def dequantize_codes(codes: NDArray[Any], scale: Any, zero_point: Zeros, axis: int = 0) -> NDArray[np.float32]:
    """float32 values of codes: the product is formed in float64 per tensor, in float32 per axis."""
    if np.ndim(scale):
        shifted = codes.astype(np.int64) - _along(zero_point, axis, codes.ndim)
        return np.asarray(_along(scale, axis, codes.ndim) * shifted.astype(np.float32), np.float32)
    wide = np.float64(np.float32(scale))
    return in_pieces(lambda values: wide * np.subtract(values, zero_point, dtype=np.int64), codes, np.float32)
