"""When columns of a tensor differ so much in size that one scale for all of them loses some, or most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_RATIO = 16.0  # of sizes that differ: four of the bits of codes


def sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether one scale for columns with these limits is too coarse for one of them that varies."""
    parts = _parts(low, high)
    return bool(len(parts)) and float(parts.min()) < 1.0 / LEAST_RATIO


def most_sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether half of the columns that vary, or more, are so small beside others that each must have a unit of its own.

    Of many columns of one kind a few may be small, or next to nothing; all may vary little about where they are.
    """
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return False
    sizes = np.maximum(np.abs(low), np.abs(high))[high > low]
    return bool(sizes.size) and float(np.median(sizes)) < float(sizes.max()) / LEAST_RATIO


def _parts(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each column that varies takes of the range of all; none where limits are not finite."""
    if not low.size or not (np.isfinite(low) & np.isfinite(high)).all():
        return np.empty(0)
    sizes, whole = high - low, max(float(high.max()), 0.0) - min(float(low.min()), 0.0)
    return np.asarray(sizes[sizes > 0] / whole)
