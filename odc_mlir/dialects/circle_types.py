"""Types and attributes of the ``circle`` dialect: tensors, constants, quantisation records, strings and handles."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BFloat16Type,
    ComplexType,
    DenseArrayBase,
    DictionaryAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    NoneType,
    Signedness,
    StringAttr,
    TensorType,
    UnrankedTensorType,
    i32,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import BaseAttr, irdl_attr_definition, param_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.quant import UniformQuantizedType
from odc_mlir.errors import ModelError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.sparse import DimMetadata, Sparsity
from odc_mlir.ops.spec import QuantParams, Shape
from odc_mlir.support.blob import Blob, named_blob, record_printed
from odc_mlir.support.floats import float32_text, parse_real
from odc_mlir.support.text import OdcPrinter

INLINE_BYTES = 64


@irdl_attr_definition
class BlobAttr(Data[Blob]):
    """Bytes of a constant.

    Up to 64 bytes are part of the attribute: ``#circle.blob<"0x01ff">``. Digest and size identify longer contents:
    ``#circle.blob<sha256_4f5a…, 3456>``. These are printed once per file in the ``dialect_resources`` section.
    """

    name = "circle.blob"

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> BlobAttr:
        return cls(Blob(data))

    @property
    def bytes(self) -> memoryview:
        """Return a read-only view of the bytes. Raises ModelError if the text of the IR omitted them."""
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
    """Print handle and size of a blob as a resource of ``circle``. xDSL reads resources of one dialect only."""
    with printer.in_angle_brackets():
        if isinstance(printer, OdcPrinter):
            printer.print_blob(blob)
        else:
            record_printed(blob)
            printer.print_resource_handle("circle", blob.handle)
        printer.print_string(f", {blob.size}")


def parse_named_blob(parser: AttrParser, handle: str) -> Blob:
    """Parse comma and size, which follow the handle of a named blob."""
    parser.parse_punctuation(",")
    size = parser.parse_integer(allow_boolean=False, allow_negative=False)
    try:
        return named_blob(handle, size)
    except ValueError as error:
        parser.raise_error(str(error))


@dataclass(frozen=True, slots=True)
class QuantRecord:
    """Quantisation fields of a tensor as the file has them. Each field may be empty.

    ``details`` is the name of the schema's details table, with its fields as attributes.
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

    Examples are 64-bit storage, scales of 0, recorded ranges of float tensors, block formats and MX formats. All fields
    are optional: ``#circle.qparams<scale = [0.5], zero_point = [0], axis = 0, min = [-1.0], max = [1.0]>``.
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
    """Return the text of a float32 number: the shortest exact decimal, or ``inf``, ``-inf``, ``nan``."""
    return float32_text(value) if math.isfinite(value) else str(value)


def parse_float(parser: AttrParser) -> float:
    """Parse a number in the syntax of :func:`float_text`, rounded to the nearest float32 number."""
    sign = -1.0 if parser.parse_optional_punctuation("-") is not None else 1.0
    word = parser.parse_optional_keyword_in(("inf", "nan"))
    if word is not None:
        return sign * float(word)
    return sign * parse_real(parser)


def parse_integer(parser: AttrParser) -> int:
    """Parse a decimal or hexadecimal integer."""
    return parser.parse_integer(allow_boolean=False)


@irdl_attr_definition
class TensorAttr(ParametrizedAttribute):
    """A tensor that is not an SSA value, such as a quantised intermediate: ``#circle.tensor<"name", type>``.

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
    """Base class of element types that MLIR lacks. A subclass has the name of its type."""


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


AnyTensor = TensorType[Attribute] | UnrankedTensorType[Attribute]


class TensorFacts(NamedTuple):
    """Properties of a tensor type. ``record`` is its ``#circle.qparams`` encoding."""

    dtype: str
    shape: Shape | None
    quant: QuantParams | None
    record: QuantRecord | None


def tensor_type(
    dtype: str, shape: Shape | None, quant: QuantParams | None = None, record: QuantRecord | None = None
) -> AnyTensor:
    """Return the type of a tensor. Raises ValueError for quantisation that an unranked type cannot hold.

    ``quant`` becomes part of the element type if that can express it, and otherwise a record. ``record`` is an encoding
    to add.
    """
    element: Attribute = ELEMENT_TYPES[dtype]
    if quant is not None:
        if UniformQuantizedType.expresses(dtype, quant):
            element = UniformQuantizedType.of(dtype, quant)
        else:
            rest = record or QuantRecord()
            record = QuantRecord(quant.scales, quant.zero_points, quant.axis, rest.min, rest.max, rest.details)
    if shape is None:
        if record is not None:
            raise ValueError("a tensor of unknown rank cannot have a #circle.qparams encoding")
        return UnrankedTensorType(element)
    dims = [DYNAMIC_INDEX if d is None else d for d in shape]
    return TensorType(element, dims, NoneAttr() if record is None else QParamsAttr(record))


def tensor_facts(type: Attribute) -> TensorFacts:
    """Return the properties of tensor type ``type``. Raises VerifyException for a type that no Circle tensor has."""
    if isinstance(type, TensorType):
        shape: Shape | None = tuple(None if d.data == DYNAMIC_INDEX else d.data for d in type.shape.data)
        encoding = type.encoding
    elif isinstance(type, UnrankedTensorType):
        shape, encoding = None, None
    else:
        raise VerifyException(f"expected a tensor type, found {type}")
    element = type.element_type
    if isinstance(element, UniformQuantizedType):
        dtype, quant = element.data.storage, element.data.params
    elif element in DTYPE_OF_ELEMENT:
        dtype, quant = DTYPE_OF_ELEMENT[element], None
    else:
        raise VerifyException(f"{element} is not an element type of a Circle tensor")
    is_plain = isinstance(encoding, NoneAttr)  # unlike other classes, the object's own class is compared quickly
    record = encoding.data if not is_plain and isinstance(encoding, QParamsAttr) else None
    if record is not None and record.scale and quant is None:
        quant = QuantParams(record.scale, record.zero_point or (0,) * len(record.scale), record.axis)
    return TensorFacts(dtype, shape, quant, record)


def with_shape(type: Attribute, shape: Shape | None) -> AnyTensor:
    """Return the same element type and encoding with another shape. A type without rank has no encoding."""
    if not isinstance(type, TensorType | UnrankedTensorType):
        raise TypeError(f"{type} is not a tensor type")
    if shape is None:
        return UnrankedTensorType(type.element_type)
    dims = [DYNAMIC_INDEX if d is None else d for d in shape]
    encoding = type.encoding if isinstance(type, TensorType) else NoneAttr()
    return TensorType(type.element_type, dims, encoding)


def axis_mismatch(quant: QuantParams | None, shape: Shape | None) -> str | None:
    """Return why per-axis quantisation does not fit this shape, or None if it fits."""
    if quant is None or quant.per_tensor or shape is None:
        return None
    if quant.axis >= len(shape):
        return f"quantised dimension is {quant.axis}, the tensor has rank {len(shape)}"
    extent = shape[quant.axis]
    if extent is not None and extent != len(quant.scales):
        return f"{len(quant.scales)} scales for dimension {quant.axis} of extent {extent}"
    return None


def sparsity_attribute(sparsity: Sparsity) -> DictionaryAttr:
    """Return the layout of a sparse constant as an attribute of ``circle.const``."""
    return DictionaryAttr(
        {
            "traversal_order": DenseArrayBase.from_list(i32, sparsity.traversal_order),
            "block_map": DenseArrayBase.from_list(i32, sparsity.block_map),
            "dims": ArrayAttr([_level_attribute(level) for level in sparsity.dims]),
        }
    )


def _level_attribute(level: DimMetadata) -> DictionaryAttr:
    fields: dict[str, Attribute] = {
        "format": StringAttr(level.format),
        "dense_size": IntegerAttr(level.dense_size, i32),
    }
    for name in ("segments", "indices"):
        vector = getattr(level, name)
        if vector is not None:
            fields[name] = ArrayAttr([StringAttr(vector.dtype.str), BlobAttr.of(vector.tobytes())])
    return DictionaryAttr(fields)


def sparsity_record(attribute: DictionaryAttr) -> Sparsity:
    """Return the file record of a :func:`sparsity_attribute`. Raises ModelError for another dictionary."""
    try:
        order, blocks = (tuple(attribute.data[key].get_values()) for key in ("traversal_order", "block_map"))  # type: ignore[attr-defined]
        levels = tuple(_level_record(level.data) for level in attribute.data["dims"])  # type: ignore[attr-defined]
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"a sparse constant's description is malformed: {error}") from error
    return Sparsity(order, blocks, levels)


def _level_record(fields: Mapping[str, Any]) -> DimMetadata:
    import numpy as np

    vectors: dict[str, Any] = {}
    for name in ("segments", "indices"):
        if name in fields:
            dtype, blob = fields[name]
            vectors[name] = np.frombuffer(blob.bytes, np.dtype(dtype.data))
    return DimMetadata(fields["format"].data, fields["dense_size"].value.data, **vectors)


MOST_VALUES = 16

# Codes of the module `struct` for element types that lists can hold.
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
    """Return ``[1, 2, 3]`` for a constant of at most 16 numbers that a list expresses exactly, else None."""
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
    """Parse the numbers of a list and its closing bracket."""
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
    """A number in hexadecimal digits. For floating types, the digits are the bits of the number, as in MLIR."""

    def as_float(self, code: str) -> float:
        """Return the float with these bits. Raises ModelError for a sign, or more bits than the struct ``code`` has."""
        size = struct.calcsize(code)
        if not 0 <= self < 1 << 8 * size:
            raise ModelError(f"{hex(self)} is hexadecimal; such digits are the {8 * size} bits of a real number")
        number: float = struct.unpack(f"<{code}", int(self).to_bytes(size, "little"))[0]
        return number


def pack_values(values: Sequence[Number], dtype: str) -> bytes:
    """Return the little-endian bytes of ``values``. Raises ModelError for a number that ``dtype`` cannot represent."""
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
