"""Operators on 16-bit codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.numerics.elementwise import add_params, mul_params
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.int16 import power_add_params, softmax16_params, softmax16_tables
from odc_mlir.numerics.reduction import mean_params, sum_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import activation_codes, scale_of
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels import wide
from odc_mlir.transforms.native.kernels.convolution import FIELDS
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.lowering.broadcasting import broadcast
from odc_mlir.transforms.native.lowering.layers_products import (
    repeated_input,
    scaling_fields,
    split_weights,
    tile_of,
    tile_rows,
)
from odc_mlir.transforms.native.lowering.layers_reductions import middle_of
from odc_mlir.transforms.native.lowering.moving import box, move, strides
from odc_mlir.transforms.native.lowering.segment_writer import CallPlanner, SegmentFunction, Write, count, refusal
from odc_mlir.transforms.native.lowering.windows import Windows

_LARGEST = 1 << 15
_SUM_BITS = 31
_MOST_WEIGHTS = (1 << _SUM_BITS) // _LARGEST - 1  # magnitudes of weights that add up to sums of 32 bits


def conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[O, kh, kw, C]``."""
    x, weights = node.operand(0), node.operand(1)
    outputs, height, width, _ = weights.static_shape
    windows = Windows.of(node, x.static_shape, (height, width), window_options(node))
    sums = _Sums.of(node, outputs, 0)
    return _product(node, windows, sums.weights.reshape(outputs, -1), sums, machine)


def fully_connected(node: Node, machine: CpuTarget) -> Write:
    """``x [..., K]``, weights ``[O, K]``: a convolution of one pixel per row."""
    x, weights = node.operand(0), node.operand(1)
    if node.options.get("weights_format", "default") != "default":
        raise refusal(node, f"weights in the format {node.options['weights_format']} have no native kernel")
    outputs, depth = weights.static_shape
    if count(x) % depth:
        raise refusal(node, f"the input has {count(x)} elements, not a multiple of {depth}")
    windows = Windows((count(x) // depth, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    sums = _Sums.of(node, outputs, 0)
    return _product(node, windows, sums.weights, sums, machine)


def depthwise_conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[1, kh, kw, C]``."""
    x, weights = node.operand(0), node.operand(1)
    _, height, width, channels = weights.static_shape
    times = channels // x.static_shape[3]
    windows = Windows.of(node, (*x.static_shape[:3], channels), (height, width), window_options(node))
    sums = _Sums.of(node, channels, 3)
    taps = sums.weights.reshape(-1, channels)
    if int(np.abs(taps).sum(axis=0).max()) > _MOST_WEIGHTS:
        raise refusal(node, "sums are too large for the native kernel, which has 32 bits")
    bias = sums.bias - sums.zero * taps.sum(axis=0)

    def write(segment: SegmentFunction, op: Operation) -> None:
        blocks = -(-channels // LANES)
        packed = np.zeros((len(taps), blocks * LANES), np.int16)
        packed[:, :channels] = taps
        repeated = repeated_input(segment, op.operands[0], x, times)
        segment.call(
            "depthwise_wide",
            {"rows": tile_rows(windows.pixels, machine.tile_rows), "long": int(sums.long)},
            input=_padded(segment, repeated, windows, sums.zero),
            weights=segment.constant(packed),
            places=segment.constant(windows.places()),
            taps=segment.constant(windows.taps()),
            pixels=windows.pixels,
            channels=channels,
            blocks=blocks,
            tap_count=len(taps),
            **sums.arguments(segment, op, bias, blocks * LANES),
        )

    return write


@dataclass(frozen=True)
class _Sums:
    """How a product adds up and requantises, as the host kernel does; ``long``: by 64 bits."""

    node: Node
    weights: NDArray[np.int64]
    bias: NDArray[np.int64]
    zero: int
    finish: Requantizer | WideRequantizer

    @property
    def long(self) -> bool:
        return isinstance(self.finish, WideRequantizer)

    @staticmethod
    def of(node: Node, outputs: int, axis: int) -> _Sums:
        """The sums of a product; raises where something is computed."""
        x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
        if not weights.is_const or (bias is not None and not bias.is_const) or node.results[0].dtype != "int16":
            raise refusal(node, "computed weights have no native kernel")
        how: Accumulation = accumulation(node, x, weights, bias, outputs)
        finish = how.rescale
        if not isinstance(finish, Requantizer | WideRequantizer):
            raise refusal(node, f"a result of {node.results[0].dtype} has no native kernel")
        if isinstance(finish, Requantizer) and int(finish.e.max()) > 0:
            raise refusal(node, "a scale ratio above 1 has no native kernel")
        row = None if bias is None else how.bias_row(bias.array())
        numbers = np.zeros(outputs, np.int64) if row is None else row.astype(np.int64)
        values = np.asarray(how.weights(weights.array(), axis), np.int64)
        return _Sums(node, values, numbers, how.in_zero, finish)

    def arguments(
        self, segment: SegmentFunction, op: Operation, bias: NDArray[np.int64], padded: int
    ) -> dict[str, Any]:
        """What kernels take to requantise."""
        finish, channels = self.finish, len(bias)
        fields: tuple[Any, ...]
        if isinstance(finish, WideRequantizer):
            table: NDArray[Any] = np.zeros((len(wide.WIDE_FIELDS), padded), np.int64)
            fields = finish.fields
        else:
            table = np.zeros((len(FIELDS), padded), np.int32)
            fields = tuple(scaling_fields(finish.q, finish.e))
        for row, values in zip(table, (bias, *fields), strict=True):
            row[:channels] = values
        return {
            "table": segment.constant(table),
            "output": segment.result(op.results[0], self.node.results[0]),
            "zero": finish.zero_point,
            "low": finish.low,
            "high": finish.high,
        }


def _product(node: Node, windows: Windows, matrix: NDArray[np.int64], sums: _Sums, machine: CpuTarget) -> Write:
    outputs = matrix.shape[0]
    bias = sums.bias - sums.zero * matrix.sum(axis=1)
    most = np.abs(matrix).sum(axis=1) * _LARGEST
    split = int(most.max()) + (0 if sums.long else int(np.abs(bias).max())) >= 1 << _SUM_BITS
    if split and not sums.long:
        raise refusal(node, "sums are too large for the native kernel, which has 32 bits")
    runs, length = windows.runs()
    columns = matrix.reshape(outputs, len(runs), length)
    parts_of_weights = split_weights(columns, -_LARGEST, _LARGEST - 1)
    columns, runs = np.concatenate(parts_of_weights, axis=1), np.tile(runs, len(parts_of_weights))
    taken = _taken(columns) if split else length
    parts, part = -(-length // taken), -(-taken // 2) * 2  # one that is taken alone is beside a weight of zero
    packed_runs = np.zeros((outputs, len(runs), parts, part), np.int64)
    packed_runs[:, :, :, :taken] = _divided(columns, taken)
    starts = (runs[:, None] + np.arange(parts) * taken).reshape(-1).astype(np.int32)

    def write(segment: SegmentFunction, op: Operation) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        rows = min(rows, max(1, machine.tile_rows // 2)) if split else rows  # sums take twice as many registers
        width = LANES * vectors
        blocks = -(-outputs // width)
        packed = np.zeros((blocks * width, len(starts), part // 2, 2), np.int16)
        packed[:outputs] = packed_runs.reshape(outputs, len(starts), part // 2, 2)
        packed = packed.reshape(blocks, width, len(starts), part // 2, 2).transpose(0, 2, 3, 1, 4)
        segment.call(
            "convolve_wide",
            {"rows": rows, "vectors": vectors, "long": int(sums.long), "split": int(split)},
            input=_padded(segment, segment.tensor(op.operands[0]), windows, sums.zero),
            weights=segment.constant(packed),
            places=segment.constant(windows.places()),
            runs=segment.constant(starts),
            pixels=windows.pixels,
            channels=outputs,
            blocks=blocks,
            run_count=len(starts),
            run_length=part,
            **sums.arguments(segment, op, bias, blocks * width),
        )

    return write


def _divided(columns: NDArray[np.int64], taken: int) -> NDArray[np.int64]:
    """Runs ``[O, runs, length]`` as ``[O, runs, parts, taken]``, the last part with zeros behind it."""
    outputs, runs, length = columns.shape
    parts = -(-length // taken)
    result = np.zeros((outputs, runs, parts * taken), np.int64)
    result[:, :, :length] = columns
    return result.reshape(outputs, runs, parts, taken)


def _taken(columns: NDArray[np.int64]) -> int:
    """How many inputs of a run may be added up by 32 bits: an even part of it, or one."""
    length = int(columns.shape[2])
    for parts in range(1, -(-length // 2) + 1):
        taken = -(-length // (2 * parts)) * 2
        if int(np.abs(_divided(columns, taken)).sum(axis=3).max()) <= _MOST_WEIGHTS:
            return taken
    return 1


def _padded(segment: SegmentFunction, source: SSAValue, windows: Windows, zero: int) -> SSAValue:
    """A buffer with the border that windows need."""
    if not windows.is_padded:
        return source
    shape = (windows.shape[0], *windows.padded, windows.shape[3])
    steps = strides(shape)
    info = TensorInfo("border", "int16", shape)
    target = segment.allocate(2 * count(info))
    segment.fill(target, info, zero)
    first = windows.rows[0] * steps[1] + windows.columns[0] * steps[2]
    place = box(windows.shape, strides(windows.shape), steps, output_start=first)
    assert place is not None, "four dimensions are few"
    move(segment, place, source, target, 2)
    return target


def arithmetic(operation: int) -> CallPlanner:
    """Sums, differences and products without zero points."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        a, b, out = node.operand(0), node.operand(1), node.results[0]
        if {a.dtype, b.dtype} != {"int16"} or any(info.quant is None for info in (a, b, out)):
            raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
        quants = scale_of(node, a), scale_of(node, b), scale_of(node, out)
        if any(zero for _, zero in quants):
            raise refusal(node, "16-bit values with zero points have no native kernel")
        kind, left, table = _combination(node, operation, quants, activation_codes(node, out))
        spread = broadcast((a, b), out)

        def write(segment: SegmentFunction, op: Operation) -> None:
            options = {"operation": kind, "left": left}
            spread.call(segment, op, "combine_wide", options, (a, b), out, table=segment.constant(table))

        return write

    return plan


def _combination(
    node: Node, operation: int, quants: tuple[tuple[float, int], ...], act: tuple[int, int]
) -> tuple[int, int, NDArray[np.int32]]:
    """Which operation of the kernel it is, how far operands are shifted left, and its numbers."""
    a, b, out = quants
    unused = [0, 0, 0, 0]
    if operation == wide.PRODUCT:
        product = mul_params(a, b, out, act, "int16")
        exponents, left = [product.exponent], 0
        rows: list[Any] = [0, *unused, 0, *unused, *scaling_fields(product.multiplier, product.exponent)]
    elif (
        node.options.get("pot_scale_int16", True) and (shifts := power_add_params(a[0], b[0], out[0], act)) is not None
    ):
        fields = [scaling_fields(0, -shift) for shift in (shifts.a_shift, shifts.b_shift)]
        rows = [0, *fields[0], 0, *fields[1], *unused, 0, max(act[0], -_LARGEST), min(act[1], _LARGEST - 1)]
        kind = wide.SHIFTED_SUM if operation == wide.SUM else wide.SHIFTED_DIFFERENCE
        return kind, 0, np.array(rows, np.int32)
    else:
        p = add_params(a, b, out, act, "int16")
        exponents, left = [p.a_exponent, p.b_exponent, p.out_exponent], p.left_shift
        rows = [0, *scaling_fields(p.a_multiplier, p.a_exponent), 0, *scaling_fields(p.b_multiplier, p.b_exponent)]
        rows += scaling_fields(p.out_multiplier, p.out_exponent)
    if max(exponents) > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    return operation, left, np.array([*rows, 0, *act], np.int32)


def mean(node: Node, machine: CpuTarget) -> Write:
    """Means and sums over any axes: a depthwise convolution whose weights are one."""
    x, out = node.operand(0), node.results[0]
    if out.dtype != "int16":
        raise refusal(node, f"a result of {out.dtype} has no native kernel")
    middle = middle_of(node)
    (scale, zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    q, e = sum_params(scale, out_scale) if node.spec.name == "SUM" else mean_params(scale, out_scale, middle.count)
    if e > 0 or middle.count > _MOST_WEIGHTS // 2:
        raise refusal(node, "the scale ratio or the number of elements is too large for the native kernel")
    finish = Requantizer(q, e, out_zero, *out.info.range, np.dtype(np.int16))
    sums = _Sums(node, np.ones((middle.count, middle.inner), np.int64), np.zeros(0, np.int64), zero, finish)

    def write(segment: SegmentFunction, op: Operation) -> None:
        inner, taken = middle.inner, middle.count
        blocks = -(-inner // LANES)
        segment.call(
            "depthwise_wide",
            {"rows": 1, "long": 0},
            input=middle.source(segment, op.operands[0], x),
            weights=segment.constant(np.ones((taken, blocks * LANES), np.int16)),
            places=segment.constant((np.arange(middle.outer) * taken * inner).astype(np.int32)),
            taps=segment.constant((np.arange(taken) * inner).astype(np.int32)),
            pixels=middle.outer,
            channels=inner,
            blocks=blocks,
            tap_count=taken,
            **sums.arguments(segment, op, np.full(inner, -zero * taken), blocks * LANES),
        )

    return write


def softmax(node: Node, machine: CpuTarget) -> Write:
    """Softmax along the last axis, codes of scale 1/32768."""
    x, out = node.operand(0), node.results[0]
    (scale, _), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    if out.dtype != "int16" or abs(out_scale * _LARGEST - 1) >= 1e-6 or out_zero:
        raise refusal(node, f"a result of {out.dtype} of scale {out_scale} has no native kernel")
    terms, inverses = softmax16_tables(*softmax16_params(scale, float(option(node, "beta"))))

    def write(segment: SegmentFunction, op: Operation) -> None:
        classes = x.static_shape[-1]
        segment.call(
            "softmax_wide",
            {},
            input=segment.tensor(op.operands[0]),
            terms=segment.constant(terms),
            inverses=segment.constant(inverses.astype(np.int32)),
            output=segment.result(op.results[0], out),
            rows=count(x) // classes,
            classes=classes,
        )

    return write


def by_table(node: Node, machine: CpuTarget) -> Write:
    """A function of one 16-bit code: the host kernel says what it gives for each."""
    x, out = node.operand(0), node.results[0]
    if x.is_const or out.dtype not in CODE_DTYPES:
        raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
    codes = np.arange(-_LARGEST, _LARGEST).astype(np.int16)
    shape = (len(codes),)
    one = replace(node, operands=(replace(x, shape=shape), *node.operands[1:]), results=(replace(out, shape=shape),))
    with np.errstate(all="ignore"):
        found = np.asarray(one.spec.kernel_function(one)([codes, *[None] * (len(node.operands) - 1)])[0])
    narrow = out.info.numpy.itemsize == 1
    table = (found.astype(np.int16) + (128 if out.dtype == "int8" else 0)).astype(np.uint8) if narrow else found

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "look_up_wide",
            {"bytes": int(narrow)},
            input=segment.tensor(op.operands[0]),
            table=segment.constant(table),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


def dequantize(node: Node, machine: CpuTarget) -> Write:
    """Reals of codes."""
    x, out = node.operand(0), node.results[0]
    if x.is_const or x.quant is None or not x.quant.per_tensor or out.dtype != "float32":
        raise refusal(node, f"an input of {x.dtype} with several scales has no native kernel")
    scale, zero = scale_of(node, x)

    def write(segment: SegmentFunction, op: Operation) -> None:
        source, target = segment.tensor(op.operands[0]), segment.result(op.results[0], out)
        numbers = {"count": count(out), "scale": float(np.float32(scale)), "zero": float(zero)}
        segment.call("dequantize_wide", {}, input=source, output=target, **numbers)

    return write


_UNARY = ("LOGISTIC", "TANH", "HARD_SWISH", "ELU", "GELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU",
          "ABS", "EXP", "LOG", "RSQRT", "NEG", "QUANTIZE")  # fmt: skip

PLANS: dict[str, CallPlanner] = {
    "CONV_2D": conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "ADD": arithmetic(wide.SUM),
    "SUB": arithmetic(wide.DIFFERENCE),
    "MUL": arithmetic(wide.PRODUCT),
    "MEAN": mean,
    "SUM": mean,
    "SOFTMAX": softmax,
    "DEQUANTIZE": dequantize,
    **dict.fromkeys(_UNARY, by_table),
}
