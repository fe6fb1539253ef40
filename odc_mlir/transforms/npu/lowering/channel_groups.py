"""``circle`` to ``npu``: products whose weights have zero points too far apart for one to stand for all.

Result channels are divided into groups that a zero point fits; each group is a convolution, and moves put the channels
back in order. Depthwise, the group's input channels are picked first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.transforms.npu.lowering.products import requantisation, single_product, weight_codes, window_of
from odc_mlir.transforms.npu.lowering.site import Site, blob_of, quant_of, tensor_of
from odc_mlir.transforms.partition.rules.weight_checks import centred, centred_range, channel_groups, runs_of

PER_CHANNEL = ("bias", "multiplier", "exponent")


def needs_channel_groups(site: Site) -> bool:
    """Whether no single zero point can stand for those of the weights."""
    filters = site.info(1)
    if len(set(quant_of(filters).zero_points)) == 1:
        return False
    low, high = centred_range(filters)
    return high - low > 255


def lower_in_channel_groups(site: Site) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED, group by group."""
    name, filters = site.node.spec.name, site.info(1)
    depthwise = name == "DEPTHWISE_CONV_2D"
    values = centred(filters)
    source, shape = site.operand(0), site.result.static_shape
    if name == "FULLY_CONNECTED":
        outputs, inputs = filters.static_shape
        rows = math.prod(site.info(0).static_shape) // inputs
        source, shape = site.reshape(source, (1, 1, rows, inputs)), (1, 1, rows, outputs)
        values, kernel = values.reshape(outputs, 1, 1, inputs), (1, 1)
        stride, dilation, pads = (1, 1), (1, 1), (0, 0, 0, 0)
    else:
        kernel = (filters.static_shape[1], filters.static_shape[2])
        stride, dilation, pads = window_of(site, kernel)
    single = name != "FULLY_CONNECTED" and single_product(site.info(0), filters)
    parts: list[SSAValue] = []
    groups = channel_groups(filters, 3 if depthwise else 0)
    for group in groups:
        chosen = values[0][..., group] if depthwise else values[group]
        zero = min(max(-int(chosen.min()), 0), 255)
        made = npu.ConvOp(
            _picked(site, source, group) if depthwise else source,
            site.result_of_shape(*shape[:3], len(group)),
            depthwise=depthwise and len(group) > 1,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pads=pads,
            weights=blob_of(np.ascontiguousarray((chosen + zero).astype(np.uint8))),
            **of_channels(requantisation(site, zero, single_product=single), group),
        )
        parts.append(site.emit(made))
    pixels, channels = math.prod(shape[:3]), shape[3]
    copies = [
        StridedCopy(number, at, first, (pixels, count), (len(group), 1), (channels, 1))
        for number, group in enumerate(groups)
        for at, first, count in runs_of(group)
    ]
    site.finish(npu.MoveOp(parts, site.result_of_shape(*shape), copies=copies))


def _picked(site: Site, source: SSAValue, group: list[int]) -> SSAValue:
    """Some channels of an image."""
    *image, channels = npu.shape_of(source)
    pixels = math.prod(image)
    copies = [
        StridedCopy(0, first, at, (pixels, count), (channels, 1), (len(group), 1))
        for at, first, count in runs_of(group)
    ]
    return site.emit(npu.MoveOp([source], with_shape(tensor_of(source), (*image, len(group))), copies=copies))


def group_codes(site: Site, group: list[int]) -> tuple[NDArray[Any], int]:
    """Weight codes ``[group, …]`` of result channels along axis 0, and their zero point."""
    filters = site.info(1)
    if needs_channel_groups(site):
        chosen = centred(filters)[group]
        zero = min(max(-int(chosen.min()), 0), 255)
        return (chosen + zero).astype(np.uint8), zero
    codes, zero = weight_codes(site)
    return (filters.array() if codes is None else codes)[group], zero


def of_channels(integers: dict[str, Any], chosen: Iterable[int]) -> dict[str, Any]:
    """``integers`` with the values of some result channels only."""
    wanted, rows = list(chosen), {}
    for name in PER_CHANNEL:
        values = integers[name].values
        rows[name] = npu.ChannelsAttr.of(values[channel] for channel in wanted)
    return {**integers, **rows}
