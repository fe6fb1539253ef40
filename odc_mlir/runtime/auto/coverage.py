"""Whether what was recorded shows enough of a model to judge a quantised one by.

A verdict says how close two models are on the samples there are. Where those are all alike, as frames of a camera whose
lid is on, anything agrees with anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.calibration.copies import independent
from odc_mlir.calibration.repeats import distinct
from odc_mlir.errors import AccuracyError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.saturation import spread
from odc_mlir.runtime.execution.executor import Executor

# A channel has moved when its values lie this far apart, as a share of the largest. Frames of one still scene leave
# most channels where the biases put them.
_MOVED = 0.1
# Trained networks have channels that never move. Of ten pictures of different things the models that we measured had
# less than a twentieth; of ten dark ones a third to a half.
_FEWEST_MOVED = 0.75
_SAMPLES = 16


class CoverageError(AccuracyError):
    """The records do not show enough."""


def check_samples(samples: Sequence[Sequence[Array]], wanted: int) -> None:
    """Raise CoverageError when raw inputs are alike, so that more of them must be waited for.

    Half of those that are ``wanted`` must differ, by more than noise. Several processes that are fed the same give
    more, all alike, and show what one of them would.
    """
    if len(samples) < 2:
        return
    differing = len(independent([samples[place] for place in distinct(samples)]))
    if differing < max(2, min(len(samples), wanted) // 2):
        raise CoverageError(f"only {differing} of {len(samples)} recorded inputs differ", stage="check")
    floats = [index for index, array in enumerate(samples[0]) if array.dtype.kind == "f" and array.size]
    if floats and not any(_moves([sample[index] for sample in samples]) for index in floats):
        value = float(samples[0][floats[0]].flat[0])
        raise CoverageError(f"all values of all recorded inputs are {value:zg}", stage="check")


def check_channels(executor: Executor, samples: Sequence[Sequence[Array]]) -> None:
    """Raise CoverageError when most channels of ``executor``, the float model, hardly move over ``samples``."""
    if len(samples) < 2:
        return
    ranges = _ChannelRanges(executor)
    for sample in spread(samples, _SAMPLES):
        executor.run(sample, watch=ranges)
    share = ranges.moved_share()
    if share < _FEWEST_MOVED:
        text = f"only {share:.0%} of the channels have moved by a tenth of their size on the recorded inputs"
        raise CoverageError(f"{text}, which may all be of one kind", stage="check")


class _ChannelRanges:
    """The range of every channel of the float tensors that a graph computes."""

    def __init__(self, executor: Executor) -> None:
        graph = executor.graph
        self._floats = {
            index for item in graph.nodes for index in item.outputs if graph.tensors[index].info.kind == "float"
        }
        self._ranges: dict[int, tuple[Array, Array]] = {}

    def __call__(self, index: int, value: Array) -> None:
        if index not in self._floats or value.ndim < 2 or not value.size:
            return
        channels = value.reshape(-1, value.shape[-1])
        low, high = channels.min(axis=0), channels.max(axis=0)
        if index in self._ranges:
            before = self._ranges[index]
            low, high = np.fmin(low, before[0]), np.fmax(high, before[1])
        self._ranges[index] = low, high

    def moved_share(self) -> float:
        """The share of channels that moved, the mean over tensors; 1 where there are none."""
        shares = []
        for low, high in self._ranges.values():
            with np.errstate(invalid="ignore", over="ignore"):
                moved = high - low > _MOVED * np.maximum(np.abs(low), np.abs(high))
            shares.append(float(np.mean(moved)))
        return sum(shares) / len(shares) if shares else 1.0


def _moves(arrays: Sequence[Array]) -> bool:
    first = arrays[0].flat[0]
    return any(bool(np.any(array != first)) for array in arrays)
