"""Detection of the custom operator TFLite_Detection_PostProcess: decoding of boxes and greedy suppression.

Scores are in descending order; equal scores keep their order. A box is dropped if it overlaps a kept one by more than
the threshold (intersection over union; 0 if a box has no area).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]

_HALF = np.float32(0.5)


def decode_boxes(codes: Floats, anchors: Floats, scales: Floats) -> Floats:
    """Return corners ``[n, (y_min, x_min, y_max, x_max)]`` of boxes given as offsets from anchors.

    ``codes``, ``anchors`` and ``scales`` are in the order (y, x, h, w).
    """
    centre = codes[:, :2] / scales[:2] * anchors[:, 2:] + anchors[:, :2]
    half = _HALF * np.exp(codes[:, 2:4] / scales[2:]) * anchors[:, 2:]
    return np.concatenate([centre - half, centre + half], axis=1).astype(np.float32)


def descending(values: Array) -> Array:
    """Return the indices that sort ``values`` in descending order; equal values keep their order."""
    return np.argsort(-values, kind="stable")


def suppress(boxes: Floats, scores: Floats, most: int, least_score: float, overlap: float) -> Array:
    """Return indices of at most ``most`` boxes by descending score, without overlaps and low scores."""
    candidates = np.flatnonzero(scores >= np.float32(least_score))
    candidates = candidates[descending(scores[candidates])]
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while candidates.size and len(kept) < most:
        best, candidates = int(candidates[0]), candidates[1:]
        kept.append(best)
        shared = _overlaps(boxes, areas, best, candidates)
        candidates = candidates[~(shared > np.float32(overlap))]
    return np.array(kept, np.int64)


def _overlaps(boxes: Floats, areas: Floats, one: int, others: Array) -> Floats:
    """Return the intersection over union of one box with others."""
    low = np.maximum(boxes[one, :2], boxes[others, :2])
    high = np.minimum(boxes[one, 2:], boxes[others, 2:])
    common = np.prod(np.maximum(high - low, np.float32(0)), axis=1, dtype=np.float32)
    union = areas[one] + areas[others] - common
    real = (areas[others] > 0) & bool(areas[one] > 0)
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=real))
