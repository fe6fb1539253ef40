"""Printer and parser of self-contained IR text.

Unlike xDSL's printer, ours defines aliases for long types and encodings at the top (``!per_axis0 = …``), omits unknown
locations, and does not escape readable non-ASCII text. A file ends with the bytes of constants in MLIR's resource
section: hexadecimal digits, after four bytes for the alignment.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import IO, Any, Literal

from xdsl.context import Context
from xdsl.dialects import builtin
from xdsl.dialects.builtin import AnyDenseElement, ModuleOp, RankedStructure
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue, TypeAttribute
from xdsl.parser import AttrParser, Parser, ParserState
from xdsl.printer import Printer
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind, StringLiteral

from odc_mlir.errors import ModelError, parsing
from odc_mlir.formats.kinds import IR_NOTE
from odc_mlir.support.blob import Blob, are_unresolved, resource_text
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import Positions, location_names

Constants = Literal["keep", "known", "elide"]
"""Constants with bytes in the text: all (raises an error for unknown bytes), those with known bytes, or none."""

# Limit on characters after the expansion of aliases: this constant, plus a multiple of the text's length.
_ALIASED_CHARACTERS = 1 << 19
_ALIASED_FACTOR = 16
# Limit on elements of all dense attributes, in addition to the number of characters of the text.
_DENSE_ELEMENTS = 1 << 24

# Text length from which attributes and types are printed as an alias.
_ALIAS_CHARACTERS = 64
_ALIASES = {
    "quant.uniform": "!per_axis",
    "circle.qparams": "#qparams",
    builtin.NameLoc.name: "#loc",
    builtin.FusedLoc.name: "#loc",
}
_BROKEN = {"builtin.module": 120, "npu.program": 480}  # longer attributes are printed on several lines


class OdcPrinter(Printer):
    """Printer of a module's body. It collects the file's aliases and resources."""

    def __init__(self, stream: IO[str] | None, *, generic: bool = False, locations: bool = True) -> None:
        super().__init__(stream=stream, print_generic_format=generic, print_debuginfo=locations)
        self.blobs: dict[Blob, None] = {}  # in printed order
        self.aliases: dict[Attribute, tuple[str, str]] = {}  # attribute -> (alias, definition)
        self._short: set[Attribute] = set()
        self._counts: Counter[str] = Counter()  # number of aliases by the start of their names

    def print_blob(self, blob: Blob) -> None:
        """Print the handle of a blob. The bytes follow at the end of the file."""
        self.blobs[blob] = None
        self.print_string(blob.handle)

    def print_attribute(self, attribute: Attribute) -> None:
        if attribute.name in _ALIASES and (alias := self._alias(attribute)) is not None:
            if isinstance(attribute, builtin.LocationAttr):
                with self.in_location():
                    self.print_string(alias)
            else:
                self.print_string(alias)
            return
        super().print_attribute(attribute)

    def _alias(self, attribute: Attribute) -> str | None:
        if (known := self.aliases.get(attribute)) is not None:
            return known[0]
        if attribute in self._short:
            return None
        text = self._apart(lambda printer: Printer.print_attribute(printer, attribute))
        if len(text) <= _ALIAS_CHARACTERS:
            self._short.add(attribute)
            return None
        stem = _ALIASES[attribute.name]
        alias = f"{stem}{self._counts[stem]}"
        self._counts[stem] += 1
        self.aliases[attribute] = (alias, text)
        return alias

    def _apart(self, print_it: Callable[[OdcPrinter], None], text: StringIO | None = None) -> str:
        text = StringIO() if text is None else text
        printer = OdcPrinter(text, generic=self.print_generic_format, locations=False)
        printer.blobs, printer.aliases, printer._short = self.blobs, self.aliases, self._short
        printer._counts = self._counts
        print_it(printer)
        return text.getvalue()

    @property
    def print_debuginfo(self) -> bool:
        """Whether locations are enabled, and the current one is known."""
        return self._locations and not (self._open and isinstance(self._open[-1].location, builtin.UnknownLoc))

    @print_debuginfo.setter
    def print_debuginfo(self, wanted: bool) -> None:
        self._locations = wanted
        self._open: list[Operation | BlockArgument] = []  # innermost last

    def print_op(self, op: Operation) -> None:
        self._open.append(op)
        super().print_op(op)
        self._open.pop()

    def print_attr_dict(self, attr_dict: Mapping[str, Attribute]) -> None:
        """Print attributes as xDSL does, but break long attributes of modules and programs into lines."""
        most = _BROKEN.get(self._open[-1].name) if self._open and isinstance(self._open[-1], Operation) else None
        if most is None:
            super().print_attr_dict(attr_dict)
            return
        self._print_broken(builtin.DictionaryAttr(attr_dict), "\n", most)

    def _print_broken(self, attribute: Attribute, line: str, most: int) -> None:
        """Print ``attribute`` on one line if it is short, otherwise on several lines that begin with ``line``."""
        items: list[tuple[str, Attribute]] = []
        if isinstance(attribute, builtin.DictionaryAttr):
            items = list(attribute.data.items())
        elif isinstance(attribute, builtin.ArrayAttr):
            items = [("", item) for item in attribute.data]
        try:
            limited = _LimitedText(most) if items else None
            self.print_string(self._apart(lambda printer: printer.print_attribute(attribute), limited))
            return
        except _TooLongError:
            opening, closing = "[]" if isinstance(attribute, builtin.ArrayAttr) else "{}"
        self.print_string(opening)
        for index, (name, item) in enumerate(items):
            self.print_string(f",{line}  " if index else f"{line}  ")
            if name:
                self.print_identifier_or_string_literal(name)
                self.print_string("" if isinstance(item, builtin.UnitAttr) else " = ")
            if not isinstance(item, builtin.UnitAttr):
                self._print_broken(item, line + "  ", most)
        self.print_string(line + closing)

    def print_block_argument(self, arg: BlockArgument, print_type: bool = True) -> None:
        self._open.append(arg)
        super().print_block_argument(arg, print_type)
        self._open.pop()

    def print_string_literal(self, string: str) -> None:
        if string.isascii():
            self.print_bytes_literal(string.encode())
            return
        escaped = "".join(c if c not in '"\\' and c.isprintable() else _escape(c) for c in string)
        self.print_string(f'"{escaped}"')


class _TooLongError(Exception):
    """Signal that a :class:`_LimitedText` exceeds the limit."""


class _LimitedText(StringIO):
    """Stream limited to ``most`` characters. The limit avoids full printing of nested attributes at every level."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            raise _TooLongError
        return super().write(text)


def _escape(character: str) -> str:
    """Escape a quote, backslash or unprintable character by MLIR's hexadecimal escapes of UTF-8 bytes."""
    return "".join(f"\\{byte:02X}" for byte in character.encode())


# A tensor type without strings, with nested angle brackets as in tensor<4x!quant.uniform<i8<-127:127>:f32, 0.5>>. Equal
# texts of such types mean equal types.
_TENSOR = re.compile(r'tensor<[^<>"]*(?:<[^<>"]*(?:<[^<>"]*>[^<>"]*)*>[^<>"]*)*>')


class _Lexer(MLIRLexer):
    """xDSL's lexer, except the exponential search for the end of an unterminated string."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class _Element(AttrParser._TensorLiteralElement):
    """Element of a dense attribute. For real numbers, hexadecimal digits are the bits of the number."""

    def to_type(
        self, parser: AttrParser, type: builtin.AnyFloat | builtin.IntegerType | builtin.IndexType | builtin.ComplexType
    ) -> Any:
        if not isinstance(type, builtin.AnyFloat) or "0x" not in self.span.text.lower():
            return super().to_type(parser, type)
        if self.is_negative or not isinstance(self.value, int) or self.value >> 8 * type.compile_time_size:
            bits = 8 * type.compile_time_size
            parser.raise_error(f"hexadecimal digits are the {bits} bits of a real number", self.span)
        return next(iter(type.iter_unpack(self.value.to_bytes(type.compile_time_size, "little"))))


class _Expansion:
    """Limits on the expansion of short texts.

    Nested aliases can define an attribute of exponential size, and every reader of an attribute visits all parts. A
    short dense attribute with a single value can have a type with any number of elements.
    """

    def __init__(self, text_length: int) -> None:
        self.aliases: dict[str, tuple[int, int]] = {}  # expanded characters and elements
        self.names = 0  # characters of used alias names
        self.characters = 0  # characters of their expansions
        self.elements = 0  # elements of dense attributes
        self.last: Attribute | None = None  # last attribute read from an alias
        self.most_characters = _ALIASED_CHARACTERS + _ALIASED_FACTOR * text_length
        self.most_elements = _DENSE_ELEMENTS + text_length


class OdcParser(Parser):
    """Extension of xDSL's parser for bytes of constants and Unicode text in strings.

    As in upstream MLIR, hexadecimal elements of a dense attribute of reals are bit patterns. The parser of xDSL reads
    integers. Each tensor type is parsed once, because most of the parsing time is spent in lexing types.
    """

    def __init__(self, ctx: Context, input: str, name: str = "<unknown>", positions: Positions | None = None) -> None:
        super().__init__(ctx, "", name)
        self.positions = positions
        self._parser_state = ParserState(_Lexer(Input(input, name)))
        self._types: dict[str, tuple[TypeAttribute, int]] = {}
        self._expansion = _Expansion(len(input))

    def parse_operation(self) -> Operation:
        span = self._current_token.span
        op = super().parse_operation()
        if self.positions is not None:
            self.positions.record(op, span)
        return op

    def _parse_tensor_literal_element(self) -> _Element:
        found = super()._parse_tensor_literal_element()
        return _Element(found.is_negative, found.value, found.span)

    def parse_optional_type(self) -> TypeAttribute | None:
        token = self._current_token
        if token.kind != MLIRTokenKind.BARE_IDENT or token.text != "tensor":
            return super().parse_optional_type()
        match = _TENSOR.match(self.lexer.input.content, token.span.start)
        if match is not None and (known := self._types.get(match.group())) is not None:
            self._spend(known[1])
            self._resume_from(match.end())
            return known[0]
        before = self._expansion.characters
        type = super().parse_optional_type()
        if match is not None and type is not None and self._only_blanks_since(match.end()):
            self._types[match.group()] = type, self._expansion.characters - before
        return type

    def _parse_alias_def(self) -> None:
        name, counts = self._current_token.text, self._expansion
        start, names, before = self._current_token.span.end, counts.names, (counts.characters, counts.elements)
        super()._parse_alias_def()  # type: ignore[no-untyped-call]
        is_name = self.attribute_aliases[name] is counts.last
        own = 0 if is_name else self._current_token.span.start - start - (counts.names - names)
        counts.aliases[name] = counts.characters - before[0] + own, counts.elements - before[1]

    def _parse_extended_type_or_attribute(self, attr_or_dialect_name: str, is_type: bool = True) -> Any:
        found = super()._parse_extended_type_or_attribute(attr_or_dialect_name, is_type)  # type: ignore[call-overload]
        alias = ("!" if is_type else "#") + attr_or_dialect_name
        if found is self.attribute_aliases.get(alias):
            self._expansion.names += len(alias)
            self._expansion.last = found
            self._spend(*self._expansion.aliases[alias])
        return found

    def _spend(self, characters: int, elements: int = 0) -> None:
        """Count an expansion of the text. Raises ModelError if the total is too large for the text's length."""
        counts = self._expansion
        counts.characters += characters
        counts.elements += elements
        if counts.characters > counts.most_characters:
            self.raise_error(f"the aliases of this text expand to more than {counts.most_characters} characters")
        if counts.elements > counts.most_elements:
            self.raise_error(f"the dense attributes of this text have more than {counts.most_elements} elements")

    def _parse_dense_literal_type(self) -> RankedStructure[AnyDenseElement]:
        return self._bounded(super()._parse_dense_literal_type())

    def parse_dense_int_or_fp_elements_attr(
        self, type: RankedStructure[AnyDenseElement] | None
    ) -> builtin.DenseIntOrFPElementsAttr:
        return super().parse_dense_int_or_fp_elements_attr(None if type is None else self._bounded(type))

    def _bounded(self, type: RankedStructure[AnyDenseElement]) -> RankedStructure[AnyDenseElement]:
        self._spend(0, math.prod(type.get_shape()))
        return type

    def _only_blanks_since(self, position: int) -> bool:
        start = self._current_token.span.start
        return position <= start and not self.lexer.input.content[position:start].strip()

    def _parse_external_resources(self) -> None:
        self.raise_error("external resources belong to other tools and are not read; delete them")

    def parse_optional_str_literal(self) -> str | None:
        token = self._current_token
        if token.kind == MLIRTokenKind.BYTES_LIT:
            try:
                text = StringLiteral.from_span(token.span).bytes_contents.decode()
            except UnicodeDecodeError:
                return None
            self._consume_token()
            return text
        return super().parse_optional_str_literal()


def parse_module(ctx: Context, text: str, name: str = "<text>", positions: Positions | None = None) -> ModuleOp:
    """Parse ``text`` to a module. Do not verify the module. Errors mention ``name``.

    ``positions`` receives the position of every operation. Constants with no bytes in the text stay unresolved. Raises
    ModelError with file, line and column.
    """
    with parsing("this text cannot be read", ModelError, location=name):
        try:
            with typed_errors():
                parser = OdcParser(ctx, text, name, positions)
                module = parser.parse_module()
                _name_missing(module)
                return module
        except UnicodeDecodeError as error:
            raise ModelError("a string's escapes are not UTF-8", location=name) from error
        except RecursionError as error:
            raise ModelError("this text is nested too deeply", location=name) from error
        except ValueError as error:  # for some malformed names, with problem and remedy
            raise ValueError(error.args[0] if error.args else error) from error


def _name_missing(module: ModuleOp) -> None:
    if not are_unresolved():
        return
    for op in module.walk():
        for attribute in (*op.properties.values(), *op.attributes.values()):
            blob = getattr(attribute, "data", None)
            if isinstance(blob, Blob) and not blob.is_resolved:
                blob.name = blob.name or next(iter(location_names(op.location)), None)


def write_module(
    module: Operation,
    stream: IO[str],
    *,
    constants: Constants = "keep",
    generic: bool = False,
    locations: bool = True,
    properties: bool = True,
    names: Mapping[SSAValue, str] | None = None,
) -> None:
    """Print ``module`` to ``stream``. Raises ModelError for ``keep`` if a constant's bytes are unknown.

    If ``properties`` is false, generic syntax prints properties as attributes, as in old MLIR text. ``names`` are
    distinct names of values, which replace the hints.
    """
    body = StringIO()
    printer = OdcPrinter(body, generic=generic, locations=locations)
    printer.print_properties_as_attributes = not properties
    printer._ssa_values.update(names or {})
    printer.print_op(module)
    written = [blob for blob in printer.blobs if constants == "keep" or blob.is_resolved]
    if constants == "elide":
        written = []
    if left_out := len(printer.blobs) - len(written):
        stream.write(f"{IR_NOTE}the bytes of {left_out} large constants are omitted; --constants keep prints them\n")
    for alias, definition in printer.aliases.values():
        stream.write(f"{alias} = {definition}\n")
    stream.write(body.getvalue())
    stream.write("\n")
    if written:
        _write_resources(written, stream)


def module_text(module: Operation, **options: Any) -> str:
    """Return the output of :func:`write_module` as a string."""
    text = StringIO()
    write_module(module, text, **options)
    return text.getvalue()


def _write_resources(blobs: Sequence[Blob], stream: IO[str]) -> None:
    stream.write("\n{-#\n  dialect_resources: {\n    circle: {")
    separator = "\n      "
    for blob in blobs:
        stream.write(f'{separator}{blob.handle}: "{resource_text(blob)}"')
        separator = ",\n      "
    stream.write("\n    }\n  }\n#-}\n")
