"""Operation classes of the ``circle`` dialect, made from the operator table one by one when first asked for.

``op_class("CONV_2D")`` is the class of ``circle.conv_2d``. Operand ``i`` of the operation is input ``i`` of the
operator. An operand omitted in the middle is the value of ``circle.none``; operands omitted at the end are absent.
Options are properties, which are always present. Custom syntax omits properties that have the schema's default::

    %y = circle.conv_2d(%x, %filter, %bias) {padding = valid, stride = [2, 2], activation = relu6} : (…) -> …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import LocationAttr, NoneType, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.traits import HasCanonicalizationPatternsTrait, Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_options import (
    ALWAYS_PRINTED,
    PAIRS,
    RECORD_NAMES,
    RECORD_OPTIONS,
    SHORT_NAMES,
    OptionProperty,
    table_options,
)
from odc_mlir.dialects.circle_types import axis_mismatch
from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.schema import circle_schema
from odc_mlir.ops import all_specs
from odc_mlir.ops.check import check_node, check_structure
from odc_mlir.ops.spec import Operand, OpSpec, Trait
from odc_mlir.support.locations import op_name

UNVERIFIED = "circle.unverified"
"""Attribute of an imported operator that can be shown and written but not run: the rule of the table that it breaks.

The verifier checks only the numbers of operands and results of such an operator; no pass changes it.
"""

KNOWN = "odc.known"
"""Attribute of an operator whose result follows from shapes that were fixed for compiling: the result, as a blob.

Programs have a constant in place of the operator; the model keeps the operator, because other shapes need it.
"""

# Python attributes of every operation; the property of an option with such a name gets an underscore.
_TAKEN = frozenset((*dir(Operation), *Operation.__dataclass_fields__))

# The reader's name for an operator that only a newer schema defines.
_NEWER = "BUILTIN_"


class CircleOp(IRDLOperation):
    """Base of all operators of the table; ``SPEC`` is the table's entry."""

    SPEC: ClassVar[OpSpec]
    OPTIONS: ClassVar[Mapping[str, OptionProperty]]  # by property name: the table's options, then RECORD_OPTIONS

    inputs = var_operand_def()
    outputs = var_result_def()

    @classmethod
    def make(
        cls,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        options: Mapping[str, Any] | None = None,
        *,
        location: LocationAttr | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Self:
        """Make an operation with Python values as options, by schema field name; None omits the property."""
        encode = cls.OPTIONS
        properties = {key: encode[key].encode(value) for key, value in (options or {}).items() if value is not None}
        return cls.create(
            operands=operands,
            result_types=result_types,
            properties=properties,
            attributes=attributes or {},
            location=location,
        )

    def option(self, name: str) -> Any:
        """Return the Python value of an option by schema field name; None if it is absent without a default."""
        attribute = self.properties.get(name)
        return None if attribute is None else self.OPTIONS[name].decode(attribute)

    @property
    def unverified(self) -> str | None:
        """Return why this operator cannot be run; None if it obeys the table's rules."""
        reason = self.attributes.get(UNVERIFIED)
        return reason.data if isinstance(reason, StringAttr) else None

    def operand_named(self, name: str) -> SSAValue | None:
        """Return the operand with the table's ``name``; None if it is omitted."""
        index = next(i for i, operand in enumerate(self.SPEC.operands) if operand.name == name)
        if index >= len(self.operands) or isinstance(self.operands[index].type, NoneType):
            return None
        return self.operands[index]

    def verify_(self) -> None:
        from odc_mlir.dialects.circle import has_unresolved_operand, node_of

        for name, attribute in self.properties.items():
            if not self.OPTIONS[name].accepts(attribute):
                raise self._error(f"{name} is {attribute}, must be {self.OPTIONS[name].kind}")
        node = node_of(self)
        try:
            if self.unverified is not None:
                check_structure(node)
                return
            for info in (*node.operands, *node.results):
                if info is not None and (problem := axis_mismatch(info.quant, info.shape)):
                    raise node.error(problem, tensor=info.name)
            check_node(node, own_rules=not has_unresolved_operand(self))
        except ModelError as error:
            raise VerifyException(str(error)) from error

    def _error(self, message: str) -> VerifyException:
        return VerifyException(str(ModelError(message, op=self.SPEC.name, tensor=op_name(self))))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parser.parse_op_args_list()
        properties: dict[str, Attribute] = {}
        parser.parse_optional_comma_separated_list(
            parser.Delimiter.BRACES, lambda: _parse_option(parser, cls.OPTIONS, properties)
        )
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        position = parser.pos
        type = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(operands, type.inputs.data, position),
            result_types=type.outputs.data,
            properties=properties,
            attributes={} if attributes is None else attributes.data,
        )

    def print(self, printer: Printer) -> None:
        printer.print_operands(self.operands)
        shown = _shown_options(self.OPTIONS, self.properties)
        if shown:
            printer.print_string(" ")
            with printer.in_braces():
                printer.print_list(shown, lambda item: _print_option(printer, *item))
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)


Shown = tuple[str, tuple[tuple[OptionProperty, Attribute], ...]]  # name in text; one option, or both options of a pair


def _shown_options(options: Mapping[str, OptionProperty], properties: Mapping[str, Attribute]) -> list[Shown]:
    """Return an operation's options in custom syntax, in schema order."""
    shown: list[Shown] = []
    in_pair: set[str] = set()
    for name in options:
        if name not in properties or name in in_pair:
            continue
        label, members = _label(name, properties)
        in_pair.update(members)
        is_default = all(properties[member] == _default(options[member]) for member in members)
        if not is_default or name in ALWAYS_PRINTED:
            shown.append((label, tuple((options[member], properties[member]) for member in members)))
    return shown


def _label(name: str, properties: Mapping[str, Attribute]) -> tuple[str, tuple[str, ...]]:
    """Return the text label of an option, and its properties."""
    for word, pair in PAIRS.items():
        if name in pair and all(member in properties for member in pair):
            return word, pair
    return SHORT_NAMES.get(name, name), (name,)


@cache
def _default(option: OptionProperty) -> Attribute | None:
    return None if option.default is None else option.encode(option.default)


def _print_option(printer: Printer, label: str, members: tuple[tuple[OptionProperty, Attribute], ...]) -> None:
    printer.print_string(f"{label} = ")
    if len(members) == 1:
        option, attribute = members[0]
        option.print(printer, attribute)
        return
    with printer.in_square_brackets():
        printer.print_list(members, lambda member: member[0].print(printer, member[1]))


def _parse_option(parser: Parser, options: Mapping[str, OptionProperty], properties: dict[str, Attribute]) -> None:
    position = parser.pos
    label = parser.parse_identifier(context_msg=" of an option")
    full = next((name for name, short in SHORT_NAMES.items() if short == label and name in options), label)
    members = PAIRS[label] if label in PAIRS and PAIRS[label][0] in options else (full,)
    for name in members:
        if name not in options:
            parser.raise_error(f"unknown option {label}, allowed: {', '.join(_labels(options))}", position, parser.pos)
        if name in properties:
            parser.raise_error(f"option {label} is given twice", position, parser.pos)
    parser.parse_punctuation("=")
    if len(members) == 1:
        properties[full] = options[full].parse(parser)
        return
    parser.parse_punctuation("[")
    for index, name in enumerate(members):
        if index:
            parser.parse_punctuation(",")
        properties[name] = options[name].parse(parser)
    parser.parse_punctuation("]")


def _labels(options: Mapping[str, OptionProperty]) -> list[str]:
    """Return the option names of the custom syntax."""
    labels = {name: SHORT_NAMES.get(name, name) for name in options}
    for word, pair in PAIRS.items():
        labels |= {name: word for name in pair if name in labels}
    return list(dict.fromkeys(labels.values()))


@cache
def op_class(name: str) -> type[CircleOp]:
    """Return the operation class of operator ``name`` (``CONV_2D``).

    An operator of the schema that our table lacks gets a class without rules: it can be read, printed and written, not
    executed. Raises UnsupportedError for a name that is no operator.
    """
    spec = spec_of(name)
    options = {option.name: option for option in (*table_options(spec.options), *RECORD_OPTIONS)}
    namespace: dict[str, Any] = {
        "name": f"circle.{spec.mnemonic}",
        "SPEC": spec,
        "OPTIONS": options,
        "__doc__": spec.summary or f"The operator {name}.",
        "__annotations__": {"SPEC": ClassVar[OpSpec], "OPTIONS": ClassVar[Mapping[str, OptionProperty]]},
        "__module__": __name__,
        "traits": traits_def(CircleCanonicalization(), *((Pure(),) if Trait.PURE in spec.traits else ())),
    }
    for option in options.values():
        accessor = f"{option.name}_" if option.name in namespace or option.name in _TAKEN else option.name
        default = _default(option)
        namespace[accessor] = (
            opt_prop_def(AnyAttr(), prop_name=option.name)
            if default is None
            else prop_def(AnyAttr(), default_value=default, prop_name=option.name)
        )
    return irdl_op_definition(type(f"{name.title().replace('_', '')}Op", (CircleOp,), namespace))


def spec_of(name: str) -> OpSpec:
    """Return the table's entry for ``name``, or an entry without rules for an operator of the schema only."""
    if (spec := all_specs().get(name)) is not None:
        return spec
    if not has_operator(name):
        from odc_mlir.ops import get

        return get(name)  # raises the error for unknown operators
    anything = (Operand("tensors", optional=True, variadic=True),)
    return OpSpec(name, anything, anything, options=_options_table(name), traits=frozenset())


def has_operator(name: str) -> bool:
    """Return whether ``name`` is an operator of the table, of the schema, or a numbered one of a newer schema."""
    return name in all_specs() or name in circle_schema().operators.codes or name.startswith(_NEWER)


def operator_names() -> tuple[str, ...]:
    """Return every operator with a class: the table's, then the schema's others."""
    return tuple(dict.fromkeys((*all_specs(), *circle_schema().operators.codes)))


def _options_table(name: str) -> str | None:
    """Return the options table with an operator's name; None if the schema has none."""
    wanted = name.replace("_", "").lower() + "options"
    unions = circle_schema().unions
    tables = (table for union in ("BuiltinOptions", "BuiltinOptions2") for table in unions[union].tags)
    return next((table for table in tables if table.lower() == wanted), None)


class CircleCanonicalization(HasCanonicalizationPatternsTrait):
    """Canonicalization patterns of circle operators; imported on first use, as in xDSL's own dialects."""

    def get_patterns(self, op: type[Operation]) -> tuple[RewritePattern, ...]:
        """Return the patterns for operations of the class ``op``."""
        from odc_mlir.transforms.circle.rewrites.canonical import canonicalization_patterns

        return canonicalization_patterns(op.SPEC.name if issubclass(op, CircleOp) else "")

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the patterns for all operators."""
        from odc_mlir.transforms.circle.rewrites.canonical import canonicalization_patterns

        return canonicalization_patterns()


__all__ = ["RECORD_NAMES", "CircleOp", "has_operator", "op_class", "operator_names", "spec_of"]
