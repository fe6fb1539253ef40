"""``quant-fake-quantize``: round values of a float model as its assignment says, without integer arithmetic.

Before (``%0`` is called "y")::

    %0 = circle.add(%x, %c) attributes {quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32, 0.25>],
                                        quant.results = [!quant.uniform<i8:f32, 1.0>]} : …
    func.return %0 : tensor<4xf32>

After::

    %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>   // "x_quantized"
    %1 = circle.dequantize(%0) : … -> tensor<4xf32>                                       // "x_dequantized"
    %2 = circle.add(%1, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>             // "y_real", %c is rounded
    %3 = circle.quantize(%2) : … -> tensor<4x!quant.uniform<i8:f32, 1.0>>                 // "y_quantized"
    %4 = circle.dequantize(%3) : … -> tensor<4xf32>                                       // "y"
    func.return %4 : tensor<4xf32>

Constants, biases included, are replaced by the numbers that their quantised values represent. All operators run in
floating point, so that the difference from the original is the effect of rounding alone. A rounded tensor keeps the
name of the original one. Variables are not rounded. Functions without an assignment are left unchanged.

Rejects what ``convert-circle-to-quant`` rejects, for the same reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import BlobAttr, CircleOp, VariableOp, tensor_facts, tensor_type
from odc_mlir.formats.quantities import Names
from odc_mlir.ops.constants import encode_constant
from odc_mlir.quantizer.policy.schemes import dequantize_constant
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import PatternPass, apply_once
from odc_mlir.transforms.common.tensor_names import named, names_in, rename, values_of
from odc_mlir.transforms.quant.common.conversion import (
    ConvertedConstants,
    Demand,
    QuantizedElement,
    ReplaceConstants,
    argument_codes,
    behind,
    clear_assignment,
    conversion,
    demands,
    encoded,
    is_assigned,
    real_constant,
    result_codes,
)
from odc_mlir.transforms.quant.common.ir import IO, main_function, read_word, without_range


@dataclass(frozen=True)
class QuantFakeQuantizePass(PatternPass):
    """Round values in place; see the module's text."""

    name = "quant-fake-quantize"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (RoundConstants, RoundArguments, RoundResults, RoundOperands)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is None or not is_assigned(function):
            return
        names = names_in(function)
        wanted = {op: list(found) for op, found in groupby(demands(function), key=attrgetter("op"))}
        constants, rounding = ConvertedConstants(names), Rounding(names)
        apply_once(function, RoundConstants(wanted, constants))
        constants.clean_up()
        if read_word(op, IO) == "quantized":
            apply_once(function, RoundArguments(rounding))
        apply_once(function, RoundResults(rounding), RoundOperands(wanted, rounding))
        clear_assignment(function)
        for value in list(values_of(function)):
            retype(value, without_range(value.type))
        set_function_type(function)


@dataclass
class Rounding:
    """Pairs of QUANTIZE and DEQUANTIZE behind values of one function."""

    names: Names
    codes: dict[SSAValue, QuantizedElement] = field(default_factory=dict)
    """Types of values that are rounded for all users."""
    uses: dict[tuple[SSAValue, QuantizedElement], SSAValue] = field(default_factory=dict)
    """Rounded values for single users."""

    def round_value(self, value: SSAValue, codes: QuantizedElement | None, rewriter: PatternRewriter) -> None:
        """Round ``value`` for all users; the rounded value gets its name, unless it is an argument."""
        if codes is None:
            return
        name = value_name(value)
        quantize, dequantize = self._pair(value, codes, rewriter)
        if isinstance(value, BlockArgument):
            named(dequantize, self.names.fresh(f"{name}_dequantized"))
        else:
            rename(value, self.names.fresh(f"{name}_real"))
            named(dequantize, name)
        rewriter.replace_uses_with_if(value, dequantize.results[0], lambda use: use.operation is not quantize)
        self.codes[dequantize.results[0]] = codes

    def round_use(self, demand: Demand, rewriter: PatternRewriter) -> None:
        """Round the operand of one operation that wants another type than the value has."""
        value, codes = demand.value, demand.codes
        if codes is None or demand.bias is not None or real_constant(value) is not None:
            return
        if self.codes.get(value) == codes or isinstance(value.owner, VariableOp):
            return  # a variable is written in place: a rounded copy would lose the update
        if (value, codes) not in self.uses:
            dequantize = self._pair(value, codes, rewriter)[1]
            named(dequantize, self.names.fresh(f"{value_name(value)}_dequantized"))
            self.uses[value, codes] = dequantize.results[0]
        demand.op.operands[demand.index] = self.uses[value, codes]
        rewriter.notify_op_modified(demand.op)

    def _pair(self, value: SSAValue, codes: QuantizedElement, rewriter: PatternRewriter) -> tuple[CircleOp, CircleOp]:
        """Insert QUANTIZE and DEQUANTIZE behind ``value``; the second has no name yet."""
        quantize = conversion("QUANTIZE", value, codes.type_for(value))
        named(quantize, self.names.fresh(f"{value_name(value)}_quantized"))
        real = tensor_type("float32", tensor_facts(value.type).shape)
        dequantize = conversion("DEQUANTIZE", quantize.results[0], real)
        rewriter.insert(quantize, behind(value))
        rewriter.insert(dequantize, InsertPoint.after(quantize))
        return quantize, dequantize


class RoundConstants(ReplaceConstants):
    """Replace real constants by the numbers that their codes represent."""

    def converted(self, demand: Demand, codes: QuantizedElement) -> tuple[BlobAttr, Attribute]:
        array = dequantize_constant(encoded(demand), codes.params)
        real = tensor_type("float32", tensor_facts(demand.value.type).shape)
        return BlobAttr.of(encode_constant(array, "float32")), real


@dataclass
class RoundArguments(RewritePattern):
    """Round arguments of the function to their assigned types."""

    rounding: Rounding

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FuncOp, rewriter: PatternRewriter, /) -> None:
        for argument, codes in zip(op.args, argument_codes(op), strict=True):
            self.rounding.round_value(argument, codes, rewriter)


@dataclass
class RoundResults(RewritePattern):
    """Round results of operators to their assigned types."""

    rounding: Rounding

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if isinstance(op, CircleOp):
            for result, codes in zip(op.results, result_codes(op), strict=True):
                self.rounding.round_value(result, codes, rewriter)


@dataclass
class RoundOperands(RewritePattern):
    """Round operands where an operation wants another type than the value's."""

    wanted: Mapping[Operation, Sequence[Demand]]
    rounding: Rounding

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for demand in self.wanted.get(op, ()):
            self.rounding.round_use(demand, rewriter)
