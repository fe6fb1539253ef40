"""``circle`` to ``npu``: element-wise arithmetic, activations, and everything that a table of codes says."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.numerics.activation import prelu_params
from odc_mlir.numerics.elementwise import (
    LEFT_SHIFT_16BIT,
    AddParams,
    Quant,
    add_params,
    mul_params,
    scale_params,
    squared_difference_params,
)
from odc_mlir.numerics.fixed import code_range, multiply
from odc_mlir.numerics.int16 import power_add_params
from odc_mlir.numerics.lut import codes_by_byte
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.npu.lowering.products import lower_mul_by_channels
from odc_mlir.transforms.npu.lowering.site import ONE, Lowerings, Site, elements, pair_of
from odc_mlir.transforms.npu.lowering.tables import results_of
from odc_mlir.transforms.npu.lowering.wide_functions import lower_wide, wide_function

_HALF = 1 << 30  # multiplier of 1/2
_SHIFTED_OUT = 17  # bits to the right that leave nothing of a 16-bit code

KINDS = {
    "ADD": npu.ElementwiseKind.ADD,
    "SUB": npu.ElementwiseKind.SUB,
    "MUL": npu.ElementwiseKind.MUL,
    "MAXIMUM": npu.ElementwiseKind.MAX,
    "MINIMUM": npu.ElementwiseKind.MIN,
}


def dynamic_operands(node: Node) -> list[int]:
    """Indices of the operands that are computed at run time."""
    return [i for i, operand in enumerate(node.operands) if operand is not None and not operand.is_const]


def lower_binary(site: Site) -> None:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM: by a table, a depthwise convolution, or as element-wise operation."""
    dynamic = dynamic_operands(site.node)
    if len(dynamic) == 1:
        source, other = site.info(dynamic[0]), site.info(1 - dynamic[0])
        same_shape = source.static_shape == site.result.static_shape
        if elements(other) == 1 and same_shape and source.info.numpy.itemsize == 1:
            return lower_by_table(site)
        if site.node.spec.name == "MUL" and same_shape and _is_channel_vector(source, other):
            return lower_mul_by_channels(site, dynamic[0])
    return lower_elementwise(site)


def _is_channel_vector(source: TensorInfo, other: TensorInfo) -> bool:
    return elements(other) == source.static_shape[-1] and other.static_shape[-1] == source.static_shape[-1]


def lower_elementwise(site: Site) -> None:
    """Arithmetic on two tensors, one of them maybe constant."""
    kind = KINDS[site.node.spec.name]
    a, b = (site.constant_or_operand(index) for index in (0, 1))
    if kind in (npu.ElementwiseKind.MAX, npu.ElementwiseKind.MIN):
        return site.finish(npu.ElementwiseOp(kind, a, b, site.result_type, clamp=site.clamp()))
    pairs = pair_of(site.info(0)), pair_of(site.info(1)), pair_of(site.result)
    dtype = site.result.dtype
    if kind is npu.ElementwiseKind.MUL:
        m = mul_params(*pairs, site.clamp(), dtype)
        site.finish(
            npu.ElementwiseOp(
                kind,
                a,
                b,
                site.result_type,
                zeros=(m.a_zero, m.b_zero, m.out_zero),
                out_scale=npu.ScaleAttr.of(m.multiplier, m.exponent),
                clamp=(m.act_min, m.act_max),
            )
        )
    else:
        p = sum_params(site.node, *pairs, site.clamp(), dtype)
        site.finish(
            npu.ElementwiseOp(
                kind,
                a,
                b,
                site.result_type,
                zeros=(p.a_zero, p.b_zero, p.out_zero),
                left_shift=p.left_shift,
                a_scale=npu.ScaleAttr.of(p.a_multiplier, p.a_exponent),
                b_scale=npu.ScaleAttr.of(p.b_multiplier, p.b_exponent),
                out_scale=npu.ScaleAttr.of(p.out_multiplier, p.out_exponent),
                clamp=(p.act_min, p.act_max),
            )
        )


def sum_params(node: Node, a: Quant, b: Quant, out: Quant, act: tuple[int, int], dtype: str) -> AddParams:
    """The integers of an ADD or SUB, as its host kernel takes them.

    Where all scales are powers of two, 16-bit codes are only shifted: a shift to the left, which loses nothing, and one
    to the right, by what it is too much and what the codes are to lose.
    """
    if dtype == "int16" and node.options.get("pot_scale_int16", True):
        shifts = power_add_params(a[0], b[0], out[0], act)
        if shifts is not None:
            left = LEFT_SHIFT_16BIT
            of_a, of_b = (1 - left - min(shift, _SHIFTED_OUT) for shift in (shifts.a_shift, shifts.b_shift))
            return AddParams(0, 0, 0, left, _HALF, of_a, _HALF, of_b, _HALF, 1, *act, dtype)
    return add_params(a, b, out, act, dtype)


def lower_squared_difference(site: Site) -> None:
    """SQUARED_DIFFERENCE: a difference of 16 bits times itself; by a table where a constant is taken off.

    Between int16 codes the largest difference may be 2^15, one more than a code: then the negative of its magnitude is
    squared, which is never more than that.
    """
    node = site.node
    dynamic = dynamic_operands(node)
    if len(dynamic) == 1:
        source, other = site.info(dynamic[0]), site.info(1 - dynamic[0])
        if elements(other) == 1 and source.static_shape == site.result.static_shape and source.info.numpy.itemsize == 1:
            return lower_by_table(site)
    pairs = pair_of(site.info(0)), pair_of(site.info(1)), pair_of(site.result)
    p = squared_difference_params(*pairs, site.clamp(), site.result.dtype)
    low, high = code_range("int16")
    wide = tensor_type("int16", site.result.static_shape, QuantParams((1.0,), (0,)))
    scales = (npu.ScaleAttr.of(p.a_multiplier, p.a_exponent), npu.ScaleAttr.of(p.b_multiplier, p.b_exponent))
    values, zeros = (site.constant_or_operand(0), site.constant_or_operand(1)), (p.a_zero, p.b_zero)

    def difference(first: int, second: int) -> SSAValue:
        return site.emit(
            npu.ElementwiseOp(
                npu.ElementwiseKind.SUB,
                values[first],
                values[second],
                wide,
                zeros=(zeros[first], zeros[second], 0),
                left_shift=p.left_shift,
                a_scale=scales[first],
                b_scale=scales[second],
                out_scale=ONE,
                clamp=(low, high),
            )
        )

    found = difference(0, 1)
    if site.result.dtype == "int16" and _reaches_past_codes(p):
        found = site.emit(npu.ElementwiseOp(npu.ElementwiseKind.MIN, found, difference(1, 0), wide, clamp=(low, high)))
    site.finish(
        npu.ElementwiseOp(
            npu.ElementwiseKind.MUL,
            found,
            found,
            site.result_type,
            zeros=(0, 0, p.out_zero),
            out_scale=npu.ScaleAttr.of(p.out_multiplier, p.out_exponent),
            clamp=(p.act_min, p.act_max),
        )
    )


def _reaches_past_codes(p: AddParams) -> bool:
    """Whether a difference of scaled int16 codes can be 2^15."""
    low, high = code_range("int16")
    ends = np.array([low, high])
    a, b = multiply(ends, p.a_multiplier, p.a_exponent), multiply(ends, p.b_multiplier, p.b_exponent)
    return bool(int(a[1]) - int(b[0]) > high)


def lower_scale(site: Site) -> None:
    """QUANTIZE between integer types and the RELU family: a change of scale with a clamp."""
    name = site.node.spec.name
    single = name != "QUANTIZE"
    clamp = site.clamp(name.lower() if single else "none")
    p = scale_params(pair_of(site.info(0)), pair_of(site.result), clamp, site.result.dtype, single=single)
    site.finish(
        npu.ScaleOp(
            site.operand(0),
            site.result_type,
            zeros=(p.in_zero, p.out_zero),
            scale=npu.ScaleAttr.of(p.multiplier, p.exponent),
            clamp=(p.act_min, p.act_max),
        )
    )


def lower_prelu(site: Site) -> None:
    """PRELU: one slope by a table; else values from zero up, plus slopes times values up to zero, each scaled alone.

    One of both is zero, so their sum rounds nothing.
    """
    narrow = site.result.info.numpy.itemsize == 1
    if site.info(1).is_const and elements(site.info(1)) == 1 and (narrow or wide_function(site.node, 0) is None):
        return lower_by_table(site)
    (_, in_zero), (_, out_zero) = pair_of(site.info(0)), pair_of(site.result)
    dtype = site.result.dtype
    low, high = code_range(site.result.info.numpy)
    p = prelu_params(pair_of(site.info(0)), pair_of(site.info(1)), pair_of(site.result), dtype)
    above = npu.ScaleOp(
        site.operand(0),
        site.result_type,
        zeros=(in_zero, out_zero),
        scale=npu.ScaleAttr.of(p.multiplier, p.exponent),
        clamp=(out_zero, high),
    )
    negative = npu.ScaleOp(
        site.operand(0), site.operand(0).type, zeros=(in_zero, in_zero), scale=ONE, clamp=(low, in_zero)
    )
    below = npu.ElementwiseOp(
        npu.ElementwiseKind.MUL,
        site.emit(negative),
        site.constant_or_operand(1),
        site.result_type,
        zeros=(in_zero, p.alpha_zero, out_zero),
        out_scale=npu.ScaleAttr.of(p.alpha_multiplier, p.alpha_exponent),
        clamp=(low, high),
    )
    both = npu.ElementwiseOp(
        npu.ElementwiseKind.ADD,
        site.emit(above),
        site.emit(below),
        site.result_type,
        zeros=(out_zero, out_zero, out_zero),
        a_scale=ONE,
        b_scale=ONE,
        out_scale=ONE,
        clamp=(low, high),
    )
    site.finish(both)


def lower_by_table(site: Site) -> None:
    """Any operator whose result code depends on one input code only: its host kernel fills the table."""
    (dynamic,) = dynamic_operands(site.node)
    if site.info(dynamic).info.numpy.itemsize > 1:
        return lower_wide(site, dynamic)
    site.finish(npu.LutOp(site.operand(dynamic), site.result_type, table=BlobAttr.of(table_of(site.node, dynamic))))


def table_of(node: Node, dynamic: int) -> bytes:
    """Result codes for all 256 codes of operand ``dynamic``, in the order of their bytes."""
    return results_of(node, dynamic, codes_by_byte(node.operand(dynamic).info.numpy)).tobytes()


LOWERINGS: Lowerings = {
    "ADD": lower_binary,
    "SUB": lower_binary,
    "MUL": lower_binary,
    "SQUARED_DIFFERENCE": lower_squared_difference,
    "MAXIMUM": lower_binary,
    "MINIMUM": lower_binary,
    "PRELU": lower_prelu,
    "QUANTIZE": lower_scale,
    "RELU": lower_scale,
    "RELU6": lower_scale,
    "RELU_N1_TO_1": lower_scale,
    "RELU_0_TO_1": lower_scale,
}
