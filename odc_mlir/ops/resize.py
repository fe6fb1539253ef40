"""Image resizing."""

from __future__ import annotations

from odc_mlir.ops.infer.common import option, result, shape_of, static_ints, vector_length
from odc_mlir.ops.spec import Node, OperatorFamily, ResultType, moved


def resize(node: Node) -> list[ResultType]:
    """Infer ``[N, height, width, C]`` from ``[N, H, W, C]`` and the new size (height, width)."""
    x, dtype = shape_of(node, 0, 4), node.operand(0).dtype
    resize_modes(node)
    length = vector_length(node, 1)
    if length not in (None, 2):
        raise node.error(f"the new size has {length} entries; it must have 2")
    size = static_ints(node, 1)
    if size is not None and any(d < 1 for d in size):
        raise node.error(f"the new size is {list(size)}; it must be positive")
    if x is not None and 0 in x[1:3]:
        raise node.error("the input has no pixels")
    height, width = size or (None, None)
    batch, channels = (x[0], x[3]) if x is not None else (None, None)
    return result(node, dtype, (batch, height, width, channels))


def resize_modes(node: Node) -> tuple[bool, bool]:
    """Return ``(align_corners, half_pixel_centers)``. Raises ModelError if both are set."""
    align, half = bool(option(node, "align_corners")), bool(option(node, "half_pixel_centers"))
    if align and half:
        raise node.error("align_corners and half_pixel_centers cannot both be set")
    return align, half


_op = OperatorFamily(__name__, version=4, quant=moved(), infer="resize")

SPECS = (
    _op("RESIZE_BILINEAR", "input size:int32", "image resizing by bilinear interpolation"),
    _op("RESIZE_NEAREST_NEIGHBOR", "input size:int32", "image resizing by nearest pixels"),
)
