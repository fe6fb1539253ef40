"""``quant-narrow-ranges``: remove the parts of ranges that no reader of a value distinguishes.

Before::

    %0 = circle.hard_swish(%x) : (tensor<1x4xf32, #circle.qparams<min = [-9.0], max = [6.0]>>)
                              -> tensor<1x4xf32, #circle.qparams<min = [-0.375], max = [6.0]>>

After ``quant-narrow-ranges{bits=8}``, as HARD_SWISH makes 0 of all below -3::

    %0 = circle.hard_swish(%x) : (tensor<1x4xf32, #circle.qparams<min = [-3.06], max = [6.0]>>) -> …

So does GELU of what is below -14, and TANH gives 1 beyond 10; ``x * relu6(x + 3)`` and others that are made of several
operators are such functions as well. What is beyond an end gets the code of that end, and the others are finer. Values
that are moved to such readers are narrowed alike. Only results that are the same float32 numbers count, so that nothing
behind them can tell, and a step of codes more than the end is kept, as codes do not lie on it. Outputs keep their
ranges, and so does everything without ``bits``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.common.masks import moved_operands
from odc_mlir.transforms.common.retyping import retype
from odc_mlir.transforms.common.rewriting import real_scalar, shape_of
from odc_mlir.transforms.quant.common.ir import is_real, main_function, operators, range_of, with_range

Range = tuple[float, float]
Reals = NDArray[np.float32]

_ALL: Range = (-math.inf, math.inf)
_POINTS = 2049  # of a range, at which functions are computed
_LEAST = 1 / 16  # of a range: less is no gain
_MOST_OPERATORS = 6  # of one function


@dataclass(frozen=True)
class QuantNarrowRangesPass(ModulePass):
    """Narrow ranges; see the module's text."""

    name = "quant-narrow-ranges"

    bits: int | None = None
    """Bit width of the codes that values are to get."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is not None and self.bits is not None:
            narrow_ranges(function, self.bits)


def narrow_ranges(function: FuncOp, bits: int) -> None:
    """Narrow the ranges in types of ``function`` for codes of so many bits."""
    told = _Told(bits)
    results = (result for op in operators(function) for result in op.results)
    for value in reversed([*function.args, *results]):  # readers first
        if is_real(value):
            told.narrow(value)


@dataclass(slots=True)
class _Told:
    """What readers tell apart of values, where that is not all; ``known``: of those behind the present one."""

    bits: int
    known: dict[SSAValue, Range] = field(default_factory=dict)

    def narrow(self, value: SSAValue) -> None:
        """Narrow the range of a value whose readers are known."""
        known = range_of(value.type)
        if known is None or known[0] >= known[1]:
            return
        low, high = self._told(value, known)
        step = (min(high, known[1]) - max(low, known[0])) / (2**self.bits - 2)
        narrowed = max(low - step, known[0]), min(high + step, known[1])
        if narrowed != known and narrowed[0] < narrowed[1] and isinstance(value.type, TensorType):
            self.known[retype(value, with_range(value.type, *narrowed))] = low, high

    def _told(self, value: SSAValue, known: Range) -> Range:
        """Interval outside of which the readers give the same results as at its ends."""
        readers = dict.fromkeys(use.operation for use in value.uses)
        if not readers:
            return _ALL
        lows, highs = zip(*(self._by(reader, value, known) for reader in readers), strict=True)
        low, high = min(lows), max(highs)
        for ops in _functions(value):
            its_low, its_high = _ends(ops, value, known)
            low, high = max(low, its_low), min(high, its_high)
        return low, high

    def _by(self, reader: Operation, value: SSAValue, known: Range) -> Range:
        """The part that one reader tells apart."""
        if not isinstance(reader, CircleOp) or reader.unverified is not None:
            return _ALL
        moved = moved_operands(reader)
        if moved and all(i in moved for i, operand in enumerate(reader.operands) if operand is value):
            lows, highs = zip(*(self.known.get(result, _ALL) for result in reader.results), strict=True)
            return min(lows), max(highs)
        return _ends([reader], value, known) if _is_function(reader, {value}) else _ALL


def _functions(value: SSAValue) -> Iterator[list[CircleOp]]:
    """Operators in order; the last computes a function of ``value``, the only result that others read."""
    known, ops = {value}, list[CircleOp]()
    while len(ops) < _MOST_OPERATORS:
        readers = dict.fromkeys(use.operation for item in known for use in item.uses)
        op = next((op for op in readers if op not in ops and _is_function(op, known)), None)
        if not isinstance(op, CircleOp):
            return
        ops.append(op)
        if len(ops) > 1 and all(use.operation in ops for item in known for use in item.uses):
            yield ops
        known.add(op.results[0])


def _is_function(op: Operation, known: Set[SSAValue]) -> bool:
    """Return whether each result element depends only on elements of ``known`` values at its place and constants."""
    if not isinstance(op, CircleOp) or op.unverified is not None or op.SPEC.name == "CUSTOM":
        return False
    if Trait.ELEMENTWISE not in op.SPEC.traits or len(op.results) != 1 or not is_real(op.results[0]):
        return False
    shape = shape_of(op.results[0])
    return all(shape_of(o) == shape if o in known else real_scalar(o) is not None for o in op.operands)


def _ends(ops: Sequence[CircleOp], value: SSAValue, known: Range) -> Range:
    """The part of the range ``known`` of ``value`` beyond which the last of ``ops`` gives the same as at its ends."""
    x = np.linspace(*known, _POINTS, dtype=np.float32)
    values: dict[SSAValue, Reals] = {value: x}
    for op in ops:
        found = _results(op, values)
        if found is None or not np.isfinite(found).all():
            return _ALL
        values[op.results[0]] = found
    y = values[ops[-1].results[0]]
    low, high = _flat(y), _flat(y[::-1])
    if low + high >= _POINTS - 1:
        return _ALL
    least = _LEAST * _POINTS
    return (float(x[low]) if low >= least else -math.inf), (float(x[-1 - high]) if high >= least else math.inf)


def _flat(y: Reals) -> int:
    """The last of the first points that are all the same."""
    others = np.flatnonzero(y != y[0])
    return int(others[0]) - 1 if others.size else len(y) - 1


def _results(op: CircleOp, values: Mapping[SSAValue, Reals]) -> Reals | None:
    """Run the host kernel on a line of numbers for each known operand; None if it raises."""
    node, line = node_of(op), next(iter(values.values())).shape
    operands = tuple(
        info if info is None or operand not in values else replace(info, shape=line, _array=None)
        for operand, info in zip(op.operands, node.operands, strict=True)
    )
    probe: Any = replace(node, operands=operands, results=(replace(node.results[0], shape=line, _array=None),))
    numbers = [values[o] if o in values else np.array([real_scalar(o)], np.float32) for o in op.operands]
    try:
        with np.errstate(all="ignore"):
            (found,) = probe.spec.kernel_function(probe)(numbers)
    except OdcError:
        return None
    return np.asarray(found)
