"""Operators on tensors stored in another order of dimensions, and operators that move whole channels.

Orders of dimensions. ``order[i]`` is the dimension of a tensor that is stored as its i-th.

A tensor stored in order ``p`` is what ``TRANSPOSE(tensor, p)`` gives; the identity is how the model wrote it.

:func:`rule_of` gives an operator's :class:`LayoutRule`; an operator without one takes and gives every tensor as the
model wrote it. A rule numbers the ways in which the operator can work by *choices*: mostly the order of its main
operand.

Operators that only move whole channels, and from where each channel of their results comes.

They are slices, splits, concatenation and gathering along one axis, and channel shuffles: RESHAPE that takes the axis
apart, TRANSPOSE of its parts, RESHAPE that joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, tensor_facts
from odc_mlir.ops.spec import Shape, Trait
from odc_mlir.transforms.common.rewriting import (
    activation,
    constant,
    is_real,
    is_used_once,
    producer,
    shape_of,
    static_shape_of,
)

Order = tuple[int, ...]


def identity(rank: int) -> Order:
    """The order that the model wrote."""
    return tuple(range(rank))


def moves(stored: Order, wanted: Order) -> Order:
    """The permutation that TRANSPOSE takes from order ``stored`` to order ``wanted``."""
    return tuple(stored.index(dimension) for dimension in wanted)


def permuted(shape: Shape, order: Order) -> Shape:
    """The extents of a tensor of ``shape`` when it is stored in ``order``."""
    return tuple(shape[dimension] for dimension in order)


def same_elements(shape: Shape | None, stored: Order, wanted: Order) -> bool:
    """Return True if two orders differ only in dimensions of extent 1, so that a RESHAPE converts one to the other."""
    if stored == wanted:
        return True
    if shape is None:
        return False
    return [d for d in stored if shape[d] != 1] == [d for d in wanted if shape[d] != 1]


def without(order: Order, removed: frozenset[int]) -> Order:
    """The order of the dimensions that are left when some go, numbered anew."""
    left = [dimension for dimension in order if dimension not in removed]
    numbers = {dimension: number for number, dimension in enumerate(sorted(left))}
    return tuple(numbers[dimension] for dimension in left)


def with_removed(order: Order, removed: frozenset[int], rank: int) -> Order:
    """An order whose :func:`without` is ``order``: the removed dimensions stay at their own places."""
    kept = [dimension for dimension in range(rank) if dimension not in removed]
    rest = iter(kept[number] for number in order)
    return tuple(place if place in removed else next(rest) for place in range(rank))


def blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of neighbouring dimensions with equal products, of a shape before and after RESHAPE.

    Dimensions of extent 1 that nothing stands for on the other side are groups of their own.
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
    """The order behind RESHAPE (``side`` 0), or before it (1), of data that stay in their places.

    None where ``order`` takes a group of dimensions apart or turns it round.
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
    for dimension in loose:  # extents of 1 that are on one side only go where their number puts them
        found.insert(min(dimension, len(found)), dimension)
    return tuple(found)


LayoutChoice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of an operator for a layout: constants, options, or another operator."""

    constants: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    reshape_to: tuple[int, ...] | None = None  # it becomes a RESHAPE to this shape


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """``wants`` and ``gives`` tell the orders of operands (None: as it is) and of results for a choice.

    ``from_operand`` and ``from_result`` are their inverses: the choices that take operand i, or give result i, in an
    order. Not every choice that they give has to be possible for the operator's other operands.
    """

    natural: LayoutChoice
    wants: Callable[[LayoutChoice], tuple[Order | None, ...]]
    gives: Callable[[LayoutChoice], tuple[Order, ...]]
    from_operand: Callable[[int, Order], Iterable[LayoutChoice]]
    from_result: Callable[[int, Order], Iterable[LayoutChoice]]
    change: Callable[[LayoutChoice], Change]


def rule_of(op: CircleOp) -> LayoutRule | None:
    """Return the rule of ``op`` in other orders; None if it works only in the model's order."""
    if op.unverified is not None or Trait.PURE not in op.SPEC.traits:
        return None
    values = [*(v for v in op.operands if not isinstance(v.owner, NoneOp | ConstOp)), *op.results]
    if any(not is_simple(value) for value in values):
        return None
    builder = _ELEMENTWISE if Trait.ELEMENTWISE in op.SPEC.traits else _RULES.get(op.SPEC.name)
    return None if builder is None else builder(op)


def is_constant(value: SSAValue) -> bool:
    """Return whether ``value`` is a constant, whose contents may be known or not."""
    return isinstance(value, OpResult) and isinstance(value.op, ConstOp)


def is_simple(value: SSAValue) -> bool:
    """Return whether another order of dimensions changes nothing but the shape in the type."""
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
    """The choice is the order of all ``moved`` operands, and of the results, which lack the ``removed`` dimensions."""
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


def _ELEMENTWISE(op: CircleOp) -> LayoutRule | None:
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
    """A constant that broadcasts against a tensor, for that tensor in ``order``, without leading dimensions of 1."""
    whole = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(order)
    extra = len(order) - array.ndim
    while extra and whole.shape[0] == 1:
        whole, extra = whole[0], extra - 1
    return whole


def _axes(value: SSAValue, rank: int) -> list[int] | None:
    """Constant axes, none of them negative."""
    array = constant(value)
    return None if array is None else [int(axis) % rank for axis in array.reshape(-1)]


def _places(axes: Iterable[int], order: Order) -> NDArray[np.int64]:
    return np.array([order.index(axis) for axis in axes], np.int64)


def _reduction(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.operands[0])
    axes = _axes(op.operands[1], rank)
    if axes is None:
        return None
    removed = frozenset() if op.option("keep_dims") else frozenset(axes)
    return _same_order(op, [0], lambda order: Change({1: np.sort(_places(sorted(set(axes)), order))}), removed=removed)


def _argument(op: CircleOp) -> LayoutRule | None:
    axes = _axes(op.operands[1], _rank(op.operands[0]))
    if axes is None or len(axes) != 1:
        return None
    extents = static_shape_of(op.operands[1]) or ()
    return _same_order(
        op, [0], lambda order: Change({1: _places(axes, order).reshape(extents)}), removed=frozenset(axes)
    )


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


def _split(data: int, axis_operand: int) -> Callable[[CircleOp], LayoutRule | None]:
    def rule(op: CircleOp) -> LayoutRule | None:
        axes, array = _axes(op.operands[axis_operand], _rank(op.operands[data])), constant(op.operands[axis_operand])
        if axes is None or array is None or len(axes) != 1 or is_constant(op.operands[data]):
            return None
        return _same_order(op, [data], lambda order: Change({axis_operand: _places(axes, order).reshape(array.shape)}))

    return rule


def _along(*places: int, same_rank: bool = True) -> Callable[[CircleOp], LayoutRule | None]:
    """Operators whose operands ``places`` are constants with one entry, or row, for each dimension."""

    def rule(op: CircleOp) -> LayoutRule | None:
        arrays = {place: constant(op.operands[place]) for place in places}
        rank = _rank(op.operands[0])
        if any(array is None or len(array) != rank for array in arrays.values()) or is_constant(op.operands[0]):
            return None
        if same_rank and _rank(op.results[0]) != rank:
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


def _axis_operand(op: CircleOp) -> LayoutRule | None:
    """Operators with the same shape in and out and constant axes as operand 1."""
    axes, array = _axes(op.operands[1], _rank(op.operands[0])), constant(op.operands[1])
    if axes is None or array is None or is_constant(op.operands[0]):
        return None
    return _same_order(op, [0], lambda order: Change({1: _places(axes, order).reshape(array.shape)}))


def _gather(op: CircleOp) -> LayoutRule | None:
    rank = _rank(op.operands[0])
    if rank == 0 or _rank(op.operands[1]) != 1 or op.option("batch_dims") or is_constant(op.operands[0]):
        return None
    axis = int(op.option("axis") or 0) % rank
    return _same_order(op, [0], lambda order: Change(options={"axis": order.index(axis)}))


def _last_axis(op: CircleOp) -> LayoutRule | None:
    """Operators that work along the last dimension: it stays the last."""
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
    """TRANSPOSE only names the order of its result: it costs nothing in any layout."""
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
    """The choice: whether the last two dimensions of left and right operand are swapped, then the batches' order."""
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


_RULES: Mapping[str, Callable[[CircleOp], LayoutRule | None]] = {
    "TRANSPOSE": _transpose,
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "BATCH_MATMUL": _batch_matmul,
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"), _reduction),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _argument),
    "CONCATENATION": _concatenation,
    "SPLIT": _split(1, 0),
    "SPLIT_V": _split(0, 2),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD", "TILE"), _along(1)),
    "BROADCAST_TO": _along(1),
    "SLICE": _along(1, 2),
    "STRIDED_SLICE": _strided_slice,
    **dict.fromkeys(("REVERSE_V2", "CUMSUM"), _axis_operand),
    "GATHER": _gather,
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "RMS_NORM", "FULLY_CONNECTED"), _last_axis),
}


class Channel(NamedTuple):
    """One channel of a tensor."""

    value: SSAValue
    number: int


Channels = list[Channel]


class Shuffle(NamedTuple):
    """``source`` with the channels along ``axis`` in another order; ``inner`` are the view and the TRANSPOSE."""

    source: SSAValue
    axis: int
    order: tuple[int, ...]
    inner: tuple[CircleOp, CircleOp]


def shuffle_of(op: CircleOp) -> Shuffle | None:
    """The channel shuffle whose last operator ``op`` is."""
    turned = producer(op.operands[0], "TRANSPOSE") if op.SPEC.name == "RESHAPE" else None
    view = None if turned is None else producer(turned.operands[0], "RESHAPE")
    if turned is None or view is None or not (is_used_once(turned.results[0]) and is_used_once(view.results[0])):
        return None
    shape, parts = static_shape_of(view.operands[0]), static_shape_of(view.results[0])
    order = constant(turned.operands[1])
    if shape is None or parts is None or order is None or 0 in shape or shape != static_shape_of(op.results[0]):
        return None
    kept = [part for part in range(len(parts)) if parts[part] != 1]
    moved = [int(part) for part in order if parts[int(part)] != 1]
    changed = {part for part, other in zip(kept, moved, strict=True) if part != other}
    for left, right in blocks(shape, parts):
        if len(left) == 1 and changed and changed <= set(right):
            inside = [part for part in right if part in kept]
            numbers = np.arange(shape[left[0]]).reshape([parts[part] for part in inside])
            turn = [inside.index(part) for part in moved if part in inside]
            found = tuple(int(number) for number in numbers.transpose(turn).reshape(-1))
            return Shuffle(view.operands[0], left[0], found, (view, turned))
    return None


def channels_of(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    """The channels that each result consists of, where ``op`` does nothing but move them along ``axis``."""
    if op.unverified is not None or op.SPEC.name not in _MOVES:
        return None
    return _MOVES[op.SPEC.name](op, axis)


def _all(value: SSAValue, axis: int) -> Channels:
    shape = static_shape_of(value)
    return [] if shape is None else [Channel(value, number) for number in range(shape[axis])]


def _shuffled(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    found = shuffle_of(op)
    if found is None or found.axis != axis:
        return None
    return ([Channel(found.source, number) for number in found.order],)


def _joined(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape = static_shape_of(op.results[0])
    if shape is None or activation(op) != "none" or int(op.option("axis") or 0) % len(shape) != axis:
        return None
    return ([channel for operand in op.operands for channel in _all(operand, axis)],)


def _parted(data: int, axis_operand: int) -> Callable[[CircleOp, int], tuple[Channels, ...] | None]:
    def rule(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
        shape, axes = static_shape_of(op.operands[data]), constant(op.operands[axis_operand])
        extents = [static_shape_of(result) for result in op.results]
        if shape is None or axes is None or int(axes.reshape(-1)[0]) % len(shape) != axis:
            return None
        ends = np.cumsum([0 if extent is None else extent[axis] for extent in extents])
        given = _all(op.operands[data], axis)
        if int(ends[-1]) != len(given):
            return None
        return tuple(given[begin:end] for begin, end in zip([0, *map(int, ends)], map(int, ends), strict=False))

    return rule


def _sliced(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    begin, result = constant(op.operands[1]), static_shape_of(op.results[0])
    if begin is None or result is None:
        return None
    first = int(begin[axis])
    return (_all(op.operands[0], axis)[first : first + result[axis]],)


def _strided(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape, result = static_shape_of(op.operands[0]), static_shape_of(op.results[0])
    begin, steps = constant(op.operands[1]), constant(op.operands[3])
    masks = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    if shape is None or result is None or begin is None or steps is None or any(op.option(mask) for mask in masks):
        return None
    if (
        len(steps) != len(shape)
        or steps[axis] < 1
        or any(step != 1 for place, step in enumerate(steps) if place != axis)
    ):
        return None
    first = 0 if int(op.option("begin_mask") or 0) >> axis & 1 else int(begin[axis])
    first = max(0, first + shape[axis]) if first < 0 else first
    return (_all(op.operands[0], axis)[first :: int(steps[axis])][: result[axis]],)


def _gathered(op: CircleOp, axis: int) -> tuple[Channels, ...] | None:
    shape, numbers = static_shape_of(op.operands[0]), constant(op.operands[1])
    if shape is None or numbers is None or numbers.ndim != 1 or op.option("batch_dims"):
        return None
    given = _all(op.operands[0], axis)
    if int(op.option("axis") or 0) % len(shape) != axis or any(not 0 <= number < len(given) for number in numbers):
        return None
    return ([given[int(number)] for number in numbers],)


_MOVES: Mapping[str, Callable[[CircleOp, int], tuple[Channels, ...] | None]] = {
    "RESHAPE": _shuffled,
    "CONCATENATION": _joined,
    "SPLIT": _parted(1, 0),
    "SPLIT_V": _parted(0, 2),
    "SLICE": _sliced,
    "STRIDED_SLICE": _strided,
    "GATHER": _gathered,
}


@dataclass
class ShuffleRegion:
    """The operators around a channel shuffle that move channels only, and nothing else of the function.

    ``channels``: for each result of an operator the channels of the ``sources`` that it consists of, operators behind
    those that they read. ``inner``: the views and TRANSPOSEs of shuffles.
    """

    axis: int
    shape: tuple[int, ...]  # of all its tensors, but for the extent along the axis
    movers: dict[CircleOp, tuple[Channels, ...]] = field(default_factory=dict)
    inner: dict[Operation, None] = field(default_factory=dict)
    channels: dict[SSAValue, Channels] = field(default_factory=dict)
    sources: dict[SSAValue, None] = field(default_factory=dict)

    @classmethod
    def around(cls, op: CircleOp) -> ShuffleRegion | None:
        """The region of the channel shuffle whose last operator ``op`` is; None for other operators."""
        shuffle = shuffle_of(op)
        if shuffle is None:
            return None
        made = cls(shuffle.axis, static_shape_of(op.results[0]) or ())
        made._spread(op)
        made._trace()
        return made if op in made.movers else None

    def uses_outside(self, value: SSAValue) -> list[tuple[Operation, int]]:
        """Uses of ``value`` that do more than move its channels."""
        inside = (self.movers, self.inner)
        return [(use.operation, use.index) for use in value.uses if not any(use.operation in part for part in inside)]

    def _spread(self, op: CircleOp) -> None:
        waiting = [op]
        while waiting:
            op = waiting.pop()
            found = None if op in self.movers else channels_of(op, self.axis)
            if found is None or not all(self._fits(value) for value in (*_read(found), *op.results)):
                continue
            self.movers[op] = found
            if op.SPEC.name == "RESHAPE" and (shuffle := shuffle_of(op)) is not None:
                self.inner |= dict.fromkeys(shuffle.inner)
            waiting += [value.owner for value in _read(found) if isinstance(value.owner, CircleOp)]
            waiting += [reader for result in op.results for reader in _movers_behind(result)]

    def _fits(self, value: SSAValue) -> bool:
        shape = static_shape_of(value)
        if shape is None or len(shape) != len(self.shape) or not is_real(value) or not is_simple(value):
            return False
        rest = [extent == wanted for extent, wanted in zip(shape, self.shape, strict=True)]
        return all(fits for place, fits in enumerate(rest) if place != self.axis) and shape[self.axis] > 0

    def _trace(self) -> None:
        """Follow the channels to the sources; operators come after those whose results they read."""
        waiting = list(reversed(self.movers))
        while waiting:
            op = waiting[-1]
            before = [
                value.owner
                for value in _read(self.movers[op])
                if value not in self.channels and isinstance(value.owner, CircleOp) and value.owner in self.movers
            ]
            if before:
                waiting += before
                continue
            waiting.pop()
            for result, given in zip(op.results, self.movers[op], strict=True):
                self.channels[result] = [self._source(channel) for channel in given]

    def _source(self, channel: Channel) -> Channel:
        if channel.value in self.channels:
            return self.channels[channel.value][channel.number]
        self.sources[channel.value] = None
        return channel


def _read(results: Sequence[Channels]) -> dict[SSAValue, None]:
    return {channel.value: None for channels in results for channel in channels}


def _movers_behind(value: SSAValue) -> Iterator[CircleOp]:
    """The readers of ``value`` that may move channels; of a shuffle its last operator."""
    for use in value.uses:
        op: Operation = use.operation
        for name in ("RESHAPE", "TRANSPOSE"):
            if isinstance(op, CircleOp) and op.SPEC.name == name and is_used_once(op.results[0]):
                (inner,) = op.results[0].uses
                op = inner.operation
        if isinstance(op, CircleOp):
            yield op
