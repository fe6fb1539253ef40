"""Quantised networks of any size, made on the spot, to see how compiling grows; the weights mean nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from helpers.models import ModelBuilder, Shape, model_bytes
from odc_mlir.formats.circle.model import Quantization

QUANT = (0.05, 3)


class LargeNetwork:
    """Appends int8 operators; every method takes tensor indices and returns that of its result."""

    def __init__(self, shape: Shape) -> None:
        self.builder = ModelBuilder()
        self.random = np.random.default_rng(0)
        self.start = self._result(shape)

    @property
    def operators(self) -> int:
        return len(self.builder.subgraph.operators)

    def bytes(self, result: int) -> bytes:
        """The model file whose output is ``result``."""
        return model_bytes(self.builder.finish([self.start], [result]))

    def shape(self, tensor: int) -> Shape:
        return self.builder.subgraph.tensors[tensor].shape or ()

    def _result(self, shape: Shape, quant: tuple[float, int] = QUANT) -> int:
        return self.builder.tensor(f"t{len(self.builder.subgraph.tensors)}", shape, "int8", quant=quant)

    def _append(self, name: str, inputs: list[int], shape: Shape, quant: Any = QUANT, **options: Any) -> int:
        result = self._result(shape, quant)
        self.builder.operator(name, inputs, [result], options=options)
        return result

    def _constant(self, values: np.ndarray[Any, Any]) -> int:
        name = f"c{len(self.builder.subgraph.tensors)}"
        return self.builder.tensor(name, values.shape, values.dtype.name, data=values)

    def _weights(self, shape: Shape, axis: int) -> list[int]:
        """Weights with a scale per channel of ``axis``, and the bias that goes with them."""
        scales = np.full(shape[axis], 1 / (60 * math.sqrt(math.prod(shape) / shape[axis])), np.float32)
        weights = self._constant(self.random.integers(-127, 128, shape).astype(np.int8))
        bias = self._constant(self.random.integers(-500, 500, shape[axis]).astype(np.int32))
        tensors, zeros = self.builder.subgraph.tensors, np.zeros(shape[axis], np.int64)
        tensors[weights].quantization = Quantization(scales, zeros, axis)
        tensors[bias].quantization = Quantization(scales * np.float32(QUANT[0]), zeros, 0)
        return [weights, bias]

    def convolution(self, x: int, channels: int, kernel: int = 1, stride: int = 1, *, relu: bool = True) -> int:
        weights = self._weights((channels, kernel, kernel, self.shape(x)[3]), 0)
        return self._window("CONV_2D", [x, *weights], channels, stride, 1, relu=relu)

    def depthwise(self, x: int, stride: int = 1, kernel: int = 3, dilation: int = 1) -> int:
        depth = self.shape(x)[3]
        weights = self._weights((1, kernel, kernel, depth), 3)
        return self._window("DEPTHWISE_CONV_2D", [x, *weights], depth, stride, dilation, relu=True, depth_multiplier=1)

    def _window(
        self, name: str, operands: list[int], channels: int, stride: int, dilation: int, *, relu: bool, **options: Any
    ) -> int:
        n, height, width, _ = self.shape(operands[0])
        shape = (n, -(-height // stride), -(-width // stride), channels)
        options |= {"stride_h": stride, "stride_w": stride, "padding": "same"}
        options |= {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
        options |= {"fused_activation_function": "relu" if relu else "none"}
        return self._append(name, operands, shape, **options)

    def block(self, x: int, channels: int, expansion: int = 6, stride: int = 1, dilation: int = 1) -> int:
        """An inverted residual block as MobileNet v2 has them."""
        wide = self.convolution(x, self.shape(x)[3] * expansion) if expansion > 1 else x
        y = self.convolution(self.depthwise(wide, stride, dilation=dilation), channels, relu=False)
        return self.add(x, y) if stride == 1 and self.shape(x)[3] == channels else y

    def resize(self, x: int, height: int, width: int) -> int:
        n, _, _, depth = self.shape(x)
        size = self._constant(np.array([height, width], np.int32))
        return self._append("RESIZE_BILINEAR", [x, size], (n, height, width, depth), align_corners=True)

    def join(self, *parts: int) -> int:
        shape = (*self.shape(parts[0])[:3], sum(self.shape(part)[3] for part in parts))
        return self._append("CONCATENATION", list(parts), shape, axis=3)

    def pool(self, x: int, kernel: int, stride: int) -> int:
        n, height, width, depth = self.shape(x)
        shape = (n, -(-height // stride), -(-width // stride), depth)
        options = {"stride_h": stride, "stride_w": stride, "filter_height": kernel, "filter_width": kernel}
        return self._append("MAX_POOL_2D", [x], shape, padding="same", **options)

    def add(self, a: int, b: int) -> int:
        return self._append("ADD", [a, b], self.shape(a))

    def multiply(self, a: int, b: int) -> int:
        return self._append("MUL", [a, b], np.broadcast_shapes(self.shape(a), self.shape(b)))

    def mean(self, x: int, *axes: int, keep_dims: bool = False) -> int:
        sizes = self.shape(x)
        kept = [1 if axis in axes else size for axis, size in enumerate(sizes) if keep_dims or axis not in axes]
        return self._append("MEAN", [x, self._constant(np.array(axes, np.int32))], tuple(kept), keep_dims=keep_dims)

    def dense(self, x: int, channels: int) -> int:
        shape = self.shape(x)
        weights = self._weights((channels, shape[-1]), 0)
        return self._append("FULLY_CONNECTED", [x, *weights], (*shape[:-1], channels), keep_num_dims=True)

    def reshape(self, x: int, *shape: int) -> int:
        return self._append("RESHAPE", [x, self._constant(np.array(shape, np.int32))], shape, new_shape=list(shape))

    def transpose(self, x: int, *order: int) -> int:
        shape = tuple(self.shape(x)[axis] for axis in order)
        return self._append("TRANSPOSE", [x, self._constant(np.array(order, np.int32))], shape)

    def product(self, a: int, b: int) -> int:
        return self._append("BATCH_MATMUL", [a, b], (*self.shape(a)[:-1], self.shape(b)[-1]))

    def softmax(self, x: int) -> int:
        return self._append("SOFTMAX", [x], self.shape(x), (1 / 256, -128), beta=1.0)

    def unary(self, name: str, x: int) -> int:
        return self._append(name, [x], self.shape(x))


def chain(operators: int, *, different: bool = True) -> bytes:
    """A chain of 3x3 convolutions and residual additions; ``different``: of many geometries, which repeat after 60."""
    net = LargeNetwork((1, 16, 16, 16))
    x = net.convolution(net.start, 16)
    while net.operators < operators:
        channels = 8 + 4 * (net.operators // 2 % 30) if different else 16
        left = net.convolution(x, channels, 3)
        x = left if net.operators == operators else net.add(left, left)
    return net.bytes(x)


def resnet50(size: int = 224) -> bytes:
    """ResNet-50: 53 convolutions with residuals, int8."""
    net = LargeNetwork((1, size, size, 3))
    x = net.pool(net.convolution(net.start, 64, 7, 2), 3, 2)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            left = net.convolution(net.convolution(net.convolution(x, width), width, 3, stride), 4 * width, relu=False)
            right = x if block else net.convolution(x, 4 * width, 1, stride, relu=False)
            x = net.unary("RELU", net.add(left, right))
    return net.bytes(net.softmax(net.dense(net.mean(x, 1, 2), 1000)))


_MOBILENET_V2 = (  # expansion, channels, blocks, stride
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def _mobilenet_v2(net: LargeNetwork, stride: int) -> int:
    """The blocks of MobileNet v2, dilated instead of strided once an image is 1/``stride`` of its size."""
    x, taken, dilation = net.convolution(net.start, 32, 3, 2), 2, 1
    for expansion, channels, count, step in _MOBILENET_V2:
        for number in range(count):
            by = 1 if number else step
            if taken * by > stride:
                dilation, by = dilation * by, 1
            taken *= by
            x = net.block(x, channels, expansion, by, dilation)
    return x


def deeplab_v3(size: int = 513, classes: int = 21, stride: int = 16) -> bytes:
    """DeepLab v3 on MobileNet v2: as many classes as channels of an image as large as the input."""
    net = LargeNetwork((1, size, size, 3))
    x = _mobilenet_v2(net, stride)
    _, height, width, _ = net.shape(x)
    pooled = net.resize(net.convolution(net.mean(x, 1, 2, keep_dims=True), 256), height, width)
    x = net.convolution(net.join(pooled, net.convolution(x, 256)), 256)
    x = net.resize(net.convolution(x, classes, relu=False), height, width)
    return net.bytes(net.resize(x, size, size))


def posenet(size: int = 257, points: int = 17) -> bytes:
    """PoseNet on MobileNet v1: heat maps and offsets in one output, with stride 16."""
    net = LargeNetwork((1, size, size, 3))
    x = net.convolution(net.start, 32, 3, 2)
    for channels, stride, dilation in (
        (64, 1, 1), (128, 2, 1), (128, 1, 1), (256, 2, 1), (256, 1, 1), (512, 2, 1), *[(512, 1, 1)] * 5,
        (1024, 1, 1), (1024, 1, 2),
    ):  # fmt: skip
        x = net.convolution(net.depthwise(x, stride, dilation=dilation), channels)
    heads = [net.convolution(x, count, relu=False) for count in (points, 2 * points, 32, 32)]
    return net.bytes(net.join(net.unary("LOGISTIC", heads[0]), *heads[1:]))


def efficientnet(size: int = 224) -> bytes:
    """EfficientNet-Lite0's blocks with squeeze and excitation in each."""
    net = LargeNetwork((1, size, size, 3))
    x = net.convolution(net.start, 32, 3, 2)
    for expansion, channels, count, stride, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for number in range(count):
            by = 1 if number else stride
            wide = net.convolution(x, net.shape(x)[3] * expansion) if expansion > 1 else x
            wide = net.depthwise(wide, by, kernel)
            narrow = net.convolution(net.mean(wide, 1, 2, keep_dims=True), max(4, net.shape(x)[3] // 4))
            gate = net.unary("LOGISTIC", net.convolution(narrow, net.shape(wide)[3], relu=False))
            y = net.convolution(net.multiply(wide, gate), channels, relu=False)
            x = net.add(x, y) if number else y
    return net.bytes(net.dense(net.mean(net.convolution(x, 1280), 1, 2), 1000))


def vit_b16(layers: int = 12) -> bytes:
    """ViT-B/16 at 224: 196 tokens of 768, 12 heads, layer norms written out, int8."""
    net = LargeNetwork((1, 224, 224, 3))
    n, depth, weights = 196, 768, net._weights((768, 16, 16, 3), 0)
    options = {"stride_h": 16, "stride_w": 16, "padding": "valid"}
    x = net.reshape(net._append("CONV_2D", [net.start, *weights], (1, 14, 14, depth), **options), 1, n, depth)

    def norm(x: int) -> int:
        centred = net.unary("ABS", net.add(x, net.mean(x, 2, keep_dims=True)))
        scale = net.unary("RSQRT", net.mean(net.multiply(centred, centred), 2, keep_dims=True))
        return net.multiply(centred, scale)

    def heads(x: int, *order: int) -> int:
        return net.transpose(net.reshape(net.dense(x, depth), 1, n, 12, 64), *order)

    for _ in range(layers):
        y = norm(x)
        scores = net.softmax(net.product(heads(y, 0, 2, 1, 3), heads(y, 0, 2, 3, 1)))
        mixed = net.transpose(net.product(scores, heads(y, 0, 2, 1, 3)), 0, 2, 1, 3)
        x = net.add(x, net.dense(net.reshape(mixed, 1, n, depth), depth))
        x = net.add(x, net.dense(net.unary("LOGISTIC", net.dense(norm(x), 4 * depth)), depth))
    return net.bytes(net.dense(net.mean(x, 1), 1000))
