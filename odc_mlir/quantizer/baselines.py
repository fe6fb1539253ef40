"""Outputs that say nothing of inputs: what such ones keep is no limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.measurement import signal_and_noise

# The part of an output's signal that its variation must exceed: beyond what 32-bit floats round away.
_ROUNDED = 1e-12


def constant_outputs(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[list[Array]]:
    """For each output the same value for all samples: zeros and, of several samples, the mean of what ``every`` has.

    Where an output is no number, or of ``places``, the most frequent value stands in for the mean. None where the shape
    of an output depends on the sample.
    """
    if any(array.shape != arrays[0].shape for arrays in every for array in arrays):
        return []
    found = [[np.zeros_like(arrays[0]) for arrays in every]]
    if len(every) and len(every[0]) > 1:
        found.append([_most_frequent(a) if place in places else _mean(a) for place, a in enumerate(every)])
    return found


def variation(every: Sequence[Sequence[Array]], places: Sequence[int] = ()) -> list[NDArray[np.float64]]:
    """What remains for each output and sample of the best that is the same for all of them, float64 [samples].

    That is the squares of distances from the mean, or how many of the ``places`` are not the most frequent ones. Zeros
    for an output that does not vary but for rounding, and where its shape depends on the sample.
    """
    none = [np.zeros(len(arrays)) for arrays in every]
    means = constant_outputs(every, places)[1:]
    if not means:
        return none
    found = []
    for place, (arrays, mean) in enumerate(zip(every, means[0], strict=True)):
        signal, noise = np.array([signal_and_noise(array, mean, place in places) for array in arrays]).T
        found.append(noise if noise.sum() > _ROUNDED * signal.sum() else none[place])
    return found


def _mean(arrays: Sequence[Array]) -> Array:
    """The mean of finite values, 0 where there are none."""
    if arrays[0].dtype.kind not in "iuf":
        return _most_frequent(arrays)
    total, count = np.zeros(arrays[0].shape), np.zeros(arrays[0].shape, np.int64)
    for array in arrays:
        finite = np.isfinite(array)
        total += np.where(finite, array, 0)
        count += finite
    found = total / np.maximum(count, 1)
    return (np.rint(found) if arrays[0].dtype.kind in "iu" else found).astype(arrays[0].dtype)


def _most_frequent(arrays: Sequence[Array]) -> Array:
    """Of each element the value that most arrays have."""
    stacked = np.stack([np.ravel(array) for array in arrays])
    found = [values[np.argmax(counts)] for values, counts in (np.unique(c, return_counts=True) for c in stacked.T)]
    return np.array(found, dtype=arrays[0].dtype).reshape(arrays[0].shape)
