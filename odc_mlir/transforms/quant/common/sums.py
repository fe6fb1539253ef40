"""What operators may compute before they clamp it, and which scales of results this asks for.

Kernels scale sums to 32 bits before they clamp them to codes of the result. What is larger wraps around, and comes out
anywhere: so it matters how far sums of any codes reach, not those of samples alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.numerics.fixed import activation_bounds
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.readers import FACTORS
from odc_mlir.transforms.quant.common.ir import constant_of, params_of
from odc_mlir.transforms.quant.common.roles import Role, contents_of, contents_of_bias, role_of

_LARGEST = 1 << 30  # that a sum may be scaled to: shifts to the left, before multipliers, may double it
_WIDE = 1 << 15  # the largest magnitude of 16-bit codes
_BOUNDED = frozenset({"RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"})
_FUSED = "fused_activation_function"
# How large a result without limits can be, by the largest magnitudes of operands; products have more to them.
_REACH: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("ADD", "SUB"), sum),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ABS", "MEAN"), max),
    "PRELU": lambda ends: ends[0] * max(1.0, *ends[1:]),
    "SQUARED_DIFFERENCE": lambda ends: sum(ends) ** 2,
}


def is_scaled(op: CircleOp) -> bool:
    """Whether kernels scale what ``op`` computes of its operands to the result."""
    return op.SPEC.name in _REACH or op.SPEC.name in FACTORS


def coarse_enough(
    op: CircleOp, needs: Sequence[Attribute], element: tuple[str, QuantParams], most_steps: int | None
) -> QuantParams | None:
    """Parameters of the result, an ``element``, to which kernels scale whatever ``op`` can make of codes of ``needs``.

    ``most_steps``: of the result, that one step of a sum of products may be. Where the scale must grow, the end of the
    range keeps a code of its own: it may be where an activation cuts off. None where it would have none.
    """
    own, end = element[1], min(_end(*element), _cut_off(op))
    least = float(np.float32(_least_scale(op, needs, own.scale, most_steps)))
    if least <= own.scale:
        return own
    if least > end:
        return None
    return replace(own, scales=(max(least, float(np.float32(end / math.floor(end / least)))),))


def _cut_off(op: CircleOp) -> float:
    """Return the magnitude at which the activation of ``op``, fused or alone, cuts off; infinite without one."""
    alone = op.SPEC.name in _BOUNDED
    bounds = activation_bounds(op.SPEC.name.lower() if alone else str(node_of(op).options.get(_FUSED, "none")))
    return max((abs(bound) for bound in bounds if bound), default=math.inf)


def _least_scale(op: CircleOp, needs: Sequence[Attribute], scale: float, most_steps: int | None) -> float:
    """The least scale of the result, which ``scale`` may be."""
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
            rounded = depth * np.asarray(params.scales)  # no code is farther from its weight
            total = float((_magnitudes(op.operands[place], axis) + rounded).max()) * math.prod(ends) / end
    return max(scale, (total + bias) / _LARGEST)


def largest_beside_products(
    op: CircleOp, x: tuple[str, QuantParams], weights: tuple[str, QuantParams], largest: int
) -> int:
    """Largest bias code whose sum with products of ``x`` and ``weights`` stays below ``largest``.

    At least half of that: of very many products not all are as large as they can be.
    """
    products = (_depth(op) or 0) * _largest_code(*x) * _largest_code(*weights)
    return largest - min(products, largest // 2)


def least_scales_of_weights(op: CircleOp, place: int, largest: int) -> NDArray[Any]:
    """The least scales with which sums of 16-bit codes and constant weights stay below ``largest``, 0 if all do."""
    axis, depth = op.SPEC.quant.weights[place], _depth(op)
    if axis is None or depth is None or depth * _WIDE * _WIDE < largest:
        return np.zeros(1)
    # However codes are rounded, none moves by more than a step.
    return np.asarray(_magnitudes(op.operands[place], axis) / max(largest / _WIDE - depth, 1.0))


def _magnitudes(weights: SSAValue, axis: int) -> NDArray[np.float64]:
    """The sum of the magnitudes of constant ``weights`` for each index of ``axis``."""
    constant = constant_of(weights)
    assert constant is not None

    def found() -> NDArray[np.float64]:
        contents = np.moveaxis(contents_of(weights), axis, 0)
        return np.asarray(np.abs(contents, dtype=np.float64).reshape(len(contents), -1).sum(axis=1))

    key = ("magnitudes", axis, weights.type, constant.sparsity)
    sums: NDArray[np.float64] = constant.blob.found(key, found)
    return sums


def _end(dtype: str, params: QuantParams) -> float:
    """The largest magnitude that has a code."""
    return max(params.scales) * _largest_code(dtype, params)


def _largest_code(dtype: str, params: QuantParams) -> int:
    """How far codes may be from their zero point."""
    low, high = DTYPES[dtype].range
    return max(max(high - zero, zero - low) for zero in params.zero_points)


def _largest_bias(op: CircleOp) -> float:
    found = (np.abs(contents_of_bias(op, index)).max(initial=0.0) for index in op.SPEC.quant.biases)
    return float(max(found, default=0.0))


def _depth(op: CircleOp) -> int | None:
    """How many products ``op`` adds up to one sum at most; None where that is not known."""
    node, weights = node_of(op), op.SPEC.quant.weights
    if op.SPEC.name == "BATCH_MATMUL":
        shape = node.operand(0).shape or (None,)
        return shape[-2 if node.options.get("adjoint_lhs") else -1]
    depth = 1
    for place, axis in weights.items():
        sizes = node.operand(place).shape or ()
        for size in (size for along, size in enumerate(sizes) if along != axis):
            if size is None:
                return None
            depth *= size
    return depth
