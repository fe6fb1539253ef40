"""``quant-fold-requantize``: drop conversions without effect, or that the next one undoes.

Before::

    %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
    %1 = circle.quantize(%0) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
    %2 = circle.relu(%1) : …

After::

    %2 = circle.relu(%x) : …

Quantised values do not change:

* QUANTIZE to its operand's type is dropped, and so is one that undoes a DEQUANTIZE.
* If QUANTIZE only changes values by 128 (int8 to uint8 or back, same scale), a conversion after it starts from the
  values before, and a QUANTIZE from float before it produces the changed values directly.

``superseded``: of two consecutive QUANTIZE the first is dropped as well, and so is a DEQUANTIZE between two QUANTIZE.
The result is then rounded once instead of twice, so some values differ from those of the original model.

Unchanged: values of more than 16 bits, which float cannot represent exactly; per-channel conversions; conversions that
give a function result its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.dialects.circle_types import TensorFacts
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.transforms.common.rewriting import OperatorPattern, PatternPass, apply_patterns

_LARGEST_BITS = 16  # of codes that float32 represents exactly
_MIDDLE = 128


@dataclass(frozen=True)
class QuantFoldRequantizePass(PatternPass):
    """Drop conversions; see the module's text."""

    name = "quant-fold-requantize"

    superseded: bool = False
    """Whether to also drop conversions that only round a second time."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (SkipConversion, DropQuantize)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, [SkipConversion(self.superseded), DropQuantize()])


@dataclass
class SkipConversion(OperatorPattern):
    """Convert the operand of the conversion before, where that gives the same codes."""

    names = frozenset({"QUANTIZE", "DEQUANTIZE"})
    superseded: bool

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        before = op.operands[0].owner
        if isinstance(before, CircleOp) and self._may_skip(before, op):
            op.operands[0] = before.operands[0]
            rewriter.notify_op_modified(op)

    def _may_skip(self, before: CircleOp, op: CircleOp) -> bool:
        """Return whether ``op`` gives the same codes for the operand of ``before`` as for its result."""
        if before.SPEC.name not in self.names:
            return False
        origin, middle, final = (tensor_facts(v.type) for v in (before.operands[0], before.results[0], op.results[0]))
        if before.SPEC.name == "DEQUANTIZE":
            if op.SPEC.name != "QUANTIZE" or not _is_narrow(origin) or not _is_narrow(final):
                return False
            return before.operands[0].type == op.results[0].type or self.superseded
        if not _is_narrow(middle):
            return False
        if _is_narrow(origin):
            return _only_moves(origin, middle) or (self.superseded and op.SPEC.name == "QUANTIZE")
        if origin.dtype != "float32" or op.SPEC.name != "QUANTIZE" or not _is_narrow(final):
            return False
        return _only_moves(middle, final) or self.superseded


class DropQuantize(OperatorPattern):
    """Drop QUANTIZE to the type of its operand."""

    names = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if op.operands[0].type == op.results[0].type and not _is_returned(op.results[0]):
            rewriter.replace(op, [], [op.operands[0]])


def _is_narrow(facts: TensorFacts) -> bool:
    """Return whether a type is quantised per tensor with at most 16 bits."""
    return facts.quant is not None and facts.quant.per_tensor and DTYPES[facts.dtype].bits <= _LARGEST_BITS


def _only_moves(a: TensorFacts, b: TensorFacts) -> bool:
    """Return whether codes of one type become codes of the other by adding or subtracting 128, or 0."""
    if a.quant is None or b.quant is None or a.quant.scales != b.quant.scales:
        return False
    shifts = {("int8", "uint8"): _MIDDLE, ("uint8", "int8"): -_MIDDLE}
    shift = shifts.get((a.dtype, b.dtype), 0 if a.dtype == b.dtype else None)
    return shift is not None and b.quant.zero_point - a.quant.zero_point == shift


def _is_returned(value: SSAValue) -> bool:
    return any(isinstance(use.operation, ReturnOp) for use in value.uses)
