"""``native-mark-supported``: mark every operator that has a native kernel, and record why others have none.

Before::

    %1 = circle.floor %0 : (tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.floor %0 {odc.placed = "host", odc.reason = "there is no native kernel for this operator"} : …

Operators that become native code get ``odc.placed = "cpu"``. Only the main function is considered; operators in
functions called by control flow stay on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.transforms.common.placement import CPU, HOST, PLACED, functions, operators, place_on_host, wanted_place
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to
from odc_mlir.transforms.native.lowering.operators import reason_against


@dataclass(frozen=True)
class NativeMarkSupportedPass(PatternPass):
    """Mark every operator with its place and, where that is the host, the reason."""

    name = "native-mark-supported"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MarkNative,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main, *others = functions(op)
        apply_patterns_to([MarkNative()], list(operators(main)))
        for function in others:
            for item in operators(function):
                place_on_host(item, f"function: @{function.sym_name.data} is called by control flow")


class MarkNative(RewritePattern):
    """Place an operator on the processor if there is a native kernel for it, else on the host with the reason."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, CircleOp):
            return
        if op.unverified is not None:
            reason: str | None = f"operator: {op.unverified}"
        elif wanted_place(op) == HOST:
            reason = "annotation: placed by the user"
        else:
            reason = reason_against(node_of(op))
        if reason is None:
            op.attributes[PLACED] = StringAttr(CPU)
        else:
            place_on_host(op, reason)
        rewriter.notify_op_modified(op)
