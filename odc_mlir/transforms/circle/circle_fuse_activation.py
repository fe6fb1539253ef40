"""``circle-fuse-activation``: fuse activations into the operators before them.

Before::

    %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : … -> tensor<1x8x8x4xf32>
    %1 = circle.relu6(%0) : (tensor<1x8x8x4xf32>) -> tensor<1x8x8x4xf32>

After: ``%1 = circle.conv_2d(%x, %w, %b) {…, activation = relu6}``, with the name of the activation's result.

RELU, RELU6 and RELU_N1_TO_1 are fused if no other operator reads the operand. TANH is fused only on request. An
operator that already has an activation is fused with a second activation if a single activation has the same effect. A
quantised activation is fused if its operand and result have the same scale and zero point: it only clamps. Results are
bit-exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    PatternPass,
    activation,
    copy_of,
    is_real,
    is_used_once,
    producer,
)

# Operators whose fused activation clamps the result, in the kernels of every reader.
PRODUCERS = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"),
    *("ADD", "SUB", "MUL", "DIV", "AVERAGE_POOL_2D", "MAX_POOL_2D"),
)
CLAMPS = frozenset({"RELU", "RELU6", "RELU_N1_TO_1"})

# Pairs of activations with the effect of one activation.
_TOGETHER = {("relu", "relu6"): "relu6", ("relu6", "relu"): "relu6"}


@dataclass(frozen=True)
class CircleFuseActivationPass(PatternPass):
    """Fuse activations into the operators before them."""

    name = "circle-fuse-activation"

    tanh: bool = False
    """Fuse float TANH as well: ONE's kernels support it, TFLite's reject it."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FuseActivation,)

    def configured(self) -> Sequence[RewritePattern]:
        return [FuseActivation(CLAMPS | {"TANH"} if self.tanh else CLAMPS)]


@dataclass(frozen=True)
class FuseActivation(OperatorPattern):
    """Fuse an activation of ``names`` into the operator before it if that operator can apply it."""

    names: frozenset[str]

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source = op.operands[0]
        before = producer(source, *PRODUCERS)
        if before is None or not is_used_once(source) or not _keeps_codes(op):
            return
        fused = together(activation(before), op.SPEC.mnemonic)
        if fused is None:
            return
        merged = copy_of(before, before.operands, op.results[0], {"fused_activation_function": fused})
        rewriter.replace(op, merged)
        rewriter.erase(before)


def together(first: str, second: str) -> str | None:
    """Return the activation with the effect of ``first``, then ``second``, or None."""
    if first in ("none", second):
        return second if first == "none" or second != "tanh" else None
    return _TOGETHER.get((first, second))


def _keeps_codes(op: CircleOp) -> bool:
    if is_real(op.operands[0]):
        return is_real(op.results[0])
    source, result = (tensor_facts(value.type) for value in (op.operands[0], op.results[0]))
    is_same = source.dtype == result.dtype and source.quant is not None and source.quant == result.quant
    return is_same and op.SPEC.name in CLAMPS
