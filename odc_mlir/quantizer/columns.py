"""What each output, and each column of it, shows over samples: what never varies tells nothing, or is lost.

The last axis of an output has its columns, or another one, such as the second of images with channels first, where it
tells how much elements vary. One scale for all columns, as codes have it, leaves nothing of one that is small beside
the others, which no error measured over the whole output shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.sizes import most_sizes_differ, sizes_differ
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.scoring import MOST_SINGLE

_FEWEST_VALUES = 4  # of a column: fewer may be alike by chance
_SLIGHT = 0.25  # a part of the largest value: what varies by less may well be of no account
# The R² of a column below which it is lost: one of five values is on the wrong side of its mean, if they and errors are
# as in a normal distribution; of a column that is told well it is one of ten.
_LEAST_R2, _GOOD_R2 = 0.5, 0.9
_NAMED = 4
_LAST = -1
_MORE_OF_IT, _MORE_OF_THEM = (
    f"give samples for which {what} larger, or the last layer more bits" for what in ("it is", "they are")
)
# Of how the logarithms of what elements vary by differ: the part that a place tells along an axis of quantities, of
# which no image's or sequence's place tells as much.
_LEAST_TOLD = 0.9


@dataclass(slots=True)
class Columns:
    """The least and the largest finite value of each column of one output, float64 [columns]; none of other types.

    ``axis``: that of the output whose places they are, -1 for the last. ``total``, ``squares``: sums of the values and
    their squares; ``noise``: of the squares of errors, where what is expected is given. NaN and more where values are
    not finite.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    axis: int = _LAST
    values: int = 0  # of each column
    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, arrays: Sequence[Array], axis: int = _LAST) -> Columns:
        """The columns of what the samples have for an output; none where their number changes, or of no reals."""
        widths = {array.shape[axis] if array.ndim else 1 for array in arrays}
        if len(widths) != 1 or not (width := widths.pop()) or any(array.dtype.kind != "f" for array in arrays):
            return cls(np.empty(0), np.empty(0), axis)
        found = cls(np.full(width, np.inf), np.full(width, -np.inf), axis)
        for array in arrays:
            found.add(array)
        return found

    def rows(self, array: Array) -> Array:
        """The values of an output, those of each column below each other."""
        return (np.moveaxis(array, self.axis, -1) if array.ndim else array).reshape(-1, len(self.low))

    def add(self, array: Array, expected: Array | None = None) -> None:
        """What one more sample has for the output; nothing where there are no such columns."""
        self.add_all([array], None if expected is None else [expected])

    def add_all(self, arrays: Sequence[Array], expected: Sequence[Array] | None = None) -> None:
        """What more samples have, to the last bit as one by one, in less time where they are small."""
        if len({array.shape for array in arrays}) > 1:
            for place, array in enumerate(arrays):
                self.add(array, None if expected is None else expected[place])
            return
        if not len(self.low) or arrays[0].size % len(self.low):
            return
        rows = np.stack([self.rows(array) for array in arrays])  # [samples, values, columns]
        finite = np.isfinite(rows)
        low, high = (rows, rows) if finite.all() else (np.where(finite, rows, end) for end in (np.inf, -np.inf))
        np.minimum(self.low, low.min(axis=(0, 1), initial=np.inf), out=self.low)
        np.maximum(self.high, high.max(axis=(0, 1), initial=-np.inf), out=self.high)
        self.values += rows.shape[0] * rows.shape[1]
        wide = rows.astype(np.float64)
        with np.errstate(all="ignore"):
            for total, squares in zip(wide.sum(axis=1), np.square(wide).sum(axis=1), strict=True):
                self.total, self.squares = self.total + total, self.squares + squares
            if expected is not None:
                others = np.stack([self.rows(array) for array in expected])
                for noise in np.square(wide - others).sum(axis=1):
                    self.noise = self.noise + noise

    @property
    def are_single(self) -> bool:
        """Whether each is taken for a quantity of its own: where they are few, or most are small beside the largest."""
        return len(self.low) <= MOST_SINGLE or self.have_units

    @property
    def have_units(self) -> bool:
        """Whether columns of one kind, such as logits, would not differ so much in size."""
        return self.values >= _FEWEST_VALUES and most_sizes_differ(self.low, self.high)

    @property
    def are_of_kinds(self) -> bool:
        """Whether one is so small beside others as none of columns of one kind, such as logits, would be."""
        return self.values >= _FEWEST_VALUES and self.differ

    @property
    def differ(self) -> bool:
        """Whether one scale, which holds zero, is too coarse for one of the columns."""
        return sizes_differ(self.low, self.high)

    @property
    def variation(self) -> NDArray[np.float64]:
        """The sum of the squares of what values differ from their mean."""
        return self.squares - np.square(self.total) / max(1, self.values)

    @property
    def roomy(self) -> NDArray[np.float64]:
        """What each column may reach, [2, columns], told by all: the farthest that one was, in standard deviations.

        Few samples show the ends of none. Room costs codes, so no range is more than twice what its column has shown.
        """
        mean = self.total / max(1, self.values)
        deviation = np.sqrt(np.maximum(self.variation, 0.0) / max(1, self.values))
        farthest = np.maximum(self.high - mean, mean - self.low)
        with np.errstate(all="ignore"):  # what is not finite says nothing
            parts = farthest / deviation
            reach = deviation * np.max(parts, where=np.isfinite(parts), initial=0.0)
            half = (self.high - self.low) / 2
            return np.stack(
                [np.clip(mean - reach, self.low - half, self.low), np.clip(mean + reach, self.high, self.high + half)]
            )

    def like(self) -> Columns:
        """As many columns that have shown nothing yet."""
        return Columns(np.full(len(self.low), np.inf), np.full(len(self.low), -np.inf), self.axis)

    def lost(self, found: Columns, *, single: bool = True) -> tuple[list[int], list[int]]:
        """The columns that vary here, not only slightly, and are lost in ``found``, and those that are in part.

        Lost are those of one value there and, where each is a ``single`` quantity, those of an R² below a half. Those
        are lost in part whose R² is below that of columns that are told well.
        """
        if self.values < _FEWEST_VALUES or found.values != self.values:
            return [], []
        with np.errstate(invalid="ignore"):  # of columns without a finite value
            varies = self.high - self.low > _SLIGHT * np.maximum(np.abs(self.low), np.abs(self.high))
            none, little = ((found.noise > (1.0 - r2) * self.variation) & single for r2 in (_LEAST_R2, _GOOD_R2))
        gone = varies & ((found.low == found.high) | none)
        return np.flatnonzero(gone).tolist(), np.flatnonzero(varies & little & ~gone).tolist()


def columns_of(arrays: Sequence[Array], are_along: Callable[[int], bool | None]) -> list[Columns]:
    """The columns of what the samples have for an output: those that are quantities of their own first, the last axis.

    Quantities are along another axis behind that of the batch where channels ``are_along`` it, or that is not known and
    they are few, one scale is too coarse for them, and places along that axis tell how much elements vary.
    """
    last = Columns.of(arrays)
    if not len(last.low) or len({array.shape for array in arrays}) != 1:
        return [last]
    for axis in range(1, arrays[0].ndim - 1):
        columns = Columns.of(arrays, axis)
        if columns.are_single and columns.differ and _tell(columns, arrays):
            known = are_along(axis)
            if known or (known is None and len(columns.low) <= MOST_SINGLE):
                return [columns, last]
    return [last]


def _tell(columns: Columns, arrays: Sequence[Array]) -> bool:
    """Whether columns tell how much elements vary, all samples of one shape: what is alike within them, and differs.

    Rows of an image may be small beside others too, but elements of these differ as much.
    """
    means = columns.total / max(1, columns.values)
    with np.errstate(all="ignore"):
        squares = sum(np.square(columns.rows(array) - means) for array in arrays)
        sizes = np.where(squares > 0, np.log(squares), np.nan)
    known = np.isfinite(sizes)
    if not known.any():
        return False
    within = sum(float(np.square(a - a.mean()).sum()) for column in sizes.T if (a := column[np.isfinite(column)]).size)
    whole = float(np.square(sizes[known] - sizes[known].mean()).sum())
    return within < (1.0 - _LEAST_TOLD) * whole


@dataclass(frozen=True, slots=True)
class Lost:
    """Columns of one output, by place along ``axis``, of which a quantised model tells nothing; of ``columns``.

    ``are_shares``: what gives them, such as SOFTMAX, gives all of them one range, which no scale changes.
    """

    places: list[int]
    axis: int
    columns: int
    are_shares: bool = False
    in_part: bool = False

    def text(self, name: str) -> str:
        """What is said of these columns of output ``name``."""
        part = " in part" if self.in_part else ""
        if self.columns == 1:
            return lost_output_text(name, part, are_shares=self.are_shares)
        one = len(self.places) == 1
        remedy = "scale columns alike inside the model, give them outputs of their own, or the last layer more bits"
        some = ", ".join(map(str, self.places[:_NAMED])) + (", …" if len(self.places) > _NAMED else "")
        what = f"column{'' if one else 's'} {some}"
        if self.axis != _LAST:
            what = f"place{'' if one else 's'} {some} along axis {self.axis}"
        return (
            f"{what} of output {name!r} ({len(self.places)} of {self.columns}) "
            f"{'varies' if one else 'vary'} in the float model and {'is' if one else 'are'} lost{part} in the "
            f"quantised one: {(_MORE_OF_IT if one else _MORE_OF_THEM) if self.are_shares else remedy}"
        )


def lost_output_text(
    name: str, part: str = "", varies_by: float | None = None, *, are_shares: bool = False, known: bool = True
) -> str:
    """What is said of output ``name``; ``varies_by``: what little samples show of what it could.

    ``are_shares``: its operator has a range by definition. ``known``: also a model that knows the samples loses it.
    """
    what = f"output {name!r} varies in the float model and is lost{part} in the quantised one"
    if not known:
        return f"{what}, made without the samples that it is judged on: give more like those that are far from others"
    if varies_by is not None:
        return f"{what}, by {varies_by:.2g} only: give samples for which it varies as it does in use"
    remedy = "scale it inside the model like what it is computed with, or give layers more bits"
    return f"{what}: {_MORE_OF_IT if are_shares else remedy}"


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
