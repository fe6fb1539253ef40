"""Patterns that lower comparisons, logic and choices. A truth is a byte of 0 or 1."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.numerics.elementwise import COMPARED_SHIFT, compare_params
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.runtime.kernels.logic import needs_scales
from odc_mlir.transforms.npu.lowering.site import MINUS, ONE, UNIT, LowerToNpu, Pair, Site, blob_of, exact_sum, product
from odc_mlir.transforms.partition.rules.checks import COMPARISONS


class LowerCodeComparison(LowerToNpu):
    """Lower a comparison to a difference at the common scale, clamped to 0 and 1.

    ``a > b`` is ``clamp(a - b, 0, 1)``, and ``a >= b`` is ``clamp(a - b + 1, 0, 1)``. LESS swaps the operands.
    Operands differ if the square of ``clamp(a - b, -1, 1)`` is 1.
    """

    operators = COMPARISONS

    def rewrite(self, site: Site) -> None:
        name, truths = site.node.spec.name, npu.code_range(site.result.dtype)
        if name not in ("EQUAL", "NOT_EQUAL"):
            operands = (1, 0) if name.startswith("LESS") else (0, 1)
            site.finish(_difference(site, operands, site.result_type, int(name.endswith("EQUAL")), truths))
            return
        signs = tensor_type("int8", site.result.static_shape, QuantParams((1.0,), (0,)))
        sign = site.emit(_difference(site, (0, 1), signs, 0, (-1, 1)))
        zero, scale = (1, MINUS) if name == "EQUAL" else (0, UNIT)
        site.finish(product(sign, sign, site.result_type, (0, 0, zero), scale, truths))


class LowerLogicalNot(LowerToNpu):
    """Lower LOGICAL_NOT to the square of the truth minus 1."""

    operators = ("LOGICAL_NOT",)

    def rewrite(self, site: Site) -> None:
        site.finish(_negation(site.operand(0)))


class LowerMask(LowerToNpu):
    """Lower a choice between ``x`` and a constant of equal codes ``k`` to ``c * (x - k) + k``, a single product.

    Masks before SOFTMAX choose like this. Types with zero point ``k`` view the same codes.
    """

    operators = ("SELECT", "SELECT_V2")

    def applies(self, node: Node) -> bool:
        return _masked(node) is not None

    def rewrite(self, site: Site) -> None:
        masked = _masked(site.node)
        assert masked is not None, "the pattern applies"
        x = site.constant_or_operand(3 - masked)
        code = int(site.info(masked).array().flat[0])
        zeros, scale = ((0, code, code), UNIT) if masked == 2 else ((1, code, code), MINUS)
        dtype, quant = site.result.dtype, QuantParams((1.0,), (code,))
        view = site.emit(npu.ReshapeOp(x, tensor_type(dtype, npu.shape_of(x), quant)))
        kind = tensor_type(dtype, site.result.static_shape, quant)
        condition = _condition(site, negated=False)
        site.finish(product(condition, view, kind, zeros, scale, npu.code_range(dtype)))


class LowerSelect(LowerToNpu):
    """Lower a choice by a condition ``c`` to ``c * x + (1 - c) * y``, on codes minus the zero point."""

    operators = ("SELECT", "SELECT_V2")

    def rewrite(self, site: Site) -> None:
        zero, clamp = 0 if (quant := site.result.quant) is None else quant.zero_point, npu.code_range(site.result.dtype)
        terms = []
        for index in (1, 2):
            condition, value = _condition(site, negated=index == 2), site.constant_or_operand(index)
            kind = site.result_of_shape(*np.broadcast_shapes(npu.shape_of(condition), npu.shape_of(value)))
            terms.append(site.emit(product(condition, value, kind, (0, zero, zero), UNIT, clamp)))
        site.finish(exact_sum(terms[0], terms[1], site.result_type, zero, clamp))


def _difference(site: Site, operands: Pair, kind: Attribute, added: int, clamp: Pair) -> npu.ElementwiseOp:
    """Return the difference of two operands at the common scale plus ``added``."""
    a, b = (_compared(site, index) for index in operands)
    quants = [site.info(index).quant for index in operands]
    zeros, shift, scales = [0 if quant is None else quant.zero_point for quant in quants], 0, [ONE, ONE]
    if needs_scales(site.node):
        shift, scales = COMPARED_SHIFT, [npu.ScaleAttr.of(*compare_params(quant.scale)) for quant in quants if quant]
    factors = dict(zip(("a_scale", "b_scale", "out_scale"), (*scales, ONE), strict=True))
    return npu.ElementwiseOp(
        npu.ElementwiseKind.SUB, a, b, kind, zeros=(*zeros, added), left_shift=shift, clamp=clamp, **factors
    )


def _compared(site: Site, index: int) -> SSAValue:
    """Return an operand. 32-bit numbers are clamped to 16 bits, because constants on the other side are smaller."""
    info = site.info(index)
    if info.dtype != "int32":
        return site.constant_or_operand(index)
    kind = tensor_type("int16", info.static_shape, QuantParams((1.0,), (0,)))
    if info.is_const:
        return site.emit(npu.ConstantOp(blob_of(info.array().astype("<i2")), kind))
    x, clamp = site.operand(index), npu.code_range("int16")
    return site.emit(npu.ElementwiseOp(npu.ElementwiseKind.MAX, x, x, kind, clamp=clamp))


def _negation(truths: SSAValue) -> npu.ElementwiseOp:
    return product(truths, truths, truths.type, (1, 1, 0), UNIT, npu.code_range("bool"))


def _condition(site: Site, *, negated: bool) -> SSAValue:
    shape = _condition_shape(site.node)
    if site.info(0).is_const:
        return site.emit(npu.ConstantOp(blob_of(site.info(0).array() ^ negated), tensor_type("bool", shape)))
    condition = site.reshape(site.operand(0), shape)
    return site.emit(_negation(condition)) if negated else condition


def _condition_shape(node: Node) -> tuple[int, ...]:
    """Return the shape that broadcasts. A vector that selects rows in SELECT becomes a column."""
    shape, rank = node.operand(0).static_shape, len(node.results[0].static_shape)
    return (*shape, *(1,) * (rank - 1)) if node.spec.name == "SELECT" and len(shape) == 1 else shape


def _masked(node: Node) -> int | None:
    """Return the index of a choice that is a constant of equal codes, if the others have the result's shape."""
    for index in (2, 1) if node.results[0].quant is not None else ():
        mask, shapes = node.operand(index), (_condition_shape(node), node.operand(3 - index).static_shape)
        whole = np.broadcast_shapes(*shapes) == node.results[0].static_shape
        if whole and mask.is_const and (codes := mask.array()).min() == codes.max():
            return index
    return None
