"""Text of float32 numbers: the shortest exact decimal in the syntax of MLIR's lexer."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.parser import AttrParser

_FLOAT32 = struct.Struct("<f")


def parse_real(parser: AttrParser, what: str = "") -> float:
    """Parse a decimal number as float32. Errors mention ``what``."""
    start = parser.pos
    value = parser.parse_number(context_msg=what)
    if "0x" in parser.lexer.input.content[start : parser.pos].lower():
        parser.raise_error(f"expected a decimal number{what}, not hexadecimal digits", start, parser.pos)
    return to_float32(value)


def to_float32(value: float) -> float:
    """Round ``value`` to the nearest float32, or to infinity if it is out of range."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except (OverflowError, struct.error):  # struct.error: an int too large for a float
        return math.inf if value > 0 else -math.inf
    return rounded


def float32_text(value: float) -> str:
    """Format a finite float32 as the shortest decimal, with the point that MLIR's syntax requires (``1.0e-05``)."""
    import numpy as np

    text = str(np.float32(value))
    mantissa, mark, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + mark + exponent


def are_scales(values: Sequence[float]) -> bool:
    """Return whether all values are exact, positive and finite float32 numbers."""
    if not (min(values, default=1.0) > 0 and max(values, default=1.0) < math.inf):
        return False
    try:
        return struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)) == tuple(values)
    except (OverflowError, struct.error):
        return False
