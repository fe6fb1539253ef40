"""What convolutions and fully connected layers share: reading weights, and turning sums into results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.numerics.convolution import Finish, real_multipliers
from odc_mlir.numerics.fixed import Requantizer, quantize_multipliers, requantize64
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.runtime.kernels.common import activation_codes, check_scales, real_clamp, scale_of, unsupported


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How an operator adds up and finishes: derived from element types, scales and the fused activation.

    ``largest`` bounds input magnitudes without zero point (None: float32); ``sums`` is the dtype of sums.
    """

    node: Node
    largest: int | None
    in_zero: int
    sums: str
    out_dtype: np.dtype
    rescale: Finish | None  # sums with bias -> codes, or the float activation; None: the sums are the result

    def finish(self, bias: Array | None) -> Finish | None:
        """Turns ``[pixels, channels]`` sums into results, in place where it can."""
        rescale = self.rescale
        if bias is None:
            return rescale
        row = bias.reshape(-1).astype(self.sums, copy=False)

        def add_bias(sums: Array) -> Array:
            np.add(sums, row, out=sums)
            return sums if rescale is None else rescale(sums)

        return add_bias


def accumulation(
    node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None, channels: int
) -> Accumulation:
    """The accumulation of a sum of products ``x * weights`` over ``channels`` results."""
    out = node.results[0]
    if x.dtype == "float32":
        if weights.dtype != "float32":
            raise unsupported(node, f"float32 activations with {weights.dtype} weights are not supported")
        return Accumulation(node, None, 0, "float32", np.dtype(np.float32), real_clamp(node))
    if out.dtype != x.dtype:
        raise unsupported(node, f"an input of {x.dtype} with a result of {out.dtype} is not supported")
    scale, in_zero = scale_of(node, x)
    low, high = x.info.range
    largest = max(abs(low - in_zero), abs(high - in_zero))
    sums = "int64" if _wide(node, x, weights, bias) else "int32"
    return Accumulation(node, largest, in_zero, sums, out.info.numpy, _rescale(node, x, scale, weights, channels, sums))


def _wide(node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> bool:
    """Whether sums need 64 bits: 16-bit activations, unless the bias says 32."""
    if x.dtype != "int16":
        return False
    if weights.dtype == "int16":
        return True
    if bias is not None:
        return bias.dtype == "int64"
    return node.options.get("quantized_bias_type") != "int32"


def _rescale(node: Node, x: TensorInfo, scale: float, weights: TensorInfo, channels: int, sums: str) -> Finish:
    out = node.results[0]
    out_scale, out_zero = scale_of(node, out)
    low, high = activation_codes(node, out)
    scales = weight_scales(node, weights, channels)
    single = len(scales) == 1 if node.spec.name == "FULLY_CONNECTED" else x.dtype == "uint8"
    q, e = quantize_multipliers(real_multipliers(scale, scales, out_scale, single_product=single))
    dtype = out.info.numpy
    if sums == "int32":
        return Requantizer(q, e, out_zero, low, high, dtype)
    return lambda values: requantize64(values, q, e, out_zero, low, high, dtype)


def weight_scales(node: Node, weights: TensorInfo, channels: int) -> tuple[float, ...]:
    """One scale, or one per result channel."""
    if weights.quant is None:
        raise node.error(f"weights {weights.name!r} of {weights.dtype} have no scale")
    scales = weights.quant.scales
    if len(scales) not in (1, channels):
        raise node.error(f"weights {weights.name!r} have {len(scales)} scales; allowed are 1 and {channels}")
    check_scales(node, weights, scales)
    return scales


def centred(node: Node, weights: TensorInfo, values: Array, channel_axis: int) -> Array:
    """Weight codes with their zero points taken off, ready to be prepared; floats unchanged.

    Signed weights are symmetric: their zero point is 0 by definition, except in per-tensor fully connected layers.
    """
    quant = weights.quant
    if values.dtype.kind == "f" or quant is None:
        return values
    per_tensor_layer = node.spec.name == "FULLY_CONNECTED" and quant.per_tensor
    if values.dtype.kind == "i" and not per_tensor_layer:
        return values
    low, high = weights.info.range
    if not all(low <= z <= high for z in quant.zero_points):
        raise node.error(f"a zero point of weights {weights.name!r} is outside {weights.dtype}'s {low} to {high}")
    zeros = np.asarray(quant.zero_points, np.int32)
    if zeros.size > 1:
        if zeros.size != values.shape[channel_axis]:
            raise node.error(f"weights {weights.name!r} have {zeros.size} zero points")
        zeros = zeros.reshape([-1 if i == channel_axis else 1 for i in range(values.ndim)])
    shifted: Array = values.astype(np.int32) - zeros
    return shifted


def bias_of(operands: Sequence[Array | None], bias: TensorInfo | None, index: int) -> Array | None:
    """The bias of this run, None where there is none."""
    if bias is None:
        return None
    return bias.array() if bias.is_const else operands[index]
