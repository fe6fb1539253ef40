"""Gathering: however values come together, the statistics are those of all of them at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odc_mlir.calibration.gathering import TensorGatherer
from odc_mlir.calibration.statistics import LOWEST, TensorStatistics

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.just(float(LOWEST))


def _assert_same(found: TensorStatistics, expected: TensorStatistics) -> None:
    assert np.array_equal(found.run_extremes, expected.run_extremes)
    assert found.histogram == expected.histogram
    for name in ("runs_seen", "count", "nan_count", "infinite_count", "lowest_count"):
        assert getattr(found, name) == getattr(expected, name)
    size = max(abs(expected.minimum), abs(expected.maximum)) if expected.runs else 1.0
    assert found.mean == pytest.approx(expected.mean, rel=1e-4, abs=1e-5 * size)
    assert found.variance == pytest.approx(expected.variance, rel=1e-3, abs=1e-5 * size**2)
    assert (found.channels is None) == (expected.channels is None)
    if found.channels is not None and expected.channels is not None:
        for name in ("minima", "maxima", "counts"):
            assert np.array_equal(getattr(found.channels, name), getattr(expected.channels, name))


@given(
    arrays(np.float32, st.tuples(st.integers(1, 9), st.just(2), st.just(3)), elements=FLOATS),
    st.sampled_from([0, 20, 1000]),
)
def test_values_one_by_one_are_all_values_at_once(values: np.ndarray, room: int) -> None:
    gatherer, expected = TensorGatherer(room), TensorStatistics()
    for run, value in enumerate(values):
        passed = value.copy()
        gatherer.add(passed, run)
        passed[...] = 77  # it may change afterwards
    expected.update(values.reshape(len(values), -1), channels=3)
    _assert_same(gatherer.take(), expected)
