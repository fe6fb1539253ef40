"""What is said of numbers that are taken for scores of classes, as nobody said what they are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes

COUNT, CLASSES = 48, 6
SAID = "output 'y' is taken for scores of classes, for which layers have other precisions; if it has numbers, give "
Samples = list[list[np.ndarray]]


@cache
def numbers() -> tuple[bytes, Samples]:
    """Six columns that differ little beside what they have in common; the last is never the largest."""
    rng, builder = np.random.default_rng(2), ModelBuilder()
    x, hidden, y = (builder.tensor(name, (1, size)) for name, size in (("x", 8), ("hidden", 8), ("y", CLASSES)))
    own = rng.normal(size=(CLASSES, 8)) + 3.0 * rng.normal(size=8)
    last = np.where(np.arange(CLASSES) == CLASSES - 1, -12.0, 0.0)
    for source, result, weights, biases in ((x, hidden, np.eye(8), np.zeros(8)), (hidden, y, own, last)):
        given = [builder.tensor("", array.shape, data=array.astype(np.float32)) for array in (weights, biases)]
        builder.operator("FULLY_CONNECTED", [source, *given], [result])
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]
    return bytes(model_bytes(builder.finish([x], [y]))), samples


def _found(**options: Any) -> dict[str, Any]:
    file, samples = numbers()
    return odc_mlir.quantize(file, calibration=samples, **options).verdict


def _is_said(verdict: dict[str, Any]) -> bool:
    return any(text.startswith(SAID) for text in verdict["findings"])


def _tells_of_classes(verdict: dict[str, Any]) -> bool:
    return any("answers 1 of 6 classes for no sample" in text for text in verdict["findings"])


def test_a_guess_that_changed_precisions_is_told() -> None:
    """Though the limit holds in the end."""
    verdict = _found()
    assert verdict["passed"]
    assert verdict["choices"]["precisions"]
    assert _is_said(verdict)


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "int16x8"},  # for which nothing had to change
        {"mixed": "off"},
        {"metric": "top1_decided"},  # who asks for it knows
        {"metric": "sqnr", "limit": 45.0},
        {"max_bytes": 2000},  # whatever limits say, the most accurate is taken
    ],
)
def test_a_guess_that_changed_nothing_is_not(options: dict[str, Any]) -> None:
    assert not _is_said(_found(**options))


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, True), ({"metric": "top1"}, True), ({"metric": "mpeir"}, False), ({"limit": 0.04}, False)],
)
def test_nothing_is_said_of_classes_where_limits_of_numbers_are_given(options: dict[str, Any], told: bool) -> None:
    assert _tells_of_classes(_found(**options)) is told
