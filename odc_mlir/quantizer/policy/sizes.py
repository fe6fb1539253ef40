"""When columns of a tensor differ so much in size that one scale for all of them loses some."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_RATIO = 16.0  # of sizes that differ: four of the bits of codes


def sizes_differ(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether one scale for columns with these limits is too coarse for one of them that varies."""
    if not (np.isfinite(low) & np.isfinite(high)).all():
        return False
    sizes, whole = high - low, max(float(high.max()), 0.0) - min(float(low.min()), 0.0)
    varied = sizes[sizes > 0]
    return bool(len(varied)) and whole > LEAST_RATIO * float(varied.min())
