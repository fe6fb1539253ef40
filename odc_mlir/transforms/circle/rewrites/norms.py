"""Normalisations written as several operators."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    Reals,
    activation,
    constant,
    copy_of,
    is_real,
    is_used_once,
    operator,
    producer,
    real,
    real_constant,
    real_scalar,
    shape_of,
)


class RmsNorm(OperatorPattern):
    """``x * rsqrt(mean(x²) + epsilon) * gamma`` along the last dimension is RMS_NORM."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = _by_vector(op)
        if found is None or activation(op) != "none":
            return
        product, gamma = producer(found[0], "MUL"), found[1]
        if product is None or activation(product) != "none" or not is_used_once(found[0]):
            return
        for x, root in (product.operands, tuple(product.operands)[::-1]):
            epsilon = _inverse_root_mean_square(root, x)
            if epsilon is not None and is_real(x) and shape_of(x) == shape_of(op.results[0]):
                scale = real(gamma, f"{value_name(op.results[0])}/gamma")
                made = operator("RMS_NORM", [x, scale.result], op.results[0], {"epsilon": epsilon})
                rewriter.replace(op, [scale, made], [made.results[0]])
                return


class ScaleOfRmsNorm(OperatorPattern):
    """A product with one number for each channel behind RMS_NORM goes into its gamma."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = _by_vector(op)
        norm = None if found is None else producer(found[0], "RMS_NORM")
        gamma = None if norm is None else real_constant(norm.operands[1])
        if found is None or norm is None or gamma is None or not is_used_once(found[0]) or activation(op) != "none":
            return
        if gamma.shape != found[1].shape:
            return
        scale = real(gamma * found[1], f"{value_name(op.results[0])}/gamma")
        made = copy_of(norm, [norm.operands[0], scale.result], op.results[0])
        rewriter.replace(op, [scale, made], [made.results[0]])


def _by_vector(op: CircleOp) -> tuple[SSAValue, Reals] | None:
    """The operand that a constant with one number for each entry of the last dimension multiplies, and that."""
    for value, other in (op.operands, tuple(op.operands)[::-1]):
        array, shape = real_constant(other), shape_of(value)
        if array is not None and shape and array.shape[-1:] == shape[-1:] and array.size == array.shape[-1]:
            return value, array.reshape(-1)
    return None


def _inverse_root_mean_square(value: SSAValue, x: SSAValue) -> float | None:
    """epsilon where ``value`` is ``rsqrt(mean(x²) + epsilon)`` along the last dimension."""
    root = producer(value, "RSQRT")
    total = None if root is None else producer(root.operands[0], "ADD")
    if root is None or total is None or activation(total) != "none":
        return None
    for mean_value, other in (total.operands, tuple(total.operands)[::-1]):
        mean, epsilon = producer(mean_value, "MEAN"), real_scalar(other)
        if mean is None or epsilon is None or not mean.option("keep_dims") or not _is_square(mean.operands[0], x):
            continue
        axes, shape = constant(mean.operands[1]), shape_of(x)
        if shape and axes is not None and axes.size == 1 and int(axes.reshape(-1)[0]) % len(shape) == len(shape) - 1:
            return epsilon
    return None


def _is_square(value: SSAValue, x: SSAValue) -> bool:
    op = producer(value, "MUL", "SQUARE", "POW")
    if op is None or activation(op) != "none" or op.operands[0] is not x:
        return False
    if op.SPEC.name == "POW":
        return real_scalar(op.operands[1]) == 2.0
    return op.SPEC.name == "SQUARE" or op.operands[1] is x
