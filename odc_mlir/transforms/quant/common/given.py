"""Quantisation parameters from the user or from quantisation-aware training.

``quant.given`` of the module maps names of values and constants to quantised element types. A value gets its given
type, regardless of its range, if its operator works on codes of that type. For this, int8 and uint8 count as the same,
because codes differ only by 128. Parameters that the operator's definition fixes take precedence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.formats import source_lines
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.schemes import represented_range
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.common.masks import moved_operands
from odc_mlir.transforms.quant.common.ir import all_ops, constant_of, params_of, quantised

GIVEN = "quant.given"
_LIMITS = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
_MOVED = {("uint8", "int8"): -128, ("int8", "uint8"): 128}  # added to zero points

Types = Mapping[str, Attribute]


def read_given(op: Operation) -> dict[str, Attribute]:
    """Return the given types by name in the module of ``op``."""
    attribute = _of_module(op, GIVEN)
    return dict(attribute.data) if isinstance(attribute, DictionaryAttr) else {}


def is_of_pytorch(op: Operation) -> bool:
    """Return whether PyTorch gave the type of the result of ``op``."""
    return op_name(op) in read_given(op) and has_source_lines(op)


def has_source_lines(op: Operation) -> bool:
    """Return whether the module of ``op`` has source lines, as PyTorch's programs do."""
    entries, name = _of_module(op, "circle.metadata"), StringAttr(source_lines.NAME)
    rows = [entry for entry in entries if isinstance(entry, DictionaryAttr)] if isinstance(entries, ArrayAttr) else []
    return any(row.data["name"] == name for row in rows)


def scheme_of(types: Types, *, signed: bool = True) -> str:
    """Return the scheme of the majority of ``types``. If ``signed``, uint8 beside int8 is int8 with equal numbers."""
    counts = Counter(found[0] for type in types.values() if (found := params_of(type)) is not None)
    dtype = counts.most_common(1)[0][0]
    return {"int16": "int16x8", "uint8": "int8" if signed else dtype}.get(dtype, dtype) if counts["int8"] else dtype


def _of_module(op: Operation, name: str) -> Attribute | None:
    top = op.get_toplevel_object()
    return top.attributes.get(name) if isinstance(top, Operation) else None


def write_given(module: Operation, types: Types) -> None:
    """Replace the given parameters."""
    module.attributes.pop(GIVEN, None)
    if types:
        module.attributes[GIVEN] = DictionaryAttr(dict(types))


def rounds_again(op: CircleOp) -> bool:
    """Return whether ``op`` is a QUANTIZE that ``quant-absorb-pairs`` keeps: the second rounding of a value."""
    given = read_given(op)
    return op.SPEC.name == "QUANTIZE" and all(op_name(use.operation) in given for use in op.results[0].uses)


def before_moves(function: FuncOp, types: Types) -> dict[str, Attribute]:
    """Return ``types``, extended to computed operands that only a move or clamp with a given result type reads."""
    found = dict(types)
    for op in reversed(list(all_ops(function))):
        sources = (0,) if op.SPEC.name in _LIMITS else moved_operands(op)
        type = found.get(op_name(op))
        for value in (op.operands[source] for source in sources):
            if type is not None and value.has_one_use() and constant_of(value) is None:
                found.setdefault(value_name(value), type)
    return found


def moved_to(dtype: str, params: QuantParams, to: str) -> QuantParams | None:
    """Return parameters for codes of ``to`` that represent the same numbers as codes of ``dtype``, or None."""
    offset = 0 if dtype == to else _MOVED.get((dtype, to))
    if offset is None:
        return None
    return QuantParams(params.scales, tuple(zero + offset for zero in params.zero_points), params.axis)


def given_type(types: Types, value: SSAValue, dtype: str) -> Attribute | None:
    """Return the given type of an activation, converted to codes of ``dtype``, or None."""
    found = _as(types.get(value_name(value)), dtype)
    if found is None or not found.per_tensor or (dtype == "int16" and found.zero_point):
        return None
    return quantised(dtype, found)


def given_weights(types: Types, op: CircleOp, index: int, dtype: str) -> Attribute | None:
    """Return the given type of weights, converted to codes of ``dtype``, or None if kernels do not support it."""
    found = _as(types.get(value_name(op.operands[index])), dtype)
    if found is None or (DTYPES[dtype].kind == "int" and any(found.zero_points)):
        return None
    per_axis = not found.per_tensor
    return None if per_axis and found.axis != op.SPEC.quant.weights[index] else quantised(dtype, found)


def given_ranges(types: Types) -> dict[str, tuple[float, float]]:
    """Return the ranges of given parameters by name. Per-channel parameters have none."""
    known = {name: found for name, type in types.items() if (found := params_of(type)) is not None}
    return {name: represented_range(params, dtype) for name, (dtype, params) in known.items() if params.per_tensor}


def _as(type: Attribute | None, dtype: str) -> QuantParams | None:
    found = params_of(type)
    return None if found is None else moved_to(found[0], found[1], dtype)
