"""Lowering of convolutions, fully connected layers and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.ops.convolution import groups_of, transposed_options
from odc_mlir.ops.infer.common import option, transposed_pad, window_options
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.transforms.native.kernels.elementwise import FULL, SINGLE
from odc_mlir.transforms.native.kernels.mathematics import OPERATIONS
from odc_mlir.transforms.native.lowering.arithmetic import (
    Arithmetic,
    Codes,
    Floats,
    bounds_of,
    float_bias,
    multiply_codes,
    multiply_floats,
)
from odc_mlir.transforms.native.lowering.moves import Windows, box, move, move_of, transposed
from odc_mlir.transforms.native.lowering.segment_writer import (
    Array,
    EmitCalls,
    KernelPattern,
    SegmentFunction,
    count,
    has_float_result,
    refusal,
    size_bytes,
)

_MOST_GROUPS = 8  # limit, because kernels multiply by the zeros of other groups
_MOST_MATRICES = 256  # each matrix is one call of the kernel
_ADD = {"operation": list(OPERATIONS).index("ADD"), "clamp": 1, "a": FULL, "b": SINGLE}
_WHOLE_BYTES = ("int8", "uint8", "int16", "float32")


def _arithmetic(node: Node, axis: int) -> Arithmetic:
    if node.operand(0).dtype == "int16" or not has_float_result(node):
        return Codes.of(node, node.operand(1).static_shape[axis], axis)
    return Floats.of(node, axis)


def _product(node: Node, windows: Windows) -> EmitCalls:
    if has_float_result(node) and node.operand(0).dtype != "int16" and not node.operand(1).is_const:
        return _computed(node, windows)
    arithmetic = _arithmetic(node, 0)
    return arithmetic.convolve(windows, arithmetic.weights.reshape(len(arithmetic.weights), -1))


def _computed(node: Node, windows: Windows) -> EmitCalls:
    """Plan a float product with computed weights ``[O, ...]``, transposed at run time instead of packed."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if weights.dtype != "float32" or x.is_const or (bias is not None and bias.dtype != "float32"):
        raise refusal(node, f"computed weights of {weights.dtype} have no native kernel in float")
    outputs = weights.static_shape[0]
    matrix = replace(weights, shape=(outputs, count(weights) // outputs))
    bounds = bounds_of(node)
    computed = bias is not None and not bias.is_const

    def emit(segment: SegmentFunction) -> None:
        multiply_floats(
            segment,
            windows,
            outputs,
            weights=transposed(segment, segment.operand(1), matrix, (1, 0)),
            bias=segment.operand(2) if computed else float_bias(node, outputs),
            output=segment.result(node.results[0]),
            bounds=bounds,
        )

    return emit


class LowerConv2DToKernels(KernelPattern):
    """Lower CONV_2D to a product of windows of ``[N, H, W, C]`` with a filter ``[O, kh, kw, C]``.

    The integer filter of a grouped convolution is extended by zeros for the channels of other groups.
    """

    operators = ("CONV_2D",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, weights = node.operand(0), node.operand(1)
        if weights.static_shape[3] != x.static_shape[3]:
            groups = groups_of(node, x.static_shape[3], weights.static_shape)
            if groups > _MOST_GROUPS or not weights.is_const or weights.dtype not in _WHOLE_BYTES:
                raise refusal(
                    node,
                    f"{groups} groups have no native kernel, at most {_MOST_GROUPS} with constant weights "
                    "are supported",
                )
            if x.dtype == "float32":
                return _one_by_one(node, groups)
            weights = _with_data(weights, _dense(weights, groups))
            node = replace(node, operands=(x, weights, *node.operands[2:]))
        _, height, width, _ = weights.static_shape
        return _product(node, Windows.of(node, x.static_shape, (height, width), window_options(node)))


def _one_by_one(node: Node, groups: int) -> EmitCalls:
    """Plan the groups of a float convolution as separate convolutions on copies of the channels.

    Zeros in the filter would turn infinite inputs of other groups into NaN.
    """
    x, weights, bias, out = node.operand(0), node.operand(1), node.optional(2), node.results[0]
    if weights.dtype != "float32" or (bias is not None and not bias.is_const):
        raise refusal(node, "integer weights or a computed bias of grouped float convolutions have no native kernel")
    places = np.arange(count(x)).reshape(*x.static_shape[:3], groups, -1)
    channels = out.static_shape[3] // groups
    group = replace(x, shape=(*places.shape[:3], places.shape[4]))
    result = replace(out, shape=(*out.static_shape[:3], channels))
    parts = []
    for number in range(groups):
        own = slice(number * channels, (number + 1) * channels)
        others = (None if bias is None else _with_data(bias, bias.array().reshape(-1)[own]),)
        part = replace(node, operands=(group, _with_data(weights, weights.array()[own]), *others), results=(result,))
        target = box((count(result) // channels, channels), (channels, 1), (channels * groups, 1), 0, own.start)
        assert target is not None, "two dimensions are not too many"
        parts.append((move_of(places[..., number, :]), LowerConv2DToKernels.plan(part), target))

    def emit(segment: SegmentFunction) -> None:
        joined = segment.result(out)
        for source, product, target in parts:
            taken, found = segment.allocate(size_bytes(group)), segment.allocate(size_bytes(result))
            move(segment, source, segment.operand(0), taken, 4)
            segment.emit_for(product, (taken, *segment.operands[1:]), (found,))
            move(segment, target, found, joined, 4)

    return emit


def _dense(weights: TensorInfo, groups: int) -> Array:
    array = weights.array()
    outputs, height, width, channels = array.shape
    result = np.zeros((outputs, height, width, groups, channels), array.dtype)
    if weights.quant is not None:
        result += np.asarray(weights.quant.zero_points, array.dtype).reshape(-1, 1, 1, 1, 1)
    own = np.arange(outputs) // (outputs // groups)
    result[np.arange(outputs), :, :, own] = array
    return result.reshape(outputs, height, width, groups * channels)


def _with_data(info: TensorInfo, array: Array) -> TensorInfo:
    data = memoryview(np.ascontiguousarray(array).tobytes())
    return replace(info, shape=array.shape, data=data, _array=None)


class LowerTransposeConvToKernels(KernelPattern):
    """Lower TRANSPOSE_CONV (result shape, filter ``[O, kh, kw, C]``, ``x [N, H, W, C]``) to a convolution.

    The convolution computes the ``sh * sw`` pixels per input pixel as channels, and a copy moves them to their places.
    The filter of this convolution has zeros. Infinite inputs would turn them into NaN, so that floats have another
    form: a product of every pixel and all taps, whose results are added at their places.
    """

    operators = ("TRANSPOSE_CONV",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        weights, x, out = node.operand(1), node.operand(2), node.results[0]
        if not weights.is_const or weights.dtype not in _WHOLE_BYTES:
            raise refusal(node, f"weights of {weights.dtype} that are computed or packed have no native kernel")
        (stride, padding), result = transposed_options(node), out.static_shape[1:3]
        axes = list(zip(x.static_shape[1:3], weights.static_shape[1:3], stride, result, strict=True))
        pads = [transposed_pad(size, taps, step, padding, length) for size, taps, step, length in axes]
        arithmetic = _arithmetic(replace(node, operands=(x, weights, *node.operands[3:])), 0)
        emit = _added(arithmetic, x, axes, pads) if isinstance(arithmetic, Floats) else _joint(node, axes, pads)
        return lambda segment: segment.emit_for(
            emit, [segment.operands[i] for i in (2, 1, *range(3, len(node.operands)))]
        )


_Axes = Sequence[tuple[int, int, int, int]]  # per axis: size of the input, taps, step, size of the result


def _joint(node: Node, axes: _Axes, pads: Sequence[int]) -> EmitCalls:
    """Plan a transposed convolution of codes: the ``sh * sw`` pixels per input pixel are channels of a convolution."""
    weights, x, out, result = node.operand(1), node.operand(2), node.results[0], [axis[3] for axis in axes]
    (images, height, width, channels), outputs = x.static_shape, weights.static_shape[0]
    grid, border, ways, stride = [], [], [], [axis[2] for axis in axes]
    for (size, taps, step, length), pad in zip(axes, pads, strict=True):
        neighbours, phase = np.divmod(np.arange(taps) - pad, step)  # of a tap: the input pixel, seen from the result's
        before, ahead = int(neighbours.max()), -int(neighbours.min())
        if before < 0:
            raise refusal(node, "a result that omits taps has no native kernel")
        grid.append(-(-length // step))
        border.append((before, max(0, grid[-1] + ahead - size)))
        ways.append((phase, before - neighbours, before + ahead + 1))
    (rows, above, high), (columns, left, wide) = ways
    phases, quant = math.prod(stride), weights.quant
    filters = np.empty((*stride, outputs, high, wide, channels), weights.info.numpy)
    filters[...] = 0 if quant is None else np.reshape(quant.zero_points, (-1, 1, 1, 1))
    filters[rows[:, None], columns, :, above[:, None], left] = weights.array().transpose(1, 2, 0, 3)
    taken = _phased(weights, filters.reshape(-1, high, wide, channels), phases)
    biases = [
        None if bias is None else _phased(bias, np.tile(bias.array(), phases), phases) for bias in node.operands[3:]
    ]
    joint = replace(out, shape=(images, *grid, phases * outputs))
    windows = Windows((images, height, width, channels), (high, wide), (1, 1), (1, 1), (grid[0], grid[1]), *border)
    product = _product(replace(node, operands=(x, taken, *biases), results=(joint,)), windows)
    found = np.arange(count(joint), dtype=np.int32).reshape(-1, *grid, *stride, outputs).transpose(0, 1, 3, 2, 4, 5)
    sizes = [size * step for size, step in zip(grid, stride, strict=True)]
    if sizes != result:
        found = found.reshape(-1, *sizes, outputs)[:, : result[0], : result[1]]
    spread = move_of(found)

    def emit(segment: SegmentFunction) -> None:
        pixels = segment.allocate(size_bytes(joint))
        segment.emit_for(product, segment.operands, (pixels,))
        move(segment, spread, pixels, segment.result(out), out.info.numpy.itemsize)

    return product if phases == 1 else emit


def _phased(info: TensorInfo, array: Array, phases: int) -> TensorInfo:
    """Return a filter or bias with new contents, whose output channels have the parameters of ``info`` repeatedly."""
    quant = info.quant
    if quant is not None and not quant.per_tensor:
        quant = replace(quant, scales=quant.scales * phases, zero_points=quant.zero_points * phases)
    return replace(_with_data(info, array), quant=quant)


def _added(arithmetic: Floats, x: TensorInfo, axes: _Axes, pads: Sequence[int]) -> EmitCalls:
    """Plan a transposed convolution of floats: add the products of pixels and taps to a result with borders."""
    node, weights, out = arithmetic.node, arithmetic.weights, arithmetic.node.results[0]
    if not np.isfinite(weights).all():
        raise refusal(node, "infinite weights, which meet the zeros between inputs, stay on the host")
    (outputs, *kernel, channels), images = weights.shape, x.static_shape[0]
    rows, columns = (
        max((size - 1) * step + taps, length + pad) for (size, taps, step, length), pad in zip(axes, pads, strict=True)
    )
    windows, taps = Windows.of_rows(count(x) // channels, channels), weights.transpose(1, 2, 0, 3).reshape(-1, channels)
    places = np.arange(images * rows * columns * outputs, dtype=np.int32).reshape(images, rows, columns, outputs)
    filling = move_of(np.broadcast_to(np.arange(outputs, dtype=np.int32), places.shape))
    crop = move_of(places[:, pads[0] : pads[0] + axes[0][3], pads[1] : pads[1] + axes[1][3]])
    pitch = columns * outputs
    sizes = {"images": images, "height": 1, "width": rows * pitch, "rows": axes[0][0], "columns": axes[1][0]}
    sizes |= {"taps": kernel[0], "run": kernel[1] * outputs, "pitch": pitch}
    sizes |= {"row_step": axes[0][2] * pitch, "step": axes[1][2] * outputs}
    bias = arithmetic.bias.astype(np.float32)
    zeros, same = np.zeros(len(taps), np.float32), np.array([-0.0], np.float32)
    limits = {"rows": 1, "columns": count(out), "low": arithmetic.low, "high": arithmetic.high}

    def emit(segment: SegmentFunction) -> None:
        products, sums = segment.allocate(4 * windows.pixels * len(taps)), segment.allocate(4 * places.size)
        multiply_floats(segment, windows, len(taps), weights=taps, bias=zeros, output=products)
        move(segment, filling, segment.constant(bias.view(np.int32)), sums, 4)
        segment.call("add_taps", {}, input=products, output=sums, **sizes)
        target = segment.result(out)
        move(segment, crop, sums, target, 4)
        segment.call("binary_reals", _ADD, a=target, b=segment.constant(same), output=target, **limits)

    return emit


class LowerDepthwiseConv2DToKernels(KernelPattern):
    """Lower DEPTHWISE_CONV_2D of ``[N, H, W, C]`` with a filter ``[1, kh, kw, C * multiplier]``.

    With one input channel, the operator is a product of whole windows.
    """

    operators = ("DEPTHWISE_CONV_2D",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x = node.operand(0)
        _, height, width, channels = node.operand(1).static_shape
        arithmetic = _arithmetic(node, 3)
        taps = arithmetic.weights.reshape(-1, channels)
        times = channels // x.static_shape[3]
        single = x.static_shape[3] == 1
        shape = x.static_shape if single else (*x.static_shape[:3], channels)
        windows = Windows.of(node, shape, (height, width), window_options(node))
        return arithmetic.convolve(windows, taps.T) if single else arithmetic.by_channel(windows, taps, times)


class LowerFullyConnectedToKernels(KernelPattern):
    """Lower FULLY_CONNECTED of ``x [..., K]`` with weights ``[O, K]`` to a product of rows."""

    operators = ("FULLY_CONNECTED",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        elements, depth = count(node.operand(0)), node.operand(1).static_shape[1]
        if node.options.get("weights_format", "default") != "default":
            raise refusal(node, f"weights in the format {node.options['weights_format']} have no native kernel")
        if elements % depth:
            raise refusal(node, f"the input has {elements} elements, not a multiple of {depth}")
        return _product(node, Windows.of_rows(elements // depth, depth))


class LowerBatchMatMulToKernels(KernelPattern):
    """Lower BATCH_MATMUL of ``a [..., M, K]`` and ``b [..., K, N]`` (or transposed): a call per matrix.

    The operands are float32, or 8-bit codes. Code that packs ``b`` at run time precedes a product of codes.
    """

    operators = ("BATCH_MATMUL",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        infos, out = (node.operand(0), node.operand(1)), node.results[0]
        a, b = (info.dtype for info in infos)
        is_float = a == b == "float32"
        if out.dtype != a or not (is_float or {a, b} <= {"int8", "uint8"}):
            raise refusal(node, f"a product of {a} and {b} with a result of {out.dtype} has no native kernel")
        batches, columns = out.static_shape[:-2], out.static_shape[-1]
        if (wanted := math.prod(batches)) > _MOST_MATRICES:
            raise refusal(node, f"{wanted} matrices have no native kernel, at most {_MOST_MATRICES} are supported")
        turned = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
        rows, depth = infos[0].static_shape[-2:][:: -1 if turned[0] else 1]
        windows = Windows.of_rows(rows, depth)
        matrices = [
            np.broadcast_to(np.arange(math.prod(own)).reshape(own), batches).ravel()
            for own in (info.static_shape[:-2] for info in infos)
        ]
        product = None if is_float else multiply_codes(node, windows, depth, columns, turned=turned[1])
        moved, bias = (turned[0], turned[1] and is_float), np.zeros(columns, np.float32)

        def emit(segment: SegmentFunction) -> None:
            sources = []
            for index, (info, turn) in enumerate(zip(infos, moved, strict=True)):
                source, rank = segment.operand(index), len(info.static_shape)
                order = (*range(rank - 2), rank - 1, rank - 2)
                sources.append(transposed(segment, source, info, order) if turn else source)
            result = segment.result(out)
            for number, (one, two) in enumerate(zip(*matrices, strict=True)):
                first = int(one) * rows * depth, int(two) * depth * columns, number * rows * columns
                if product is not None:
                    product(segment, *sources, first)
                    continue
                left, right = sources
                multiply_floats(
                    segment, windows, columns, source=left, weights=right, bias=bias, output=result, first=first
                )

        return emit
