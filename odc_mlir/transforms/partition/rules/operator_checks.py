"""Checks of placement rules for weights, sums, searches, reductions and LSTM cells.

The array subtracts one zero point from all weights of an instruction. Weights that are quantised by channel may have
many zero points, and differences of code and zero point may need nine bits. Shifted codes, groups of result channels,
or weights as sums of codes need only eight bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import OdcError
from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_FACTOR
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.convolution import convert_bias
from odc_mlir.ops.bias import adds_in_64_bits, in_other_units, scale_ratios, scales_in_use
from odc_mlir.ops.indexing import gather_axes
from odc_mlir.ops.infer.common import constants, named, normal_axis
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.lstm import integer_lstm
from odc_mlir.transforms.npu.lowering.code_functions import wide_function
from odc_mlir.transforms.npu.lowering.decompositions import matrices
from odc_mlir.transforms.partition.rules.checks import (
    CODES,
    MOST_DIMENSIONS,
    Check,
    PlacementLimits,
    Rule,
    activations,
    beyond_fields,
    moves,
    one_input,
    quant_fault,
    quant_text,
    rule,
    shape_text,
    zero_fault,
)

WEIGHT_TYPES = {"int8": ("int8", "int4"), "uint8": ("uint8",), "int16": CODES}  # by the input's type
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
MOST_RUNS = 256  # limit on the runs of channels that moves combine
FEW_GROUPS = 2  # number of groups up to which groups are faster than twice the taps
MOST_PARTS = 3  # limit on the codes in the sum for a weight


@rule("weights")
def weights(node: Node, _: PlacementLimits) -> str | None:
    """Weights have the input's type (for int8 also int4, for int16 also 8 bits) and positive scales.

    Zero points are within the type. Weights minus zero points span at most 255.
    """
    source, filters = next(activations(node)), node.operand(1)
    if filters.dtype not in WEIGHT_TYPES[source.dtype]:
        return f"{filters.name!r} is {filters.dtype}, the input is {source.dtype}"
    if filters.quant is None:
        return f"{filters.name!r} has no scale"
    if filters.sparsity is not None:
        return f"{filters.name!r} is stored sparse"
    zero_points = set(filters.quant.zero_points)
    if len(zero_points) > 1:
        low, high = centred_range(filters)
        if high - low > 255 and not (divides_by_channels(node) or sums_of_codes(node)):
            return f"{filters.name!r} has {len(zero_points)} different zero points and values from {low} to {high}"
    if not all(0 < scale < math.inf for scale in scales_in_use(filters)):
        return f"{filters.name!r} has a scale that is not positive and finite"
    return zero_fault(filters)


def centred(filters: TensorInfo) -> NDArray[Any]:
    """Return constant weight codes minus zero points."""
    assert filters.quant is not None, "asked of quantised weights"
    zeros = np.asarray(filters.quant.zero_points)
    if zeros.size > 1:
        axis = filters.quant.axis
        zeros = zeros.reshape([-1 if i == axis else 1 for i in range(len(filters.static_shape))])
    return np.asarray(filters.array().astype(np.int32) - zeros)


def centred_range(filters: TensorInfo) -> tuple[int, int]:
    """Return the smallest and largest value of :func:`centred`."""
    values = centred(filters)
    return int(values.min()), int(values.max())


def channel_groups(filters: TensorInfo, axis: int) -> list[list[int]]:
    """Divide result channels into groups. A single zero point must suit all channels of a group."""
    values = np.moveaxis(centred(filters), axis, 0).reshape(filters.static_shape[axis], -1)
    low, high = values.min(1), values.max(1)
    groups: list[list[int]] = []
    for channel in sorted(range(len(low)), key=lambda c: (int(low[c]), c)):
        if groups and max(high[channel], *(high[c] for c in groups[-1])) - low[groups[-1][0]] <= 255:
            groups[-1].append(channel)
        else:
            groups.append([channel])
    return [sorted(group) for group in groups]


def divides_by_channels(node: Node) -> bool:
    """Return whether a layer can be divided into groups of result channels that few copies combine."""
    filters = node.operand(1)
    if filters.dtype != "uint8" or node.spec.name not in PRODUCTS:
        return False
    channels = next(activations(node)).static_shape[-1]
    taken = filters.static_shape[3] if node.spec.name != "FULLY_CONNECTED" else channels
    if taken != channels:  # groups, or several results for each input channel
        return False
    runs = sum(len(runs_of(group)) for group in channel_groups(filters, result_axis(node)))
    return runs <= MOST_RUNS


def runs_of(channels: list[int]) -> list[tuple[int, int, int]]:
    """Return (position in ``channels``, first channel, count) for each run of adjacent channels in the sorted list."""
    runs: list[tuple[int, int, int]] = []
    for position, channel in enumerate(channels):
        if runs and runs[-1][1] + runs[-1][2] == channel:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((position, channel, 1))
    return runs


def weight_axis(axis: int) -> Rule:
    """Check that weights have one scale, or one per result channel along ``axis``."""

    def check(node: Node, _: PlacementLimits) -> str | None:
        filters = node.operand(1)
        quant = filters.quant
        if quant is None or quant.per_tensor:
            return None
        if quant.axis == axis and len(quant.scales) == filters.static_shape[axis]:
            return None
        return f"{filters.name!r} has {len(quant.scales)} scales along axis {quant.axis}"

    return Rule("weight-scales", f"weights have one scale, or a scale for each index of axis {axis}", check)


def has_wide_weights(node: Node) -> bool:
    """Return whether constant 8-bit weights have zero points too far apart for a common zero point."""
    if node.spec.name not in PRODUCTS or (filters := node.optional(1)) is None or not filters.is_const:
        return False
    if filters.quant is None or len(set(filters.quant.zero_points)) < 2 or filters.info.numpy.itemsize > 1:
        return False
    low, high = centred_range(filters)
    return high - low > 255


# ---- weights as sums of codes


@dataclass(frozen=True, slots=True)
class WeightParts:
    """Weights minus zero points as a sum ``first - zero + (others[0] - zero) + ...``.

    ``others``: codes ``[parts - 1, O]`` that all weights of a result channel share.
    """

    first: NDArray[Any]
    others: NDArray[Any]
    zero: int

    @property
    def count(self) -> int:
        """Number of codes in the sum."""
        return 1 + len(self.others)


def result_axis(node: Node) -> int:
    """Return the axis of result channels in a layer's weights."""
    return 3 if node.spec.name == "DEPTHWISE_CONV_2D" else 0


def weight_parts(filters: TensorInfo, axis: int) -> WeightParts:
    """Split 8-bit weights into sums of two codes, or of three codes if necessary."""
    values, dtype = np.moveaxis(centred(filters), axis, 0), filters.info.numpy
    flat = values.reshape(len(values), -1)
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    middle = (least + most + 1) // 2
    for others, zero in ((1, middle), (1, middle - 1), (2, middle)):
        low, high = least - zero, most - zero
        needed, allowed = np.maximum(flat.max(1) - high, others * low), np.minimum(flat.min(1) - low, others * high)
        if (needed <= allowed).all():
            break
    left = np.clip(0, needed, allowed)
    first = values - left.reshape(-1, *[1] * (values.ndim - 1))
    taken = []
    for _ in range(others):
        taken.append(np.clip(left, low, high))
        left = left - taken[-1]
    return WeightParts(np.moveaxis(first + zero, 0, axis).astype(dtype), (np.array(taken) + zero).astype(dtype), zero)


def sums_of_codes(node: Node) -> bool:
    """Return whether the weights of a layer can be sums of codes, at two or three times the taps."""
    filters, options = node.operand(1), node.options
    if node.spec.name not in PRODUCTS or filters.info.numpy.itemsize > 1:
        return False
    if node.spec.name != "DEPTHWISE_CONV_2D":
        taken, highest = filters.static_shape[-1], field_range("conv", "in_channels")[1]
        if node.spec.name != "FULLY_CONNECTED" and taken != next(activations(node)).static_shape[-1]:
            return False  # a convolution with groups
        return MOST_PARTS * taken <= highest
    taps, highest = max(filters.static_shape[1], options["stride_h"]), field_range("conv", "kernel_height")[1]
    return bool(options["dilation_h_factor"] == 1 and MOST_PARTS * taps <= highest)


LARGEST_BIAS = (1 << 31) - 1


def bias_codes(node: Node, source: TensorInfo, filters: TensorInfo, bias: TensorInfo) -> NDArray[Any]:
    """Return a constant bias in units of the accumulated sums."""
    assert source.quant is not None, "asked of quantised products"
    assert filters.quant is not None, "asked of quantised products"
    codes, scales = bias.array(), filters.quant.scales
    if bias.quant is None or not in_other_units(bias, source, scales):
        return codes
    ratios = scale_ratios(bias.quant, source.quant.scale, scales)
    sums = "int64" if adds_in_64_bits(node, source, filters, bias) else "int32"
    return convert_bias(codes.reshape(-1), bias.quant.zero_points, ratios, sums)


def bias_operand(node: Node) -> int:
    """Return the index of the bias operand."""
    return 3 if node.spec.name == "TRANSPOSE_CONV" else 2


@rule("bias")
def bias(node: Node, _: PlacementLimits) -> str | None:
    """The bias has a value per result channel, and fits int32 in units of input scale times weight scale."""
    values, channels = node.optional(bias_operand(node)), node.operand(1).static_shape
    if values is None:
        return None
    wide = next(activations(node)).dtype == "int16"
    if values.dtype not in (("int32", "int64") if wide else ("int32",)):
        return f"{values.name!r} is {values.dtype}"
    count = channels[3] if node.spec.name == "DEPTHWISE_CONV_2D" else channels[0]
    if math.prod(values.static_shape) != count:
        return f"{values.name!r} has {shape_text(values)}"
    source, filters, quant = next(activations(node)), node.operand(1), values.quant
    if quant is not None:
        if len(quant.scales) not in (1, count):
            return f"{values.name!r} has {quant_text(quant)}, of {count} channels"
        assert filters.quant is not None, "asked of quantised products"
        units = in_other_units(values, source, filters.quant.scales)
        if units and not all(0 < scale < math.inf for scale in quant.scales):
            return f"{values.name!r} has a scale that is not positive and finite"
    largest = int(np.abs(bias_codes(node, source, filters, values).astype(np.float64)).max(initial=0))
    return None if largest <= LARGEST_BIAS else f"{values.name!r} has values up to {largest}, at most {LARGEST_BIAS}"


@rule("sums")
def sums(node: Node, _: PlacementLimits) -> str | None:
    """Sums of 16-bit products fit an accumulator, with a scale below 127 times the scale of the result."""
    source, filters, values = next(activations(node)), node.operand(1), node.optional(bias_operand(node))
    if not adds_in_64_bits(node, source, filters, values):
        return None
    assert filters.quant is not None, "asked of quantised products"
    depthwise = node.spec.name == "DEPTHWISE_CONV_2D"
    magnitudes = np.abs(np.moveaxis(centred(filters).astype(np.int64), 3 if depthwise else 0, 0))
    totals = magnitudes.reshape(len(magnitudes), -1).sum(axis=1) << 15
    biases = 0 if values is None else np.abs(bias_codes(node, source, filters, values).astype(np.int64)).reshape(-1)
    largest = int((totals + biases).max())
    if largest >= 1 << ACCUMULATOR_BITS - 1:
        return f"sums reach {largest}, accumulators have {ACCUMULATOR_BITS} bits"
    scale = source.quant, node.results[0].quant
    assert scale[0] is not None, "asked of quantised products"
    assert scale[1] is not None, "asked of quantised products"
    factor = scale[0].scale * max(filters.quant.scales) / scale[1].scale
    return None if factor < LARGEST_WIDE_FACTOR else f"a factor of {factor:g}, below {LARGEST_WIDE_FACTOR} is allowed"


@rule("centred")
def centred_codes(node: Node, _: PlacementLimits) -> str | None:
    """16-bit tensors have zero point 0."""
    for tensor in (*node.operands, *node.results):
        quant = tensor.quant if tensor is not None and tensor.dtype == "int16" else None
        if tensor is not None and quant is not None and any(quant.zero_points):
            return f"{tensor.name!r} is int16 with zero point {quant.zero_points[0]}"
    return None


@rule("table")
def by_table(node: Node, _: PlacementLimits) -> str | None:
    """A table (for 16 bits, with interpolation) or a few instructions compute the function."""
    (dynamic,) = (i for i, t in enumerate(node.operands) if t is not None and not t.is_const)
    if node.operand(dynamic).dtype == "int16":
        return wide_function(node, dynamic)
    result = node.results[0]
    return None if result.info.numpy.itemsize == 1 else f"{result.name!r} is {result.dtype}"


@rule("slopes")
def slopes(node: Node, limits: PlacementLimits) -> str | None:
    """16-bit tensors have zero point 0, or a table computes the function."""
    if node.results[0].info.numpy.itemsize == 1 or centred_codes(node, limits) is None:
        return None
    return one_input(node, limits) or by_table(node, limits)


MOST_TABLES = 64  # limit for a GATHER with computed row numbers, because each table takes an instruction


class Searched(NamedTuple):
    """Tensor as ``outer`` x ``size`` x ``inner`` elements, searched along the second axis."""

    outer: int
    size: int
    inner: int


def searched(node: Node) -> Searched:
    """Return the shape that ARG_MAX or ARG_MIN with a constant axis searches. Raise ModelError for an invalid axis."""
    shape = node.operand(0).static_shape
    axis = normal_axis(node, int(node.const(1).reshape(-1)[0]), len(shape))
    return Searched(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


@rule("searched-row")
def searched_row(node: Node, limits: PlacementLimits) -> str | None:
    """The searched row fits the tile buffer, and the row length fits the instruction's field."""
    size, item = searched(node).size, node.operand(0).info.numpy.itemsize
    spare = 4 * limits.target.sram.burst_bytes
    highest = min(field_range("reduce", "channels")[1], (limits.target.local.tile_bytes - spare) // item)
    return None if size <= highest else f"{size} elements along the axis, at most {highest}"


def updated_axis(node: Node) -> int | None:
    """Return the only axis along which a DYNAMIC_UPDATE_SLICE changes a part, 0 for the whole tensor, or None."""
    pairs = zip(node.operand(0).static_shape, node.operand(1).static_shape, strict=True)
    axes = [axis for axis, (whole, part) in enumerate(pairs) if part != whole]
    if not axes:
        return 0 if node.operand(0).static_shape else None
    return axes[0] if len(axes) == 1 else None


@rule("position")
def updated_slice(node: Node, _: PlacementLimits) -> str | None:
    """The position is constant, or it is a computed int32 that selects slices along one axis."""
    whole, part, start = node.operand(0), node.operand(1), node.operand(2)
    if start.is_const:
        return None
    if start.dtype != "int32":
        return f"{start.name!r} is {start.dtype}"
    axis = updated_axis(node)
    if axis is None or len(whole.static_shape) > MOST_DIMENSIONS:
        return f"{part.name!r} has {shape_text(part)}, {whole.name!r} {shape_text(whole)}, and the position is computed"
    shape, item = whole.static_shape, whole.info.numpy.itemsize
    return beyond_fields(
        "scatter",
        count=("tables", math.prod(shape[:axis])),
        rows=("positions", shape[axis]),
        row_bytes=("bytes of a slice", math.prod(shape[axis + 1 :]) * item),
        taken=("slices", part.static_shape[axis]),
    )


class GatherShape(NamedTuple):
    """Access of a GATHER: ``taken`` of ``rows`` rows of ``inner`` elements, from each of ``batches x outer`` tables.

    All tables of a batch use the same list of row numbers.
    """

    batches: int
    outer: int
    rows: int
    inner: int
    taken: int


def gathered(node: Node) -> GatherShape:
    """Return the shape of GATHER's access to the operand. Raise ModelError for an invalid axis."""
    shape, places = node.operand(0).static_shape, node.operand(1).static_shape
    axis, batch = gather_axes(node, len(shape), len(places))
    return GatherShape(
        math.prod(shape[:batch]),
        math.prod(shape[batch:axis]),
        shape[axis],
        math.prod(shape[axis + 1 :]),
        math.prod(places[batch:]),
    )


@rule("rows", f"indices are constant, or rows fit the instruction's fields and there are at most {MOST_TABLES} tables")
def gathered_rows(node: Node, _: PlacementLimits) -> str | None:
    """Rows and their numbers fit the instruction's fields, and there are few tables."""
    if node.operand(1).is_const:
        return None
    found = gathered(node)
    if (tables := found.batches * found.outer) > MOST_TABLES:
        return f"{tables} tables, at most {MOST_TABLES}"
    row_bytes = found.inner * node.operand(0).info.numpy.itemsize
    return beyond_fields(
        "gather", count=("rows taken", found.taken), rows=("rows", found.rows), row_bytes=("bytes of a row", row_bytes)
    )


def moves_where_constant(index: int) -> Check:
    """Check the moves of codes if operand ``index`` with the positions of codes is constant."""

    def check(node: Node, limits: PlacementLimits) -> str | None:
        return moves(node, limits) if node.operand(index).is_const else None

    return check


_HIGHEST = field_range("reduce", "width")[1]


@dataclass(frozen=True, slots=True)
class ReductionShape:
    """Reduction of ``outer`` images with ``height`` x ``width`` pixels and ``inner`` channels.

    ``order``: axes of the operand in memory order.
    """

    outer: int
    height: int
    width: int
    inner: int
    order: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Whether axes are transposed."""
        return self.order != tuple(sorted(self.order))


def reduced(node: Node) -> ReductionShape | None:
    """Return the shape of a reduction, or None without axes or without a valid image of all pixels.

    Kept axes between reduced axes are moved to the front.
    """
    shape = node.operand(0).static_shape
    axes = sorted({int(axis) % len(shape) for axis in node.const(1).reshape(-1)}) if shape else []
    if not axes:
        return None
    kept, rest = [a for a in range(axes[-1]) if a not in axes], range(axes[-1] + 1, len(shape))
    image = sides([shape[axis] for axis in axes if shape[axis] != 1])
    if image is None:
        return None
    order = tuple(axis for axis in (*kept, *axes, *rest) if shape[axis] != 1)
    outer, inner = (math.prod(shape[axis] for axis in some) for some in (kept, rest))
    return ReductionShape(outer, *image, inner, order)


def sides(sizes: list[int]) -> tuple[int, int] | None:
    """Return height and width of an image of all elements of axes with these ``sizes``, or None."""
    height, width = math.prod(sizes[:-1]), sizes[-1] if sizes else 1
    if max(height, width) <= _HIGHEST:
        return height, width
    count = height * width
    width = next(side for side in range(min(_HIGHEST, count), 0, -1) if count % side == 0)
    return (count // width, width) if count // width <= _HIGHEST else None


@rule("axes")
def reduction(node: Node, _: PlacementLimits) -> str | None:
    """The reduced dimensions form an image, and the image size fits the instruction's fields."""
    if reduced(node) is not None:
        return None
    shape, axes = node.operand(0).static_shape, [int(axis) for axis in node.const(1).reshape(-1)]
    if not axes:
        return "no dimension is reduced"
    sizes = "x".join(str(shape[axis]) for axis in axes)
    return f"{sizes} elements along axes {axes}, at most {_HIGHEST}x{_HIGHEST}"


@rule("cell")
def lstm_parts(node: Node, _: PlacementLimits) -> str | None:
    """There are no peepholes, projection or layer normalisation."""
    parts = ("cell_to_", "projection_", "_layer_norm_coefficients")
    for index, tensor in enumerate(node.operands):
        name = node.spec.operand_name(index)
        if tensor is not None and any(part in name for part in parts):
            return f"{tensor.name!r} is the operand {name}"
    return None


@rule("constant-weights")
def lstm_constants(node: Node, _: PlacementLimits) -> str | None:
    """Weights and biases are constant."""
    for index, tensor in enumerate(node.operands):
        if index and tensor is not None and not tensor.is_const and index not in node.mutated:
            return f"{tensor.name!r} is computed at run time"
    return None


@rule("states")
def lstm_states(node: Node, _: PlacementLimits) -> str | None:
    """Output state and cell state are variables."""
    for name in ("output_state", "cell_state"):
        state = named(node, name)
        if state is None:
            return f"the {name} is omitted"
        if not state.is_variable:
            return f"{state.name!r} is not a variable"
    return None


@rule("integers")
def lstm_integers(node: Node, _: PlacementLimits) -> str | None:
    """Input, weights and output are int8, the cell state is int16."""
    x = node.operand(0)
    if x.dtype != "int8":
        return f"{x.name!r} is {x.dtype}, the cell's input must be int8"
    try:
        integer_lstm(node, constants(node))
    except OdcError as error:
        return error.message
    return None


# ---- products of two computed matrices


@rule("matrix-sums")
def matrix_sums(node: Node, _: PlacementLimits) -> str | None:
    """Sums of 16-bit products fit an accumulator, with a scale below 127 times the scale of the result."""
    left, right, result = node.operand(0), node.operand(1), node.results[0]
    if left.dtype != "int16":
        return None if right.dtype != "int16" else f"{right.name!r} is int16, {left.name!r} {left.dtype}"
    if right.quant is None or left.quant is None or result.quant is None or not right.quant.per_tensor:
        return f"{right.name!r} has {quant_text(right.quant)}"
    low, high = right.info.range
    depth = left.static_shape[-2 if node.options.get("adjoint_lhs") else -1]
    largest = depth * max(high - right.quant.zero_point, right.quant.zero_point - low) << 15
    if largest >= 1 << ACCUMULATOR_BITS - 1:
        return f"sums of {depth} products reach {largest}, accumulators have {ACCUMULATOR_BITS} bits"
    factor = left.quant.scale * right.quant.scale / result.quant.scale
    if factor < LARGEST_WIDE_FACTOR:
        return None
    return f"a factor of {factor:g}, below {LARGEST_WIDE_FACTOR} is allowed"


@rule("matrix-scales")
def matrix_scales(node: Node, _: PlacementLimits) -> str | None:
    """Operands have one scale. A constant right operand may have a scale per column."""
    left, right, result = node.operand(0), node.operand(1), node.results[0]
    if left.dtype != result.dtype or right.dtype not in CODES:
        return f"{left.name!r} is {left.dtype}, {right.name!r} {right.dtype}, {result.name!r} {result.dtype}"
    if left.is_const and (fault := quant_fault(left)):
        return fault
    quant, shape = right.quant, right.static_shape
    if quant is None or not all(0 < scale < math.inf for scale in quant.scales):
        return f"{right.name!r} has {quant_text(quant)}"
    column = len(shape) - (2 if node.options.get("adjoint_rhs") else 1)
    if quant.per_tensor or zero_fault(right):
        return zero_fault(right)
    if math.prod(shape[:-2]) != 1 or quant.axis != column or len(quant.scales) != shape[column]:
        return f"{right.name!r} has {len(quant.scales)} scales along axis {quant.axis}"
    low, high = centred_range(right)
    if len(set(quant.zero_points)) > 1 and high - low > 255:
        return f"{right.name!r} has {len(set(quant.zero_points))} different zero points and values from {low} to {high}"
    return None


@rule("matrices")
def matrix_moves(node: Node, _: PlacementLimits) -> str | None:
    """A few strided copies transpose and repeat the matrices."""
    found = matrices(node)
    if isinstance(found, str):
        return found
    row_bytes = max(found.depth, found.columns * node.operand(1).info.numpy.itemsize)
    return beyond_fields("mload", columns=("bytes of a row", row_bytes))
