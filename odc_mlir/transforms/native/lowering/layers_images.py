"""Pools over windows that end at the border, of any elements, and interpolation of images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from odc_mlir.numerics.fixed import real_bounds
from odc_mlir.numerics.resize import ONE, axis_line, in_fixed_point
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.infer.pooling import pool_window
from odc_mlir.ops.infer.resize import resize_modes
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.common import activation_codes, fused_activation
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.images import AVERAGE, KINDS, MAX, ROOT
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    raised,
    refusal,
    require_same_codes,
    size_bytes,
)
from odc_mlir.transforms.native.lowering.windows import Windows

_AS_HELD = {"int8": "uint8"}
_HOWS = {"MAX_POOL_2D": MAX, "AVERAGE_POOL_2D": AVERAGE, "L2_POOL_2D": ROOT}


def pool(node: Node, machine: CpuTarget) -> Write:
    """Pools of what is inside the image."""
    x, out = node.operand(0), node.results[0]
    kind = _AS_HELD.get(x.dtype, x.dtype)
    if kind not in KINDS or x.is_const:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    require_same_codes(node, x, out)
    windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
    low, high = bounds_of(node)
    options = {"how": _HOWS[node.spec.name], "kind": KINDS.index(kind), "zero": raised(x)}
    images, height, width, channels = windows.shape

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "pool_inside",
            options,
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            ys=segment.constant(_inside(windows, 0)),
            xs=segment.constant(_inside(windows, 1)),
            images=images,
            height=height,
            width=width,
            channels=channels,
            rows=windows.output[0],
            columns=windows.output[1],
            low=low,
            high=high,
        )

    return write


def bounds_of(node: Node) -> tuple[float, float]:
    """Return the limits of results, as they are held; refuse fused activations that are no limits."""
    out = node.results[0]
    if out.dtype != "float32":
        low, high = activation_codes(node, out)
        return low + raised(out), high + raised(out)
    if fused_activation(node) in ("tanh", "sign_bit"):
        raise refusal(node, f"a fused {fused_activation(node)} has no native kernel")
    return real_bounds(fused_activation(node))


def _inside(windows: Windows, axis: int) -> NDArray[np.int32]:
    """Where each window begins and ends inside the image."""
    before = (windows.rows, windows.columns)[axis][0]
    first = np.arange(windows.output[axis]) * windows.stride[axis] - before
    size = windows.shape[1 + axis]
    return np.stack([np.maximum(first, 0), np.minimum(first + windows.kernel[axis], size)], axis=1).astype(np.int32)


def resize_bilinear(node: Node, machine: CpuTarget) -> Write:
    """``[N, H, W, C]`` to ``[N, height, width, C]``, interpolated."""
    x, out = node.operand(0), node.results[0]
    kind = _AS_HELD.get(x.dtype, x.dtype)
    if kind not in KINDS or not node.operand(1).is_const:
        raise refusal(node, f"an input of {x.dtype} or a computed size has no native kernel")
    require_same_codes(node, x, out)
    align_corners, half_pixel = resize_modes(node)
    images, height, width, channels = x.static_shape
    _, rows, columns, _ = out.static_shape
    fixed = in_fixed_point(x.dtype, (height, width), (rows, columns), align_corners, half_pixel)

    def line(size: int, output: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
        low, high, fraction = axis_line(size, output, align_corners, half_pixel, fixed=fixed)
        second = fraction.astype(np.int32) if fixed else (fraction / ONE).astype(np.float32)
        one: Any = np.int32(ONE) if fixed else np.float32(1)
        return np.stack([low, high], axis=1).astype(np.int32), np.stack([one - second, second], axis=1)

    def write(segment: SegmentFunction, op: Operation) -> None:
        source = segment.tensor(op.operands[0])
        if (height, width) == (rows, columns):
            target = segment.result(op.results[0], out)
            segment.call("copy", {}, input=source, output=target, count=size_bytes(out))
            return
        (ys, wy), (xs, wx) = line(height, rows), line(width, columns)
        segment.call(
            "interpolate",
            {"kind": KINDS.index(kind), "fixed": int(fixed)},
            input=source,
            output=segment.result(op.results[0], out),
            ys=segment.constant(ys),
            xs=segment.constant(xs),
            wy=segment.constant(wy),
            wx=segment.constant(wx),
            images=images,
            height=height,
            width=width,
            channels=channels,
            rows=rows,
            columns=columns,
        )

    return write


PLANS: dict[str, CallPlanner] = {"L2_POOL_2D": pool, "RESIZE_BILINEAR": resize_bilinear}
"""Whatever the types are."""
