"""``convert-circle-to-quant``: apply the assigned element types to values and constants.

Before::

    func.func @main(%x: tensor<1x4xf32>) -> tensor<1x2xf32>
        attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
      %w = circle.const [2.0, …] : tensor<2x4xf32>
      %b = circle.const [1.0, -1.0] : tensor<2xf32>
      %0 = circle.fully_connected(%x, %w, %b) attributes {
        quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
        quant.results = [!quant.uniform<i8:f32, 0.125:3>]} : …
      func.return %0 : tensor<1x2xf32>

After, with ``io=float``::

    func.func @main(%x: tensor<1x4xf32>) -> tensor<1x2xf32> {
      %0 = builtin.unrealized_conversion_cast %x : tensor<1x4xf32> to tensor<1x4x!quant.uniform<i8:f32, 0.5>>
      %w = circle.const [8, …] : tensor<2x4x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
      %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>
      %1 = circle.fully_connected(%0, %w, %b) : … -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
      %2 = builtin.unrealized_conversion_cast %1 : … to tensor<1x2xf32>
      func.return %2 : tensor<1x2xf32>

``quant-insert-requantize`` turns the casts into operators. A bias gets the scale of input times weights, whatever the
assignment says; a bias that overflows its type is clamped, with a warning. Constants are converted once for each
required type. With ``io=quantized``, function arguments and results are quantised like the values. ``inputs`` and
``outputs`` override this for single ones: float, or another quantised type for the same range.

Functions without an assignment are left unchanged. Rejects a computed bias, a variable that an operator requires in a
type other than its own, and types for inputs and outputs that do not exist or are not float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnrealizedConversionCastOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, VariableOp, tensor_facts, tensor_type
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.tensor_names import named, names_in, values_of
from odc_mlir.transforms.quant.common.boundary import BoundaryTypes
from odc_mlir.transforms.quant.common.conversion import (
    ConvertedConstants,
    Demand,
    QuantizedElement,
    argument_codes,
    assigned_codes,
    behind,
    clear_assignment,
    coded,
    demands,
    is_assigned,
    real_constant,
    result_codes,
)
from odc_mlir.transforms.quant.common.given import write_given
from odc_mlir.transforms.quant.common.ir import (
    IO,
    is_real,
    main_function,
    operators,
    read_word,
    without_range,
    write_word,
)


@dataclass(frozen=True)
class ConvertCircleToQuantPass(ModulePass):
    """Make assigned element types real; see the module's text."""

    name = "convert-circle-to-quant"

    io: Literal["float", "quantized"] | None = None
    """Types of inputs and outputs; default: the module's ``quant.io``, else float."""

    inputs: tuple[str, ...] = ()
    """Types of single inputs: ``NAME=float``, ``NAME=uint8`` and so on; ``TYPE`` alone for all others."""

    outputs: tuple[str, ...] = ()
    """The same for outputs."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if function is None or not is_assigned(function):
            return
        io = self.io or read_word(op, IO) or "float"
        inputs, outputs = (BoundaryTypes.of(entries, io) for entries in (self.inputs, self.outputs))
        _Conversion(function, inputs, outputs).run()
        write_word(op, IO, io)
        write_given(op, {})


@dataclass
class _Conversion:
    """Converts one function."""

    function: FuncOp
    inputs: BoundaryTypes
    outputs: BoundaryTypes
    casts: dict[tuple[SSAValue, Attribute], SSAValue] = field(default_factory=dict)
    last_cast: dict[SSAValue, Operation] = field(default_factory=dict)

    def run(self) -> None:
        wanted = demands(self.function)
        last = self.function.body.block.last_op
        returned = [] if last is None else list(last.operands)
        given = self.outputs.codes("output", returned, [assigned_codes(value) for value in returned])
        real = [is_real(value) for value in returned]
        self._convert_constants([demand for demand in wanted if real_constant(demand.value) is not None])
        self._convert_values()
        for demand in wanted:
            if demand.bias is None:
                demand.op.operands[demand.index] = self._as_wanted(demand.value, demand.codes)
        for index, codes in enumerate(given):
            assert last is not None
            if real[index]:
                last.operands[index] = self._as_wanted(last.operands[index], codes)
        for op in operators(self.function):
            _refresh_cast(op)
        clear_assignment(self.function)
        set_function_type(self.function)

    def _convert_constants(self, wanted: list[Demand]) -> None:
        constants = ConvertedConstants(names_in(self.function))
        for demand in wanted:
            codes = demand.codes
            if codes is None:
                continue
            made = constants.find(demand)
            if made is None:
                made = constants.make(demand, coded(demand), codes.type_for(demand.value))
            demand.op.operands[demand.index] = made
        constants.clean_up()

    def _convert_values(self) -> None:
        arguments = self.function.args
        _retype(arguments, self.inputs.codes("input", arguments, argument_codes(self.function)))
        for op in self.function.walk():
            if isinstance(op, CircleOp | VariableOp):
                _retype(op.results, result_codes(op))
        for value in list(values_of(self.function)):
            retype(value, without_range(value.type))

    def _as_wanted(self, value: SSAValue, codes: QuantizedElement | None) -> SSAValue:
        """``value``, or a cast of it where it is of another type than ``codes``."""
        wanted = tensor_type("float32", tensor_facts(value.type).shape) if codes is None else codes.type_for(value)
        if wanted == value.type:
            return value
        if (value, wanted) not in self.casts:
            cast = UnrealizedConversionCastOp.get([value], [wanted])
            named(cast, value_name(value))
            # behind the casts that the value has, so that they stand in the order of their uses
            place = InsertPoint.after(self.last_cast[value]) if value in self.last_cast else behind(value)
            Rewriter.insert_op(cast, place)
            self.last_cast[value] = cast
            self.casts[value, wanted] = cast.results[0]
        return self.casts[value, wanted]


def _retype(values: Sequence[SSAValue], codes: Sequence[QuantizedElement | None]) -> None:
    for value, wanted in zip(tuple(values), codes, strict=True):
        if wanted is not None:
            retype(value, wanted.type_for(value))


def _refresh_cast(op: CircleOp) -> None:
    """CAST repeats the types of its operand and result as options."""
    if op.SPEC.name == "CAST":
        for name, value in (("in_data_type", op.operands[0]), ("out_data_type", op.results[0])):
            op.properties[name] = op.OPTIONS[name].encode(tensor_facts(value.type).dtype)
