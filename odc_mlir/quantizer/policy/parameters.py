"""Scales and zero points from ranges and contents, and the codes of constants.

All arithmetic is in float64; scales are then stored as float32, and codes are computed with the stored scale. Rounding
is to the nearest integer, halves away from zero.

* Asymmetric, ``n`` codes: ``scale = (max - min) / (n - 1)`` over a range that contains zero, and the zero point is the
  nearest code to real zero. Signed types use the unsigned formula, moved by half the codes.
* Symmetric: ``scale = max(|min|, |max|) / M`` with the largest positive code M, zero point 0 (the middle of an unsigned
  type); the smallest code of a signed type stays unused.

Nothing bounds scales but float32: its smallest normal number for each of them, and for the product of those of inputs
and weights, which is the scale of sums and biases. Smaller numbers lose digits, and some processors take them for zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.numerics.lstm import CELL_EXPONENTS
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams

SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
# What holds nothing but zeros, and is beside nothing else, has no unit: any scale does.
SCALE_OF_ZEROS = 1e-10
_LARGEST = float(np.finfo(np.float32).max)

Reals = NDArray[Any]


def activation_params(least: float, most: float, dtype: str, *, symmetric: bool) -> QuantParams:
    """Parameters of values between ``least`` and ``most``; zero always has a code of its own.

    Raises ModelError for a range that is empty or not finite.
    """
    if not (np.isfinite(least) and np.isfinite(most)) or least > most:
        raise ModelError(f"the range [{least:g}, {most:g}] is not a range of finite numbers")
    return _params(np.array([least]), np.array([most]), dtype, symmetric, np.zeros(1))


def cell_state_params(least: float, most: float) -> QuantParams:
    """Parameters of an int16 cell state that ended between these: the scale is a power of two, the zero point 0.

    Within a run the state may have been larger than at its end, so there is room for twice as much. What is too large
    for all scales that cells have is so for their tangent, too: it saturates.
    """
    magnitude = 2 * max(abs(least), abs(most))
    exponent = math.ceil(math.log2(magnitude)) - 15 if magnitude else CELL_EXPONENTS[0]
    return QuantParams((math.ldexp(1.0, min(max(exponent, CELL_EXPONENTS[0]), CELL_EXPONENTS[-1])),), (0,))


def weight_params(
    array: Reals,
    axis: int | None,
    dtype: str,
    *,
    symmetric: bool,
    least_scales: Reals | None = None,
    name: str = "",
) -> QuantParams:
    """Parameters of a constant by its contents: one scale per index of ``axis``, or a single one (None).

    ``least_scales``: lower bounds for each channel (:func:`least_weight_scales`). Raises ModelError, naming the tensor,
    for contents that are not finite, infinities written as the largest float32 included.
    """
    require_finite(array, name)
    if axis is None:
        rows = array.reshape(1, -1)
    else:
        rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    least = rows.min(axis=1, initial=0.0).astype(np.float64)
    most = rows.max(axis=1, initial=0.0).astype(np.float64)
    bounds = np.zeros(len(rows)) if least_scales is None else least_scales
    if len(bounds) != len(rows):
        bounds = np.full(len(rows), bounds.max(initial=0.0))
    return _params(least, most, dtype, symmetric, bounds, axis or 0)


def require_finite(array: Reals, name: str = "") -> None:
    """Raises ModelError where an element stands for infinity or is not a number."""
    magnitude = np.abs(array, dtype=np.float64).max(initial=0.0)
    if not magnitude < np.finfo(np.float32).max:
        raise ModelError(
            f"the constant has an element of magnitude {magnitude:g}; only finite ones have codes",
            tensor=name or None,
            hint="keep its operator in float",
        )


def _params(least: Reals, most: Reals, dtype: str, symmetric: bool, bounds: Reals, axis: int = 0) -> QuantParams:
    low, high = DTYPES[dtype].range
    least, most = np.minimum(least, 0.0), np.maximum(most, 0.0)
    middle = 0 if low < 0 else (high + 1) // 2
    steps = np.maximum(-least, most) / (high - middle) if symmetric else (most - least) / (high - low)
    scales = np.maximum(_with_zeros_among(steps, least == most), np.maximum(bounds, SMALLEST_SCALE))
    if symmetric:
        zeros = np.full(len(scales), middle)
    else:
        zeros = np.clip(round_half_away(-least / scales), 0, high - low).astype(np.int64) + low
    stored = np.clip(scales, SMALLEST_SCALE, _LARGEST).astype(np.float32)
    return QuantParams(tuple(stored.tolist()), tuple(zeros.tolist()), axis)


def _with_zeros_among(scales: Reals, is_zero: Reals) -> Reals:
    """``scales`` where channels of zeros have the smallest of the others.

    Then their sums fit wherever those of another channel fit, and their biases have as many digits as any.
    """
    others = scales[~is_zero]
    return np.where(is_zero, others.min() if len(others) else SCALE_OF_ZEROS, scales)


def least_weight_scales(bias: Reals, input_scale: float, largest: int) -> Reals:
    """Weight scales below which the code of a bias would be larger than ``largest``, or the scale of sums too small.

    A channel that training has switched off may have weights near zero and a bias that is not: with a scale from the
    weights alone its bias would be out of range. With a larger one the weights round to little or nothing, which they
    were.
    """
    # half a step of room for rounding, and some for scales that are stored as float32
    room = 1 - 2.0**-20
    by_codes = np.abs(bias, dtype=np.float64).reshape(-1) / largest
    return np.maximum(by_codes, SMALLEST_SCALE) / (input_scale * room)


def bias_params(input: QuantParams, weights: QuantParams) -> QuantParams:
    """Scale of sums of products, one for each channel; zero point 0."""
    products = np.asarray(weights.scales, np.float64) * input.scale
    stored = np.clip(products, SMALLEST_SCALE, _LARGEST).astype(np.float32)
    return QuantParams(tuple(stored.tolist()), (0,) * len(stored))


def quantize_bias(bias: Reals, params: QuantParams, dtype: str) -> tuple[Reals, tuple[int, ...]]:
    """Codes of a bias, saturated where they do not fit, and the channels where they did not."""
    low, high = DTYPES[dtype].range
    codes = round_half_away(bias.astype(np.float64).reshape(-1) / np.asarray(params.scales, np.float64))
    outside = (codes < low) | (codes > high)
    inside = np.where(outside, 0, codes).astype(DTYPES[dtype].numpy)
    saturated = np.where(outside, np.where(codes < 0, low, high), inside).astype(DTYPES[dtype].numpy)
    return saturated.reshape(bias.shape), tuple(np.flatnonzero(outside).tolist())


def quantize_constant(array: Reals, params: QuantParams, dtype: str) -> Reals:
    """Codes of a constant, clamped to the type; the largest float32 and infinities clamp as any other number.

    Unsigned codes are rounded after the zero point is added, as ONE does: it matters for negative halves only.
    """
    info = DTYPES[dtype]
    low, high = info.range
    scales, zeros = (_along(values, params, array.ndim) for values in (params.scales, params.zero_points))
    reals = np.clip(array.astype(np.float64), -_LARGEST, _LARGEST)
    steps = np.nan_to_num(reals, nan=0.0) / scales
    codes = round_half_away(np.clip(steps + zeros, low, high)) if low == 0 else round_half_away(steps) + zeros
    limited: Reals = np.clip(codes, low, high).astype(info.numpy)
    return limited


def dequantize_constant(codes: Reals, params: QuantParams) -> NDArray[np.float32]:
    """The real values that codes stand for."""
    scales, zeros = (_along(values, params, codes.ndim) for values in (params.scales, params.zero_points))
    return ((codes.astype(np.float64) - zeros) * scales).astype(np.float32)


def _along(values: tuple[float, ...], params: QuantParams, rank: int) -> Reals:
    """Parameters shaped to broadcast along their axis."""
    array = np.asarray(values, np.float64)
    return array if params.per_tensor else array.reshape([-1 if i == params.axis else 1 for i in range(rank)])


def represented_range(params: QuantParams, dtype: str) -> tuple[float, float]:
    """The least and the largest real value that has a code."""
    low, high = DTYPES[dtype].range
    return (low - params.zero_point) * params.scale, (high - params.zero_point) * params.scale
