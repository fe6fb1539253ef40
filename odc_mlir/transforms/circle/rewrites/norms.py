"""Normalisations written as several operators."""

from __future__ import annotations

import math

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.functions import common
from odc_mlir.transforms.common import rewriting

_ROOTS = frozenset({"RSQRT", "SQRT", "POW"})


def _vector(array: rewriting.Reals | None, channels: int, neutral: float) -> rewriting.Reals | None:
    """One number for each channel of the last dimension; ``neutral`` where there is no constant."""
    if array is None:
        return np.full(channels, neutral, np.float32)
    if array.size == 1:
        return np.full(channels, array.reshape(-1)[0], np.float32)
    return array.reshape(-1) if array.ndim and array.shape[-1] == channels == array.size else None


def _put(rewriter: PatternRewriter, found: common.Normalisation, end: CircleOp, made: list[CircleOp | ConstOp]) -> None:
    """Put the last of ``made`` in the place of ``end``, and drop what computed its result."""
    members = found.function().operators
    rewriter.replace(end, made, [made[-1].results[0]])
    rewriting.erase_unused((item for item in members if item is not end), rewriter)


def _real_norm(op: CircleOp) -> tuple[common.Normalisation, tuple[int | None, ...]] | None:
    """Return the float normalisation with the root ``op``, and the shape of its operand."""
    found = common.normalisation(op)
    shape = None if found is None else rewriting.shape_of(found.x)
    if found is None or not shape or not rewriting.is_real(found.x) or shape != rewriting.shape_of(found.result):
        return None
    return found, shape


class RmsNorm(rewriting.OperatorPattern):
    """``x * rsqrt(mean(x²) + epsilon) * gamma`` along the last dimension is RMS_NORM."""

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        known = _real_norm(op)
        if known is None or known[0].is_centred or len(known[1]) not in (3, 4):
            return
        found, shape = known
        channels = shape[-1]
        gamma = None if channels is None else _vector(found.gamma, channels, 1.0)
        if found.axes != {len(shape) - 1} or gamma is None:
            return
        result, options = found.result, {"epsilon": found.epsilon}
        end = rewriting.producer(result, "MUL", "DIV", "ADD")
        if end is None or rewriting.activation(end) != "none" or found.beta is not None:
            return
        scale = rewriting.real(gamma, f"{value_name(result)}/gamma")
        made = rewriting.operator("RMS_NORM", [found.x, scale.result], result, options)
        _put(rewriter, found, end, [scale, made])


class InstanceNorm(rewriting.OperatorPattern):
    """A normalisation over the pixels of ``[N, H, W, C]``, with one gamma and beta for each channel."""

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        known = _real_norm(op)
        if known is None or not known[0].is_centred or len(known[1]) != 4 or known[0].axes != {1, 2}:
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
        options = {"epsilon": found.epsilon, "fused_activation_function": rewriting.activation(end)}
        made = rewriting.operator("INSTANCE_NORM", [found.x, scale.result, shift.result], found.result, options)
        _put(rewriter, found, end, [scale, shift, made])


class GroupsAsDimension(rewriting.OperatorPattern):
    """Groups of channels, normalised as rows ``[N * groups, …]`` of images ``[N, C, H, W]``, get a dimension.

    ``[N, groups, C / groups, H * W]`` can be stored channels last, rows cannot: images need no TRANSPOSE then.
    """

    names = _ROOTS

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = common.normalisation(op)
        view = None if found is None else rewriting.producer(found.x, "RESHAPE")
        back = None if found is None or found.normal is None else common.only_reader(found.normal, "RESHAPE")
        if found is None or view is None or back is None or found.kind not in (common.GROUP, common.INSTANCE):
            return
        rows, image = rewriting.static_shape_of(found.x), rewriting.static_shape_of(view.operands[0])
        if rows is None or image is None or len(image) != 4 or len(rows) == 4 or 0 in image:
            return
        groups = math.prod(rows[: len(rows) - len(found.axes)]) // image[0]
        steps = _Steps(found, (image[0], groups, image[1] // groups, image[2] * image[3]))
        if not groups or image[1] % groups or not steps.are_known:
            return
        made = steps.rebuild(view.operands[0])
        shown = rewriting.copy_of(back, [made[-1].results[0], *list(back.operands)[1:]], back.results[0])
        rewriter.replace(back, [*made, shown], [shown.results[0]])
        rewriting.erase_unused([*steps.members, view], rewriter)


class _Steps:
    """The operators that make rows of ``found`` normal, made anew on images of ``shape``."""

    def __init__(self, found: common.Normalisation, shape: tuple[int, int, int, int]) -> None:
        self.found, self.shape = found, shape
        assert found.normal is not None
        self.members = frozenset(common.between(found.normal, [found.x]))
        self.rows = rewriting.shape_of(found.x)

    @property
    def are_known(self) -> bool:
        """Whether every operator is one that works on any shape, on rows or on one number for each."""
        for op in self.members:
            if op.SPEC.name not in _OF_EACH and (op.SPEC.name != "MEAN" or common.axes_of(op) != self.found.axes):
                return False
            loose = [value for value in op.operands if value is not self.found.x and value.owner not in self.members]
            if op.SPEC.name != "MEAN" and any(rewriting.real_scalar(value) is None for value in loose):
                return False
        return True

    def rebuild(self, image: SSAValue) -> list[CircleOp | ConstOp]:
        """The operators in order, the last of them gives the normalised images."""
        assert self.found.normal is not None
        name = value_name(self.found.result)
        wanted = rewriting.make_constant(np.array(self.shape, np.int32), "int32", f"{name}/groups")
        view = rewriting.part(
            "RESHAPE", [image, wanted.result], self.found.x, "groups", self.shape, new_shape=list(self.shape)
        )
        axes = [rewriting.make_constant(np.array([axis], np.int32), "int32", f"{name}/axis{axis}") for axis in (3, 2)]
        made: list[CircleOp | ConstOp] = [wanted, *axes, view]
        values: dict[SSAValue, SSAValue] = {self.found.x: view.results[0]}

        def step(op: CircleOp) -> None:
            for value in op.operands:
                if value not in values and value.owner in self.members:
                    assert isinstance(value.owner, CircleOp)
                    step(value.owner)
            operands = [values.get(value, value) for value in op.operands]
            result = op.results[0]
            if op.SPEC.name == "MEAN":
                for axis in axes:
                    kept = (*self.shape[:2], 1 if axis is axes[1] else self.shape[2], 1)
                    mean = rewriting.part("MEAN", [operands[0], axis.result], result, "mean", kept, keep_dims=True)
                    made.append(mean)
                    operands[0] = mean.results[0]
                values[result] = operands[0]
                return
            shape = self.shape if rewriting.shape_of(result) == self.rows else (*self.shape[:2], 1, 1)
            options = {key: op.option(key) for key in op.OPTIONS}
            made.append(rewriting.part(op.SPEC.name, operands, result, "groups", shape, **options))
            values[result] = made[-1].results[0]

        assert isinstance(self.found.normal.owner, CircleOp)
        step(self.found.normal.owner)
        return made


_OF_EACH = frozenset({"SUB", "MUL", "ADD", "DIV", "RSQRT", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "POW"})


class Rotary(rewriting.OperatorPattern):
    """``x * cosine + concat(-x_high, x_low) * sine`` with constant tables is ROPE."""

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = common.rotation(op)
        shape = None if found is None else rewriting.shape_of(found.x)
        if found is None or shape is None or len(shape) != 4 or not rewriting.is_real(found.x):
            return
        tables = [rewriting.real_constant(found.sine), rewriting.real_constant(found.cosine)]
        if any(table is None or table.ndim > 4 or table.shape[-1:] != shape[-1:] for table in tables):
            return
        name = value_name(found.result)
        made = [
            rewriting.real(table.reshape((1,) * (4 - table.ndim) + table.shape), f"{name}/{role}")
            for table, role in zip(tables, ("sine", "cosine"), strict=True)
            if table is not None
        ]
        turned = rewriting.operator(
            "ROPE", [found.x, *(item.result for item in made)], found.result, {"mode": "gpt_neox"}
        )
        members = found.function().operators
        rewriter.replace(op, [*made, turned], [turned.results[0]])
        rewriting.erase_unused((item for item in members if item is not op), rewriter)


class ScaleOfRmsNorm(rewriting.OperatorPattern):
    """A product with one number for each channel behind RMS_NORM goes into its gamma."""

    names = frozenset({"MUL"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for value, other in common.pairs(op):
            norm, factor = rewriting.producer(value, "RMS_NORM"), rewriting.real_constant(other)
            gamma = None if norm is None else rewriting.real_constant(norm.operands[1])
            if (
                norm is None
                or gamma is None
                or factor is None
                or not rewriting.is_used_once(value)
                or rewriting.activation(op) != "none"
            ):
                continue
            if gamma.shape != factor.reshape(-1).shape or factor.shape[-1] != factor.size:
                continue
            scale = rewriting.real(gamma * factor.reshape(-1), f"{value_name(op.results[0])}/gamma")
            made = rewriting.copy_of(norm, [norm.operands[0], scale.result], op.results[0])
            rewriter.replace(op, [scale, made], [made.results[0]])
            return
