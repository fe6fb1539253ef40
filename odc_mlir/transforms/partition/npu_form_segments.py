"""``npu-form-segments``: gather the operators marked for the target into few convex segments.

The target is an NPU, a processor that runs native code, or the target of a plugin. The pass divides operators into
rounds, alternately on the host and on the target. A round takes all operators on its side that are ready. The target's
operators of one round form a segment. No path leaves a segment and re-enters it, because an operator that depends on a
later round is in a later round, too.

Operators are sorted into this order, constants first. Each segment is then contiguous. Operators get ``odc.segment =
N``. Groups with too few operators for a segment return to the host, with the reason in ``odc.reason``.

Before::

    %1 = circle.conv_2d … {odc.placed = "npu"}
    %2 = circle.floor … {odc.placed = "host", odc.reason = "…"}
    %3 = circle.conv_2d … {odc.placed = "npu"}          // does not read %2

After: ``%1`` and ``%3`` are adjacent with ``odc.segment = 0``, followed by ``%2``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, is_known
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.common.placement import (
    HOST,
    SEGMENT,
    is_view,
    main_function,
    operators,
    place_on,
    place_on_host,
    placed,
)
from odc_mlir.transforms.partition.plans.plans import alternate


@dataclass(frozen=True)
class NpuFormSegmentsPass(ModulePass):
    """Group operators placed on the target."""

    name = "npu-form-segments"

    min_operators: int = 1
    """Least number of compute operators (not counting views) in a segment. Smaller segments stay on the host."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block = main_function(op).body.block
        found = list(operators(block))
        place = next((place for item in found if (place := placed(item)) not in (None, HOST)), None)
        known, numbers = _KnownResults(), count()
        order: list[CircleOp] = []
        if place is None:
            known.of_host([*block.ops])
            return
        for is_target, members in alternate(dependencies(found), [placed(item) == place for item in found]):
            group = [found[index] for index in members]
            reason = self.refuses(group) if is_target else None
            for item in group if reason else ():
                place_on_host(item, reason or "")
            if not is_target or reason:
                order += known.of_host(group)
                continue
            on_host, group = known.of_segment(group)
            number = next(numbers)
            for item in group:
                place_on(item, place)
                item.attributes[SEGMENT] = IntegerAttr(number, i64)
            order += on_host + group
        assert block.last_op is not None, "a verified function has a terminator"
        reorder(block, order + known.of_host([block.last_op]))

    def refuses(self, group: Sequence[CircleOp]) -> str | None:
        """Return the reason why ``group`` cannot be a segment, or None."""
        computing = sum(not is_view(item) for item in group)
        if computing == 0:
            return "segment-size: views only"
        if computing < self.min_operators:
            return f"segment-size: {computing} of at least {self.min_operators} operators"
        return None


class _KnownResults:
    """Placement of operators with known results (``odc.known``) on the same side as users.

    Such an operator reads shapes of tensors. It costs nothing in a segment that has these tensors. Otherwise it runs on
    the host. The first user gets the operator itself, further users get copies.
    """

    def __init__(self) -> None:
        self._taken: set[CircleOp] = set()
        self._on_host: dict[CircleOp, CircleOp] = {}

    def of_host(self, group: Sequence[Operation]) -> list[CircleOp]:
        """Return the operators of ``group``, each after the operators with known results that it uses."""
        order: list[CircleOp] = []
        for op in group:
            for index, value in enumerate(op.operands):
                self._give(op, index, value, self._on_host, order)
            order += [op] if isinstance(op, CircleOp) else []
        return order

    def of_segment(self, group: Sequence[CircleOp]) -> tuple[list[CircleOp], list[CircleOp]]:
        """Return the known operators that the host runs for ``group``, and ``group`` with its known operators."""
        results = {value for op in group for value in op.results}
        inside = results.union(value for op in group for value in op.operands)
        own: dict[CircleOp, CircleOp] = {}
        on_host: list[CircleOp] = []
        order: list[CircleOp] = []
        for op in group:
            for index, value in enumerate(op.operands):
                read = _sources(value)
                if inside.issuperset(read) or not results.isdisjoint(read):
                    self._give(op, index, value, own, order)
                else:
                    self._give(op, index, value, self._on_host, on_host)
            order.append(op)
        return on_host, order

    def _give(
        self, op: Operation, index: int, value: SSAValue, made: dict[CircleOp, CircleOp], order: list[CircleOp]
    ) -> None:
        owner = value.owner
        if not isinstance(owner, CircleOp) or not is_known(owner):
            return
        if owner not in made:
            taken = owner
            if owner in self._taken:
                Rewriter.insert_op(taken := owner.clone(), InsertPoint.before(owner))
                taken.attributes.pop(SEGMENT, None)
            self._taken.add(taken)
            made[owner] = made[taken] = taken
            for number, operand in enumerate(taken.operands):
                self._give(taken, number, operand, made, order)
            place_on_host(taken, "shape: an operator of the host uses it")
            order.append(taken)
        op.operands[index] = made[owner].results[0]


def _sources(value: SSAValue) -> set[SSAValue]:
    """Return ``value`` if it is computed, or the computed values that determine its known result."""
    if isinstance(value.owner, ConstOp | NoneOp):
        return set()
    if not isinstance(value.owner, CircleOp) or not is_known(value.owner):
        return {value}
    return set().union(*map(_sources, value.owner.operands))


def dependencies(operators: Sequence[CircleOp]) -> list[set[int]]:
    """Return, for each operator, the earlier operators that must run before it.

    These are the producers of its operands, or of the values that determine a known operand. An operator with side
    effects also depends on the previous operator with side effects.
    """
    position = {op: index for index, op in enumerate(operators)}
    result: list[set[int]] = []
    last_effect: int | None = None
    for index, op in enumerate(operators):
        owners = (source.owner for value in op.operands for source in _sources(value))
        producers = {position[owner] for owner in owners if isinstance(owner, CircleOp)}
        if Trait.PURE not in op.SPEC.traits:
            producers |= {last_effect} if last_effect is not None else set()
            last_effect = index
        result.append(producers)
    return result


def reorder(block: Block, order: Iterable[Operation]) -> None:
    """Move the operators into ``order``, after all other operations (constants) and before the terminator."""
    last = block.last_op
    assert last is not None, "a verified function has a terminator"
    for op in order:
        block.detach_op(op)
        block.insert_op_before(op, last)
