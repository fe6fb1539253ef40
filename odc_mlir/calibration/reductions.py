"""Minima and maxima of many small arrays at once, quickly also where numpy's own reductions are slow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# numpy reduces over an axis with one loop per element of the axes before it; loops of this length cost little.
_LOOP = 1024
_SHORT = 64


def extremes_by_channel(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Minima and maxima [N, C] of ``values`` [N, positions, C] over positions (at least one)."""
    count, positions, channels = values.shape
    if positions == 1:
        return values[:, 0], values[:, 0]
    # Positions are taken side by side, so that few channels make long loops too. The last of them are seen twice.
    beside = min(positions, max(1, _LOOP // channels))
    whole = positions // beside * beside
    wide = values[:, :whole].reshape(count, whole // beside, beside, channels)
    last = values[:, -beside:] if whole < positions else None
    return _over_positions(np.minimum, wide, last), _over_positions(np.maximum, wide, last)


def _over_positions(reduction: np.ufunc, wide: NDArray[Any], last: NDArray[Any] | None) -> NDArray[Any]:
    """The reduction [N, C] of ``wide`` [N, K, positions, C] and of ``last`` [N, positions, C]."""
    result: NDArray[Any] = wide[:, 0]
    if wide.shape[1] > 1:
        result = reduction.reduce(wide.reshape(*wide.shape[:2], -1), axis=1).reshape(result.shape)
    if last is not None:
        result = reduction(result, last)
    while result.shape[1] > 1:
        # Halves that overlap by one where the number is odd, which changes neither a minimum nor a maximum.
        half = -(-result.shape[1] // 2)
        result = reduction(result[:, :half], result[:, -half:])
    return result[:, 0]


def across(reduction: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
    """``reduction`` of each row of ``values`` [N, C]."""
    if values.shape[1] < _SHORT < len(values):
        values, axis = np.ascontiguousarray(values.T), 0
    else:
        axis = 1
    result: NDArray[Any] = reduction.reduce(values, axis=axis)
    return result
