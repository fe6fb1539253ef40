"""What the planner of scratchpad residents and tilings needs to know about the tensor operations of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from xdsl.ir import Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_tiling import Residency, ResidentAttr
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.gather_stream import gather_choice
from odc_mlir.transforms.npu.schedule.lstm_plan import plan_lstm
from odc_mlir.transforms.npu.schedule.move_stream import move_cycles
from odc_mlir.transforms.npu.schedule.resident_plan import ResidencyNode
from odc_mlir.transforms.npu.schedule.residents import Layout, PaddingBorder, Resident
from odc_mlir.transforms.npu.schedule.resize_stream import plan_resize
from odc_mlir.transforms.npu.schedule.tensor_ir import image_shape, window_of
from odc_mlir.transforms.npu.schedule.tilings import Tilings
from odc_mlir.transforms.npu.schedule.vector_cost import vector_choices
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingChoice

_RESIDENT = (
    npu.ConvOp
    | npu.PoolOp
    | npu.ResizeOp
    | npu.LutOp
    | npu.SigmoidOp
    | npu.ScaleOp
    | npu.ReduceOp
    | npu.SoftmaxOp
    | npu.ArgMaxOp
)  # besides ElementwiseOp
LARGEST_SHARE = 0.75  # of the tile buffer that one resident tensor may take


@dataclass(slots=True)
class ResidentCandidate:
    """A result that could stay in the tile buffer; ``fill``: code of the border, None where nobody reads it."""

    op: Operation
    resident: Resident
    fill: int | None


@dataclass(slots=True)
class LayerGraph:
    """A segment for the planner."""

    ops: list[Operation]
    nodes: list[ResidencyNode] = field(default_factory=list)
    candidates: list[ResidentCandidate] = field(default_factory=list)
    constant_bytes: int = 0
    uncopied: Mapping[Operation, int] = field(default_factory=dict)  # bytes of weights without room in SRAM


def read_graph(layers: Sequence[Operation], tilings: Tilings, uncopied: Mapping[Operation, int]) -> LayerGraph:
    """The ``layers`` of a program, in order, and the tensors between them."""
    graph, target = LayerGraph(list(layers), uncopied=uncopied), tilings.target
    index = {op: number for number, op in enumerate(graph.ops)}
    home: dict[SSAValue, int] = {}
    for op in graph.ops:
        candidate = _candidate(op, index, target)
        if candidate is not None:
            for value in _aliases(op.results[0]):
                home[value] = len(graph.candidates)
            graph.candidates.append(candidate)
    for op in graph.ops:
        sources = tuple(home.get(value) for value in op.operands)
        choices = partial(layer_choices, op, tilings, uncopied=uncopied.get(op, 0))
        graph.nodes.append(ResidencyNode(choices, sources, home.get(op.results[0])))
        graph.constant_bytes += stored_bytes(op)
    return graph


def _aliases(value: SSAValue) -> Iterator[SSAValue]:
    """``value`` and all views of it."""
    yield value
    for use in value.uses:
        if isinstance(use.operation, npu.ReshapeOp):
            yield from _aliases(use.operation.output)


def _candidate(op: Operation, index: dict[Operation, int], target: Target) -> ResidentCandidate | None:
    """What it takes to keep the result of ``op`` in the tile buffer, None where that is impossible."""
    result = op.results[0]
    image = image_shape(npu.shape_of(result))
    uses = [(use.operation, value) for value in _aliases(result) for use in value.uses]
    readers = [(user, value) for user, value in uses if not isinstance(user, npu.ReshapeOp)]
    if image is None or not readers or not _may_touch(op) or isinstance(op, npu.ArgMaxOp):
        return None
    border, fills = PaddingBorder(), set()
    needs_dense = isinstance(op, npu.ReduceOp | npu.SoftmaxOp)
    for user, value in readers:
        if user not in index or not _may_touch(user):
            return None
        needs_dense |= isinstance(user, npu.SoftmaxOp | npu.ArgMaxOp) or npu.shape_of(value) != npu.shape_of(result)
        if isinstance(user, npu.ConvOp | npu.PoolOp):
            pads = PaddingBorder(*user.pads.get_values())
            border = border.union(pads)
            if any(pads) and isinstance(user, npu.ConvOp):
                fills.add(user.in_zero.value.data)
    layout = Layout(*image, border, npu.item_bytes(result))
    too_large = layout.size > LARGEST_SHARE * target.local.tile_bytes
    if len(fills) > 1 or too_large or (needs_dense and not layout.is_dense):
        return None
    last = max(index[user] for user, _ in readers)
    return ResidentCandidate(op, Resident(layout, index[op], last), fills.pop() if fills else None)


def _may_touch(op: Operation) -> bool:
    """Whether ``op`` can read and write resident tensors."""
    if isinstance(op, npu.ElementwiseOp):
        return npu.shape_of(op.a) == npu.shape_of(op.b) == npu.shape_of(op.output)
    if image_shape(npu.shape_of(op.results[0])) is None:
        return False
    return isinstance(op, _RESIDENT)


def layer_choices(
    op: Operation, tilings: Tilings, room: int, sources: tuple[bool, ...], result: bool, *, uncopied: int = 0
) -> tuple[TilingChoice, ...]:
    """Tilings of ``op`` with ``room`` bytes of the tile buffer for slots; CompileError, naming it, where none fits.

    ``uncopied`` bytes of its weights have no room in SRAM.
    """
    target = tilings.target
    try:
        if isinstance(op, npu.ConvOp | npu.PoolOp | npu.MatmulOp):
            window = window_of(op, source_resident=sources[0], result_resident=result)
            place = Room(room, sources[0], result, tilings.quick, uncopied_bytes=uncopied)
            return tilings.choices(window, place, weighted=not isinstance(op, npu.PoolOp))
        if isinstance(op, npu.MoveOp):
            filled = npu.size_bytes(op.output) if op.fill is not None else 0
            item = npu.item_bytes(op.output)
            return (TilingChoice(None, *move_cycles(list(op.strided_copies()), filled, room, target, item)),)
        if isinstance(op, npu.LstmOp):
            plan = plan_lstm(op, target, room)
            return (TilingChoice(None, plan.cycles, plan.program_bytes),)
        if isinstance(op, npu.GatherOp):
            return (gather_choice(op, target),)
        if isinstance(op, npu.ResizeOp):
            resized = plan_resize(op, target, room, source_stays=sources[0], result_stays=result)
            return (TilingChoice(None, resized.cycles, resized.program_bytes),)
        return vector_choices(op, target, room, sources, result=result)
    except CompileError as error:
        raise CompileError(error.message, op=op.name, tensor=op_name(op)) from None


def resident_attribute(candidate: ResidentCandidate) -> ResidentAttr:
    """The border of ``candidate`` and what fills it."""
    return ResidentAttr(Residency(*candidate.resident.layout.border, candidate.fill))
