"""``quant-absorb-pairs``: remove the rounding of quantisation-aware training, and keep scales and zero points.

Before::

    %w1 = circle.dequantize(%w) : (tensor<2x4x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x4xf32>   // "w1"
    %0 = circle.fully_connected(%x, %w1, %b) : … -> tensor<1x2xf32>                               // "y"
    %1 = circle.quantize(%0) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
    %2 = circle.dequantize(%1) : … -> tensor<1x2xf32>
    %3 = circle.fake_quant(%2) {min = -6.0, max = 6.0, num_bits = 8} : (tensor<1x2xf32>) -> tensor<1x2xf32>

After::

    builtin.module attributes {quant.given = {"y" = !quant.uniform<i8:f32, 0.0470588:-1>,
                                              "w1" = !quant.uniform<i8:f32, 0.25>}} {
      %0 = circle.fully_connected(%x, %w1, %b) : … -> tensor<1x2xf32>                             // "y"

Pairs of QUANTIZE and DEQUANTIZE, and FAKE_QUANT with 8 or 16 bits, are removed. ``quant.given`` keeps the parameters
for the rounded values. FAKE_QUANT replaces earlier roundings. The parameters of a constant before DEQUANTIZE are kept
as well. Constant folding removes the DEQUANTIZE. A function result keeps its name after the rounding. A value that only
a move or a clamp reads gets the parameters of the move's or clamp's result. TANH and LOGISTIC stay float in PyTorch's
programs if their given parameters are not those of integer kernels.

Unchanged: modules without roundings, second roundings to different codes, quantised values with further users,
roundings to other numbers of bits, and per-channel rounding of computed values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.numerics.quantize import fake_quant_params
from odc_mlir.ops.dtypes import CODE_DTYPES, DTYPES
from odc_mlir.ops.spec import QuantParams, Trait
from odc_mlir.quantizer.policy.schemes import Scheme, scheme
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import constant, is_returned, shape_of
from odc_mlir.transforms.common.tensor_names import names_in, rename, values_of
from odc_mlir.transforms.quant.common import given, ir

_TYPES = {8: "int8", 16: "int16"}


@dataclass(frozen=True)
class QuantAbsorbPairsPass(ModulePass):
    """Remove rounding from a float model."""

    name = "quant-absorb-pairs"

    programs: bool = False
    """Change only programs of PyTorch."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = ir.quantized_function(op)
        is_meant = not self.programs or given.has_source_lines(op)
        if function is not None and is_meant and (found := absorb(function)):
            given.write_given(op, given.read_given(op) | found)


def absorb(function: FuncOp) -> dict[str, Attribute]:
    """Remove rounding from ``function`` in place and return the types of rounded values by name."""
    types: dict[SSAValue, Attribute] = {}
    for op in list(ir.all_ops(function)):
        type = _rounding(op)
        if type is None:
            continue
        value = op.operands[0]
        if op.SPEC.name != "FAKE_QUANT" and types.get(value, type) != type:
            types |= {use.operation.results[0]: type for use in op.results[0].uses}
            continue  # the value is rounded already, to other codes
        rounded = [op] if op.SPEC.name == "FAKE_QUANT" else [use.operation for use in op.results[0].uses]
        for last in rounded:
            assert isinstance(last, CircleOp)
            _replace(last, value)
        if op.parent is not None and op.SPEC.name != "FAKE_QUANT":
            Rewriter.erase_op(op)
        types.pop(value, None)  # the last rounding counts, and comes last in the result
        types[value] = type
    if types:
        types = _of_constants(function) | types
    found = given.before_moves(function, _by_name(function, types))
    if found and given.has_source_lines(function):
        _keep_tables(function, found, scheme(given.scheme_of(found)))
    return found


def _keep_tables(function: FuncOp, types: Mapping[str, Attribute], used: Scheme) -> None:
    """Keep functions of one code float, which are exact as tables, if kernels have other parameters than given ones."""
    dtype = str(used.activations)
    for op in ir.all_ops(function):
        fixed = used.fixed(op.SPEC.quant.table) if Trait.ELEMENTWISE in op.SPEC.traits else None
        if fixed and given.given_type(types, op.results[0], dtype) not in (None, ir.quantised(dtype, fixed)):
            ir.stay_float(op, "PyTorch gave its result other parameters than kernels have")


def _rounding(op: CircleOp) -> Attribute | None:
    if op.SPEC.name == "FAKE_QUANT":
        return _of_fake_quant(op) if op.unverified is None else None
    if op.SPEC.name != "QUANTIZE" or not ir.is_float32(op.operands[0]):
        return None
    found = ir.params_of(getattr(op.results[0].type, "element_type", None))
    users = [use.operation for use in op.results[0].uses]
    if not users or any(not isinstance(user, CircleOp) or user.SPEC.name != "DEQUANTIZE" for user in users):
        return None
    by_channel = found is not None and not found[1].per_tensor and ir.constant_of(op.operands[0]) is None
    return None if found is None or found[0] not in CODE_DTYPES or by_channel else ir.quantised(*found)


def _of_fake_quant(op: CircleOp) -> Attribute | None:
    """Return the signed quantised type of a FAKE_QUANT, or None if no type has its number of bits."""
    bits, narrow = int(str(op.option("num_bits"))), bool(op.option("narrow_range"))
    dtype = _TYPES.get(bits)
    if dtype is None:
        return None
    grid = fake_quant_params(float(str(op.option("min"))), float(str(op.option("max"))), bits, narrow=narrow)
    first = int(narrow) + DTYPES[dtype].range[0]
    return ir.quantised(dtype, QuantParams((float(grid.step),), (first - round(float(grid.low / grid.step)),)))


def _of_constants(function: FuncOp) -> dict[SSAValue, Attribute]:
    """Return the types of decoded constants, also after operators that rearrange them before they are folded."""
    decoded = [op for op in ir.all_ops(function) if op.SPEC.name == "DEQUANTIZE" and ir.constant_of(op.operands[0])]
    codes = ((op, ir.params_of(getattr(op.operands[0].type, "element_type", None))) for op in decoded)
    types: dict[SSAValue, tuple[str, QuantParams]] = {
        op.results[0]: found for op, found in codes if found and found[0] in CODE_DTYPES
    }
    for op in ir.all_ops(function):
        found = types.get(op.operands[0]) if op.operands else None
        if found is not None and (axis := _axis_after(op, found[1].axis)) is not None:
            types[op.results[0]] = found[0], replace(found[1], axis=axis)
    return {value: ir.quantised(*found) for value, found in types.items()}


def _axis_after(op: CircleOp, axis: int) -> int | None:
    if op.SPEC.name == "TRANSPOSE" and (order := constant(op.operands[1])) is not None:
        return int(order.tolist().index(axis))
    before, after = ((shape_of(value) or ())[: axis + 1] for value in (op.operands[0], op.results[0]))
    return axis if op.SPEC.name == "RESHAPE" and before == after else None


def _replace(last: CircleOp, value: SSAValue) -> None:
    """Replace a rounded value by the original for all readers, under its name in the function."""
    result = last.results[0]
    name = value_name(result)
    takes_name = is_returned(result) and not is_returned(value) and not isinstance(value, BlockArgument)
    result.replace_all_uses_with(value)
    Rewriter.erase_op(last)
    if takes_name and ir.constant_of(value) is None:
        rename(value, name)


def _by_name(function: FuncOp, types: dict[SSAValue, Attribute]) -> dict[str, Attribute]:
    counts, names = Counter(map(value_name, values_of(function))), names_in(function)
    found: dict[str, Attribute] = {}
    for value, type in types.items():
        name = value_name(value)
        if (counts[name] > 1 or not name) and not isinstance(value, BlockArgument) and not is_returned(value):
            rename(value, names.fresh(name or "rounded"))
        found[value_name(value)] = type
    return found
