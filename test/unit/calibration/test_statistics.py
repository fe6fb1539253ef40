"""Statistics: joining them gives what the whole would have given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from odc_mlir.calibration import statistics as module
from odc_mlir.calibration.statistics import (
    BINS,
    LOWEST,
    DamagedError,
    Histogram,
    TensorStatistics,
    exponent_for,
    extremes_by_channel,
    pack,
    unpack,
)

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)


def _rows(elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, st.tuples(st.integers(0, 6), st.just(12)), elements=elements)


def _of(rows: np.ndarray, channels: int = 3) -> TensorStatistics:
    result = TensorStatistics()
    result.update(rows, channels=channels)
    return result


def _assert_same(a: TensorStatistics, b: TensorStatistics) -> None:
    assert np.array_equal(a.run_extremes, b.run_extremes)
    assert a.histogram == b.histogram
    for name in ("runs_seen", "count", "nan_count", "infinite_count", "lowest_count"):
        assert getattr(a, name) == getattr(b, name)
    assert a.mean == pytest.approx(b.mean, rel=1e-4, abs=1e-5 * _size(a))
    assert a.variance == pytest.approx(b.variance, rel=1e-3, abs=1e-5 * _size(a) ** 2)
    assert (a.channels is None) == (b.channels is None)
    if a.channels is not None and b.channels is not None:
        assert np.array_equal(a.channels.minima, b.channels.minima)
        assert np.array_equal(a.channels.maxima, b.channels.maxima)
        assert np.array_equal(a.channels.counts, b.channels.counts)
        np.testing.assert_allclose(a.channels.means, b.channels.means, rtol=1e-4, atol=1e-5 * _size(a))


def _size(stats: TensorStatistics) -> float:
    return max(abs(stats.minimum), abs(stats.maximum)) if stats.runs else 1.0


@given(_rows(FLOATS), _rows(FLOATS))
def test_merging_is_concatenation(first: np.ndarray, second: np.ndarray) -> None:
    merged = _of(first)
    merged.merge(_of(second))
    _assert_same(merged, _of(np.concatenate([first, second])))


@given(_rows(FLOATS), _rows(FLOATS))
def test_merging_leaves_the_other_alone(first: np.ndarray, second: np.ndarray) -> None:
    one, other = _of(first), _of(second)
    before = other.to_bytes()
    one.merge(other)
    one.update(np.ones((2, 12), np.float32), channels=3, begins=np.array([False, True]))
    assert other.to_bytes() == before


@given(_rows(FINITE))
def test_against_numpy(rows: np.ndarray) -> None:
    stats = _of(rows)
    assert stats.runs == len(rows)
    assert stats.count == rows.size
    assert np.array_equal(stats.minima, rows.min(axis=1))
    assert np.array_equal(stats.maxima, rows.max(axis=1))
    if rows.size:
        wide = rows.astype(np.float64)
        size = float(np.abs(wide).max())
        assert stats.mean == pytest.approx(wide.mean(), rel=1e-4, abs=1e-5 * size)
        assert stats.variance == pytest.approx(wide.var(), rel=1e-3, abs=1e-5 * size * size)
        assert stats.histogram.total == rows.size
        assert stats.channels is not None
        np.testing.assert_array_equal(stats.channels.minima, wide.reshape(-1, 3).min(axis=0))


def test_what_does_not_count_is_counted() -> None:
    stats = TensorStatistics()
    stats.add(np.array([1, np.nan, np.inf, -np.inf, LOWEST, -2], np.float32))
    assert (stats.minimum, stats.maximum, stats.count) == (-2, 1, 2)
    assert (stats.nan_count, stats.infinite_count, stats.lowest_count) == (1, 2, 1)
    assert stats.channels is not None
    assert stats.channels.counts.tolist() == [1, 0, 0, 0, 0, 1]
    assert stats.histogram.total == 2


def test_the_greatest_float_counts() -> None:
    stats = TensorStatistics()
    stats.add(np.array([-LOWEST, 0], np.float32))
    assert stats.maximum == float(-LOWEST)
    assert stats.count == 2
    assert not stats.lowest_count


def test_a_run_without_values() -> None:
    stats = TensorStatistics()
    stats.add(np.full(3, np.nan, np.float32))
    assert (stats.runs, stats.runs_seen, stats.count) == (0, 1, 0)
    assert math.isnan(stats.minimum)
    assert math.isnan(stats.maximum)
    stats.add(np.zeros((0, 3), np.float32))
    assert (stats.runs, stats.runs_seen) == (0, 2)


@pytest.mark.parametrize("cut", range(6))
def test_rows_of_one_run_count_once(cut: int) -> None:
    rows = np.array([[1, 2], [5, 6], [-1, 0], [3, 3], [9, 9]], np.float32)
    begins = np.array([True, False, False, True, True])
    stats = TensorStatistics()
    for part in (slice(0, cut), slice(cut, None)):
        stats.update(rows[part], begins=begins[part])
    assert stats.minima.tolist() == [-1, 3, 9]
    assert stats.maxima.tolist() == [6, 3, 9]
    assert stats.runs_seen == 3
    assert stats.count == 10


def test_rows_without_detail_give_extremes_only() -> None:
    rows = np.array([[1, 2], [5, 6]], np.float32)
    stats = TensorStatistics()
    stats.update(rows, channels=2, detail=np.array([True, False]))
    assert stats.maxima.tolist() == [2, 6]
    assert stats.count == 2
    assert stats.mean == 1.5
    assert stats.histogram.total == 2
    assert stats.channels is not None
    assert stats.channels.maxima.tolist() == [1, 2]
    assert stats.channels.means.tolist() == [1, 2]
    stats.update(rows * 2, channels=2, detail=np.zeros(2, np.bool_))
    assert stats.maximum == 12
    assert stats.count == 2


def test_channels_that_change_or_are_too_many_are_dropped() -> None:
    stats = TensorStatistics()
    stats.add(np.zeros((2, 3), np.float32))
    assert stats.channels is not None
    stats.add(np.zeros((2, 4), np.float32))
    assert stats.channels is None
    stats.add(np.zeros((2, 3), np.float32))
    assert stats.channels is None
    assert stats.runs == 3
    for count, kept in ((module.MOST_CHANNELS, True), (module.MOST_CHANNELS + 1, False)):
        stats = TensorStatistics()
        stats.add(np.zeros(count, np.float32))
        assert (stats.channels is not None) == kept


def test_large_tensors_are_sampled_alike_in_each_run() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(3, 64 * 64 * 8)).astype(np.float32)
    together, apart = _of(rows, 8), TensorStatistics()
    for row in rows:
        apart.update(row[np.newaxis], channels=8)
    assert together.histogram == apart.histogram
    assert 3 * module.SAMPLED_ELEMENTS <= together.histogram.total < rows.size
    assert together.count == rows.size
    assert together.mean == pytest.approx(rows.mean(dtype=np.float64), abs=1e-5)
    assert together.maximum == rows.max()
    assert together.variance == pytest.approx(1.0, abs=0.1)


def test_large_offsets_do_not_drown_the_variance() -> None:
    values = (1e4 + np.random.default_rng(0).normal(size=(20, 1000))).astype(np.float32)
    assert _of(values, 1).variance == pytest.approx(values.astype(np.float64).var(), rel=1e-2)


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1e20, 3e38])
def test_moments_of_very_small_and_very_large_values(size: float) -> None:
    values = (size * np.array([[-1, 1, -0.5, 0.25]])).astype(np.float32)
    stats = _of(values, 2)
    assert stats.variance == pytest.approx(values.astype(np.float64).var(), rel=1e-5)
    assert stats.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-5)


@given(_rows(FLOATS))
def test_bytes_and_back(rows: np.ndarray) -> None:
    stats = _of(rows)
    again = TensorStatistics.from_bytes(stats.to_bytes())
    _assert_same(again, stats)
    assert again.to_bytes() == stats.to_bytes()
    again.update(np.ones((1, 12), np.float32), channels=3)  # nothing of it is read-only


def test_damaged_bytes_are_refused() -> None:
    data = _of(np.ones((2, 12), np.float32)).to_bytes()
    for broken in (b"", data[:-1], data[:10], b"x" + data, bytes([*data[:-1], data[-1] ^ 1]), pack({}, {})):
        with pytest.raises(DamagedError):
            TensorStatistics.from_bytes(broken)


@given(arrays(st.sampled_from([np.float32, np.int8, np.uint16, np.bool_]), array_shapes(min_dims=0, min_side=0)))
def test_packing(array: np.ndarray) -> None:
    facts, found = unpack(pack({"a": [1, "x"]}, {"it": array}))
    assert facts == {"a": [1, "x"]}
    assert found["it"].dtype == array.dtype
    assert found["it"].shape == array.shape
    assert found["it"].tobytes() == array.tobytes()


def test_histogram_bins_hold_what_their_edges_say() -> None:
    values = np.array([-1.0, -1e-30, 0.0, 1e-30, 0.999, 1.0])
    histogram = Histogram()
    histogram.add(values, 1.0)
    assert histogram.exponent == 1
    assert len(histogram.edges) == BINS + 1
    expected, _ = np.histogram(values, histogram.edges)
    assert np.array_equal(histogram.counts, expected)


@given(st.lists(FINITE, min_size=1), st.lists(FINITE, min_size=1))
def test_histograms_do_not_depend_on_order(first: list[float], second: list[float]) -> None:
    def of(values: list[float]) -> Histogram:
        result = Histogram()
        for value in values:
            result.add(np.array([value], np.float32), abs(value))
        return result

    merged = of(first)
    merged.merge(of(second))
    assert merged == of(second + first)
    assert merged.total == len(first) + len(second)


def test_the_range_is_the_smallest_power_of_two() -> None:
    assert exponent_for(0.0) == exponent_for(1e-40) == -100
    assert (exponent_for(0.999), exponent_for(1.0), exponent_for(3.4e38)) == (0, 1, 128)


@given(arrays(np.float32, array_shapes(min_dims=3, max_dims=3, max_side=40), elements=st.floats(-9, 9, width=32)))
def test_reductions(values: np.ndarray) -> None:
    low, high = extremes_by_channel(values)
    assert np.array_equal(low, values.min(axis=1))
    assert np.array_equal(high, values.max(axis=1))


@pytest.mark.parametrize("positions", [1, 2, 63, 64, 65, 1024, 1025])
@pytest.mark.parametrize("channels", [1, 3, 16, 1500])
def test_reductions_of_large_arrays(positions: int, channels: int) -> None:
    values = np.random.default_rng(0).normal(size=(2, positions, channels)).astype(np.float32)
    low, high = extremes_by_channel(values)
    assert np.array_equal(low, values.min(axis=1))
    assert np.array_equal(high, values.max(axis=1))


def test_rows_beyond_float32_are_infinite() -> None:
    stats = TensorStatistics()
    stats.add(np.array([1e300, 1.0]))
    assert stats.infinite_count == 1
    assert stats.maximum == 1.0
