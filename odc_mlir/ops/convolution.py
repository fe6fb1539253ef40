"""Convolutions of images and volumes, and fully connected layers."""

from __future__ import annotations

import math
from dataclasses import replace

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Node, OperatorFamily, ResultType, Shape, product


def _kernel(node: Node, weights: Shape | None) -> tuple[int | None, int | None]:
    if weights is None:
        return None, None
    for name, size in (("height", weights[1]), ("width", weights[2])):
        if size is not None:
            common.positive(node, f"the filter's {name}", size)
    return weights[1], weights[2]


def _window_result(node: Node, x: Shape | None, weights: Shape | None, channels: int | None) -> list[ResultType]:
    options = common.window_options(node)
    kernel = _kernel(node, weights)
    if x is None:
        return common.result(node, node.operand(0).dtype, (None, None, None, channels))
    known = [1 if taps is None else taps for taps in kernel]
    axes = common.place_window(node, options.stride, options.padding, known, x[1:3], options.dilation)
    is_open = [taps is None and options.padding == "valid" for taps in kernel]
    sizes = [None if unknown else axis.output for unknown, axis in zip(is_open, axes, strict=True)]
    return common.result(node, node.operand(0).dtype, (x[0], *sizes, channels))


def conv_2d(node: Node) -> list[ResultType]:
    """Infer ``[N, OH, OW, O]`` from ``x [N, H, W, C]`` and filter ``[O, kh, kw, C/groups]``."""
    x, weights = common.shape_of(node, 0, 4), common.shape_of(node, 1, 4)
    channels = weights[0] if weights else None
    if x is not None and weights is not None and x[3] is not None and weights[3] is not None:
        groups_of(node, x[3], weights)
    _check_bias(node, 2, channels)
    return _window_result(node, x, weights, channels)


def groups_of(node: Node, in_channels: int, weights: Shape) -> int:
    """Return the number of groups of a convolution. Raises ModelError if filter and input do not match."""
    per_group = weights[3] or 0
    if per_group < 1 or in_channels < 1 or in_channels % per_group:
        raise node.error(
            f"the input has {in_channels} channels, the filter {common.shape_text(weights)} reads {per_group}; "
            "the input's must be a multiple of the filter's"
        )
    groups = in_channels // per_group
    if weights[0] is not None and weights[0] % groups:
        raise node.error(f"{weights[0]} result channels cannot be divided into {groups} groups")
    return groups


def depthwise_conv_2d(node: Node) -> list[ResultType]:
    """Infer ``[N, OH, OW, C*M]`` from ``x [N, H, W, C]`` and filter ``[1, kh, kw, C*M]``."""
    x, weights = common.shape_of(node, 0, 4), common.shape_of(node, 1, 4)
    channels = weights[3] if weights else None
    if weights is not None and weights[0] not in (None, 1):
        raise node.error(f"the filter has the shape {common.shape_text(weights)}; its first dimension must be 1")
    if x is not None and x[3] is not None and channels is not None and (x[3] < 1 or channels % x[3]):
        raise node.error(f"the filter has {channels} channels, the input {x[3]}; it must be a multiple of the input's")
    _check_bias(node, 2, channels)
    return _window_result(node, x, weights, channels)


def transpose_conv(node: Node) -> list[ResultType]:
    """Infer the result of a transposed convolution. Operands: result shape, filter and ``x [N, H, W, C]``."""
    weights, x = common.shape_of(node, 1, 4), common.shape_of(node, 2, 4)
    transposed_options(node)
    _kernel(node, weights)
    _check_bias(node, 3, weights[0] if weights else None)
    length = common.vector_length(node, 0)
    if length not in (None, 4):
        raise node.error(f"the result's shape has {length} entries; it must have 4")
    if x is not None and weights is not None:
        common.same_dim(node, x[3], weights[3], "channels of input and filter")
    shape: list[int | None] = [None, None, None, weights[0] if weights else None]
    wanted = common.static_ints(node, 0)
    if wanted is not None:
        if any(d < 1 for d in wanted[1:3]):
            raise node.error(f"the result's shape is {list(wanted)}; sizes must be positive")
        shape[1:3] = wanted[1:3]
        common.same_dim(node, shape[3], wanted[3], "result channels of filter and result shape")
    shape[0] = x[0] if x is not None else None
    if x is not None and weights is not None:  # kernels compute every tap of every input pixel, tile by tile
        common.check_elements(node, (weights[0], weights[1], weights[2], x[3]), "float32")
    return common.result(node, node.operand(2).dtype, tuple(shape))


def transposed_options(node: Node) -> tuple[tuple[int, int], str]:
    """Return stride (y, x) and padding of a transposed convolution."""
    options = common.window_options(node, dilated=False)
    return options.stride, options.padding


def fully_connected(node: Node) -> list[ResultType]:
    """Infer ``[rows, O]`` from rows of I elements in ``x`` of any shape and weights ``[O, I]``."""
    x, weights = common.shape_of(node, 0), common.shape_of(node, 1, 2)
    dtype = node.results[0].dtype
    outputs, inputs = weights if weights else (None, None)
    if inputs == 0:
        raise node.error("the weights have no columns")
    _check_bias(node, 2, outputs)
    if common.option(node, "keep_num_dims"):
        if x is None or not x:
            found = common.result(node, dtype, None if x is None else (outputs,))
        else:
            common.same_dim(node, x[-1], inputs, "last dimension of the input and columns of the weights")
            found = common.result(node, dtype, (*x[:-1], outputs))
        return _with_workspace(node, found, x)
    rows: int | None = None
    if x is not None and inputs is not None and all(d is not None for d in x):
        total = math.prod(d for d in x if d is not None)
        if total % inputs:
            raise node.error(f"{total} input elements cannot be divided into rows of {inputs}")
        rows = total // inputs
    return _with_workspace(node, common.result(node, dtype, (rows, outputs)), x)


def _with_workspace(node: Node, found: list[ResultType], x: Shape | None) -> list[ResultType]:
    return [*found, ResultType(node.results[1].dtype, x)] if len(node.results) > 1 else found


def _check_bias(node: Node, index: int, channels: int | None) -> None:
    bias = node.optional(index)
    if bias is None or bias.shape is None or any(d is None for d in bias.shape) or channels is None:
        return
    if math.prod(bias.static_shape) != channels:
        raise node.error(
            f"the bias has the shape {common.shape_text(bias.shape)}; it must have {channels} elements",
            tensor=bias.name,
        )


def verify_transpose_conv(node: Node) -> None:
    """Check that the input has the result's element type."""
    if node.operand(2).dtype != node.results[0].dtype:
        raise node.error(
            f"the input is {node.operand(2).dtype}, the result {node.results[0].dtype}; they must be equal"
        )


_op = OperatorFamily(__name__, macs="product")
_volume = replace(_op, verify="infer.volume:verify_volume", kernels="volume")

SPECS = (
    _op(
        "CONV_2D",
        "input filter bias?",
        "2-D convolution of images [N, H, W, C] with filters [O, kh, kw, I], in C / I groups",
        version=8,
        quant=product(axis=0),
    ),
    _op(
        "DEPTHWISE_CONV_2D",
        "input filter bias?",
        "2-D convolution of each channel with its own filters [1, kh, kw, C*M]",
        version=7,
        quant=product(axis=3),
    ),
    _op(
        "TRANSPOSE_CONV",
        "output_shape:int32 filter input bias?",
        "transposed 2-D convolution: each pixel adds its filter taps to the result",
        version=5,
        quant=product(axis=0, input=2, bias=3),
        verify="own",
        macs="transposed",
    ),
    _volume(
        "CONV_3D",
        "input filter bias?",
        "convolution of NDHWC volumes with filters [kd, kh, kw, I, O]",
        quant=product(axis=4),
        infer="infer.volume:conv_3d",
    ),
    _volume(
        "CONV_3D_TRANSPOSE",
        "output_shape:int32 filter input bias?",
        "transposed convolution of volumes: each element adds its filter taps [kd, kh, kw, O, I] to the result",
        options="Conv3DOptions",
        quant=product(axis=3, input=2, bias=3),
        infer="infer.volume:conv_3d_transpose",
        macs="transposed",
    ),
    _op(
        "FULLY_CONNECTED",
        "input weights bias?",
        "rows of the input times weights [O, I], plus bias",
        gives="output workspace?",
        version=14,
        quant=product(axis=0),
        verify="shapes",
        kernels="fully_connected",
    ),
)
