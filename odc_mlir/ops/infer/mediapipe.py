"""Shapes of MediaPipe's custom operators, whose options are structures of little-endian int32 fields.

Defined by ``mediapipe/util/tflite/operations`` of https://github.com/google-ai-edge/mediapipe, at release 0.10:
``transpose_conv_bias.cc``, ``max_pool_argmax.cc`` and ``max_unpooling.cc``. Everything is float32, images are NHWC.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from odc_mlir.ops import get
from odc_mlir.ops.infer.common import check_elements, result, same_dim, shape_of, vector_length, verified
from odc_mlir.ops.infer.geometry import Axis, axis_window, positive
from odc_mlir.ops.spec import Node, ResultType, Shape, TensorInfo

_PADDINGS = {1: "same", 2: "valid"}
_ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6")
_FIELD_BYTES = 4


def _fields(node: Node, count: int) -> tuple[int, ...]:
    """The first ``count`` fields of the options; raises where there are fewer."""
    data = bytes(node.custom_options)
    if len(data) < count * _FIELD_BYTES:
        raise node.error(f"the options have {len(data)} bytes; they must have at least {count * _FIELD_BYTES}")
    return struct.unpack_from(f"<{count}i", data)


def _padding(node: Node, code: int) -> str:
    if code not in _PADDINGS:
        raise node.error(f"the padding is {code}; allowed are 1 (same), 2 (valid)")
    return _PADDINGS[code]


def _all_float32(node: Node) -> None:
    for info in (*node.operands, *node.results):
        if info is not None and info.dtype != "float32":
            raise node.error(f"is defined for float32 only, found {info.dtype}", tensor=info.name)


def _transposed_size(size: int | None, kernel: int | None, stride: int, padding: str) -> int | None:
    """Size of the result along one axis."""
    if size is None or kernel is None:
        return None
    overhang = max(0, kernel - (size - 1) % stride - 1) if padding == "same" else 0
    return stride * (size - 1) + kernel - overhang


def _transposed_options(node: Node) -> tuple[str, tuple[int, int]]:
    """Padding and stride (height, width)."""
    padding, stride_w, stride_h = _fields(node, 3)
    stride = positive(node, "the stride's height", stride_h), positive(node, "the stride's width", stride_w)
    return _padding(node, padding), stride


def transposed_shape(node: Node, x: Shape | None) -> Shape:
    """``[N, OH, OW, O]`` for an input of shape ``x``; the size that pairs with ``same`` is MediaPipe's own rule."""
    weights, (padding, stride) = shape_of(node, 1, 4), _transposed_options(node)
    sizes: list[int | None] = [None, None]
    if x is not None and weights is not None:
        same_dim(node, x[3], weights[3], "channels of input and filter")
        for axis in range(2):
            size, taps = x[1 + axis], weights[1 + axis]
            for value, what in ((size, "the input's size"), (taps, "the filter's size")):
                if value is not None:
                    positive(node, what, value)
            sizes[axis] = _transposed_size(size, taps, stride[axis], padding)
    return (None if x is None else x[0], *sizes, None if weights is None else weights[0])


def transposed_node(node: Node, shape: TensorInfo) -> Node:
    """The same as a TRANSPOSE_CONV with operand ``shape``: paddings agree, as both halve what hangs over."""
    padding, (stride_h, stride_w) = _transposed_options(node)
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "fused_activation_function": "none"}
    operands = (shape, node.operand(1), node.operand(0), node.operand(2))
    return replace(node, spec=get("TRANSPOSE_CONV"), operands=operands, options=options)


def convolution_2d_transpose_bias(node: Node) -> list[ResultType]:
    """``x [N, H, W, C]``, filter ``[O, kh, kw, C]`` and bias ``[O]`` to ``[N, OH, OW, O]``."""
    shape = transposed_shape(node, shape_of(node, 0, 4))
    same_dim(node, shape[3], vector_length(node, 2), "channels of filter and bias")
    check_elements(node, shape, "float32")
    return result(node, node.operand(0).dtype, shape)


def transposed_macs(node: Node) -> int:
    """Multiply-accumulates of the TRANSPOSE_CONV."""
    return transposed_node(node, TensorInfo("", "int32", (4,))).macs


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What MaxPoolingWithArgmax2D and MaxUnpooling2D say; pairs are (height, width)."""

    padding: str
    stride: tuple[int, int]
    window: tuple[int, int]
    activation: str


def pool_options(node: Node) -> PoolOptions:
    """The options of a pool; raises where one is not allowed."""
    padding, stride_w, stride_h, window_w, window_h, activation = _fields(node, 6)
    names = ("the stride's height", "the stride's width", "the window's height", "the window's width")
    sizes = [
        positive(node, name, size) for name, size in zip(names, (stride_h, stride_w, window_h, window_w), strict=True)
    ]
    if not 0 <= activation < len(_ACTIVATIONS):
        raise node.error(f"the activation is {activation}; allowed are 0 to {len(_ACTIVATIONS) - 1}")
    return PoolOptions(_padding(node, padding), (sizes[0], sizes[1]), (sizes[2], sizes[3]), _ACTIVATIONS[activation])


def pool_axes(node: Node, height: int | None, width: int | None) -> tuple[Axis, Axis]:
    """What the window makes of the sizes of an image."""
    options = pool_options(node)
    rows, columns = (
        axis_window(node, name, size, options.window[i], options.stride[i], 1, options.padding)
        for i, (name, size) in enumerate((("height", height), ("width", width)))
    )
    return rows, columns


def max_pooling_with_argmax_2d(node: Node) -> list[ResultType]:
    """The largest element of each window and its place in the window, both ``[N, OH, OW, C]``."""
    x = shape_of(node, 0, 4)
    shape: Shape | None = None
    if x is not None:
        rows, columns = pool_axes(node, x[1], x[2])
        shape = (x[0], rows.output, columns.output, x[3])
    return [*result(node, "float32", shape), ResultType("float32", shape)]


def max_unpooling_2d(node: Node) -> list[ResultType]:
    """Values and places, both ``[N, H, W, C]``, to an image as many times larger as the window says."""
    x, places, window = shape_of(node, 0, 4), shape_of(node, 1, 4), pool_options(node).window
    if x is None:
        return result(node, "float32", None)
    for name, a, b in zip(("images", "rows", "columns", "channels"), x, places or x, strict=True):
        same_dim(node, a, b, f"{name} of values and places")
    height, width = (None if size is None else size * by for size, by in zip(x[1:3], window, strict=True))
    shape = (x[0], height, width, x[3])
    check_elements(node, shape, "float32")
    return result(node, "float32", shape)


verify_convolution_2d_transpose_bias = verified(_all_float32, convolution_2d_transpose_bias)
verify_max_pooling_with_argmax_2d = verified(_all_float32, max_pooling_with_argmax_2d)
verify_max_unpooling_2d = verified(_all_float32, max_unpooling_2d)
