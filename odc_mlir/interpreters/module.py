"""Interpreter of modules at any stage, as a reference to compare stages. It is not the runtime.

Values are numpy arrays of the tensors' storage types, and an omitted operand is None. The ``npu`` stage, with these
functions, and the ``circle`` stage, with the host kernels, give bit-identical results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    OpImplResult,
    PythonValues,
    ReturnedValues,
    TerminatorValue,
    impl,
    impl_callable,
    impl_terminator,
    register_impls,
)
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import InterpretationError

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, UndefinedOp, VariableOp, info_of, node_of
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_base import CODE_TYPES
from odc_mlir.dialects.npu_layers import pair
from odc_mlir.dialects.npu_program import programs
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.errors import UnsupportedError
from odc_mlir.numerics import convolution, elementwise, int16, lstm, lut, pooling, resize
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.reduction import codes_mean
from odc_mlir.numerics.softmax import softmax_codes
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.context import Context
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.microscaling import prepare_kernel
from odc_mlir.support.locations import op_name, value_name


@register_impls
class CircleFunctions(InterpreterFunctions):
    """Implementations of constants and variables, and one for all operators of a module.

    Kernels are prepared once per operation. Variables keep the contents between runs.
    """

    def __init__(self, module: ModuleOp) -> None:
        self._classes = {type(op) for op in module.walk() if isinstance(op, CircleOp)}
        self._prepared: dict[Operation, tuple[Node, Execute]] = {}
        self._variables: dict[Operation, Array] = {}
        self._context = Context()

    def _impls(self) -> Iterator[tuple[type[Operation], Any]]:  # type: ignore[override]
        yield from super()._impls()
        for cls in self._classes:
            yield cls, _run_operator

    @impl(ConstOp)
    def run_const(self, interpreter: Interpreter, op: ConstOp, args: PythonValues) -> PythonValues:
        return (info_of(op.result).array(),)

    @impl(NoneOp)
    def run_none(self, interpreter: Interpreter, op: NoneOp, args: PythonValues) -> PythonValues:
        return (None,)

    @impl(UndefinedOp)
    def run_undefined(self, interpreter: Interpreter, op: UndefinedOp, args: PythonValues) -> PythonValues:
        raise InterpretationError(f"nothing computes tensor {value_name(op.result)!r}")

    @impl(VariableOp)
    def run_variable(self, interpreter: Interpreter, op: VariableOp, args: PythonValues) -> PythonValues:
        if op not in self._variables:
            self._variables[op] = initial_contents(info_of(op.result))
        return (self._variables[op],)

    def prepared(self, interpreter: Interpreter, op: CircleOp) -> tuple[Node, Execute]:
        """Return the node of an operator and the prepared kernel. Raises UnsupportedError if it has no kernel."""
        if op not in self._prepared:
            if not op.SPEC.kernel:
                raise UnsupportedError("this operator cannot be run", op=op.SPEC.name, tensor=op_name(op))
            if op.unverified is not None:
                raise UnsupportedError(op.unverified, op=op.SPEC.name, tensor=op_name(op))
            node = node_of(op)
            node.context, node.place = self._context, (0, len(self._prepared))
            node.subgraphs = {symbol: partial(_call, interpreter, str(symbol)) for symbol in node.callees}
            self._prepared[op] = node, prepare_kernel(node)
        return self._prepared[op]


def _run_operator(
    functions: CircleFunctions, interpreter: Interpreter, op: CircleOp, args: PythonValues
) -> OpImplResult:
    node, kernel = functions.prepared(interpreter, op)
    # As in the executor, only operators that write a variable get the variable itself. All others get a copy.
    written = node.mutated
    operands = [
        value.copy() if (position in written) != _is_variable(op.operands[position]) else value
        for position, value in enumerate(args)
    ]
    return OpImplResult(tuple(kernel(operands)), None)


def _is_variable(value: SSAValue) -> bool:
    if isinstance(value, BlockArgument) and isinstance(segment := value.block.parent_op(), SegmentOp):
        value = segment.operands[value.index]
    return isinstance(value.owner, VariableOp)


def _call(interpreter: Interpreter, name: str, values: Sequence[Array | None]) -> Sequence[Array]:
    results: PythonValues = interpreter.call_op(name, tuple(values))
    return results


_DTYPE_OF_CODES = {code_type: dtype for dtype, code_type in CODE_TYPES.items()}


def storage(value: SSAValue) -> np.dtype[Any]:
    """Return the storage dtype of a tensor value."""
    return DTYPES[npu.dtype_of(value)].numpy


def codes(blob: BlobAttr, dtype: str) -> Array:
    """Return the codes in a blob as a flat array."""
    return np.frombuffer(blob.bytes, DTYPES[dtype].numpy)


def _integer(attribute: npu.Int) -> int:
    return attribute.value.data


def _lstm_cell(op: npu.LstmOp) -> lstm.IntegerLstm:
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
        _integer(op.product_zero),
        _integer(op.product_zero),
    )
    coupled: list[lstm.Gate | None] = [None] * (len(lstm.GATES) - op.gates)
    return lstm.IntegerLstm([*coupled, *gates], cell)


@register_impls
class NpuFunctions(InterpreterFunctions):
    """Implementations of the operations on tensors in the ``npu`` dialect."""

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
        window = convolution.Window(pair(op.kernel), pair(op.stride), pair(op.dilation), pads)
        in_zero, result = _integer(op.in_zero), storage(op.output)
        low, high = npu.code_range(npu.dtype_of(op.input))
        largest = high - low  # bounds |x - zero point|
        prepare = convolution.depthwise_filter if op.depthwise else convolution.conv_filter
        prepared = prepare(weights, largest, sums=sums_dtype)
        return (convolution.conv2d(x, prepared, window, in_zero=in_zero, finish=finish, dtype=result),)

    @impl(npu.MatmulOp)
    def run_matmul(self, interpreter: Interpreter, op: npu.MatmulOp, args: PythonValues) -> PythonValues:
        zeros = _integer(op.a_zero), _integer(op.b_zero)
        images = npu.shape_of(op.output)[0]
        a, b = (
            np.repeat(x, images // len(x), axis=0).astype(np.int32) - zero for x, zero in zip(args, zeros, strict=True)
        )
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
        windows = pooling.PoolWindows(pair(op.kernel), pair(op.stride), (top, left), (height, width))
        return (pool(x, windows, low, high),)

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
        return (codes_mean(x.shape, (1, 2), op.scale.values, *zeros, (low, high), storage(op.output))(x),)

    @impl(npu.ArgMaxOp)
    def run_argmax(self, interpreter: Interpreter, op: npu.ArgMaxOp, args: PythonValues) -> PythonValues:
        (x,) = args
        return (np.asarray(x.argmax(axis=-1), storage(op.output)),)

    @impl(npu.UpdateOp)
    def run_update(self, interpreter: Interpreter, op: npu.UpdateOp, args: PythonValues) -> PythonValues:
        tables, rows, position = args
        first = position[_integer(op.index)].clip(0, tables.shape[1] - rows.shape[1])
        found = np.concatenate([tables[:, :first], rows, tables[:, first + rows.shape[1] :]], axis=1)
        return (found,)

    @impl(npu.GatherOp)
    def run_gather(self, interpreter: Interpreter, op: npu.GatherOp, args: PythonValues) -> PythonValues:
        table, indices = args
        return (np.take_along_axis(table, indices[:, None, :, None], axis=2),)

    @impl(npu.ResizeOp)
    def run_resize(self, interpreter: Interpreter, op: npu.ResizeOp, args: PythonValues) -> PythonValues:
        (x,) = args
        _, height, width, _ = npu.shape_of(op.output)
        bilinear = op.kind.data is npu.ResizeKind.BILINEAR
        compute = resize.resize_bilinear_by_lines if bilinear else resize.resize_nearest_by_lines
        return (compute(x, (height, width), op.lines),)

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
            hidden, cell = prepared.step(inputs, (hidden, cell))
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


@register_impls
class StructureFunctions(InterpreterFunctions):
    """Implementations of functions and segments. A segment runs its program if that works on tensors."""

    def __init__(self, *, run_target: bool) -> None:
        self.run_target = run_target

    @impl_callable(FuncOp)
    def run_function(self, interpreter: Interpreter, op: FuncOp, args: PythonValues) -> PythonValues:
        return interpreter.run_ssacfg_region(op.body, args, op.sym_name.data)

    @impl_terminator(ReturnOp)
    def run_return(
        self, interpreter: Interpreter, op: ReturnOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()

    @impl(SegmentOp)
    def run_segment(self, interpreter: Interpreter, op: SegmentOp, args: PythonValues) -> PythonValues:
        program = programs(interpreter.module).get(op.sym_name.data) if self.run_target else None
        if program is None or not isinstance(program.block.last_op, YieldOp):
            return interpreter.run_ssacfg_region(op.circle, args, op.sym_name.data)
        results = interpreter.run_ssacfg_region(program.body, args, op.sym_name.data)
        for value, result in zip(op.ending.operands, results, strict=True):
            if isinstance(value, BlockArgument):  # new contents of a variable
                args[value.index][...] = result
        return results

    @impl_terminator(YieldOp)
    def run_yield(
        self, interpreter: Interpreter, op: YieldOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()


def make_interpreter(
    module: ModuleOp, *, run_target: bool = True, listeners: Sequence[Interpreter.Listener] = ()
) -> Interpreter:
    """Return an interpreter of ``module``. It keeps the contents of variables between runs.

    If ``run_target``, segments with programs on tensors run the programs instead of the circle bodies.
    """

    interpreter = Interpreter(module, listeners=tuple(listeners))
    interpreter.register_implementations(StructureFunctions(run_target=run_target))
    interpreter.register_implementations(CircleFunctions(module))
    interpreter.register_implementations(NpuFunctions())
    return interpreter
