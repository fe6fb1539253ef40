"""Checks of placement rules for sums and 16-bit codes."""

from __future__ import annotations

import math

import numpy as np

from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_FACTOR
from odc_mlir.ops.bias import adds_in_64_bits, in_units_of_sums
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering.code_functions import wide_function
from odc_mlir.transforms.partition.rules.checks import PlacementLimits, activations, one_input, quant_text, shape_text
from odc_mlir.transforms.partition.rules.weight_checks import centred

LARGEST_BIAS = (1 << 31) - 1


def bias_operand(node: Node) -> int:
    """Which operand is the bias."""
    return 3 if node.spec.name == "TRANSPOSE_CONV" else 2


def bias(node: Node, _: PlacementLimits) -> str | None:
    """The bias is int32 or fits it, one value per result channel in units of the sums, or left out."""
    values, channels = node.optional(bias_operand(node)), node.operand(1).static_shape
    if values is None:
        return None
    wide = next(activations(node)).dtype == "int16"
    if values.dtype not in (("int32", "int64") if wide else ("int32",)):
        return f"{values.name!r} is {values.dtype}"
    count = channels[3] if node.spec.name == "DEPTHWISE_CONV_2D" else channels[0]
    if math.prod(values.static_shape) != count:
        return f"{values.name!r} has {shape_text(values)}"
    largest = int(np.abs(values.array().astype(np.float64)).max(initial=0))
    if largest > LARGEST_BIAS:
        return f"{values.name!r} has values up to {largest}, at most {LARGEST_BIAS}"
    source, filters = next(activations(node)), node.operand(1)
    assert source.quant is not None, "asked of quantised products"
    assert filters.quant is not None, "asked of quantised products"
    if values.quant is None:
        return None
    scales = source.quant.scale, filters.quant.scales
    if len(values.quant.scales) not in (1, count) or not in_units_of_sums(values.quant, *scales):
        return f"{values.name!r} has {quant_text(values.quant)}, not those of input times weights"
    return None


def sums(node: Node, _: PlacementLimits) -> str | None:
    """Sums of 16-bit codes fit an accumulator, and their scales 15 bits of multiplier."""
    source, filters, values = next(activations(node)), node.operand(1), node.optional(bias_operand(node))
    if not adds_in_64_bits(node, source, filters, values):
        return None
    assert filters.quant is not None, "asked of quantised products"
    depthwise = node.spec.name == "DEPTHWISE_CONV_2D"
    magnitudes = np.abs(np.moveaxis(centred(filters).astype(np.int64), 3 if depthwise else 0, 0))
    totals = magnitudes.reshape(len(magnitudes), -1).sum(axis=1) << 15
    biases = 0 if values is None else np.abs(values.array().astype(np.int64)).reshape(-1)
    largest = int((totals + biases).max())
    if largest >= 1 << ACCUMULATOR_BITS - 1:
        return f"sums reach {largest}, accumulators have {ACCUMULATOR_BITS} bits"
    scale = source.quant, node.results[0].quant
    assert scale[0] is not None, "asked of quantised products"
    assert scale[1] is not None, "asked of quantised products"
    factor = scale[0].scale * max(filters.quant.scales) / scale[1].scale
    return None if factor < LARGEST_WIDE_FACTOR else f"a factor of {factor:g}, below {LARGEST_WIDE_FACTOR} is allowed"


def centred_codes(node: Node, _: PlacementLimits) -> str | None:
    """16-bit codes have zero point 0, which is the only one that loads pad with and sums of 32 bits have room for."""
    for tensor in (*node.operands, *node.results):
        quant = tensor.quant if tensor is not None and tensor.dtype == "int16" else None
        if tensor is not None and quant is not None and any(quant.zero_points):
            return f"{tensor.name!r} is int16 with zero point {quant.zero_points[0]}"
    return None


def by_table(node: Node, _: PlacementLimits) -> str | None:
    """A table, or a few instructions, give every result."""
    (dynamic,) = (i for i, t in enumerate(node.operands) if t is not None and not t.is_const)
    if node.operand(dynamic).dtype == "int16":
        return wide_function(node, dynamic)
    result = node.results[0]
    return None if result.info.numpy.itemsize == 1 else f"{result.name!r} is {result.dtype}"


def slopes(node: Node, limits: PlacementLimits) -> str | None:
    """Check that codes have 8 bits, or 16 bits without zero points, unless a table can be used."""
    if node.results[0].info.numpy.itemsize == 1 or centred_codes(node, limits) is None:
        return None
    return one_input(node, limits) or by_table(node, limits)
