"""Which element-wise operations are computed with each tile of the convolution in front of them.

Apart, a convolution stores its result, and the operation behind it loads that and the other operand. Together, only the
other operand is loaded, while the array is at work: what they take is what the slower of the two needs.
"""

from __future__ import annotations

from xdsl.ir import Operation

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.targets import MemoryMode
from odc_mlir.transforms.npu.schedule.balance import BalancedChoices
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.resident_graph import LayerGraph
from odc_mlir.transforms.npu.schedule.resident_plan import ResidencyPlan
from odc_mlir.transforms.npu.schedule.residents import largest_gap
from odc_mlir.transforms.npu.schedule.tensor_ir import window_of
from odc_mlir.transforms.npu.schedule.tilings import Tilings
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingChoice

NOTHING = TilingChoice(None, 0.0, 0.0)  # what is left of an operation that is computed with another one


def follower_of(conv: Operation) -> npu.ElementwiseOp | None:
    """The operation that could be computed with each tile of ``conv``: the only reader of its result, of whose form
    its other operand and its own result are.
    """
    if not isinstance(conv, npu.ConvOp) or conv.output.uses.get_length() != 1:
        return None
    use = conv.output.first_use
    user = None if use is None else use.operation
    if not isinstance(user, npu.ElementwiseOp):
        return None
    tensors = (conv.input, user.a, user.b, user.output)
    same_items = len({npu.item_bytes(value) for value in tensors}) == 1
    return user if same_items and len({npu.shape_of(value) for value in tensors[1:]}) == 1 else None


def fused(graph: LayerGraph, plan: ResidencyPlan, tilings: Tilings, memory: MemoryMode) -> ResidencyPlan:
    """``plan`` with element-wise operations fused where that is estimated to be faster.

    They follow their convolution at once, and all of their tensors are in memory.
    """
    choices, width = list(plan.balance.choices), ports(tilings.target, memory).constants.bytes_per_cycle
    stays = {graph.candidates[number].op.results[0] for number in plan.residents}
    saved = 0.0

    def total(*parts: TilingChoice) -> float:
        return sum(part.cycles + part.program_bytes / width for part in parts)

    for index, (conv, behind) in enumerate(zip(graph.ops, graph.ops[1:], strict=False)):
        if follower_of(conv) is not behind or stays & {conv.results[0], *behind.operands, *behind.results}:
            continue
        assert isinstance(conv, npu.ConvOp), "only convolutions have followers"
        gap = largest_gap(list(plan.residents.values()), index, tilings.target.local.tile_bytes)
        window = window_of(conv, source_resident=conv.input in stays, result_resident=False)
        room = Room(
            gap, conv.input in stays, quick=tilings.quick, fused=True, uncopied_bytes=graph.uncopied.get(conv, 0)
        )
        try:
            found = min(tilings.choices(window, room, weighted=True), key=total)
        except CompileError:
            continue
        gain = total(choices[index], choices[index + 1]) - total(found)
        if gain > 0:
            choices[index], choices[index + 1] = found, NOTHING
            saved += gain
    return plan._replace(balance=BalancedChoices(choices, plan.balance.score - saved)) if saved else plan
