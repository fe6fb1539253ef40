"""``circle-clip-masks``: mask constants before SOFTMAX become as large as necessary, not as large as floats go.

Before::

    %m = circle.const [0.0, -3.4028235e38, 0.0, 0.0] : tensor<2x2xf32>
    %0 = circle.add(%scores, %m) : (tensor<1x2x2xf32>, tensor<2x2xf32>) -> tensor<1x2x2xf32>
    %1 = circle.softmax(%0) {beta = 1.0} : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>

After: ``%m = circle.const [0.0, -2048.0, 0.0, 0.0]``, so that the quantised range has resolution left for the scores.

Entries of the constant below -2048 are raised to that (divided by beta, if below 1). Results are bit-exact as long as
no score exceeds the largest of its row by 1900 (divided likewise): the exponential of less than -104 is zero in
float32. The same applies to the value that SELECT and SELECT_V2 substitute for scores, and to that of a SELECT between
constants, as of a mask of truths, whose result is only added to scores; a row that is hidden altogether then keeps the
shares of its scores.

Unchanged: additions and selections with users other than SOFTMAX, masks that hide a whole row (its probabilities would
change), and masks that are not constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    OperatorPattern,
    activation,
    apply_patterns,
    is_real,
    is_returned,
    real,
    real_constant,
)

HIDDEN = -2048.0  # of the argument of the exponential
_SELECTIONS = frozenset({"SELECT", "SELECT_V2"})


@dataclass(frozen=True)
class CircleClipMasksPass(ModulePass):
    """Make large negative masks before SOFTMAX smaller; see the module's text."""

    name = "circle-clip-masks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, [ClipMask()])


class Mask(NamedTuple):
    """Operand ``place`` of ``op`` hides entries of ``scores`` where its ``numbers`` are below ``limit``."""

    op: CircleOp
    place: int
    scores: SSAValue
    numbers: NDArray[Any]
    limit: float
    least_shown: float
    """The smallest number that is added to what is not hidden."""


class ClipMask(OperatorPattern):
    """The constant that hides entries of a SOFTMAX's operand is not below the limit."""

    names = frozenset({"SOFTMAX"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        mask = mask_of(op)
        if mask is None or not np.any(mask.numbers < mask.limit):
            return
        name = value_name(mask.op.operands[mask.place])
        clipped = real(np.maximum(mask.numbers, np.float32(mask.limit)), f"{name}/clipped")
        rewriter.insert(clipped, InsertPoint.before(mask.op))
        mask.op.operands[mask.place] = clipped.result
        rewriter.notify_op_modified(mask.op)


def mask_of(softmax: CircleOp) -> Mask | None:
    """What hides entries from a SOFTMAX of real values by a number at or below the limit; None where nothing does."""
    value, beta = softmax.operands[0], float(softmax.option("beta"))
    source = value.owner
    if not isinstance(source, CircleOp) or source.unverified is not None or not is_real(value) or beta <= 0:
        return None
    if is_returned(value) or not all(_is_softmax(use.operation, beta) for use in value.uses):
        return None
    limit = HIDDEN / min(beta, 1.0)
    for place, scores in _parts(source):
        numbers = real_constant(source.operands[place])
        if numbers is None:
            if (found := _selected(source, place, scores, limit, beta)) is not None:
                return found
            continue
        if not numbers.size or not np.any(numbers <= limit):
            continue
        if source.SPEC.name != "ADD":
            return Mask(source, place, scores, numbers, limit, 0.0)
        if np.any(np.atleast_1d(numbers).max(axis=-1) <= limit / 2):
            return None  # whole rows
        return Mask(source, place, scores, numbers, limit, float(numbers[numbers > limit].min(initial=0.0)))
    return None


def _selected(total: CircleOp, place: int, scores: SSAValue, limit: float, beta: float) -> Mask | None:
    """The mask that a SELECT between constants makes, if it is added to scores of such SOFTMAXes and nothing else."""
    value = total.operands[place]
    source = value.owner
    if total.SPEC.name != "ADD" or not isinstance(source, CircleOp) or source.SPEC.name not in _SELECTIONS:
        return None
    if (
        source.unverified is not None
        or is_returned(value)
        or not all(_is_sum(use.operation, beta) for use in value.uses)
    ):
        return None
    for hidden, shown in ((1, 2), (2, 1)):
        numbers, others = real_constant(source.operands[hidden]), real_constant(source.operands[shown])
        if numbers is None or others is None or not numbers.size or numbers.max() > limit:
            continue
        if others.size and others.min() > limit:
            return Mask(source, hidden, scores, numbers, limit, float(others.min(initial=0.0)))
    return None


def _is_sum(op: Any, beta: float) -> bool:
    """Whether ``op`` adds to what only SOFTMAXes read."""
    if not isinstance(op, CircleOp) or op.SPEC.name != "ADD" or activation(op) != "none":
        return False
    (result,) = op.results
    return not is_returned(result) and all(_is_softmax(use.operation, beta) for use in result.uses)


def _is_softmax(op: Any, beta: float) -> bool:
    return isinstance(op, CircleOp) and op.SPEC.name == "SOFTMAX" and op.option("beta") == beta


def _parts(op: CircleOp) -> Iterator[tuple[int, SSAValue]]:
    """Operands that may be a mask, by number, each with the scores beside it."""
    if op.SPEC.name == "ADD" and activation(op) == "none":
        yield from ((0, op.operands[1]), (1, op.operands[0]))
    elif op.SPEC.name in _SELECTIONS:
        yield from ((1, op.operands[2]), (2, op.operands[1]))
