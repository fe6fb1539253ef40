"""QUANTIZE, DEQUANTIZE and FAKE_QUANT that a later quantisation makes superfluous, and guards of indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.common import rewriting


class QuantizeAgain(rewriting.OperatorPattern):
    """Make QUANTIZE of a QUANTIZE read the first operand: one rounding instead of two."""

    names = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        first = rewriting.producer(op.operands[0], "QUANTIZE")
        if first is not None:
            rewriter.replace(op, rewriting.copy_of(op, first.operands, op.results[0]))


class BackToReal(rewriting.OperatorPattern):
    """DEQUANTIZE of a QUANTIZE gives the real values that were rounded."""

    names = frozenset({"DEQUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        first = rewriting.producer(op.operands[0], "QUANTIZE")
        if first is not None and rewriting.is_real(first.operands[0]) and not rewriting.is_returned(op.results[0]):
            rewriter.replace(op, [], [first.operands[0]])


@dataclass(frozen=True)
class LastPair(rewriting.OperatorPattern):
    """Of two pairs of QUANTIZE and DEQUANTIZE in a row the last stays."""

    names: frozenset[str] = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        back = rewriting.producer(op.operands[0], "DEQUANTIZE")
        first = None if back is None else rewriting.producer(back.operands[0], "QUANTIZE")
        if first is not None and rewriting.is_real(first.operands[0]):
            rewriter.replace(op, rewriting.copy_of(op, first.operands, op.results[0]))


class DropFakeQuant(rewriting.OperatorPattern):
    """Remove FAKE_QUANT without rounding its operand."""

    names = frozenset({"FAKE_QUANT"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if not rewriting.is_returned(op.results[0]):
            rewriter.replace(op, [], [op.operands[0]])


class GatherGuard(rewriting.OperatorPattern):
    """GATHER by ``floor_mod(index + n, n)`` reads ``index``: the user says that none is negative."""

    names = frozenset({"GATHER"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        remainder = rewriting.producer(op.operands[1], "FLOOR_MOD")
        total = None if remainder is None else rewriting.producer(remainder.operands[0], "ADD")
        shape = rewriting.shape_of(op.operands[0])
        if remainder is None or total is None or not shape or rewriting.activation(total) != "none":
            return
        extent = shape[int(op.option("axis") or 0) % len(shape)]
        for index, other in (total.operands, tuple(total.operands)[::-1]):
            added, divisor = rewriting.constant(other), rewriting.constant(remainder.operands[1])
            if added is None or divisor is None or extent is None:
                continue
            if np.all(added == extent) and np.all(divisor == extent):
                rewriter.replace(op, rewriting.copy_of(op, [op.operands[0], index], op.results[0]))
                return
