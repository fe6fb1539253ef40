"""Merging of real sums, products and means."""

from __future__ import annotations

import numpy as np
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import rewriting


def _axes(op: CircleOp) -> tuple[int, ...] | None:
    """The constant axes of a reduction, none negative."""
    array, shape = rewriting.constant(op.operands[1]), rewriting.shape_of(op.operands[0])
    return None if array is None or not shape else tuple(int(axis) % len(shape) for axis in array.reshape(-1))


class MeanOfMean(rewriting.OperatorPattern):
    """Two MEANs in a row are one over all axes: every group has the same size."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        inner = rewriting.producer(op.operands[0], "MEAN")
        if inner is None or not rewriting.is_used_once(op.operands[0]) or not rewriting.is_real(op.results[0]):
            return
        first, second, shape = _axes(inner), _axes(op), rewriting.shape_of(inner.operands[0])
        keeps = bool(op.option("keep_dims"))
        if first is None or second is None or shape is None or bool(inner.option("keep_dims")) != keeps:
            return
        left = [axis for axis in range(len(shape)) if keeps or axis not in first]
        joined = sorted({*first, *(left[axis] for axis in second)})
        if keeps and joined != list(range(joined[0], joined[-1] + 1)):
            return  # two runs of dimensions: machines reduce neighbours
        axes = rewriting.make_constant(np.array(joined, np.int32), "int32", f"{value_name(op.results[0])}/axes")
        merged = rewriting.copy_of(op, [inner.operands[0], axes.result], op.results[0])
        rewriter.replace(op, [axes, merged], [merged.results[0]])


class MeanOfRuns(rewriting.OperatorPattern):
    """MEAN along axes with a gap is a MEAN along each run of neighbours."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        axes, shape = _axes(op), rewriting.static_shape_of(op.operands[0])
        if axes is None or shape is None or not op.option("keep_dims") or not rewriting.is_real(op.results[0]):
            return
        reduced = sorted(set(axes))
        gap = next((n for n in range(1, len(reduced)) if reduced[n] > reduced[n - 1] + 1), None)
        if gap is None:
            return
        name = value_name(op.results[0])
        runs = [
            rewriting.make_constant(np.array(run, np.int32), "int32", f"{name}/axes{number}")
            for number, run in enumerate((reduced[:gap], reduced[gap:]))
        ]
        kept = tuple(1 if axis in reduced[:gap] else extent for axis, extent in enumerate(shape))
        first = rewriting.part("MEAN", [op.operands[0], runs[0].result], op.results[0], "mean", kept, keep_dims=True)
        last = rewriting.copy_of(op, [first.results[0], runs[1].result], op.results[0])
        rewriter.replace(op, [*runs, first, last], [last.results[0]])


class MeanOfTranspose(rewriting.OperatorPattern):
    """MEAN of a TRANSPOSE reads what that reads, where the dimensions left are in order."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        turned = rewriting.producer(op.operands[0], "TRANSPOSE")
        axes = _axes(op)
        order = None if turned is None else rewriting.constant(turned.operands[1])
        if turned is None or axes is None or order is None or not rewriting.is_real(op.results[0]):
            return
        moved = sorted(int(order[axis]) for axis in axes)
        left = [int(axis) for axis in order if int(axis) not in moved]
        # Kept dimensions of extent 1 stand where the permutation put them.
        if left != sorted(left) or (op.option("keep_dims") and moved != sorted(axes)):
            return
        made = rewriting.make_constant(np.array(moved, np.int32), "int32", f"{value_name(op.results[0])}/axes")
        mean = rewriting.copy_of(op, [turned.operands[0], made.result], op.results[0])
        rewriter.replace(op, [made, mean], [mean.results[0]])


class ProductOfQuotient(rewriting.OperatorPattern):
    """``(a / x) * b`` with constants ``a`` and ``b`` is ``(a * b) / x``."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for value, factor in (op.operands, tuple(op.operands)[::-1]):
            quotient, number = rewriting.producer(value, "DIV"), rewriting.real_constant(factor)
            above = None if quotient is None else rewriting.real_constant(quotient.operands[0])
            if quotient is None or number is None or above is None or rewriting.activation(quotient) != "none":
                continue
            if not rewriting.is_used_once(value) or number.size != 1:
                continue
            name = value_name(op.results[0])
            product = rewriting.real(above * number.reshape(-1)[0], f"{name}/numerator")
            options = {"fused_activation_function": rewriting.activation(op)}
            merged = rewriting.operator("DIV", [product.result, quotient.operands[1]], op.results[0], options)
            rewriter.replace(op, [product, merged], [merged.results[0]])
            return


class DifferenceToSum(rewriting.OperatorPattern):
    """``x - c`` with a constant is ``x + (-c)``."""

    names = frozenset({"SUB"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        number = rewriting.real_constant(op.operands[1])
        if number is None or not rewriting.is_real(op.operands[0]) or not rewriting.is_real(op.results[0]):
            return
        negated = rewriting.real(-number, f"{value_name(op.results[0])}/rhs")
        options = {"fused_activation_function": rewriting.activation(op)}
        made = rewriting.operator("ADD", [op.operands[0], negated.result], op.results[0], options)
        rewriter.replace(op, [negated, made], [made.results[0]])
