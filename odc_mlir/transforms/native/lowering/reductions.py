"""Lowering of reductions, of pools and of interpolated images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.numerics.int16 import softmax16_params, softmax16_tables
from odc_mlir.numerics.resize import ONE, axis_line, in_fixed_point
from odc_mlir.numerics.softmax import exponentials, softmax_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import normal_axis, option, window_options
from odc_mlir.ops.pooling import pool_window
from odc_mlir.ops.resize import resize_modes
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import fused_activation, scale_of
from odc_mlir.runtime.kernels.reduction import axes_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.kernels.rows import NAMES, TYPES
from odc_mlir.transforms.native.kernels.windows import AVERAGE, KINDS, MAX, ROOT
from odc_mlir.transforms.native.lowering.arithmetic import Arguments, Codes, bounds_of, constants
from odc_mlir.transforms.native.lowering.moves import Windows, padded_input, transposed
from odc_mlir.transforms.native.lowering.segment_writer import (
    KernelPattern,
    Number,
    SegmentFunction,
    Write,
    count,
    is_real,
    raised,
    refusal,
    require_same_codes,
    size_bytes,
)

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


_STORED = {"bool": "uint8", "int8": "uint8"}
_OF_TRUTHS = {"REDUCE_ANY": "REDUCE_MAX", "REDUCE_ALL": "REDUCE_MIN"}
_LEAST_NORM = 1e-6
_MEAN = {"how": AVERAGE, "kind": KINDS.index("float32"), "zero": 0, "clamp": 0}
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Middle:
    """A tensor as ``[outer, count, inner]``, with its axes in ``order`` if the reduced ones are not neighbours."""

    order: tuple[int, ...]
    outer: int
    count: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axes: Sequence[int]) -> Middle:
        """Return the form with the sorted ``axes`` in the middle."""
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        together = list(axes) == list(range(axes[0], axes[0] + len(axes))) if axes else True
        before = [axis for axis in kept if not axes or axis < axes[0]] if together else kept
        after = [axis for axis in kept if axis not in before]
        outer, middle, inner = (math.prod(shape[axis] for axis in part) for part in (before, axes, after))
        return Middle((*before, *axes, *after), outer, middle, inner)

    @staticmethod
    def of_axes(node: Node) -> Middle:
        """Return the form for the axes in operand 1; refuse computed axes."""
        x = node.operand(0)
        if not node.operand(1).is_const:
            raise refusal(node, "computed axes have no native kernel")
        if x.is_const:
            raise refusal(node, "a constant input has no native kernel")
        return Middle.of(x.static_shape, axes_of(node, node.const(1), len(x.static_shape)))

    @staticmethod
    def of_axis(node: Node) -> Middle:
        """Return the form for the single axis in operand 1, a constant."""
        shape = node.operand(0).static_shape
        return Middle.of(shape, (normal_axis(node, int(node.const(1).reshape(-1)[0]), len(shape)),))

    @property
    def arguments(self) -> dict[str, int]:
        """Arguments of kernels."""
        return {"outer": self.outer, "count": self.count, "inner": self.inner}

    def source(self, segment: SegmentFunction, info: TensorInfo) -> SSAValue:
        """Return the first operand in that order."""
        return transposed(segment, segment.operand(0), info, self.order)


class LowerReductionToKernels(KernelPattern):
    """Sums, products and extremes; sums of 8-bit and 16-bit quantised values are requantised."""

    operators = ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out, name = node.operand(0), node.results[0], _OF_TRUTHS.get(node.spec.name, node.spec.name)
        if name == "SUM" and x.dtype in CODE_DTYPES:
            return LowerMeanToKernels.plan(node, machine)
        if x.dtype == "bool" and name in ("SUM", "REDUCE_PROD"):
            name = "REDUCE_MAX" if name == "SUM" else "REDUCE_MIN"
        kind = _STORED.get(x.dtype, x.dtype)
        is_extreme = name in ("REDUCE_MAX", "REDUCE_MIN")
        if kind not in TYPES or (not is_extreme and (x.quant is not None or x.dtype in CODE_DTYPES)):
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        require_same_codes(node, x, out)
        middle = Middle.of_axes(node)
        if middle.inner == 1 and kind == "float32" and name == "SUM":
            return _sum_rows(node, middle, 1.0)
        options = {"name": NAMES.index(name), "kind": TYPES.index(kind), "wide": int(middle.inner > LANES // 2)}

        def write(segment: SegmentFunction) -> None:
            source = middle.source(segment, x)
            segment.call("reduce", options, input=source, output=segment.result(out), **middle.arguments)

        return write


def _sum_rows(node: Node, middle: Middle, scale: float) -> Write:
    """Plan sums of rows of float32, times ``scale``."""

    def write(segment: SegmentFunction) -> None:
        source, target = middle.source(segment, node.operand(0)), segment.result(node.results[0])
        numbers = {"outer": middle.outer, "count": middle.count, "scale": scale}
        segment.call("sum_rows", {}, input=source, output=target, **numbers)

    return write


class LowerMeanToKernels(KernelPattern):
    """MEAN (and SUM of quantised values): a depthwise convolution of rows whose weights are one."""

    operators = ("MEAN",)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, middle = node.operand(0), Middle.of_axes(node)
        windows = Windows.of_rows(middle.outer, middle.count, middle.inner)
        if not is_real(node) or x.dtype == "int16":
            arithmetic = Codes.of_mean(node, middle.count, middle.inner)
            write_sums = arithmetic.by_channel(windows, arithmetic.weights)
            return lambda segment: segment.emit_for(write_sums, (middle.source(segment, x),))
        if middle.inner == 1:
            return _sum_rows(node, middle, 1.0 / middle.count)

        def write(segment: SegmentFunction) -> None:
            source, target = middle.source(segment, x), segment.result(node.results[0])
            pool(segment, windows, _MEAN, source, target, low=0.0, high=0.0)

        return write


class LowerPlaceOfExtremeToKernels(KernelPattern):
    """ARG_MAX and ARG_MIN."""

    operators = ("ARG_MAX", "ARG_MIN")

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
        if kind not in TYPES or out.dtype not in ("int32", "int64") or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
        middle = Middle.of_axis(node)
        largest = int(node.spec.name == "ARG_MAX")
        options = {"largest": largest, "kind": TYPES.index(kind), "long": int(out.dtype == "int64")}

        def write(segment: SegmentFunction) -> None:
            source = segment.operand(0)
            segment.call("place_of_extreme", options, input=source, output=segment.result(out), **middle.arguments)

        return write


class LowerCumsumToKernels(KernelPattern):
    """CUMSUM of float32 and plain integers."""

    operators = ("CUMSUM",)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        if x.dtype not in ("float32", "int32", "int64") or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
        middle = Middle.of_axis(node)
        modes = {name: int(bool(option(node, name))) for name in ("exclusive", "reverse")}
        options = {"kind": TYPES.index(x.dtype), **modes}

        def write(segment: SegmentFunction) -> None:
            source = segment.operand(0)
            segment.call("running_sum", options, input=source, output=segment.result(out), **middle.arguments)

        return write


class LowerSoftmaxToKernels(KernelPattern):
    """SOFTMAX along the last axis: float32, or quantised values with TensorFlow Lite's scale of the result."""

    operators = ("SOFTMAX",)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        x, out, beta = node.operand(0), node.results[0], float(option(node, "beta"))
        if is_real(node) and x.dtype != "int16":
            return _by_rows(node, "softmax_reals", "classes", {"beta": beta})
        if x.dtype not in CODE_DTYPES or out.dtype != x.dtype:
            raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
        (scale, _), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
        wide = x.dtype == "int16"
        steps, least = (1 << 15, 0) if wide else (256, out.info.range[0])
        if abs(out_scale * steps - 1) >= _TOLERANCE or out_zero != least:
            raise refusal(node, f"a result of {out.dtype} of scale {out_scale} has no native kernel")
        if wide:
            powers, inverses = softmax16_tables(*softmax16_params(scale, beta))
            return _by_rows(node, "softmax_wide", "classes", {"terms": powers, "inverses": inverses.astype(np.int32)})
        values, terms = (table.astype(np.int32) for table in exponentials(*softmax_params(scale, beta)))
        return _by_rows(node, "softmax_codes", "classes", {"values": values, "terms": terms})


class LowerLogSoftmaxToKernels(KernelPattern):
    """LOG_SOFTMAX of float32 along the last axis."""

    operators = ("LOG_SOFTMAX",)

    @classmethod
    def applies(cls, node: Node) -> bool:
        return is_real(node)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        return _by_rows(node, "log_softmax_reals", "classes")


class LowerL2NormalizationToKernels(KernelPattern):
    """L2_NORMALIZATION of float32 along the last axis."""

    operators = ("L2_NORMALIZATION",)

    @classmethod
    def applies(cls, node: Node) -> bool:
        return is_real(node)

    @classmethod
    def plan(cls, node: Node, machine: CpuTarget) -> Write:
        return _by_rows(node, "l2_normalize_reals", "depth", {"least": _LEAST_NORM})


def _by_rows(node: Node, kernel: str, size: str, arguments: Arguments | None = None) -> Write:
    """Plan a kernel on rows along the last axis, whose parameter for their length is ``size``."""
    x, out = node.operand(0), node.results[0]
    if is_real(node) and (x.dtype != "float32" or fused_activation(node) != "none"):
        raise refusal(node, f"an input of {x.dtype} or a fused activation has no native kernel")
    length = x.static_shape[-1]

    def write(segment: SegmentFunction) -> None:
        sizes = {"rows": count(x) // length, size: length}
        given = constants(segment, arguments or {})
        segment.call(kernel, {}, input=segment.operand(0), output=segment.result(out), **sizes, **given)

    return write
