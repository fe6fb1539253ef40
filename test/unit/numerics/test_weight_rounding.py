"""Rounding that keeps results: never worse than the nearest codes where it is judged; those where they are best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from odc_mlir.numerics.weight_rounding import (
    Grid,
    Moments,
    inverse_factors,
    loss,
    round_and_scale,
    round_weights,
    shrunk,
)

seeds = st.integers(0, 2**32 - 1)


def problem(seed: int, *, most: int = 7) -> tuple[NDArray[Any], Grid, Moments]:
    """Random weights of 2 groups, a grid for them, and moments of inputs that depend on each other."""
    random = np.random.default_rng(seed)
    groups, outputs, inputs = 2, int(random.integers(1, 5)), int(random.integers(1, 90))
    weights = random.standard_normal((groups, outputs, inputs))
    scales = np.abs(weights).max(axis=2) / most
    mixing = random.standard_normal((groups, inputs, inputs))
    moments = Moments.empty(groups, inputs)
    for _ in range(3):
        moments.add(random.standard_normal((groups, 40, inputs)) @ mixing + random.standard_normal(inputs))
    return weights, Grid(scales, np.zeros_like(scales), -most, most), moments


@given(seeds)
def test_results_are_never_worse_than_those_of_the_nearest_codes(seed: int) -> None:
    weights, grid, moments = problem(seed)
    covariance = moments.mean
    codes = round_weights(weights, grid, covariance).astype(np.float64)
    ours = loss(weights - grid.real(codes), covariance)
    nearest = loss(weights - grid.real(grid.nearest(weights)), covariance)
    assert np.all(ours <= nearest * (1 + 1e-9))
    assert codes.min() >= grid.least
    assert codes.max() <= grid.most


@given(seeds)
def test_scales_near_the_given_ones_lose_less(seed: int) -> None:
    weights, grid, moments = problem(seed)
    covariance = moments.mean
    plain = loss(weights - grid.real(round_weights(weights, grid, covariance).astype(np.float64)), covariance)
    codes, scales = round_and_scale(weights, grid, covariance)
    chosen = Grid(scales.astype(np.float64), grid.zero_points, grid.least, grid.most)
    ours = loss(weights - chosen.real(codes.astype(np.float64)), covariance)
    assert np.all(ours <= plain * (1 + 1e-5) + 1e-12)  # scales are stored as float32
    assert np.all(np.abs(scales / grid.scales - 1) < 0.11)
    assert codes.min() >= grid.least
    assert codes.max() <= grid.most


def test_few_inputs_gain_from_their_scales() -> None:
    random = np.random.default_rng(3)
    weights = random.standard_normal((1, 64, 6))
    grid = Grid(np.abs(weights).max(axis=2) / 127, np.zeros((1, 64)), -127, 127)
    covariance = np.eye(6)[np.newaxis]
    plain = loss(weights - grid.real(round_weights(weights, grid, covariance).astype(np.float64)), covariance)
    codes, scales = round_and_scale(weights, grid, covariance)
    chosen = Grid(scales.astype(np.float64), grid.zero_points, grid.least, grid.most)
    ours = loss(weights - chosen.real(codes.astype(np.float64)), covariance)
    assert ours.sum() < 0.8 * plain.sum()


def test_dependent_inputs_gain_much() -> None:
    """With 4 bits and strongly dependent inputs, most of the loss can be moved to where it does not show."""
    random = np.random.default_rng(1)
    weights = random.standard_normal((1, 16, 64))
    grid = Grid(np.abs(weights).max(axis=2) / 7, np.zeros((1, 16)), -7, 7)
    moments = Moments.empty(1, 64)
    moments.add(random.standard_normal((2000, 8)) @ random.standard_normal((8, 64)))
    codes = round_weights(weights, grid, moments.mean).astype(np.float64)
    ours = loss(weights - grid.real(codes), moments.mean).sum()
    assert ours < 0.1 * loss(weights - grid.real(grid.nearest(weights)), moments.mean).sum()


@given(seeds)
def test_independent_inputs_get_the_nearest_codes(seed: int) -> None:
    weights, grid, _ = problem(seed)
    variances = np.random.default_rng(seed).uniform(0.1, 10, (2, weights.shape[2]))
    covariance = variances[:, :, np.newaxis] * np.eye(weights.shape[2])
    np.testing.assert_array_equal(round_weights(weights, grid, covariance), grid.nearest(weights))


def test_inputs_that_never_change_get_the_nearest_codes() -> None:
    weights, grid, moments = problem(3)
    nothing = np.zeros_like(moments.second)
    np.testing.assert_array_equal(round_weights(weights, grid, nothing), grid.nearest(weights))


def test_weights_on_the_grid_stay() -> None:
    _, grid, moments = problem(5)
    size = moments.second.shape[1]
    codes = np.random.default_rng(0).integers(grid.least, grid.most + 1, (*grid.scales.shape, size))
    exact = grid.real(codes.astype(np.float64))
    np.testing.assert_array_equal(round_weights(exact, grid, moments.mean), codes)


def test_zero_points_move_codes_only() -> None:
    weights, grid, moments = problem(7)
    moved = Grid(grid.scales, grid.zero_points + 100, grid.least + 100, grid.most + 100)
    codes = round_weights(weights, grid, moments.mean)
    np.testing.assert_array_equal(round_weights(weights, moved, moments.mean), codes + 100)


@given(seeds)
def test_factors(seed: int) -> None:
    _, _, moments = problem(seed)
    factors = inverse_factors(moments.mean, 0.5)
    size = factors.shape[1]
    lifted = moments.mean + 0.5 * np.einsum("gkk->g", moments.mean)[:, None, None] / size * np.eye(size)
    product = factors.transpose(0, 2, 1) @ factors @ lifted
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), product.shape), atol=1e-6)
    np.testing.assert_array_equal(factors, np.triu(factors))


def test_moments_are_mean_products() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 50, 4)).astype(np.float32)
    moments = Moments.empty(3, 4)
    moments.add(rows[:, :20])
    moments.add(rows[:, 20:])
    assert (moments.count, moments.parts) == (50, 2)
    np.testing.assert_allclose(moments.mean, np.einsum("gnk,gnl->gkl", rows, rows) / 50, atol=1e-5)


@pytest.mark.parametrize(("groups", "rows", "inputs"), [(1, 20, 9), (5, 16, 9), (1, 1, 40), (3, 7, 1)])
def test_parts_taken_in_together_are_these_one_by_one(groups: int, rows: int, inputs: int) -> None:
    runs = np.random.default_rng(1).standard_normal((groups, 6 * rows, inputs)).astype(np.float32)
    one_by_one, together = Moments.empty(groups, inputs), Moments.empty(groups, inputs)
    for start in range(0, 6 * rows, rows):
        one_by_one.add(runs[:, start : start + rows])
    together.add(runs[:, : 2 * rows], 2)
    together.add(runs[:, 2 * rows :], 4)
    np.testing.assert_array_equal(together.second, one_by_one.second)
    assert (together.count, together.parts, together.spread) == (one_by_one.count, 6, one_by_one.spread)


def test_no_rows_say_nothing() -> None:
    assert not Moments.empty(1, 3).mean.any()


def moments_of(runs: NDArray[Any]) -> Moments:
    """Of ``runs [runs, N, K]``, each taken in at once."""
    moments = Moments.empty(1, runs.shape[2])
    for rows in runs:
        moments.add(rows)
    return moments


def test_one_run_says_nothing_of_products() -> None:
    rows = np.array([[[1.0, 2.0], [3.0, 1.0]]])
    np.testing.assert_allclose(shrunk(moments_of(rows), 1), [[[5.0, 0.0], [0.0, 2.5 + 1.25 / 2]]])
    np.testing.assert_allclose(shrunk(Moments.empty(1, 2), 0), np.zeros((1, 2, 2)))


def test_runs_that_agree_tell_products() -> None:
    rows = np.repeat([[[1.0, 2.0], [2.0, 1.0]]], 5, axis=0)
    np.testing.assert_allclose(shrunk(moments_of(rows), 5), moments_of(rows).second / 10)


def test_copies_of_a_row_tell_no_more_than_the_row() -> None:
    rows = np.random.default_rng(2).standard_normal((6, 1, 4)).astype(np.float32)
    copied = moments_of(np.repeat(rows, 50, axis=1))
    np.testing.assert_allclose(shrunk(copied, 6), shrunk(moments_of(rows), 6), rtol=1e-4, atol=1e-6)


def test_more_runs_tell_more_of_products() -> None:
    random = np.random.default_rng(3)
    mixing, parts = random.standard_normal((8, 8)), []
    for runs in (4, 16, 256):
        moments = moments_of(random.standard_normal((runs, 1, 8)) @ mixing)
        away = ~np.eye(8, dtype=bool)
        known = moments.second / moments.count
        parts.append(float((shrunk(moments, runs)[:, away] / known[:, away]).mean()))
    assert 0 < parts[0] < parts[1] < parts[2] < 1
    assert parts[2] > 0.95


def test_quiet_inputs_may_be_louder_in_further_runs() -> None:
    rows = np.zeros((4, 1, 2))
    rows[:, 0, 0] = 1.0
    np.testing.assert_allclose(shrunk(moments_of(rows), 4), [[[1.0, 0.0], [0.0, 0.5 / 5]]])


@pytest.mark.parametrize("seed", range(8))
def test_few_runs_do_not_harm_others(seed: int) -> None:
    """Inputs that a few of 8 runs show at best, as those behind a RELU: others see less loss than of the nearest."""
    random = np.random.default_rng(seed)
    mixing, offsets = random.standard_normal((6, 32)), random.uniform(-4, 1, 32)

    def drawn(runs: int) -> NDArray[Any]:
        # neighbours in a run are much alike
        rows = random.standard_normal((runs, 1, 6)) + 0.1 * random.standard_normal((runs, 48, 6))
        return np.asarray(np.maximum(rows @ mixing + offsets, 0.0))

    known, others = moments_of(drawn(8)), moments_of(drawn(400))
    weights = random.standard_normal((1, 16, 32))
    grid = Grid(np.abs(weights).max(axis=2) / 127, np.zeros((1, 16)), -127, 127)
    codes = round_weights(weights, grid, shrunk(known, 8)).astype(np.float64)
    truth = others.second / others.count
    ours = loss(weights - grid.real(codes), truth).sum()
    assert ours < 0.9 * loss(weights - grid.real(grid.nearest(weights)), truth).sum()


@pytest.mark.parametrize("size", [1, 64, 65, 130])
def test_blocks_change_nothing(size: int) -> None:
    """One column after the other, without blocks, gives the same codes."""
    random = np.random.default_rng(size)
    weights = random.standard_normal((1, 2, size))
    grid = Grid(np.full((1, 2), 0.3), np.zeros((1, 2)), -7, 7)
    rows = random.standard_normal((4 * size, size)) @ random.standard_normal((size, size))
    covariance = (rows.T @ rows / len(rows))[None]
    order = np.argsort(-np.diag(covariance[0]), kind="stable")
    factors = inverse_factors(covariance[:, order][:, :, order], 0.01)[0]
    left, expected = weights[0][:, order].copy(), np.zeros((2, size))
    for column in range(size):
        expected[:, order[column]] = codes = grid.nearest(left[None, :, column])[0]
        lost = (left[:, column] - 0.3 * codes) / factors[column, column]
        left[:, column:] -= lost[:, None] * factors[column, column:]
    nearest = grid.nearest(weights)[0]
    better = loss(weights - grid.real(expected[None]), covariance) <= loss(
        weights - grid.real(nearest[None]), covariance
    )
    np.testing.assert_array_equal(
        round_weights(weights, grid, covariance)[0], np.where(better[0][:, None], expected, nearest)
    )
