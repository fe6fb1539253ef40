"""Normalisations of several operators: distances from a mean, divided by the root of the mean square distance.

The patterns match ``x * k + (beta - mean * k)``, ``(x - mean) * rsqrt(variance + epsilon)`` and ``(x - mean) /
sqrt(variance + epsilon)``. Gamma and beta are optional. A normalisation without a mean is RMSNorm.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_fuse_batch_norm import per_channel
from odc_mlir.transforms.common import rewriting

_ROOTS = frozenset({"RSQRT", "SQRT", "POW"})
_LEAST_NORM = 1e-9  # limit on lower bounds of norms; rows of measured values have larger norms, or are zero


class Spread(NamedTuple):
    """``mean((x - mean)²) + epsilon`` along ``axes``. ``distances``: all values ``x - mean``, or ``x``."""

    x: SSAValue
    axes: frozenset[int]
    mean: SSAValue | None
    distances: tuple[SSAValue, ...]
    epsilon: float = 0.0


@dataclass(frozen=True)
class Normalisation:
    """``result = normal * gamma + beta``. ``normal``: ``(x - mean) / sqrt(spread)``, None if nothing computes it."""

    spread: Spread
    normal: SSAValue | None
    result: SSAValue
    gamma: rewriting.Reals | None
    beta: rewriting.Reals | None


def _normalisation(op: CircleOp) -> Normalisation | None:
    exponent = {"RSQRT": -0.5, "SQRT": 0.5}.get(op.SPEC.name, rewriting.real_scalar(op.operands[-1]))
    spread = _with_epsilon(op.operands[0]) if exponent in (0.5, -0.5) else None
    if spread is None:
        return None
    if exponent == 0.5:
        return _scaled(spread, op.results[0], None, rewriting.only_reader(op.results[0], "DIV"))
    inverse, gamma = _with_gamma(op.results[0])
    product = rewriting.only_reader(inverse, "MUL")
    return _scaled(spread, inverse, gamma, product) or _apart(spread, inverse, gamma)


def _with_epsilon(value: SSAValue) -> Spread | None:
    total = rewriting.plain(value, "ADD")
    for variance, other in rewriting.pairs(total) if total is not None else ():
        epsilon, spread = rewriting.real_scalar(other), _spread(variance)
        if epsilon is not None and spread is not None:
            return spread._replace(epsilon=epsilon)
    return _spread(value)


def _mean_of(value: SSAValue) -> tuple[SSAValue, frozenset[int]] | None:
    """Return the source of the mean ``value``, and the axes, through one or several MEANs in a row."""
    mean = rewriting.plain(value, "MEAN")
    axes = None if mean is None else rewriting.axes_of(mean)
    if mean is None or axes is None or not mean.option("keep_dims"):
        return None
    source, more = _mean_of(mean.operands[0]) or (mean.operands[0], frozenset())
    return source, more.union(axes)


def _spread(value: SSAValue) -> Spread | None:
    squares, axes = _mean_of(value) or (None, frozenset())
    apart = rewriting.plain(squares, "SQUARED_DIFFERENCE")
    if apart is not None:
        for x, mean in rewriting.pairs(apart):
            if _mean_of(mean) == (x, axes):
                readers = (rewriting.plain(result, "SUB") for use in mean.uses for result in use.operation.results)
                distances = (op.results[0] for op in readers if op is not None and tuple(op.operands) == (x, mean))
                return Spread(x, axes, mean, tuple(distances))
        return None
    distance = _root_of_square(squares)
    difference = rewriting.plain(distance, "SUB")
    if difference is not None and _mean_of(difference.operands[1]) == (difference.operands[0], axes):
        return Spread(difference.operands[0], axes, difference.operands[1], difference.results)
    return None if distance is None else Spread(distance, axes, None, (distance,))


def _root_of_square(value: SSAValue | None) -> SSAValue | None:
    op = rewriting.plain(value, "MUL", "SQUARE", "POW")
    if op is None:
        return None
    if op.SPEC.name == "POW":
        return op.operands[0] if rewriting.real_scalar(op.operands[1]) == 2.0 else None
    return op.operands[0] if op.SPEC.name == "SQUARE" or op.operands[0] is op.operands[1] else None


def _with_gamma(inverse: SSAValue) -> tuple[SSAValue, rewriting.Reals | None]:
    return _by_constant(rewriting.only_reader(inverse, "MUL")) or (inverse, None)


def _by_constant(op: CircleOp | None) -> tuple[SSAValue, rewriting.Reals] | None:
    constants = [] if op is None else [rewriting.real_constant(operand) for operand in op.operands]
    found = next((array for array in constants if array is not None), None)
    return None if op is None or found is None else (op.results[0], found)


def _scaled(
    spread: Spread, scale: SSAValue, gamma: rewriting.Reals | None, op: CircleOp | None
) -> Normalisation | None:
    """Return the normalisation that ``op`` computes from a distance and ``scale``, with the constants after it."""
    if op is None or not any(a in spread.distances and b is scale for a, b in rewriting.pairs(op)):
        return None
    if op.SPEC.name == "DIV" and op.operands[1] is not scale:
        return None
    result: SSAValue = op.results[0]
    if gamma is None:
        result, gamma = _constant_step(result, "MUL")
    result, beta = _constant_step(result, "ADD")
    return Normalisation(spread, op.results[0], result, gamma, beta)


def _constant_step(value: SSAValue, name: str) -> tuple[SSAValue, rewriting.Reals | None]:
    """Return result and constant of the only reader ``name`` of ``value``, directly or through one view."""
    view = rewriting.only_reader(value, *rewriting.VIEWS)
    op = rewriting.only_reader(value if view is None else view.results[0], name, fused=name == "ADD")
    return _by_constant(op) or (value, None)


def _apart(spread: Spread, scale: SSAValue, gamma: rewriting.Reals | None) -> Normalisation | None:
    """Return the normalisation of ``x * scale + (beta - mean * scale)``."""
    readers = {use.operation for use in scale.uses}
    products = [op for op in readers if isinstance(op, CircleOp) and rewriting.plain(op.results[0], "MUL") is op]
    by_value = {other: op.results[0] for op in products for other, factor in rewriting.pairs(op) if factor is scale}
    image, centre = by_value.get(spread.x), None if spread.mean is None else by_value.get(spread.mean)
    if image is None or centre is None or len(readers) != 2:
        return None
    moved, total = rewriting.only_reader(centre, "SUB"), rewriting.only_reader(image, "ADD")
    beta = None if moved is None or moved.operands[1] is not centre else rewriting.real_constant(moved.operands[0])
    if moved is None or beta is None or total is None or moved.results[0] not in total.operands:
        return None
    return Normalisation(spread, None, total.results[0], gamma, beta)


def _vector(array: rewriting.Reals | None, channels: int, neutral: float) -> rewriting.Reals | None:
    return np.full(channels, neutral, np.float32) if array is None else per_channel(array, channels)


def _put(
    rewriter: PatternRewriter, result: SSAValue, x: SSAValue, end: CircleOp, made: list[CircleOp | ConstOp]
) -> None:
    members = rewriting.between(result, [x])
    rewriter.replace(end, made)
    rewriting.erase_unused((item for item in members if item is not end), rewriter)


def _real_norm(op: CircleOp) -> tuple[Normalisation, tuple[int | None, ...]] | None:
    found = _normalisation(op)
    shape = None if found is None else rewriting.shape_of(found.result)
    if found is None or not shape or not rewriting.is_real(found.spread.x):
        return None
    if shape != rewriting.shape_of(found.spread.x):
        return None
    return found, shape


class RmsNorm(rewriting.OperatorPattern):
    """Replace ``x * rsqrt(mean(x²) + epsilon) * gamma`` along the last dimension by RMS_NORM."""

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        known = _real_norm(op)
        if known is None or known[0].spread.mean is not None or len(known[1]) not in (3, 4):
            return
        found, shape = known
        channels = shape[-1]
        gamma = None if channels is None else _vector(found.gamma, channels, 1.0)
        if found.spread.axes != {len(shape) - 1} or gamma is None:
            return
        result, options = found.result, {"epsilon": found.spread.epsilon}
        end = rewriting.producer(result, "MUL", "DIV", "ADD")
        if end is None or rewriting.activation(end) != "none" or found.beta is not None:
            return
        scale = rewriting.real(gamma, f"{value_name(result)}/gamma")
        made = rewriting.operator("RMS_NORM", [found.spread.x, scale.result], result, options)
        _put(rewriter, found.result, found.spread.x, end, [scale, made])


class UnitNorm(rewriting.OperatorPattern):
    """Replace ``x / max(sqrt(sum(x²)), least)`` along the last dimension by RMS_NORM, for a tiny ``least``."""

    names = frozenset({"DIV"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        x, norm, shape = op.operands[0], op.operands[1], rewriting.shape_of(op.results[0]) or (None,)
        spread, count = rewriting.plain(norm, "BROADCAST_TO"), shape[-1]
        limit = rewriting.plain(norm if spread is None else spread.operands[0], "MAXIMUM")
        if limit is None or rewriting.activation(op) != "none" or len(shape) not in (3, 4) or not count:
            return
        for root, bound in rewriting.pairs(limit):
            least, power = rewriting.real_scalar(bound), rewriting.plain(root, "SQRT")
            total = None if power is None else rewriting.plain(power.operands[0], "SUM")
            if least is None or not 0 <= least <= _LEAST_NORM or total is None or not total.option("keep_dims"):
                continue
            if _root_of_square(total.operands[0]) is x and rewriting.axes_of(total) == (len(shape) - 1,):
                gamma = rewriting.real(np.full(count, count**-0.5), f"{value_name(op.results[0])}/gamma")
                made = rewriting.operator("RMS_NORM", [x, gamma.result], op.results[0], {"epsilon": least**2 / count})
                _put(rewriter, op.results[0], x, op, [gamma, made])
                return


class InstanceNorm(rewriting.OperatorPattern):
    """Replace a normalisation over pixels of ``[N, H, W, C]``, with gamma and beta per channel, by INSTANCE_NORM."""

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        known = _real_norm(op)
        if known is None or known[0].spread.mean is None or len(known[1]) != 4 or known[0].spread.axes != {1, 2}:
            return
        found, shape = known
        end = rewriting.producer(found.result, "MUL", "DIV", "ADD")
        if shape[3] is None or end is None:
            return
        gamma, beta = _vector(found.gamma, shape[3], 1.0), _vector(found.beta, shape[3], 0.0)
        if gamma is None or beta is None:
            return
        name = value_name(found.result)
        scale, shift = rewriting.real(gamma, f"{name}/gamma"), rewriting.real(beta, f"{name}/beta")
        options = {"epsilon": found.spread.epsilon, "fused_activation_function": rewriting.activation(end)}
        made = rewriting.operator("INSTANCE_NORM", [found.spread.x, scale.result, shift.result], found.result, options)
        _put(rewriter, found.result, found.spread.x, end, [scale, shift, made])


class InstanceNormParts(rewriting.OperatorPattern):
    """Replace INSTANCE_NORM of images by operators with quantised forms: the reverse of :class:`InstanceNorm`."""

    names = frozenset({"INSTANCE_NORM"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        x, gamma, beta = op.operands
        result, shape = op.results[0], rewriting.static_shape_of(x) or ()
        if len(shape) != 4 or not rewriting.is_real(x) or shape != rewriting.static_shape_of(result):
            return
        each = (shape[0], 1, 1, shape[3])
        axes = rewriting.indices((1, 2), f"{value_name(result)}/axes")
        epsilon = rewriting.real(np.array(op.option("epsilon")), f"{value_name(result)}/epsilon")
        made: list[CircleOp | ConstOp] = [axes, epsilon]

        def step(name: str, role: str, shape: tuple[int, ...], *operands: SSAValue, **options: Any) -> SSAValue:
            made.append(rewriting.part(name, operands, result, role, shape, **options))
            return made[-1].results[0]

        mean = step("MEAN", "mean", each, x, axes.result, keep_dims=True)
        squares = step("SQUARED_DIFFERENCE", "squares", shape, x, mean)
        variance = step("MEAN", "variance", each, squares, axes.result, keep_dims=True)
        root = step("RSQRT", "root", each, step("ADD", "spread", each, variance, epsilon.result))
        factor = step("MUL", "factor", each, root, gamma)
        scaled = step("MUL", "scaled", shape, step("SUB", "centre", shape, x, mean), factor)
        options = {"fused_activation_function": rewriting.activation(op)}
        rewriter.replace(op, [*made, rewriting.operator("ADD", [scaled, beta], result, options)])


class GroupsAsDimension(rewriting.OperatorPattern):
    """Normalise groups of channels of images ``[N, C, H, W]`` as a dimension, not as rows ``[N * groups, …]``.

    ``[N, groups, C / groups, H * W]`` can be stored channels last. Rows cannot, and images would need a TRANSPOSE.
    """

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = _normalisation(op)
        if found is None or found.spread.mean is None or found.normal is None:
            return
        x, axes = found.spread.x, found.spread.axes
        view, back = rewriting.producer(x, "RESHAPE"), rewriting.only_reader(found.normal, "RESHAPE")
        rows, image = rewriting.static_shape_of(x), rewriting.static_shape_of(rewriting.viewed(x))
        if view is None or back is None or not rows or not image or len(image) != 4 or len(rows) == 4 or 0 in image:
            return
        batch, channels, pixels = image[0], image[1], image[2] * image[3]
        groups, rest = divmod(channels * pixels, math.prod(rows[axis] for axis in axes))
        if rest or channels % groups or axes != frozenset(range(len(rows) - len(axes), len(rows))):
            return  # these rows are not groups of channels
        members = frozenset(rewriting.between(found.normal, [x]))
        if not all(_works_on_rows(member, found.spread, members) for member in members):
            return
        made = _on_groups(found, members, view.operands[0], (batch, groups, channels // groups, pixels))
        shown = rewriting.copy_of(back, [made[-1].results[0], *list(back.operands)[1:]], back.results[0])
        rewriter.replace(back, [*made, shown])
        rewriting.erase_unused([*members, view], rewriter)


_OF_EACH = frozenset({"SUB", "MUL", "ADD", "DIV", "RSQRT", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "POW"})


def _works_on_rows(op: CircleOp, spread: Spread, members: Set[CircleOp]) -> bool:
    """Return whether ``op`` is a mean of rows, or works on rows, or on one number per row in any shape."""
    if op.SPEC.name == "MEAN":
        return frozenset(rewriting.axes_of(op) or ()) == spread.axes
    loose = (value for value in op.operands if value is not spread.x and value.owner not in members)
    return op.SPEC.name in _OF_EACH and all(rewriting.real_scalar(value) is not None for value in loose)


def _on_groups(
    found: Normalisation, members: Set[CircleOp], image: SSAValue, shape: tuple[int, int, int, int]
) -> list[CircleOp | ConstOp]:
    name, rows = value_name(found.result), rewriting.shape_of(found.spread.x)
    wanted = rewriting.indices(shape, f"{name}/groups")
    view = rewriting.part("RESHAPE", [image, wanted.result], found.spread.x, "groups", shape, new_shape=list(shape))
    axes = [rewriting.indices([axis], f"{name}/axis{axis}") for axis in (3, 2)]
    made: list[CircleOp | ConstOp] = [wanted, *axes, view]
    values: dict[SSAValue, SSAValue] = {found.spread.x: view.results[0]}

    def value_of(old: SSAValue) -> SSAValue:
        op = old.owner
        if old in values or not isinstance(op, CircleOp) or op not in members:
            return values.get(old, old)
        operands = [value_of(operand) for operand in op.operands]
        if op.SPEC.name == "MEAN":
            for axis, kept in zip(axes, ((*shape[:3], 1), (*shape[:2], 1, 1)), strict=True):
                made.append(rewriting.part("MEAN", [operands[0], axis.result], old, "mean", kept, keep_dims=True))
                operands[0] = made[-1].results[0]
        else:
            extents = shape if rewriting.shape_of(old) == rows else (*shape[:2], 1, 1)
            options = {key: op.option(key) for key in op.OPTIONS}
            made.append(rewriting.part(op.SPEC.name, operands, old, "groups", extents, **options))
        values[old] = made[-1].results[0]
        return values[old]

    assert found.normal is not None
    value_of(found.normal)
    return made


class ScaleOfRmsNorm(rewriting.OperatorPattern):
    """Fold a product with a number per channel after RMS_NORM into gamma."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for value, other in rewriting.pairs(op) if rewriting.activation(op) == "none" else ():
            norm, factor = rewriting.producer(value, "RMS_NORM"), rewriting.real_constant(other)
            gamma = None if norm is None else rewriting.real_constant(norm.operands[1])
            if norm is None or gamma is None or factor is None or not rewriting.is_used_once(value):
                continue
            if gamma.shape != factor.reshape(-1).shape or factor.shape[-1] != factor.size:
                continue
            scale = rewriting.real(gamma * factor.reshape(-1), f"{value_name(op.results[0])}/gamma")
            made = rewriting.copy_of(norm, [norm.operands[0], scale.result], op.results[0])
            rewriter.replace(op, [scale, made])
            return
