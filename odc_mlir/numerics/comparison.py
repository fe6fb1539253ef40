"""Comparison of codes with different scales."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import multiply, quantize_multiplier
from odc_mlir.numerics.lut import apply, codes_by_bits

LEFT_SHIFT = 8


def compare_params(scale: float) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of the ratio of ``scale`` to the common scale of 1/256."""
    return quantize_multiplier(float(np.float32(scale)))


def common_scale(codes: NDArray[Any], zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    """Return codes at the common scale. Small scales map neighbours to one value, as in TensorFlow Lite."""
    if codes.dtype.itemsize == 1:
        return apply(_table(codes.dtype.name, zero_point, multiplier, exponent), codes)
    return _scaled(codes, zero_point, multiplier, exponent)


def _scaled(codes: NDArray[Any], zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    return multiply((codes.astype(np.int64) - zero_point) << LEFT_SHIFT, multiplier, exponent)


@lru_cache(maxsize=256)
def _table(dtype: str, zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    return _scaled(codes_by_bits(dtype), zero_point, multiplier, exponent)
