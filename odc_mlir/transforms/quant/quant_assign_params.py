"""``quant-assign-params``: assign element types to values by ranges.

Before::

    %0 = circle.relu(%x) : (tensor<1x4xf32, #circle.qparams<min = [-1.0], max = [1.55]>>)
                        -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [1.55]>>

After ``quant-assign-params{scheme=uint8}``::

    %0 = circle.relu(%x) attributes {quant.operands = [!quant.uniform<u8:f32, 0.01:100>],
                                     quant.results = [!quant.uniform<u8:f32, 0.00607843>]} : …

Parameters for a value in the module's ``quant.given`` take precedence over its range. A value that is zero in all
samples gets the range of another operand or result of its user or producer. A factor of a product gets the range with
which the product fits the result. The contents of a constant determine the type. Weights have one scale per channel, or
a single scale. Weights that are multiples of a common step get this step as scale
(:mod:`odc_mlir.quantizer.policy.schemes`). The pass skips biases, because input and weights determine the scales of
biases. An operator stays float, with a reason, if its precision is ``float`` or a necessary range was not recorded. The
next pass (``quant-propagate-params``) handles constraints between operators. If neither an option nor the configuration
names a scheme, given types become parameters, and all other operators stay float. Does nothing without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantKind, StateParameters
from odc_mlir.quantizer.policy.declarations import LITERT
from odc_mlir.quantizer.policy.options import PrecisionChoice, PrecisionPlan, parse_overrides, read_config
from odc_mlir.quantizer.policy.readers import litert_refuses
from odc_mlir.quantizer.policy.schemes import (
    FLOAT,
    Scheme,
    activation_params,
    cell_state_params,
    on_grid,
    scheme,
    weight_params,
)
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import constant, is_used_once, producer
from odc_mlir.transforms.quant.common import ir
from odc_mlir.transforms.quant.common.given import Types, given_ranges, given_type, given_weights, read_given, scheme_of
from odc_mlir.transforms.quant.common.operators import Ranges, Role, contents_of, role_of


@dataclass(frozen=True)
class QuantAssignParamsPass(ModulePass):
    """Assign element types by ranges."""

    name = "quant-assign-params"

    scheme: str | None = None
    """uint8, int8, int8x4, int16 or int16x8."""

    granularity: str | None = None
    """Scales of weights: channel or tensor."""

    weights: str | None = None
    """Form of uint8 weights: asymmetric or symmetric."""

    reader: str = ""
    """Program or machine that runs the file: ``litert``, ``cpu``, ``npu``, or (empty) only this project."""

    overrides: str = ""
    """Precision of single operators by a result's name: ``name:int16,name:float``."""

    config: str | None = None
    """JSON file with these and further settings. Options take precedence."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        plan = PrecisionPlan() if self.config is None else read_config(self.config)
        name, function, given = self.scheme or plan.scheme, ir.quantized_function(op), read_given(op)
        if function is None or (name is None and not given):
            return
        if name is None:
            name = scheme_of(given)
            _keep_real_weights(function, given)
        chosen = (
            scheme(name)
            .read_by(self.reader)
            .with_options(granularity=self.granularity or plan.granularity, weights=self.weights)
        )
        if chosen.weights_only:
            raise OptionError(f"scheme {name!r} quantises weights only", hint="run quant-weights-only instead")
        results = (result for op in ir.all_ops(function) for result in op.results)
        names = [value_name(value) for value in (*function.args, *results)]
        choices = plan.resolve(names) | PrecisionPlan(layers=parse_overrides(self.overrides)).resolve(names)
        Assignment(function, chosen, choices).run()
        ir.write_word(op, ir.SCHEME, chosen.name)
        if chosen.reader:
            ir.write_word(op, ir.READER, chosen.reader)
        ir.write_word(op, ir.GRANULARITY, chosen.granularity)
        ir.write_word(op, ir.WEIGHTS, "symmetric" if chosen.symmetric_weights else "asymmetric")


def _keep_real_weights(function: FuncOp, given: Types) -> None:
    for op in ir.all_ops(function):
        for value in (op.operands[index] for index in op.SPEC.quant.weights):
            if ir.is_float32(value) and ir.constant_of(value) is not None and value_name(value) not in given:
                ir.stay_float(op, f"PyTorch did not quantise its weights {value_name(value)!r}")


_INFINITE_AT_ZERO = {"RSQRT": 0, "LOG": 0, "DIV": 1}  # operand whose zeros give infinite results
_GUARDS = ("ADD", "MAXIMUM")  # operators that, with a constant operand, keep a value away from 0


def _keep_from_zero(op: CircleOp) -> None:
    """Keep a guard float: the operator that keeps an operand of the float operator ``op`` away from 0.

    A quantised guard could round to 0, for which ``op`` gives infinity. LiteRT does not define the code of infinity.
    """
    place = _INFINITE_AT_ZERO.get(op.SPEC.name)
    if place is None or ir.REAL not in (ir.operand_types(op) or ()):
        return
    guard = op.operands[place].owner
    if not isinstance(guard, CircleOp) or guard.SPEC.name not in _GUARDS:
        return
    if any(ir.constant_of(operand) is not None for operand in guard.operands):
        ir.keep_float(guard, f"{op.SPEC.name} of it stays float, and is infinite at 0", guard.SPEC.quant.left)


def _keep_softplus(log: CircleOp) -> None:
    """Keep ``log(1 + exp(x))`` float, a table between 8-bit codes. Codes of ``exp(x)`` would lose small values."""
    add = producer(log.operands[0], "ADD") if log.SPEC.name == "LOG" else None
    exp, one = add.operands if add is not None else (None, None)
    inner, known = producer(exp, "EXP"), constant(one)
    if add is None or inner is None or known is None or known.size > 1:
        return
    if is_used_once(log.operands[0]) and is_used_once(add.operands[0]):
        for op in (inner, add, log):
            ir.keep_float(op, "it is part of log(1 + exp(x)), which is exact as a table", op.SPEC.quant.left)


class _StaysReal(Exception):
    """Exception with the reason why an operator cannot be quantised."""


class Assignment:
    """Assignment of types to the values of one function.

    ``wide``: ranges by name for values with more bits than ``default`` has. More bits allow a wider range.
    """

    def __init__(
        self,
        function: FuncOp,
        default: Scheme,
        choices: Mapping[str, PrecisionChoice],
        wide: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._function, self._default, self._choices = function, default, choices
        self._wide = wide or {}
        self._given = read_given(function)
        self._given_ranges = given_ranges(self._given)
        self._ranges = Ranges()

    def run(self) -> None:
        """Write all assignments."""
        for op in ir.all_ops(self._function):
            if any(map(ir.is_float32, (*op.operands, *op.results))):
                self._assign(op)
                if self._default.activations != "int16":
                    _keep_softplus(op)
        if self._default.reader == LITERT:
            for op in ir.all_ops(self._function):
                _keep_from_zero(op)
        ir.assign(self._function, ir.ARGUMENTS, [self._argument(value) for value in self._function.args])

    def _assign(self, op: CircleOp) -> None:
        rule, choice = op.SPEC.quant, self._choice(op.results)
        if choice is not None:
            ir.write_word(op, ir.PRECISION, choice.precision)
        if ir.read_word(op, ir.PRECISION) == FLOAT:
            known = None if choice is not None else ir.read_word(op, ir.REASON)
            ir.keep_float(op, known or "float was requested", rule.left)
        elif rule.kind is QuantKind.FLOAT:
            ir.keep_float(op, rule.reason, rule.left)
        elif op.unverified is not None:
            ir.keep_float(op, op.unverified)
        else:
            try:
                used = self._as_reader_takes(op, self._scheme(choice))
                operands = [self._operand(op, index, used) for index in range(len(op.operands))]
                results = [
                    self._by_range(result, used) if ir.is_float32(result) else ir.LEFT_ALONE for result in op.results
                ]
            except _StaysReal as reason:
                ir.keep_float(op, str(reason), rule.left)
                return
            ir.assign(op, ir.OPERANDS, operands)
            ir.assign(op, ir.RESULTS, results)

    def _as_reader_takes(self, op: CircleOp, used: Scheme) -> Scheme:
        """Return ``used``, with 8-bit weights if LiteRT rejects 4-bit weights of this operator.

        Raises _StaysReal if LiteRT rejects both.
        """
        assert used.activations is not None
        if used.reader != LITERT:
            return used
        per_channel = used.granularity == "channel"
        for weights in (used.weights, *(("int8",) if used.weights == "int4" else ())):
            seen = litert_refuses(op.SPEC.name, used.activations, weights, per_channel=per_channel)
            if seen is None:
                return replace(used, weights=weights)
        raise _StaysReal(seen)

    def _choice(self, values: Sequence[SSAValue]) -> PrecisionChoice | None:
        found = (self._choices.get(value_name(value)) for value in values)
        return next((choice for choice in found if choice is not None), None)

    def _scheme(self, choice: PrecisionChoice | None) -> Scheme:
        """Return the scheme of an operator. A chosen precision keeps the default's granularity and form if possible."""
        if choice is None:
            return self._default
        if choice.precision == self._default.name:
            return self._default.with_options(granularity=choice.granularity)
        other = scheme(choice.precision).read_by(self._default.reader)
        granularity = choice.granularity or (self._default.granularity if other.weights != "int16" else None)
        symmetric = other.weights == "uint8" and self._default.weights == "uint8" and self._default.symmetric_weights
        return other.with_options(granularity=granularity, weights="symmetric" if symmetric else None)

    def _operand(self, op: CircleOp, index: int, used: Scheme) -> Attribute:
        role, operand = role_of(op, index), op.operands[index]
        if role is Role.BIAS and ir.constant_of(operand) is None:
            raise _StaysReal("its bias is computed when the model runs")
        if role is Role.LEFT and index in op.SPEC.quant.weights:
            return ir.coded_weights(operand) or ir.LEFT_ALONE
        if role in (Role.LEFT, Role.BIAS):
            return ir.LEFT_ALONE
        if role is Role.STATE:
            return self._state(op, index, used)
        if role is Role.WEIGHTS:
            return self._weights(op, index, used)
        return self._by_range(operand, used, as_weights=index in op.SPEC.quant.weights)

    def _weights(self, op: CircleOp, index: int, used: Scheme) -> Attribute:
        operand = op.operands[index]
        axis = op.SPEC.quant.weights[index]
        dtype = "int8" if axis is None and used.weights == "int4" else used.weights  # one scale is too coarse for int4
        if (given := given_weights(self._given, op, index, dtype)) is not None:
            return given
        axis = axis if used.granularity == "channel" else None
        constant = ir.constant_of(operand)
        assert constant is not None
        key = (dtype, axis, used.symmetric_weights, operand.type, constant.sparsity)
        try:
            return constant.blob.found(key, lambda: _type_of_weights(operand, axis, dtype, used))
        except OdcError as error:
            raise _StaysReal(error.message) from error

    def _state(self, op: CircleOp, index: int, used: Scheme) -> Attribute:
        if op.SPEC.quant.states[index] is StateParameters.OUTPUT:
            return self._by_range(op.results[0], used)
        return ir.quantised("int16", cell_state_params(*self._range(op.operands[index])))

    def _range(self, value: SSAValue) -> tuple[float, float]:
        try:
            found = self._ranges.of(value)
        except OdcError as error:
            raise _StaysReal(error.message) from error
        if found is None:
            found = self._given_ranges.get(value_name(value))
        if found is None:
            raise _StaysReal(f"no range is known for {value_name(value)!r}")
        if not np.isfinite(found).all():
            raise _StaysReal(f"the range of {value_name(value)!r} is not finite")
        return found

    def _by_range(self, value: SSAValue, used: Scheme, *, as_weights: bool = False) -> Attribute:
        """Return the type of a value, which the range determines. Computed weights of a signed type are symmetric."""
        assert used.activations is not None
        symmetric = used.symmetric_activations or (as_weights and DTYPES[used.activations].kind == "int")
        if not as_weights and (given := given_type(self._given, value, used.activations)) is not None:
            return given
        found = self._range(value)
        assert self._default.activations is not None
        if DTYPES[used.activations].bits > DTYPES[self._default.activations].bits:
            found = self._wide.get(value_name(value), found)
        if not any(found):
            found = self._ranges.beside(value) or found
        params = activation_params(*found, used.activations, symmetric=symmetric)
        return ir.quantised(used.activations, params)

    def _argument(self, value: SSAValue) -> Attribute:
        if not ir.is_float32(value):
            return ir.LEFT_ALONE
        demands = ((ir.operand_types(use.operation), use.index) for use in value.uses)
        asked: set[Attribute] = {types[index] for types, index in demands if types is not None}
        asked.discard(ir.LEFT_ALONE)
        choice = self._choice((value,))
        if choice is None and len(asked) == 1:
            return asked.pop()
        if choice is not None and choice.precision == FLOAT:
            return ir.REAL
        try:
            return self._by_range(value, self._scheme(choice))
        except _StaysReal:
            return ir.REAL


def _type_of_weights(operand: SSAValue, axis: int | None, dtype: str, used: Scheme) -> Attribute:
    contents = contents_of(operand)
    params = weight_params(contents, axis, dtype, symmetric=used.symmetric_weights, name=value_name(operand))
    return ir.quantised(dtype, on_grid(contents, params, dtype), per_axis=axis is not None)
