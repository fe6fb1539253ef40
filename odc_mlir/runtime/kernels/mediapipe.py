"""MediaPipe's custom operators on float32 images; :mod:`odc_mlir.ops.infer.mediapipe` says where they are defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.infer.mediapipe import pool_axes, pool_options, transposed_node, transposed_shape
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import fetch, input_error, real_clamp
from odc_mlir.runtime.kernels.convolution import image_shape
from odc_mlir.runtime.kernels.custom import window_taps

_PLACE = 0.1  # what MediaPipe adds, so that rounding down gives the place back
_NOWHERE = -(1 << 31)


def convolution_2d_transpose_bias(node: Node) -> Execute:
    """TRANSPOSE_CONV's kernel, its result as large as filter, stride and padding make it."""
    x_of = fetch(node, 0)
    builtin = transposed_node(node, TensorInfo("", "int32", (4,)))
    run = builtin.spec.kernel_function(builtin)

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        x = x_of(operands)
        size = transposed_shape(node, image_shape(node, x.shape))
        return run([np.array(size, np.int32), operands[1], x, operands[2]])

    return execute


def max_pooling_with_argmax_2d(node: Node) -> Execute:
    """The largest element of each window, and ``row * width + column`` in the window of the first such one."""
    x_of, options = fetch(node, 0), pool_options(node)
    clamp = real_clamp(replace(node, options={"fused_activation_function": options.activation}))

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        images, height, width, channels = image_shape(node, x.shape)
        rows, columns = pool_axes(node, height, width)
        shape = (images, rows.output or 0, columns.output or 0, channels)
        best = np.full(shape, np.finfo(np.float32).min, np.float32)
        place = np.full(shape, _PLACE, np.float32)
        for tap in window_taps(x, options.window, options.stride, rows, columns):
            better = tap.is_inside[None, :, :, None] & (tap.values > best)
            np.copyto(place, np.float32(tap.y * options.window[1] + tap.x + _PLACE), where=better)
            np.copyto(best, tap.values, where=better)
        return [best if clamp is None else clamp(best), place]

    return execute


def max_unpooling_2d(node: Node) -> Execute:
    """Zeros, and each value where its window's place says; the last of several wins, one outside is dropped."""
    x_of, places_of, options = fetch(node, 0), fetch(node, 1), pool_options(node)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, places = x_of(operands), places_of(operands)
        images, height, width, channels = image_shape(node, x.shape)
        if places.shape != x.shape:
            raise input_error(node, f"the places have the shape {list(places.shape)}, the values {list(x.shape)}")
        size = height * options.window[0], width * options.window[1]
        check_elements(node, (images, *size, channels), "float32")
        index = np.where(np.abs(places) < -_NOWHERE, places, _NOWHERE).astype(np.int64)
        within_y = np.trunc(index / options.window[1]).astype(np.int64)  # as C divides
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
        return [result]

    return execute
