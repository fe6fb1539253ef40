"""Operators said by simpler ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, NoneOp, op_class, tensor_facts
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.layout.rules import is_simple
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    activation,
    constant,
    copy_of,
    is_real,
    is_used_once,
    make_constant,
    operator,
    part,
    producer,
    real,
    real_constant,
    real_scalar,
    static_shape_of,
)


@dataclass(frozen=True)
class ToReshape(OperatorPattern):
    """Operators, of ``names``, that keep all elements in their order: SQUEEZE, PACK of one, whole STRIDED_SLICEs …"""

    names: frozenset[str]

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, result = op.operands[0], op.results[0]
        before, after = static_shape_of(source), static_shape_of(result)
        if before is None or after is None or prod(before) != prod(after):
            return
        if not is_simple(source) or tensor_facts(source.type)[::2] != tensor_facts(result.type)[::2]:
            return
        if op.SPEC.name == "STRIDED_SLICE" and not _takes_all(op):
            return
        if op.SPEC.name == "PACK" and len(op.operands) != 1:
            return
        shape = make_constant(np.array(after, np.int32), "int32", f"{value_name(result)}/shape")
        view = operator("RESHAPE", [source, shape.result], result, {"new_shape": list(after)})
        rewriter.replace(op, [shape, view], [view.results[0]])


class ReshapeLater(OperatorPattern):
    """RESHAPE, then a function of each element, that alone reads it: the function works on the operand's shape."""

    names = frozenset(
        {
            "NEG",
            "ABS",
            "SQRT",
            "RSQRT",
            "EXP",
            "SQUARE",
            "RELU",
            "RELU6",
            "RELU_N1_TO_1",
            "LOGISTIC",
            "TANH",
            "HARD_SWISH",
            "GELU",
            "ELU",
        }
    )

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view = producer(op.operands[0], "RESHAPE")
        result = op.results[0]
        if view is None or not is_used_once(view.results[0]) or len(op.operands) != 1:
            return
        source = view.operands[0]
        shape, after = static_shape_of(source), static_shape_of(result)
        if shape is None or after is None or not is_simple(source) or not is_simple(result):
            return
        if tensor_facts(source.type)[::2] != tensor_facts(view.results[0].type)[::2]:
            return
        earlier = type(op).create(
            operands=[source],
            result_types=[with_shape(result.type, shape)],
            properties=op.properties,
            attributes=dict(op.attributes),
            location=name_loc(f"{value_name(result)}/reshaped"),
        )
        wanted = make_constant(np.array(after, np.int32), "int32", f"{value_name(result)}/shape")
        later = operator("RESHAPE", [earlier.results[0], wanted.result], result, {"new_shape": list(after)})
        rewriter.replace(op, [wanted, earlier, later], [later.results[0]])


def _takes_all(op: CircleOp) -> bool:
    strides = constant(op.operands[3])
    return strides is not None and bool(np.all(strides == 1))


class EqualParts(OperatorPattern):
    """SPLIT_V into equal parts is SPLIT."""

    names = frozenset({"SPLIT_V"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        parts = [static_shape_of(result) for result in op.results]
        if parts[0] is None or any(part != parts[0] for part in parts):
            return
        made = op_class("SPLIT").make(
            [op.operands[2], op.operands[0]],
            [result.type for result in op.results],
            {"num_splits": len(op.results)},
            location=op.location,
        )
        rewriter.replace(op, made)


class PadV2ToPad(OperatorPattern):
    """Padding below zero before MAX_POOL_2D of values that are not negative may as well be with zeros.

    Every window must see some value: it is larger than the padding.
    """

    names = frozenset({"PADV2"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        value, rows = real_scalar(op.operands[2]), constant(op.operands[1])
        if value is None or value > 0 or rows is None or rows.shape != (4, 2) or not _is_not_negative(op.operands[0]):
            return
        if np.any(rows[[0, 3]]):
            return
        for use in op.results[0].uses:
            pool = use.operation
            if not isinstance(pool, CircleOp) or pool.SPEC.name != "MAX_POOL_2D" or pool.option("padding") != "valid":
                return
            window = np.array([[pool.option("filter_height")], [pool.option("filter_width")]])
            if np.any(rows[1:3] >= window):
                return
        rewriter.replace(op, operator("PAD", op.operands[:2], op.results[0]))


def _is_not_negative(value: SSAValue) -> bool:
    if producer(value, "RELU", "RELU6", "RELU_0_TO_1", "LOGISTIC", "ABS", "SQUARE", "EXP") is not None:
        return is_real(value)
    owner = value.owner
    return isinstance(owner, CircleOp) and is_real(value) and activation(owner) in ("relu", "relu6")


class ComputedWeights(OperatorPattern):
    """FULLY_CONNECTED with computed weights is BATCH_MATMUL, then ADD of the bias."""

    names = frozenset({"FULLY_CONNECTED"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, weights, result = op.operands[0], op.operands[1], op.results[0]
        before, after = static_shape_of(source), static_shape_of(result)
        if constant(weights) is not None or before is None or after is None or before[:-1] != after[:-1]:
            return
        if not (is_real(source) and is_real(weights) and is_real(result)) or len(before) < 2:
            return
        bias = op.operands[2] if len(op.operands) > 2 and not isinstance(op.operands[2].owner, NoneOp) else None
        if bias is None and activation(op) != "none":
            return
        product = operator("BATCH_MATMUL", [source, weights], result, {"adjoint_lhs": False, "adjoint_rhs": True})
        if bias is None:
            rewriter.replace(op, product)
            return
        options = {"fused_activation_function": activation(op)}
        total = operator("ADD", [product.results[0], bias], result, options)
        rewriter.replace(op, [product, total], [total.results[0]])


class WriteOutBroadcast(OperatorPattern):
    """A constant that an element-wise operator broadcasts is written out in full."""

    names = frozenset({"ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        shape = static_shape_of(op.results[0])
        for place, operand in enumerate(op.operands):
            array = real_constant(operand)
            if shape is None or array is None or array.shape == shape:
                continue
            name = f"{value_name(op.results[0])}/{op.SPEC.operand_name(place)}"
            whole = make_constant(np.broadcast_to(array, shape), "float32", name)
            operands = list(op.operands)
            operands[place] = whole.result
            made = copy_of(op, operands, op.results[0])
            rewriter.replace(op, [whole, made], [made.results[0]])
            return


class HardSwishParts(OperatorPattern):
    """HARD_SWISH is ADD of 3, RELU6, MUL by 1/6 and by the operand."""

    names = frozenset({"HARD_SWISH"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        x, result = op.operands[0], op.results[0]
        if not is_real(x):
            return
        name = value_name(result)
        three = real(np.array(3.0), f"{name}/three")
        sixth = real(np.array(1 / 6), f"{name}/sixth")
        gate = part("ADD", [x, three.result], result, "gate", fused_activation_function="relu6")
        scaled = part("MUL", [gate.results[0], sixth.result], result, "scaled", fused_activation_function="none")
        made = operator("MUL", [x, scaled.results[0]], result)
        rewriter.replace(op, [three, sixth, gate, scaled, made], [made.results[0]])


class SoftmaxParts(OperatorPattern):
    """SOFTMAX is the exponential of the distance to the largest, divided by its sum."""

    names = frozenset({"SOFTMAX"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        x, result, shape = op.operands[0], op.results[0], static_shape_of(op.results[0])
        if not is_real(x) or not shape:
            return
        name, beta = value_name(result), float(op.option("beta"))
        axis = make_constant(np.array([len(shape) - 1], np.int32), "int32", f"{name}/axis")
        kept = (*shape[:-1], 1)
        largest = part("REDUCE_MAX", [x, axis.result], result, "largest", shape=kept, keep_dims=True)
        distance = part("SUB", [x, largest.results[0]], result, "distance", fused_activation_function="none")
        ops: list[Operation] = [axis, largest, distance]
        if beta != 1:
            factor = real(np.array(beta), f"{name}/beta")
            ops += [factor, part("MUL", [distance.results[0], factor.result], result, "scaled")]
        power = part("EXP", [ops[-1].results[0]], result, "power")
        total = part("SUM", [power.results[0], axis.result], result, "sum", shape=kept, keep_dims=True)
        made = operator("DIV", [power.results[0], total.results[0]], result)
        rewriter.replace(op, [*ops, power, total, made], [made.results[0]])
