"""Moves of pixels and channels that have an operator of their own."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import replace_layer
from odc_mlir.transforms.circle.layout.rules import is_simple
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    WeightedLayer,
    activation,
    constant,
    is_used_once,
    make_constant,
    operator,
    part,
    producer,
    static_shape_of,
)

Ints = NDArray[Any]


class DepthToSpace(OperatorPattern):
    """TRANSPOSE that makes pixels of blocks of channels is DEPTH_TO_SPACE of the channels in another order.

    That is ``[N, H, W, C, r, r]`` turned to ``[N, H, r, W, r, C]``, and ``[N, C, r, r, H, W]`` turned to
    ``[N, C, H, r, W, r]`` where a convolution's result was turned channels first before: then it is so again behind.
    With one channel they are in the operator's order; otherwise the convolution takes the order into its weights.
    """

    names = frozenset({"TRANSPOSE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view, order = producer(op.operands[0], "RESHAPE"), constant(op.operands[1])
        if view is None or order is None or not is_simple(view.operands[0]):
            return
        image, turned = view.operands[0], producer(view.operands[0], "TRANSPOSE")
        found = _blocks(view, order, _LAST)
        if found is None and turned is not None and _is_order(turned, _NCHW):
            found, image = _blocks(view, order, _FIRST), turned.operands[0]
            if producer(image, "CONV_2D", "TRANSPOSE_CONV") is None or not is_used_once(turned.results[0]):
                return
        shape = static_shape_of(image)
        if found is None or shape is None:
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
        extents = list(static_shape_of(result) or ())
        made: list[CircleOp | ConstOp] = [part("DEPTH_TO_SPACE", [image], result, "pixels", pixels, block_size=block)]
        if not is_last:
            order = make_constant(np.array(_NCHW, np.int32), "int32", f"{value_name(result)}/perm")
            shape = tuple(pixels[axis] for axis in _NCHW)
            made += [order, part("TRANSPOSE", [made[0].results[0], order.result], result, "turned", shape)]
        wanted = make_constant(np.array(extents, np.int32), "int32", f"{value_name(result)}/shape")
        shown = operator("RESHAPE", [made[-1].results[0], wanted.result], result, {"new_shape": extents})
        rewriter.replace(op, [*made, wanted, shown], [shown.results[0]])


class _Form(NamedTuple):
    """``image``: which dimensions of an image are batch, height, width and channels; ``parts``: how the channels are
    shown, by batch (0), height (1), width (2), channels (3) and the block's rows (4) and columns (5); ``turned``: how
    these are turned.
    """

    image: tuple[int, int, int, int]
    parts: tuple[int, ...]
    turned: tuple[int, ...]


_NCHW = (0, 3, 1, 2)
_LAST = _Form((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (0, 1, 4, 2, 5, 3))
_FIRST = _Form((0, 2, 3, 1), (0, 3, 4, 5, 1, 2), (0, 3, 1, 4, 2, 5))


def _is_order(op: CircleOp, wanted: tuple[int, ...]) -> bool:
    order = constant(op.operands[1])
    return order is not None and tuple(int(axis) for axis in order) == wanted


def _blocks(view: CircleOp, order: Ints, form: _Form) -> tuple[int, int] | None:
    """Block size and channels behind, where ``order`` makes pixels of blocks of channels; extents of 1 are nowhere."""
    image, parts = static_shape_of(view.operands[0]), static_shape_of(view.results[0])
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
    """The result of the convolution that gives ``image`` with each pixel's channels together."""
    layer = WeightedLayer.of(producer(image, "CONV_2D", "TRANSPOSE_CONV"))
    weights = None if layer is None else layer.real_weights()
    if layer is None or weights is None or not is_used_once(image) or not is_used_once(view.results[0]):
        return None
    bias = layer.real_bias(len(weights))
    if bias is None:
        return None
    places = np.arange(len(weights)).reshape(channels, block * block).T.reshape(-1)
    (use,) = image.uses
    fused = activation(layer.op)
    if not replace_layer(layer, layer.op, weights[places], bias[places], layer.op.operands, rewriter, fused):
        return None
    return use.operation.operands[use.index]
