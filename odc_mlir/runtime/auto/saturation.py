"""Values beyond what codes can hold: inputs before they become codes, and codes at the ends of their range.

Both are exact and cheap. Which tensors have codes at an end by nature, as what a ReLU cuts off, is known from the
samples that a quantised model was judged on: :func:`normal_shares`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.calibration.sampling import stratified
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph

# Inputs are chosen to be cut off a little, where that makes codes finer; by more than this share of the range they are
# not what the ranges were made from.
_MARGIN = 0.1
# Tensors whose codes stand at the ends more often than is normal, by this share, have lost what they say.
EXCESS_SHARE = 0.05
_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class InputRange:
    """What codes can hold of the input at ``place``, and a margin around it."""

    place: int
    name: str
    low: float
    high: float

    def outside(self, value: Array) -> int:
        """How many elements are outside, or no numbers; a value of codes themselves has none."""
        if not value.size or value.dtype.kind != "f":
            return 0
        # NaN fails both comparisons.
        if np.minimum.reduce(value, axis=None) >= self.low and np.maximum.reduce(value, axis=None) <= self.high:
            return 0
        return value.size - int(np.count_nonzero((value >= self.low) & (value <= self.high)))


def input_ranges(graph: Graph) -> tuple[InputRange, ...]:
    """Of the inputs whose values become codes, and nothing else, before they are used."""
    found = []
    for place, index in enumerate(graph.inputs):
        for info in _codes_of(graph, index):
            low, high = _reals(info)
            margin = _MARGIN * (high - low)
            found.append(InputRange(place, info.name, low - margin, high + margin))
    return tuple(found)


def _codes_of(graph: Graph, index: int) -> Iterator[TensorInfo]:
    """What holds the codes of the input ``index``: itself, or what all operators that read it make of it."""
    if _is_coded(graph.tensors[index]):
        yield graph.tensors[index]
        return
    readers = [item for item in graph.nodes if index in item.inputs]
    if all(item.node.spec.name == "QUANTIZE" for item in readers):
        yield from (info for item in readers if _is_coded(info := graph.tensors[item.outputs[0]]))


def _is_coded(info: TensorInfo) -> bool:
    return info.info.is_integer and info.quant is not None and info.quant.per_tensor and info.info.bits in (8, 16)


def _reals(info: TensorInfo) -> tuple[float, float]:
    """The real values of the lowest and the highest code."""
    quant, (low, high) = info.quant, info.info.range
    if quant is None:
        raise TypeError(f"{info.name!r} is not quantised")
    return quant.scale * (low - quant.zero_point), quant.scale * (high - quant.zero_point)


class EndCounter:
    """Counts codes at the lowest and the highest end; given to ``executor.run`` of ``graph`` as ``watch``."""

    def __init__(self, graph: Graph) -> None:
        self._ends = {
            index: (info.name, *info.info.range)
            for item in graph.nodes
            if not item.node.spec.quant.table  # a softmax fills its range
            for index in item.outputs
            if _is_coded(info := graph.tensors[index])
        }
        self._counts: dict[str, list[int]] = {}

    def __call__(self, index: int, value: Array) -> None:
        ends = self._ends.get(index)
        if ends is not None and value.size:
            name, low, high = ends
            counts = self._counts.setdefault(name, [0, 0, 0])
            counts[0] += int(np.count_nonzero(value == low))
            counts[1] += int(np.count_nonzero(value == high))
            counts[2] += value.size

    def take(self) -> dict[str, tuple[float, float]]:
        """The shares at both ends by tensor name, of what was seen since the last call."""
        counts, self._counts = self._counts, {}
        return {name: (low / size, high / size) for name, (low, high, size) in counts.items()}


def excess(shares: Mapping[str, Sequence[float]], normal: Mapping[str, Sequence[float]]) -> tuple[str, float] | None:
    """The tensor that has most more codes at an end than is normal, and the share; None where all are as usual."""
    found = [
        (max(ours - theirs for ours, theirs in zip(share, normal[name], strict=True)), name)
        for name, share in shares.items()
        if name in normal
    ]
    most, name = max(found, default=(0.0, ""))
    return (name, most) if most > EXCESS_SHARE else None


def normal_shares(executor: Executor, samples: Sequence[Sequence[Any]]) -> dict[str, list[float]]:
    """The shares of codes at both ends by tensor name, over some of ``samples``, runs of a quantised model."""
    counter = EndCounter(executor.graph)
    for sample in spread(samples, _SAMPLES):
        executor.run(sample, watch=counter)
    return {name: [round(share, 4) for share in shares] for name, shares in counter.take().items()}


def spread(samples: Sequence[Any], most: int) -> Sequence[Any]:
    """At most ``most`` of ``samples``, from all over."""
    return [samples[place] for place in stratified(min(most, len(samples)), len(samples))]
