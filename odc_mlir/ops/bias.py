"""Bias scales in sums of products, and the width of the sums.

A *unit of sums* is the real value of an accumulator step: input scale times weight scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import SAME_SCALE, Node, QuantParams, TensorInfo

_NOTHING = 2.0**-32  # in units of sums; smaller than the step of any 32-bit sum


def adds_in_64_bits(node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> bool:
    """Return whether sums need 64 bits. This is the case for 16-bit activations unless the bias has 32 bits."""
    if x.dtype != "int16":
        return False
    if weights.dtype == "int16":
        return True
    if bias is not None:
        return bias.dtype == "int64"
    return node.options.get("quantized_bias_type") != "int32"


def scales_in_use(weights: TensorInfo) -> tuple[float, ...]:
    """Return the weight scales except zero scales of channels with only zeros as constant weights."""
    quant = weights.quant
    assert quant is not None, "asked of quantised weights"
    if all(quant.scales) or not weights.is_const:
        return quant.scales
    rows = np.moveaxis(weights.array(), quant.axis, 0) if len(quant.scales) > 1 else weights.array()
    if rows.size % len(quant.scales):
        return quant.scales
    zeros = np.broadcast_to(quant.zero_points, len(quant.scales)).reshape(-1, 1)
    is_used = (rows.reshape(len(quant.scales), -1) != zeros).any(axis=1)
    return tuple(scale for scale, used in zip(quant.scales, is_used, strict=True) if scale or used)


def in_units_of_sums(bias: TensorInfo, x_scale: float, weight_scales: tuple[float, ...]) -> bool:
    """Return whether bias codes are in units of sums: zero point 0, scale ``input scale * weight scale``.

    A bias without parameters is in units of sums by definition. Scales of zero biases, and of channels with zero weight
    scale, are ignored.
    """
    quant = bias.quant
    if quant is None:
        return True
    if any(quant.zero_points):
        return False
    counts = np.array(True)
    if bias.is_const and len(quant.scales) in (1, bias.array().size):
        counts = bias.array().reshape(-1) != 0
    if len(weight_scales) in (1, counts.size):
        counts = counts & (np.asarray(weight_scales) != 0)
    agrees = np.abs(scale_ratios(quant, x_scale, weight_scales) - 1) <= SAME_SCALE
    return bool((agrees | ~counts).all())


def scale_ratios(quant: QuantParams, x_scale: float, weight_scales: tuple[float, ...]) -> NDArray[np.float64]:
    """Return the bias scales in units of sums. They are not finite for weight scales of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(quant.scales, np.float64) / (x_scale * np.asarray(weight_scales, np.float64))


def in_other_units(bias: TensorInfo, x: TensorInfo, weight_scales: tuple[float, ...]) -> bool:
    """Return whether bias codes must be converted before they are added to sums."""
    assert x.quant is not None, "asked of quantised products"
    return not (in_units_of_sums(bias, x.quant.scale, weight_scales) or left_over(x, bias, weight_scales))


def left_over(x: TensorInfo, bias: TensorInfo, weight_scales: tuple[float, ...]) -> bool:
    """Return whether the bias scales are obsolete, because the codes are in units of sums.

    Some models with uint8 codes and per-channel weights work only in ONE's runtimes, because these runtimes ignore the
    bias scales. Such models have nonzero bias codes that represent almost 0. A quantiser would have rounded such biases
    to 0.
    """
    quant, source = bias.quant, x.quant
    if x.dtype != "uint8" or not bias.is_const or quant is None or source is None:
        return False
    if quant.per_tensor or len(weight_scales) == 1 or any(quant.zero_points):
        return False
    codes = bias.array().reshape(-1)
    if codes.size != len(quant.scales):
        return False
    sums = np.abs(codes * scale_ratios(quant, source.scale, weight_scales))
    return bool(((codes != 0) & (sums < _NOTHING)).any())
