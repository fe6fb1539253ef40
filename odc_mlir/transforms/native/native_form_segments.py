"""``native-form-segments``: gather the operators that become native code into as few convex segments as possible.

Like ``npu-form-segments`` for the NPU: rounds alternate between host and native code, and the native operators of one
round form a segment. A segment that would consist of views only stays on the host, where they are free.

Before::

    %1 = circle.conv_2d … {odc.placed = "cpu"}
    %2 = circle.floor … {odc.placed = "host", odc.reason = "…"}

After: ``%1`` has ``odc.segment = 0`` as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.common.placement import CPU, SEGMENT, is_view, main_function, place_on_host, placed
from odc_mlir.transforms.partition.npu_form_segments import dependencies, reorder
from odc_mlir.transforms.partition.plans.plans import alternate


@dataclass(frozen=True)
class NativeFormSegmentsPass(ModulePass):
    """Group operators that become native code; see the module's text."""

    name = "native-form-segments"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block = main_function(op).body.block
        operators = [item for item in block.ops if isinstance(item, CircleOp)]
        order: list[CircleOp] = []
        segment = 0
        for is_native, members in alternate(dependencies(operators), [placed(item) == CPU for item in operators]):
            group = [operators[index] for index in members]
            order += group
            if not is_native:
                continue
            if all(map(is_view, group)):
                for item in group:
                    place_on_host(item, "segment-size: views only")
                continue
            for item in group:
                item.attributes[SEGMENT] = IntegerAttr(segment, i64)
            segment += 1
        reorder(block, order)
