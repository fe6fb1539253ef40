"""Random operators on codes, many side by side in one model, with inputs at every edge of their range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.models import ModelBuilder, Shape, model_bytes
from odc_mlir.formats.circle.model import Quantization

Array = np.ndarray
Quant = tuple[float, int]

ACTIVATIONS = ("none", "relu", "relu6", "relu_n1_to_1")
UNARY = ("LOGISTIC", "TANH", "RELU", "RELU6", "LEAKY_RELU", "ABS", "NEG", "HARD_SWISH", "ELU")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL")
_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


class RandomOperators:
    """A model of ``count`` operators; ``inputs`` gives arrays for it.

    ``wide``: all on codes of int16, some with weights of int16, and operators that move codes among them.
    """

    def __init__(self, seed: int, count: int, *, wide: bool = False) -> None:
        self.wide = wide
        self.random = np.random.default_rng(seed)
        self.builder = ModelBuilder()
        self.given: list[int] = []
        self.rows: dict[int, int] = {}  # of inputs that are numbers of rows: how many there are
        self.names: list[str] = []
        results: list[int] = []
        kinds = (self.convolution, self.depthwise, self.connected, self.arithmetic, self.pool, self.mean, self.unary,
                 self.softmax, self.requantize, self.resize, self.compare, self.extreme, self.grouped,
                 self.transposed, self.matrices, self.squared,
                 self.search)  # fmt: skip
        kinds = (*kinds, self.concatenation, self.slopes, self.extremes, self.gathered)
        if wide:
            kinds = (*(kind for kind in kinds if kind != self.compare), self.padding, self.slice)
        for number in range(count):
            self.dtype = "int16" if wide else str(self.random.choice(["int8", "int8", "uint8", "int16"]))
            kind = kinds[(seed * count + number) % len(kinds)]
            self.names.append(f"{kind.__name__} of {self.dtype}")
            results.append(kind())
        self.model = model_bytes(self.builder.finish(self.given, results))

    def inputs(self, seed: int) -> list[Array]:
        """Random codes, some of them at the ends."""
        random = np.random.default_rng(seed)
        arrays = []
        for index in self.given:
            tensor = self.builder.subgraph.tensors[index]
            low, high = (0, self.rows[index] - 1) if index in self.rows else _RANGES[tensor.dtype]
            codes = random.integers(low, high + 1, tensor.shape)
            ends = random.random(codes.shape)
            codes = np.where(ends < 0.1, low, np.where(ends > 0.9, high, codes))
            arrays.append(codes.astype(tensor.dtype))
        return arrays

    def size(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.size(0, len(choices) - 1)]

    def scale(self) -> float:
        return float(10 ** self.random.uniform(-3, -0.5)) / (256 if self.dtype == "int16" else 1)

    def quant(self) -> Quant:
        low, high = _RANGES[self.dtype]
        zero = 0 if self.dtype == "int16" else self.pick([low, high, 0 if low else 128, self.size(low, high)])
        return self.scale(), int(zero)

    def input(self, shape: Shape, quant: Quant | None = None) -> tuple[int, Quant]:
        quant = quant or self.quant()
        self.given.append(self.builder.tensor(f"x{len(self.given)}", shape, self.dtype, quant=quant))
        return self.given[-1], quant

    def operator(
        self, name: str, operands: list[int], shape: Shape, quant: Quant | None, dtype: str = "", **options: Any
    ) -> int:
        result = self.builder.tensor(f"y{len(self.builder.subgraph.tensors)}", shape, dtype or self.dtype, quant=quant)
        self.builder.operator(name, operands, [result], options=options)
        return result

    def constant(self, array: Array, quant: Quantization | None = None) -> int:
        index = self.builder.tensor(f"c{len(self.builder.subgraph.tensors)}", array.shape, str(array.dtype), data=array)
        self.builder.subgraph.tensors[index].quantization = quant
        return index

    def weights(self, shape: Shape, axis: int, x: Quant) -> list[int]:
        """Weights and bias, per channel or not."""
        channels = shape[axis]
        count = self.pick([1, channels])
        scales = (self.random.uniform(0.2, 1, count) * 0.02).astype(np.float32)
        low, high = (0, 255) if self.dtype == "uint8" else (-127, 127)
        zeros: Any = self.size(low, high) if self.dtype == "uint8" else 0
        if zeros and self.random.random() < 0.5:  # by channel, the ends among them
            zeros = np.where(self.random.random(count) < 0.2, 255, self.random.integers(low, high + 1, count))
        values = self.random.integers(low, high + 1, shape).astype("uint8" if self.dtype == "uint8" else "int8")
        if self.random.random() < 0.2:
            values[:] = self.pick([low, high])
        if self.wide and self.random.random() < 0.3:
            values, scales = (values.astype(np.int16) * 256 + 77).astype(np.int16), scales / np.float32(256)
        quant = Quantization(scales, np.zeros(count, np.int64) + zeros, axis if count > 1 else 0)
        wide = self.dtype == "int16" and self.random.random() < 0.7
        bias = self.random.integers(-(1 << 14), 1 << 14, channels).astype(np.int64 if wide else np.int32)
        of_bias = Quantization(scales * np.float32(x[0]), np.zeros(count, np.int64), 0)
        return [self.constant(values, quant), self.constant(bias, of_bias)]

    def result_quant(self, depth: int) -> Quant:
        """One of a result that is neither always saturated nor always the same code."""
        _, zero = self.quant()
        return self.scale() * 4 * depth**0.5, zero

    def window(self) -> tuple[Shape, Shape, Shape, dict[str, Any]]:
        """Sizes of image and kernel, those of the result, and the options."""
        image, kernel = (self.size(1, 9), self.size(1, 9)), (self.size(1, 4), self.size(1, 4))
        stride = self.size(1, 3), self.size(1, 3)
        same = any(k > i for k, i in zip(kernel, image, strict=True)) or self.random.random() < 0.5
        result = tuple(-(-i // s) if same else (i - k) // s + 1 for i, k, s in zip(image, kernel, stride, strict=True))
        options = {"padding": "same" if same else "valid", "stride_h": stride[0], "stride_w": stride[1]}
        return image, kernel, result, options

    def convolution(self) -> int:
        image, kernel, result, options = self.window()
        batch, channels, outputs = self.size(1, 2), self.size(1, 37), self.size(1, 40)
        x, quant = self.input((batch, *image, channels))
        operands = [x, *self.weights((outputs, *kernel, channels), 0, quant)]
        act, depth = self.pick(ACTIVATIONS), channels * kernel[0] * kernel[1]
        return self.operator("CONV_2D", operands, (batch, *result, outputs), self.result_quant(depth),
                             fused_activation_function=act, **options)  # fmt: skip

    def grouped(self) -> int:
        image, kernel, result, options = self.window()
        groups, channels, outputs = self.size(2, 4), self.size(1, 6), self.size(1, 6)
        x, quant = self.input((1, *image, groups * channels))
        operands = [x, *self.weights((groups * outputs, *kernel, channels), 0, quant)]
        depth = channels * kernel[0] * kernel[1]
        return self.operator("CONV_2D", operands, (1, *result, groups * outputs), self.result_quant(depth), **options)

    def transposed(self) -> int:
        image, kernel = (self.size(1, 6), self.size(1, 6)), (self.size(1, 4), self.size(1, 4))
        stride, padding = (self.size(1, 3), self.size(1, 3)), self.pick(["same", "valid"])
        channels, outputs = self.size(1, 20), self.size(1, 20)
        sizes = tuple(
            i * s if padding == "same" else (i - 1) * s + max(k, s)
            for i, k, s in zip(image, kernel, stride, strict=True)
        )
        x, quant = self.input((1, *image, channels))
        shape = (1, *sizes, outputs)
        operands = [self.constant(np.array(shape, np.int32)), *self.weights((outputs, *kernel, channels), 0, quant)]
        return self.operator("TRANSPOSE_CONV", [*operands[:2], x, operands[2]], shape,
                             self.result_quant(channels * kernel[0] * kernel[1]), padding=padding,
                             stride_h=stride[0], stride_w=stride[1])  # fmt: skip

    def matrices(self) -> int:
        """A product of two computed matrices, each transposed or not, leading axes of 1 broadcast."""
        rows, depth, columns = self.size(1, 30), self.size(1, 40), self.size(1, 30)
        lead = [self.size(1, 3) for _ in range(self.size(0, 2))]
        left, right = ([self.pick([1, size, size]) for size in lead] for _ in range(2))
        flips = self.pick([False, True]), self.pick([False, True])
        a, scale = self.input((*left, depth, rows) if flips[0] else (*left, rows, depth))
        b, other = self.input((*right, columns, depth) if flips[1] else (*right, depth, columns))
        shape = (*(max(sizes) for sizes in zip(left, right, strict=True)), rows, columns)
        quant = scale[0] * other[0] * depth**0.5 * (1000 if self.dtype == "int16" else 60), self.quant()[1]
        return self.operator("BATCH_MATMUL", [a, b], shape, quant, adjoint_lhs=flips[0], adjoint_rhs=flips[1])

    def depthwise(self) -> int:
        image, kernel, result, options = self.window()
        channels, times = self.size(1, 37), self.pick([1, 1, 2, 3])
        x, quant = self.input((1, *image, channels))
        operands = [x, *self.weights((1, *kernel, channels * times), 3, quant)]
        return self.operator("DEPTHWISE_CONV_2D", operands, (1, *result, channels * times),
                             self.result_quant(kernel[0] * kernel[1]), depth_multiplier=times,
                             fused_activation_function=self.pick(ACTIVATIONS), **options)  # fmt: skip

    def connected(self) -> int:
        rows, depth, outputs = self.size(1, 9), self.pick([1, 7, 40, 600]), self.size(1, 40)
        x, quant = self.input((rows, depth))
        operands = [x, *self.weights((outputs, depth), 0, quant)]
        return self.operator("FULLY_CONNECTED", operands, (rows, outputs), self.result_quant(depth))

    def arithmetic(self) -> int:
        shape = tuple(self.size(1, 5) for _ in range(self.size(1, 4)))
        other = tuple(size if self.random.random() < 0.6 else 1 for size in shape)
        operands = [self.input(part)[0] for part in (shape, other)]
        self.random.shuffle(operands)
        options: dict[str, Any] = {"fused_activation_function": self.pick(ACTIVATIONS)}
        return self.operator(self.pick(["ADD", "SUB", "MUL"]), operands, shape, self.quant(), **options)

    def squared(self) -> int:
        shape = (self.size(1, 5), self.size(1, 20))
        x, quant = self.input(shape)
        other, _ = self.input(self.pick([shape, shape[1:], (1,)]), quant if self.random.random() < 0.5 else None)
        reach = quant[0] * (1 << 16 if self.dtype == "int16" else 256)
        half = (1 << 15) if self.dtype == "int16" else 128
        result = float(reach * reach / half * self.random.uniform(0.1, 1)), self.quant()[1]
        return self.operator("SQUARED_DIFFERENCE", [x, other], shape, result)

    def extreme(self) -> int:
        shape, quant = (self.size(1, 5), self.size(1, 20)), self.quant()
        if self.dtype == "int16" and not self.wide:
            self.dtype = "int8"
            quant = self.quant()
        operands = [self.input(part, quant)[0] for part in (shape, shape[1:])]
        return self.operator(self.pick(["MAXIMUM", "MINIMUM"]), operands, shape, quant)

    def compare(self) -> int:
        if self.dtype == "int16":
            self.dtype = "uint8"
        shape = (self.size(1, 5), self.size(1, 20))
        operands = [self.input(part)[0] for part in (shape, shape[1:])]
        return self.operator(self.pick(COMPARISONS), operands, shape, None, "bool")

    def slopes(self) -> int:
        shape = (self.size(1, 4), self.size(1, 5), self.size(1, 20))
        x, quant = self.input(shape)
        alpha, slope = self.input(self.pick([shape[1:], shape[2:], (1,)]))
        reach = quant[0] * max(1.0, slope[0] * (1 << 15 if self.dtype == "int16" else 200))
        return self.operator("PRELU", [x, alpha], shape, (float(reach * self.random.uniform(0.3, 1)), self.quant()[1]))

    def extremes(self) -> int:
        shape = tuple(self.size(1, 6) for _ in range(4))
        axes = np.arange(self.size(0, 3), 4, dtype=np.int32)[: self.size(1, 2)]
        x, quant = self.input(shape)
        result = tuple(1 if i in axes else size for i, size in enumerate(shape))
        name = self.pick(["REDUCE_MAX", "REDUCE_MIN"])
        return self.operator(name, [x, self.constant(axes)], result, quant, keep_dims=True)

    def search(self) -> int:
        shape = tuple(self.size(1, 12) for _ in range(self.size(1, 4)))
        axis = self.size(0, len(shape) - 1)
        x, _ = self.input(shape)
        place = self.constant(np.array([axis - self.pick([0, len(shape)])], np.int32))
        dtype, result = self.pick(["int32", "int64"]), (*shape[:axis], *shape[axis + 1 :])
        return self.operator(self.pick(["ARG_MAX", "ARG_MIN"]), [x, place], result, None, dtype, output_type=dtype)

    def gathered(self) -> int:
        """Slices of a tensor or of a constant at computed places."""
        shape, count = tuple(self.size(1, 12) for _ in range(self.size(1, 3))), self.size(1, 9)
        axis, batch = self.size(0, len(shape) - 1), 0
        table, quant = self.input(shape)
        if self.random.random() < 0.6:
            low, high = _RANGES[self.dtype]
            scale = Quantization(np.float32([quant[0]]), np.array([quant[1]]), 0)
            self.given.remove(table)
            table = self.constant(self.random.integers(low, high + 1, shape).astype(self.dtype), scale)
        if axis and self.random.random() < 0.3:
            batch = 1
        places = self.builder.tensor(f"x{len(self.given)}i", (*shape[:batch], count), self.pick(["int32", "int64"]))
        self.given.append(places)
        self.rows[places] = shape[axis]
        result = (*shape[:axis], count, *shape[axis + 1 :])
        return self.operator("GATHER", [table, places], result, quant, axis=axis, batch_dims=batch)

    def pool(self) -> int:
        image, kernel, result, options = self.window()
        channels = self.size(1, 37)
        x, quant = self.input((1, *image, channels))
        sizes = {"filter_height": kernel[0], "filter_width": kernel[1]}
        return self.operator(self.pick(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), [x], (1, *result, channels), quant,
                             fused_activation_function=self.pick(ACTIVATIONS), **sizes, **options)  # fmt: skip

    def mean(self) -> int:
        shape = tuple(self.size(1, 6) for _ in range(4))
        axes = np.flatnonzero(self.random.random(4) < 0.5).astype(np.int32)
        if not len(axes):
            axes = np.array([1], np.int32)
        x, (scale, _) = self.input(shape)
        result = tuple(1 if i in axes else size for i, size in enumerate(shape))
        quant = scale * float(self.random.uniform(0.3, 2)), self.quant()[1]
        name = self.pick(["MEAN", "MEAN", "SUM"])
        return self.operator(name, [x, self.constant(axes)], result, quant, keep_dims=True)

    def unary(self) -> int:
        name, shape = self.pick(UNARY), (self.size(1, 4), self.size(1, 40))
        x, quant = self.input(shape)
        fixed = {"LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
                 "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}}  # fmt: skip
        options = {"alpha": 0.3} if name == "LEAKY_RELU" else {}
        return self.operator(name, [x], shape, fixed[name][self.dtype] if name in fixed else quant, **options)

    def softmax(self) -> int:
        shape = (self.size(1, 4), self.pick([1, 2, 10, 300]))
        x, _ = self.input(shape)
        quant = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}[self.dtype]
        return self.operator("SOFTMAX", [x], shape, quant, beta=float(self.random.uniform(0.3, 2)))

    def requantize(self) -> int:
        shape = (self.size(1, 4), self.size(1, 40))
        x, _ = self.input(shape)
        self.dtype = self.pick([self.dtype, "int8", *(["uint8"] if self.wide else [])])
        return self.operator("QUANTIZE", [x], shape, self.quant())

    def padding(self) -> int:
        shape = tuple(self.size(1, 6) for _ in range(4))
        rows = np.array(
            [[0, 0], *([self.size(0, 3), self.size(0, 3)] for _ in range(2)), [0, self.size(0, 1)]], np.int32
        )
        x, quant = self.input(shape)
        result = tuple(size + int(row.sum()) for size, row in zip(shape, rows, strict=True))
        return self.operator("PAD", [x, self.constant(rows)], result, quant)

    def slice(self) -> int:
        shape = tuple(self.size(1, 6) for _ in range(3))
        begin = tuple(self.size(0, size - 1) for size in shape)
        result = tuple(self.size(1, size - first) for size, first in zip(shape, begin, strict=True))
        x, quant = self.input(shape)
        details = [self.constant(np.array(values, np.int32)) for values in (begin, result)]
        return self.operator("SLICE", [x, *details], result, quant)

    def concatenation(self) -> int:
        shape, axis, quant = tuple(self.size(1, 6) for _ in range(3)), self.size(0, 2), self.quant()
        if self.dtype == "uint8" and self.random.random() < 0.5:
            quants: list[Quant | None] = [None] * 4  # any
        else:
            quants = [quant] * 4
        parts = [(*shape[:axis], self.size(1, 9), *shape[axis + 1 :]) for _ in range(self.size(2, 4))]
        operands = [self.input(part, known)[0] for part, known in zip(parts, quants, strict=False)]
        result = (*shape[:axis], sum(part[axis] for part in parts), *shape[axis + 1 :])
        return self.operator("CONCATENATION", operands, result, quant, axis=axis)

    def resize(self) -> int:
        channels, name = self.size(1, 20), self.pick(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
        x, quant = self.input((1, self.size(1, 6), self.size(1, 6), channels))
        size = np.array([self.size(1, 9), self.size(1, 9)], np.int32)
        mode = self.pick([{}, {"half_pixel_centers": True}, {"align_corners": True}])
        return self.operator(name, [x, self.constant(size)], (1, *map(int, size), channels), quant, **mode)
