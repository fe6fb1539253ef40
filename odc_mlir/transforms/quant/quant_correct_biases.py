"""``quant-correct-biases``: add corrections to the biases of a quantised model.

Before, with a file that contains ``{"conv": [3, -2]}``::

    %b = circle.const [100, 200] : tensor<2x!quant.uniform<i32:f32:0, {0.01, 0.02}>>
    %0 = circle.conv_2d(%x, %w, %b) … loc("conv")

After: ``%b`` is ``[103, 198]``.

The name of a result identifies a layer. Corrections are integers in units of the bias's scale, or floats for a float
bias. Results that overflow the bias type are clamped, with a warning. Does nothing without ``corrections``. Rejects
unknown names, layers without a constant bias, and corrections of the wrong length or kind.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import ModelError
from odc_mlir.numerics.bias_correction import corrected
from odc_mlir.ops.spec import Array
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to
from odc_mlir.transforms.quant.common.layers import LayerConstant, layer_constants, load_arrays

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuantCorrectBiasesPass(PatternPass):
    """Add corrections to biases."""

    name = "quant-correct-biases"

    corrections: str = ""
    """.npz file with one array for each layer, by the name of its result."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (CorrectBias,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.corrections:
            correct_biases(op, load_arrays(self.corrections, "corrections"))


def correct_biases(module: ModuleOp, deltas: Mapping[str, Array]) -> None:
    """Add ``deltas``, by result name, to the biases of ``module`` in place. Raises ModelError if they do not fit."""
    found = {bias.op: (bias, moves) for bias, moves in layer_constants(module, deltas, "biases")}
    apply_patterns_to([CorrectBias(found)], list(found))


@dataclass
class CorrectBias(RewritePattern):
    """Add a correction to the constant bias of a layer."""

    found: Mapping[CircleOp, tuple[LayerConstant, Array]]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, CircleOp):
            return
        bias, moves = self.found[op]
        info, label = bias.info, op_name(op)
        if moves.dtype.kind not in ("iu" if info.info.is_integer else "f"):
            kinds = f"the bias is {info.dtype}, the correction {moves.dtype}; both must be of one kind"
            raise ModelError(kinds, op=bias.op.SPEC.name, tensor=label)
        try:
            codes, stopped = corrected(np.array(info.array()), moves)
        except ModelError as error:
            raise ModelError(error.message, op=bias.op.SPEC.name, tensor=label) from error
        if stopped:
            LOG.warning("tensor %r: the corrected bias of %d channels does not fit %s", label, len(stopped), info.dtype)
        if np.any(moves):
            bias.replace(codes)
            rewriter.notify_op_modified(op)
