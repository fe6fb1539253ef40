"""Plan of the layers of a program: tilings, results that stay in the tile buffer, and fused operations.

Three dependent choices are searched together:

- Residents: a result that stays in the tile buffer is neither stored nor loaded, and leaves less room for tiles.
- Tilings: a faster tiling often needs a longer program. If constants and program have a separate port, fetching
  overlaps with computing, and the slower of the two determines the time. A slower tiling with a shorter program may
  then be better. Each layer therefore has a Pareto front of tilings, by cycles and program bytes.
- Fused operations: by default, a convolution stores the result, and the element-wise operation loads two operands. A
  fused operation loads only the second operand, while the array is busy.

Weights that every tile reads again are copied to SRAM. If there is no room for the copy, every read uses the narrow
off-chip port. A tiling that reads weights once is then better, although it reads the image more often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from odc_mlir import targets
from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_program import TILED_FOR
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import FULL_RECORD_BYTES
from odc_mlir.support.deadline import checkpoint
from odc_mlir.support.locations import op_name
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.lstm_stream import plan_lstm
from odc_mlir.transforms.npu.schedule.move_stream import gather_choice, move_cycles, update_choice
from odc_mlir.transforms.npu.schedule.residents import Layout, PaddingBorder, Resident, largest_gap, place_residents
from odc_mlir.transforms.npu.schedule.resize_stream import plan_resize
from odc_mlir.transforms.npu.schedule.tensor_ir import (
    BY_ROWS,
    ViewSources,
    aliases,
    given_tiling,
    image_shape,
    layer_ops,
    tiling_of,
    window_of,
)
from odc_mlir.transforms.npu.schedule.vector_stream import choice_of
from odc_mlir.transforms.npu.schedule.window_search import (
    NotResidentError,
    Room,
    TilingChoice,
    Tilings,
    given_choices,
    tilings_of,
)

ROOM_STEP = 256  # granularity of available bytes, so that searches are shared between similar plans
WORTHWHILE = 0.999  # a change must reduce the score to at most this share


@dataclass(slots=True)
class ResidentCandidate:
    """Result that could stay in the tile buffer. ``fill``: code of the border, None if no layer reads the border."""

    op: Operation
    resident: Resident
    fill: int | None


@dataclass(slots=True)
class LayerGraph:
    """Layers of a segment, and the candidates for residents between them.

    ``sources``, ``results``: candidate indices that each layer reads and writes, or None for a tensor in memory.
    ``uncopied``: bytes of weights per layer without room in SRAM. ``constant_bytes``: weights and parameters of all
    layers.
    """

    ops: list[Operation]
    uncopied: Mapping[Operation, int]
    candidates: list[ResidentCandidate] = field(default_factory=list)
    sources: list[tuple[int | None, ...]] = field(default_factory=list)
    results: list[int | None] = field(default_factory=list)
    constant_bytes: int = 0


class ResidencyPlan(NamedTuple):
    """Residents by candidate index, tiling choices by layer, and the cost of the plan, roughly in cycles."""

    residents: dict[int, Resident]
    choices: list[TilingChoice]
    score: float


class ResidentPlanner:
    """Planner of one segment."""

    def __init__(self, graph: LayerGraph, tilings: Tilings, memory: MemoryMode) -> None:
        self.graph, self.tilings = graph, tilings
        self.candidates = [candidate.resident for candidate in graph.candidates]
        self._balancer = Balancer(graph.constant_bytes, tilings.target, memory)
        self._fronts: dict[tuple[int, int, tuple[bool, ...], bool], tuple[TilingChoice, ...] | CompileError] = {}
        self._layer = 0  # the layer in which the last plan failed
        # Addresses of residents, and fronts by layer, of the last plan that did not fail.
        self._addresses: set[tuple[int, int | None]] = set()
        self._last: list[tuple[TilingChoice, ...]] = [()] * len(graph.ops)

    def plan(self, check: Callable[[], None], *, improve: bool) -> ResidencyPlan:
        """Return a greedy plan with all residents that fit together, or without residents if that scores better.

        If a layer does not fit, the planner drops the largest resident that is alive there. With ``improve``, it also
        drops single residents if that improves the plan. Large residents come first. ``check`` is called repeatedly and
        may raise. Raises CompileError if a layer does not fit.
        """
        best: ResidencyPlan | None = None
        failure: NotResidentError | None = None
        try:
            best = self._evaluate(frozenset())
        except NotResidentError as error:
            failure = error
        kept = self._fitting()
        while kept:
            trial = self._try(kept)
            check()
            if trial is not None:
                if best is None or trial.score <= best.score * WORTHWHILE:
                    best = self._improved(trial, check) if improve else trial
                break
            alive = [i for i in kept if self.candidates[i].lives_at(self._layer)]
            kept -= {max(alive or kept, key=lambda i: (self.candidates[i].size, i))}
        if best is None:
            assert failure is not None, "without a plan there is a reason"
            raise failure
        return best

    def _fitting(self) -> frozenset[int]:
        """Return candidates that fit in the tile buffer together. Small candidates are preferred."""
        kept = frozenset(range(len(self.candidates)))
        for layer in range(len(self.graph.ops)):
            alive = sorted(
                (i for i in kept if self.candidates[i].lives_at(layer)), key=lambda i: self.candidates[i].size
            )
            while sum(self.candidates[i].size for i in alive) > self.tilings.target.local.tile_bytes:
                kept -= {alive.pop()}
        return kept

    def _improved(self, plan: ResidencyPlan, check: Callable[[], None]) -> ResidencyPlan:
        for index in sorted(plan.residents, key=lambda i: (-self.candidates[i].size, i)):
            check()
            trial = self._try(frozenset(plan.residents) - {index})
            if trial is not None and trial.score < plan.score * WORTHWHILE:
                plan = trial
        return plan

    def _try(self, kept: frozenset[int]) -> ResidencyPlan | None:
        try:
            return self._evaluate(kept)
        except CompileError:
            return None

    def _evaluate(self, kept: frozenset[int]) -> ResidencyPlan:
        total = self.tilings.target.local.tile_bytes
        residents = {
            index: Resident(c.layout, c.first, c.last) for index, c in enumerate(self.candidates) if index in kept
        }
        if (placed := place_residents(list(residents.values()))) > total:
            self._layer = max(residents.values(), key=lambda r: (r.address or 0) + r.size).first
            raise CompileError(f"resident tensors exceed the tile buffer ({placed} > {total} bytes)")
        addresses = {(index, resident.address) for index, resident in residents.items()}
        changed = [self.candidates[index] for index, _ in addresses ^ self._addresses]
        fronts = [*self._last]
        for layer in range(len(fronts)):
            if fronts[layer] and not any(candidate.lives_at(layer) for candidate in changed):
                continue
            self._layer = layer
            room = largest_gap([*residents.values()], layer, total)
            if room < total:
                room -= room % ROOM_STEP
            sources = tuple(source in kept for source in self.graph.sources[layer])
            fronts[layer] = self._front(layer, room, sources, self.graph.results[layer] in kept)
        self._addresses, self._last = addresses, fronts
        return ResidencyPlan(residents, *self._balancer.choose(fronts))

    def _front(self, layer: int, room: int, sources: tuple[bool, ...], result: bool) -> tuple[TilingChoice, ...]:
        key, op = (layer, room, sources, result), self.graph.ops[layer]
        if key not in self._fronts:
            uncopied = self.graph.uncopied.get(op, 0)
            try:
                self._fronts[key] = layer_choices(op, self.tilings, room, sources, result, uncopied=uncopied)
            except CompileError as error:
                self._fronts[key] = error
        found = self._fronts[key]
        if isinstance(found, CompileError):
            raise found.with_traceback(None)
        return found


# Prices of a fetch cycle, in compute cycles: low if fetching is hidden, high if it limits the speed.
PRICES = (0.25, 1.0, 4.0)
EXPOSED = 0.2  # share of the shorter of computing and fetching that does not overlap: start and end of the segment


class Balancer:
    """Choice of a tiling per layer from a Pareto front. ``constant_bytes``: weights and parameters of all layers."""

    def __init__(self, constant_bytes: int, target: Target, memory: MemoryMode) -> None:
        self.constant_bytes, self._port = constant_bytes, ports(target, memory)
        self._cheapest: dict[int, list[TilingChoice]] = {}  # for each price, by the id of the front that planners keep

    def choose(self, fronts: Sequence[tuple[TilingChoice, ...]]) -> tuple[list[TilingChoice], float]:
        """Return one tiling per layer for the price of program fetch with the lowest total cost, and that cost."""
        width = self._port.constants.bytes_per_cycle
        for front in fronts:
            if id(front) not in self._cheapest:
                costs = [[choice.cycles + price / width * choice.program_bytes for choice in front] for price in PRICES]
                self._cheapest[id(front)] = [front[cost.index(min(cost))] for cost in costs]
        plans = [[self._cheapest[id(front)][number] for front in fronts] for number in range(len(PRICES))]
        return min([(plan, self._score(plan)) for plan in plans], key=lambda scored: scored[1])

    def _score(self, plan: Sequence[TilingChoice]) -> float:
        width = self._port.constants.bytes_per_cycle
        cycles = sum([choice.cycles for choice in plan])
        program = sum([choice.program_bytes for choice in plan]) / width
        if not self._port.staged:
            return cycles + program
        fetched = program + self.constant_bytes / width
        return max(cycles, fetched) + EXPOSED * min(cycles, fetched)


_RESIDENT = BY_ROWS | npu.MatmulOp | npu.ReduceOp
LARGEST_SHARE = 0.75  # share of the tile buffer that one resident tensor may take


def read_graph(layers: Sequence[Operation], target: Target, uncopied: Mapping[Operation, int]) -> LayerGraph:
    """Return the graph of ``layers``, given in program order, and of the tensors between them."""
    graph = LayerGraph(list(layers), uncopied)
    index = {op: number for number, op in enumerate(graph.ops)}
    home: dict[SSAValue, int] = {}
    for op in graph.ops:
        candidate = _candidate(op, index, target)
        if candidate is not None:
            for value in aliases(op.results[0]):
                home[value] = len(graph.candidates)
            graph.candidates.append(candidate)
    for op in graph.ops:
        graph.sources.append(tuple(home.get(value) for value in op.operands))
        graph.results.append(home.get(op.results[0]))
        graph.constant_bytes += stored_bytes(op)
    return graph


def _candidate(op: Operation, index: dict[Operation, int], target: Target) -> ResidentCandidate | None:
    result = op.results[0]
    image = image_shape(npu.shape_of(result))
    if (given := given_tiling(op)) is not None and given.out_slots:
        return None
    uses = [(use.operation, value) for value in aliases(result) for use in value.uses]
    readers = [(user, value) for user, value in uses if not isinstance(user, npu.ReshapeOp)]
    if image is None or not readers or not _supports_residents(op) or isinstance(op, npu.ArgMaxOp):
        return None
    border, fills = PaddingBorder(), set()
    needs_dense = isinstance(op, npu.ReduceOp | npu.SoftmaxOp) or _broadcasts(op)
    for user, value in readers:
        if user not in index or not _supports_residents(user):
            return None
        if isinstance(user, npu.MatmulOp) and user.b is value:  # loaded into the weight buffer
            return None
        if (given := given_tiling(user)) is not None and given.in_slots:
            return None
        needs_dense |= isinstance(user, npu.SoftmaxOp | npu.ArgMaxOp) or npu.shape_of(value) != npu.shape_of(result)
        needs_dense |= _broadcasts(user)
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


def _supports_residents(op: Operation) -> bool:
    """Return whether ``op`` can read resident tensors and, except for ARG_MAX, write one."""
    return isinstance(op, _RESIDENT) and image_shape(npu.shape_of(op.results[0])) is not None


def _broadcasts(op: Operation) -> bool:
    return isinstance(op, npu.ElementwiseOp) and not npu.shape_of(op.a) == npu.shape_of(op.b) == npu.shape_of(op.output)


def layer_choices(
    op: Operation, tilings: Tilings, room: int, sources: tuple[bool, ...], result: bool, *, uncopied: int = 0
) -> tuple[TilingChoice, ...]:
    """Return tilings of ``op`` with ``room`` bytes of the tile buffer. Raises CompileError if none fits.

    ``uncopied``: bytes of the operation's weights without room in SRAM.
    """
    target = tilings.target
    try:
        if not isinstance(op, npu.ConvOp | npu.PoolOp | npu.MatmulOp):
            return (_only_choice(op, target, room, sources, result=result),)
        window = window_of(op, source_resident=sources[0], result_resident=result)
        weighted = not isinstance(op, npu.PoolOp)
        place = Room(room, sources[0], result, tilings.quick, uncopied_bytes=uncopied)
        if given_tiling(op) is not None:
            return given_choices(window, target, place, tiling_of(op, target, window), weighted=weighted)
        return tilings.choices(window, place, weighted=weighted)
    except CompileError as error:
        raise type(error)(error.message, op=op.name, tensor=op_name(op), hint=error.hint) from None


def _only_choice(op: Operation, target: Target, room: int, sources: tuple[bool, ...], *, result: bool) -> TilingChoice:
    if isinstance(op, npu.MoveOp):
        filled = npu.size_bytes(op.output) if op.fill is not None else 0
        item = npu.item_bytes(op.output)
        return TilingChoice(None, *move_cycles(list(op.strided_copies()), filled, room, target, item))
    if isinstance(op, npu.LstmOp):
        plan = plan_lstm(op, target, room)
        return TilingChoice(None, plan.cycles, plan.program_bytes)
    if isinstance(op, npu.GatherOp):
        return gather_choice(op, target)
    if isinstance(op, npu.UpdateOp):
        return update_choice(op, target)
    if isinstance(op, npu.ResizeOp):
        resized = plan_resize(op, target, room, source_stays=sources[0], result_stays=result)
        return TilingChoice(None, resized.cycles, resized.program_bytes)
    return choice_of(op, target, room, sources, result=result)


NOTHING = TilingChoice(None, 0.0, 0.0)  # the cost of a fused operation


def follower_of(conv: Operation) -> npu.ElementwiseOp | None:
    """Return the element-wise operation that can be computed with each tile of ``conv``, or None.

    The convolution's result must have no other use. The other operand and the result must have the same shape.
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
    """Return ``plan`` with element-wise operations fused where the estimate is faster.

    A fused operation directly follows its convolution, and all of its tensors are in memory.
    """
    choices, width = list(plan.choices), ports(tilings.target, memory).constants.bytes_per_cycle
    stays = {value for number in plan.residents for value in aliases(graph.candidates[number].op.results[0])}
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
        given = given_tiling(conv)
        try:
            if given is not None:
                if not given.operand_slots:
                    continue
                found, *_ = given_choices(window, tilings.target, room, given, weighted=True)
                choices[index], choices[index + 1] = found, NOTHING
                continue
            found = min(tilings.choices(window, room, weighted=True), key=total)
        except CompileError:
            continue
        gain = total(choices[index], choices[index + 1]) - total(found)
        if gain > 0:
            choices[index], choices[index + 1] = found, NOTHING
            saved += gain
    return plan._replace(choices=choices, score=plan.score - saved) if saved else plan


STEP = 4096  # granularity of byte counts, so that layers of the same shape share a search


def uncopied_weights(job: TargetedProgram) -> dict[Operation, int]:
    """Return the bytes of weights without room for a copy in SRAM, by layer, except zeros.

    With ``prefer = memory``, the arena is no larger than the tensors need.
    """
    if job.memory != "flash":
        return {}
    layers = layer_ops(job.block)
    held = held_bytes(job.block, layers)
    arena = min(max(held, default=0), job.sram_bytes) if job.choice.prefer == "memory" else job.sram_bytes
    found: dict[Operation, int] = {}
    for op, taken in zip(layers, held, strict=True):
        room = max(0, arena - taken)
        if not isinstance(op, npu.ConvOp) or op.weights.data.size + FULL_RECORD_BYTES * len(op.bias) <= room:
            continue
        if (short := stored_bytes(op) - room) > 0:
            found[op] = -(-short // STEP) * STEP
    return found


def held_bytes(block: Block, layers: Sequence[Operation]) -> list[int]:
    """Return the bytes of tensors in use while each of ``layers`` runs."""
    views, spans = ViewSources(block), dict[SSAValue, tuple[int, int]]()

    def use(value: SSAValue, layer: int) -> None:
        for root in views.roots(value):
            if not isinstance(root.owner, npu.ConstantOp):
                first, last = spans.get(root, (layer, layer))
                spans[root] = min(first, layer), max(last, layer)

    for argument in block.args:
        if argument.uses:
            use(argument, 0)
    for number, op in enumerate(layers):
        for value in (*op.operands, *op.results):
            use(value, number)
    if isinstance(block.last_op, YieldOp):
        for value in block.last_op.operands:
            use(value, len(layers) - 1)
    change = [0] * (len(layers) + 1)
    for value, (first, last) in spans.items():
        change[first] += npu.size_bytes(value)
        change[last + 1] -= npu.size_bytes(value)
    return list(accumulate(change[:-1]))


def chosen_tiles(ctx: Context, job: TargetedProgram) -> tuple[LayerGraph, ResidencyPlan]:
    """Return the layers of a program with tilings and residents. Raises CompileError if a layer does not fit.

    With ``prefer = compile-time``, the planner tries few plans. A program with ``npu.tiled_for`` is planned for another
    machine.
    """
    quick, given = job.choice.prefer == "compile-time", job.program.attributes.get(TILED_FOR)
    if given is None:
        tilings = tilings_of(ctx, job.target, quick=quick)
    else:
        job = job.on(_machine(job.target, given))
        tilings = Tilings(job.target, quick=quick)
    check, uncopied = partial(checkpoint, ctx), uncopied_weights(job)
    return planned_layers(layer_ops(job.block), tilings, job.memory, check, quick=quick, uncopied=uncopied)


_ARRAY = ("macs_per_cycle", "accumulator_ports", "shapes", "depthwise_shape")
_PORTS = ("tile_ports.read_bytes_per_cycle", "tile_ports.write_bytes_per_cycle")
SCALED: dict[str, tuple[str, ...]] = {
    "lanes": ("vector.requant_lanes",),
    "sram": ("sram.bytes_per_cycle",),
    "tile_ports": _PORTS,
    "array": (*(f"array.{name}" for name in _ARRAY), *_PORTS, "vector.requant_lanes"),
    "room": ("sram.capacity_bytes",),
}
"""Target fields that each key of ``npu.tiled_for`` scales."""


def _machine(target: Target, attribute: Attribute) -> Target:
    data = attribute.data if isinstance(attribute, DictionaryAttr) else {"": attribute}
    percents = {part: value.value.data for part, value in data.items() if isinstance(value, IntegerAttr)}
    too_few = [part for part, percent in percents.items() if percent < (part != "room")]
    if len(percents) < len(data) or not percents.keys() <= SCALED.keys() or too_few:
        raise CompileError(f"{TILED_FOR} is {attribute}", hint=f"write percentages of some of {', '.join(SCALED)}")
    for part, percent in percents.items():
        target = targets.scaled(target, dict.fromkeys(SCALED[part], percent))
    return target


def planned_layers(
    layers: Sequence[Operation],
    tilings: Tilings,
    memory: MemoryMode,
    check: Callable[[], None],
    *,
    quick: bool = False,
    uncopied: Mapping[Operation, int] = MappingProxyType({}),
) -> tuple[LayerGraph, ResidencyPlan]:
    """Return the graph of a program's ``layers`` and its plan. Raises CompileError if a layer does not fit.

    ``uncopied``: bytes of weights without room in SRAM, by layer. ``check`` is called repeatedly and may raise.
    """
    graph = read_graph(layers, tilings.target, uncopied)
    plan = ResidentPlanner(graph, tilings, memory).plan(check, improve=not quick)
    return graph, fused(graph, plan, tilings, memory)
