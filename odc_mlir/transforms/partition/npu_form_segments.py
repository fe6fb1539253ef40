"""``npu-form-segments``: gather the operators marked for the NPU into few convex segments, by a greedy order.

Operators run in rounds: everything ready that stays on the host, then everything ready that goes to the NPU, and so on
until all have run. The NPU operators of one round form a segment. No path leaves a segment and re-enters it, because
whatever depends on a host operator of a later round runs in a later round itself.

Operators are sorted into that order, so that each segment is contiguous (constants first), and get ``odc.segment = N``.
Operators too small for a segment return to the host with a reason.

Before::

    %1 = circle.conv_2d … {odc.placed = "npu"}
    %2 = circle.floor … {odc.placed = "host", odc.reason = "…"}
    %3 = circle.conv_2d … {odc.placed = "npu"}          // does not read %2

After: ``%1`` and ``%3`` are adjacent with ``odc.segment = 0``, followed by ``%2``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.common.placement import NPU, SEGMENT, is_view, main_function, place_on_host, placed
from odc_mlir.transforms.partition.plans.plans import alternate


@dataclass(frozen=True)
class NpuFormSegmentsPass(ModulePass):
    """Group operators placed on the NPU; see the module's text."""

    name = "npu-form-segments"

    min_operators: int = 1
    """A segment with fewer compute operators (not counting views) stays on the host."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block = main_function(op).body.block
        operators = [item for item in block.ops if isinstance(item, CircleOp)]
        rounds = alternate(dependencies(operators), [placed(item) == NPU for item in operators])
        if not any(on_npu for on_npu, _ in rounds):
            return
        order: list[CircleOp] = []
        segment = 0
        for on_npu, members in rounds:
            group = [operators[index] for index in members]
            order += group
            if not on_npu:
                continue
            if reason := self.refuses(group):
                for item in group:
                    place_on_host(item, reason)
                continue
            for item in group:
                item.attributes[SEGMENT] = IntegerAttr(segment, i64)
            segment += 1
        reorder(block, order)

    def refuses(self, group: Sequence[CircleOp]) -> str | None:
        """Return why ``group`` is not worth a segment, None if it is."""
        computing = sum(not is_view(item) for item in group)
        if computing == 0:
            return "segment-size: views only"
        if computing < self.min_operators:
            return f"segment-size: {computing} of at least {self.min_operators} operators"
        return None


def dependencies(operators: Sequence[CircleOp]) -> list[set[int]]:
    """For each operator the earlier ones that must run first.

    These are the producers of its operands and, for an operator with side effects, the one with side effects before it.
    """
    position = {op: index for index, op in enumerate(operators)}
    result: list[set[int]] = []
    last_effect: int | None = None
    for index, op in enumerate(operators):
        owners = (value.owner for value in op.operands)
        producers = {position[owner] for owner in owners if isinstance(owner, CircleOp)}
        if Trait.PURE not in op.SPEC.traits:
            producers |= {last_effect} if last_effect is not None else set()
            last_effect = index
        result.append(producers)
    return result


def reorder(block: Block, order: Iterable[Operation]) -> None:
    """Move the operators into ``order`` behind everything else (constants), in front of the terminator."""
    last = block.last_op
    assert last is not None, "a verified function has a terminator"
    for op in order:
        block.detach_op(op)
        block.insert_op_before(op, last)
