"""Kernels can scale all sums that layers make, and a target add them up and scale them, whatever their numbers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odc_mlir
from helpers.models import ModelBuilder, dense_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.quantize import Quantized

SCHEMES = ("int8", "uint8", "int16x8", "int16")
PLAIN: dict[str, Any] = {"target": "npu-256", "help": False}
RELU6 = {"fused_activation_function": "relu6"}
SAME = {"padding": "same", "stride_h": 1, "stride_w": 1}
# Shapes of the input, of weights and of the bias, or of another operand and none, and of the result.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = {
    "FULLY_CONNECTED": ((1, 40), (5, 40), 5, (1, 5), {}),
    "CONV_2D": ((1, 4, 4, 6), (5, 3, 3, 6), 5, (1, 4, 4, 5), SAME),
    "DEPTHWISE_CONV_2D": ((1, 4, 4, 6), (1, 3, 3, 6), 6, (1, 4, 4, 6), SAME | {"depth_multiplier": 1}),
    "MUL": ((1, 4, 4, 6), (1, 4, 4, 6), 0, (1, 4, 4, 6), {}),
    "ADD": ((1, 4, 4, 6), (1, 4, 4, 6), 0, (1, 4, 4, 6), {}),
}


def layer(name: str, seed: int, weights: float, *, is_limited: bool = True) -> bytes:
    """One layer that cuts off below 0 and above 6, if it ``is_limited``."""
    x, w, b, y, options = LAYERS[name]
    builder, rng = ModelBuilder(), np.random.default_rng(seed)
    first, last = builder.tensor("x", x), builder.tensor("y", y)
    operands = [first, builder.tensor("w", w, data=(weights * rng.normal(size=w)).astype(np.float32))]
    if b:
        operands.append(builder.tensor("b", (b,), data=rng.normal(size=b).astype(np.float32)))
    limits = RELU6 if is_limited else {}
    builder.operator(name, operands, [last], options=options | limits)
    return bytes(write_model(builder.finish([first], [last])))


def dense(rng: np.random.Generator, sizes: tuple[int, ...], spreads: tuple[float, ...], bias: float) -> bytes:
    """Fully connected layers of such sizes, whose weights and biases are that large."""
    drawn = [
        (spread * rng.normal(size=shape), bias * rng.normal(size=shape[0]))
        for spread, shape in zip(spreads, zip(sizes[1:], sizes, strict=False), strict=True)
    ]
    weights, biases = zip(*drawn, strict=True)
    return dense_model(*weights, biases=biases, activations=("relu6", *["none"] * (len(weights) - 1)))


def quantised(file: bytes, samples: list[list[np.ndarray]], scheme: str, **options: Any) -> Quantized:
    return odc_mlir.quantize(file, calibration=samples, scheme=scheme, **PLAIN | options)


def drawn(make: Callable[[], np.ndarray], count: int) -> list[list[np.ndarray]]:
    return [[make().astype(np.float32)] for _ in range(count)]


def on_host(made: Quantized) -> list[str]:
    return [layer["reason"] for layer in made.verdict["coverage"]["target"]["on_host"]]


@settings(max_examples=15)
@given(
    st.sampled_from(SCHEMES), st.sampled_from(sorted(LAYERS)), st.floats(0, 6), st.floats(0, 4), st.integers(0, 1000)
)
def test_what_is_far_beyond_a_limit_is_cut_off_there(
    scheme: str, name: str, inputs: float, weights: float, seed: int
) -> None:
    """However large sums are beside what is left of them; a scale that they wrap around in gives anything."""
    file, free = (layer(name, seed, 10.0**weights, is_limited=is_limited) for is_limited in (True, False))
    rng = np.random.default_rng(seed + 1)
    samples = drawn(lambda: 10.0**inputs * rng.normal(size=LAYERS[name][0]), 8)
    codes = quantised(file, samples, scheme, target=None).model
    real, found, sums = (np.stack([odc_mlir.run(model, x)[0] for x in samples]) for model in (file, codes, free))
    # What inputs and weights lose to steps is less than this part of the largest sums.
    far = np.abs(sums - np.clip(sums, 0.0, 6.0)) > 0.1 * np.abs(sums).max()
    np.testing.assert_allclose(found[far], real[far], atol=0.1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "least", "most"), [("RELU6", 0.0, 6.0), ("RELU_N1_TO_1", -1.0, 1.0)])
@pytest.mark.parametrize("magnitude", [1e5, 1e9, 1e13])
def test_what_an_activation_alone_cuts_off_is_cut_off(
    name: str, least: float, most: float, scheme: str, magnitude: float
) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 32)), builder.tensor("y", (1, 32))
    builder.operator(name, [x], [y])
    samples = drawn(lambda: magnitude * np.random.default_rng(3).choice([-1.0, 1.0], (1, 32)), 8)
    made = quantised(bytes(write_model(builder.finish([x], [y]))), samples, scheme, target=None)
    (found,) = odc_mlir.run(made.model, samples[0])
    np.testing.assert_allclose(found, np.clip(samples[0][0], least, most), atol=0.1)


@settings(max_examples=10)
@given(
    st.sampled_from(["int16x8", "int16"]),
    st.floats(-6, 4),
    st.tuples(st.floats(-6, 3), st.floats(-6, 6)),
    st.floats(-6, 6),
    st.integers(0, 9),
)
def test_no_layer_is_refused_for_its_numbers(
    scheme: str, inputs: float, spreads: tuple[float, float], bias: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    file = dense(rng, (6, 5, 3), (10.0 ** spreads[0], 10.0 ** spreads[1]), 10.0**bias)
    columns = 10.0 ** rng.uniform(min(inputs, 0), max(inputs, 0), 6)
    assert not on_host(quantised(file, drawn(lambda: columns * rng.normal(size=(1, 6)), 8), scheme))


@pytest.mark.parametrize(("scheme", "least_db"), [("int16", 80.0), ("int16x8", 50.0)])
def test_a_result_much_finer_than_its_sums_loses_little(scheme: str, least_db: float) -> None:
    """Cut off far below what inputs are: one step of a sum is many of what is left."""
    rng = np.random.default_rng(0)
    file = dense(rng, (6, 5, 3), (1e3, 1.0), 1.0)
    samples = drawn(lambda: 1e4 * rng.normal(size=(1, 6)), 16)
    free, kept = quantised(file, samples, scheme, target=None), quantised(file, samples, scheme)
    assert not on_host(kept)
    assert min(made.verdict["metrics"]["sqnr_db"] for made in (free, kept)) > least_db


@pytest.mark.parametrize("scheme", ["int8", "uint8"])
@pytest.mark.parametrize("bias", [-3e6, 3e6])
def test_a_bias_leaves_room_for_products(scheme: str, bias: float) -> None:
    """Of a channel that is always cut off: with the finest weights its bias alone would fill 32 bits."""
    rng, builder = np.random.default_rng(4), ModelBuilder()
    weights, biases = rng.normal(size=(8, 16)), np.zeros(8)
    biases[0] = bias
    x, y = builder.tensor("x", (1, 16)), builder.tensor("y", (1, 8))
    operands = [builder.tensor(name, a.shape, data=a.astype(np.float32)) for name, a in (("w", weights), ("b", biases))]
    builder.operator("FULLY_CONNECTED", [x, *operands], [y], options=RELU6)
    samples = drawn(lambda: rng.normal(size=(1, 16)), 16)
    made = quantised(bytes(write_model(builder.finish([x], [y]))), samples, scheme, target=None)
    found = np.stack([odc_mlir.run(made.model, sample)[0] for sample in samples])[..., 0]
    np.testing.assert_allclose(found, np.clip(bias, 0.0, 6.0), atol=0.05)


def test_products_that_only_8_bits_run_count_as_possible() -> None:
    """Of two computed matrices of 16-bit codes: their sums may need more bits than accumulators have."""
    rng, builder = np.random.default_rng(5), ModelBuilder()
    a, b, y = builder.tensor("a", (1, 4, 600)), builder.tensor("b", (1, 600, 4)), builder.tensor("y", (1, 4, 4))
    z = builder.tensor("z", (1, 4, 4))
    builder.operator("BATCH_MATMUL", [a, b], [y], options={"adjoint_lhs": False, "adjoint_rhs": False})
    builder.operator("ADD", [y, y], [z])
    file = bytes(write_model(builder.finish([a, b], [z])))
    samples = [[rng.normal(size=shape).astype(np.float32) for shape in ((1, 4, 600), (1, 600, 4))] for _ in range(8)]
    left = quantised(file, samples, "int16x8")
    assert not left.passed
    (problem,) = left.verdict["problems"]
    assert problem.startswith("npu-256 runs 0.0 % of the products that it could")
    assert problem.endswith("; --overrides y:int8 (in Python overrides) has it run more")
    made = quantised(file, samples, "int16x8", overrides="y:int8")
    assert made.passed
    assert not on_host(made)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "RESIZE_BILINEAR"])
def test_what_is_averaged_before_it_is_cut_off_keeps_its_range(name: str) -> None:
    rng, builder = np.random.default_rng(6), ModelBuilder()
    x, y, z = builder.tensor("x", (1, 8, 8, 2)), builder.tensor("y", (1, 4, 4, 2)), builder.tensor("z", (1, 4, 4, 2))
    if name == "AVERAGE_POOL_2D":
        window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "valid"}
        builder.operator(name, [x], [y], options=window)
    else:
        size = builder.tensor("size", (2,), "int32", data=np.array([4, 4], np.int32))
        builder.operator(name, [x, size], [y], options={"half_pixel_centers": True})
    limit = builder.tensor("limit", (1,), data=np.array([0.5], np.float32))
    builder.operator("MINIMUM", [y, limit], [z])
    file = bytes(write_model(builder.finish([x], [z])))
    made = quantised(file, drawn(lambda: 4 * rng.normal(size=(1, 8, 8, 2)), 16), "int8", target=None)
    assert made.verdict["metrics"]["sqnr_db"] > 25.0


def test_sums_that_no_scale_brings_down_stay_real() -> None:
    rng = np.random.default_rng(2)
    made = quantised(dense(rng, (6, 5, 3), (1e5, 1.0), 1.0), drawn(lambda: 1e6 * rng.normal(size=(1, 6)), 8), "int8")
    assert made.verdict["float_reasons"] == {
        "y0": "its sums may exceed its result's range by more than kernels scale; rescale it in the float model"
    }


def test_sums_of_many_wide_weights_fit() -> None:
    """As large as can be, sums of the finest codes need more bits than accumulators have."""
    rng = np.random.default_rng(1)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4096)), builder.tensor("y", (1, 4))
    signs = np.sign(rng.normal(size=(4, 4096))).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("w", (4, 4096), data=signs), -1], [y])
    file = bytes(write_model(builder.finish([x], [y])))
    made = quantised(file, drawn(lambda: rng.normal(size=(1, 4096)), 8), "int16")
    assert not on_host(made)
    assert made.verdict["metrics"]["mpeir"] < 1e-3
