"""Samples that chose ranges, of which the float model gives what it gives of none that were held back.

Rare events are often among the first alone. Ranges that cut them off lose nothing on the others, which so must not be
all that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Reference

_BEYOND = 0.5  # of the range that the samples held back show: how far beyond it such a value lies
_LOST = 0.5  # of the range that all samples show: an error from which nothing is left of such a value


@dataclass(frozen=True, slots=True)
class Witness:
    """An output's least or greatest ``value``, of a sample's elements at ``element``; ``span``: of all samples."""

    sample: int
    output: int
    element: int
    value: float
    span: float

    def seen_in(self, outputs: Sequence[Array] | None) -> float:
        """What a model that has these ``outputs`` of the sample gives instead; zero where it cannot run it."""
        return 0.0 if outputs is None else float(outputs[self.output].flat[self.element])

    def is_lost(self, found: float) -> bool:
        """Whether a model that gives ``found`` instead tells nothing of it."""
        return not abs(found - self.value) <= _LOST * self.span


def witnesses(reference: Reference, outputs: Sequence[Sequence[Array]]) -> list[Witness]:
    """Those among ``outputs``, what the float model gives of samples that ``reference`` does not have."""
    found = []
    for place, arrays in enumerate(zip(*outputs, strict=True)):
        width, shape = len(reference.columns(place).low), arrays[0].shape
        if not width or not arrays[0].size or any(array.shape != shape for array in arrays):
            continue
        for columns in [slice(c, c + 1) for c in range(width)] if reference.splits(place) else [slice(None)]:
            found += _of_columns(reference, place, columns, arrays)
    return found


def _of_columns(reference: Reference, place: int, columns: slice, arrays: Sequence[Array]) -> list[Witness]:
    shown = reference.columns(place)
    low, high = float(shown.low[columns].min()), float(shown.high[columns].max())
    rows = [shown.rows(array)[:, columns].astype(np.float64) for array in arrays]
    usable = [number for number, row in enumerate(rows) if np.isfinite(row).all()]
    if not usable or not np.isfinite([low, high]).all():
        return []
    least = min(usable, key=lambda number: rows[number].min())
    most = max(usable, key=lambda number: rows[number].max())
    ends = (least, int(rows[least].argmin())), (most, int(rows[most].argmax()))
    values = [float(rows[number].flat[at]) for number, at in ends]
    span = max(high, values[1]) - min(low, values[0])
    beyond = _BEYOND * (high - low)
    outside = (values[0] < low - beyond, values[1] > high + beyond)
    elements = shown.rows(np.arange(arrays[0].size).reshape(arrays[0].shape))[:, columns].reshape(-1)
    return [
        Witness(number, place, int(elements[at]), value, span)
        for (number, at), value, is_outside in zip(ends, values, outside, strict=True)
        if is_outside and span > 0
    ]


def lost_witness_text(name: str, witness: Witness, found: float, *, is_clipped: bool) -> str:
    """What is said of an output called ``name``; ``is_clipped``: its range does not hold all that was seen."""
    remedy = "so cutting them off seemed to help: choose --ranges minmax, give" if is_clipped else "so give"
    return (
        f"output {name!r} is {found:.7g} for a sample for which the float model gives {witness.value:.7g}; none of "
        f"those held back shows such values, {remedy} more of them, or leave that sample out"
    )
