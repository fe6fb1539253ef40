"""Operators that treat every element alike, and softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xdsl.ir import Operation

from odc_mlir.numerics.elementwise import AddParams, MulParams, add_params, mul_params
from odc_mlir.numerics.softmax import exponentials, softmax_params
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.common import activation_codes, scale_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.codes import DIFFERENCE, OPERAND_FIELDS, PRODUCT, SUM
from odc_mlir.transforms.native.lowering.broadcasting import broadcast
from odc_mlir.transforms.native.lowering.layers_products import scaling_fields
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    raised,
    refusal,
)

_EIGHT_BIT = ("int8", "uint8")
_TOLERANCE = 1e-6
_UNARY = ("LOGISTIC", "TANH", "HARD_SWISH", "ELU", "GELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU",
          "ABS", "EXP", "LOG", "RSQRT")  # fmt: skip


def arithmetic(operation: int) -> CallPlanner:
    """Sums, differences and products of 8-bit codes."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        a, b, out = node.operand(0), node.operand(1), node.results[0]
        if {a.dtype, b.dtype, out.dtype} not in ({"int8"}, {"uint8"}):
            raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
        spread = broadcast((a, b), out)
        quants = scale_of(node, a), scale_of(node, b), scale_of(node, out)
        act, dtype, up = activation_codes(node, out), out.info.numpy.name, raised(out)
        if operation == PRODUCT:
            left, table = 0, _product_table(node, mul_params(*quants, act, dtype), up)
        else:
            params = add_params(*quants, act, dtype)
            left, table = params.left_shift, _sum_table(node, params, up)

        def write(segment: SegmentFunction, op: Operation) -> None:
            options = {"operation": operation, "left": left}
            spread.call(segment, op, "combine_codes", options, (a, b), out, table=segment.constant(table))

        return write

    return plan


def _sum_table(node: Node, p: AddParams, up: int) -> np.ndarray:
    if max(p.a_exponent, p.b_exponent, p.out_exponent) > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    numbers: list[object] = [p.a_zero + up, *scaling_fields(p.a_multiplier, p.a_exponent)]
    numbers += [p.b_zero + up, *scaling_fields(p.b_multiplier, p.b_exponent)]
    numbers += [*scaling_fields(p.out_multiplier, p.out_exponent), p.out_zero + up, p.act_min + up, p.act_max + up]
    return np.array(numbers, np.int32)


def _product_table(node: Node, p: MulParams, up: int) -> np.ndarray:
    if p.exponent > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    unused = [0] * (len(OPERAND_FIELDS) - 1)
    numbers: list[object] = [p.a_zero + up, *unused, p.b_zero + up, *unused]
    numbers += [*scaling_fields(p.multiplier, p.exponent), p.out_zero + up, p.act_min + up, p.act_max + up]
    return np.array(numbers, np.int32)


def quantize(node: Node, machine: CpuTarget) -> Write:
    """Codes of reals, or of other codes."""
    x, out = node.operand(0), node.results[0]
    if x.dtype != "float32" or out.dtype not in _EIGHT_BIT:
        return by_table(node, machine)
    scale, zero = scale_of(node, out)
    low, high = out.info.range

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "quantize_reals",
            {},
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            count=count(out),
            scale=scale,
            least=float(low - zero),
            most=float(high - zero),
            zero=zero + raised(out),
        )

    return write


def dequantize(node: Node, machine: CpuTarget) -> Write:
    """Reals of 8-bit codes."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in _EIGHT_BIT or x.quant is None or not x.quant.per_tensor or x.is_const:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    table = _of_all_codes(node)

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "look_up_reals",
            {},
            input=segment.tensor(op.operands[0]),
            table=segment.constant(table),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


def _of_all_codes(node: Node) -> np.ndarray:
    """What the host kernel gives for each of 256 codes, in the order in which they are held."""
    x, out = node.operand(0), node.results[0]
    codes = (np.arange(256) - raised(x)).astype(x.info.numpy)
    one = replace(node, operands=(replace(x, shape=(256,)), *node.operands[1:]), results=(replace(out, shape=(256,)),))
    with np.errstate(all="ignore"):
        return np.asarray(one.spec.kernel_function(one)([codes, *[None] * (len(node.operands) - 1)])[0])


def by_table(node: Node, machine: CpuTarget) -> Write:
    """A function of one 8-bit code: the host kernel says what it gives for each."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in _EIGHT_BIT or out.dtype not in _EIGHT_BIT:
        raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
    values = _of_all_codes(node)
    table = (values.astype(np.int16) + raised(out)).astype(np.uint8)

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "look_up",
            {},
            input=segment.tensor(op.operands[0]),
            table=segment.constant(table),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


def softmax(node: Node, machine: CpuTarget) -> Write:
    """Softmax of 8-bit codes with TensorFlow Lite's scale."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in _EIGHT_BIT or out.dtype != x.dtype:
        raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
    (scale, _), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    if abs(out_scale * 256 - 1) >= _TOLERANCE or out_zero != out.info.range[0]:
        raise refusal(node, f"a result of scale {out_scale} has no native kernel")
    values, terms = exponentials(*softmax_params(scale, float(option(node, "beta"))))

    def write(segment: SegmentFunction, op: Operation) -> None:
        classes = x.static_shape[-1]
        segment.call(
            "softmax_codes",
            {},
            input=segment.tensor(op.operands[0]),
            values=segment.constant(values.astype(np.int32)),
            terms=segment.constant(terms.astype(np.int32)),
            output=segment.result(op.results[0], out),
            rows=count(x) // classes,
            classes=classes,
        )

    return write


PLANS: dict[str, CallPlanner] = {
    "ADD": arithmetic(SUM),
    "SUB": arithmetic(DIFFERENCE),
    "MUL": arithmetic(PRODUCT),
    "SOFTMAX": softmax,
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
    **dict.fromkeys(_UNARY, by_table),
}
