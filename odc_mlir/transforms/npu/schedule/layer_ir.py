"""The tensor operations of a segment as records for tiling and instruction streams, with a buffer for every tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_base import CODE_TYPES, CodeType
from odc_mlir.dialects.npu_program import ProgramOp
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.npu.schedule.layers import (
    ConvLayer,
    ElementwiseLayer,
    Layer,
    MoveLayer,
    Output,
    PoolLayer,
    ReduceLayer,
    Scale,
    Shape,
    SoftmaxLayer,
    Tensor,
)
from odc_mlir.transforms.npu.schedule.moves import Piece
from odc_mlir.transforms.npu.schedule.program import Buffer, shaped
from odc_mlir.transforms.npu.schedule.residence import Border, Layout
from odc_mlir.transforms.npu.schedule.tensor_ir import image_shape, layer_ops, residence_of, window_of

FULL_RANGE = {CodeType.I8: (-128, 127), CodeType.U8: (0, 255)}


@dataclass(frozen=True, slots=True)
class Copy:
    """An output that is an input or a constant as it is."""

    source: Buffer
    target: Buffer


@dataclass(slots=True)
class Layers:
    """A segment's operations in order, where their tensors are, and what has to be copied at the end."""

    layers: list[tuple[Operation, Layer]] = field(default_factory=list)
    fills: dict[int, tuple[Tensor, int]] = field(default_factory=dict)  # layer -> its resident result, border code
    copies: list[Copy] = field(default_factory=list)


def read_layers(program: ProgramOp) -> Layers:
    """The tensor operations of ``program``; raises CompileError for an operation of another level."""
    return _Reader(program).result


def _array(values: npu.ChannelsAttr) -> NDArray[np.int32]:
    return np.frombuffer(values.data.data, np.int32)


def _int(attribute: npu.Int) -> int:
    return attribute.value.data


def _scale(attribute: npu.ScaleAttr | None) -> Scale:
    return Scale() if attribute is None else Scale(*attribute.values)


def _root(value: SSAValue) -> SSAValue:
    """The value whose bytes ``value`` shows."""
    while isinstance(value, OpResult) and isinstance(value.op, npu.ReshapeOp):
        value = value.op.input
    return value


class _Reader:
    """Reads one program."""

    def __init__(self, program: ProgramOp) -> None:
        self.result = Layers()
        self.buffers: dict[SSAValue, Buffer] = {}
        self.layouts: dict[SSAValue, Layout] = {}
        block = program.block
        for number, argument in enumerate(block.args):
            self.buffers[argument] = _buffer_of(argument, Space.INPUTS, binds=(number,))
        last = block.last_op
        if not isinstance(last, YieldOp):
            raise CompileError(
                f"{program.sym_name.data} does not hold tensor operations", op=last.name if last else None
            )
        self._read_outputs(last)
        for op in layer_ops(block):
            self._read(op)

    def _read_outputs(self, last: YieldOp) -> None:
        for number, value in enumerate(last.operands):
            root = _root(value)
            known = self.buffers.get(root)
            if known is not None and known.space is Space.OUTPUTS:
                known.binds += (number,)
                continue
            buffer = _buffer_of(value, Space.OUTPUTS, binds=(number,))
            if isinstance(root, BlockArgument) or isinstance(root.owner, npu.ConstantOp):
                self.result.copies.append(Copy(self._buffer(root), buffer))
            else:
                self.buffers[root] = buffer

    def _buffer(self, root: SSAValue) -> Buffer:
        buffer = self.buffers.get(root)
        if buffer is None:
            if isinstance(root.owner, npu.ConstantOp):
                buffer = _buffer_of(root, Space.CONSTANTS)
                buffer.data = bytes(root.owner.value.bytes)
            else:
                buffer = _buffer_of(root, Space.ARENA)
            self.buffers[root] = buffer
        return buffer

    def _tensor(self, value: SSAValue) -> Tensor:
        root, shape = _root(value), npu.shape_of(value)
        layout = self.layouts.get(root)
        if layout is not None and shape != npu.shape_of(root):  # a view: residents that have views are dense
            image = image_shape(shape) or (1, math.prod(shape) // shape[-1], shape[-1])
            layout = Layout(*image, Border())
        return Tensor(self._buffer(root), shape, code_type(value), layout)

    def _keep(self, op: Operation) -> None:
        """Note that the result of ``op`` stays in the tile buffer, if it does."""
        residence = residence_of(op)
        if residence is None:
            return
        layer, value = len(self.result.layers), op.results[0]
        layout = residence.layout
        self.buffers[value] = shaped(op_name(op), Space.TILE, layout.shape, code_type(value))
        self.layouts[value] = layout
        if residence.fill is not None:
            self.result.fills[layer] = (self._tensor(value), residence.fill)

    def _read(self, op: Operation) -> None:
        read = readers().get(type(op))
        if read is None:
            raise CompileError("the scheduler does not know this operation", op=op.name, tensor=op_name(op))
        self._keep(op)
        self.result.layers.append((op, read(op, len(self.result.layers), self._tensor)))


def code_type(value: SSAValue) -> str:
    """The code type of a tensor value by its name in the instruction set."""
    return CODE_TYPES[npu.dtype_of(value)].value


def _buffer_of(value: SSAValue, space: Space, *, binds: tuple[int, ...] = ()) -> Buffer:
    """A buffer for the tensor ``value``."""
    return shaped(value_name(value), space, npu.shape_of(value) or (1,), code_type(value), binds=binds)


TensorOf = Callable[[SSAValue], Tensor]


def _output(op: Any) -> Output:
    zero = _int(op.out_zero) if hasattr(op, "out_zero") else 0
    return Output(zero, _int(op.act_min), _int(op.act_max))


def _conv(op: npu.ConvOp, index: int, tensor: TensorOf) -> ConvLayer:
    weights: Shape = op.weight_shape
    dtype = np.int8 if op.weight_type.data is CodeType.I8 else np.uint8
    source, result = tensor(op.input), tensor(op.output)
    return ConvLayer(
        index,
        source,
        result,
        window_of(op, source_resident=source.layout is not None, result_resident=result.layout is not None),
        np.frombuffer(op.weights.bytes, dtype).reshape(weights),
        op.weight_type.data.value,
        _int(op.in_zero),
        _int(op.weight_zero),
        _output(op),
        _array(op.bias),
        _array(op.multiplier),
        _array(op.exponent),
    )


def _pool(op: npu.PoolOp, index: int, tensor: TensorOf) -> PoolLayer:
    source, result = tensor(op.input), tensor(op.output)
    window = window_of(op, source_resident=source.layout is not None, result_resident=result.layout is not None)
    return PoolLayer(index, source, result, window, op.kind.data.value, _output(op))


def _elementwise(op: npu.ElementwiseOp, index: int, tensor: TensorOf) -> ElementwiseLayer:
    return ElementwiseLayer(
        index,
        tensor(op.a),
        tensor(op.b),
        tensor(op.output),
        op.kind.data.value,
        _int(op.a_zero),
        _int(op.b_zero),
        _int(op.left_shift),
        _scale(op.a_scale),
        _scale(op.b_scale),
        _scale(op.out_scale),
        _output(op),
    )


def _requantise(op: npu.ScaleOp, index: int, tensor: TensorOf) -> ElementwiseLayer:
    source, result = tensor(op.input), tensor(op.output)
    none = Scale()
    scale = _scale(op.scale)
    return ElementwiseLayer(
        index, source, None, result, "scale", _int(op.in_zero), 0, 0, none, none, scale, _output(op)
    )


def _lut(op: npu.LutOp, index: int, tensor: TensorOf) -> ElementwiseLayer:
    source, result = tensor(op.input), tensor(op.output)
    none = Scale()
    limits = Output(0, *FULL_RANGE[CODE_TYPES[npu.dtype_of(op.output)]])
    table = bytes(op.table.bytes)
    return ElementwiseLayer(index, source, None, result, "lut", 0, 0, 0, none, none, none, limits, table)


def _reduce(op: npu.ReduceOp, index: int, tensor: TensorOf) -> ReduceLayer:
    source, result = tensor(op.input), tensor(op.output)
    return ReduceLayer(index, source, result, op.kind.data.value, _int(op.in_zero), _scale(op.scale), _output(op))


def _softmax(op: npu.SoftmaxOp, index: int, tensor: TensorOf) -> SoftmaxLayer:
    return SoftmaxLayer(index, tensor(op.input), tensor(op.output), _scale(op.scale), _int(op.diff_min))


def _move(op: npu.MoveOp, index: int, tensor: TensorOf) -> MoveLayer:
    fill = None if op.fill is None else _int(op.fill)
    pieces = tuple(Piece(*nest) for nest in op.nests())
    return MoveLayer(index, tuple(tensor(value) for value in op.inputs), tensor(op.output), pieces, fill)


Read = Callable[[Any, int, TensorOf], Layer]


@cache
def readers() -> dict[type[Operation], Read]:
    """The function that reads each tensor operation."""
    return {
        npu.ConvOp: _conv,
        npu.PoolOp: _pool,
        npu.ElementwiseOp: _elementwise,
        npu.ScaleOp: _requantise,
        npu.LutOp: _lut,
        npu.ReduceOp: _reduce,
        npu.SoftmaxOp: _softmax,
        npu.MoveOp: _move,
    }
