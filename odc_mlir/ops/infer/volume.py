"""Shapes and checks of convolutions over volumes ``[N, D, H, W, C]``."""

from __future__ import annotations

from dataclasses import dataclass

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Node, ResultType, Shape

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    """Options of a convolution over volumes: stride and dilation (depth, height, width), and padding."""

    stride: Triple
    dilation: Triple
    padding: str  # same | valid


def volume_options(node: Node) -> VolumeOptions:
    """Return the options of a convolution over volumes. Raises ModelError for invalid options."""
    stride, dilation = (
        (common.positive(node, form % "d"), common.positive(node, form % "h"), common.positive(node, form % "w"))
        for form in ("stride_%s", "dilation_%s_factor")
    )
    return VolumeOptions(stride, dilation, common.choice(node, "padding", "same", "valid"))


def place_volume_window(
    node: Node, options: VolumeOptions, kernel: Triple, sizes: Shape
) -> tuple[common.WindowAxis, ...]:
    """Return result sizes and padding of a window over a volume of these three sizes."""
    return common.place_window(node, options.stride, options.padding, kernel, sizes, options.dilation)


def kernel_of(node: Node, weights: Shape) -> Triple | None:
    """Return the window size of a filter ``[kd, kh, kw, …]``, or None if unknown. Raises ModelError for 0."""
    if None in weights[:3]:
        return None
    depth, height, width = (
        common.positive(node, f"the filter's {name}", weights[i] or 0) for i, name in enumerate(common.AXES)
    )
    return depth, height, width


def conv_3d(node: Node) -> list[ResultType]:
    """Infer ``[N, OD, OH, OW, O]`` from ``x [N, D, H, W, C]`` and filter ``[kd, kh, kw, C, O]``."""
    x, weights, options = common.shape_of(node, 0, 5), common.shape_of(node, 1, 5), volume_options(node)
    dtype = node.operand(0).dtype
    channels = weights[4] if weights else None
    kernel = kernel_of(node, weights) if weights else None
    if x is None or weights is None or kernel is None:
        return common.result(node, dtype, (x[0] if x else None, None, None, None, channels))
    common.same_dim(node, x[4], weights[3], "channels of input and filter")
    sizes = [axis.output for axis in place_volume_window(node, options, kernel, x[1:4])]
    return common.result(node, dtype, (x[0], *sizes, channels))


def conv_3d_transpose(node: Node) -> list[ResultType]:
    """Infer the result from the result shape ``[N, OD, OH, OW, O]``, filter ``[kd, kh, kw, O, C]`` and ``x``."""
    weights, x, options = common.shape_of(node, 1, 5), common.shape_of(node, 2, 5), volume_options(node)
    dtype, wanted = node.operand(2).dtype, common.static_ints(node, 0)
    if common.vector_length(node, 0) not in (None, 5):
        raise node.error(f"the result's shape has {common.vector_length(node, 0)} entries; it must have 5")
    kernel = kernel_of(node, weights) if weights else None
    if x is not None and weights is not None:
        common.same_dim(node, x[4], weights[4], "channels of input and filter")
    if wanted is None:
        return common.result(node, dtype, (x[0] if x else None, None, None, None, weights[3] if weights else None))
    check_wanted(node, wanted, options, kernel, x, weights)
    return common.result(node, dtype, wanted)


def check_wanted(
    node: Node, wanted: tuple[int, ...], options: VolumeOptions, kernel: Triple | None, x: Shape | None, w: Shape | None
) -> None:
    """Raise ModelError unless a convolution maps a volume of shape ``wanted`` to shape ``x``."""
    if len(wanted) != 5 or min(wanted) < 0:
        raise node.error(f"the result's shape {list(wanted)} must be 5 sizes that are not negative")
    if w is not None:
        common.same_dim(node, wanted[4], w[3], "channels of result shape and filter")
    if x is None:
        return
    common.same_dim(node, wanted[0], x[0], "batches of result shape and input")
    if kernel is None:
        return
    back = place_volume_window(node, options, kernel, wanted[1:4])
    for name, size, axis in zip(common.AXES, x[1:4], back, strict=True):
        common.same_dim(node, size, axis.output, f"the input's {name} and what the result shape asks for")


def verify_volume(node: Node) -> None:
    """Check that all tensors are float32 if the input is. Other types cannot be executed."""
    ((bias, of),) = node.spec.quant.biases.items()
    x = node.operand(of.input)
    if x.dtype != "float32":
        return
    for info in (node.operand(of.weights), node.results[0], node.optional(bias)):
        if info is not None and info.dtype != x.dtype:
            raise node.error(
                f"{info.name!r} is {info.dtype}, the input {x.dtype}; they must be equal", tensor=info.name
            )
