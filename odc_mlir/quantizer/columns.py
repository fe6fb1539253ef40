"""What each output, and each column of it, shows over samples: what never varies tells nothing, or is lost.

The last axis of an output has its columns. One scale for all of them, as codes have it, leaves nothing of a column that
is small beside the others, which no error measured over the whole output shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.sizes import most_sizes_differ, sizes_differ
from odc_mlir.runtime.execution.graph import Graph

MOST_SINGLE = 16  # columns of an output in which each is taken for a quantity of its own, whatever their sizes
_FEWEST_VALUES = 4  # of a column: fewer may be alike by chance
_SLIGHT = 0.25  # a part of the largest value: what varies by less may well be of no account
_NAMED = 4


@dataclass(slots=True)
class Columns:
    """The least and the largest finite value of each column of one output, float64 [columns]; none of other types.

    ``total``, ``squares``: sums of the values and their squares; ``noise``: of the squares of errors, where what is
    expected is given. NaN and more where values are not finite.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: int = 0  # of each column
    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Columns:
        """The columns of what the samples have for an output; none where their number changes, or of no reals."""
        widths = {array.shape[-1] if array.ndim else 1 for array in arrays}
        if len(widths) != 1 or not (width := widths.pop()) or any(array.dtype.kind != "f" for array in arrays):
            return cls(np.empty(0), np.empty(0))
        found = cls(np.full(width, np.inf), np.full(width, -np.inf))
        for array in arrays:
            found.add(array)
        return found

    def add(self, array: Array, expected: Array | None = None) -> None:
        """What one more sample has for the output; nothing where there are no such columns."""
        if not len(self.low) or array.size % len(self.low):
            return
        rows = array.reshape(-1, len(self.low))
        finite = np.isfinite(rows)
        low, high = (rows, rows) if finite.all() else (np.where(finite, rows, end) for end in (np.inf, -np.inf))
        np.minimum(self.low, low.min(axis=0, initial=np.inf), out=self.low)
        np.maximum(self.high, high.max(axis=0, initial=-np.inf), out=self.high)
        self.values += len(rows)
        wide = rows.astype(np.float64)
        with np.errstate(all="ignore"):
            self.total = self.total + wide.sum(axis=0)
            self.squares = self.squares + np.square(wide).sum(axis=0)
            if expected is not None:
                self.noise = self.noise + np.square(wide - expected.reshape(rows.shape)).sum(axis=0)

    @property
    def are_single(self) -> bool:
        """Whether each is taken for a quantity of its own: where they are few, or most are small beside the largest."""
        return len(self.low) <= MOST_SINGLE or self.have_units

    @property
    def have_units(self) -> bool:
        """Whether columns of one kind, such as logits, would not differ so much in size."""
        return self.values >= _FEWEST_VALUES and most_sizes_differ(self.low, self.high)

    @property
    def differ(self) -> bool:
        """Whether one scale is too coarse for one of several columns."""
        return len(self.low) > 1 and sizes_differ(self.low, self.high)

    @property
    def variation(self) -> NDArray[np.float64]:
        """The sum of the squares of what values differ from their mean."""
        return self.squares - np.square(self.total) / max(1, self.values)

    def like(self) -> Columns:
        """As many columns that have shown nothing yet."""
        return Columns(np.full(len(self.low), np.inf), np.full(len(self.low), -np.inf))

    def lost(self, found: Columns, *, single: bool = True) -> list[int]:
        """The columns that vary here, not only slightly, and are lost in ``found``.

        There they are one value or, where each is a ``single`` quantity, so wrong that their mean would be nearer.
        """
        if self.values < _FEWEST_VALUES or found.values != self.values:
            return []
        with np.errstate(invalid="ignore"):  # of columns without a finite value
            varies = self.high - self.low > _SLIGHT * np.maximum(np.abs(self.low), np.abs(self.high))
            wrong = (found.noise > self.variation) & single
        return [int(place) for place in np.flatnonzero(varies & ((found.low == found.high) | wrong))]


def lost_text(name: str, places: Sequence[int], columns: int) -> str:
    """What is said of columns of output ``name`` of which the quantised model tells nothing."""
    if columns == 1:
        what = f"output {name!r} varies in the float model and is lost in the quantised one"
    else:
        some = ", ".join(map(str, places[:_NAMED])) + (", …" if len(places) > _NAMED else "")
        one = len(places) == 1
        what = (
            f"column{'' if one else 's'} {some} of output {name!r} ({len(places)} of {columns}) "
            f"{'varies' if one else 'vary'} in the float model and {'is' if one else 'are'} lost in the quantised one"
        )
    return f"{what}: scale columns alike inside the model, give them outputs of their own, or the last layer more bits"


def alike(arrays: Sequence[Array]) -> bool:
    """Whether an output is the same for all of several samples."""
    first, *others = arrays
    return bool(others) and all(np.array_equal(first, b, equal_nan=first.dtype.kind == "f") for b in others)


def reached(graph: Graph) -> set[int]:
    """The tensors that depend on an input or a state; others are constant by construction."""
    found = {*graph.inputs, *(index for index, info in enumerate(graph.tensors) if info.is_variable)}
    for node in graph.nodes:
        if not node.inputs or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found
