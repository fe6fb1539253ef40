"""The checks behind the placement rules of products of two computed matrices."""

from __future__ import annotations

import math

from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_FACTOR
from odc_mlir.isa.instructions import field_range
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering.decompositions import matrices
from odc_mlir.transforms.partition.rules import checks
from odc_mlir.transforms.partition.rules.operator_checks import centred_range


def sums(node: Node, _: checks.PlacementLimits) -> str | None:
    """Sums of 16-bit codes fit an accumulator, their scale 15 bits of multiplier; the right matrix has one scale."""
    left, right, result = node.operand(0), node.operand(1), node.results[0]
    if left.dtype != "int16":
        return None if right.dtype != "int16" else f"{right.name!r} is int16, {left.name!r} {left.dtype}"
    if right.quant is None or left.quant is None or result.quant is None or not right.quant.per_tensor:
        return f"{right.name!r} has {checks.quant_text(right.quant)}"
    low, high = right.info.range
    depth = left.static_shape[-2 if node.options.get("adjoint_lhs") else -1]
    largest = depth * max(high - right.quant.zero_point, right.quant.zero_point - low) << 15
    if largest >= 1 << ACCUMULATOR_BITS - 1:
        return f"sums of {depth} products reach {largest}, accumulators have {ACCUMULATOR_BITS} bits"
    factor = left.quant.scale * right.quant.scale / result.quant.scale
    if factor < LARGEST_WIDE_FACTOR:
        return None
    return f"a factor of {factor:g}, below {LARGEST_WIDE_FACTOR} is allowed"


def scales(node: Node, _: checks.PlacementLimits) -> str | None:
    """Left and result have one type; the right matrix has one scale, or is a single constant one scaled by columns."""
    left, right, result = node.operand(0), node.operand(1), node.results[0]
    if left.dtype != result.dtype or right.dtype not in checks.CODES:
        return f"{left.name!r} is {left.dtype}, {right.name!r} {right.dtype}, {result.name!r} {result.dtype}"
    if left.is_const and (left.quant is None or not left.quant.per_tensor):
        return f"{left.name!r} has {checks.quant_text(left.quant)}"
    quant, shape = right.quant, right.static_shape
    if quant is None or not all(0 < scale < math.inf for scale in quant.scales):
        return f"{right.name!r} has {checks.quant_text(quant)}"
    column = len(shape) - (2 if node.options.get("adjoint_rhs") else 1)
    if quant.per_tensor:
        return None
    if math.prod(shape[:-2]) != 1 or quant.axis != column or len(quant.scales) != shape[column]:
        return f"{right.name!r} has {len(quant.scales)} scales along axis {quant.axis}"
    low, high = centred_range(right)
    if len(set(quant.zero_points)) > 1 and high - low > 255:
        return f"{right.name!r} has {len(set(quant.zero_points))} different zero points and values from {low} to {high}"
    return None


def moves(node: Node, _: checks.PlacementLimits) -> str | None:
    """Transposed and repeated matrices take a few strided copies, and dimensions fit the instructions."""
    found = matrices(node)
    if isinstance(found, str):
        return found
    highest = field_range("mload", "columns")[1]
    seen = max(found.depth, found.columns * node.operand(1).info.numpy.itemsize)
    return None if seen <= highest else f"rows of {seen} bytes, at most {highest}"
