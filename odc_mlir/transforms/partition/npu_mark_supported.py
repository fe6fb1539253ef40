"""``npu-mark-supported``: mark every operator that the target can run, and record why others cannot.

Before::

    %1 = circle.floor %0 : (tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.floor %0 {odc.placed = "host", odc.reason = "operator: FLOOR has no NPU form"} : …

The rules are those of :mod:``odc_mlir.transforms.partition.rules.table``. They are not applied to operators that the
user wants on the host (``odc.place = "host"``). Only the main function is divided into segments; operators in functions
called by control flow stay on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir import targets
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import CompileError
from odc_mlir.transforms.common.placement import (
    HOST,
    NPU,
    functions,
    operators,
    place_on_host,
    place_on_npu,
    wanted_place,
)
from odc_mlir.transforms.partition.rules.checks import PlacementLimits
from odc_mlir.transforms.partition.rules.edges import edge_bytes, memory_reason
from odc_mlir.transforms.partition.rules.table import verdict


@dataclass(frozen=True)
class NpuMarkSupportedPass(ModulePass):
    """Mark every operator with its place and, where that is the host, the reason."""

    name = "npu-mark-supported"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        choice = target_of(op)
        if choice is None:
            raise CompileError("no target is chosen", hint="run odc-set-target first")
        target = targets.load(choice.target)
        limit = choice.sram_limit if choice.allow_host else None  # otherwise stripes, or an error, answer it
        limits = PlacementLimits(target, limit or target.sram.capacity_bytes, choice.numerics)
        for index, function in enumerate(functions(op)):
            for item in operators(function):
                if index > 0:
                    place_on_host(item, f"function: @{function.sym_name.data} is called by control flow")
                    continue
                if isinstance(item, CircleOp) and item.unverified is not None:
                    place_on_host(item, f"operator: {item.unverified}")
                    continue
                if (wanted := wanted_place(item)) == HOST:
                    place_on_host(item, "annotation: placed by the user")
                    continue
                result = verdict(node_of(item), limits)
                if result.supported and (edge := edge_bytes(item)) > limits.sram_bytes:
                    place_on_host(item, memory_reason(item, edge, limits.sram_bytes))
                elif result.supported:
                    place_on_npu(item)
                else:
                    although = "; wanted on the NPU" if wanted == NPU else ""
                    place_on_host(item, f"{result.reason}{although}")
