"""Whether recorded inputs show enough of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.runtime.auto.build import CoverageError, check_channels, check_samples
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray[Any, Any]


def samples(*values: float) -> list[list[Array]]:
    return [[np.array([[value, 1.0]], np.float32)] for value in values]


def test_inputs_that_differ() -> None:
    check_samples(samples(1, 2), 2)
    check_samples(samples(*range(5), 0, 0, 0, 0, 0), 10)  # half of them
    check_samples(samples(*range(3), *range(3), *range(3), *range(3)), 6)  # several processes, fed the same
    check_samples(samples(7), 10)  # one cannot differ
    check_samples([], 10)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((2, 2), "only 1 of 2 recorded inputs differ"),
        ((0.0, -0.0), "only 1 of 2 recorded inputs differ"),
        ((*range(4), 0, 0, 0, 0, 0, 0), "only 4 of 10 recorded inputs differ"),
        ((0, 1, 2, *(1e-5 * step for step in range(1, 8))), "only 3 of 10 recorded inputs differ"),  # but for noise
    ],
)
def test_inputs_that_are_alike(values: Sequence[float], message: str) -> None:
    with pytest.raises(CoverageError, match=message):
        check_samples(samples(*values), len(values))


def test_inputs_without_any_values() -> None:
    still = [[np.full((1, 2), 3.0, np.float32), np.array([index])] for index in range(4)]
    with pytest.raises(CoverageError, match="all values of all recorded inputs are 3"):
        check_samples(still, len(still))
    still[2][0][0, 1] = 4.0
    check_samples(still, len(still))
    check_samples([[np.array([index])] for index in range(4)], 4)  # integers alone: codes of words, say


def biased(channels: int = 8) -> Executor:
    """x + 1, 2, 3 ... by channel."""
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, channels)) for name in "xy")
    bias = builder.tensor("bias", (channels,), data=np.arange(1, channels + 1, dtype=np.float32))
    builder.operator("ADD", [x, bias], [y])
    return HostExecutor(build_graph(builder.finish([x], [y])))


def moving(executor: Executor, channels: int, by: float) -> None:
    """Check samples in which so many channels move by that share of their size."""
    x = np.zeros((1, 8), np.float32)
    other = x.copy()
    other[0, :channels] = by * np.arange(1, channels + 1)
    check_channels(executor, [[x], [other]])


def test_channels_that_move() -> None:
    executor = biased()
    moving(executor, 6, 0.12)  # three quarters
    with pytest.raises(CoverageError, match="only 62% of the channels"):
        moving(executor, 5, 0.12)
    with pytest.raises(CoverageError, match="only 0% of the channels"):
        moving(executor, 8, 0.1)  # of what it is afterwards, a little less than a tenth
    check_channels(executor, [[np.zeros((1, 8), np.float32)]])


@pytest.mark.parametrize("period", [2, 3, 4, 5, 8])
def test_kinds_that_take_turns(period: int) -> None:
    """None of them may be passed over because of its place."""
    executor = biased()
    still, other = np.zeros((1, 8), np.float32), np.arange(1, 9, dtype=np.float32)[None]
    check_channels(executor, [[other if index % period == 0 else still] for index in range(16 * period)])


def test_a_model_without_float_channels() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4), "int32"), builder.tensor("y", (1, 4), "int32")
    builder.operator("ABS", [x], [y])
    check_channels(HostExecutor(build_graph(builder.finish([x], [y]))), [[np.ones((1, 4), np.int32)]] * 3)
