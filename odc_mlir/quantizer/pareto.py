"""Mixed precision as an optimisation problem: the Pareto front of output noise and cost over precisions of layers.

Noises of roundings are treated as independent: like costs, they add up. For a price of noise, the best choice is a
minimum cut (project selection, Rhys 1970 and Picard 1976). Dinic's algorithm (1970) finds it.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from odc_mlir.errors import OdcError
from odc_mlir.quantizer.evaluator import Evaluator
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.models import Candidate
from odc_mlir.quantizer.policy.options import PrecisionChoice
from odc_mlir.quantizer.policy.schemes import FLOAT, bits_of, values_of

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement

LOG = logging.getLogger(__name__)


class Network:
    """Flow network of nodes ``0 … count - 1`` and arcs with capacities."""

    def __init__(self, count: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(count)]
        self._ends: list[int] = []
        self._left: list[float] = []

    def connect(self, start: int, end: int, capacity: float, backward: float = 0.0) -> None:
        """Add an arc with this capacity, which may be infinite, and an arc with capacity ``backward`` in reverse."""
        self._arcs[start].append(len(self._ends))
        self._arcs[end].append(len(self._ends) + 1)
        self._ends += [end, start]
        self._left += [capacity, backward]

    def source_side(self, source: int, sink: int) -> set[int]:
        """Return the nodes on the source's side of a minimum cut. If there are several, take the fewest nodes.

        Every path from source to sink must have a finite arc. The network cannot be used again.
        """
        full = 1e-12  # remaining capacity of a saturated arc due to rounding, relative to the largest capacity
        nothing = full * max((left for left in self._left if left < math.inf), default=0.0)
        while True:
            levels = self._levels(source, nothing)
            if sink not in levels:
                return set(levels)
            todo = [arcs[::-1] for arcs in self._arcs]
            while self._augment(source, sink, levels, todo, nothing):
                pass

    def _levels(self, source: int, nothing: float) -> dict[int, int]:
        levels, waiting = {source: 0}, deque([source])
        while waiting:
            node = waiting.popleft()
            for arc in self._arcs[node]:
                end = self._ends[arc]
                if self._left[arc] > nothing and end not in levels:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _augment(self, source: int, sink: int, levels: dict[int, int], todo: list[list[int]], nothing: float) -> bool:
        """Augment the flow by a shortest path of arcs in ``todo``, taken from the end. Return False without one."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = todo[node]
            while arcs and (self._left[arcs[-1]] <= nothing or levels.get(self._ends[arcs[-1]]) != levels[node] + 1):
                arcs.pop()
            if arcs:
                path.append(arcs[-1])
                node = self._ends[arcs[-1]]
            elif path:
                node = self._ends[path.pop() ^ 1]
                todo[node].pop()
            else:
                return False
        flow = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= flow
            self._left[arc ^ 1] += flow
        return True


Levels = tuple[int, ...]

_SOURCE, _SINK = 0, 1  # nodes of a network; others follow


@dataclass(frozen=True, slots=True)
class RoundingNoise:
    """Noise of a rounding in the outputs: ``noise[k]`` remains if all of ``layers`` are at level k or above."""

    layers: tuple[int, ...]
    noise: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Border:
    """Cost of a border between two layers: ``costs[k]`` is due if only one of the layers is above level k."""

    first: int
    second: int
    costs: tuple[float, ...]

    def cost(self, levels: Levels) -> float:
        """Return the cost of these levels."""
        low, high = sorted((levels[self.first], levels[self.second]))
        return sum(self.costs[low:high])


@dataclass(frozen=True)
class Problem:
    """Problem of choosing levels. ``costs``: per layer and level, infinite if not allowed. Level 0 is allowed."""

    costs: Sequence[Sequence[float]]
    roundings: Sequence[RoundingNoise]
    borders: Sequence[Border] = ()

    @property
    def plain(self) -> Levels:
        """Level 0 for all layers."""
        return (0,) * len(self.costs)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The layers for which several levels are possible."""
        return tuple(i for i, row in enumerate(self.costs) if sum(map(math.isfinite, row)) > 1)

    def point(self, levels: Levels) -> Point:
        """Return these levels with the estimated cost and noise."""
        cost = sum(row[level] for row, level in zip(self.costs, levels, strict=True))
        cost += sum(border.cost(levels) for border in self.borders)
        noise = sum(r.noise[min(levels[i] for i in r.layers)] for r in self.roundings)
        return Point(levels, cost, noise)


@dataclass(frozen=True, slots=True)
class Point:
    """One choice of levels, with estimated cost and noise."""

    levels: Levels
    cost: float
    noise: float


def front(problem: Problem) -> list[Point]:
    """Return the best choices for some prices of noise, cheapest first. Later choices cost more and have less noise."""
    found: list[Point] = []
    for point in sorted(_hull(problem), key=lambda point: (point.cost, point.noise, point.levels)):
        if not found or point.noise < found[-1].noise * (1.0 - 1e-9):
            found.append(point)
    return found


def _hull(problem: Problem) -> list[Point]:
    """Return points of the convex hull, in the order of the search: wide gaps first."""
    worthless = 1e-5  # smaller parts of the noise are not worth any cost
    most_cuts = 48
    cheapest = _best(problem, 0.0)
    if not cheapest.noise:
        return [cheapest]
    span = sum(max(filter(math.isfinite, row)) - min(row) for row in problem.costs) + sum(
        sum(border.costs) for border in problem.borders
    )
    quietest = _best(problem, span / (worthless * cheapest.noise))
    found, gaps, cuts = [cheapest, quietest], [(cheapest, quietest)], 2
    while gaps and cuts < most_cuts:
        gaps.sort(key=lambda gap: (gap[1].cost - gap[0].cost) * math.log(gap[0].noise / max(gap[1].noise, 1e-30)))
        low, high = gaps.pop()
        if high.noise >= low.noise or high.cost <= low.cost:
            continue
        price = (high.cost - low.cost) / (low.noise - high.noise)
        middle, cuts = _best(problem, price), cuts + 1
        if middle.cost + price * middle.noise < (low.cost + price * low.noise) * (1.0 - 1e-9):
            found.append(middle)
            gaps += [(low, middle), (middle, high)]
    return found


def _best(problem: Problem, price: float) -> Point:
    """Return the choice with the least total cost if noise costs ``price``: a minimum cut.

    A node represents a layer at some level or above, or a rounding at this level. A level that is not allowed for a
    layer has the cost of the next allowed level, and stands for this level.
    """
    rows = {i: _filled(problem.costs[i]) for i in problem.free}
    nodes = {
        key: number for number, key in enumerate(((i, k) for i, row in rows.items() for k in range(1, len(row))), 2)
    }
    projects = [
        (rounding, level, price * gain)
        for rounding in problem.roundings
        for level in range(1, len(rounding.noise))
        if (gain := rounding.noise[level - 1] - rounding.noise[level]) > 0
        and all((i, level) in nodes for i in rounding.layers)
    ]
    network = Network(2 + len(nodes) + len(projects))
    for (i, level), node in nodes.items():
        more = rows[i][level] - rows[i][level - 1]
        network.connect(*((node, _SINK) if more >= 0 else (_SOURCE, node)), abs(more))
        if level > 1:
            network.connect(node, nodes[i, level - 1], math.inf)
    for number, (rounding, level, worth) in enumerate(projects, 2 + len(nodes)):
        network.connect(_SOURCE, number, worth)
        for i in rounding.layers:
            network.connect(number, nodes[i, level], math.inf)
    for border in problem.borders:
        for level, cost in enumerate(border.costs, 1):
            places = (nodes.get((layer, level)) for layer in (border.first, border.second))
            ends = [place for place in places if place is not None]
            if ends:
                network.connect(ends[0], (*ends, _SINK)[1], cost, cost if len(ends) == 2 else 0.0)
    side = network.source_side(_SOURCE, _SINK)
    levels = list(problem.plain)
    for i, row in rows.items():
        wanted = sum((i, level) in nodes and nodes[i, level] in side for level in range(1, len(row)))
        levels[i] = next(k for k in range(wanted, len(row)) if math.isfinite(problem.costs[i][k]))
    return problem.point(tuple(levels))


def _filled(costs: Sequence[float]) -> list[float]:
    """Return costs up to the highest allowed level. Gaps cost the same as the next level."""
    highest = max(k for k, cost in enumerate(costs) if math.isfinite(cost))
    found = list(costs[: highest + 1])
    for level in range(highest - 1, -1, -1):
        if not math.isfinite(found[level]):
            found[level] = found[level + 1]
    return found


def first_good(
    count: int, good_enough: Callable[[int], bool], in_time: Callable[[], bool], guesses: Iterator[int] | None = None
) -> int | None:
    """Find the first good point of ``count`` improving points. Return None if the last point is bad.

    Without ``guesses`` of this point, the last point is tried first. When the guesses end, the search bisects.
    """
    low, high, guesses = -1, count, iter((count - 1,)) if guesses is None else guesses
    while high - low > 1 and in_time():
        place = min(max(next(guesses, (low + high) // 2), low + 1), high - 1)
        low, high = (low, place) if good_enough(place) else (place, high)
    return high if high < count else None


WIDE_BITS = 16  # bits of wide values


@dataclass
class Pricing:
    """Costs of the layers ``names`` at the precisions ``levels``. ``fixed``: precisions that the user chose."""

    evaluator: Evaluator
    fixed: Mapping[str, PrecisionChoice]
    examination: Examination
    build: Callable[[Mapping[str, str]], Candidate]
    names: Sequence[str]
    levels: Sequence[str]
    pinned: set[str] = field(default_factory=set)  # layers without level 1, set by :meth:`costs`
    _placements: dict[str, Placement | None] = field(default_factory=dict)  # by the precision of all layers
    _leaving: list[list[bool]] = field(default_factory=list)  # per layer and level: whether it leaves the target

    def costs(self, candidate: Candidate, *, host: bool) -> list[list[float]]:
        """Return [layer][level] costs, infinite if the level is not allowed. ``host``: layers may leave the target."""
        precisions = self.examination.precisions(candidate.graph)
        weights, hiding = self.examination.weights(), self.examination.hiding()
        self._leaving = self._left(candidate)
        if self.counts_bytes:
            sizes = [(bits_of(name, True) or 32) / 8 for name in self.levels]
            rows = [[weights.get(name, 0) * size for size in sizes] for name in self.names]
        else:
            rows = self._times(candidate)
        for row, gone in zip(rows, [] if host else self._leaving, strict=False):  # of all layers, or empty
            row[1:] = [math.inf if left else cost for cost, left in zip(row[1:], gone[1:], strict=True)]
        for name, row in zip(self.names, rows, strict=True):
            if name in self.fixed or precisions.get(name, FLOAT) == FLOAT:
                row[1:] = [math.inf] * (len(row) - 1)
            elif not weights.get(name):
                for level, is_same in enumerate(self._keep_values()):
                    row[level + 1] = math.inf if is_same else row[level + 1]  # only weights differ
            if name in hiding:  # 16-bit SOFTMAX gives masked elements a code above zero: its table ends at exp(-10)
                row[1:] = [
                    math.inf if bits_of(step, of_weights=False) == WIDE_BITS else cost
                    for step, cost in zip(self.levels[1:], row[1:], strict=True)
                ]
        self.pinned = {name for name, row in zip(self.names, rows, strict=True) if not math.isfinite(row[1])}
        return rows

    def of_scheme(self, free: Sequence[int]) -> list[int]:
        """Return the ``free`` layers that differ between the first two levels, which may differ only in weights."""
        if len(self.levels) < 2 or not self._keep_values()[0]:
            return list(free)
        weights = self.examination.weights()
        return [place for place in free if weights.get(self.names[place])] or list(free)

    def _keep_values(self) -> list[bool]:
        """Return for each level after the first whether it differs from the previous level only in weights."""
        return [values_of(low) == values_of(high) for low, high in itertools.pairwise(self.levels)]

    @property
    def counts_bytes(self) -> bool:
        """True if costs are bytes of weights, the only saving of weight-only schemes."""
        options = self.evaluator.options
        return options.max_bytes is not None or options.definition.weights_only

    def _times(self, candidate: Candidate) -> list[list[float]]:
        float_work = 8.0  # work of a float layer relative to the scheme's: integer NPUs do not run it
        if self.evaluator.target is None or self.evaluator.plain is None:
            work, first = self.examination.work(), _work_in(self.evaluator.options.scheme)
            factors = [float_work if step == FLOAT else _work_in(step) / first for step in self.levels]
            return [[factor * max(work.get(name, 1.0), 1.0) for factor in factors] for name in self.names]
        columns = [self._placement(candidate, step) for step in self.levels]
        return [
            [math.inf if placed is None else placed.layers[i].ns for placed in columns] for i in range(len(self.names))
        ]

    def _left(self, candidate: Candidate) -> list[list[bool]]:
        if self.evaluator.plain is None:
            return []
        columns = [self._placement(candidate, step) for step in self.levels]
        return [
            [was and bool(placed is None or placed.layers[i].reason) for placed in columns]
            for i, was in enumerate(self.evaluator.plain.taken())
        ]

    def _placement(self, candidate: Candidate, step: str) -> Placement | None:
        assert self.evaluator.target is not None
        if step not in self._placements:
            movable = [name for name in self.names if name not in self.fixed]
            try:
                made = candidate if step == self.evaluator.options.scheme else self.build(dict.fromkeys(movable, step))
                self._placements[step] = self.evaluator.target.priced(made.module)
            except OdcError as error:
                LOG.info("layers cannot be %s: %s", step, error)
                self._placements[step] = None
        return self._placements[step]

    def borders(self) -> list[Border]:
        """Return the costs of conversions between layers."""
        if self.counts_bytes:
            return []
        places, found = {name: place for place, name in enumerate(self.names)}, []
        target = self.evaluator.target
        for maker, reader, elements in self.examination.edges():
            if maker in places and reader in places:
                wide, real = (elements, elements) if target is None else target.conversion_ns(elements)
                costs = tuple(
                    0.0 if is_same else float(real if step == FLOAT else wide)
                    for step, is_same in zip(self.levels[1:], self._keep_values(), strict=True)
                )
                found.append(Border(places[maker], places[reader], costs))
        return found

    def kept(self, levels: Levels) -> float:
        """Return the estimated part of the target's multiplications that stay on the target."""
        plain = self.evaluator.plain
        if plain is None:
            return 1.0
        macs = [layer.macs if taken else 0 for layer, taken in zip(plain.layers, plain.taken(), strict=True)]
        gone = sum(m for m, left, level in zip(macs, self._leaving, levels, strict=True) if left[level])
        return 1.0 - gone / (sum(macs) or 1)


def _work_in(step: str) -> float:
    few_bits = 4  # bits of narrow weights
    return bits_of(step, of_weights=False) * (0.5 if bits_of(step, of_weights=True) == few_bits else 1.0)
