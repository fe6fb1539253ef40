"""Selection of boxes: TFLite_Detection_PostProcess and non-maximum suppression, hard and soft.

TFLite_Detection_PostProcess keeps the order of equal scores. It drops a box whose overlap with a kept box exceeds the
threshold. The overlap is the intersection over union, or 0 if a box has no area.

In NON_MAX_SUPPRESSION_V4 and V5, equal scores have the order of the binary heap in TensorFlow Lite's reference kernel.
The heap removes its top bottom-up: the hole moves down to a leaf, then the last element fills the hole and rises. A
selected box returns to the heap and suppresses itself later. A box without area overlaps nothing, not even itself. It
is therefore selected repeatedly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]
Float = np.float32

_HALF = np.float32(0.5)


def decode_boxes(codes: Floats, anchors: Floats, scales: Floats) -> Floats:
    """Return the corners ``[n, (y_min, x_min, y_max, x_max)]`` of boxes given as offsets from anchors.

    ``codes``, ``anchors`` and ``scales`` are in the order (y, x, h, w).
    """
    centre = codes[:, :2] / scales[:2] * anchors[:, 2:] + anchors[:, :2]
    half = _HALF * np.exp(codes[:, 2:4] / scales[2:]) * anchors[:, 2:]
    return np.concatenate([centre - half, centre + half], axis=1).astype(np.float32)


def descending(values: Array) -> Array:
    """Return the indices that sort ``values`` in descending order. The order of equal values stays."""
    return np.argsort(-values, kind="stable")


def suppress(boxes: Floats, scores: Floats, most: int, least_score: float, overlap: float) -> Array:
    """Return indices of at most ``most`` boxes by descending score, without overlapping boxes and low scores."""
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


def _overlaps(boxes: Floats, areas: Floats, one: int, others: Array | list[int]) -> Floats:
    low = np.maximum(boxes[one, :2], boxes[others, :2])
    high = np.minimum(boxes[one, 2:], boxes[others, 2:])
    common = np.prod(np.maximum(high - low, np.float32(0)), axis=1, dtype=np.float32)
    union = areas[one] + areas[others] - common
    real = (areas[others] > 0) & bool(areas[one] > 0)
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=real))


@dataclass(frozen=True, slots=True)
class _CandidateBox:
    """A candidate box. ``compared`` counts the selected boxes that have already lowered its score."""

    index: int
    score: np.float32
    compared: int


class _Heap:
    """Heap of candidates, the best score on top. Its moves determine the order of equal scores."""

    def __init__(self) -> None:
        self._items: list[_CandidateBox] = []

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: _CandidateBox) -> None:
        self._items.append(item)
        self._rise(len(self._items) - 1, item)

    def pop(self) -> _CandidateBox:
        items = self._items
        best, last = items[0], items.pop()
        if not items:
            return best
        hole, count = 0, len(items)
        while (right := 2 * hole + 2) < count:
            child = right - 1 if items[right].score < items[right - 1].score else right
            items[hole], hole = items[child], child
        if right == count:  # the last parent has a left child only
            items[hole], hole = items[right - 1], right - 1
        self._rise(hole, last)
        return best

    def _rise(self, hole: int, item: _CandidateBox) -> None:
        items = self._items
        while hole > 0 and items[parent := (hole - 1) // 2].score < item.score:
            items[hole], hole = items[parent], parent
        items[hole] = item


def select_boxes(
    boxes: NDArray[Any],
    scores: NDArray[Any],
    most: int,
    overlap_threshold: float,
    score_threshold: float,
    sigma: float = 0.0,
) -> tuple[list[int], list[np.float32]]:
    """Return indices and final scores of at most ``most`` ``boxes [n, 4]`` (two corners, y before x).

    A box that overlaps a selected box by at least ``overlap_threshold`` is dropped. If ``sigma`` is positive, smaller
    overlaps multiply the score by ``exp(-overlap^2 / (2 sigma))``. The new score may be below ``score_threshold``.
    """
    corners = boxes.astype(np.float32).reshape(-1, 2, 2)
    ordered = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    areas = (ordered[:, 2] - ordered[:, 0]) * (ordered[:, 3] - ordered[:, 1])
    least, limit = Float(score_threshold), Float(overlap_threshold)
    scale = Float(-0.5) / Float(sigma) if sigma > 0 else Float(0)
    heap = _Heap()
    for index in np.flatnonzero(scores > least):
        heap.push(_CandidateBox(int(index), Float(scores[index]), 0))
    wanted = min(len(heap), most)
    selected: list[int] = []
    finals: list[np.float32] = []
    while len(selected) < wanted and len(heap):
        candidate = heap.pop()
        score, dropped = candidate.score, False
        for earlier in reversed(selected[candidate.compared :]):
            shared = _overlaps(ordered, areas, candidate.index, [earlier])[0]
            if shared >= limit:
                dropped = True
                break
            if sigma > 0:
                score = Float(score * np.exp(scale * shared * shared))
            if score <= least:
                break
        if dropped:
            continue
        again = _CandidateBox(candidate.index, score, len(selected))
        if score == candidate.score:
            selected.append(candidate.index)
            finals.append(score)
        if score > least:
            heap.push(again)
    return selected, finals
