"""Patterns that lower convolutions, matrix products and channel-wise MUL, and shared functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import BlobAttr, with_shape
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.elementwise import mul_params
from odc_mlir.numerics.fixed import quantize_multipliers
from odc_mlir.ops.bias import adds_in_64_bits
from odc_mlir.ops.infer.common import axis_window, window_options
from odc_mlir.ops.spec import Node
from odc_mlir.support.blob import Blob
from odc_mlir.transforms.npu.lowering.decompositions import Matrices, matrices
from odc_mlir.transforms.npu.lowering.site import (
    Benefit,
    LowerToNpu,
    Pair,
    Site,
    blob_of,
    elements,
    pair_of,
    quant_of,
    tensor_of,
)
from odc_mlir.transforms.partition.rules.operator_checks import bias_codes, centred, centred_range

PER_CHANNEL = ("bias", "multiplier", "exponent")


class LowerConv2D(LowerToNpu):
    """Lower CONV_2D of one group to one convolution."""

    operators = ("CONV_2D",)

    def applies(self, node: Node) -> bool:
        return node.operand(1).static_shape[3] == node.operand(0).static_shape[3]

    def rewrite(self, site: Site) -> None:
        _finish_convolution(site, stored_weights(site), depthwise=False)


class LowerChannelwiseConv2D(LowerToNpu):
    """Lower CONV_2D with one input channel per group to a depthwise convolution with transposed weights."""

    operators = ("CONV_2D",)

    def applies(self, node: Node) -> bool:
        return node.operand(1).static_shape[3] == 1 < node.operand(0).static_shape[3]

    def rewrite(self, site: Site) -> None:
        weights = blob_of(weight_codes(site.node)[0][..., 0].transpose(1, 2, 0))
        _finish_convolution(site, weights, depthwise=True)


class LowerGroupedConv2D(LowerToNpu):
    """Lower CONV_2D of several groups to a convolution per group on a copy of its channels."""

    operators = ("CONV_2D",)

    def rewrite(self, site: Site) -> None:
        filters, (batch, rows, columns, total) = site.info(1), site.info(0).static_shape
        channels, height, width, taken = filters.static_shape
        groups = total // taken
        each = channels // groups
        window, (weights, zero) = window_of(site.node, (height, width)), weight_codes(site.node)
        integers, (_, out_rows, out_columns, _) = requantisation(site, zero), site.result.static_shape
        values = []
        for group in range(groups):
            kind = with_shape(tensor_of(site.operand(0)), (batch, rows, columns, taken))
            copy = StridedCopy(0, group * taken, 0, (batch * rows * columns, taken), (total, 1), (taken, 1))
            source = site.emit(npu.MoveOp([site.operand(0)], kind, copies=[copy]))
            chosen = slice(group * each, (group + 1) * each)
            made = npu.ConvOp(
                source,
                site.result_of_shape(batch, out_rows, out_columns, each),
                weights=blob_of(np.ascontiguousarray(weights[chosen])),
                **window,
                **of_channels(integers, range(channels)[chosen]),
            )
            values.append(site.emit(made))
        pixels = batch * out_rows * out_columns
        copies = [StridedCopy(g, 0, g * each, (pixels, each), (each, 1), (channels, 1)) for g in range(groups)]
        site.finish(npu.MoveOp(values, site.result_type, copies=copies))


class LowerDepthwiseConv2D(LowerToNpu):
    """Lower DEPTHWISE_CONV_2D to a depthwise convolution.

    For one input channel, the result is a convolution with transposed weights.
    """

    operators = ("DEPTHWISE_CONV_2D",)

    def rewrite(self, site: Site) -> None:
        depthwise = site.info(0).static_shape[3] > 1
        if depthwise:
            weights = stored_weights(site)
        else:
            weights = blob_of(weight_codes(site.node)[0][0].transpose(2, 0, 1))
        _finish_convolution(site, weights, depthwise=depthwise)


class LowerFullyConnected(LowerToNpu):
    """Lower FULLY_CONNECTED to a 1x1 convolution over the input rows as one line of pixels."""

    operators = ("FULLY_CONNECTED",)

    def rewrite(self, site: Site) -> None:
        filters = site.info(1)
        outputs, inputs = filters.static_shape
        rows = elements(site.info(0)) // inputs
        line = site.reshape(site.operand(0), (1, 1, rows, inputs))
        integers = requantisation(site, weight_zero(site.node))
        result = site.result_of_shape(1, 1, rows, outputs)
        site.finish(pointwise(line, result, stored_weights(site), **integers))


class LowerMulByChannels(LowerToNpu):
    """Lower MUL by one constant per channel to a depthwise 1x1 convolution with the same integer parameters."""

    benefit = Benefit.SPECIAL
    operators = ("MUL",)

    def applies(self, node: Node) -> bool:
        dynamic = dynamic_operands(node)
        if len(dynamic) != 1:
            return False
        source, other = node.operand(dynamic[0]), node.operand(1 - dynamic[0])
        per_channel = source.static_shape[-1:] == other.static_shape[-1:] == (elements(other),)
        return per_channel and source.static_shape == node.results[0].static_shape

    def rewrite(self, site: Site) -> None:
        (dynamic,) = dynamic_operands(site.node)
        source, factors = site.info(dynamic), site.info(1 - dynamic)
        channels = source.static_shape[-1]
        pixels = math.prod(source.static_shape[:-1])
        params = mul_params(pair_of(source), pair_of(factors), pair_of(site.result), site.clamp(), source.dtype)
        line = site.reshape(site.operand(dynamic), (1, 1, pixels, channels))
        site.finish(
            pointwise(
                line,
                site.result_of_shape(1, 1, pixels, channels),
                site.blob(1 - dynamic),
                depthwise=True,
                in_zero=params.a_zero,
                weight_zero=params.b_zero,
                out_zero=params.out_zero,
                clamp=(params.act_min, params.act_max),
                bias=per_channel(np.zeros(1), channels),
                multiplier=per_channel(np.array(params.multiplier), channels),
                exponent=per_channel(np.array(params.exponent), channels),
                weight_type=CODE_TYPES[factors.dtype],
            )
        )


def dynamic_operands(node: Node) -> list[int]:
    """Return the indices of the operands that are computed at run time."""
    return [i for i, operand in enumerate(node.operands) if operand is not None and not operand.is_const]


def per_channel(values: NDArray[Any], count: int) -> npu.ChannelsAttr:
    """Return ``values`` as ``count`` integers. A single value is repeated."""
    return npu.ChannelsAttr(Blob(np.broadcast_to(values.reshape(-1), (count,)).astype("<i4").tobytes()))


def of_channels(integers: dict[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
    """Return ``integers`` with the per-channel values of ``chosen`` result channels only."""
    rows = {name: npu.ChannelsAttr.of([integers[name].values[channel] for channel in chosen]) for name in PER_CHANNEL}
    return {**integers, **rows}


def window_of(node: Node, kernel: Pair) -> dict[str, tuple[int, ...]]:
    """Return kernel, stride, dilation and padding of a window operator as properties."""
    options = window_options(node, dilated="dilation_h_factor" in node.options)
    _, height, width, _ = node.operand(0).static_shape
    rows, columns = (
        axis_window(node, name, size, kernel[axis], options.stride[axis], options.dilation[axis], options.padding)
        for axis, name, size in ((0, "height", height), (1, "width", width))
    )
    pads = (rows.before, columns.before, rows.after, columns.after)
    return {"kernel": kernel, "stride": options.stride, "dilation": options.dilation, "pads": pads}


def requantisation(site: Site, zero: int, *, operands: tuple[int, int] = (0, 2)) -> dict[str, Any]:
    """Return the integer parameters of a product: zero points, clamp, bias and multipliers per channel.

    ``zero``: zero point of the stored weights. ``operands``: operand indices of input and bias.
    """
    source, filters, result = site.info(operands[0]), site.info(1), site.result
    channels = result.static_shape[-1]
    is_matrix = site.node.spec.name in ("FULLY_CONNECTED", "BATCH_MATMUL")
    single = quant_of(filters).per_tensor if is_matrix else source.dtype == filters.dtype == "uint8"
    scales = quant_of(source).scale, quant_of(filters).scales, quant_of(result).scale
    real = real_multipliers(*scales, single_product=single)
    multiplier, exponent = quantize_multipliers(real)
    bias = site.node.optional(operands[1])
    return {
        "in_zero": quant_of(source).zero_point,
        "weight_zero": zero,
        "out_zero": quant_of(result).zero_point,
        "clamp": site.clamp(),
        "bias": per_channel(np.zeros(1) if bias is None else bias_codes(site.node, source, filters, bias), channels),
        "multiplier": per_channel(multiplier, channels),
        "exponent": per_channel(exponent, channels),
        "weight_type": CODE_TYPES[filters.info.numpy.name],
        "wide": adds_in_64_bits(site.node, source, filters, bias),
    }


def weight_zero(node: Node) -> int:
    """Return the zero point of :func:`weight_codes`."""
    filters = node.operand(1)
    quant = quant_of(filters)
    if len(set(quant.zero_points)) == 1:
        return quant.zero_point
    (least, most), (low, high) = filters.info.range, centred_range(filters)
    return max(least - low, 0) or min(most - high, 0)


def weight_codes(node: Node) -> tuple[NDArray[Any], int]:
    """Return codes of the constant weights with a common zero point, and this zero point.

    Codes are shifted if the weights have several zero points.
    """
    filters, zero = node.operand(1), weight_zero(node)
    if len(set(quant_of(filters).zero_points)) == 1:
        return filters.array(), zero
    return (centred(filters) + zero).astype(filters.info.numpy), zero


def stored_weights(site: Site) -> BlobAttr:
    """Return the bytes of :func:`weight_codes`, or the equal bytes of the constant.

    Codes of 4 bits are stored as bytes. The weight coder removes the unused bits.
    """
    filters = site.info(1)
    same = len(set(quant_of(filters).zero_points)) == 1 and filters.dtype in CODE_TYPES
    return site.blob(1) if same else blob_of(weight_codes(site.node)[0])


def _finish_convolution(site: Site, weights: BlobAttr, *, depthwise: bool) -> None:
    _, height, width, _ = site.info(1).static_shape
    window, integers = window_of(site.node, (height, width)), requantisation(site, weight_zero(site.node))
    source = site.operand(0)
    site.finish(npu.ConvOp(source, site.result_type, depthwise=depthwise, weights=weights, **window, **integers))


def pointwise(source: SSAValue, result_type: Attribute, weights: BlobAttr, **values: Any) -> npu.ConvOp:
    """Return a 1x1 convolution without padding."""
    return npu.ConvOp(source, result_type, kernel=(1, 1), weights=weights, **values)


def row_sums(source: SSAValue, result_type: Attribute, zeros: Pair, scale: Pair, clamp: Pair) -> npu.ConvOp:
    """Return the scaled sums of rows: a 1x1 convolution with weights of one. ``zeros``: of source and result."""
    return pointwise(
        source,
        result_type,
        blob_of(np.ones(npu.shape_of(source)[-1], np.int8)),
        in_zero=zeros[0],
        weight_zero=0,
        out_zero=zeros[1],
        clamp=clamp,
        bias=npu.ChannelsAttr.of([0]),
        multiplier=npu.ChannelsAttr.of([scale[0]]),
        exponent=npu.ChannelsAttr.of([scale[1]]),
        weight_type=npu.CodeType.I8,
    )


class LowerMatmulByConstant(LowerToNpu):
    """Lower BATCH_MATMUL of 8-bit codes by one constant right matrix to a 1x1 convolution."""

    operators = ("BATCH_MATMUL",)

    def applies(self, node: Node) -> bool:
        narrow = node.results[0].info.numpy.itemsize == 1
        return narrow and node.operand(1).is_const and _matrices(node).images == 1

    def rewrite(self, site: Site) -> None:
        found = _matrices(site.node)
        a = _matrix(site, found, 0, (1, 1, found.rows, found.depth))
        codes, zero = weight_codes(site.node)
        values = codes.reshape(-1)
        if found.maps[1] is not None:
            values = values[found.maps[1]]
        weights = np.ascontiguousarray(values.reshape(found.depth, found.columns).T)
        integers = requantisation(site, zero)
        result = site.result_of_shape(1, 1, found.rows, found.columns)
        site.finish(pointwise(a, result, blob_of(weights), **integers))


class LowerMatmul(LowerToNpu):
    """Lower BATCH_MATMUL to ``npu.matmul`` image by image."""

    operators = ("BATCH_MATMUL",)

    def rewrite(self, site: Site) -> None:
        found = _matrices(site.node)
        rows = (found.images, 1, found.rows)
        a = _matrix(site, found, 0, (*rows, found.depth))
        (a_scale, a_zero), (b_scale, b_zero) = (pair_of(site.info(index)) for index in found.order)
        out_scale, out_zero = pair_of(site.result)
        real = real_multipliers(a_scale, (b_scale,), out_scale, single_product=True)
        multiplier, exponent = quantize_multipliers(real)
        site.finish(
            npu.MatmulOp(
                a,
                _matrix(site, found, 1, (found.images, 1, found.depth, found.columns)),
                site.result_of_shape(*rows, found.columns),
                zeros=(a_zero, b_zero, out_zero),
                scale=npu.ScaleAttr.of(int(multiplier.reshape(-1)[0]), int(exponent.reshape(-1)[0])),
                clamp=site.clamp("none"),
            )
        )


def _matrices(node: Node) -> Matrices:
    found = matrices(node)
    assert isinstance(found, Matrices), "the placement rules require few moves"
    return found


def _matrix(site: Site, found: Matrices, index: int, shape: tuple[int, int, int, int]) -> SSAValue:
    """Return the left (``index`` 0) or right dense matrices of ``shape``: a view, a move or a new constant."""
    operand, order = found.order[index], found.maps[index]
    value, info = site.operand(operand), site.info(operand)
    kind = with_shape(tensor_of(value), shape)
    if info.is_const:
        codes = info.array().reshape(-1)
        return site.emit(npu.ConstantOp(blob_of(np.ascontiguousarray(codes if order is None else codes[order])), kind))
    if order is None:
        return site.reshape(value, shape)
    return site.emit(npu.MoveOp([value], kind, copies=found.moves[index]))
