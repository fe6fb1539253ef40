"""Lowering of products if weights need nine bits after subtraction of zero points.

The array subtracts one zero point from all weights of an instruction. Zero points of channels may be too far apart for
this. There are two remedies:

- Channel groups: channels of a group share a zero point. A group becomes a convolution, and a move restores the order
  of the channels. For a depthwise convolution, the group's input channels are copied first.
- Weight parts: every weight is the sum of two or three codes, ``sum(x * w) = sum(x * first) + sum(x * second)``. The
  convolution has two or three times the taps, and its input is repeated as often. The repeated channels follow the
  original channels. Depthwise convolutions do not add channels and repeat each row instead.

Weight parts are chosen if the channels cannot be divided into few groups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.transforms.npu.lowering import products
from odc_mlir.transforms.npu.lowering.site import Benefit, LowerToNpu, Site, blob_of, elements, tensor_of
from odc_mlir.transforms.partition.rules import operator_checks


class LowerConv2DInParts(LowerToNpu):
    """Lower CONV_2D with weight parts to a convolution over an input with repeated channels.

    Also lowers DEPTHWISE_CONV_2D on a single channel, which is an ordinary convolution.
    """

    benefit = Benefit.SPECIAL
    operators = ("CONV_2D", "DEPTHWISE_CONV_2D")

    def applies(self, node: Node) -> bool:
        return takes_parts(node) and not _is_depthwise(node)

    def rewrite(self, site: Site) -> None:
        parts = parts_of(site.node)
        if operator_checks.result_axis(site.node):
            parts = operator_checks.WeightParts(parts.first[0].transpose(2, 0, 1)[..., None], parts.others, parts.zero)
        kernel = (site.info(1).static_shape[1], site.info(1).static_shape[2])
        source, weights = repeated_channels(site, site.operand(0), parts.count), blob_of(repeated_weights(parts))
        window, integers = products.window_of(site.node, kernel), products.requantisation(site, parts.zero)
        site.finish(npu.ConvOp(source, site.result_type, weights=weights, **window, **integers))


class LowerDepthwiseInParts(LowerToNpu):
    """Lower DEPTHWISE_CONV_2D with weight parts to a depthwise convolution over an input with repeated rows."""

    benefit = Benefit.SPECIAL
    operators = ("DEPTHWISE_CONV_2D",)

    def applies(self, node: Node) -> bool:
        return takes_parts(node) and _is_depthwise(node)

    def rewrite(self, site: Site) -> None:
        parts = parts_of(site.node)
        count, kernel = parts.count, (site.info(1).static_shape[1], site.info(1).static_shape[2])
        window = products.window_of(site.node, kernel)
        for name in ("kernel", "stride", "pads"):  # rows come first, then columns
            window[name] = tuple(size if place % 2 else count * size for place, size in enumerate(window[name]))
        batch, height, width, channels = npu.shape_of(site.operand(0))
        shape = (batch, count * height, width, channels)
        source, weights = _repeated(site, site.operand(0), shape, width * channels, count), _repeated_taps(parts)
        values = {"depthwise": True, "weights": blob_of(weights), **window, **products.requantisation(site, parts.zero)}
        site.finish(npu.ConvOp(source, site.result_type, **values))


class LowerFullyConnectedInParts(LowerToNpu):
    """Lower FULLY_CONNECTED with weight parts to a 1x1 convolution over a line of pixels with repeated channels."""

    benefit = Benefit.SPECIAL
    operators = ("FULLY_CONNECTED",)

    def applies(self, node: Node) -> bool:
        return takes_parts(node)

    def rewrite(self, site: Site) -> None:
        outputs, inputs = site.info(1).static_shape
        rows, parts = elements(site.info(0)) // inputs, parts_of(site.node)
        line = repeated_channels(site, site.reshape(site.operand(0), (1, 1, rows, inputs)), parts.count)
        integers = products.requantisation(site, parts.zero)
        weights = blob_of(repeated_weights(parts))
        site.finish(products.pointwise(line, site.result_of_shape(1, 1, rows, outputs), weights, **integers))


class LowerInChannelGroups(LowerToNpu):
    """Lower CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED in channel groups to a convolution per group and a move."""

    benefit = Benefit.SPECIAL
    operators = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")

    def applies(self, node: Node) -> bool:
        return operator_checks.has_wide_weights(node) and not takes_parts(node)

    def rewrite(self, site: Site) -> None:
        filters, depthwise = site.info(1), site.node.spec.name == "DEPTHWISE_CONV_2D"
        values = operator_checks.centred(filters)
        source, shape = site.operand(0), site.result.static_shape
        if site.node.spec.name == "FULLY_CONNECTED":
            outputs, inputs = filters.static_shape
            rows = elements(site.info(0)) // inputs
            source, shape = site.reshape(source, (1, 1, rows, inputs)), (1, 1, rows, outputs)
            values = values.reshape(outputs, 1, 1, inputs)
            window: dict[str, tuple[int, ...]] = {"kernel": (1, 1)}
        else:
            window = products.window_of(site.node, (filters.static_shape[1], filters.static_shape[2]))
        parts: list[SSAValue] = []
        groups = operator_checks.channel_groups(filters, operator_checks.result_axis(site.node))
        for group in groups:
            codes, zero = _shifted(values[0][..., group] if depthwise else values[group])
            made = npu.ConvOp(
                _picked(site, source, group) if depthwise else source,
                site.result_of_shape(*shape[:3], len(group)),
                depthwise=depthwise and len(group) > 1,
                weights=blob_of(codes),
                **window,
                **products.of_channels(products.requantisation(site, zero), group),
            )
            parts.append(site.emit(made))
        pixels, channels = math.prod(shape[:3]), shape[3]
        copies = [
            StridedCopy(number, at, first, (pixels, count), (len(group), 1), (channels, 1))
            for number, group in enumerate(groups)
            for at, first, count in operator_checks.runs_of(group)
        ]
        site.finish(npu.MoveOp(parts, site.result_of_shape(*shape), copies=copies))


def takes_parts(node: Node) -> bool:
    """Return whether weight parts are better than channel groups, because few groups do not suffice."""
    if not operator_checks.has_wide_weights(node) or not operator_checks.sums_of_codes(node):
        return False
    if not operator_checks.divides_by_channels(node):
        return True
    groups = operator_checks.channel_groups(node.operand(1), operator_checks.result_axis(node))
    return len(groups) > operator_checks.FEW_GROUPS


def parts_of(node: Node) -> operator_checks.WeightParts:
    """Return the weight parts of an operator for which :func:`takes_parts` is true."""
    return operator_checks.weight_parts(node.operand(1), operator_checks.result_axis(node))


def group_codes(filters: TensorInfo, group: list[int]) -> tuple[NDArray[Any], int]:
    """Return weight codes ``[group, …]`` of some channels along axis 0, and the zero point of the group."""
    return _shifted(operator_checks.centred(filters)[group])


def _shifted(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    zero = min(max(-int(values.min()), 0), 255)
    return np.ascontiguousarray((values + zero).astype(np.uint8)), zero


def repeated_channels(site: Site, source: SSAValue, count: int) -> SSAValue:
    """Repeat the channels: ``[..., C]`` becomes ``[..., count * C]``."""
    *image, channels = npu.shape_of(source)
    return _repeated(site, source, (*image, count * channels), channels, count)


def repeated_weights(parts: operator_checks.WeightParts) -> NDArray[Any]:
    """Return weights ``[O, ..., parts * C]``: the first codes, then the further codes for the repeated channels."""
    shape = parts.first.shape
    others = [np.broadcast_to(codes.reshape(-1, *[1] * (len(shape) - 1)), shape) for codes in parts.others]
    return np.concatenate([parts.first, *others], axis=-1)


def _is_depthwise(node: Node) -> bool:
    return node.spec.name == "DEPTHWISE_CONV_2D" and node.operand(0).static_shape[3] > 1


def _picked(site: Site, source: SSAValue, group: list[int]) -> SSAValue:
    *image, channels = npu.shape_of(source)
    pixels = math.prod(image)
    copies = [
        StridedCopy(0, first, at, (pixels, count), (channels, 1), (len(group), 1))
        for at, first, count in operator_checks.runs_of(group)
    ]
    return site.emit(npu.MoveOp([source], with_shape(tensor_of(source), (*image, len(group))), copies=copies))


def _repeated(site: Site, source: SSAValue, shape: tuple[int, ...], run: int, count: int) -> SSAValue:
    runs = math.prod(npu.shape_of(source)) // run
    copies = [StridedCopy(0, 0, part * run, (runs, run), (run, 1), (count * run, 1)) for part in range(count)]
    return site.emit(npu.MoveOp([source], with_shape(tensor_of(source), shape), copies=copies))


def _repeated_taps(parts: operator_checks.WeightParts) -> NDArray[Any]:
    """Return depthwise weights ``[parts * kh, kw, O]``. Further codes follow each row of first codes."""
    first = parts.first[0]
    rows = np.stack([first, *(np.broadcast_to(codes, first.shape) for codes in parts.others)], axis=1)
    return rows.reshape(-1, *first.shape[1:])
