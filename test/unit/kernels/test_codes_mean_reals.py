"""Every kernel of codes against its kernel of real numbers: the noise is little more than that of rounding results.

The floor: the signal-to-noise ratio is within 8 dB of what rounding exact results to codes gives, or at least 40 dB for
8 bits and 60 dB for 16 bits.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, run, tensor
from odc_mlir import ops
from odc_mlir.errors import OdcError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Node, QuantKind, QuantParams, TensorInfo

Array = NDArray[Any]
Range = tuple[float, float]

DTYPE_NAMES = ("int8", "uint8", "int16")
FLOOR_DB = {"int8": 40.0, "uint8": 40.0, "int16": 60.0}
MARGIN_DB = 8.0

ROWS, IMAGE, PAIR = (40, 16), (1, 12, 11, 6), (300, 7)
POOL = {"stride_h": 1, "stride_w": 2, "filter_height": 3, "filter_width": 2}
# Shapes of operands (of whole numbers: their values), the range that real operands are drawn from, and options.
CASES: dict[str, tuple[Sequence[Any], Range, dict[str, Any]]] = {
    **{
        name: ([PAIR], (-6.0, 6.0), {})
        for name in ("EXP", "SIN", "COS", "LOGISTIC", "TANH", "ELU", "GELU", "HARD_SWISH")
    },
    **{name: ([PAIR], (0.01, 9.0), {}) for name in ("LOG", "SQRT", "RSQRT")},
    **{name: ([PAIR], (-3.0, 7.0), {}) for name in ("ABS", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1")},
    "LEAKY_RELU": ([PAIR], (-4.0, 4.0), {"alpha": 0.3}),
    "PRELU": ([PAIR, (7,)], (-4.0, 4.0), {}),
    **{name: ([PAIR, PAIR], (-0.1, 3.0), {}) for name in ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE")},
    "DIV": ([PAIR, PAIR], (0.5, 4.0), {}),
    "SOFTMAX": ([ROWS], (-4.0, 4.0), {"beta": 1.0}),
    "LOG_SOFTMAX": ([ROWS], (-4.0, 4.0), {}),
    "L2_NORMALIZATION": ([ROWS], (-4.0, 4.0), {}),
    "MEAN": ([IMAGE, [1, 2]], (-4.0, 4.0), {}),
    "SUM": ([IMAGE, [2]], (-4.0, 4.0), {}),
    "REDUCE_PROD": ([(200, 3), [1]], (0.5, 2.0), {}),
    "AVERAGE_POOL_2D": ([IMAGE], (-4.0, 4.0), POOL),
    "RESIZE_BILINEAR": ([IMAGE, [17, 23]], (-4.0, 4.0), {"half_pixel_centers": True}),
    "RMS_NORM": ([(2, 20, 16), (16,)], (-4.0, 4.0), {"epsilon": 1e-5}),
    "BATCH_MATMUL": ([(2, 9, 12), (2, 12, 8)], (-1.0, 2.0), {}),
}
# Results whose parameters the operator fixes, by type.
FIXED = {
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "LOG_SOFTMAX": {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)},
    "L2_NORMALIZATION": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)},
}
# Operators without a kernel for codes of that type, which is refused.
REFUSED = {("LOG_SOFTMAX", "int16"), ("L2_NORMALIZATION", "int16"), ("REDUCE_PROD", "uint8")}
# Codes that are moved, chosen or compared, and sums of products with weights, have tests of their own.
ELSEWHERE = {
    *("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "ARG_MAX", "ARG_MIN"),
}
# Operators whose kernels take codes of no type, or as plain integers.
NO_CODES = {
    *("CONV_3D", "CONV_3D_TRANSPOSE", "POW", "ATAN2", "ADD_N", "FLOOR", "CEIL", "ROUND", "SIGN", "SQUARE", "CUMSUM"),
    *(
        "L2_POOL_2D",
        "LOCAL_RESPONSE_NORMALIZATION",
        "SEGMENT_SUM",
        "REDUCE_WINDOW",
        "INSTANCE_NORM",
        "ROPE",
    ),
    *(f"UNSORTED_SEGMENT_{kind}" for kind in ("PROD", "MAX", "MIN", "SUM")),
}


def test_all_kernels_of_codes_are_tried() -> None:
    computing = {name for name, spec in ops.all_specs().items() if spec.quant.kind in (QuantKind.OWN, QuantKind.FIXED)}
    moving = {"AVERAGE_POOL_2D", "RESIZE_BILINEAR"}
    assert computing == (CASES.keys() - moving) | ELSEWHERE | NO_CODES


def params(dtype: str, values: Array, *, middle: bool) -> QuantParams:
    """Parameters that hold ``values``, zero inside; those of int16 have the zero point 0 where ``middle`` says so."""
    low, high = DTYPES[dtype].range
    least, most = min(float(values.min()), 0.0), max(float(values.max()), 1e-3)
    if dtype == "int16" and middle:
        return quant(max(-least, most) / high)
    scale = (most - least) / (high - low)
    return quant(scale, round(low - least / scale))


def decibels(signal: Array, noise: Array) -> float:
    power = float((noise.astype(np.float64) ** 2).sum())
    return (
        math.inf if not power else 10 * math.log10(max(float((signal.astype(np.float64) ** 2).sum()), 1e-300) / power)
    )


def codes_of(values: Array, dtype: str, given: QuantParams) -> Array:
    low, high = DTYPES[dtype].range
    return np.clip(np.round(values / given.scale) + given.zero_point, low, high).astype(dtype)


def reals_of(codes: Array, given: QuantParams) -> Array:
    return (codes.astype(np.float64) - given.zero_point) * given.scale


def made(name: str, operands: list[TensorInfo], dtype: str, given: QuantParams | None) -> Node:
    return node(name, operands, tensor(dtype, None, given), **CASES[name][2])


@pytest.mark.parametrize("middle", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("name", CASES)
def test_noise(name: str, dtype: str, middle: bool) -> None:
    for seed in range(4):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        real, coded, arrays, codes = [], [], [], []
        low, high = CASES[name][1]
        low, high = low + (high - low) * rng.uniform(0, 0.3), high - (high - low) * rng.uniform(0, 0.3)
        for shape in CASES[name][0]:
            if isinstance(shape, list):
                real.append(const(shape))
                coded.append(const(shape))
                continue
            values = rng.uniform(low, high, shape)
            given = params(dtype, values, middle=middle)
            codes.append(codes_of(values, dtype, given))
            arrays.append(reals_of(codes[-1], given).astype(np.float32))
            if name in ("LOG", "RSQRT", "DIV"):  # no zeros
                codes[-1] = np.maximum(codes[-1], given.zero_point + 1).astype(dtype)
                arrays[-1] = reals_of(codes[-1], given).astype(np.float32)
            real.append(tensor("float32", shape))
            coded.append(tensor(dtype, shape, given))
        exact = run(made(name, real, "float32", None), *arrays)
        out = params(dtype, exact, middle=middle)
        if ops.get(name).quant.kind is QuantKind.SAME:
            out = coded[0].quant or out
        elif dtype in FIXED.get(name, {}):
            if not middle and name not in ("LOGISTIC", "TANH", "SOFTMAX"):
                return
            if middle or dtype != "int16":
                out = quant(*FIXED[name][dtype])
        if (name, dtype) in REFUSED:
            with pytest.raises(OdcError, match="not supported"):
                run(made(name, coded, dtype, out), *codes)
            return
        found = reals_of(run(made(name, coded, dtype, out), *codes), out)
        ideal = decibels(exact, reals_of(codes_of(exact, dtype, out), out) - exact)
        seen = decibels(exact, found - exact)
        assert seen >= min(ideal - MARGIN_DB, FLOOR_DB[dtype]), (seed, seen, ideal)
