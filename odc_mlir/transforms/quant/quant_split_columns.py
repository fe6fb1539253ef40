"""``quant-split-columns``: move the columns of one-channel images that have large values to a second channel.

Before, if the first of ten columns reaches 120 and all later columns reach 12, as in coefficients of a sound's
spectrum::

    %0 = circle.conv_2d(%x, %w, %b) {padding = same, …} : (tensor<1x49x10x1xf32>, tensor<64x10x4x1xf32>, …) -> …

After::

    %m = circle.const [[1.0, 0.0], [0.0, 4.0], [0.0, 4.0], …] : tensor<10x2xf32>
    %1 = circle.mul(%x, %m) attributes {quant.precision = "float"} : … -> tensor<1x49x10x2xf32>
    %0 = circle.conv_2d(%1, %w2, %b) {padding = same, …} : (tensor<1x49x10x2xf32>, tensor<64x10x4x2xf32>, …) -> …

``%w2`` is ``%w`` for the channel of large columns, and ``%w / 4`` for the other channel. With a single scale, small
columns would have few codes. A convolution applies the same weights to all columns. Weights can therefore absorb
factors of channels (``quant-normalize-inputs``), but not factors of columns. The inserted MUL stays float, and
quantised computation begins after it. The layer has twice as many multiplications.

The factor is a power of two, and at most half of the ratio of columns. Results then differ only by the order of sums.
Values that exceed recorded values have room, and the weights of small columns keep more bits.

Applies to inputs [N, height, width, 1] that only CONV_2D with constant weights read, directly or after a RESHAPE. A
minority of columns or rows must be at least four times as large as all others. Does nothing without ``sizes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import OptionError
from odc_mlir.quantizer.policy.schemes import dequantize_constant
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import WeightedLayer, behind, constant, is_real, part, real, shape_of
from odc_mlir.transforms.quant.common.ir import quantized_function, stay_float
from odc_mlir.transforms.quant.common.layers import load_reals

LEAST_RATIO = 4.0  # least ratio of sizes: one more bit of resolution, and one bit of room

_IMAGE = 4  # dimensions
_REASON = "it splits columns of float inputs (--normalize inputs)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantSplitColumnsPass(ModulePass):
    """Move large columns of inputs to a separate channel."""

    name = "quant-split-columns"

    sizes: str = ""
    """.npz file with the largest magnitude of every element of an input, by input name."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.sizes:
            split_columns(op, load_reals(self.sizes, "sizes of elements", np.abs))


def split_columns(module: ModuleOp, sizes: Mapping[str, Floats]) -> None:
    """Move large columns of inputs to a separate channel. ``sizes``: magnitudes of elements by input name."""
    function = quantized_function(module)
    for value, name in () if function is None else _images(function):
        if name in sizes and (layers := _readers(value)):
            factors = _factors(value, name, sizes[name])
            if factors is not None:
                _split(value, layers, factors)


def _images(function: FuncOp) -> Iterator[tuple[SSAValue, str]]:
    for argument in function.args:
        user = next((use.operation for use in argument.uses), None)
        is_viewed = argument.has_one_use() and isinstance(user, CircleOp) and user.SPEC.name == "RESHAPE"
        yield (user.results[0] if is_viewed and user is not None else argument), value_name(argument)


def _readers(value: SSAValue) -> list[tuple[WeightedLayer, Floats]]:
    shape, found = shape_of(value), []
    if not is_real(value) or shape is None or len(shape) != _IMAGE or shape[-1] != 1:
        return []
    for use in value.uses:
        layer = WeightedLayer.of(use.operation)
        if layer is None or layer.op.SPEC.name != "CONV_2D" or use.index != layer.input or not is_real(layer.result):
            return []
        weights = _real_weights(layer)
        if weights is None or weights.shape[-1] != 1 or not np.isfinite(weights).all():
            return []
        found.append((layer, weights))
    return found


def _real_weights(layer: WeightedLayer) -> Floats | None:
    weights, stored = layer.real_weights(), layer.op.operands[layer.weights]
    if weights is None and constant(stored) is not None:
        info = info_of(stored)
        if info.quant is not None and info.info.is_integer:
            weights = dequantize_constant(info.array(), info.quant)
    return None if weights is None else weights.astype(np.float64)


def _factors(value: SSAValue, name: str, sizes: Floats) -> Floats | None:
    """Return broadcastable factors of columns or rows (0 if large), or None if no split is useful."""
    height, width = (shape_of(value) or ())[1:3]
    if height is None or width is None:
        return None
    if sizes.size != height * width:
        raise OptionError(
            f"the input {name!r} has {height * width} elements, the recorded sizes are for {sizes.size}",
            hint="record them with this model",
        )
    image = sizes.reshape(height, width)
    for axis, row in ((1, image.max(axis=0)), (0, image.max(axis=1))):
        found = _factors_of(row)
        if found is not None:
            return found.reshape((1, -1) if axis else (-1, 1))
    return None


def _factors_of(sizes: Floats) -> Floats | None:
    """Return the factors for columns of these sizes. The widest gap between sizes separates large columns."""
    order = np.sort(sizes)[::-1]
    most = (len(sizes) - 1) // 2  # at most this many columns may be large
    if not np.isfinite(sizes).all() or not most or not order[most] > 0:
        return None
    gaps = order[:most] / order[1 : most + 1]
    place = int(np.argmax(gaps))
    ratio = float(order[0] / order[place + 1])
    if gaps[place] < LEAST_RATIO:
        return None
    factor = 2.0 ** np.floor(np.log2(ratio / 2))
    return np.where(sizes >= order[place], 0.0, factor)


def _split(value: SSAValue, layers: list[tuple[WeightedLayer, Floats]], factors: Floats) -> None:
    name, shape = value_name(value), shape_of(value) or ()
    chosen = real(np.stack([factors == 0, factors], axis=-1), f"{name}/columns")
    split = part("MUL", [value, chosen.result], value, "split")
    Rewriter.replace_value_with_new_type(split.results[0], with_shape(split.results[0].type, (*shape[:-1], 2)))
    stay_float(split, _REASON)
    if isinstance(value.owner, CircleOp):
        stay_float(value.owner, _REASON)
    Rewriter.insert_op([chosen, split], behind(value))
    for layer, weights in layers:
        layer.set_constants(np.concatenate([weights, weights / factors.max()], axis=-1), None)
        layer.op.operands[layer.input] = split.results[0]
