"""Random quantised networks, made on the spot: one seed, one model.

Every operator that the NPU knows appears, with odd sizes, strides, dilations and zero points; two branches may meet
again. Weights are such that accumulators use a good part of their range and results do not saturate everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from helpers.models import ModelBuilder, Shape, model_bytes
from odc_mlir.formats.circle.model import Quantization

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


class RandomNetwork:
    """Builds one chain of random operators on codes of one element type."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = ModelBuilder()
        self.dtype = self._one_of("int8", "uint8")
        self.current = -1

    def build(self, operators: int) -> bytes:
        """The file of a network with about ``operators`` operators; input [N, H, W, C], output that or [N, C]."""
        height, width = self._size(4, 14), self._size(4, 14)
        start = self.current = self._activation((1, height, width, self._size(1, 20)))
        for _ in range(operators):
            self._step()
        self._finish()
        return model_bytes(self.builder.finish([start], [self.current]))

    def _step(self) -> None:
        steps = [
            self._convolution,
            self._convolution,
            self._depthwise,
            self._pool,
            self._residual,
            self._elementwise_constant,
            self._unary,
            self._pad,
            self._resize,
        ]
        steps[self.random.integers(len(steps))]()

    def _finish(self) -> None:
        """Half of the networks end in a classifier."""
        if self.random.random() < 0.5:
            return
        n, _, _, channels = self._shape(self.current)
        axes = self._constant("axes", np.array([1, 2], np.int32))
        self._append("MEAN", [self.current, axes], (n, channels), keep_dims=False)
        self._fully_connected(self._size(2, 40))
        if self.dtype == "int8":
            self._append("SOFTMAX", [self.current], self._shape(self.current), quant=(1 / 256, -128), beta=1.0)

    def _convolution(self) -> None:
        channels, result = self._shape(self.current)[3], self._size(1, 40)
        kernel, stride, dilation = self._kernel(), self._pair(1, 2), self._pair(1, 2)
        shape, padding = self._windowed(kernel, stride, dilation)
        weights, scales = self._weights((result, *kernel, channels), axis=0)
        self._append(
            "CONV_2D",
            [self.current, weights, self._bias(scales, result)],
            (*shape, result),
            padding=padding,
            stride_h=stride[0],
            stride_w=stride[1],
            dilation_h_factor=dilation[0],
            dilation_w_factor=dilation[1],
            fused_activation_function=self._one_of("none", "relu", "relu6"),
        )

    def _depthwise(self) -> None:
        channels, multiplier = self._shape(self.current)[3], self._one_of(1, 1, 2)
        result = channels * multiplier
        kernel, stride, dilation = self._kernel(), self._pair(1, 2), self._pair(1, 2)
        shape, padding = self._windowed(kernel, stride, dilation)
        weights, scales = self._weights((1, *kernel, result), axis=3)
        self._append(
            "DEPTHWISE_CONV_2D",
            [self.current, weights, self._bias(scales, result)],
            (*shape, result),
            padding=padding,
            stride_h=stride[0],
            stride_w=stride[1],
            dilation_h_factor=dilation[0],
            dilation_w_factor=dilation[1],
            depth_multiplier=multiplier,
            fused_activation_function=self._one_of("none", "relu"),
        )

    def _fully_connected(self, result: int) -> None:
        rows, channels = self._shape(self.current)
        weights, scales = self._weights((result, channels), axis=None)
        self._append("FULLY_CONNECTED", [self.current, weights, self._bias(scales, result)], (rows, result))

    def _pool(self) -> None:
        kernel, stride = self._kernel(), self._pair(1, 2)
        shape, padding = self._windowed(kernel, stride, (1, 1))
        self._append(
            self._one_of("AVERAGE_POOL_2D", "MAX_POOL_2D"),
            [self.current],
            (*shape, self._shape(self.current)[3]),
            quant=self._quant(self.current),
            padding=padding,
            stride_h=stride[0],
            stride_w=stride[1],
            filter_height=kernel[0],
            filter_width=kernel[1],
            fused_activation_function=self._one_of("none", "relu"),
        )

    def _residual(self) -> None:
        """A second branch from here, of one operator, that meets the first again."""
        before, shape = self.current, self._shape(self.current)
        self._unary()
        self._append(
            self._one_of("ADD", "SUB", "MUL"),
            [before, self.current],
            shape,
            fused_activation_function=self._one_of("none", "relu"),
        )

    def _elementwise_constant(self) -> None:
        """A constant per channel: broadcast over the image."""
        shape = self._shape(self.current)
        low, high = RANGES[self.dtype]
        values = self.random.integers(low, high + 1, (shape[3],)).astype(self.dtype)
        constant = self._constant("constant", values, quant=self._random_quant())
        self._append(self._one_of("ADD", "MUL"), [self.current, constant], shape)

    def _unary(self) -> None:
        name = self._one_of("RELU", "LEAKY_RELU", "LOGISTIC", "TANH", "QUANTIZE")
        low = RANGES[self.dtype][0]
        fixed = {"LOGISTIC": (1 / 256, low), "TANH": (1 / 128, low + 128)}
        options = {"alpha": 0.125} if name == "LEAKY_RELU" else {}
        self._append(name, [self.current], self._shape(self.current), quant=fixed.get(name), **options)

    def _pad(self) -> None:
        amounts = np.zeros((4, 2), np.int32)
        amounts[1:3] = self.random.integers(0, 3, (2, 2))
        shape = tuple(int(d + a.sum()) for d, a in zip(self._shape(self.current), amounts, strict=True))
        operands = [self.current, self._constant("paddings", amounts)]
        self._append("PAD", operands, shape, quant=self._quant(self.current))

    def _resize(self) -> None:
        """Another size; bilinear of uint8 only where it is exact, as host kernels blend real numbers."""
        n, *image, channels = self._shape(self.current)
        name = self._one_of("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
        twice = name == "RESIZE_BILINEAR" and self.dtype == "uint8"
        size = [2 * side if twice else self._size(3, 18) for side in image]
        options = {} if twice else self._one_of({}, {"align_corners": True}, {"half_pixel_centers": True})
        operands = [self.current, self._constant("size", np.array(size, np.int32))]
        self._append(name, operands, (n, *size, channels), quant=self._quant(self.current), **options)

    def _append(
        self, name: str, inputs: list[int], shape: Shape, *, quant: tuple[float, int] | None = None, **options: Any
    ) -> None:
        result = self._activation(shape, quant)
        self.builder.operator(name, inputs, [result], options=options)
        self.current = result

    def _activation(self, shape: Shape, quant: tuple[float, int] | None = None) -> int:
        name = f"t{len(self.builder.subgraph.tensors)}"
        return self.builder.tensor(name, shape, self.dtype, quant=quant or self._random_quant())

    def _constant(self, name: str, values: np.ndarray[Any, Any], quant: tuple[float, int] | None = None) -> int:
        name = f"{name}{len(self.builder.subgraph.tensors)}"
        return self.builder.tensor(name, values.shape, values.dtype.name, data=values, quant=quant)

    def _weights(self, shape: Shape, axis: int | None) -> tuple[int, np.ndarray[Any, Any]]:
        """Weights and their scales: per channel along ``axis`` for int8, one with a zero point for uint8."""
        low, high = RANGES[self.dtype]
        values = self.random.integers(low + (self.dtype == "int8"), high + 1, shape).astype(self.dtype)
        index = self._constant("weights", values)
        count = shape[axis] if axis is not None and self.dtype == "int8" else 1
        taps = math.prod(shape) // shape[axis or 0]
        scales = (self.random.uniform(0.5, 2, count) / (60 * math.sqrt(taps))).astype(np.float32)
        zero = 0 if self.dtype == "int8" else int(self.random.integers(100, 156))
        record = self.builder.subgraph.tensors[index]
        record.quantization = Quantization(scales, np.full(count, zero, np.int64), axis if count > 1 and axis else 0)
        return index, scales

    def _bias(self, scales: np.ndarray[Any, Any], count: int) -> int:
        """A bias of real values around zero, at the scale that accumulators have; sometimes left out."""
        if self.random.random() < 0.2:
            return -1
        scale = (np.float32(self._quant(self.current)[0]) * scales).astype(np.float32)
        values = np.round(self.random.normal(0, 0.5, count) / scale).astype(np.int32)
        index = self._constant("bias", values)
        record = self.builder.subgraph.tensors[index]
        record.quantization = Quantization(scale, np.zeros(len(scale), np.int64), 0)
        return index

    def _windowed(self, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, str]:
        """Result [N, H, W] of a window over the current value, and a padding that leaves something."""
        n, *image, _ = self._shape(self.current)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        valid = [(i - r) // s + 1 for i, r, s in zip(image, reach, stride, strict=True)]
        if min(valid) >= 1 and self.random.random() < 0.5:
            return (n, *valid), "valid"
        return (n, *(-(-i // s) for i, s in zip(image, stride, strict=True))), "same"

    def _kernel(self) -> Shape:
        image = self._shape(self.current)[1:3]
        return tuple(min(self._one_of(1, 1, 2, 3, 3, 5), size) for size in image)

    def _pair(self, low: int, high: int) -> Shape:
        return tuple(int(v) for v in self.random.integers(low, high + 1, 2))

    def _size(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def _one_of(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def _random_quant(self) -> tuple[float, int]:
        low, high = RANGES[self.dtype]
        return float(np.float32(self.random.uniform(0.01, 0.05))), int(self.random.integers(low // 2, high + 1))

    def _shape(self, tensor: int) -> Shape:
        return self.builder.subgraph.tensors[tensor].shape or ()

    def _quant(self, tensor: int) -> tuple[float, int]:
        record = self.builder.subgraph.tensors[tensor].quantization
        if record is None:
            raise ValueError(f"tensor {tensor} is not quantised")
        return float(record.scale[0]), int(record.zero_point[0])
