"""Pooling against loops over windows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.numerics import pooling

PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


def windows(size: tuple[int, int], window: pooling.Pair, stride: pooling.Pair, pads: pooling.Pair, y: int, x: int):
    """Positions inside the image of the taps of one result."""
    for ky, kx in np.ndindex(*window):
        row, column = y * stride[0] - pads[0] + ky, x * stride[1] - pads[1] + kx
        if 0 <= row < size[0] and 0 <= column < size[1]:
            yield row, column


@given(PAIR, PAIR, PAIR, st.data(), st.sampled_from(["int8", "uint8", "int16"]))
def test_pool(size: pooling.Pair, window: pooling.Pair, stride: pooling.Pair, data: st.DataObject, dtype: str) -> None:
    pads = (data.draw(st.integers(0, window[0] - 1)), data.draw(st.integers(0, window[1] - 1)))
    output = (
        max(1, -(-(size[0] + pads[0]) // stride[0]) - data.draw(st.integers(0, 1))),
        max(1, -(-(size[1] + pads[1]) // stride[1]) - data.draw(st.integers(0, 1))),
    )
    limits = np.iinfo(dtype)
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(limits.min, limits.max + 1, (2, *size, 2))
    x = x.astype(dtype)
    low, high = limits.min + 20, limits.max - 20
    placed = pooling.PoolWindows(window, stride, pads, output)
    maxima = pooling.max_pool(x, placed, low, high)
    means = pooling.average_pool(x, placed, low, high)
    for kind, expected in (("max", maxima), ("average", means)):
        small = pooling.small_pool(x.shape, x.dtype, kind, placed, (low, high))
        assert small is not None
        first = small(x)
        small(x[::-1, ::-1, ::-1])
        np.testing.assert_array_equal(first, expected)
    for n, y, column, c in np.ndindex(maxima.shape):
        taps = [int(x[n, i, j, c]) for i, j in windows(size, window, stride, pads, y, column)]
        if taps:
            assert maxima[n, y, column, c] == scalar.clamp(max(taps), low, high)
            assert means[n, y, column, c] == scalar.clamp(scalar.average(taps), low, high)


def test_float_pools() -> None:
    x = np.array([1.0, -2.0, 4.0, 3.5], np.float32).reshape(1, 2, 2, 1)
    assert pooling.average_pool(x, pooling.PoolWindows((2, 2), (1, 1), (0, 0), (1, 1)), None, None).ravel() == [1.625]
    assert pooling.max_pool(x, pooling.PoolWindows((2, 2), (2, 2), (1, 1), (2, 2)), 0.0, 3.0).ravel().tolist() == [
        1.0,
        0.0,
        3.0,
        3.0,
    ]
    assert pooling.max_pool(-x, pooling.PoolWindows((1, 1), (1, 1), (0, 0), (2, 2)), None, None).dtype == np.float32


def test_negative_averages_round_away_from_zero() -> None:
    x = np.array([-1, -2], np.int8).reshape(1, 1, 2, 1)
    assert pooling.average_pool(x, pooling.PoolWindows((1, 2), (1, 1), (0, 0), (1, 1)), -128, 127).item() == -2
    assert pooling.average_pool(-x, pooling.PoolWindows((1, 2), (1, 1), (0, 0), (1, 1)), -128, 127).item() == 2


def test_a_huge_window_visits_only_the_image() -> None:
    x = np.arange(4, dtype=np.int8).reshape(1, 2, 2, 1)
    placed = pooling.PoolWindows((1 << 20, 1 << 20), (1, 1), (1 << 19, 1 << 19), (2, 2))
    assert pooling.max_pool(x, placed, -128, 127).ravel().tolist() == [3] * 4


def test_tap_counts() -> None:
    assert pooling.tap_counts(5, 3, 2, 1, 3).tolist() == [2, 3, 2]


def test_l2_pool() -> None:
    x = np.array([[3, 4, 0], [0, 0, 2]], np.float32).reshape(1, 2, 3, 1)
    found = pooling.l2_pool(x, pooling.PoolWindows((2, 2), (1, 1), (0, 0), (2, 3)), None, 2.0)
    expected = np.sqrt([25 / 4, 20 / 4, 4 / 2, 0, 4 / 2, 4])
    np.testing.assert_allclose(found.ravel(), np.minimum(expected, 2.0), rtol=1e-6)
