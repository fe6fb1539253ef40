"""Base of the patterns that lower ``circle`` operators to ``npu``, and the operator under replacement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar

from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, node_of
from odc_mlir.dialects.circle_types import BlobAttr, with_shape
from odc_mlir.numerics.elementwise import AddParams
from odc_mlir.numerics.fixed import activation_range
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.common.conversion import LoweringPattern
from odc_mlir.transforms.partition.rules.islands import is_inside

Pair = tuple[int, int]
UNIT = (1 << 30, 1)  # multiplier and exponent of the factor 1, which rounds nothing
MINUS = (-UNIT[0], UNIT[1])  # of the factor -1
ONE = npu.ScaleAttr.of(*UNIT)


class Benefit(IntEnum):
    """Rank of a pattern. Among matching patterns, the highest rank wins."""

    GENERAL = 0  # fallback for a whole class of operators
    OWN = 1  # usual lowering of one operator
    SPECIAL = 2  # an operator with certain operands, whose usual lowering is wrong or slower
    TABLE = 3  # a table of 256 codes: one fast instruction
    SCALE = 4  # a lowering that is faster or smaller than a table
    ISLAND = 5  # several operators at once


class LowerToNpu(LoweringPattern[CircleOp]):
    """Base of patterns that replace a ``circle`` operator by ``npu`` operations and erase unused constants.

    The placement rules guarantee that some pattern matches every operator of a segment. One module defines all patterns
    of the same benefit for an operator, special patterns first.
    """

    benefit: ClassVar[Benefit] = Benefit.OWN

    def matches(self, op: CircleOp, /) -> bool:
        return not is_inside(op) and self.applies(node_of(op))  # an island is lowered with its last operator

    def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
        constants = dict.fromkeys(operand.owner for operand in op.operands)
        self.rewrite(Site(op, rewriter))
        for constant in constants:
            if isinstance(constant, ConstOp | NoneOp) and not constant.result.uses:
                rewriter.erase(constant)

    def applies(self, node: Node, /) -> bool:
        """Return whether the pattern lowers ``node``, an operator of its kinds."""
        return True

    def rewrite(self, site: Site, /) -> None:
        raise NotImplementedError


@dataclass
class Site:
    """One operator under replacement. ``emit`` inserts operations before it, and ``finish`` replaces it."""

    op: CircleOp
    rewriter: PatternRewriter

    @cached_property
    def node(self) -> Node:
        return node_of(self.op)

    @property
    def result_type(self) -> TensorType[Attribute]:
        """Type of the operator's only result."""
        return tensor_of(self.op.results[0])

    def operand(self, index: int) -> SSAValue:
        return self.op.operands[index]

    def constant_or_operand(self, index: int) -> SSAValue:
        """Return operand ``index``. A constant operand becomes an npu constant."""
        value = self.operand(index)
        return self.emit(npu.ConstantOp(self.blob(index), value.type)) if self.info(index).is_const else value

    def info(self, index: int) -> TensorInfo:
        return self.node.operand(index)

    @property
    def result(self) -> TensorInfo:
        return self.node.results[0]

    def emit(self, new: Operation) -> SSAValue:
        """Insert ``new`` before the operator and return its first result."""
        return self.rewriter.insert(new).results[0]

    def finish(self, new: Operation) -> None:
        """Replace the operator by the result of ``new``, reshaped to the operator's type if necessary."""
        value = self.emit(new)
        if value.type != self.result_type:
            value = self.emit(npu.ReshapeOp(value, self.result_type))
        self.finish_with([value])

    def finish_with(self, values: Sequence[SSAValue]) -> None:
        """Replace the operator's results by ``values``."""
        self.rewriter.replace(self.op, [], values)

    def reshape(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Return ``value`` with ``shape``, or ``value`` itself if it has that shape."""
        if npu.shape_of(value) == tuple(shape):
            return value
        return self.emit(npu.ReshapeOp(value, with_shape(tensor_of(value), tuple(shape))))

    def result_of_shape(self, *shape: int) -> Attribute:
        """Return the operator's result type with another shape."""
        return with_shape(self.result_type, shape)

    def blob(self, index: int) -> BlobAttr:
        """Return the bytes of constant operand ``index``, shared with its constant."""
        owner = self.operand(index).owner
        assert isinstance(owner, ConstOp)
        return owner.value

    def clamp(self, activation: str | None = None) -> tuple[int, int]:
        """Return the range of result codes after ``activation``, or after the fused activation by default."""
        fused = activation or self.node.options.get("fused_activation_function", "none")
        quant = quant_of(self.result)
        return activation_range(fused, self.result.info.storage, quant.scale, quant.zero_point)


def product(
    a: SSAValue, b: SSAValue, kind: Attribute, zeros: tuple[int, int, int], scale: Pair, clamp: Pair
) -> npu.ElementwiseOp:
    """Return a product of codes with type ``kind``. ``zeros``: zero points of operands and result."""
    factor = npu.ScaleAttr.of(*scale)
    return npu.ElementwiseOp(npu.ElementwiseKind.MUL, a, b, kind, zeros=zeros, out_scale=factor, clamp=clamp)


def exact_sum(a: SSAValue, b: SSAValue, result_type: Attribute, zero: int, clamp: Pair) -> npu.ElementwiseOp:
    """Return the sum of codes with the same scale and zero point."""
    params = AddParams(zero, zero, zero, 0, *UNIT, *UNIT, *UNIT, *clamp)
    return sum_of(npu.ElementwiseKind.ADD, a, b, result_type, params)


def sum_of(
    kind: npu.ElementwiseKind, a: SSAValue, b: SSAValue, result_type: Attribute, p: AddParams
) -> npu.ElementwiseOp:
    """Return the sum or the difference of scaled codes."""
    factors = (p.a_multiplier, p.a_exponent), (p.b_multiplier, p.b_exponent), (p.out_multiplier, p.out_exponent)
    scales = dict(zip(("a_scale", "b_scale", "out_scale"), (npu.ScaleAttr.of(*pair) for pair in factors), strict=True))
    zeros, clamp = (p.a_zero, p.b_zero, p.out_zero), (p.act_min, p.act_max)
    return npu.ElementwiseOp(kind, a, b, result_type, zeros=zeros, left_shift=p.left_shift, clamp=clamp, **scales)


def tensor_of(value: SSAValue) -> TensorType[Attribute]:
    """Return the type of a tensor of known rank."""
    assert isinstance(value.type, TensorType)
    return value.type


def quant_of(info: TensorInfo) -> QuantParams:
    """Return the quantisation of a tensor that the placement rules require to be quantised."""
    assert info.quant is not None, "the placement rules require quantised tensors"
    return info.quant


def pair_of(info: TensorInfo) -> tuple[float, int]:
    """Return scale and zero point of a tensor with one scale."""
    quant = quant_of(info)
    return quant.scale, quant.zero_point


def blob_of(array: NDArray[Any]) -> BlobAttr:
    """Return the bytes of an array of codes."""
    return BlobAttr.of(array.tobytes())


def elements(info: TensorInfo) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(info.static_shape)
