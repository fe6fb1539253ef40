"""Conversions between element types: saturating from real numbers, wrapping between integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import in_pieces, limit

Array = NDArray[Any]


def to_integers(x: Array, dtype: np.dtype[Any], low: int | None = None, high: int | None = None) -> Array:
    """Return real ``x`` truncated toward zero and saturated to ``[low, high]``; NaN gives ``high``.

    The limits are those of ``dtype`` unless given.
    """
    with np.errstate(invalid="ignore"):
        return integer_converter(x.dtype, dtype, low, high)(x)


def integer_converter(
    source: np.dtype[Any], dtype: np.dtype[Any], low: int | None = None, high: int | None = None
) -> Callable[[Array], Array]:
    """Return :func:`to_integers` for reals of the dtype ``source``, without suppressing numpy's warnings."""
    limits = np.iinfo(dtype)
    smallest, largest = limits.min if low is None else low, limits.max if high is None else high
    real = np.dtype(np.float32) if source == np.float16 else source
    # the largest number of the float type up to ``largest``, as large integers may have no equal
    top = real.type(largest)
    inner = np.asarray(top if int(top) <= largest else np.nextafter(top, real.type(0)))
    least, most = np.array(smallest, real), np.array(largest, dtype)

    def compute(values: Array) -> Array:
        whole = limit(values, least, inner).astype(dtype)
        np.putmask(whole, np.logical_not(values <= inner), most)  # also for NaN
        return whole

    return lambda x: in_pieces(compute, x.astype(real, copy=False), dtype)


def round_bfloat16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32 values rounded to the nearest bfloat16 (ties to even), still held as float32."""

    def compute(values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))

    return in_pieces(compute, x, np.float32)


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``x`` as ``dtype``: reals saturate, integers wrap, NaN becomes the largest integer or true."""
    if dtype.kind == "c":
        return x.astype(dtype)
    values = np.asarray(x.real) if x.dtype.kind == "c" else x
    if dtype.kind == "b":
        return np.asarray(values != 0)
    if values.dtype.kind == "f" and dtype.kind in "iu":
        return to_integers(values, dtype)
    with np.errstate(over="ignore"):
        if dtype == np.float16 and values.dtype.itemsize > 2:
            values = values.astype(np.float32)  # the rounding to float32 comes first
        return values.astype(dtype)
