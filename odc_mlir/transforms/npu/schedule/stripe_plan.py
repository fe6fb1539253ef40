"""Which chains of operations are computed stripe by stripe so that a program fits in an arena.

A chain is a run of operations of which only the last one's result is used behind it. It is computed for some rows of
that result at a time; what lies between its operations exists for one stripe only. Rows that two stripes need are
computed twice. Chains and stripes are chosen together, by dynamic programming over the order of the program: memory is
what a chain and all that lives across it need, costs are estimates from the machine's widths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from xdsl.ir import SSAValue

from odc_mlir.isa.fields import Space
from odc_mlir.transforms.npu.schedule.arena import Interval, allocate_tightly
from odc_mlir.transforms.npu.schedule.geometry import even_splits, parts
from odc_mlir.transforms.npu.schedule.program import Buffer
from odc_mlir.transforms.npu.schedule.row_graph import START_CYCLES, RowGraph, Rows

LONGEST_CHAIN = 24
BUDGETS = 16  # up to half more than the least one
MOST_HEIGHTS = 64  # of stripes that are tried per chain
STEP = 0.98  # of memory, at most, from one plan to the next where several are tried
SLOWDOWN = 1.1  # of the estimate: what less memory may cost where memory is preferred


class Chain(NamedTuple):
    """Layers ``[first, last]``, for ``rows`` rows of the last one's result at a time (0: one layer as it is)."""

    first: int
    last: int
    rows: int = 0


class CostedChain(NamedTuple):
    """A chain with the bytes and cycles that it takes."""

    chain: Chain
    needed_bytes: int
    cycles: float


@dataclass(frozen=True, slots=True)
class StripePlan:
    """Chains that cover a program in order, what the arena needs for its tensors, and the estimated cycles."""

    chains: tuple[Chain, ...]
    arena_bytes: int
    cycles: float

    @property
    def is_plain(self) -> bool:
        """Nothing is cut."""
        return not any(chain.rows for chain in self.chains)


def stripe_rows(graph: RowGraph, chain: Chain, rows: Rows) -> dict[int, Rows]:
    """The rows of each layer's result that ``rows`` of the last one's need."""
    needed = {chain.last: rows}
    for number in range(chain.last, chain.first - 1, -1):
        for source in graph.layers[number].sources:
            if source.layer is not None and source.layer >= chain.first:
                wanted = source.needed(needed[number])
                needed[source.layer] = wanted.union(needed.get(source.layer, wanted))
    return needed


def stripes(graph: RowGraph, chain: Chain) -> Iterator[dict[int, Rows]]:
    """:func:`stripe_rows` of all stripes of a chain, from the top."""
    for first, count in parts(graph.layers[chain.last].rows, chain.rows):
        yield stripe_rows(graph, chain, Rows(first, first + count))


class StripePlanner:
    """Plans one program. ``alignment``: bytes of an SRAM burst.

    ``residents``: results that stay in the tile buffer while neither the layer that computes them nor one that reads
    them is cut.
    """

    def __init__(self, graph: RowGraph, alignment: int, residents: Collection[SSAValue] = ()) -> None:
        self.graph, self.alignment = graph, alignment
        self._residents = frozenset(residents)

    def _aligned(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    @cached_property
    def plain(self) -> StripePlan:
        """The program as it is."""
        return self._plan([CostedChain(Chain(k, k), 0, self._plain_cycles(k)) for k in range(len(self.graph.layers))])

    def within(self, limit: int) -> StripePlan | None:
        """The fastest plan found whose tensors fit in ``limit`` bytes, None where there is none."""
        budget = limit
        while (options := self._fastest(budget)) is not None:
            plan = self._plan(options)
            if plan.arena_bytes <= limit:
                return plan
            budget = min(budget, max(option.needed_bytes for option in options)) - self.alignment
        return self.smallest if self.smallest.arena_bytes <= limit else None

    @cached_property
    def smallest(self) -> StripePlan:
        """The plan with the least memory of those for budgets from the least one on: some leave fewer gaps."""
        least, found = self._least_bytes(), [self.plain]
        for step in range(BUDGETS):
            options = self._fastest(least + least * step // (2 * BUDGETS))
            assert options is not None, "the least budget is that of some plan"
            found.append(self._plan(options))
        return min(found, key=lambda plan: (plan.arena_bytes, plan.cycles))

    @cached_property
    def front(self) -> list[StripePlan]:
        """Plans from the plain one to the smallest, each the fastest found for a little less than the one before takes.

        They are at least STEP apart, if not in what they take then in the memory that they were looked for in.
        """
        found, budget = [self.plain], self.plain.arena_bytes
        while (plan := self.within(min(int(STEP * budget), found[-1].arena_bytes - self.alignment))) is not None:
            found.append(plan)
            budget = plan.arena_bytes
        return found if found[-1].arena_bytes <= self.smallest.arena_bytes else [*found, self.smallest]

    def frugal(self) -> StripePlan:
        """A plan that takes little memory without being much slower than the plain one."""
        best, low, high = self.plain, self.smallest.arena_bytes, self.plain.arena_bytes
        while high - low > high // 32:
            middle = (low + high) // 2
            plan = self.within(middle)
            if plan is not None and plan.cycles <= SLOWDOWN * self.plain.cycles:
                best, high = plan, min(middle, plan.arena_bytes)
            else:
                low = middle
        return best

    def _plain_cycles(self, number: int) -> float:
        layer = self.graph.layers[number]
        return layer.row_cycles * max(layer.rows, 1) + START_CYCLES

    @cached_property
    def _fronts(self) -> list[list[list[CostedChain]]]:
        """What may begin at each layer, by its last one: what is faster than all with less memory, the least first."""
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
        """What may begin at each layer, for every chain from the fastest to the one with the least memory."""
        found: list[list[CostedChain]] = []
        for first in range(len(self.graph.layers)):
            plain = Chain(first, first)
            options = [CostedChain(plain, self._live(plain), self._plain_cycles(first))]
            for last in range(first, min(first + LONGEST_CHAIN, len(self.graph.layers))):
                if not self.graph.layers[last].rows:
                    break
                if self._is_chain(first, last):
                    options += self._cuts(first, last)
            found.append(options)
        return found

    def _is_chain(self, first: int, last: int) -> bool:
        """Whether only the last of these layers is used behind them, and every other one is needed by them."""
        for number in range(first, last):
            value = self.graph.layers[number].op.results[0]
            if number in self.graph.escapes or not number < self.graph.last_use[value] <= last:
                return False
        return last > first

    def _cuts(self, first: int, last: int) -> Iterator[CostedChain]:
        """The chain with stripes of different heights, those left out that cost more than one with less memory."""
        height, least = self.graph.layers[last].rows, -1
        held = self._live(Chain(first, last, height))
        for rows in even_splits(height, -(-height // 2), MOST_HEIGHTS):
            chain = Chain(first, last, rows)
            needed = held + self._inner_bytes(chain)
            if least < 0 or needed < least:
                least = needed
                yield CostedChain(chain, needed, self._cycles(chain))

    def _live(self, chain: Chain) -> int:
        """Bytes of the tensors that are in memory while these layers run: all but those between them."""
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
        """Whether a tensor stays in the tile buffer when the layers ``cut`` are cut."""
        graph = self.graph
        return value in self._residents and graph.defined[value] not in cut and not graph.readers[value] & cut

    def _inner_bytes(self, chain: Chain) -> int:
        """The most bytes between the layers of a stripe; one in the middle has the most rows."""
        graph, most = self.graph, 0
        height = graph.layers[chain.last].rows
        first = min(height - chain.rows, max(0, (height - chain.rows) // 2))
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
        """The chains with the least cycles that each fit in ``budget`` bytes."""
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
        """The least budget that covers the program."""
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

    def _intervals(self, chains: Sequence[Chain]) -> Iterator[Interval]:
        """The tensors of a plan with the times at which they are in use."""
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
                yield Interval(Buffer("tensor", Space.ARENA, size), first, ends[graph.last_use[value]], self.alignment)

    def _stripe(self, chain: Chain, needed: dict[int, Rows], clock: int) -> Iterator[Interval]:
        """The tensors between the layers of one stripe, which begins at ``clock``."""
        for number in range(chain.first, chain.last):
            layer = self.graph.layers[number]
            buffer = Buffer("stripe", Space.ARENA, needed[number].count * layer.row_bytes)
            last = self.graph.last_use[layer.op.results[0]]
            yield Interval(buffer, clock + number - chain.first, clock + last - chain.first, self.alignment)


def _path(best: Sequence[tuple[float, CostedChain | None]]) -> list[CostedChain] | None:
    """The options that lead to the last entry, None where nothing does."""
    found: list[CostedChain] = []
    position = len(best) - 1
    while position > 0:
        option = best[position][1]
        if option is None:
            return None
        found.append(option)
        position = option.chain.first
    return found[::-1]
