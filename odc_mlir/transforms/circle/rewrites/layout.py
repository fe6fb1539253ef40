"""Dimension orders in a function: possible orders of operators, costs of changes, and the cheapest choice.

An *order* is a permutation: a tensor in order ``p`` has the layout of ``TRANSPOSE(tensor, p)``. The identity is the
model's own order. :func:`rule_of` returns the :class:`LayoutRule` of an operator, with the operator's *choices*, mostly
orders of the main operand. An operator without a rule has all tensors in the model's order.

Every operator is a node with choices. A TRANSPOSE of the model costs nothing. A tensor has a cost for each user that
chooses another order than the producer. Choices spread from operator to operator, beginning at operators without a
rule. Bucket elimination finds the cheapest choices (R. Dechter, "Bucket elimination: a unifying framework for
reasoning", 1999). A factor is a table of costs over a few variables, and the total cost is the sum of all factors.
Variables are eliminated one by one, beginning with the smallest tables. If a table would be too large, the search fixes
a variable first. Otherwise the result is exact.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, tensor_facts
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Shape, Trait
from odc_mlir.transforms.common.rewriting import VIEWS, constant, shape_of, static_shape_of

Order = tuple[int, ...]


def identity(rank: int) -> Order:
    """Return the model's own order."""
    return tuple(range(rank))


def moves(stored: Order, wanted: Order) -> Order:
    """Return the permutation of a TRANSPOSE from order ``stored`` to order ``wanted``."""
    return tuple(stored.index(dimension) for dimension in wanted)


def permuted(shape: Shape, order: Order) -> Shape:
    """Return the extents of a tensor of ``shape`` in ``order``."""
    return tuple(shape[dimension] for dimension in order)


def equal_in_memory(shape: Shape | None, stored: Order, wanted: Order) -> bool:
    """Return whether a tensor has equal bytes in both orders. Only dimensions of extent 1 may change places."""
    if stored == wanted:
        return True
    if shape is None:
        return False
    return [d for d in stored if shape[d] != 1] == [d for d in wanted if shape[d] != 1]


def without(order: Order, removed: frozenset[int]) -> Order:
    """Return the order of the remaining dimensions, renumbered."""
    left = [dimension for dimension in order if dimension not in removed]
    numbers = {dimension: number for number, dimension in enumerate(sorted(left))}
    return tuple(numbers[dimension] for dimension in left)


def with_removed(order: Order, removed: frozenset[int], rank: int) -> Order:
    """Insert removed dimensions into ``order`` at the original positions: the inverse of :func:`without`."""
    kept = [dimension for dimension in range(rank) if dimension not in removed]
    rest = iter(kept[number] for number in order)
    return tuple(place if place in removed else next(rest) for place in range(rank))


def blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of adjacent dimensions with equal products, before and after a RESHAPE.

    A dimension of extent 1 without a counterpart is a separate group.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        if i < len(before) and j < len(after) and before[i] == after[j]:
            groups.append(([i], [j]))
            i, j = i + 1, j + 1
        elif i < len(before) and before[i] == 1:
            groups.append(([i], []))
            i += 1
        elif j < len(after) and after[j] == 1:
            groups.append(([], [j]))
            j += 1
        else:
            left, right = [i], [j]
            a, b = before[i], after[j]
            i, j = i + 1, j + 1
            while a != b:
                if a < b:
                    a, left, i = a * before[i], [*left, i], i + 1
                else:
                    b, right, j = b * after[j], [*right, j], j + 1
            groups.append((left, right))
    return groups


def through_reshape(order: Order, groups: Sequence[tuple[list[int], list[int]]], side: int) -> Order | None:
    """Return the order after a RESHAPE that moves no data, for ``order`` before it, or with ``side`` 1 the reverse.

    Return None if ``order`` separates or reorders the dimensions of a group.
    """
    whole = {group[side][0]: group for group in groups if group[side]}
    found: list[int] = []
    place = 0
    while place < len(order):
        group = whole.get(order[place])
        if group is None or list(order[place : place + len(group[side])]) != group[side]:
            return None
        found += group[1 - side]
        place += len(group[side])
    loose = [dimension for group in groups if not group[side] for dimension in group[1 - side]]
    for dimension in loose:  # extents of 1 without a counterpart keep their positions
        found.insert(min(dimension, len(found)), dimension)
    return tuple(found)


LayoutChoice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of an operator for a layout: new constants, options, or operator."""

    constants: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    reshape_to: tuple[int, ...] | None = None  # the operator becomes a RESHAPE to this shape


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """Orders of an operator.

    ``wants``, ``gives``: map a choice to orders of operands (None: unchanged) and of results. ``from_operand``,
    ``from_result``: the inverses, which return the choices for an order of operand or result i. Other operands may
    exclude some of these choices.
    """

    natural: LayoutChoice
    wants: Callable[[LayoutChoice], tuple[Order | None, ...]]
    gives: Callable[[LayoutChoice], tuple[Order, ...]]
    from_operand: Callable[[int, Order], Iterable[LayoutChoice]]
    from_result: Callable[[int, Order], Iterable[LayoutChoice]]
    change: Callable[[LayoutChoice], Change]


Builder = Callable[[CircleOp], LayoutRule | None]
_REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")


def rule_of(op: CircleOp) -> LayoutRule | None:
    """Return the rule of ``op``, or None if ``op`` works only in the model's order."""
    if op.unverified is not None or Trait.PURE not in op.SPEC.traits:
        return None
    values = [*(v for v in op.operands if not isinstance(v.owner, NoneOp | ConstOp)), *op.results]
    if any(not is_simple(value) for value in values):
        return None
    builder = _elementwise if Trait.ELEMENTWISE in op.SPEC.traits else _RULES.get(op.SPEC.name)
    return None if builder is None else builder(op)


def is_constant(value: SSAValue) -> bool:
    """Return whether ``value`` is a constant, with known or unknown contents."""
    return isinstance(value, OpResult) and isinstance(value.op, ConstOp)


def is_simple(value: SSAValue) -> bool:
    """Return whether another dimension order changes only the shape in the type."""
    facts = tensor_facts(value.type)
    if facts.shape is None or (facts.quant is not None and not facts.quant.per_tensor):
        return False
    if isinstance(value, OpResult) and isinstance(value.op, ConstOp) and value.op.sparsity is not None:
        return False
    return facts.record is None or facts.record.details is None


def _rank(value: SSAValue) -> int:
    return len(shape_of(value) or ())


def _same_order(
    op: CircleOp,
    moved: Iterable[int],
    change: Callable[[Order], Change],
    *,
    removed: frozenset[int] = frozenset(),
    allows: Callable[[Order], bool] = lambda order: True,
) -> LayoutRule:
    """Return the rule with one order for all ``moved`` operands and results. Results lack ``removed`` dimensions."""
    places = frozenset(moved)
    rank = _rank(op.operands[min(places)])

    def only(order: Order | None) -> Iterable[LayoutChoice]:
        return (order,) if order is not None and allows(order) else ()

    return LayoutRule(
        natural=identity(rank),
        wants=lambda order: tuple(order if place in places else None for place in range(len(op.operands))),
        gives=lambda order: (without(order, removed),) * len(op.results),
        from_operand=lambda place, order: only(order if place in places else None),
        from_result=lambda place, order: only(with_removed(order, removed, rank)),
        change=change,
    )


def _elementwise(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.results[0])
    moved = []
    constants: dict[int, NDArray[Any]] = {}
    for place, operand in enumerate(op.operands):
        if isinstance(operand.owner, NoneOp) or shape_of(operand) == ():
            continue
        if is_constant(operand):
            array = constant(operand)
            if array is None or op.SPEC.name == "SELECT" or not is_simple(operand):
                return None
            constants[place] = array
        elif _rank(operand) == rank:
            moved.append(place)
        else:
            return None
    if not moved:
        return None

    def change(order: Order) -> Change:
        if order == identity(rank):
            return Change()
        return Change({place: _broadcast_in(array, order) for place, array in constants.items()})

    keeps_samples = op.SPEC.name == "PRELU"
    return _same_order(op, moved, change, allows=lambda order: not keeps_samples or order[0] == 0)


def _broadcast_in(array: NDArray[Any], order: Order) -> NDArray[Any]:
    """Adapt a constant that broadcasts against a tensor to the tensor's ``order``. Drop leading dimensions of 1."""
    whole = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(order)
    extra = len(order) - array.ndim
    while extra and whole.shape[0] == 1:
        whole, extra = whole[0], extra - 1
    return whole


def _along_axes(data: int, axes: int, removes: Callable[[CircleOp], bool] = lambda op: False) -> Builder:
    """Rules of operators with a constant list ``axes`` of dimensions of ``data``, which the operator may remove."""

    def rule(op: CircleOp) -> LayoutRule | None:
        rank, given = _rank(op.operands[data]), constant(op.operands[axes])
        if given is None or is_constant(op.operands[data]):
            return None
        own = [int(axis) % rank for axis in given.reshape(-1)]

        def change(order: Order) -> Change:
            moved = np.array([order.index(axis) for axis in own], np.int64)
            return Change({axes: np.unique(moved) if op.SPEC.name in _REDUCTIONS else moved.reshape(given.shape)})

        return _same_order(op, [data], change, removed=frozenset(own if removes(op) else ()))

    return rule


def _concatenation(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.results[0])
    axis = int(op.option("axis") or 0) % rank
    arrays = {place: constant(value) for place, value in enumerate(op.operands) if is_constant(value)}
    moved = [place for place in range(len(op.operands)) if place not in arrays]
    if not moved or any(array is None or not is_simple(op.operands[place]) for place, array in arrays.items()):
        return None

    def change(order: Order) -> Change:
        constants = {place: array.transpose(order) for place, array in arrays.items() if array is not None}
        return Change(constants, {"axis": order.index(axis)})

    return _same_order(op, moved, change)


def _along(*places: int) -> Builder:
    """Rules of operators with constant operands ``places``, which have an entry or a row for each dimension."""

    def rule(op: CircleOp) -> LayoutRule | None:
        arrays = {place: constant(op.operands[place]) for place in places}
        rank = _rank(op.operands[0])
        if any(array is None or len(array) != rank for array in arrays.values()) or is_constant(op.operands[0]):
            return None
        if _rank(op.results[0]) != rank:
            return None

        def change(order: Order) -> Change:
            return Change({place: array[list(order)] for place, array in arrays.items() if array is not None})

        return _same_order(op, [0], change)

    return rule


def _strided_slice(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.operands[0])
    arrays = [constant(operand) for operand in op.operands[1:4]]
    if any(array is None or len(array) != rank for array in arrays) or is_constant(op.operands[0]):
        return None
    if op.option("ellipsis_mask") or op.option("new_axis_mask"):
        return None
    masks = {name: int(op.option(name) or 0) for name in ("begin_mask", "end_mask", "shrink_axis_mask")}
    removed = frozenset(axis for axis in range(rank) if masks["shrink_axis_mask"] >> axis & 1)

    def change(order: Order) -> Change:
        moved = {place: array[list(order)] for place, array in enumerate(arrays, 1) if array is not None}
        bits = {
            name: sum((mask >> axis & 1) << place for place, axis in enumerate(order)) for name, mask in masks.items()
        }
        return Change(moved, bits)

    return _same_order(op, [0], change, removed=removed)


def _gather(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.operands[0])
    if rank == 0 or _rank(op.operands[1]) != 1 or op.option("batch_dims") or is_constant(op.operands[0]):
        return None
    axis = int(op.option("axis") or 0) % rank
    return _same_order(op, [0], lambda order: Change(options={"axis": order.index(axis)}))


def _last_axis(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.operands[0])
    if rank < 2 or is_constant(op.operands[0]) or _rank(op.results[0]) != rank:
        return None
    if op.SPEC.name == "FULLY_CONNECTED" and not op.option("keep_num_dims"):
        return None
    return _same_order(op, [0], lambda order: Change(), allows=lambda order: order[-1] == rank - 1)


def _reshape(op: CircleOp) -> LayoutRule | None:
    before, after = static_shape_of(op.operands[0]), static_shape_of(op.results[0])
    if before is None or after is None or 0 in before or is_constant(op.operands[0]):
        return None
    groups = blocks(before, after)
    natural = identity(len(before))

    def behind(order: Order) -> Order:
        found = through_reshape(order, groups, 0)
        assert found is not None
        return found

    def possible(order: Order | None) -> Iterable[LayoutChoice]:
        return (order,) if order is not None and through_reshape(order, groups, 0) is not None else ()

    def change(order: Order) -> Change:
        return Change() if order == natural else Change(reshape_to=tuple(after[d] for d in behind(order)))

    return LayoutRule(
        natural=natural,
        wants=lambda order: (order,) + (None,) * (len(op.operands) - 1),
        gives=lambda order: (identity(len(after)) if order == natural else behind(order),),
        from_operand=lambda place, order: possible(order if place == 0 else None),
        from_result=lambda place, order: possible(through_reshape(order, groups, 1)),
        change=change,
    )


def _transpose(op: CircleOp) -> LayoutRule | None:
    """Rule of TRANSPOSE: the result is the operand in another order, so a TRANSPOSE costs nothing in any layout."""
    array = constant(op.operands[1])
    if array is None or is_constant(op.operands[0]):
        return None
    order = tuple(int(axis) for axis in array)
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    return LayoutRule(
        natural=identity(len(order)),
        wants=lambda stored: (stored, None),
        gives=lambda stored: (tuple(inverse[dimension] for dimension in stored),),
        from_operand=lambda place, stored: (stored,) if place == 0 else (),
        from_result=lambda place, stored: (tuple(order[dimension] for dimension in stored),),
        change=lambda stored: Change(),
    )


def _batch_matmul(op: CircleOp) -> LayoutRule | None:
    """Rule of matrix products.

    A choice has the order of batches, and whether the last two dimensions are swapped, for each operand.
    """
    rank = _rank(op.results[0])
    if rank < 2 or any(_rank(value) != rank or is_constant(value) for value in op.operands):
        return None
    last, swapped = (rank - 2, rank - 1), (rank - 1, rank - 2)
    flags = ("adjoint_lhs", "adjoint_rhs")

    def from_operand(place: int, order: Order) -> Iterable[LayoutChoice]:
        if order[-2:] in (last, swapped):
            for other in (0, 1):
                turned = (int(order[-2:] == swapped), other)
                yield (*(turned if place == 0 else turned[::-1]), *order[:-2])

    def from_result(place: int, order: Order) -> Iterable[LayoutChoice]:
        if order[-2:] == last:
            yield from ((left, right, *order[:-2]) for left in (0, 1) for right in (0, 1))

    return LayoutRule(
        natural=(0, 0, *identity(rank - 2)),
        wants=lambda choice: tuple((*choice[2:], *(swapped if turned else last)) for turned in choice[:2]),
        gives=lambda choice: ((*choice[2:], *last),),
        from_operand=from_operand,
        from_result=from_result,
        change=lambda choice: Change(
            options={
                flag: bool(op.option(flag)) != bool(turned) for flag, turned in zip(flags, choice[:2], strict=True)
            }
        ),
    )


_RULES: Mapping[str, Builder] = {
    "TRANSPOSE": _transpose,
    **dict.fromkeys(VIEWS, _reshape),
    "BATCH_MATMUL": _batch_matmul,
    **dict.fromkeys(_REDUCTIONS, _along_axes(0, 1, removes=lambda op: not op.option("keep_dims"))),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _along_axes(0, 1, removes=lambda op: True)),
    "CONCATENATION": _concatenation,
    "SPLIT": _along_axes(1, 0),
    "SPLIT_V": _along_axes(0, 2),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD", "TILE"), _along(1)),
    "BROADCAST_TO": _along(1),
    "SLICE": _along(1, 2),
    "STRIDED_SLICE": _strided_slice,
    **dict.fromkeys(("REVERSE_V2", "CUMSUM"), _along_axes(0, 1)),
    "GATHER": _gather,
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "RMS_NORM", "FULLY_CONNECTED"), _last_axis),
}


Costs = NDArray[np.int64]
FORBIDDEN = 1 << 59  # the sum of two still fits in int64
LARGEST_TABLE = 1 << 16  # entries


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs by the values of distinct ``variables``. ``table``: one axis per variable, in order."""

    variables: tuple[int, ...]
    table: Costs


class _Buckets:
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
        taken = list(self.touching[variable].items())
        for key, factor in taken:
            for other in factor.variables:
                self.touching[other].pop(key, None)
        return [factor for _, factor in taken]

    def neighbours(self, variable: int) -> tuple[int, ...]:
        found = {other for factor in self.touching[variable].values() for other in factor.variables}
        return tuple(sorted(found - {variable}))

    def size(self, variable: int) -> int:
        """Return the size of the table from the elimination of ``variable``, including the variable."""
        return math.prod((self.sizes[other] for other in self.neighbours(variable)), start=self.sizes[variable])

    def fix(self, variable: int, value: int) -> None:
        for factor in self.take(variable):
            axis = factor.variables.index(variable)
            rest = factor.variables[:axis] + factor.variables[axis + 1 :]
            if rest:
                self.add(CostTable(rest, np.take(factor.table, value, axis)))


def cheapest(sizes: Sequence[int], factors: Sequence[CostTable]) -> list[int]:
    """Return values of all variables with the least sum of factors. ``sizes``: number of values of each variable."""
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
    """Return the sum of all factors of ``variable``, as a table with the axes ``others`` and then ``variable``."""
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
    """Return the value with the least cost, for the best values of all other variables."""
    total = np.zeros(buckets.sizes[variable], np.int64)
    for factor in buckets.touching[variable].values():
        axis = factor.variables.index(variable)
        best = factor.table.min(axis=tuple(a for a in range(factor.table.ndim) if a != axis))
        total = np.minimum(total + best, FORBIDDEN)
    return int(total.argmin())


ONE_TRANSPOSE = 1 << 42  # cost of a TRANSPOSE, higher than the cost of all moved bytes
_BETWEEN_LAYERS = 1 << 22  # extra bytes of a TRANSPOSE between layers
_PASSING = ("QUANTIZE", "DEQUANTIZE", "TRANSPOSE")  # operators between the interface and the layers
_MOST_CHOICES = 8  # limit on choices per operator
NHWC: Order = (0, 2, 3, 1)  # order for an image with channels first in the model


@dataclass(eq=False, slots=True)
class LayoutNode:
    """Operator, argument or returned value, with its possible layouts."""

    op: Operation | BlockArgument
    rule: LayoutRule | None
    choices: list[LayoutChoice] = field(default_factory=list)

    def wants(self, choice: int, place: int) -> Order | None:
        return None if self.rule is None else self.rule.wants(self.choices[choice])[place]

    def gives(self, choice: int, place: int) -> Order | None:
        return None if self.rule is None else self.rule.gives(self.choices[choice])[place]


@dataclass(frozen=True, slots=True)
class LayoutUse:
    node: LayoutNode
    place: int  # number of the operand


@dataclass(eq=False, slots=True)
class Edge:
    """Tensor with its definition and its uses."""

    value: SSAValue
    source: LayoutNode
    place: int
    uses: list[LayoutUse] = field(default_factory=list)

    @property
    def natural(self) -> Order:
        return identity(len(shape_of(self.value) or ()))

    @property
    def is_at_interface(self) -> bool:
        """Whether only conversions and TRANSPOSEs separate the tensor from an argument or a returned value."""
        return _is_argument(self.source.op) or any(_is_returned(use.node.op) for use in self.uses)

    def given(self, choice: int) -> Order:
        return self.source.gives(choice, self.place) or self.natural

    def wanted(self, use: LayoutUse, choice: int) -> Order:
        return use.node.wants(choice, use.place) or self.natural

    def cost(self, given: Order, wanted: Order) -> int:
        """Return the cost of a reordered copy of the tensor."""
        if given == wanted:
            return 0
        shape = shape_of(self.value)
        if equal_in_memory(shape, given, wanted):
            return 1
        elements = math.prod(extent or 1 for extent in shape or ())
        size = elements * DTYPES[tensor_facts(self.value.type).dtype].bits // 8
        return ONE_TRANSPOSE + size + _BETWEEN_LAYERS * (not self.is_at_interface)


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
    """Choices of all operators of a function, and the tensors between the operators."""

    def __init__(self, function: FuncOp, *, free_interface: bool = False) -> None:
        self.nodes: list[LayoutNode] = []
        self.edges: dict[SSAValue, Edge] = {}
        for argument in function.body.block.args:
            node = self._add(argument, _interface_rule(argument) if free_interface else None)
            self.edges[argument] = Edge(argument, node, 0)
        for op in function.body.block.ops:
            self._add_operation(op, free_interface)
        self._spread()

    def _add(self, op: Operation | BlockArgument, rule: LayoutRule | None) -> LayoutNode:
        node = LayoutNode(op, rule, [] if rule is None else [rule.natural])
        self.nodes.append(node)
        return node

    def _add_operation(self, op: Operation, free_interface: bool) -> None:
        if isinstance(op, ReturnOp):
            for value in op.operands:
                self._read(self._add(op, _interface_rule(value) if free_interface else None), [value])
        elif isinstance(op, CircleOp):
            node = self._add(op, rule_of(op))
            self._read(node, op.operands)
            self.edges |= {result: Edge(result, node, place) for place, result in enumerate(op.results)}

    def _read(self, node: LayoutNode, operands: Sequence[SSAValue]) -> None:
        for place, value in enumerate(operands):
            if value in self.edges:
                self.edges[value].uses.append(LayoutUse(node, place))

    def _spread(self) -> None:
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
        """Return the index of the cheapest choice of every node with several choices."""
        free = [node for node in self.nodes if len(node.choices) > 1]
        variables = {node: number for number, node in enumerate(free)}
        sizes = [len(node.choices) for node in free]
        factors: list[CostTable] = []
        for edge in self.edges.values():
            factors += _costs(edge, variables, sizes)
        chosen = cheapest(sizes, factors)
        return {node: chosen[number] for node, number in variables.items()}


def _offer(node: LayoutNode, order: Order, place: int, *, is_result: bool) -> Iterator[tuple[LayoutNode, int]]:
    """Add the choices of ``node`` that match a neighbour's ``order``, and yield them."""
    if node.rule is None:
        return
    found: Iterable[LayoutChoice] = (
        node.rule.from_result(place, order) if is_result else node.rule.from_operand(place, order)
    )
    for choice in found:
        if choice not in node.choices and len(node.choices) < _MOST_CHOICES:
            node.choices.append(choice)
            yield node, len(node.choices) - 1


def _interface_rule(value: SSAValue) -> LayoutRule | None:
    facts = tensor_facts(value.type) if not isinstance(value.owner, NoneOp) else None
    if facts is None or facts.shape is None or len(facts.shape) != len(NHWC) or is_constant(value):
        return None
    if facts.quant is not None and not facts.quant.per_tensor:
        return None

    def fits(place: int, order: Order) -> Iterable[LayoutChoice]:
        return (order,) if order == NHWC else ()

    return LayoutRule(
        natural=identity(len(NHWC)),
        wants=lambda order: (order,),
        gives=lambda order: (order,),
        from_operand=fits,
        from_result=fits,
        change=lambda order: Change(),
    )


def _costs(edge: Edge, variables: Mapping[LayoutNode, int], sizes: list[int]) -> Iterator[CostTable]:
    """Yield the factors of one tensor. Append a variable to ``sizes`` for each order that readers may share."""
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
        made = len(sizes)  # variable: whether the tensor exists in this order
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
    fixed = tuple(axis for axis, node in enumerate(nodes) if node not in variables)
    kept = (*(variables[node] for node in nodes if node in variables), *more)
    if kept and np.any(table):
        yield CostTable(kept, table.squeeze(fixed))
