"""Conversions between element types: saturating from real numbers, wrapping between integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import in_pieces, limit

Array = NDArray[Any]


def to_integers(x: Array, dtype: np.dtype[Any], low: int | None = None, high: int | None = None) -> Array:
    """Real ``x`` truncated toward zero and saturated to ``[low, high]``; NaN gives ``high``.

    The limits are those of ``dtype`` unless given.
    """
    limits = np.iinfo(dtype)
    least, most = limits.min if low is None else low, limits.max if high is None else high
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    # the largest number of the real type that is not above: large integers have none of their own
    top = wide.dtype.type(most)
    inner = top if int(top) <= most else np.nextafter(top, wide.dtype.type(0))

    def compute(values: Array) -> Array:
        whole = limit(values, wide.dtype.type(least), inner).astype(dtype)
        beyond = np.logical_not(values <= inner)  # true for NaN
        if beyond.any():
            np.copyto(whole, dtype.type(most), where=beyond)
        return whole

    with np.errstate(invalid="ignore"):
        return in_pieces(compute, wide, dtype)


def round_bfloat16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 values rounded to the nearest bfloat16 (ties to even), still held as float32."""

    def compute(values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))

    return in_pieces(compute, x, np.float32)


def real_part(x: Array) -> Array:
    """``x``, without the imaginary part of complex numbers."""
    return np.asarray(x.real) if x.dtype.kind == "c" else x


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` as ``dtype``: reals saturate, integers wrap, everything but zero is true, NaN is the largest integer."""
    if dtype.kind == "c":
        return x.astype(dtype)
    values = real_part(x)
    if dtype.kind == "b":
        return np.asarray(values != 0)
    if values.dtype.kind == "f" and dtype.kind in "iu":
        return to_integers(values, dtype)
    with np.errstate(over="ignore"):
        if dtype == np.float16 and values.dtype.itemsize > 2:
            values = values.astype(np.float32)  # the rounding to float32 comes first
        return values.astype(dtype)
