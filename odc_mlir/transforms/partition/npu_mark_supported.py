"""``npu-mark-supported``: mark operators that the target can run, and record why it cannot run other operators.

Before::

    %1 = circle.floor %0 : (tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.floor %0 {odc.placed = "host", odc.reason = "operator: FLOOR is not supported by the NPU"} : …

The rules are in :mod:`odc_mlir.transforms.partition.rules.table`. Operators that the user places on the host
(``odc.place = "host"``) stay there. Only the main function is divided into segments. Operators in functions called by
control flow stay on the host. A group of element-wise float or boolean operators whose inputs and outputs are 8-bit
codes is supported as a whole. Such a group is an island. It gets a separate DEQUANTIZE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from odc_mlir import targets
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import CompileError
from odc_mlir.ops.spec import Interval
from odc_mlir.transforms.common import placement
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.common.value_bounds import bounded_node, value_bounds
from odc_mlir.transforms.partition.rules.checks import PlacementLimits
from odc_mlir.transforms.partition.rules.edges import edge_bytes, interface_reason, memory_reason
from odc_mlir.transforms.partition.rules.islands import Island, islands, separate_islands
from odc_mlir.transforms.partition.rules.table import verdict


class NpuMarkSupportedPass(PatternPass):
    """Mark every operator with its target, and for the host with the reason."""

    name = "npu-mark-supported"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MarkSupported,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        choice = target_of(op)
        if choice is None:
            raise CompileError("no target is chosen", hint="run odc-set-target first")
        target = targets.load(choice.target)
        # Without ``allow_host``, a later pass cuts stripes or raises an error.
        limit = choice.sram_limit if choice.allow_host else None
        limits = PlacementLimits(target, limit or target.sram.capacity_bytes, choice.numerics)
        candidates = list(placement.operators(placement.main_function(op)))
        separate_islands(candidates)
        found = islands(candidates)
        bounds = value_bounds(candidates)
        placement.mark_places(
            op, MarkSupported(limits, {member: island for island in found for member in island.members}, bounds)
        )


@dataclass
class MarkSupported(placement.PlacePattern):
    """Place an operator on the NPU if all placement rules hold, else on the host, with the violated rule."""

    place = placement.NPU
    limits: PlacementLimits
    islands: Mapping[CircleOp, Island] = field(default_factory=dict)
    bounds: Mapping[SSAValue, Interval] = field(default_factory=dict)

    def host_reason(self, op: CircleOp, /) -> str | None:
        island = self.islands.get(op)
        result = verdict(bounded_node(op, self.bounds) if island is None else island.node, self.limits)
        if not result.supported:
            reason = interface_reason(op) or result.reason
            return f"{reason}{'; wanted on the NPU' if placement.wanted_place(op) == placement.NPU else ''}"
        edge = edge_bytes(op)
        return memory_reason(op, edge, self.limits.sram_bytes) if edge > self.limits.sram_bytes else None
