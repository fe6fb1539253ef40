"""Convolutions over volumes against loops over every tap."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from odc_mlir.numerics.volume import (
    VolumeWindow,
    conv3d,
    transpose_conv3d,
    transpose_volume_filter,
    volume_filter,
)

Array = NDArray[Any]
WINDOWS = [
    VolumeWindow((1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0)),
    VolumeWindow((2, 1, 3), (1, 2, 1), (1, 1, 0), (0, 2, 1)),
    VolumeWindow((3, 2, 1), (2, 1, 2), (2, 0, 1), (3, 1, 2)),
]


def integers(*shape: int) -> Array:
    """Small whole numbers, whose float32 sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("window", WINDOWS)
def test_convolution(window: VolumeWindow) -> None:
    x, w = integers(2, 6, 7, 8, 2), integers(2, 3, 2, 2, 3)
    pads = list(zip(window.before, window.after, strict=True))
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[:3], window.dilation, strict=True)]
    steps = zip(padded.shape[1:4], extent, window.stride, strict=True)
    depth, height, width = ((size - e) // s + 1 for size, e, s in steps)
    expected = np.zeros((2, depth, height, width, 3), np.float32)
    for place in np.ndindex(depth, height, width):
        for tap in np.ndindex(*w.shape[:3]):
            z, y, x0 = (p * s + t * d for p, s, t, d in zip(place, window.stride, tap, window.dilation, strict=True))
            expected[:, *place] += padded[:, z, y, x0] @ w[tap]
    assert (conv3d(x, volume_filter(w), window, (depth, height, width)) == expected).all()


@pytest.mark.parametrize("window", WINDOWS)
def test_transposed_convolution(window: VolumeWindow) -> None:
    x, w = integers(2, 3, 4, 2, 3), integers(2, 3, 2, 2, 3)
    output = (5, 6, 7)
    expected = np.zeros((2, *output, 2), np.float32)
    for place, tap in itertools.product(np.ndindex(*x.shape[1:4]), np.ndindex(*w.shape[:3])):
        steps = zip(place, window.stride, window.before, tap, window.dilation, strict=True)
        target = [p * s - before + t * d for p, s, before, t, d in steps]
        if all(0 <= t < size for t, size in zip(target, output, strict=True)):
            expected[:, *target] += x[:, *place] @ w[tap].T
    filters = transpose_volume_filter(w, window.dilation)
    assert (transpose_conv3d(x, filters, window, output) == expected).all()
