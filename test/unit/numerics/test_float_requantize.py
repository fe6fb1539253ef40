"""Requantisation in floats: the codes of whole numbers, for every sum."""

import numpy as np
import pytest

from odc_mlir.numerics.fixed import INT32_MAX, Requantizer, WideRequantizer, quantize_multipliers
from odc_mlir.numerics.float_requantize import FloatRequantizer, WideFloatRequantizer


def _requantizer(multipliers, zero_point=-7, low=-128, high=127, dtype="int8"):
    return Requantizer(*quantize_multipliers(np.asarray(multipliers)), zero_point, low, high, dtype)


def _expected(exact, sums, bias):
    return exact(sums.astype(np.int32) if bias is None else (sums.astype(np.int64) + bias).astype(np.int32))


@pytest.mark.parametrize("multipliers", [[0.0011], [0.0317, 0.0005, 0.00211], [0.4, *[0.001] * 40], [0.75, 1.5, 0.01]])
@pytest.mark.parametrize(("zero_point", "low"), [(-7, -128), (-7, -7), (100, -128), (-128, 3)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_every_sum_gets_the_code_of_whole_numbers(multipliers, zero_point, low, has_bias):
    exact, channels = _requantizer(multipliers, zero_point, low), max(3, len(multipliers))
    most = int(400 / min(multipliers))
    column = np.arange(-most, most, max(1, most // 20000))[:, None]
    sums = (column + np.arange(channels)).astype(np.float32)
    bias = np.arange(-50, 50, 100 / channels).astype(np.int32)[:channels] * 37 if has_bias else None
    if len(multipliers) not in (1, channels):
        sums, bias = sums[:, : len(multipliers)], None if bias is None else bias[: len(multipliers)]

    found = FloatRequantizer(exact, bias)(sums)

    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, _expected(exact, sums, bias))


def test_sums_next_to_boundaries_between_codes():
    exact = _requantizer([2.0**-9, 3 * 2.0**-11])  # of which many sums are half a code from two
    sums = np.arange(-(1 << 17), 1 << 17).astype(np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(FloatRequantizer(exact, None)(sums), _expected(exact, sums, None))


def test_most_sums_are_not_done_twice(monkeypatch):
    exact = _requantizer([0.001] * 16)
    ready, done = FloatRequantizer(exact, None), []
    monkeypatch.setattr(FloatRequantizer, "_mend", lambda *arguments: done.append(arguments[3].size))
    ready(np.random.default_rng(0).integers(-90000, 90000, (5000, 16)).astype(np.float32))
    assert 0 < sum(done) < 5000 * 16 / 100


@pytest.mark.parametrize("bias", [INT32_MAX, INT32_MAX - (1 << 24) + 1, INT32_MAX - (1 << 24)])
def test_sums_that_wrap_are_done_by_whole_numbers(bias):
    exact, row = _requantizer([1e-7, 2e-7]), np.array([bias, -bias], np.int32)
    sums = np.array([[(1 << 24) - 1, 1 - (1 << 24)], [5, -5]], np.float32)
    np.testing.assert_array_equal(FloatRequantizer(exact, row)(sums), _expected(exact, sums, row))


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_other_sums_are_taken_as_they_are(dtype):
    exact, row = _requantizer([0.01, 0.02]), np.array([3, -4], np.int32)
    sums = np.array([[1000, 2000], [-3000, 4000]], dtype)
    np.testing.assert_array_equal(FloatRequantizer(exact, row)(sums.copy()), _expected(exact, sums, row))


def test_no_sums():
    assert FloatRequantizer(_requantizer([0.01]), None)(np.zeros((0, 3), np.float32)).shape == (0, 3)


def _wide(multipliers, zero_point=0, low=-32768, high=32767):
    return WideRequantizer(*quantize_multipliers(np.asarray(multipliers)), zero_point, low, high, "int16")


def test_a_wide_sum_without_axes():
    found = _wide([0.01], 7)(np.array(5000, np.int64))
    assert (found.shape, found.dtype, int(found)) == ((), np.int16, 57)


@pytest.fixture(name="by_floats")
def count_by_floats(monkeypatch):
    """How often wide sums were done by floats."""
    calls, real = [], WideFloatRequantizer._by_floats
    monkeypatch.setattr(
        WideFloatRequantizer, "_by_floats", lambda self, *arguments: calls.append(self) or real(self, *arguments)
    )
    return calls


@pytest.mark.parametrize("multipliers", [[2.0**-13], [3 * 2.0**-12, 0.00017, 1.3e-7], [0.0011] * 40])
@pytest.mark.parametrize(("zero_point", "low", "high"), [(0, -32768, 32767), (-55, -55, 1000), (7, 0, 20000)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_every_wide_sum_gets_the_code_of_whole_numbers(multipliers, zero_point, low, high, has_bias, by_floats):
    exact, channels = _wide(multipliers, zero_point, low, high), max(3, len(multipliers))
    most = int(70000 / max(multipliers))
    sums = np.arange(-most, most, max(1, most // 20000))[:, None] + np.arange(channels)
    bias = np.arange(channels, dtype=np.int64) * 7777 - 5000 if has_bias else None

    found = WideFloatRequantizer(exact, bias)(sums.astype(np.float64))

    assert len(by_floats) == 1
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, exact(sums if bias is None else sums + bias))


@pytest.mark.parametrize("multipliers", [[0.5, 0.25], [1e-4, 2e-4], [1e-9, 1e-10]])
def test_wide_sums_that_leave_no_room_are_done_by_whole_numbers(multipliers, by_floats):
    exact, row = _wide(multipliers), np.array([1 << 20, -5])
    ready = WideFloatRequantizer(exact, row)
    ready(np.zeros((1, 2)))
    assert len(by_floats) == 1
    largest = int(ready._rows[1].largest)
    for sums in ([[largest, -largest]], [[largest + 1, 0]], [[0, -(1 << 46)]], [[1 << 46, 0]]):
        found = ready(np.asarray(sums, np.float64))
        np.testing.assert_array_equal(found, exact(np.asarray(sums, np.int64) + row))
    assert len(by_floats) == 2
