"""Microscaling element types (OCP Microscaling Formats specification 1.0): rounding of real numbers.

Blocks of 32 neighbours along an axis share a power of two; the last block of an axis may be shorter. The shared
exponent is that of the largest magnitude less the largest exponent of the element type; elements are rounded to the
nearest, ties to even, and saturate. A block with a number that is not finite is NaN throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK_ELEMENTS = 32
_LARGEST_SHARED = 127

# E2M1: codes are 1/2 apart below 2, 1 apart below 4, then 2; the largest is 6.
_FP4_LARGEST = 6.0
# Two's complement bytes in 64ths.
_INT8_UNIT = 64.0


def _round_fp4(x: Array) -> Array:
    size = np.minimum(np.abs(x), _FP4_LARGEST)
    unit = np.where(size < 2, 0.5, np.where(size < 4, 1.0, 2.0))
    return np.asarray(np.copysign(np.minimum(np.rint(size / unit) * unit, _FP4_LARGEST), x))


def _round_int8(x: Array) -> Array:
    return np.asarray(np.clip(np.rint(x * _INT8_UNIT), -128, 127) / _INT8_UNIT)


# Rounding of a block's elements after division by the shared scale, and the type's largest exponent.
_ELEMENTS: Mapping[str, tuple[Callable[[Array], Array], int]] = {"mxfp4": (_round_fp4, 2), "mxint8": (_round_int8, 0)}


def round_to_blocks(x: Array, dtype: str, axis: int) -> NDArray[np.float32]:
    """Return ``x`` as float32 after a round trip through ``dtype``, whose blocks lie along ``axis``."""
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
