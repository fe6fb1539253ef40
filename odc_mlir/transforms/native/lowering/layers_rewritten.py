"""Convolutions that are others in disguise: in groups, and transposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.ops.infer.convolution import groups_of, transposed_options
from odc_mlir.ops.infer.geometry import transposed_pad
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.lowering.moving import box, fill_bits, move, move_of, strides
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    refusal,
    size_bytes,
)

_MOST_GROUPS = 8  # more would multiply by too many zeros
_WHOLE_BYTES = ("int8", "uint8", "int16", "float32")

PlanOf = Callable[[Node], CallPlanner]
"""The plan of a convolution, by the types of its operands."""


@dataclass(frozen=True)
class _Seen:
    """An operation as a plan sees it, with other operands."""

    operands: Sequence[SSAValue]
    results: Sequence[SSAValue]


def grouped(plan: CallPlanner) -> CallPlanner:
    """A convolution whose filter may be for groups of channels: then it has zeros for all others."""

    def of_groups(node: Node, machine: CpuTarget) -> Write:
        x, weights = node.operand(0), node.operand(1)
        if weights.static_shape[3] == x.static_shape[3]:
            return plan(node, machine)
        groups = groups_of(node, x.static_shape[3], weights.static_shape)
        if groups > _MOST_GROUPS or not weights.is_const or weights.dtype not in _WHOLE_BYTES:
            raise refusal(
                node,
                f"{groups} groups have no native kernel, at most {_MOST_GROUPS} with constant weights are supported",
            )
        if x.dtype == "float32":
            return _one_by_one(node, groups, plan, machine)
        dense = _with_data(weights, _dense(weights, groups))
        return plan(replace(node, operands=(x, dense, *node.operands[2:])), machine)

    return of_groups


def _one_by_one(node: Node, groups: int, plan: CallPlanner, machine: CpuTarget) -> Write:
    """Lower the groups of a float convolution to convolutions on copies of their channels.

    Zeros in the filter would turn infinite inputs of other groups into NaN.
    """
    x, weights, bias, out = node.operand(0), node.operand(1), node.optional(2), node.results[0]
    if weights.dtype != "float32" or (bias is not None and not bias.is_const):
        raise refusal(node, "integer weights or a computed bias of grouped float convolutions have no native kernel")
    places = np.arange(math.prod(x.static_shape)).reshape(*x.static_shape[:3], groups, -1)
    channels = out.static_shape[3] // groups
    group, result = (
        replace(x, shape=(*places.shape[:3], places.shape[4])),
        replace(out, shape=(*out.static_shape[:3], channels)),
    )
    parts = []
    for number in range(groups):
        own = slice(number * channels, (number + 1) * channels)
        others = (None if bias is None else _with_data(bias, bias.array().reshape(-1)[own]),)
        part = replace(node, operands=(group, _with_data(weights, weights.array()[own]), *others), results=(result,))
        target = box((count(result) // channels, channels), (channels, 1), (channels * groups, 1), 0, own.start)
        assert target is not None, "two dimensions are few"
        parts.append((move_of(places[..., number, :]), plan(part, machine), target))

    def write(segment: SegmentFunction, op: Operation) -> None:
        joined = segment.result(op.results[0], out)
        for source, product, target in parts:
            taken, found = segment.allocate(size_bytes(group)), segment.allocate(size_bytes(result))
            move(segment, source, segment.tensor(op.operands[0]), taken, 4)
            segment.tensors[taken], segment.reserved[found] = taken, found
            product(segment, cast(Operation, _Seen((taken, *op.operands[1:]), (found,))))
            move(segment, target, found, joined, 4)

    return write


def _dense(weights: TensorInfo, groups: int) -> NDArray[Any]:
    """A filter ``[O, kh, kw, C / groups]`` as ``[O, kh, kw, C]``, with what stands for zero in other groups."""
    array = weights.array()
    outputs, height, width, channels = array.shape
    result = np.zeros((outputs, height, width, groups, channels), array.dtype)
    if weights.quant is not None:
        result += np.asarray(weights.quant.zero_points, array.dtype).reshape(-1, 1, 1, 1, 1)
    own = np.arange(outputs) // (outputs // groups)
    result[np.arange(outputs), :, :, own] = array
    return result.reshape(outputs, height, width, groups * channels)


def _with_data(info: TensorInfo, array: NDArray[Any]) -> TensorInfo:
    data = memoryview(np.ascontiguousarray(array).tobytes())
    return replace(info, shape=array.shape, data=data, _array=None)


def transpose_conv(plan_of: PlanOf) -> CallPlanner:
    """Result shape, filter ``[O, kh, kw, C]``, ``x [N, H, W, C]``: a convolution with the filter turned around.

    Its input is ``x`` with zeros between its elements and around them.
    """

    def plan(node: Node, machine: CpuTarget) -> Write:
        weights, x, out = node.operand(1), node.operand(2), node.results[0]
        if not weights.is_const or weights.dtype not in _WHOLE_BYTES:
            raise refusal(node, f"weights of {weights.dtype} that are computed or packed have no native kernel")
        (stride, padding), result = transposed_options(node), out.static_shape[1:3]
        _, *kernel, channels = weights.static_shape
        images, height, width, _ = x.static_shape
        before = [
            kernel[i] - 1 - transposed_pad(size, kernel[i], stride[i], padding, result[i])
            for i, size in enumerate((height, width))
        ]
        padded = [size + taps - 1 for size, taps in zip(result, kernel, strict=True)]
        fitting = [(size - 1) * stride[i] + before[i] < padded[i] for i, size in enumerate((height, width))]
        if min(before) < 0 or not all(fitting):
            raise refusal(node, "a result that omits taps has no native kernel")
        shape = (images, *padded, channels)
        steps = strides(shape)
        place = box(
            x.static_shape,
            strides(x.static_shape),
            (steps[0], steps[1] * stride[0], steps[2] * stride[1], 1),
            output_start=before[0] * steps[1] + before[1] * steps[2],
        )
        assert place is not None, "four dimensions are few"
        wide = replace(x, shape=shape)
        turned = _with_data(weights, weights.array()[:, ::-1, ::-1])
        unstrided = {"padding": "valid", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
        operands = (wide, turned, *node.operands[3:])
        as_convolution = replace(node, operands=operands, options={**node.options, **unstrided})
        product = plan_of(as_convolution)(as_convolution, machine)
        zero = 0 if x.quant is None or x.dtype == "float32" else x.quant.zero_points[0]
        item_bytes = x.info.numpy.itemsize

        def write(segment: SegmentFunction, op: Operation) -> None:
            spread = segment.allocate(math.prod(shape) * item_bytes)
            segment.fill(spread, wide, fill_bits(wide, zero))
            move(segment, place, segment.tensor(op.operands[2]), spread, item_bytes)
            segment.tensors[spread] = spread
            product(segment, cast(Operation, _Seen((spread, op.operands[1], *op.operands[3:]), op.results)))

        return write

    return plan
