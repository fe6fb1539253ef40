"""Lowering of operators that compute element by element: arithmetic, functions, comparisons, choices, conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from odc_mlir.numerics.elementwise import add_params, mul_params
from odc_mlir.numerics.int16 import power_add_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import activation_codes, is_quantised, scale_of
from odc_mlir.transforms.native.kernels import elementwise
from odc_mlir.transforms.native.kernels.mathematics import OPERATIONS
from odc_mlir.transforms.native.lowering.arithmetic import bounds_of, scaling_fields
from odc_mlir.transforms.native.lowering.moves import expanded
from odc_mlir.transforms.native.lowering.segment_writer import (
    Argument,
    Array,
    EmitCalls,
    KernelPattern,
    SegmentFunction,
    count,
    has_float_result,
    planned,
    refusal,
    require_same_codes,
    sign_offset,
    size_bytes,
)

_EIGHT_BIT = ("int8", "uint8")
_PLAIN = ("int32", "int64", "bool")
_LARGEST_WIDE = (1 << 15) - 1
_OPERATIONS = {name: index for index, name in enumerate(OPERATIONS)}


def broadcasting(
    kernel: str,
    options: Mapping[str, int],
    infos: Sequence[TensorInfo],
    out: TensorInfo,
    sources: Sequence[int | Array] | None = None,
    **arguments: Argument,
) -> EmitCalls:
    """Plan an element-wise kernel on ``sources``: indices of operands (default: all operands), or constants.

    The kernel has the buffers ``a``, ``b``, ``c`` and ``output``, the options ``a``, ``b``, ``c`` (layouts of
    operands), and the sizes ``rows`` and ``columns``. The sizes are chosen such that the fewest operands must be
    expanded.
    """
    shape = out.static_shape
    shapes = [(1,) * (len(shape) - len(info.static_shape)) + info.static_shape for info in infos]
    splits = [tuple(_operand_layout(own, shape, split) for own in shapes) for split in range(len(shape) + 1)]
    best = min(range(len(splits)), key=lambda split: splits[split].count(None))
    names = elementwise.OPERANDS[: len(infos)]
    ways = {name: elementwise.FULL if way is None else way for name, way in zip(names, splits[best], strict=True)}

    def emit(segment: SegmentFunction) -> None:
        constants = segment.stored(arguments)
        buffers = [
            segment.operand(source) if isinstance(source, int) else segment.constant(source)
            for source in sources or range(len(infos))
        ]
        for place, (info, way) in enumerate(zip(infos, splits[best], strict=True)):
            if way is None:
                buffers[place] = expanded(segment, buffers[place], info, shape)
        sizes = {"rows": math.prod(shape[:best]), "columns": math.prod(shape[best:])}
        operands = dict(zip(names, buffers, strict=True))
        segment.call(kernel, {**options, **ways}, **constants, **operands, output=segment.result(out), **sizes)

    return emit


def _operand_layout(own: tuple[int, ...], shape: tuple[int, ...], split: int) -> int | None:
    """Return the layout of an operand for rows of the dimensions before ``split``, or None if it must be expanded."""
    if own == shape:
        return elementwise.FULL
    if all(size == 1 for size in own):
        return elementwise.SINGLE
    if own[split:] == shape[split:] and all(size == 1 for size in own[:split]):
        return elementwise.BY_COLUMN
    if own[:split] == shape[:split] and all(size == 1 for size in own[split:]):
        return elementwise.BY_ROW
    return None


class LowerFloatBinaryToKernels(KernelPattern):
    """Lower arithmetic of two float32 operands. The second is LEAKY_RELU's slope, or for SQUARE the first."""

    operators: ClassVar[Sequence[str]] = (
        "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "LEAKY_RELU", "PRELU", "SQUARE"
    )  # fmt: skip

    applies = staticmethod(has_float_result)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        name, a, out = node.spec.name, node.operand(0), node.results[0]
        second: int | Array
        if name == "LEAKY_RELU":
            b, second = TensorInfo("alpha", "float32", ()), np.array(option(node, "alpha"), np.float32)
        else:
            b, second = (a, 0) if name == "SQUARE" else (node.operand(1), 1)
        if a.dtype != "float32" or b.dtype != "float32":
            raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
        clamp = int("fused_activation_function" in node.options)
        low, high = bounds_of(node)
        options = {"operation": _OPERATIONS["MUL" if name == "SQUARE" else name], "clamp": clamp}
        return broadcasting("binary_reals", options, (a, b), out, (0, second), low=low, high=high)


class LowerPowToKernels(LowerFloatBinaryToKernels):
    """Lower POW of float32. Some constant powers become a faster function."""

    operators = ("POW",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        exponent = node.operand(1)
        if exponent.is_const and count(exponent) == 1 and node.operand(0).dtype == "float32":
            name = {2.0: "SQUARE", 0.5: "POW_1/2", -0.5: "POW_-1/2"}.get(float(exponent.array().reshape(-1)[0]))
            if name is not None:
                return planned(node, "unary_reals", {"operation": _OPERATIONS[name]}, count=count(node.results[0]))
        return super().plan(node)


class LowerFloatUnaryToKernels(KernelPattern):
    """Lower a function of every float32 element."""

    operators = ("NEG", "ABS", "SQRT", "RSQRT", "LOGISTIC", "RELU", "RELU6", "HARD_SWISH", "EXP", "TANH", "LOG",
                 "FLOOR", "CEIL", "ROUND", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "SIGN", "SIN", "COS", "GELU",
                 "CUSTOM(Erf)")  # fmt: skip

    applies = staticmethod(has_float_result)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        name = "GELU_TANH" if node.spec.name == "GELU" and option(node, "approximate") else node.spec.name
        return planned(node, "unary_reals", {"operation": _OPERATIONS[name]}, count=count(node.results[0]))


class LowerAddNToKernels(KernelPattern):
    """Lower ADD_N of float32 tensors of one shape to a chain of sums of two buffers."""

    operators = ("ADD_N",)

    applies = staticmethod(has_float_result)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        infos, out = [node.operand(i) for i in range(len(node.operands))], node.results[0]
        if any(info.dtype != "float32" or info.static_shape != out.static_shape for info in infos):
            raise refusal(node, f"operands of {', '.join(info.dtype for info in infos)} have no native kernel")
        options = {"operation": _OPERATIONS["ADD"], "clamp": 1, "a": elementwise.FULL, "b": elementwise.FULL}
        low, high = bounds_of(node)
        sizes = {"rows": 1, "columns": count(out), "low": low, "high": high}

        def emit(segment: SegmentFunction) -> None:
            total, *others = [segment.operand(index) for index in range(len(infos))]
            target = segment.result(out)
            if not others:
                segment.call("copy", {}, input=total, output=target, count=size_bytes(out))
            for other in others:
                segment.call("binary_reals", options, a=total, b=other, output=target, **sizes)
                total = target

        return emit


class LowerCodesArithmeticToKernels(KernelPattern):
    """Lower ADD, SUB and MUL of quantised values. 16-bit values must have zero point 0. 16-bit sums may use shifts."""

    operators = ("ADD", "SUB", "MUL")

    @staticmethod
    def applies(node: Node) -> bool:
        return not has_float_result(node) and (node.operand(0).dtype == "int16" or node.results[0].dtype not in _PLAIN)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        a, b, out = node.operand(0), node.operand(1), node.results[0]
        if len({a.dtype, b.dtype, out.dtype}) > 1 or a.dtype not in CODE_DTYPES or a.quant is None or b.quant is None:
            raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
        wide = a.dtype == "int16"
        quants = scale_of(node, a), scale_of(node, b), scale_of(node, out)
        if wide and any(zero for _, zero in quants):
            raise refusal(node, "16-bit values with zero points have no native kernel")
        operation = {"ADD": elementwise.SUM, "SUB": elementwise.DIFFERENCE, "MUL": elementwise.PRODUCT}[node.spec.name]
        kind, left, table = _combination(node, operation, quants, activation_codes(node, out), wide=wide)
        parts = enumerate(table[: 2 * len(elementwise.OPERAND_FIELDS)].reshape(2, -1).tolist())
        halved = sum(1 << i for i, (_, q, _, _, shift) in parts if left and (q, shift) == (1 << 30, 0))
        options = {"operation": kind, "left": left, "wide": int(wide), "halved": halved}
        return broadcasting("combine_codes", options, (a, b), out, table=table)


def _combination(
    node: Node, operation: int, quants: tuple[tuple[float, int], ...], act: tuple[int, int], *, wide: bool
) -> tuple[int, int, Array]:
    a, b, out = quants
    up, unused = sign_offset(node.results[0]), [0] * (len(elementwise.OPERAND_FIELDS) - 1)
    dtype = node.results[0].dtype
    exponents: list[int]
    first: Sequence[Any]
    second: Sequence[Any]
    if wide and operation != elementwise.PRODUCT and node.options.get("pot_scale_int16", True):
        shifts = power_add_params(a[0], b[0], out[0], act)
        if shifts is not None:
            kind = elementwise.SHIFTED_SUM if operation == elementwise.SUM else elementwise.SHIFTED_DIFFERENCE
            limits = max(act[0], -_LARGEST_WIDE - 1), min(act[1], _LARGEST_WIDE)
            parts = [(0, *scaling_fields(0, -shift)) for shift in (shifts.a_shift, shifts.b_shift)]
            return kind, 0, np.array([*parts[0], *parts[1], *unused, 0, *limits], np.int32)
    if operation == elementwise.PRODUCT:
        product = mul_params(a, b, out, act, dtype)
        left, exponents, first, second = 0, [product.exponent], unused, unused
        whole = scaling_fields(product.multiplier, product.exponent)
    else:
        p = add_params(a, b, out, act, dtype)
        left, exponents = p.left_shift, [p.a_exponent, p.b_exponent, p.out_exponent]
        first, second = scaling_fields(p.a_multiplier, p.a_exponent), scaling_fields(p.b_multiplier, p.b_exponent)
        whole = scaling_fields(p.out_multiplier, p.out_exponent)
    if max(exponents) > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    limits = act[0] + up, act[1] + up
    numbers = [a[1] + up, *first, b[1] + up, *second, *whole, out[1] + up, *limits]
    return operation, left, np.array(numbers, np.int32)


_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
_CHOICES = ("SELECT", "SELECT_V2")
_ANY_TYPES = (*_COMPARISONS, *_CHOICES, "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "CAST")


class LowerElementsToKernels(KernelPattern):
    """Lower an operation on stored elements of any type, or on 8-bit quantised values to a look-up by pairs."""

    operators = (*_ANY_TYPES, "ADD", "SUB", "MUL", "NEG", "ABS", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU",
                 "DIV")  # fmt: skip

    @staticmethod
    def applies(node: Node) -> bool:
        name, wide = node.spec.name, node.operand(0).dtype == "int16"
        if name in ("ADD", "SUB", "MUL", "ABS"):
            return node.results[0].dtype in _PLAIN and not wide
        return name in _ANY_TYPES or not (has_float_result(node) or (name == "NEG" and wide))

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        name, out = node.spec.name, node.results[0]
        infos = [node.operand(i) for i in range(len(node.operands))]
        coded = any(is_quantised(info) for info in (*infos, out))
        if name in _CHOICES:
            require_same_codes(node, *infos[1:], out)
        elif coded and all(info.dtype in _EIGHT_BIT for info in infos):
            return _by_pairs(node) if len(infos) == 2 else LowerByTableToKernels.plan(node)
        elif coded:
            raise refusal(node, f"quantised operands of {infos[0].dtype} have no native kernel")
        if node.options.get("fused_activation_function", "none") not in ("none", None):
            raise refusal(node, "a fused activation has no native kernel")
        found = elementwise.element_of(name, [info.dtype for info in infos], out.dtype)
        if found is None:
            raise refusal(node, f"operands of {' and '.join(info.dtype for info in infos)} have no native kernel")
        if name in _CHOICES:
            infos[0] = _beside(infos[0], infos[1], out)
        return broadcasting("map_elements", {"operation": found}, infos, out)


def _beside(condition: TensorInfo, other: TensorInfo, out: TensorInfo) -> TensorInfo:
    """Return the condition of SELECT. If it has an element per row of ``other``, give it the result's rank."""
    shape, rank = condition.static_shape, len(out.static_shape)
    if len(shape) == 1 and rank > 1 and len(other.static_shape) == rank and shape[0] == out.static_shape[0]:
        return replace(condition, shape=(*shape, *(1,) * (rank - 1)))
    return condition


def _by_pairs(node: Node) -> EmitCalls:
    a, b, out = node.operand(0), node.operand(1), node.results[0]
    if out.dtype not in (*_EIGHT_BIT, "bool"):
        raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
    for info in (a, b, out):
        if info.quant is not None and not info.quant.per_tensor:
            raise refusal(node, f"{info.name!r} has several scales")
    shape = (256, 256)
    first, second = (_stored_codes(info) for info in (a, b))
    given = [np.broadcast_to(first[:, None], shape).copy(), np.broadcast_to(second, shape).copy()]
    return broadcasting("look_up_pairs", {}, (a, b), out, table=_table(node, shape, given))


def _stored_codes(info: TensorInfo) -> Array:
    """Return all values of a quantised type: 16-bit values ascending, 8-bit values in stored order."""
    if info.dtype == "int16":
        return np.arange(-_LARGEST_WIDE - 1, _LARGEST_WIDE + 1).astype(np.int16)
    return (np.arange(256) - sign_offset(info)).astype(info.info.numpy)


def _table(node: Node, shape: tuple[int, ...], given: Sequence[Array]) -> Array:
    own, out = tuple(replace(node.operand(i), shape=shape, data=None) for i in range(len(given))), node.results[0]
    one = replace(node, operands=(*own, *node.operands[len(own) :]), results=(replace(out, shape=shape),))
    with np.errstate(all="ignore"):
        (values,) = one.spec.kernel_function(one)([*given, *[None] * (len(node.operands) - len(own))])
    return (values.astype(np.int16) + sign_offset(out)).astype(np.uint8) if out.info.numpy.itemsize == 1 else values


class LowerByTableToKernels(KernelPattern):
    """Lower a function of one quantised value to a look-up in a table that the host kernel computes."""

    operators = ("LOGISTIC", "TANH", "HARD_SWISH", "ELU", "GELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1",
                 "LEAKY_RELU", "ABS", "EXP", "LOG", "RSQRT", "NEG", "QUANTIZE")  # fmt: skip

    @staticmethod
    def applies(node: Node) -> bool:
        return not has_float_result(node)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = node.operand(0), node.results[0]
        wide = x.dtype == "int16"
        if x.dtype not in CODE_DTYPES or out.dtype not in (CODE_DTYPES if wide else _EIGHT_BIT) or x.is_const:
            raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
        return _look_up(node)


def _look_up(node: Node) -> EmitCalls:
    x, out = node.operand(0), node.results[0]
    codes = _stored_codes(x)
    options = {"bits": x.info.bits, "result": out.info.bits}
    return planned(node, "look_up", options, table=_table(node, codes.shape, [codes]), count=count(out))


class LowerQuantizeToKernels(KernelPattern):
    """Lower QUANTIZE of float32."""

    operators = ("QUANTIZE",)

    @staticmethod
    def applies(node: Node) -> bool:
        return node.operand(0).dtype == "float32" and node.results[0].dtype in CODE_DTYPES

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        out = node.results[0]
        scale, zero = scale_of(node, out)
        low, high = out.info.range
        ends = {"least": float(low - zero), "most": float(high - zero)}
        numbers = {"count": count(out), "scale": scale, **ends, "zero": zero + sign_offset(out)}
        return planned(node, "quantize_reals", {"wide": int(out.dtype == "int16")}, **numbers)


class LowerDequantizeToKernels(KernelPattern):
    """Lower DEQUANTIZE to a look-up for 8-bit values, and to arithmetic for 16-bit values."""

    operators = ("DEQUANTIZE",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = node.operand(0), node.results[0]
        if (
            x.dtype not in CODE_DTYPES
            or x.quant is None
            or not x.quant.per_tensor
            or x.is_const
            or not has_float_result(node)
        ):
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        if x.dtype in _EIGHT_BIT:
            return _look_up(node)
        scale, zero = scale_of(node, x)
        numbers = {"scale": float(np.float32(scale)), "zero": float(zero)}
        return planned(node, "dequantize_wide", {}, count=count(out), **numbers)
