"""Layers joined with each other and made of channel-wise products."""

from __future__ import annotations

import numpy as np
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.infer.geometry import transposed_pad
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import affine_of, per_channel
from odc_mlir.transforms.common.rewriting import (
    Layer,
    OperatorPattern,
    activation,
    constant,
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
        both = [Layer.of(producer(value, "FULLY_CONNECTED")) for value in op.operands]
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
