"""Random operators of the sizes that networks have, one in a model: to ask what they take, not what they compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.models import Shape, model_bytes
from helpers.random_operators import RandomOperators

LARGEST = 40_000  # elements of an image, about: operators of milliseconds tell no more, but take long


class SizedOperator(RandomOperators):
    """``model``: one operator, the kind of which is chosen by ``seed`` in turn."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 0)
        kinds = self.kinds()
        kind = kinds[seed % len(kinds)]
        self.dtype = "int16" if self.random.random() < 0.25 else "int8"
        result = kind()
        self.name = f"{kind.__name__} of {self.dtype}"
        self.model = model_bytes(self.builder.finish(self.given, [result]))

    def kinds(self) -> tuple[Callable[[], int], ...]:
        return (
            self.pointwise, self.spatial, self.planes, self.dense, self.pairs, self.pooling, self.global_mean,
            self.table, self.normal, self.enlarge, self.products, self.border, self.turned, self.joined,
        )  # fmt: skip

    def log(self, low: int, high: int) -> int:
        """A size, small ones as likely as large ones."""
        return round(float(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def image(self, least: int = 3) -> Shape:
        """Height, width and channels of an image."""
        height = self.log(least, 96)
        width = self.pick([height, height, self.log(least, 96)])
        channels = min(self.log(3, 256), max(3, LARGEST // (height * width)))
        return height, width, self.pick([channels, channels, -(-channels // 8) * 8])

    def conv(self, name: str, kernel: tuple[int, int], stride: int, dilation: int = 1) -> int:
        height, width, channels = self.image(max(kernel))
        x, quant = self.input((1, height, width, channels))
        outputs = channels if name == "DEPTHWISE_CONV_2D" else self.log(4, 192)
        shape, axis = ((1, *kernel, outputs), 3) if name == "DEPTHWISE_CONV_2D" else ((outputs, *kernel, channels), 0)
        options = {"depth_multiplier": 1} if axis == 3 else {}
        size = (-(-height // stride), -(-width // stride))
        return self.operator(name, [x, *self.weights(shape, axis, quant)], (1, *size, outputs), self.quant(),
                             padding="same", stride_h=stride, stride_w=stride, dilation_h_factor=dilation,
                             dilation_w_factor=dilation, **options)  # fmt: skip

    def pointwise(self) -> int:
        return self.conv("CONV_2D", (1, 1), self.pick([1, 1, 1, 2]))

    def spatial(self) -> int:
        kernel = self.pick([(3, 3), (3, 3), (5, 5), (7, 7), (1, 5), (4, 2)])
        stride = self.pick([1, 1, 2])
        return self.conv("CONV_2D", kernel, stride, self.pick([1, 1, 2]) if stride == 1 else 1)

    def planes(self) -> int:
        size, stride = self.pick([3, 3, 5, 7]), self.pick([1, 1, 2])
        return self.conv("DEPTHWISE_CONV_2D", (size, size), stride, self.pick([1, 1, 2]) if stride == 1 else 1)

    def dense(self) -> int:
        rows, depth, outputs = self.pick([1, 1, self.log(1, 64)]), self.log(16, 1024), self.log(8, 512)
        x, quant = self.input((rows, depth))
        return self.operator("FULLY_CONNECTED", [x, *self.weights((outputs, depth), 0, quant)], (rows, outputs),
                             self.quant())  # fmt: skip

    def pairs(self) -> int:
        shape = (1, *self.image())
        other = self.pick([shape, shape, (1, 1, 1, shape[3]), (1, 1, 1, 1)])
        operands = [self.input(part)[0] for part in (shape, other)]
        return self.operator(self.pick(["ADD", "SUB", "MUL"]), operands, shape, self.quant())

    def pooling(self) -> int:
        size, stride = self.pick([2, 3, 5]), self.pick([1, 2])
        height, width, channels = self.image(size)
        x, quant = self.input((1, height, width, channels))
        result = (1, -(-height // stride), -(-width // stride), channels)
        return self.operator(self.pick(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), [x], result, quant, padding="same",
                             filter_height=size, filter_width=size, stride_h=stride, stride_w=stride)  # fmt: skip

    def global_mean(self) -> int:
        height, width, channels = self.image()
        x, _ = self.input((1, height, width, channels))
        axes = self.pick([[1, 2], [1, 2], [3], [2]])
        result = tuple(1 if i in axes else size for i, size in enumerate((1, height, width, channels)))
        return self.operator("MEAN", [x, self.constant(np.array(axes, np.int32))], result, self.quant(), keep_dims=True)

    def table(self) -> int:
        name, shape = self.pick(["LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "RELU"]), (1, *self.image())
        x, quant = self.input(shape)
        fixed = {"LOGISTIC": {"int8": (1 / 256, -128), "int16": (1 / 32768, 0)},
                 "TANH": {"int8": (1 / 128, 0), "int16": (1 / 32768, 0)}}  # fmt: skip
        options = {"alpha": 0.3} if name == "LEAKY_RELU" else {}
        return self.operator(name, [x], shape, fixed[name][self.dtype] if name in fixed else quant, **options)

    def normal(self) -> int:
        shape = (self.log(1, 128), self.log(2, 512))
        x, _ = self.input(shape)
        return self.operator("SOFTMAX", [x], shape, {"int8": (1 / 256, -128), "int16": (1 / 32768, 0)}[self.dtype])

    def enlarge(self) -> int:
        height, width, channels = self.image(2)
        times = self.pick([2, 3, 0.5])
        size = np.array([max(1, int(height * times)), max(1, int(width * times))], np.int32)
        name = self.pick(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
        self.dtype = "int8" if name == "RESIZE_BILINEAR" else self.dtype
        x, quant = self.input((1, height, width, channels))
        mode = self.pick([{}, {"half_pixel_centers": True}, {"align_corners": True}])
        return self.operator(name, [x, self.constant(size)], (1, *map(int, size), channels), quant, **mode)

    def products(self) -> int:
        batch, rows, depth, columns = self.log(1, 8), self.log(1, 128), self.log(8, 128), self.log(4, 128)
        adjoint = self.pick([False, True])
        a, scale = self.input((batch, rows, depth))
        b, other = self.input((batch, columns, depth) if adjoint else (batch, depth, columns))
        quant = scale[0] * other[0] * depth**0.5 * (1000 if self.dtype == "int16" else 60), self.quant()[1]
        return self.operator("BATCH_MATMUL", [a, b], (batch, rows, columns), quant, adjoint_rhs=adjoint)

    def border(self) -> int:
        height, width, channels = self.image()
        rows = np.array([[0, 0], *([self.size(0, 3), self.size(0, 3)] for _ in range(2)), [0, 0]], np.int32)
        x, quant = self.input((1, height, width, channels))
        result = tuple(size + int(row.sum()) for size, row in zip((1, height, width, channels), rows, strict=True))
        return self.operator("PAD", [x, self.constant(rows)], result, quant)

    def turned(self) -> int:
        height, width, channels = self.image()
        order = self.pick([(0, 2, 1, 3), (0, 3, 1, 2), (0, 1, 3, 2)])
        x, quant = self.input((1, height, width, channels))
        shape = tuple((1, height, width, channels)[axis] for axis in order)
        return self.operator("TRANSPOSE", [x, self.constant(np.array(order, np.int32))], shape, quant)

    def joined(self) -> int:
        height, width, channels = self.image()
        axis, quant = self.pick([1, 3, 3]), self.quant()
        parts = [(1, height, width, channels), (1, height, width, self.log(3, 64) if axis == 3 else channels)]
        operands = [self.input(part, quant)[0] for part in parts]
        result = list(parts[0])
        result[axis] += parts[1][axis]
        return self.operator("CONCATENATION", operands, tuple(result), quant, axis=axis)
