"""Canonicalization patterns of circle operators, which preserve results.

The patterns remove operators without effect, and merge pairs of operators that only move values. Quantised results are
bit-exact. Float results are equal, but ``x + 0`` can change the sign of zero. A function result stays the result of its
operator. xDSL's ``canonicalize`` gets the patterns from a trait of the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.numerics.fixed import code_range
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import rewriting

RESIZES = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")


@dataclass(frozen=True)
class DropIdentity(rewriting.OperatorPattern):
    """Remove an operator if the result equals an operand."""

    names: frozenset[str] = field(default_factory=lambda: frozenset(_IDENTITIES))

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if len(op.results) != 1 or rewriting.is_returned(op.results[0]) or rewriting.activation(op) != "none":
            return
        value, result = _IDENTITIES[op.SPEC.name](op), op.results[0]
        if value is None or not rewriting.is_same_element(value, result):
            return
        if rewriting.shape_of(value) == rewriting.shape_of(result) is not None:
            rewriter.replace(op, [], [value])


class MergeViews(rewriting.OperatorPattern):
    """Make RESHAPE of a view read the operand of the view."""

    names = frozenset({"RESHAPE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view = rewriting.producer(op.operands[0], *rewriting.VIEWS)
        if view is not None and rewriting.is_same_element(view.operands[0], view.results[0]):
            op.operands[0] = view.operands[0]
            rewriter.notify_op_modified(op)


class MergeTransposes(rewriting.OperatorPattern):
    """Merge TRANSPOSE of a TRANSPOSE."""

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        inner = rewriting.producer(op.operands[0], "TRANSPOSE")
        first = None if inner is None else rewriting.constant(inner.operands[1])
        second = rewriting.constant(op.operands[1])
        if inner is None or first is None or second is None:
            return
        if not rewriting.is_same_element(inner.operands[0], inner.results[0]):
            return
        joined = rewriting.indices(first[second], f"{value_name(op.results[0])}/perm")
        merged = rewriting.operator("TRANSPOSE", [inner.operands[0], joined.result], op.results[0])
        rewriter.replace(op, [joined, merged])


class TransposeToReshape(rewriting.OperatorPattern):
    """Replace a TRANSPOSE that moves only extents of 1 by a RESHAPE."""

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, result, order = op.operands[0], op.results[0], rewriting.constant(op.operands[1])
        shape, facts = rewriting.static_shape_of(source), tensor_facts(result.type)
        if order is None or shape is None or facts.shape is None or not rewriting.is_same_element(source, result):
            return
        moved = [int(axis) for axis in order if shape[int(axis)] != 1]
        is_identity = list(order) == sorted(order)
        if is_identity or moved != sorted(moved) or (facts.quant is not None and not facts.quant.per_tensor):
            return
        rewriter.replace(op, rewriting.reshaped(source, result, [shape[int(axis)] for axis in order]))


class SearchType(rewriting.OperatorPattern):
    """Let ARG_MAX and ARG_MIN compute the index type that their only reader, a CAST, converts to."""

    names = frozenset({"CAST"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        search, result = rewriting.producer(op.operands[0], "ARG_MAX", "ARG_MIN"), op.results[0]
        kind = tensor_facts(result.type).dtype
        if search is not None and rewriting.is_used_once(op.operands[0]) and kind in ("int32", "int64"):
            rewriter.replace(op, [rewriting.operator(search.SPEC.name, search.operands, result, {"output_type": kind})])
            rewriter.erase(search)


def _neutral(number: int, *, either: bool) -> Callable[[CircleOp], SSAValue | None]:
    """Return a rule that selects one operand if the other operand is a constant filled with ``number``.

    Without ``either``, the constant must be the right operand.
    """

    def rule(op: CircleOp) -> SSAValue | None:
        left, right = op.operands
        if tensor_facts(op.results[0].type).quant is not None:
            return None
        for value, other in ((left, right), (right, left))[: 2 if either else 1]:
            array = rewriting.constant(other)
            if array is not None and array.dtype.kind in "fiu" and array.size and np.all(array == number):
                return value
        return None

    return rule


def _end_of_codes(op: CircleOp) -> SSAValue | None:
    """Return the other operand of a MAXIMUM with the lowest code, or of a MINIMUM with the highest code."""
    for value, other in rewriting.pairs(op):
        codes = rewriting.constant(other)
        if codes is None or tensor_facts(other.type).quant is None or not rewriting.is_same_element(value, other):
            continue
        low, high = code_range(codes.dtype)
        if codes.size and np.all(codes == (low if op.SPEC.name == "MAXIMUM" else high)):
            return value
    return None


def _same_size(place: int = 0) -> Callable[[CircleOp], SSAValue | None]:
    def rule(op: CircleOp) -> SSAValue | None:
        return op.operands[place] if rewriting.static_shape_of(op.operands[place]) is not None else None

    return rule


def _unit_strides(op: CircleOp) -> SSAValue | None:
    strides, shape = rewriting.constant(op.operands[3]), rewriting.static_shape_of(op.operands[0])
    return op.operands[0] if shape and strides is not None and np.all(strides == 1) else None


def _identity_order(op: CircleOp) -> SSAValue | None:
    order = rewriting.constant(op.operands[1])
    return op.operands[0] if order is not None and list(order) == list(range(len(order))) else None


_IDENTITIES: Mapping[str, Callable[[CircleOp], SSAValue | None]] = {
    "ADD": _neutral(0, either=True),
    "SUB": _neutral(0, either=False),
    "MUL": _neutral(1, either=True),
    "DIV": _neutral(1, either=False),
    **dict.fromkeys(
        (*rewriting.VIEWS, "SLICE", "PAD", "PADV2", "MIRROR_PAD", "TILE", "BROADCAST_TO", *RESIZES), _same_size()
    ),
    "SPLIT": _same_size(1),
    "SPLIT_V": _same_size(),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), _end_of_codes),
    "STRIDED_SLICE": _unit_strides,
    "TRANSPOSE": _identity_order,
    "CONCATENATION": lambda op: op.operands[0] if len(op.operands) == 1 else None,
    **dict.fromkeys(("CAST", "QUANTIZE"), lambda op: op.operands[0]),
}


@cache
def canonicalization_patterns(name: str | None = None) -> tuple[rewriting.OperatorPattern, ...]:
    """Return the patterns for the operator ``name``, or all patterns."""
    patterns = (DropIdentity(), MergeViews(), MergeTransposes(), TransposeToReshape(), SearchType())
    return tuple(pattern for pattern in patterns if name is None or name in pattern.names)
