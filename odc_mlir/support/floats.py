"""Text of float32 numbers: the shortest decimal that reads back to the same number, as MLIR's lexer accepts it."""

from __future__ import annotations

import math
import struct

_FLOAT32 = struct.Struct("<f")


def to_float32(value: float) -> float:
    """``value`` rounded to the nearest float32; infinite where it is out of range."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def float32_text(value: float) -> str:
    """Shortest decimal of a finite float32 number, with the point that MLIR's number syntax requires (``1.0e-05``)."""
    import numpy as np

    text = str(np.float32(value))
    mantissa, mark, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + mark + exponent


def is_float32(value: float) -> bool:
    """Whether ``value`` is exactly a float32 number (infinities and NaN included)."""
    return math.isnan(value) or to_float32(value) == value
