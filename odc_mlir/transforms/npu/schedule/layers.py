"""Layers: tensor operations of a program, with a buffer for every tensor."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from xdsl.ir import BlockArgument, Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.dialects.npu_memory import element_bytes
from odc_mlir.dialects.npu_program import ProgramOp
from odc_mlir.dialects.odc import YieldOp, kept_states
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry
from odc_mlir.transforms.npu.schedule.program import Buffer, Place, shaped
from odc_mlir.transforms.npu.schedule.residents import Layout, PaddingBorder
from odc_mlir.transforms.npu.schedule.tensor_ir import ViewSources, image_shape, layer_ops, resident_image, window_of

Op = TypeVar("Op", bound=npu.NpuTensorOp, covariant=True)


@dataclass(eq=False, frozen=True, slots=True)
class LayerTensor:
    """Buffer with the logical shape and the code type of a tensor.

    ``layout``: layout of a resident in the tile buffer, None for other tensors. ``start``: offset of the tensor in the
    buffer. ``parts``: tensors that together form an operand of a matrix product, and the first row of each in the
    operand. Empty if one buffer holds the whole operand.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    type: str
    layout: Layout | None = None
    start: int = 0
    parts: tuple[tuple[int, LayerTensor], ...] = ()

    def at(self, offset: int) -> Place:
        """Return the address ``offset`` bytes after the start."""
        return self.buffer, self.start + offset

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.type)


@dataclass(eq=False, frozen=True, slots=True)
class Layer(Generic[Op]):
    """Operation with its operands and results. Tensors except residents are dense NHWC."""

    op: Op
    sources: tuple[LayerTensor, ...]
    results: tuple[LayerTensor, ...]

    @property
    def source(self) -> LayerTensor:
        """The first operand."""
        return self.sources[0]

    @property
    def result(self) -> LayerTensor:
        """The first result."""
        return self.results[0]


@dataclass(eq=False, frozen=True, slots=True)
class WindowLayer(Layer[Op]):
    """Convolution or pooling with its geometry."""

    window: WindowGeometry


class ProgramLayers:
    """Operations of a segment in order, the buffers of tensors, and copies at the end.

    ``copies``: (source, target) buffers for outputs that are inputs or constants, and for states that are not computed
    in place. Raises CompileError for an operation of another level.
    """

    def __init__(self, program: ProgramOp) -> None:
        self.layers: list[Layer[npu.NpuTensorOp]] = []
        self.fills: dict[int, tuple[LayerTensor, int]] = {}  # by layer: resident result and border code
        self.copies: list[tuple[Buffer, Buffer]] = []
        self.buffers: dict[SSAValue, Buffer] = {}
        self.layouts: dict[SSAValue, Layout] = {}
        block = program.block
        self.views = ViewSources(block)
        for number, argument in enumerate(block.args):
            self.buffers[argument] = _buffer_of(argument, Space.INPUTS, binds=(number,))
        last = block.last_op
        if not isinstance(last, YieldOp):
            raise CompileError(
                f"{program.sym_name.data} does not hold tensor operations", op=last.name if last else None
            )
        late = self._read_states(program, last)
        self._read_outputs(last, {number for _, number in kept_states(program)})
        self._update(late)
        for op in layer_ops(block):
            self._read(op)

    def _read_states(self, program: ProgramOp, last: YieldOp) -> list[tuple[SSAValue, Buffer]]:
        """Create, for each state kept on the NPU, a buffer that lives for the whole program.

        Return (new value, buffer) for each copy at the end. ``npu-share-arena`` removes unnecessary copies.
        """
        late: list[tuple[SSAValue, Buffer]] = []
        for source, number in kept_states(program):
            argument, (root, _) = program.block.args[source], self.views.place(last.operands[number])
            held = self.buffers[argument] = _buffer_of(argument, Space.ARENA)
            held.takes, held.gives = (source,), (number,)
            if root is not argument:
                late.append((root, held))
        return late

    def _read_outputs(self, last: YieldOp, states: Container[int]) -> None:
        for number, value in enumerate(last.operands):
            if number in states:
                continue
            root, _ = self.views.place(value)
            known = self.buffers.get(root)
            if known is not None and known.space is Space.OUTPUTS:
                known.binds += (number,)
                continue
            buffer = _buffer_of(value, Space.OUTPUTS, binds=(number,))
            if isinstance(root, BlockArgument) or isinstance(root.owner, npu.ConstantOp):
                self.copies.append((self._buffer(root), buffer))
            else:
                self.buffers[root] = buffer

    def _update(self, late: list[tuple[SSAValue, Buffer]]) -> None:
        """Copy new values to states at the end. Old contents that other states receive are saved first."""
        before = {root: _buffer_of(root, Space.ARENA) for root, _ in late if self._buffer(root).takes}
        self.copies += [(self._buffer(root), saved) for root, saved in before.items()]
        self.copies += [(before.get(root) or self._buffer(root), held) for root, held in late]

    def _buffer(self, root: SSAValue) -> Buffer:
        buffer = self.buffers.get(root)
        if buffer is None:
            if isinstance(root.owner, npu.ConstantOp):
                buffer = _buffer_of(root, Space.CONSTANTS)
                buffer.data = root.owner.value.bytes
            else:
                buffer = _buffer_of(root, Space.ARENA)
            self.buffers[root] = buffer
        return buffer

    def _tensor(self, value: SSAValue) -> LayerTensor:
        if parts := tuple((part.first, self._tensor(part.value)) for part in self.views.parts(value)):
            return replace(parts[0][1], shape=npu.shape_of(value), parts=parts)
        (root, start), shape = self.views.place(value), npu.shape_of(value)
        layout = self.layouts.get(root)
        if layout is not None and shape != npu.shape_of(root):  # the value is a view: residents with views are dense
            image = image_shape(shape) or (1, math.prod(shape) // shape[-1], shape[-1])
            layout = Layout(*image, PaddingBorder(), npu.item_bytes(value))
        return LayerTensor(self._buffer(root), shape, code_type(value), layout, start)

    def _keep(self, op: Operation) -> None:
        kept = resident_image(op)
        if kept is None:
            return
        value, (layout, fill) = op.results[0], kept
        self.buffers[value] = shaped(op_name(op), Space.TILE, layout.shape, code_type(value))
        self.layouts[value] = layout
        if fill is not None:
            self.fills[len(self.layers)] = (self._tensor(value), fill)

    def _read(self, op: Operation) -> None:
        if not isinstance(op, npu.NpuTensorOp):
            raise CompileError("the scheduler does not support this operation", op=op.name, tensor=op_name(op))
        self._keep(op)
        sources, results = (tuple(map(self._tensor, values)) for values in (op.operands, op.results))
        if not isinstance(op, npu.ConvOp | npu.PoolOp | npu.MatmulOp):
            self.layers.append(Layer(op, sources, results))
            return
        stays = sources[0].layout is not None, results[0].layout is not None
        window = window_of(op, source_resident=stays[0], result_resident=stays[1])
        self.layers.append(WindowLayer(op, sources, results, window))


def code_type(value: SSAValue) -> str:
    """Return the instruction set's name for the element type of a tensor. Plain integers are 32-bit words."""
    code = CODE_TYPES.get(npu.dtype_of(value))
    return "i32" if code is None else code.value


def _buffer_of(value: SSAValue, space: Space, *, binds: tuple[int, ...] = ()) -> Buffer:
    shape, element = npu.shape_of(value) or (1,), code_type(value)
    if (words := npu.item_bytes(value) // element_bytes(element)) > 1:
        shape = (*shape, words)
    return shaped(value_name(value), space, shape, element, binds=binds)
