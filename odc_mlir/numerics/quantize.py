"""Quantisation, dequantisation and fake quantisation of float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.pieces import FEW_ELEMENTS, in_pieces

Zeros = int | NDArray[Any]

_SIGN_BIT, _BELOW_HALF = np.uint32(1 << 31), np.float32(0.49999997).view(np.uint32)
_FLOAT32_EXACT = 1 << 24


def _along(values: Any, axis: int, rank: int) -> NDArray[Any]:
    array = np.asarray(values)
    return array.reshape([-1 if i == axis else 1 for i in range(rank)]) if array.ndim else array


def quantize_real(
    x: NDArray[Any], scale: Any, zero_point: Zeros, dtype: str | np.dtype[Any], axis: int = 0
) -> NDArray[Any]:
    """Quantise float32 ``x``: divide in float32, round half away from zero, add zero point, clamp.

    ``scale`` (float32) and ``zero_point`` are scalars, or vectors along ``axis``. NaN gives the lowest code.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return real_quantizer(scale, zero_point, dtype, axis, x.ndim)(x)


def real_quantizer(
    scale: Any, zero_point: Zeros, dtype: str | np.dtype[Any], axis: int, rank: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return :func:`quantize_real` for tensors of ``rank``. Numpy's warnings are not suppressed."""
    low, high = code_range(dtype)
    narrow = np.dtype(dtype).itemsize <= 2
    real, whole = (np.dtype(np.float32), np.dtype(np.int32)) if narrow else (np.dtype(np.float64), np.dtype(np.int64))
    scales, zeros = _along(scale, axis, rank).astype(np.float32), _along(zero_point, axis, rank)
    least, most = (np.asarray(end - zeros, real) for end in (low, high))
    offsets = np.asarray(zeros, whole)

    def compute(values: NDArray[Any]) -> NDArray[Any]:
        ratio: Any = np.asarray(values / scales).astype(real, copy=False)
        ratio += signed_half(ratio) if narrow else np.copysign(0.5, ratio)
        np.fmax(ratio, least, ratio)  # NaN becomes ``least``
        np.fmin(ratio, most, ratio)
        codes: NDArray[Any] = ratio.astype(whole)
        codes += offsets
        return codes

    if scales.ndim:
        return lambda x: np.asarray(compute(x), dtype)
    return lambda x: in_pieces(compute, x, dtype)


def signed_half(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest float32 below 1/2, with the sign of ``x``.

    Addition and truncation then round float32 numbers to nearest, ties away from zero, even next to a tie.
    """
    if x.size <= FEW_ELEMENTS:
        return np.asarray(np.copysign(_BELOW_HALF.view(np.float32), x))
    bits = np.bitwise_and(x.view(np.uint32), _SIGN_BIT)
    bits |= _BELOW_HALF
    return bits.view(np.float32)


def dequantize_codes(codes: NDArray[Any], scale: Any, zero_point: Zeros, axis: int = 0) -> NDArray[np.float32]:
    """Dequantise codes to float32: ``scale * (code - zero_point)``, rounded once.

    For ``scale`` and ``zero_point``, see :func:`quantize_real`. Only wide codes need more precision than float32.
    """
    return dequantizer(scale, zero_point, codes.dtype, axis, codes.ndim)(codes)


def dequantizer(
    scale: Any, zero_point: Zeros, dtype: np.dtype[Any], axis: int, rank: int
) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
    """Return :func:`dequantize_codes` for tensors of this dtype and rank."""
    scales, zeros = _along(scale, axis, rank).astype(np.float32), _along(zero_point, axis, rank)
    exact = dtype.itemsize <= 2 and int(np.abs(zeros).max(initial=0)) < _FLOAT32_EXACT // 2
    offsets = np.asarray(zeros, np.float32) if np.any(zeros) else None

    def compute(values: NDArray[Any]) -> NDArray[Any]:
        if exact:
            shifted: NDArray[Any] = np.asarray(values.astype(np.float32))
            if offsets is not None:
                shifted -= offsets
            shifted *= scales
            return shifted
        wide = values.astype(np.int64) - zeros
        return np.asarray(scales * wide.astype(np.float32) if scales.ndim else scales.astype(np.float64) * wide)

    if scales.ndim:
        return lambda codes: np.asarray(compute(codes), np.float32)
    return lambda codes: in_pieces(compute, codes, np.float32)


@dataclass(frozen=True, slots=True)
class FakeQuantParams:
    """Grid of a fake quantisation in float32: ``low``, ``low + step``, …, ``high``."""

    low: np.float32
    high: np.float32
    step: np.float32


def fake_quant_params(least: float, most: float, bits: int, *, narrow: bool) -> FakeQuantParams:
    """Return a grid near ``[least, most]`` that contains zero, of ``2^bits`` values (one fewer if ``narrow``)."""
    first, last = np.float32(1 if narrow else 0), np.float32((1 << bits) - 1)
    with np.errstate(all="ignore"):
        step = np.float32((np.float32(most) - np.float32(least)) / (last - first))
        zero = np.float32(first - np.float32(least) / step)
    if np.isnan(zero) or zero < first:
        zero = first
    zero = min(np.float32(round_half_away(np.asarray(zero))), last)
    return FakeQuantParams(np.float32((first - zero) * step), np.float32((last - zero) * step), step)


def fake_quant(x: NDArray[np.float32], p: FakeQuantParams) -> NDArray[np.float32]:
    """Return float32 ``x`` limited and rounded to the grid, ties up."""
    with np.errstate(divide="ignore"):
        inverse = np.float32(1) / p.step

    def compute(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(invalid="ignore"):
            steps = (np.clip(values, p.low, p.high) - p.low) * inverse
            whole = np.floor(steps)
            return np.asarray((whole + (steps - whole >= np.float32(0.5))) * p.step + p.low)

    return in_pieces(compute, x, np.float32)
