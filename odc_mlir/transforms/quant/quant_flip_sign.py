"""``quant-flip-sign``: convert int8 to uint8 or the reverse, without loss.

Before::

    %c = circle.const [100, 200] : tensor<2x!quant.uniform<u8:f32, 0.5:128>>
    %0 = circle.add(%x, %c) : (tensor<2x!quant.uniform<u8:f32, 0.25:3>>, …) -> …

After ``quant-flip-sign{to=int8}``::

    %c = circle.const [-28, 72] : tensor<2x!quant.uniform<i8:f32, 0.5>>
    %0 = circle.add(%x, %c) : (tensor<2x!quant.uniform<i8:f32, 0.25:-125>>, …) -> …

Every quantised value and every zero point changes by 128, in all functions, inputs and outputs included, so that all
values represent the same numbers. Integers without a scale are left unchanged.

Rejects, naming the operator: operators that depend on the integers themselves (CAST, BITCAST, custom ones), those whose
kernel does not support the other type, signed weights with a zero point (signed weights are symmetric), and quantised
weights of float activations, whose meaning depends on their sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, NoneType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, node_of, tensor_facts, tensor_type
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo, Trait
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.placement import functions, operators
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.tensor_names import values_of
from odc_mlir.transforms.quant.common.ir import SCHEME

_MIDDLE = 128
_SHIFT = {"int8": -_MIDDLE, "uint8": _MIDDLE}  # of codes that become this type
_OTHER = {"int8": "uint8", "uint8": "int8"}
_CONVERTERS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class QuantFlipSignPass(ModulePass):
    """Move 8-bit codes by 128; see the module's text."""

    name = "quant-flip-sign"

    to: Literal["int8", "uint8"]
    """The element type to convert to; required."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        changed = set().union(*[self._flip(function) for function in functions(op)])
        for item in operators(op):
            if item in changed and (reason := _refusal(item, self.to)) is not None:
                raise CompileError(
                    f"its values cannot be converted to {self.to}: {reason}", op=item.SPEC.name, tensor=op_name(item)
                )
        if changed:
            op.attributes.pop(SCHEME, None)  # what it names is another type

    def _flip(self, function: FuncOp) -> set[CircleOp]:
        """Flip all values of ``function``; returns the operators that take or give one."""
        changed: set[CircleOp] = set()
        for value in list(values_of(function)):
            flipped = self._flip_value(value)
            if flipped is not None:
                changed.update(user for use in flipped.uses if isinstance(user := use.operation, CircleOp))
                if isinstance(flipped.owner, CircleOp):
                    changed.add(flipped.owner)
        set_function_type(function)
        return changed

    def _flip_value(self, value: SSAValue) -> SSAValue | None:
        if isinstance(value.type, NoneType):
            return None
        facts = tensor_facts(value.type)
        if facts.dtype != _OTHER[self.to] or facts.quant is None:
            return None
        zero_points = tuple(zero + _SHIFT[self.to] for zero in facts.quant.zero_points)
        params = QuantParams(facts.quant.scales, zero_points, facts.quant.axis)
        if isinstance(value.owner, ConstOp):
            codes = np.frombuffer(value.owner.blob.data, np.uint8) ^ np.uint8(_MIDDLE)
            value.owner.properties["value"] = BlobAttr.of(codes.tobytes())
        return retype(value, tensor_type(self.to, facts.shape, params))


def _refusal(op: CircleOp, to: str) -> str | None:
    """Why ``op`` does not do the same with codes of the type ``to``, None where it does."""
    rule, name = op.SPEC.quant, op.SPEC.name
    if Trait.CONTROL_FLOW in op.SPEC.traits or name in _CONVERTERS:
        return None
    node = node_of(op)
    if rule.kind is QuantKind.FLOAT or (rule.kind is QuantKind.NONE and any(_is(info, to) for info in node.results)):
        return "it works on codes as they are"
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
        return f"weights {weights.name!r} of real activations mean something else with another sign"
    assert weights.quant is not None
    one_scale = node.spec.name == "FULLY_CONNECTED" and weights.quant.per_tensor
    if to == "int8" and any(weights.quant.zero_points) and not one_scale:
        zero = next(filter(None, weights.quant.zero_points))
        return f"weights {weights.name!r} would have the zero point {zero}, signed ones are symmetric to other readers"
    return None


def _is(info: TensorInfo, dtype: str) -> bool:
    return info.dtype == dtype and info.quant is not None
