"""``circle`` to ``npu``: products whose weights have nine bits without their zero points, as sums of codes of eight.

``sum(x * w) = sum(x * first) + sum(x * second)``: a product with twice the taps, whose input holds everything twice.
Channels stand behind each other again; depthwise, where channels are not added up, every row does. Weights of both
-255 and 255 need a third code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.transforms.npu.lowering.channel_groups import needs_channel_groups
from odc_mlir.transforms.npu.lowering.products import pointwise, requantisation, single_product, window_of
from odc_mlir.transforms.npu.lowering.site import Site, blob_of, tensor_of
from odc_mlir.transforms.partition.rules.weight_checks import (
    FEW_GROUPS,
    WeightParts,
    channel_groups,
    divides_by_channels,
    result_axis,
    sums_of_codes,
    weight_parts,
)


def takes_parts(site: Site) -> bool:
    """Whether more taps are the better way: there are no groups of channels, or more than a few."""
    if not needs_channel_groups(site) or not sums_of_codes(site.node):
        return False
    if not divides_by_channels(site.node):
        return True
    return len(channel_groups(site.info(1), result_axis(site.node))) > FEW_GROUPS


def parts_of(site: Site) -> WeightParts:
    """The weights of an operator for which :func:`takes_parts` holds."""
    return weight_parts(site.info(1), result_axis(site.node))


def repeated_channels(site: Site, source: SSAValue, count: int) -> SSAValue:
    """``[..., C]`` as ``[..., count * C]``."""
    *image, channels = npu.shape_of(source)
    return _repeated(site, source, (*image, count * channels), channels, count)


def _repeated(site: Site, source: SSAValue, shape: tuple[int, ...], run: int, count: int) -> SSAValue:
    """Every run of elements ``count`` times."""
    runs = math.prod(npu.shape_of(source)) // run
    copies = [StridedCopy(0, 0, part * run, (runs, run), (run, 1), (count * run, 1)) for part in range(count)]
    return site.emit(npu.MoveOp([source], with_shape(tensor_of(source), shape), copies=copies))


def repeated_weights(parts: WeightParts) -> NDArray[Any]:
    """Weights ``[O, ..., C]`` and behind them, for the same channels again, the other codes."""
    shape = parts.first.shape
    others = [np.broadcast_to(codes.reshape(-1, *[1] * (len(shape) - 1)), shape) for codes in parts.others]
    return np.concatenate([parts.first, *others], axis=-1)


def lower_with_parts(site: Site) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED."""
    if site.node.spec.name == "FULLY_CONNECTED":
        return _lower_rows(site)
    filters, parts, source = site.info(1), parts_of(site), site.operand(0)
    kernel = (filters.static_shape[1], filters.static_shape[2])
    stride, dilation, pads = window_of(site, kernel)
    depthwise = site.node.spec.name == "DEPTHWISE_CONV_2D" and site.info(0).static_shape[3] > 1
    if depthwise:
        count = parts.count
        source, weights = _repeated_rows(site, count), _repeated_taps(parts)
        kernel, stride = (count * kernel[0], kernel[1]), (count * stride[0], stride[1])
        pads = (count * pads[0], pads[1], count * pads[2], pads[3])
    else:
        if result_axis(site.node):  # depthwise on a single channel is an ordinary convolution
            parts = WeightParts(parts.first[0].transpose(2, 0, 1)[..., None], parts.others, parts.zero)
        source, weights = repeated_channels(site, source, parts.count), repeated_weights(parts)
    single = single_product(site.info(0), filters)
    return site.finish(
        npu.ConvOp(
            source,
            site.result_type,
            depthwise=depthwise,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pads=pads,
            weights=blob_of(weights),
            **requantisation(site, parts.zero, single_product=single),
        )
    )


def _lower_rows(site: Site) -> None:
    """FULLY_CONNECTED."""
    outputs, inputs = site.info(1).static_shape
    rows, parts = math.prod(site.info(0).static_shape) // inputs, parts_of(site)
    line = repeated_channels(site, site.reshape(site.operand(0), (1, 1, rows, inputs)), parts.count)
    integers = requantisation(site, parts.zero, single_product=False)
    weights = blob_of(repeated_weights(parts))
    site.finish(pointwise(line, site.result_of_shape(1, 1, rows, outputs), weights, **integers))


def _repeated_rows(site: Site, count: int) -> SSAValue:
    """``[N, H, W, C]`` as ``[N, count * H, W, C]``, each row by itself."""
    batch, height, width, channels = npu.shape_of(site.operand(0))
    return _repeated(site, site.operand(0), (batch, count * height, width, channels), width * channels, count)


def _repeated_taps(parts: WeightParts) -> NDArray[Any]:
    """Depthwise weights ``[1, kh, kw, O]`` as ``[parts * kh, kw, O]``, the other codes below each row of taps."""
    first = parts.first[0]
    rows = np.stack([first, *(np.broadcast_to(codes, first.shape) for codes in parts.others)], axis=1)
    return rows.reshape(-1, *first.shape[1:])
