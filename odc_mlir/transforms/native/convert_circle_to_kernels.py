"""``convert-circle-to-kernels``: lower a segment's operators to calls of kernels on flat buffers.

Before, in a segment::

    %1 = circle.conv_2d(%0, %w, %b) … -> tensor<1x8x8x8x!quant.uniform<i8:f32, …>>
    odc.yield %1

After: a module named after the segment contains the segment's function and declarations of the kernels that the
function calls. One attribute holds the bytes of all constants. Weights are packed in the order that kernels read::

    builtin.module @segment_0 attributes {native.constants = #circle.blob<…>} {
      func.func @segment_0(%in0: memref<?xi8>, %out0: memref<?xi8>, %arena: memref<?xi8>, %constants: …) -> i32 {
        %1 = memref.alloc(%c512) : memref<?xi8>
        func.call @flip_sign(%in0, %1, …) : …
        %2 = memref.view %constants[%c0][%c1152] : memref<?xi8> to memref<?xi8>
        func.call @convolve_rows8_vectors1_offset0(%1, %2, …, %3, …) : …
        func.call @flip_sign(%3, %out0, …) : …
        func.return %status : i32
      }
      func.func private @convolve_rows8_vectors1_offset0(…) attributes {native.kernel = "convolve", …}

Inside a segment, signed 8-bit values are stored unsigned, with an offset of 128: ``flip_sign`` converts inputs and
outputs.

Rejects operators without a native kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnrealizedConversionCastOp
from xdsl.ir import Block, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import BlobAttr, ConstOp, NoneOp, freeze_known, info_of
from odc_mlir.dialects.native_attributes import CONSTANTS
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols
from odc_mlir.legality import ConversionTarget
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.processors import CpuTarget
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.native.lowering.operators import PATTERNS
from odc_mlir.transforms.native.lowering.segment_writer import (
    KernelPattern,
    SegmentFunction,
    buffer_of,
    count,
    sign_offset,
    size_bytes,
)
from odc_mlir.transforms.native.native_set_target import machine_of

_SOURCES = (UnrealizedConversionCastOp, ConstOp, NoneOp)
_LEGAL = ("func.", "memref.", "arith.", *(kind.name for kind in _SOURCES))


class LowerYield(LoweringPattern[YieldOp]):
    """Lower ``odc.yield`` to copies of outputs that have another buffer, and to a return of the status."""

    def __init__(self, segment: SegmentFunction) -> None:
        self.segment = segment

    def lower(self, op: YieldOp, rewriter: PatternRewriter, /) -> None:
        segment = self.segment
        segment.loops.insert_by(rewriter, op.location)
        for index, value in enumerate(op.operands):
            found, target, info = buffer_of(value), segment.loops[f"out{index}"], info_of(value)
            if found is not target:
                kernel = "flip_sign" if sign_offset(info) else "copy"
                segment.call(kernel, {}, input=found, output=target, count=size_bytes(info))
        segment.finish()
        rewriter.erase(op)


class ConvertCircleToKernelsPass(PatternPass):
    """Lower a copy of every segment."""

    name = "convert-circle-to-kernels"

    @classmethod
    def patterns(cls) -> Sequence[type[KernelPattern | LowerYield]]:
        return (*PATTERNS, LowerYield)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        for segment in [item for item in main_function(op).body.block.ops if isinstance(item, SegmentOp)]:
            name = segment.sym_name.data
            if (other := lowered_symbols(op).get(name)) is not None:  # it was lowered for another target
                Rewriter.erase_op(other)
            body = segment.circle.clone()
            freeze_known(body.block, segment.operands)
            op.body.block.add_op(_convert(ctx, name, body.block, machine))


def _convert(ctx: Context, name: str, block: Block, machine: CpuTarget) -> ModuleOp:
    last = block.last_op
    assert isinstance(last, YieldOp)
    inputs = [info_of(value) for value in block.args]
    outputs = [info_of(value) for value in last.operands]
    segment = SegmentFunction(name, inputs, outputs, machine)
    loops = segment.loops
    loops.location = last.location
    values: dict[SSAValue, SSAValue] = {}
    for index, (argument, info) in enumerate(zip(block.args, inputs, strict=True)):
        stored = loops[f"in{index}"]
        if sign_offset(info):
            given, stored = stored, segment.allocate(count(info))
            segment.call("flip_sign", {}, input=given, output=stored, count=count(info))
        values[argument] = loops.emit(UnrealizedConversionCastOp.get([stored], [argument.type]))
    for op in block.ops:
        loops.entry.add_op(op.clone(values))
    _reserve_outputs(segment, outputs)
    target = ConversionTarget(ConvertCircleToKernelsPass.name, _LEGAL)
    apply_conversion(ctx, loops.op.body, target, [kind(segment) for kind in ConvertCircleToKernelsPass.patterns()])
    for op in [op for op in loops.entry.ops if isinstance(op, _SOURCES)][::-1]:
        Rewriter.erase_op(op)
    module = ModuleOp([loops.op, *segment.declared.values()], sym_name=StringAttr(name))
    module.attributes[CONSTANTS] = BlobAttr.of(bytes(segment.constants))
    module.location = last.location
    return module


def _reserve_outputs(segment: SegmentFunction, outputs: list[TensorInfo]) -> None:
    """Make operators write results directly to outputs of the segment with the same stored form."""
    last = segment.loops.entry.last_op
    assert last is not None
    for index, (value, info) in enumerate(zip(last.operands, outputs, strict=True)):
        if not sign_offset(info) and value not in segment.reserved:
            segment.reserved[value] = segment.loops[f"out{index}"]
