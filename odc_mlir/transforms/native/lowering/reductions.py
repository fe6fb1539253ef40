"""Lowering of reductions, pools, softmax, cumulative sums and interpolated images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.numerics.int16 import softmax16_params, softmax16_tables
from odc_mlir.numerics.normalization import OF_ROWS, OF_SQUARES
from odc_mlir.numerics.resize import ONE, axis_line, in_fixed_point
from odc_mlir.numerics.softmax import exponentials, softmax_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import normal_axis, option, window_options
from odc_mlir.ops.pooling import pool_window
from odc_mlir.ops.resize import resize_modes
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.attention import integer_rms_norm
from odc_mlir.runtime.kernels.common import fused_activation, scale_of
from odc_mlir.runtime.kernels.reduction import axes_of
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.kernels.rows import NAMES, TYPES
from odc_mlir.transforms.native.kernels.windows import AVERAGE, KINDS, MAX, ROOT
from odc_mlir.transforms.native.lowering.arithmetic import Codes, bounds_of, padded_columns
from odc_mlir.transforms.native.lowering.moves import Windows, padded_input, transposed
from odc_mlir.transforms.native.lowering.segment_writer import (
    Argument,
    Array,
    EmitCalls,
    KernelPattern,
    Number,
    SegmentFunction,
    count,
    has_float_result,
    planned,
    refusal,
    require_same_codes,
    sign_offset,
    size_bytes,
)

_HOWS = {"MAX_POOL_2D": MAX, "AVERAGE_POOL_2D": AVERAGE, "L2_POOL_2D": ROOT}


class LowerPool2DToKernels(KernelPattern):
    """Lower MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D.

    One kernel for whole windows reads a table of offsets, and another kernel clips windows at the border.
    """

    operators = ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
        if kind not in KINDS or x.is_const:
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        require_same_codes(node, x, out)
        windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
        limits: dict[str, Number] = dict(zip(("low", "high"), bounds_of(node), strict=True))
        how = _HOWS[node.spec.name]
        options = {"how": how, "kind": KINDS.index(kind), "zero": 0 if how == MAX else sign_offset(x)}
        filled = kind == "uint8" and how == MAX  # the least stored value fills the border
        if how != ROOT and kind != "int16" and (filled or not windows.is_padded):
            options["clamp"] = 1
            return _pool(node, windows, options, lambda w: padded_input(w, w.operand(0), windows, 0, 1), **limits)
        sizes = dict(zip(("images", "height", "width", "channels"), windows.shape, strict=True))
        rows, columns = windows.output
        ends = {"ys": _inside(windows, 0), "xs": _inside(windows, 1)}
        return planned(node, "pool_inside", options, output=out, **ends, **sizes, rows=rows, columns=columns, **limits)


def _pool(
    node: Node,
    windows: Windows,
    options: Mapping[str, int],
    source: Callable[[SegmentFunction], SSAValue],
    **limits: Number,
) -> EmitCalls:
    taps, channels = windows.taps(), windows.shape[3]
    options = {**options, "taps": 0 if options["how"] == MAX else len(taps)}  # one kernel for maxima of any window size
    sizes = {"pixels": windows.pixels, "channels": channels, "blocks": -(-channels // LANES), "tap_count": len(taps)}
    tables = {"starts": windows.starts(), "taps": taps}
    return planned(node, "pool", options, source, output=node.results[0], **tables, **sizes, **limits)


def _inside(windows: Windows, axis: int) -> Array:
    """Return ``[first, end)`` along ``axis`` of the part of each window inside the image."""
    before = (windows.rows, windows.columns)[axis][0]
    first = np.arange(windows.output[axis]) * windows.stride[axis] - before
    size = windows.shape[1 + axis]
    return np.stack([np.maximum(first, 0), np.minimum(first + windows.kernel[axis], size)], axis=1).astype(np.int32)


class LowerResizeBilinearToKernels(KernelPattern):
    """Lower RESIZE_BILINEAR of ``[N, H, W, C]``. An unchanged size is a copy."""

    operators = ("RESIZE_BILINEAR",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
        if kind not in KINDS or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed size has no native kernel")
        require_same_codes(node, x, out)
        align_corners, half_pixel = resize_modes(node)
        images, height, width, channels = x.static_shape
        _, rows, columns, _ = out.static_shape
        fixed = in_fixed_point(x.dtype, (height, width), (rows, columns), align_corners, half_pixel)

        def line(size: int, output: int) -> tuple[Array, Array]:
            low, high, fraction = axis_line(size, output, align_corners, half_pixel, fixed=fixed)
            second = fraction.astype(np.int32) if fixed else (fraction / ONE).astype(np.float32)
            one: Any = np.int32(ONE) if fixed else np.float32(1)
            return np.stack([low, high], axis=1).astype(np.int32), np.stack([one - second, second], axis=1)

        if (height, width) == (rows, columns):
            return planned(node, "copy", {}, count=size_bytes(out))
        (ys, wy), (xs, wx) = line(height, rows), line(width, columns)
        options = {"kind": KINDS.index(kind), "fixed": int(fixed)}
        sizes = {"images": images, "height": height, "width": width, "channels": channels}
        tables = {"ys": ys, "xs": xs, "wy": wy, "wx": wx}
        return planned(node, "interpolate", options, output=out, **tables, **sizes, rows=rows, columns=columns)


_STORED = {"bool": "uint8", "int8": "uint8"}
_OF_TRUTHS = {"REDUCE_ANY": "REDUCE_MAX", "REDUCE_ALL": "REDUCE_MIN"}
_LEAST_NORM = 1e-6
_MEAN = {"how": AVERAGE, "kind": KINDS.index("float32"), "zero": 0, "clamp": 0}
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Middle:
    """Tensor as ``[outer, count, inner]``, transposed to ``order`` if the reduced axes are not adjacent."""

    info: TensorInfo
    order: tuple[int, ...]
    outer: int
    count: int
    inner: int

    @staticmethod
    def of(info: TensorInfo, axes: Sequence[int]) -> Middle:
        """Return the form with the sorted ``axes`` in the middle."""
        shape = info.static_shape
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        together = list(axes) == list(range(axes[0], axes[0] + len(axes))) if axes else True
        before = [axis for axis in kept if not axes or axis < axes[0]] if together else kept
        after = [axis for axis in kept if axis not in before]
        outer, middle, inner = (math.prod(shape[axis] for axis in part) for part in (before, axes, after))
        return Middle(info, (*before, *axes, *after), outer, middle, inner)

    @staticmethod
    def of_axes(node: Node) -> Middle:
        """Return the form for the axes in operand 1. Refuse computed axes."""
        x = node.operand(0)
        if not node.operand(1).is_const:
            raise refusal(node, "computed axes have no native kernel")
        if x.is_const:
            raise refusal(node, "a constant input has no native kernel")
        return Middle.of(x, axes_of(node, node.const(1), len(x.static_shape)))

    @staticmethod
    def of_axis(node: Node) -> Middle:
        """Return the form for the single axis in constant operand 1."""
        x = node.operand(0)
        return Middle.of(x, (normal_axis(node, int(node.const(1).reshape(-1)[0]), len(x.static_shape)),))

    @property
    def arguments(self) -> dict[str, int]:
        """Arguments of kernels."""
        return {"outer": self.outer, "count": self.count, "inner": self.inner}

    def source(self, segment: SegmentFunction) -> SSAValue:
        """Return the first operand, transposed to ``order`` if needed."""
        return transposed(segment, segment.operand(0), self.info, self.order)


class LowerReductionToKernels(KernelPattern):
    """Lower sum, product, minimum, maximum, any and all. Sums of 8-bit and 16-bit quantised values are requantised."""

    operators = ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out, name = node.operand(0), node.results[0], _OF_TRUTHS.get(node.spec.name, node.spec.name)
        if name == "SUM" and x.dtype in CODE_DTYPES:
            return LowerMeanToKernels.plan(node)
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
        return planned(node, "reduce", options, middle.source, **middle.arguments)


def _sum_rows(node: Node, middle: Middle, scale: float) -> EmitCalls:
    return planned(node, "sum_rows", {}, middle.source, rows=middle.outer, count=middle.count, scale=scale)


class LowerMeanToKernels(KernelPattern):
    """Lower MEAN, and SUM of quantised values, to depthwise convolutions with weights of one or to sums of rows."""

    operators = ("MEAN",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, middle = node.operand(0), Middle.of_axes(node)
        windows = Windows.of_rows(middle.outer, middle.count, middle.inner)
        if not has_float_result(node) or x.dtype == "int16":
            arithmetic = Codes.of_mean(node, middle.count, middle.inner)
            write_sums = arithmetic.by_channel(windows, arithmetic.weights)
            return lambda segment: segment.emit_for(write_sums, (middle.source(segment),))
        if middle.inner == 1:
            return _sum_rows(node, middle, 1.0 / middle.count)
        return _pool(node, windows, _MEAN, middle.source, low=0.0, high=0.0)


class LowerPlaceOfExtremeToKernels(KernelPattern):
    """Lower ARG_MAX and ARG_MIN."""

    operators = ("ARG_MAX", "ARG_MIN")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = node.operand(0), node.results[0]
        kind = _STORED.get(x.dtype, x.dtype)
        if kind not in TYPES or out.dtype not in ("int32", "int64") or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
        middle = Middle.of_axis(node)
        largest = int(node.spec.name == "ARG_MAX")
        options = {"largest": largest, "kind": TYPES.index(kind), "long": int(out.dtype == "int64")}
        return planned(node, "place_of_extreme", options, **middle.arguments)


class LowerCumsumToKernels(KernelPattern):
    """Lower CUMSUM of float32 and plain integers."""

    operators = ("CUMSUM",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x = node.operand(0)
        if x.dtype not in ("float32", "int32", "int64") or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
        middle = Middle.of_axis(node)
        modes = {name: int(bool(option(node, name))) for name in ("exclusive", "reverse")}
        options = {"kind": TYPES.index(x.dtype), **modes}
        return planned(node, "running_sum", options, **middle.arguments)


class LowerSoftmaxToKernels(KernelPattern):
    """Lower SOFTMAX along the last axis, of float32 or of quantised values with TensorFlow Lite's result scale."""

    operators = ("SOFTMAX",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out, beta = node.operand(0), node.results[0], float(option(node, "beta"))
        if has_float_result(node) and x.dtype != "int16":
            return _by_rows(node, "softmax_reals", "classes", beta=beta)
        if x.dtype not in CODE_DTYPES or out.dtype != x.dtype:
            raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
        (scale, _), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
        wide = x.dtype == "int16"
        steps, least = (1 << 15, 0) if wide else (256, out.info.range[0])
        if abs(out_scale * steps - 1) >= _TOLERANCE or out_zero != least:
            raise refusal(node, f"a result of {out.dtype} of scale {out_scale} has no native kernel")
        if wide:
            powers, inverses = softmax16_tables(*softmax16_params(scale, beta))
            return _by_rows(node, "softmax_wide", "classes", terms=powers, inverses=inverses.astype(np.int32))
        values, terms = (table.astype(np.int32) for table in exponentials(*softmax_params(scale, beta)))
        return _by_rows(node, "softmax_codes", "classes", values=values, terms=terms)


class LowerLogSoftmaxToKernels(KernelPattern):
    """Lower LOG_SOFTMAX of float32 along the last axis."""

    operators = ("LOG_SOFTMAX",)

    applies = staticmethod(has_float_result)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        return _by_rows(node, "log_softmax_reals", "classes")


class LowerL2NormalizationToKernels(KernelPattern):
    """Lower L2_NORMALIZATION of float32 along the last axis."""

    operators = ("L2_NORMALIZATION",)

    applies = staticmethod(has_float_result)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        return _by_rows(node, "l2_normalize_reals", "depth", least=_LEAST_NORM)


class LowerRmsNormToKernels(KernelPattern):
    """Lower RMS_NORM of float32 or codes along the last axis, with a constant gamma."""

    operators = ("RMS_NORM",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        gamma, depth = node.operand(1), node.operand(0).static_shape[-1]
        if not has_float_result(node):
            return _rms_of_codes(node, depth)
        if not gamma.is_const or gamma.dtype != "float32":
            raise refusal(node, f"a computed gamma or one of {gamma.dtype} has no native kernel")
        gamma_row = padded_columns(np.resize(gamma.array(), depth), -(-depth // LANES) * LANES)
        numbers = {"share": 1 / depth, "epsilon": float(option(node, "epsilon"))}
        return _by_rows(node, "rms_normalize_reals", "depth", gamma=gamma_row, **numbers)


def _rms_of_codes(node: Node, depth: int) -> EmitCalls:
    x, gamma, out = node.operand(0), node.operand(1), node.results[0]
    if not gamma.is_const or x.dtype not in CODE_DTYPES or out.dtype != x.dtype:
        raise refusal(node, f"an input of {x.dtype} or a computed gamma has no native kernel")
    wide = x.dtype == "int16"
    if wide and (scale_of(node, x)[1] or scale_of(node, out)[1]):
        raise refusal(node, "16-bit values with a zero point have no native kernel")
    p, (low, high), up = integer_rms_norm(node, gamma.array(), depth), out.info.range, sign_offset(out)
    added = [pair for table in p.roots for pair in (table.mean, table.epsilon or (0, 0))]
    q, e = np.array([OF_ROWS, OF_SQUARES, *added, p.normal, p.scaled], np.int64).T
    right = np.maximum(-e, 0)
    table = np.stack([q, np.clip(e, 0, 32), -(e < 0).astype(np.int64), (1 << right) >> 1, right], axis=1)
    tables: dict[str, Array] = {"normaliser": p.normaliser, "factors": table.reshape(-1)}
    tables |= {"coarse": p.roots[0].entries, "fine": p.roots[1].entries}
    tables["gamma"] = np.zeros(1, np.int16) if p.gamma is None else p.gamma
    numbers = {"zero": p.zero + up, "widening": p.widening, "out_zero": p.out_zero + up}
    numbers |= {"low": low + up, "high": high + up, "rows": count(x) // depth, "depth": depth}
    options = {"wide": int(wide), "scaled": int(p.gamma is not None)}
    return planned(node, "rms_normalize_codes", options, **tables, **numbers)


def _by_rows(node: Node, kernel: str, size: str, **arguments: Argument) -> EmitCalls:
    x = node.operand(0)
    if has_float_result(node) and (x.dtype != "float32" or fused_activation(node) != "none"):
        raise refusal(node, f"an input of {x.dtype} or a fused activation has no native kernel")
    length = x.static_shape[-1]
    return planned(node, kernel, {}, rows=count(x) // length, **{size: length}, **arguments)
