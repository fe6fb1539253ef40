"""Conversions between element types (real numbers saturate, integers wrap), and rounding to microscaling types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import by_pieces, in_pieces, limit

Array = NDArray[Any]


def to_integers(x: Array, dtype: np.dtype[Any], low: int | None = None, high: int | None = None) -> Array:
    """Return real ``x`` truncated toward zero and saturated to ``[low, high]``. NaN gives ``high``.

    Default limits are the limits of ``dtype``.
    """
    with np.errstate(invalid="ignore"):
        return integer_converter(x.dtype, dtype, low, high)(x)


def integer_converter(
    source: np.dtype[Any], dtype: np.dtype[Any], low: int | None = None, high: int | None = None
) -> Callable[[Array], Array]:
    """Return :func:`to_integers` for reals of the dtype ``source``. Numpy's warnings are not suppressed."""
    limits = np.iinfo(dtype)
    smallest, largest = limits.min if low is None else low, limits.max if high is None else high
    real = np.dtype(np.float32) if source == np.float16 else source
    # The largest float up to ``largest``, which the float type may not represent.
    top = real.type(largest)
    inner = np.asarray(top if int(top) <= largest else np.nextafter(top, real.type(0)))
    least, most = np.array(smallest, real), np.array(largest, dtype)

    def compute(values: Array) -> Array:
        whole = limit(values, least, inner).astype(dtype)
        np.putmask(whole, np.logical_not(values <= inner), most)  # also for NaN
        return whole

    return lambda x: in_pieces(compute, x.astype(real, copy=False), dtype)


@by_pieces(np.float32)
def round_bfloat16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32 values rounded to the nearest bfloat16 (ties to even), as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``x`` as ``dtype``. Reals saturate, integers wrap, NaN becomes the largest integer or true."""
    if dtype.kind == "c":
        return x.astype(dtype)
    values = np.asarray(x.real) if x.dtype.kind == "c" else x
    if dtype.kind == "b":
        return np.asarray(values != 0)
    if values.dtype.kind == "f" and dtype.kind in "iu":
        return to_integers(values, dtype)
    with np.errstate(over="ignore"):
        if dtype == np.float16 and values.dtype.itemsize > 2:
            values = values.astype(np.float32)  # bfloat16 is rounded from float32
        return values.astype(dtype)


BLOCK_ELEMENTS = 32
_LARGEST_SHARED = 127

# E2M1: distances between codes are 1/2 below 2, 1 below 4, then 2. The largest is 6.
_FP4_LARGEST = 6.0
# Unit of two's complement bytes: 1/64.
_INT8_UNIT = 64.0


def _round_fp4(x: Array) -> Array:
    size = np.minimum(np.abs(x), _FP4_LARGEST)
    unit = np.where(size < 2, 0.5, np.where(size < 4, 1.0, 2.0))
    return np.asarray(np.copysign(np.minimum(np.rint(size / unit) * unit, _FP4_LARGEST), x))


def _round_int8(x: Array) -> Array:
    return np.asarray(np.clip(np.rint(x * _INT8_UNIT), -128, 127) / _INT8_UNIT)


# Rounding of elements after division by the block's scale, and the largest exponent of the type.
_ELEMENTS: Mapping[str, tuple[Callable[[Array], Array], int]] = {"mxfp4": (_round_fp4, 2), "mxint8": (_round_int8, 0)}


def round_to_blocks(x: Array, dtype: str, axis: int) -> NDArray[np.float32]:
    """Return ``x`` as float32 after a round trip through ``dtype``, with blocks along ``axis``.

    OCP Microscaling Formats specification 1.0: blocks of 32 neighbours share a power of two. The last block may be
    shorter. The exponent of a block is the exponent of the largest magnitude minus the largest exponent of the element
    type. Elements are rounded to nearest, ties to even, and saturate. In a block with a number that is not finite, all
    elements become NaN.
    """
    rounding, largest_exponent = _ELEMENTS[dtype]
    moved = np.moveaxis(np.asarray(x, np.float64), axis, -1)
    length = moved.shape[-1]
    padded = np.zeros((*moved.shape[:-1], -(-length // BLOCK_ELEMENTS) * BLOCK_ELEMENTS))
    padded[..., :length] = moved
    blocks = padded.reshape(*moved.shape[:-1], -1, BLOCK_ELEMENTS)
    largest = np.abs(blocks).max(axis=-1, keepdims=True, initial=0)
    finite = np.isfinite(largest)
    _, exponent = np.frexp(np.where(finite, largest, 0))
    shared = np.clip(exponent - 1 - largest_exponent, -_LARGEST_SHARED, _LARGEST_SHARED)
    rounded = np.ldexp(rounding(np.ldexp(blocks, -shared)), shared)
    values = np.where(finite, rounded, np.nan).reshape(padded.shape)[..., :length]
    return np.ascontiguousarray(np.moveaxis(values, -1, axis), np.float32)
