"""How operators work on tensors that are stored in another order of dimensions.

:func:`rule_of` gives an operator's :class:`LayoutRule`; an operator without one takes and gives every tensor as the
model wrote it. A rule numbers the ways in which the operator can work by *choices*: mostly the order of its main
operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, tensor_facts
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.circle.layout.orders import (
    Order,
    blocks,
    identity,
    through_reshape,
    with_removed,
    without,
)
from odc_mlir.transforms.common.rewriting import constant, shape_of, static_shape_of

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
    """How ``op`` works in other orders; None where it takes and gives tensors as the model wrote them only."""
    if op.unverified is not None or Trait.PURE not in op.SPEC.traits:
        return None
    values = [*(v for v in op.operands if not isinstance(v.owner, NoneOp | ConstOp)), *op.results]
    if any(not is_simple(value) for value in values):
        return None
    builder = _ELEMENTWISE if Trait.ELEMENTWISE in op.SPEC.traits else _RULES.get(op.SPEC.name)
    return None if builder is None else builder(op)


def is_constant(value: SSAValue) -> bool:
    """Whether ``value`` is a constant, whose contents may be known or not."""
    return isinstance(value, OpResult) and isinstance(value.op, ConstOp)


def is_simple(value: SSAValue) -> bool:
    """Whether another order of dimensions changes nothing but the shape in the type."""
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
