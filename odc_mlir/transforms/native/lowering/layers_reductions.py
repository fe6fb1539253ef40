"""Reductions along any axes, and what is computed along the last one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import normal_axis, option
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import fused_activation
from odc_mlir.runtime.kernels.reduction import axes_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.reductions import NAMES, TYPES
from odc_mlir.transforms.native.lowering.moving import transposed
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    refusal,
    require_same_codes,
)

_KINDS = {"bool": "uint8", "int8": "uint8"}  # how elements are compared as they are held
_OF_TRUTHS = {"REDUCE_ANY": "REDUCE_MAX", "REDUCE_ALL": "REDUCE_MIN"}
_LEAST_NORM = 1e-6


@dataclass(frozen=True)
class Middle:
    """A tensor read as ``[outer, count, inner]``, its axes in ``order`` where the middle lies not side by side."""

    order: tuple[int, ...]
    outer: int
    count: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axes: Sequence[int]) -> Middle:
        """With ``axes``, which are in order, as the middle."""
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        together = list(axes) == list(range(axes[0], axes[0] + len(axes))) if axes else True
        before = [axis for axis in kept if not axes or axis < axes[0]] if together else kept
        after = [axis for axis in kept if axis not in before]
        outer, middle, inner = (math.prod(shape[axis] for axis in part) for part in (before, axes, after))
        return Middle((*before, *axes, *after), outer, middle, inner)

    def source(self, segment: SegmentFunction, value: SSAValue, info: TensorInfo) -> SSAValue:
        """The operand in that order."""
        return transposed(segment, segment.tensor(value), info, self.order)


def middle_of(node: Node) -> Middle:
    """The axes in operand 1 as the middle of operand 0; raises where they are computed."""
    x = node.operand(0)
    if not node.operand(1).is_const:
        raise refusal(node, "computed axes have no native kernel")
    if x.is_const:
        raise refusal(node, "a constant input has no native kernel")
    return Middle.of(x.static_shape, axes_of(node, node.const(1), len(x.static_shape)))


def reduction(node: Node, machine: CpuTarget) -> Write:
    """Sums, products and extremes of elements as they are."""
    x, out, name = node.operand(0), node.results[0], _OF_TRUTHS.get(node.spec.name, node.spec.name)
    if x.dtype == "bool" and name in ("SUM", "REDUCE_PROD"):
        name = "REDUCE_MAX" if name == "SUM" else "REDUCE_MIN"
    if x.dtype in ("int8", "uint8") and name == "SUM":
        from odc_mlir.transforms.native.lowering import layers_windows

        return layers_windows.mean(node, machine)
    kind = _KINDS.get(x.dtype, x.dtype)
    is_extreme = name in ("REDUCE_MAX", "REDUCE_MIN")
    if kind not in TYPES or (not is_extreme and (x.quant is not None or x.dtype in CODE_DTYPES)):
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    require_same_codes(node, x, out)
    middle = middle_of(node)

    def write(segment: SegmentFunction, op: Operation) -> None:
        source, target = middle.source(segment, op.operands[0], x), segment.result(op.results[0], out)
        if middle.inner == 1 and kind == "float32" and name == "SUM":
            segment.call("sum_rows", {}, input=source, output=target, outer=middle.outer, count=middle.count, scale=1.0)
            return
        options = {"name": NAMES.index(name), "kind": TYPES.index(kind), "wide": int(middle.inner > LANES // 2)}
        segment.call(
            "reduce",
            options,
            input=source,
            output=target,
            outer=middle.outer,
            count=middle.count,
            inner=middle.inner,
        )

    return write


def mean(node: Node, machine: CpuTarget) -> Write:
    """Means of reals."""
    x, out = node.operand(0), node.results[0]
    middle = middle_of(node)

    def write(segment: SegmentFunction, op: Operation) -> None:
        source, target = middle.source(segment, op.operands[0], x), segment.result(op.results[0], out)
        outer, taken, inner = middle.outer, middle.count, middle.inner
        if inner == 1:
            segment.call("sum_rows", {}, input=source, output=target, outer=outer, count=taken, scale=1.0 / taken)
            return
        segment.call(
            "average_reals",
            {"count": taken, "clamp": 0},
            input=source,
            places=segment.constant((np.arange(outer) * taken * inner).astype(np.int32)),
            taps=segment.constant((np.arange(taken) * inner).astype(np.int32)),
            output=target,
            pixels=outer,
            channels=inner,
            blocks=-(-inner // LANES),
            tap_count=taken,
            low=0.0,
            high=0.0,
        )

    return write


def extreme_place(largest: int) -> CallPlanner:
    """ARG_MAX and ARG_MIN."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        kind = _KINDS.get(x.dtype, x.dtype)
        if kind not in TYPES or out.dtype not in ("int32", "int64") or not node.operand(1).is_const:
            raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
        axis = normal_axis(node, int(node.const(1).reshape(-1)[0]), len(x.static_shape))
        middle = Middle.of(x.static_shape, (axis,))

        def write(segment: SegmentFunction, op: Operation) -> None:
            segment.call(
                "place_of_extreme",
                {"largest": largest, "kind": TYPES.index(kind), "long": int(out.dtype == "int64")},
                input=segment.tensor(op.operands[0]),
                output=segment.result(op.results[0], out),
                outer=middle.outer,
                count=middle.count,
                inner=middle.inner,
            )

        return write

    return plan


def cumsum(node: Node, machine: CpuTarget) -> Write:
    """Running sums along an axis."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in ("float32", "int32", "int64") or not node.operand(1).is_const:
        raise refusal(node, f"an input of {x.dtype} or a computed axis has no native kernel")
    axis = normal_axis(node, int(node.const(1).reshape(-1)[0]), len(x.static_shape))
    middle = Middle.of(x.static_shape, (axis,))
    modes = {name: int(bool(option(node, name))) for name in ("exclusive", "reverse")}

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "running_sum",
            {"kind": TYPES.index(x.dtype), **modes},
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            outer=middle.outer,
            count=middle.count,
            inner=middle.inner,
        )

    return write


def by_rows(kernel: str, size: str, numbers: Callable[[Node], dict[str, float]] = lambda _: {}) -> CallPlanner:
    """What is computed along the last axis."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x, out = node.operand(0), node.results[0]
        if x.dtype != "float32" or fused_activation(node) != "none":
            raise refusal(node, f"an input of {x.dtype} or a fused activation has no native kernel")
        depth = x.static_shape[-1]

        def write(segment: SegmentFunction, op: Operation) -> None:
            sizes: dict[str, float] = {"rows": count(x) // depth, size: depth, **numbers(node)}
            source = segment.tensor(op.operands[0])
            segment.call(kernel, {}, input=source, output=segment.result(op.results[0], out), **sizes)

        return write

    return plan


PLANS: dict[str, CallPlanner] = {
    **dict.fromkeys(("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"), reduction),
    "ARG_MAX": extreme_place(1),
    "ARG_MIN": extreme_place(0),
    "CUMSUM": cumsum,
}
"""Whatever the types are."""

REALS: dict[str, CallPlanner] = {
    "MEAN": mean,
    "LOG_SOFTMAX": by_rows("log_softmax_reals", "classes"),
    "L2_NORMALIZATION": by_rows("l2_normalize_reals", "depth", lambda _: {"least": _LEAST_NORM}),
}
