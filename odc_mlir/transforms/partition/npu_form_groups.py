"""``npu-form-groups``: mark groups of operators that become one NPU operation, to keep them together.

Before::

    %1 = circle.pad(%0, %p) attributes {odc.placed = "npu"} : …
    %2 = circle.conv_2d(%1, %w, %b) attributes {odc.placed = "npu"} : …

After: both have ``odc.group = 0``. Groups are islands, and matches of the patterns in
:mod:`odc_mlir.transforms.partition.plans.plans`, longest patterns first. Unsupported operators are in no group. If one
operator of an island is on the host, the whole island is.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from odc_mlir.transforms.common.placement import GROUP, NPU, main_function, operators, place_on_host, placed
from odc_mlir.transforms.partition.plans.plans import groups
from odc_mlir.transforms.partition.rules.islands import islands


class NpuFormGroupsPass(ModulePass):
    """Mark groups of operators."""

    name = "npu-form-groups"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = list(operators(main_function(op)))
        whole = []
        for island in islands(found):
            on_npu = [item for item in island.members if placed(item) == NPU]
            if len(on_npu) == len(island.members):
                whole.append(on_npu)
                continue
            for item in on_npu:
                place_on_host(item, "island: an operator beside it is on the host")
        chains = [members for _, members in groups([item for item in found if placed(item) == NPU])]
        for number, members in enumerate(whole + chains):
            for item in members:
                item.attributes[GROUP] = IntegerAttr(number, i64)
