"""Products of float activations and 8-bit weights, with dynamically quantised rows and exact sums.

The formulas follow TensorFlow Lite's hybrid kernels. Each row of activations has a scale, and a zero point in the
asymmetric form. Both are derived from the row's range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.numerics.matmul import Matrix, integer_matrix
from odc_mlir.numerics.pieces import PART_ELEMENTS, has_nan, limit, parts
from odc_mlir.numerics.quantize import signed_half

_LOW, _HIGH = -128, 127
_LIMIT = np.array(_HIGH, np.float32)
_LARGEST = 1 << 8  # largest magnitude of a code minus its zero point


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows ``[N, K]`` of codes minus zero points (9 bits with sign), and float32 scales ``[N]``."""

    centred: NDArray[np.int32]
    scales: NDArray[np.float32]


Convert = Callable[[NDArray[np.float32], slice], NDArray[np.int32]]


def quantize_rows(x: NDArray[Any], *, asymmetric: bool = False) -> QuantizedRows:
    """Quantise rows of float32 ``x [N, K]`` to 8 bits by the ranges of the rows. A row of zeros has scale 1."""
    x = np.asarray(x, np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        convert, scales = _asymmetric(x) if asymmetric else _symmetric(x)
        centred = np.empty(x.shape, np.int32)
        for place in parts(x.shape, elements=PART_ELEMENTS):
            centred[place] = convert(x[place], place[0])
    return QuantizedRows(centred, scales)


def _symmetric(x: NDArray[np.float32]) -> tuple[Convert, NDArray[np.float32]]:
    """Return the conversion of rows to codes -127 to 127, scaled by the largest magnitude. NaN becomes 0."""
    largest = np.maximum(x.max(axis=1, initial=0), -x.min(axis=1, initial=0))
    scales = np.where(largest == 0, np.float32(1), largest / np.float32(_HIGH))
    inverse = np.where(largest == 0, np.float32(0), np.float32(_HIGH) / largest)[:, None]

    def convert(x: NDArray[np.float32], rows: slice) -> NDArray[np.int32]:
        codes = x * inverse[rows]
        if has_nan(codes):
            codes = np.nan_to_num(codes)
        codes += signed_half(codes)  # rounds halves away from zero, together with the following truncation
        return limit(codes, -_LIMIT, _LIMIT, codes).astype(np.int32)

    return convert, scales.astype(np.float32)


def _asymmetric(x: NDArray[np.float32]) -> tuple[Convert, NDArray[np.float32]]:
    """Return the conversion of rows to codes minus zero point. Ranges are extended to contain zero."""
    least, most = x.min(axis=1, initial=0), x.max(axis=1, initial=0)
    flat = least == most
    step = np.where(flat, 1.0, (most - least).astype(np.float64) / (_HIGH - _LOW))
    from_least, from_most = _LOW - least / step, _HIGH - most / step
    nearer = -_LOW + np.abs(least / step) < _HIGH + np.abs(most / step)
    zeros = np.clip(round_half_away(np.where(nearer, from_least, from_most)), _LOW, _HIGH)
    zeros = np.where(flat, 0, np.nan_to_num(zeros)).astype(np.int32)
    scales = step.astype(np.float32)
    flat, zeros, inverse = flat[:, None], zeros[:, None], (np.float32(1) / scales)[:, None]

    def convert(x: NDArray[np.float32], rows: slice) -> NDArray[np.int32]:
        codes = np.clip(round_half_away(x * inverse[rows]) + zeros[rows].astype(np.float32), _LOW, _HIGH)
        return np.asarray(np.nan_to_num(np.where(flat[rows], 0, codes)).astype(np.int32) - zeros[rows])

    return convert, scales


class HybridMatrix:
    """int8 weights ``[O, K]`` with a single scale, or a scale per row, prepared for products with quantised rows."""

    def __init__(self, weights: NDArray[np.int8], scales: NDArray[Any]) -> None:
        self._matrix: Matrix = integer_matrix(weights.T, _LARGEST)
        self._scales = np.asarray(scales, np.float32)

    def product(self, rows: QuantizedRows) -> NDArray[np.float32]:
        """Return ``rows [N, K] @ weights.T`` as float32 ``[N, O]``."""
        sums = self._matrix.product(rows.centred).astype(np.float32)
        return np.asarray(sums * (rows.scales[:, None] * self._scales), np.float32)
