"""Mixed precision as an optimisation: which layers get more bits, by what that brings and costs.

Every layer has a level: the model's scheme, a wider one, or float. Noise comes from roundings: of values, which are
coarse while any of the layers that make or read them is narrow, and of weights. Noise of different roundings is taken
to be independent, so that it adds up. Costs, of layers at their levels and of changing over between two layers of
different levels, add up too. What no other choice beats in both, noise and cost, is the front:

* exactly, by trying all choices, where these are few: up to twelve layers with three levels;
* else its convex hull: choices that are best for some price of noise. For each price the best choice is a smallest cut
  (a rounding is worth something if all its layers are chosen: the project selection of Rhys and of Picard), exact
  again. Between two of them a choice may be missed that costs less than the next one, never by more than their
  difference.

Which point of the front is taken is then measured on the whole model (:mod:`.widening`), not estimated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odc_mlir.quantizer.cuts import Network

Precisions = dict[str, str]  # by layer name; layers left out are in the model's scheme
Levels = tuple[int, ...]

_MOST_CHOICES = 600_000  # that are all tried: 3 ** 12 and some
_MOST_CUTS = 48
# Less than this part of the noise is not worth anything.
_WORTHLESS = 1e-5
# Up to this many layers, each is tried without in the end.
_MOST_TRIED_WITHOUT = 8
_SOURCE, _SINK = 0, 1


@dataclass(frozen=True, slots=True)
class RoundingNoise:
    """Noise in the outputs: ``noise[k]`` is left when all of ``layers`` are at least at level k."""

    layers: tuple[int, ...]
    noise: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Border:
    """What it costs that two layers differ: ``costs[k]`` where one is at most at level k and the other above."""

    first: int
    second: int
    costs: tuple[float, ...]

    def cost(self, levels: Levels) -> float:
        """What these levels cost."""
        low, high = sorted((levels[self.first], levels[self.second]))
        return sum(self.costs[low:high])


@dataclass(frozen=True)
class Problem:
    """``costs``: of each layer at each level, infinite where that cannot be; level 0 always can."""

    costs: Sequence[Sequence[float]]
    roundings: Sequence[RoundingNoise]
    borders: Sequence[Border] = ()

    @property
    def plain(self) -> Levels:
        """No layer moved."""
        return (0,) * len(self.costs)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The layers that have a choice."""
        return tuple(i for i, row in enumerate(self.costs) if sum(map(math.isfinite, row)) > 1)

    @cached_property
    def choices(self) -> int:
        """How many there are."""
        return math.prod(sum(map(math.isfinite, self.costs[i])) for i in self.free)

    def point(self, levels: Levels) -> Point:
        """These levels with what they cost and bring."""
        cost = sum(row[level] for row, level in zip(self.costs, levels, strict=True))
        cost += sum(border.cost(levels) for border in self.borders)
        noise = sum(r.noise[min(levels[i] for i in r.layers)] for r in self.roundings)
        return Point(levels, cost, noise)


@dataclass(frozen=True, slots=True)
class Point:
    """One choice, as estimated."""

    levels: Levels
    cost: float
    noise: float

    @property
    def noise_db(self) -> float:
        """The noise in dB, that of none far below all others."""
        return 10.0 * math.log10(max(self.noise, 1e-30))


def front(problem: Problem) -> list[Point]:
    """The choices that no other beats in cost and noise, from the cheapest to the least noisy; see the module's text.

    Without a choice there is the plain point alone.
    """
    if problem.choices <= _MOST_CHOICES:
        return _exact(problem)
    return _unbeaten(_hull(problem))


def _exact(problem: Problem) -> list[Point]:
    """The front by trying everything."""
    allowed = [[k for k, cost in enumerate(problem.costs[i]) if math.isfinite(cost)] for i in problem.free]
    tried = np.array(list(itertools.product(*allowed)), np.int8).reshape(problem.choices, len(problem.free))
    columns: dict[int, NDArray[np.int8]] = {i: tried[:, place] for place, i in enumerate(problem.free)}
    none = np.zeros(len(tried), np.int8)
    costs, noise = np.zeros(len(tried)), np.zeros(len(tried))
    for i, row in enumerate(problem.costs):
        costs += np.asarray(row)[columns.get(i, none)]
    for border in problem.borders:
        total = np.cumsum((0.0, *border.costs))
        costs += np.abs(total[columns.get(border.first, none)] - total[columns.get(border.second, none)])
    for rounding in problem.roundings:
        least = np.minimum.reduce([columns.get(i, none) for i in rounding.layers])
        noise += np.asarray(rounding.noise)[least]
    order = np.lexsort((noise, costs))
    falling = np.minimum.accumulate(noise[order])
    kept = order[np.flatnonzero(np.diff(falling, prepend=math.inf) < 0)]
    found = []
    for number in kept:
        levels = list(problem.plain)
        for i, column in columns.items():
            levels[i] = int(column[number])
        found.append(problem.point(tuple(levels)))
    return _unbeaten(found)


def _unbeaten(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats, from the cheapest on."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, point.noise, point.levels)):
        if not found or point.noise < found[-1].noise * (1.0 - 1e-9):
            found.append(point)
    return found


def _hull(problem: Problem) -> list[Point]:
    """The choices that are best for some price of noise, those that lie far apart first."""
    cheapest = _best(problem, 0.0)
    if not cheapest.noise:
        return [cheapest]
    span = sum(max(filter(math.isfinite, row)) - min(row) for row in problem.costs) + sum(
        sum(border.costs) for border in problem.borders
    )
    quietest = _best(problem, span / (_WORTHLESS * cheapest.noise))
    found, gaps, cuts = [cheapest, quietest], [(cheapest, quietest)], 2
    while gaps and cuts < _MOST_CUTS:
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
    """The choice of least cost where noise costs ``price``: a smallest cut.

    A node stands for a layer being at some level or above, one for a rounding that is that fine. A level that a layer
    cannot have costs what the next that it can have costs, and means that.
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
        _connect_border(network, nodes, border)
    side = network.source_side(_SOURCE, _SINK)
    levels = list(problem.plain)
    for i, row in rows.items():
        wanted = sum((i, level) in nodes and nodes[i, level] in side for level in range(1, len(row)))
        levels[i] = next(k for k in range(wanted, len(row)) if math.isfinite(problem.costs[i][k]))
    return problem.point(tuple(levels))


def _filled(costs: Sequence[float]) -> list[float]:
    """The costs up to the highest level that can be, each gap with what the next one costs."""
    highest = max(k for k, cost in enumerate(costs) if math.isfinite(cost))
    found = list(costs[: highest + 1])
    for level in range(highest - 1, -1, -1):
        if not math.isfinite(found[level]):
            found[level] = found[level + 1]
    return found


def _connect_border(network: Network, nodes: Mapping[tuple[int, int], int], border: Border) -> None:
    for level, cost in enumerate(border.costs, 1):
        first, second = nodes.get((border.first, level)), nodes.get((border.second, level))
        if first is not None and second is not None:
            network.connect(first, second, cost, cost)
        elif (one := second if first is None else first) is not None:
            network.connect(one, _SINK, cost)


def thinned(points: Sequence[Point], part: float) -> list[Point]:
    """``points``, from the cheapest on, without those that cost less than the next one by no more than this part."""
    found = list(points[-1:])
    for point in points[-2::-1]:
        if point.cost < found[-1].cost * (1.0 - part):
            found.append(point)
    return found[::-1]


def first_good(
    count: int,
    good_enough: Callable[[int], bool],
    in_time: Callable[[], bool],
    guess: Callable[[int, int], int | None] = lambda low, high: None,
) -> int | None:
    """The first of ``count`` points that is good enough, by bisection; None where the last is not, or for lack of time.

    What has not been measured is not taken. Points are taken to get better from one to the next. ``guess`` says which
    one between two is expected to be the first, None where it does not know; -1 stands for what is before all points.
    After a guess that leaves more than half of them the middle one has its turn.
    """
    if not count or not in_time() or not good_enough(count - 1):
        return None
    low, high, guesses = -1, count - 1, True
    while high - low > 1 and in_time():
        between = high - low
        expected = guess(low, high) if guesses else None
        place = (low + high) // 2 if expected is None else min(max(expected, low + 1), high - 1)
        if good_enough(place):
            high = place
        else:
            low = place
        guesses = not guesses or 2 * (high - low) <= between
    return high


def without_needless(
    levels: Levels, costs: Sequence[Sequence[float]], good_enough: Callable[[Levels], bool], in_time: Callable[[], bool]
) -> Levels:
    """``levels`` without what the limits do not need, the dearest layers tried first; long lists stay as they are."""
    moved = [i for i, level in enumerate(levels) if level]
    if len(moved) > _MOST_TRIED_WITHOUT or len(moved) < 2:
        return levels
    for i in sorted(moved, key=lambda i: (costs[i][0] - costs[i][levels[i]], i)):
        fewer = tuple(0 if place == i else level for place, level in enumerate(levels))
        if any(fewer) and in_time() and good_enough(fewer):
            levels = fewer
    return levels
