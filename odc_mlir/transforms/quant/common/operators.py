"""Operators to quantise: roles and ranges of operands, the largest sums, and supported types.

Kernels scale sums to 32 bits before they clamp the sums to codes of the result. Larger sums would wrap around, so the
bounds are valid for sums of any codes, not only for codes in samples. Our kernels and a table of LiteRT's kernels
decide whether types are supported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, info_of, node_of
from odc_mlir.dialects.circle_types import tensor_facts
from odc_mlir.errors import OdcError
from odc_mlir.numerics.fixed import activation_bounds
from odc_mlir.ops.check import check_node
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, Node, QuantKind, QuantParams, StateParameters, TensorInfo
from odc_mlir.quantizer.policy.declarations import CPU, LITERT
from odc_mlir.quantizer.policy.readers import FACTORS, litert_refuses_node
from odc_mlir.quantizer.policy.schemes import (
    FIXED,
    SMALLEST_SCALE,
    Scheme,
    bias_params,
    quantize_constant,
    represented_range,
)
from odc_mlir.runtime.kernels import conditions
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.ir import constant_of, info_as, is_float32, params_of, range_of

_ACTIVATION = "fused_activation_function"
_TABLES_BY = "int8"  # element type whose fixed parameters define the bounds of a result


class Role(StrEnum):
    LEFT = "left"  # unchanged: not float, omitted, or without influence on results
    BIAS = "bias"
    WEIGHTS = "weights"  # constants with their own element type and channels
    STATE = "state"  # kept from run to run
    ACTIVATION = "activation"


def role_of(op: CircleOp, index: int) -> Role:
    """Return the role of operand ``index``. Computed weights are activations."""
    rule, operand = op.SPEC.quant, op.operands[index]
    if rule.kind is QuantKind.NONE or index in rule.left or not is_float32(operand):
        return Role.LEFT
    if index in rule.states:
        return Role.STATE
    if index in rule.biases:
        return Role.BIAS
    return Role.WEIGHTS if index in rule.weights and constant_of(operand) is not None else Role.ACTIVATION


def contents_of(value: SSAValue) -> Array:
    """Return the float values of a constant. Raises ModelError if its bytes are not available."""
    return info_of(value).array()


def contents_of_bias(op: CircleOp, index: int) -> Array:
    """Return the float values of bias ``index`` of ``op``, or a zero. Raises ModelError like contents_of."""
    has_bias = index < len(op.operands) and role_of(op, index) is Role.BIAS
    return contents_of(op.operands[index]) if has_bias else np.zeros(1)


class Ranges:
    """Ranges of float values: recorded, computed from constants, or derived.

    Results of operators that only move values get ranges from the ranges of operands.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, tuple[float, float] | None] = {}

    def of(self, value: SSAValue) -> tuple[float, float] | None:
        """Return the bounds of ``value``, or None if they are unknown."""
        if value not in self._known:
            found = range_of(value.type) or _range_of_constant(value)
            if isinstance(value, OpResult) and isinstance(value.op, CircleOp) and isinstance(value.type, TensorType):
                found = self._of_result(value.op) if found is None else _within_activation(value.op, found)
            self._known[value] = found
        return self._known[value]

    def beside(self, value: SSAValue) -> tuple[float, float] | None:
        """Return a range for a ``value`` that is zero in all samples, or None if no neighbour has a range.

        The first choice is the range of the nearest value in the same unit. The second is for a factor of a product:
        with this range, the product fits the result. The last is the range of any value nearby.
        """
        return (
            self._nearest(value, across_products=False)
            or self._as_factor(value)
            or self._nearest(value, across_products=True)
        )

    def _nearest(self, value: SSAValue, *, across_products: bool) -> tuple[float, float] | None:
        """Return the range of the nearest value that is not always zero. The search passes only through zero values."""
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
        """Return a range of the factor ``value`` for which products fit the result's range. None: not a factor."""
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
        moved = [op.operands[index] for index in rule.moved(op.operands)]
        parts = [self.of(operand) for operand in moved if is_float32(operand)]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        return min(low for low, _ in known), max(high for _, high in known)


def _tells_unit(found: tuple[float, float] | None) -> bool:
    return found is not None and any(found) and bool(np.isfinite(found).all())


def _neighbours(value: SSAValue, *, across_products: bool) -> Iterator[SSAValue]:
    """Yield other operands and the results of the users of ``value``, and the operands of the producer of ``value``.

    A product and a factor have different units. They are neighbours only if ``across_products``.
    """
    ops = [use.operation for use in value.uses]
    if isinstance(value, OpResult):
        ops.append(value.op)
    for op in ops:
        if isinstance(op, CircleOp) and (across_products or op.SPEC.name not in FACTORS):
            operands = (v for index, v in enumerate(op.operands) if role_of(op, index) is Role.ACTIVATION)
            yield from (*operands, *op.results)


def _within_activation(op: CircleOp, found: tuple[float, float]) -> tuple[float, float]:
    """Return the part of a range within the fused activation. Chosen ranges may exceed recorded ranges."""
    activation = str(op.option(_ACTIVATION)) if _ACTIVATION in op.OPTIONS else "none"
    try:
        least, most = activation_bounds(activation)
    except OdcError:
        return found
    low = found[0] if least is None else max(found[0], least)
    high = found[1] if most is None else min(found[1], most)
    return (low, high) if low <= high else found


def _range_of_constant(value: SSAValue) -> tuple[float, float] | None:
    """Return the smallest and largest finite element. The largest float32 represents infinity and does not count."""
    if constant_of(value) is None or not is_float32(value):
        return None
    array = contents_of(value).astype(np.float64)
    finite = array[np.abs(array) < np.finfo(np.float32).max]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


_LARGEST = 1 << 30  # bound of a scaled sum, which a left shift before the multiplication may double
_WIDE = 1 << 15  # the largest magnitude of 16-bit codes
_BOUNDED = frozenset({"RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"})
# Largest magnitude of a result before clamping, from magnitudes of operands. Sums of products are not included.
_REACH: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("ADD", "SUB"), sum),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ABS", "MEAN"), max),
    "PRELU": lambda ends: ends[0] * max(1.0, *ends[1:]),
    "SQUARED_DIFFERENCE": lambda ends: sum(ends) ** 2,
}


def is_scaled(op: CircleOp) -> bool:
    """Return whether kernels rescale the sums or products of ``op`` to its result."""
    return op.SPEC.name in _REACH or op.SPEC.name in FACTORS


def coarse_enough(
    op: CircleOp, needs: Sequence[Attribute], element: tuple[str, QuantParams], most_steps: int | None
) -> QuantParams | None:
    """Return result parameters of ``op`` with a scale that is large enough for kernels to scale all sums.

    ``needs``: the operands' types. ``element``: the result's present type. ``most_steps``: largest step of a sum of
    products, in steps of the result. The end of the range keeps its own code, because an activation may clamp there.
    Returns None if a larger scale leaves no code for it.
    """
    own = element[1]
    least = float(np.float32(_least_scale(op, needs, own.scale, most_steps)))
    if least <= own.scale:
        return own
    if least > (end := min(_end(*element), _cut_off(op))):
        return None
    return replace(own, scales=(max(least, float(np.float32(end / math.floor(end / least)))),))


def _cut_off(op: CircleOp) -> float:
    """Return the magnitude at which the activation of ``op`` (fused, or ``op`` itself) clamps, or infinity."""
    alone = op.SPEC.name in _BOUNDED
    bounds = activation_bounds(op.SPEC.name.lower() if alone else str(node_of(op).options.get(_ACTIVATION, "none")))
    return max((abs(bound) for bound in bounds if bound), default=math.inf)


def _least_scale(op: CircleOp, needs: Sequence[Attribute], scale: float, most_steps: int | None) -> float:
    """Return the least scale of the result, at least ``scale``, with which sums cannot overflow."""
    reach = _REACH.get(op.SPEC.name)
    if reach is not None:
        ends = [_end(*element) for element in map(params_of, needs) if element is not None]
        return max(scale, reach(ends) / _LARGEST)
    places = FACTORS[op.SPEC.name]
    elements = [element for place in places if (element := params_of(needs[place])) is not None]
    depth = _depth(op)
    if depth is None or len(elements) < len(places):
        return scale
    if most_steps is not None and op.SPEC.quant.weights:
        scale = max(scale, math.prod(max(params.scales) for _, params in elements) / most_steps)
    ends, bias = [_end(*element) for element in elements], _largest_bias(op)
    total = depth * math.prod(ends)
    if total + bias <= scale * _LARGEST:
        return scale
    for place, (_, params), end in zip(places, elements, ends, strict=True):
        axis = op.SPEC.quant.weights.get(place)
        if axis is not None and role_of(op, place) is Role.WEIGHTS:
            rounded = depth * np.asarray(params.scales)  # a quantised weight differs by at most one step
            total = float((_magnitudes(op.operands[place], axis) + rounded).max()) * math.prod(ends) / end
    return max(scale, (total + bias) / _LARGEST)


def largest_beside_products(
    op: CircleOp, x: tuple[str, QuantParams], weights: tuple[str, QuantParams], largest: int
) -> int:
    """Return the largest bias code whose sum with products of ``x`` and ``weights`` stays below ``largest``.

    The result is at least half of ``largest``, because not all of many products have the largest magnitude.
    """
    products = (_depth(op) or 0) * _largest_code(*x) * _largest_code(*weights)
    return largest - min(products, largest // 2)


def least_scales_of_weights(op: CircleOp, place: int, largest: int) -> NDArray[Any]:
    """Return the least weight scales for which sums over 16-bit inputs stay below ``largest``. 0: no limit."""
    axis, depth = op.SPEC.quant.weights[place], _depth(op)
    if axis is None or depth is None or depth * _WIDE * _WIDE < largest:
        return np.zeros(1)
    # Rounding changes a code by at most one step.
    return np.asarray(_magnitudes(op.operands[place], axis) / max(largest / _WIDE - depth, 1.0))


def _magnitudes(weights: SSAValue, axis: int) -> NDArray[np.float64]:
    constant = constant_of(weights)
    assert constant is not None

    def found() -> NDArray[np.float64]:
        contents = np.moveaxis(contents_of(weights), axis, 0)
        return np.asarray(np.abs(contents, dtype=np.float64).reshape(len(contents), -1).sum(axis=1))

    key = ("magnitudes", axis, weights.type, constant.sparsity)
    sums: NDArray[np.float64] = constant.blob.found(key, found)
    return sums


def _end(dtype: str, params: QuantParams) -> float:
    return max(params.scales) * _largest_code(dtype, params)


def _largest_code(dtype: str, params: QuantParams) -> int:
    low, high = DTYPES[dtype].range
    return max(max(high - zero, zero - low) for zero in {*params.zero_points})


def _largest_bias(op: CircleOp) -> float:
    found = (np.abs(contents_of_bias(op, index)).max(initial=0.0) for index in op.SPEC.quant.biases)
    return float(max(found, default=0.0))


def _depth(op: CircleOp) -> int | None:
    if op.SPEC.name == "BATCH_MATMUL":
        shape = tensor_facts(op.operands[0].type).shape or (None,)
        return shape[-2 if node_of(op).options.get("adjoint_lhs") else -1]
    depth = 1
    for place, axis in op.SPEC.quant.weights.items():
        sizes = tensor_facts(op.operands[place].type).shape or ()
        for size in (size for along, size in enumerate(sizes) if along != axis):
            if size is None:
                return None
            depth *= size
    return depth


def refusal(
    op: CircleOp, operands: Sequence[Attribute], results: Sequence[Attribute], used: Scheme, ranges: Ranges
) -> str | None:
    """Return the reason why ``op`` cannot run with these element types, or None."""
    seen = _unfit_values(op, operands, ranges) or _vanishing_product(op, operands)
    if seen := seen or _shared_state(op) or _linear_cell(op):
        return seen
    try:
        node = _node(op, operands, results, used)
        check_node(node)
    except OdcError as error:
        return error.message
    if (refused := conditions.refusal(node)) is not None:
        return refused.message
    if used.reader == CPU:
        return _refused_by_processors(node, node_of(op))
    return litert_refuses_node(node) if used.reader == LITERT else None


def _refused_by_processors(node: Node, real: Node) -> str | None:
    """Return the reason why native code lacks a kernel for ``node``, or None if it also lacks one for ``real``."""
    from odc_mlir.transforms.native.lowering.operators import kernel_reason

    seen = kernel_reason(node)
    return None if seen is None or kernel_reason(real) is not None else seen


def _linear_cell(op: CircleOp) -> str | None:
    """Return the reason why an LSTM cannot be quantised, or None. Quantised kernels always use TANH in the cell."""
    if StateParameters.CELL not in op.SPEC.quant.states.values():
        return None
    activation = str(node_of(op).options[_ACTIVATION]).lower()
    return None if activation == "tanh" else f"its cell has the activation {activation}; codes know tanh only"


def _unfit_values(op: CircleOp, operands: Sequence[Attribute], ranges: Ranges) -> str | None:
    rule = op.SPEC.quant
    for index in rule.not_negative:
        found = ranges.of(op.operands[index])
        if found is not None and found[0] < 0:
            return f"its operand has negative values, from {found[0]:g}, which have no root"
    for index in rule.not_zero:
        element = params_of(operands[index])
        if element is None:
            continue
        if constant_of(op.operands[index]) is None:
            return "its divisor is computed and may round to zero"
        dtype, params = element
        if (quantize_constant(contents_of(op.operands[index]), params, dtype) == params.zero_point).any():
            return "an element of its divisor rounds to zero"
    return None


def _vanishing_product(op: CircleOp, operands: Sequence[Attribute]) -> str | None:
    """Return an error text if the product of the scales underflows float32, else None."""
    found = 1.0
    for index in FACTORS.get(op.SPEC.name, ()):
        element = params_of(operands[index])
        found *= max(element[1].scales) if element is not None else 1.0
    if found >= SMALLEST_SCALE:
        return None
    names = " and ".join(repr(value_name(op.operands[index])) for index in FACTORS[op.SPEC.name])
    return f"the scales of {names} have a product of {found:.3g}; choose units for them that are closer to 1"


def _shared_state(op: CircleOp) -> str | None:
    for index in op.SPEC.quant.states:
        if index < len(op.operands) and len(list(op.operands[index].uses)) > 1 and is_float32(op.operands[index]):
            return f"its state {op.SPEC.operand_name(index)} is used by other operators"
    return None


def _node(op: CircleOp, operands: Sequence[Attribute], results: Sequence[Attribute], used: Scheme) -> Node:
    """Return the node of ``op`` with these types. Constants to quantise become zeros, to save time."""
    real = node_of(op)
    infos = [
        None if info is None else _as_codes(info, element)
        for info, element in zip(real.operands, operands, strict=True)
    ]
    for index, bias in op.SPEC.quant.biases.items():
        value = infos[index] if index < len(infos) else None
        x, weights = params_of(operands[bias.input]), params_of(operands[bias.weights])
        if value is not None and x is not None and weights is not None and role_of(op, index) is Role.BIAS:
            assert used.bias is not None
            infos[index] = _zeros(TensorInfo(value.name, used.bias, value.shape, bias_params(x[1], weights[1])))
    made = tuple(info_as(info, element) for info, element in zip(real.results, results, strict=True))
    return replace(real, operands=tuple(infos), results=made)


def _as_codes(info: TensorInfo, element: Attribute) -> TensorInfo:
    found = info_as(info, element)
    return _zeros(found) if found is not info and info.is_const else found


def _zeros(info: TensorInfo) -> TensorInfo:
    info.data = memoryview(encode_constant(np.zeros(info.static_shape, info.info.numpy), info.dtype))
    return info
