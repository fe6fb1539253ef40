"""IR of the quantising passes: ranges on types, and assigned element types.

* The range of a float value is part of its type: ``tensor<1x4xf32, #circle.qparams<min = [-1.0], max = [1.0]>>``.
* ``quant.results`` of an operator and ``quant.arguments`` of the function list the element types of values.
  ``quant.operands`` of an operator lists the types that it requires of its operands. A value of another type is
  converted. An entry is ``f32`` (the value stays float), a quantised element type, or ``unit`` (no change). Integers
  have ``unit``. Biases have ``unit`` because input and weights determine the parameters.
* ``quant.precision`` is the scheme of an operator if it differs from the module's scheme. ``quant.reason`` is the
  reason why an operator stays float. ``quant.scheme`` and ``quant.io`` are the module's scheme and boundary types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, Float32Type, ModuleOp, NoneAttr, StringAttr, TensorType, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp, QParamsAttr, QuantRecord
from odc_mlir.dialects.circle_types import ELEMENT_TYPES
from odc_mlir.dialects.quant import UniformQuantizedType
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.quantizer.policy.schemes import FLOAT

OPERANDS = "quant.operands"
RESULTS = "quant.results"
ARGUMENTS = "quant.arguments"
PRECISION = "quant.precision"
REASON = "quant.reason"
SCHEME = "quant.scheme"
GRANULARITY = "quant.granularity"  # on the module: granularity of weights
WEIGHTS = "quant.weights"  # on the module: "symmetric" or "asymmetric"
IO = "quant.io"
READER = "quant.reader"  # on the module: the program or machine that reads the file, in addition to this project

REAL = Float32Type()
LEFT_ALONE = UnitAttr()


def quantized_function(module: ModuleOp) -> FuncOp | None:
    """Return the function to quantise, which is the first function, or None if it has no body."""
    found = next((op for op in module.body.block.ops if isinstance(op, FuncOp)), None)
    return found if found is not None and found.body.blocks else None


def all_ops(function: FuncOp) -> Iterator[CircleOp]:
    """Yield all operators of a function in program order, without constants."""
    return (op for op in function.walk() if isinstance(op, CircleOp))


def is_float32(value: SSAValue) -> bool:
    """Return whether ``value`` is a float32 tensor, with or without quantisation parameters."""
    return getattr(value.type, "element_type", None) == REAL


def constant_of(value: SSAValue) -> ConstOp | None:
    """Return the constant that defines ``value``, or None for other values."""
    return value.op if isinstance(value, OpResult) and isinstance(value.op, ConstOp) else None


def coded_weights(value: SSAValue) -> Attribute | None:
    """Return the element type of a constant that is already quantised, as in weight-only models, or None."""
    element = getattr(value.type, "element_type", None)
    return element if isinstance(element, UniformQuantizedType) and constant_of(value) is not None else None


# Ranges.


def range_of(type: Attribute) -> tuple[float, float] | None:
    """Return the recorded range of a float tensor type, or None."""
    if not isinstance(type, TensorType) or type.element_type != REAL or not isinstance(type.encoding, QParamsAttr):
        return None
    record = type.encoding.data
    if not record.min or not record.max:
        return None
    return min(record.min), max(record.max)


def with_range(type: Attribute, least: float, most: float) -> Attribute:
    """Return the type with a recorded range. Raises ModelError for a type that cannot hold one."""
    if not isinstance(type, TensorType):
        raise ModelError(f"a range needs a tensor type of known rank, not {type}")
    rest = type.encoding.data if isinstance(type.encoding, QParamsAttr) else QuantRecord()
    return TensorType(type.element_type, type.shape, QParamsAttr(replace(rest, min=(least,), max=(most,))))


def without_range(type: Attribute) -> Attribute:
    """Return the type without the recorded range."""
    if not isinstance(type, TensorType) or not isinstance(type.encoding, QParamsAttr):
        return type
    rest = replace(type.encoding.data, min=(), max=())
    empty = not rest.scale and rest.details is None
    return TensorType(type.element_type, type.shape, NoneAttr() if empty else QParamsAttr(rest))


# Element types.


def quantised(dtype: str, params: QuantParams, *, per_axis: bool | None = None) -> UniformQuantizedType:
    """Return the element type of codes of ``dtype``."""
    return UniformQuantizedType.of(dtype, params, per_axis=per_axis)


def params_of(element: Attribute | None) -> tuple[str, QuantParams] | None:
    """Return element type and parameters of codes, or None for a type that is not quantised."""
    return (element.data.storage, element.data.params) if isinstance(element, UniformQuantizedType) else None


def info_as(info: TensorInfo, element: Attribute | None) -> TensorInfo:
    """Return ``info`` with this element type, without contents. ``unit`` and None change nothing."""
    if (found := params_of(element)) is None:
        return info
    return TensorInfo(info.name, found[0], info.shape, found[1], is_variable=info.is_variable)


# Assignments.


def operand_types(op: Operation) -> list[Attribute] | None:
    """Return the element types that ``op`` requires of operands, or None if there is no assignment."""
    return _entries(op, OPERANDS, len(op.operands))


def result_types(op: Operation) -> list[Attribute] | None:
    """Return the element types of the results of ``op``, or None without an assignment."""
    return _entries(op, RESULTS, len(op.results))


def argument_types(function: FuncOp) -> list[Attribute] | None:
    """Return the element types of the arguments of ``function``, or None without an assignment."""
    return _entries(function, ARGUMENTS, len(function.args))


def assign(op: Operation, name: str, types: Sequence[Attribute]) -> None:
    """Write :data:`OPERANDS`, :data:`RESULTS` or :data:`ARGUMENTS`, with an entry for each value."""
    op.attributes[name] = ArrayAttr(types)


def assigned_type(value: SSAValue) -> Attribute:
    """Return the element type of ``value``, or ``unit`` without an assignment, as for constants."""
    if isinstance(value, BlockArgument):
        function = value.block.parent_op()
        types = argument_types(function) if isinstance(function, FuncOp) else None
        return LEFT_ALONE if types is None else types[value.index]
    if isinstance(value, OpResult):
        types = result_types(value.op)
        return LEFT_ALONE if types is None else types[value.index]
    return LEFT_ALONE


def _entries(op: Operation, name: str, count: int) -> list[Attribute] | None:
    attribute = op.attributes.get(name)
    if attribute is None:
        return None
    if not isinstance(attribute, ArrayAttr) or len(attribute) != count:
        raise ModelError(f"{name} is {attribute}; it must list {count} element types", op=op.name)
    for entry in attribute:
        if entry != LEFT_ALONE and not isinstance(entry, UniformQuantizedType) and entry not in _PLAIN:
            raise ModelError(
                f"{name} contains {entry}; an entry is f32, a quantised type, a plain one or unit", op=op.name
            )
    return list(attribute)


_PLAIN = frozenset(ELEMENT_TYPES.values())


# Strings.


def read_word(op: Operation, name: str) -> str | None:
    """Return the string in attribute ``name``, or None."""
    attribute = op.attributes.get(name)
    return attribute.data if isinstance(attribute, StringAttr) else None


def write_word(op: Operation, name: str, value: str) -> None:
    """Write a string attribute."""
    op.attributes[name] = StringAttr(value)


def stay_float(op: Operation, reason: str) -> None:
    """Keep ``op`` float in the assignment of types, with ``reason`` for messages."""
    write_word(op, PRECISION, FLOAT)
    write_word(op, REASON, reason)


def keep_float(op: Operation, reason: str, left: Sequence[int] = ()) -> None:
    """Assign float operands and results to ``op``. Operands in ``left`` do not change."""
    needs = [
        REAL if is_float32(operand) and index not in left else LEFT_ALONE for index, operand in enumerate(op.operands)
    ]
    assign(op, OPERANDS, needs)
    assign(op, RESULTS, [REAL if is_float32(result) else LEFT_ALONE for result in op.results])
    write_word(op, REASON, reason)
