"""Every placement rule says yes at its limit and no one past it, with what it saw."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from helpers.operator_cases import CASES
from odc_mlir import ops, targets
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.npu.convert_circle_to_npu import LOWERINGS
from odc_mlir.transforms.partition.rules import table as npu_rules
from odc_mlir.transforms.partition.rules.checks import Limits

TARGET = targets.load("npu-256")
LIMITS = Limits(TARGET, TARGET.sram.capacity_bytes)
Q = QuantParams((0.5,), (3,))
CENTRED = QuantParams((0.5,), (0,))
SOFTMAX_Q = QuantParams((1 / 256,), (-128,))


def tensor(name: str, *shape: int | None, dtype: str = "int8", quant: QuantParams | None = Q) -> TensorInfo:
    return TensorInfo(name, dtype, shape, quant)


def const(name: str, values: Any, dtype: str = "int8", quant: QuantParams | None = None) -> TensorInfo:
    array = np.asarray(values, np.dtype(dtype))
    return TensorInfo(name, dtype, array.shape, quant, memoryview(array.tobytes()))


def zeros(name: str, *shape: int, dtype: str = "int8", quant: QuantParams | None = Q) -> TensorInfo:
    return const(name, np.zeros(shape), dtype, quant)


def conv(x: int = 8, kernel: tuple[int, int] = (3, 3), taken: int = 4, out: int = 6, **options: Any) -> Node:
    filters = zeros("w", out, *kernel, taken, quant=QuantParams((0.25,) * out, (0,) * out, 0))
    window = {"padding": "same", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    return Node(
        ops.get("CONV_2D"),
        (tensor("x", 1, x, x, 4), filters, zeros("b", out, dtype="int32", quant=None)),
        (tensor("y", 1, x, x, out),),
        window | {"fused_activation_function": "relu"} | options,
        "y",
    )


def transpose_conv(kernel: int = 3, stride: int = 2) -> Node:
    options = {"padding": "same", "stride_h": stride, "stride_w": stride, "fused_activation_function": "none"}
    operands = (i32([1, 8, 8, 6]), zeros("w", 6, kernel, kernel, 4), tensor("x", 1, 4, 4, 4))
    return Node(ops.get("TRANSPOSE_CONV"), operands, (tensor("y", 1, 8, 8, 6),), options, "y")


NEAREST = "RESIZE_NEAREST_NEIGHBOR"


def resized(size: int, output: int, name: str = "RESIZE_BILINEAR") -> Node:
    options = {"align_corners": False, "half_pixel_centers": name == "RESIZE_BILINEAR"}
    operands = (tensor("x", 1, size, size, 1), i32([output, output]))
    return Node(ops.get(name), operands, (tensor("y", 1, output, output, 1),), options, "y")


def unsigned(node: Node) -> Node:
    """The same of uint8 codes."""
    return with_result(with_operand(node, 0, dtype="uint8"), dtype="uint8")


def several_zero_points(values: tuple[int, ...], zero_points: tuple[int, ...], dtype: str = "uint8") -> Node:
    """A product with weights of one value and one zero point per result channel."""
    node = fully_connected()
    rows = np.repeat(np.asarray(values, dtype)[:, None], 12, axis=1)
    filters = const("w", rows, dtype, QuantParams((0.25,) * len(values), zero_points))
    x, y = (replace(info, dtype=dtype) for info in (node.operand(0), node.results[0]))
    return replace(node, operands=(x, filters, None), results=(replace(y, shape=(2, len(values))),))


def depthwise(out: int = 8) -> Node:
    node = conv(out=out)
    filters = zeros("w", 1, 3, 3, out, quant=QuantParams((0.25,) * out, (0,) * out, 3))
    return replace(node, spec=ops.get("DEPTHWISE_CONV_2D"), operands=(node.operands[0], filters, node.operands[2]))


def fully_connected(**options: Any) -> Node:
    filters = zeros("w", 5, 12, quant=QuantParams((0.25,), (1,)))
    return Node(
        ops.get("FULLY_CONNECTED"),
        (tensor("x", 2, 12), filters, None),
        (tensor("y", 2, 5),),
        {"fused_activation_function": "none", "weights_format": "default"} | options,
        "y",
    )


def matmul(a: tuple[int, ...] = (2, 5, 7), b: tuple[int, ...] = (2, 7, 4), *, adjoint: bool = False) -> Node:
    options = {"adjoint_lhs": False, "adjoint_rhs": adjoint}
    result = tensor("y", *a[:-1], b[-2 if adjoint else -1])
    return Node(ops.get("BATCH_MATMUL"), (tensor("a", *a), tensor("b", *b)), (result,), options, "y")


def wide_matmul(depth: int, scale: float = 0.5) -> Node:
    """A product of 16-bit matrices, the right one with ``scale``."""
    node = matmul((2, 5, depth), (2, depth, 4))
    quants = (CENTRED, QuantParams((scale,), (0,)), CENTRED)
    a, b, y = (
        replace(t, dtype="int16", quant=quant) for t, quant in zip((*node.operands, *node.results), quants, strict=True)
    )
    return replace(node, operands=(a, b), results=(y,))


def matmul_by(codes: Any, quant: QuantParams | None) -> Node:
    """A product with a constant right matrix."""
    right = const("b", codes, quant=quant)
    return replace(matmul(b=right.static_shape), operands=(tensor("a", 2, 5, 7), right))


def binary(name: str = "ADD", shape: tuple[int, ...] = (1, 4, 4, 2), **options: Any) -> Node:
    options = {"fused_activation_function": "none"} | options
    return Node(ops.get(name), (tensor("a", *shape), tensor("b", *shape)), (tensor("y", *shape),), options, "y")


def prelu(dtype: str) -> Node:
    quant = QuantParams((0.5,), (0,))
    x, slopes, y = (tensor(name, 2, 3, dtype=dtype, quant=quant) for name in "xay")
    return Node(ops.get("PRELU"), (x, slopes), (y,), {}, "y")


def pool(**options: Any) -> Node:
    window = {"padding": "valid", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    return Node(
        ops.get("MAX_POOL_2D"),
        (tensor("x", 1, 8, 8, 4),),
        (tensor("y", 1, 4, 4, 4),),
        window | {"fused_activation_function": "none"} | options,
        "y",
    )


def mean(shape: tuple[int, ...] = (1, 4, 4, 8), axes: tuple[int, ...] = (1, 2)) -> Node:
    result = tuple(d for i, d in enumerate(shape) if i not in [a % len(shape) for a in axes])
    operands = (tensor("x", *shape), const("axes", axes, "int32"))
    return Node(ops.get("MEAN"), operands, (tensor("y", *result),), {"keep_dims": False}, "y")


def softmax(columns: int = 10) -> Node:
    result = tensor("y", 1, columns, quant=SOFTMAX_Q)
    return Node(ops.get("SOFTMAX"), (tensor("x", 1, columns),), (result,), {"beta": 1.0}, "y")


def lstm(**changes: TensorInfo | None) -> Node:
    """An LSTM cell over three steps of one unit; ``changes``: operands by name."""
    spec = ops.get("UNIDIRECTIONAL_SEQUENCE_LSTM")
    cell = tensor("s", 1, 1, dtype="int16", quant=QuantParams((2.0**-11,), (0,)))
    operands: dict[str, TensorInfo | None] = {
        "input": tensor("x", 1, 3, 2),
        "output_state": replace(tensor("h", 1, 1), is_variable=True),
        "cell_state": replace(cell, is_variable=True),
    }
    for gate in ("input", "forget", "cell", "output"):
        operands[f"input_to_{gate}_weights"] = zeros(f"w_{gate}", 1, 2, quant=QuantParams((0.25,), (0,)))
        operands[f"recurrent_to_{gate}_weights"] = zeros(f"r_{gate}", 1, 1, quant=QuantParams((0.25,), (0,)))
        operands[f"{gate}_gate_bias"] = zeros(f"b_{gate}", 1, dtype="int32", quant=QuantParams((0.125,), (0,)))
    found = tuple((operands | changes).get(operand.name) for operand in spec.operands)
    options = {"fused_activation_function": "tanh", "cell_clip": 0.0, "proj_clip": 0.0, "time_major": False}
    return Node(spec, found, (tensor("y", 1, 3, 1),), options, "y")


def transpose(permutation: tuple[int, ...] = (0, 2, 1, 3)) -> Node:
    shape = (1, 1, 6, 4)
    operands = (tensor("x", *shape), const("permutation", permutation, "int32"))
    result = tensor("y", *(shape[p] for p in permutation))
    return Node(ops.get("TRANSPOSE"), operands, (result,), {}, "y")


def pad(rows: Any = ((0, 0), (1, 1), (2, 0), (0, 0))) -> Node:
    result = [size + sum(row) for size, row in zip((1, 4, 4, 2), rows, strict=True)]
    operands = (tensor("x", 1, 4, 4, 2), const("paddings", rows, "int32"))
    return Node(ops.get("PAD"), operands, (tensor("y", *result),), {}, "y")


def i32(values: Any, name: str = "details") -> TensorInfo:
    return const(name, values, "int32")


def moving(name: str) -> Node:
    """An operator that moves the codes of ``x [1, 4, 4, 4]``."""
    x, flags = tensor("x", 1, 4, 4, 4), dict.fromkeys(("align_corners", "half_pixel_centers", "offset"), False)
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    block = {"block_size": 2}
    no_crops = i32([[0, 0], [0, 0]])
    cases: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any]]] = {
        "BATCH_TO_SPACE_ND": ([tensor("x", 4, 4, 4, 4), i32([2, 2]), no_crops], [(1, 8, 8, 4)], {}),
        "BROADCAST_TO": ([x, i32([2, 4, 4, 4])], [(2, 4, 4, 4)], {}),
        "CONCATENATION": ([x, x], [(1, 4, 4, 8)], {"axis": -1, "fused_activation_function": "none"}),
        "DEPTH_TO_SPACE": ([x], [(1, 8, 8, 1)], block),
        "GATHER": ([x, i32([3, 1])], [(1, 4, 4, 2)], {"axis": 3, "batch_dims": 0}),
        "MIRROR_PAD": ([x, i32([[0, 0], [1, 1], [0, 2], [0, 0]])], [(1, 6, 6, 4)], {"mode": "reflect"}),
        "PACK": ([x, x], [(2, 1, 4, 4, 4)], {"axis": 0, "values_count": 2}),
        "PADV2": ([x, i32([[0, 0], [1, 1], [0, 2], [0, 0]]), const("v", 3, quant=Q)], [(1, 6, 6, 4)], {}),
        "REVERSE_V2": ([x, i32([1])], [(1, 4, 4, 4)], {}),
        "SLICE": ([x, i32([0, 1, 2, 0]), i32([1, 2, 2, 4])], [(1, 2, 2, 4)], {}),
        "SPACE_TO_BATCH_ND": ([x, i32([2, 2]), no_crops], [(4, 2, 2, 4)], {}),
        "SPACE_TO_DEPTH": ([x], [(1, 2, 2, 16)], block),
        "SPLIT": ([i32(3), x], [(1, 4, 4, 2)] * 2, {"num_splits": 2}),
        "SPLIT_V": ([x, i32([1, 3]), i32(3)], [(1, 4, 4, 1), (1, 4, 4, 3)], {"num_splits": 2}),
        "STRIDED_SLICE": ([x, *(i32([v] * 4) for v in (0, 4, 2))], [(1, 2, 2, 2)], masks | flags),
        "TILE": ([x, i32([1, 2, 1, 1])], [(1, 8, 4, 4)], {}),
        "UNPACK": ([x], [(1, 4, 4)] * 4, {"num": 4, "axis": 3}),
    }
    operands, shapes, options = cases[name]
    results = tuple(tensor(f"y{index}", *shape) for index, shape in enumerate(shapes))
    return Node(ops.get(name), tuple(operands), results, options, "y0")


def scattered() -> Node:
    """Elements in no order at all."""
    order = np.random.default_rng(0).permutation(256)
    return replace(
        moving("GATHER"),
        operands=(tensor("x", 256), i32(order)),
        results=(tensor("y", 256),),
        options={"axis": 0, "batch_dims": 0},
    )


def unary(name: str) -> Node:
    return Node(ops.get(name), (tensor("x", 2, 3),), (tensor("y", 2, 3),), {}, "y")


def with_operand(node: Node, index: int, **changes: Any) -> Node:
    operands = list(node.operands)
    operands[index] = replace(node.operand(index), **changes)
    return replace(node, operands=tuple(operands))


def with_result(node: Node, **changes: Any) -> Node:
    return replace(node, results=(replace(node.results[0], **changes),))


CASED = {name.upper() for _, body, _ in CASES.values() for name in re.findall(r"circle\.(\w+)\(", body)}

# Operators without a case in helpers.operator_cases: those are placed, lowered and computed by other tests.
SUPPORTED: dict[str, Callable[[], Node]] = {
    "TRANSPOSE_CONV": transpose_conv,
    "SUM": lambda: replace(mean(), spec=ops.get("SUM")),
    "REDUCE_MAX": lambda: replace(mean(), spec=ops.get("REDUCE_MAX")),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "RELU_0_TO_1": lambda: unary("RELU_0_TO_1"),
    **{name: partial(moving, name) for name in npu_rules.MOVERS if name not in CASED},
}

PER_AXIS_1 = QuantParams((0.25,) * 3, (0,) * 3, 1)

# Rule, an operator that breaks it and nothing before it, what the rule says it saw.
REFUSED: list[tuple[str, Callable[[], Node], str]] = [
    ("stateless", lambda: with_operand(unary("RELU"), 0, is_variable=True), "'x' keeps its value between runs"),
    ("has-input", lambda: with_operand(unary("RELU"), 0, data=memoryview(bytes(6))), "all operands are constant"),
    ("static-shape", lambda: with_operand(unary("RELU"), 0, shape=(None, 3)), "'x' has shape [?, 3]"),
    ("static-shape", lambda: with_result(unary("RELU"), shape=None), "'y' has unknown rank"),
    ("not-empty", lambda: with_operand(unary("RELU"), 0, shape=(0, 3)), "'x' has shape [0, 3]"),
    ("element-type", lambda: with_operand(unary("RELU"), 0, dtype="float32"), "'x' is float32"),
    ("element-type", lambda: with_result(unary("RELU"), dtype="int32"), "'y' is int32"),
    ("quantised", lambda: with_operand(unary("RELU"), 0, quant=None), "'x' has no scale"),
    ("quantised", lambda: with_operand(unary("RELU"), 0, quant=PER_AXIS_1), "'x' has 3 scales"),
    ("quantised", lambda: with_result(unary("RELU"), quant=QuantParams((0.0,), (0,))), "'y' has scale 0.0"),
    ("quantised", lambda: with_result(unary("RELU"), quant=QuantParams((1.0,), (128,))), "'y' has zero point 128"),
    ("fits-sram", lambda: conv(x=1024), "10485760 bytes of 4194304"),
    ("rank-4", lambda: with_operand(pool(), 0, shape=(8, 8, 4)), "'x' has shape [8, 8, 4]"),
    ("constant-weights", lambda: with_operand(fully_connected(), 1, data=None), "'w' is computed at run time"),
    ("constant-bias", lambda: replace_bias(dtype="int8", quant=Q, data=None), "'b' is computed at run time"),
    ("one-type", lambda: with_result(conv(), dtype="uint8"), "'x' is int8, 'y' is uint8"),
    ("centred", lambda: wide(conv(), 3), "'x' is int16 with zero point 3"),
    ("centred", lambda: wide(binary(), -1), "'a' is int16 with zero point -1"),
    ("same-type", lambda: with_result(softmax(), dtype="uint8", quant=Q), "'x' is int8, 'y' is uint8"),
    ("weights", lambda: with_operand(conv(), 1, dtype="uint4"), "'w' is uint4, the input is int8"),
    ("weights", lambda: with_operand(conv(), 1, dtype="uint8"), "'w' is uint8, the input is int8"),
    ("weights", lambda: with_operand(wide(conv()), 1, dtype="int32"), "'w' is int32, the input is int16"),
    ("weights", lambda: with_operand(conv(), 1, quant=None), "'w' has no scale"),
    (
        "weights",
        lambda: several_zero_points((255, 0) * 129, (0, 1) * 129),
        "'w' has 2 different zero points and values from -1 to 255",
    ),
    (
        "weights",
        lambda: several_zero_points((127, -128), (-1, 0), "int8"),
        "'w' has 2 different zero points and values from -128 to 128",
    ),
    ("weights", lambda: with_operand(conv(), 1, quant=QuantParams((math.inf,), (0,))), "scale that is not positive"),
    ("weights", lambda: with_operand(conv(), 1, quant=QuantParams((0.0,), (0,))), "scale that is not positive"),
    ("bias", lambda: replace_bias(quant=QuantParams((0.5,), (0,))), "not those of input times weights"),
    ("bias", lambda: replace_bias(quant=QuantParams((0.125,), (3,))), "not those of input times weights"),
    ("bias", lambda: replace_bias(dtype="int64"), "'b' is int64"),
    ("bias", lambda: replace_bias(shape=(5,)), "'b' has shape [5]"),
    ("bias", lambda: wide_product(bias=1 << 31), "'b' has values up to 2147483648, at most 2147483647"),
    ("sums", lambda: wide_product(1, rows=512), "sums reach 549755813889, accumulators have 40 bits"),
    ("sums", lambda: wide_product(scale=127.0), "a factor of 127, below 127 is allowed"),
    ("channels", lambda: fully_connected_of(65_536), "65536 channels, at most 65535"),
    ("activation", lambda: conv(fused_activation_function="tanh"), "fused activation tanh"),
    ("kernel", lambda: conv(kernel=(1, 256)), "kernel 1x256, at most 255x255"),
    ("stride-dilation", lambda: conv(stride_w=256), "stride_w is 256, allowed 1 to 255"),
    ("stride-dilation", lambda: conv(dilation_h_factor=256), "dilation_h_factor is 256, allowed 1 to 255"),
    ("weight-scales", lambda: with_operand(conv(), 1, quant=PER_AXIS_1), "'w' has 3 scales along axis 1"),
    ("groups", lambda: grouped(33), "33 groups of 2 input channels, at most 32"),
    ("polyphase", lambda: transpose_conv(1), "height 4 to 8 with a kernel of 1 and stride 2"),
    ("positions", lambda: unsigned(resized(4, 9)), "uint8 is interpolated in real numbers, and 4x4 to 9x9 with these"),
    ("positions", lambda: unsigned(resized(4, 512)), "4x4 to 512x512 with these options is not exact"),
    ("positions", lambda: resized(84, 576, NEAREST), "84x84 to 576x576 with these options has positions that rounding"),
    ("positions", lambda: resized(300, 2, NEAREST), "300x300 to 2x2 has steps that the instruction does not hold"),
    ("depth-multiplier", lambda: depthwise(4 * 256), "1024 result channels of 4 input channels, at most 255 of each"),
    ("weights-format", lambda: fully_connected(weights_format="shuffled4x16int8"), "weights format shuffled4x16int8"),
    ("numerics", fully_connected, "numerics litert"),
    (
        "matrix-scales",
        lambda: with_operand(matmul(), 1, dtype="int4", quant=QuantParams((1.0,), (0,)), data=b""),
        "'b' int4",
    ),
    ("matrix-sums", lambda: with_operand(matmul(), 1, dtype="int16", quant=CENTRED), "'b' is int16, 'a' int8"),
    ("matrix-sums", lambda: wide_matmul(512), "sums of 512 products reach 549755813888, accumulators have 40 bits"),
    ("matrix-sums", lambda: wide_matmul(8, scale=127), "a factor of 127, below 127 is allowed"),
    (
        "matrix-sums",
        lambda: replace(wide_matmul(7), operands=(*wide_matmul(7).operands[:1], zeros("b", 7, 3, quant=PER_AXIS_1))),
        "'b' has 3 scales",
    ),
    ("matrix-scales", lambda: with_result(matmul(), dtype="uint8"), "'a' is int8, 'b' int8, 'y' uint8"),
    ("matrix-scales", lambda: with_operand(matmul(), 0, quant=None, data=b""), "'a' has no scale"),
    ("matrix-scales", lambda: matmul_by(np.zeros((7, 4)), None), "'b' has no scale"),
    ("matrix-scales", lambda: matmul_by(np.zeros((7, 3)), QuantParams((0.0,) * 3, (0,) * 3, 1)), "'b' has 3 scales"),
    ("matrix-scales", lambda: matmul_by(np.zeros((2, 7, 3)), PER_AXIS_1), "'b' has 3 scales along axis 1"),
    (
        "matrix-scales",
        lambda: matmul_by(np.zeros((3, 7)).T, replace(PER_AXIS_1, axis=0)),
        "'b' has 3 scales along axis 0",
    ),
    (
        "matrix-scales",
        lambda: matmul_by([[127, -128]] * 7, QuantParams((0.5, 0.5), (-1, 0), 1)),
        "'b' has 2 different zero points and values from -128 to 128",
    ),
    ("slopes", lambda: prelu("int16"), "2 operands are computed at run time"),
    ("matrices", lambda: matmul((1, 1, 7), (1, 7, 65_536)), "rows of 65536 bytes, at most 65535"),
    ("constant-scale", lambda: with_operand(binary(), 1, quant=None, data=memoryview(bytes(32))), "'b' has no scale"),
    ("one-input", lambda: replace(unary("TANH"), operands=binary().operands), "2 operands are computed at run time"),
    ("one-input", lambda: with_two_operands(3), "constant 'c' has shape [3]"),
    ("same-shape", lambda: with_result(unary("TANH"), shape=(3, 2)), "'x' has shape [2, 3], 'y' shape [3, 2]"),
    ("table", lambda: with_result(unary("TANH"), dtype="int16"), "'y' is int16"),
    (
        "table",
        lambda: wide(unary("SQRT")),
        "no table of 513 entries gives the results of SQRT",
    ),
    ("table", lambda: with_result(wide(unary("TANH")), dtype="int8"), "'x' is int16, 'y' is int8"),
    ("broadcast", lambda: binary(shape=(1, 1, 1, 1, 4, 4, 2)), "'y' has shape [1, 1, 1, 1, 4, 4, 2]"),
    (
        "same-quantisation",
        lambda: with_result(pool(), quant=QuantParams((0.25,), (3,))),
        "'y' has scale 0.25 and zero point 3, 'x' has scale 0.5 and zero point 3",
    ),
    ("window", lambda: pool(filter_width=256, padding="same"), "filter_width is 256, allowed 1 to 255"),
    ("image", lambda: pool(filter_height=9), "window 9x2 on an image of 8x8"),
    ("constant-axes", lambda: with_operand(mean(), 1, data=None, dtype="int8", quant=Q), "'axes' is computed"),
    ("axes", lambda: mean((2, 4, 4, 8), (0, 2)), "axes [0, 2]"),
    ("axes", lambda: mean((2, 4, 3, 8), (0, 1, 2)), "2x4x3 elements along axes [0, 1, 2], at most 4095x4095"),
    ("axes", lambda: mean((1, 4096, 2), (1,)), "4096 elements along axes [1], at most 4095x4095"),
    (
        "softmax-result",
        lambda: with_result(softmax(), quant=QuantParams((1 / 255,), (-128,))),
        "'y' has scale 0.00392157 and zero point -128, expected scale 0.00390625 and zero point -128",
    ),
    (
        "softmax-result",
        lambda: wide(softmax()),
        "'y' has scale 0.5 and zero point 0, expected scale 3.05176e-05 and zero point 0",
    ),
    ("positions", lambda: wide(resized(4, 8)), "'x' is int16, which is interpolated in real numbers"),
    ("softmax-row", lambda: softmax(TARGET.local.tile_bytes // 2 + 1), "rows of 9585 elements, allowed 1 to 9584"),
    ("constant-weights", lambda: lstm(input_to_cell_weights=tensor("w", 1, 2)), "'w' is computed at run time"),
    ("states", lambda: lstm(cell_state=tensor("s", 1, 1)), "'s' is no variable"),
    ("states", lambda: lstm(output_state=None), "the output_state is left out"),
    (
        "cell",
        lambda: lstm(cell_to_forget_weights=zeros("p", 1, dtype="int16")),
        "'p' is the operand cell_to_forget_weights",
    ),
    ("cell", lambda: lstm(projection_weights=zeros("p", 1, 1)), "'p' is the operand projection_weights"),
    (
        "integers",
        lambda: lstm(cell_state=replace(tensor("s", 1, 1), is_variable=True)),
        "the cell_state is int8; it must be int16",
    ),
    (
        "integers",
        lambda: with_result(lstm(input=tensor("x", 1, 3, 2, dtype="uint8")), dtype="uint8"),
        "'x' is uint8, the cell's input must be int8",
    ),
    (
        "constant-permutation",
        lambda: with_operand(transpose(), 1, data=None, quant=Q, dtype="int8"),
        "'permutation' is",
    ),
    (
        "permutation",
        lambda: with_result(transpose((0, 1, 3, 2)), shape=(1, 1)),
        "holds more than codes of the operands",
    ),
    ("constant-paddings", lambda: with_operand(pad(), 1, data=None, dtype="int8", quant=Q), "'paddings' is computed"),
    ("paddings", lambda: pad(((0, 0), (-1, 0), (0, 0), (0, 0))), "negative"),
    ("element-type", lambda: with_operand(moving("SLICE"), 1, data=None), "'details' is int32"),
    ("understood", lambda: with_operand(conv(), 0, foreign_quant="Custom"), "in a way that only its author knows"),
    ("moves", scattered, "'y' takes more than 64 strided copies"),
    ("moves", lambda: with_result(moving("REVERSE_V2"), shape=(4, 4, 4)), "'y0' holds more than codes of the operands"),
]


def grouped(groups: int) -> Node:
    node = conv(taken=2)
    return with_operand(node, 0, shape=(1, 8, 8, 2 * groups))


def replace_bias(**changes: Any) -> Node:
    return with_operand(conv(), 2, **changes)


def wide(node: Node, zero: int = 0) -> Node:
    """``node`` on int16 codes with zero point ``zero``; constants keep their type."""

    def widened(info: TensorInfo | None) -> TensorInfo | None:
        if info is None or info.is_const or info.quant is None:
            return info
        return replace(info, dtype="int16", quant=QuantParams(info.quant.scales[:1], (zero,)))

    results = tuple(replace(info, dtype="int16", quant=QuantParams((0.5,), (zero,))) for info in node.results)
    return replace(node, operands=tuple(map(widened, node.operands)), results=results)


def wide_product(bias: int = 0, *, rows: int = 12, scale: float = 0.25) -> Node:
    """A product of int16 codes with weights of int16, all of them the largest; ``scale``: of the weights."""
    node = wide(with_operand(fully_connected(), 0, shape=(2, rows)))
    filters = const("w", np.full((5, rows), -(1 << 15)), "int16", QuantParams((scale,), (0,)))
    return replace(node, operands=(node.operand(0), filters, const("b", [bias] * 5, "int64")))


def with_two_operands(elements: int) -> Node:
    """An element-wise operator with a constant second operand."""
    node = unary("TANH")
    return replace(node, operands=(node.operand(0), zeros("c", elements)))


def fully_connected_of(inputs: int) -> Node:
    node = with_operand(fully_connected(), 0, shape=(2, inputs))
    return replace(node, operands=(node.operands[0], zeros("w", 5, inputs), None))


@pytest.mark.parametrize("name", sorted(SUPPORTED))
def test_a_plain_operator_is_supported(name: str) -> None:
    assert npu_rules.verdict(SUPPORTED[name](), LIMITS) == npu_rules.Verdict(True)


@pytest.mark.parametrize(("rule", "make", "seen"), REFUSED, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(REFUSED)])
def test_a_rule_says_what_it_saw(rule: str, make: Callable[[], Node], seen: str) -> None:
    limits = replace(LIMITS, numerics="litert") if rule == "numerics" else LIMITS
    result = npu_rules.verdict(make(), limits)
    assert not result.supported
    assert result.reason.startswith(f"{rule}: ")
    assert seen in result.reason


@pytest.mark.parametrize(
    "node",
    [
        conv(kernel=(255, 255), stride_h=255, stride_w=255, dilation_h_factor=255, dilation_w_factor=255),
        conv(taken=1, out=8),
        with_operand(conv(), 1, dtype="int4"),
        depthwise(4 * 255),
        fully_connected_of(65_535),
        matmul((1, 1, 7), (1, 7, 65_535)),
        wide_matmul(511),
        matmul_by([[127, -127]] * 7, QuantParams((0.5, 0.5), (-1, 0), 1)),
        pool(filter_height=8, filter_width=8),
        mean((1, 4095, 4095, 1), (1, 2)),
        mean((2, 1, 7), (-1,)),
        softmax(TARGET.local.tile_bytes // 2),
        pad(((0, 0), (255, 255), (255, 255), (0, 0))),
        with_two_operands(1),
        prelu("int8"),
        wide_product(rows=511, bias=(1 << 30) - 1),
        wide_product(bias=(1 << 31) - 1),
        wide_product(scale=126.9),
        grouped(32),
        binary(shape=(2, 1, 3, 1, 4, 2)),
        several_zero_points((255, 1), (0, 1)),
        several_zero_points((255, 0) * 128, (0, 1) * 128),
        several_zero_points((127, -127), (-1, 0), "int8"),
        with_operand(conv(), 1, quant=QuantParams((0.5,) * 6, (0, 1, 2, 3, 4, 5))),
    ],
    ids=lambda node: node.spec.name,
)
def test_limits_themselves_are_allowed(node: Node) -> None:
    unlimited = replace(LIMITS, sram_bytes=1 << 28)
    assert npu_rules.verdict(node, unlimited) == npu_rules.Verdict(True)


@pytest.mark.parametrize("name", ["DEQUANTIZE", "L2_NORMALIZATION"])
def test_an_operator_without_rules_stays_on_the_host(name: str) -> None:
    """DEQUANTIZE works element by element, but what it gives is no code."""
    assert npu_rules.verdict(unary(name), LIMITS).reason == f"operator: {name} has no NPU form"


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "LEAKY_RELU"])
def test_element_wise_operators_are_tables(name: str) -> None:
    assert npu_rules.verdict(unary(name), LIMITS) == npu_rules.Verdict(True)


GROWING = ("HARD_SWISH", "ELU")


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "LEAKY_RELU", "ABS", "NEG", "ELU", "HARD_SWISH", "COS"])
def test_wide_functions_have_a_form(name: str) -> None:
    node = wide(unary(name))
    quant = QuantParams((2.0**-12,), (0,)), QuantParams((2.0 ** (-12 if name in GROWING else -15),), (0,))
    node = with_result(with_operand(node, 0, quant=quant[0]), quant=quant[1])
    assert npu_rules.verdict(node, LIMITS) == npu_rules.Verdict(True)


def test_every_rule_is_refused_once() -> None:
    tables = (npu_rules.GENERIC, npu_rules.GENERIC_LAST, npu_rules.BY_TABLE, *npu_rules.OPERATORS.values())
    assert {rule.name for rules in tables for rule in rules} == {name for name, _, _ in REFUSED}


def test_every_operator_with_rules_has_a_lowering_and_a_case() -> None:
    assert set(npu_rules.OPERATORS) == set(LOWERINGS)
    assert set(npu_rules.OPERATORS) - CASED == set(SUPPORTED)
    assert set(npu_rules.OPERATORS) <= set(ops.all_specs())


def test_a_smaller_sram_limit_refuses_more() -> None:
    assert "640 bytes of 639" in npu_rules.verdict(conv(), replace(LIMITS, sram_bytes=639)).reason
    assert npu_rules.verdict(conv(), replace(LIMITS, sram_bytes=640)).supported
