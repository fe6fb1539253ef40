"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odc_mlir.numerics.fixed import real_bounds
from odc_mlir.numerics.pooling import PoolWindows, average_pool, l2_pool, max_pool, small_pool
from odc_mlir.ops.infer.common import place_window, require_dtype, window_options
from odc_mlir.ops.pooling import pool_window
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common
from odc_mlir.runtime.kernels.convolution import image_shape

Compute = Callable[..., Array]


def _pool(node: Node, compute: Compute, kind: str) -> Execute:
    require_dtype(node, node.operand(0), "float32", *common.CODES)
    options, kernel, dtype = window_options(node, dilated=False), pool_window(node), node.operand(0).info.numpy
    low: float
    high: float
    if node.results[0].dtype == "float32":
        if common.fused_activation(node) == "tanh":
            raise common.unsupported(node, "a pool with a fused tanh is not supported")
        low, high = real_bounds(common.fused_activation(node))
    else:
        low, high = common.activation_codes(node, node.results[0])

    def make(shape: tuple[int, ...]) -> common.PlannedKernel:
        image = image_shape(node, shape)
        rows, columns = place_window(node, options.stride, options.padding, kernel, image[1:3])
        output, pads = (rows.output or 0, columns.output or 0), (rows.before, columns.before)
        windows = PoolWindows(kernel, options.stride, pads, output)
        return small_pool(image, dtype, kind, windows, (low, high)) or (lambda x: compute(x, windows, low, high))

    return common.planned(node, 0, (), make)


average_pool_2d = partial(_pool, compute=average_pool, kind="average")
max_pool_2d = partial(_pool, compute=max_pool, kind="max")


def l2_pool_2d(node: Node) -> Execute:
    """Compute the root mean square of each window: ``[N, H, W, C]`` to ``[N, OH, OW, C]``."""
    if node.operand(0).dtype != "float32":
        raise common.unsupported(node, f"element type {node.operand(0).dtype} is not supported; float32 is")
    return _pool(node, l2_pool, "l2")
