"""Non-maximum suppression against a greedy search without a heap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from odc_mlir.numerics.detection import select_boxes

BOX = st.lists(st.integers(0, 8), min_size=4, max_size=4)


def shared(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Intersection over union of two boxes given by any two opposite corners."""
    low, high = np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:])
    other_low, other_high = np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])
    common = float(np.prod(np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0)))
    area, other = float(np.prod(high - low)), float(np.prod(other_high - other_low))
    return common / (area + other - common) if area and other else 0.0


@given(st.lists(BOX, min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(0, 8))
def test_different_scores_are_taken_from_the_best_on(boxes: list[list[int]], random: Any, most: int) -> None:
    corners = np.array(boxes, np.float32)
    corners = corners[[bool(np.prod(c[:2] - c[2:])) for c in corners]]
    scores = np.array(random.sample(range(1, 100), len(corners)), np.float32)
    places, finals = select_boxes(corners, scores, most, 0.4, 20)
    expected: list[int] = []
    for index in np.argsort(-scores):
        if scores[index] > 20 and all(shared(corners[index], corners[j]) < 0.4 for j in expected):
            expected.append(int(index))
    assert places == expected[:most]
    assert finals == [scores[i] for i in places]


def test_equal_scores_come_in_the_heap_s_order() -> None:
    apart = np.array([[2 * i, 0, 2 * i + 1, 1] for i in range(7)], np.float32)
    places, _ = select_boxes(apart, np.ones(7, np.float32), 7, 0.5, 0)
    assert places == [0, 2, 5, 6, 4, 1, 3]  # as LiteRT gives them


def test_a_box_without_area_is_selected_again_and_again() -> None:
    boxes = np.array([[0, 0, 0, 1], [1, 1, 2, 2]], np.float32)
    assert select_boxes(boxes, np.array([0.5, 0.4], np.float32), 3, 0.5, 0.1)[0] == [0, 0]


def test_overlaps_lower_scores() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.5]], np.float32)
    scores = np.array([0.9, 0.8], np.float32)
    places, finals = select_boxes(boxes, scores, 2, 0.9, 0.1, sigma=0.5)
    assert places == [0, 1]
    assert finals[1] == pytest.approx(0.8 * np.exp(-0.25))
    assert select_boxes(boxes, scores, 2, 0.9, 0.7, sigma=0.5)[0] == [0]


def test_no_box() -> None:
    assert select_boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), 3, 0.5, 0.1) == ([], [])
