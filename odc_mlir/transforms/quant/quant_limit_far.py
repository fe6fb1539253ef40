"""``quant-limit-far``: clamp float values that overflow the arithmetic of QUANTIZE.

Before, with a minimum of -3.4e38 for ``x`` in ``ranges``::

    %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:-8>>

After::

    %l = circle.const [-60.0] : tensor<1xf32>
    %m = circle.maximum(%x, %l) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %0 = circle.quantize(%m) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:-8>>

Masks hide scores by such numbers. Runtimes divide by the scale, round to 32 bits and then add the zero point. A number
beyond 32 bits may become the code at the other end of the range. A number that is first clamped to the range of the
codes gets the right code. All other results stay the same.

MINIMUM limits numbers that are too large in the same way. Applies to values whose recorded range exceeds 2**30
steps of the scale. Does nothing without ``ranges``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import part, real
from odc_mlir.transforms.quant.common.ir import all_ops, is_float32, quantized_function
from odc_mlir.transforms.quant.quant_attach_ranges import Range, read_ranges

if TYPE_CHECKING:
    from odc_mlir.calibration.statistics import TensorStatistics

MOST_STEPS = 2.0**30  # such numbers fit into 32 bits with any zero point
_LARGEST = float(np.finfo(np.float32).max)

Limit = tuple[str, str, float]  # limiting operator, end of the codes, and number that this end represents


@dataclass(frozen=True)
class QuantLimitFarPass(ModulePass):
    """Limit floats before QUANTIZE."""

    name = "quant-limit-far"

    ranges: str = ""
    """JSON file with [least, largest] of all recorded values by tensor name, including values excluded from ranges."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = quantized_function(op)
        if function is not None and self.ranges:
            limit_far(function, read_ranges(self.ranges))


def limit_far(function: FuncOp, seen: Mapping[str, Range]) -> None:
    """Insert MAXIMUM and MINIMUM before every QUANTIZE of a float value with too large a range in ``seen``."""
    for op, limits in list(_limited(function, seen)):
        first = value = op.operands[0]
        for kind, end, number in limits:
            limit = real(np.array([number]), f"{value_name(first)}/{end}")
            made = part(kind, [value, limit.result], first, f"limited_to_{end}")
            Rewriter.insert_op([limit, made], InsertPoint.before(op))
            value = made.results[0]
        op.operands[0] = value


def limited(module: ModuleOp, statistics: Mapping[str, TensorStatistics]) -> ModuleOp:
    """Return a copy of ``module`` with far values limited, or ``module`` if there are none."""
    seen = {name: _seen(found) for name, found in statistics.items() if found.runs_seen}
    function = quantized_function(module)
    if function is None or next(_limited(function, seen), None) is None:
        return module
    module = module.clone()
    function = quantized_function(module)
    assert function is not None
    limit_far(function, seen)
    return module


def _seen(found: TensorStatistics) -> Range:
    """Return the smallest and largest value. Values excluded from ranges count as the largest float32."""
    if found.infinite_count:
        return -_LARGEST, _LARGEST
    low, high = (found.minimum, found.maximum) if found.runs else (0.0, 0.0)
    return (-_LARGEST if found.lowest_count else low), high


def _limited(function: FuncOp, seen: Mapping[str, Range]) -> Iterator[tuple[CircleOp, list[Limit]]]:
    for op in all_ops(function):
        if op.SPEC.name == "QUANTIZE" and is_float32(op.operands[0]) and value_name(op.operands[0]) in seen:
            codes = info_of(op.results[0])
            assert codes.quant is not None
            scale, zero = codes.quant.scale, codes.quant.zero_point
            (least, most), (low, high) = seen[value_name(op.operands[0])], codes.info.range
            limits = [("MAXIMUM", "lowest", scale * (low - zero))] if -least > MOST_STEPS * scale else []
            limits += [("MINIMUM", "highest", scale * (high - zero))] if most > MOST_STEPS * scale else []
            if limits:
                yield op, limits
