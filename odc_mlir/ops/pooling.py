"""Pooling over windows of NHWC images."""

from __future__ import annotations

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import OWN, Node, OperatorFamily, ResultType, moved


def pool_window(node: Node) -> tuple[int, int]:
    """Return the window size (height, width) of a pool."""
    return common.positive(node, "filter_height"), common.positive(node, "filter_width")


def pool_2d(node: Node) -> list[ResultType]:
    """Infer ``[N, OH, OW, C]`` from ``[N, H, W, C]``."""
    x, dtype = common.shape_of(node, 0, 4), node.operand(0).dtype
    options, kernel = common.window_options(node, dilated=False), pool_window(node)
    if x is None:
        return common.result(node, dtype, (None,) * 4)
    rows, columns = common.place_window(node, options.stride, options.padding, kernel, x[1:3])
    return common.result(node, dtype, (x[0], rows.output, columns.output, x[3]))


_pool_2d = OperatorFamily(__name__, options="Pool2DOptions", version=3, quant=moved(), infer="pool_2d")

SPECS = (
    _pool_2d("AVERAGE_POOL_2D", "input", "average of each window, padding not counted"),
    _pool_2d("MAX_POOL_2D", "input", "maximum of each window"),
    _pool_2d("L2_POOL_2D", "input", "root of the mean square of each window", quant=OWN),
)
