"""``npu-swap-axes``: turn images one pixel wide into images one pixel high.

The array computes several pixels of a row at once. For an image with one pixel per row, it would use one column only.

Before::

    %1 = npu.conv %0 kernel [3, 1] stride [2, 1] … : tensor<1x28x1x40x…> -> tensor<1x13x1x64x…>

After, with the same bytes in memory, and the taps of the weights transposed::

    %2 = npu.reshape %0 : tensor<1x28x1x40x…> -> tensor<1x1x28x40x…>
    %3 = npu.conv %2 kernel [1, 3] stride [1, 2] … : tensor<1x1x28x40x…> -> tensor<1x1x13x64x…>
    %1 = npu.reshape %3 : tensor<1x1x13x64x…> -> tensor<1x13x1x64x…>

``npu-elide-reshapes`` removes the views between adjacent operations. Applies to pooling and convolutions if image and
result are one pixel wide, and one of the two is higher than that. Results are bit-exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns

_PAIRS = ("kernel", "stride", "dilation")


class NpuSwapAxesPass(PatternPass):
    """Swap the axes of images one pixel wide."""

    name = "npu-swap-axes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (SwapAxes,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, [SwapAxes()], recursively=False)


class SwapAxes(RewritePattern):
    """Turn a window operation on images one pixel wide into the same operation on images one pixel high."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.ConvOp | npu.PoolOp, rewriter: PatternRewriter) -> None:
        (_, height, width, _), (_, out_height, out_width, _) = map(npu.shape_of, (op.input, op.output))
        if (width, out_width) != (1, 1) or max(height, out_height) == 1:
            return
        view = npu.ReshapeOp(op.input, _swapped_type(op.input))
        swapped = type(op).create(
            operands=[view.output], properties=_swapped(op), result_types=[_swapped_type(op.output)]
        )
        back = npu.ReshapeOp(swapped.results[0], op.output.type)
        for made in (view, swapped, back):
            made.location = op.location
        rewriter.replace(op, [view, swapped, back])


def _swapped_type(value: SSAValue) -> TensorType[Attribute]:
    kind = value.type
    assert isinstance(kind, TensorType), "npu operations are on tensors"
    batch, height, width, channels = kind.get_shape()
    return TensorType(kind.element_type, [batch, width, height, channels], kind.encoding)


def _swapped(op: npu.ConvOp | npu.PoolOp) -> dict[str, Attribute]:
    properties = dict(op.properties)
    for name in _PAIRS:
        pair = getattr(op, name, None)
        if pair is not None:
            properties[name] = npu.ints(reversed(tuple(pair.get_values())))
    top, left, bottom, right = op.pads.get_values()
    properties["pads"] = npu.ints((left, top, right, bottom))
    if isinstance(op, npu.ConvOp):
        taps = (0, 1) if op.depthwise else (1, 2)
        stored = np.uint8 if op.weight_item_bytes == 1 else np.uint16
        weights = np.frombuffer(op.weights.bytes, stored).reshape(op.weight_shape).swapaxes(*taps)
        properties["weights"] = BlobAttr.of(np.ascontiguousarray(weights).tobytes())
    return properties
