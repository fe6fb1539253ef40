"""``npu-outline-segments``: move each segment's operators into an ``odc.segment``.

Before::

    %w = circle.const …
    %1 = circle.conv_2d(%x, %w) … {odc.segment = 0, …}
    %2 = circle.floor(%1) … {odc.placed = "host", …}

After::

    %1 = odc.segment @segment_0(%x) : … circle {
    ^bb0(%a: …):
      %w = circle.const …
      %c = circle.conv_2d(%a, %w) …
      odc.yield %c : …
    }
    %2 = circle.floor(%1) …

A segment's results are the values used outside, and the contents of variables that its operators write. For such a
variable, the segment yields the argument (see :mod:`odc_mlir.dialects.odc`). Constants move into the segment. Constants
that are also used outside are copied, but the copies share the bytes. Views of a segment's argument run on the host,
where views cost nothing. If a value leaves the segment in several shapes, views of the value also run on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, LocationAttr, ModuleOp, UnknownLoc
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, VariableOp, is_known, node_of
from odc_mlir.dialects.odc import SegmentOp, YieldOp, target_of
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import names_loc, value_name
from odc_mlir.transforms.common.placement import (
    GROUP,
    REASON,
    SEGMENT,
    functions,
    is_view,
    main_function,
    place_on_host,
)

VIEW_REASON = "segment-result: a view of a value that leaves the segment"


class NpuOutlineSegmentsPass(ModulePass):
    """Move runs of operators with the same segment number into segments."""

    name = "npu-outline-segments"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        choice = target_of(op)
        block = main_function(op).body.block
        members = [item for item in block.ops if isinstance(item, CircleOp) and SEGMENT in item.attributes]
        if members and choice is None:
            raise CompileError("no target is chosen", hint="run odc-set-target first")
        taken = {item.sym_name.data for item in functions(op)}
        for number, run in groupby(members, _segment_number):
            group = _without_outer_views(list(run))
            names = (f"segment_{number}", *(f"segment_{number}_{more}" for more in range(1, len(taken) + 1)))
            name = next(item for item in names if item not in taken)
            taken.add(name)
            outline(name, group, choice.target if choice else None)


def _segment_number(op: CircleOp) -> int:
    attribute = op.attributes[SEGMENT]
    assert isinstance(attribute, IntegerAttr)
    return attribute.value.data


def _root(viewed: SSAValue, group: set[Operation]) -> SSAValue:
    value: SSAValue = viewed
    while isinstance(value, OpResult) and value.op in group and isinstance(value.op, CircleOp) and is_view(value.op):
        value = value.op.operands[0]
    return value


def _used_outside(value: SSAValue, group: set[Operation]) -> bool:
    return any(use.operation not in group for use in value.uses)


def _without_outer_views(members: list[CircleOp]) -> list[CircleOp]:
    """Turn views that the host should run into host operators, and return all other ``members``.

    Users outside of the segment get copies of views after the group. A view without users in the segment is removed.
    """
    group: set[Operation] = set(members)
    shapes: dict[SSAValue, list[OpResult]] = {}
    for op in members:
        for value in op.results:
            if _used_outside(value, group):
                shapes.setdefault(_root(value, group), []).append(value)
    for root, values in shapes.items():
        inside = isinstance(root, OpResult) and root.op in group
        if inside and len(values) == 1:
            continue
        for leaving in values:
            if leaving is not root:
                _view_behind(members[-1], root, leaving, group)
    kept = list(members)
    for op in reversed(members):
        if is_view(op) and not any(result.uses for result in op.results):
            kept.remove(op)
            Rewriter.erase_op(op)
    return kept


def _view_behind(last: Operation, root: SSAValue, value: OpResult, group: set[Operation]) -> None:
    """Insert copies of the views between ``root`` and ``value`` after ``last``, for users outside of the group."""
    chain: list[Operation] = []
    seen: SSAValue = value
    while seen is not root:
        assert isinstance(seen, OpResult)
        chain.append(seen.op)
        seen = seen.op.operands[0]
    for op in reversed(chain):
        view = op.clone()
        view.operands[0] = seen
        for index, operand in enumerate(view.operands[1:], 1):
            view.operands[index], last = _known_behind(operand, last)
        view.attributes.pop(SEGMENT, None)
        place_on_host(view, VIEW_REASON)
        Rewriter.insert_op(view, InsertPoint.after(last))
        last, seen = view, view.results[0]
    value.replace_uses_with_if(seen, lambda use: use.operation not in group)


def _known_behind(value: SSAValue, last: Operation) -> tuple[SSAValue, Operation]:
    """Copy a known ``value`` for the host, after ``last``, and return the value to use and the last operation."""
    if not isinstance(value, OpResult) or not is_known(value.op):
        return value, last
    copy = value.op.clone()
    copy.attributes.pop(SEGMENT, None)
    for index, operand in enumerate(copy.operands):
        copy.operands[index], last = _known_behind(operand, last)
    place_on_host(copy, VIEW_REASON)
    Rewriter.insert_op(copy, InsertPoint.after(last))
    return copy.results[0], copy


def outline(name: str, members: list[CircleOp], target_name: str | None = None) -> SegmentOp:
    """Move the consecutive operators ``members`` into a segment and return the segment."""
    group: set[Operation] = set(members)
    inputs = _inputs(members, group)
    outputs: list[SSAValue] = [result for op in members for result in op.results if _used_outside(result, group)]
    outputs += [value for value in inputs if isinstance(value.owner, VariableOp) and _is_written(value, group)]
    circle = Region(Block(arg_types=[value.type for value in inputs]))
    segment = SegmentOp(name, inputs, [value.type for value in outputs], circle, target_name=target_name)
    segment.location = _location_of(outputs)
    Rewriter.insert_op(segment, InsertPoint.before(members[0]))
    for output, result in zip(outputs, segment.results, strict=True):
        result.name_hint = output.name_hint
        if not isinstance(output.owner, VariableOp):
            output.replace_uses_with_if(result, lambda use: use.operation not in group)
    _fill(circle.block, members, inputs, outputs)
    return segment


def _inputs(members: list[CircleOp], group: set[Operation]) -> list[SSAValue]:
    found: dict[SSAValue, None] = {}
    for op in members:
        for value in op.operands:
            if value.owner not in group and not isinstance(value.owner, ConstOp | NoneOp):
                found[value] = None
    return list(found)


def _is_written(variable: SSAValue, group: set[Operation]) -> bool:
    return any(
        use.operation in group and isinstance(use.operation, CircleOp) and use.index in node_of(use.operation).mutated
        for use in variable.uses
    )


def _fill(block: Block, members: list[CircleOp], inputs: list[SSAValue], outputs: Sequence[SSAValue]) -> None:
    inside: dict[SSAValue, SSAValue] = {}
    for argument, value in zip(block.args, inputs, strict=True):
        argument.name_hint, argument.location = value.name_hint, _location_of([value])
        inside[value] = argument
    for op in members:
        for index, value in enumerate(op.operands):
            if value not in inside and isinstance(value.owner, ConstOp | NoneOp):
                copy = value.owner.clone()
                block.add_op(copy)
                inside[value] = copy.results[0]
            if value in inside:
                op.operands[index] = inside[value]
        if op.parent is not None:
            op.parent.detach_op(op)
        for attribute in (SEGMENT, REASON, GROUP):
            op.attributes.pop(attribute, None)
        block.add_op(op)
    end = YieldOp(*(inside.get(value, value) for value in outputs))
    end.location = _location_of(outputs)
    block.add_op(end)
    for value in inside:
        if isinstance(value.owner, ConstOp | NoneOp) and not value.uses:
            Rewriter.erase_op(value.owner)


def _location_of(values: Sequence[SSAValue]) -> LocationAttr:
    names = [value_name(value) for value in values]
    return names_loc(names) if any(names) else UnknownLoc()
