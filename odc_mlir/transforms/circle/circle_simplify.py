"""``circle-simplify``: canonicalize operators, and permute weights of layers instead of their inputs.

Before::

    %0 = circle.transpose(%x, %p) : … -> tensor<1x4x2x2xi8>
    %1 = circle.transpose(%0, %q) : … -> tensor<1x2x2x4xi8>
    %2 = circle.pad(%1, %none) : … -> tensor<1x2x2x4xi8>
    %3 = circle.reshape(%2, %s) : … -> tensor<1x16xi8>
    %4 = circle.reshape(%3, %t) : … -> tensor<4x4xi8>

After, if the permutations cancel and nothing is padded: ``%4 = circle.reshape(%x, %t)``.

The canonicalization patterns of operators, which ``canonicalize`` applies as well:

- no effect: addition of 0 and multiplication by 1 in unquantised types, RESHAPE and similar operators to the same
  shape, TRANSPOSE that keeps the order, CAST to the same type, QUANTIZE to the same parameters, MAXIMUM with the lowest
  code, MINIMUM with the highest code, and SLICE, PAD, TILE, SPLIT, RESIZE … that return the whole operand
- chains: RESHAPE of a view, TRANSPOSE of a TRANSPOSE, CAST of ARG_MAX or ARG_MIN
- A TRANSPOSE that moves only dimensions of extent 1 becomes a RESHAPE. A RESHAPE costs nothing.

In addition, if a fully connected layer reads an image that is transposed to channels first and flattened, the pass
permutes the layer's weights instead. Floating-point sums in the other order may round differently. Quantised results
are bit-exact. A function result stays the result of its operator.

Operators that move floats between DEQUANTIZE and element-wise operators, for example SPLIT, move the codes instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, tensor_facts
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.spec import Shape, Trait
from odc_mlir.support.locations import name_loc, names_loc, value_name
from odc_mlir.transforms.circle.rewrites.canonical import canonicalization_patterns
from odc_mlir.transforms.circle.rewrites.layout import is_simple
from odc_mlir.transforms.common.rewriting import (
    VIEWS,
    OperatorPattern,
    PatternPass,
    WeightedLayer,
    activation,
    constant,
    constant_name,
    is_real,
    is_same_element,
    is_stored_whole,
    is_used_once,
    operator,
    producer,
    shape_of,
)


class CircleSimplifyPass(PatternPass):
    """Drop and merge operators that only move values."""

    name = "circle-simplify"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (*map(type, canonicalization_patterns()), OrderOfRows, MoveCodes)

    def configured(self) -> Sequence[RewritePattern]:
        return [*canonicalization_patterns(), OrderOfRows(), MoveCodes()]


class OrderOfRows(OperatorPattern):
    """Fold a TRANSPOSE of the rows of FULLY_CONNECTED into its constant weights."""

    names = frozenset({"FULLY_CONNECTED"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        layer, view = WeightedLayer.of(op), producer(op.operands[0], "RESHAPE")
        turned = None if view is None else producer(view.operands[0], "TRANSPOSE")
        if layer is None or view is None or turned is None or layer.input != 0:
            return
        if not (is_used_once(view.results[0]) and is_used_once(turned.results[0]) and is_simple(turned.operands[0])):
            return
        old = op.operands[layer.weights]
        weights, order, shape = constant(old), constant(turned.operands[1]), shape_of(turned.results[0])
        if weights is None or order is None or shape is None or weights.ndim != 2 or not _is_rows(old):
            return
        first = _first_of_rows(shape, weights.shape[1])
        if first is None or any(int(axis) != place for place, axis in enumerate(order[:first])):
            return
        parts = weights.reshape(len(weights), *(extent or 0 for extent in shape[first:]))
        axes = [1 + list(order).index(axis) - first for axis in range(first, len(shape))]
        made = ConstOp(BlobAttr.of(parts.transpose(0, *axes).tobytes()), old.type)
        made.location = name_loc(constant_name(old, layer.name, "weights"))
        rewriter.insert(made, InsertPoint.before(op))
        op.operands[layer.weights] = made.result
        view.operands[0] = turned.operands[0]
        rewriter.erase(turned)
        rewriter.notify_op_modified(op)


class MoveCodes(OperatorPattern):
    """Move the codes before DEQUANTIZE instead of its floats if element-wise operators read the floats.

    A DEQUANTIZE of a QUANTIZE stays: such pairs state how to quantise a float model.
    """

    names = frozenset(
        (*VIEWS, "CONCATENATION", "GATHER", "PACK", "PAD", "REVERSE_V2", "SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE")
        + ("TILE", "TRANSPOSE", "UNPACK")
    )

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        floats = dict.fromkeys(value for value in op.operands if is_real(value))
        codes = {value: made.operands[0] for value in floats if (made := producer(value, "DEQUANTIZE")) is not None}
        if not codes or len(codes) < len(floats) or activation(op) != "none":
            return
        if not all(self._is_reader(use.operation) for result in op.results for use in result.uses):
            return
        first = next(iter(codes.values()))
        if not all(_is_computed_code(value) and is_same_element(value, first) for value in codes.values()):
            return
        moved = type(op).create(
            operands=[codes.get(value, value) for value in op.operands],
            result_types=[with_shape(first.type, shape_of(result)) for result in op.results],
            properties=op.properties,
            attributes=dict(op.attributes),
            location=names_loc([f"{value_name(result)}/codes" for result in op.results]),
        )
        back = [operator("DEQUANTIZE", [new], old) for new, old in zip(moved.results, op.results, strict=True)]
        rewriter.replace(op, [moved, *back], [item.results[0] for item in back])

    def _is_reader(self, op: Operation) -> bool:
        return isinstance(op, CircleOp) and (op.SPEC.name in self.names or Trait.ELEMENTWISE in op.SPEC.traits)


def _is_computed_code(value: SSAValue) -> bool:
    dtype, _, quant, _ = tensor_facts(value.type)
    is_code = dtype in CODE_DTYPES and quant is not None and quant.per_tensor
    return is_code and constant(value) is None and producer(value, "QUANTIZE") is None


def _is_rows(weights: SSAValue) -> bool:
    quant = tensor_facts(weights.type).quant
    return is_stored_whole(weights) and (quant is None or quant.per_tensor or quant.axis == 0)


def _first_of_rows(shape: Shape, columns: int) -> int | None:
    size = 1
    for place in range(len(shape) - 1, -1, -1):
        extent = shape[place]
        if extent is None or size * extent > columns:
            return None
        size *= extent
        if size == columns and place < len(shape) - 1:
            return place
    return None
