"""Scales beside those of ranges: grids that weights lie on are found, and what fits weights never loses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.quantizer.policy.schemes import dequantize_constant, fitted, on_grid, quantize_constant, weight_params


def _lost(array: np.ndarray, params: object, dtype: str) -> np.ndarray:
    codes = quantize_constant(array, params, dtype)  # type: ignore[arg-type]
    return dequantize_constant(codes, params) - array.astype(np.float64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "symmetric", "low", "high"),
    [
        ("int8", True, -127, 127),
        ("int8", True, -90, 101),  # not all codes are used
        ("int8", True, -7, 7),  # weights of four bits
        ("int4", True, -6, 5),
        ("int16", True, -128, 127),
        ("uint8", True, -80, 127),
        ("uint8", False, -40, 170),
    ],
)
def test_weights_that_were_codes_lose_nothing(dtype: str, symmetric: bool, low: int, high: int) -> None:
    random = np.random.default_rng(high)
    scales = np.exp(random.uniform(-8, 2, 5)).astype(np.float32)
    array = (random.integers(low, high + 1, (5, 3, 3, 4)) * scales[:, None, None, None]).astype(np.float32)
    array[:, 0, 0, 0], array[:, 0, 0, 1] = low * scales, high * scales
    params = weight_params(array, 0, dtype, symmetric=symmetric)
    found = on_grid(array, params, dtype)
    bound = 4 * np.finfo(np.float32).eps * np.abs(array).max(axis=(1, 2, 3))
    assert (np.abs(_lost(array, found, dtype)).max(axis=(1, 2, 3)) <= bound).all()
    assert np.abs(_lost(array, params, dtype)).max() > bound.max() or high == 127
    per_tensor = weight_params(array[:1], None, dtype, symmetric=symmetric)
    assert np.abs(_lost(array[:1], on_grid(array[:1], per_tensor, dtype), dtype)).max() <= bound[0]


@pytest.mark.parametrize("dtype", ["int4", "int8", "int16", "uint8"])
def test_other_weights_keep_the_scales_of_their_ranges(dtype: str) -> None:
    random = np.random.default_rng(3)
    array = random.standard_normal((6, 40)).astype(np.float32)
    array[1] = 0.0
    array[2, 1:] = 0.0  # one weight lies on any grid
    array[3] *= 1e-30
    params = weight_params(array, 0, dtype, symmetric=dtype != "uint8")
    assert on_grid(array, params, dtype) == params


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("others", ["grids", "none", "mixed"])
def test_few_weights_lie_on_a_grid_where_all_other_channels_do(count: int, others: str) -> None:
    """Kernels of depthwise layers, of 4 bits once, most of whose weights in one channel are zero."""
    random = np.random.default_rng(7)
    codes = random.integers(-7, 8, (6, 9)).astype(np.float64)
    codes[:, 0], codes[0] = 7, 0
    codes[0, :count] = [7, 3, -2][:count]
    if others != "grids":
        codes[1 if others == "mixed" else slice(1, 6), 1:5] += 0.37
    array = (codes * np.exp(random.uniform(-8, 2, (6, 1)))).astype(np.float32)
    params = weight_params(array, 0, "int8", symmetric=True)
    lost = np.abs(_lost(array, on_grid(array, params, "int8"), "int8")[0]).max() / np.abs(array[0]).max()
    assert (lost < 1e-6) == (others == "grids" or count == 1)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_weights_of_a_small_kernel_that_were_codes_lose_nothing(size: int) -> None:
    random = np.random.default_rng(size)
    codes = random.integers(1, 8, (20, size)) * random.choice([-1, 1], (20, size))
    codes[:, 0] = 7
    array = (codes * np.exp(random.uniform(-8, 2, (20, 1)))).astype(np.float32)
    found = on_grid(array, weight_params(array, 0, "int8", symmetric=True), "int8")
    assert (np.abs(_lost(array, found, "int8")).max(axis=1) < 1e-6 * np.abs(array).max(axis=1)).all()


@pytest.mark.parametrize("size", [4, 5, 7])
def test_no_grid_is_found_by_chance(size: int) -> None:
    array = np.random.default_rng(size).standard_normal((5000, size)).astype(np.float32)
    params = weight_params(array, 0, "int8", symmetric=True)
    assert on_grid(array, params, "int8") == params


def test_a_channel_that_is_coarser_for_its_bias_stays_so() -> None:
    codes = np.random.default_rng(4).integers(-90, 91, (2, 30))
    codes[:, 0] = 90
    array = (codes * 0.01).astype(np.float32)
    params = weight_params(array, 0, "int8", symmetric=True, least_scales=np.array([0.0, 0.05]))
    found = on_grid(array, params, "int8")
    assert found.scales == (pytest.approx(0.01), params.scales[1])


@given(st.integers(0, 99), st.sampled_from(["int4", "int8", "int16"]), st.integers(1, 40))
def test_no_channel_loses_by_fitting(seed: int, dtype: str, size: int) -> None:
    array = np.random.default_rng(seed).standard_normal((8, size)).astype(np.float32)
    params = weight_params(array, 0, dtype, symmetric=True)
    found = fitted(array, params, dtype)
    before, after = (np.square(_lost(array, item, dtype)).sum(axis=1) for item in (params, found))
    assert (after <= before * (1 + 1e-6)).all()
    assert found.zero_points == params.zero_points


@pytest.mark.parametrize(("dtype", "gain"), [("int8", 0.7), ("int4", 0.8)])
def test_results_gain_by_fitting(dtype: str, gain: float) -> None:
    """Of inputs from 0 to 1."""
    random = np.random.default_rng(5)
    array, inputs = random.standard_normal((200, 9)).astype(np.float32), random.random((500, 9))
    params = weight_params(array, 0, dtype, symmetric=True)
    errors = [float(np.square(inputs @ _lost(array, p, dtype).T).sum()) for p in (params, fitted(array, params, dtype))]
    assert errors[1] < gain * errors[0]
    assert fitted(array, params, "int16") == params
    assert DTYPES[dtype].bits < 16
