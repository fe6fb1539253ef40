"""Metrics of outputs whose right answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.errors import InputError
from odc_mlir.runtime.reporting.scoring import score


def _one_hot(label: int) -> np.ndarray:
    return np.eye(4, dtype=np.float32)[label : label + 1]


def test_top1() -> None:
    assert score([_one_hot(2), _one_hot(1)], np.array([2, 3])) == ("top1_percent", 50.0)


def test_ties_go_to_the_lower_class() -> None:
    assert score([np.zeros((1, 4), np.int8)], np.array([0])) == ("top1_percent", 100.0)


def test_psnr() -> None:
    expected = np.zeros((2, 3), np.float32)
    outputs = [np.full((1, 3), 0.1, np.float32)] * 2
    assert score(outputs, expected) == ("psnr_db", pytest.approx(20.0, abs=1e-5))
    assert score([expected[:1]] * 2, expected) == ("psnr_db", float("inf"))


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="there are 1 labels for 2 samples"):
        score([_one_hot(0)] * 2, np.array([1]))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.array(["cat"]))
