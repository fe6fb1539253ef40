"""The ``circle`` dialect: one operation per Circle operator, and constants.

A subgraph is a ``func.func``. Every value is a tensor, and the location of the value is the tensor's name. ``node_of``
and ``info_of`` convert operations and values to records of the operator table.

``op_class("CONV_2D")`` returns the class of ``circle.conv_2d``, which is created from the operator table on first use.
Operand ``i`` of the operation is input ``i`` of the operator. A ``circle.none`` value replaces an omitted operand,
unless no operand follows. Options are properties. Custom syntax omits properties that have the schema's default::

    %y = circle.conv_2d(%x, %filter, %bias) {padding = valid, stride = [2, 2], activation = relu6} : (…) -> …
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import (
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    LocationAttr,
    ModuleOp,
    NoneType,
    StringAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Dialect, Operation, OpResult, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import HasCanonicalizationPatternsTrait, Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_options import (
    ALWAYS_PRINTED,
    PAIRS,
    RECORD_NAMES,
    RECORD_OPTIONS,
    SHORT_NAMES,
    OptionProperty,
    SymbolOption,
    table_options,
)
from odc_mlir.dialects.circle_types import (
    NONE_TYPE,
    OPAQUE_TYPES,
    TensorFacts,
    axis_mismatch,
    pack_values,
    parse_values,
    sparsity_record,
    values_text,
    with_shape,
)
from odc_mlir.dialects.circle_types import BlobAttr as BlobAttr
from odc_mlir.dialects.circle_types import QParamsAttr as QParamsAttr
from odc_mlir.dialects.circle_types import QuantRecord as QuantRecord
from odc_mlir.dialects.circle_types import TensorAttr as TensorAttr
from odc_mlir.dialects.circle_types import tensor_facts as tensor_facts
from odc_mlir.dialects.circle_types import tensor_type as tensor_type
from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.schema import circle_schema
from odc_mlir.ops import all_specs, get
from odc_mlir.ops.check import check_node, check_structure, type_text
from odc_mlir.ops.custom import spec_of_code
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.infer.common import compatible
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.ops.spec import Blockwise, Callee, Node, Operand, OpSpec, ResultType, Shape, TensorInfo, Trait
from odc_mlir.support.blob import Blob, BlobResources
from odc_mlir.support.locations import name_loc, op_name, value_name

LOG = logging.getLogger(__name__)

UNVERIFIED = "circle.unverified"
"""Attribute of an imported operator that breaks a rule of the operator table. Its value is the rule.

Such an operator can be printed and exported, but not executed. The verifier checks only the numbers of its operands and
results. No pass changes it.
"""

KNOWN = "odc.known"
"""Attribute of an operator whose result is constant for the shapes that were fixed for compiling.

Its value is the result, as a blob. Programs contain a constant instead of the operator. The model keeps the operator,
because the result differs for other shapes.
"""

# Python attributes of every operation. The property of an option with such a name gets an underscore.
_TAKEN = frozenset((*dir(Operation), *Operation.__dataclass_fields__))

# The reader's name for an operator that only a newer schema defines.
_NEWER = "BUILTIN_"


class CircleOp(IRDLOperation):
    """Base class of all operators. ``SPEC`` is the operator's entry in the operator table."""

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
        """Create an operation from Python values of its options, by schema field name. None omits the property."""
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
        """Return the Python value of an option, or None if it is absent and has no default."""
        attribute = self.properties.get(name)
        return None if attribute is None else self.OPTIONS[name].decode(attribute)

    @property
    def unverified(self) -> str | None:
        """Return the rule that this operator breaks, or None if it obeys the operator table."""
        reason = self.attributes.get(UNVERIFIED)
        return reason.data if isinstance(reason, StringAttr) else None

    def operand_named(self, name: str) -> SSAValue | None:
        """Return the operand called ``name`` in the operator table, or None if it is omitted."""
        index = next(i for i, operand in enumerate(self.SPEC.operands) if operand.name == name)
        if index >= len(self.operands) or isinstance(self.operands[index].type, NoneType):
            return None
        return self.operands[index]

    def verify_(self) -> None:
        for name, attribute in self.properties.items():
            if not self.OPTIONS[name].accepts(attribute):
                wrong = f"{name} is {attribute}, must be {self.OPTIONS[name].kind}"
                raise VerifyException(_text(wrong, self))
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
    labels = {name: SHORT_NAMES.get(name, name) for name in options}
    for word, pair in PAIRS.items():
        labels |= {name: word for name in pair if name in labels}
    return list(dict.fromkeys(labels.values()))


@cache
def op_class(name: str) -> type[CircleOp]:
    """Return the operation class of operator ``name``, such as ``CONV_2D``.

    An operator of the schema that is not in the operator table gets a class without rules. It can be read, printed and
    written, but not executed. Raises UnsupportedError for an unknown operator.
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
    """Return the table's entry for ``name``. An operator that only the schema has gets an entry without rules."""
    if (spec := all_specs().get(name)) is not None:
        return spec
    if not has_operator(name):
        return get(name)  # raises the error for unknown operators
    anything = (Operand("tensors", optional=True, variadic=True),)
    return OpSpec(name, anything, anything, options=_options_table(name), traits=frozenset())


def has_operator(name: str) -> bool:
    """Return whether the operator table or the schema has ``name``, or a newer schema numbers it."""
    return name in all_specs() or name in circle_schema().operators.codes or name.startswith(_NEWER)


def operator_names() -> tuple[str, ...]:
    """Return the names of all operators: operators of the operator table, then all other operators of the schema."""
    return tuple(dict.fromkeys((*all_specs(), *circle_schema().operators.codes)))


def _options_table(name: str) -> str | None:
    wanted = name.replace("_", "").lower() + "options"
    unions = circle_schema().unions
    tables = (table for union in ("BuiltinOptions", "BuiltinOptions2") for table in unions[union].tags)
    return next((table for table in tables if table.lower() == wanted), None)


class CircleCanonicalization(HasCanonicalizationPatternsTrait):
    """Canonicalization patterns of circle operators, imported on first use."""

    def get_patterns(self, op: type[Operation]) -> tuple[RewritePattern, ...]:
        from odc_mlir.transforms.circle.rewrites.canonical import canonicalization_patterns

        return canonicalization_patterns(op.SPEC.name if issubclass(op, CircleOp) else "")

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        from odc_mlir.transforms.circle.rewrites.canonical import canonicalization_patterns

        return canonicalization_patterns()


@irdl_op_definition
class ConstOp(IRDLOperation):
    """A constant tensor. Custom syntax prints few numbers as a flat list, and other contents as a blob.

    ::

        %0 = circle.const [1, 64] : tensor<2xi32>
        %1 = circle.const #circle.blob<sha256_4f5a…, 3456> : tensor<32x3x3x4xi8>
    """

    name = "circle.const"

    value = prop_def(BlobAttr)
    sparsity = opt_prop_def(DictionaryAttr)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(self, value: BlobAttr, result_type: Attribute, sparsity: DictionaryAttr | None = None) -> None:
        super().__init__(properties={"value": value, "sparsity": sparsity}, result_types=[result_type])

    @property
    def blob(self) -> Blob:
        return self.value.data

    def verify_(self) -> None:
        facts = tensor_facts(self.result.type)
        bits = DTYPES[facts.dtype].bits
        if problem := axis_mismatch(facts.quant, facts.shape):
            raise VerifyException(_text(problem, self))
        if not bits or self.sparsity is not None or facts.shape is None:
            return
        elements = 1
        for extent in facts.shape:
            if extent is None:
                raise VerifyException(_text("a constant needs a static shape", self))
            elements *= extent
        expected = (elements * bits + 7) // 8
        if self.blob.size != expected:
            seen = f"{elements} elements of {facts.dtype} take {expected} bytes, found {self.blob.size}"
            raise VerifyException(_text(seen, self))

    @classmethod
    def parse(cls, parser: Parser) -> ConstOp:
        values, blob, sparsity = None, None, None
        if parser.parse_optional_punctuation("[") is not None:
            values = parse_values(parser)
        elif isinstance(found := parser.parse_attribute(), BlobAttr):
            blob = found
        else:
            parser.raise_error(f"expected a list of numbers or a #circle.blob, found {found}")
        if parser.parse_optional_keyword("sparse") is not None:
            sparsity = DictionaryAttr(parser.parse_optional_dictionary_attr_dict())
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        try:
            value = blob or BlobAttr.of(pack_values(values or (), tensor_facts(type).dtype))
        except (ModelError, VerifyException) as error:
            parser.raise_error(str(error))
        op = cls(value, type, sparsity)
        op.attributes |= attributes.data if attributes is not None else {}
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        text = None if self.sparsity is not None else values_text(self.blob, tensor_facts(self.result.type))
        if text is not None:
            printer.print_string(text)
        else:
            printer.print_attribute(self.value)
        if self.sparsity is not None:
            printer.print_string(" sparse ")
            printer.print_attr_dict(self.sparsity.data)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class NoneOp(IRDLOperation):
    """An omitted operand: ``%none = circle.none``."""

    name = "circle.none"

    result = result_def(NoneType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[NONE_TYPE])


class _TensorSource(IRDLOperation):
    result = result_def()
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, result_type: Attribute) -> None:
        super().__init__(result_types=[result_type])

    def verify_(self) -> None:
        tensor_facts(self.result.type)


@irdl_op_definition
class VariableOp(_TensorSource):
    """A tensor that keeps its contents between runs: ``%state = circle.variable : tensor<1x4xf32>``.

    A variable starts at real zero. Operators that have it as an operand may write it. Two variables are never merged.
    """

    name = "circle.variable"


@irdl_op_definition
class UndefinedOp(_TensorSource):
    """A tensor that no operator computes: ``%y = circle.undefined : tensor<4xf32>``.

    In some files, a graph output or the scratch tensor of a custom operator is such a tensor.
    """

    name = "circle.undefined"

    traits = traits_def(Pure())


def info_of(value: SSAValue) -> TensorInfo:
    """Return ``value`` as a record of the operator table. ``data`` is set for constants with known bytes.

    Raises VerifyException if no Circle tensor has the type.
    """
    facts, owner = tensor_facts(value.type), value.owner
    is_variable = type(owner) is VariableOp  # isinstance takes ten times as long, because the class is abstract
    info = TensorInfo(value_name(value), facts.dtype, facts.shape, facts.quant, is_variable=is_variable)
    if type(owner) is ConstOp and "value" in owner.properties and owner.blob.is_resolved:
        info.data = owner.blob.data
        if owner.sparsity is not None:
            info.sparsity = sparsity_record(owner.sparsity)
    elif isinstance(value, OpResult) and isinstance(known := value.op.attributes.get(KNOWN), BlobAttr):
        info.data = known.data.data
    if facts.record is not None and facts.record.details is not None:
        _read_details(info, *facts.record.details)
    return info


def is_known(op: object) -> bool:
    """Return whether ``op`` is an operator with the attribute :data:`KNOWN`."""
    return isinstance(op, CircleOp) and KNOWN in op.attributes


def freeze_known(block: Block, given: Sequence[SSAValue] = ()) -> None:
    """Replace known results in ``block`` by constants. Also replace arguments whose ``given`` values are known."""
    pairs = [
        *zip(block.args, given, strict=False),
        *((op.results[0], op.results[0]) for op in block.ops if is_known(op)),
    ]
    for value, source in pairs:
        if is_known(source.owner) and isinstance(known := source.owner.attributes[KNOWN], BlobAttr):
            constant = ConstOp(known, value.type)
            constant.location = name_loc(value_name(value))
            block.insert_op_before(constant, block.first_op) if block.first_op else block.add_op(constant)
            value.replace_all_uses_with(constant.result)
    for op in reversed(list(block.ops)):
        if is_known(op):
            Rewriter.erase_op(op)


def _read_details(info: TensorInfo, table: str, fields: Mapping[str, Attribute]) -> None:
    if table == "MXQuantization" and isinstance(axis := fields.get("axis"), IntegerAttr):
        info.mx_axis, info.quant = axis.value.data, None
    if table == "CustomQuantization":
        info.foreign_quant = table
    if table != "BlockwiseQuantization":
        return
    info.quant = None
    size, scales = fields.get("block_size"), _block_parameter(fields.get("scales"))
    if info.is_const and isinstance(size, IntegerAttr) and scales is not None:
        zero_points = _block_parameter(fields.get("zero_points"))
        info.blockwise = Blockwise(info.dtype, size.value.data, scales, zero_points)
        info.dtype = "float32"


def _block_parameter(attribute: Attribute | None) -> TensorInfo | None:
    if not isinstance(attribute, TensorAttr) or not isinstance(attribute.contents, BlobAttr):
        return None
    facts = tensor_facts(attribute.type)
    return TensorInfo(attribute.tensor_name.data, facts.dtype, facts.shape, facts.quant, attribute.contents.bytes)


def node_of(op: Operation) -> Node:
    """Return a ``circle`` operator as a node of the operator table. Options refer to subgraphs by symbol.

    Raises VerifyException for types that are not tensors, and for symbols that are not functions.
    """
    if not isinstance(op, CircleOp):
        raise TypeError(f"{op.name} is not an operator of the table")
    options: dict[str, Any] = {}
    record: dict[str, Any] = {}
    callees: dict[int | str, Callee] = {}
    for name, attribute in op.properties.items():
        option = op.OPTIONS[name]
        value = option.decode(attribute)
        if isinstance(option, SymbolOption):
            callees[value] = _callee(op, value)
        (record if name in RECORD_NAMES else options)[name] = value
    intermediates = record.get("intermediates")
    code = record.get("custom_code", "")
    return Node(
        spec=spec_of_code(code, default_custom_ops()) if op.SPEC.name == "CUSTOM" else op.SPEC,
        operands=tuple(None if isinstance(operand.type, NoneType) else info_of(operand) for operand in op.operands),
        results=tuple(info_of(result) for result in op.results),
        options=options,
        name=op_name(op),
        version=record.get("version", 1),
        custom_code=code,
        custom_options=record.get("custom_options", b""),
        intermediates=tuple(map(_intermediate_info, intermediates)) if intermediates is not None else (),
        mutating=record.get("mutating_variable_inputs", ()),
        callees=callees,
    )


def has_unresolved_operand(op: Operation) -> bool:
    """Return whether the bytes of a constant operand are unknown. Rules about values cannot be checked then."""
    return any(
        isinstance(operand, OpResult) and isinstance(operand.op, ConstOp) and not operand.op.blob.is_resolved
        for operand in op.operands
    )


def _callee(op: Operation, symbol: str) -> Callee:
    top = op.get_toplevel_object()
    function = _function(top, symbol) if isinstance(top, ModuleOp) else None
    terminator = None if function is None else function.get_return_op()
    if function is None or terminator is None:
        raise VerifyException(_text(f"refers to @{symbol}, which is not a function of this module", op))
    return Callee(symbol, tuple(map(info_of, function.args)), tuple(map(info_of, terminator.operands)))


_FUNCTIONS = "functions"  # attribute of modules: functions by name, updated by an unsuccessful lookup


def _function(module: ModuleOp, symbol: str) -> FuncOp | None:
    """Return the function called ``symbol``. An index of the module makes all lookups together linear in its size."""
    known: dict[str, FuncOp] = getattr(module, _FUNCTIONS, {})
    found = known.get(symbol)
    if found is None or found.parent is not module.body.block or found.sym_name.data != symbol:
        known = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
        setattr(module, _FUNCTIONS, known)
        found = known.get(symbol)
    return found


def _intermediate_info(attribute: Attribute) -> TensorInfo | None:
    if not isinstance(attribute, TensorAttr):
        return None
    facts: TensorFacts = tensor_facts(attribute.type)
    return TensorInfo(attribute.tensor_name.data, facts.dtype, facts.shape, facts.quant)


def _text(message: str, op: Operation) -> str:
    kind = op.SPEC.name if isinstance(op, CircleOp) else op.name
    return str(ModelError(message, op=kind, tensor=op_name(op)))


def refine_function(function: FuncOp) -> None:
    """Refine the result types of all operators of ``function`` in order, then the function's own type.

    Operators that shape inference rejects are marked as unverified. If a declared shape contradicts inference, the file
    is wrong, because every runtime resizes tensors during execution. The inferred shape replaces it, with a warning.
    """
    for op in function.walk():
        if isinstance(op, CircleOp) and op.SPEC.infer and op.unverified is None:
            try:
                refine_results(op)
            except ModelError as error:
                mark_unverified(op, error)
    terminator = function.get_return_op()
    if terminator is not None:
        function.properties["function_type"] = FunctionType.from_lists(
            function.function_type.inputs.data, list(terminator.operand_types)
        )


def mark_unverified(op: CircleOp, error: ModelError) -> None:
    """Log a warning, and mark ``op`` so that the verifier accepts it although it breaks a rule."""
    LOG.warning("%s %r can be imported, but not run: %s", op.SPEC.name, op_name(op), error)
    op.attributes[UNVERIFIED] = StringAttr(error.message)


def refine_results(op: CircleOp) -> bool:
    """Refine the result types of one operator. Return whether a type changed.

    Raises ModelError if shape inference rejects the operator.
    """
    node = node_of(op)
    check_node(node, own_rules=False, result_types=False)  # preconditions of shape functions
    changed = False
    for result, inferred in zip(tuple(op.results), node.spec.infer_function(node), strict=False):
        # An empty shape contradicts no inferred shape: converters write it for a scalar and for an unknown shape.
        declared = tensor_facts(result.type).shape or None
        if not compatible(declared, inferred.shape):
            wrong = ResultType(inferred.dtype, declared)
            LOG.warning("%s", node.error(f"the result is declared {type_text(wrong)}, computes {type_text(inferred)}"))
            shape = inferred.shape
        else:
            shape = _merged(declared, inferred.shape)
        if shape != declared:
            Rewriter.replace_value_with_new_type(result, with_shape(result.type, shape))
            changed = True
    return changed


def _merged(declared: Shape | None, inferred: Shape | None) -> Shape | None:
    if declared is None or inferred is None:
        return inferred if declared is None else declared
    return tuple(b if a is None else a for a, b in zip(declared, inferred, strict=True))


def find_operation(name: str) -> type[Operation] | None:
    """Return the class of the operation ``circle.<mnemonic>``, or None if there is none."""
    mnemonic = name.removeprefix("circle.")
    if (own := next((cls for cls in _OWN_OPERATIONS if cls.name == name), None)) is not None:
        return own
    operator = mnemonic.upper()
    return op_class(operator) if mnemonic == operator.lower() and has_operator(operator) else None


_OWN_OPERATIONS: tuple[type[Operation], ...] = (ConstOp, NoneOp, UndefinedOp, VariableOp)


class CircleDialect(Dialect):
    """The dialect. It creates the classes of operators when they are listed."""

    @property
    def operations(self) -> Iterator[type[Operation]]:
        yield from _OWN_OPERATIONS
        yield from (op_class(name) for name in operator_names())


Circle = CircleDialect("circle", [], [BlobAttr, QParamsAttr, TensorAttr, *OPAQUE_TYPES.values()], [BlobResources()])
