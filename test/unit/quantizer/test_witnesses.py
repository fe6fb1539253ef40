"""Rare values that only samples which chose ranges show: ranges that cut them off do not pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.calibration.copies import stratified
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

COUNT = 64
_HELD = stratified(16, COUNT)  # of so many
Samples = list[list[np.ndarray[Any, Any]]]


def rare(events: int, *, is_alarm: bool) -> tuple[bytes, Samples, list[int]]:
    """A small value that is 100 for so many samples, none of which is held back, or an alarm that these set off.

    A file, samples and the events' places.
    """
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    x, hidden, y = builder.tensor("x", (1, 8)), builder.tensor("hidden", (1, 1)), builder.tensor("y", (1, 1))
    weights = builder.tensor("w", (1, 8), data=np.float32([[100, *[0.3] * 7]]))
    bias = builder.tensor("b", (1,), data=np.float32([-5 if is_alarm else 0]))
    builder.operator("FULLY_CONNECTED", [x, weights, bias], [hidden])
    if is_alarm:
        builder.operator("LOGISTIC", [hidden], [y])
    values = rng.normal(size=(COUNT, 1, 8)).astype(np.float32)
    values[:, 0, 0] *= 1e-3
    places = [place for place in range(COUNT) if place not in _HELD][5 : 5 + events]
    values[places, 0, 0] = 1.0
    return write_model(builder.finish([x], [y if is_alarm else hidden])), [[value] for value in values], places


@pytest.mark.parametrize("is_alarm", [False, True])
@pytest.mark.parametrize("events", [1, 2])
def test_rare_events_are_kept(events: int, is_alarm: bool) -> None:
    file, samples, places = rare(events, is_alarm=is_alarm)
    made = odc_mlir.quantize(file, calibration=samples)
    assert made.passed
    executor = HostExecutor(build_graph(read_model(made.to_circle())))
    least = 0.9 if is_alarm else 90.0
    assert all(float(executor.run(samples[place])[0].item()) > least for place in places)


def test_ranges_that_lose_them_are_refused() -> None:
    file, samples, _ = rare(2, is_alarm=True)
    options = {"ranges": "percentile", "range_options": {"high": 95.0}, "output_room": "off", "mixed": "off"}
    made = odc_mlir.quantize(file, calibration=samples, **options)
    assert not made.passed
    assert any("output 'y' is 0" in text and "--ranges minmax" in text for text in made.verdict["problems"])
