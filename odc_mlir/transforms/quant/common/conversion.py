"""Application of assigned element types: requirements of users, and converted constants.

An assignment (see :mod:`.ir`) gives the element types of operands and results of an operator. A value has one type. If
a use requires another type, a conversion is inserted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects import circle
from odc_mlir.dialects.circle_types import AnyTensor
from odc_mlir.errors import CompileError, ModelError
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.quantities import Names
from odc_mlir.numerics.fixed import activation_range
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.spec import Array, Bias, QuantParams
from odc_mlir.quantizer.policy.schemes import bias_params, quantize_bias, quantize_constant
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import activation
from odc_mlir.transforms.common.tensor_names import named
from odc_mlir.transforms.quant.common import ir
from odc_mlir.transforms.quant.common.given import is_of_pytorch

LOG = logging.getLogger(__name__)

_CHANNELS_NAMED = 8  # limit on the names in a warning
_BIAS_OF = {"int16": "int64"}  # bias type by activation type; int32 for all other activations


@dataclass(frozen=True, slots=True)
class QuantizedElement:
    """Integer element type with its parameters."""

    dtype: str
    params: QuantParams

    def type_for(self, value: SSAValue) -> AnyTensor:
        """Return the type of ``value`` with this element type."""
        return circle.tensor_type(self.dtype, circle.tensor_facts(value.type).shape, self.params)


@dataclass(frozen=True, slots=True)
class Demand:
    """Requirement that operand ``index`` of ``op`` has the type ``codes``, or is float if ``codes`` is None.

    ``bias``: for a bias, the products to which it is added.
    """

    op: Operation
    index: int
    codes: QuantizedElement | None
    bias: Bias | None = None

    @property
    def value(self) -> SSAValue:
        return self.op.operands[self.index]


def is_assigned(function: FuncOp) -> bool:
    """Return whether ``function`` has an assignment of element types that is not yet applied."""
    return any(name in op.attributes for op in function.walk() for name in (ir.OPERANDS, ir.RESULTS, ir.ARGUMENTS))


def clear_assignment(function: FuncOp) -> None:
    """Remove the assignment of ``function``."""
    for op in function.walk():
        for name in (ir.OPERANDS, ir.RESULTS, ir.ARGUMENTS):
            op.attributes.pop(name, None)


def argument_codes(function: FuncOp) -> list[QuantizedElement | None]:
    """Return the assigned codes for each argument of ``function``, None for unchanged arguments."""
    types = ir.argument_types(function)
    return [None] * len(function.args) if types is None else [_codes_of(type, function) for type in types]


def result_codes(op: Operation) -> list[QuantizedElement | None]:
    """Return the assigned codes for each result of ``op``, None for unchanged results."""
    types = ir.result_types(op)
    return [None] * len(op.results) if types is None else [_codes_of(type, op) for type in types]


def assigned_codes(value: SSAValue) -> QuantizedElement | None:
    """Return the assigned codes of ``value``, or None if it does not change."""
    found = ir.params_of(ir.assigned_type(value))
    return None if found is None else QuantizedElement(*found)


def _codes_of(assigned: Attribute, where: Operation) -> QuantizedElement | None:
    if isinstance(assigned, UnitAttr) or assigned == ir.REAL:
        return None
    found = ir.params_of(assigned)
    if found is None:
        raise ModelError(f"a real value cannot become {assigned}; allowed are f32 and !quant.uniform", op=_label(where))
    return QuantizedElement(*found)


def demands(function: FuncOp) -> list[Demand]:
    """Return the requirements of operations on operands, in program order. Returned values are excluded.

    Unchanged operands are omitted. Operators without an assignment require floats. The types of input and weights
    determine the type of a bias. Raises CompileError for a bias or variable that cannot have the required type.
    """
    found: list[Demand] = []
    for op in function.walk():
        if isinstance(op, ReturnOp | FuncOp):
            continue
        wanted = {demand.index: demand for demand in _wishes(op)}
        if isinstance(op, circle.CircleOp) and ir.OPERANDS in op.attributes:
            wanted |= {demand.index: demand for demand in _bias_demands(op, wanted)}
        found += [wanted[index] for index in sorted(wanted)]
    return found


def _wishes(op: Operation) -> Iterator[Demand]:
    types = ir.operand_types(op) or [ir.REAL] * len(op.operands)
    for index, (value, assigned) in enumerate(zip(op.operands, types, strict=True)):
        if isinstance(assigned, UnitAttr) or not ir.is_float32(value):
            continue
        codes = _codes_of(assigned, op)
        if isinstance(value.owner, circle.VariableOp) and codes is not None and ir.assigned_type(value) != assigned:
            raise CompileError(
                f"operand {index} is a variable and cannot be quantised to {codes.dtype}",
                op=_label(op),
                tensor=value_name(value),
                hint="keep this operator in float",
            )
        yield Demand(op, index, codes)


def _bias_demands(op: circle.CircleOp, wanted: dict[int, Demand]) -> Iterator[Demand]:
    for index, bias in op.SPEC.quant.biases.items():
        if index >= len(op.operands) or not ir.is_float32(op.operands[index]) or index in wanted:
            continue
        value = op.operands[index]
        source, weights = (_codes_used(op, place, wanted) for place in (bias.input, bias.weights))
        if source is None or weights is None:
            continue
        if ir.constant_of(value) is None:
            raise CompileError(
                "the bias is computed at run time, so it cannot be quantised",
                op=op.SPEC.name,
                tensor=value_name(value),
                hint="keep this operator in float",
            )
        rank = len(circle.tensor_facts(value.type).shape or ())
        params = replace(bias_params(source.params, weights.params), axis=max(rank - 1, 0))
        yield Demand(op, index, QuantizedElement(bias_dtype(source.dtype), params), bias)


def bias_dtype(activations: str) -> str:
    """Return the element type of the bias of a layer with activations of type ``activations``."""
    return _BIAS_OF.get(activations, "int32")


def _codes_used(op: circle.CircleOp, index: int, wanted: dict[int, Demand]) -> QuantizedElement | None:
    if index in wanted:
        return wanted[index].codes
    facts = circle.tensor_facts(op.operands[index].type)
    return None if facts.quant is None else QuantizedElement(facts.dtype, facts.quant)


def _label(op: Operation) -> str:
    return op.SPEC.name if isinstance(op, circle.CircleOp) else op.name


def coded(demand: Demand) -> circle.BlobAttr:
    """Return the bytes of :func:`encoded`. Models with the same constant share the bytes. Biases are not shared."""
    codes, constant = demand.codes, ir.constant_of(demand.value)
    assert codes is not None
    assert constant is not None

    dtype = codes.dtype

    def make() -> circle.BlobAttr:
        return circle.BlobAttr.of(encode_constant(encoded(demand), dtype))

    if demand.bias is not None:
        return make()
    return constant.blob.found((codes, demand.value.type, constant.sparsity), make)


def encoded(demand: Demand) -> Array:
    """Return the codes that ``demand`` requires of a float constant, as an array of the storage dtype.

    A bias that does not fit its type is clamped, with a warning that names the tensor and the channels.
    """
    codes, constant = demand.codes, ir.constant_of(demand.value)
    assert codes is not None
    assert constant is not None
    info = circle.info_of(demand.value)
    info.data = constant.blob.data  # raises an error if the bytes are missing
    array = info.array()
    if demand.bias is None:
        return quantize_constant(array, codes.params, codes.dtype)
    values, saturated = quantize_bias(array - _excess(demand.op, codes, array), codes.params, codes.dtype)
    if saturated:
        some = ", ".join(map(str, saturated[:_CHANNELS_NAMED])) + (", …" if len(saturated) > _CHANNELS_NAMED else "")
        LOG.warning(
            "tensor %r: the bias of %d channels (%s) does not fit %s at the scale of input times weights; "
            "it is clamped",
            info.name,
            len(saturated),
            some,
            codes.dtype,
        )
    return values


def _excess(op: Operation, codes: QuantizedElement, bias: Array) -> Array:
    """Return the part of a real ``bias`` that rounding sums twice adds, for layers that PyTorch rounded once.

    Requantisation first rounds to a binary fraction ``f`` of a code: results of at least ``1/2 - f/2`` become 1.
    Negative results have the opposite error, so layers that do not clamp them keep their bias. So do layers with a bias
    of whole steps, which was rounded with the sums.
    """
    result, scales = assigned_codes(op.results[0]), np.asarray(codes.params.scales, np.float64)
    if result is None or codes.dtype != "int32" or not isinstance(op, circle.CircleOp) or not is_of_pytorch(op):
        return np.zeros(1)
    steps, (scale, zero) = bias / scales, (result.params.scale, result.params.zero_point)
    whole = np.abs(steps - np.rint(steps)) <= 2.0**-18 * np.maximum(np.abs(steps), 1)  # but for float32's rounding
    kept = whole.all() or activation_range(activation(op), result.dtype, scale, zero)[0] < zero
    mantissas, exponents = np.frexp(scales / scale)
    return np.where(kept | (exponents >= 0), 0.0, scales * 0.5 / mantissas)


class ConvertedConstants:
    """Quantised copies of the float constants of a function: a copy for each required type."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._made: dict[circle.ConstOp, dict[QuantizedElement, circle.ConstOp]] = {}

    def of(self, demand: Demand) -> SSAValue | None:
        """Return the quantised copy of the float constant that ``demand`` reads, or None for other values.

        The first copy is inserted before the float constant. :meth:`clean_up` removes the float constant. Further
        copies are inserted before the first user, as in imported models, so demands must come in program order.
        """
        constant = ir.constant_of(demand.value) if ir.is_float32(demand.value) else None
        if constant is None or demand.codes is None:
            return None
        siblings = self._made.setdefault(constant, {})
        if demand.codes not in siblings:
            name, place = value_name(constant.result), InsertPoint.before(constant)
            if siblings:
                name, place = self._names.fresh(f"{name}_{demand.codes.dtype}"), InsertPoint.before(demand.op)
            made = circle.ConstOp(coded(demand), demand.codes.type_for(demand.value))
            named(made, name)
            Rewriter.insert_op(made, place)
            siblings[demand.codes] = made
        return siblings[demand.codes].result

    def clean_up(self) -> None:
        """Erase unused float constants, and give the first copy of a used float constant a separate name."""
        for constant, made in self._made.items():
            if constant.result.first_use is None:
                Rewriter.erase_op(constant)
            else:
                named(next(iter(made.values())), self._names.fresh(f"{value_name(constant.result)}_quantized"))


def conversion(operator: str, source: SSAValue, type: Attribute) -> circle.CircleOp:
    """Create a QUANTIZE or DEQUANTIZE from ``source`` to ``type``, without a name."""
    cls = circle.op_class(operator)
    return cls.make([source], [type], default_options(cls.SPEC.options))
