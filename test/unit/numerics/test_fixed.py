"""Fixed-point primitives against scalar formulas and exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.numerics import fixed

INT32 = st.integers(-(2**31), 2**31 - 1)
SMALL = st.integers(-(2**20), 2**20)
Q = st.integers(2**30, 2**31 - 1)
EXPONENT = st.integers(-31, 8)
EDGES = st.sampled_from([-(2**31), -(2**31) + 1, -(2**30), -1, 0, 1, 2**30, 2**31 - 1])


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_round_half_away(x: float) -> None:
    assert fixed.round_half_away(np.float32(x)) == scalar.half_away(x)


@pytest.mark.parametrize(("x", "rounded"), [(0.49999997, 0), (0.5, 1), (-0.5, -1), (-2.5, -3), (8388609.0, 8388609)])
def test_round_half_away_edges(x: float, rounded: int) -> None:
    assert fixed.round_half_away(np.float32(x)) == rounded


@given(st.floats(0, 2.0**30, allow_subnormal=True))
def test_quantize_multiplier(real: float) -> None:
    q, e = fixed.quantize_multiplier(real)
    assert (q, e) == scalar.quantize_multiplier(real)
    assert q == 0 or 2**30 <= q < 2**31


@given(st.floats(2.0**-31, 2.0**30))
def test_multiplier_is_close(real: float) -> None:
    q, e = fixed.quantize_multiplier(real)
    assert abs(Fraction(q) * Fraction(2) ** (e - 31) / Fraction(real) - 1) <= Fraction(1, 2**31)


def test_multiplier_just_below_a_power_of_two() -> None:
    assert fixed.quantize_multiplier(math.nextafter(1.0, 0.0)) == (1 << 30, 1)


@pytest.mark.parametrize("real", [math.inf, math.nan, 2.0**31])
def test_bad_multiplier(real: float) -> None:
    with pytest.raises(ModelError, match="a scale ratio"):
        fixed.quantize_multiplier(real)


def test_largest_multiplier() -> None:
    assert fixed.quantize_multiplier(2.0**30) == (1 << 30, 31)


@given(INT32 | EDGES, INT32 | EDGES)
def test_srdhm(a: int, b: int) -> None:
    assert fixed.srdhm(a, b) == scalar.srdhm(a, b)


@given(INT32 | EDGES, st.integers(0, 31))
def test_rdbpot(x: int, n: int) -> None:
    assert fixed.rdbpot(np.int32(x), n) == scalar.rdbpot(x, n)
    assert fixed.rdbpot(np.int32(x), n).dtype == np.int32


@given(INT32 | EDGES | SMALL, Q, EXPONENT)
def test_multiply(x: int, q: int, e: int) -> None:
    assert fixed.multiply(x, q, e) == scalar.multiply(x, q, e)


@given(st.lists(INT32 | EDGES | SMALL, min_size=1, max_size=5), Q | st.just(0) | st.just(-(2**31)), EXPONENT)
def test_multiply_of_arrays(x: list[int], q: int, e: int) -> None:
    """One multiplier for all has a way of its own; wider elements wrap to 32 bits first."""
    expected = [scalar.multiply(value, q, e) for value in x]
    values = np.array(x, np.int32)
    assert fixed.multiply(values, q, e).tolist() == expected
    assert fixed.multiply(values.astype(np.int64) + (1 << 32), q, e).tolist() == expected
    assert values.tolist() == x


@given(SMALL, Q, st.integers(-31, 8))
def test_multiply_rounds_the_exact_product(x: int, q: int, e: int) -> None:
    """Two roundings: at most half a unit of each away from the rational product."""
    exact = Fraction(x * q) * Fraction(2) ** (e - 31)
    error = abs(int(fixed.multiply(x, q, e)) - exact)
    assert error <= Fraction(1, 2) + Fraction(1, 2) * Fraction(1, 2 ** max(-e, 0))


@given(st.integers(-(2**46), 2**46), Q, st.integers(-31, 7))
def test_multiply64(x: int, q: int, e: int) -> None:
    assert fixed.multiply64(np.int64(x), q, e) == scalar.multiply64(x, q, e)


def test_multiply64_largest_multiplier() -> None:
    assert fixed.multiply64(np.int64(1 << 20), 0x7FFF0000, 0) == scalar.multiply64(1 << 20, 0x7FFF0000, 0)


def test_multiply_broadcasts_per_channel() -> None:
    x = np.array([[100, -100, 7], [1, 2, 3]], np.int32)
    q, e = np.array([1 << 30, 2**31 - 1, 1 << 30]), np.array([0, -3, 2])
    expected = [[scalar.multiply(int(x[i, j]), int(q[j]), int(e[j])) for j in range(3)] for i in range(2)]
    assert fixed.multiply(x, q, e).tolist() == expected


@st.composite
def _ranges(draw: st.DrawFn, low: int, high: int) -> tuple[int, int]:
    first, second = draw(st.integers(low, high)), draw(st.integers(low, high))
    return min(first, second), max(first, second)


@given(st.lists(INT32 | EDGES | SMALL, min_size=1, max_size=6), Q, EXPONENT, st.integers(-128, 127), _ranges(-128, 127))
def test_requantize(acc: list[int], q: int, e: int, zero: int, limits: tuple[int, int]) -> None:
    found = fixed.requantize(np.array(acc, np.int32), q, e, zero, *limits, "int8")
    assert found.tolist() == [scalar.requantize(x, q, e, zero, *limits) for x in acc]


@given(st.lists(SMALL, min_size=3, max_size=3), st.lists(Q, min_size=3, max_size=3), st.data())
def test_requantize_per_channel(acc: list[int], q: list[int], data: st.DataObject) -> None:
    e = [data.draw(st.integers(-31, 2)) for _ in range(3)]
    zero, limits = data.draw(st.integers(0, 255)), data.draw(_ranges(0, 255))
    found = fixed.requantize(np.array([acc, acc], np.int32), np.array(q), np.array(e), zero, *limits, "uint8")
    expected = [scalar.requantize(x, q[i], e[i], zero, *limits) for i, x in enumerate(acc)]
    assert found.tolist() == [expected, expected]


@pytest.mark.parametrize("e", [-31, -24, -23, -22, -7, -1, 0, 3])
@pytest.mark.parametrize("limits", [(0, 255), (3, 255), (0, 3), (200, 255)])
def test_requantize_at_every_tie(e: int, limits: tuple[int, int]) -> None:
    """Sums whose scaled value lies on or next to a rounding boundary, with and without the short cut for negatives."""
    q, zero, unit = 1 << 30, 3, 1 << max(-e, 0)
    ties = [2 * (k * unit + unit // 2) + d for k in range(-300, 300, 7) for d in (-2, -1, 0, 1, 2)]
    acc = [x for x in ties if -(2**31) <= x < 2**31]
    found = fixed.requantize(np.array(acc, np.int32), q, e, zero, *limits, "uint8")
    assert found.tolist() == [scalar.requantize(x, q, e, zero, *limits) for x in acc]


def test_requantize_in_pieces() -> None:
    """Longer than one piece, with a channel count that does not divide it; the layout of the input does not matter."""
    rng = np.random.default_rng(0)
    acc = rng.integers(-(2**20), 2**20, (7, 5, 2003)).astype(np.int32)
    q, e = rng.integers(2**30, 2**31, 7), rng.integers(-16, -8, 7)
    found = fixed.requantize(acc.transpose(2, 1, 0), q, e, -5, -128, 127, "int8")
    expected = np.clip(fixed.multiply(acc.transpose(2, 1, 0), q, e).astype(np.int64) - 5, -128, 127)
    assert (found == expected).all()


def test_requantize_keeps_the_shape() -> None:
    for shape in [(), (0,), (2, 0, 3), (1, 1)]:
        assert fixed.requantize(np.zeros(shape, np.int32), 1 << 30, 0, 0, -128, 127, "int8").shape == shape


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5), Q, st.integers(-20, 0))
def test_wide_requantizer(acc: list[int], q: int, e: int) -> None:
    found = fixed.WideRequantizer(q, e, 0, -32768, 32767, "int16")(np.array(acc))
    assert found.tolist() == [scalar.clamp(scalar.multiply64(x, q, e), -32768, 32767) for x in acc]


def test_a_wide_sum_without_axes() -> None:
    found = fixed.WideRequantizer(*fixed.quantize_multiplier(0.01), 7, -32768, 32767, "int16")(np.array(5000, np.int64))
    assert (found.shape, found.dtype, int(found)) == ((), np.int16, 57)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("none", (-128, 127)),
        ("tanh", (-128, 127)),
        ("relu", (-3, 127)),
        ("relu6", (-3, 57)),
        ("relu_n1_to_1", (-13, 7)),
    ],
)
def test_activation_range(activation: str, expected: tuple[int, int]) -> None:
    assert fixed.activation_range(activation, "int8", 0.1, -3) == expected


def test_activation_range_stays_in_the_type() -> None:
    assert fixed.activation_range("relu6", "uint8", 1e-30, 0) == (0, 255)
    assert fixed.activation_range("relu", "int8", 1.0, 300) == (127, 127)


def test_unknown_activation() -> None:
    with pytest.raises(UnsupportedError, match="fused activation 'sign_bit' is not supported; supported are none"):
        fixed.activation_range("sign_bit", "int8", 1.0, 0)
