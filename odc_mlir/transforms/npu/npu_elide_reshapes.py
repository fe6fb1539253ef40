"""``npu-elide-reshapes``: merge consecutive views, and remove views without effect.

Before::

    %1 = npu.reshape %0 : tensor<1x1x1x64x…> -> tensor<1x64x…>
    %2 = npu.reshape %1 : tensor<1x64x…> -> tensor<1x1x1x64x…>

After: users of ``%2`` read ``%0``. ``%1`` stays only if it has other users. Reshapes are not merged across unary
element-wise operations (``npu.lut``, ``npu.scale``), because these cost the same in any shape.

Moves may repeat matrices for several matrix products, for example keys that query heads share. The products then read
the source of the moves, or a tensor with a single copy of every matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu import ReshapeOp
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu.lowering.decompositions import MOST_COPIES, indices, strided_copies
from odc_mlir.transforms.npu.lowering.site import tensor_of


class MergeReshapes(RewritePattern):
    """Make a reshape of a reshape read the source of the first reshape."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if isinstance(op.input, OpResult) and isinstance(op.input.op, ReshapeOp):
            op.operands[0] = op.input.op.input
            rewriter.notify_op_modified(op)


class DropReshape(RewritePattern):
    """Replace a reshape to the type of its source by the source."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        if op.input.type == op.output.type:
            rewriter.replace(op, [], [op.input])


class ShareMatrices(RewritePattern):
    """Make a matrix product read each matrix once if moves repeat it in a row.

    All other effects of the moves stay. Left matrices that share a right matrix become the rows of one left matrix.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: npu.MatmulOp, rewriter: PatternRewriter) -> None:
        (images, _, rows, columns), depth = npu.shape_of(op.output), npu.shape_of(op.a)[3]
        for index in (0, 1):
            value, other = op.operands[index], op.operands[1 - index]
            batches = {npu.shape_of(item)[0] for item in (value, other)}
            if batches != {images} or (found := _distinct(value, images)) is None:
                continue
            source, order = found
            groups = images * order.size // math.prod(npu.shape_of(value))
            kind = with_shape(tensor_of(value), (groups, *npu.shape_of(value)[1:]))
            if order.size == math.prod(npu.shape_of(source)) and (np.diff(order) == 1).all():
                view: ReshapeOp | npu.MoveOp = ReshapeOp(source, kind)
            elif (copies := strided_copies(order, [math.prod(npu.shape_of(source))], MOST_COPIES)) is not None:
                view = npu.MoveOp([source], kind, copies=copies)
            else:
                continue
            view.location = op.location
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


def _distinct(value: SSAValue, images: int) -> tuple[SSAValue, NDArray[np.int64]] | None:
    """Return the source tensor of the distinct matrices in ``value``, and the source index of each element.

    Return None unless moves repeat all matrices equally often in a row. ``images``: number of repeated matrices.
    """
    order = np.arange(math.prod(npu.shape_of(value)))
    while isinstance(value, OpResult) and isinstance(value.op, ReshapeOp | npu.MoveOp):
        if isinstance(value.op, npu.MoveOp):
            if len(value.op.inputs) != 1 or value.op.fill is not None:
                return None
            sources, targets = zip(*map(indices, value.op.strided_copies()), strict=True)
            order = np.concatenate(sources)[np.argsort(np.concatenate(targets))][order]
            matrices = order.reshape(images, -1)
            firsts = np.flatnonzero(np.append(True, (matrices[1:] != matrices[:-1]).any(1)))
            times = images // len(firsts)
            if times > 1 and np.array_equal(firsts, np.arange(0, images, times)):
                return value.op.inputs[0], matrices[firsts].reshape(-1)
        value = value.op.operands[0]
    return None


class NpuElideReshapesPass(PatternPass):
    """Shorten chains of views."""

    name = "npu-elide-reshapes"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (MergeReshapes, DropReshape, ShareMatrices)
