"""Lowering of pools and of interpolated images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.numerics.resize import ONE, axis_line, in_fixed_point
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.infer.pooling import pool_window
from odc_mlir.ops.infer.resize import resize_modes
from odc_mlir.ops.spec import Node
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.pooling import AVERAGE, KINDS, MAX, ROOT
from odc_mlir.transforms.native.lowering.arithmetic import bounds_of
from odc_mlir.transforms.native.lowering.segment_writer import (
    KernelPattern,
    Number,
    SegmentFunction,
    Write,
    raised,
    refusal,
    require_same_codes,
    size_bytes,
)
from odc_mlir.transforms.native.lowering.windows import Windows, padded_input

_STORED = {"int8": "uint8"}
_HOWS = {"MAX_POOL_2D": MAX, "AVERAGE_POOL_2D": AVERAGE, "L2_POOL_2D": ROOT}


class LowerPool2DToKernels(KernelPattern):
    """MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D.

    A kernel for whole windows reads a table of offsets; another one clips windows at the border.
    """

    operators = ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
        if kind not in KINDS or x.is_const:
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        require_same_codes(node, x, out)
        windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
        limits: dict[str, Number] = dict(zip(("low", "high"), bounds_of(node), strict=True))
        how = _HOWS[node.spec.name]
        options = {"how": how, "kind": KINDS.index(kind), "zero": 0 if how == MAX else raised(x)}
        filled = kind == "uint8" and how == MAX  # no code is below the one that fills the border
        if how != ROOT and kind != "int16" and (filled or not windows.is_padded):
            return _whole(node, windows, {**options, "clamp": 1}, limits)
        images, height, width, channels = windows.shape

        def write(segment: SegmentFunction) -> None:
            segment.call(
                "pool_inside",
                options,
                input=segment.operand(0),
                output=segment.result(out),
                ys=segment.constant(_inside(windows, 0)),
                xs=segment.constant(_inside(windows, 1)),
                images=images,
                height=height,
                width=width,
                channels=channels,
                rows=windows.output[0],
                columns=windows.output[1],
                **limits,
            )

        return write


def _whole(node: Node, windows: Windows, options: Mapping[str, int], limits: Mapping[str, Number]) -> Write:
    """Plan a pool of whole windows."""

    def write(segment: SegmentFunction) -> None:
        source = padded_input(segment, segment.operand(0), windows, 0, 1)
        pool(segment, windows, options, source, segment.result(node.results[0]), **limits)

    return write


def pool(
    segment: SegmentFunction,
    windows: Windows,
    options: Mapping[str, int],
    source: SSAValue,
    output: SSAValue,
    **limits: Number,
) -> None:
    """Emit a pool of whole windows over ``source``."""
    taps, channels = windows.taps(), windows.shape[3]
    segment.call(
        "pool",
        {**options, "taps": 0 if options["how"] == MAX else len(taps)},  # maxima share their code
        input=source,
        output=output,
        places=segment.constant(windows.places()),
        taps=segment.constant(taps),
        pixels=windows.pixels,
        channels=channels,
        blocks=-(-channels // LANES),
        tap_count=len(taps),
        **limits,
    )


def _inside(windows: Windows, axis: int) -> NDArray[np.int32]:
    """Return the first element of each window inside the image and the one behind its last."""
    before = (windows.rows, windows.columns)[axis][0]
    first = np.arange(windows.output[axis]) * windows.stride[axis] - before
    size = windows.shape[1 + axis]
    return np.stack([np.maximum(first, 0), np.minimum(first + windows.kernel[axis], size)], axis=1).astype(np.int32)


class LowerResizeBilinearToKernels(KernelPattern):
    """RESIZE_BILINEAR of ``[N, H, W, C]``; a size that stays is a copy."""

    operators = ("RESIZE_BILINEAR",)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
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

        def write(segment: SegmentFunction) -> None:
            source, target = segment.operand(0), segment.result(out)
            if (height, width) == (rows, columns):
                segment.call("copy", {}, input=source, output=target, count=size_bytes(out))
                return
            (ys, wy), (xs, wx) = line(height, rows), line(width, columns)
            segment.call(
                "interpolate",
                {"kind": KINDS.index(kind), "fixed": int(fixed)},
                input=source,
                output=target,
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
