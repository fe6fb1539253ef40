"""One plain node for each operator that Vela places on an NPU, in each type of codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from helpers.rule_nodes import (
    NEAREST,
    binary,
    const,
    conv,
    depthwise,
    fully_connected,
    i32,
    lstm,
    matmul,
    mean,
    moving,
    pad,
    pool,
    prelu,
    resized,
    searching,
    softmax,
    tensor,
    transpose,
    transpose_conv,
    unary,
)
from odc_mlir import ops, targets
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.transforms.partition.rules.checks import PlacementLimits
from odc_mlir.transforms.partition.rules.table import MOVERS, verdict

TYPES = ("int8", "uint8", "int16")
_WIDE = 2.0**-12  # scale of 16-bit codes
_UNIT = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (2.0**-15, 0)}  # of results from 0 to 1
_SIGNED = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (2.0**-15, 0)}  # from -1 to 1
_LARGE = {"int8": (20.0, -128), "uint8": (20.0, 0), "int16": (0.1, 0)}  # powers of e
_RESULTS = {"EXP": _LARGE, "SOFTMAX": _UNIT, "LOGISTIC": _UNIT, "TANH": _SIGNED}


def _view(name: str) -> Node:
    shapes = {"EXPAND_DIMS": (1, 2, 3), "RESHAPE": (3, 2), "SQUEEZE": (2, 3)}
    source = tensor("x", 1, 2, 3) if name == "SQUEEZE" else tensor("x", 2, 3)
    operands = (source,) if name == "SQUEEZE" else (source, i32([0] if name == "EXPAND_DIMS" else [3, 2]))
    return Node(ops.get(name), operands, (tensor("y", *shapes[name]),), {"squeeze_dims": (0,)}, "y")


def _reduction(name: str) -> Node:
    return replace(mean(), spec=ops.get(name))


PLAIN: dict[str, Callable[[], Node]] = {
    **{name: partial(binary, name) for name in ("ADD", "MAXIMUM", "MINIMUM", "MUL", "SQUARED_DIFFERENCE", "SUB")},
    **{
        name: partial(unary, name)
        for name in ("ABS", "ELU", "EXP", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6")
        + ("RELU_0_TO_1", "RELU_N1_TO_1", "RSQRT", "TANH")
    },
    **{
        name: partial(moving, name)
        for name in ("CONCATENATION", "MIRROR_PAD", "PACK", "PADV2", "REVERSE_V2", "SLICE", "SPLIT", "SPLIT_V")
        + ("STRIDED_SLICE", "TILE", "UNPACK")
    },
    **{name: partial(_view, name) for name in ("EXPAND_DIMS", "RESHAPE", "SQUEEZE")},
    **{name: partial(_reduction, name) for name in ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")},
    "ARG_MAX": partial(searching, 16),
    "AVERAGE_POOL_2D": pool,
    "BATCH_MATMUL": matmul,
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
    "GELU": lambda: replace(unary("GELU"), options={"approximate": False}),
    "LEAKY_RELU": lambda: replace(unary("LEAKY_RELU"), options={"alpha": 0.125}),
    "MAX_POOL_2D": lambda: replace(pool(), spec=ops.get("MAX_POOL_2D")),
    "PAD": pad,
    "PRELU": partial(prelu, "int8"),
    "RESIZE_BILINEAR": partial(resized, 4, 8),
    "RESIZE_NEAREST_NEIGHBOR": partial(resized, 4, 8, NEAREST),
    "SOFTMAX": softmax,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": partial(transpose_conv, 3, 2),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
}


def of_type(node: Node, dtype: str) -> Node:
    """``node`` on codes of ``dtype``; weights keep their 8 bits."""

    def retyped(info: TensorInfo | None) -> TensorInfo | None:
        if info is None or info.quant is None or info.dtype != "int8":
            return info
        zero = 0 if dtype == "int16" else 3
        quant = QuantParams((_WIDE if dtype == "int16" else 0.5,), (zero,))
        if info.is_const and node.spec.name in MOVERS:
            return const(info.name, info.array().astype(dtype), dtype, quant)
        if info.is_const:
            return info if dtype != "uint8" else const(info.name, info.array().astype("uint8"), dtype, info.quant)
        return replace(info, dtype=dtype, quant=quant)

    results = tuple(found for info in node.results if (found := retyped(info)) is not None)
    if node.spec.name in _RESULTS:
        scale, zero = _RESULTS[node.spec.name][dtype]
        results = tuple(replace(info, quant=QuantParams((scale,), (zero,))) for info in results)
    operands = tuple(map(retyped, node.operands))
    source, filters = operands[0], operands[1] if len(operands) > 1 else None
    bias = operands[2] if len(operands) > 2 else None
    if bias is not None and filters is not None and bias.dtype == "int32" and bias.quant is not None:
        operands = (source, filters, replace(bias, quant=None))
    return replace(node, operands=operands, results=results)


def placements() -> Iterator[tuple[str, dict[str, str]]]:
    """Each operator, and for each type of codes why it stays on the host; empty where it does not."""
    target = targets.load("npu-256")
    limits = PlacementLimits(target, target.sram.capacity_bytes)
    for name in sorted(PLAIN):
        yield name, {dtype: verdict(of_type(PLAIN[name](), dtype), limits).reason for dtype in TYPES}
