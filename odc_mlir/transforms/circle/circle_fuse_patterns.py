"""``circle-fuse-patterns``: replace groups of operators by one operator that computes the same function.

Before::

    %0 = circle.add(%x, %three) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
    %1 = circle.relu6(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %2 = circle.mul(%x, %1) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
    %3 = circle.mul(%2, %sixth) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>

After: ``%3 = circle.hard_swish(%x)``, with one range to quantise instead of four.

- HARD_SWISH and GELU (with tanh, or exact if a custom operator ``Erf`` computes erf), with factors in any order
- RELU, RELU6 and RELU_N1_TO_1 from MAXIMUM and MINIMUM with constants
- LEAKY_RELU from ``max(x, a * x)``, PRELU from ``relu(x) + a * (x - |x|) / 2`` or ``relu(x) - a * relu(-x)``
- FULLY_CONNECTED from the sum of two with the same input, BATCH_MATMUL from FULLY_CONNECTED with computed weights
- ``x / sqrt(y)`` becomes ``x * rsqrt(y)``, ``1 / sqrt(y)`` becomes ``rsqrt(y)``, and a quotient by several constants
  becomes a product with their reciprocals
- with ``circle``, RMS_NORM from a product with the inverse root of a mean square, followed by a factor per channel, and
  from a quotient by the root of a sum of squares. INSTANCE_NORM of images is split into simpler operators.

Applies only to floats. Results agree to float32 accuracy. Intermediate values with other users stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.rewrites.layers import SumOfLayers
from odc_mlir.transforms.circle.rewrites.norms import InstanceNormParts, RmsNorm, ScaleOfRmsNorm, UnitNorm
from odc_mlir.transforms.circle.rewrites.operators import ComputedWeights
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    PatternPass,
    activation,
    is_real,
    is_used_once,
    operator,
    pairs,
    plain,
    producer,
    real,
    real_constant,
    real_scalar,
    shape_of,
)

_CUBIC = 0.044715  # coefficient in GELU's approximation
_CLOSE = 1e-4  # relative tolerance, because converters round these constants differently
_OF_CIRCLE = (RmsNorm, UnitNorm, ScaleOfRmsNorm, InstanceNormParts)
_ERF = frozenset({"Erf", "FlexErf"})


@dataclass(frozen=True)
class CircleFusePatternsPass(PatternPass):
    """Replace groups of operators by one operator."""

    name = "circle-fuse-patterns"

    circle: bool = False
    """Rewrite normalisations that exist only in Circle to the form that the NPU runs."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        functions = (Swish, Gelu, Clamp, LeakyRelu, Prelu, Rsqrt, RsqrtProduct, Reciprocals)
        return (*functions, SumOfLayers, ComputedWeights, *_OF_CIRCLE)

    def configured(self) -> Sequence[RewritePattern]:
        return [kind() for kind in self.patterns() if self.circle or kind not in _OF_CIRCLE]


class ScaledProduct(NamedTuple):
    """Product of ``constant`` and all of ``values``."""

    constant: NDArray[Any]
    values: tuple[SSAValue, ...]

    @property
    def number(self) -> float:
        """The constant if it is one number, else NaN."""
        return float(self.constant.reshape(-1)[0]) if self.constant.size == 1 else math.nan


def product_of(value: SSAValue, *, is_root: bool = True) -> ScaledProduct:
    """Return ``value`` as a product, through MUL, NEG and DIV by constants that have no other readers."""
    array = real_constant(value)
    if array is not None:
        return ScaledProduct(array.astype(np.float64), ())
    op = plain(value, "MUL", "DIV", "NEG")
    if op is None or not (is_root or is_used_once(value)):
        return ScaledProduct(np.ones(()), (value,))
    first = product_of(op.operands[0], is_root=False)
    if op.SPEC.name == "NEG":
        return ScaledProduct(-first.constant, first.values)
    second = product_of(op.operands[1], is_root=False)
    if op.SPEC.name == "MUL":
        return ScaledProduct(first.constant * second.constant, first.values + second.values)
    if second.values or not np.all(second.constant):
        return ScaledProduct(np.ones(()), (value,))
    return ScaledProduct(first.constant / second.constant, first.values)


def is_close(found: float | None, wanted: float) -> bool:
    """Return whether a model's constant is close to ``wanted``, and no NaN."""
    return found is not None and math.isclose(found, wanted, rel_tol=_CLOSE)


def _with_scalar(op: CircleOp | None) -> tuple[SSAValue, float] | None:
    """Return the computed operand and the number if either operand is a one-element constant, else None."""
    if op is None or activation(op) != "none":
        return None
    for value, other in pairs(op):
        number = real_scalar(other)
        if number is not None:
            return value, number
    return None


def _sum(value: SSAValue, number: float) -> SSAValue | None:
    """Return x if ``value`` is ``x + number``."""
    found = _with_scalar(producer(value, "ADD"))
    return found[0] if found is not None and is_close(found[1], number) else None


class _RealPattern(OperatorPattern):
    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if is_real(op.results[0]) and activation(op) == "none":
            self.fuse(op, rewriter)

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        raise NotImplementedError

    def replace(
        self, op: CircleOp, rewriter: PatternRewriter, name: str, operands: Sequence[SSAValue], **options: Any
    ) -> None:
        """Replace ``op`` by operator ``name`` if the result keeps its shape."""
        if is_real(operands[0]) and shape_of(operands[0]) == shape_of(op.results[0]) is not None:
            rewriter.replace(op, operator(name, operands, op.results[0], options))


class Swish(_RealPattern):
    """Replace ``x * relu6(x + 3) / 6`` by HARD_SWISH."""

    names = frozenset({"MUL", "DIV"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = product_of(op.results[0])
        if len(found.values) != 2 or not is_close(found.number, 1 / 6):
            return
        for x, gate in (found.values, found.values[::-1]):
            if _gated(gate) is x:
                return self.replace(op, rewriter, "HARD_SWISH", [x])


def _gated(value: SSAValue) -> SSAValue | None:
    """Return x if ``value`` is ``relu6(x + 3)``."""
    inner = producer(value, "RELU6")
    if inner is not None:
        return _sum(inner.operands[0], 3.0)
    fused = producer(value, "ADD")
    if fused is None or activation(fused) != "relu6":
        return None
    for x, other in pairs(fused):
        if is_close(real_scalar(other), 3.0):
            return x
    return None


class Gelu(_RealPattern):
    """Replace the operators of GELU, exact or with TANH, by GELU."""

    names = frozenset({"MUL", "DIV"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = product_of(op.results[0])
        if len(found.values) != 2 or not is_close(found.number, 0.5):
            return
        for x, gate in (found.values, found.values[::-1]):
            inner = _sum(gate, 1.0)
            if inner is None:
                continue
            if _is_tanh_of_cubic(inner, x):
                return self.replace(op, rewriter, "GELU", [x], approximate=True)
            if _is_erf(inner, x):
                return self.replace(op, rewriter, "GELU", [x], approximate=False)


def _is_tanh_of_cubic(value: SSAValue, x: SSAValue) -> bool:
    """Return whether ``value`` is ``tanh(sqrt(2 / pi) * (x + 0.044715 * x³))``."""
    tanh = producer(value, "TANH")
    outer = None if tanh is None else product_of(tanh.operands[0])
    if outer is None or len(outer.values) != 1 or not is_close(outer.number, math.sqrt(2 / math.pi)):
        return False
    total = plain(outer.values[0], "ADD")
    for first, second in pairs(total) if total is not None else ():
        found = product_of(second)
        powers = [_power(factor, x) for factor in found.values]
        if first is x and sum(powers) == 3 and all(powers) and is_close(found.number, _CUBIC):
            return True
    return False


def _power(value: SSAValue, x: SSAValue) -> int:
    """Return n if ``value`` is ``x`` to the power n from 1 to 3, else 0."""
    if value is x:
        return 1
    op = plain(value, "SQUARE", "POW", "MUL")
    if op is None or op.operands[0] is not x:
        return 0
    if op.SPEC.name == "POW":
        exponent = real_scalar(op.operands[1])
        return int(exponent) if exponent in (2.0, 3.0) else 0
    return 2 if op.SPEC.name == "SQUARE" or op.operands[1] is x else 0


def _is_erf(value: SSAValue, x: SSAValue) -> bool:
    """Return whether ``value`` is ``erf(x / sqrt(2))``."""
    op = producer(value, "CUSTOM")
    if op is None or op.option("custom_code") not in _ERF or len(op.operands) != 1:
        return False
    inner = product_of(op.operands[0])
    return inner.values == (x,) and is_close(inner.number, math.sqrt(0.5))


@dataclass(frozen=True)
class Clamp(_RealPattern):
    """Merge MAXIMUM and MINIMUM with constants, and RELU, into a clamp. ``names``: possible last operators."""

    names: frozenset[str] = frozenset({"MAXIMUM", "MINIMUM", "RELU"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        outer = _limits(op)
        if outer is None:
            return
        x, low, high = outer
        inner = producer(x, "MAXIMUM", "MINIMUM", "RELU")
        under = None if inner is None or not is_used_once(x) else _limits(inner)
        if under is not None and under[1] <= high and low <= under[2]:
            x, low, high = under[0], max(low, under[1]), min(high, under[2])
        name = _CLAMPS.get((low, high))
        if name is not None and name != op.SPEC.name:
            self.replace(op, rewriter, name, [x])


_CLAMPS = {(0.0, math.inf): "RELU", (0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1"}


def _limits(op: CircleOp) -> tuple[SSAValue, float, float] | None:
    if op.SPEC.name == "RELU":
        return op.operands[0], 0.0, math.inf
    found = _with_scalar(op)
    if found is None:
        return None
    x, number = found
    return (x, number, math.inf) if op.SPEC.name == "MAXIMUM" else (x, -math.inf, number)


class LeakyRelu(_RealPattern):
    """Replace MAXIMUM of a value and its product with a constant by LEAKY_RELU."""

    names = frozenset({"MAXIMUM"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for x, other in pairs(op):
            slope = product_of(other)
            if slope.values == (x,) and 0 < slope.number < 1:
                return self.replace(op, rewriter, "LEAKY_RELU", [x], alpha=slope.number)


class Prelu(_RealPattern):
    """Replace ``relu(x) + slopes * negative_part(x)`` by PRELU."""

    names = frozenset({"ADD", "SUB"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        sign = -1.0 if op.SPEC.name == "SUB" else 1.0
        left, right = op.operands
        for positive, negative in ((left, right), (right, left))[: 2 if sign > 0 else 1]:
            gate = producer(positive, "RELU")
            part = product_of(negative)
            if gate is None or len(part.values) != 1:
                continue
            x = gate.operands[0]
            factor = _negative_part(part.values[0], x)
            rank = len(shape_of(x) or ())
            if factor is None or part.constant.ndim > rank:
                continue
            slope = np.asarray(sign * factor * part.constant)
            extents = slope.shape or (1,)
            slope = slope.reshape((1,) * (rank - 1 - len(extents)) + extents)
            sample = (shape_of(x) or ())[1:]  # slopes do not depend on the sample
            fits = all(a in (1, b) for a, b in zip(slope.shape[::-1], sample[::-1], strict=False))
            if is_real(x) and shape_of(x) == shape_of(op.results[0]) and fits and slope.ndim <= len(sample):
                alpha = real(slope, f"{value_name(op.results[0])}/alpha")
                rewriter.replace(op, [alpha, operator("PRELU", [x, alpha.result], op.results[0])])
            return


def _negative_part(value: SSAValue, x: SSAValue) -> float | None:
    """Return f if ``value`` is ``f * min(x, 0)``, else None."""
    difference = producer(value, "SUB")
    if difference is not None and difference.operands[0] is x and activation(difference) == "none":
        size = producer(difference.operands[1], "ABS")
        return 2.0 if size is not None and size.operands[0] is x else None
    gate = producer(value, "RELU")
    negated = None if gate is None else product_of(gate.operands[0])
    return -1.0 if negated is not None and negated.values == (x,) and negated.number == -1 else None


class Rsqrt(_RealPattern):
    """Replace 1 divided by SQRT by RSQRT."""

    names = frozenset({"DIV"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if (root := _divisor_root(op)) is not None and real_scalar(op.operands[0]) == 1.0:
            self.replace(op, rewriter, "RSQRT", root.operands)


class RsqrtProduct(_RealPattern):
    """Replace ``x / sqrt(y)`` by ``x * rsqrt(y)`` if ``x`` is not 1."""

    names = frozenset({"DIV"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        if (root := _divisor_root(op)) is not None and real_scalar(op.operands[0]) != 1.0:
            inverse = operator("RSQRT", root.operands, root.results[0])
            product = operator("MUL", [op.operands[0], inverse.results[0]], op.results[0])
            rewriter.replace(op, [inverse, product])


class Reciprocals(_RealPattern):
    """Replace DIV by several constants by MUL. The NPU has a table only for a quotient by one constant."""

    names = frozenset({"DIV"})

    def fuse(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        divisors = real_constant(op.operands[1])
        if divisors is not None and divisors.size > 1 and np.abs(divisors).min() > 1 / np.finfo(np.float32).max:
            factors = real(1 / divisors.astype(np.float64), f"{value_name(op.results[0])}/reciprocals")
            rewriter.replace(op, [factors, operator("MUL", [op.operands[0], factors.result], op.results[0])])


def _divisor_root(division: CircleOp) -> CircleOp | None:
    root = producer(division.operands[1], "SQRT")
    return root if root is not None and is_used_once(root.results[0]) else None
