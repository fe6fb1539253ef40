"""Metrics of outputs whose right answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.errors import InputError
from odc_mlir.runtime.reporting.scores import score


def _one_hot(label: int) -> np.ndarray:
    return np.eye(4, dtype=np.float32)[label : label + 1]


def test_top1() -> None:
    assert score([_one_hot(2), _one_hot(1)], np.array([2, 3])) == ("top1_percent", 50.0)


def test_ties_go_to_the_lower_class() -> None:
    assert score([np.zeros((1, 4), np.int8)], np.array([0])) == ("top1_percent", 100.0)


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3, 3), (17,)])
def test_psnr(shape: tuple[int, ...]) -> None:
    expected = np.zeros((2, *shape), np.float32)
    outputs = [np.full((1, *shape), 0.1, np.float32)] * 2
    assert score(outputs, expected) == ("psnr_db", pytest.approx(20.0, abs=1e-5))
    assert score([expected[:1]] * 2, expected) == ("psnr_db", float("inf"))


@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (1, 3)])
def test_few_numbers_between_0_and_1_are_no_picture(shape: tuple[int, ...]) -> None:
    expected = np.zeros((2, *shape), np.float32)
    assert score([np.full((1, *shape), 0.1, np.float32)] * 2, expected) == ("rmse", pytest.approx(0.1))


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="got 1 label for 2 samples"):
        score([_one_hot(0)] * 2, np.array([1]))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match="neither class numbers nor arrays"):
        score([_one_hot(0)], np.array(["cat"]))


@pytest.mark.parametrize("shape", [(5, 3), (1, 5, 3), (5, 1, 3), (15,)])
def test_labels_may_be_flat_or_without_axes_of_one(shape: tuple[int, ...]) -> None:
    values = np.arange(30.0).reshape(2, 5, 3)
    assert score(list(values[:, None]), values.reshape(2, *shape)) == ("rmse", 0.0)
    assert score(list(values.reshape(2, 15)), values.reshape(2, *shape)) == ("rmse", 0.0)


def test_labels_with_axes_in_another_order_do_not_fit() -> None:
    values = np.arange(30.0).reshape(2, 5, 3)
    with pytest.raises(InputError, match=r"float64 \[3, 5\] for each sample, are neither .* output, \[1, 5, 3\]"):
        score(list(values[:, None]), values.swapaxes(1, 2))
    classes = np.arange(30).reshape(2, 3, 5) % 4
    maps = list(np.eye(4, dtype=np.float32)[classes][:, None])
    for fitting in (classes, classes.reshape(2, 15), classes[:, None], classes[..., None]):
        assert score(maps, fitting) == ("top1_percent", 100.0)
    with pytest.raises(InputError, match=r"int64 \[5, 3\] for each sample, are neither"):
        score(maps, classes.swapaxes(1, 2))


@pytest.mark.parametrize("kind", ["logits", "shares", "regression"])
@pytest.mark.parametrize("form", [np.int64, np.float32, bool, "signs"])
@pytest.mark.parametrize("width", [1, 5])
def test_yes_and_no_are_right_or_wrong(kind: str, form: type | str, width: int) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(40, width))
    labels = logits > 0.0
    labels[:2, 0] ^= True  # two are wrong
    values = {"logits": 9.0 * logits, "shares": 1 / (1 + np.exp(-logits)), "regression": 0.5 + logits / 2}[kind]
    given = labels * 2 - 1 if isinstance(form, str) else labels.astype(form)
    metric, right = score(list(values[:, None].astype(np.float32)), given)
    assert (metric, right) == ("top1_percent", pytest.approx(100.0 - 200.0 / labels.size))


def test_two_values_that_signs_do_not_predict_are_numbers() -> None:
    rng = np.random.default_rng(7)
    outputs = list(rng.normal(size=(40, 1, 1)).astype(np.float32))
    for labels in (rng.permutation(np.arange(40) % 2), np.arange(40) % 2 == 1, np.array([0, 2] * 20)):
        assert score(outputs, labels)[0] == "rmse"
