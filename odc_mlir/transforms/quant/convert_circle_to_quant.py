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

``quant-insert-requantize`` turns the casts into operators. A bias always gets the scale of input times weights. A bias
that overflows its type is clamped, with a warning. Constants are converted once for each required type. With
``io=quantized``, function arguments and results are quantised like other values. ``inputs`` and ``outputs`` override
this for single inputs and outputs: float, or another quantised type for the same range.

In PyTorch's programs, values with given types that stay float are rounded to codes of these types. Functions without an
assignment do not change. Rejects a computed bias, a variable that an operator requires in another type, and types for
inputs and outputs that do not exist or are not float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnrealizedConversionCastOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, VariableOp, tensor_facts, tensor_type
from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.declarations import QUANTIZED
from odc_mlir.quantizer.policy.options import parse_boundary
from odc_mlir.quantizer.policy.schemes import FLOAT, activation_params, represented_range, scheme
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.masks import moved_operands
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import OperatorPattern, PatternPass, apply_once, behind, is_returned
from odc_mlir.transforms.common.tensor_names import named, names_in, outputs_of, rename, values_of
from odc_mlir.transforms.quant.common import conversion
from odc_mlir.transforms.quant.common.conversion import QuantizedElement
from odc_mlir.transforms.quant.common.given import given_type, has_source_lines, moved_to, read_given, write_given
from odc_mlir.transforms.quant.common.ir import (
    IO,
    SCHEME,
    is_float32,
    params_of,
    quantized_function,
    range_of,
    read_word,
    without_range,
    write_word,
)


@dataclass(frozen=True)
class ConvertCircleToQuantPass(PatternPass):
    """Apply the assigned element types."""

    name = "convert-circle-to-quant"

    io: Literal["float", "quantized"] | None = None
    """Types of inputs and outputs. Default: the module's ``quant.io``, else float."""

    inputs: tuple[str, ...] = ()
    """Types of single inputs: ``NAME=float``, ``NAME=uint8`` and so on, or ``TYPE`` for all others."""

    outputs: tuple[str, ...] = ()
    """Types of single outputs, written like ``inputs``."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (QuantizeConstants, ConvertArguments, ConvertResults, CastOperands, CastOutputs, UpdateCastOptions)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = quantized_function(op)
        if function is None or not conversion.is_assigned(function):
            return
        io = self.io or read_word(op, IO) or "float"
        inputs, outputs = (BoundaryTypes.of(entries, io) for entries in (self.inputs, self.outputs))
        # Demands follow from the types before the conversion.
        wanted = {op: list(found) for op, found in groupby(conversion.demands(function), key=attrgetter("op"))}
        constants, casts = conversion.ConvertedConstants(names_in(function)), Casts()
        returned = CastOutputs(outputs, function, casts)
        apply_once(function, QuantizeConstants(wanted, constants))
        constants.clean_up()
        apply_once(function, ConvertArguments(inputs), ConvertResults(), CastOperands(wanted, casts), returned)
        apply_once(function, UpdateCastOptions())
        if has_source_lines(op) and (name := read_word(op, SCHEME)) is not None:
            _round_floats(function, read_given(op), name)
        conversion.clear_assignment(function)
        set_function_type(function)
        write_word(op, IO, io)
        write_given(op, {})


def _round_floats(function: FuncOp, types: Mapping[str, Attribute], name: str) -> None:
    """Round values that stay float to the codes of their given types, except if they consist of rounded values."""
    for value in list(values_of(function)):
        type, op = types.get(value_name(value)), value.owner
        found = params_of(given_type(types, value, scheme(name).activations or "") or type)
        moved = [op.operands[index] for index in moved_operands(op)] if isinstance(op, CircleOp) else []
        is_rounded = bool(moved) and all(types.get(value_name(part)) == type for part in moved)
        if found is None or is_rounded or not is_float32(value) or isinstance(op, ConstOp):
            continue
        codes = UnrealizedConversionCastOp.get([value], [QuantizedElement(*found).type_for(value)])
        back = UnrealizedConversionCastOp.get(codes.results, [value.type])
        value.replace_all_uses_with(back.results[0])
        codes.operands[0] = value
        Rewriter.insert_op([named(codes, value_name(value)), named(back, value_name(value))], behind(value))
        if is_returned(back.results[0]) and isinstance(op, CircleOp):
            rename(value, names_in(function).fresh(f"{value_name(value)}_float"))


@dataclass
class Casts:
    """Casts of values to required element types."""

    made: dict[tuple[SSAValue, Attribute], SSAValue] = field(default_factory=dict)
    last: dict[SSAValue, Operation] = field(default_factory=dict)

    def of(self, value: SSAValue, codes: conversion.QuantizedElement | None, rewriter: PatternRewriter) -> SSAValue:
        """Return ``value`` with the element type ``codes`` (None: float32), after a cast if the type differs."""
        facts, wanted = tensor_facts(value.type), ("float32", None) if codes is None else (codes.dtype, codes.params)
        if (facts.dtype, facts.quant, facts.record) == (*wanted, None):
            return value
        type = tensor_type(wanted[0], facts.shape, wanted[1])
        if (value, type) not in self.made:
            cast = UnrealizedConversionCastOp.get([value], [type])
            named(cast, value_name(value))
            # Casts of a value are in the order of the uses of the casts.
            place = InsertPoint.after(self.last[value]) if value in self.last else behind(value)
            rewriter.insert(cast, place)
            self.last[value] = cast
            self.made[value, type] = cast.results[0]
        return self.made[value, type]


@dataclass
class QuantizeConstants(RewritePattern):
    """Replace float constants, including biases, by quantised constants of the types that users require."""

    wanted: Mapping[Operation, Sequence[conversion.Demand]]
    constants: conversion.ConvertedConstants

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for demand in self.wanted.get(op, ()):
            if (made := self.constants.of(demand)) is not None:
                op.operands[demand.index] = made
                rewriter.notify_op_modified(op)


@dataclass
class ConvertArguments(RewritePattern):
    """Change the arguments of the function to the assigned types."""

    types: BoundaryTypes

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FuncOp, rewriter: PatternRewriter, /) -> None:
        _retype(op.args, self.types.codes("input", op.args, conversion.argument_codes(op)), rewriter)


class ConvertResults(RewritePattern):
    """Change the results of operators, and variables, to the assigned types."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        codes = conversion.result_codes(op) if isinstance(op, CircleOp | VariableOp) else [None] * len(op.results)
        _retype(op.results, codes, rewriter)


@dataclass
class CastOperands(RewritePattern):
    """Insert casts before operands whose type differs from the required type."""

    wanted: Mapping[Operation, Sequence[conversion.Demand]]
    casts: Casts

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for demand in self.wanted.get(op, ()):
            if demand.bias is None:
                op.operands[demand.index] = self.casts.of(demand.value, demand.codes, rewriter)
                rewriter.notify_op_modified(op)


class CastOutputs(RewritePattern):
    """Insert casts before float outputs of the function that get another type."""

    def __init__(self, types: BoundaryTypes, function: FuncOp, casts: Casts) -> None:
        returned = outputs_of(function)
        self.casts = casts
        self.codes = types.codes("output", returned, [conversion.assigned_codes(value) for value in returned])
        self.real = [is_float32(value) for value in returned]

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReturnOp, rewriter: PatternRewriter, /) -> None:
        for index, (codes, real) in enumerate(zip(self.codes, self.real, strict=True)):
            if real:
                op.operands[index] = self.casts.of(op.operands[index], codes, rewriter)
        rewriter.notify_op_modified(op)


class UpdateCastOptions(OperatorPattern):
    """Update the options of CAST. The options repeat the types of operand and result."""

    names = frozenset({"CAST"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for name, value in (("in_data_type", op.operands[0]), ("out_data_type", op.results[0])):
            op.properties[name] = op.OPTIONS[name].encode(tensor_facts(value.type).dtype)
        rewriter.notify_op_modified(op)


def _retype(
    values: Sequence[SSAValue], codes: Sequence[conversion.QuantizedElement | None], rewriter: PatternRewriter
) -> None:
    for value, wanted in zip(tuple(values), codes, strict=True):
        type = without_range(value.type) if wanted is None else wanted.type_for(value)
        if type != value.type:
            retype(value, type)
            rewriter.has_done_action = True


@dataclass(frozen=True)
class BoundaryTypes:
    """Types of inputs or outputs. ``default``: float, quantized or a type. ``named``: types of single values."""

    default: str
    named: Mapping[str, str]

    @classmethod
    def of(cls, entries: Sequence[str], default: str) -> BoundaryTypes:
        """Parse ``TYPE`` and ``NAME=TYPE``. Raises OptionError for invalid entries."""
        named = parse_boundary(entries)
        return cls(named.pop("", default), named)

    def codes(
        self, what: str, values: Sequence[SSAValue], assigned: Sequence[QuantizedElement | None]
    ) -> list[QuantizedElement | None]:
        """Return the types of values at the function's boundary, None for float.

        ``assigned``: types inside the function. Raises OptionError for unknown names, and for types that a value cannot
        have.
        """
        names = [value_name(value) for value in values]
        if unknown := sorted(set(self.named) - set(names)):
            raise OptionError(f"the model has no {what} {unknown[0]!r}", hint=f"it has {', '.join(map(repr, names))}")
        return [
            _crossing(f"{what} {name!r}", value, inside, self.named.get(name, self.default), asked=name in self.named)
            for name, value, inside in zip(names, values, assigned, strict=True)
        ]


def _crossing(
    what: str, value: SSAValue, inside: QuantizedElement | None, wanted: str, *, asked: bool
) -> QuantizedElement | None:
    if not is_float32(value):
        if asked:
            raise OptionError(
                f"{what} is {tensor_facts(value.type).dtype}, not float, and cannot be changed", hint="omit its type"
            )
        return None
    if wanted == FLOAT:
        return None
    if wanted == QUANTIZED:
        return inside
    if inside is not None:
        return QuantizedElement(wanted, _same_range(inside, wanted))
    found = range_of(value.type)
    if found is None:
        raise OptionError(f"{what} cannot be {wanted}: it is computed in float, and its range is unknown")
    return QuantizedElement(wanted, activation_params(*found, wanted, symmetric=wanted == "int16"))


def _same_range(codes: QuantizedElement, dtype: str) -> QuantParams:
    """Return parameters of ``dtype`` for the range of ``codes``. If possible, codes stay equal."""
    if (moved := moved_to(codes.dtype, codes.params, dtype)) is not None:
        return moved
    return activation_params(*represented_range(codes.params, codes.dtype), dtype, symmetric=dtype == "int16")
