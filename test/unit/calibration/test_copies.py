"""Near copies among samples: what counts as one, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from odc_mlir.calibration.copies import copied, independent, without
from odc_mlir.ops.spec import Array

COUNT = 120


def _rows(values: Array) -> list[list[Array]]:
    return [[row.astype(np.float32)[None]] for row in values]


def _repeated(values: Array, count: int = COUNT, noise: float = 1e-5) -> list[list[Array]]:
    """So many samples, each of ``values`` in turn with noise."""
    every = values[np.arange(count) % len(values)]
    return _rows(every + noise * np.random.default_rng(7).normal(size=every.shape))


def _pictures(count: int) -> Array:
    """[count, 8, 8, 1] from 0 to 1, of which most elements are 0 in each and a third in all."""
    rng = np.random.default_rng(3)
    shown = (rng.uniform(size=(count, 8, 8, 1)) < 0.3) & (np.arange(8) < 5)[:, None]
    return np.asarray(np.where(shown, rng.uniform(size=shown.shape), 0.0))


@pytest.mark.parametrize(
    ("values", "noise"),
    [
        (_pictures(3), 1e-5),
        (_pictures(4), 1e-4),
        (_pictures(40), 1e-5),
        (_pictures(3).reshape(3, 64), 1e-4),
        (np.random.default_rng(0).normal(size=(3, 4)) * [0.8, 0.4, 1.7, 0.7] + [5.8, 3.0, 3.7, 1.2], 1e-5),
        (np.random.default_rng(1).normal(size=(5, 5)) * [1e-2, 1.0, 1.0, 10.0, 1e3], 1e-6),
        (np.array([[0.0], [0.3], [1.0]]), 1e-5),
        (300.0 + _pictures(3), 1e-4),
        (_pictures(4), 4e-3),
    ],
)
def test_rows_with_noise_count_once(values: Array, noise: float) -> None:
    found = copied(_repeated(values, noise=noise))
    assert found == [place % len(values) for place in range(COUNT)]
    assert independent(_repeated(values, noise=noise)) == [*range(len(values))]


def test_one_row_most_of_the_time() -> None:
    values = _pictures(9)
    found = independent(_repeated(values[[0] * 112 + [*range(1, 9)]]))
    assert found == [0, *range(112, 120)]


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.uniform(size=(COUNT, 1)),
        lambda rng: rng.normal(size=(COUNT, 2)),
        lambda rng: rng.lognormal(sigma=2.0, size=(COUNT, 1)),
        lambda rng: rng.lognormal(sigma=3.0, size=(COUNT, 4)),
        lambda rng: np.arange(COUNT)[:, None] * 1e-3 + np.zeros(16),
        lambda rng: np.sin(rng.uniform(0.0, 6.0, (COUNT, 1)) + np.arange(32) / 5.0),
        lambda rng: np.stack([rng.integers(5, size=COUNT) * 1e4, rng.uniform(size=COUNT), rng.normal(size=COUNT)], 1),
        lambda rng: _pictures(COUNT),
    ],
    ids=["uniform", "normal", "lognormal", "heavier", "a-ramp", "phases", "one-column-in-steps", "pictures"],
)
@pytest.mark.parametrize("seed", range(3))
def test_draws_are_kept(make: Callable[[np.random.Generator], Array], seed: int) -> None:
    assert independent(_rows(make(np.random.default_rng(seed)))) == [*range(COUNT)]


@pytest.mark.parametrize(
    "make",
    [
        lambda rng, count: rng.uniform(size=(count, 1)),
        lambda rng, count: rng.normal(size=(count, 1)),
        lambda rng, count: rng.standard_cauchy(size=(count, 64)),
        lambda rng, count: np.sin(rng.uniform(0.0, 6.0, (count, 1)) + np.arange(32) / 5.0),
    ],
    ids=["uniform", "normal", "cauchy", "phases"],
)
@pytest.mark.parametrize("count", [8, 12, 16, 32])
def test_few_draws_are_kept(make: Callable[[np.random.Generator, int], Array], count: int) -> None:
    for seed in range(20):
        assert len(independent(_rows(make(np.random.default_rng(seed), count)))) == count


def test_a_sample_far_out_makes_no_others_near() -> None:
    values = np.random.default_rng(0).normal(size=(24, 16))
    values[5] *= 1e6
    assert len(independent(_rows(values))) == 24


def test_what_differs_in_one_place_is_no_copy() -> None:
    """Noise has one size all over an input; a thing that moves in a still scene has not."""
    samples = _repeated(_pictures(4), 40)
    samples[10][0][0, 2, 2, 0] += 0.05
    assert [place for place, first in enumerate(copied(samples)) if place == first] == [0, 1, 2, 3, 10]


def test_the_limit_is_a_32nd_of_the_deviation() -> None:
    row = np.random.default_rng(0).choice([-1.0, 1.0], size=64)
    values = np.stack([row, -row])  # mean absolute deviations of 1
    deviation = np.abs(values - values.mean(axis=0)).mean(axis=0).mean()
    for part, copies in ((0.95, 2), (1.05, 0)):
        samples = _rows(np.concatenate([values, values + part * deviation / 32.0]))
        assert len(samples) - len(independent(samples)) == copies


def test_other_inputs_and_labels_must_be_equal() -> None:
    samples = [[*real, np.array([place // 60], np.int32)] for place, real in enumerate(_repeated(_pictures(3)))]
    assert independent(samples) == [0, 1, 2, 60, 61, 62]
    labels = np.zeros(COUNT)
    labels[[3, 6]] = 1, 2
    assert independent(_repeated(_pictures(3)), labels) == [0, 1, 2, 3, 6]
    shapes = [[np.zeros((1, 1 + place % 2), np.float32), *real] for place, real in enumerate(_repeated(_pictures(3)))]
    assert independent(shapes) == [*range(6)]
    tokens = [[np.array([place], np.int64)] for place in range(4)]
    assert independent(tokens) == [0, 1, 2, 3]
    assert independent([]) == []


def test_the_input_that_is_farthest_counts() -> None:
    rng = np.random.default_rng(1)
    pairs = [[*real, rng.normal(size=(1, 3)).astype(np.float32)] for real in _repeated(_pictures(3))]
    assert len(independent(pairs)) == COUNT
    still = [[*real, np.ones((1, 3), np.float32)] for real in _repeated(_pictures(3))]
    assert independent(still) == [0, 1, 2]


def test_a_few_are_kept_as_they_may_be_chance() -> None:
    values = np.random.default_rng(0).normal(size=(64, 8))
    for copies, kept in ((11, 75), (12, 64)):
        assert len(independent(_rows(np.concatenate([values, values[:copies] + 1e-6])))) == kept


def test_samples_that_are_near_others_are_among_them() -> None:
    samples = _rows(np.random.default_rng(0).normal(size=(20, 8)))
    near = [[array + np.float32(1e-5) for array in sample] for sample in samples[:5]]
    assert without([*near, *samples[15:]], samples[:15]) == [5, 6, 7, 8, 9]
    assert without(samples[15:], samples[:15]) == [0, 1, 2, 3, 4]
    assert without(samples[:2], samples) == []
