"""``circle-fuse-batch-norm``: fold channel-wise additions and multiplications into a neighbouring layer.

Before::

    %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : … -> tensor<1x8x8x4xf32>
    %1 = circle.mul(%0, %gamma) : (tensor<1x8x8x4xf32>, tensor<4xf32>) -> tensor<1x8x8x4xf32>
    %2 = circle.add(%1, %beta) {activation = relu6} : (tensor<1x8x8x4xf32>, tensor<4xf32>) -> tensor<1x8x8x4xf32>

After: ``%2 = circle.conv_2d(%x, %w2, %b2) {…, activation = relu6}`` with ``w2 = w * gamma`` for each output channel and
``b2 = b * gamma + beta``.

A layer is a convolution (also depthwise or transposed) or fully connected. ADD, SUB, MUL and DIV with a scalar or
per-channel constant are folded into the preceding layer. MUL and DIV are also folded into the following layer. ADD and
SUB are folded there only if that layer has no padding, so that all weights multiply the constant for every output. The
folded result must have a single user and be float: quantised products cannot be merged without another rounding. For
the same reason, neither it nor weights that change may have a given type.

With ``most_ratio``, factors stay before a layer if the ratio of two factors among the inputs of an output is larger.
Folded factors would leave no resolution for small weights, because all weights share a scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    LAYERS,
    OperatorPattern,
    PatternPass,
    WeightedLayer,
    activation,
    constant_name,
    copy_of,
    is_real,
    is_used_once,
    plain,
    real,
    real_constant,
    shape_of,
    stack_inputs,
)
from odc_mlir.transforms.quant.common.given import read_given

AFFINE = frozenset({"ADD", "SUB", "MUL", "DIV"})


@dataclass(frozen=True)
class CircleFuseBatchNormPass(PatternPass):
    """Fold channel-wise sums and products into layers."""

    name = "circle-fuse-batch-norm"

    most_ratio: float = 0.0
    """Largest ratio of factors, among the inputs of one output, to fold into the following layer. 0 allows any."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FuseBehind, FuseBefore)

    def configured(self) -> Sequence[RewritePattern]:
        return [FuseBehind(), FuseBefore(most_ratio=self.most_ratio or math.inf)]


class ScaleAndShift(NamedTuple):
    """``value * factor + shift`` with real arrays in the constant's own shape."""

    value: SSAValue
    factor: NDArray[Any]
    shift: NDArray[Any]


def affine_of(op: CircleOp) -> ScaleAndShift | None:
    """Return the effect of ADD, SUB, MUL or DIV on the only computed operand, or None."""
    left, right = (real_constant(operand) for operand in op.operands)
    if (left is None) == (right is None):
        return None
    value = op.operands[1 if right is None else 0]
    if not is_real(value) or shape_of(value) is None or shape_of(value) != shape_of(op.results[0]):
        return None
    name = op.SPEC.name
    if right is None:
        assert left is not None
        number = left.astype(np.float64)
        one = np.ones_like(number)
        known = {"ADD": (one, number), "SUB": (-one, number), "MUL": (number, 0 * one)}
        return ScaleAndShift(value, *known[name]) if name in known else None
    number = right.astype(np.float64)
    one = np.ones_like(number)
    if name == "DIV":
        return ScaleAndShift(value, 1 / number, 0 * one) if np.all(number) else None
    return ScaleAndShift(value, *{"ADD": (one, number), "SUB": (one, -number), "MUL": (number, 0 * one)}[name])


@dataclass(frozen=True)
class FuseBehind(OperatorPattern):
    """Fold a sum or product of ``names`` into the layer before it, one of ``layers``."""

    names: frozenset[str] = AFFINE
    layers: frozenset[str] = LAYERS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        affine = affine_of(op)
        found = None if affine is None else WeightedLayer.with_reals(plain(affine.value, *self.layers))
        if affine is None or found is None or not is_used_once(affine.value):
            return
        layer, weights, bias = found
        factor, shift = (per_channel(part, len(bias)) for part in (affine.factor, affine.shift))
        if factor is None or shift is None:
            return
        scaled = weights * layer.per_output(factor, weights.ndim)
        if replace_layer(layer, op, scaled, bias * factor + shift, rewriter):
            rewriter.erase(layer.op)


@dataclass(frozen=True)
class FuseBefore(OperatorPattern):
    """Fold a sum or product of ``affine`` into the only reader, if this is a layer of ``names``."""

    names: frozenset[str] = LAYERS
    affine: frozenset[str] = AFFINE
    most_ratio: float = math.inf

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = WeightedLayer.with_reals(op)
        before = None if found is None else plain(op.operands[found[0].input], *self.affine)
        affine = None if before is None else affine_of(before)
        if found is None or before is None or affine is None or not is_used_once(before.results[0]):
            return
        layer, weights, bias = found
        vectors = _per_input(layer, affine, weights)
        if vectors is None or (np.any(vectors[1]) and not _sees_everything(layer)):
            return
        factor, shift = vectors
        if _ratio(layer, factor, weights) > self.most_ratio:
            return
        others = tuple(axis for axis in range(weights.ndim) if axis != layer.axis)
        moved = bias + (weights * shift).sum(axis=others)
        if replace_layer(layer, op, weights * factor, moved, rewriter, source=affine.value):
            rewriter.erase(before)


def per_channel(array: NDArray[Any], channels: int) -> NDArray[Any] | None:
    """Return a number per channel of the last dimension, or None if numbers vary along earlier dimensions."""
    if array.size == 1:
        return np.full(channels, array.reshape(-1)[0])
    if array.ndim and array.shape[-1] == channels == array.size:
        return np.asarray(array).reshape(-1)
    return None


def _per_input(
    layer: WeightedLayer, affine: ScaleAndShift, weights: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return factor and shift of the input in shapes that broadcast against the weights."""
    shape = shape_of(affine.value)
    if shape is None:
        return None
    if layer.op.SPEC.name == "FULLY_CONNECTED":
        rows = (_rows(part, shape, weights.shape[1]) for part in (affine.factor, affine.shift))
        factor, shift = rows
        return None if factor is None or shift is None else (factor, shift)
    channels = shape[-1]
    places = None if channels is None else stack_inputs(layer, weights, channels)
    if channels is None or places is None:
        return None
    factor, shift = (per_channel(part, channels) for part in (affine.factor, affine.shift))
    return None if factor is None or shift is None else (factor[places], shift[places])


def _rows(part: NDArray[Any], shape: tuple[int | None, ...], columns: int) -> NDArray[Any] | None:
    if part.size == 1:
        return np.full(columns, part.reshape(-1)[0])
    if any(extent is None for extent in shape):
        return np.asarray(part).reshape(-1) if part.size == part.shape[-1] == shape[-1] == columns else None
    rows = np.broadcast_to(part, [extent or 0 for extent in shape]).reshape(-1, columns)
    return rows[0] if len(rows) and np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)) else None


def _ratio(layer: WeightedLayer, factor: NDArray[Any], weights: NDArray[Any]) -> float:
    """Return the largest ratio between nonzero factors of the inputs of one output."""
    every = np.broadcast_to(np.abs(factor), weights.shape)
    rows = np.moveaxis(every, layer.axis, 0).reshape(weights.shape[layer.axis], -1)
    most, least = rows.max(axis=1, initial=0.0), np.where(rows > 0, rows, np.inf).min(axis=1, initial=np.inf)
    return float((most / least).max(initial=0.0))


def _sees_everything(layer: WeightedLayer) -> bool:
    """Return whether every output is a sum over all weights: no taps are in the padding or cropped."""
    if layer.op.SPEC.name == "TRANSPOSE_CONV":
        return False
    return layer.op.SPEC.name == "FULLY_CONNECTED" or layer.op.option("padding") == "valid"


def replace_layer(
    layer: WeightedLayer,
    op: CircleOp,
    weights: NDArray[Any],
    bias: NDArray[Any],
    rewriter: PatternRewriter,
    source: SSAValue | None = None,
) -> bool:
    """Replace ``op`` by ``layer`` with these weights and bias, and the activation of ``op``.

    ``source``: the layer's new input, if any. Returns False if the constants exceed float32, or if the value between
    layer and ``op``, or changed weights, have a given type: they were rounded.
    """
    with np.errstate(over="ignore", under="ignore"):
        narrow = [np.asarray(part).astype(np.float32) for part in (weights, bias)]
    if not all(np.isfinite(part).all() for part in narrow):
        return False
    old, given = layer.op.operands[layer.weights], {} if op is layer.op and source is None else read_given(op)
    between = layer.op.results[0] if source is None else layer.op.operands[layer.input]
    if value_name(between) in given or (value_name(old) in given and np.any(narrow[0] != real_constant(old))):
        return False
    made = [real(narrow[0], constant_name(old, layer.name, "weights"))]
    if layer.bias_value is not None or np.any(narrow[1]):
        made.append(real(narrow[1], constant_name(layer.bias_value, layer.name, "bias")))
    operands = list(layer.op.operands)
    operands[layer.input] = operands[layer.input] if source is None else source
    operands[layer.weights] = made[0].result
    if len(made) > 1:
        operands[layer.bias :] = [made[1].result]
    merged = copy_of(layer.op, operands, op.results[0], {"fused_activation_function": activation(op)})
    rewriter.replace(op, [*made, merged])
    return True
