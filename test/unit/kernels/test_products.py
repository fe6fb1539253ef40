"""Real activations with weights that stand for reals, and with block formats: against products of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.spec import QuantParams, TensorInfo

Array = NDArray[Any]
STEP = {"stride_h": 1, "stride_w": 1}


def packed(codes: Array, dtype: str, params: QuantParams) -> TensorInfo:
    """Four-bit weights, the even element in the low half."""
    nibbles = codes.ravel().astype(np.int8).view(np.uint8) & 15
    return TensorInfo("w", dtype, codes.shape, params, memoryview((nibbles[0::2] | nibbles[1::2] << 4).tobytes()))


def coded(dtype: str, shape: tuple[int, ...], params: QuantParams, axis: int) -> tuple[TensorInfo, Array]:
    """Random weights of ``dtype`` and the reals that they stand for."""
    low, high = {"uint4": (0, 15), "uint8": (0, 255), "int16": (-3000, 3000), "int8": (-127, 127)}[dtype]
    codes = np.random.default_rng(0).integers(low, high + 1, shape)
    along = [-1 if i == axis and not params.per_tensor else 1 for i in range(len(shape))]
    scales, zeros = np.reshape(params.scales, along), np.reshape(params.zero_points, along)
    info = packed(codes, dtype, params) if dtype == "uint4" else const(codes, dtype, params)
    return info, ((codes - zeros) * scales).astype(np.float32)


@pytest.mark.parametrize("dtype", ["uint4", "uint8", "int16"])
@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
@pytest.mark.parametrize("several", [False, True])
def test_weights_that_stand_for_reals(name: str, dtype: str, several: bool) -> None:
    axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
    zeros = 0 if dtype == "int16" else 7
    params = quant([0.01, 0.02, 0.03, 0.04], zeros, axis) if several else quant(0.01, zeros)
    shape = {"FULLY_CONNECTED": (4, 2), "DEPTHWISE_CONV_2D": (1, 3, 3, 4)}.get(name, (4, 3, 3, 2))
    info, reals = coded(dtype, shape, params, axis)
    x = np.random.default_rng(1).normal(size=(1, 2) if len(shape) == 2 else (1, 5, 5, 2)).astype(np.float32)
    found = []
    for weights in (info, const(reals, "float32")):
        operands: list[TensorInfo | None] = [tensor("float32", x.shape), weights, const(np.arange(4), "float32")]
        if name == "TRANSPOSE_CONV":
            operands = [const([1, 5, 5, 4]), weights, operands[0], operands[2]]
        found.append(run(node(name, operands, tensor("float32", None), **(STEP if len(shape) == 4 else {})), x))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_transposed_convolution_quantises_activations_with_a_zero_point() -> None:
    """Multiples of a 255th of the range come through without rounding; as multiples of a 127th they would not."""
    info, reals = coded("int8", (3, 2, 2, 2), quant(0.02), 0)
    x = np.linspace(-1.0, 1.55, 256)[:-1][::15].astype(np.float32)
    x = np.append(x, np.float32(1.55)).reshape(1, 3, 3, 2)
    made = [
        node("TRANSPOSE_CONV", [const([1, 3, 3, 3]), w, tensor("float32", x.shape)], tensor("float32", None), **STEP)
        for w in (info, const(reals, "float32"))
    ]
    np.testing.assert_allclose(run(made[0], x), run(made[1], x), rtol=1e-5, atol=1e-6)
    assert np.abs(run(made[0], x * x) - run(made[1], x * x)).max() > 1e-4  # squares are rounded


def test_computed_weights() -> None:
    """Weights that only a run knows are prepared in each one."""
    x = np.ones((1, 3), np.float32)
    made = node("FULLY_CONNECTED", [tensor("float32", (1, 3)), tensor("int8", (2, 3), quant(0.5))],
                tensor("float32", None))  # fmt: skip
    for value in (1, -2):
        np.testing.assert_allclose(run(made, x, np.full((2, 3), value, np.int8)), [[1.5 * value] * 2], rtol=1e-6)


def test_images_are_quantised_one_by_one() -> None:
    x = np.stack([np.full((2, 2, 1), 1.0), np.full((2, 2, 1), 1000.0)]).astype(np.float32)
    made = node("CONV_2D", [tensor("float32", x.shape), const(np.ones((1, 1, 1, 1)), "int8", quant(0.25))],
                tensor("float32", None), **STEP)  # fmt: skip
    np.testing.assert_allclose(run(made, x), x * 0.25, rtol=1e-6)


def blocks(rng: np.random.Generator, dtype: str, rows: int, count: int) -> bytes:
    """Random rows of blocks: small half-precision factors, any codes."""
    code_bytes = 16 if "q4" in dtype else 32
    factors = 1 if dtype.endswith("_0") else 2
    halves = rng.uniform(0.001, 0.02, (rows, count, factors)).astype("<f2").view(np.uint8)
    return np.concatenate([halves, rng.integers(0, 256, (rows, count, code_bytes)).astype(np.uint8)], axis=-1).tobytes()


@pytest.mark.parametrize("dtype", ["ggml_q4_0", "ggml_q4_1", "ggml_q8_0", "ggml_q8_1"])
def test_block_weights(dtype: str) -> None:
    """Activations are rounded to eight bits by blocks, so the product is close to that of the decoded weights."""
    rng = np.random.default_rng(0)
    info = TensorInfo("w", dtype, (3, 64), None, memoryview(blocks(rng, dtype, 3, 2)))
    x = rng.normal(size=(5, 64)).astype(np.float32)
    made = node("FULLY_CONNECTED", [tensor("float32", x.shape), info, const([1, 2, 3], "float32")],
                tensor("float32", None), fused_activation_function="relu")  # fmt: skip
    real = node("GATHER", [info, const([0, 1, 2])], tensor("float32", None))
    exact = np.maximum(x @ run(real).T + [1, 2, 3], 0)
    found = run(made, x)
    assert 0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
    x[:] = 0
    assert run(made, x).tolist() == [[1, 2, 3]] * 5


def test_block_weights_with_codes() -> None:
    info = TensorInfo("w", "ggml_q8_0", (3, 32), None, memoryview(bytes(3 * 34)))
    made = node("FULLY_CONNECTED", [tensor("int8", (1, 32), quant(1.0)), info], tensor("int8", None, quant(1.0)))
    with pytest.raises(UnsupportedError, match="weights of ggml_q8_0 go with float32 only"):
        made.spec.kernel_function(made)


@pytest.mark.parametrize(
    ("shape", "dtype", "out", "error", "message"),
    [
        ((6, 16), "uint8", "int16", ModelError, "must be multiples of 4 and 16"),
        ((4, 24), "uint8", "int16", ModelError, "must be multiples of 4 and 16"),
        ((4, 16), "uint8", "uint8", UnsupportedError, "in the format 'shuffled4x16int8' are not supported"),
    ],
)
def test_shuffled_weights_that_are_refused(
    shape: tuple[int, int], dtype: str, out: str, error: type[Exception], message: str
) -> None:
    operands = [tensor("uint8", (1, shape[1]), quant(1.0)), const(np.zeros(shape), dtype, quant(1.0))]
    made = node("FULLY_CONNECTED", operands, tensor(out, None, quant(1.0)), weights_format="shuffled4x16int8")
    with pytest.raises(error, match=message):
        made.spec.kernel_function(made)
