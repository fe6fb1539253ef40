"""Ranges, schemes, scales and zero points, grids of weights, and layers as products."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir import ops
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import ModelError, OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Node, QuantKind, QuantParams
from odc_mlir.quantizer.policy import schemes
from odc_mlir.quantizer.policy.products import Product
from odc_mlir.quantizer.policy.ranges import MODES, Tail, choose_range, with_room
from odc_mlir.quantizer.policy.schemes import activation_params, on_grid, quantize_constant, scheme, weight_params
from odc_mlir.runtime.execution.graph import build_graph

FINITE = st.floats(-1e30, 1e30, allow_nan=False)
ASYMMETRIC = st.sampled_from(["uint8", "int8"])
SYMMETRIC = st.sampled_from(["int4", "int8", "int16", "uint8"])
REALS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5), elements=st.floats(-8, 8, width=32)
)


def half_away(x: float) -> int:
    """To the nearest integer, halves away from zero, in decimal arithmetic."""
    return int(math.copysign(int(Decimal(abs(x)).quantize(Decimal(1), ROUND_HALF_UP)), x))


@given(FINITE, FINITE, ASYMMETRIC)
@example(0.0, 0.0, "uint8")
@example(0.0, 1e-40, "uint8")
@example(-2.55, -1.0, "uint8")
def test_the_asymmetric_formula(a: float, b: float, dtype: str) -> None:
    least, most = min(a, b, 0.0), max(a, b, 0.0)
    scale = max((most - least) / 255, schemes.SMALLEST_SCALE) if least < most else schemes.SCALE_OF_ZEROS
    zero = min(half_away(-least / scale), 255)
    found = activation_params(min(a, b), max(a, b), dtype, symmetric=False)
    assert found.scales == (float(np.float32(scale)),)
    assert found.zero_points == (zero + DTYPES[dtype].range[0],)
    low, high = schemes.represented_range(found, dtype)
    assert low - found.scale <= least <= 0.0 <= most <= high + found.scale


@given(FINITE, FINITE, SYMMETRIC)
def test_the_symmetric_formula(a: float, b: float, dtype: str) -> None:
    largest = {"int4": 7, "int8": 127, "int16": 32767, "uint8": 127}[dtype]
    magnitude = max(abs(a), abs(b))
    found = activation_params(min(a, b), max(a, b), dtype, symmetric=True)
    assert found.scale == float(
        np.float32(max(magnitude / largest, schemes.SMALLEST_SCALE) if magnitude else schemes.SCALE_OF_ZEROS)
    )
    assert found.zero_point == (128 if dtype == "uint8" else 0)


@given(REALS, st.data(), st.sampled_from([("int8", True), ("uint8", True), ("uint8", False), ("int16", True)]))
def test_each_channel_is_a_tensor_of_its_own(array: np.ndarray, data: st.DataObject, kind: tuple[str, bool]) -> None:
    dtype, symmetric = kind
    axis = data.draw(st.integers(0, array.ndim - 1))
    found, rows = weight_params(array, axis, dtype, symmetric=symmetric), np.moveaxis(array, axis, 0)
    assert found.axis == axis
    others = [scale for scale, row in zip(found.scales, rows, strict=True) if row.any()]
    for index, row in enumerate(rows):
        alone = weight_params(row, None, dtype, symmetric=symmetric)
        if not row.any():  # no unit of its own
            alone = replace(alone, scales=(min(others, default=float(np.float32(schemes.SCALE_OF_ZEROS))),))
        assert (found.scales[index], found.zero_points[index]) == (alone.scale, alone.zero_point)


@given(REALS, st.sampled_from([("int8", True), ("int4", True), ("uint8", True), ("uint8", False), ("int16", True)]))
def test_codes_are_half_a_step_off_at_most(array: np.ndarray, kind: tuple[str, bool]) -> None:
    dtype, symmetric = kind
    params = weight_params(array, array.ndim - 1, dtype, symmetric=symmetric)
    codes = quantize_constant(array, params, dtype)
    low, high = DTYPES[dtype].range
    assert codes.dtype == DTYPES[dtype].numpy
    if symmetric:
        assert codes.min() >= low + 1  # the range has a middle
    assert codes.min() >= low
    assert codes.max() <= high
    # zero points are rounded too: the end of an asymmetric range may be half a step further away
    allowed = np.asarray(params.scales) * (0.5 if symmetric else 1.0) * (1 + 1e-4)
    assert (np.abs(schemes.dequantize_constant(codes, params) - array) <= allowed).all()


@given(hnp.arrays(np.float64, 20, elements=st.floats(-300, 300)), st.integers(0, 255))
def test_codes_are_rounded_half_away(array: np.ndarray, zero: int) -> None:
    found = quantize_constant(array, QuantParams((0.5,), (zero,)), "uint8")
    assert found.tolist() == [min(max(half_away(min(max(x / 0.5 + zero, 0), 255)), 0), 255) for x in array.tolist()]
    signed = quantize_constant(array, QuantParams((0.5,), (zero - 128,)), "int8")
    assert signed.tolist() == [min(max(half_away(x / 0.5) + zero - 128, -128), 127) for x in array.tolist()]


@given(
    hnp.arrays(np.float32, 6, elements=st.floats(-100, 100, width=32)),
    hnp.arrays(np.float32, 6, elements=st.floats(0, np.float32(1e-20), width=32)),
    st.floats(1e-6, 1.0),
)
def test_a_dead_channel_has_a_bias_that_fits(bias: np.ndarray, weights: np.ndarray, input_scale: float) -> None:
    x = QuantParams((float(np.float32(input_scale)),), (0,))
    least = schemes.least_weight_scales(bias, x.scale, 2**31 - 1)
    params = weight_params(weights.reshape(6, 1), 0, "int8", symmetric=True, least_scales=least)
    scales = schemes.bias_params(x, params)
    codes, saturated = schemes.quantize_bias(bias, scales, "int32")
    assert not saturated
    np.testing.assert_allclose(codes * np.asarray(scales.scales), bias, rtol=1e-6, atol=1e-6)


def test_scales_hold_the_largest_bias_and_are_normal() -> None:
    least = schemes.least_weight_scales(np.array([1.0, -4e9]), 1.0, 2**31 - 1)
    found = weight_params(np.ones((2, 3), np.float32), None, "int8", symmetric=True, least_scales=least)
    assert found.scale == float(np.float32(least.max()))
    # Whatever the bias, for which a scale of nearly nothing would do.
    least = schemes.least_weight_scales(np.array([0.0, 1e-40]), 1e-20, 1 << 31)
    assert (least * 1e-20 >= schemes.SMALLEST_SCALE).all()
    assert least == pytest.approx(schemes.SMALLEST_SCALE / 1e-20)
    # A channel of zeros has the smallest scale of the others.
    array = np.array([[0.0, 0.0], [254e-20, 0.0], [0.0, -127e-20]], np.float32)
    found = weight_params(array, 0, "int8", symmetric=True)
    assert found.scales == pytest.approx((1e-20, 2e-20, 1e-20))
    raised = weight_params(array, 0, "int8", symmetric=True, least_scales=np.array([1e-18, 0.0, 0.0]))
    assert raised.scales == pytest.approx((1e-18, 2e-20, 1e-20))


def test_biases_have_the_scale_of_their_products_and_saturate() -> None:
    params = schemes.bias_params(QuantParams((0.5,), (7,)), QuantParams((0.25, 0.125), (0, 0)))
    assert params == QuantParams((0.125, 0.0625), (0, 0))
    codes, saturated = schemes.quantize_bias(np.array([1.0, -0.03125]), params, "int32")
    assert (codes.tolist(), saturated) == ([8, -1], ())  # -0.5 is rounded away from zero
    for dtype in ("int32", "int64"):
        low, high = DTYPES[dtype].range
        fine = QuantParams((1e-20,) * 4, (0,) * 4)
        codes, saturated = schemes.quantize_bias(np.array([1.0, -1.0, 0.0, 1e-19]), fine, dtype)
        assert (codes.tolist(), saturated) == ([high, low, 0, 10], (0, 1))


def test_infinity_has_the_last_codes_and_no_range() -> None:
    most = np.finfo(np.float32).max
    codes = quantize_constant(np.array([-np.inf, -most, most, np.inf]), QuantParams((0.1,), (3,)), "int8")
    assert codes.tolist() == [-128, -128, 127, 127]
    for bad in (np.nan, np.inf, -most):
        with pytest.raises(ModelError, match=r"only finite ones have codes.*'w'"):
            weight_params(np.array([1.0, bad], np.float32), None, "int8", symmetric=True, name="w")
    for ends in ((1.0, 0.0), (math.nan, 1.0), (0.0, math.inf), (-math.inf, 0.0)):
        with pytest.raises(ModelError, match="not a range of finite numbers"):
            activation_params(*ends, "int8", symmetric=False)


@pytest.mark.parametrize(
    ("least", "most", "exponent"),
    [(0.0, 0.0, -15), (-0.1, 0.2, -15), (-0.5, 0.1, -15), (-0.51, 0.1, -14), (0.0, 4.0, -12), (-1e6, 0.0, -9)],
)
def test_cell_states_have_powers_of_two_and_room(least: float, most: float, exponent: int) -> None:
    assert schemes.cell_state_params(least, most) == QuantParams((2.0**exponent,), (0,))


# Where the real results of each function lie.
BOUNDS = {
    "logistic": (0, 1),
    "tanh": (-1, 1),
    "softmax": (0, 1),
    "log_softmax": (-15.9, 0),
    "l2_normalization": (-1, 1),
}


@pytest.mark.parametrize("key", schemes.FIXED, ids=str)
def test_fixed_parameters_hold_the_results(key: tuple[str, str]) -> None:
    used = {spec.quant.table for spec in ops.all_specs().values() if spec.quant.kind is QuantKind.FIXED}
    assert used == {table for table, _ in schemes.FIXED} == BOUNDS.keys()
    table, dtype = key
    for params in schemes.FIXED[key].values():
        low, high = schemes.represented_range(params, dtype)
        assert low <= BOUNDS[table][0] + 2 * params.scale
        assert high >= BOUNDS[table][1] - 2 * params.scale
        assert params.scale == float(np.float32(params.scale))
        assert DTYPES[dtype].range[0] <= params.zero_point <= DTYPES[dtype].range[1]


@pytest.mark.parametrize(
    ("name", "table", "scale", "zero"),
    [
        ("uint8", "softmax", 1 / 255, 0),
        ("int16", "softmax", 1 / 32767, 0),
        ("int8", "softmax", 1 / 256, -128),
        ("int16x8", "softmax", 1 / 32768, 0),
        ("uint8", "logistic", 1 / 256, 0),
        ("int8", "logistic", 1 / 256, -128),
        ("uint8", "tanh", 2 / 256, 128),
        ("int8", "tanh", 1 / 128, 0),
        ("int16", "tanh", 1 / 32768, 0),
        ("int8", "log_softmax", 1 / 16, 127),
        ("int8", "l2_normalization", 1 / 128, 0),
        ("int16", "log_softmax", None, 0),
        ("int8_wo", "softmax", None, 0),
    ],
)
def test_some_fixed_parameters(name: str, table: str, scale: float | None, zero: int) -> None:
    expected = None if scale is None else QuantParams((float(np.float32(scale)),), (zero,))
    assert scheme(name).fixed(table) == expected


def _lost(array: np.ndarray, params: Any, dtype: str) -> np.ndarray:
    return schemes.dequantize_constant(quantize_constant(array, params, dtype), params) - array.astype(np.float64)


def _in_units(codes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Channels of codes, each with a scale of its own."""
    return (codes * np.exp(random.uniform(-8, 2, (len(codes), 1)))).astype(np.float32)


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
    codes = np.random.default_rng(4).integers(-90, 91, (2, 30))  # a channel that is coarser for its bias stays so
    codes[:, 0] = 90
    array = (codes * 0.01).astype(np.float32)
    params = weight_params(array, 0, "int8", symmetric=True, least_scales=np.array([0.0, 0.05]))
    assert on_grid(array, params, "int8").scales == (pytest.approx(0.01), params.scales[1])


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
    array = _in_units(codes, random)
    params = weight_params(array, 0, "int8", symmetric=True)
    lost = np.abs(_lost(array, on_grid(array, params, "int8"), "int8")[0]).max() / np.abs(array[0]).max()
    assert (lost < 1e-6) == (others == "grids" or count == 1)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_weights_of_a_small_kernel_that_were_codes_lose_nothing_and_others_have_no_grid(size: int) -> None:
    random = np.random.default_rng(size)
    codes = random.integers(1, 8, (20, size)) * random.choice([-1, 1], (20, size))
    codes[:, 0] = 7
    array = _in_units(codes, random)
    found = on_grid(array, weight_params(array, 0, "int8", symmetric=True), "int8")
    assert (np.abs(_lost(array, found, "int8")).max(axis=1) < 1e-6 * np.abs(array).max(axis=1)).all()
    array = np.random.default_rng(size).standard_normal((5000, size)).astype(np.float32)
    params = weight_params(array, 0, "int8", symmetric=True)
    assert on_grid(array, params, "int8") == params


@given(st.integers(0, 99), st.sampled_from(["int4", "int8", "int16"]), st.integers(1, 40))
def test_no_channel_loses_by_fitting(seed: int, dtype: str, size: int) -> None:
    array = np.random.default_rng(seed).standard_normal((8, size)).astype(np.float32)
    params = weight_params(array, 0, dtype, symmetric=True)
    found = schemes.fitted(array, params, dtype)
    before, after = (np.square(_lost(array, item, dtype)).sum(axis=1) for item in (params, found))
    assert (after <= before * (1 + 1e-6)).all()
    assert found.zero_points == params.zero_points


@pytest.mark.parametrize(("dtype", "gain"), [("int8", 0.7), ("int4", 0.8)])
def test_results_gain_by_fitting(dtype: str, gain: float) -> None:
    random = np.random.default_rng(5)
    array, inputs = random.standard_normal((200, 9)).astype(np.float32), random.random((500, 9))
    params = weight_params(array, 0, dtype, symmetric=True)
    errors = [
        float(np.square(inputs @ _lost(array, p, dtype).T).sum())
        for p in (params, schemes.fitted(array, params, dtype))
    ]
    assert errors[1] < gain * errors[0]
    assert schemes.fitted(array, params, "int16") == params


VALUES = st.floats(-1e6, 1e6, width=32)
RUNS = st.lists(st.lists(VALUES, min_size=1, max_size=9), min_size=1, max_size=40)


def _of(runs: Any) -> TensorStatistics:
    stats = TensorStatistics()
    for run in runs:
        stats.add(np.array(run, np.float32))
    return stats


@given(RUNS, st.sampled_from(sorted(MODES)))
def test_every_range_lies_within_what_was_seen(runs: list[list[float]], mode: str) -> None:
    stats = _of(runs)
    low, high = choose_range(stats, mode)
    assert stats.minimum <= low <= high <= stats.maximum


@given(RUNS, st.floats(0, 100), st.floats(0, 100))
def test_percentile_is_numpys(runs: list[list[float]], a: float, b: float) -> None:
    stats, (low, high) = _of(runs), sorted((a, b))
    expected = sorted((np.percentile(stats.minima.astype(float), low), np.percentile(stats.maxima.astype(float), high)))
    assert choose_range(stats, "percentile", low=low, high=high) == tuple(expected)


def test_percentile_as_record_minmax_has_it() -> None:
    stats = _of([[-0.5, 1], [-1, 2], [-1.5, 3], [-2, 4], [-2.5, 5]])
    assert choose_range(stats, "percentile") == pytest.approx((-2.48, 4.96))
    assert choose_range(stats, "minmax") == (-2.5, 5.0)


def test_moving_average_also_of_extremes_alone() -> None:
    stats = _of([[-k, k] for k in range(40)])
    high = (15 * 0.9 + 31 * 0.1) * 0.9 + 39 * 0.1
    assert choose_range(stats, "moving-average") == pytest.approx((-high, high))
    assert choose_range(stats, "moving-average", batch=1, constant=1.0) == (-39.0, 39.0)
    assert choose_range(stats, "moving-average", batch=100) == (-39.0, 39.0)
    extremes = TensorStatistics.of_extremes([-1, -2], [1, 3])
    assert choose_range(extremes, "minmax") == (-2.0, 3.0)
    assert choose_range(extremes, "moving-average", batch=1) == pytest.approx((-1.1, 1.2))


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("max", {}, r"unknown range mode 'max'; use one of minmax, "),
        ("percentile", {"batch": 3}, "percentile has no option 'batch'; it takes low, high"),
        ("minmax", {"low": 3}, "minmax has no option 'low'; it takes none"),
        ("percentile", {"low": -1}, "expected 0 <= low <= high <= 100"),
        ("percentile", {"high": 101}, "expected 0 <= low <= high <= 100"),
        ("percentile", {"low": 60, "high": 50}, "expected 0 <= low <= high <= 100"),
        ("moving-average", {"batch": 0}, "batch is 0, expected at least 1 run"),
        ("moving-average", {"constant": 1.5}, r"constant is 1\.5, expected 0 to 1"),
        ("minmax", None, "no usable value has been recorded"),
    ],
)
def test_refusals(mode: str, options: dict[str, float] | None, text: str) -> None:
    with pytest.raises(OdcError, match=text):
        choose_range(TensorStatistics() if options is None else _of([[1, 2]] * 2), mode, **options or {})


DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential": lambda random, count: random.exponential(size=count),
    "normal": lambda random, count: random.normal(size=count),
    "lognormal": lambda random, count: np.exp(0.5 * random.normal(size=count)),
    "uniform": lambda random, count: random.random(count),
}


@pytest.mark.parametrize("name", DRAWS)
def test_many_values_tell_what_an_end_cuts_off(name: str) -> None:
    random = np.random.default_rng(1)
    seen, others = DRAWS[name](random, 3000), DRAWS[name](random, 1_000_000)
    end = np.quantile(others, 0.9)
    (found,) = Tail.of(seen).cut_off(np.array([end]))
    assert found == pytest.approx(np.square(np.maximum(others - end, 0.0)).mean(), rel=0.4)


def test_values_beyond_the_largest_are_those_of_the_tail() -> None:
    random = np.random.default_rng(2)
    few = Tail.of(-np.log(1.0 - (np.arange(60) + 0.65) / 60))
    assert few.index > 0.02, "few values may have a heavier tail than their exponential one"
    tail, others = Tail.of(random.exponential(size=3000)), random.exponential(size=1_000_000)
    beyond = others[others > 3.0]
    lost, power = tail.beyond(3.0, 4.0, np.array([0.0]))
    assert lost[0] == pytest.approx(np.square(np.maximum(beyond - 4.0, 0.0)).mean(), rel=0.3)
    assert power[0] == pytest.approx(np.square(beyond).mean(), rel=0.1)
    assert tail.beyond(3.0, 2.0, np.array([0.0]))[0][0] == pytest.approx(2.0, rel=0.3)  # beyond 3 itself
    even = Tail.of(np.ones(20))  # equal values have none
    assert even.cut_off(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert even.beyond(1.0, 2.0, np.array([0.1, -0.1]))[0].tolist() == [0.0, 0.0]


def _room(rows: np.ndarray, bits: int = 8) -> tuple[float, float]:
    """By which parts of what was seen the ends lie beyond it."""
    stats = _of(rows)
    low, high = with_room(stats, rows.shape[1], bits)
    span = stats.maximum - stats.minimum
    return (stats.minimum - low) / span, (high - stats.maximum) / span


def test_heavier_tails_get_more_room_and_many_elements_hardly_any() -> None:
    random = np.random.default_rng(3)
    for tail in (random.normal(size=(48, 1)), random.standard_t(3, size=(48, 1)), random.laplace(size=(48, 1))):
        assert min(_room(tail)) > 0.1
    assert max(_room(random.normal(size=(48, 4096)))) < 0.1
    assert max(_room(random.random((100, 1)))) < 0.2


def test_the_same_room_pays_on_values_that_were_not_seen() -> None:
    """Rounding and cutting off together, on the average of draws, against ends as they were seen."""
    random, gains = np.random.default_rng(4), []
    for _ in range(40):
        seen, others = random.normal(size=(32, 1)), random.normal(size=4000)
        stats = _of(seen)
        plain, wide = (
            ((high - low) / 255) ** 2 / 12 + np.square(others - np.clip(others, low, high)).mean()
            for low, high in ((stats.minimum, stats.maximum), with_room(stats, 1, 8))
        )
        gains.append(10 * np.log10(plain / wide))
    assert np.mean(gains) > 5.0


def test_ends_at_zero_and_of_what_does_not_vary_or_was_seen_once_stay() -> None:
    rows = np.random.default_rng(5).exponential(size=(30, 1))
    rows[0] = 0.0
    low, high = with_room(_of(rows), 1, 8)
    assert low == 0.0
    assert high > rows.max()
    for rows in (np.zeros((4, 1)), np.ones((1, 1))):
        assert with_room(_of(rows), 1, 8) == (rows.min(), rows.max())


LAYERS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("CONV_2D", (2, 5, 6, 4), (6, 3, 2, 4), {"padding": "same", "stride_h": 2, "stride_w": 1}),
    ("CONV_2D", (1, 7, 7, 4), (6, 3, 3, 2), {"padding": "same"}),
    ("CONV_2D", (1, 7, 9, 3), (2, 2, 3, 3), {"padding": "valid", "dilation_h_factor": 2, "dilation_w_factor": 3}),
    ("DEPTHWISE_CONV_2D", (1, 6, 5, 3), (1, 3, 3, 6), {"padding": "same", "depth_multiplier": 2}),
    ("DEPTHWISE_CONV_2D", (2, 6, 5, 3), (1, 2, 2, 3), {"padding": "valid", "depth_multiplier": 1, "stride_w": 2}),
    ("FULLY_CONNECTED", (3, 8), (5, 8), {}),
]


def layer_of(name: str, shape: tuple, filters: tuple, options: dict) -> tuple[bytes, Node, Product]:
    builder = ModelBuilder()
    steps = {} if name == "FULLY_CONNECTED" else {"stride_h": 1, "stride_w": 1}
    x, w = builder.tensor("x", shape), builder.constant("w", np.random.default_rng(0).standard_normal(filters))
    file = builder.file([x], [builder.made("y", None, name, x, w, **steps | options)])
    node = build_graph(read_model(file)).nodes[0].node
    return file, node, Product.of(node)


@pytest.mark.parametrize(("name", "shape", "filters", "options"), LAYERS)
def test_products_are_the_layer(name: str, shape: tuple, filters: tuple, options: dict) -> None:
    file, node, product = layer_of(name, shape, filters, options)
    random = np.random.default_rng(1)
    runs = [random.standard_normal(shape).astype(np.float32) for _ in range(4)]
    x, weights = runs[0], node.operand(1).array()
    (expected,) = odc_mlir.run(file, [x], backend="host")
    rows = product.rows(x)
    results = np.einsum("gnk,gok->ngo", rows, product.matrix(weights))
    np.testing.assert_allclose(results.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(product.weights(product.matrix(weights)), weights)
    assert (product.name, product.row_count(x)) == ("y", rows.shape[1])
    np.testing.assert_array_equal(product.rows(x, 2, 5), rows[:, 2::5])
    np.testing.assert_allclose(product.means(x)[0], rows.mean(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-6)
    joined = np.concatenate(runs)
    np.testing.assert_array_equal(product.rows(joined), np.concatenate([product.rows(x) for x in runs], axis=1))
    np.testing.assert_array_equal(product.means(joined, 4), np.concatenate([product.means(x) for x in runs]))


def test_scales_go_with_their_results() -> None:
    *_, product = layer_of(*LAYERS[3])
    scales, zero_points = product.scales(QuantParams((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0,) * 6, 3))
    assert scales.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert not zero_points.any()
    assert product.scales(QuantParams((0.5,), (7,)))[1].tolist() == [[7, 7]] * 3


@pytest.mark.parametrize("operator", ["ADD", "FULLY_CONNECTED"])
def test_other_operators_and_computed_weights_are_no_products(operator: str) -> None:
    builder = ModelBuilder()
    a, b = builder.tensor("a", (4, 4)), builder.tensor("b", (4, 4))
    model = builder.finish([a, b], [builder.made("c", (4, 4), operator, a, b)])
    assert Product.of(build_graph(model).nodes[0].node) is None
