"""Patterns that lower element-wise arithmetic, activations and choices."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.numerics import elementwise
from odc_mlir.numerics.activation import prelu_params
from odc_mlir.numerics.fixed import code_range, multiply
from odc_mlir.numerics.int16 import power_add_params
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.transforms.npu.lowering.code_functions import wide_function
from odc_mlir.transforms.npu.lowering.site import (
    ONE,
    UNIT,
    Benefit,
    LowerToNpu,
    Site,
    elements,
    exact_sum,
    pair_of,
    product,
    sum_of,
)

_HALF = 1 << 30  # multiplier of 1/2
_SHIFTED_OUT = 17  # right shift that makes every 16-bit code 0


class LowerMaximumMinimum(LowerToNpu):
    """Lower MAXIMUM and LOGICAL_OR to a maximum of codes, and MINIMUM and LOGICAL_AND to a minimum."""

    operators = ("MAXIMUM", "MINIMUM", "LOGICAL_AND", "LOGICAL_OR")

    def rewrite(self, site: Site) -> None:
        kind = npu.ElementwiseKind.MAX if site.node.spec.name in ("MAXIMUM", "LOGICAL_OR") else npu.ElementwiseKind.MIN
        a, b = (site.constant_or_operand(index) for index in (0, 1))
        site.finish(npu.ElementwiseOp(kind, a, b, site.result_type, clamp=npu.code_range(site.result.dtype)))


class LowerMul(LowerToNpu):
    """Lower MUL to ``npu.elementwise``."""

    operators = ("MUL",)

    def rewrite(self, site: Site) -> None:
        a, b = (site.constant_or_operand(index) for index in (0, 1))
        m = elementwise.mul_params(*_pairs(site), site.clamp(), site.result.dtype)
        zeros, scale = (m.a_zero, m.b_zero, m.out_zero), (m.multiplier, m.exponent)
        site.finish(product(a, b, site.result_type, zeros, scale, (m.act_min, m.act_max)))


class LowerAddSub(LowerToNpu):
    """Lower ADD and SUB to ``npu.elementwise``."""

    operators = ("ADD", "SUB")

    def rewrite(self, site: Site) -> None:
        kind = npu.ElementwiseKind.ADD if site.node.spec.name == "ADD" else npu.ElementwiseKind.SUB
        a, b = (site.constant_or_operand(index) for index in (0, 1))
        p = sum_params(site.node, *_pairs(site), site.clamp(), site.result.dtype)
        site.finish(sum_of(kind, a, b, site.result_type, p))


class LowerSquaredDifference(LowerToNpu):
    """Lower SQUARED_DIFFERENCE to the square of a 16-bit difference.

    A difference of int16 codes may be 2^15, which no code represents. In this case, the pattern squares the negated
    magnitude, which always fits.
    """

    operators = ("SQUARED_DIFFERENCE",)

    def rewrite(self, site: Site) -> None:
        p = elementwise.squared_difference_params(*_pairs(site), site.clamp(), site.result.dtype)
        low, high = code_range("int16")
        wide = tensor_type("int16", site.result.static_shape, QuantParams((1.0,), (0,)))
        operands = (
            (site.constant_or_operand(0), p.a_zero, (p.a_multiplier, p.a_exponent)),
            (site.constant_or_operand(1), p.b_zero, (p.b_multiplier, p.b_exponent)),
        )

        def difference(first: int, second: int) -> SSAValue:
            (a, a_zero, a_scale), (b, b_zero, b_scale) = operands[first], operands[second]
            params = elementwise.AddParams(a_zero, b_zero, 0, p.left_shift, *a_scale, *b_scale, *UNIT, low, high)
            return site.emit(sum_of(npu.ElementwiseKind.SUB, a, b, wide, params))

        found = difference(0, 1)
        if site.result.dtype == "int16" and _reaches_past_codes(p):
            found = site.emit(
                npu.ElementwiseOp(npu.ElementwiseKind.MIN, found, difference(1, 0), wide, clamp=(low, high))
            )
        scale = p.out_multiplier, p.out_exponent
        site.finish(product(found, found, site.result_type, (0, 0, p.out_zero), scale, (p.act_min, p.act_max)))


class LowerQuantize(LowerToNpu):
    """Lower QUANTIZE between integer types to a change of scale."""

    benefit = Benefit.SCALE
    operators = ("QUANTIZE",)

    def rewrite(self, site: Site) -> None:
        _change_scale(site, "none", single=False)


class LowerRelu(LowerToNpu):
    """Lower RELU, RELU6, RELU_N1_TO_1 and RELU_0_TO_1 to a change of scale with a clamp."""

    benefit = Benefit.SCALE
    operators = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")

    def rewrite(self, site: Site) -> None:
        _change_scale(site, site.node.spec.name.lower(), single=True)


class LowerPrelu(LowerToNpu):
    """Lower PRELU to the sum of the positive values and of slopes times the negative values.

    One term is always zero, and the addition therefore exact. If there is one slope, a table may replace the sum.
    """

    operators = ("PRELU",)

    def applies(self, node: Node) -> bool:
        one_slope = node.operand(1).is_const and elements(node.operand(1)) == 1
        return not one_slope or wide_function(node, 0) is not None

    def rewrite(self, site: Site) -> None:
        (_, in_zero), (_, out_zero) = pair_of(site.info(0)), pair_of(site.result)
        low, high = code_range(site.result.info.numpy)
        p = prelu_params(*_pairs(site), site.result.dtype)
        above = npu.ScaleOp(
            site.operand(0),
            site.result_type,
            zeros=(in_zero, out_zero),
            scale=npu.ScaleAttr.of(p.multiplier, p.exponent),
            clamp=(out_zero, high),
        )
        negative, limits, alpha = site.operand(0), (low, out_zero), site.info(1)
        if not alpha.is_const or (alpha.array() < p.alpha_zero).any():  # products of positive values may be negative
            clamp = npu.ScaleOp(negative, negative.type, zeros=(in_zero, in_zero), scale=ONE, clamp=(low, in_zero))
            negative, limits = site.emit(clamp), (low, high)
        zeros, scale = (in_zero, p.alpha_zero, out_zero), (p.alpha_multiplier, p.alpha_exponent)
        below = product(negative, site.constant_or_operand(1), site.result_type, zeros, scale, limits)
        terms = site.emit(above), site.emit(below)
        site.finish(exact_sum(*terms, site.result_type, out_zero, (low, high)))


def _pairs(site: Site) -> tuple[elementwise.Quant, elementwise.Quant, elementwise.Quant]:
    return pair_of(site.info(0)), pair_of(site.info(1)), pair_of(site.result)


def _change_scale(site: Site, activation: str, *, single: bool) -> None:
    clamp, dtype = site.clamp(activation), site.result.dtype
    p = elementwise.scale_params(pair_of(site.info(0)), pair_of(site.result), clamp, dtype, single=single)
    site.finish(
        npu.ScaleOp(
            site.operand(0),
            site.result_type,
            zeros=(p.in_zero, p.out_zero),
            scale=npu.ScaleAttr.of(p.multiplier, p.exponent),
            clamp=(p.act_min, p.act_max),
        )
    )


def sum_params(
    node: Node, a: elementwise.Quant, b: elementwise.Quant, out: elementwise.Quant, act: tuple[int, int], dtype: str
) -> elementwise.AddParams:
    """Return the integer parameters of an ADD or SUB, equal to the parameters of the host kernel.

    If all scales are powers of two, 16-bit codes are only shifted: first left to preserve all bits, then right by the
    same amount plus the shift of the codes.
    """
    if dtype == "int16" and node.options.get("pot_scale_int16", True):
        shifts = power_add_params(a[0], b[0], out[0], act)
        if shifts is not None:
            left = elementwise.LEFT_SHIFT_16BIT
            of_a, of_b = (1 - left - min(shift, _SHIFTED_OUT) for shift in (shifts.a_shift, shifts.b_shift))
            return elementwise.AddParams(0, 0, 0, left, _HALF, of_a, _HALF, of_b, _HALF, 1, *act, dtype)
    return elementwise.add_params(a, b, out, act, dtype)


def _reaches_past_codes(p: elementwise.AddParams) -> bool:
    """Return whether a difference of scaled int16 codes can be 2^15."""
    low, high = code_range("int16")
    ends = np.array([low, high])
    a, b = multiply(ends, p.a_multiplier, p.a_exponent), multiply(ends, p.b_multiplier, p.b_exponent)
    return bool(int(a[1]) - int(b[0]) > high)
