"""Times of what was made beside what serves, as the background process takes them."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from odc_mlir.runtime.auto.build import LEAST_GAIN, gain, side_by_side
from odc_mlir.runtime.execution.plan import PlanExecutor

# Under a limit of processor time the system counts a process's in ticks of milliseconds, in which nothing is seen here.
UNDER_A_LIMIT = """
import resource
from odc_mlir.runtime.auto.build import gain, side_by_side

class Busy:
    def __init__(self, times):
        self.times = times

    def run(self, inputs):
        for _ in range(self.times):
            pass

resource.setrlimit(resource.RLIMIT_CPU, (600, resource.getrlimit(resource.RLIMIT_CPU)[1]))
times = side_by_side([Busy(100), Busy(100000)], [])
found = gain(*reversed(times))
print(0 < found.after < found.before, found.is_sure)
"""


def test_short_runs_are_measured_under_a_limit_of_processor_time() -> None:
    done = subprocess.run([sys.executable, "-c", UNDER_A_LIMIT], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


@pytest.mark.parametrize("rounds", [6, 20, 200])
def test_noise_is_no_gain(rounds: int) -> None:
    """Times of one thing, taken twice, with a few that are far too long: seldom a gain, by the rule's own share."""
    random = np.random.default_rng(rounds)
    accepted = 0
    for _ in range(400):
        pair = 10 * (1 + 0.05 * random.standard_normal((2, rounds)))
        pair[random.random(pair.shape) < 0.02] *= 5
        accepted += gain(*pair.tolist()).is_sure
    assert accepted <= 0.04 * 400


@pytest.mark.parametrize(("saved", "is_sure"), [(0.5, True), (0.04, True), (LEAST_GAIN / 2, False), (0.0, False)])
def test_a_gain_is_seen_whatever_slows_down_rounds(saved: float, is_sure: bool) -> None:
    random = np.random.default_rng(1)
    load = 1 + 3 * random.random(100)  # of the machine, from round to round
    before = 10 * load
    after = 10 * (1 - saved) * load * (1 + 0.01 * random.standard_normal(100))
    found = gain(before.tolist(), after.tolist())
    assert found.is_sure is is_sure
    assert found.least <= saved


def test_a_single_slow_round_of_few_is_doubt() -> None:
    assert gain([10.0] * 6, [9.0] * 6).is_sure
    assert not gain([10.0] * 6, [9.0] * 5 + [11.0]).is_sure


def test_who_runs_first_changes_from_round_to_round() -> None:
    ran: list[int] = []

    class Runs:
        def __init__(self, number: int) -> None:
            self.number = number

        def run(self, inputs: object) -> None:
            ran.append(self.number)
            sum(range(100000))

    one, two = side_by_side([Runs(1), Runs(2)], [])  # type: ignore[list-item]
    order = [number for before, number in zip([0, *ran], ran, strict=False) if before != number]
    assert len(one) == len(two) >= 6
    assert len(order) < len(ran) / 1.2, "the last of a round is the first of the next"


@pytest.mark.parametrize("is_driven", [True, False])
def test_time_that_a_driver_waits_counts(is_driven: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Program:
        def step(self, reads: object, writes: object) -> None: ...
        def direct(self, reads: object, writes: object) -> None: ...
        def run(self, inputs: object) -> None: ...

        inputs = outputs = ()

    executor = PlanExecutor.__new__(PlanExecutor)
    monkeypatch.setattr(PlanExecutor, "run", lambda *_: time.sleep(0.003))
    unit = SimpleNamespace(program=SimpleNamespace() if is_driven else Program())
    monkeypatch.setattr(PlanExecutor, "segments", (unit,))
    (taken,) = side_by_side([executor], [])
    assert (min(taken) >= 3000) is is_driven
