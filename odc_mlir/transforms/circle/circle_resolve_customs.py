"""``circle-resolve-customs``: custom operators that duplicate builtin ones become builtin operators.

Before::

    %0 = circle.custom(%x, %w, %b) {custom_code = "Convolution2DTransposeBias", custom_options = …} : … -> …

After: ``%0 = circle.transpose_conv(%shape, %w, %x, %b)``, which can be quantised and run on the NPU.

The custom codes are TensorFlow's ``AddV2``, ``All``, ``BatchMatMulV2``, ``BroadcastTo``, ``MatMul`` and ``SplitV``, and
MediaPipe's ``Convolution2DTransposeBias`` if the sizes of its result are known. Codes that the application has
registered stay custom. Results are bit-exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.pattern_rewriter import RewritePattern

from odc_mlir.transforms.circle.rewrites.customs import ResolveCustom
from odc_mlir.transforms.common.rewriting import PatternPass


@dataclass(frozen=True)
class CircleResolveCustomsPass(PatternPass):
    """Replace custom operators by the builtin ones that they are; see the module's text."""

    name = "circle-resolve-customs"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ResolveCustom,)
