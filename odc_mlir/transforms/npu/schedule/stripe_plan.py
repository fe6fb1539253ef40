"""Plans of stripes: chains of operations run a few rows at a time, so that a program fits in an arena.

Only the last result of a chain is used after the chain. All earlier tensors of the chain exist for one stripe only.
Rows that two stripes need are computed twice. Dynamic programming over the program order chooses chains and stripes
together. The memory of a chain includes all tensors that live across it. Costs are estimates.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate_tightly
from odc_mlir.transforms.npu.schedule.cost import instruction_cycles, ports
from odc_mlir.transforms.npu.schedule.geometry import even_splits, parts
from odc_mlir.transforms.npu.schedule.layer_plan import follower_of
from odc_mlir.transforms.npu.schedule.layers import code_type
from odc_mlir.transforms.npu.schedule.resize_stream import ResizeAxis, lane_turns
from odc_mlir.transforms.npu.schedule.tensor_ir import BY_ROWS, layer_ops, viewed, window_of
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingSearch
from odc_mlir.transforms.npu.schedule.window_tiling import StepKind

LONGEST_CHAIN = 24
BUDGETS = 16  # budgets to try, up to 1.5 times the least budget
MOST_HEIGHTS = 64  # stripe heights to try per chain
STEP = 0.98  # largest memory limit of a plan, relative to the previous plan
LONGEST_FUSED = 8  # layers of a chain that keeps its results in the tile buffer
LARGE_CYCLES = 500_000  # estimated cycles from which a program is not compiled several times
SLOT_SHARE = 4  # transfers between SRAM and a chain need at most 1/SLOT_SHARE of the tile buffer
STALL_CYCLES = 600  # time at the start of a stripe that nothing overlaps
MARGIN = 1.05  # factor on estimates of chains, which are less certain than those of single layers


class Chain(NamedTuple):
    """Layers ``[first, last]``, computed ``rows`` rows of the last result at a time. ``rows`` 0: one whole layer."""

    first: int
    last: int
    rows: int = 0


class CostedChain(NamedTuple):
    """Chain with its bytes and cycles."""

    chain: Chain
    needed_bytes: int
    cycles: float


@dataclass(frozen=True, slots=True)
class StripePlan:
    """Chains that cover a program in order, the arena bytes of its tensors, and the estimated cycles."""

    chains: tuple[Chain, ...]
    arena_bytes: int
    cycles: float


def stripe_rows(graph: RowGraph, chain: Chain, rows: Rows) -> dict[int, Rows]:
    """Return the rows of each layer's result that ``rows`` of the last result need."""
    needed = {chain.last: rows}
    for number in range(chain.last, chain.first - 1, -1):
        for source in graph.layers[number].sources:
            if source.layer is not None and source.layer >= chain.first:
                wanted = source.needed(needed[number])
                needed[source.layer] = wanted.union(needed.get(source.layer, wanted))
    return needed


def stripes(graph: RowGraph, chain: Chain) -> Iterator[dict[int, Rows]]:
    """Yield :func:`stripe_rows` of all stripes of a chain, from top to bottom."""
    for first, count in parts(graph.layers[chain.last].rows, chain.rows):
        yield stripe_rows(graph, chain, Rows(first, first + count))


class StripePlanner:
    """Planner of one program. ``alignment``: bytes of an SRAM burst.

    ``residents``: results that stay in the tile buffer if no chain cuts a layer that computes or reads the result.
    """

    def __init__(self, graph: RowGraph, alignment: int, residents: Collection[SSAValue] = ()) -> None:
        self.graph, self.alignment = graph, alignment
        self._residents = frozenset(residents)

    def _aligned(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    @cached_property
    def plain(self) -> StripePlan:
        """Plan without stripes."""
        return self._plan(list(map(self._plain_chain, range(len(self.graph.layers)))))

    def within(self, limit: int) -> StripePlan | None:
        """Return the fastest plan whose tensors fit in ``limit`` bytes, or None."""
        budget = limit
        while (options := self._fastest(budget)) is not None:
            plan = self._plan(options)
            if plan.arena_bytes <= limit:
                return plan
            budget = min(budget, max(option.needed_bytes for option in options)) - self.alignment
        return self.smallest if self.smallest.arena_bytes <= limit else None

    @cached_property
    def smallest(self) -> StripePlan:
        """Plan with the least memory among several budgets, because a larger budget may leave fewer gaps."""
        least, found = self._least_bytes(), [self.plain]
        for step in range(BUDGETS):
            options = self._fastest(least + least * step // (2 * BUDGETS))
            assert options is not None, "some plan has the least budget"
            found.append(self._plan(options))
        return min(found, key=lambda plan: (plan.arena_bytes, plan.cycles))

    @cached_property
    def front(self) -> list[StripePlan]:
        """Plans from no stripes to least memory, each with at most STEP times the memory of the previous plan."""
        found, budget = [self.plain], self.plain.arena_bytes
        while (plan := self.within(min(int(STEP * budget), found[-1].arena_bytes - self.alignment))) is not None:
            found.append(plan)
            budget = plan.arena_bytes
        return found if found[-1].arena_bytes <= self.smallest.arena_bytes else [*found, self.smallest]

    def _plain_chain(self, number: int, needed_bytes: int = 0) -> CostedChain:
        layer = self.graph.layers[number]
        return CostedChain(Chain(number, number), needed_bytes, layer.row_cycles * max(layer.rows, 1) + START_CYCLES)

    @cached_property
    def _fronts(self) -> list[list[list[CostedChain]]]:
        """Pareto front of the chains by cycles and memory, by first and last layer, least memory first."""
        found = []
        for options in self._options:
            fronts: list[list[CostedChain]] = []
            for _, ending in groupby(options, key=lambda option: option.chain.last):
                front: list[CostedChain] = []
                for option in sorted(ending, key=lambda option: (option.needed_bytes, -option.chain.rows)):
                    if not front or option.cycles <= front[-1].cycles:
                        front.append(option)
                fronts.append(front)
            found.append(fronts)
        return found

    @cached_property
    def _options(self) -> list[list[CostedChain]]:
        """Chains by first layer. Chains with the same last layer are sorted by falling memory."""
        found: list[list[CostedChain]] = []
        for first in range(len(self.graph.layers)):
            options = [self._plain_chain(first, self._live(Chain(first, first)))]
            for last in range(first, min(first + LONGEST_CHAIN, len(self.graph.layers))):
                if not self.graph.layers[last].rows:
                    break
                if self._is_chain(first, last):
                    options += self._cuts(first, last)
            found.append(options)
        return found

    def _is_chain(self, first: int, last: int) -> bool:
        for number in range(first, last):
            value = self.graph.layers[number].op.results[0]
            if number in self.graph.escapes or not number < self.graph.last_use[value] <= last:
                return False
        return last > first

    def _cuts(self, first: int, last: int) -> Iterator[CostedChain]:
        height, least = self.graph.layers[last].rows, -1
        held = self._live(Chain(first, last, height))
        for rows in even_splits(height, -(-height // 2), MOST_HEIGHTS):
            chain = Chain(first, last, rows)
            needed = held + self._inner_bytes(chain)
            if least < 0 or needed < least:
                least = needed
                yield CostedChain(chain, needed, self._cycles(chain))

    def _live(self, chain: Chain) -> int:
        graph, (first, last, rows) = self.graph, chain
        cut = set(range(first, last + 1)) if rows else set()
        return sum(
            self._aligned(size)
            for value, size in graph.sizes.items()
            if graph.defined[value] <= last
            and graph.last_use[value] >= first
            and not first <= graph.defined[value] < last
            and not self._stays(value, cut)
        )

    def _stays(self, value: SSAValue, cut: Set[int]) -> bool:
        graph = self.graph
        return value in self._residents and graph.defined[value] not in cut and not graph.readers[value] & cut

    def _inner_bytes(self, chain: Chain) -> int:
        graph, most = self.graph, 0
        height = graph.layers[chain.last].rows
        first = min(height - chain.rows, max(0, (height - chain.rows) // 2))  # the middle stripe has the most rows
        needed = stripe_rows(graph, chain, Rows(first, first + chain.rows))
        for number in range(chain.first, chain.last + 1):
            live = 0
            for other in range(chain.first, min(number, chain.last - 1) + 1):
                value = graph.layers[other].op.results[0]
                if graph.last_use[value] >= number:
                    live += self._aligned(needed[other].count * graph.layers[other].row_bytes)
            most = max(most, live)
        return most

    def _cycles(self, chain: Chain) -> float:
        graph, total, height = self.graph, 0.0, self.graph.layers[chain.last].rows
        times = -(-height // chain.rows)
        needed = stripe_rows(graph, chain, Rows(0, min(chain.rows, height)))
        middle = stripe_rows(graph, chain, Rows(height // 2, min(height, height // 2 + chain.rows)))
        for number, rows in needed.items():
            layer = graph.layers[number]
            total += times * (max(rows.count, middle[number].count) * layer.row_cycles + START_CYCLES)
            total += (times - 1) * layer.weight_cycles
        return total

    def _fastest(self, budget: int) -> list[CostedChain] | None:
        """Return the chains with the fewest total cycles that each fit in ``budget`` bytes."""
        count = len(self.graph.layers)
        best: list[tuple[float, CostedChain | None]] = [(0.0, None), *[(float("inf"), None)] * count]
        for first, fronts in enumerate(self._fronts):
            here = best[first][0]
            for front in fronts:
                fitting = bisect_right(front, budget, key=lambda option: option.needed_bytes)
                option = front[fitting - 1]
                if fitting and here + option.cycles < best[option.chain.last + 1][0]:
                    best[option.chain.last + 1] = (here + option.cycles, option)
        return _path(best)

    def _least_bytes(self) -> int:
        """Return the least budget for which chains cover the program."""
        least: list[int] = [0, *[-1] * len(self.graph.layers)]
        for first, options in enumerate(self._options):
            for option in options:
                needed, behind = max(least[first], option.needed_bytes), option.chain.last + 1
                if least[behind] < 0 or needed < least[behind]:
                    least[behind] = needed
        return least[-1]

    def _plan(self, options: Sequence[CostedChain]) -> StripePlan:
        chains = tuple(option.chain for option in options)
        intervals = list(self._intervals(chains))
        used = allocate_tightly(intervals) if intervals else 0
        return StripePlan(chains, used, sum(option.cycles for option in options))

    def _intervals(self, chains: Sequence[Chain]) -> Iterator[Interval[str]]:
        graph, clock = self.graph, 0
        starts: dict[int, int] = {}
        ends: dict[int, int] = {-1: 0}
        inside: set[SSAValue] = set()
        cut = {layer for chain in chains if chain.rows for layer in range(chain.first, chain.last + 1)}
        for chain in chains:
            if not chain.rows:
                starts[chain.first] = ends[chain.first] = clock
                clock += 1
                continue
            begin = clock
            for needed in stripes(graph, chain):
                yield from self._stripe(chain, needed, clock)
                clock += len(needed)
            for number in range(chain.first, chain.last + 1):
                starts[number], ends[number] = begin, clock - 1
            inside |= {graph.layers[number].op.results[0] for number in range(chain.first, chain.last)}
        ends[len(graph.layers)] = clock
        for value, size in graph.sizes.items():
            if value not in inside and not self._stays(value, cut):
                first = starts.get(graph.defined[value], 0)
                yield Interval("tensor", size, first, ends[graph.last_use[value]], self.alignment)

    def _stripe(self, chain: Chain, needed: dict[int, Rows], clock: int) -> Iterator[Interval[str]]:
        for number in range(chain.first, chain.last):
            layer = self.graph.layers[number]
            size, start = needed[number].count * layer.row_bytes, clock - chain.first
            last = self.graph.last_use[layer.op.results[0]]
            yield Interval("stripe", size, start + number, start + last, self.alignment)


def _path(best: Sequence[tuple[float, CostedChain | None]]) -> list[CostedChain] | None:
    found: list[CostedChain] = []
    position = len(best) - 1
    while position > 0:
        option = best[position][1]
        if option is None:
            return None
        found.append(option)
        position = option.chain.first
    return found[::-1]


START_CYCLES = 256  # first load and last store of an operation, which nothing overlaps


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows ``[first, end)`` of an image."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first

    def union(self, other: Rows) -> Rows:
        """Return the smallest range that contains both ranges."""
        return Rows(min(self.first, other.first), max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class RowSource:
    """Operand, computed by ``layer`` (None for an input) and stored in ``root``.

    Row ``row`` of the result needs ``span`` rows of the operand from ``row * stride - before``. Rows outside of the
    image are padding. With ``stride`` 0, a result row needs all rows. ``resized`` overrides these fields.
    """

    value: SSAValue
    root: SSAValue
    layer: int | None
    rows: int
    stride: int = 1
    span: int = 1
    before: int = 0
    resized: ResizeAxis | None = None

    def needed(self, rows: Rows) -> Rows:
        """Return the rows of the operand that ``rows`` of the result need."""
        if not self.stride:
            return Rows(0, self.rows)
        if self.resized is not None:
            return Rows(int(self.resized.low[rows.first]), int(self.resized.high[rows.end - 1]) + 1)
        first = rows.first * self.stride - self.before
        end = (rows.end - 1) * self.stride - self.before + self.span
        return Rows(max(0, first), min(self.rows, end))


@dataclass(slots=True)
class RowLayer:
    """Operation with its costs per row. ``rows``: rows of the result, or 0 if stripes are impossible."""

    op: Operation
    sources: tuple[RowSource, ...]
    rows: int
    row_bytes: int
    row_cycles: float
    weight_cycles: float


@dataclass(slots=True)
class RowGraph:
    """Operations of a program in order, and the tensors that they keep in memory."""

    layers: list[RowLayer] = field(default_factory=list)
    sizes: dict[SSAValue, int] = field(default_factory=dict)  # bytes of inputs and results, by root
    last_use: dict[SSAValue, int] = field(default_factory=dict)  # layer; for outputs, one past the last layer
    defined: dict[SSAValue, int] = field(default_factory=dict)  # layer that computes the tensor; -1 for inputs
    readers: dict[SSAValue, set[int]] = field(default_factory=dict)  # layers that read the tensor
    escapes: set[int] = field(default_factory=set)  # layers whose result is an output or has views
    apart_bytes: int = 0  # bytes of unused inputs in the input region


def read_rows(block: Block, target: Target, memory: MemoryMode) -> RowGraph:
    """Return the graph of the tensor operations in ``block``."""
    graph, ops = RowGraph(), layer_ops(block)
    index: dict[SSAValue, int] = {op.results[0]: number for number, op in enumerate(ops)}
    for argument in block.args:
        if not argument.uses:
            graph.apart_bytes += -(-npu.size_bytes(argument) // REGION_ALIGNMENT_BYTES) * REGION_ALIGNMENT_BYTES
            continue
        graph.sizes[argument], graph.defined[argument], graph.last_use[argument] = npu.size_bytes(argument), -1, 0
    for number, op in enumerate(ops):
        result = op.results[0]
        sources = tuple(_source(op, value, index) for value in op.operands)
        graph.layers.append(_layer(op, sources, target, memory))
        graph.sizes[result], graph.defined[result], graph.last_use[result] = npu.size_bytes(result), number, number
        for source in sources:
            if source.root in graph.sizes:
                graph.last_use[source.root] = number
                graph.readers.setdefault(source.root, set()).add(number)
        if any(isinstance(use.operation, npu.ReshapeOp | YieldOp) for use in result.uses):
            graph.escapes.add(number)
    last = block.last_op
    for value in last.operands if last is not None else ():
        if viewed(value) in graph.last_use:
            graph.last_use[viewed(value)] = len(ops)
    return graph


def _source(op: Operation, value: SSAValue, index: dict[SSAValue, int]) -> RowSource:
    shape = npu.shape_of(value)
    rows = shape[-3] if len(shape) >= 3 else 1
    found = RowSource(value, viewed(value), index.get(value), rows)
    if isinstance(op, npu.ConvOp | npu.PoolOp):
        dilation = op.dilation.get_values()[0] if isinstance(op, npu.ConvOp) else 1
        kernel, stride, before = op.kernel.get_values()[0], op.stride.get_values()[0], op.pads.get_values()[0]
        return replace(found, stride=stride, span=(kernel - 1) * dilation + 1, before=before)
    if rows == 1:
        return replace(found, stride=0)
    return replace(found, resized=ResizeAxis(op, 0)) if isinstance(op, npu.ResizeOp) else found


def _layer(op: Operation, sources: tuple[RowSource, ...], target: Target, memory: MemoryMode) -> RowLayer:
    rows = _rows(op, sources)
    port = ports(target, memory)
    moved = npu.size_bytes(op.results[0]) + sum(npu.size_bytes(source.value) for source in sources)
    cycles = max(moved / port.sram.bytes_per_cycle, _computing(op, target))
    weights = 0
    if isinstance(op, npu.ConvOp):
        pixels, channels = target.array.depthwise_shape if op.depthwise is not None else (1, 1)
        rate = pixels * channels if op.depthwise is not None else target.array.macs_per_cycle
        cycles, weights = max(cycles, op.macs / rate), op.weights.data.size
    row_bytes = npu.size_bytes(op.results[0]) // rows if rows else 0
    return RowLayer(op, sources, rows, row_bytes, cycles / max(rows, 1), weights / port.constants.bytes_per_cycle)


def _computing(op: Operation, target: Target) -> float:
    count = math.prod(npu.shape_of(op.results[0]))
    if isinstance(op, npu.ArgMaxOp):
        return math.prod(npu.shape_of(op.input)) / target.vector.reduce_lanes
    if isinstance(op, npu.SoftmaxOp):
        return instruction_cycles("softmax", target, in_type=code_type(op.input), rows=1, columns=count)
    turns = lane_turns(op) if isinstance(op, npu.ResizeOp) else 1
    return turns * count / target.vector.requant_lanes


def _rows(op: Operation, sources: tuple[RowSource, ...]) -> int:
    if not isinstance(op, BY_ROWS):
        return 0
    result = npu.shape_of(op.results[0])
    if isinstance(op, npu.ArgMaxOp):
        result = (*result, 1)  # one index per pixel
    images = [result, *(npu.shape_of(source.value) for source in sources if source.stride)]
    if any(len(shape) != 4 or shape[0] != 1 for shape in images) or result[1] < 2:
        return 0
    if any(source.stride and source.before >= source.span for source in sources):
        return 0  # a window may contain padding only
    if any(source.stride and isinstance(source.root.owner, npu.ConstantOp) for source in sources):
        return 0  # a loaded constant is in SRAM as a whole
    return result[1]


class FusedPlanner(StripePlanner):
    """Planner for speed: results inside of a chain stay in the tile buffer and never cross the SRAM port.

    The estimate of a chain is the larger of two times: the instructions of all stripes, and the traffic on the port.
    """

    def __init__(self, graph: RowGraph, target: Target, residents: Collection[SSAValue]) -> None:
        super().__init__(graph, target.sram.burst_bytes, residents)
        fused = (layer.op.results[0] for layer in graph.layers if follower_of(layer.op) is not None)
        self.target, self._local = target, frozenset((*residents, *fused))
        self._computed = cache(self._count_computed)

    def fastest(self, least_cycles: float) -> StripePlan | None:
        """Return the fastest plan, or None if it has no stripes or single layers reach the bound ``least_cycles``."""
        if not least_cycles < sum(self._plain_chain(k).cycles for k in range(len(self.graph.layers))) < LARGE_CYCLES:
            return None
        chains = tuple(option.chain for option in self._fastest(self._least_bytes()) or ())
        return StripePlan(chains, 0, 0) if any(chain.rows for chain in chains) else None

    def _plain_chain(self, number: int, needed_bytes: int = 0) -> CostedChain:
        layer = self.graph.layers[number]
        values = [*(source.value for source in layer.sources), layer.op.results[0]]
        moved = sum(npu.size_bytes(value) for value in values if value not in self._local)
        cycles = max(self._computed(number, max(layer.rows, 1)), moved / self.target.sram.bytes_per_cycle)
        return CostedChain(Chain(number, number), 0, cycles + START_CYCLES)

    def _cuts(self, first: int, last: int) -> Iterator[CostedChain]:
        inner = (self.graph.layers[number].op.results[0] for number in range(first, last))
        if last - first < LONGEST_FUSED and not self._local.issuperset(inner):
            height = self.graph.layers[last].rows
            for rows in even_splits(height, -(-height // 2), MOST_HEIGHTS):
                yield CostedChain(chain := Chain(first, last, rows), 0, self._cycles(chain))

    def _cycles(self, chain: Chain) -> float:
        """Return the cycles of a chain, or infinity if the tile buffer is too small."""
        layers, total = self.graph.layers, self.target.local.tile_bytes
        height = layers[chain.last].rows
        first = (height - chain.rows) // 2  # the middle stripe has the most rows
        needed = stripe_rows(self.graph, chain, Rows(first, first + chain.rows))
        read = [(source, rows) for number, rows in needed.items() for source in layers[number].sources]
        read = [(source, rows) for source, rows in read if source.layer is None or source.layer < chain.first]
        loaded = [source.needed(rows).count * npu.size_bytes(source.value) // source.rows for source, rows in read]
        if self._inner_bytes(chain) + min(max(loaded), total // SLOT_SHARE) > total:
            return math.inf
        times = -(-height // chain.rows)
        computed = times * sum(self._computed(number, rows.count) for number, rows in needed.items())
        ops = [layers[number].op for number in needed]
        weights = sum(op.weights.data.size for op in ops if isinstance(op, npu.ConvOp))
        moved = npu.size_bytes(ops[0].results[0]) + times * (sum(loaded) + weights)
        return MARGIN * (max(computed, moved / self.target.sram.bytes_per_cycle) + START_CYCLES + times * STALL_CYCLES)

    def _count_computed(self, number: int, rows: int) -> float:
        layer, target = self.graph.layers[number], self.target
        if not isinstance(layer.op, npu.ConvOp):
            return _computing(layer.op, target) * rows / max(layer.rows, 1) + target.vector.start_cycles
        window = window_of(layer.op, source_resident=True, result_resident=True)
        kind = StepKind(window.out_channels, window.in_channels, is_first=True, is_last=True)
        search = TilingSearch(window, target, Room(target.local.tile_bytes), weighted=True)
        return min(search.cycles(kind, rows, window.out_width, k) for k in range(len(target.array.shapes)))
