"""Rewrites of layers: merged layers, layers for channel-wise products, and moves from channels to pixels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue, Use
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.ops.infer.common import transposed_pad
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import affine_of, per_channel, replace_layer
from odc_mlir.transforms.circle.rewrites.layout import is_simple
from odc_mlir.transforms.common import rewriting


class SumOfLayers(rewriting.OperatorPattern):
    """Merge FULLY_CONNECTED layers ``f(x) + g(x)`` with the same input: add the weights, and add the biases."""

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        both = [rewriting.WeightedLayer.with_reals(rewriting.plain(value, "FULLY_CONNECTED")) for value in op.operands]
        if both[0] is None or both[1] is None or not all(map(rewriting.is_used_once, op.operands)):
            return
        (first, weights, bias), (second, more_weights, more_bias) = both[0], both[1]
        if first.op.operands[0] is not second.op.operands[0] or weights.shape != more_weights.shape:
            return
        if rewriting.shape_of(first.result) != rewriting.shape_of(op.results[0]) or not rewriting.is_real(
            op.results[0]
        ):
            return
        name, source = value_name(op.results[0]), first.op.operands[0]
        made = [
            rewriting.real(weights + more_weights, f"{name}/weights"),
            rewriting.real(bias + more_bias, f"{name}/bias"),
        ]
        operands = [source, *(constant.result for constant in made)]
        whole = rewriting.copy_of(
            first.op, operands, op.results[0], {"fused_activation_function": rewriting.activation(op)}
        )
        rewriter.replace(op, [*made, whole])


class CutTransposedConvolution(rewriting.OperatorPattern):
    """Replace SLICE of rows and columns of a TRANSPOSE_CONV by a TRANSPOSE_CONV with a smaller result.

    The slice must remove at the start exactly the padding that every runtime derives from the smaller result's size.
    """

    names = frozenset({"SLICE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        layer = rewriting.producer(op.operands[0], "TRANSPOSE_CONV")
        begin = rewriting.constant(op.operands[1])
        if (
            layer is None
            or begin is None
            or not rewriting.is_used_once(layer.results[0])
            or not rewriting.is_real(op.results[0])
        ):
            return
        shapes = [
            rewriting.shape_of(value)
            for value in (op.results[0], layer.results[0], layer.operands[2], layer.operands[1])
        ]
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
        wanted = rewriting.indices(after, f"{value_name(op.results[0])}/shape")
        made = rewriting.copy_of(layer, [wanted.result, *layer.operands[1:]], op.results[0], {"padding": "same"})
        rewriter.replace(op, [wanted, made])


class ChannelsToDepthwise(rewriting.OperatorPattern):
    """Replace a sum or product of an image and one number per channel by a 1x1 DEPTHWISE_CONV_2D."""

    names = frozenset({"ADD", "SUB", "MUL", "DIV"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        affine = affine_of(op)
        shape = None if affine is None else rewriting.shape_of(affine.value)
        if (
            affine is None
            or shape is None
            or len(shape) != 4
            or shape[3] is None
            or shape != rewriting.shape_of(op.results[0])
        ):
            return
        factor, shift = per_channel(affine.factor, shape[3]), per_channel(affine.shift, shape[3])
        if factor is None or shift is None:
            return
        name = value_name(op.results[0])
        weights = rewriting.real(np.asarray(factor).reshape(1, 1, 1, -1), f"{name}/filter")
        bias = rewriting.real(np.asarray(shift), f"{name}/bias")
        options = {
            "padding": "valid",
            "stride_w": 1,
            "stride_h": 1,
            "depth_multiplier": 1,
            "fused_activation_function": rewriting.activation(op),
        }
        made = rewriting.operator(
            "DEPTHWISE_CONV_2D", [affine.value, weights.result, bias.result], op.results[0], options
        )
        rewriter.replace(op, [weights, bias, made])


class PreActivation(rewriting.OperatorPattern):
    """Fold batch normalisation and RELU before convolutions if other operators also read the input.

    ``relu(x * gamma + beta)`` with ``gamma > 0`` is ``relu(x + beta / gamma) * gamma``. The factor is folded into the
    convolutions that read the result, and the shift into the layer that computes ``x``. The other readers of ``x`` add
    it to results of layers. The biases of these layers subtract the shift again.
    """

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        product = rewriting.plain(op.operands[0], "MUL") or rewriting.plain(op.operands[1], "MUL")
        if product is None or rewriting.activation(op) != "relu" or not rewriting.is_used_once(product.results[0]):
            return
        scaled, moved = affine_of(product), affine_of(op)
        shape = None if scaled is None else rewriting.shape_of(scaled.value)
        if scaled is None or moved is None or shape is None or len(shape) != 4 or shape[3] is None:
            return
        gamma, beta = per_channel(scaled.factor, shape[3]), per_channel(moved.shift, shape[3])
        if gamma is None or beta is None or not np.all(gamma > 0) or not np.isfinite(beta / gamma).all():
            return
        readers = [_layer_reading(use, shape[3]) for use in op.results[0].uses]
        shifts = _shifts(scaled.value, product, beta / gamma)
        if not readers or shifts is None or any(reader is None for reader in readers):
            return
        for layer, bias in shifts:
            layer.set_constants(None, bias)
        for layer, weights in filter(None, readers):
            layer.set_constants(weights * gamma, None)
        for layer, _ in (*shifts, *filter(None, readers)):
            rewriter.notify_op_modified(layer.op)
        rewriter.replace(op, rewriting.operator("RELU", [scaled.value], op.results[0]))
        rewriter.erase(product)


def _layer_reading(use: Use, channels: int) -> tuple[rewriting.WeightedLayer, rewriting.Reals] | None:
    layer = rewriting.WeightedLayer.of(use.operation)
    if layer is None or layer.op.SPEC.name != "CONV_2D" or use.index != layer.input:
        return None
    weights = layer.real_weights()
    return (layer, weights) if weights is not None and weights.shape[-1] == channels else None


Shifts = list[tuple[rewriting.WeightedLayer, NDArray[Any]]]


def _shifts(value: SSAValue, normalisation: CircleOp, shift: NDArray[Any]) -> Shifts | None:
    """Return biases of layers that add ``shift`` only to ``value``, or None."""
    source, total = _plain_layer(value), rewriting.plain(value, "ADD")
    for item in total.operands if source is None and total is not None else ():
        source = source or (_plain_layer(item) if rewriting.is_used_once(item) else None)
    if source is None:
        return None
    found: Shifts = [(source[0], source[1] + shift)]
    for use in value.uses:
        if use.operation is normalisation:
            continue
        if not isinstance(use.operation, CircleOp) or rewriting.plain(use.operation.results[0], "ADD") is None:
            return None
        other = use.operation.operands[1 - use.index]
        known = (
            _plain_layer(other)
            if rewriting.is_used_once(other) and rewriting.shape_of(other) == rewriting.shape_of(value)
            else None
        )
        if known is None:
            return None
        found.append((known[0], known[1] - shift))
    return found if len({layer.op for layer, _ in found}) == len(found) else None


def _plain_layer(value: SSAValue) -> tuple[rewriting.WeightedLayer, rewriting.Reals] | None:
    found = rewriting.WeightedLayer.with_reals(rewriting.plain(value, *rewriting.LAYERS))
    return None if found is None else (found[0], found[2])


class DepthToSpace(rewriting.OperatorPattern):
    """Replace TRANSPOSE from blocks of channels to pixels by DEPTH_TO_SPACE.

    The TRANSPOSE converts ``[N, H, W, C, r, r]`` to ``[N, H, r, W, r, C]``. If the result of a convolution was
    transposed to channels first, it converts ``[N, C, r, r, H, W]`` to ``[N, C, H, r, W, r]``, and the result of
    DEPTH_TO_SPACE is transposed in the same way. With several channels, the convolution's weights are reordered to the
    channel order of DEPTH_TO_SPACE.
    """

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view, order = rewriting.producer(op.operands[0], "RESHAPE"), rewriting.constant(op.operands[1])
        if view is None or order is None or not is_simple(view.operands[0]):
            return
        image, turned = view.operands[0], rewriting.producer(view.operands[0], "TRANSPOSE")
        found = _blocks(view, order, _LAST)
        if found is None and turned is not None and _is_order(turned, _NCHW):
            found, image = _blocks(view, order, _FIRST), turned.operands[0]
            if rewriting.producer(image, "CONV_2D", "TRANSPOSE_CONV") is None or not rewriting.is_used_once(
                turned.results[0]
            ):
                return
        shape = rewriting.static_shape_of(image)
        if found is None or shape is None or rewriting.static_shape_of(op.results[0]) is None:
            return
        block, channels = found
        is_last = image is view.operands[0]
        if channels > 1:
            ordered = _in_order(image, view, block, channels, rewriter)
            if ordered is None:
                return
            image = ordered
        self._put(op, image, (shape[0], shape[1] * block, shape[2] * block, channels), block, is_last, rewriter)

    def _put(
        self,
        op: CircleOp,
        image: SSAValue,
        pixels: tuple[int, int, int, int],
        block: int,
        is_last: bool,
        rewriter: PatternRewriter,
    ) -> None:
        result = op.results[0]
        made: list[CircleOp | ConstOp] = [
            rewriting.part("DEPTH_TO_SPACE", [image], result, "pixels", pixels, block_size=block)
        ]
        if not is_last:
            order = rewriting.indices(_NCHW, f"{value_name(result)}/perm")
            shape = tuple(pixels[axis] for axis in _NCHW)
            made += [order, rewriting.part("TRANSPOSE", [made[0].results[0], order.result], result, "turned", shape)]
        rewriter.replace(op, [*made, *rewriting.reshaped(made[-1].results[0], result)])


class _Form(NamedTuple):
    """Layout of images.

    Numbers 0 to 5 mean batch, height, width, channels, and the rows and columns of the block. ``image``: positions of
    0 to 3 in an image. ``parts``, ``turned``: dimensions before and after the TRANSPOSE.
    """

    image: tuple[int, int, int, int]
    parts: tuple[int, ...]
    turned: tuple[int, ...]


_NCHW = (0, 3, 1, 2)
_LAST = _Form((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (0, 1, 4, 2, 5, 3))
_FIRST = _Form((0, 2, 3, 1), (0, 3, 4, 5, 1, 2), (0, 3, 1, 4, 2, 5))


def _is_order(op: CircleOp, wanted: tuple[int, ...]) -> bool:
    order = rewriting.constant(op.operands[1])
    return order is not None and tuple(int(axis) for axis in order) == wanted


def _blocks(view: CircleOp, order: NDArray[Any], form: _Form) -> tuple[int, int] | None:
    """Return block size and channels if ``order`` moves blocks of channels to pixels. Extents of 1 do not count."""
    image, parts = rewriting.static_shape_of(view.operands[0]), rewriting.static_shape_of(view.results[0])
    if image is None or parts is None or len(image) != 4 or 0 in image:
        return None
    batch, height, width, depth = (image[axis] for axis in form.image)
    kept = [axis for axis, extent in enumerate(parts) if extent != 1]
    for block in range(2, math.isqrt(depth) + 1):
        channels, rest = divmod(depth, block * block)
        sizes = (batch, height, width, channels, block, block)
        shown = [number for number in form.parts if sizes[number] != 1]
        if rest or [parts[axis] for axis in kept] != [sizes[number] for number in shown]:
            continue
        turned = [number for number in form.turned if sizes[number] != 1]
        if [shown[kept.index(int(axis))] for axis in order if int(axis) in kept] == turned:
            return block, channels
    return None


def _in_order(image: SSAValue, view: CircleOp, block: int, channels: int, rewriter: PatternRewriter) -> SSAValue | None:
    """Return the result of the convolution that computes ``image``, with its channels in block order, or None."""
    found = rewriting.WeightedLayer.with_reals(rewriting.producer(image, "CONV_2D", "TRANSPOSE_CONV"))
    if found is None or not rewriting.is_used_once(image) or not rewriting.is_used_once(view.results[0]):
        return None
    layer, weights, bias = found
    places = np.arange(len(weights)).reshape(channels, block * block).T.reshape(-1)
    (use,) = image.uses
    if not replace_layer(layer, layer.op, weights[places], bias[places], rewriter):
        return None
    return use.operation.operands[use.index]
