"""Every operator that can be quantised, in every scheme: results on codes are those on reals, but for some steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet, assign, operator, quantised_results
from odc_mlir import ops
from odc_mlir.ops.spec import QuantKind
from odc_mlir.transforms.quant.common.ir import REASON, params_of, result_types

Make = Callable[[FloatNet], Any]

SCHEMES = ("uint8", "int8", "int16", "int16x8")
I32 = "int32"


def _unary(name: str, low: float = -3.0, high: float = 3.0, **options: Any) -> Make:
    return lambda net: net.add(name, net.real(2, 3, 4, 5, low=low, high=high), **options)


def _binary(name: str, low: float = -2.0, high: float = 3.0, **options: Any) -> Make:
    return lambda net: net.add(
        name, net.real(2, 3, 4, low=low, high=high), net.real(2, 3, 4, low=low / 3, high=high / 2), **options
    )


def _reduce(name: str) -> Make:
    return lambda net: net.add(name, net.real(2, 6, 5, 3), net.const([1, 2], I32), keep_dims=True)


def _ints(name: str, *constants: Any, shape: tuple[int, ...] = (2, 4, 6, 4), count: int = 1, **options: Any) -> Make:
    """An operator that moves elements as integer constants say."""
    return lambda net: net.add(name, net.real(*shape), *(net.const(c, I32) for c in constants), count=count, **options)


def _split(net: FloatNet) -> list[SSAValue]:
    found: list[SSAValue] = net.add("SPLIT", net.const(3, I32), net.real(2, 2, 3, 4), count=2, num_splits=2)
    return found


def _product(name: str, weights: tuple[int, ...], **options: Any) -> Make:
    return lambda net: net.add(
        name, net.real(2, 6, 5, 4), net.weights(*weights), net.weights(weights[3 if weights[0] == 1 else 0]), **options
    )


def _select(net: FloatNet) -> SSAValue:
    chosen = net.add("GREATER", net.real(2, 8), net.real(2, 8))
    found: SSAValue = net.add("SELECT_V2", chosen, net.real(2, 8, low=-3), net.real(2, 8, high=2))
    return found


# What each operator is tried with. Results are compared in steps of the result's scale.
CASES: dict[str, Make] = {
    "CONV_2D": _product("CONV_2D", (3, 3, 3, 4), padding="same", stride_h=1, stride_w=1),
    "DEPTHWISE_CONV_2D": _product(
        "DEPTHWISE_CONV_2D", (1, 3, 3, 8), padding="same", stride_h=1, stride_w=1, depth_multiplier=2
    ),
    "TRANSPOSE_CONV": lambda net: net.add(
        "TRANSPOSE_CONV",
        net.const([1, 8, 8, 3], I32),
        net.weights(3, 2, 2, 4),
        net.real(1, 4, 4, 4),
        net.weights(3),
        padding="same",
        stride_h=2,
        stride_w=2,
    ),
    "FULLY_CONNECTED": lambda net: net.add(
        "FULLY_CONNECTED", net.real(5, 16), net.weights(7, 16), net.weights(7), fused_activation_function="relu"
    ),
    "RMS_NORM": lambda net: net.add("RMS_NORM", net.real(2, 3, 8), net.weights(8), epsilon=1e-5),
    "BATCH_MATMUL": lambda net: net.add("BATCH_MATMUL", net.real(2, 4, 8), net.real(2, 8, 5)),
    **{name: _binary(name) for name in ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM")},
    "DIV": lambda net: net.add("DIV", net.real(3, 8), net.const([[0.5] * 4 + [2.0] * 4])),
    **{
        name: _unary(name)
        for name in (
            "ABS",
            "NEG",
            "EXP",
            "SIN",
            "COS",
            "RELU",
            "RELU6",
            "RELU_N1_TO_1",
            "RELU_0_TO_1",
            "ELU",
            "GELU",
            "HARD_SWISH",
            "LOGISTIC",
            "TANH",
            "LOG_SOFTMAX",
            "L2_NORMALIZATION",
        )
    },
    "LOG": _unary("LOG", low=0.2, high=4.0),
    "SQRT": _unary("SQRT", low=0.2, high=4.0),
    "RSQRT": _unary("RSQRT", low=0.2, high=4.0),
    "SOFTMAX": _unary("SOFTMAX", beta=1.0),
    "LEAKY_RELU": _unary("LEAKY_RELU", alpha=0.2),
    "PRELU": lambda net: net.add("PRELU", net.real(2, 3, 4, 5), net.weights(1, 1, 5, spread=0.2)),
    **{name: _reduce(name) for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")},
    **{
        f"{kind}_POOL_2D": _unary(
            f"{kind}_POOL_2D", stride_h=1, stride_w=1, filter_height=2, filter_width=2, padding="valid"
        )
        for kind in ("AVERAGE", "MAX")
    },
    "RESHAPE": _ints("RESHAPE", [8, 24]),
    "SQUEEZE": _ints("SQUEEZE", shape=(2, 1, 3), squeeze_dims=[1]),
    "EXPAND_DIMS": _ints("EXPAND_DIMS", 1),
    "TRANSPOSE": _ints("TRANSPOSE", [0, 2, 3, 1]),
    "STRIDED_SLICE": _ints("STRIDED_SLICE", [0, 1, 0, 0], [2, 4, 6, 4], [1, 2, 1, 1]),
    "SLICE": _ints("SLICE", [0, 1, 0, 0], [2, 2, 6, 4]),
    "PAD": _ints("PAD", [[0, 0], [1, 1], [1, 2], [0, 0]]),
    "MIRROR_PAD": _ints("MIRROR_PAD", [[0, 0], [1, 1], [1, 1], [0, 0]]),
    "TILE": _ints("TILE", [1, 2, 1, 1]),
    "REVERSE_V2": _ints("REVERSE_V2", [1]),
    "SPACE_TO_DEPTH": _ints("SPACE_TO_DEPTH", block_size=2),
    "DEPTH_TO_SPACE": _ints("DEPTH_TO_SPACE", block_size=2),
    "SPACE_TO_BATCH_ND": _ints("SPACE_TO_BATCH_ND", [2, 2], [[0, 0], [0, 0]]),
    "BATCH_TO_SPACE_ND": _ints("BATCH_TO_SPACE_ND", [2, 2], [[0, 0], [0, 0]], shape=(4, 2, 2, 3)),
    "RESIZE_BILINEAR": _ints("RESIZE_BILINEAR", [7, 9]),
    "RESIZE_NEAREST_NEIGHBOR": _ints("RESIZE_NEAREST_NEIGHBOR", [7, 9]),
    "BROADCAST_TO": _ints("BROADCAST_TO", [2, 4, 6, 4], shape=(1, 4, 1, 4)),
    "GATHER": lambda net: net.add("GATHER", net.real(6, 4), net.const([5, 0, 2], I32), axis=0),
    "GATHER_ND": lambda net: net.add("GATHER_ND", net.real(6, 4), net.const([[5], [0]], I32)),
    "SPLIT": _split,
    "UNPACK": _ints("UNPACK", shape=(2, 3, 4), count=2, num=2, axis=0),
    "CONCATENATION": lambda net: net.add(
        "CONCATENATION", net.real(2, 3, high=4), net.real(2, 5, low=-3), net.weights(2, 2), axis=1
    ),
    "PACK": lambda net: net.add("PACK", net.real(2, 3, high=4), net.real(2, 3, low=-3), values_count=2, axis=0),
    "PADV2": lambda net: net.add("PADV2", net.real(2, 3), net.const([[0, 0], [1, 1]], I32), net.const([-3.0])),
    "SELECT_V2": _select,
    "MATRIX_DIAG": _ints("MATRIX_DIAG", shape=(2, 3)),
    "TOPK_V2": lambda net: net.add("TOPK_V2", net.real(2, 9), net.const(3, I32), count=2, dtypes=["float32", I32])[0],
    "DYNAMIC_UPDATE_SLICE": lambda net: net.add(
        "DYNAMIC_UPDATE_SLICE", net.real(4, 4), net.real(2, 2, high=3), net.const([1, 1], I32)
    ),
}

# Steps by which a result may be off: functions that are steeper than 1 grow their operand's half step.
STEPS = {"EXP": 3, "LOG": 6, "RSQRT": 5, "SQRT": 3, "RELU_0_TO_1": 4, "FULLY_CONNECTED": 3}
WIDE_STEPS = 300  # of int16: 8-bit weights are coarser than results

# Operators that the kernels of a scheme do not have.
NO_KERNEL = {
    "uint8": set[str](),
    "int8": set[str](),
    "int16": {"LOG_SOFTMAX", "L2_NORMALIZATION"},
    "int16x8": {"LOG_SOFTMAX", "L2_NORMALIZATION"},
}
# Operators whose kernels have no codes in any scheme, or that come with others' codes, or whose results are no reals.
NOT_TRIED = {
    *("CONV_3D", "CONV_3D_TRANSPOSE", "POW", "ATAN2", "ADD_N", "FLOOR", "CEIL", "ROUND", "SIGN", "SQUARE"),
    *("L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "REDUCE_PROD", "CUMSUM", "SEGMENT_SUM", "REDUCE_WINDOW"),
    *(f"UNSORTED_SEGMENT_{kind}" for kind in ("PROD", "MAX", "MIN", "SUM")),
    *("INSTANCE_NORM", "ROPE", "EMBEDDING_LOOKUP", "HASHTABLE_LOOKUP", "DENSIFY", "UNIQUE", "FILL"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "ARG_MAX", "ARG_MIN"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM",  # in a test of its own
    *("SELECT", "SPLIT_V", "REVERSE_SEQUENCE", "DILATE", "MATRIX_SET_DIAG", "SPARSE_TO_DENSE", "ONE_HOT"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CASES)
def test_codes_mean_the_reals(name: str, scheme: str) -> None:
    net = FloatNet(len(name))
    made = CASES[name](net)
    outputs = made if isinstance(made, list) else [made]
    label = next(label for label in net.values if label.startswith(name.lower()))
    real = [array for key, array in net.values.items() if key.startswith(label)][: len(outputs)]
    module = assign(net.module(*outputs), scheme)
    op = operator(module, label)
    element = params_of((result_types(op) or [None])[0])
    assert (element is None) == (name in NO_KERNEL[scheme])
    assert (element is None) == (REASON in op.attributes)
    step = 1e-6 if element is None else element[1].scale
    allowed = 1.0 if element is None else WIDE_STEPS if scheme.startswith("int16") else STEPS.get(name, 2)
    for ours, theirs in zip(quantised_results(module, net.inputs), real, strict=True):
        assert np.abs(ours - theirs).max() <= allowed * step


def test_all_operators_are_tried() -> None:
    quantised = {
        name for name, spec in ops.all_specs().items() if spec.quant.kind not in (QuantKind.NONE, QuantKind.FLOAT)
    }
    assert quantised == CASES.keys() | NOT_TRIED
    assert not CASES.keys() & NOT_TRIED


def test_comparisons_and_places_read_codes() -> None:
    net = FloatNet(1)
    x, y = net.real(2, 9, low=-3), net.real(2, 9, high=4)
    larger = net.add("GREATER", x, y, name="larger")
    place = net.add("ARG_MAX", x, net.const(1, I32), dtypes=["int64"])
    module = assign(net.module(larger, place), "int8")
    assert not any(REASON in op.attributes for op in module.walk())
    found = quantised_results(module, net.inputs)
    assert [str(array.dtype) for array in found] == ["bool", "int64"]
    clear = np.abs(net.values["in0"] - net.values["in1"]) > 0.1
    np.testing.assert_array_equal(found[0][clear], net.values["larger"][clear])
