"""Patterns that lower functions of one operand's codes: tables for 8-bit codes, several steps for 16-bit codes.

No table holds every 16-bit code. Logistic and hyperbolic tangent have an instruction. Piecewise linear functions become
changes of scale. Other functions use an interpolated table of 513 entries or a sum of several tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.errors import CompileError
from odc_mlir.numerics.elementwise import AddParams, leaky_params, scale_params
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.int16 import sigmoid_params, sigmoid_table
from odc_mlir.numerics.lut import codes_by_bits
from odc_mlir.ops.spec import Node, Trait
from odc_mlir.transforms.npu.lowering import code_functions
from odc_mlir.transforms.npu.lowering.site import ONE, UNIT, Benefit, LowerToNpu, Site, blob_of, pair_of, sum_of
from odc_mlir.transforms.partition.rules.islands import is_inside, island_of, results_for_codes
from odc_mlir.transforms.partition.rules.table import works_by_table

LOW, HIGH = code_range("int16")
_LARGEST_SHIFTS = {"LOGISTIC": 0, "TANH": 1}  # limits of `sigmoid_params` for power-of-two scales
_UNSHIFTED = (1 << 30, -14)  # factor after a shift to the left by 15
_LEFT_SHIFT = 15


class LowerByTable(LowerToNpu):
    """Lower any element-wise function of one operand's 8-bit codes to a table of 256 result codes.

    Operands that are one-element constants are part of the function. The host kernel computes the table.
    """

    benefit = Benefit.TABLE
    width = 1  # bytes of a code

    def handles(self, kind: type[Operation], /) -> bool:
        return issubclass(kind, CircleOp) and works_by_table(kind.SPEC)

    def applies(self, node: Node) -> bool:
        dynamic = code_functions.function_operand(node)
        return dynamic is not None and node.operand(dynamic).info.numpy.itemsize == self.width

    def rewrite(self, site: Site) -> None:
        dynamic = _source(site)
        codes = codes_by_bits(site.info(dynamic).info.numpy)
        _finish(site, site.operand(dynamic), code_functions.results_of(site.node, {dynamic: codes}))


class LowerIsland(LowerToNpu):
    """Lower an island between 8-bit codes, with all its operators, to a table of 256 result codes."""

    benefit = Benefit.ISLAND

    def handles(self, kind: type[Operation], /) -> bool:
        return issubclass(kind, CircleOp) and Trait.ELEMENTWISE in kind.SPEC.traits

    def matches(self, op: CircleOp, /) -> bool:
        return not is_inside(op) and island_of(op) is not None

    def rewrite(self, site: Site) -> None:
        island = island_of(site.op)
        assert island is not None, "the pattern matches"
        _finish(site, island.source, results_for_codes(island.source, island.members))
        for op in reversed(island.members[:-1]):
            site.rewriter.erase(op)
            for operand in op.operands:
                if isinstance(operand.owner, ConstOp) and not operand.uses:
                    site.rewriter.erase(operand.owner)


class LowerTableSum16(LowerByTable):
    """Lower a function of 16-bit codes whose host kernel adds interpolated tables to the same sum."""

    benefit = Benefit.GENERAL
    width = 2

    def applies(self, node: Node) -> bool:
        return super().applies(node) and code_functions.table_sum_of(node) is not None

    def rewrite(self, site: Site) -> None:
        source, tables = site.operand(_source(site)), code_functions.table_sum_of(site.node)
        assert tables is not None, "the pattern applies"
        first, *finer = tables.tables
        last: npu.LutOp | npu.ElementwiseOp | npu.ScaleOp = _interpolated(site, source, first)
        for place, table in enumerate(finer, 1):
            total, larger = site.emit(last), npu.ScaleAttr.of(1 << 30, 1 + 2 * place)
            at = npu.ScaleOp(source, site.result_type, zeros=(0, 0), scale=larger, clamp=(LOW, HIGH))
            last = _sum(site, total, site.emit(_interpolated(site, site.emit(at), table)))
        if tables.base:
            zeros = (0, tables.base)
            last = npu.ScaleOp(
                site.emit(last), site.result_type, zeros=zeros, shifted=True, scale=ONE, clamp=(LOW, HIGH)
            )
        site.finish(last)


class LowerByTable16(LowerByTable):
    """Lower any other function of 16-bit codes to an interpolated table of 513 entries.

    Refuses a function that no such table represents exactly.
    """

    benefit = Benefit.GENERAL
    width = 2

    def rewrite(self, site: Site) -> None:
        entries = code_functions.interpolated_table(site.node, _source(site))
        if entries is None:
            raise CompileError("no table gives its results")
        site.finish(_interpolated(site, site.operand(_source(site)), entries))


class LowerWide(LowerToNpu):
    """Lower one operator on 16-bit codes."""

    def applies(self, node: Node) -> bool:
        return node.operand(0).dtype == "int16"


class LowerSigmoid16(LowerWide):
    """Lower LOGISTIC and TANH of 16-bit codes to ``npu.sigmoid`` if the instruction supports the scales."""

    operators = tuple(_LARGEST_SHIFTS)

    def applies(self, node: Node) -> bool:
        return super().applies(node) and code_functions.is_sigmoid(node)

    def rewrite(self, site: Site) -> None:
        kind = npu.SigmoidKind.LOGISTIC if site.node.spec.name == "LOGISTIC" else npu.SigmoidKind.TANH
        shift = _LARGEST_SHIFTS[site.node.spec.name]
        params = sigmoid_params(pair_of(site.info(0))[0], largest_shift=shift)
        table, multiplier = blob_of(sigmoid_table().astype("<u2")), params.multiplier
        source = site.operand(0)
        site.finish(
            npu.SigmoidOp(kind, source, site.result_type, multiplier=multiplier, shift=params.shift, table=table)
        )


class LowerLeakyRelu16(LowerWide):
    """Lower LEAKY_RELU of 16-bit codes to the sum of two changes of scale, for positive and for negative codes."""

    operators = ("LEAKY_RELU",)

    def rewrite(self, site: Site) -> None:
        alpha = float(np.float32(site.node.options["alpha"]))
        p = leaky_params(pair_of(site.info(0)), alpha, pair_of(site.result), "int16")
        above = _scaled(site, npu.ScaleAttr.of(p.multiplier, p.exponent), (0, HIGH))
        below = _scaled(site, npu.ScaleAttr.of(abs(p.alpha_multiplier), p.alpha_exponent), (LOW, 0))
        kind = npu.ElementwiseKind.SUB if p.alpha_multiplier < 0 else npu.ElementwiseKind.ADD
        site.finish(_sum(site, above, below, kind, p.out_zero))


class LowerNegAbs16(LowerWide):
    """Lower NEG of 16-bit codes to a negative scale, and ABS to the maximum of both signs. Rounding is monotonic."""

    operators = ("NEG", "ABS")

    def rewrite(self, site: Site) -> None:
        if site.node.spec.name == "NEG":
            site.finish(_rescaled(site, -1))
            return
        both = (site.emit(_rescaled(site, sign)) for sign in (1, -1))
        site.finish(npu.ElementwiseOp(npu.ElementwiseKind.MAX, *both, site.result_type, clamp=(LOW, HIGH)))


def _finish(site: Site, source: SSAValue, results: NDArray[Any]) -> None:
    """Replace the operator by a table of ``results`` of all codes of ``source``, or by a scale of both truths."""
    if results.size == 2:
        site.finish(_two_codes(source, site.result_type, *map(int, results)))
    else:
        site.finish(npu.LutOp(source, site.result_type, table=blob_of(results)))


def _two_codes(truths: SSAValue, kind: Attribute, false: int, true: int) -> npu.ScaleOp:
    """Return one of two codes for each truth."""
    scale = npu.ScaleAttr.of((true - false) << 14, 17)  # a multiplier has room for the difference of 16-bit codes
    clamp = min(false, true), max(false, true)
    return npu.ScaleOp(truths, kind, zeros=(0, false), shifted=True, scale=scale, clamp=clamp)


def _source(site: Site) -> int:
    dynamic = code_functions.function_operand(site.node)
    assert dynamic is not None, "the pattern applies"
    return dynamic


def _interpolated(site: Site, at: SSAValue, table: NDArray[np.int16]) -> npu.LutOp:
    return npu.LutOp(at, site.result_type, table=blob_of(table.astype("<i2")))


def _sum(
    site: Site, a: SSAValue, b: SSAValue, kind: npu.ElementwiseKind = npu.ElementwiseKind.ADD, zero: int = 0
) -> npu.ElementwiseOp:
    params = AddParams(0, 0, zero, _LEFT_SHIFT, *_UNSHIFTED, *_UNSHIFTED, *UNIT, LOW, HIGH)
    return sum_of(kind, a, b, site.result_type, params)


def _scaled(site: Site, scale: npu.ScaleAttr, clamp: tuple[int, int]) -> SSAValue:
    zero = pair_of(site.info(0))[1]
    return site.emit(npu.ScaleOp(site.operand(0), site.result_type, zeros=(zero, 0), scale=scale, clamp=clamp))


def _rescaled(site: Site, sign: int) -> npu.ScaleOp:
    """Return the operand's codes times ``sign``, scaled."""
    p = scale_params(pair_of(site.info(0)), pair_of(site.result), (LOW, HIGH), "int16", single=True)
    zeros, scale = (p.in_zero, p.out_zero), npu.ScaleAttr.of(sign * p.multiplier, p.exponent)
    return npu.ScaleOp(site.operand(0), site.result_type, zeros=zeros, scale=scale, clamp=(LOW, HIGH))
