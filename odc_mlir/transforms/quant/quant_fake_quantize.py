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

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, VariableOp, tensor_facts, tensor_type
from odc_mlir.formats.names import Names
from odc_mlir.ops.constants import encode_constant
from odc_mlir.quantizer.policy.schemes import dequantize_constant
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.tensor_names import named, names_in, rename, values_of
from odc_mlir.transforms.quant.common.conversion import (
    ConvertedConstants,
    Demand,
    QuantizedElement,
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
from odc_mlir.transforms.quant.common.ir import IO, main_function, operators, read_word, without_range


@dataclass(frozen=True)
class QuantFakeQuantizePass(ModulePass):
    """Round values in place; see the module's text."""

    name = "quant-fake-quantize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is not None and is_assigned(function):
            _FakeQuantizer(function, names_in(function), quantized_io=read_word(op, IO) == "quantized").run()


@dataclass
class _FakeQuantizer:
    """Rounds the values of one function."""

    function: FuncOp
    names: Names
    quantized_io: bool
    rounded: dict[tuple[SSAValue, QuantizedElement], SSAValue] = field(default_factory=dict)
    codes: dict[SSAValue, QuantizedElement] = field(default_factory=dict)

    def run(self) -> None:
        wanted = demands(self.function)
        self._round_constants([demand for demand in wanted if real_constant(demand.value) is not None])
        if self.quantized_io:
            for argument, codes in zip(self.function.args, argument_codes(self.function), strict=True):
                self._round_value(argument, codes)
        for op in list(operators(self.function)):
            for result, codes in zip(op.results, result_codes(op), strict=True):
                self._round_value(result, codes)
        for demand in wanted:
            self._round_use(demand)
        clear_assignment(self.function)
        for value in list(values_of(self.function)):
            retype(value, without_range(value.type))
        set_function_type(self.function)

    def _round_constants(self, wanted: list[Demand]) -> None:
        constants = ConvertedConstants(self.names)
        for demand in wanted:
            if demand.codes is None:
                continue
            made = constants.find(demand)
            if made is None:
                array = dequantize_constant(encoded(demand), demand.codes.params)
                real = tensor_type("float32", tensor_facts(demand.value.type).shape)
                made = constants.make(demand, BlobAttr.of(encode_constant(array, "float32")), real)
            demand.op.operands[demand.index] = made
        constants.clean_up()

    def _round_value(self, value: SSAValue, codes: QuantizedElement | None) -> None:
        """Round ``value`` for everybody; the rounded one takes over its name, unless it is an argument."""
        if codes is None:
            return
        name = value_name(value)
        quantize, dequantize = self._pair(value, codes)
        if isinstance(value, BlockArgument):
            named(dequantize, self.names.fresh(f"{name}_dequantized"))
        else:
            rename(value, self.names.fresh(f"{name}_real"))
            named(dequantize, name)
        result = dequantize.results[0]
        value.replace_uses_with_if(result, lambda use: use.operation is not quantize)
        self.codes[result] = codes

    def _round_use(self, demand: Demand) -> None:
        """Round what one operator takes, where it asks for other codes than its operand's."""
        value, codes = demand.value, demand.codes
        if codes is None or demand.bias is not None or real_constant(value) is not None:
            return
        if self.codes.get(value) == codes or isinstance(value.owner, VariableOp):
            return  # a variable is written in place: what stands for it would be lost
        if (value, codes) not in self.rounded:
            dequantize = self._pair(value, codes)[1]
            named(dequantize, self.names.fresh(f"{value_name(value)}_dequantized"))
            self.rounded[value, codes] = dequantize.results[0]
        demand.op.operands[demand.index] = self.rounded[value, codes]

    def _pair(self, value: SSAValue, codes: QuantizedElement) -> tuple[CircleOp, CircleOp]:
        """QUANTIZE and DEQUANTIZE behind ``value``; the second one has no name yet."""
        quantize = conversion("QUANTIZE", value, codes.type_for(value))
        named(quantize, self.names.fresh(f"{value_name(value)}_quantized"))
        real = tensor_type("float32", tensor_facts(value.type).shape)
        dequantize = conversion("DEQUANTIZE", quantize.results[0], real)
        Rewriter.insert_op(quantize, behind(value))
        Rewriter.insert_op(dequantize, InsertPoint.after(quantize))
        return quantize, dequantize
