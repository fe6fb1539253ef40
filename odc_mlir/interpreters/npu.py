"""Interpreter of the tensor-level ``npu`` operations, with the arithmetic of :mod:`odc_mlir.numerics`.

Values are numpy arrays of the tensors' storage types. Run the ``npu`` stage with these functions and the ``circle``
stage with the host kernels: the results are equal, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.numerics import convolution, elementwise, int16, lstm, lut, pooling, resize_lines
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.reduction import mean_codes
from odc_mlir.numerics.softmax import softmax_codes
from odc_mlir.ops.dtypes import DTYPES

Array = NDArray[Any]
_DTYPE_OF_CODES = {code_type: dtype for dtype, code_type in CODE_TYPES.items()}


def storage(value: SSAValue) -> np.dtype[Any]:
    """Storage dtype of a tensor value."""
    return DTYPES[npu.dtype_of(value)].numpy


def codes(blob: BlobAttr, dtype: str) -> Array:
    """The codes that a blob holds, as a flat array."""
    return np.frombuffer(blob.bytes, DTYPES[dtype].numpy)


def _integer(attribute: npu.Int) -> int:
    return attribute.value.data


def _pair(attribute: npu.Ints) -> tuple[int, int]:
    first, second = attribute.get_values()
    return first, second


def _lstm_cell(op: npu.LstmOp) -> lstm.IntegerLstm:
    """The cell that the integers of ``op`` describe."""
    units, bias = op.sizes[3], np.array(op.bias.values)
    zero = _integer(op.hidden_zero)

    def matrices(blob: BlobAttr) -> list[Array]:
        return np.split(codes(blob, "int8").reshape(op.gates * units, -1), op.gates)

    inputs, recurrent = matrices(op.input_weights), matrices(op.recurrent_weights)
    scales = [[lstm.Factor(*scale.values) for scale in scales] for scales in (op.input_scales, op.recurrent_scales)]
    gates = [
        lstm.Gate(own, own_bias, input_scale, last, lstm.bias_with_zero(last, zero), recurrent_scale)
        for own, own_bias, input_scale, last, recurrent_scale in zip(
            inputs, np.split(bias, op.gates), scales[0], recurrent, scales[1], strict=True
        )
    ]
    cell = lstm.CellParameters(
        _integer(op.cell_exponent),
        _integer(op.clip),
        lstm.Factor(*op.out_scale.values),
        _integer(op.out_zero),
        _integer(op.out_zero),
    )
    coupled: list[lstm.Gate | None] = [None] * (len(lstm.GATES) - op.gates)
    return lstm.IntegerLstm([*coupled, *gates], cell)


@register_impls
class NpuFunctions(InterpreterFunctions):
    """One function per operation."""

    @impl(npu.ConstantOp)
    def run_constant(self, interpreter: Interpreter, op: npu.ConstantOp, args: PythonValues) -> PythonValues:
        return (codes(op.value, npu.dtype_of(op.output)).reshape(npu.shape_of(op.output)),)

    @impl(npu.ConvOp)
    def run_conv(self, interpreter: Interpreter, op: npu.ConvOp, args: PythonValues) -> PythonValues:
        (x,) = args
        dtype = _DTYPE_OF_CODES[op.weight_type.data]
        weights = codes(op.weights, dtype).reshape(op.weight_shape).astype(np.int32) - _integer(op.weight_zero)
        wide = op.wide is not None
        sums_dtype = "int64" if wide else "int32"
        bias = np.array(op.bias.values, sums_dtype)
        scale = (WideRequantizer if wide else Requantizer)(
            np.array(op.multiplier.values),
            np.array(op.exponent.values),
            _integer(op.out_zero),
            _integer(op.act_min),
            _integer(op.act_max),
            storage(op.output),
        )

        def finish(sums: Array) -> Array:
            return scale(sums + bias)

        top, left, bottom, right = op.pads.get_values()
        pads = (top, left, bottom, right)
        window = convolution.Window(_pair(op.kernel), _pair(op.stride), _pair(op.dilation), pads)
        in_zero, result = _integer(op.in_zero), storage(op.output)
        low, high = npu.code_range(npu.dtype_of(op.input))
        largest = high - low  # bounds |x - zero point|
        if op.depthwise:
            lines = convolution.depthwise_filter(weights, largest, sums=sums_dtype)
            return (convolution.depthwise(x, lines, window, in_zero=in_zero, finish=finish, dtype=result),)
        matrix = convolution.conv_filter(weights, largest, sums=sums_dtype)
        return (convolution.conv2d(x, matrix, window, in_zero=in_zero, finish=finish, dtype=result),)

    @impl(npu.MatmulOp)
    def run_matmul(self, interpreter: Interpreter, op: npu.MatmulOp, args: PythonValues) -> PythonValues:
        zeros = _integer(op.a_zero), _integer(op.b_zero)
        a, b = (x.astype(np.int32) - zero for x, zero in zip(args, zeros, strict=True))
        clamp = _integer(op.out_zero), _integer(op.act_min), _integer(op.act_max)
        multiplier, exponent = map(np.array, op.scale.values)
        if storage(op.output).itemsize > 1:
            wide = WideRequantizer(multiplier, exponent, *clamp, storage(op.output))
            return (wide(a.astype(np.int64) @ b.astype(np.int64)),)
        scale = Requantizer(multiplier, exponent, *clamp, storage(op.output))
        return (scale((a @ b).astype(np.int32)),)

    @impl(npu.ElementwiseOp)
    def run_elementwise(self, interpreter: Interpreter, op: npu.ElementwiseOp, args: PythonValues) -> PythonValues:
        a, b = args
        kind, low, high = op.kind.data, _integer(op.act_min), _integer(op.act_max)
        dtype = str(storage(op.output))
        zeros = _integer(op.a_zero), _integer(op.b_zero), _integer(op.out_zero)
        if kind in (npu.ElementwiseKind.MAX, npu.ElementwiseKind.MIN):
            chosen = np.maximum(a, b) if kind is npu.ElementwiseKind.MAX else np.minimum(a, b)
            return (np.clip(chosen, low, high).astype(dtype),)
        assert op.out_scale is not None
        if kind is npu.ElementwiseKind.MUL:
            product = elementwise.MulParams(*zeros, *op.out_scale.values, low, high, dtype)
            return (elementwise.mul_quantized(a, b, product),)
        assert op.a_scale is not None
        assert op.b_scale is not None
        scales = (*op.a_scale.values, *op.b_scale.values, *op.out_scale.values)
        params = elementwise.AddParams(*zeros, _integer(op.left_shift), *scales, low, high, dtype)
        combine = elementwise.add_quantized if kind is npu.ElementwiseKind.ADD else elementwise.sub_quantized
        return (combine(a, b, params),)

    @impl(npu.PoolOp)
    def run_pool(self, interpreter: Interpreter, op: npu.PoolOp, args: PythonValues) -> PythonValues:
        (x,) = args
        pool = pooling.max_pool if op.kind.data is npu.PoolKind.MAX else pooling.average_pool
        top, left, _, _ = op.pads.get_values()
        _, height, width, _ = npu.shape_of(op.output)
        low, high = _integer(op.act_min), _integer(op.act_max)
        return (pool(x, _pair(op.kernel), _pair(op.stride), (top, left), (height, width), low, high),)

    @impl(npu.PadOp)
    def run_pad(self, interpreter: Interpreter, op: npu.PadOp, args: PythonValues) -> PythonValues:
        (x,) = args
        top, left, bottom, right = op.pads.get_values()
        return (np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=_integer(op.zero)),)

    @impl(npu.ReduceOp)
    def run_reduce(self, interpreter: Interpreter, op: npu.ReduceOp, args: PythonValues) -> PythonValues:
        (x,) = args
        low, high = _integer(op.act_min), _integer(op.act_max)
        if op.scale is None:
            return (np.clip(x.max(axis=(1, 2), keepdims=True), low, high).astype(x.dtype),)
        zeros = _integer(op.in_zero), _integer(op.out_zero)
        return (mean_codes(x, (1, 2), *op.scale.values, *zeros, low, high, storage(op.output)),)

    @impl(npu.ArgMaxOp)
    def run_argmax(self, interpreter: Interpreter, op: npu.ArgMaxOp, args: PythonValues) -> PythonValues:
        (x,) = args
        return (np.asarray(x.argmax(axis=-1), storage(op.output)),)

    @impl(npu.PositionOp)
    def run_position(self, interpreter: Interpreter, op: npu.PositionOp, args: PythonValues) -> PythonValues:
        (x,) = args
        return (x[[_integer(op.index)]].clip(0, _integer(op.highest)).astype(storage(op.output)),)

    @impl(npu.GatherOp)
    def run_gather(self, interpreter: Interpreter, op: npu.GatherOp, args: PythonValues) -> PythonValues:
        table, indices = args
        return (np.take_along_axis(table, indices[:, None, :, None], axis=2),)

    @impl(npu.ResizeOp)
    def run_resize(self, interpreter: Interpreter, op: npu.ResizeOp, args: PythonValues) -> PythonValues:
        (x,) = args
        _, height, width, _ = npu.shape_of(op.output)
        bilinear = op.kind.data is npu.ResizeKind.BILINEAR
        resize = resize_lines.resize_bilinear_by_lines if bilinear else resize_lines.resize_nearest_by_lines
        return (resize(x, (height, width), op.lines),)

    @impl(npu.SoftmaxOp)
    def run_softmax(self, interpreter: Interpreter, op: npu.SoftmaxOp, args: PythonValues) -> PythonValues:
        (x,) = args
        if op.table is not None:
            return (int16.softmax16_codes(x, *op.scale.values, codes(op.table, "int16").astype(np.int64)),)
        return (softmax_codes(x, *op.scale.values, _integer(op.diff_min), storage(op.output)),)

    @impl(npu.LstmOp)
    def run_lstm(self, interpreter: Interpreter, op: npu.LstmOp, args: PythonValues) -> PythonValues:
        x, hidden, cell = args
        if not op.time_major:
            x = x.swapaxes(0, 1)
        prepared, steps = _lstm_cell(op), []
        for inputs in map(prepared.inputs, x):
            hidden, cell = prepared.step(inputs, hidden, cell)
            steps.append(hidden)
        out = np.stack(steps)
        return np.ascontiguousarray(out if op.time_major else out.swapaxes(0, 1)), hidden, cell

    @impl(npu.LutOp)
    def run_lut(self, interpreter: Interpreter, op: npu.LutOp, args: PythonValues) -> PythonValues:
        (x,) = args
        table = codes(op.table, npu.dtype_of(op.output))
        if x.dtype.itemsize == 1:
            return (lut.apply(table, x),)
        return (int16.look_up(table.astype(np.int64), x).astype(table.dtype),)

    @impl(npu.SigmoidOp)
    def run_sigmoid(self, interpreter: Interpreter, op: npu.SigmoidOp, args: PythonValues) -> PythonValues:
        (x,) = args
        params = int16.SigmoidParams(_integer(op.multiplier), _integer(op.shift))
        function = int16.logistic16 if op.kind.data is npu.SigmoidKind.LOGISTIC else int16.tanh16
        entries = codes(op.table, "uint16").astype(np.int64)
        return (function(x, params, entries),)

    @impl(npu.ScaleOp)
    def run_scale(self, interpreter: Interpreter, op: npu.ScaleOp, args: PythonValues) -> PythonValues:
        (x,) = args
        clamp = _integer(op.act_min), _integer(op.act_max)
        zeros = _integer(op.in_zero), _integer(op.out_zero)
        params = elementwise.ScaleParams(*zeros, *op.scale.values, *clamp, str(storage(op.output)))
        return (elementwise.scale_quantized(x, params),)

    @impl(npu.ReshapeOp)
    def run_reshape(self, interpreter: Interpreter, op: npu.ReshapeOp, args: PythonValues) -> PythonValues:
        (x,) = args
        return (x.reshape(npu.shape_of(op.output)),)

    @impl(npu.MoveOp)
    def run_move(self, interpreter: Interpreter, op: npu.MoveOp, args: PythonValues) -> PythonValues:
        fill = 0 if op.fill is None else _integer(op.fill)
        result = np.full(npu.shape_of(op.output), fill, storage(op.output))
        flat = result.reshape(-1)
        for copy in op.strided_copies():
            source, target = np.array([copy.start]), np.array([copy.to])
            for size, read, write in zip(copy.sizes, copy.reads, copy.writes, strict=True):
                source = (source[:, None] + np.arange(size) * read).reshape(-1)
                target = (target[:, None] + np.arange(size) * write).reshape(-1)
            flat[target] = np.asarray(args[copy.source]).reshape(-1)[source]
        return (result,)
