"""``circle-fold-constants``: evaluate operators on constant operands with the host's kernels.

Before::

    %0 = circle.shape(%x) {out_type = int32} : (tensor<1x8x8x4xf32>) -> tensor<4xi32>
    %1 = circle.strided_slice(%0, %begin, %end, %strides) {shrink_axis_mask = 1} : … -> tensor<i32>

After: ``%1`` is ``circle.const [1] : tensor<i32>``, and values computed from folded constants are folded as well.

Not folded: operators with side effects, outputs, results over the size limit, element types smaller than a byte, and
anything that the kernel rejects. Results of more than 4096 bytes (1 MiB with ``decode``, because the quantiser makes
them smaller) are also not folded if they are more than four times as large as the operands. A DEQUANTIZE of more than
4096 bytes is folded only if ``decode`` is set, because the quantised constant is smaller. Operators with ``odc.known``
(a result for the fixed shapes only) and the users of these operators are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, has_unresolved_operand, is_known, node_of
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import OdcError
from odc_mlir.ops import all_specs
from odc_mlir.ops.spec import Array, Node, ResultType, TensorInfo, Trait
from odc_mlir.runtime.kernels.conditions import evaluate, operand_arrays
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.common.rewriting import OperatorPattern, PatternPass, apply_patterns_to, is_returned
from odc_mlir.transforms.quant.common.given import read_given

GROWTH = 4  # largest size of a folded constant, relative to the constants that it replaces
ALWAYS_BYTES, ALWAYS_DECODED_BYTES = 4096, 1 << 20  # size up to which results are folded regardless of operand sizes
LIMIT_BYTES = 16 << 20


@dataclass(frozen=True)
class CircleFoldConstantsPass(PatternPass):
    """Replace operators on constants by constants."""

    name = "circle-fold-constants"

    limit_bytes: int = LIMIT_BYTES
    """Size limit of folded results in bytes. Larger results are cheaper to compute than to store."""

    decode: bool = False
    """Decode quantised and half-precision constants up to the size limit. Default: only in models with given types."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (FoldConstants,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns_to(
            [FoldConstants(limit_bytes=self.limit_bytes, decode=self.decode or bool(read_given(op)))],
            [item for item in op.walk() if isinstance(item, CircleOp)],
        )


@dataclass(frozen=True)
class FoldConstants(OperatorPattern):
    """Replace an operator on constants by the constants that its kernel computes."""

    names: frozenset[str] = field(default_factory=lambda: frozenset(all_specs()))
    limit_bytes: int = LIMIT_BYTES
    decode: bool = False

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        results = self.results_of(op)
        if results is not None:
            rewriter.replace(op, (made := constants_like(op, results)), [c.result for c in made])

    def results_of(self, op: CircleOp) -> Sequence[Array] | None:
        """Return the results if they can be computed now and are worth storing, else None."""
        if not is_candidate(op) or any(map(is_returned, op.results)):
            return None
        if is_known(op) or any(is_known(operand.owner) for operand in op.operands):  # valid only for fixed shapes
            return None
        node = node_of(op)
        arrays = operand_arrays(node)
        return None if arrays is None or not self.is_worth_it(node, arrays) else evaluate(node, arrays)

    def is_worth_it(self, node: Node, arrays: Sequence[Array | None]) -> bool:
        """Return whether the results are small enough, in bytes and relative to the operands."""
        try:
            inferred = node.spec.infer_function(node)
        except OdcError:
            return False
        total = sum(map(_nbytes, inferred))
        operands = sum(array.nbytes for array in arrays if array is not None)
        if node.spec.name == "DEQUANTIZE":
            return total <= (self.limit_bytes if self.decode else min(self.limit_bytes, ALWAYS_BYTES))
        always = ALWAYS_DECODED_BYTES if self.decode else ALWAYS_BYTES
        return total <= min(self.limit_bytes, max(always, GROWTH * operands))


def is_candidate(op: CircleOp) -> bool:
    """Return whether the operator has no effect and has a kernel."""
    if Trait.PURE not in op.SPEC.traits or not op.SPEC.kernel or not op.SPEC.infer or has_unresolved_operand(op):
        return False
    if op.unverified is not None:
        return False
    return all(isinstance(result.type, TensorType | UnrankedTensorType) for result in op.results)


def _nbytes(result: ResultType) -> float:
    info = TensorInfo("", result.dtype, result.shape).info
    if result.shape is None or None in result.shape or info.bits != 8 * info.numpy.itemsize:
        return math.inf
    return math.prod(d or 0 for d in result.shape) * info.numpy.itemsize


def constants_like(op: CircleOp, arrays: Sequence[Array]) -> list[ConstOp]:
    """Return constants that replace the results of ``op``, with the names of the results."""
    constants = []
    for result, array in zip(op.results, arrays, strict=True):
        assert isinstance(result.type, TensorType | UnrankedTensorType)
        constant = ConstOp(BlobAttr.of(np.ascontiguousarray(array).tobytes()), with_shape(result.type, array.shape))
        constant.location = name_loc(value_name(result))
        constants.append(constant)
    return constants
