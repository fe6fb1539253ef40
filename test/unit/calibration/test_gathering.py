"""Gathering: however values come together, the statistics are those of every tensor alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odc_mlir.calibration import gathering
from odc_mlir.calibration.gathering import DETAILED, DETAILED_EACH, Block, TensorGatherer, detailed
from odc_mlir.calibration.statistics import LOWEST, TensorStatistics

SHAPES = ((2, 3), (), (1, 4, 2), (5,))
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.just(float(LOWEST))


def _alone(values: np.ndarray, marks: list[bool]) -> TensorStatistics:
    """The statistics of runs [N, ...] of one tensor."""
    result = TensorStatistics()
    channels = values.shape[-1] if values.ndim > 1 else 1
    result.update(values.reshape(len(values), -1), channels=channels, detail=np.array(marks, np.bool_))
    return result


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


def _gathered(runs: list[list[np.ndarray]], marks: list[bool], room: int) -> list[TensorStatistics]:
    slots = [TensorGatherer(100) for _ in runs[0]]
    block = Block(slots, [value.shape for value in runs[0]], room)
    for values, mark in zip(runs, marks, strict=True):
        passed = [value.copy() for value in values]
        block.add(passed, detail=mark)
        for value in passed:
            value[...] = 77  # it may change afterwards
    block.flush()
    return [slot.take() for slot in slots]


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.just(20)), elements=FLOATS), st.data())
def test_a_block_gives_what_each_tensor_alone_gives(rows: np.ndarray, data: st.DataObject) -> None:
    marks = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in SHAPES)])
    runs = [[row[a:b].reshape(s) for a, b, s in zip(bounds[:-1], bounds[1:], SHAPES, strict=True)] for row in rows]
    found = _gathered(runs, marks, data.draw(st.sampled_from([0, 45, 10_000])))
    for place, stats in enumerate(found):
        _assert_same(stats, _alone(np.stack([values[place] for values in runs]), marks))


@pytest.mark.parametrize("rows_elements", [1, 40, 1 << 15])
@pytest.mark.parametrize("count", [1, 2])
def test_the_size_of_what_is_looked_at_changes_nothing(
    rows_elements: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_ROWS_ELEMENTS", rows_elements)
    monkeypatch.setattr(gathering, "_KEPT_RUNS", 5)
    monkeypatch.setattr(gathering, "_MOST_ROWS", 4)
    random = np.random.default_rng(count)
    runs = [[random.normal(size=(3, 4)).astype(np.float32) for _ in range(count)] for _ in range(23)]
    runs[7][0][1, 2] = np.nan
    marks = [k % 3 == 0 for k in range(len(runs))]
    for place, stats in enumerate(_gathered(runs, marks, 60)):
        _assert_same(stats, _alone(np.stack([values[place] for values in runs]), marks))


def test_blocks_take_any_order_of_elements_and_any_float() -> None:
    value = np.arange(6, dtype=np.float64).reshape(2, 3).T
    with np.errstate(over="ignore"):
        one, other = _gathered([[value, np.array([1e300])]], [True], 100)
    assert one.channels is not None
    assert one.channels.maxima.tolist() == [2, 5]
    assert (other.infinite_count, other.runs) == (1, 0)


def test_which_runs_are_looked_at_in_detail() -> None:
    assert [k for k in range(DETAILED + 2 * DETAILED_EACH) if detailed(k)] == [
        *range(DETAILED),
        *(k for k in range(DETAILED, DETAILED + 2 * DETAILED_EACH) if k % DETAILED_EACH == 0),
    ]
