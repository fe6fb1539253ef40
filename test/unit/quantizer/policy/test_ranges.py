"""Ranges chosen from statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError, OptionError
from odc_mlir.quantizer.policy.ranges import MODES, choose_range

VALUES = st.floats(-1e6, 1e6, width=32)
RUNS = st.lists(st.lists(VALUES, min_size=1, max_size=9), min_size=1, max_size=40)


def _of(runs: list[list[float]]) -> TensorStatistics:
    stats = TensorStatistics()
    for run in runs:
        stats.add(np.array(run, np.float32))
    return stats


def _normal(runs: int = 20, size: int = 2000) -> TensorStatistics:
    random = np.random.default_rng(0)
    stats = TensorStatistics()
    for _ in range(runs):
        stats.add(random.normal(size=size).astype(np.float32))
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
    assert choose_range(stats, "percentile", low=0, high=100) == choose_range(stats, "minmax") == (-2.5, 5.0)
    assert choose_range(_of([[3, 4]]), "percentile") == (3.0, 4.0)


def test_moving_average() -> None:
    stats = _of([[-k, k] for k in range(40)])
    high = (15 * 0.9 + 31 * 0.1) * 0.9 + 39 * 0.1
    assert choose_range(stats, "moving-average") == pytest.approx((-high, high))
    assert choose_range(stats, "moving-average", batch=1, constant=1.0) == (-39.0, 39.0)
    assert choose_range(stats, "moving-average", batch=100) == (-39.0, 39.0)


def test_percentile_of_elements() -> None:
    stats = TensorStatistics()
    values = np.random.default_rng(1).uniform(-1, 3, 2000).astype(np.float32)
    stats.add(values)
    low, high = choose_range(stats, "percentile-elements", low=10, high=90)
    width = stats.histogram.width
    assert low == pytest.approx(np.percentile(values, 10), abs=3 * width)
    assert high == pytest.approx(np.percentile(values, 90), abs=3 * width)
    assert choose_range(stats, "percentile-elements", low=0, high=100) == (values.min(), values.max())


def _quantisation_error(values: np.ndarray, low: float, high: float, bits: int) -> float:
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (2**bits - 1)
    zero = round(-low / scale)
    codes = np.clip(np.rint(values / scale) + zero, 0, 2**bits - 1)
    return float(np.mean(((codes - zero) * scale - values) ** 2))


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize("mode", ["mse"])
def test_least_squares_beats_every_other_way(mode: str, bits: int) -> None:
    random = np.random.default_rng(0)
    values = np.maximum(random.laplace(size=2048), -1).astype(np.float32)
    stats = TensorStatistics()
    stats.add(values)
    best = _quantisation_error(values, *choose_range(stats, mode, bits=bits), bits)
    for other in ("minmax", "percentile-elements", "entropy"):
        options = {"bits": bits} if other == "entropy" else {}
        assert best <= _quantisation_error(values, *choose_range(stats, other, **options), bits) * 1.001
    for factor in (0.5, 0.7, 0.9):
        assert best <= _quantisation_error(values, stats.minimum * factor, stats.maximum * factor, bits) * 1.001


def test_fewer_bits_clip_more() -> None:
    stats = _normal()
    reach = [choose_range(stats, "mse", bits=bits, symmetric=True)[1] for bits in (3, 4, 6, 8, 12)]
    assert reach == sorted(reach)
    assert reach[0] < 0.6 * reach[-1]
    low, high = choose_range(stats, "mse", bits=16, symmetric=True)
    assert high - low == pytest.approx(2 * min(-stats.minimum, stats.maximum), rel=0.1)


def test_entropy_clips_outliers() -> None:
    stats = _normal()
    outlier = np.zeros(2000, np.float32)
    outlier[0] = 80
    stats.add(outlier)
    assert choose_range(stats, "minmax")[1] == 80
    assert choose_range(stats, "entropy")[1] < 10
    assert choose_range(stats, "entropy", bits=16) == choose_range(stats, "minmax")


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_constant_tensors(mode: str, value: float) -> None:
    assert choose_range(_of([[value] * 5] * 3), mode) == (value, value)


def test_refusals() -> None:
    stats = _normal(2, 10)
    with pytest.raises(OptionError, match=r"unknown range mode 'max'; use one of minmax, "):
        choose_range(stats, "max")
    with pytest.raises(OptionError, match="percentile has no option 'batch'; it takes low, high"):
        choose_range(stats, "percentile", batch=3)
    with pytest.raises(OptionError, match="minmax has no option 'low'; it takes none"):
        choose_range(stats, "minmax", low=3)
    for options in ({"low": -1}, {"high": 101}, {"low": 60, "high": 50}):
        with pytest.raises(OptionError, match="expected 0 <= low <= high <= 100"):
            choose_range(stats, "percentile", **options)
    with pytest.raises(OptionError, match="batch is 0, expected at least 1 run"):
        choose_range(stats, "moving-average", batch=0)
    with pytest.raises(OptionError, match=r"constant is 1\.5, expected 0 to 1"):
        choose_range(stats, "moving-average", constant=1.5)
    for bits in (1, 17):
        with pytest.raises(OptionError, match=f"bits is {bits}, expected 2 to 16"):
            choose_range(stats, "mse", bits=bits)
    with pytest.raises(InputError, match="no usable value has been recorded"):
        choose_range(TensorStatistics(), "minmax")


def test_extremes_alone_do_for_some_ways() -> None:
    stats = TensorStatistics.of_extremes([-1, -2], [1, 3])
    assert choose_range(stats, "minmax") == (-2.0, 3.0)
    assert choose_range(stats, "moving-average", batch=1) == pytest.approx((-1.1, 1.2))
    for mode in ("percentile-elements", "mse", "entropy"):
        with pytest.raises(OptionError, match="only the extremes of each run are known"):
            choose_range(stats, mode)
