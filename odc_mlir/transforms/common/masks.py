"""Search for masks in the operands of SOFTMAX.

A mask adds numbers far below all scores to the entries that it hides. The operand of a SOFTMAX is a sum of terms. The
search for terms passes through sums, factors, and operators that only move, select or limit values. Each term has a
*bound*, in the unit of the term. A value below the bound (above it for a subtracted term) has a softmax weight of 0.
The bound can therefore replace the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.ops.spec import QuantKind
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    activation,
    behind,
    is_real,
    pairs,
    part,
    real,
    real_constant,
    real_scalar,
    shape_of,
)

HIDDEN = -2048.0
"""Bound of the exponential's argument. In float32, its weight is 0 if the visible scores span less than 1900."""

_NEARLY = 0.99  # relative tolerance of a bound, because products of clipped numbers are rounded
_LARGEST_FACTOR = 64.0  # largest factor of scores; a value with a larger factor selects hidden entries
_DEEPEST = 64
# Operators that move codes, but combine several values or depend on the order of values.
MIXING = frozenset({"AVERAGE_POOL_2D", "RESIZE_BILINEAR", "TOPK_V2", "UNIQUE"})
_PRODUCTS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"})

Bounds = Mapping[int, float]
Interval = tuple[float, float]


class TermSource(NamedTuple):
    """Source of terms: a constant, integer multiples of a step (``whole``), or a value without terms."""

    value: SSAValue
    bound: float
    whole: bool = False


def argument_of(softmax: CircleOp) -> tuple[SSAValue, float] | None:
    """Return the float operand of a SOFTMAX and the bound, or None for other or invalid operators."""
    if softmax.SPEC.name != "SOFTMAX" or softmax.unverified is not None or not is_real(softmax.operands[0]):
        return None
    beta = float(softmax.option("beta"))
    return (softmax.operands[0], HIDDEN / min(beta, 1.0)) if beta > 0 else None


def terms(value: SSAValue, bound: float) -> tuple[CircleOp, Bounds] | None:
    """Return the producer of a term and the bounds of its operands that are terms, or None if there are none."""
    op = value.owner
    if not isinstance(op, CircleOp) or op.unverified is not None or not is_real(value):
        return None
    name, rule = op.SPEC.name, op.SPEC.quant
    if rule.kind is QuantKind.SAME:
        if _is_limited(op, bound):
            return None
        found = dict.fromkeys(moved_operands(op), bound)
        return (op, found) if found else None
    if name == "NEG":
        return op, {0: -bound}
    if name in ("ADD", "SUB") and activation(op) == "none":
        bounds = {0: bound, 1: bound if name == "ADD" else -bound}
        return None if any(_hides_rows(op.operands[i], bounds[i]) for i in bounds) else (op, bounds)
    if name in ("MUL", "DIV") and activation(op) == "none":
        for place in (1, 0) if name == "MUL" else (1,):
            factor = real_scalar(op.operands[place])
            if factor and np.isfinite(factor):
                factor = factor if name == "MUL" else 1.0 / factor
                return (op, {1 - place: bound / factor}) if abs(factor) <= _LARGEST_FACTOR else None
    return None


def _is_limited(op: CircleOp, bound: float) -> bool:
    if op.SPEC.name != ("MAXIMUM" if bound < 0 else "MINIMUM"):
        return False
    for value, limit in pairs(op):
        numbers = real_constant(limit)
        if numbers is not None and not _beyond(numbers, bound).any():
            return real_constant(value) is None and terms(value, bound) is None
    return False


def sources(value: SSAValue, bound: float) -> Iterator[TermSource]:
    """Yield the sources of the terms of ``value``, each once."""
    seen: set[tuple[SSAValue, float]] = set()
    left = [(value, bound, 0)]
    while left:
        value, bound, depth = left.pop()
        if (value, bound) in seen or depth > _DEEPEST:
            continue
        seen.add((value, bound))
        found = None if real_constant(value) is not None else terms(value, bound)
        if found is None:
            yield TermSource(value, bound, whole=_hides_by_step(value, bound))
        else:
            op, bounds = found
            left += [(op.operands[index], bounds[index], depth + 1) for index in sorted(bounds, reverse=True)]


def is_beyond(source: TermSource) -> bool:
    """Return whether the source is a constant or integer multiples of a step and exceeds its bound."""
    numbers = real_constant(source.value)
    if numbers is not None:
        return bool(np.any(_beyond(numbers, source.bound)))
    step = whole_step(source.value) if source.whole else None
    return step is not None and step > abs(source.bound)


def is_seen_beyond(source: TermSource, seen: Interval) -> bool:
    """Return whether a term with values in the range ``seen`` exceeds the bound."""
    low, high = seen
    return low < source.bound if source.bound < 0 else high > source.bound


def may_be_limited(source: TermSource) -> bool:
    """Return whether only samples can determine if a term is a mask."""
    is_known = source.whole or real_constant(source.value) is not None
    return is_real(source.value) and not is_known and not is_product(source.value.owner)


def is_product(op: object) -> bool:
    """Return whether ``op`` multiplies matrices or convolves."""
    return isinstance(op, CircleOp) and op.SPEC.name in _PRODUCTS


def _beyond(numbers: NDArray[np.float32], bound: float) -> NDArray[np.bool_]:
    return numbers < bound if bound < 0 else numbers > bound


def _is_hidden(numbers: NDArray[np.float32], bound: float) -> NDArray[np.bool_]:
    return numbers <= _NEARLY * bound if bound < 0 else numbers >= _NEARLY * bound


def _hides_rows(value: SSAValue, bound: float) -> bool:
    """Return whether a constant hides a whole row of the last axis. Such a constant alone is not a mask."""
    numbers = real_constant(value)
    if numbers is None or not numbers.size:
        return False
    return bool(_is_hidden(np.atleast_1d(numbers), bound / 2).all(axis=-1).any())


def _hides_by_step(value: SSAValue, bound: float) -> bool:
    step = None if real_constant(value) is not None else whole_step(value)
    return step is not None and step >= _NEARLY * abs(bound)


# Integer multiples of a step, computed from booleans and integers.


def whole_step(value: SSAValue) -> float | None:
    """Return a step such that all elements of ``value`` are integer multiples of it, or None."""
    return _whole_step(value, {}, 0)


def _whole_step(value: SSAValue, known: dict[SSAValue, float | None], depth: int) -> float | None:
    if value not in known:
        known[value] = _step_of(value, known, depth) if depth <= _DEEPEST else None
    return known[value]


def _step_of(value: SSAValue, known: dict[SSAValue, float | None], depth: int) -> float | None:
    numbers = real_constant(value)
    if numbers is not None:
        sizes = np.unique(np.abs(numbers[numbers != 0]))
        return float(sizes[0]) if len(sizes) == 1 else 1.0 if not np.any(numbers % 1) else None
    op = value.owner
    if not isinstance(op, CircleOp) or op.unverified is not None or not is_real(value):
        return None
    if op.SPEC.name == "CAST":
        return 1.0 if info_of(op.operands[0]).info.kind != "float" else None
    if op.SPEC.name in ("MUL", "ADD", "SUB") and activation(op) != "none":
        return None
    found = [_whole_step(op.operands[index], known, depth + 1) for index in _linear_operands(op)]
    steps = [step for step in found if step]
    if not steps or len(steps) < len(found):
        return None
    if op.SPEC.name == "MUL":
        return float(np.prod(steps))
    least = min(steps)
    return least if all(step % least == 0 for step in steps) else None


def _linear_operands(op: CircleOp) -> tuple[int, ...]:
    """Return the operands of ``op`` whose multiples of a step stay multiples of a step in the result."""
    name = op.SPEC.name
    if name in ("ADD", "SUB", "MUL"):
        return (0, 1)
    if name == "NEG":
        return (0,)
    return moved_operands(op) if op.SPEC.quant.kind is QuantKind.SAME else ()


def moved_operands(op: CircleOp) -> tuple[int, ...]:
    """Return the float operands whose elements ``op`` only moves, or none if it computes new elements."""
    moved = () if op.SPEC.name in MIXING else op.SPEC.quant.moved(op.operands)
    return tuple(i for i in moved if isinstance(op.operands[i].type, TensorType) and is_real(op.operands[i]))


# Rewriting.


@dataclass
class Clipping:
    """Builder of limited terms. Terms that many SOFTMAXes share are built once."""

    _known: dict[tuple[SSAValue, float], SSAValue] = field(default_factory=dict)
    _copies: dict[tuple[CircleOp, tuple[SSAValue, ...]], CircleOp] = field(default_factory=dict)
    limits: list[CircleOp] = field(default_factory=list)

    def clipped(self, value: SSAValue, bound: float, limited: Set[SSAValue], depth: int = 0) -> SSAValue:
        """Return ``value`` limited to its bound, or ``value`` itself if it does not exceed the bound.

        MAXIMUM or MINIMUM operators limit the ``limited`` sources. ``limits`` lists these operators.
        """
        if depth > _DEEPEST:
            return value
        if (value, bound) not in self._known:
            self._known[value, bound] = self._clipped(value, bound, limited, depth)
        return self._known[value, bound]

    def _clipped(self, value: SSAValue, bound: float, limited: Set[SSAValue], depth: int) -> SSAValue:
        numbers = real_constant(value)
        if numbers is not None:
            limit = np.maximum if bound < 0 else np.minimum
            return (
                self._constant(value, limit(numbers, np.float32(bound)))
                if is_beyond(TermSource(value, bound))
                else value
            )
        found = terms(value, bound)
        if found is not None:
            op, bounds = found
            return self._copy(
                value, op, {i: self.clipped(op.operands[i], b, limited, depth + 1) for i, b in bounds.items()}
            )
        source = TermSource(value, bound, whole=_hides_by_step(value, bound))
        if source.whole:
            step = whole_step(value)
            assert step is not None
            return self._scaled(value, abs(bound) / step) if step > abs(bound) else value
        return self._limited(value, bound) if value in limited else value

    def _scaled(self, value: SSAValue, factor: float) -> SSAValue:
        numbers = real_constant(value)
        if numbers is not None:
            return self._constant(value, numbers.astype(np.float64) * factor)
        op = value.owner
        assert isinstance(op, CircleOp)
        places = _linear_operands(op)
        if op.SPEC.name == "MUL":
            steps = {place: whole_step(op.operands[place]) or 0.0 for place in places}
            places = (max(steps, key=steps.__getitem__),)
        if not places:  # integers cannot be scaled
            return value
        return self._copy(value, op, {place: self._scaled(op.operands[place], factor) for place in places})

    def _constant(self, old: SSAValue, numbers: NDArray[np.floating]) -> SSAValue:
        made = real(numbers, f"{value_name(old)}/clipped")
        Rewriter.insert_op(made, behind(old))
        return made.result

    def _copy(self, value: SSAValue, op: CircleOp, operands: Mapping[int, SSAValue]) -> SSAValue:
        given = tuple(operands.get(index, old) for index, old in enumerate(op.operands))
        if all(new is old for new, old in zip(given, op.operands, strict=True)):
            return value
        if (op, given) not in self._copies:
            copy = op.clone()
            copy.operands = given
            Rewriter.insert_op(copy, InsertPoint.after(op))
            self._copies[op, given] = copy
        assert isinstance(value, OpResult)
        return self._copies[op, given].results[value.index]

    def _limited(self, value: SSAValue, bound: float) -> SSAValue:
        limit = real(np.array([bound] if shape_of(value) else bound), f"{value_name(value)}/hidden")
        made = part("MAXIMUM" if bound < 0 else "MINIMUM", [value, limit.result], value, "shown")
        self.limits.append(made)
        Rewriter.insert_op([limit, made], behind(value))
        return made.results[0]


# Ranges of entries that are not hidden.


class Shown(NamedTuple):
    """Range of a term over its visible entries, None if there are none, and whether it hides entries."""

    range: Interval | None
    hides: bool


@dataclass
class ShownRanges:
    """Ranges of terms over visible entries, computed from the ranges ``of_values``."""

    of_values: Callable[[SSAValue], Interval | None]
    _known: dict[tuple[SSAValue, float], Shown | None] = field(default_factory=dict)

    def of(self, value: SSAValue, bound: float, depth: int = 0) -> Shown | None:
        """Return the range of a term, or None if the range of a value is unknown."""
        if (value, bound) not in self._known:
            self._known[value, bound] = self._of(value, bound, depth)
        return self._known[value, bound]

    def _of(self, value: SSAValue, bound: float, depth: int) -> Shown | None:
        numbers = real_constant(value)
        if numbers is not None:
            hidden = _is_hidden(numbers, bound)
            rest = numbers[~hidden]
            return Shown((float(rest.min()), float(rest.max())) if rest.size else None, bool(hidden.any()))
        found = terms(value, bound) if depth <= _DEEPEST else None
        if found is None:
            return self._of_source(value, bound)
        op, bounds = found
        each = [self.of(op.operands[index], bounds[index], depth + 1) for index in bounds]
        parts = [item for item in each if item is not None]
        return _joined(op, bounds, bound, parts) if len(parts) == len(each) else None

    def _of_source(self, value: SSAValue, bound: float) -> Shown | None:
        if _hides_by_step(value, bound):
            return Shown((0.0, 0.0), hides=True)
        found = self.of_values(value)
        if found is None:
            return None
        low, high = found
        if isinstance(value.owner, CircleOp) and _is_limited(value.owner, bound):
            if bound < 0 and low <= _NEARLY * bound:
                return Shown((min(0.0, high), high), hides=True)
            if bound > 0 and high >= _NEARLY * bound:
                return Shown((low, max(0.0, low)), hides=True)
        return Shown(found, hides=False)


def _joined(op: CircleOp, bounds: Bounds, bound: float, parts: Sequence[Shown]) -> Shown:
    hides = any(item.hides for item in parts)
    ranges = [item.range for item in parts if item.range is not None]
    if op.SPEC.quant.kind is QuantKind.SAME:
        return Shown((min(r[0] for r in ranges), max(r[1] for r in ranges)) if ranges else None, hides)
    if len(ranges) < len(parts):
        return Shown(None, hides)
    if op.SPEC.name in ("ADD", "SUB"):
        (low, high), (other_low, other_high) = ranges
        if op.SPEC.name == "SUB":
            other_low, other_high = -other_high, -other_low
        return Shown((low + other_low, high + other_high), hides)
    (of_operand,) = bounds.values()
    ends = sorted(end * bound / of_operand for end in ranges[0])
    return Shown((ends[0], ends[1]), hides)
