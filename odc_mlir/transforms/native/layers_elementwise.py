"""Operators that treat every element alike, and softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xdsl.ir import Operation

from odc_mlir.numerics.elementwise import AddParams, add_params
from odc_mlir.numerics.softmax import exponentials, softmax_params
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.common import activation_codes, scale_of
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.layers_products import scaling_fields
from odc_mlir.transforms.native.segment_writer import Plan, Segment, Write, count, raised, refusal

_EIGHT_BIT = ("int8", "uint8")
_TOLERANCE = 1e-6
_UNARY = ("LOGISTIC", "TANH", "HARD_SWISH", "ELU", "GELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU",
          "ABS", "EXP", "LOG", "RSQRT", "QUANTIZE")  # fmt: skip


def add(node: Node, machine: CpuTarget) -> Write:
    """Sums of 8-bit codes of the same shape."""
    a, b, out = node.operand(0), node.operand(1), node.results[0]
    if {a.dtype, b.dtype, out.dtype} not in ({"int8"}, {"uint8"}):
        raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
    if a.is_const or b.is_const or not a.static_shape == b.static_shape == out.static_shape:
        raise refusal(
            node, f"operands of the shapes {list(a.static_shape)} and {list(b.static_shape)} have no native kernel"
        )
    params = add_params(
        scale_of(node, a), scale_of(node, b), scale_of(node, out), activation_codes(node, out), out.info.numpy.name
    )
    if max(params.a_exponent, params.b_exponent, params.out_exponent) > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")

    def write(segment: Segment, op: Operation) -> None:
        left, right = op.operands[0], op.operands[1]
        segment.call(
            "add_codes",
            {"left": params.left_shift},
            a=segment.tensor(left),
            b=segment.tensor(right),
            table=segment.constant(_add_table(params, raised(out))),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


def _add_table(p: AddParams, up: int) -> np.ndarray:
    numbers: list[object] = [p.a_zero + up, *scaling_fields(p.a_multiplier, p.a_exponent)]
    numbers += [p.b_zero + up, *scaling_fields(p.b_multiplier, p.b_exponent)]
    numbers += [*scaling_fields(p.out_multiplier, p.out_exponent), p.out_zero + up, p.act_min + up, p.act_max + up]
    return np.array(numbers, np.int32)


def by_table(node: Node, machine: CpuTarget) -> Write:
    """A function of one 8-bit code: the host kernel says what it gives for each."""
    x, out = node.operand(0), node.results[0]
    if x.dtype not in _EIGHT_BIT or out.dtype not in _EIGHT_BIT:
        raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
    codes = np.arange(256) - raised(x)
    one = replace(node, operands=(replace(x, shape=(256,)), *node.operands[1:]), results=(replace(out, shape=(256,)),))
    with np.errstate(all="ignore"):
        (values,) = one.spec.kernel_function(one)([codes.astype(x.info.numpy), *[None] * (len(node.operands) - 1)])
    table = (values.astype(np.int16) + raised(out)).astype(np.uint8)

    def write(segment: Segment, op: Operation) -> None:
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

    def write(segment: Segment, op: Operation) -> None:
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


PLANS: dict[str, Plan] = {"ADD": add, "SOFTMAX": softmax, **dict.fromkeys(_UNARY, by_table)}
