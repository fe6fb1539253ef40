"""``npu-keep-states``: keep states on the NPU between runs, instead of as inputs and outputs of the segment.

Before, with ``odc.states = [{output = 1, input = 1}]``::

    %y, %h_out = odc.segment @segment_0(%x, %h_in) : (…) -> (…) circle { … }

After::

    %y, %h_out = odc.segment @segment_0(%x, %h_in) : (…) -> (…) circle { … } attributes {
      odc.kept_states = array<i64: 1, 1>
    }

Each pair of numbers names an operand and the result that replaces this operand in the next run. If a result has other
users, the segment returns it twice: once for the other users, once as the state. Variables of recurrent operators are
also states. For such a variable, the segment returns the argument. The pass changes nothing if the model has several
segments, which use the SRAM in turn. Nor does it if an operator outside of the segment reads or computes a state, or if
states need more than half of the SRAM.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import OpResult
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import targets
from odc_mlir.dialects.circle import VariableOp, info_of
from odc_mlir.dialects.odc import KEPT_STATES, SegmentOp, YieldOp, state_places, target_of
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.support.locations import names_loc, value_name
from odc_mlir.transforms.common.placement import main_function


class NpuKeepStatesPass(ModulePass):
    """Keep states on the NPU between runs."""

    name = "npu-keep-states"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block, choice = main_function(op).body.block, target_of(op)
        segments, last = [item for item in block.ops if isinstance(item, SegmentOp)], block.last_op
        if len(segments) != 1 or choice is None or not isinstance(last, ReturnOp):
            return
        (segment,), kept = segments, _variables(segments[0])
        held = sum(tensor_bytes(info_of(segment.operands[number])) for number in (kept or ())[::2])
        limit = (choice.sram_limit or targets.load(choice.target).sram.capacity_bytes) // 2
        if kept is None or held > limit:
            return
        for place, source, _ in state_places(op):
            argument, value = block.args[source], last.operands[place]
            readers = list(argument.uses)
            size = tensor_bytes(info_of(argument))
            if len(readers) != 1 or readers[0].operation is not segment or held + size > limit:
                continue
            if not isinstance(value, OpResult) or value.op is not segment:
                continue
            number = value.index
            if len(list(value.uses)) > 1:
                number = len(segment.results)
                segment = _with_copy(segment, value.index)
                last.operands[place] = segment.results[number]
            kept += [readers[0].index, number]
            held += size
        if kept:
            segment.attributes[KEPT_STATES] = DenseArrayBase.from_list(i64, kept)


def _variables(segment: SegmentOp) -> list[int] | None:
    """Return operand and result number of each variable that ``segment`` writes, or None for a shared variable."""
    end, found = segment.circle_block.last_op, list[int]()
    assert isinstance(end, YieldOp), "a verified segment ends in its yield"
    for number, value in enumerate(segment.operands):
        if not isinstance(value.owner, VariableOp):
            continue
        argument = segment.circle_block.args[number]
        results = [place for place, given in enumerate(end.operands) if given is argument]
        if len(results) != 1 or len(list(value.uses)) != 1 or segment.results[results[0]].first_use is not None:
            return None
        found += [number, results[0]]
    return found


def _with_copy(segment: SegmentOp, index: int) -> SegmentOp:
    end = segment.circle_block.last_op
    assert isinstance(end, YieldOp), "a verified segment ends in its yield"
    values = [*end.operands, end.operands[index]]
    again = YieldOp(*values)
    again.location = names_loc([value_name(value) for value in values])
    Rewriter.replace_op(end, again)
    types = [*segment.result_types, segment.result_types[index]]
    circle = segment.detach_region(segment.circle)
    name = None if segment.target_name is None else segment.target_name.data
    made = SegmentOp(segment.sym_name.data, list(segment.operands), types, circle, target_name=name)
    made.location, made.attributes = again.location, dict(segment.attributes)
    Rewriter.insert_op(made, InsertPoint.before(segment))
    for old, new in zip(segment.results, made.results, strict=False):
        new.name_hint = old.name_hint
    Rewriter.replace_op(segment, [], made.results[:-1])
    return made
