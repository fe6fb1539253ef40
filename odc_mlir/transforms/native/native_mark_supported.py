"""``native-mark-supported``: mark every operator that has a native kernel, and record why others have none.

Before::

    %1 = circle.floor %0 : (tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.floor %0 {odc.placed = "host", odc.reason = "there is no native kernel for this operator"} : …

Operators that become native code get ``odc.placed = "cpu"``. Only the main function is considered; operators in
functions called by control flow stay on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import node_of
from odc_mlir.transforms.common.placement import CPU, HOST, PLACED, functions, operators, place_on_host, wanted_place
from odc_mlir.transforms.native.lowering.operators import reason_against
from odc_mlir.transforms.native.native_set_target import machine_of


@dataclass(frozen=True)
class NativeMarkSupportedPass(ModulePass):
    """Mark every operator with its place and, where that is the host, the reason."""

    name = "native-mark-supported"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        for index, function in enumerate(functions(op)):
            for item in operators(function):
                reason: str | None
                if index > 0:
                    reason = f"function: @{function.sym_name.data} is called by control flow"
                elif item.unverified is not None:
                    reason = f"operator: {item.unverified}"
                elif wanted_place(item) == HOST:
                    reason = "annotation: placed by the user"
                else:
                    reason = reason_against(node_of(item), machine)
                if reason is None:
                    item.attributes[PLACED] = StringAttr(CPU)
                else:
                    place_on_host(item, reason)
