"""``native-mark-supported``: mark operators with a native kernel, and record the reason why other operators lack one.

Before::

    %1 = circle.atan2(%0, %x) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.atan2(%0, %x) {odc.placed = "host", odc.reason = "there is no native kernel for this operator"} : …

Operators that become native code get ``odc.placed = "cpu"``. Operators in functions called by control flow stay on the
host.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import RewritePattern

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.transforms.common.placement import CPU, PlacePattern, mark_places
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.native.lowering.operators import kernel_reason


class NativeMarkSupportedPass(PatternPass):
    """Mark every operator with its placement. For operators on the host, record the reason."""

    name = "native-mark-supported"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MarkNative,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        mark_places(op, MarkNative())


class MarkNative(PlacePattern):
    """Place an operator on the processor if there is a native kernel, else on the host with the reason."""

    place = CPU

    def host_reason(self, op: CircleOp, /) -> str | None:
        return kernel_reason(node_of(op))
