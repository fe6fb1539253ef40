"""Is what was made faster here than what serves? Measured side by side, before it may serve."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.process_limits import one_blas_thread
from odc_mlir.runtime.execution.executor import Executor

# Enough rounds to tell a gain from chance, which takes six of six; and no more time than a device has for it.
_MOST_ROUNDS, _FEWEST_ROUNDS, _SECONDS = 200, 6, 2.0
_RUN_SECONDS = 0.0002  # a round runs each for at least so long, in which the clock counts well


LEAST_GAIN = 0.02
"""The least part of the time to be saved: for less, nobody wants other answers than the model's."""

_DOUBTS = 1.96  # standard errors


@dataclass(frozen=True, slots=True)
class Gain:
    """What a run takes ``before`` and ``after``, in microseconds.

    ``least``: the part of the time that is saved at least, in all likelihood; negative where more may be taken.
    """

    before: float
    after: float
    least: float

    @property
    def is_sure(self) -> bool:
        """Whether it is more than chance makes of so many rounds, and enough to be of use."""
        return self.least > 0 and self.after <= self.before * (1 - LEAST_GAIN)


def gain(before: Sequence[float], after: Sequence[float]) -> Gain:
    """What was gained, by the times that both took in the same rounds.

    The lower end of the interval of the median of what single rounds gain, by ranks: of times some are far too long,
    and whatever slows a round down slows down both.
    """
    saved = sorted(1 - later / max(earlier, 1e-12) for earlier, later in zip(before, after, strict=True))
    place = max(0, math.floor((len(saved) - _DOUBTS * math.sqrt(len(saved))) / 2))
    return Gain(statistics.median(before), statistics.median(after), saved[place])


def side_by_side(executors: Sequence[Executor], inputs: Sequence[Array]) -> list[list[float]]:
    """The processor time of one run of each in every round, in microseconds; they take turns to be the first."""
    runs = [partial(executor.run, inputs) for executor in executors]
    with one_blas_thread():  # only this thread's time is counted
        for run in runs:  # what is prepared once is no part of it
            run()
        counts = [max(1, int(_RUN_SECONDS / max(1e-7, _timed(run, 1)))) for run in runs]
        taken: list[list[float]] = [[] for _ in runs]
        deadline = time.monotonic() + _SECONDS
        for number in range(_MOST_ROUNDS):
            if number >= _FEWEST_ROUNDS and time.monotonic() > deadline:
                break
            for place in range(len(runs))[:: -1 if number % 2 else 1]:
                taken[place].append(1e6 * _timed(runs[place], counts[place]))
    return taken


def _timed(run: Callable[[], object], count: int) -> float:
    """By the clock of this thread: that of a process with a limit of processor time only counts whole ticks."""
    start = time.thread_time()
    for _ in range(count):
        run()
    return (time.thread_time() - start) / count


def some_inputs(executor: Executor, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Inputs where none are recorded: zeros."""
    infos = executor.graph.input_infos()
    return [np.zeros(shape, numpy_dtype(info.dtype)) for info, shape in zip(infos, shapes, strict=True)]
