"""Helpers of convolutions and fully connected layers: weights, accumulation and requantisation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.numerics import fixed
from odc_mlir.numerics.convolution import Finish, convert_bias, real_multipliers
from odc_mlir.numerics.hybrid import quantize_rows
from odc_mlir.numerics.matmul import IN_ORDER
from odc_mlir.numerics.quantize import dequantize_codes
from odc_mlir.numerics.single_tile import TileSums
from odc_mlir.ops.bias import adds_in_64_bits, in_units_of_sums, left_over, scale_ratios, scales_in_use
from odc_mlir.ops.spec import Array, Node, TensorInfo
from odc_mlir.runtime.kernels.common import activation_codes, check_scales, real_clamp, scale_of, unsupported

_log = logging.getLogger(__name__)

# Types of weights by type of activations, as in files of TensorFlow Lite, ONE and PyTorch.
_NARROW = ("int8", "uint8", "int4", "uint4")
_WEIGHTS_OF_CODES = {"int8": _NARROW, "uint8": _NARROW, "int16": (*_NARROW, "int16")}
_WEIGHTS_OF_REALS = ("float32", "int8", "uint8", "int16", "int4", "uint4")
# Types of weights for which TensorFlow Lite quantises float activations dynamically. Other weights are dequantised, as
# in the interpreter of ONE.
_HYBRID = dict.fromkeys(("CONV_2D", "FULLY_CONNECTED"), ("int8", "int4")) | dict.fromkeys(
    ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"), ("int8",)
)
_BIAS_OF = {"float32": ("float32",), "int16": ("int64", "int32")}
_LARGEST_ASYMMETRIC = 255


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Scales of the weights if float activations are quantised dynamically: one, or one per result channel."""

    scales: Array

    @property
    def per_channel(self) -> bool:
        return bool((self.scales != self.scales[0]).any())


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Accumulation and requantisation of an operator, from element types, scales and the fused activation.

    ``largest``: limit on the magnitude of inputs minus the zero point (None: float32). ``sums``: the dtype of sums, or
    IN_ORDER.
    """

    node: Node
    largest: int | None
    in_zero: int
    sums: str
    out_dtype: np.dtype
    rescale: Finish | None  # from sums with bias to codes, or the float activation; None: the sums are the result
    weights: Callable[[Array, int], Array]  # from stored values and channel axis to reals, or to codes minus zero point
    hybrid: Hybrid | None = None
    bias_units: Callable[[Array], Array] | None = None  # from the stored bias to units of sums; None: no conversion

    def bias_row(self, bias: Array | None) -> Array | None:
        """Return the bias as a row in units and dtype of the sums."""
        if bias is None:
            return None
        row = bias.reshape(-1)
        if self.largest is None:
            return row
        return (row if self.bias_units is None else self.bias_units(row)).astype(self.sums, copy=False)

    def of_tile(self, bias: TensorInfo | None) -> TileSums:
        """Return the completion of a tile's sums. ``bias`` must be constant or None."""
        return TileSums(
            self.out_dtype, self.in_zero, self.bias_row(None if bias is None else bias.array()), self.rescale
        )

    def finish(self, bias: Array | None, scale: float | None = None) -> Finish | None:
        """Return the function that converts sums ``[pixels, channels]`` to results, in place if possible.

        ``scale``: scale of dynamically quantised activations
        """
        rescale = self.rescale
        factors: list[Any] = [] if scale is None or self.hybrid is None else [self.hybrid.scales, np.float32(scale)]
        if self.node.spec.name != "CONV_2D" or self.node.context.numerics != "litert":  # its CONV_2D multiplies twice
            factors = [np.multiply(*factors)] if factors else []
        if bias is None and not factors:
            return rescale
        row = self.bias_row(bias)

        def finish(sums: Array) -> Array:
            for factor in factors:
                np.multiply(sums, factor, out=sums)
            if row is not None:
                np.add(sums, row, out=sums)
            return sums if rescale is None else rescale(sums)

        return finish

    def by_image(
        self, x: Array, bias: Array | None, compute: Callable[[Array, Finish | None], Array], *, asymmetric: bool
    ) -> Array:
        """Return ``compute(images, finish)`` for ``x [N, ...]``, image by image if images have separate scales."""
        if self.hybrid is None or not len(x):
            return compute(x, self.finish(bias, 1.0))
        parts = []
        for image in x:
            row = quantize_rows(image.reshape(1, -1), asymmetric=asymmetric)
            parts.append(compute(row.centred.reshape(1, *image.shape), self.finish(bias, row.scales[0])))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def accumulation(
    node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None, channels: int
) -> Accumulation:
    """Return the accumulation of products ``x * weights`` over ``channels`` results."""
    check_types(node, x, weights, bias)
    out = node.results[0]
    if x.dtype == "float32":
        return _real_accumulation(node, weights, channels)
    scale, in_zero = scale_of(node, x)
    low, high = x.info.range
    largest = max(abs(low - in_zero), abs(high - in_zero))
    sums = "int64" if adds_in_64_bits(node, x, weights, bias) else "int32"
    scales = weight_scales(node, weights, channels)
    return Accumulation(
        node,
        largest,
        in_zero,
        sums,
        out.info.numpy,
        _rescale(node, x, scale, weights, scales, sums),
        lambda values, axis: centred(node, weights, values, axis),
        bias_units=None if bias is None else _bias_units(node, x, bias, scales, channels, sums),
    )


def check_types(node: Node, x: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> None:
    """Raise UnsupportedError for element types that cannot be multiplied or added."""
    allowed = _WEIGHTS_OF_REALS if x.dtype == "float32" else _WEIGHTS_OF_CODES.get(x.dtype)
    if allowed is None:
        raise unsupported(node, f"an input of {x.dtype} is not supported")
    if weights.dtype not in allowed:
        raise unsupported(
            node,
            f"weights of {weights.dtype} do not go with an input of {x.dtype}; supported are {', '.join(allowed)}",
        )
    wanted = _BIAS_OF.get(x.dtype, ("int32",))
    if bias is not None and bias.dtype not in wanted:
        raise unsupported(
            node, f"a bias of {bias.dtype} does not go with an input of {x.dtype}; supported are {', '.join(wanted)}"
        )
    out = node.results[0]
    wider = node.spec.name == "FULLY_CONNECTED" and (x.dtype, out.dtype) == ("uint8", "int16")
    if out.dtype != x.dtype and not wider:
        raise unsupported(node, f"an input of {x.dtype} with a result of {out.dtype} is not supported")


def _real_accumulation(node: Node, weights: TensorInfo, channels: int) -> Accumulation:
    clamp, real = real_clamp(node), np.dtype(np.float32)
    sums = IN_ORDER if node.context.numerics == "litert" else "float32"
    if weights.dtype == "float32":
        return Accumulation(node, None, 0, sums, real, clamp, lambda values, _: values)
    scales = weight_scales(node, weights, channels)

    def codes_of(values: Array, axis: int) -> Array:
        return centred(node, weights, values, axis)

    if weights.dtype in _HYBRID.get(node.spec.name, ()):
        hybrid = Hybrid(np.asarray(scales, np.float32))
        return Accumulation(node, _LARGEST_ASYMMETRIC, 0, "float32", real, clamp, codes_of, hybrid=hybrid)

    def reals(values: Array, axis: int) -> Array:
        codes = codes_of(values, axis)
        return dequantize_codes(codes, scales[0] if len(scales) == 1 else np.asarray(scales, np.float32), 0, axis)

    return Accumulation(node, None, 0, sums, real, clamp, reals)


def _rescale(
    node: Node, x: TensorInfo, scale: float, weights: TensorInfo, scales: tuple[float, ...], sums: str
) -> Finish:
    out = node.results[0]
    out_scale, out_zero = scale_of(node, out)
    low, high = activation_codes(node, out)
    dtype, connected = out.info.numpy, node.spec.name == "FULLY_CONNECTED"
    if node.context.numerics == "litert" and connected and weights.dtype != "int16":
        factors = real_multipliers(scale, scales, out_scale, single_product=False)
        return lambda values: fixed.requantize_real(values, factors, out_zero, low, high, dtype)
    single = len(scales) == 1 if connected else x.dtype == weights.dtype == "uint8"
    q, e = fixed.quantize_multipliers(real_multipliers(scale, scales, out_scale, single_product=single))
    if sums == "int32":
        return fixed.Requantizer(q, e, out_zero, low, high, dtype)
    return fixed.WideRequantizer(q, e, out_zero, low, high, dtype)


def _bias_units(
    node: Node, x: TensorInfo, bias: TensorInfo, weight_scales: tuple[float, ...], channels: int, sums: str
) -> Callable[[Array], Array] | None:
    """Return the conversion of a bias to the scale of the sums, or None if there is nothing to convert."""
    quant, x_scale = bias.quant, scale_of(node, x)[0]
    if quant is None:
        return None
    if len(quant.scales) not in (1, channels):
        raise node.error(f"the bias {bias.name!r} has {len(quant.scales)} scales; allowed are 1 and {channels}")
    if in_units_of_sums(bias, x_scale, weight_scales):
        return None
    check_scales(node, bias, quant.scales)
    if left_over(x, bias, weight_scales):
        _log.warning(
            "%s: the scales of the bias %r are degenerate; using input scale times weight scale",
            node.spec.name,
            bias.name,
        )
        return None
    ratios = scale_ratios(quant, x_scale, weight_scales)
    return lambda values: convert_bias(values, quant.zero_points, ratios, sums)


def weight_scales(node: Node, weights: TensorInfo, channels: int) -> tuple[float, ...]:
    """Return a single weight scale, or a scale per result channel. Raises ModelError for any other number of scales."""
    if weights.quant is None:
        raise node.error(f"weights {weights.name!r} of {weights.dtype} have no scale")
    scales = weights.quant.scales
    if len(scales) not in (1, channels):
        raise node.error(f"weights {weights.name!r} have {len(scales)} scales; allowed are 1 and {channels}")
    check_scales(node, weights, scales_in_use(weights))
    return scales


def centred(node: Node, weights: TensorInfo, values: Array, channel_axis: int) -> Array:
    """Return weight codes minus zero points. Return floats unchanged.

    Raises ModelError for several scales or zero points along another axis than ``channel_axis``.
    """
    quant = weights.quant
    if values.dtype.kind == "f" or quant is None:
        return values
    channels = values.shape[channel_axis]
    if not quant.per_tensor and (quant.axis != channel_axis or len(quant.scales) != channels):
        raise node.error(
            f"weights {weights.name!r} have {len(quant.scales)} scales along axis {quant.axis}; "
            f"they must lie along axis {channel_axis}, one for each of its {channels} elements"
        )
    low, high = weights.info.range
    if not all(low <= z <= high for z in quant.zero_points):
        raise node.error(f"a zero point of weights {weights.name!r} is outside {weights.dtype}'s {low} to {high}")
    if not any(quant.zero_points):
        return values
    zeros = np.asarray(quant.zero_points, np.int32)
    if zeros.size > 1:
        zeros = zeros.reshape([-1 if i == channel_axis else 1 for i in range(values.ndim)])
    shifted: Array = values.astype(np.int32) - zeros
    return shifted


def bias_of(operands: Sequence[Array | None], bias: TensorInfo | None, index: int) -> Array | None:
    """Return the bias in this run, or None if there is no bias."""
    if bias is None:
        return None
    return bias.array() if bias.is_const else operands[index]
