"""``quant-weights-only``: quantise only weights.

Before::

    %w = circle.const [2.0, -1.0, …] : tensor<2x4xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2xf32>) -> tensor<1x2xf32>

After::

    %w = circle.const [127, -64, …] : tensor<2x4x!quant.uniform<i8:f32:0, {0.015748, 0.03125}>>
    %1 = circle.dequantize(%w) : … -> tensor<2x4xf32>
    %0 = circle.fully_connected(%x, %1, %b) : (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2xf32>) -> tensor<1x2xf32>

Quantisation is symmetric, with a scale for each result channel. DEQUANTIZE of a constant runs once, when a model is
loaded, and every runtime computes with the dequantised weights. ``form=direct`` passes quantised weights to the
operator itself. The file is then smaller, but for int8 and int4 weights, runtimes also round activations to 8 bits. A
channel's scale follows from its range. If its weights are multiples of a step, the scale is that step. With
``scales=fitted`` the scale minimises the error of results (:mod:`odc_mlir.quantizer.policy.schemes`).

Lookup tables stay quantised, and only the selected rows are converted to float. EMBEDDING_LOOKUP converts rows itself.
The tables have a scale for each row. Other lookups read codes of a single scale, and a DEQUANTIZE follows. Tables with
short rows become int16 with one scale. This needs fewer bytes than a scale for each row.

The pass quantises constants of layers, recurrent cells, BATCH_MATMUL, GATHER and lookups. Shared constants stay shared.
An operator with another scheme in ``quant.precision`` gets codes of that scheme, or stays unchanged for ``float``. Also
unchanged: weights in other layouts, vectors, computed or quantised weights, and constants with infinity or NaN.
Constants other than weights of layers are also unchanged if codes would save no bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from operator import attrgetter
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, info_of, node_of, op_class, tensor_facts, tensor_type
from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.quantities import Names
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.quantizer.policy.schemes import FLOAT, fitted, on_grid, quantize_constant, scheme, weight_params
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import functions
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once, indices, operator
from odc_mlir.transforms.common.tensor_names import named, names_in
from odc_mlir.transforms.quant.common.conversion import conversion
from odc_mlir.transforms.quant.common.ir import PRECISION, all_ops, constant_of, is_float32, read_word

_WIDE = "int16"
DIRECT = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")

# Bytes in a file of an operator with a result, and of a scale with a zero point.
_OPERATOR_BYTES, _SCALE_BYTES = 256, 12


@dataclass(frozen=True)
class QuantWeightsOnlyPass(PatternPass):
    """Quantise weights."""

    name = "quant-weights-only"

    dtype: Literal["int8", "int16", "int4"] = "int8"
    """Element type of quantised weights."""

    form: Literal["dequantize", "direct"] = "dequantize"
    """Whether operators read dequantised or quantised weights."""

    scales: Literal["range", "fitted"] = "range"
    """Method of choosing scales."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (QuantizeWeights,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            uses = list(_weights(function, self.dtype))
            apply_once(
                function, QuantizeWeights(uses, self.form == "direct", self.scales == "fitted", names_in(function))
            )
            for constant in dict.fromkeys(use.constant for use in uses):
                if constant.result.first_use is None:
                    Rewriter.erase_op(constant)


class QuantizeWeights(RewritePattern):
    """Replace constant weights of an operator by codes, with a DEQUANTIZE unless the operator reads codes.

    Each constant is converted once per pair of channel axis (None for a single scale) and element type.
    """

    def __init__(self, uses: Sequence[_Use], direct: bool, fitted: bool, names: Names) -> None:
        self.direct, self.fitted, self.names = direct, fitted, names
        self.uses = {op: list(found) for op, found in groupby(uses, key=attrgetter("op"))}
        self.counts = Counter(use.constant for use in uses)
        self.made: dict[tuple[ConstOp, int | None, str], ConstOp | None] = {}
        self.reals: dict[ConstOp, SSAValue] = {}

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for use in self.uses.get(op, ()):
            key = use.constant, use.axis, use.dtype
            if key not in self.made:
                stays = len(set(use.constant.result.uses)) > self.counts[use.constant]
                self.made[key] = self._codes(*key, stays=stays or any(done is use.constant for done, *_ in self.made))
            codes = self.made[key]
            if codes is None:
                continue
            if takes_codes(use.op, use.index, use.dtype):
                look_up(use.op, codes.result, self.names)
            elif self.direct and use.op.SPEC.name in DIRECT:
                use.op.operands[use.index] = codes.result
            else:
                use.op.operands[use.index] = self._real(codes)
            self.counts[use.constant] -= 1
            rewriter.notify_op_modified(op)

    def _codes(self, constant: ConstOp, axis: int | None, dtype: str, *, stays: bool) -> ConstOp | None:
        """Insert the codes of a constant, or return None. If it ``stays``, the codes get a new name."""
        info = info_of(constant.result)
        info.data = constant.blob.data  # raises an error if the bytes are missing
        array = info.array()
        try:
            params = weight_params(array, axis, dtype, symmetric=True)
        except ModelError:
            return None
        params = on_grid(array, params, dtype)
        if self.fitted:
            params = fitted(array, params, dtype)
        codes = encode_constant(quantize_constant(array, params, dtype), dtype)
        made = ConstOp(BlobAttr.of(codes), tensor_type(dtype, info.shape, params))
        named(made, self.names.fresh(f"{info.name}_quantized") if stays else info.name)
        Rewriter.insert_op(made, InsertPoint.before(constant))
        return made

    def _real(self, codes: ConstOp) -> SSAValue:
        if codes not in self.reals:
            info = info_of(codes.result)
            back = conversion("DEQUANTIZE", codes.result, tensor_type("float32", info.shape))
            named(back, self.names.fresh(f"{info.name.removesuffix('_quantized')}_dequantized"))
            Rewriter.insert_op(back, InsertPoint.after(codes))
            self.reals[codes] = back.results[0]
        return self.reals[codes]


@dataclass(frozen=True, slots=True)
class _Use:
    """``constant``, operand ``index`` of ``op``, with the type and channel axis (None: one scale) of the codes."""

    op: CircleOp
    index: int
    axis: int | None
    constant: ConstOp
    dtype: str


def _weights(function: FuncOp, default: str) -> Iterator[_Use]:
    for op in all_ops(function):
        weights, precision = op.SPEC.quant.weights, read_word(op, PRECISION)
        if precision == FLOAT:
            continue
        dtype = default if precision is None else scheme(precision).weights
        if op.unverified is not None or op.option("weights_format") not in (None, "default"):
            continue
        for index, axis in op.SPEC.quant.trained(node_of(op).options).items():
            constant = constant_of(op.operands[index]) if index < len(op.operands) else None
            if constant is None or not is_float32(constant.result) or not is_float32(op.results[0]):
                continue
            shape = info_of(constant.result).static_shape
            if takes_codes(op, index, dtype) and not takes_rows(op, dtype):
                axis = None
            axis = None if axis is None else axis % max(len(shape), 1)
            if _is_smaller_wide(constant, axis, dtype):
                axis, dtype = None, _WIDE
            saves = _bytes(shape, axis, dtype) < _bytes(shape, None, "float32")
            if len(shape) > 1 and (index in weights or _is_coded_by_layers(constant) or saves):
                yield _Use(op, index, axis, constant, dtype)


def _is_smaller_wide(table: ConstOp, axis: int | None, dtype: str) -> bool:
    """Return whether a table needs fewer bytes in 16 bits with one scale than with row scales."""
    shape = info_of(table.result).static_shape
    return _bytes(shape, None, _WIDE) < _bytes(shape, axis, dtype) and is_moved_only(table.result)


def _is_coded_by_layers(constant: ConstOp) -> bool:
    return any(
        isinstance(op := use.operation, CircleOp)
        and use.index in op.SPEC.quant.weights
        and read_word(op, PRECISION) != FLOAT
        for use in constant.result.uses
    )


def _bytes(shape: tuple[int, ...], axis: int | None, dtype: str) -> int:
    scales = 1 if axis is None else shape[axis]
    added = 0 if dtype == "float32" else _OPERATOR_BYTES + _SCALE_BYTES * scales
    return prod(shape) * DTYPES[dtype].bits // 8 + added


_ROWS = "EMBEDDING_LOOKUP"
_ROW_CODES = ("int8", "int4")  # types of the codes that EMBEDDING_LOOKUP dequantises
_MOVED = ("int8", "int16")
_IDS = ("int32", "int64")  # int64 indices become the int32 of other runtimes, which suffices for all tables


def takes_codes(op: CircleOp, index: int, dtype: str) -> bool:
    """Return whether ``op`` can look up codes of this type in operand ``index``. See :func:`look_up`."""
    return op.SPEC.quant.source == index and (dtype in _MOVED or takes_rows(op, dtype))


def takes_rows(op: CircleOp, dtype: str) -> bool:
    """Return whether ``op`` looks up whole rows. Each row can then have a scale."""
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
    """Return whether all readers of a table look up codes of 8 or 16 bits in other runtimes as well."""
    readers = ((use.operation, use.index) for use in table.uses)
    return all(
        isinstance(op, CircleOp) and op.SPEC.name != _ROWS and takes_codes(op, index, _MOVED[-1])
        for op, index in readers
    )


def look_up(op: CircleOp, codes: SSAValue, names: Names) -> None:
    """Make ``op`` look up ``codes``, with one scale or one scale per row, instead of floats."""
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
        flat = indices([count], names.fresh(f"{label}/ids_shape"))
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
        whole = indices(shape, names.fresh(f"{label}/shape"))
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
