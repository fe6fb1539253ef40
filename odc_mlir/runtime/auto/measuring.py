"""Is what was made faster here than what serves? Measured side by side, before it may serve."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.process_limits import one_blas_thread
from odc_mlir.runtime.execution.executor import Executor

# Enough rounds for a median, and no more time than a device has for it: models that take long are seldom close.
_MOST_ROUNDS, _FEWEST_ROUNDS, _SECONDS = 200, 3, 2.0
_RUN_SECONDS = 0.0002  # a round runs each for at least so long, in which the clock counts well


def side_by_side(executors: Sequence[Executor], inputs: Sequence[Array]) -> list[float]:
    """The processor time of one run of each, in microseconds: medians of rounds in which they take turns."""
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
            for found, run, count in zip(taken, runs, counts, strict=True):
                found.append(_timed(run, count))
    return [1e6 * statistics.median(found) for found in taken]


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
