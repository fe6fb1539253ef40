"""Rewrites of single operators to simpler operators: sums, products, means, views, pads, and rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, NoneOp, info_of, node_of, op_class, tensor_type
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import ModelError
from odc_mlir.numerics.quantize import quantize_real
from odc_mlir.ops.check import check_node
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.spec import QuantParams, Trait
from odc_mlir.runtime.kernels.conditions import refusal
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.rewrites.layout import is_simple
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.partition.rules.islands import results_for_codes


class MeanOfMean(rewriting.OperatorPattern):
    """Merge two consecutive MEANs over groups of equal size into one MEAN over all axes."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        inner = rewriting.producer(op.operands[0], "MEAN")
        if inner is None or not rewriting.is_used_once(op.operands[0]) or not rewriting.is_real(op.results[0]):
            return
        first, second, shape = rewriting.axes_of(inner), rewriting.axes_of(op), rewriting.shape_of(inner.operands[0])
        keeps = bool(op.option("keep_dims"))
        if first is None or second is None or shape is None or bool(inner.option("keep_dims")) != keeps:
            return
        left = [axis for axis in range(len(shape)) if keeps or axis not in first]
        joined = sorted({*first, *(left[axis] for axis in second)})
        if keeps and joined != list(range(joined[0], joined[-1] + 1)):
            return  # NPUs reduce only adjacent axes
        axes = rewriting.indices(joined, f"{value_name(op.results[0])}/axes")
        merged = rewriting.copy_of(op, [inner.operands[0], axes.result], op.results[0])
        rewriter.replace(op, [axes, merged])


class MeanOfRuns(rewriting.OperatorPattern):
    """Split a MEAN along non-adjacent axes into one MEAN for each contiguous group of axes."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        axes, shape = rewriting.axes_of(op), rewriting.static_shape_of(op.operands[0])
        if axes is None or shape is None or not op.option("keep_dims") or not rewriting.is_real(op.results[0]):
            return
        reduced = sorted(set(axes))
        gap = next((n for n in range(1, len(reduced)) if reduced[n] > reduced[n - 1] + 1), None)
        if gap is None:
            return
        name = value_name(op.results[0])
        runs = [
            rewriting.indices(run, f"{name}/axes{number}") for number, run in enumerate((reduced[:gap], reduced[gap:]))
        ]
        kept = tuple(1 if axis in reduced[:gap] else extent for axis, extent in enumerate(shape))
        first = rewriting.part("MEAN", [op.operands[0], runs[0].result], op.results[0], "mean", kept, keep_dims=True)
        last = rewriting.copy_of(op, [first.results[0], runs[1].result], op.results[0])
        rewriter.replace(op, [*runs, first, last])


class MeanOfTranspose(rewriting.OperatorPattern):
    """Make a MEAN of a TRANSPOSE read the TRANSPOSE's operand if the remaining dimensions are in order."""

    names = frozenset({"MEAN"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        turned = rewriting.producer(op.operands[0], "TRANSPOSE")
        axes = rewriting.axes_of(op)
        order = None if turned is None else rewriting.constant(turned.operands[1])
        if turned is None or axes is None or order is None or not rewriting.is_real(op.results[0]):
            return
        moved = sorted(int(order[axis]) for axis in axes)
        left = [int(axis) for axis in order if int(axis) not in moved]
        # With keep_dims, the reduced dimensions stay where the permutation put them.
        if left != sorted(left) or (op.option("keep_dims") and moved != sorted(axes)):
            return
        made = rewriting.indices(moved, f"{value_name(op.results[0])}/axes")
        mean = rewriting.copy_of(op, [turned.operands[0], made.result], op.results[0])
        rewriter.replace(op, [made, mean])


class ProductOfQuotient(rewriting.OperatorPattern):
    """Replace ``(a / x) * b`` with constants ``a`` and ``b`` by ``(a * b) / x``."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for value, factor in rewriting.pairs(op):
            quotient, number = rewriting.plain(value, "DIV"), rewriting.real_constant(factor)
            above = None if quotient is None else rewriting.real_constant(quotient.operands[0])
            if quotient is None or number is None or above is None:
                continue
            if not rewriting.is_used_once(value) or number.size != 1:
                continue
            name = value_name(op.results[0])
            product = rewriting.real(above * number.reshape(-1)[0], f"{name}/numerator")
            options = {"fused_activation_function": rewriting.activation(op)}
            merged = rewriting.operator("DIV", [product.result, quotient.operands[1]], op.results[0], options)
            rewriter.replace(op, [product, merged])
            return


class DifferenceToSum(rewriting.OperatorPattern):
    """Replace ``x - c`` with a constant by ``x + (-c)``."""

    names = frozenset({"SUB"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        number = rewriting.real_constant(op.operands[1])
        if number is None or not rewriting.is_real(op.operands[0]) or not rewriting.is_real(op.results[0]):
            return
        negated = rewriting.real(-number, f"{value_name(op.results[0])}/rhs")
        options = {"fused_activation_function": rewriting.activation(op)}
        made = rewriting.operator("ADD", [op.operands[0], negated.result], op.results[0], options)
        rewriter.replace(op, [negated, made])


@dataclass(frozen=True)
class ToReshape(rewriting.OperatorPattern):
    """Replace operators of ``names`` that keep all elements in order (SQUEEZE, PACK of one operand …) by RESHAPE."""

    names: frozenset[str]

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, result = op.operands[0], op.results[0]
        before, after = rewriting.static_shape_of(source), rewriting.static_shape_of(result)
        if before is None or after is None or prod(before) != prod(after):
            return
        if not is_simple(source) or not rewriting.is_same_element(source, result):
            return
        strides = rewriting.constant(op.operands[3]) if op.SPEC.name == "STRIDED_SLICE" else np.ones(1)
        if strides is None or np.any(strides != 1):
            return
        if op.SPEC.name == "PACK" and len(op.operands) != 1:
            return
        rewriter.replace(op, rewriting.reshaped(source, result))


class ReshapeLater(rewriting.OperatorPattern):
    """Move RESHAPE after an element-wise function that is its only reader."""

    names = frozenset(
        ("NEG", "ABS", "SQRT", "RSQRT", "EXP", "SQUARE", "RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH",
         "HARD_SWISH", "GELU", "ELU")
    )  # fmt: skip

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        view = rewriting.producer(op.operands[0], "RESHAPE")
        result = op.results[0]
        if view is None or not rewriting.is_used_once(view.results[0]) or len(op.operands) != 1:
            return
        source = view.operands[0]
        shape, after = rewriting.static_shape_of(source), rewriting.static_shape_of(result)
        if shape is None or after is None or not is_simple(source) or not is_simple(result):
            return
        if not rewriting.is_same_element(source, view.results[0]):
            return
        types, location = [with_shape(result.type, shape)], name_loc(f"{value_name(result)}/reshaped")
        earlier = type(op).create(
            operands=[source],
            result_types=types,
            properties=op.properties,
            attributes=dict(op.attributes),
            location=location,
        )
        wanted, later = rewriting.reshaped(earlier.results[0], result)
        rewriter.replace(op, [wanted, earlier, later])


class EqualParts(rewriting.OperatorPattern):
    """Replace SPLIT_V into equal parts by SPLIT."""

    names = frozenset({"SPLIT_V"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        parts = [rewriting.static_shape_of(result) for result in op.results]
        if parts[0] is None or any(part != parts[0] for part in parts):
            return
        made = op_class("SPLIT").make(
            [op.operands[2], op.operands[0]],
            [result.type for result in op.results],
            {"num_splits": len(op.results)},
            location=op.location,
        )
        rewriter.replace(op, made)


class PadV2ToPad(rewriting.OperatorPattern):
    """Replace PADV2 before MAX_POOL_2D by PAD with zeros, if its input is non-negative.

    Windows are larger than the padding. Each window therefore contains a value.
    """

    names = frozenset({"PADV2"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        value, rows = rewriting.real_scalar(op.operands[2]), rewriting.constant(op.operands[1])
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
        rewriter.replace(op, rewriting.operator("PAD", op.operands[:2], op.results[0]))


def _is_not_negative(value: SSAValue) -> bool:
    if rewriting.producer(value, "RELU", "RELU6", "RELU_0_TO_1", "LOGISTIC", "ABS", "SQUARE", "EXP") is not None:
        return rewriting.is_real(value)
    owner = value.owner
    return isinstance(owner, CircleOp) and rewriting.is_real(value) and rewriting.activation(owner) in ("relu", "relu6")


class ComputedWeights(rewriting.OperatorPattern):
    """Replace FULLY_CONNECTED with non-constant weights by BATCH_MATMUL and ADD of the bias."""

    names = frozenset({"FULLY_CONNECTED"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        source, weights, result = op.operands[0], op.operands[1], op.results[0]
        before, after = rewriting.static_shape_of(source), rewriting.static_shape_of(result)
        if rewriting.constant(weights) is not None or before is None or after is None or before[:-1] != after[:-1]:
            return
        if (
            not (rewriting.is_real(source) and rewriting.is_real(weights) and rewriting.is_real(result))
            or len(before) < 2
        ):
            return
        bias = op.operands[2] if len(op.operands) > 2 and not isinstance(op.operands[2].owner, NoneOp) else None
        if bias is None and rewriting.activation(op) != "none":
            return
        product = rewriting.operator(
            "BATCH_MATMUL", [source, weights], result, {"adjoint_lhs": False, "adjoint_rhs": True}
        )
        if bias is None:
            rewriter.replace(op, product)
            return
        options = {"fused_activation_function": rewriting.activation(op)}
        total = rewriting.operator("ADD", [product.results[0], bias], result, options)
        rewriter.replace(op, [product, total])


class WriteOutBroadcast(rewriting.OperatorPattern):
    """Expand a constant that an element-wise operator broadcasts."""

    names = frozenset({"ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        shape = rewriting.static_shape_of(op.results[0])
        for place, operand in enumerate(op.operands):
            array = rewriting.real_constant(operand)
            if shape is None or array is None or array.shape == shape:
                continue
            name = f"{value_name(op.results[0])}/{op.SPEC.operand_name(place)}"
            whole = rewriting.make_constant(np.broadcast_to(array, shape), "float32", name)
            operands = list(op.operands)
            operands[place] = whole.result
            made = rewriting.copy_of(op, operands, op.results[0])
            rewriter.replace(op, [whole, made])
            return


class HardSwishParts(rewriting.OperatorPattern):
    """Replace HARD_SWISH by ADD of 3, RELU6, MUL by 1/6 and by the operand."""

    names = frozenset({"HARD_SWISH"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if rewriting.is_real(op.operands[0]):
            rewriter.replace(op, _hard_swish_parts(op.operands[0], op.results[0]))


def _hard_swish_parts(x: SSAValue, result: SSAValue) -> list[ConstOp | CircleOp]:
    """Return ``x * (relu6(x + 3) / 6)`` on reals or int16 codes. An interpolated table is inexact at the two bends."""
    name, is_real = value_name(result), rewriting.is_real(x)

    def constant(number: float, role: str) -> ConstOp:
        array = np.array(number)
        return rewriting.real(array, f"{name}/{role}") if is_real else _symmetric(array, "int16", f"{name}/{role}")

    def part(kind: str, a: SSAValue, b: ConstOp, role: str, largest: float, activation: str) -> CircleOp:
        scale = QuantParams((float(np.float32(largest / 32767)),), (0,))
        type = result.type if is_real else tensor_type("int16", rewriting.shape_of(x), scale)
        options = {"fused_activation_function": activation}
        return rewriting.build(kind, [a, b.result], [type], options, name_loc(f"{name}/{role}"))

    three, sixth = constant(3, "three"), constant(1 / 6, "sixth")
    gate = part("ADD", x, three, "gate", 6, "relu6")
    scaled = part("MUL", gate.results[0], sixth, "scaled", 1, "none")
    return [three, sixth, gate, scaled, rewriting.operator("MUL", [x, scaled.results[0]], result)]


class SoftmaxParts(rewriting.OperatorPattern):
    """Replace SOFTMAX by ``e / sum(e)``, with ``e = exp(x - max(x))``."""

    names = frozenset({"SOFTMAX"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        x, result, shape = op.operands[0], op.results[0], rewriting.static_shape_of(op.results[0])
        if not rewriting.is_real(x) or not shape:
            return
        name, beta = value_name(result), float(op.option("beta"))
        axis = rewriting.indices([len(shape) - 1], f"{name}/axis")
        kept = (*shape[:-1], 1)
        largest = rewriting.part("REDUCE_MAX", [x, axis.result], result, "largest", shape=kept, keep_dims=True)
        distance = rewriting.part("SUB", [x, largest.results[0]], result, "distance", fused_activation_function="none")
        ops: list[Operation] = [axis, largest, distance]
        if beta != 1:
            factor = rewriting.real(np.array(beta), f"{name}/beta")
            ops += [factor, rewriting.part("MUL", [distance.results[0], factor.result], result, "scaled")]
        power = rewriting.part("EXP", [ops[-1].results[0]], result, "power")
        total = rewriting.part("SUM", [power.results[0], axis.result], result, "sum", shape=kept, keep_dims=True)
        made = rewriting.operator("DIV", [power.results[0], total.results[0]], result)
        rewriter.replace(op, [*ops, power, total, made])


class QuantizeAgain(rewriting.OperatorPattern):
    """Make QUANTIZE of a QUANTIZE read the first QUANTIZE's operand. This saves a rounding."""

    names = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        first = rewriting.producer(op.operands[0], "QUANTIZE")
        if first is not None:
            rewriter.replace(op, rewriting.copy_of(op, first.operands, op.results[0]))


class BackToReal(rewriting.OperatorPattern):
    """Replace DEQUANTIZE of a QUANTIZE by the real operand of QUANTIZE."""

    names = frozenset({"DEQUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        first = rewriting.producer(op.operands[0], "QUANTIZE")
        if first is not None and rewriting.is_real(first.operands[0]) and not rewriting.is_returned(op.results[0]):
            rewriter.replace(op, [], [first.operands[0]])


@dataclass(frozen=True)
class LastPair(rewriting.OperatorPattern):
    """Keep only the last of two consecutive pairs of QUANTIZE and DEQUANTIZE."""

    names: frozenset[str] = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        back = rewriting.producer(op.operands[0], "DEQUANTIZE")
        first = None if back is None else rewriting.producer(back.operands[0], "QUANTIZE")
        if first is not None and rewriting.is_real(first.operands[0]):
            rewriter.replace(op, rewriting.copy_of(op, first.operands, op.results[0]))


class DropFakeQuant(rewriting.OperatorPattern):
    """Remove FAKE_QUANT. The operand is not rounded."""

    names = frozenset({"FAKE_QUANT"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if not rewriting.is_returned(op.results[0]):
            rewriter.replace(op, [], [op.operands[0]])


@dataclass(frozen=True)
class IntegerOperator(rewriting.OperatorPattern):
    """Make the operator between DEQUANTIZE and QUANTIZE compute on codes, also of its real constants.

    Functions of one 8-bit operand stay, because the NPU has exact tables for such functions. So do functions of one
    16-bit operand that would change a result by more than one code, and operators that are undefined for some numbers.
    """

    names: frozenset[str] = frozenset({"QUANTIZE"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        inner, dtype = op.operands[0].owner, info_of(op.results[0]).dtype
        if not isinstance(inner, CircleOp) or inner.unverified is not None or dtype not in CODE_DTYPES:
            return
        constants = [rewriting.real_constant(value) for value in inner.operands]
        varied = [array for array in constants if array is None or array.size > 1]
        rule, is_table = inner.SPEC.quant, dtype != "int16" and len(varied) < 2
        if Trait.ELEMENTWISE not in inner.SPEC.traits or is_table or rule.not_zero or rule.not_negative:
            return
        sources, operands, made = list[CircleOp](), list[SSAValue](), list[Operation]()
        for index, (value, array) in enumerate(zip(inner.operands, constants, strict=True)):
            source = rewriting.producer(value, "DEQUANTIZE")
            if array is not None:
                made.append(_symmetric(array, dtype, f"{value_name(op.results[0])}/operand{index}"))
                operands.append(made[-1].results[0])
            elif source is not None and info_of(source.operands[0]).dtype == dtype:
                operands.append(source.operands[0])
                sources.append(source)
            else:
                return
        if inner.SPEC.name == "NEG":  # the reference negates codes, whatever their scales
            made.append(_symmetric(np.array(-1.0), dtype, f"{value_name(op.results[0])}/sign"))
            operands.append(made[-1].results[0])
            made.append(rewriting.operator("MUL", operands, op.results[0]))
        elif inner.SPEC.name == "HARD_SWISH":
            made += _hard_swish_parts(operands[0], op.results[0])
        else:
            made.append(rewriting.copy_of(inner, operands, op.results[0]))
        whole = [part for part in made if isinstance(part, CircleOp)]
        try:
            for part in whole:
                check_node(node_of(part))
        except ModelError:
            return
        if all(refusal(node_of(part)) is None for part in whole) and (
            len(varied) > 1 or _is_close(operands[0], [*sources, inner, op], whole)
        ):
            rewriter.replace(op, made)


def _is_close(source: SSAValue, island: Sequence[CircleOp], whole: Sequence[CircleOp]) -> bool:
    """Return whether the functions ``island`` and ``whole`` of ``source`` differ by at most one code."""
    real, found = (results_for_codes(source, ops).astype(np.int32) for ops in (island, whole))
    return bool((np.abs(real - found) <= 1).all())


def _symmetric(array: NDArray[Any], dtype: str, name: str) -> ConstOp:
    """Return a constant of codes with one scale that is symmetric around zero."""
    scale = np.float32(max(float(np.abs(array).max(initial=0)), 1e-30) / (32767 if dtype == "int16" else 127))
    params = QuantParams((float(scale),), (128 if dtype == "uint8" else 0,))
    codes = quantize_real(np.asarray(array, np.float32), scale, params.zero_points[0], dtype)
    made = ConstOp(BlobAttr.of(codes.tobytes()), tensor_type(dtype, array.shape, params))
    made.location = name_loc(name)
    return made


class GatherGuard(rewriting.OperatorPattern):
    """Make GATHER by ``floor_mod(index + n, n)`` read ``index``. The user asserts that no index is negative."""

    names = frozenset({"GATHER"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        remainder = rewriting.producer(op.operands[1], "FLOOR_MOD")
        total = None if remainder is None else rewriting.plain(remainder.operands[0], "ADD")
        shape = rewriting.shape_of(op.operands[0])
        if remainder is None or total is None or not shape:
            return
        extent = shape[int(op.option("axis") or 0) % len(shape)]
        for index, other in rewriting.pairs(total):
            added, divisor = rewriting.constant(other), rewriting.constant(remainder.operands[1])
            if added is None or divisor is None or extent is None:
                continue
            if np.all(added == extent) and np.all(divisor == extent):
                rewriter.replace(op, rewriting.copy_of(op, [op.operands[0], index], op.results[0]))
                return
