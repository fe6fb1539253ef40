"""Options of operators as typed properties, converted between schema fields, Python values, attributes and text.

A schema field has an :class:`OptionProperty`. The kind of field determines the class. Integers keep the schema's width.
Enums and element types are words (``"same"``, ``"float32"``), and subgraph indices become symbols. In text, height and
width form one list: ``stride = [2, 2]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    f32,
    i1,
    i32,
)
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer

from odc_mlir.dialects.circle_types import BlobAttr, float_text, parse_float, parse_integer
from odc_mlir.formats.circle.schema import SchemaField, circle_schema, options_fields, subgraph_fields
from odc_mlir.support.floats import to_float32


@dataclass(frozen=True)
class OptionProperty:
    """One property of an operation. Without a ``default`` of the schema, the property may be absent."""

    NOUN: ClassVar = "an attribute"  # allowed values, for messages
    ATTRIBUTE: ClassVar[type[Attribute]] = Attribute

    name: str
    default: Any = None

    def encode(self, value: Any) -> Attribute:
        raise NotImplementedError

    def decode(self, attribute: Any) -> Any:
        raise NotImplementedError

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, self.ATTRIBUTE)

    def print(self, printer: Printer, attribute: Any) -> None:
        printer.print_attribute(attribute)

    def parse(self, parser: Parser) -> Attribute:
        return parser.parse_attribute()

    @property
    def kind(self) -> str:
        """Description of the allowed values for messages."""
        return self.NOUN


@dataclass(frozen=True)
class NumberOption(OptionProperty):
    """An option that holds an integer of one width, or a float."""

    type: Any = i32

    def encode(self, value: float) -> Attribute:
        return FloatAttr(to_float32(value), f32) if self.type == f32 else IntegerAttr(int(value), self.type)

    def decode(self, attribute: Any) -> Any:
        return attribute.value.data

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, IntegerAttr | FloatAttr) and attribute.type == self.type

    def print(self, printer: Printer, attribute: Any) -> None:
        text = float_text if self.type == f32 else str
        printer.print_string(text(attribute.value.data))

    def parse(self, parser: Parser) -> Attribute:
        return self.encode(parse_float(parser) if self.type == f32 else parse_integer(parser))

    @property
    def kind(self) -> str:
        return str(self.type)


@dataclass(frozen=True)
class BoolOption(OptionProperty):
    NOUN: ClassVar = "true or false"

    def encode(self, value: bool) -> Attribute:
        return IntegerAttr.from_bool(bool(value))

    def decode(self, attribute: IntegerAttr[IntegerType]) -> bool:
        return bool(attribute.value.data)

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, IntegerAttr) and attribute.type == i1

    def print(self, printer: Printer, attribute: IntegerAttr[IntegerType]) -> None:
        printer.print_string("true" if attribute.value.data else "false")

    def parse(self, parser: Parser) -> Attribute:
        return self.encode(parser.parse_boolean())


@dataclass(frozen=True)
class TextOption(OptionProperty):
    NOUN: ClassVar = "a string"
    ATTRIBUTE: ClassVar = StringAttr

    def encode(self, value: str) -> Attribute:
        return StringAttr(value)

    def decode(self, attribute: StringAttr) -> str:
        return attribute.data

    def parse(self, parser: Parser) -> Attribute:
        return StringAttr(parser.parse_str_literal())


@dataclass(frozen=True)
class WordOption(TextOption):
    """An option with a value from ``words``."""

    words: tuple[str, ...] = ()

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, StringAttr) and attribute.data in self.words

    def print(self, printer: Printer, attribute: StringAttr) -> None:
        printer.print_string(attribute.data)

    def parse(self, parser: Parser) -> Attribute:
        return StringAttr(parser.parse_keyword_in(self.words))

    @property
    def kind(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True)
class BytesOption(OptionProperty):
    NOUN: ClassVar = "a #circle.blob"
    ATTRIBUTE: ClassVar = BlobAttr

    def encode(self, value: Any) -> Attribute:
        return BlobAttr.of(value)

    def decode(self, attribute: BlobAttr) -> bytes:
        return bytes(attribute.bytes)


@dataclass(frozen=True)
class NumbersOption(OptionProperty):
    """An option that holds a list of integers of one width, or of floats."""

    type: Any = None

    def encode(self, value: Any) -> Attribute:
        items = tuple(value)
        return DenseArrayBase.from_list(self.type, [to_float32(v) for v in items] if self.type == f32 else items)

    def decode(self, attribute: Any) -> tuple[Any, ...]:
        return tuple(attribute.get_values())

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, DenseArrayBase) and attribute.elt_type == self.type

    def print(self, printer: Printer, attribute: Any) -> None:
        text = float_text if self.type == f32 else str
        printer.print_string(f"[{', '.join(text(v) for v in attribute.get_values())}]")

    def parse(self, parser: Parser) -> Attribute:
        element = parse_float if self.type == f32 else parse_integer
        return self.encode(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: element(parser)))

    @property
    def kind(self) -> str:
        return f"an array of {self.type}"


@dataclass(frozen=True)
class ListOption(OptionProperty):
    """An option that holds a list of values of the option ``element``."""

    element: OptionProperty = OptionProperty("")

    def encode(self, value: Any) -> Attribute:
        return ArrayAttr([self.element.encode(item) for item in value])

    def decode(self, attribute: ArrayAttr[Attribute]) -> tuple[Any, ...]:
        return tuple(self.element.decode(item) for item in attribute)

    def accepts(self, attribute: Attribute) -> bool:
        return isinstance(attribute, ArrayAttr) and all(self.element.accepts(item) for item in attribute)

    @property
    def kind(self) -> str:
        return f"a list of {self.element.kind}"


@dataclass(frozen=True)
class SymbolOption(OptionProperty):
    """An option that refers to a function: by index in files, by name in Python."""

    NOUN: ClassVar = "a function's symbol"
    ATTRIBUTE: ClassVar = SymbolRefAttr

    def encode(self, value: str) -> Attribute:
        return SymbolRefAttr(value)

    def decode(self, attribute: SymbolRefAttr) -> str:
        return attribute.root_reference.data


@dataclass(frozen=True)
class RawOption(OptionProperty):
    """An option that holds any attribute, unchanged."""

    def encode(self, value: Attribute) -> Attribute:
        return value

    def decode(self, attribute: Attribute) -> Attribute:
        return attribute


# Fields of an operator record that are not in its options table. `options_table` names the table in the file if it is
# not the operator's own.
RECORD_OPTIONS: tuple[OptionProperty, ...] = (
    NumberOption("version"),
    TextOption("custom_code"),
    TextOption("options_table"),
    BytesOption("custom_options"),
    ListOption("mutating_variable_inputs", element=BoolOption("")),
    RawOption("intermediates"),
)
RECORD_NAMES = frozenset(option.name for option in RECORD_OPTIONS)

# Names in text: pairs of schema fields that are printed as one list, and shorter names of single fields.
PAIRS: Mapping[str, tuple[str, str]] = {
    "stride": ("stride_h", "stride_w"),
    "dilation": ("dilation_h_factor", "dilation_w_factor"),
    "filter": ("filter_height", "filter_width"),
}
SHORT_NAMES: Mapping[str, str] = {"fused_activation_function": "activation"}
# Options that are printed even with the default value, because the result's shape depends on the option.
ALWAYS_PRINTED = frozenset({"padding"})


@cache
def table_options(table: str | None) -> tuple[OptionProperty, ...]:
    """Return the options of a schema table in field order, or () for None."""
    if table is None:
        return ()
    subgraphs = subgraph_fields(table)
    return tuple(_option(field, is_subgraph=field.name in subgraphs) for field in options_fields(table))


def _option(field: SchemaField, *, is_subgraph: bool) -> OptionProperty:
    if is_subgraph:
        symbol = SymbolOption(field.name)
        return ListOption(field.name, element=symbol) if field.kind == "vector" else symbol
    if field.kind == "vector":
        return _vector_option(field)
    if field.kind == "enum":
        return WordOption(field.name, field.default, words=tuple(circle_schema().enums[field.type].codes))
    if field.kind == "scalar":
        if field.type == "bool":
            return BoolOption(field.name, bool(field.default))
        default = to_float32(field.default) if field.type == "float" else field.default
        return NumberOption(field.name, default, type=_number_type(field.type))
    if field.kind == "string":
        return TextOption(field.name, "")
    raise ValueError(f"options field {field.name} has the unsupported kind {field.kind}")


def _vector_option(field: SchemaField) -> OptionProperty:
    if field.type == "ubyte":
        return BytesOption(field.name, b"")
    if field.element == "enum":
        return ListOption(field.name, (), element=WordOption("", words=tuple(circle_schema().enums[field.type].codes)))
    if field.type == "bool":
        return ListOption(field.name, (), element=BoolOption(""))
    return NumbersOption(field.name, (), type=_number_type(field.type))


_WIDTHS = {"byte": 8, "ubyte": 8, "short": 16, "ushort": 16, "int": 32, "uint": 32, "long": 64, "ulong": 64}


def _number_type(name: str) -> Attribute:
    if name == "float":
        return f32
    return IntegerType(_WIDTHS[name], Signedness.UNSIGNED if name.startswith("u") else Signedness.SIGNLESS)
