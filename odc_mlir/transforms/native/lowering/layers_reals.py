"""Operators on float32: products, windows, element-wise arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.numerics.fixed import activation_bounds
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.infer.convolution import transposed_options
from odc_mlir.ops.infer.geometry import transposed_pad, window_options
from odc_mlir.ops.infer.pooling import pool_window
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import fused_activation
from odc_mlir.runtime.kernels.sums import Hybrid, accumulation
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.mathematics import OPERATIONS
from odc_mlir.transforms.native.kernels.reals import FROM, OPEN, WITHIN
from odc_mlir.transforms.native.lowering import layers_hybrid, layers_images
from odc_mlir.transforms.native.lowering.broadcasting import broadcast
from odc_mlir.transforms.native.lowering.layers_products import padded_input, repeated_input, tile_of, tile_rows
from odc_mlir.transforms.native.lowering.moving import box, move, strides, transposed
from odc_mlir.transforms.native.lowering.segment_writer import Plan, Segment, Write, count, refusal
from odc_mlir.transforms.native.lowering.windows import Windows

_PLACES = {operation.name: index for index, operation in enumerate(OPERATIONS)}
# Which operation an operator of two operands is.
_BINARY = {name: name for name in ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE",
                                   "LEAKY_RELU", "PRELU")} | {"SQUARE": "MUL"}  # fmt: skip
_UNARY = ("NEG", "ABS", "SQRT", "RSQRT", "LOGISTIC", "RELU", "RELU6", "HARD_SWISH", "EXP", "TANH", "LOG", "FLOOR",
          "CEIL", "ROUND", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "SIGN")  # fmt: skip


def conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[O, kh, kw, C]``."""
    x, weights, hybrid = _constants(node)
    outputs, height, width, channels = weights.shape
    if channels != x.static_shape[3]:
        raise refusal(node, f"the filter has {channels} of {x.static_shape[3]} channels: groups have no native kernel")
    windows = Windows.of(node, x.static_shape, (height, width), window_options(node))
    if hybrid is not None:
        # only plain convolutions with one weight scale keep zero in the middle, as the host kernel does
        matrix = weights.reshape(outputs, -1)
        return _hybrid(node, windows, matrix, hybrid, machine, asymmetric=hybrid.per_channel)
    return _product(node, windows, weights.reshape(outputs, -1), machine)


def fully_connected(node: Node, machine: CpuTarget) -> Write:
    """``x [..., K]``, weights ``[O, K]``: a convolution of one pixel per row."""
    x, weights, hybrid = _constants(node)
    if node.options.get("weights_format", "default") != "default":
        raise refusal(node, f"weights in the format {node.options['weights_format']} have no native kernel")
    depth = weights.shape[1]
    if count(x) % depth:
        raise refusal(node, f"the input has {count(x)} elements, no multiple of {depth}")
    windows = Windows((count(x) // depth, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    if hybrid is not None:
        asymmetric = bool(node.options.get("asymmetric_quantize_inputs", False))
        return _hybrid(node, windows, weights, hybrid, machine, asymmetric=asymmetric)
    return _product(node, windows, weights, machine)


def depthwise_conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[1, kh, kw, C]``."""
    x, weights, hybrid = _constants(node)
    _, height, width, channels = weights.shape
    if x.static_shape[3] == 1:
        windows = Windows.of(node, x.static_shape, (height, width), window_options(node))
        matrix = weights.reshape(-1, channels).T
        if hybrid is not None:
            return _hybrid(node, windows, matrix, hybrid, machine, asymmetric=True)
        return _product(node, windows, matrix, machine)
    times = channels // x.static_shape[3]
    windows = Windows.of(node, (*x.static_shape[:3], channels), (height, width), window_options(node))
    if hybrid is not None:
        _, low, high = clamp_of(node)
        flat, bias = weights.reshape(-1, channels), real_bias(node, channels)
        return layers_hybrid.depthwise(node, windows, flat, hybrid, machine, times=times, bias=bias, bounds=(low, high))
    clamp, low, high = clamp_of(node)
    bias = real_bias(node, channels)

    def write(segment: Segment, op: Operation) -> None:
        blocks = -(-channels // LANES)
        segment.call(
            "depthwise_reals",
            {"rows": tile_rows(windows.pixels, machine.tile_rows), "clamp": clamp},
            input=padded_input(segment, repeated_input(segment, op.operands[0], x, times), windows, 0, 4),
            weights=segment.constant(padded_columns(weights.reshape(-1, channels), blocks * LANES)),
            bias=segment.constant(padded_columns(bias, blocks * LANES)),
            **_windows(segment, op, node, windows, channels),
            low=low,
            high=high,
        )

    return write


def transpose_conv(node: Node, machine: CpuTarget) -> Write:
    """Result shape, filter ``[O, kh, kw, C]``, ``x [N, H, W, C]``: a convolution with the filter turned around.

    Its input is ``x`` with zeros between its elements and around them.
    """
    weights_info, x, bias = node.operand(1), node.operand(2), node.optional(3)
    if not (weights_info.is_const and weights_info.dtype == "float32" and (bias is None or bias.is_const)):
        raise refusal(node, "computed weights have no native kernel")
    (stride, padding), out = transposed_options(node), node.results[0]
    weights = weights_info.array()
    outputs, *kernel, channels = weights.shape
    images, height, width, _ = x.static_shape
    result = out.static_shape[1], out.static_shape[2]
    before = [
        kernel[i] - 1 - transposed_pad(size, kernel[i], stride[i], padding, result[i])
        for i, size in enumerate((height, width))
    ]
    padded = [size + taps - 1 for size, taps in zip(result, kernel, strict=True)]
    fitting = [(size - 1) * stride[i] + before[i] < padded[i] for i, size in enumerate((height, width))]
    if min(before) < 0 or not all(fitting):
        raise refusal(node, "a result that leaves out taps has no native kernel")
    windows = Windows((images, *padded, channels), (kernel[0], kernel[1]), (1, 1), (1, 1), result, (0, 0), (0, 0))
    steps = strides((images, *padded, channels))
    place = box(
        x.static_shape,
        strides(x.static_shape),
        (steps[0], steps[1] * stride[0], steps[2] * stride[1], 1),
        output_start=before[0] * steps[1] + before[1] * steps[2],
    )
    assert place is not None, "four dimensions are few"
    turned = np.ascontiguousarray(weights[:, ::-1, ::-1]).reshape(outputs, -1)
    product = _product(node, windows, turned, machine, bias_index=3)

    def write(segment: Segment, op: Operation) -> None:
        spread = segment.allocate(4 * math.prod(windows.shape))
        segment.call("fill_words", {}, output=spread, count=math.prod(windows.shape), value=0)
        move(segment, place, segment.tensor(op.operands[2]), spread, 4)
        product(segment, op, spread)

    return write


def _constants(node: Node) -> tuple[TensorInfo, NDArray[Any], Hybrid | None]:
    """Input and weights of a product, and what activations are quantised for; raises where there is no kernel."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if not weights.is_const or weights.info.kind not in ("float", "int", "uint"):
        kind = "constant" if weights.is_const else "computed"
        raise refusal(node, f"{kind} weights of {weights.dtype} have no native kernel for reals")
    if bias is not None and not (bias.is_const and bias.dtype == "float32"):
        raise refusal(node, "this bias has no native kernel")
    axis = 3 if node.spec.name == "DEPTHWISE_CONV_2D" else 0
    how = accumulation(node, x, weights, bias, weights.static_shape[axis])
    return x, np.asarray(how.weights(weights.array(), axis)), how.hybrid


def _hybrid(
    node: Node, windows: Windows, matrix: NDArray[Any], hybrid: Hybrid, machine: CpuTarget, *, asymmetric: bool
) -> Write:
    _, low, high = clamp_of(node)
    bias = real_bias(node, matrix.shape[0])
    return layers_hybrid.product(
        node, windows, matrix, hybrid, machine, bias=bias, bounds=(low, high), asymmetric=asymmetric
    )


def real_bias(node: Node, outputs: int, index: int = 2) -> NDArray[Any]:
    """The bias of every result channel, zeros where there is none."""
    info = node.optional(index)
    return np.zeros(outputs, np.float32) if info is None else info.array().reshape(-1)


def padded_columns(array: NDArray[Any], size: int) -> NDArray[np.float32]:
    """``array`` with zeros along the last axis."""
    result = np.zeros((*array.shape[:-1], size), np.float32)
    result[..., : array.shape[-1]] = array
    return result


def clamp_of(node: Node) -> tuple[int, float, float]:
    """How the fused activation limits results, and its bounds."""
    if fused_activation(node) in ("tanh", "sign_bit"):
        raise refusal(node, f"a fused {fused_activation(node)} has no native kernel")
    low, high = activation_bounds(fused_activation(node))
    how = WITHIN if high is not None else FROM if low is not None else OPEN
    return how, -math.inf if low is None else low, math.inf if high is None else high


def _product(
    node: Node, windows: Windows, matrix: NDArray[Any], machine: CpuTarget, *, bias_index: int = 2
) -> Callable[..., None]:
    """Writes sums over windows of the first operand, or of a buffer that is given."""
    outputs = matrix.shape[0]
    clamp, low, high = clamp_of(node)
    bias = real_bias(node, outputs, bias_index)
    runs, length = windows.runs()

    def write(segment: Segment, op: Operation, source: SSAValue | None = None) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        width = LANES * vectors
        blocks = -(-outputs // width)
        packed = padded_columns(matrix.T, blocks * width).reshape(-1, blocks, width).transpose(1, 0, 2)
        segment.call(
            "convolve_reals",
            {"rows": rows, "vectors": vectors, "clamp": clamp},
            input=padded_input(segment, segment.tensor(op.operands[0]), windows, 0, 4) if source is None else source,
            weights=segment.constant(packed),
            bias=segment.constant(padded_columns(bias, blocks * width)),
            places=segment.constant(windows.places()),
            runs=segment.constant(runs),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=outputs,
            blocks=blocks,
            run_count=len(runs),
            run_length=length,
            weight_step=width,
            block_step=packed[0].size,
            first_weight=0,
            first_result=0,
            low=low,
            high=high,
        )

    return write


def _windows(segment: Segment, op: Operation, node: Node, windows: Windows, channels: int) -> dict[str, Any]:
    """The arguments that kernels of windows share."""
    taps = windows.taps()
    return {
        "places": segment.constant(windows.places()),
        "taps": segment.constant(taps),
        "output": segment.result(op.results[0], node.results[0]),
        "pixels": windows.pixels,
        "channels": channels,
        "blocks": -(-channels // LANES),
        "tap_count": len(taps),
    }


def batch_matmul(node: Node, machine: CpuTarget) -> Write:
    """``a [..., M, K]`` times ``b [..., K, N]``, either of them transposed: a product per matrix."""
    a, b, out = node.operand(0), node.operand(1), node.results[0]
    if a.is_const or b.is_const or len(a.static_shape) < 2:
        raise refusal(node, "a constant operand has no native kernel")
    if option(node, "adjoint_lhs"):
        raise refusal(node, "a transposed first operand has no native kernel")
    batches = out.static_shape[:-2]
    if a.static_shape[:-2] != batches or b.static_shape[:-2] != batches or math.prod(batches) > 64:
        raise refusal(node, f"operands of the shapes {list(a.static_shape)} and {list(b.static_shape)} "
                      "have no native kernel")  # fmt: skip
    rows_a, depth = a.static_shape[-2:]
    columns = out.static_shape[-1]
    matrices = math.prod(batches)
    windows = Windows((rows_a, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))

    def write(segment: Segment, op: Operation) -> None:
        second = segment.tensor(op.operands[1])
        if option(node, "adjoint_rhs"):
            rank = len(b.static_shape)
            second = transposed(segment, second, b, (*range(rank - 2), rank - 1, rank - 2))
        rows, vectors = tile_of(rows_a, columns, machine)
        width = LANES * vectors
        blocks = -(-columns // width)
        result = segment.result(op.results[0], out)
        for matrix in range(matrices):
            segment.call(
                "convolve_reals",
                {"rows": rows, "vectors": vectors, "clamp": OPEN},
                input=segment.tensor(op.operands[0]),
                weights=second,
                bias=segment.constant(np.zeros(blocks * width, np.float32)),
                places=segment.constant(windows.places() + np.int32(matrix * rows_a * depth)),
                runs=segment.constant(np.zeros(1, np.int32)),
                output=result,
                pixels=rows_a,
                channels=columns,
                blocks=blocks,
                run_count=1,
                run_length=depth,
                weight_step=columns,
                block_step=width,
                first_weight=matrix * depth * columns,
                first_result=matrix * rows_a * columns,
                low=0.0,
                high=0.0,
            )

    return write


def pool(kernel: str) -> Plan:
    """MAX_POOL_2D and AVERAGE_POOL_2D."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x = node.operand(0)
        windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
        if windows.is_padded:
            return layers_images.pool(node, machine)
        clamp, low, high = clamp_of(node)

        def write(segment: Segment, op: Operation) -> None:
            shared = _windows(segment, op, node, windows, x.static_shape[3])
            options = {"count": shared["tap_count"]} if kernel == "average_reals" else {}
            source = segment.tensor(op.operands[0])
            segment.call(kernel, {**options, "clamp": clamp}, input=source, **shared, low=low, high=high)

        return write

    return plan


def softmax(node: Node, machine: CpuTarget) -> Write:
    """Softmax along the last axis."""
    x, out = node.operand(0), node.results[0]

    def write(segment: Segment, op: Operation) -> None:
        classes = x.static_shape[-1]
        segment.call(
            "softmax_reals",
            {},
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            rows=count(x) // classes,
            classes=classes,
            beta=float(option(node, "beta")),
        )

    return write


def binary(node: Node, machine: CpuTarget) -> Write:
    """Arithmetic of two operands that broadcast by rows, by columns, or not at all."""
    a, b, out = node.operand(0), _second(node), node.results[0]
    if a.dtype != "float32" or b.dtype != "float32":
        raise refusal(node, f"operands of {a.dtype} and {b.dtype} have no native kernel")
    clamp, low, high = clamp_of(node)
    spread = broadcast((a, b), out)

    def write(segment: Segment, op: Operation) -> None:
        values = [op.operands[min(index, len(op.operands) - 1)] for index in range(2)]
        first, second = spread.buffers(segment, (a, b), values)
        options = {"operation": _PLACES[_BINARY[node.spec.name]], "a": spread.ways[0], "b": spread.ways[1]}
        segment.call(
            "binary_reals",
            {**options, "clamp": clamp},
            a=first,
            b=second,
            output=segment.result(op.results[0], out),
            rows=spread.rows,
            columns=spread.columns,
            low=low,
            high=high,
        )

    return write


def _second(node: Node) -> TensorInfo:
    """The second operand; of LEAKY_RELU the slope, of SQUARE the first."""
    if node.spec.name == "SQUARE":
        return node.operand(0)
    if node.spec.name != "LEAKY_RELU":
        return node.operand(1)
    slope = np.array(option(node, "alpha"), np.float32)
    return TensorInfo("alpha", "float32", (), data=memoryview(slope.tobytes()))


def gelu(node: Node, machine: CpuTarget) -> Write:
    """GELU by the error function, or as its approximation says."""
    return _function("GELU_TANH" if option(node, "approximate") else "GELU", node)


def unary(node: Node, machine: CpuTarget) -> Write:
    """A function of every element."""
    return _function(node.spec.name, node)


def _function(name: str, node: Node) -> Write:
    out = node.results[0]

    def write(segment: Segment, op: Operation) -> None:
        segment.call(
            "unary_reals",
            {"operation": _PLACES[name]},
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


PLANS: dict[str, Plan] = {
    "CONV_2D": conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "BATCH_MATMUL": batch_matmul,
    "MAX_POOL_2D": pool("max_reals"),
    "AVERAGE_POOL_2D": pool("average_reals"),
    "SOFTMAX": softmax,
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_UNARY, unary),
    "GELU": gelu,
    "TRANSPOSE_CONV": transpose_conv,
}
