"""``circle`` to ``npu``: convolutions, matrix products, and the operators that are one in disguise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.elementwise import mul_params
from odc_mlir.numerics.fixed import quantize_multipliers
from odc_mlir.ops.bias import adds_in_64_bits
from odc_mlir.ops.infer.geometry import axis_window, window_options
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.support.blob import Blob
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of, pair_of, quant_of
from odc_mlir.transforms.partition.rules.weight_checks import centred, centred_range

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
NO_PADS: Pads = (0, 0, 0, 0)


def per_channel(values: NDArray[Any], count: int) -> npu.ChannelsAttr:
    """``count`` integers; a single one is repeated."""
    return npu.ChannelsAttr(Blob(np.broadcast_to(values.reshape(-1), (count,)).astype("<i4").tobytes()))


def window_of(site: Site, kernel: Pair) -> tuple[Pair, Pair, Pads]:
    """Stride, dilation and padding (top, left, bottom, right) of a window operator on an image."""
    options = window_options(site.node, dilated="dilation_h_factor" in site.node.options)
    _, height, width, _ = site.info(0).static_shape
    rows, columns = (
        axis_window(site.node, name, size, kernel[axis], options.stride[axis], options.dilation[axis], options.padding)
        for axis, name, size in ((0, "height", height), (1, "width", width))
    )
    return options.stride, options.dilation, (rows.before, columns.before, rows.after, columns.after)


def requantisation(
    site: Site, weight_zero: int, *, single_product: bool, operands: tuple[int, int] = (0, 2)
) -> dict[str, Any]:
    """The integers of a product with constant weights: zero points, clamp, bias and multipliers per channel.

    ``operands``: input and bias among the operator's operands.
    """
    source, filters, result = site.info(operands[0]), site.info(1), site.result
    channels = result.static_shape[-1]
    real = real_multipliers(
        quant_of(source).scale, quant_of(filters).scales, quant_of(result).scale, single_product=single_product
    )
    multiplier, exponent = quantize_multipliers(real)
    bias = site.node.optional(operands[1])
    return {
        "in_zero": quant_of(source).zero_point,
        "weight_zero": weight_zero,
        "out_zero": quant_of(result).zero_point,
        "clamp": site.clamp(),
        "bias": per_channel(np.zeros(1) if bias is None else bias.array(), channels),
        "multiplier": per_channel(multiplier, channels),
        "exponent": per_channel(exponent, channels),
        "weight_type": CODE_TYPES[filters.info.numpy.name],
        "wide": adds_in_64_bits(site.node, source, filters, bias),
    }


def single_product(source: TensorInfo, filters: TensorInfo) -> bool:
    """Whether the product of the scales is rounded to float32, as uint8 convolutions do."""
    return source.dtype == filters.dtype == "uint8"


def weight_codes(site: Site) -> tuple[NDArray[Any] | None, int]:
    """Codes of the constant weights and their zero point; no codes where the constant's own bytes serve.

    Several zero points become one by moving codes. Codes of 4 bits get a byte each; the weight coder takes it away.
    """
    filters = site.info(1)
    quant = quant_of(filters)
    if len(set(quant.zero_points)) == 1:
        return (None if filters.dtype in CODE_TYPES else filters.array()), quant.zero_point
    (least, most), (low, high) = filters.info.range, centred_range(filters)
    zero = max(least - low, 0) or min(most - high, 0)
    return (centred(filters) + zero).astype(filters.info.numpy), zero


def _finish_convolution(site: Site, kernel: Pair, weights: BlobAttr, *, depthwise: bool) -> None:
    """Replace the operator by one convolution with its window and integers."""
    stride, dilation, pads = window_of(site, kernel)
    site.finish(
        npu.ConvOp(
            site.operand(0),
            site.result_type,
            depthwise=depthwise,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pads=pads,
            weights=weights,
            **convolution_integers(site),
        )
    )


def lower_conv_2d(site: Site) -> None:
    """CONV_2D; with one input channel per group it is a depthwise convolution with transposed weights."""
    filters = site.info(1)
    _, height, width, taken = filters.static_shape
    depthwise = taken == 1 and site.info(0).static_shape[3] > 1
    codes, _ = weight_codes(site)
    weights = site.blob(1) if codes is None else blob_of(codes)
    if depthwise:
        weights = blob_of((filters.array() if codes is None else codes)[..., 0].transpose(1, 2, 0))
    _finish_convolution(site, (height, width), weights, depthwise=depthwise)


def lower_depthwise_conv_2d(site: Site) -> None:
    """DEPTHWISE_CONV_2D; on a single input channel it is an ordinary convolution with transposed weights."""
    filters = site.info(1)
    _, height, width, _ = filters.static_shape
    depthwise = site.info(0).static_shape[3] > 1
    codes, _ = weight_codes(site)
    weights = site.blob(1) if codes is None else blob_of(codes)
    if not depthwise:
        weights = blob_of((filters.array() if codes is None else codes)[0].transpose(2, 0, 1))
    _finish_convolution(site, (height, width), weights, depthwise=depthwise)


def convolution_integers(site: Site) -> dict[str, Any]:
    """As :func:`requantisation`, of a convolution."""
    return requantisation(site, weight_codes(site)[1], single_product=single_product(site.info(0), site.info(1)))


def lower_fully_connected(site: Site) -> None:
    """FULLY_CONNECTED: a 1x1 convolution over rows of inputs as one line of pixels."""
    filters = site.info(1)
    outputs, inputs = filters.static_shape
    rows = math.prod(site.info(0).static_shape) // inputs
    line = site.reshape(site.operand(0), (1, 1, rows, inputs))
    codes, weight_zero = weight_codes(site)
    integers = requantisation(site, weight_zero, single_product=quant_of(filters).per_tensor)
    weights = site.blob(1) if codes is None else blob_of(codes)
    site.finish(pointwise(line, site.result_of_shape(1, 1, rows, outputs), weights, **integers))


def pointwise(
    source: SSAValue, result_type: Attribute, weights: BlobAttr, *, depthwise: bool = False, **integers: Any
) -> npu.ConvOp:
    """A 1x1 convolution without padding."""
    return npu.ConvOp(
        source,
        result_type,
        depthwise=depthwise,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pads=NO_PADS,
        weights=weights,
        **integers,
    )


def lower_mul_by_channels(site: Site, dynamic: int) -> None:
    """MUL of operand ``dynamic`` by one constant per channel: a depthwise 1x1 convolution with the same integers."""
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


def lower_row_sums(site: Site, source: SSAValue, rows: int, columns: int, scale: tuple[int, int]) -> None:
    """Scaled sums of rows of ``columns`` codes of ``source``: every code times a weight of one."""
    line = site.reshape(source, (1, 1, rows, columns))
    site.finish(
        pointwise(
            line,
            site.result_of_shape(1, 1, rows, 1),
            blob_of(np.ones(columns, np.int8)),
            in_zero=quant_of(site.info(0)).zero_point,
            weight_zero=0,
            out_zero=quant_of(site.result).zero_point,
            clamp=site.clamp(),
            bias=npu.ChannelsAttr.of([0]),
            multiplier=npu.ChannelsAttr.of([scale[0]]),
            exponent=npu.ChannelsAttr.of([scale[1]]),
            weight_type=npu.CodeType.I8,
        )
    )


LOWERINGS: Lowerings = {
    "DEPTHWISE_CONV_2D": lower_depthwise_conv_2d,
    "FULLY_CONNECTED": lower_fully_connected,
}
