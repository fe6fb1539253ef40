"""Quantised mean and product against the scalar formulas, and extremes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import reduction

SCALE = st.floats(2.0**-8, 1.0, width=32)
CODE = st.integers(0, 255)


@given(st.lists(CODE, min_size=1, max_size=70), SCALE, CODE, SCALE, CODE)
def test_mean(values: list[int], in_scale: float, in_zero: int, out_scale: float, out_zero: int) -> None:
    params = reduction.mean_params(in_scale, out_scale, len(values))
    mean = reduction.codes_mean((len(values),), (0,), params, in_zero, out_zero, (0, 255), "uint8")
    found = mean(np.array(values, np.uint8))
    assert found.item() == scalar.clamp(scalar.mean(values, in_scale, in_zero, out_scale, out_zero), 0, 255)


def test_axes_and_shape() -> None:
    x = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    kept = reduction.codes_mean(x.shape, (0, 2), reduction.mean_params(1.0, 1.0, 8), 0, 0, (-128, 127), "int8")(x)
    assert kept.shape == (1, 3, 1)
    assert kept.ravel().tolist() == [8, 12, 16]  # 7.5, 11.5, 15.5
    params = reduction.mean_params(1.0, 1.0, 24)
    dropped = reduction.codes_mean(x.shape, (0, 1, 2), params, 0, 0, (-128, 127), "int8", keep_dims=False)(x)
    assert dropped.shape == ()
    assert dropped == 12


def test_sum() -> None:
    total = reduction.codes_mean((5, 2), (0,), reduction.sum_params(0.5, 2.0), 3, -1, (-128, 127), "int8")
    found = total(np.full((5, 2), 7, np.int8))
    assert found.tolist() == [[4, 4]]  # 5 * (7 - 3) * 0.25 - 1


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=12), SCALE, st.integers(-128, 127), SCALE)
def test_product(values: list[int], in_scale: float, in_zero: int, out_scale: float) -> None:
    q, e = reduction.product_params(in_scale, out_scale, len(values))
    assert (q, e) == scalar.quantize_multiplier(in_scale / out_scale ** (1 / len(values)))
    total = values[0] - in_zero
    for value in values[1:]:
        total = scalar.multiply64(total * (value - in_zero), q, e)
    expected = scalar.clamp(scalar.multiply64(total, q, e) + 7, -128, 127)
    x = np.array(values, np.int8)
    assert reduction.product_codes(x, (0,), q, e, in_zero, 7, -128, 127, "int8", keep_dims=False) == expected


def test_product_axes_and_order() -> None:
    """Which elements meet, and in which order, shows in the rounding."""
    x = np.random.default_rng(1).integers(-9, 10, (2, 3, 4)).astype(np.int8)
    q, e = reduction.product_params(0.3, 0.4, 8)
    found = reduction.product_codes(x, (0, 2), q, e, 1, 0, -128, 127, "int8")
    assert found.shape == (1, 3, 1)
    for column in range(3):
        row = np.ascontiguousarray(x[:, column]).reshape(-1)
        one = reduction.product_codes(row, (0,), q, e, 1, 0, -128, 127, "int8")
        assert found[0, column, 0] == one[0]


def test_products_that_vanish() -> None:
    """Many products, of which most become zero sooner or later, are the same as one by one."""
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 10, (100, 50)).astype(np.int8)
    x[:, ::5] = np.where(x[:, ::5] == 1, 9, x[:, ::5])  # no zero in these
    for out_scale in (1e-9, 0.4, 1e30):
        q, e = reduction.product_params(0.4, out_scale, len(x))
        found = reduction.product_codes(x, (0,), q, e, 1, 0, -128, 127, "int8", keep_dims=False)
        for column, product in zip(x.T, found.tolist(), strict=True):
            total = int(column[0]) - 1
            for value in column[1:].tolist():
                total = scalar.multiply64(total * (value - 1), q, e)
            assert product == scalar.clamp(scalar.multiply64(total, q, e), -128, 127)


def test_extremes() -> None:
    """NaN is passed over; of no number the result is an infinity, as infinities are numbers."""
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 3], [-inf, nan, -inf], [inf, inf, nan]], np.float32)
    assert reduction.extreme(x, (1,), largest=True, keep_dims=False).tolist() == [3, -inf, inf]
    assert reduction.extreme(x, (1,), largest=False, keep_dims=False).tolist() == [1, -inf, inf]
    assert reduction.extreme(x, (0, 1), largest=True).tolist() == [[inf]]
    assert reduction.extreme(np.full((2, 3), nan, np.float32), (1,), largest=True).tolist() == [[-inf], [-inf]]
    assert reduction.extreme(x[:1], (), largest=False).tolist() == [[inf, 1, 3]]
    assert reduction.extreme(np.array([[True], [False]]), (0,), largest=False).tolist() == [[False]]
    assert reduction.extreme(np.zeros((0, 2), np.int8), (0,), largest=True, keep_dims=False).tolist() == [-128, -128]
    assert reduction.extreme(np.zeros((0, 1), np.float32), (0,), largest=False, keep_dims=False).tolist() == [inf]
