"""Where a ``circle`` operator is being replaced by ``npu`` operations, and what every such replacement needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, ConstOp, node_of
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.numerics.fixed import activation_range
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

Lowering = Callable[["Site"], None]
"""Replaces one operator of a kind."""

Lowerings = Mapping[str, Lowering]
"""Schema name of an operator -> what lowers it; each module has one of its own, ``LOWERINGS``."""

ONE = npu.ScaleAttr.of(1 << 30, 1)  # the factor 1, which rounds nothing


@dataclass
class Site:
    """One operator under replacement. ``emit`` puts operations in front of it, ``finish`` replaces it."""

    op: CircleOp

    @cached_property
    def node(self) -> Node:
        return node_of(self.op)

    @property
    def result_type(self) -> TensorType[Attribute]:
        """Type of the operator's (only) result."""
        return tensor_of(self.op.results[0])

    def operand(self, index: int) -> SSAValue:
        return self.op.operands[index]

    def constant_or_operand(self, index: int) -> SSAValue:
        """Operand ``index``, a constant one as an npu constant."""
        value = self.operand(index)
        return self.emit(npu.ConstantOp(self.blob(index), value.type)) if self.info(index).is_const else value

    def info(self, index: int) -> TensorInfo:
        return self.node.operand(index)

    @property
    def result(self) -> TensorInfo:
        return self.node.results[0]

    def emit(self, new: Operation) -> SSAValue:
        """Insert ``new`` in front of the operator, with its location and name; returns the first result."""
        new.location = self.op.location
        new.results[0].name_hint = self.op.results[0].name_hint
        Rewriter.insert_op(new, InsertPoint.before(self.op))
        return new.results[0]

    def finish(self, new: Operation) -> None:
        """Replace the operator by ``new``'s result, of the operator's type or reshaped to it."""
        value = self.emit(new)
        if value.type != self.result_type:
            value = self.emit(npu.ReshapeOp(value, self.result_type))
        Rewriter.replace_op(self.op, [], [value])

    def reshape(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """``value`` with another shape; ``value`` itself when it has that shape."""
        if npu.shape_of(value) == tuple(shape):
            return value
        return self.emit(npu.ReshapeOp(value, with_shape(tensor_of(value), tuple(shape))))

    def result_of_shape(self, *shape: int) -> Attribute:
        """The operator's result type with another shape."""
        return with_shape(self.result_type, shape)

    def blob(self, index: int) -> BlobAttr:
        """The bytes of constant operand ``index``, shared with its constant."""
        owner = self.operand(index).owner
        assert isinstance(owner, ConstOp)
        return owner.value

    def clamp(self, activation: str | None = None) -> tuple[int, int]:
        """Codes that the fused activation (or the one given) allows for the result."""
        fused = activation or self.node.options.get("fused_activation_function", "none")
        quant = quant_of(self.result)
        return activation_range(fused, self.result.info.storage, quant.scale, quant.zero_point)


def tensor_of(value: SSAValue) -> TensorType[Attribute]:
    """The type of a tensor of known rank."""
    assert isinstance(value.type, TensorType)
    return value.type


def quant_of(info: TensorInfo) -> QuantParams:
    """Quantisation of a tensor that the placement rules found quantised."""
    assert info.quant is not None, "the placement rules ask for quantised tensors"
    return info.quant


def pair_of(info: TensorInfo) -> tuple[float, int]:
    """(scale, zero point) of a tensor quantised as a whole."""
    quant = quant_of(info)
    return quant.scale, quant.zero_point


def blob_of(array: NDArray[Any]) -> BlobAttr:
    """The bytes of an array of codes."""
    return BlobAttr.of(array.tobytes())


def elements(info: TensorInfo) -> int:
    """Number of elements of a tensor."""
    return math.prod(info.static_shape)
