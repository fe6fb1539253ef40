"""Layers joined with each other and made of channel-wise products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue, Use
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.infer.common import transposed_pad
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import affine_of, per_channel
from odc_mlir.transforms.common.rewriting import (
    LAYERS,
    OperatorPattern,
    WeightedLayer,
    activation,
    constant,
    constant_name,
    copy_of,
    is_real,
    is_used_once,
    make_constant,
    operator,
    producer,
    real,
    shape_of,
)


class SumOfLayers(OperatorPattern):
    """The sum of two FULLY_CONNECTED layers of one input is one layer with the sums of weights and biases."""

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        both = [WeightedLayer.of(producer(value, "FULLY_CONNECTED")) for value in op.operands]
        first, second = both
        if first is None or second is None or first.op is second.op:
            return
        if first.op.operands[0] is not second.op.operands[0] or not is_real(op.results[0]):
            return
        if any(not is_used_once(layer.result) or activation(layer.op) != "none" for layer in (first, second)):
            return
        weights = (first.real_weights(), second.real_weights())
        if weights[0] is None or weights[1] is None or weights[0].shape != weights[1].shape:
            return
        biases = [layer.real_bias(weights[0].shape[0]) for layer in (first, second)]
        if biases[0] is None or biases[1] is None or shape_of(first.result) != shape_of(op.results[0]):
            return
        name = value_name(op.results[0])
        total, bias = real(weights[0] + weights[1], f"{name}/weights"), real(biases[0] + biases[1], f"{name}/bias")
        operands = first.operands_with(total.result, bias.result)
        made = copy_of(first.op, operands, op.results[0], {"fused_activation_function": activation(op)})
        rewriter.replace(op, [total, bias, made], [made.results[0]])


class CutTransposedConvolution(OperatorPattern):
    """SLICE that keeps all images and channels of a TRANSPOSE_CONV is one with a smaller result.

    What is cut off before must be what padding would cut off a result of that size, by every reader's rule.
    """

    names = frozenset({"SLICE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        layer = producer(op.operands[0], "TRANSPOSE_CONV")
        begin = constant(op.operands[1])
        if layer is None or begin is None or not is_used_once(layer.results[0]) or not is_real(op.results[0]):
            return
        shapes = [shape_of(value) for value in (op.results[0], layer.results[0], layer.operands[2], layer.operands[1])]
        known = [[extent for extent in shape or () if extent is not None] for shape in shapes]
        if any(len(extents) != 4 for extents in known):
            return
        after, before, source, weights = known
        if (after[0], after[3]) != (before[0], before[3]):
            return
        for axis, name in ((1, "stride_h"), (2, "stride_w")):
            taps, stride = weights[axis], int(layer.option(name))
            size = (source[axis], taps, stride)
            cut = transposed_pad(*size, str(layer.option("padding")), before[axis]) + int(begin[axis])
            if transposed_pad(*size, "same", after[axis]) != cut or -(-after[axis] // stride) != source[axis]:
                return
        wanted = make_constant(np.array(after, np.int32), "int32", f"{value_name(op.results[0])}/shape")
        made = copy_of(layer, [wanted.result, *layer.operands[1:]], op.results[0], {"padding": "same"})
        rewriter.replace(op, [wanted, made], [made.results[0]])


class ChannelsToDepthwise(OperatorPattern):
    """A sum or product of an image with one number for each channel is a 1x1 DEPTHWISE_CONV_2D."""

    names = frozenset({"ADD", "SUB", "MUL", "DIV"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        affine = affine_of(op)
        shape = None if affine is None else shape_of(affine.value)
        if affine is None or shape is None or len(shape) != 4 or shape[3] is None or shape != shape_of(op.results[0]):
            return
        factor, shift = per_channel(affine.factor, shape[3]), per_channel(affine.shift, shape[3])
        if factor is None or shift is None:
            return
        name = value_name(op.results[0])
        weights = real(np.asarray(factor).reshape(1, 1, 1, -1), f"{name}/filter")
        bias = real(np.asarray(shift), f"{name}/bias")
        options = {
            "padding": "valid",
            "stride_w": 1,
            "stride_h": 1,
            "depth_multiplier": 1,
            "fused_activation_function": activation(op),
        }
        made = operator("DEPTHWISE_CONV_2D", [affine.value, weights.result, bias.result], op.results[0], options)
        rewriter.replace(op, [weights, bias, made], [made.results[0]])


class PreActivation(OperatorPattern):
    """Fold batch normalisation and RELU before convolutions whose input has other readers.

    ``relu(x * gamma + beta)`` with ``gamma > 0`` is ``relu(x + beta / gamma) * gamma``. The convolutions that read it
    take the factor; the layer that makes ``x`` takes the shift, and the layers whose results are added to ``x`` take
    it back.
    """

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        product = producer(next(iter(op.operands)), "MUL") or producer(op.operands[1], "MUL")
        if product is None or activation(op) != "relu" or not is_used_once(product.results[0]):
            return
        scaled, moved = affine_of(product), affine_of(op)
        shape = None if scaled is None else shape_of(scaled.value)
        if scaled is None or moved is None or shape is None or len(shape) != 4 or shape[3] is None:
            return
        gamma, beta = per_channel(scaled.factor, shape[3]), per_channel(moved.shift, shape[3])
        if gamma is None or beta is None or not np.all(gamma > 0) or activation(product) != "none":
            return
        readers = [_layer_reading(use, op.results[0]) for use in op.results[0].uses]
        shifts = _shifts(scaled.value, product, beta / gamma)
        if not readers or any(reader is None for reader in readers) or shifts is None:
            return
        if any(number != number or abs(number) == np.inf for number in beta / gamma):
            return
        for layer, shift in shifts:
            _set_bias(layer, shift, rewriter)
        for reader in readers:
            if reader is not None:
                _scale_inputs(reader, gamma, rewriter)
        rewriter.replace(op, operator("RELU", [scaled.value], op.results[0]))
        rewriter.erase(product)


def _layer_reading(use: Use, value: SSAValue) -> WeightedLayer | None:
    """The convolution with constant weights that reads ``value`` as its input."""
    layer = WeightedLayer.of(use.operation)
    if layer is None or layer.op.SPEC.name != "CONV_2D" or use.index != layer.input:
        return None
    weights = layer.real_weights()
    shape = shape_of(value)
    return layer if weights is not None and shape is not None and weights.shape[-1] == shape[-1] else None


Shifts = list[tuple[WeightedLayer, NDArray[Any]]]


def _shifts(value: SSAValue, normalisation: CircleOp, shift: NDArray[Any]) -> Shifts | None:
    """Return changes of biases that add ``shift`` to ``value`` only; None if there are none."""
    source = _plain_layer(value)
    found: Shifts = []
    if source is None:
        total = producer(value, "ADD")
        parts = [] if total is None or activation(total) != "none" else list(total.operands)
        alone = [layer for item in parts if is_used_once(item) and (layer := _plain_layer(item)) is not None]
        if not alone:
            return None
        source = alone[0]
    found.append((source, shift))
    for use in value.uses:
        reader = use.operation
        if reader is normalisation:
            continue
        if not isinstance(reader, CircleOp) or reader.SPEC.name != "ADD" or activation(reader) != "none":
            return None
        other = reader.operands[1 - use.index]
        layer = _plain_layer(other) if is_used_once(other) else None
        if layer is None or layer.op is source.op or shape_of(other) != shape_of(value):
            return None
        found.append((layer, -shift))
    return found if len({layer.op for layer, _ in found}) == len(found) else None


def _plain_layer(value: SSAValue) -> WeightedLayer | None:
    """The layer with constant weights, a bias that can change and no activation that gives ``value``."""
    layer = WeightedLayer.of(producer(value, *LAYERS))
    weights = None if layer is None else layer.real_weights()
    if layer is None or weights is None or activation(layer.op) != "none":
        return None
    return layer if layer.real_bias(weights.shape[layer.axis]) is not None else None


def _set_bias(layer: WeightedLayer, shift: NDArray[Any], rewriter: PatternRewriter) -> None:
    bias = layer.real_bias(len(shift))
    assert bias is not None
    made = real(bias + shift, constant_name(layer.bias_value, layer.name, "bias"))
    rewriter.insert(made, InsertPoint.before(layer.op))
    layer.op.operands = layer.operands_with(layer.op.operands[layer.weights], made.result)
    rewriter.notify_op_modified(layer.op)


def _scale_inputs(layer: WeightedLayer, factor: NDArray[Any], rewriter: PatternRewriter) -> None:
    weights = layer.real_weights()
    assert weights is not None
    old = layer.op.operands[layer.weights]
    made = real(weights * factor, constant_name(old, layer.name, "weights"))
    rewriter.insert(made, InsertPoint.before(layer.op))
    layer.op.operands[layer.weights] = made.result
    rewriter.notify_op_modified(layer.op)
