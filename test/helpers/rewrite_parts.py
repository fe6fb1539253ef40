"""Small networks, whole or in parts, that rewrites apply to."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from flatbuffers import flexbuffers
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet

Make = Callable[[FloatNet], SSAValue | Sequence[SSAValue]]


class Cases(NamedTuple):
    """``hits``: the rewrite applies and results stay; ``misses``: it does not apply."""

    hits: Sequence[Make]
    misses: Sequence[Make]


def image(n: FloatNet, *, h: int = 4, w: int = 5, c: int = 3) -> SSAValue:
    return n.real(1, h, w, c)


def ints(n: FloatNet, *numbers: int) -> SSAValue:
    return n.const(numbers, "int32")


def conv(n: FloatNet, x: SSAValue, *, activation: str = "none", outputs: int = 2) -> SSAValue:
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "fused_activation_function": activation}
    channels = n.array(x).shape[-1]
    return n.add("CONV_2D", x, n.weights(outputs, 2, 2, channels), n.weights(outputs), **options)


def depthwise(n: FloatNet, x: SSAValue, *, activation: str = "none") -> SSAValue:
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    channels = n.array(x).shape[-1]
    weights = n.weights(1, 2, 2, channels)
    return n.add("DEPTHWISE_CONV_2D", x, weights, n.weights(channels), fused_activation_function=activation, **options)


def transposed(n: FloatNet, x: SSAValue, *, activation: str = "none") -> SSAValue:
    batch, height, width, channels = n.array(x).shape
    shape = ints(n, batch, 2 * height, 2 * width, 2)
    options = {"padding": "same", "stride_w": 2, "stride_h": 2, "fused_activation_function": activation}
    return n.add("TRANSPOSE_CONV", shape, n.weights(2, 2, 2, channels), x, n.weights(2), **options)


def dense(n: FloatNet, x: SSAValue, *, activation: str = "none", outputs: int = 3) -> SSAValue:
    weights = n.weights(outputs, n.array(x).shape[-1])
    return n.add("FULLY_CONNECTED", x, weights, n.weights(outputs), fused_activation_function=activation)


Layer = Callable[..., SSAValue]


def behind(layer: Layer, operator: str, *, flat: bool = False) -> Cases:
    """A layer, then a sum or product; a fused activation between them, or a constant for each pixel, is in the way."""

    def source(n: FloatNet) -> SSAValue:
        return n.real(2, 4) if flat else image(n)

    def vector(n: FloatNet) -> SSAValue:
        y = layer(n, source(n))
        return n.add(operator, y, n.weights(n.array(y).shape[-1]))

    def scalar(n: FloatNet) -> SSAValue:
        return n.add(operator, layer(n, source(n)), n.const(1.5), fused_activation_function="relu")

    def kept_activation(n: FloatNet) -> SSAValue:
        y = layer(n, source(n), activation="relu")
        return n.add(operator, y, n.weights(n.array(y).shape[-1]))

    def each_element(n: FloatNet) -> SSAValue:
        y = layer(n, source(n))
        return n.add(operator, y, n.weights(*n.array(y).shape))

    def two_readers(n: FloatNet) -> Sequence[SSAValue]:
        y = layer(n, source(n))
        return n.add(operator, y, n.const(1.5)), n.add("RELU", y)

    return Cases([vector, scalar], [kept_activation, each_element, two_readers])


def both(first: Cases, second: Cases) -> Cases:
    return Cases([*first.hits, *second.hits], [*first.misses, *second.misses])


def folding(operator: Make, computed: Make) -> Cases:
    return Cases([operator], [computed])


def relu(n: FloatNet, value: SSAValue) -> SSAValue:
    """Something that reads ``value`` besides the function's end, which keeps its operator."""
    return n.add("RELU", value)


def neutral(operator: str, number: float) -> Cases:
    return Cases(
        [lambda n: relu(n, n.add(operator, image(n), n.const(number)))],
        [
            lambda n: relu(n, n.add(operator, image(n), n.const(number + 0.5))),
            lambda n: relu(n, n.add(operator, n.real(1, 3), n.const(np.full((2, 3), number)))),
        ],
    )


def shape(n: FloatNet, *extents: int) -> SSAValue:
    return ints(n, *extents)


def transpose(n: FloatNet, x: SSAValue, *order: int) -> SSAValue:
    return n.add("TRANSPOSE", x, ints(n, *order))


def reshape(n: FloatNet, x: SSAValue, *extents: int) -> SSAValue:
    return n.add("RESHAPE", x, shape(n, *extents), new_shape=list(extents))


def mean(n: FloatNet, x: SSAValue, *axes: int, keep: bool = False) -> SSAValue:
    return n.add("MEAN", x, ints(n, *axes), keep_dims=keep)


def rms(n: FloatNet, *, axis: int = -1, gamma: bool = True) -> SSAValue:
    x = n.real(2, 3, 4)
    power = mean(n, n.add("MUL", x, x), axis, keep=True)
    root = n.add("RSQRT", n.add("ADD", power, n.const(1e-5)))
    normal = n.add("MUL", x, root)
    return n.add("MUL", normal, n.weights(4)) if gamma else normal


def centred(n: FloatNet, x: SSAValue, *axes: int, epsilon: float = 1e-5, divided: bool = False) -> SSAValue:
    """Distances from the mean, divided by the root of their mean square."""
    distance = n.add("SUB", x, mean(n, x, *axes, keep=True))
    total = n.add("ADD", mean(n, n.add("MUL", distance, distance), *axes, keep=True), n.const(epsilon))
    if divided:
        return n.add("DIV", distance, n.add("SQRT", total))
    return n.add("MUL", distance, n.add("RSQRT", total))


def instance(n: FloatNet, *axes: int, divided: bool = False, gamma: int = 3) -> SSAValue:
    normal = centred(n, image(n, c=3), *axes, divided=divided)
    return n.add("ADD", n.add("MUL", normal, n.weights(gamma)), n.weights(3), fused_activation_function="relu")


def instance_apart(n: FloatNet) -> SSAValue:
    """The form of TensorFlow's batch normalisation."""
    x = image(n)
    middle = mean(n, x, 1, 2, keep=True)
    variance = mean(n, n.add("SQUARED_DIFFERENCE", x, middle), 1, 2, keep=True)
    k = n.add("MUL", n.add("RSQRT", n.add("ADD", variance, n.const(1e-3))), n.weights(3))
    return n.add("ADD", n.add("MUL", x, k), n.add("SUB", n.weights(3), n.add("MUL", middle, k)))


def grouped(n: FloatNet, groups: int, *, batch: int = 1, rows: bool = True) -> SSAValue:
    x = n.real(batch, 4, 3, 2)
    shape = (batch * groups, 24 // groups) if rows else (batch, groups, 24 // groups)
    return relu(n, reshape(n, centred(n, reshape(n, x, *shape), -1), batch, 4, 3, 2))


def across_groups(n: FloatNet) -> SSAValue:
    """Pixels of each group, normalised over its channels."""
    return reshape(n, centred(n, reshape(n, n.real(1, 4, 3, 2), 2, 2, 6), 1), 1, 4, 3, 2)


def tokens(n: FloatNet) -> SSAValue:
    """Rows of an image that are no groups of its channels."""
    return reshape(n, centred(n, reshape(n, n.real(1, 4, 3, 2), 12, 2), -1), 1, 4, 3, 2)


def rotary(n: FloatNet, *, high_first: bool = True, split: bool = False, tables: int = 4) -> SSAValue:
    x = n.real(1, 2, 3, 4)
    if split:
        low, high = n.add("SPLIT", n.const(3, "int32"), x, count=2, num_splits=2)
    else:
        low, high = (n.add("SLICE", x, ints(n, 0, 0, 0, at), ints(n, 1, 2, 3, 2)) for at in (0, 2))
    halves = [n.add("NEG", high), low] if high_first else [low, n.add("NEG", high)]
    turned = n.add("CONCATENATION", *halves, axis=-1)
    cosine, sine = n.weights(3, tables), n.weights(3, tables)
    return n.add("ADD", n.add("MUL", x, cosine), n.add("MUL", turned, sine))


def pre_activated(n: FloatNet, *, sign: float = 1.0, reader: str = "ADD") -> SSAValue:
    """A residual block with normalisation before its convolution."""
    x = conv(n, image(n), outputs=3)
    scaled = n.add("MUL", x, n.const(sign * n.rng.uniform(0.5, 1.5, 3)))
    gate = n.add("ADD", scaled, n.weights(3), fused_activation_function="relu")
    return n.add(reader, x, conv(n, gate, outputs=3))


def hard_swish(n: FloatNet, number: float) -> SSAValue:
    x = n.real(2, 9, low=-5, high=5)
    gate = n.add("ADD", x, n.const(3.0), fused_activation_function="relu6")
    return n.add("DIV", n.add("MUL", x, gate), n.const(number))


def leaky(n: FloatNet, slope: float) -> SSAValue:
    x = n.real(2, 4)
    return n.add("MAXIMUM", x, n.add("MUL", x, n.const(slope)))


def twice(n: FloatNet, x: SSAValue) -> Sequence[SSAValue]:
    return n.add("NEG", x), n.add("ABS", x)


def gelu(n: FloatNet, cubic: float) -> SSAValue:
    x = n.real(2, 4)
    cube = n.add("MUL", n.add("POW", x, n.const(3.0)), n.const(cubic))
    inner = n.add("MUL", n.add("ADD", x, cube), n.const(np.sqrt(2 / np.pi)))
    return n.add("MUL", n.add("MUL", x, n.const(0.5)), n.add("ADD", n.add("TANH", inner), n.const(1.0)))


def prelu(n: FloatNet, slope: float) -> SSAValue:
    x = n.real(1, 2, 3)
    negative = n.add("MUL", n.add("SUB", x, n.add("ABS", x)), n.const(0.5 * slope))
    return n.add("ADD", n.add("RELU", x), negative)


def pool(n: FloatNet, x: SSAValue, window: int = 3) -> SSAValue:
    options = {"padding": "valid", "stride_w": 1, "stride_h": 1, "filter_height": window, "filter_width": window}
    return n.add("MAX_POOL_2D", x, **options)


def padded(n: FloatNet, x: SSAValue, value: float, *, rows: int = 1) -> SSAValue:
    paddings = n.const([[0, 0], [rows, rows], [1, 1], [0, 0]], "int32")
    return n.add("PADV2", x, paddings, n.const(value))


def strided(n: FloatNet, x: SSAValue, stride: int) -> SSAValue:
    return n.add("STRIDED_SLICE", x, ints(n, 0, 0), ints(n, 1, 4), ints(n, 1, stride), shrink_axis_mask=1)


def guarded(n: FloatNet, extent: int) -> SSAValue:
    table, index = n.weights(4, 3), n.input(np.array([0, 3, 1], np.int32))
    total = n.add("ADD", index, ints(n, extent), dtypes=["int32"])
    return n.add("GATHER", table, n.add("FLOOR_MOD", total, ints(n, 4), dtypes=["int32"]), axis=0)


def custom(n: FloatNet, code: str, *operands: SSAValue, count: int = 1, **options: object) -> Any:
    data = bytes(flexbuffers.Dumps(options)) if options else b""
    return n.add("CUSTOM", *operands, count=count, code=code, data=data, dtypes=["float32"] * count)


def resolving(hit: Make) -> Cases:
    """Another code stays."""
    return Cases([hit], [lambda n: custom(n, "Erf", n.real(2, 3))])


def media_pipe(n: FloatNet, padding: int) -> SSAValue:
    operands = n.real(1, 3, 4, 3), n.weights(2, 3, 2, 3), n.weights(2)
    data = struct.pack("<3i", padding, 2, 3)
    made: SSAValue = n.add("CUSTOM", *operands, code="Convolution2DTransposeBias", data=data)
    return made


def cut(n: FloatNet, *begin: int, size: tuple[int, int], padding: str = "valid", stride: int = 2) -> SSAValue:
    """Rows and columns from ``begin`` of a transposed convolution of 3 by 4 pixels and 3 by 3 taps."""
    height, width = (2 * stride + 3, 3 * stride + 3) if padding == "valid" else (3 * stride, 4 * stride)
    options = {"padding": padding, "stride_w": stride, "stride_h": stride, "fused_activation_function": "relu"}
    shape = ints(n, 1, height, width, 2)
    whole = n.add("TRANSPOSE_CONV", shape, n.weights(2, 3, 3, 3), image(n, h=3, w=4), n.weights(2), **options)
    made: SSAValue = n.add("SLICE", whole, ints(n, 0, *begin, 0), ints(n, 1, *size, 2))
    return made


def sum_of_layers(n: FloatNet, *, shared: bool) -> SSAValue:
    x = n.real(2, 4)
    return n.add("ADD", dense(n, x), dense(n, x if shared else n.real(2, 4)), fused_activation_function="relu")


def half_precision(n: FloatNet) -> SSAValue:
    """Weights as half-precision numbers behind DEQUANTIZE."""
    made: SSAValue = n.add("MUL", image(n), n.add("DEQUANTIZE", n.const(n.rng.normal(size=3), "float16")))
    return made


def scattered(n: FloatNet, numbers: SSAValue) -> SSAValue:
    """A vector of three, of which two numbers are stored."""
    places = n.const([[0], [2]], "int32")
    made: SSAValue = n.add("ADD", image(n), n.add("SPARSE_TO_DENSE", places, ints(n, 3), numbers, n.const(0.5)))
    return made


def shuffled(
    n: FloatNet, x: SSAValue, block: int, *, first: bool = False, swapped: bool = False, twice: bool = False
) -> SSAValue | Sequence[SSAValue]:
    """Pixels of blocks of channels, as PyTorch's PixelShuffle orders them.

    ``first``: on an image channels first; ``swapped``: rows and columns of blocks are; ``twice``: ``x`` is read again.
    """
    image = transpose(n, x, 0, 3, 1, 2) if first else x
    batch, height, width, depth = n.array(x).shape
    channels = depth // block**2
    order = (0, 1, 5, 2, 4, 3) if swapped else (0, 1, 4, 2, 5, 3)
    wide = (batch, height * block, width * block, channels)
    parts: tuple[int, ...] = (batch, height, width, channels, block, block)
    if first:
        order, wide = (0, 1, 4, 2, 5, 3), (batch, channels, height * block, width * block)
        parts = (batch, channels, block, block, height, width)
    made = reshape(n, transpose(n, reshape(n, image, *parts), *order), *wide)
    return (made, relu(n, x)) if twice else made
