"""Buffer types: memory, shape and element type.

``!npu.buffer<tile, 4x56x64xi8>`` holds 4 rows of 56 pixels of 64 codes. Accumulators are ``i40``, and parameter records
are ``!npu.record``. Buffers of copied data hold plain bytes, ``4096xi8``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType, Signedness
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from odc_mlir.isa.fields import ACCUMULATOR_BITS, TYPE_BYTES, TYPES, Space


@irdl_attr_definition
class SpaceAttr(Data[Space]):
    """``#npu.space<tile>``: one of the memories."""

    name = "npu.space"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Space:
        with parser.in_angle_brackets():
            return _parse_space(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")


def _parse_space(parser: AttrParser) -> Space:
    word = parser.parse_identifier(context_msg=" naming a memory")
    if word not in Space.__members__.values():
        parser.raise_error(f"there is no memory {word!r}, allowed: {', '.join(Space)}")
    return Space(word)


@irdl_attr_definition
class RecordType(ParametrizedAttribute, TypeAttribute):
    """``!npu.record``: bias, multiplier and exponent of one channel."""

    name = "npu.record"


# Element types of buffers, by the names in the instruction table.
ELEMENTS: dict[str, Attribute] = {
    "u8": IntegerType(8, Signedness.UNSIGNED),
    "i8": IntegerType(8),
    "i16": IntegerType(16),
    "i32": IntegerType(32),
    "i40": IntegerType(ACCUMULATOR_BITS),
    "record": RecordType(),
}
_NAMES = {type_: name for name, type_ in ELEMENTS.items()}
_ELEMENTS_OF = {Space.ACCUMULATOR: ("i40",), Space.PARAM: ("record",)}  # other memories hold bytes
_BYTE_ELEMENTS = dict(zip(TYPES, TYPE_BYTES, strict=True))


def element_bytes(element: str) -> int:
    """Return the size of an element in units of its memory: bytes, accumulators or records."""
    return _BYTE_ELEMENTS.get(element, 1)


class BufferFacts(NamedTuple):
    """Properties of a :class:`BufferType`. ``size`` is in units of the memory."""

    space: Space
    size: int
    shape: tuple[int, ...]
    element: str


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """Part of a memory: ``!npu.buffer<space, shape x element>``.

    A space is a region bound at run time (constants, arena, inputs, outputs) or a local memory (tile, weight,
    accumulator, param, table).
    """

    name = "npu.buffer"

    memory: SpaceAttr
    dims: ArrayAttr[IntAttr]
    element_type: Attribute

    @property
    def facts(self) -> BufferFacts:
        """Properties of the type, cached because passes read them very often."""
        known: BufferFacts | None = self.__dict__.get("_facts")
        if known is None:
            shape, element = tuple(size.data for size in self.dims), _NAMES[self.element_type]
            known = BufferFacts(self.memory.data, math.prod(shape) * element_bytes(element), shape, element)
            self.__dict__["_facts"] = known  # not a field, so that equality ignores it
        return known

    @property
    def space(self) -> Space:
        return self.memory.data

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension. The last dimension is contiguous."""
        return self.facts.shape

    @property
    def element(self) -> str:
        return self.facts.element

    @property
    def size(self) -> int:
        """Size in units of the memory: accumulators, records, or otherwise bytes."""
        return self.facts.size

    def verify(self) -> None:
        allowed = _ELEMENTS_OF.get(self.space, tuple(_BYTE_ELEMENTS))
        if _NAMES.get(self.element_type) not in allowed:
            names = ", ".join(str(ELEMENTS[name]) for name in allowed)
            raise VerifyException(f"elements in memory {self.space.value} are {names}, not {self.element_type}")
        if not self.dims or any(size.data < 0 for size in self.dims):
            raise VerifyException("the shape of a buffer has dimensions, all of known size")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            space = _parse_space(parser)
            parser.parse_punctuation(",")
            shape, element = parser.parse_ranked_shape()
        return SpaceAttr(space), ArrayAttr(map(IntAttr, shape)), element

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.space.value}, ")
        for size in self.shape:
            printer.print_string(f"{size}x")
        printer.print_attribute(self.element_type)
        printer.print_string(">")


def flat_type(space: Space, size: int) -> BufferType:
    """Return the type of ``size`` consecutive units of a memory."""
    return buffer_type(space, (size,), _ELEMENTS_OF.get(space, ("i8",))[0])


@lru_cache(maxsize=4096)
def buffer_type(space: Space, shape: tuple[int, ...], element: str) -> BufferType:
    """Return the type of a buffer. ``element`` is a key of :data:`ELEMENTS`."""
    return BufferType(SpaceAttr(space), ArrayAttr(map(IntAttr, shape)), ELEMENTS[element])
