"""Operators on float32: products, windows, element-wise arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from odc_mlir.ops.infer.common import option
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.infer.pooling import pool_window
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.sums import Hybrid, accumulation
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.mathematics import OPERATIONS
from odc_mlir.transforms.native.kernels.pairs import FULL
from odc_mlir.transforms.native.lowering import layers_hybrid, layers_images
from odc_mlir.transforms.native.lowering.broadcasting import broadcast
from odc_mlir.transforms.native.lowering.layers_images import bounds_of
from odc_mlir.transforms.native.lowering.layers_products import padded_input, repeated_input, tile_of, tile_rows
from odc_mlir.transforms.native.lowering.moving import transposed
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    held_constant,
    refusal,
    size_bytes,
)
from odc_mlir.transforms.native.lowering.windows import Windows

_MOST_MATRICES = 256  # each is a call
_PLACES = {operation.name: index for index, operation in enumerate(OPERATIONS)}
# Which operation an operator of two operands is.
_BINARY = {name: name for name in ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE",
                                   "LEAKY_RELU", "PRELU", "POW")} | {"SQUARE": "MUL"}  # fmt: skip
_UNARY = ("NEG", "ABS", "SQRT", "RSQRT", "LOGISTIC", "RELU", "RELU6", "HARD_SWISH", "EXP", "TANH", "LOG", "FLOOR",
          "CEIL", "ROUND", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "SIGN", "SIN", "COS", "CUSTOM(Erf)")  # fmt: skip


def conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[O, kh, kw, C]``."""
    if not node.operand(1).is_const:
        _, height, width, _ = node.operand(1).static_shape
        windows = Windows.of(node, node.operand(0).static_shape, (height, width), window_options(node))
        return _computed(node, windows, machine)
    x, weights, hybrid = _constants(node)
    outputs, height, width, _ = weights.shape
    windows = Windows.of(node, x.static_shape, (height, width), window_options(node))
    if hybrid is not None:
        # only plain convolutions with one weight scale keep zero in the middle, as the host kernel does
        matrix = weights.reshape(outputs, -1)
        return _hybrid(node, windows, matrix, hybrid, machine, asymmetric=hybrid.per_channel)
    return _product(node, windows, weights.reshape(outputs, -1), machine)


def fully_connected(node: Node, machine: CpuTarget) -> Write:
    """``x [..., K]``, weights ``[O, K]``: a convolution of one pixel per row."""
    x, depth = node.operand(0), node.operand(1).static_shape[1]
    if node.options.get("weights_format", "default") != "default":
        raise refusal(node, f"weights in the format {node.options['weights_format']} have no native kernel")
    if count(x) % depth:
        raise refusal(node, f"the input has {count(x)} elements, not a multiple of {depth}")
    windows = Windows((count(x) // depth, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    if not node.operand(1).is_const:
        return _computed(node, windows, machine)
    _, weights, hybrid = _constants(node)
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
        flat, bias = weights.reshape(-1, channels), real_bias(node, channels)
        return layers_hybrid.depthwise(
            node, windows, flat, hybrid, machine, times=times, bias=bias, bounds=bounds_of(node)
        )
    low, high = bounds_of(node)
    bias = real_bias(node, channels)

    def write(segment: SegmentFunction, op: Operation) -> None:
        blocks = -(-channels // LANES)
        segment.call(
            "depthwise_reals",
            {"rows": tile_rows(windows.pixels, machine.tile_rows), "clamp": 1},
            input=padded_input(segment, repeated_input(segment, op.operands[0], x, times), windows, 0, 4),
            weights=segment.constant(padded_columns(weights.reshape(-1, channels), blocks * LANES)),
            bias=segment.constant(padded_columns(bias, blocks * LANES)),
            **_windows(segment, op, node, windows, channels),
            low=low,
            high=high,
        )

    return write


def _constants(node: Node) -> tuple[TensorInfo, NDArray[Any], Hybrid | None]:
    """Input and weights of a product, and what activations are quantised for; raises where there is no kernel."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if not weights.is_const or weights.info.kind not in ("float", "int", "uint"):
        kind = "constant" if weights.is_const else "computed"
        raise refusal(node, f"{kind} weights of {weights.dtype} have no native kernel in float")
    if bias is not None and not (bias.is_const and bias.dtype == "float32"):
        raise refusal(node, "this bias has no native kernel")
    axis = 3 if node.spec.name == "DEPTHWISE_CONV_2D" else 0
    how = accumulation(node, x, weights, bias, weights.static_shape[axis])
    return x, np.asarray(how.weights(weights.array(), axis)), how.hybrid


def _computed(node: Node, windows: Windows, machine: CpuTarget) -> Write:
    """Sums over windows with weights ``[O, ...]`` that the model computes: they are transposed, not packed."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if weights.dtype != "float32" or x.is_const or (bias is not None and bias.dtype != "float32"):
        raise refusal(node, f"computed weights of {weights.dtype} have no native kernel in float")
    outputs = weights.static_shape[0]
    matrix = replace(weights, shape=(outputs, count(weights) // outputs))
    low, high = bounds_of(node)
    runs, length = windows.runs()

    def write(segment: SegmentFunction, op: Operation) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        width = LANES * vectors
        blocks = -(-outputs // width)
        computed = bias is not None and not bias.is_const
        segment.call(
            "convolve_reals",
            {"rows": rows, "vectors": vectors, "clamp": 1},
            input=padded_input(segment, segment.tensor(op.operands[0]), windows, 0, 4),
            weights=transposed(segment, segment.tensor(op.operands[1]), matrix, (1, 0)),
            bias=segment.tensor(op.operands[2])
            if computed
            else segment.constant(padded_columns(real_bias(node, outputs), blocks * width)),
            places=segment.constant(windows.places()),
            runs=segment.constant(runs),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=outputs,
            blocks=blocks,
            run_count=len(runs),
            run_length=length,
            weight_step=outputs,
            block_step=width,
            first_weight=0,
            first_result=0,
            low=low,
            high=high,
        )

    return write


def _hybrid(
    node: Node, windows: Windows, matrix: NDArray[Any], hybrid: Hybrid, machine: CpuTarget, *, asymmetric: bool
) -> Write:
    bias = real_bias(node, matrix.shape[0])
    return layers_hybrid.product(
        node, windows, matrix, hybrid, machine, bias=bias, bounds=bounds_of(node), asymmetric=asymmetric
    )


def real_bias(node: Node, outputs: int) -> NDArray[Any]:
    """The bias of every result channel, zeros where there is none."""
    info = node.optional(2)
    return np.zeros(outputs, np.float32) if info is None else info.array().reshape(-1)


def padded_columns(array: NDArray[Any], size: int) -> NDArray[np.float32]:
    """``array`` with zeros along the last axis."""
    result = np.zeros((*array.shape[:-1], size), np.float32)
    result[..., : array.shape[-1]] = array
    return result


def _product(node: Node, windows: Windows, matrix: NDArray[Any], machine: CpuTarget) -> Write:
    """Writes sums over windows of the first operand."""
    outputs = matrix.shape[0]
    low, high = bounds_of(node)
    bias = real_bias(node, outputs)
    runs, length = windows.runs()

    def write(segment: SegmentFunction, op: Operation) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        width = LANES * vectors
        blocks = -(-outputs // width)
        packed = padded_columns(matrix.T, blocks * width).reshape(-1, blocks, width).transpose(1, 0, 2)
        segment.call(
            "convolve_reals",
            {"rows": rows, "vectors": vectors, "clamp": 1},
            input=padded_input(segment, segment.tensor(op.operands[0]), windows, 0, 4),
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


def _windows(segment: SegmentFunction, op: Operation, node: Node, windows: Windows, channels: int) -> dict[str, Any]:
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
    infos, out = (node.operand(0), node.operand(1)), node.results[0]
    if {info.dtype for info in infos} != {"float32"} or min(len(info.static_shape) for info in infos) < 2:
        raise refusal(node, f"operands of {infos[0].dtype} and {infos[1].dtype} have no native kernel")
    batches, columns = out.static_shape[:-2], out.static_shape[-1]
    if math.prod(batches) > _MOST_MATRICES:
        raise refusal(
            node, f"{math.prod(batches)} matrices have no native kernel, at most {_MOST_MATRICES} are supported"
        )
    turned = bool(option(node, "adjoint_lhs")), bool(option(node, "adjoint_rhs"))
    rows_a, depth = infos[0].static_shape[-2:][:: -1 if turned[0] else 1]
    windows = Windows((rows_a, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    matrices = [
        np.broadcast_to(np.arange(math.prod(info.static_shape[:-2])).reshape(info.static_shape[:-2]), batches).ravel()
        for info in infos
    ]

    def write(segment: SegmentFunction, op: Operation) -> None:
        sources = []
        for info, value, turn in zip(infos, op.operands, turned, strict=False):
            source = held_constant(segment, info) if info.is_const else segment.tensor(value)
            rank = len(info.static_shape)
            order = (*range(rank - 2), rank - 1, rank - 2)
            sources.append(transposed(segment, source, info, order) if turn else source)
        rows, vectors = tile_of(rows_a, columns, machine)
        width = LANES * vectors
        blocks = -(-columns // width)
        result = segment.result(op.results[0], out)
        for number, (first, second) in enumerate(zip(*matrices, strict=True)):
            segment.call(
                "convolve_reals",
                {"rows": rows, "vectors": vectors, "clamp": 0},
                input=sources[0],
                weights=sources[1],
                bias=segment.constant(np.zeros(blocks * width, np.float32)),
                places=segment.constant(windows.places() + np.int32(first * rows_a * depth)),
                runs=segment.constant(np.zeros(1, np.int32)),
                output=result,
                pixels=rows_a,
                channels=columns,
                blocks=blocks,
                run_count=1,
                run_length=depth,
                weight_step=columns,
                block_step=width,
                first_weight=int(second) * depth * columns,
                first_result=number * rows_a * columns,
                low=0.0,
                high=0.0,
            )

    return write


def pool(kernel: str) -> CallPlanner:
    """MAX_POOL_2D and AVERAGE_POOL_2D."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x = node.operand(0)
        windows = Windows.of(node, x.static_shape, pool_window(node), window_options(node, dilated=False))
        if windows.is_padded:
            return layers_images.pool(node, machine)
        low, high = bounds_of(node)

        def write(segment: SegmentFunction, op: Operation) -> None:
            shared = _windows(segment, op, node, windows, x.static_shape[3])
            options = {"count": shared["tap_count"]} if kernel == "average_reals" else {}
            source = segment.tensor(op.operands[0])
            segment.call(kernel, {**options, "clamp": 1}, input=source, **shared, low=low, high=high)

        return write

    return plan


def softmax(node: Node, machine: CpuTarget) -> Write:
    """Softmax along the last axis."""
    x, out = node.operand(0), node.results[0]

    def write(segment: SegmentFunction, op: Operation) -> None:
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
    clamp = int("fused_activation_function" in node.options)
    low, high = bounds_of(node)
    spread = broadcast((a, b), out)

    def write(segment: SegmentFunction, op: Operation) -> None:
        values = [op.operands[0 if info is a or len(op.operands) == 1 else 1] for info in (a, b)]
        options = {"operation": _PLACES[_BINARY[node.spec.name]], "clamp": clamp}
        spread.call(segment, op, "binary_reals", options, (a, b), out, values, low=low, high=high)

    return write


def _second(node: Node) -> TensorInfo:
    """The second operand; of LEAKY_RELU the slope, of SQUARE the first."""
    if node.spec.name == "SQUARE":
        return node.operand(0)
    if node.spec.name != "LEAKY_RELU":
        return node.operand(1)
    slope = np.array(option(node, "alpha"), np.float32)
    return TensorInfo("alpha", "float32", (), data=memoryview(slope.tobytes()))


def power(node: Node, machine: CpuTarget) -> Write:
    """Powers; some are other functions, which are quicker."""
    exponent = node.operand(1)
    if exponent.is_const and count(exponent) == 1 and node.operand(0).dtype == "float32":
        name = _POWERS.get(float(exponent.array().reshape(-1)[0]))
        if name is not None:
            return _function(name, node)
    return binary(node, machine)


_POWERS = {2.0: "SQUARE", 0.5: "POW_1/2", -0.5: "POW_-1/2"}


def add_n(node: Node, machine: CpuTarget) -> Write:
    """Sums of any number of tensors of one shape, in their order."""
    infos, out = [node.operand(i) for i in range(len(node.operands))], node.results[0]
    low, high = bounds_of(node)
    if any(info.dtype != "float32" or info.static_shape != out.static_shape for info in infos):
        raise refusal(node, f"operands of {', '.join(info.dtype for info in infos)} have no native kernel")

    def write(segment: SegmentFunction, op: Operation) -> None:
        values = [
            held_constant(segment, info) if info.is_const else segment.tensor(value)
            for info, value in zip(infos, op.operands, strict=True)
        ]
        target = segment.result(op.results[0], out)
        total = values[0]
        if len(values) == 1:
            segment.call("copy", {}, input=total, output=target, count=size_bytes(out))
        for value in values[1:]:
            segment.call(
                "binary_reals",
                {"operation": _PLACES["ADD"], "a": FULL, "b": FULL, "clamp": 1},
                a=total,
                b=value,
                output=target,
                rows=1,
                columns=count(out),
                low=low,
                high=high,
            )
            total = target

    return write


def gelu(node: Node, machine: CpuTarget) -> Write:
    """GELU by the error function, or as its approximation says."""
    return _function("GELU_TANH" if option(node, "approximate") else "GELU", node)


def unary(node: Node, machine: CpuTarget) -> Write:
    """A function of every element."""
    return _function(node.spec.name, node)


def _function(name: str, node: Node) -> Write:
    out = node.results[0]

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "unary_reals",
            {"operation": _PLACES[name]},
            input=segment.tensor(op.operands[0]),
            output=segment.result(op.results[0], out),
            count=count(out),
        )

    return write


PLANS: dict[str, CallPlanner] = {
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
    "POW": power,
    "ADD_N": add_n,
}
