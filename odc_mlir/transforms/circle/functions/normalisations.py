"""Normalisations: distances from a mean, divided by the root of their mean square.

Recognised are ``(x - mean) * rsqrt(variance + epsilon)``, divisions by the square root, and the form that multiplies
``x`` and the mean apart (``x * k + (beta - mean * k)``), each with or without constants behind it; without the mean it
is RMSNorm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.functions.common import (
    VIEWS,
    Function,
    axes_of,
    between,
    only_reader,
    pairs,
    plain,
    viewed,
)
from odc_mlir.transforms.common.rewriting import Reals, activation, real_constant, real_scalar, shape_of

LAYER, RMS, GROUP, INSTANCE = "LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm"


class Spread(NamedTuple):
    """``mean((x - mean)²)`` of ``x`` along ``axes``; ``distance`` is ``x - mean``, ``mean`` None where it is ``x``."""

    x: SSAValue
    axes: frozenset[int]
    mean: SSAValue | None
    distances: tuple[SSAValue, ...]


@dataclass(frozen=True)
class Normalisation:
    """``result = (x - mean) / sqrt(mean square + epsilon) * gamma + beta``; ``normal`` is that without the last two."""

    x: SSAValue
    axes: frozenset[int]
    is_centred: bool
    epsilon: float
    normal: SSAValue | None
    result: SSAValue
    gamma: Reals | None = None
    beta: Reals | None = None

    @property
    def kind(self) -> str:
        """Name for users. Groups of channels are rows: [N, C, H, W] as [N * groups, …]."""
        shape = [extent or 0 for extent in shape_of(self.x) or ()]
        if not self.is_centred:
            return RMS
        if len(shape) == 4 and self.axes in ({1, 2}, {2, 3}):
            return INSTANCE
        if self.axes != frozenset(range(len(shape) - len(self.axes), len(shape))):
            return GROUP
        image = [extent or 0 for extent in shape_of(viewed(self.x)) or ()]
        pixels, row = math.prod(image[2:]), math.prod(shape[axis] for axis in self.axes)
        if len(image) != 4 or len(image) == len(shape) or not pixels or row % pixels:
            return LAYER
        return INSTANCE if row == pixels else GROUP

    def function(self) -> Function:
        """The operators, the constants behind it among them."""
        return Function(self.kind, self.result, between(self.result, [self.x]))


def normalisations(ops: list[CircleOp]) -> Iterator[Normalisation]:
    """Every normalisation among ``ops``, in their order."""
    for op in ops:
        found = normalisation(op)
        if found is not None:
            yield found


def normalisation(op: CircleOp) -> Normalisation | None:
    """The normalisation whose root of a mean square ``op`` takes: RSQRT, SQRT or a power."""
    if op.SPEC.name not in ("RSQRT", "SQRT", "POW") or len(op.results) != 1 or op.unverified is not None:
        return None
    exponent = {"RSQRT": -0.5, "SQRT": 0.5}.get(op.SPEC.name, real_scalar(op.operands[-1]))
    if exponent not in (0.5, -0.5):
        return None
    total = _with_epsilon(op.operands[0])
    if total is None:
        return None
    spread, epsilon = total
    inverse = op.results[0]
    if exponent == 0.5:
        return _divided(spread, epsilon, inverse)
    return _multiplied(spread, epsilon, inverse) or _apart(spread, epsilon, inverse)


def _with_epsilon(value: SSAValue) -> tuple[Spread, float] | None:
    """A mean square, and the number that is added to it."""
    total = plain(value, "ADD")
    for variance, other in pairs(total) if total is not None else ():
        epsilon, spread = real_scalar(other), _spread(variance)
        if epsilon is not None and spread is not None:
            return spread, epsilon
    spread = _spread(value)
    return None if spread is None else (spread, 0.0)


def mean_of(value: SSAValue) -> tuple[SSAValue, frozenset[int]] | None:
    """What ``value`` is the mean of, and along which axes; one MEAN, or several in a row."""
    mean = plain(value, "MEAN")
    axes = None if mean is None else axes_of(mean)
    if mean is None or axes is None or not mean.option("keep_dims"):
        return None
    inner = mean_of(mean.operands[0])
    return (mean.operands[0], axes) if inner is None else (inner[0], axes | inner[1])


def _spread(value: SSAValue) -> Spread | None:
    mean = mean_of(value)
    if mean is None:
        return None
    squares, axes = mean
    apart = plain(squares, "SQUARED_DIFFERENCE")
    if apart is not None:
        for x, other in pairs(apart):
            if mean_of(other) == (x, axes):
                return Spread(x, axes, other, _distances(x, other))
        return None
    distance = _root_of_square(squares)
    if distance is None:
        return None
    difference = plain(distance, "SUB")
    if difference is not None and mean_of(difference.operands[1]) == (difference.operands[0], axes):
        return Spread(difference.operands[0], axes, difference.operands[1], (distance,))
    return Spread(distance, axes, None, (distance,))


def _distances(x: SSAValue, mean: SSAValue) -> tuple[SSAValue, ...]:
    """Every ``x - mean``."""
    readers = (use.operation for use in mean.uses)
    return tuple(
        op.results[0]
        for op in readers
        if isinstance(op, CircleOp) and op.SPEC.name == "SUB" and op.operands[0] is x and op.operands[1] is mean
    )


def _root_of_square(value: SSAValue) -> SSAValue | None:
    op = plain(value, "MUL", "SQUARE", "POW")
    if op is None:
        return None
    if op.SPEC.name == "POW":
        return op.operands[0] if real_scalar(op.operands[1]) == 2.0 else None
    return op.operands[0] if op.SPEC.name == "SQUARE" or op.operands[0] is op.operands[1] else None


def _divided(spread: Spread, epsilon: float, root: SSAValue) -> Normalisation | None:
    quotient = only_reader(root, "DIV")
    if quotient is None or quotient.operands[1] is not root or activation(quotient) != "none":
        return None
    if quotient.operands[0] not in spread.distances:
        return None
    return _with_constants(spread, epsilon, quotient.results[0])


def _multiplied(spread: Spread, epsilon: float, inverse: SSAValue) -> Normalisation | None:
    """``distance * inverse``, where ``inverse`` may have gamma in it."""
    scaled, gamma = _with_gamma(inverse)
    product = only_reader(scaled, "MUL")
    if product is None or activation(product) != "none":
        return None
    if not any(other in spread.distances for other, factor in pairs(product) if factor is scaled):
        return None
    return _with_constants(spread, epsilon, product.results[0], gamma)


def _with_gamma(inverse: SSAValue) -> tuple[SSAValue, Reals | None]:
    """``inverse``, or the only product of it with a constant, and that."""
    product = only_reader(inverse, "MUL")
    if product is not None and activation(product) == "none":
        for _, other in pairs(product):
            if (gamma := real_constant(other)) is not None:
                return product.results[0], gamma
    return inverse, None


def _apart(spread: Spread, epsilon: float, inverse: SSAValue) -> Normalisation | None:
    """``x * k + (beta - mean * k)``."""
    scaled, gamma = _with_gamma(inverse)
    readers = {use.operation for use in scaled.uses}
    products = [op for op in readers if isinstance(op, CircleOp) and op.SPEC.name == "MUL" and activation(op) == "none"]
    if spread.mean is None or len(products) != 2 or len(readers) != 2:
        return None
    by_value = {other: op for op in products for other, factor in pairs(op) if factor is scaled}
    image, centre = by_value.get(spread.x), by_value.get(spread.mean)
    moved = None if image is None or centre is None else only_reader(centre.results[0], "SUB")
    if image is None or centre is None or moved is None or activation(moved) != "none":
        return None
    total = only_reader(image.results[0], "ADD", "SUB")
    if total is None or activation(total) != "none":
        return None
    if moved.operands[1] is centre.results[0] and (beta := real_constant(moved.operands[0])) is not None:
        is_sum = total.SPEC.name == "ADD" and moved.results[0] in total.operands
        if not is_sum:
            return None
        return Normalisation(spread.x, spread.axes, True, epsilon, None, total.results[0], gamma, beta)
    return None


def _with_constants(spread: Spread, epsilon: float, normal: SSAValue, gamma: Reals | None = None) -> Normalisation:
    """Find the product and sum with constants that are the only readers of a normalised value, through views."""
    result, beta = normal, None
    if gamma is None:
        factor = _constant_step(result, "MUL")
        result, gamma = factor if factor is not None else (result, None)
    shift = _constant_step(result, "ADD")
    result, beta = shift if shift is not None else (result, None)
    centred = spread.mean is not None
    return Normalisation(spread.x, spread.axes, centred, epsilon, normal, result, gamma, beta)


def _constant_step(value: SSAValue, name: str) -> tuple[SSAValue, Reals] | None:
    """The result of the operator ``name`` with a constant that alone reads ``value``, maybe through one view."""
    view = only_reader(value, *VIEWS)
    op = only_reader(value if view is None else view.results[0], name)
    if op is None or (name == "MUL" and activation(op) != "none"):
        return None
    for other in op.operands:
        array = real_constant(other)
        if array is not None:
            return op.results[0], array
    return None
