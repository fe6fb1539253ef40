"""Inputs that no sample varies, as masks that calibration never uses: nobody knows what a model does with others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.batches import BatchRunner
from odc_mlir.quantizer.columns import alike
from odc_mlir.runtime.execution.graph import Graph

# By what part of its largest value an output has to change for the model to depend on an input.
_PLAINLY = 1e-3


def same_inputs(graph: Graph, samples: Sequence[Sequence[Array]]) -> list[str]:
    """The names of inputs that are the same in all of several ``samples``, and on which outputs plainly depend.

    That is tried: elements of them become another number, every second one as masks have it, with the first sample.
    Inputs for which nothing else can be run, as shapes are, count as none.
    """
    same = [place for place, arrays in enumerate(zip(*samples, strict=True)) if alike(arrays)]
    if not same:
        return []
    runner, names = BatchRunner(graph), [graph.tensors[index].name for index in graph.inputs]
    (before,) = runner.run(samples[:1])
    return [names[place] for place in same if _decides(runner, samples[0], place, before)]


def _decides(runner: BatchRunner, sample: Sequence[Array], place: int, before: Sequence[Array]) -> bool:
    for start in (0, 1):
        other = list(sample)
        other[place] = _changed(sample[place], start)
        try:
            (found,) = runner.run([other])
        except OdcError:
            return False
        if any(_differs(a, b) for a, b in zip(before, found, strict=True)):
            return True
    return False


def _changed(array: Array, start: int) -> Array:
    """``array`` with every second element, from ``start`` on, 0 where it was not, else 1."""
    found = np.array(array).reshape(-1)
    if found.dtype.kind in "biuf":
        found[start::2] = (found[start::2] == 0).astype(found.dtype)
    return found.reshape(array.shape)


def _differs(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f" or a.shape != b.shape:
        return not np.array_equal(a, b)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    change = np.abs(a[finite].astype(np.float64) - b[finite])
    return bool(change.max(initial=0.0) > _PLAINLY * np.abs(a[finite]).max(initial=0.0))
