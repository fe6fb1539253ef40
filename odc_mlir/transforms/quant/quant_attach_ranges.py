"""``quant-attach-ranges``: write recorded ranges into the types of values.

Before::

    %0 = circle.relu(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("relu")

After, where the values of ``relu`` were between 0 and 3.5::

    %0 = circle.relu(%x) : … -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [3.5]>> loc("relu")

The pass matches values by name, only in the main function. A value without a record keeps the range that its type
already has. Files from other recorders have ranges in types. The file holds recorded statistics, or JSON such as
``{"relu": [0.0, 3.5]}``. Without ``records``, the ranges are those of given types.

Masked scores do not widen the range of a SOFTMAX's operand. This range ends slightly below the smallest unmasked score.
The range of a mask ends at a number that hides any score.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp, VariableOp
from odc_mlir.errors import OptionError, parsing
from odc_mlir.ops.spec import QuantKind
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.masks import ShownRanges, argument_of, terms
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import real_constant
from odc_mlir.transforms.quant.common.given import before_moves, given_ranges, read_given, write_given
from odc_mlir.transforms.quant.common.ir import constant_of, is_float32, quantized_function, range_of, with_range

if TYPE_CHECKING:
    from odc_mlir.calibration.statistics import TensorStatistics

Range = tuple[float, float]

HIDDEN_SHARE = 12.0  # exp(-12) is a fifth of a step of results with 16 bits


@dataclass(frozen=True)
class QuantAttachRangesPass(ModulePass):
    """Write recorded ranges into types."""

    name = "quant-attach-ranges"

    records: str | None = None
    """File of recorded statistics or ranges."""

    mode: str = "minmax"
    """Method of choosing a range: minmax, percentile or moving-average."""

    low: float | None = None
    """Lower percentile."""

    high: float | None = None
    """Upper percentile."""

    batch: int | None = None
    """Number of runs in a batch of the moving average."""

    constant: float | None = None
    """Weight of a new batch in the moving average."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = quantized_function(op)
        if self.records is None and function is not None and (types := before_moves(function, read_given(op))):
            write_given(op, types)
            attach_ranges(function, given_ranges(types))
        if self.records is None or function is None:
            return
        if not os.path.isfile(self.records):
            raise OptionError(f"there is no record file {self.records!r}", hint="record the model first")
        with open(self.records, "rb") as file:
            is_text = file.read(1) == b"{"
        attach_ranges(function, read_ranges(self.records) if is_text else self._chosen(self.records))

    def _chosen(self, path: str) -> dict[str, Range]:
        from odc_mlir.calibration.records import RecordStore

        options = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _OWN_FIELDS}
        return ranges_of(RecordStore(path).statistics(), self.mode, options)


_OWN_FIELDS = ("records", "mode")


def read_ranges(path: str) -> dict[str, Range]:
    """Return the ranges in a JSON file. Raises OptionError with the file's name for other content."""
    with parsing("cannot read ranges", OptionError, location=path), open(path, encoding="utf-8") as file:
        content: Any = json.load(file)
    if not isinstance(content, dict):
        raise OptionError("the ranges must be a JSON object of [min, max] by tensor name", location=path)
    found = {}
    for name, pair in content.items():
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)
        if not is_pair or not -math.inf < pair[0] <= pair[1] < math.inf:
            raise OptionError(f"the range of {name!r} is {pair}, must be [min, max]", location=path)
        found[name] = (float(pair[0]), float(pair[1]))
    return found


def ranges_of(
    statistics: Mapping[str, TensorStatistics], mode: str, options: Mapping[str, Any] | None = None
) -> dict[str, Range]:
    """Return the range of each recorded tensor. Options that are None get default values."""
    from odc_mlir.quantizer.policy.ranges import choose_range

    given = {name: value for name, value in (options or {}).items() if value is not None}
    return {name: choose_range(item, mode, **given) for name, item in statistics.items() if item.runs}


def attach_ranges(function: FuncOp, ranges: Mapping[str, Range]) -> frozenset[str]:
    """Write ranges by tensor name into the types of float values of ``function``, including state.

    Return the names of values whose ranges exclude masked entries.
    """
    results = (result for op in function.walk() if isinstance(op, CircleOp | VariableOp) for result in op.results)
    for value in (*function.args, *results):
        found = ranges.get(value_name(value))
        if found is not None and is_float32(value) and isinstance(value.type, TensorType):
            retype(value, with_range(value.type, *found))
    spared = _spare_hidden(function)
    set_function_type(function)
    return spared


def _spare_hidden(function: FuncOp) -> frozenset[str]:
    """Limit the ranges of masked scores and masks to slightly more than the visible scores.

    Masked entries then have the lowest code. Its softmax weight is below half a step of any result.
    """
    softmaxes = [op for op in function.walk() if isinstance(op, CircleOp) and argument_of(op) is not None]
    ends: dict[SSAValue, Range] = {}
    readers: set[Operation] = set(softmaxes)
    for softmax in softmaxes:
        for value, (low, high) in _seen_ranges(softmax):
            known = ends.get(value, (low, high))
            ends[value] = min(low, known[0]), max(high, known[1])
            if isinstance(value.owner, Operation):
                readers.add(value.owner)
    spared = set()
    for value, (low, high) in ends.items():
        own = _range_of(value)
        if own is None or any(use.operation not in readers for use in value.uses):
            continue
        low, high = max(own[0], low), min(own[1], high)
        if low <= high and (low, high) != own:
            retype(value, with_range(value.type, low, high))
            spared.add(value_name(value))
    return frozenset(spared)


def _seen_ranges(softmax: CircleOp) -> Iterator[tuple[SSAValue, Range]]:
    argument = argument_of(softmax)
    assert argument is not None
    root, bound = argument
    shown, known = ShownRanges(_range_of), range_of(root.type)
    total = shown.of(root, bound)
    if total is None or total.range is None or known is None:
        return
    far = HIDDEN_SHARE / float(softmax.option("beta"))
    spread = max(known[1] - total.range[0], 0.0)
    left, seen = [(root, bound, far)], set()
    while left:
        value, its_bound, margin = left.pop()
        found = shown.of(value, its_bound)
        if found is None or not found.hides or (value, its_bound) in seen:
            continue
        seen.add((value, its_bound))
        if found.range is not None:
            beyond = margin * abs(its_bound / bound)
            low, high = found.range
            yield value, (low - beyond, math.inf) if its_bound < 0 else (-math.inf, high + beyond)
        next_terms = None if constant_of(value) is not None else terms(value, its_bound)
        if next_terms is not None:
            op, bounds = next_terms
            # Other terms of a sum may compensate a part of the mask. The margin includes the spread of these terms.
            margin = margin if op.SPEC.quant.kind is QuantKind.SAME or len(bounds) == 1 else spread + far
            left += [(op.operands[index], bounds[index], margin) for index in bounds]


def _range_of(value: SSAValue) -> Range | None:
    numbers = real_constant(value)
    if numbers is None:
        return range_of(value.type)
    return (float(numbers.min()), float(numbers.max())) if numbers.size else None
