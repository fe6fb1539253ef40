"""The ``circle`` dialect: one operation per Circle operator, constants, and the bridge to the operator table.

A subgraph is a ``func.func``; every value is a tensor whose name is its location. ``node_of`` converts an operation and
``info_of`` converts a value to the form that functions of the operator table take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr, FunctionType, IntegerAttr, ModuleOp, NoneType, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Dialect, Operation, OpResult, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_attributes import NONE_TYPE, OPAQUE_TYPES, BlobAttr, QParamsAttr, QuantRecord, TensorAttr
from odc_mlir.dialects.circle_ops import (
    KNOWN,
    RECORD_NAMES,
    UNVERIFIED,
    CircleOp,
    has_operator,
    op_class,
    operator_names,
)
from odc_mlir.dialects.circle_options import SymbolOption
from odc_mlir.dialects.circle_types import (
    TensorFacts,
    axis_mismatch,
    pack_values,
    parse_values,
    sparsity_record,
    tensor_facts,
    tensor_type,
    values_text,
    with_shape,
)
from odc_mlir.errors import ModelError
from odc_mlir.ops.check import check_node, type_text
from odc_mlir.ops.custom import spec_of_code
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.infer.common import compatible
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.ops.spec import Blockwise, Callee, Node, ResultType, Shape, TensorInfo
from odc_mlir.support.blob import Blob, BlobResources
from odc_mlir.support.locations import name_loc, op_name, value_name

LOG = logging.getLogger(__name__)

__all__ = [
    "BlobAttr",
    "Circle",
    "CircleOp",
    "ConstOp",
    "NoneOp",
    "QParamsAttr",
    "QuantRecord",
    "TensorAttr",
    "UndefinedOp",
    "VariableOp",
    "find_operation",
    "freeze_known",
    "has_unresolved_operand",
    "info_of",
    "is_known",
    "node_of",
    "op_class",
    "tensor_facts",
    "tensor_type",
]


@irdl_op_definition
class ConstOp(IRDLOperation):
    """A constant tensor. Its text is a flat list for few numbers, and a blob for all other contents.

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


@irdl_op_definition
class VariableOp(IRDLOperation):
    """A tensor that keeps its contents from one run to the next: ``%state = circle.variable : tensor<1x4xf32>``.

    A variable starts at real zero; operators that take it as operand may write it. Two variables are never merged.
    """

    name = "circle.variable"

    result = result_def()
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, result_type: Attribute) -> None:
        super().__init__(result_types=[result_type])

    def verify_(self) -> None:
        tensor_facts(self.result.type)


@irdl_op_definition
class UndefinedOp(IRDLOperation):
    """A tensor that no operator computes: ``%y = circle.undefined : tensor<4xf32>``.

    Some files have such a graph output, or a custom operator with a scratch tensor.
    """

    name = "circle.undefined"

    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, result_type: Attribute) -> None:
        super().__init__(result_types=[result_type])

    def verify_(self) -> None:
        tensor_facts(self.result.type)


def info_of(value: SSAValue) -> TensorInfo:
    """Return ``value`` in the form of the operator table; raise VerifyException if the dialect lacks its type.

    ``data`` is set for constants with known bytes.
    """
    facts = tensor_facts(value.type)
    owner = value.owner
    info = TensorInfo(
        value_name(value), facts.dtype, facts.shape, facts.quant, is_variable=isinstance(owner, VariableOp)
    )
    if isinstance(owner, ConstOp) and "value" in owner.properties and owner.blob.is_resolved:
        info.data = owner.blob.data
        if owner.sparsity is not None:
            info.sparsity = sparsity_record(owner.sparsity)
    if isinstance(owner, CircleOp) and isinstance(known := owner.attributes.get(KNOWN), BlobAttr):
        info.data = known.data.data
    if facts.record is not None and facts.record.details is not None:
        _read_details(info, *facts.record.details)
    return info


def is_known(op: object) -> bool:
    """Return whether ``op`` is an operator with the attribute :data:`KNOWN`, its result for the fixed shapes."""
    return isinstance(op, CircleOp) and KNOWN in op.attributes


def freeze_known(block: Block, given: Sequence[SSAValue] = ()) -> None:
    """Replace known results in ``block`` by constants, and arguments if the values ``given`` for them are known."""
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
    """Set the blockwise or microscaling quantisation of ``info``, which overrides scale and zero point."""
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
    """Return the constant in a ``#circle.tensor``."""
    if not isinstance(attribute, TensorAttr) or not isinstance(attribute.contents, BlobAttr):
        return None
    facts = tensor_facts(attribute.type)
    return TensorInfo(attribute.tensor_name.data, facts.dtype, facts.shape, facts.quant, attribute.contents.bytes)


def node_of(op: Operation) -> Node:
    """Return a ``circle`` operator as a node of the operator table; options name subgraphs by the functions' symbols.

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
    """Return whether some constant operand's bytes are unknown, so that rules about values cannot be checked."""
    return any(
        isinstance(operand, OpResult) and isinstance(operand.op, ConstOp) and not operand.op.blob.is_resolved
        for operand in op.operands
    )


def _callee(op: Operation, symbol: str) -> Callee:
    """Return the function ``symbol`` of the module around ``op``; raise VerifyException if it is missing."""
    top = op
    while (parent := top.parent_op()) is not None:
        top = parent
    function = _function(top, symbol) if isinstance(top, ModuleOp) else None
    terminator = None if function is None else function.get_return_op()
    if function is None or terminator is None:
        raise VerifyException(_text(f"refers to @{symbol}, which is not a function of this module", op))
    return Callee(symbol, tuple(map(info_of, function.args)), tuple(map(info_of, terminator.operands)))


_FUNCTIONS = "functions"  # attribute of modules: functions by name, updated by an unsuccessful lookup


def _function(module: ModuleOp, symbol: str) -> FuncOp | None:
    """Return the function called ``symbol``; all lookups together take time linear in the module."""
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
    """Refine the result types of all operators of ``function`` in order, then its own type.

    Operators that inference rejects are marked as unverified. Every runtime resizes tensors as operators run, so a
    declared shape that contradicts inference is an error of the file: it is replaced, with a warning.
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
    """Mark ``op`` so that it passes the verifier although it breaks a rule, and log a warning."""
    LOG.warning("%s %r can be imported, but not run: %s", op.SPEC.name, op_name(op), error)
    op.attributes[UNVERIFIED] = StringAttr(error.message)


def refine_results(op: CircleOp) -> bool:
    """Refine the result types of one operator; return True if any changed. Raise ModelError if inference rejects it."""
    node = node_of(op)
    check_node(node, own_rules=False, result_types=False)  # preconditions of shape functions
    changed = False
    for result, inferred in zip(tuple(op.results), node.spec.infer_function(node), strict=False):
        # Converters write an empty shape both for "unknown" and for a scalar, so that it contradicts no inferred shape.
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
    """Return the class of the operation ``circle.<mnemonic>``; None if there is none."""
    mnemonic = name.removeprefix("circle.")
    if (own := next((cls for cls in _OWN_OPERATIONS if cls.name == name), None)) is not None:
        return own
    operator = mnemonic.upper()
    return op_class(operator) if mnemonic == operator.lower() and has_operator(operator) else None


_OWN_OPERATIONS: tuple[type[Operation], ...] = (ConstOp, NoneOp, UndefinedOp, VariableOp)


class CircleDialect(Dialect):
    """The dialect object; operator classes are created when they are listed."""

    @property
    def operations(self) -> Iterator[type[Operation]]:
        yield from _OWN_OPERATIONS
        yield from (op_class(name) for name in operator_names())


Circle = CircleDialect("circle", [], [BlobAttr, QParamsAttr, TensorAttr, *OPAQUE_TYPES.values()], [BlobResources()])
