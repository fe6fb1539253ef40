"""``npu-lower-to-tiles``: lower tensor operations to instructions on tiles, with transfers just before uses.

Before::

    npu.program @segment_0(%x: tensor<1x8x8x16x…>) -> tensor<1x8x8x32x…> {
      %0 = npu.conv %x … {npu.tiling = #npu.tiling<rows = 8, cols = 8, …>} : …
      odc.yield %0 : …

After: one buffer for every tensor, constant and slot of a local memory, then the commands of all tiles::

    npu.program @segment_0(%x: tensor<1x8x8x16x…>) -> tensor<1x8x8x32x…> {
      %1 = npu.buffer "x" binds [0] : !npu.buffer<inputs, 1x8x8x16xi8>
      …
      %2 = npu.buffer "input" : !npu.buffer<tile, 10x10x16xi8>
      npu.isa.wload source %3 target %4
      npu.isa.load source %1 target %2
      npu.isa.conv …
      npu.isa.store …
      npu.isa.halt

If the tiling of a convolution has ``operand_slots``, the following element-wise operation is computed with each tile.
``npu.fused`` of the program maps the name of the element-wise operation to the name of the convolution.

Buffers of memory regions are at the top. The slots of a layer are before its first instruction. No buffer has an
address. ``binds`` gives the numbers of the inputs or outputs in a buffer.

Each kind of operation has a pattern. xDSL's ``PatternRewriteWalker`` applies patterns in program order. Rejects
operations of another level, and softmax over rows that do not fit in the tile buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast, get_args

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, LocationAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_isa import make_halt
from odc_mlir.dialects.npu_program import FUSED
from odc_mlir.dialects.npu_tiling import TILING, TilingAttr
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.legality import NPU_INSTRUCTIONS
from odc_mlir.support.deadline import in_time
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.npu.schedule.instruction_ir import (
    ProgramPatternPass,
    TargetedProgram,
    make_buffer,
    make_instruction,
)
from odc_mlir.transforms.npu.schedule.layer_plan import follower_of
from odc_mlir.transforms.npu.schedule.layers import Layer, ProgramLayers, WindowLayer
from odc_mlir.transforms.npu.schedule.local import LocalMemories
from odc_mlir.transforms.npu.schedule.lstm_stream import LstmEmitter
from odc_mlir.transforms.npu.schedule.move_stream import gather_commands, move_commands, update_commands
from odc_mlir.transforms.npu.schedule.program import MOST_LAYER_COMMANDS, Buffer, Command, command
from odc_mlir.transforms.npu.schedule.resize_stream import resize_commands
from odc_mlir.transforms.npu.schedule.tensor_ir import Elementwise, becomes_instructions, slot_bytes, tiling_of
from odc_mlir.transforms.npu.schedule.vector_stream import (
    argmax_commands,
    elementwise_commands,
    reduce_commands,
    softmax_commands,
)
from odc_mlir.transforms.npu.schedule.window_stream import conv_commands, matmul_commands, pool_commands

TensorOpT = TypeVar("TensorOpT", bound=npu.NpuTensorOp)


class Emission:
    """Instructions and buffers of a program, emitted while operations are lowered in order.

    Lowered operations are erased together with the yield, because later operations refer to the results.
    """

    def __init__(self, ctx: Context, job: TargetedProgram) -> None:
        self.target = job.target
        self.memories = LocalMemories(job.target)
        self.computed: dict[Operation, Operation] = {}  # follower -> convolution that computes it
        self.program, self._layers = job.program, ProgramLayers(job.program)
        self._numbers: dict[Operation, int] = {layer.op: number for number, layer in enumerate(self._layers.layers)}
        self._progress = in_time(ctx, self._layers.layers)
        self._values: dict[Buffer, SSAValue] = {}
        self._region: Operation | None = None  # the last buffer at the top
        self._follower: Operation | None = None
        self._lowered: list[Operation] = []

    def layer(self, op: TensorOpT) -> Layer[TensorOpT]:
        return cast(Layer[TensorOpT], self._layers.layers[self._numbers[op]])

    def follower(self, op: npu.NpuTensorOp) -> Layer[npu.ElementwiseOp] | None:
        """Return the layer that is computed with each tile of ``op``, or None if the tiling has no operand slots."""
        tiling = op.attributes.get(TILING)
        if not isinstance(tiling, TilingAttr) or not tiling.data.operand_slots:
            return None
        behind = follower_of(op)
        if behind is None or self._numbers.get(behind) != self._numbers[op] + 1:
            raise CompileError("its tiling has operand slots, but no following operation can be fused with it")
        self.computed[behind], self._follower = op, behind
        return self.layer(behind)

    def enter(self, op: npu.NpuTensorOp) -> None:
        """Begin the layer of ``op``. All later slots belong to this layer."""
        next(self._progress, None)
        self._follower, layer = None, self.layer(op)
        self.memories.enter(slot_bytes(op, self.target))
        if layer.result.layout is not None:
            self.memories.declared.append(layer.result.buffer)

    def emit(self, op: npu.NpuTensorOp, commands: Iterable[Command], rewriter: PatternRewriter) -> None:
        """Insert the slots and then the instructions of ``op``."""
        made = []
        if (fill := self._layers.fills.get(self._numbers[op])) is not None:
            result, code = fill
            target = (result.buffer, 0)
            made.append(command("fill", target=target, bytes=result.buffer.size, value=code, type=result.type))
        made += _bounded(commands, self.target)
        slots = [self._declared(slot, op.location) for slot in self.memories.declared]
        rewriter.insert([*slots, *self._instructions(made, op, rewriter)])
        self.keep(op)

    def keep(self, op: Operation) -> None:
        """Keep the lowered ``op`` until the end of the program."""
        self._lowered.append(op)

    def end(self, op: YieldOp, rewriter: PatternRewriter) -> None:
        """End the program with copies of outputs that no layer computes. Erase the lowered operations and ``op``."""
        copies = [
            command("copy", source=(source, 0), target=(target, 0), bytes=source.size)
            for source, target in self._layers.copies
        ]
        rewriter.replace(op, [*self._instructions(copies, op, rewriter), make_halt(op.location)], [])
        for lowered in reversed(self._lowered):
            rewriter.erase(lowered)

    def _instructions(self, commands: Iterable[Command], op: Operation, rewriter: PatternRewriter) -> list[Operation]:
        made: list[Operation] = []
        regions: list[Operation] = []
        for item in commands:
            location = self._follower.location if item.layer == 1 and self._follower is not None else op.location
            for buffer, _ in item.places.values():
                if buffer not in self._values:
                    regions.append(self._declared(buffer, location))
            made.append(make_instruction(item, self._values, location))
        if regions:
            top = InsertPoint.at_start(self.program.block)
            rewriter.insert(regions, top if self._region is None else InsertPoint.after(self._region))
            self._region = regions[-1]
        return made

    def _declared(self, buffer: Buffer, location: LocationAttr) -> Operation:
        made = make_buffer(buffer, location)
        self._values[buffer] = made.buffer
        return made


def _bounded(commands: Iterable[Command], target: Target) -> Iterator[Command]:
    for count, item in enumerate(commands, 1):
        if count > MOST_LAYER_COMMANDS:
            raise CompileError(
                f"it takes more than {MOST_LAYER_COMMANDS} instructions: the local memories of {target.name} are too "
                "small for it"
            )
        yield item


class TilePattern(LoweringPattern[TensorOpT]):
    """Lower one kind of tensor operation to instructions on tiles."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission

    def lower(self, op: TensorOpT, rewriter: PatternRewriter, /) -> None:
        self.emission.enter(op)
        self.emission.emit(op, self.commands(op, self.emission), rewriter)

    def commands(self, op: TensorOpT, to: Emission, /) -> Iterator[Command]:
        """Return the commands of ``op`` in plain order."""
        raise NotImplementedError


class TileView(TilePattern[npu.ReshapeOp | npu.ConstantOp | npu.MoveOp]):
    """Lower a constant, a reshape or a move marked as a view to no instruction. Users refer to the base buffer."""

    def matches(self, op: npu.ReshapeOp | npu.ConstantOp | npu.MoveOp, /) -> bool:
        return not becomes_instructions(op)

    def lower(self, op: npu.ReshapeOp | npu.ConstantOp | npu.MoveOp, rewriter: PatternRewriter, /) -> None:
        self.emission.keep(op)
        rewriter.notify_op_modified(op)


class TileWindow(TilePattern[npu.ConvOp | npu.MatmulOp | npu.PoolOp]):
    """Lower a window operation, and the element-wise operation that is computed with each tile."""

    def commands(self, op: npu.ConvOp | npu.MatmulOp | npu.PoolOp, to: Emission, /) -> Iterator[Command]:
        layer = cast(WindowLayer[Any], to.layer(op))
        follower, tiling = to.follower(op), tiling_of(op, to.target, layer.window)
        if isinstance(op, npu.ConvOp):
            return conv_commands(layer, tiling, to.memories, follower)
        stream = matmul_commands if isinstance(op, npu.MatmulOp) else pool_commands
        return stream(layer, tiling, to.memories)


STREAMS: dict[type[Operation], Callable[[Layer[Any], LocalMemories], Iterator[Command]]] = {
    npu.MoveOp: move_commands,
    npu.ReduceOp: reduce_commands,
    npu.ArgMaxOp: argmax_commands,
    npu.GatherOp: gather_commands,
    npu.UpdateOp: update_commands,
    npu.ResizeOp: resize_commands,
    npu.SoftmaxOp: softmax_commands,
    npu.LstmOp: lambda layer, memories: LstmEmitter(layer, memories).commands(),
    **dict.fromkeys(get_args(Elementwise), elementwise_commands),
}


class TileStream(TilePattern[npu.NpuTensorOp]):
    """Lower an operation with a single tiling, unless a convolution computes it.

    Reject rows and cells that do not fit in the local memories.
    """

    def handles(self, kind: type[Operation], /) -> bool:
        return kind in STREAMS

    def commands(self, op: npu.NpuTensorOp, to: Emission, /) -> Iterator[Command]:
        return iter(()) if op in to.computed else STREAMS[type(op)](to.layer(op), to.memories)


class EndProgram(LoweringPattern[YieldOp]):
    """Lower ``odc.yield`` to copies of the outputs that no layer computes, and to ``npu.isa.halt``."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission

    def lower(self, op: YieldOp, rewriter: PatternRewriter, /) -> None:
        self.emission.end(op, rewriter)


class NpuLowerToTilesPass(ProgramPatternPass):
    """Lower operations on tensors to commands on tiles."""

    name = "npu-lower-to-tiles"

    @classmethod
    def patterns(cls) -> Sequence[type[TilePattern[Any] | TileView | EndProgram]]:
        return (TileView, TileWindow, TileStream, EndProgram)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        emission = Emission(ctx, job)
        apply_conversion(ctx, job.program.body, NPU_INSTRUCTIONS, [kind(emission) for kind in self.patterns()])
        if emission.computed:
            fused = {op_name(op): StringAttr(op_name(conv)) for op, conv in emission.computed.items()}
            job.program.attributes[FUSED] = DictionaryAttr(fused)
