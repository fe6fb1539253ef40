"""Image resizing: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odc_mlir.numerics.resize import resize_bilinear as bilinear
from odc_mlir.numerics.resize import resize_nearest as nearest
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.infer.resize import resize_modes
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import CODES, fetch, input_error, ints
from odc_mlir.runtime.kernels.convolution import image


def _resize(node: Node, compute: Callable[[Array, tuple[int, int], bool, bool], Array]) -> Execute:
    (align_corners, half_pixel), x_of, size_of = resize_modes(node), fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, size = image(node, x_of(operands)), ints(size_of(operands))
        if len(size) != 2 or min(size) < 1:
            raise input_error(node, f"the new size {list(size)} must be two positive numbers")
        if 0 in x.shape[1:3]:
            raise input_error(node, f"the input {list(x.shape)} has no pixels")
        check_elements(node, (x.shape[0], *size, x.shape[3]), node.results[0].dtype)
        return [compute(x, (size[0], size[1]), align_corners, half_pixel)]

    return execute


def resize_bilinear(node: Node) -> Execute:
    """``[N, H, W, C]`` and (height, width) to ``[N, height, width, C]``, interpolated."""
    require_dtype(node, node.operand(0), "float32", *CODES)
    return _resize(node, bilinear)


def resize_nearest_neighbor(node: Node) -> Execute:
    """``[N, H, W, C]`` and (height, width) to ``[N, height, width, C]``, nearest pixels."""
    return _resize(node, nearest)
