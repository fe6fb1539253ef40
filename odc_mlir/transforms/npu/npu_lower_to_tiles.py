"""``npu-lower-to-tiles``: lower tensor operations to instructions on tiles, each transfer just before its use.

Before::

    npu.program @segment_0(%x: tensor<1x8x8x16x…>) -> tensor<1x8x8x32x…> {
      %0 = npu.conv %x … {npu.tiling = #npu.tiling<rows = 8, cols = 8, …>} : …
      odc.yield %0 : …

After: one buffer for every tensor, constant and slot of a local memory; loads, computation and stores of all tiles::

    npu.program @segment_0(%x: tensor<1x8x8x16x…>) -> tensor<1x8x8x32x…> {
      %1 = npu.buffer "x" binds [0] : !npu.buffer<inputs, 1x8x8x16xi8>
      …
      %2 = npu.buffer "input" : !npu.buffer<tile, 10x10x16xi8>
      npu.isa.wload source %3 target %4
      npu.isa.load source %1 target %2
      npu.isa.conv …
      npu.isa.store …
      npu.isa.halt

If the tiling of a convolution has ``operand_slots``, the following element-wise operation is computed with each tile,
which the program records in ``npu.fused``: the name of the convolution, by that of the element-wise operation.

Buffers of memory regions are at the top, those of a layer's slots before its first instruction. No buffer has an
address; ``binds`` says which inputs or outputs a buffer is. Rejects operations of another level, and softmax over rows
that do not fit in the tile buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, LocationAttr, StringAttr
from xdsl.ir import Attribute, Block

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_program import FUSED
from odc_mlir.dialects.npu_tiling import TILING, TilingAttr
from odc_mlir.errors import CompileError
from odc_mlir.support.deadline import in_time
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import ConstantPool
from odc_mlir.transforms.npu.schedule.fusion import follower_of
from odc_mlir.transforms.npu.schedule.instruction_ir import (
    TargetedProgram,
    TiledLayer,
    write_program,
)
from odc_mlir.transforms.npu.schedule.layer_ir import ProgramLayers, read_layers
from odc_mlir.transforms.npu.schedule.layers import Layer, WindowLayer
from odc_mlir.transforms.npu.schedule.local import LocalMemories
from odc_mlir.transforms.npu.schedule.lstm_stream import lstm_commands
from odc_mlir.transforms.npu.schedule.matmul_stream import matmul_commands
from odc_mlir.transforms.npu.schedule.move_stream import move_commands
from odc_mlir.transforms.npu.schedule.program import MOST_LAYER_COMMANDS, Command, command
from odc_mlir.transforms.npu.schedule.program_pass import ProgramPass
from odc_mlir.transforms.npu.schedule.resize_stream import resize_commands
from odc_mlir.transforms.npu.schedule.search_stream import place_commands
from odc_mlir.transforms.npu.schedule.tensor_ir import slot_bytes, tiling_of
from odc_mlir.transforms.npu.schedule.vector_stream import elementwise_commands, reduce_commands, softmax_commands
from odc_mlir.transforms.npu.schedule.window_stream import conv_commands, pool_commands


@dataclass(frozen=True)
class NpuLowerToTilesPass(ProgramPass):
    """Lower; see the module's text."""

    name = "npu-lower-to-tiles"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        _lower(ctx, job)


def _lower(ctx: Context, job: TargetedProgram) -> None:
    layers = read_layers(job.program)
    old = job.block
    last = old.last_op
    assert last is not None, "a body ends in its yield"
    tiled = list(_tiled(ctx, job, layers, last.location))
    block = Block(arg_types=old.arg_types)
    for argument, previous in zip(block.args, old.args, strict=True):
        argument.location, argument.name_hint = previous.location, previous.name_hint
    write_program(block, tiled, last.location)
    job.program.body.detach_block(old)
    old.erase()
    job.program.body.add_block(block)


def _tiled(ctx: Context, job: TargetedProgram, layers: ProgramLayers, end: LocationAttr) -> Iterator[TiledLayer]:
    """All layers in plain order, then the copies of outputs that nothing computes."""
    memories, pool = LocalMemories(job.target), ConstantPool()
    together: dict[str, Attribute] = {}
    follower: Layer[npu.ElementwiseOp] | None = None
    for index, layer in enumerate(in_time(ctx, layers.layers)):
        op, done = layer.op, follower
        if done is not None and done.op is op:
            continue
        follower = _follower(layers.layers, index)
        if follower is not None:
            together[op_name(follower.op)] = StringAttr(op_name(op))
        memories.enter(slot_bytes(op, job.target))
        if layer.result.layout is not None:
            memories.declare(layer.result.buffer)
        commands = []
        if index in layers.fills:
            result, code = layers.fills[index]
            buffer = result.buffer
            commands.append(command("fill", target=(buffer, 0), bytes=buffer.size, value=code, type=result.type))
        try:
            commands += _bounded(_layer_commands(layer, job, memories, pool, follower), job.target)
        except CompileError as error:
            raise CompileError(error.message, op=op.name, tensor=op_name(op), hint=error.hint) from None
        yield TiledLayer(op.location, memories.declared, [])
        for is_next, run in groupby(commands, key=lambda item: item.layer == 1):
            yield TiledLayer(follower.op.location if is_next and follower else op.location, [], list(run))
    copies = [
        command("copy", source=(copy.source, 0), target=(copy.target, 0), bytes=copy.source.size)
        for copy in layers.copies
    ]
    yield TiledLayer(end, [], copies)
    if together:
        job.program.attributes[FUSED] = DictionaryAttr(together)


def _follower(layers: Sequence[Layer[npu.NpuTensorOp]], index: int) -> Layer[npu.ElementwiseOp] | None:
    """The layer that is computed with each tile of layer ``index``."""
    op = layers[index].op
    tiling = op.attributes.get(TILING)
    if not isinstance(tiling, TilingAttr) or not tiling.data.operand_slots:
        return None
    behind = layers[index + 1] if index + 1 < len(layers) else None
    if behind is None or not isinstance(behind.op, npu.ElementwiseOp) or behind.op is not follower_of(op):
        raise CompileError("its tiling has operand slots, but no following operation can be fused with it", op=op.name)
    return Layer(behind.op, behind.sources, behind.results)


def _bounded(commands: Iterable[Command], target: Target) -> Iterator[Command]:
    """``commands`` of one layer; raises CompileError where they are too many to be worth anything."""
    for count, item in enumerate(commands, 1):
        if count > MOST_LAYER_COMMANDS:
            raise CompileError(
                f"it takes more than {MOST_LAYER_COMMANDS} instructions: the local memories of {target.name} are too "
                "small for it"
            )
        yield item


def _layer_commands(
    layer: Layer[npu.NpuTensorOp],
    job: TargetedProgram,
    memories: LocalMemories,
    pool: ConstantPool,
    follower: Layer[npu.ElementwiseOp] | None,
) -> Iterator[Command]:
    op, target = layer.op, job.target
    if isinstance(layer, WindowLayer) and isinstance(op, npu.ConvOp):
        return conv_commands(layer, tiling_of(op, target), target, memories, pool, follower)
    if isinstance(layer, WindowLayer) and isinstance(op, npu.MatmulOp):
        return matmul_commands(layer, tiling_of(op, target), target, memories, pool)
    if isinstance(layer, WindowLayer):
        return pool_commands(layer, tiling_of(op, target), memories)
    if isinstance(op, npu.ElementwiseOp | npu.ScaleOp | npu.LutOp | npu.SigmoidOp):
        return elementwise_commands(Layer(op, layer.sources, layer.results), memories, pool)
    if isinstance(op, npu.MoveOp):
        return move_commands(Layer(op, layer.sources, layer.results), memories)
    if isinstance(op, npu.ReduceOp):
        return reduce_commands(Layer(op, layer.sources, layer.results), target, memories)
    if isinstance(op, npu.ArgMaxOp | npu.PositionOp | npu.GatherOp):
        return place_commands(Layer(op, layer.sources, layer.results), memories)
    if isinstance(op, npu.ResizeOp):
        return resize_commands(Layer(op, layer.sources, layer.results), target, memories)
    if isinstance(op, npu.SoftmaxOp):
        return softmax_commands(Layer(op, layer.sources, layer.results), target, memories, pool)
    if isinstance(op, npu.LstmOp):
        return lstm_commands(Layer(op, layer.sources, layer.results), target, memories, pool)
    raise CompileError("no instruction implements this operation", op=op.name, tensor=op_name(op))
