"""``convert-circle-to-kernels``: lower a segment's operators to calls of kernels on flat buffers.

Before, in a segment::

    %1 = circle.conv_2d(%0, %w, %b) … -> tensor<1x8x8x8x!quant.uniform<i8:f32, …>>
    odc.yield %1

After: a module of the segment's name with its function and declarations of the kernels that it calls. One attribute
holds the bytes of all constants, with weights packed as their kernel reads them::

    builtin.module @segment_0 attributes {native.constants = #circle.blob<…>} {
      func.func @segment_0(%in0: memref<?xi8>, %out0: memref<?xi8>, %arena: memref<?xi8>, %constants: …) -> i32 {
        %1 = memref.alloc(%c512) : memref<?xi8>
        %2 = memref.view %constants[%c0][%c1152] : memref<?xi8> to memref<?xi8>
        func.call @convolve_rows8_vectors1_offset0(%0, %2, …, %1, …) : …
      }
      func.func private @convolve_rows8_vectors1_offset0(…) attributes {native.kernel = "convolve", …}

Inside a segment, signed values are stored as unsigned with an offset of 128.

Rejects operators without a native kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, info_of, node_of
from odc_mlir.dialects.native_attributes import CONSTANTS
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.common.placement import is_view, main_function
from odc_mlir.transforms.native.lowering.layers import plan_of
from odc_mlir.transforms.native.lowering.segment_writer import SegmentFunction, count, raised, size_bytes
from odc_mlir.transforms.native.native_set_target import machine_of


@dataclass(frozen=True)
class ConvertCircleToKernelsPass(ModulePass):
    """Write every segment as calls of kernels; see the module's text."""

    name = "convert-circle-to-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        for segment in [item for item in main_function(op).body.block.ops if isinstance(item, SegmentOp)]:
            name = segment.sym_name.data
            if (other := lowered_symbols(op).get(name)) is not None:  # for another target
                Rewriter.erase_op(other)
            op.body.block.add_op(_convert(name, segment.circle_block, machine))


def _convert(name: str, block: Block, machine: CpuTarget) -> ModuleOp:
    last = block.last_op
    assert isinstance(last, YieldOp)
    inputs = [info_of(value) for value in block.args]
    outputs = [info_of(value) for value in last.operands]
    segment = SegmentFunction(name, inputs, outputs, machine)
    segment.loops.location = last.location
    for index, (argument, info) in enumerate(zip(block.args, inputs, strict=True)):
        segment.tensors[argument] = _taken(segment, segment.loops[f"in{index}"], info)
    _reserve_outputs(segment, last, outputs)
    for op in block.ops:
        if isinstance(op, CircleOp):
            segment.loops.location = op.location
            plan_of(node_of(op), machine)(segment, op)
    segment.loops.location = last.location
    for index, (value, info) in enumerate(zip(last.operands, outputs, strict=True)):
        _give(segment, segment.tensor(value), segment.loops[f"out{index}"], info)
    function = segment.finish()
    module = ModuleOp([function, *segment.declared.values()], sym_name=StringAttr(name))
    module.attributes[CONSTANTS] = BlobAttr.of(bytes(segment.constants.data))
    module.location = last.location
    return module


def _taken(segment: SegmentFunction, source: SSAValue, info: TensorInfo) -> SSAValue:
    """An input as kernels hold it."""
    if not raised(info):
        return source
    held = segment.allocate(count(info))
    segment.call("flip_sign", {}, input=source, output=held, count=count(info))
    return held


def _give(segment: SegmentFunction, held: SSAValue, target: SSAValue, info: TensorInfo) -> None:
    """Bring an output to where it is expected, unless it is there."""
    if held is target:
        return
    kernel = "flip_sign" if raised(info) else "copy"
    segment.call(kernel, {}, input=held, output=target, count=size_bytes(info))


def _reserve_outputs(segment: SegmentFunction, last: Operation, outputs: list[TensorInfo]) -> None:
    """Let operators write outputs where they are expected, if nothing has to be done to them."""
    for index, (value, info) in enumerate(zip(last.operands, outputs, strict=True)):
        computed = isinstance(value, OpResult) and isinstance(value.op, CircleOp) and not is_view(value.op)
        if computed and not raised(info) and value not in segment.reserved and not isinstance(value, BlockArgument):
            segment.reserved[value] = segment.loops[f"out{index}"]
