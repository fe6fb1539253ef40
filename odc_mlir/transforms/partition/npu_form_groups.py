"""``npu-form-groups``: mark operators that become one NPU operation, so that no plan separates them.

Before::

    %1 = circle.pad(%0, %p) attributes {odc.placed = "npu"} : …
    %2 = circle.conv_2d(%1, %w, %b) attributes {odc.placed = "npu"} : …

After: both have ``odc.group = 0``. The patterns are those of :mod:``odc_mlir.transforms.partition.plans.plans``,
longest first; operators that the NPU does not support are in no group.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from odc_mlir.transforms.common.placement import GROUP, NPU, main_function, operators, placed
from odc_mlir.transforms.partition.plans.plans import groups


class NpuFormGroupsPass(ModulePass):
    """Mark groups; see the module's text."""

    name = "npu-form-groups"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        candidates = [item for item in operators(main_function(op)) if placed(item) == NPU]
        for number, (_, members) in enumerate(groups(candidates)):
            for item in members:
                item.attributes[GROUP] = IntegerAttr(number, i64)
