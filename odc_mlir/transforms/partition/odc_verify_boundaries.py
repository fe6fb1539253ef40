"""``odc-verify-boundaries``: check that tensors have the same meaning on both sides of a segment boundary.

Host kernels and the NPU exchange raw integers. If a pass changed a tensor type only on one side of a boundary, results
would be wrong, and no error would tell. This pass therefore compares the types on both sides (element type, scale, zero
point and shape): operands and results of the segment, and arguments and results of the circle body. If the two sides
differ and the value can be converted, a host operator converts it.

Before (the segment's body has another scale than the host)::

    %1 = odc.segment @segment_0(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> … circle {
    ^bb0(%a: tensor<4x!quant.uniform<i8:f32, 0.25:3>>):

After::

    %c = circle.quantize(%0) … -> tensor<4x!quant.uniform<i8:f32, 0.25:3>>
    %1 = odc.segment @segment_0(%c) : (tensor<4x!quant.uniform<i8:f32, 0.25:3>>) -> …

Rejects types that no operator converts, unknown shapes, and tensors without a single usable scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of, op_class
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.targets import NUMBER_TYPES
from odc_mlir.transforms.common.placement import main_function, place_on_host
from odc_mlir.transforms.partition.rules.checks import CODES, quant_text, shape_text

CAST_REASON = "boundary: converts between a segment and the host"


class OdcVerifyBoundariesPass(ModulePass):
    """Verify boundaries of segments."""

    name = "odc-verify-boundaries"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for segment in [item for item in main_function(op).body.block.ops if isinstance(item, SegmentOp)]:
            for index, argument in enumerate(segment.circle_block.args):
                value = segment.operands[index]
                _check(segment, argument)
                if value.type != argument.type:
                    made = _cast(value, argument.type, segment)
                    Rewriter.insert_op(made, InsertPoint.before(segment))
                    segment.operands[index] = made.results[0]
            for result, inside in zip(tuple(segment.results), _yielded(segment), strict=True):
                _check(segment, inside)
                if result.type != inside.type:
                    _cast_behind(segment, result, inside.type)


def _yielded(segment: SegmentOp) -> Sequence[SSAValue]:
    last = segment.circle_block.last_op
    if not isinstance(last, YieldOp):
        raise CompileError("the circle body has no results", location=segment.sym_name.data)
    return tuple(last.operands)


def _check(segment: SegmentOp, value: SSAValue) -> None:
    """Check that a tensor can cross the boundary: codes with a known shape and one scale, or plain numbers."""
    info = info_of(value)
    seen = None
    number = info.dtype in (*CODE_TYPES, *NUMBER_TYPES) and info.quant is None
    if info.dtype not in CODE_TYPES and not number:
        seen = f"is {info.dtype}, which does not cross the edge of a segment"
    elif info.shape is None or any(dim is None for dim in info.shape):
        seen = f"has {shape_text(info)}, the edge of a segment needs a known one"
    elif not number and (info.quant is None or not info.quant.per_tensor):
        seen = f"has {quant_text(info.quant)}, the edge of a segment needs one scale"
    if seen is not None:
        raise CompileError(f"a tensor {seen}", tensor=value_name(value), location=segment.sym_name.data)


def _cast(value: SSAValue, wanted: Attribute, segment: SegmentOp) -> CircleOp:
    """Create the host operator that converts ``value`` to ``wanted``. Raises CompileError if there is none."""
    where = {"tensor": value_name(value), "location": segment.sym_name.data}
    made = op_class("QUANTIZE").make(
        [value], [wanted], location=name_loc(f"{value_name(value)}_{segment.sym_name.data}")
    )
    source, target = info_of(value), info_of(made.results[0])
    if source.shape != target.shape:
        raise CompileError(
            f"{shape_text(source)} on one side of the boundary, {shape_text(target)} on the other", **where
        )
    if source.dtype not in CODES or target.dtype not in CODES or source.quant is None or target.quant is None:
        raise CompileError(
            f"{value.type} on one side of the boundary, {wanted} on the other, with no conversion between them", **where
        )
    place_on_host(made, CAST_REASON)
    return made


def _cast_behind(segment: SegmentOp, result: SSAValue, inside: Attribute) -> None:
    outside, uses = result.type, list(result.uses)
    changed = Rewriter.replace_value_with_new_type(result, inside)
    made = _cast(changed, outside, segment)
    Rewriter.insert_op(made, InsertPoint.after(segment))
    for use in uses:
        use.operation.operands[use.index] = made.results[0]
