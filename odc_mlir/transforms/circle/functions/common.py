"""Helpers to recognise functions: walks over operators from a result back to its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.ir import OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.transforms.common.rewriting import activation, constant, producer, shape_of

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True)
class Function:
    """``operators`` compute ``kind`` and give ``result``; ``traits`` tell its variations, such as a mask."""

    kind: str
    result: SSAValue
    operators: tuple[CircleOp, ...]
    traits: frozenset[str] = frozenset()


def plain(value: SSAValue, *names: str) -> CircleOp | None:
    """The operator with one of these names and without fused activation that gives ``value``."""
    op = producer(value, *names)
    return op if op is not None and activation(op) == "none" else None


def pairs(op: CircleOp) -> tuple[tuple[SSAValue, SSAValue], tuple[SSAValue, SSAValue]]:
    """The two operands either way round."""
    first, second = op.operands[0], op.operands[1]
    return (first, second), (second, first)


def viewed(value: SSAValue) -> SSAValue:
    """What ``value`` shows, through operators that change nothing but its shape."""
    while (view := producer(value, *VIEWS)) is not None:
        value = view.operands[0]
    return value


def only_reader(value: SSAValue, *names: str) -> CircleOp | None:
    """The one operator that reads ``value``, if it has one of these names."""
    if not value.has_one_use():
        return None
    (use,) = value.uses
    op = use.operation
    return op if isinstance(op, CircleOp) and op.SPEC.name in names and op.unverified is None else None


def axes_of(op: CircleOp) -> frozenset[int] | None:
    """The constant axes of a reduction, none negative."""
    array, shape = constant(op.operands[1]), shape_of(op.operands[0])
    return None if array is None or not shape else frozenset(int(axis) % len(shape) for axis in array.reshape(-1))


def between(result: SSAValue, sources: Iterable[SSAValue]) -> tuple[CircleOp, ...]:
    """The operators on all ways from ``sources`` to ``result``, in an order that a walk back finds them."""
    stops = set(sources)
    seen: dict[CircleOp, None] = {}
    work = [result]
    while work:
        value = work.pop()
        if value in stops or not isinstance(value, OpResult) or not isinstance(value.op, CircleOp):
            continue
        op = value.op
        if isinstance(op, ConstOp) or op in seen:
            continue
        seen[op] = None
        work.extend(op.operands)
    return tuple(seen)
