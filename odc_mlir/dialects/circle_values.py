"""Small constants as lists of numbers, exact in both directions."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from xdsl.parser import Parser

from odc_mlir.dialects.circle_types import TensorFacts
from odc_mlir.errors import ModelError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.support.blob import Blob
from odc_mlir.support.floats import float32_text

MOST_VALUES = 16

# struct codes of the element types that lists can hold.
_CODES = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}

Number = int | float | bool


def values_text(blob: Blob, facts: TensorFacts) -> str | None:
    """``[1, 2, 3]`` for a constant of at most 16 numbers that lists express exactly, else None."""
    code = _CODES.get(facts.dtype)
    if code is None or not blob.is_resolved or facts.shape is None or any(extent is None for extent in facts.shape):
        return None
    size = DTYPES[facts.dtype].bits // 8
    count = blob.size // size
    if count > MOST_VALUES or blob.size % size:
        return None
    if count != math.prod(extent for extent in facts.shape if extent is not None):
        return None
    values = struct.unpack(f"<{count}{code}", blob.data)
    if struct.pack(f"<{count}{code}", *values) != blob.data or not all(map(math.isfinite, values)):
        return None
    return f"[{', '.join(_text(value, facts.dtype) for value in values)}]"


def parse_values(parser: Parser) -> list[Number]:
    """The numbers up to and including the closing bracket of a list."""
    values: list[Number] = []
    if parser.parse_optional_punctuation("]") is not None:
        return values
    while True:
        start = parser.pos
        if parser.parse_optional_punctuation("[") is not None:
            parser.raise_error("lists are flat: write the numbers in row-major order, without inner brackets", start)
        boolean = parser.parse_optional_boolean()
        values.append(_parse_number(parser) if boolean is None else boolean)
        if parser.parse_optional_punctuation(",") is None:
            parser.parse_punctuation("]")
            return values


def _parse_number(parser: Parser) -> Number:
    start = parser.pos
    value = parser.parse_number()
    text = parser.lexer.input.content[start : parser.pos]
    return Hexadecimal(value) if isinstance(value, int) and "0x" in text.lower() else value


class Hexadecimal(int):
    """A number written in hexadecimal digits: of a floating type these are its bits, as MLIR has it."""

    def as_float(self, code: str) -> float:
        """The number of these bits; raises ModelError for more bits than the struct ``code`` has, or a sign."""
        size = struct.calcsize(code)
        if not 0 <= self < 1 << 8 * size:
            raise ModelError(f"{hex(self)} is hexadecimal, which stands for the {8 * size} bits of a real number")
        number: float = struct.unpack(f"<{code}", int(self).to_bytes(size, "little"))[0]
        return number


def pack_values(values: Sequence[Number], dtype: str) -> bytes:
    """The little-endian bytes of ``values``; raises ModelError for a number that ``dtype`` cannot hold."""
    code = _CODES.get(dtype)
    if code is None:
        raise ModelError(f"a list cannot hold {dtype}, allowed: {', '.join(_CODES)}; use #circle.blob")
    for value in values:
        if isinstance(value, bool) != (dtype == "bool") or (isinstance(value, float) and code not in "fd"):
            raise ModelError(f"{value} is not a value of {dtype}")
    if code in "fd":
        values = [value.as_float(code) if isinstance(value, Hexadecimal) else value for value in values]
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except (struct.error, OverflowError):
        raise ModelError(f"a value is out of range for {dtype}: {list(values)}") from None


def _text(value: Number, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float32":
        return float32_text(value)
    if dtype == "float64":
        mantissa, mark, exponent = repr(value).partition("e")
        return mantissa + ("" if "." in mantissa else ".0") + mark + exponent
    return str(value)
