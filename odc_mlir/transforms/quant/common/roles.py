"""What operands are to their operator when it is quantised, and between which bounds values lie."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.errors import OdcError
from odc_mlir.numerics.fixed import activation_bounds
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.readers import FACTORS
from odc_mlir.quantizer.policy.schemes import FIXED, represented_range
from odc_mlir.transforms.quant.common.ir import constant_of, is_real, range_of

_ACTIVATION = "fused_activation_function"
_TABLES_BY = "int8"  # the element type whose fixed parameters tell the bounds of a result


class Role(StrEnum):
    LEFT = "left"  # not real, left out, or without influence: stays as it is
    BIAS = "bias"
    WEIGHTS = "weights"  # constants with their own element type and channels
    STATE = "state"  # kept from run to run
    ACTIVATION = "activation"


def role_of(op: CircleOp, index: int) -> Role:
    """The role of operand ``index``. Weights that are computed are activations."""
    rule, operand = op.SPEC.quant, op.operands[index]
    if rule.kind is QuantKind.NONE or index in rule.left or not is_real(operand):
        return Role.LEFT
    if index in rule.states:
        return Role.STATE
    if index in rule.biases:
        return Role.BIAS
    return Role.WEIGHTS if index in rule.weights and constant_of(operand) is not None else Role.ACTIVATION


def concerns_reals(op: CircleOp) -> bool:
    """Whether ``op`` takes or gives real values at all."""
    return any(is_real(value) for value in (*op.operands, *op.results))


def contents_of(value: SSAValue) -> Array:
    """The real values of a constant; raises ModelError where its bytes are not at hand."""
    return info_of(value).array()


def contents_of_bias(op: CircleOp, index: int) -> Array:
    """The real values of bias ``index`` of ``op``, a zero where there is none; raises ModelError as above."""
    has_bias = index < len(op.operands) and role_of(op, index) is Role.BIAS
    return contents_of(op.operands[index]) if has_bias else np.zeros(1)


class Ranges:
    """Ranges of float values: recorded, of constants, and derived.

    Operators that only move values need no record of their own.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, tuple[float, float] | None] = {}

    def of(self, value: SSAValue) -> tuple[float, float] | None:
        """The bounds of ``value``, None where nothing is known."""
        if value not in self._known:
            found = range_of(value.type) or _range_of_constant(value)
            if isinstance(value, OpResult) and isinstance(value.op, CircleOp) and isinstance(value.type, TensorType):
                found = self._of_result(value.op) if found is None else _within_activation(value.op, found)
            self._known[value] = found
        return self._known[value]

    def beside(self, value: SSAValue) -> tuple[float, float] | None:
        """The range that suits ``value``, which is zero everywhere, None where nothing tells one.

        That of the nearest value in the same unit; else, of a factor, one that makes its product fit the result; else
        that of any value near.
        """
        return (
            self._nearest(value, across_products=False)
            or self._as_factor(value)
            or self._nearest(value, across_products=True)
        )

    def _nearest(self, value: SSAValue, *, across_products: bool) -> tuple[float, float] | None:
        """The range of the nearest value that is not zero everywhere, as far as those that are lead to one."""
        zeros, seen = [value], {value}
        for zero in zeros:
            for other in _neighbours(zero, across_products=across_products):
                found = self.of(other)
                if _tells_unit(found):
                    return found
                if found == (0.0, 0.0) and other not in seen:
                    zeros.append(other)
                    seen.add(other)
        return None

    def _as_factor(self, value: SSAValue) -> tuple[float, float] | None:
        """What ``value``, if it is the factor of a product, may have for the product to have the unit of the result."""
        for use in value.uses:
            op = use.operation
            factors = FACTORS.get(op.SPEC.name, ()) if isinstance(op, CircleOp) else ()
            if use.index not in factors:
                continue
            other = op.operands[factors[1 - factors.index(use.index)]]
            beside, made = self.of(other), self.of(op.results[0])
            beside = beside if _tells_unit(beside) else self._nearest(other, across_products=False)
            made = made if _tells_unit(made) else self.beside(op.results[0])
            if beside is not None and made is not None:
                return 0.0, max(map(abs, made)) / max(map(abs, beside))
        return None

    def _of_result(self, op: CircleOp) -> tuple[float, float] | None:
        rule = op.SPEC.quant
        if rule.kind is QuantKind.FIXED:
            return represented_range(FIXED[rule.table, _TABLES_BY][""], _TABLES_BY)
        if rule.kind is not QuantKind.SAME:
            return None
        if rule.source is not None:
            return self.of(op.operands[rule.source])
        parts = [
            self.of(operand) for index, operand in enumerate(op.operands) if rule.is_joined(index) and is_real(operand)
        ]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        return min(low for low, _ in known), max(high for _, high in known)


def _tells_unit(found: tuple[float, float] | None) -> bool:
    """Return whether a range contains a value other than 0."""
    return found is not None and any(found) and bool(np.isfinite(found).all())


def _neighbours(value: SSAValue, *, across_products: bool) -> Iterator[SSAValue]:
    """Return ``value`` with the operands beside it, its users' results, and its own operands.

    Products and their factors have different units: they count only ``across_products``.
    """
    ops = [use.operation for use in value.uses]
    if isinstance(value, OpResult):
        ops.append(value.op)
    for op in ops:
        if isinstance(op, CircleOp) and (across_products or op.SPEC.name not in FACTORS):
            operands = (v for index, v in enumerate(op.operands) if role_of(op, index) is Role.ACTIVATION)
            yield from (*operands, *op.results)


def _within_activation(op: CircleOp, found: tuple[float, float]) -> tuple[float, float]:
    """The part of a range that the fused activation lets through: chosen ranges need not be seen ones."""
    activation = str(op.option(_ACTIVATION)) if _ACTIVATION in op.OPTIONS else "none"
    try:
        least, most = activation_bounds(activation)
    except OdcError:
        return found
    low = found[0] if least is None else max(found[0], least)
    high = found[1] if most is None else min(found[1], most)
    return (low, high) if low <= high else found


def _range_of_constant(value: SSAValue) -> tuple[float, float] | None:
    """Return the smallest and largest element, without stand-ins for infinity, which any type clips."""
    if constant_of(value) is None or not is_real(value):
        return None
    array = contents_of(value).astype(np.float64)
    finite = array[np.abs(array) < np.finfo(np.float32).max]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
