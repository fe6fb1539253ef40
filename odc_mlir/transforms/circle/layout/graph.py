"""Orders of dimensions in a function: possible orders of operators, the cost of changes, and the cheapest choice.

The cheapest choice of one value for each of many variables, by bucket elimination.

A factor is a table of costs over a few variables; the total is the sum of all factors. Variables are eliminated one by
one, the one with the smallest table first; what a table would exceed is bounded by fixing a variable first. Exact
unless that happens (R. Dechter, "Bucket elimination: a unifying framework for reasoning", 1999).

Every operator is a node with choices (:mod:`~odc_mlir.transforms.circle.layout.rules`). A TRANSPOSE does no work
itself: the cost is a tensor that is given in one order and wanted in another. Choices spread from operator to operator,
from the orders that those without a rule insist on.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, NoneOp, tensor_facts
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.transforms.circle.layout import rules
from odc_mlir.transforms.common.rewriting import shape_of

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


ONE_TRANSPOSE = 1 << 42  # one TRANSPOSE less is worth more than any number of bytes moved
_INSIDE = 1 << 22  # among equals it stands at the model's interface, where it keeps no layers apart
_PASSING = ("QUANTIZE", "DEQUANTIZE", "TRANSPOSE")  # what stands between the interface and the layers
_MOST_CHOICES = 8  # of one operator
NHWC: rules.Order = (0, 2, 3, 1)  # of an image that the model wrote channels first


@dataclass(eq=False, slots=True)
class LayoutNode:
    """An operator, argument or returned value, with its possible layouts."""

    op: Operation | BlockArgument
    rule: rules.LayoutRule | None
    choices: list[rules.LayoutChoice] = field(default_factory=list)

    def wants(self, choice: int, place: int) -> rules.Order | None:
        return None if self.rule is None else self.rule.wants(self.choices[choice])[place]

    def gives(self, choice: int, place: int) -> rules.Order | None:
        return None if self.rule is None else self.rule.gives(self.choices[choice])[place]


@dataclass(frozen=True, slots=True)
class LayoutUse:
    node: LayoutNode
    place: int  # number of the operand


@dataclass(eq=False, slots=True)
class Edge:
    """A tensor: its definition and its uses."""

    value: SSAValue
    source: LayoutNode
    place: int
    uses: list[LayoutUse] = field(default_factory=list)

    @property
    def natural(self) -> rules.Order:
        return rules.identity(len(shape_of(self.value) or ()))

    @property
    def is_at_interface(self) -> bool:
        """Whether the tensor is an argument, or something returned, or that once it is converted or transposed."""
        return _is_argument(self.source.op) or any(_is_returned(use.node.op) for use in self.uses)

    def given(self, choice: int) -> rules.Order:
        return self.source.gives(choice, self.place) or self.natural

    def wanted(self, use: LayoutUse, choice: int) -> rules.Order:
        return use.node.wants(choice, use.place) or self.natural

    def cost(self, given: rules.Order, wanted: rules.Order) -> int:
        """Cost of a reordered copy of the tensor."""
        if given == wanted:
            return 0
        shape = shape_of(self.value)
        if rules.same_elements(shape, given, wanted):
            return 1
        elements = math.prod(extent or 1 for extent in shape or ())
        size = elements * DTYPES[tensor_facts(self.value.type).dtype].bits // 8
        return ONE_TRANSPOSE + size + _INSIDE * (not self.is_at_interface)


def _is_argument(op: Operation | BlockArgument) -> bool:
    while isinstance(op, CircleOp) and op.SPEC.name in _PASSING:
        value = op.operands[0]
        if not isinstance(value, OpResult):
            return isinstance(value, BlockArgument)
        op = value.op
    return isinstance(op, BlockArgument)


def _is_returned(op: Operation | BlockArgument) -> bool:
    if isinstance(op, CircleOp) and op.SPEC.name in _PASSING:
        return any(_is_returned(use.operation) for use in op.results[0].uses)
    return isinstance(op, ReturnOp)


class LayoutGraph:
    """The choices of all operators of one function, and the tensors between them."""

    def __init__(self, function: FuncOp, *, free_interface: bool = False) -> None:
        self.nodes: list[LayoutNode] = []
        self.edges: dict[SSAValue, Edge] = {}
        for argument in function.body.block.args:
            node = self._add(argument, _interface_rule(argument) if free_interface else None)
            self.edges[argument] = Edge(argument, node, 0)
        for op in function.body.block.ops:
            self._add_operation(op, free_interface)
        self._spread()

    def _add(self, op: Operation | BlockArgument, rule: rules.LayoutRule | None) -> LayoutNode:
        node = LayoutNode(op, rule, [] if rule is None else [rule.natural])
        self.nodes.append(node)
        return node

    def _add_operation(self, op: Operation, free_interface: bool) -> None:
        if isinstance(op, ReturnOp):
            for value in op.operands:
                self._read(self._add(op, _interface_rule(value) if free_interface else None), [value])
        elif isinstance(op, CircleOp):
            node = self._add(op, rules.rule_of(op))
            self._read(node, op.operands)
            self.edges |= {result: Edge(result, node, place) for place, result in enumerate(op.results)}

    def _read(self, node: LayoutNode, operands: Sequence[SSAValue]) -> None:
        for place, value in enumerate(operands):
            if value in self.edges:
                self.edges[value].uses.append(LayoutUse(node, place))

    def _spread(self) -> None:
        """Give every node the choices that its neighbours' orders ask for."""
        reads: dict[LayoutNode, list[tuple[Edge, int]]] = defaultdict(list)
        makes: dict[LayoutNode, list[Edge]] = defaultdict(list)
        for edge in self.edges.values():
            makes[edge.source].append(edge)
            for use in edge.uses:
                reads[use.node].append((edge, use.place))
        queue = deque((node, choice) for node in self.nodes for choice in range(max(1, len(node.choices))))
        while queue:
            node, choice = queue.popleft()
            for edge in makes[node]:
                order = edge.given(choice)
                for use in edge.uses:
                    queue.extend(_offer(use.node, order, use.place, is_result=False))
            for edge, place in reads[node]:
                order = edge.wanted(LayoutUse(node, place), choice)
                queue.extend(_offer(edge.source, order, edge.place, is_result=True))

    def solve(self) -> Mapping[LayoutNode, int]:
        """The number of the cheapest choice of every node that has several."""
        free = [node for node in self.nodes if len(node.choices) > 1]
        variables = {node: number for number, node in enumerate(free)}
        sizes = [len(node.choices) for node in free]
        factors: list[CostTable] = []
        for edge in self.edges.values():
            factors += _costs(edge, variables, sizes)
        chosen = cheapest(sizes, factors)
        return {node: chosen[number] for node, number in variables.items()}

    def total(self, chosen: Mapping[LayoutNode, int]) -> int:
        """Cost of an assignment of all nodes."""
        total = 0
        for edge in self.edges.values():
            given = edge.given(chosen.get(edge.source, 0))
            total += sum(edge.cost(given, order) for order in _wanted(edge, chosen))
        return total


def _wanted(edge: Edge, chosen: Mapping[LayoutNode, int]) -> set[rules.Order]:
    """Orders of a tensor's uses."""
    return {edge.wanted(use, chosen.get(use.node, 0)) for use in edge.uses}


def _offer(node: LayoutNode, order: rules.Order, place: int, *, is_result: bool) -> Iterator[tuple[LayoutNode, int]]:
    """Choices of ``node`` that become possible because a neighbour gives or wants ``order``."""
    if node.rule is None:
        return
    found: Iterable[rules.LayoutChoice] = (
        node.rule.from_result(place, order) if is_result else node.rule.from_operand(place, order)
    )
    for choice in found:
        if choice not in node.choices and len(node.choices) < _MOST_CHOICES:
            node.choices.append(choice)
            yield node, len(node.choices) - 1


def _interface_rule(value: SSAValue) -> rules.LayoutRule | None:
    """An image at the model's interface may be stored channels last."""
    facts = tensor_facts(value.type) if not isinstance(value.owner, NoneOp) else None
    if facts is None or facts.shape is None or len(facts.shape) != len(NHWC) or rules.is_constant(value):
        return None
    if facts.quant is not None and not facts.quant.per_tensor:
        return None

    def fits(place: int, order: rules.Order) -> Iterable[rules.LayoutChoice]:
        return (order,) if order == NHWC else ()

    return rules.LayoutRule(
        natural=rules.identity(len(NHWC)),
        wants=lambda order: (order,),
        gives=lambda order: (order,),
        from_operand=fits,
        from_result=fits,
        change=lambda order: rules.Change(),
    )


def _costs(edge: Edge, variables: Mapping[LayoutNode, int], sizes: list[int]) -> Iterator[CostTable]:
    """Factors of one tensor; appends to ``sizes`` a variable for each order that readers may share."""
    source = edge.source
    givers = range(max(1, len(source.choices)))
    if len(edge.uses) == 1:
        (use,) = edge.uses
        takers = range(max(1, len(use.node.choices)))
        table = [[edge.cost(edge.given(d), edge.wanted(use, u)) for u in takers] for d in givers]
        yield from _factor(np.array(table, np.int64), (source, use.node), variables)
        return
    orders = {edge.wanted(use, u) for use in edge.uses for u in range(max(1, len(use.node.choices)))}
    for order in sorted(orders):
        made = len(sizes)  # a variable: whether the tensor exists in this order
        sizes.append(2)
        table = [[0, edge.cost(edge.given(d), order)] for d in givers]
        yield from _factor(np.array(table, np.int64), (source,), variables, made)
        for use in edge.uses:
            takers = range(max(1, len(use.node.choices)))
            needs = [[FORBIDDEN if edge.wanted(use, u) == order else 0, 0] for u in takers]
            yield from _factor(np.array(needs, np.int64), (use.node,), variables, made)


def _factor(
    table: Costs, nodes: Sequence[LayoutNode], variables: Mapping[LayoutNode, int], *more: int
) -> Iterator[CostTable]:
    """Make a factor over ``nodes`` with a choice and the variables ``more``; none without cost."""
    fixed = tuple(axis for axis, node in enumerate(nodes) if node not in variables)
    kept = (*(variables[node] for node in nodes if node in variables), *more)
    if kept and np.any(table):
        yield CostTable(kept, table.squeeze(fixed))
