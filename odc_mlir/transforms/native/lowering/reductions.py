"""Lowering of reductions along any axes, and of operators along the last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.numerics.int16 import softmax16_params, softmax16_tables
from odc_mlir.numerics.softmax import exponentials, softmax_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import normal_axis, option
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import fused_activation, scale_of
from odc_mlir.runtime.kernels.reduction import axes_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.pooling import AVERAGE, KINDS
from odc_mlir.transforms.native.kernels.reductions import NAMES, TYPES
from odc_mlir.transforms.native.lowering.arithmetic import Arguments, Codes, constants
from odc_mlir.transforms.native.lowering.moves import transposed
from odc_mlir.transforms.native.lowering.pooling import pool
from odc_mlir.transforms.native.lowering.segment_writer import (
    KernelPattern,
    SegmentFunction,
    Write,
    count,
    is_real,
    refusal,
    require_same_codes,
)
from odc_mlir.transforms.native.lowering.windows import Windows

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
