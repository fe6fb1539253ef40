"""Kernels can scale all sums that layers make, and a target add them up and scale them, whatever their numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odc_mlir
from helpers.float_models import normal
from helpers.models import ModelBuilder, dense_model
from odc_mlir.quantizer.quantize import Quantized

SCHEMES = ("int8", "uint8", "int16x8", "int16")
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
    operands = [builder.tensor("x", x), builder.constant("w", weights * rng.normal(size=w))]
    if b:
        operands.append(builder.constant("b", rng.normal(size=b)))
    limits = RELU6 if is_limited else {}
    return builder.file(operands[:1], [builder.made("y", y, name, *operands, **options | limits)])


def dense(rng: np.random.Generator, sizes: tuple[int, ...], spreads: tuple[float, ...], bias: float) -> bytes:
    """Fully connected layers of such sizes, whose weights and biases are that large."""
    drawn = [
        (spread * rng.normal(size=shape), bias * rng.normal(size=shape[0]))
        for spread, shape in zip(spreads, zip(sizes[1:], sizes, strict=False), strict=True)
    ]
    weights, biases = zip(*drawn, strict=True)
    return dense_model(*weights, biases=biases, activations=("relu6", *["none"] * (len(weights) - 1)))


def quantised(file: bytes, samples: list[list[np.ndarray]], scheme: str, **options: Any) -> Quantized:
    return odc_mlir.quantize(
        file, calibration=samples, scheme=scheme, **{"target": "npu-256", "help": False, **options}
    )


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
    samples = normal(np.random.default_rng(seed + 1), 8, *LAYERS[name][0], size=10.0**inputs)
    codes = quantised(file, samples, scheme, target=None).model
    real, found, sums = (np.stack([odc_mlir.run(model, x)[0] for x in samples]) for model in (file, codes, free))
    # What inputs and weights lose to steps is less than this part of the largest sums.
    far = np.abs(sums - np.clip(sums, 0.0, 6.0)) > 0.1 * np.abs(sums).max()
    np.testing.assert_allclose(found[far], real[far], atol=0.1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "least", "most"), [("RELU6", 0.0, 6.0), ("RELU_N1_TO_1", -1.0, 1.0)])
@pytest.mark.parametrize("magnitude", [1e5, 1e9, 1e13])
def test_activations_alone_cut_off_as_well(name: str, least: float, most: float, scheme: str, magnitude: float) -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 32))
    signs = magnitude * np.random.default_rng(3).choice([-1.0, 1.0], (1, 32)).astype(np.float32)
    file = builder.file([x], [builder.made("y", (1, 32), name, x)])
    (found,) = odc_mlir.run(quantised(file, [[signs]] * 8, scheme, target=None).model, [signs])
    np.testing.assert_allclose(found, np.clip(signs, least, most), atol=0.1)


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
    assert not on_host(quantised(file, [[(columns * x).astype(np.float32)] for (x,) in normal(rng, 8, 1, 6)], scheme))


@pytest.mark.parametrize(("scheme", "least_db"), [("int16", 80.0), ("int16x8", 50.0)])
def test_a_result_much_finer_than_its_sums_loses_little(scheme: str, least_db: float) -> None:
    """Cut off far below what inputs are: one step of a sum is many of what is left."""
    rng = np.random.default_rng(0)
    file = dense(rng, (6, 5, 3), (1e3, 1.0), 1.0)
    samples = normal(rng, 16, 1, 6, size=1e4)
    free, kept = quantised(file, samples, scheme, target=None), quantised(file, samples, scheme)
    assert not on_host(kept)
    assert min(made.verdict["metrics"]["sqnr_db"] for made in (free, kept)) > least_db


@pytest.mark.parametrize("scheme", ["int8", "uint8"])
@pytest.mark.parametrize("bias", [-3e6, 3e6])
def test_a_bias_leaves_room_for_products(scheme: str, bias: float) -> None:
    """Of a channel that is always cut off: with the finest weights its bias alone would fill 32 bits."""
    rng, biases = np.random.default_rng(4), np.array([bias, *[0.0] * 7])
    file = dense_model(rng.normal(size=(8, 16)), biases=(biases,), activations=("relu6",))
    samples = normal(rng, 16, 1, 16)
    made = quantised(file, samples, scheme, target=None)
    found = np.stack([odc_mlir.run(made.model, sample)[0] for sample in samples])[..., 0]
    np.testing.assert_allclose(found, np.clip(bias, 0.0, 6.0), atol=0.05)


def test_products_that_only_8_bits_run_count_as_possible() -> None:
    """Of two computed matrices of 16-bit codes: their sums may need more bits than accumulators have."""
    rng, builder, shapes = np.random.default_rng(5), ModelBuilder(), ((1, 4, 600), (1, 600, 4))
    a, b = (builder.tensor(name, shape) for name, shape in zip("ab", shapes, strict=True))
    y = builder.made("y", (1, 4, 4), "BATCH_MATMUL", a, b, adjoint_lhs=False, adjoint_rhs=False)
    file = builder.file([a, b], [builder.made("z", (1, 4, 4), "ADD", y, y)])
    samples = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(8)]
    left, made = (quantised(file, samples, "int16x8", overrides=given) for given in (None, "y:int8"))
    assert not left.passed
    (problem,) = left.verdict["problems"]
    assert problem.startswith("npu-256 runs 0.0 % of the products that it could")
    assert problem.endswith("; --overrides y:int8 (in Python overrides) has it run more")
    assert made.passed
    assert not on_host(made)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "RESIZE_BILINEAR"])
def test_what_is_averaged_before_it_is_cut_off_keeps_its_range(name: str) -> None:
    builder, shape = ModelBuilder(), (1, 4, 4, 2)
    x = builder.tensor("x", (1, 8, 8, 2))
    if name == "AVERAGE_POOL_2D":
        window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "valid"}
        y = builder.made("y", shape, name, x, **window)
    else:
        y = builder.made("y", shape, name, x, builder.constant("size", [4, 4], "int32"), half_pixel_centers=True)
    file = builder.file([x], [builder.made("z", shape, "MINIMUM", y, builder.constant("limit", [0.5]))])
    samples = normal(np.random.default_rng(6), 16, 1, 8, 8, 2, size=4.0)
    assert quantised(file, samples, "int8", target=None).verdict["metrics"]["sqnr_db"] > 25.0


def test_sums_that_no_scale_brings_down_stay_real_and_sums_of_many_wide_weights_fit() -> None:
    """As large as can be, sums of the finest codes need more bits than accumulators have."""
    rng = np.random.default_rng(2)
    made = quantised(dense(rng, (6, 5, 3), (1e5, 1.0), 1.0), normal(rng, 8, 1, 6, size=1e6), "int8")
    why = "its sums may exceed its result's range by more than kernels scale; rescale it in the float model"
    assert made.verdict["float_reasons"] == {"y0": why}
    rng = np.random.default_rng(1)
    file = dense_model(np.sign(rng.normal(size=(4, 4096))))
    made = quantised(file, normal(rng, 8, 1, 4096), "int16")
    assert not on_host(made)
    assert made.verdict["metrics"]["mpeir"] < 1e-3
