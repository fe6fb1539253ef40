"""Convolutions over volumes: CONV_3D, CONV_3D_TRANSPOSE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.numerics import volume
from odc_mlir.numerics.convolution import ConvFilter
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.infer.volume import VolumeOptions, check_wanted, kernel_of, place_volume_window, volume_options
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, ints, real_clamp, unsupported
from odc_mlir.runtime.kernels.convolution import prepared
from odc_mlir.runtime.kernels.sums import bias_of

Triple = tuple[int, int, int]


def _require_float(node: Node, index: int) -> None:
    if node.operand(index).dtype != "float32":
        raise unsupported(node, f"element type {node.operand(index).dtype} is not supported; float32 is")


def _volume(node: Node, x: Array, channels: int) -> Array:
    if x.ndim != 5 or x.shape[4] != channels:
        raise input_error(node, f"the input has the shape {list(x.shape)}; it must be a volume of {channels} channels")
    return x


def _finish(node: Node, sums: Array, bias: Array | None) -> list[Array]:
    if bias is not None:
        sums += bias.reshape(-1)
    clamp = real_clamp(node)
    return [sums if clamp is None else clamp(sums)]


def _window(
    node: Node, options: VolumeOptions, kernel: Triple, sizes: Sequence[int]
) -> tuple[Triple, volume.VolumeWindow]:
    depth, height, width = place_volume_window(node, options, kernel, tuple(sizes))
    before = depth.before, height.before, width.before
    after = depth.after, height.after, width.after
    output = depth.output or 0, height.output or 0, width.output or 0
    return output, volume.VolumeWindow(options.stride, options.dilation, before, after)


def conv_3d(node: Node) -> Execute:
    """Return the kernel of CONV_3D on ``[N, D, H, W, C]`` with a filter ``[kd, kh, kw, C, O]``."""
    _require_float(node, 0)
    options, x_of, bias_info = volume_options(node), fetch(node, 0), node.optional(2)

    def prepare(values: Array) -> tuple[tuple[ConvFilter, ...], Triple]:
        return volume.volume_filter(values), kernel_of(node, values.shape) or (1, 1, 1)

    filter_of = prepared(node, 1, prepare)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        filters, kernel = filter_of(operands)
        x = _volume(node, x_of(operands), filters[0].in_channels)
        output, window = _window(node, options, kernel, x.shape[1:4])
        check_elements(node, (x.shape[0], *output, filters[0].out_channels), "float32")
        return _finish(node, volume.conv3d(x, filters, window, output), bias_of(operands, bias_info, 2))

    return execute


def conv_3d_transpose(node: Node) -> Execute:
    """Return the kernel of CONV_3D_TRANSPOSE on ``[N, D, H, W, C]`` with a filter ``[kd, kh, kw, O, C]``."""
    _require_float(node, 2)
    options, shape_of, x_of, bias_info = volume_options(node), fetch(node, 0), fetch(node, 2), node.optional(3)

    def prepare(values: Array) -> tuple[tuple[ConvFilter, ...], Array]:
        kernel_of(node, values.shape)
        return volume.transpose_volume_filter(values, options.dilation), np.array(values.shape)

    filter_of = prepared(node, 1, prepare)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        filters, weights_shape = filter_of(operands)
        x, wanted, weights = (
            _volume(node, x_of(operands), filters[0].in_channels),
            ints(shape_of(operands)),
            ints(weights_shape),
        )
        kernel = kernel_of(node, weights) or (1, 1, 1)
        check_wanted(node, wanted, options, kernel, x.shape, weights)
        check_elements(node, wanted, "float32")
        _, window = _window(node, options, kernel, wanted[1:4])
        sums = volume.transpose_conv3d(x, filters, window, (wanted[1], wanted[2], wanted[3]))
        return _finish(node, sums, bias_of(operands, bias_info, 3))

    return execute
