"""``native-decode-constants``: convert quantised and half-precision constants to float.

Elsewhere they are kept because they are smaller; native code packs its weights anyway and needs their values.

Before::

    %0 = circle.dequantize(%codes) : (tensor<8x3x3x4xf16>) -> tensor<8x3x3x4xf32>

After: ``%0`` is ``circle.const … : tensor<8x3x3x4xf32>``.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.transforms.circle.circle_fold_constants import CircleFoldConstantsPass


@dataclass(frozen=True)
class NativeDecodeConstantsPass(ModulePass):
    """Fold constants of any size; see the module's text."""

    name = "native-decode-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        CircleFoldConstantsPass(decode=True).apply(ctx, op)
