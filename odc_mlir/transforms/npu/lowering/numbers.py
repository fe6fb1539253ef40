"""Patterns that lower arithmetic of plain integers, such as indices. The placement rules bound results to 16 bits."""

from __future__ import annotations

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import BlobAttr, tensor_type
from odc_mlir.numerics.elementwise import AddParams
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.transforms.npu.lowering.site import UNIT, Benefit, LowerToNpu, Site, product, sum_of


class LowerNumbers(LowerToNpu):
    """Lower ADD, SUB and MUL of 32-bit numbers, which have no scales."""

    operators = ("ADD", "SUB", "MUL")
    benefit = Benefit.SCALE

    def applies(self, node: Node) -> bool:
        return node.results[0].dtype == "int32"

    def rewrite(self, site: Site) -> None:
        kind, a, b = npu.ElementwiseKind(site.node.spec.name.lower()), *map(site.constant_or_operand, (0, 1))
        clamp = npu.code_range("int32")
        if kind is npu.ElementwiseKind.MUL:
            site.finish(product(a, b, site.result_type, (0, 0, 0), UNIT, clamp))
        else:
            site.finish(sum_of(kind, a, b, site.result_type, AddParams(0, 0, 0, 0, *UNIT, *UNIT, *UNIT, *clamp)))


class LowerFloorDivision(LowerToNpu):
    """Lower division by ``c`` to the nearest integer to ``(2 * x - (c - 1)) / (2 * c)``, which is never a tie.

    The remainder is ``x - c * quotient``.
    """

    operators = ("FLOOR_DIV", "FLOOR_MOD")

    def rewrite(self, site: Site) -> None:
        x, divisor, clamp = site.operand(0), int(site.info(1).array().flat[0]), npu.code_range("int32")
        offset = site.emit(npu.ConstantOp(BlobAttr.of((divisor - 1).to_bytes(4, "little")), tensor_type("int32", (1,))))
        params = AddParams(0, 0, 0, 1, *UNIT, 1 << 30, 0, round((1 << 30) / divisor), 0, *clamp)
        found = sum_of(npu.ElementwiseKind.SUB, x, offset, x.type, params)
        if site.node.spec.name == "FLOOR_MOD":
            params = AddParams(0, 0, 0, 0, *UNIT, divisor << 15, 16, *UNIT, *clamp)
            found = sum_of(npu.ElementwiseKind.SUB, x, site.emit(found), x.type, params)
        site.finish(found)


class LowerCast(LowerToNpu):
    """Lower CAST to a maximum of equal operands. A number is true if the square of its sign is 1."""

    operators = ("CAST",)
    benefit = Benefit.SCALE

    def rewrite(self, site: Site) -> None:
        x, kind, clamp = site.operand(0), site.result_type, npu.code_range(site.result.dtype)
        if site.result.dtype == "bool":
            signs = tensor_type("int8", npu.shape_of(x), QuantParams((1.0,), (0,)))
            sign = site.emit(npu.ElementwiseOp(npu.ElementwiseKind.MAX, x, x, signs, clamp=(-1, 1)))
            site.finish(product(sign, sign, kind, (0, 0, 0), UNIT, clamp))
        else:
            site.finish(npu.ElementwiseOp(npu.ElementwiseKind.MAX, x, x, kind, clamp=clamp))
