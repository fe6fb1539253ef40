"""Shapes of MediaPipe's custom operators. All tensors are float32, images are NHWC.

``mediapipe/util/tflite/operations`` of https://github.com/google-ai-edge/mediapipe defines them. Options of
convolutions and pools are structures of little-endian int32 fields. Options of transforms are maps. Only version 2 of
transforms is supported: version 1 has other options and other arithmetic.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

from odc_mlir.ops import get
from odc_mlir.ops.custom import custom_option
from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Node, ResultType, Shape, TensorInfo

_PADDINGS = {1: "same", 2: "valid"}
_ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6")
_FIELD_BYTES = 4
_VERSION = 2  # supported version of transforms


def _fields(node: Node, count: int) -> tuple[int, ...]:
    data = bytes(node.custom_options)
    if len(data) < count * _FIELD_BYTES:
        raise node.error(f"the options have {len(data)} bytes; they must have at least {count * _FIELD_BYTES}")
    return struct.unpack_from(f"<{count}i", data)


def _padding(node: Node, code: int) -> str:
    if code not in _PADDINGS:
        raise node.error(f"the padding is {code}; allowed are 1 (same), 2 (valid)")
    return _PADDINGS[code]


def verify_float32(node: Node) -> None:
    """Check that all tensors are float32."""
    for info in (*node.operands, *node.results):
        if info is not None and info.dtype != "float32":
            raise node.error(f"is defined for float32 only, found {info.dtype}", tensor=info.name)


def _transposed_size(size: int | None, kernel: int | None, stride: int, padding: str) -> int | None:
    if size is None or kernel is None:
        return None
    overhang = max(0, kernel - (size - 1) % stride - 1) if padding == "same" else 0
    return stride * (size - 1) + kernel - overhang


def _transposed_options(node: Node) -> tuple[str, tuple[int, int]]:
    padding, stride_w, stride_h = _fields(node, 3)
    stride = (
        common.positive(node, "the stride's height", stride_h),
        common.positive(node, "the stride's width", stride_w),
    )
    return _padding(node, padding), stride


def transposed_shape(node: Node, x: Shape | None) -> Shape:
    """Return ``[N, OH, OW, O]`` for an input of shape ``x``, by MediaPipe's own rule for ``same``."""
    weights, (padding, stride) = common.shape_of(node, 1, 4), _transposed_options(node)
    sizes: list[int | None] = [None, None]
    if x is not None and weights is not None:
        common.same_dim(node, x[3], weights[3], "channels of input and filter")
        for axis in range(2):
            size, taps = x[1 + axis], weights[1 + axis]
            for value, what in ((size, "the input's size"), (taps, "the filter's size")):
                if value is not None:
                    common.positive(node, what, value)
            sizes[axis] = _transposed_size(size, taps, stride[axis], padding)
    return (None if x is None else x[0], *sizes, None if weights is None else weights[0])


def transposed_node(node: Node, shape: TensorInfo) -> Node:
    """Return the operator as a TRANSPOSE_CONV with operand ``shape``. Both have the same padding."""
    padding, (stride_h, stride_w) = _transposed_options(node)
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "fused_activation_function": "none"}
    operands = (shape, node.operand(1), node.operand(0), node.operand(2))
    return replace(node, spec=get("TRANSPOSE_CONV"), operands=operands, options=options)


def convolution_2d_transpose_bias(node: Node) -> list[ResultType]:
    """Infer ``[N, OH, OW, O]`` from ``x [N, H, W, C]``, filter ``[O, kh, kw, C]`` and bias ``[O]``."""
    shape = transposed_shape(node, common.shape_of(node, 0, 4))
    common.same_dim(node, shape[3], common.vector_length(node, 2), "channels of filter and bias")
    common.check_elements(node, shape, "float32")
    return common.result(node, node.operand(0).dtype, shape)


def transposed_macs(node: Node) -> int:
    """Return the multiply-accumulates of the TRANSPOSE_CONV."""
    return transposed_node(node, TensorInfo("", "int32", (4,))).macs


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Options of MaxPoolingWithArgmax2D and MaxUnpooling2D. Pairs are (height, width)."""

    padding: str
    stride: tuple[int, int]
    window: tuple[int, int]
    activation: str


def pool_options(node: Node) -> PoolOptions:
    """Return the options of a pool. Raises ModelError for invalid options."""
    padding, stride_w, stride_h, window_w, window_h, activation = _fields(node, 6)
    names = ("the stride's height", "the stride's width", "the window's height", "the window's width")
    sizes = [
        common.positive(node, name, size)
        for name, size in zip(names, (stride_h, stride_w, window_h, window_w), strict=True)
    ]
    if not 0 <= activation < len(_ACTIVATIONS):
        raise node.error(f"the activation is {activation}; allowed are 0 to {len(_ACTIVATIONS) - 1}")
    return PoolOptions(_padding(node, padding), (sizes[0], sizes[1]), (sizes[2], sizes[3]), _ACTIVATIONS[activation])


def pool_axes(node: Node, height: int | None, width: int | None) -> tuple[common.WindowAxis, common.WindowAxis]:
    """Return the window's axes over an image of these sizes."""
    options = pool_options(node)
    rows, columns = common.place_window(node, options.stride, options.padding, options.window, (height, width))
    return rows, columns


def max_pooling_with_argmax_2d(node: Node) -> list[ResultType]:
    """Infer the largest elements of windows and the indices of these elements in windows, ``[N, OH, OW, C]``."""
    x = common.shape_of(node, 0, 4)
    shape: Shape | None = None
    if x is not None:
        rows, columns = pool_axes(node, x[1], x[2])
        shape = (x[0], rows.output, columns.output, x[3])
    return [*common.result(node, "float32", shape), ResultType("float32", shape)]


def max_unpooling_2d(node: Node) -> list[ResultType]:
    """Infer an image from values and indices ``[N, H, W, C]``. It is larger by the window's size."""
    x, places, window = common.shape_of(node, 0, 4), common.shape_of(node, 1, 4), pool_options(node).window
    if x is None:
        return common.result(node, "float32", None)
    for name, a, b in zip(("images", "rows", "columns", "channels"), x, places or x, strict=True):
        common.same_dim(node, a, b, f"{name} of values and indices")
    height, width = (None if size is None else size * by for size, by in zip(x[1:3], window, strict=True))
    shape = (x[0], height, width, x[3])
    common.check_elements(node, shape, "float32")
    return common.result(node, "float32", shape)


def is_known_version(node: Node) -> bool:
    """Return whether a transform has the supported version."""
    return node.version == _VERSION


def _matrix(node: Node, index: int) -> None:
    shape = node.operand(index).shape
    if shape is not None and None not in shape and math.prod(d or 0 for d in shape) != 16:
        raise node.error(f"the matrix has the shape {common.shape_text(shape)}; it must have 16 elements")


@dataclass(frozen=True, slots=True)
class CropOptions:
    """Options of Landmarks2TransformMatrix. Pairs are (x, y). The crop contains the landmarks in ``subset``."""

    left: int
    right: int
    target_radians: float
    size: tuple[int, int]
    scale: tuple[float, float]
    subset: tuple[int, ...]


def crop_options(node: Node) -> CropOptions:
    """Return the options of a crop. Raises ModelError for invalid options."""
    subset = custom_option(node, "subset_idxs", [])
    left, right = custom_option(node, "left_rotation_idx", 0), custom_option(node, "right_rotation_idx", 0)
    if not subset or not all(isinstance(index, int) and index >= 0 for index in (left, right, *subset)):
        raise node.error(f"landmarks are {left}, {right} and {subset}; they must be numbers from 0, and some")
    scale = custom_option(node, "scale_x", 0.0), custom_option(node, "scale_y", 0.0)
    if min(scale) <= 0:
        raise node.error(f"the scale is {scale[0]} x {scale[1]}; it must be positive")
    size = output_size(node)
    radians = custom_option(node, "target_rotation_radians", 0.0)
    return CropOptions(left, right, radians, (size[1], size[0]), scale, tuple(subset))


def output_size(node: Node) -> tuple[int, int]:
    """Return height and width of a transform's result."""
    names = ("output_height", "output_width")
    height, width = (common.positive(node, name, custom_option(node, name, 0)) for name in names)
    return height, width


def landmarks_2_transform_matrix(node: Node) -> list[ResultType]:
    """Infer a matrix ``[1, 4, 4]`` from landmarks ``[1, count, 3]``."""
    if not is_known_version(node):
        return common.open_results(node)
    shape, options = common.shape_of(node, 0, 3), crop_options(node)
    if shape is not None:
        common.same_dim(node, shape[0], 1, "the batch")
        common.same_dim(node, shape[2], 3, "coordinates of a landmark")
        last = max(options.left, options.right, *options.subset)
        if shape[1] is not None and last >= shape[1]:
            raise node.error(f"landmark {last} is asked for, there are {shape[1]}")
    return common.result(node, "float32", (1, 4, 4))


def transform_landmarks(node: Node) -> list[ResultType]:
    """Infer the type of landmarks ``[1, count, 2 or 3]``, transformed by a 4 x 4 matrix."""
    if not is_known_version(node):
        return common.open_results(node)
    shape = common.shape_of(node, 0, 3)
    _matrix(node, 1)
    if shape is not None:
        common.same_dim(node, shape[0], 1, "the batch")
        if shape[2] not in (None, 2, 3):
            raise node.error(f"landmarks have {shape[2]} coordinates; they must have 2 or 3")
    return common.result(node, "float32", shape)


def transform_tensor_bilinear(node: Node) -> list[ResultType]:
    """Infer ``[1, output height, output width, C]`` from an image ``[1, H, W, C]`` and a 4 x 4 matrix."""
    if not is_known_version(node):
        return common.open_results(node)
    shape = common.shape_of(node, 0, 4)
    _matrix(node, 1)
    if shape is not None:
        common.same_dim(node, shape[0], 1, "the batch")
    found = (1, *output_size(node), None if shape is None else shape[3])
    common.check_elements(node, found, "float32")
    return common.result(node, "float32", found)
