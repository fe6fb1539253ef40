"""Checks of placement rules for constant weights, and conversion of weights for the array.

The array takes one zero point off all weights of an instruction. Weights quantised by channel may have as many zero
points as channels; then differences of code and zero point have nine bits. Three ways lead back to eight: move the
codes where their range allows it, divide the result channels into groups, or make every weight a sum of codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.instructions import field_range
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.transforms.partition.rules.checks import CODES, Check, PlacementLimits, activations

WEIGHT_TYPES = {"int8": ("int8", "int4"), "uint8": ("uint8",), "int16": CODES}  # by the input's type
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
MOST_RUNS = 256  # of channels that are put together by moves
FEW_GROUPS = 2  # take no longer than twice the taps
MOST_PARTS = 3  # of a weight


def weights(node: Node, _: PlacementLimits) -> str | None:
    """Check the type of weights against the input's, and that one zero point can represent all."""
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
    if not all(0 < scale < math.inf for scale in filters.quant.scales):
        return f"{filters.name!r} has a scale that is not positive and finite"
    return None


def centred(filters: TensorInfo) -> NDArray[Any]:
    """Constant weight codes without their zero points."""
    assert filters.quant is not None, "asked of quantised weights"
    zeros = np.asarray(filters.quant.zero_points)
    if zeros.size > 1:
        axis = filters.quant.axis
        zeros = zeros.reshape([-1 if i == axis else 1 for i in range(len(filters.static_shape))])
    return np.asarray(filters.array().astype(np.int32) - zeros)


def centred_range(filters: TensorInfo) -> tuple[int, int]:
    """Least and largest of :func:`centred`."""
    values = centred(filters)
    return int(values.min()), int(values.max())


def channel_groups(filters: TensorInfo, axis: int) -> list[list[int]]:
    """Group result channels such that one zero point per group represents all."""
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
    """Whether a product can be computed for some result channels at a time, and put together in a few moves."""
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
    """(position in ``channels``, first channel, how many) of neighbours among sorted channels."""
    runs: list[tuple[int, int, int]] = []
    for position, channel in enumerate(channels):
        if runs and runs[-1][1] + runs[-1][2] == channel:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((position, channel, 1))
    return runs


def weight_axis(axis: int) -> Check:
    """Check that several weight scales lie along ``axis``, one per result channel."""

    def check(node: Node, _: PlacementLimits) -> str | None:
        filters = node.operand(1)
        quant = filters.quant
        if quant is None or quant.per_tensor:
            return None
        if quant.axis == axis and len(quant.scales) == filters.static_shape[axis]:
            return None
        return f"{filters.name!r} has {len(quant.scales)} scales along axis {quant.axis}"

    return check


def has_wide_weights(node: Node) -> bool:
    """Return whether constant 8-bit weights have zero points too far apart for a single one."""
    if node.spec.name not in PRODUCTS or (filters := node.optional(1)) is None or not filters.is_const:
        return False
    if filters.quant is None or len(set(filters.quant.zero_points)) < 2 or filters.info.numpy.itemsize > 1:
        return False
    low, high = centred_range(filters)
    return high - low > 255


# ---- weights as sums of codes


@dataclass(frozen=True, slots=True)
class WeightParts:
    """Weights without zero points as ``first - zero + (others[0] - zero) + ...``.

    ``others``, ``[parts - 1, O]``: codes that all weights of a result channel share.
    """

    first: NDArray[Any]
    others: NDArray[Any]
    zero: int

    @property
    def count(self) -> int:
        """How many codes a weight is the sum of."""
        return 1 + len(self.others)


def result_axis(node: Node) -> int:
    """The axis of a product's weights along which result channels lie."""
    return 3 if node.spec.name == "DEPTHWISE_CONV_2D" else 0


def weight_parts(filters: TensorInfo, axis: int) -> WeightParts:
    """8-bit weights as sums of two codes, of three where two leave no room for both the least and the largest."""
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
    """Whether a product can be computed with every weight being a sum of codes: with two or three times the taps."""
    filters, options = node.operand(1), node.options
    if node.spec.name not in PRODUCTS or filters.info.numpy.itemsize > 1:
        return False
    if node.spec.name != "DEPTHWISE_CONV_2D":
        taken, highest = filters.static_shape[-1], field_range("conv", "in_channels")[1]
        if node.spec.name != "FULLY_CONNECTED" and taken != next(activations(node)).static_shape[-1]:
            return False  # the convolution has groups
        return MOST_PARTS * taken <= highest
    taps, highest = max(filters.static_shape[1], options["stride_h"]), field_range("conv", "kernel_height")[1]
    return bool(options["dilation_h_factor"] == 1 and MOST_PARTS * taps <= highest)
