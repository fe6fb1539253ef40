"""Lookup tables of codes: only the looked-up rows are dequantised, never the whole table.

Rows of a table that are found by whole numbers, each with a scale of its own::

    %0 = circle.gather(%table, %ids) {axis = 0} : (tensor<96x64xf32>, tensor<1x8xi32>) -> tensor<1x8x64xf32>

become an EMBEDDING_LOOKUP, which gives reals of a table of codes::

    %1 = circle.reshape(%ids, [8])
    %2 = circle.embedding_lookup(%1, %codes) : (…, tensor<96x64x!quant.uniform<i8:f32:0, {…}>>) -> tensor<8x64xf32>
    %0 = circle.reshape(%2, [1, 8, 64])

Other lookups move codes of one scale, and a DEQUANTIZE follows; but none of 4 bits, which other runtimes do not move.
Neither are odd numbers of 4-bit codes looked up, whose rows other runtimes seek at whole bytes.
"""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of, node_of, op_class, tensor_facts, tensor_type
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.quantities import Names
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import make_constant, operator
from odc_mlir.transforms.common.tensor_names import named
from odc_mlir.transforms.quant.common.conversion import conversion

_ROWS = "EMBEDDING_LOOKUP"
_ROW_CODES = ("int8", "int4")  # that it makes real
_MOVED = ("int8", "int16")
_IDS = ("int32", "int64")  # other runtimes look up by int32; no table has rows beyond


def takes_codes(op: CircleOp, index: int, dtype: str) -> bool:
    """Return whether ``op`` can look up codes of this type in operand ``index``; see :func:`look_up`."""
    return op.SPEC.quant.source == index and (dtype in _MOVED or takes_rows(op, dtype))


def takes_rows(op: CircleOp, dtype: str) -> bool:
    """Return whether ``op`` looks up whole rows, so that each row can have a scale."""
    source = op.SPEC.quant.source
    if dtype == "int4" and source is not None and prod(info_of(op.operands[source]).static_shape[1:]) % 2:
        return False
    if dtype not in _ROW_CODES or op.SPEC.name != "GATHER":
        return dtype in _ROW_CODES and op.SPEC.name == _ROWS
    node = node_of(op)
    ids, result = node.operand(1), node.results[0]
    shapes = (ids.shape, result.shape)
    is_static = all(shape is not None and None not in shape for shape in shapes) and prod(ids.static_shape) > 0
    return is_static and ids.dtype in _IDS and (node.options["axis"], node.options["batch_dims"]) == (0, 0)


def is_moved_only(table: SSAValue) -> bool:
    """Whether all that read a table look up codes of 8 or 16 bits as they are, by kernels that other runtimes have."""
    readers = ((use.operation, use.index) for use in table.uses)
    return all(
        isinstance(op, CircleOp) and op.SPEC.name != _ROWS and takes_codes(op, index, _MOVED[-1])
        for op, index in readers
    )


def look_up(op: CircleOp, codes: SSAValue, names: Names) -> None:
    """Let ``op`` look up ``codes``, with one scale or one for each row, instead of reals."""
    if not takes_rows(op, tensor_facts(codes.type).dtype):
        _look_up_codes(op, codes, names)
    elif op.SPEC.name == _ROWS:
        op.operands[1] = codes
    else:
        _look_up_rows(op, codes, names)


def _look_up_rows(op: CircleOp, codes: SSAValue, names: Names) -> None:
    result, ids = op.results[0], op.operands[1]
    assert isinstance(result.type, TensorType)
    shape, row = result.type.get_shape(), info_of(codes).static_shape[1:]
    label, dtype, made = value_name(result), info_of(ids).dtype, list[Operation]()
    count = prod(info_of(ids).static_shape)
    if is_shaped := len(info_of(ids).static_shape) != 1:
        flat = make_constant(np.array([count], np.int32), "int32", names.fresh(f"{label}/ids_shape"))
        view = op_class("RESHAPE").make([ids, flat.result], [tensor_type(dtype, (count,))], {"new_shape": [count]})
        made += [flat, named(view, names.fresh(f"{label}/ids"))]
        ids = view.results[0]
    if dtype != _IDS[0]:
        types = {"in_data_type": dtype, "out_data_type": _IDS[0]}
        cast = op_class("CAST").make([ids], [tensor_type(_IDS[0], (count,))], types)
        made.append(named(cast, names.fresh(f"{label}/ids")))
        ids = cast.results[0]
    cls = op_class(_ROWS)
    type = tensor_type("float32", (count, *row)) if is_shaped else result.type
    rows = cls.make([ids, codes], [type], default_options(cls.SPEC.options))
    if is_shaped:
        whole = make_constant(np.array(shape, np.int32), "int32", names.fresh(f"{label}/shape"))
        named(rows, names.fresh(f"{label}/rows"))
        made += [rows, whole, operator("RESHAPE", [rows.results[0], whole.result], result, {"new_shape": list(shape)})]
    else:
        made.append(named(rows, label))
    Rewriter.replace_op(op, made, [made[-1].results[0]])


def _look_up_codes(op: CircleOp, codes: SSAValue, names: Names) -> None:
    result, facts = op.results[0], tensor_facts(codes.type)
    coded = tensor_type(facts.dtype, tensor_facts(result.type).shape, facts.quant)
    operands = [codes if place == op.SPEC.quant.source else value for place, value in enumerate(op.operands)]
    moved = type(op).create(
        operands=operands, result_types=[coded], properties=dict(op.properties), attributes=dict(op.attributes)
    )
    label = value_name(result)
    named(moved, names.fresh(f"{label}_quantized"))
    Rewriter.insert_op(moved, InsertPoint.before(op))
    back = conversion("DEQUANTIZE", moved.results[0], result.type)
    Rewriter.replace_op(op, [named(back, label)], [back.results[0]])
