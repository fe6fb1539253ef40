"""``circle-simplify``: drop operators without effect, and merge pairs of operators.

Before::

    %0 = circle.transpose(%x, %p) : … -> tensor<1x4x2x2xi8>
    %1 = circle.transpose(%0, %q) : … -> tensor<1x2x2x4xi8>
    %2 = circle.pad(%1, %none) : … -> tensor<1x2x2x4xi8>
    %3 = circle.reshape(%2, %s) : … -> tensor<1x16xi8>
    %4 = circle.reshape(%3, %t) : … -> tensor<4x4xi8>

After, if the permutations cancel and nothing is padded: ``%4 = circle.reshape(%x, %t)``.

* no effect: addition of 0 and multiplication by 1 in unquantised types, RESHAPE and the like to the same shape,
  TRANSPOSE that keeps the order, SLICE, PAD, TILE, SPLIT, RESIZE … that return their whole operand, CAST to the same
  type, QUANTIZE to the same parameters;
* chains: RESHAPE of a view, TRANSPOSE of a TRANSPOSE;
* images transposed to channels first and flattened for a fully connected layer: the order is folded into its weights;
* TRANSPOSE that moves only dimensions of extent 1 becomes a RESHAPE, which costs nothing.

Quantised results are bit-exact. In floating point, ``x + 0`` would have turned a negative zero into a positive one, and
sums over rows in another order may round differently. A function result stays the result of its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, tensor_facts
from odc_mlir.ops.spec import Shape
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.layout.rules import is_simple
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    PatternPass,
    WeightedLayer,
    activation,
    apply_patterns,
    constant,
    constant_name,
    is_returned,
    is_stored_whole,
    is_used_once,
    make_constant,
    operator,
    producer,
    shape_of,
    static_shape_of,
)

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
RESIZES = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")


@dataclass(frozen=True)
class CircleSimplifyPass(PatternPass):
    """Drop and merge operators that only move values about; see the module's text."""

    name = "circle-simplify"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (DropIdentity, MergeViews, MergeTransposes, TransposeToReshape, OrderOfRows)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, _patterns())


@dataclass(frozen=True)
class DropIdentity(OperatorPattern):
    """An operator, one of ``names``, whose result is one of its operands."""

    names: frozenset[str] = field(default_factory=lambda: frozenset(_IDENTITIES))

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if len(op.results) != 1 or is_returned(op.results[0]) or activation(op) != "none":
            return
        value = _IDENTITIES[op.SPEC.name](op)
        if value is not None and _is_same_type(value, op.results[0]):
            rewriter.replace(op, [], [value])


class MergeViews(OperatorPattern):
    """RESHAPE of a view reads what the view reads."""

    names = frozenset({"RESHAPE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view = producer(op.operands[0], *VIEWS)
        if view is not None and _is_same_element(view.operands[0], view.results[0]):
            op.operands[0] = view.operands[0]
            rewriter.notify_op_modified(op)


class MergeTransposes(OperatorPattern):
    """TRANSPOSE of a TRANSPOSE has one permutation."""

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        inner = producer(op.operands[0], "TRANSPOSE")
        first = None if inner is None else constant(inner.operands[1])
        second = constant(op.operands[1])
        if (
            inner is None
            or first is None
            or second is None
            or not _is_same_element(inner.operands[0], inner.results[0])
        ):
            return
        joined = make_constant(first[second].astype(np.int32), "int32", f"{value_name(op.results[0])}/perm")
        merged = operator("TRANSPOSE", [inner.operands[0], joined.result], op.results[0])
        rewriter.replace(op, [joined, merged], [merged.results[0]])


class TransposeToReshape(OperatorPattern):
    """A TRANSPOSE that keeps the order of all extents but 1 keeps the order of elements."""

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, result, order = op.operands[0], op.results[0], constant(op.operands[1])
        shape, facts = static_shape_of(source), tensor_facts(result.type)
        if order is None or shape is None or facts.shape is None or not _is_same_element(source, result):
            return
        moved = [int(axis) for axis in order if shape[int(axis)] != 1]
        is_identity = list(order) == sorted(order)
        if is_identity or moved != sorted(moved) or (facts.quant is not None and not facts.quant.per_tensor):
            return
        extents = [shape[int(axis)] for axis in order]
        wanted = make_constant(np.array(extents, np.int32), "int32", f"{value_name(result)}/shape")
        view = operator("RESHAPE", [source, wanted.result], result, {"new_shape": extents})
        rewriter.replace(op, [wanted, view], [view.results[0]])


class OrderOfRows(OperatorPattern):
    """FULLY_CONNECTED of rows that a TRANSPOSE has put in order has the order in its constant weights."""

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


def _is_rows(weights: SSAValue) -> bool:
    """Whether a constant is stored element by element, with one scale or one for each row."""
    quant = tensor_facts(weights.type).quant
    return is_stored_whole(weights) and (quant is None or quant.per_tensor or quant.axis == 0)


def _first_of_rows(shape: Shape, columns: int) -> int | None:
    """The dimension from which on a row of so many columns lies; None where no dimensions are just that."""
    size = 1
    for place in range(len(shape) - 1, -1, -1):
        extent = shape[place]
        if extent is None or size * extent > columns:
            return None
        size *= extent
        if size == columns and place < len(shape) - 1:
            return place
    return None


def _patterns() -> list[OperatorPattern]:
    return [DropIdentity(), MergeViews(), MergeTransposes(), TransposeToReshape(), OrderOfRows()]


def _is_same_element(a: SSAValue, b: SSAValue) -> bool:
    first, second = tensor_facts(a.type), tensor_facts(b.type)
    return first.dtype == second.dtype and first.quant == second.quant


def _is_same_type(a: SSAValue, b: SSAValue) -> bool:
    """Whether two types differ in recorded ranges at most."""
    return _is_same_element(a, b) and shape_of(a) is not None and shape_of(a) == shape_of(b)


def _is_plain(op: CircleOp) -> bool:
    """Whether the operator works on numbers, not on codes of numbers."""
    return tensor_facts(op.results[0].type).quant is None


def _neutral(number: int, *, either: bool) -> Callable[[CircleOp], SSAValue | None]:
    """The operand beside a constant that holds nothing but ``number``; ``either`` side of it, or the left only."""

    def rule(op: CircleOp) -> SSAValue | None:
        left, right = op.operands
        if not _is_plain(op):
            return None
        for value, other in ((left, right), (right, left))[: 2 if either else 1]:
            array = constant(other)
            if array is not None and array.dtype.kind in "fiu" and array.size and np.all(array == number):
                return value
        return None

    return rule


def _same_size(place: int = 0) -> Callable[[CircleOp], SSAValue | None]:
    """Operand ``place`` where the static shapes agree: the operator then gives every element at its own place."""

    def rule(op: CircleOp) -> SSAValue | None:
        return op.operands[place] if static_shape_of(op.operands[place]) is not None else None

    return rule


def _only_operand(op: CircleOp) -> SSAValue | None:
    return op.operands[0] if len(op.operands) == 1 else None


def _unit_strides(op: CircleOp) -> SSAValue | None:
    strides = constant(op.operands[3])
    return op.operands[0] if strides is not None and np.all(strides == 1) and static_shape_of(op.operands[0]) else None


def _identity_order(op: CircleOp) -> SSAValue | None:
    order = constant(op.operands[1])
    return op.operands[0] if order is not None and list(order) == list(range(len(order))) else None


def _first(op: CircleOp) -> SSAValue | None:
    return op.operands[0]


_IDENTITIES: Mapping[str, Callable[[CircleOp], SSAValue | None]] = {
    "ADD": _neutral(0, either=True),
    "SUB": _neutral(0, either=False),
    "MUL": _neutral(1, either=True),
    "DIV": _neutral(1, either=False),
    **dict.fromkeys((*VIEWS, "SLICE", "PAD", "PADV2", "MIRROR_PAD", "TILE", "BROADCAST_TO", *RESIZES), _same_size()),
    "SPLIT": _same_size(1),
    "SPLIT_V": _same_size(),
    "STRIDED_SLICE": _unit_strides,
    "TRANSPOSE": _identity_order,
    "CONCATENATION": _only_operand,
    "CAST": _first,
    "QUANTIZE": _first,
}
