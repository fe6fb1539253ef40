"""MediaPipe's custom operators on float32 images. :mod:`odc_mlir.ops.infer.mediapipe` cites the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.ops.infer import mediapipe
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import computed, fetch, input_error, real_clamp, unsupported
from odc_mlir.runtime.kernels.convolution import image_shape
from odc_mlir.runtime.kernels.custom import window_taps

_PLACE = np.float32(0.1)  # MediaPipe's offset of indices; rounding down recovers the index
_NOWHERE = -(1 << 31)


def convolution_2d_transpose_bias(node: Node) -> Execute:
    """Return the kernel of a TRANSPOSE_CONV with a result size that follows from filter, stride and padding."""
    x_of = fetch(node, 0)
    builtin = mediapipe.transposed_node(node, TensorInfo("", "int32", (4,)))
    run = builtin.spec.kernel_function(builtin)

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        x = x_of(operands)
        size = mediapipe.transposed_shape(node, image_shape(node, x.shape))
        return run([np.array(size, np.int32), operands[1], x, operands[2]])

    return execute


def max_pooling_with_argmax_2d(node: Node) -> Execute:
    """Compute the largest element of each window and the first index of this element, ``row * width + column``."""
    options = mediapipe.pool_options(node)
    clamp = real_clamp(replace(node, options={"fused_activation_function": options.activation}))

    def compute(x: Array) -> list[Array]:
        images, height, width, channels = image_shape(node, x.shape)
        rows, columns = mediapipe.pool_axes(node, height, width)
        shape = (images, rows.output or 0, columns.output or 0, channels)
        best = np.full(shape, np.finfo(np.float32).min, np.float32)
        place = np.full(shape, _PLACE, np.float32)
        for tap in window_taps(x, options.window, options.stride, rows, columns):
            better = tap.is_inside[None, :, :, None] & (tap.values > best)
            np.copyto(place, np.float32(tap.y * options.window[1] + tap.x) + _PLACE, where=better)
            np.copyto(best, tap.values, where=better)
        return [best if clamp is None else clamp(best), place]

    return computed(node, compute, several=True)


def max_unpooling_2d(node: Node) -> Execute:
    """Write values at indices in windows of zeros. Drop values outside. The last value at an index wins."""
    options = mediapipe.pool_options(node)

    def compute(x: Array, places: Array) -> Array:
        images, height, width, channels = image_shape(node, x.shape)
        if places.shape != x.shape:
            raise input_error(node, f"the indices have the shape {list(places.shape)}; the values have {list(x.shape)}")
        size = height * options.window[0], width * options.window[1]
        check_elements(node, (images, *size, channels), "float32")
        index = np.where(np.abs(places) < -_NOWHERE, places, _NOWHERE).astype(np.int64)
        within_y = np.trunc(index / options.window[1]).astype(np.int64)  # as in C
        within_x = index - within_y * options.window[1]
        first_y, first_x = (
            np.arange(count) * stride - max((count - 1) * stride + window - total, 0) // 2
            for count, stride, window, total in zip((height, width), options.stride, options.window, size, strict=True)
        )
        ys, xs = first_y[:, None, None] + within_y, first_x[:, None] + within_x
        kept = (ys >= 0) & (ys < size[0]) & (xs >= 0) & (xs < size[1])
        image, _, _, channel = np.nonzero(kept)
        result = np.zeros((images, *size, channels), np.float32)
        result[image, ys[kept], xs[kept], channel] = x[kept]
        return result

    return computed(node, compute)


def _require_version(node: Node) -> None:
    if not mediapipe.is_known_version(node):
        raise unsupported(node, f"version {node.version} is not known, only version 2")


def _turn(radians: float) -> Array:
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(radians), -np.sin(radians)], [np.sin(radians), np.cos(radians)]]
    return matrix


def _shift(x: float, y: float) -> Array:
    matrix = np.eye(4)
    matrix[:2, 3] = x, y
    return matrix


def landmarks_2_transform_matrix(node: Node) -> Execute:
    """Compute the matrix that maps a crop to the image. The crop is the upright, scaled box around the landmarks."""
    _require_version(node)
    options = mediapipe.crop_options(node)

    def compute(x: Array) -> Array:
        if x.ndim != 3 or x.shape[1] <= max(options.left, options.right, *options.subset) or x.shape[2] != 3:
            least = 1 + max(options.left, options.right, *options.subset)
            raise input_error(
                node, f"the landmarks have the shape {list(x.shape)}; it must be [1, at least {least}, 3]"
            )
        points = x[0, :, :2].astype(np.float64)
        across = points[options.right] - points[options.left]
        radians = options.target_radians - float(np.arctan2(across[1], across[0]))
        turned = points[list(options.subset)] @ _turn(radians)[:2, :2].T
        low, high = turned.min(axis=0), turned.max(axis=0)
        back, size = _turn(-radians), np.array(options.size)
        center = back[:2, :2] @ ((low + high) / 2)
        scale = np.diag([*(np.array(options.scale) * (high - low) / size), 1.0, 1.0])
        matrix = _shift(*center) @ back @ scale @ _shift(*(-size / 2))
        return matrix[None].astype(np.float32)

    return computed(node, compute)


def _rows(node: Node, matrix: Array) -> Array:
    if matrix.size != 16:
        raise input_error(node, f"the matrix has the shape {list(matrix.shape)}; it must have 16 elements")
    return matrix.reshape(4, 4)[:2, [0, 1, 3]]


def transform_landmarks(node: Node) -> Execute:
    """Transform x and y by the matrix's first two rows for z = 0. The third coordinate stays."""
    _require_version(node)

    def compute(x: Array, matrix: Array) -> Array:
        rows = _rows(node, matrix)
        if x.ndim != 3 or x.shape[2] not in (2, 3):
            raise input_error(node, f"the landmarks have the shape {list(x.shape)}; it must be [*, *, 2] or [*, *, 3]")
        result = x.copy()
        for axis, (by_x, by_y, shift) in enumerate(rows):
            result[..., axis] = x[..., 0] * by_x + x[..., 1] * by_y + shift
        return result

    return computed(node, compute)


def transform_tensor_bilinear(node: Node) -> Execute:
    """Sample the image bilinearly at the transformed pixel centres."""
    _require_version(node)
    size = mediapipe.output_size(node)

    def compute(x: Array, matrix: Array) -> Array:
        rows = _rows(node, matrix)
        _, height, width, channels = image_shape(node, x.shape)
        check_elements(node, (1, *size, channels), "float32")
        out_y, out_x = (np.arange(count, dtype=np.float32) for count in size)
        places = []
        for by_x, by_y, shift in rows:
            moved = np.float32(float(shift) + float(by_x) * 0.5 + float(by_y) * 0.5 - 0.5)
            places.append(out_x * by_x + out_y[:, None] * by_y + moved)
        column, row = places
        is_inside = (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
        column, row = (np.where(is_inside, place, 0).astype(np.float64) for place in places)
        left, top = column.astype(np.int64), row.astype(np.int64)
        image = np.pad(x[0], ((0, 1), (0, 1), (0, 0)))
        right, below = (column - left)[..., None], (row - top)[..., None]
        upper, lower = ((1 - right) * image[line, left] + right * image[line, left + 1] for line in (top, top + 1))
        mixed = below * lower + (1 - below) * upper
        return np.where(is_inside[..., None], mixed, 0).astype(np.float32)[None]

    return computed(node, compute)
