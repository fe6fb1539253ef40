"""``native-decode-constants``: convert quantised and half-precision constants to float.

Elsewhere they are kept because they are smaller; native code packs its weights anyway and needs their values.

Before::

    %0 = circle.dequantize(%codes) : (tensor<8x3x3x4xf16>) -> tensor<8x3x3x4xf32>

After: ``%0`` is ``circle.const … : tensor<8x3x3x4xf32>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.circle_fold_constants import FoldConstants
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to


@dataclass(frozen=True)
class NativeDecodeConstantsPass(PatternPass):
    """Fold constants of any size; see the module's text."""

    name = "native-decode-constants"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FoldConstants,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns_to([FoldConstants()], [item for item in op.walk() if isinstance(item, CircleOp)])
