"""Units of the bias of a sum of products, and the width of the sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

_SAME_SCALE = 2.0**-16  # relative: scales that differ less are the product of the others, rounded
_NOTHING = 2.0**-32  # in units of sums: a 32-bit sum cannot represent less


def adds_in_64_bits(node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> bool:
    """Return True if sums need 64 bits: for 16-bit activations, unless the bias has 32 bits."""
    if x.dtype != "int16":
        return False
    if weights.dtype == "int16":
        return True
    if bias is not None:
        return bias.dtype == "int64"
    return node.options.get("quantized_bias_type") != "int32"


def in_units_of_sums(quant: QuantParams, x_scale: float, weight_scales: tuple[float, ...]) -> bool:
    """Return True if a bias has zero point 0 and the scale ``input scale * weight scale``."""
    if any(quant.zero_points):
        return False
    return bool((np.abs(scale_ratios(quant, x_scale, weight_scales) - 1) <= _SAME_SCALE).all())


def scale_ratios(quant: QuantParams, x_scale: float, weight_scales: tuple[float, ...]) -> NDArray[np.float64]:
    """Return the bias's scales in units of sums; all scales must be positive and finite."""
    return np.asarray(quant.scales, np.float64) / (x_scale * np.asarray(weight_scales, np.float64))


def left_over(x: TensorInfo, bias: TensorInfo, weight_scales: tuple[float, ...]) -> bool:
    """Return True if the scales of a bias are obsolete and its codes are in units of sums.

    Some models with uint8 codes and per-channel weights work only in ONE's runtimes, which ignore the bias's scales.
    They have a nonzero code that would represent next to nothing: no quantiser gives such a small bias a code but 0.
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
