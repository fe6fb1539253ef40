"""Comparison of codes with different scales."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import multiply, quantize_multiplier
from odc_mlir.numerics.lut import apply, codes_by_byte

LEFT_SHIFT = 8
_TABLE_THRESHOLD = 512  # elements from which tabulating all 256 codes is cheaper than scaling each one


def compare_params(scale: float) -> tuple[int, int]:
    """``(multiplier, exponent)`` that bring codes of this scale to a common scale of 1/256."""
    return quantize_multiplier(float(np.float32(scale)))


def common_scale(codes: NDArray[Any], zero_point: int, multiplier: int, exponent: int) -> NDArray[np.int32]:
    """Codes at the scale at which they are compared. Small scales map neighbours to one value, as the C kernels do."""

    def scale(codes: NDArray[Any]) -> NDArray[np.int32]:
        return multiply((codes.astype(np.int64) - zero_point) << LEFT_SHIFT, multiplier, exponent)

    if codes.dtype.itemsize == 1 and codes.size > _TABLE_THRESHOLD:
        return apply(scale(codes_by_byte(codes.dtype)), codes)
    return scale(codes)
