"""Pools and means over windows."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation

from odc_mlir.numerics.reduction import mean_params, sum_params
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.infer.pooling import pool_window
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.common import activation_codes, scale_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.convolution import FIELDS
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.lowering import layers_images
from odc_mlir.transforms.native.lowering.layers_products import padded_input, scaling_fields
from odc_mlir.transforms.native.lowering.layers_reductions import middle_of
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    raised,
    refusal,
    require_same_codes,
)
from odc_mlir.transforms.native.lowering.windows import Windows

_EIGHT_BIT = ("int8", "uint8")


def pool(kernel: str) -> CallPlanner:
    """MAX_POOL_2D and AVERAGE_POOL_2D of 8-bit codes."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
        if x.dtype not in _EIGHT_BIT or (windows.is_padded and kernel == "average_pool"):
            return layers_images.pool(node, machine)
        require_same_codes(node, x, out)
        low, high = (bound + raised(out) for bound in activation_codes(node, out))

        def write(segment: SegmentFunction, op: Operation) -> None:
            channels = x.static_shape[3]
            taps = windows.taps()
            options = {"count": len(taps), "zero": raised(x)} if kernel == "average_pool" else {}
            segment.call(
                kernel,
                options,
                input=padded_input(segment, segment.tensor(op.operands[0]), windows, 0),
                places=segment.constant(windows.places()),
                taps=segment.constant(taps),
                output=segment.result(op.results[0], out),
                pixels=windows.pixels,
                channels=channels,
                blocks=-(-channels // LANES),
                tap_count=len(taps),
                low=low,
                high=high,
            )

        return write

    return plan


def mean(node: Node, machine: CpuTarget) -> Write:
    """Means and sums of 8-bit codes: a depthwise convolution whose weights are one."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in _EIGHT_BIT or out.dtype != x.dtype:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    middle = middle_of(node)
    outer, count, inner = middle.outer, middle.count, middle.inner
    (scale, zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    q, e = sum_params(scale, out_scale) if node.spec.name == "SUM" else mean_params(scale, out_scale, count)
    if e > 0 or count * 255 >= 1 << 22:
        raise refusal(node, "the scale ratio or the number of elements is too large for the native kernel")

    def write(segment: SegmentFunction, op: Operation) -> None:
        blocks = -(-inner // LANES)
        table = np.zeros((len(FIELDS), blocks * LANES), np.int32)
        table[0] = -(zero + raised(x)) * count
        for row, value in zip(table[1:], scaling_fields(q, e), strict=True):
            row[:] = value
        low, high = out.info.range
        segment.call(
            "depthwise",
            {"rows": 1},
            input=middle.source(segment, op.operands[0], x),
            weights=segment.constant(np.ones((count, blocks * LANES), np.int16)),
            table=segment.constant(table),
            places=segment.constant((np.arange(outer) * count * inner).astype(np.int32)),
            taps=segment.constant((np.arange(count) * inner).astype(np.int32)),
            output=segment.result(op.results[0], out),
            pixels=outer,
            channels=inner,
            blocks=blocks,
            tap_count=count,
            zero=out_zero + raised(out),
            low=low + raised(out),
            high=high + raised(out),
        )

    return write


PLANS: dict[str, CallPlanner] = {
    "MAX_POOL_2D": pool("max_pool"),
    "AVERAGE_POOL_2D": pool("average_pool"),
    "MEAN": mean,
}
