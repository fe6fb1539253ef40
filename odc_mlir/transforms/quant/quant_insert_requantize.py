"""``quant-insert-requantize``: insert QUANTIZE and DEQUANTIZE between float and quantised values.

Before::

    func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
      %0 = builtin.unrealized_conversion_cast %x : tensor<1x4xf32> to tensor<1x4x!quant.uniform<i8:f32, 0.5>>
      %1 = circle.relu(%0) : …                                                       // "y"
      %2 = builtin.unrealized_conversion_cast %1 : tensor<1x4x!quant.uniform<i8:f32, 0.5>> to tensor<1x4xf32>
      func.return %2 : tensor<1x4xf32>

After::

    func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
      %0 = circle.quantize(%x) : …                                                   // "x_quantized"
      %1 = circle.relu(%0) : …                                                       // "y_quantized"
      %2 = circle.dequantize(%1) : …                                                 // "y"
      func.return %2 : tensor<1x4xf32>

QUANTIZE also converts between quantised types. A converted value is called ``<tensor>_quantized`` or
``<tensor>_dequantized``, with a number if that name exists. A function result keeps its name. The value before the
conversion gets another name. Two casts in a row are removed if the second restores the original type.

Rejects casts between types that no operator converts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnrealizedConversionCastOp
from xdsl.ir import OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.circle import CircleOp, tensor_facts
from odc_mlir.errors import CompileError
from odc_mlir.formats.quantities import Names
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.placement import functions
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once, is_returned
from odc_mlir.transforms.common.tensor_names import named, names_in, rename
from odc_mlir.transforms.quant.common.conversion import conversion


class QuantInsertRequantizePass(PatternPass):
    """Replace casts by operators."""

    name = "quant-insert-requantize"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ReplaceCast,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if any(isinstance(item, UnrealizedConversionCastOp) for item in function.walk()):
                apply_once(function, ReplaceCast(names_in(function)))


@dataclass
class ReplaceCast(RewritePattern):
    """Replace a cast by QUANTIZE or DEQUANTIZE, or remove it together with a preceding cast that it undoes."""

    names: Names

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: UnrealizedConversionCastOp, rewriter: PatternRewriter, /) -> None:
        if len(op.inputs) != 1 or len(op.outputs) != 1:
            raise CompileError("a cast of several values does not convert between float and quantised", op=op.name)
        source, result = op.inputs[0], op.outputs[0]
        same = _same_before(source, result)
        if same is not None:
            rewriter.replace(op, [], [same])
            if same is not source and source.first_use is None and isinstance(source, OpResult):
                rewriter.erase(source.op)
            return
        operator, ending = _operator(source, result)
        takes_name = is_returned(result) and isinstance(source, OpResult) and not is_returned(source)
        converted = conversion(operator, source, result.type)
        name = value_name(result) or value_name(source)
        if takes_name:
            named(converted, name)
            rename(source, self.names.fresh(f"{name}_quantized" if operator == "DEQUANTIZE" else f"{name}_requantized"))
        else:
            named(converted, self.names.fresh(name + ending))
        rewriter.replace(op, converted)


def _same_before(source: SSAValue, result: SSAValue) -> SSAValue | None:
    if source.type == result.type:
        return source
    before = source.owner
    if isinstance(before, CircleOp) and before.SPEC.name in ("QUANTIZE", "DEQUANTIZE"):
        origin = before.operands[0]
        codes = tensor_facts(origin.type).quant is not None and tensor_facts(source.type).quant is None
        return origin if codes and origin.type == result.type else None
    return None


def _operator(source: SSAValue, result: SSAValue) -> tuple[str, str]:
    have, want = tensor_facts(source.type), tensor_facts(result.type)
    if want.quant is not None and (have.quant is not None or have.dtype == "float32"):
        return "QUANTIZE", "_quantized"
    if have.quant is not None and want.quant is None and want.dtype == "float32":
        return "DEQUANTIZE", "_dequantized"
    raise CompileError(
        f"no operator converts {source.type} into {result.type}; "
        "one side must be quantised, the other quantised or f32",
        op="QUANTIZE",
        tensor=value_name(source),
    )
