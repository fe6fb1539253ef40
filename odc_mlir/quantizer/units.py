"""Inputs in another unit than the model was trained for, where something that is known contradicts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.labels import FLOAT_MODEL
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.scoring import by_chance, scores

_LEAST_RIGHT_PERCENT, _MUCH_BETTER = 50.0, 2.0
_LEAST_LABELS = 10
_LARGEST_PIXEL = 255.0
_FAR = 10.0  # between sizes of inputs in one unit

Samples = Sequence[Sequence[Array]]


def check_unit(
    graph: Graph,
    samples: Samples,
    answers: Sequence[Array],
    labels: Array,
    answer: Callable[[Samples], Sequence[Array]],
) -> None:
    """Raises InputError for pixels in a unit in which the float model answers class labels wrong, but not in another.

    ``answers`` are the model's for ``samples``, ``answer`` gives those for others. A single input of reals is
    looked at, from 0 to 255, from 0 to 1 or from -1 to 1.
    """
    places = [place for place, info in enumerate(graph.input_infos()) if info.dtype == "float32"]
    if len(places) != 1 or len(labels) < _LEAST_LABELS or not labels.size:
        return
    if by_chance(answers, labels) is None or (right := _percent(answers, labels)) >= _LEAST_RIGHT_PERCENT:
        return
    (place,) = places
    better, best = 0.0, ""
    for what, factor, offset in _other_units([sample[place] for sample in samples]):
        others = [
            [np.float32(factor) * a + np.float32(offset) if i == place else a for i, a in enumerate(sample)]
            for sample in samples
        ]
        found = _percent(answer(others), labels)
        if found > better:
            better, best = found, what
    if better >= max(_LEAST_RIGHT_PERCENT, _MUCH_BETTER * right):
        name = graph.input_infos()[place].name
        raise InputError(
            f"{FLOAT_MODEL} gets {right:.0f} % of the labels right, and {better:.0f} % of them with input {name!r} "
            f"{best}: the samples are in another unit than it was trained for",
            hint=f"give all samples {best}; of a folder of images, --mean and --scale do that",
        )


def _other_units(arrays: Sequence[Array]) -> Iterator[tuple[str, float, float]]:
    """In words, and by what to multiply and what to add."""
    low, high = min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
    half = _LARGEST_PIXEL / 2
    if low >= 0 and 1 < high <= _LARGEST_PIXEL:
        yield "divided by 255", 1 / _LARGEST_PIXEL, 0.0
        yield "divided by 127.5, less 1", 1 / half, -1.0
    elif low >= 0 and high <= 1:
        yield "times 255", _LARGEST_PIXEL, 0.0
        yield "times 2, less 1", 2.0, -1.0
    elif low >= -1 and high <= 1:
        yield "times 127.5, plus 127.5", half, half
        yield "divided by 2, plus 0.5", 0.5, 0.5


def _percent(answers: Sequence[Array], labels: Array) -> float:
    return scores(answers, labels).get("top1_percent", 0.0)


def units_that_differ(
    graph: Graph, known: Mapping[str, TensorStatistics], samples: Samples, *, by: str, among: str
) -> dict[str, str]:
    """What is said, by name, of inputs ten times as large, or as small, in ``samples`` as what is ``known`` of them.

    ``known``: statistics by tensor name; ``by`` and ``among`` name where both are from.
    """
    found = {}
    for place, info in enumerate(graph.input_infos()):
        seen = known.get(info.name)
        if info.dtype != "float32" or seen is None or not seen.runs:
            continue
        before = max(abs(seen.minimum), abs(seen.maximum))
        now = max((float(np.abs(sample[place]).max(initial=0.0)) for sample in samples), default=0.0)
        if before and now and not 1 / _FAR <= now / before <= _FAR:
            found[info.name] = (
                f"input {info.name!r} reaches {now:.3g} in {among}, {before:.3g} in {by}: one of both is in another "
                "unit, or shows something else; give both in the unit that the model was trained for"
            )
    return found
