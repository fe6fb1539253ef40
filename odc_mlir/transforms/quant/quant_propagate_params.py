"""``quant-propagate-params``: make the assigned element types consistent.

``quant-assign-params`` considers one value at a time. This pass applies the constraints of operators:

1. Some operators fix the parameters of the result (softmax, logistic, tanh …). The result gets these parameters.
   Parameters in the module's ``quant.given`` stay, and propagate from results of data movement to operands.
2. Operators that move data (reshape, pooling, slices …) pass the operand's parameters on to the results.
3. Operators that combine several values (concatenation, padding with a value, maximum …) pass the result's parameters
   back to operands that only this operator uses. Averages that would be clipped do not get them. If all operands
   without these parameters agree, the result adopts the operands' parameters. The remaining operands are requantised
   only for this operator.
4. Scales of results increase if sums divided by the scale could overflow 32 bits, or if the file's reader does not
   support the factor.
5. An operator requires operands in the resulting types, or in the precision of the operator if that differs.
6. Operators stay float if the kernel does not support these types, or if they only move values between float operators.
   ``quant.reason`` contains the reason.
7. Scales of weights increase if a bias would overflow its type, or a sum would overflow the reader's accumulator.

Before (scales of ``%1`` and ``%2`` from the ranges of ``%1`` and ``%2``)::

    %1 = circle.reshape(%0, %s) attributes {quant.operands = [!quant.uniform<i8:f32, 0.5>, unit],
                                            quant.results = [!quant.uniform<i8:f32, 0.4>]}
    %2 = circle.softmax(%1) attributes {quant.operands = […0.4…], quant.results = [!quant.uniform<i8:f32, 0.003:-128>]}

After::

    %1 = circle.reshape(%0, %s) attributes {quant.operands = [!quant.uniform<i8:f32, 0.5>, unit],
                                            quant.results = [!quant.uniform<i8:f32, 0.5>]}
    %2 = circle.softmax(%1) attributes {quant.operands = […0.5…],
                                        quant.results = [!quant.uniform<i8:f32, 0.00390625:-128>]}

Does nothing to a module without an assigned scheme.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp, TensorAttr, VariableOp
from odc_mlir.dialects.circle_types import NO_CONTENTS
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantKind, QuantParams, StateParameters
from odc_mlir.quantizer.policy import schemes
from odc_mlir.quantizer.policy.declarations import LITERT
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.masks import MIXING
from odc_mlir.transforms.quant.common import ir
from odc_mlir.transforms.quant.common.given import Types, given_type, read_given
from odc_mlir.transforms.quant.common.ir import params_of
from odc_mlir.transforms.quant.common.operators import (
    Ranges,
    Role,
    coarse_enough,
    contents_of,
    contents_of_bias,
    is_scaled,
    largest_beside_products,
    least_scales_of_weights,
    refusal,
    role_of,
)

_LEAST_KEPT = 3 / 4  # share of an average's range that shared parameters must cover: clipping costs less than rounding
_MOST_COARSER = 1.5  # limit on an adopted scale, relative to the result's own scale; adoption saves a rounding


class QuantPropagateParamsPass(ModulePass):
    """Make the assigned element types consistent."""

    name = "quant-propagate-params"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        name, function = ir.read_word(op, ir.SCHEME), ir.quantized_function(op)
        if name is not None and function is not None and ir.argument_types(function) is not None:
            symmetric = ir.read_word(op, ir.WEIGHTS) != "asymmetric"
            used = schemes.scheme(name).read_by(ir.read_word(op, ir.READER) or "")
            Propagation(function, used, symmetric_weights=symmetric).run()


class Propagation:
    """Propagation of types among the values of one function."""

    def __init__(self, function: FuncOp, default: schemes.Scheme, *, symmetric_weights: bool) -> None:
        self._function, self._default, self._symmetric_weights = function, default, symmetric_weights
        self._groups, self._ranges = Groups(), Ranges()
        self._exceeding: set[CircleOp] = set()  # operators whose sums no scale of the result can hold
        self._ops = [
            op for op in ir.all_ops(function) if ir.operand_types(op) is not None and ir.REASON not in op.attributes
        ]

    def run(self) -> None:
        """Make all assignments consistent and write them to the IR."""
        self._form_groups()
        self._write()
        for op in self._ops:
            self._ask_kernel(op)
        self._keep_float_between()
        for op in self._ops:
            if ir.REASON in op.attributes:
                continue
            if op.SPEC.quant.biases:
                ir.assign(op, ir.OPERANDS, self._with_room_for_sums(op, _needs(op)))
            if op.SPEC.quant.states:
                self._type_states(op)

    def _form_groups(self) -> None:
        given = read_given(self._function)
        for argument, type in zip(self._function.args, ir.argument_types(self._function) or (), strict=True):
            self._groups.add(argument, type, fixed=_is_given(given, argument, type))
        for op in self._ops:
            for result, type in zip(op.results, ir.result_types(op) or (), strict=True):
                self._groups.add(result, type, fixed=_is_given(given, result, type))
        for op in self._ops:
            self._fix_or_move(op)
        for op in reversed(self._ops):
            if op.SPEC.quant.joins:
                self._join(op)
        while any(self._make_result_coarser(op) for op in self._ops):
            pass  # repeat, because a result may share its scale with operands of earlier operators

    def _scheme(self, op: CircleOp) -> schemes.Scheme:
        name = ir.read_word(op, ir.PRECISION)
        return self._default if name is None else schemes.scheme(name).read_by(self._default.reader)

    def _fix_or_move(self, op: CircleOp) -> None:
        rule = op.SPEC.quant
        if rule.kind is QuantKind.FIXED:
            used = self._scheme(op)
            params = used.fixed(rule.table)
            if (group := self._groups.of(op.results[0])) is not None and params is not None:
                group.type, group.fixed = ir.quantised(group.dtype, params), True
        elif rule.source is not None:
            source, needed = op.operands[rule.source], _needs(op)[rule.source]
            group, wanted = self._groups.of(source), ir.params_of(needed)
            if wanted is not None:
                shared = group if group is not None and group.dtype == wanted[0] else None
                self._groups.join_results(shared, op.results, needed)

    def _join(self, op: CircleOp) -> None:
        own = self._groups.of(op.results[0])
        if own is None:
            return
        met = [op.operands[index] for index in range(len(op.operands)) if _is_joined(op, index)]
        groups = [group for value in met if (group := self._groups.of(value)) is not None and group.dtype == own.dtype]
        others = []
        for group in groups:
            if group is own or (not group.fixed and self._only_feeds(group, op) and self._may_have(own.type, group)):
                self._groups.merge(own, group)
                own.settled = own.settled or group.settled
            else:
                others.append(group)
        types = {group.type for group in others}
        if len(types) == 1 and not own.settled and not own.fixed:
            found = types.pop()
            # If the operand has no other users and this operator clips it, the result's own scale may be far finer.
            alone = not others[0].fixed and self._only_feeds(others[0], op)
            is_fine = not alone or _scale(found) <= _MOST_COARSER * _scale(own.type)
            if is_fine and all(self._covers(found, value) for value in met):
                own.type = found
        own.settled = True

    def _only_feeds(self, group: Group, op: CircleOp) -> bool:
        """Return whether only ``op`` uses values of ``group``, directly or moved, apart from uses as ``Role.LEFT``."""
        for value in group.values:
            for use in value.uses:
                user = use.operation
                if user is op or (isinstance(user, CircleOp) and role_of(user, use.index) is Role.LEFT):
                    continue
                inside = isinstance(user, CircleOp) and user.SPEC.quant.kind is QuantKind.SAME
                if not inside or ir.REASON in user.attributes or self._groups.of(user.results[0]) is not group:
                    return False
        return True

    def _may_have(self, type: Attribute, group: Group) -> bool:
        """Return whether ``type`` covers enough of the range of each averaged value of ``group``."""
        users = ((value, use.operation) for value in group.values for use in value.uses)
        mixed = {value for value, user in users if isinstance(user, CircleOp) and user.SPEC.name in MIXING}
        return all(self._covers(type, value, _LEAST_KEPT) for value in mixed)

    def _covers(self, type: Attribute, value: SSAValue, part: float = 1.0) -> bool:
        """Return whether ``type`` represents the range of ``value``, or ``part`` of it, up to half a step."""
        found, element = self._ranges.of(value), ir.params_of(type)
        if found is None or element is None:
            return False
        low, high = schemes.represented_range(element[1], element[0])
        slack = element[1].scale / 2
        return low - slack <= part * found[0] and part * found[1] <= high + slack

    def _write(self) -> None:
        groups = self._groups
        ir.assign(
            self._function,
            ir.ARGUMENTS,
            [
                groups.type_of(v, t)
                for v, t in zip(self._function.args, ir.argument_types(self._function) or (), strict=True)
            ],
        )
        for op in self._ops:
            results = [groups.type_of(v, t) for v, t in zip(op.results, ir.result_types(op) or (), strict=True)]
            ir.assign(op, ir.OPERANDS, self._demands(op))
            ir.assign(op, ir.RESULTS, results)

    def _demands(self, op: CircleOp) -> list[Attribute]:
        return [self._demand(op, index, type) for index, type in enumerate(_needs(op))]

    def _demand(self, op: CircleOp, index: int, by_range: Attribute) -> Attribute:
        """Return the result's type if operand ``index`` shares it, else its own if supported, else ``by_range``."""
        role = role_of(op, index)
        if role is Role.STATE and op.SPEC.quant.states[index] is StateParameters.OUTPUT:
            return self._groups.type_of(op.results[0], by_range)
        if role is not Role.ACTIVATION:
            return by_range
        if index == op.SPEC.quant.source or _is_joined(op, index):
            return self._groups.type_of(next(filter(ir.is_float32, op.results)), by_range)
        group, wanted = self._groups.of(op.operands[index]), ir.params_of(by_range)
        if index in op.SPEC.quant.weights and group is not None and not _may_be_weights(group.type):
            return by_range
        return group.type if group is not None and wanted is not None and group.dtype == wanted[0] else by_range

    def _ask_kernel(self, op: CircleOp) -> None:
        seen = refusal(op, _needs(op), ir.result_types(op) or (), self._scheme(op), self._ranges)
        if seen is None and op in self._exceeding:
            seen = "its sums exceed its result's range by more than kernels can scale; rescale it in the float model"
        if seen is not None:
            ir.keep_float(op, seen, op.SPEC.quant.left)

    def _keep_float_between(self) -> None:
        """Keep operators float that only move values between float operators, because quantising them gains nothing."""
        among = {op for op in self._ops if ir.REASON not in op.attributes and op.SPEC.quant.kind is QuantKind.SAME}
        while apart := [op for op in among if not _is_among_float(op, among)]:
            among.difference_update(apart)
        for op in among:
            ir.keep_float(op, "all operators before and after it stay float", op.SPEC.quant.left)

    def _type_states(self, op: CircleOp) -> None:
        needs = _needs(op)
        for index in op.SPEC.quant.states:
            variable = op.operands[index].owner if index < len(op.operands) else None
            if isinstance(variable, VariableOp):
                ir.assign(variable, ir.RESULTS, [needs[index]])
        op.properties["intermediates"] = ArrayAttr(_sums_of_gates(op))

    def _make_result_coarser(self, op: CircleOp) -> bool:
        group = self._groups.of(op.results[0])
        if group is None:
            return False
        wanted, before = self._coarse_enough(op, group), group.type
        (self._exceeding.add if wanted is None else self._exceeding.discard)(op)
        group.type = wanted or before
        return group.type != before

    def _coarse_enough(self, op: CircleOp, group: Group) -> Attribute | None:
        """Return the type of ``group``, if necessary with a larger scale for sums, or None if no scale suffices."""
        own = ir.params_of(group.type)
        if not is_scaled(op) or group.fixed or own is None:
            return group.type
        needs, used = self._with_room_for_sums(op, self._demands(op)), self._scheme(op)
        params = coarse_enough(op, needs, own, used.most_steps)
        if params is None:
            return None
        # An operator that LiteRT cannot run with the larger scale stays float, which loses no accuracy.
        grows = params != own[1]
        stays = grows and used.reader == LITERT and refusal(op, needs, [group.type], used, self._ranges) is not None
        return ir.quantised(own[0], params) if grows and not stays else group.type

    def _with_room_for_sums(self, op: CircleOp, needs: Sequence[Attribute]) -> list[Attribute]:
        """Return ``needs`` with scales of weights so large that biases and sums cannot overflow."""
        found, used = list(needs), self._scheme(op)
        for index, bias in op.SPEC.quant.biases.items():
            x, weights = ir.params_of(found[bias.input]), ir.params_of(found[bias.weights])
            if x is None or weights is None or role_of(op, bias.weights) is not Role.WEIGHTS:
                continue
            largest = used.largest_bias
            if used.bias == "int32":  # sums of products and bias then also have 32 bits
                largest = largest_beside_products(op, x, weights, largest)
            least = schemes.least_weight_scales(contents_of_bias(op, index), x[1].scale, largest)
            if used.largest_sum is not None:
                least = np.maximum(least, least_scales_of_weights(op, bias.weights, used.largest_sum))
            if (least <= np.asarray(weights[1].scales)).all():
                continue
            per_axis = not weights[1].per_tensor
            contents = contents_of(op.operands[bias.weights])
            params = schemes.weight_params(
                contents,
                op.SPEC.quant.weights[bias.weights] if per_axis else None,
                weights[0],
                symmetric=weights[0] != "uint8" or self._symmetric_weights,
                least_scales=least,
            )
            found[bias.weights] = ir.quantised(
                weights[0], schemes.on_grid(contents, params, weights[0]), per_axis=per_axis
            )
        return found


def _sums_of_gates(op: CircleOp) -> list[TensorAttr]:
    """Return the intermediate tensors of a cell: the gates' four sums in Q3.12, then its hidden values."""
    sums = ir.quantised("int16", QuantParams((2.0**-12,), (0,)))
    inside = [*([sums] * 4), *(ir.result_types(op) or ())]
    return [
        TensorAttr(StringAttr(f"{op_name(op)}_intermediate{index}"), TensorType(element, [1]), NO_CONTENTS)
        for index, element in enumerate(inside)
    ]


def _scale(type: Attribute) -> float:
    found = ir.params_of(type)
    assert found is not None
    return found[1].scale


def _needs(op: CircleOp) -> list[Attribute]:
    found = ir.operand_types(op)
    assert found is not None
    return found


def _may_be_weights(type: Attribute) -> bool:
    found = ir.params_of(type)
    return found is None or DTYPES[found[0]].kind != "int" or not found[1].zero_point


def _is_given(given: Types, value: SSAValue, type: Attribute) -> bool:
    found = ir.params_of(type)
    return found is not None and given_type(given, value, found[0]) == type


def _is_joined(op: CircleOp, index: int) -> bool:
    return op.SPEC.quant.is_joined(index) and role_of(op, index) is Role.ACTIVATION


def _is_among_float(op: CircleOp, among: Set[Operation]) -> bool:
    taken = [value for value in op.operands if ir.is_float32(value) and ir.constant_of(value) is None]
    if not taken or any(value.owner not in among and ir.assigned_type(value) != ir.REAL for value in taken):
        return False
    uses = (use for result in op.results for use in result.uses)
    return all(use.operation in among or _takes_float(use.operation, use.index) for use in uses)


def _takes_float(user: Operation, index: int) -> bool:
    if not isinstance(user, CircleOp):
        return isinstance(user, ReturnOp)
    types = ir.operand_types(user)
    return types is not None and types[index] in (ir.REAL, ir.LEFT_ALONE)


@dataclass(eq=False, slots=True)
class Group:
    """Values of one element type.

    ``fixed``: whether an operator or the user fixes the type. ``settled``: whether a later operator has chosen the
    type. No other operator then changes the type.
    """

    type: Attribute
    values: list[SSAValue] = field(default_factory=list)
    fixed: bool = False
    settled: bool = False

    @property
    def dtype(self) -> str:
        """Storage type of the values' codes."""
        found = params_of(self.type)
        assert found is not None
        return found[0]


class Groups:
    """Groups of quantised values. Other values are in no group."""

    def __init__(self) -> None:
        self._of: dict[SSAValue, Group] = {}

    def add(self, value: SSAValue, type: Attribute, *, fixed: bool = False) -> None:
        """Put ``value`` into a separate group if ``type`` is quantised."""
        if params_of(type) is not None:
            self._of[value] = Group(type, [value], fixed)

    def of(self, value: SSAValue) -> Group | None:
        """Return the group of ``value``, or None if it is not quantised."""
        return self._of.get(value)

    def type_of(self, value: SSAValue, otherwise: Attribute) -> Attribute:
        """Return the element type of ``value``, or ``otherwise`` if it is in no group."""
        group = self._of.get(value)
        return otherwise if group is None else group.type

    def merge(self, into: Group, other: Group) -> None:
        """Merge two groups. The type is the type of ``other`` if only this type is fixed, else of ``into``."""
        if other is into:
            return
        if other.fixed and not into.fixed and other.dtype == into.dtype:
            into.type, into.fixed = other.type, True
        into.values += other.values
        for value in other.values:
            self._of[value] = into

    def join_results(self, group: Group | None, results: Sequence[SSAValue], otherwise: Attribute) -> None:
        """Put ``results`` into ``group`` or, if it is None, into separate new groups of type ``otherwise``."""
        for result in results:
            own = self._of.get(result)
            if own is None:
                continue
            if group is None:
                group, own.type = own, own.type if own.fixed else otherwise
            self.merge(group, own)
