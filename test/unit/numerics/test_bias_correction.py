"""Corrections of biases: the whole difference, in codes, as far as the type goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import ModelError
from odc_mlir.numerics.bias_correction import believable, bias_deltas, corrected

reals = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(reals, reals, st.floats(1e-6, 10)), min_size=1, max_size=6))
def test_the_difference_is_made_up_for_within_half_a_step(channels: list[tuple[float, float, float]]) -> None:
    expected, found, scales = (np.array(column) for column in zip(*channels, strict=True))
    left = expected - (found + scales * bias_deltas(expected, found, scales))
    assert np.all(np.abs(left) <= 0.5 * scales + 1e-9 * np.abs(expected - found))


def test_equal_means_need_nothing() -> None:
    assert not bias_deltas(np.array([1.5, -2.0]), np.array([1.5, -2.0]), np.array([0.1])).any()


def test_halves_go_away_from_zero() -> None:
    deltas = bias_deltas(np.array([0.5, -0.5, 1.5]), np.zeros(3), np.array([1.0]))
    assert deltas.tolist() == [1, -1, 2]


@pytest.mark.parametrize(("mean", "scale"), [(1.0, 0.0), (np.nan, 1.0), (np.inf, 1.0)])
def test_nothing_to_go_by(mean: float, scale: float) -> None:
    assert bias_deltas(np.array([mean]), np.array([0.0]), np.array([scale])).tolist() == [0]


def test_huge_differences_stay_integers() -> None:
    assert bias_deltas(np.array([1e30]), np.array([0.0]), np.array([1e-10])).tolist() == [1 << 62]


@pytest.mark.parametrize(("expected", "scales"), [(np.zeros(3), np.ones(1)), (np.zeros(2), np.ones(3))])
def test_lengths_must_agree(expected: np.ndarray, scales: np.ndarray) -> None:
    with pytest.raises(ModelError, match="they must agree"):
        bias_deltas(expected, np.zeros(2), scales)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_limits_of_the_type(dtype: str) -> None:
    limits = np.iinfo(dtype)
    codes = np.array([[limits.max, limits.min, limits.max - 1, 5]], dtype)
    found, stopped = corrected(codes, np.array([1, -1, 1, -7]))
    assert found.dtype == codes.dtype
    assert found.tolist() == [[limits.max, limits.min, limits.max, -2]]
    assert stopped == (0, 1)


def test_another_length_is_refused() -> None:
    with pytest.raises(ModelError, match="3 corrections for a bias of 2 channels"):
        corrected(np.zeros(2, np.int32), np.zeros(3, np.int64))


def test_what_chance_alone_would_show_is_not_believed() -> None:
    means, variances = np.array([1.0, 1.0, -1.0, 0.0]), np.array([0.0, 8.0, 32.0, 1.0])
    assert believable(means, variances, 16).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_real_biases_take_real_corrections() -> None:
    found, stopped = corrected(np.array([1.0, -2.0], np.float32), np.array([0.25, 0.5]))
    assert found.dtype == np.float32
    assert found.tolist() == [1.25, -1.5]
    assert not stopped
