"""Image resizing: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odc_mlir.numerics import resize
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.resize import resize_modes
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import CODES, PlannedKernel, input_error, ints, planned
from odc_mlir.runtime.kernels.convolution import image_shape


def _resize(node: Node, resizer: Callable[[tuple[int, ...], tuple[int, int], bool, bool], PlannedKernel]) -> Execute:
    align_corners, half_pixel = resize_modes(node)

    def make(shape: tuple[int, ...], sizes: Array) -> PlannedKernel:
        image, size = image_shape(node, shape), ints(sizes)
        if len(size) != 2 or min(size) < 1:
            raise input_error(node, f"the new size {list(size)} must be two positive numbers")
        if 0 in image[1:3]:
            raise input_error(node, f"the input {list(shape)} has no pixels")
        check_elements(node, (image[0], *size, image[3]), node.results[0].dtype)
        if size == image[1:3]:
            return lambda x: x
        return resizer(shape, (size[0], size[1]), align_corners, half_pixel)

    return planned(node, 0, (1,), make)


def resize_bilinear(node: Node) -> Execute:
    """Resize ``[N, H, W, C]`` to the (height, width) in operand 1 by bilinear interpolation."""
    require_dtype(node, node.operand(0), "float32", *CODES)
    by_reference = node.context.numerics == "litert"

    def resizer(shape: tuple[int, ...], size: tuple[int, int], align: bool, half: bool) -> PlannedKernel:
        return lambda x: resize.resize_bilinear(x, size, align, half, by_reference=by_reference)

    return _resize(node, resizer)


resize_nearest_neighbor = partial(_resize, resizer=resize.nearest_resizer)
