"""Operators that the NPU can run, as nodes, to be changed until it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odc_mlir import ops
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo

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


def grouped_zero_points(highest: int) -> Node:
    """A convolution of two groups, whose weights have two zero points."""
    node = conv(taken=2)
    codes = np.zeros(node.operand(1).static_shape)
    codes[::2] = highest
    filters = const("w", codes, "uint8", QuantParams((0.25,) * 6, (0, 1) * 3, 0))
    node = with_result(with_operand(node, 0, dtype="uint8"), dtype="uint8")
    return replace(node, operands=(node.operand(0), filters, node.operand(2)))


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


def compared(scale: float) -> Node:
    node = with_result(binary("LESS"), dtype="bool", quant=None)
    return with_operand(node, 0, quant=QuantParams((scale,), (3,)))


def compared_numbers(limit: int) -> Node:
    node = with_operand(with_result(binary("LESS"), dtype="bool", quant=None), 0, dtype="int32", quant=None)
    return replace(node, operands=(node.operand(0), i32([limit, 4])))


def numbers(name: str, bounds: tuple[int, int], other: int, **options: Any) -> Node:
    """An operator on computed int32 with ``bounds`` and a constant."""
    node = binary(name, shape=(2, 3), **options)
    x, y = (replace(info, dtype="int32", quant=None) for info in (node.operand(0), node.results[0]))
    return replace(node, operands=(replace(x, bounds=bounds), i32([other])), results=(y,))


def casting(bounds: tuple[int, int], dtype: str) -> Node:
    """CAST of computed int32 with ``bounds``."""
    x, y = (tensor(name, 2, 3, dtype=kind, quant=None) for name, kind in (("x", "int32"), ("y", dtype)))
    return Node(ops.get("CAST"), (replace(x, bounds=bounds),), (y,), {}, "y")


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


def searching(count: int) -> Node:
    """ARG_MAX along ``count`` elements."""
    operands = (tensor("x", 2, count), i32([1], "axis"))
    return Node(ops.get("ARG_MAX"), operands, (tensor("y", 2, dtype="int64", quant=None),), {}, "y")


def updating(whole: tuple[int, ...], part: tuple[int, ...]) -> Node:
    """DYNAMIC_UPDATE_SLICE at a computed position."""
    operands = (tensor("x", *whole), tensor("z", *part), tensor("s", len(whole), dtype="int32", quant=None))
    return Node(ops.get("DYNAMIC_UPDATE_SLICE"), operands, (tensor("y", *whole),), {}, "y")


def gathering(table: tuple[int, ...], taken: int, *, axis: int = 0) -> Node:
    """GATHER of a constant table at computed places."""
    operands = (zeros("t", *table), tensor("i", taken, dtype="int32", quant=None))
    result = tensor("y", *table[:axis], taken, *table[axis + 1 :])
    return Node(ops.get("GATHER"), operands, (result,), {"axis": axis, "batch_dims": 0}, "y")


def softmax(columns: int = 10) -> Node:
    result = tensor("y", 1, columns, quant=SOFTMAX_Q)
    return Node(ops.get("SOFTMAX"), (tensor("x", 1, columns),), (result,), {"beta": 1.0}, "y")


def rms_norm(columns: int, gamma: TensorInfo | None = None) -> Node:
    operands = (tensor("x", 1, 1, columns), gamma or const("g", np.ones(1, np.float32), "float32"))
    return Node(ops.get("RMS_NORM"), operands, (tensor("y", 1, 1, columns),), {"epsilon": 1e-5}, "y")


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
