"""``npu-elide-reshapes``: merge views of views, and remove views without effect.

Before::

    %1 = npu.reshape %0 : tensor<1x1x1x64x…> -> tensor<1x64x…>
    %2 = npu.reshape %1 : tensor<1x64x…> -> tensor<1x1x1x64x…>

After: users of ``%2`` read ``%0``; ``%1`` stays only if it has other users. Unary element-wise operations (``npu.lut``,
``npu.scale``) are independent of shape and not part of a chain here: they cost the same in any shape.

Matrices that a move repeats for several products, such as keys that query heads share, are read where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu import ReshapeOp
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu.lowering.decompositions import indices
from odc_mlir.transforms.npu.lowering.site import tensor_of


class MergeReshapes(RewritePattern):
    """A reshape of a reshape reads the source of the first."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if isinstance(op.input, OpResult) and isinstance(op.input.op, ReshapeOp):
            op.operands[0] = op.input.op.input
            rewriter.notify_op_modified(op)


class DropReshape(RewritePattern):
    """A reshape to the type of its source is the source."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if op.input.type == op.output.type:
            rewriter.replace(op, [], [op.input])


class ShareMatrices(RewritePattern):
    """A product with matrices that a move repeats, one after the other, takes each once.

    Left matrices of one right matrix become its rows.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MatmulOp, rewriter: PatternRewriter) -> None:
        (images, _, rows, columns), depth = npu.shape_of(op.output), npu.shape_of(op.a)[3]
        for index in (0, 1):
            value, other = op.operands[index], op.operands[1 - index]
            move = value.owner.input.owner if isinstance(value.owner, ReshapeOp) else value.owner
            if not isinstance(move, npu.MoveOp) or npu.shape_of(other)[0] != images:
                continue
            size, total = (math.prod(npu.shape_of(each)) for each in (move.inputs[0], value))
            if total // images > size or not _repeats(move, size, total // images, total // size):
                continue
            groups = images * size // total
            view = _reshaped(op, move.inputs[0], (groups, *npu.shape_of(value)[1:]))
            if index == 0:
                rewriter.insert(view)
                op.operands[0] = view.output
                rewriter.notify_op_modified(op)
                return
            together = images // groups * rows
            left = _reshaped(op, op.a, (groups, 1, together, depth))
            kind = with_shape(tensor_of(op.output), (groups, 1, together, columns))
            made = npu.MatmulOp.create(
                operands=[left.output, view.output], properties=op.properties, result_types=[kind], location=op.location
            )
            rewriter.replace(op, [view, left, made, _reshaped(op, made.output, npu.shape_of(op.output))])
            return


def _reshaped(op: npu.MatmulOp, value: SSAValue, shape: Sequence[int]) -> ReshapeOp:
    view = ReshapeOp(value, with_shape(tensor_of(value), tuple(shape)))
    view.location = op.location
    return view


def _repeats(move: npu.MoveOp, size: int, each: int, times: int) -> bool:
    """Return whether ``move`` repeats runs of ``each`` of ``size`` elements so many times in a row."""
    copies = list(move.strided_copies())
    if len(move.inputs) != 1 or move.fill is not None or len(copies) != 1 or times < 2 or size % each:
        return False
    source, target = indices(copies[0])
    wanted = np.repeat(np.arange(size).reshape(-1, each), times, axis=0).reshape(-1)
    return np.array_equal(target, np.arange(len(wanted))) and np.array_equal(source, wanted)


class NpuElideReshapesPass(PatternPass):
    """Shorten chains of views; see the module's text."""

    name = "npu-elide-reshapes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MergeReshapes, DropReshape, ShareMatrices)
