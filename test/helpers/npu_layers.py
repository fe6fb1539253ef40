"""Programs of tensor-level ``npu`` operations, made from numbers, compiled, simulated and computed by numerics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.interpreter import Interpreter
from xdsl.ir import Block, Region, SSAValue

from odc_mlir import pipelines, targets
from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import info_of
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_program import ProgramOp, programs
from odc_mlir.dialects.odc import TARGET, TargetAttr, TargetChoice, YieldOp
from odc_mlir.dialects.quant import Uniform, UniformQuantizedType
from odc_mlir.emitter.program import emit_program
from odc_mlir.interpreters.module import NpuFunctions
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.simulator import Counters, load, simulate
from odc_mlir.support.locations import name_loc
from odc_mlir.universe import make_context

Array = NDArray[Any]
Build = Callable[["Body"], SSAValue | Sequence[SSAValue]]
CODES = {"int8": npu.CodeType.I8, "uint8": npu.CodeType.U8}


SECOND_ZEROS = {"int8": -9, "uint8": 130, "int16": 0}  # of constants and of every input but the first


def tensor_type(shape: Sequence[int], dtype: str = "int8", zero: int = 3) -> TensorType[Any]:
    """A quantised tensor type with scale 0.5; the zero point of int16 is 0."""
    uniform = Uniform(dtype, QuantParams((0.5,), (0 if dtype == "int16" else zero,)), False, *DTYPES[dtype].range)
    return TensorType(UniformQuantizedType(uniform), list(shape))


def zero_of(value: SSAValue) -> int:
    """Return the zero point in the type of ``value``."""
    quant = info_of(value).quant
    assert quant is not None
    return quant.zero_point


class Body:
    """The operations of a segment under construction. Random values come from one seed."""

    def __init__(self, block: Block, seed: int) -> None:
        self.block = block
        self.random = np.random.default_rng(seed)
        self.count = 0

    def add(self, op: npu.NpuTensorOp) -> SSAValue:
        """Append an operation; its result is named by number."""
        op.location = name_loc(f"t{self.count}")
        self.count += 1
        self.block.add_op(op)
        return op.results[0]

    def codes(self, count: int, dtype: str) -> BlobAttr:
        low, high = DTYPES[dtype].range
        values = self.random.integers(low, high + 1, count, dtype=DTYPES[dtype].numpy)
        return BlobAttr.of(values.tobytes())

    def conv(
        self,
        x: SSAValue,
        channels: int,
        *,
        kernel: tuple[int, int] = (1, 1),
        stride: tuple[int, int] = (1, 1),
        dilation: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        depthwise: bool = False,
        uniform: bool = False,
    ) -> SSAValue:
        """A convolution with random weights, biases and multipliers (one for all channels if ``uniform``)."""
        batch, height, width, depth = npu.shape_of(x)
        dtype = npu.dtype_of(x)
        size = [
            (n + before + after - ((k - 1) * d + 1)) // s + 1
            for n, before, after, k, d, s in zip(
                (height, width), pads[:2], pads[2:], kernel, dilation, stride, strict=True
            )
        ]
        products = kernel[0] * kernel[1] * (1 if depthwise else depth)
        exponent = -6 - int(np.log2(products) / 2)
        exponents = np.full(channels, exponent) if uniform else exponent + self.random.integers(-1, 2, channels)
        low = 1 << 30
        multipliers = np.full(channels, low) if uniform else self.random.integers(low, (1 << 31) - 1, channels)
        clamp = (-100, 120) if dtype == "int8" else (5, 250)
        return self.add(
            npu.ConvOp(
                x,
                tensor_type((batch, *size, channels), dtype),
                depthwise=depthwise,
                kernel=kernel,
                stride=stride,
                dilation=dilation,
                pads=pads,
                weights=self.codes(products * channels, dtype),
                weight_type=CODES[dtype],
                in_zero=zero_of(x),
                weight_zero=0 if dtype == "int8" else 119,
                out_zero=3,
                clamp=clamp,
                bias=npu.ChannelsAttr.of(self.random.integers(-5000, 5000, channels)),
                multiplier=npu.ChannelsAttr.of(multipliers),
                exponent=npu.ChannelsAttr.of(exponents),
            )
        )

    def matmul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product of two matrices, image by image."""
        images, _, rows, depth = npu.shape_of(a)
        result = tensor_type((images, 1, rows, npu.shape_of(b)[3]), npu.dtype_of(a))
        left, right = npu.dtype_of(a), npu.dtype_of(b)
        zeros = (zero_of(a), zero_of(b), 0 if left == "int16" else 3)
        bits = 6 + (8 if right == "int16" else 0) + int(np.log2(depth) / 2)
        scale = npu.ScaleAttr.of(1_500_000_000, -bits)
        clamp = {"int8": (-100, 120), "uint8": (5, 250), "int16": (-30_000, 32_000)}[left]
        return self.add(npu.MatmulOp(a, b, result, zeros=zeros, scale=scale, clamp=clamp))

    def pool(
        self,
        kind: npu.PoolKind,
        x: SSAValue,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int],
    ) -> SSAValue:
        batch, height, width, depth = npu.shape_of(x)
        size = [
            (n + before + after - k) // s + 1
            for n, before, after, k, s in zip((height, width), pads[:2], pads[2:], kernel, stride, strict=True)
        ]
        result = tensor_type((batch, *size, depth), npu.dtype_of(x), zero_of(x))
        clamp = DTYPES[npu.dtype_of(x)].range
        return self.add(npu.PoolOp(kind, x, result, kernel=kernel, stride=stride, pads=pads, clamp=clamp))

    def elementwise(self, kind: npu.ElementwiseKind, a: SSAValue, b: SSAValue) -> SSAValue:
        shape = np.broadcast_shapes(npu.shape_of(a), npu.shape_of(b))
        dtype = npu.dtype_of(a)
        scale, low = npu.ScaleAttr.of(1 << 30, 0), npu.ScaleAttr.of(1 << 30, -19)
        scales: dict[str, Any] = {"clamp": DTYPES[dtype].range}
        zeros = (zero_of(a), zero_of(b), 1)
        if kind in (npu.ElementwiseKind.ADD, npu.ElementwiseKind.SUB):
            scales |= {"a_scale": scale, "b_scale": scale, "out_scale": low, "left_shift": 20, "zeros": zeros}
        elif kind is npu.ElementwiseKind.MUL:
            scales |= {"out_scale": npu.ScaleAttr.of(1 << 30, -5), "zeros": zeros}
        return self.add(npu.ElementwiseOp(kind, a, b, tensor_type(shape, dtype, 1), **scales))

    def constant(self, shape: Sequence[int], dtype: str = "int8", zero: int | None = None) -> SSAValue:
        result = tensor_type(shape, dtype, SECOND_ZEROS[dtype] if zero is None else zero)
        return self.add(npu.ConstantOp(self.codes(int(np.prod(shape)), dtype), result))

    def reduce(self, kind: npu.ReduceKind, x: SSAValue) -> SSAValue:
        batch, height, width, channels = npu.shape_of(x)
        dtype = npu.dtype_of(x)
        scale = None if kind is npu.ReduceKind.MAX else npu.ScaleAttr.of((1 << 31) // (height * width + 1), 0)
        result = tensor_type((batch, 1, 1, channels), dtype, zero_of(x) if scale is None else 1)
        zeros = (0, 0) if scale is None else (zero_of(x), 1)
        return self.add(npu.ReduceOp(kind, x, result, zeros=zeros, scale=scale, clamp=DTYPES[dtype].range))

    def softmax(self, x: SSAValue) -> SSAValue:
        scale = npu.ScaleAttr.of(1 << 30, 22)
        return self.add(npu.SoftmaxOp(x, x.type, scale=scale, diff_min=-248))

    def lut(self, x: SSAValue) -> SSAValue:
        return self.add(npu.LutOp(x, x.type, table=self.codes(256, npu.dtype_of(x))))

    def scale(self, x: SSAValue) -> SSAValue:
        clamp = DTYPES[npu.dtype_of(x)].range
        scale = npu.ScaleAttr.of(1_500_000_000, 0)
        result = tensor_type(npu.shape_of(x), npu.dtype_of(x), 7)
        return self.add(npu.ScaleOp(x, result, zeros=(zero_of(x), 7), scale=scale, clamp=clamp))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return self.add(npu.ReshapeOp(x, tensor_type(shape, npu.dtype_of(x), zero_of(x))))


def make_module(
    build: Build,
    *shapes: Sequence[int],
    dtype: str = "int8",
    seed: int = 0,
    target: str = "npu-256",
    memory: str = "flash",
    sram_limit: int | None = None,
    prefer: str = "performance",
) -> ModuleOp:
    """A module with one program; ``build`` makes its results from the inputs of the given shapes."""
    types = [tensor_type(shape, dtype, SECOND_ZEROS[dtype] if number else 3) for number, shape in enumerate(shapes)]
    block = Block(arg_types=types)
    for number, argument in enumerate(block.args):
        argument.location = name_loc(f"in{number}")
    results = build(Body(block, seed))
    outputs = [results] if isinstance(results, SSAValue) else list(results)
    last = YieldOp(*outputs)
    last.location = name_loc("yield")
    block.add_op(last)
    module = ModuleOp([ProgramOp("segment_0", types, [value.type for value in outputs], Region(block))])
    module.attributes[TARGET] = TargetAttr(TargetChoice(target, memory, prefer, sram_limit))
    return module


def program_of(module: ModuleOp) -> ProgramOp:
    """The module's program."""
    (program,) = programs(module).values()
    return program


def schedule(module: ModuleOp, stage: str = "npu-alloc") -> ProgramOp:
    """Take the module's program through the back end."""
    pipelines.run(make_context(), module, stage, after="npu")
    return program_of(module)


def binary(module: ModuleOp) -> bytes:
    """The ``.npu`` file of the module's program, which is scheduled on the way."""
    choice = module.attributes[TARGET]
    assert isinstance(choice, TargetAttr)
    return emit_program(schedule(module), targets.load(choice.data.target), choice.data.memory)


def inputs_of(module: ModuleOp, seed: int = 1) -> list[Array]:
    """Random codes for the program's inputs."""
    random = np.random.default_rng(seed)
    arrays = []
    for value in program_of(module).block.args:
        low, high = DTYPES[npu.dtype_of(value)].range
        arrays.append(random.integers(low, high + 1, npu.shape_of(value), dtype=DTYPES[npu.dtype_of(value)].numpy))
    return arrays


def expected(module: ModuleOp, inputs: Sequence[Array]) -> list[Array]:
    """What the tensor operations mean."""
    interpreter = Interpreter(module)
    interpreter.register_implementations(NpuFunctions())
    block = program_of(module).block
    values: dict[SSAValue, Array] = dict(zip(block.args, inputs, strict=True))
    for op in block.ops:
        if isinstance(op, YieldOp):
            return [values[value] for value in op.operands]
        values |= zip(op.results, interpreter.run_op(op, tuple(values[v] for v in op.operands)), strict=True)
    raise AssertionError("a body ends in its yield")


def check(module: ModuleOp) -> Counters:
    """Schedule, simulate and compare with the operations' meaning, bit for bit."""
    inputs = inputs_of(module)
    wanted = expected(module, inputs)
    result = simulate(load(binary(module)), inputs)
    for got, want in zip(result.outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return result.counters


def small_target(folder: Path, **local: int) -> str:
    """The path of a target like npu-256 with other local memories, by the keys of its ``[local]`` table."""
    text = (resources.files(targets) / "npu-256.toml").read_text("utf-8").replace('"npu-256"', '"npu-small"')
    for key, value in local.items():
        text, found = re.subn(rf"^{key} = [0-9_]+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert found == 1, key
    path = folder / "npu-small.toml"
    path.write_text(text, "utf-8")
    return str(path)
