"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from odc_mlir.numerics import convolution
from odc_mlir.numerics.matmul import IN_ORDER
from odc_mlir.numerics.single_tile import tile_convolution, tile_depthwise, tile_transposed
from odc_mlir.ops.convolution import groups_of, transposed_options
from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import PlannedKernel, fetch, input_error, ints
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation, bias_of

Filter = TypeVar("Filter")
WindowFilter = convolution.ConvFilter | convolution.DepthwiseFilter
Planner = Callable[[tuple[int, ...]], PlannedKernel | None]  # from a shape to its kernel for small inputs, or None


def prepared(node: Node, index: int, prepare: Callable[[Array], Filter]) -> Callable[[Sequence[Array | None]], Filter]:
    """Return the function that yields the prepared filter of operand ``index``. A constant filter is prepared once."""
    values = fetch(node, index)
    if node.operand(index).is_const:
        ready = prepare(values(()))
        return lambda _: ready

    def prepare_now(operands: Sequence[Array | None]) -> Filter:
        raw = values(operands)
        # Preparation converts codes to floating-point numbers that hold sums exactly.
        common.check_elements(node, raw.shape, "float32" if raw.dtype.kind == "f" else "float64")
        return prepare(raw)

    return prepare_now


def image_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return ``shape``. Raises InputError if it is not ``[N, H, W, C]``."""
    if len(shape) != 4:
        raise input_error(node, f"the input has the shape {list(shape)}; its rank must be 4")
    return shape


def small_plans(how: Accumulation, node: Node, weights: int, bias: int, make: Planner) -> Planner:
    """Return ``make`` with a cache of the last plan. If weights or bias are not constant, plans are None."""
    bias_info = node.optional(bias)
    fixed = node.operand(weights).is_const and (bias_info is None or bias_info.is_const)
    return lru_cache(maxsize=1)(make) if fixed and how.hybrid is None and how.sums != IN_ORDER else lambda shape: None


def check_filter(node: Node, values: Array) -> None:
    """Raise ModelError if the height or width of the filter ``[_, kh, kw, _]`` is not positive."""
    for name, size in zip(("height", "width"), values.shape[1:3], strict=True):
        common.positive(node, f"the filter's {name}", size)


def placed_window(
    node: Node, options: common.WindowOptions, kernel: tuple[int, int], shape: tuple[int, ...], channels: int
) -> convolution.Window:
    """Return the window over an input of ``shape`` with padding. Raises an error for results that are too large."""
    rows, columns = common.place_window(node, options.stride, options.padding, kernel, shape[1:3], options.dilation)
    common.check_elements(node, (shape[0], rows.output, columns.output, channels), node.results[0].dtype)
    pads = (rows.before, columns.before, rows.after, columns.after)
    return convolution.Window(kernel, options.stride, options.dilation, pads)


def _by_window(
    node: Node,
    how: Accumulation,
    filter_for: Callable[[Sequence[Array | None], int], WindowFilter],
    tile: Callable[..., PlannedKernel | None],
) -> Execute:
    """Return the kernel of a convolution. ``filter_for``: filter for inputs with this number of channels."""
    x_info, bias_info = node.operand(0), node.optional(2)
    options, x_of = common.window_options(node), fetch(node, 0)

    def placed(operands: Sequence[Array | None], shape: tuple[int, ...]) -> tuple[WindowFilter, convolution.Window]:
        ready = filter_for(operands, image_shape(node, shape)[3])
        return ready, placed_window(node, options, ready.kernel, shape, ready.out_channels)

    def make(shape: tuple[int, ...]) -> PlannedKernel | None:
        return tile(shape, x_info.info.numpy, *placed((), shape), how.of_tile(bias_info))

    ready_for = small_plans(how, node, 1, 2, make)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        if (plan := ready_for(x.shape)) is not None:
            return [plan(x)]
        ready, window = placed(operands, x.shape)

        def convolve(images: Array, finish: convolution.Finish | None) -> Array:
            return convolution.conv2d(images, ready, window, in_zero=how.in_zero, finish=finish, dtype=how.out_dtype)

        # Only ungrouped convolutions with one weight scale quantise activations symmetrically.
        is_plain = isinstance(ready, convolution.ConvFilter) and len(ready.groups) == 1
        asymmetric = not is_plain or (how.hybrid is not None and how.hybrid.per_channel)
        return [how.by_image(x, bias_of(operands, bias_info, 2), convolve, asymmetric=asymmetric)]

    return execute


def conv_2d(node: Node) -> Execute:
    """Convolve ``x [N, H, W, C]`` with ``[O, kh, kw, C/groups]``, add bias ``[O]``: ``[N, OH, OW, O]``."""
    w_info = node.operand(1)
    how = accumulation(node, node.operand(0), w_info, node.optional(2), w_info.static_shape[0])

    def prepare(values: Array) -> tuple[Array, dict[int, convolution.ConvFilter]]:
        check_filter(node, values)
        return how.weights(values, 0), {}

    filter_of = prepared(node, 1, prepare)

    def filter_for(operands: Sequence[Array | None], channels: int) -> convolution.ConvFilter:
        weights, by_groups = filter_of(operands)
        groups = groups_of(node, channels, weights.shape)
        if groups not in by_groups:
            by_groups[groups] = convolution.conv_filter(weights, how.largest, groups=groups, sums=how.sums)
        return by_groups[groups]

    return _by_window(node, how, filter_for, tile_convolution)


def depthwise_conv_2d(node: Node) -> Execute:
    """Convolve each channel of ``x [N, H, W, C]`` with ``[1, kh, kw, C*M]``, add bias: ``[N, OH, OW, C*M]``."""
    w_info = node.operand(1)
    how = accumulation(node, node.operand(0), w_info, node.optional(2), w_info.static_shape[3])

    def prepare(values: Array) -> convolution.DepthwiseFilter:
        check_filter(node, values)
        return convolution.depthwise_filter(how.weights(values, 3)[0], how.largest, sums=how.sums)

    filter_of = prepared(node, 1, prepare)

    def filter_for(operands: Sequence[Array | None], channels: int) -> convolution.DepthwiseFilter:
        ready = filter_of(operands)
        if channels < 1 or ready.out_channels % channels:
            raise input_error(node, f"the input has {channels} channels, the filter {ready.out_channels}")
        return ready

    return _by_window(node, how, filter_for, tile_depthwise)


def transpose_conv(node: Node) -> Execute:
    """Compute a transposed convolution of ``x [N, H, W, C]`` with ``[O, kh, kw, C]``, add bias: ``[N, OH, OW, O]``."""
    w_info, x_info, bias_info = node.operand(1), node.operand(2), node.optional(3)
    (stride, padding), x_of, shape_of = transposed_options(node), fetch(node, 2), fetch(node, 0)
    how = accumulation(node, x_info, w_info, bias_info, w_info.static_shape[0])

    def prepare(values: Array) -> convolution.ConvFilter:
        check_filter(node, values)
        return convolution.transpose_filter(how.weights(values, 0), how.largest, sums=how.sums)

    filter_of = prepared(node, 1, prepare)

    def placed(
        shape: tuple[int, ...], sizes: Array, ready: convolution.ConvFilter
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return padding and size of the result. Raises InputError for shapes that do not match."""
        _, rows, columns, channels = image_shape(node, shape)
        if channels != ready.in_channels:
            raise input_error(node, f"the input has {channels} channels, the filter {ready.in_channels}")
        wanted = ints(sizes)
        if len(wanted) != 4 or min(wanted[1:3]) < 1:
            raise input_error(node, f"the result's shape {list(wanted)} must have 4 positive sizes")
        height, width = wanted[1:3]
        common.check_elements(node, (shape[0], height, width, ready.out_channels), "float32")
        pads = (
            common.transposed_pad(rows, ready.kernel[0], stride[0], padding, height),
            common.transposed_pad(columns, ready.kernel[1], stride[1], padding, width),
        )
        return pads, (height, width)

    def make(shape: tuple[int, ...]) -> PlannedKernel | None:
        pads, size = placed(shape, shape_of(()), filter_of(()))
        return tile_transposed(
            image_shape(node, shape),
            x_info.info.numpy,
            how.weights(w_info.array(), 0),
            how.largest,
            how.sums,
            stride,
            pads,
            size,
            how.of_tile(bias_info),
        )

    ready_for = small_plans(how, node, 1, 3, make if node.operand(0).is_const else lambda shape: None)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        if (plan := ready_for(x.shape)) is not None:
            return [plan(x)]
        ready = filter_of(operands)
        pads, (height, width) = placed(x.shape, shape_of(operands), ready)

        def convolve(images: Array, finish: convolution.Finish | None) -> Array:
            return convolution.transpose_conv2d(
                images, ready, stride, pads, (height, width), in_zero=how.in_zero, finish=finish, dtype=how.out_dtype
            )

        return [how.by_image(x, bias_of(operands, bias_info, 3), convolve, asymmetric=True)]

    return execute
