"""``quant-flip-sign``: convert int8 to uint8 or the reverse, without loss.

Before::

    %c = circle.const [100, 200] : tensor<2x!quant.uniform<u8:f32, 0.5:128>>
    %0 = circle.add(%x, %c) : (tensor<2x!quant.uniform<u8:f32, 0.25:3>>, …) -> …

After ``quant-flip-sign{to=int8}``::

    %c = circle.const [-28, 72] : tensor<2x!quant.uniform<i8:f32, 0.5>>
    %0 = circle.add(%x, %c) : (tensor<2x!quant.uniform<i8:f32, 0.25:-125>>, …) -> …

Every quantised value and every zero point changes by 128, also in inputs and outputs. All values represent the same
numbers as before. Integers without a scale do not change.

Rejects operators that depend on the integers themselves (CAST, BITCAST, custom operators), and operators with a kernel
that does not support the new type. Also rejects signed weights with a zero point, and quantised weights of float
activations. The error names the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, NoneType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, node_of, tensor_facts, tensor_type
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.ops.spec import Node, QuantKind, QuantParams, TensorInfo, Trait
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.placement import functions, operators
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once
from odc_mlir.transforms.quant.common.ir import SCHEME

_MIDDLE = 128
_SHIFT = {"int8": -_MIDDLE, "uint8": _MIDDLE}  # added to codes that become this type
_OTHER = {"int8": "uint8", "uint8": "int8"}
_CONVERTERS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class QuantFlipSignPass(PatternPass):
    """Move 8-bit codes by 128."""

    name = "quant-flip-sign"

    to: Literal["int8", "uint8"]
    """Required element type to convert to."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FlipConstant, FlipValues)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        flip = SignFlip(self.to)
        for function in functions(op):
            apply_once(function, FlipConstant(flip), FlipValues(flip))
            set_function_type(function)
        for item in operators(op):
            if item in flip.changed and (reason := _refusal(item, self.to)) is not None:
                raise CompileError(
                    f"its values cannot be converted to {self.to}: {reason}", op=item.SPEC.name, tensor=op_name(item)
                )
        if flip.changed:
            op.attributes.pop(SCHEME, None)  # the scheme names the other type


@dataclass
class SignFlip:
    """Conversion of types to ``to``, with the operators that use or define a converted value."""

    to: Literal["int8", "uint8"]
    changed: set[Operation] = field(default_factory=set)

    def flip(self, values: Sequence[SSAValue], rewriter: PatternRewriter) -> bool:
        """Convert the types of ``values`` and return whether any changed."""
        flipped = False
        for value in tuple(values):
            if isinstance(value.type, NoneType):
                continue
            facts = tensor_facts(value.type)
            if facts.dtype != _OTHER[self.to] or facts.quant is None:
                continue
            zero_points = tuple(zero + _SHIFT[self.to] for zero in facts.quant.zero_points)
            params = QuantParams(facts.quant.scales, zero_points, facts.quant.axis)
            new = retype(value, tensor_type(self.to, facts.shape, params))
            self.changed.update(use.operation for use in new.uses)
            if isinstance(new.owner, Operation):
                self.changed.add(new.owner)
            flipped = rewriter.has_done_action = True
        return flipped


@dataclass
class FlipConstant(RewritePattern):
    """Convert the codes and the type of a constant."""

    sign: SignFlip

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConstOp, rewriter: PatternRewriter, /) -> None:
        if self.sign.flip(op.results, rewriter):
            codes = np.frombuffer(op.blob.data, np.uint8) ^ np.uint8(_MIDDLE)
            op.properties["value"] = BlobAttr.of(codes.tobytes())


@dataclass
class FlipValues(RewritePattern):
    """Convert the types of results and of function arguments."""

    sign: SignFlip

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, ConstOp):
            self.sign.flip(op.args if isinstance(op, FuncOp) else op.results, rewriter)


def _refusal(op: CircleOp, to: str) -> str | None:
    """Return the reason why ``op`` would compute other numbers on codes of type ``to``, or None."""
    rule, name = op.SPEC.quant, op.SPEC.name
    if Trait.CONTROL_FLOW in op.SPEC.traits or name in _CONVERTERS:
        return None
    node = node_of(op)
    if rule.kind is QuantKind.FLOAT or (rule.kind is QuantKind.NONE and any(_is(info, to) for info in node.results)):
        return "it depends on the codes themselves"
    for index in rule.weights:
        weights = node.optional(index)
        if weights is not None and _is(weights, to) and (reason := _weights_refusal(node, weights, to)) is not None:
            return reason
    try:
        op.SPEC.kernel_function(node)
    except OdcError as error:
        return error.message
    return None


def _weights_refusal(node: Node, weights: TensorInfo, to: str) -> str | None:
    if node.results[0].info.kind == "float":
        return f"weights {weights.name!r} of float activations change their meaning with the sign"
    assert weights.quant is not None
    one_scale = node.spec.name == "FULLY_CONNECTED" and weights.quant.per_tensor
    if to == "int8" and any(weights.quant.zero_points) and not one_scale:
        zero = next(filter(None, weights.quant.zero_points))
        return f"weights {weights.name!r} would have the zero point {zero}; other readers require 0 for signed weights"
    return None


def _is(info: TensorInfo, dtype: str) -> bool:
    return info.dtype == dtype and info.quant is not None
