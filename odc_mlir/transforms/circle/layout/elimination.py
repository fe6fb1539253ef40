"""The cheapest choice of one value for each of many variables, by bucket elimination.

A factor is a table of costs over a few variables; the total is the sum of all factors. Variables are eliminated one by
one, the one with the smallest table first; what a table would exceed is bounded by fixing a variable first. Exact
unless that happens (R. Dechter, "Bucket elimination: a unifying framework for reasoning", 1999).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int64]
FORBIDDEN = 1 << 59  # twice that is a number still
LARGEST_TABLE = 1 << 16  # entries


@dataclass(frozen=True, slots=True)
class CostTable:
    """``table`` has one axis for each variable, in the order of ``variables``, which differ."""

    variables: tuple[int, ...]
    table: Costs


class _Buckets:
    """The factors that are left, by variable."""

    def __init__(self, sizes: Sequence[int], factors: Sequence[CostTable]) -> None:
        self.sizes = sizes
        self.touching: list[dict[int, CostTable]] = [{} for _ in sizes]
        self.count = 0
        for factor in factors:
            self.add(factor)

    def add(self, factor: CostTable) -> None:
        for variable in factor.variables:
            self.touching[variable][self.count] = factor
        self.count += 1

    def take(self, variable: int) -> list[CostTable]:
        """All factors over ``variable``, removed."""
        taken = list(self.touching[variable].items())
        for key, factor in taken:
            for other in factor.variables:
                self.touching[other].pop(key, None)
        return [factor for _, factor in taken]

    def neighbours(self, variable: int) -> tuple[int, ...]:
        """The other variables of its factors, in order."""
        found = {other for factor in self.touching[variable].values() for other in factor.variables}
        return tuple(sorted(found - {variable}))

    def size(self, variable: int) -> int:
        """Entries of the table that eliminating ``variable`` makes, with the variable itself."""
        return math.prod((self.sizes[other] for other in self.neighbours(variable)), start=self.sizes[variable])

    def fix(self, variable: int, value: int) -> None:
        """Give ``variable`` its value in all factors."""
        for factor in self.take(variable):
            axis = factor.variables.index(variable)
            rest = factor.variables[:axis] + factor.variables[axis + 1 :]
            if rest:
                self.add(CostTable(rest, np.take(factor.table, value, axis)))


def cheapest(sizes: Sequence[int], factors: Sequence[CostTable]) -> list[int]:
    """One value for each variable, so that the sum of all factors is least; ``sizes``: how many values each has."""
    buckets = _Buckets(sizes, factors)
    queue = [(buckets.size(variable), variable) for variable in range(len(sizes))]
    heapq.heapify(queue)
    chosen = [-1] * len(sizes)
    decided: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
    while queue:
        size, variable = heapq.heappop(queue)
        if chosen[variable] >= 0:
            continue
        now = buckets.size(variable)
        if now > size:
            heapq.heappush(queue, (now, variable))
            continue
        while now > LARGEST_TABLE:
            largest = max(buckets.neighbours(variable), key=lambda v: (len(buckets.touching[v]), v))
            chosen[largest] = _alone(buckets, largest)
            buckets.fix(largest, chosen[largest])
            now = buckets.size(variable)
        others = buckets.neighbours(variable)
        table = _joined(buckets, variable, others)
        chosen[variable] = 0
        decided.append((variable, others, table.argmin(axis=-1)))
        if others:
            buckets.add(CostTable(others, table.min(axis=-1)))
    for variable, others, best in reversed(decided):
        chosen[variable] = int(best[tuple(chosen[other] for other in others)])
    return chosen


def _joined(buckets: _Buckets, variable: int, others: tuple[int, ...]) -> Costs:
    """The sum of all factors over ``variable``, which is the last axis behind ``others``."""
    axes = {other: axis for axis, other in enumerate((*others, variable))}
    total = np.zeros([buckets.sizes[v] for v in (*others, variable)], np.int64)
    for factor in buckets.take(variable):
        order = sorted(range(len(factor.variables)), key=lambda place: axes[factor.variables[place]])
        shape = [1] * len(axes)
        for place in order:
            shape[axes[factor.variables[place]]] = factor.table.shape[place]
        total = np.minimum(total + factor.table.transpose(order).reshape(shape), FORBIDDEN)
    return total


def _alone(buckets: _Buckets, variable: int) -> int:
    """The value with the least cost when every other variable takes its best."""
    total = np.zeros(buckets.sizes[variable], np.int64)
    for factor in buckets.touching[variable].values():
        axis = factor.variables.index(variable)
        best = factor.table.min(axis=tuple(a for a in range(factor.table.ndim) if a != axis))
        total = np.minimum(total + best, FORBIDDEN)
    return int(total.argmin())
