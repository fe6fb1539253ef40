"""Attributes and element types of the ``circle`` dialect: constants, rare quantisation records, strings and handles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    NoneAttr,
    NoneType,
    Signedness,
    StringAttr,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import BaseAttr, irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.support.blob import Blob, named_blob, record_printed
from odc_mlir.support.floats import float32_text, parse_real
from odc_mlir.support.text import OdcPrinter

INLINE_BYTES = 64


@irdl_attr_definition
class BlobAttr(Data[Blob]):
    """Bytes of a constant.

    Up to 64 bytes are in the attribute, ``#circle.blob<"0x01ff">``. Longer contents are named by digest and size,
    ``#circle.blob<sha256_4f5a…, 3456>``, and are printed once per file in its ``dialect_resources`` section.
    """

    name = "circle.blob"

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> BlobAttr:
        return cls(Blob(data))

    @property
    def bytes(self) -> memoryview:
        """Return the bytes, read-only; raise ModelError if the text of the IR omitted them."""
        return self.data.data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Blob:
        with parser.in_angle_brackets():
            text = parser.parse_optional_str_literal()
            if text is None:
                return parse_named_blob(parser, parser.parse_identifier(context_msg=" of a blob"))
            try:
                return Blob(bytes.fromhex(text.removeprefix("0x")))
            except ValueError:
                parser.raise_error("a blob's inline bytes are not hexadecimal")

    def print_parameter(self, printer: Printer) -> None:
        blob = self.data
        if blob.size <= INLINE_BYTES and blob.is_resolved:
            printer.print_string(f'<"0x{blob.data.hex()}">')
        else:
            print_named_blob(printer, blob)


def print_named_blob(printer: Printer, blob: Blob) -> None:
    """Print handle and size of a blob, always as a resource of ``circle``: xDSL reads resources of one dialect only."""
    with printer.in_angle_brackets():
        if isinstance(printer, OdcPrinter):
            printer.print_blob(blob)
        else:
            record_printed(blob)
            printer.print_resource_handle("circle", blob.handle)
        printer.print_string(f", {blob.size}")


def parse_named_blob(parser: AttrParser, handle: str) -> Blob:
    """Parse comma and size of a named blob, after its handle."""
    parser.parse_punctuation(",")
    size = parser.parse_integer(allow_boolean=False, allow_negative=False)
    try:
        return named_blob(handle, size)
    except ValueError as error:
        parser.raise_error(str(error))


@dataclass(frozen=True, slots=True)
class QuantRecord:
    """A tensor's quantisation fields as the file has them, each possibly empty.

    ``details`` is the schema's details table and its fields as attributes.
    """

    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0
    min: tuple[float, ...] = ()
    max: tuple[float, ...] = ()
    details: tuple[str, Mapping[str, Attribute]] | None = None

    def __hash__(self) -> int:
        return hash((self.scale, self.zero_point, self.axis, self.min, self.max))


@irdl_attr_definition
class QParamsAttr(Data[QuantRecord]):
    """Tensor encoding for quantisation that ``!quant.uniform`` cannot express.

    It holds 64-bit storage, scales of 0, recorded ranges of float tensors, block and MX formats. Fields are optional:
    ``#circle.qparams<scale = [0.5], zero_point = [0], axis = 0, min = [-1.0], max = [1.0]>``.
    """

    name = "circle.qparams"

    def verify(self) -> None:
        record = self.data
        if record.zero_point and len(record.zero_point) != len(record.scale):
            raise VerifyException(f"{len(record.scale)} scales but {len(record.zero_point)} zero points")
        if len(record.min) != len(record.max):
            raise VerifyException(f"{len(record.min)} minima but {len(record.max)} maxima")
        if record.axis < 0:
            raise VerifyException(f"quantised dimension is {record.axis}, must not be negative")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> QuantRecord:
        fields: dict[str, object] = {}

        def parse_field() -> None:
            key = parser.parse_identifier(context_msg=" of a quantisation record")
            if key in fields or key not in QuantRecord.__slots__:
                parser.raise_error(f"unexpected {key}, allowed once each: {', '.join(QuantRecord.__slots__)}")
            parser.parse_punctuation("=")
            if key == "axis":
                fields[key] = parser.parse_integer(allow_boolean=False)
            elif key == "details":
                fields[key] = (parser.parse_str_literal(), parser.parse_optional_dictionary_attr_dict())
            else:
                element = parse_integer if key == "zero_point" else parse_float
                values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: element(parser))
                fields[key] = tuple(values)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_field)
        return QuantRecord(**fields)  # type: ignore[arg-type]

    def print_parameter(self, printer: Printer) -> None:
        record = self.data
        parts = []
        if record.scale:
            parts.append(f"scale = [{', '.join(map(float_text, record.scale))}]")
        if record.zero_point:
            parts.append(f"zero_point = [{', '.join(map(str, record.zero_point))}]")
        if record.axis:
            parts.append(f"axis = {record.axis}")
        if record.min:
            parts.append(f"min = [{', '.join(map(float_text, record.min))}]")
            parts.append(f"max = [{', '.join(map(float_text, record.max))}]")
        with printer.in_angle_brackets():
            printer.print_string(", ".join(parts))
            if record.details is not None:
                printer.print_string(", details = " if parts else "details = ")
                printer.print_string_literal(record.details[0])
                printer.print_string(" ")
                printer.print_attr_dict(record.details[1])


def float_text(value: float) -> str:
    """Return a float32 number in our syntax: the shortest decimal, or ``inf``, ``-inf``, ``nan``."""
    return float32_text(value) if math.isfinite(value) else str(value)


def parse_float(parser: AttrParser) -> float:
    """Parse a float32 number of :func:`float_text`, rounded to the nearest one."""
    sign = -1.0 if parser.parse_optional_punctuation("-") is not None else 1.0
    word = parser.parse_optional_keyword_in(("inf", "nan"))
    if word is not None:
        return sign * float(word)
    return sign * parse_real(parser)


def parse_integer(parser: AttrParser) -> int:
    """Parse an integer, decimal or hexadecimal."""
    return parser.parse_integer(allow_boolean=False)


@irdl_attr_definition
class TensorAttr(ParametrizedAttribute):
    """``#circle.tensor<"name", type>``: a tensor that is not an SSA value, such as an intermediate with quantisation.

    ``#circle.tensor<"name", type, #circle.blob<…>>`` also has constant contents.
    """

    name = "circle.tensor"
    tensor_name: StringAttr = param_def(BaseAttr(StringAttr))
    type: Attribute = param_def()
    contents: Attribute = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> tuple[Attribute, ...]:
        with parser.in_angle_brackets():
            name = parser.parse_str_literal()
            parser.parse_punctuation(",")
            type = parser.parse_type()
            contents: Attribute = NoneAttr()
            if parser.parse_optional_punctuation(",") is not None:
                contents = parser.parse_attribute()
        return StringAttr(name), type, contents

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.tensor_name.data)
            printer.print_string(", ")
            printer.print_attribute(self.type)
            if not isinstance(self.contents, NoneAttr):
                printer.print_string(", ")
                printer.print_attribute(self.contents)


class OpaqueElementType(ParametrizedAttribute, TypeAttribute):
    """Base of element types that MLIR lacks; a subclass has the name of its type."""


def _opaque_type(dtype: str) -> type[OpaqueElementType]:
    text = f"Element type {dtype} of the Circle schema."
    cls: type[OpaqueElementType] = irdl_attr_definition(
        type(f"{dtype.title()}Type", (OpaqueElementType,), {"name": f"circle.{dtype}", "__doc__": text})
    )
    return cls


OPAQUE_TYPES: Mapping[str, type[OpaqueElementType]] = {
    dtype.name: _opaque_type(dtype.name) for dtype in DTYPES.values() if dtype.kind in ("string", "handle", "block")
}


def _element_type(dtype: str) -> TypeAttribute:
    info = DTYPES[dtype]
    if info.kind == "int":
        return IntegerType(info.bits)
    if info.kind == "uint":
        return IntegerType(info.bits, Signedness.UNSIGNED)
    if dtype in OPAQUE_TYPES:
        return OPAQUE_TYPES[dtype]()
    others: dict[str, TypeAttribute] = {
        "float16": Float16Type(),
        "float32": Float32Type(),
        "float64": Float64Type(),
        "bfloat16": BFloat16Type(),
        "bool": IntegerType(1),
        "complex64": ComplexType(Float32Type()),
        "complex128": ComplexType(Float64Type()),
    }
    return others[dtype]


ELEMENT_TYPES: Mapping[str, TypeAttribute] = {dtype: _element_type(dtype) for dtype in DTYPES}
DTYPE_OF_ELEMENT: Mapping[Attribute, str] = {type: dtype for dtype, type in ELEMENT_TYPES.items()}
NONE_TYPE = NoneType()
NO_CONTENTS = NoneAttr()
