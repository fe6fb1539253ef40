"""Kinds of outputs (class scores, indices, yes/no scores and columns of numbers), and the tensors that decide outputs.

An index is either right or wrong. One scale for all columns may leave too few codes for a small column. If a detector
is calibrated without detections, all observed logits are negative, and no quantised score exceeds 0.5.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.lut import logistic
from odc_mlir.ops.spec import Array, Trait
from odc_mlir.quantizer.policy.ranges import Statistics, most_sizes_differ, sizes_differ
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.reporting.scores import MOST_SINGLE


def is_measurable(outputs: Sequence[Array]) -> bool:
    """Return whether each real output has finite values and no NaN. Infinities may be intended, as in masks."""
    reals = (array for array in outputs if array.dtype.kind == "f" and array.size)
    return all(bool(np.isfinite(array).any()) and not np.isnan(array).any() for array in reals)


def refused_output(expected: Array) -> Array:
    """Return the output for a sample that a kernel refuses: NaN, or only wrong answers."""
    if expected.dtype.kind in "biu":
        return np.asarray(np.bitwise_xor(expected, expected.dtype.type(1)))
    return np.full_like(expected, np.nan) if expected.dtype.kind == "f" else np.zeros_like(expected)


def completed(expected: Array, found: Array) -> tuple[Array, bool]:
    """Return ``found`` with zeros where it lacks numbers that ``expected`` has, and whether it lacks any."""
    if found.dtype.kind != "f" or found.shape != expected.shape:
        return found, False
    finite = np.isfinite(found)
    lacks = ~finite if finite.all() else ~finite & np.isfinite(expected)
    return (np.where(lacks, found.dtype.type(0), found), True) if lacks.any() else (found, False)


def exceeds(expected: Array, found: Array) -> bool:
    """Return whether ``found`` has finite numbers where ``expected`` has none."""
    if expected.dtype.kind != "f" or found.shape != expected.shape:
        return False
    finite = np.isfinite(expected)
    return not finite.all() and bool((np.isfinite(found) & ~finite).any())


SOFTMAX = frozenset({"SOFTMAX", "LOG_SOFTMAX"})
_SQUASHING = SOFTMAX | {"LOGISTIC"}
# Operators with results that may be logits.
LOGITS = frozenset({"FULLY_CONNECTED", "CONV_2D", "ADD", "BATCH_MATMUL"})
UNDECIDED_NATS = math.log(2.0)  # a class with at least half the odds of the best is nearly as likely
# Metrics of answers: share of equal answers, and share of answers that are equal or nearly as likely.
SHARE, DECIDED = "top1_match", "top1_decided"
CASTS = frozenset({"QUANTIZE", "DEQUANTIZE"})
_KEEP_ORDER = CASTS | {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST"}
_PLACES = {"ARG_MAX": 0, "ARG_MIN": 0, "TOPK_V2": 1}  # operator -> position of the result with indices


def last_operator(graph: Graph, tensor: int, *, in_order: bool = True) -> GraphNode | None:
    """Return the producer of a tensor, behind conversions and reshapes, and TRANSPOSE unless ``in_order``."""
    producers = graph.producers()
    tensor = _source(producers, tensor, _KEEP_ORDER if in_order else _KEEP_ORDER | {"TRANSPOSE"})
    return producers.get(tensor)


def _source(producers: Mapping[int, GraphNode], tensor: int, seen_through: frozenset[str] = _KEEP_ORDER) -> int:
    while (node := producers.get(tensor)) is not None and node.node.spec.name in seen_through:
        tensor = node.inputs[0]
    return tensor


def decisive_tensor(graph: Graph, output: int, places: Places | None) -> int:
    """Return the tensor with the noise that decides an output: the operand of a squashing function or a search."""
    if places is not None:
        output = places.searched
    node = last_operator(graph, output)
    return node.inputs[0] if node is not None and node.node.spec.name in _SQUASHING else output


def is_in_order(graph: Graph, output: int, axis: int | None) -> bool:
    """Return whether the tensor that decides ``output`` has the float model's order of elements.

    ``axis``: axis, from the end, along which the float model searches, or None if it does not search.
    """
    if axis is not None:
        found = places_of(graph, output)
        return found is None or found.from_end(graph) == axis
    node = last_operator(graph, output)
    return node is None or node.node.spec.name != "TRANSPOSE"


def is_varied(winners: Sequence[int], classes: int, most: float = 0.5) -> bool:
    """Return whether several classes win, and no class wins more than the share ``most`` of the samples.

    By default, the output holds scores, and the sum is not tested. A quantity that is the largest in more samples may
    just have a larger offset than the others.
    """
    least_winners = 3
    won = max(map(winners.count, winners))
    return len(set(winners)) >= min(least_winners, classes) and won <= most * len(winners)


def are_scores(rows: NDArray[np.float64], alone: bool = True) -> bool:
    """Return whether ``rows``, [samples, classes], look like scores. ``alone``: the model has no other output.

    Different samples have different winning classes. If one class wins most samples, which also happens if columns are
    quantities, the sum of scores decides. Training by cross entropy does not change the sum. Therefore it varies less
    than a sum of independent columns. If there are other outputs, which may be boxes, the sum always decides.
    """
    # Largest share of samples that one class may win, and largest variance of the sum relative to independent columns:
    # trained classifiers have 0.02 to 0.15, coordinates more than 0.5.
    most_won_by_a_score, least_of_sum = 0.9, 0.25
    winners = np.argmax(rows, axis=1).tolist()
    if _are_steps(rows):
        return False
    if alone and is_varied(winners, rows.shape[1]):
        return True
    return is_varied(winners, rows.shape[1], most_won_by_a_score) and _relative_variance_of_sum(rows) <= least_of_sum


def _relative_variance_of_sum(rows: NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):  # values may be infinite or NaN, or may not vary
        return float(rows.sum(axis=1).var() / rows.var(axis=0).sum())


def _neighbours_are_alike(rows: NDArray[np.float64]) -> bool:
    # Largest mean squared difference of neighbours relative to all pairs of columns. Classes have about 1.
    most_of_neighbours = 0.5
    with np.errstate(all="ignore"):
        varying, width = rows - rows.mean(axis=0), rows.shape[1]
        nearest = np.square(np.diff(varying, axis=1)).mean()
        # The sum of squared differences over all pairs of n values is n times the sum of squares minus the squared sum.
        every = (width * np.square(varying).sum(axis=1) - np.square(varying.sum(axis=1))).mean()
        return bool(nearest <= most_of_neighbours * every / max(1, width * (width - 1) / 2) and every > 0.0)


def _are_steps(rows: NDArray[np.float64]) -> bool:
    """Return whether columns look like steps of a series: they rise and fall together, neighbours most of all."""
    least_of_sum = 2.0  # variance of the sum relative to independent columns, which have 1
    return _relative_variance_of_sum(rows) >= least_of_sum and _neighbours_are_alike(rows)


def remedy_of_guess(has_labels: bool) -> str:
    """Return the start of the remedy for a wrong guess, before the name of the metric."""
    return "give labels, or" if has_labels else "give"


def doubt_of_scores(name: str, rows: NDArray[np.float64], alone: bool = True, has_labels: bool = True) -> str | None:
    """Return the text for an output that may hold either class scores or numbers, or None if the kind is clear."""
    remedy = remedy_of_guess(has_labels)
    winners = np.argmax(rows, axis=1).tolist()
    if are_scores(rows, alone):
        if not _neighbours_are_alike(rows):
            return None
        return (
            f"output {name!r} is treated as class scores, though neighbouring columns are alike, like steps of a "
            f"series; if it has numbers, {remedy} --metric mpeir"
        )
    if not is_varied(winners, rows.shape[1], 1.0):
        return None
    if _are_steps(rows):
        why = "its columns rise and fall together, neighbours most, as steps of a series do"
    elif is_varied(winners, rows.shape[1]):
        why = "there are other outputs, and the sum of its columns varies as much as sums of numbers do"
    else:
        best, won = max(((place, winners.count(place)) for place in set(winners)), key=lambda found: found[1])
        why = f"column {best} is the largest for {won} of {len(winners)} samples"
    kind = "is treated as numbers, not class scores, because"
    return f"output {name!r} {kind} {why}; if it has class scores, {remedy} --metric top1"


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """An output of indices along ``axis`` of the tensor ``searched``. ``in_order``: in the order of the search."""

    searched: int
    axis: int
    largest: bool
    in_order: bool

    def may_be_undecided(self, graph: Graph, answers: Sequence[Array], classes: int) -> bool:
        """Return whether the search is over logits, so that another class may be nearly as likely."""
        node = last_operator(graph, self.searched)
        if not (self.in_order and self.largest) or node is None or node.node.spec.name not in LOGITS:
            return False
        return is_varied(np.concatenate([np.ravel(answer) for answer in answers]).astype(np.int64).tolist(), classes)

    def from_end(self, graph: Graph) -> int:
        """Return the axis as a negative number. The last axis is -1."""
        shape = graph.tensors[self.searched].shape
        return self.axis if self.axis < 0 or shape is None else self.axis - len(shape)

    def nearly(self, searched: Array, expected: Array, found: Array) -> Array:
        """Return whether each index in ``found`` has at least half the odds of the expected class."""
        best, chosen = (self._at(searched, places) for places in (expected, found))
        return np.ravel(chosen >= best - UNDECIDED_NATS)

    def shares_of_ties(self, searched: Array, expected: Array, found: Array, decisive: Array) -> NDArray[np.float64]:
        """Return the weight of each index of ``found`` among ties in ``decisive`` (see :func:`share_of_ties`)."""
        values, seen = (np.moveaxis(array, self.axis, -1) for array in (searched, decisive))
        least, chosen = self._at(searched, expected) - UNDECIDED_NATS, self._at(decisive, found)
        ranks = range(chosen.shape[-1])
        return np.ravel(np.stack([share_of_ties(values, least[..., i], seen, chosen[..., i]) for i in ranks], axis=-1))

    def _at(self, values: Array, places: Array) -> Array:
        """Return ``values`` at ``places``, [..., places], with the searched axis last."""
        moved = np.moveaxis(values, self.axis, -1)
        shape = (*moved.shape[:-1], -1)
        return np.take_along_axis(moved, np.clip(places.astype(np.int64), 0, moved.shape[-1] - 1).reshape(shape), -1)


def share_of_ties(expected: Array, least: Array, found: Array, chosen: Array) -> NDArray[np.float64]:
    """Return the weights of answers with the values ``chosen`` in ``found``, which is [..., classes] like ``expected``.

    The weight is 1 for a single highest class with an expected score of at least ``least``, and 1 / n for n tied
    classes. It is 0 if a tied class is below ``least``, and 1 if the float model ties the same classes.
    """
    tied = found == chosen[..., None]
    low = np.where(tied, expected, np.inf).min(axis=-1)
    high = np.where(tied, expected, -np.inf).max(axis=-1)
    count = np.where(low == high, 1, np.maximum(1, np.count_nonzero(tied, axis=-1)))
    return np.where(low >= least, 1.0 / count, 0.0)


def places_of(graph: Graph, output: int) -> Places | None:
    """Return the search that computes an output of indices, or None for other outputs."""
    producers, tensor, in_order = graph.producers(), output, True
    while (node := producers.get(tensor)) is not None:
        spec = node.node.spec
        if spec.name in _PLACES:
            if tensor != node.outputs[_PLACES[spec.name]]:
                return None
            axis = -1
            if spec.name != "TOPK_V2":
                info = graph.tensors[node.inputs[1]]
                axis, in_order = (int(info.array().reshape(-1)[0]), in_order) if info.is_const else (-1, False)
            return Places(node.inputs[0], axis, spec.name != "ARG_MIN", in_order)
        keeps_order = spec.name in _KEEP_ORDER
        if not keeps_order and spec.quant.source is None:
            return None
        in_order &= keeps_order
        tensor = node.inputs[0 if keeps_order else spec.quant.source or 0]
    return None


def are_right_or_wrong(graph: Graph, output: int) -> bool:
    """Return whether an output holds truths, indices, or integers computed from indices, which have no distance."""
    is_place = places_of(graph, output) is not None
    if is_place or graph.tensors[output].info.kind == "float":
        return is_place
    producers = graph.producers()
    found = [_source(producers, output)]
    if "bool" in (graph.tensors[output].dtype, graph.tensors[found[0]].dtype):
        return True
    for tensor in found:  # grows by operands
        node = producers.get(tensor)
        if node is not None and graph.tensors[tensor].dtype in ("int32", "int64"):
            if tensor in node.outputs[_PLACES.get(node.node.spec.name, len(node.outputs)) :]:
                return True
            found += [operand for operand in node.inputs if operand not in found]
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class Answering:
    """Output that labels are compared with: the output number ``output``, or the ``best`` index in it."""

    output: int = 0
    best: bool = False

    def of(self, outputs: Sequence[Array]) -> Array:
        """Return the answer. Of several indices, ordered by score, return the first as int64."""
        found = outputs[self.output]
        return found[..., :1].astype(np.int64) if self.best else found


def answering(graph: Graph, outputs: Sequence[Array], labels: int) -> Answering:
    """Return the output that labels are compared with: the first, or the indices of a TOPK_V2 with a label per row."""
    node = last_operator(graph, graph.outputs[0])
    if node is None or node.node.spec.name != "TOPK_V2" or labels * outputs[0].shape[-1] != outputs[0].size:
        return Answering()
    indices, producers = node.outputs[_PLACES["TOPK_V2"]], graph.producers()
    found = [place for place, tensor in enumerate(graph.outputs) if _source(producers, tensor) == indices]
    return Answering(found[0], best=True) if found else Answering()


FEWEST_VALUES = 4  # minimum number of values of a column: the mean of n values hides 1/n of their variation
_MORE_OF_IT, _MORE_OF_THEM = (
    f"give samples for which {what} larger, or the last layer more bits" for what in ("it is", "they are")
)


@dataclass(slots=True)
class Columns:
    """Least and largest finite value of each column of one output, float64 [columns], or [] for outputs of integers."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    axis: int = -1
    values: int = 0  # number of values per column
    # Sums of values, of squared values, and of squared errors.
    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, arrays: Sequence[Array], axis: int = -1) -> Columns:
        """Return the columns of an output over samples. It is empty if widths differ or values are no floats."""
        widths = {array.shape[axis] if array.ndim else 1 for array in arrays}
        if len(widths) != 1 or not (width := widths.pop()) or any(array.dtype.kind != "f" for array in arrays):
            return cls(np.empty(0), np.empty(0), axis)
        found = cls(np.full(width, np.inf), np.full(width, -np.inf), axis)
        for array in arrays:
            found.add([array])
        return found

    def rows(self, array: Array) -> Array:
        """Return the values of an output as [values, columns]."""
        return (np.moveaxis(array, self.axis, -1) if array.ndim else array).reshape(-1, len(self.low))

    def add(self, arrays: Sequence[Array], expected: Sequence[Array] | None = None) -> None:
        """Add samples of the output, with the same result as one by one. Do nothing if there are no columns."""
        if len({array.shape for array in arrays}) > 1:
            for place, array in enumerate(arrays):
                self.add([array], None if expected is None else [expected[place]])
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
        """True if columns are separate quantities: columns are few, or most are too small compared to the largest."""
        has_units = self.values >= FEWEST_VALUES and most_sizes_differ(self.low, self.high)
        return len(self.low) <= MOST_SINGLE or has_units

    @property
    def differ(self) -> bool:
        """True if a common scale of all columns, with a code for zero, is too coarse for a column."""
        return sizes_differ(self.low, self.high)

    @property
    def variation(self) -> NDArray[np.float64]:
        """Sum of squared deviations from the mean, by column."""
        return self.squares - np.square(self.total) / max(1, self.values)

    @property
    def wider_ranges(self) -> NDArray[np.float64]:
        """Limits that columns may reach, [2, columns], if all deviate as far as any, in standard deviations."""
        mean = self.total / max(1, self.values)
        deviation = np.sqrt(np.maximum(self.variation, 0.0) / max(1, self.values))
        farthest = np.maximum(self.high - mean, mean - self.low)
        with np.errstate(all="ignore"):  # values that are not finite are ignored
            parts = farthest / deviation
            reach = deviation * np.max(parts, where=np.isfinite(parts), initial=0.0)
            half = (self.high - self.low) / 2  # room costs codes, so ranges become at most twice as wide
            return np.stack(
                [np.clip(mean - reach, self.low - half, self.low), np.clip(mean + reach, self.high, self.high + half)]
            )

    def like(self) -> Columns:
        """Return the same number of columns, without values."""
        return Columns(np.full(len(self.low), np.inf), np.full(len(self.low), -np.inf), self.axis)

    def lost(self, found: Columns, *, single: bool = True) -> list[int]:
        """Return the varying columns that are constant in ``found``, or, if ``single``, have an R² below 0.5."""
        least_r2 = 0.5  # below this limit, more than one in five normal values is on the wrong side of the mean
        slight = 0.25  # smaller variation, relative to the largest value, may be irrelevant
        if self.values < FEWEST_VALUES or found.values != self.values:
            return []
        with np.errstate(invalid="ignore"):  # columns may have no finite value
            sizes = np.maximum(np.abs(self.low), np.abs(self.high))
            # Beside mostly far larger columns, float32 rounding of the model may be all that varies.
            rounding = np.finfo(np.float32).eps * np.median(np.where(np.isfinite(sizes), sizes, 0.0))
            varies = self.high - self.low > np.maximum(slight * sizes, rounding)
            none = (found.noise > (1.0 - least_r2) * self.variation) & single
        return np.flatnonzero(varies & ((found.low == found.high) | none)).tolist()


def columns_of(arrays: Sequence[Array], are_along: Callable[[int], bool | None]) -> list[Columns]:
    """Return the columns of an output along an axis of separate quantities, if any, and along the last axis.

    An axis other than the batch holds quantities if one scale is too coarse for the columns, if columns explain how
    much elements vary, and if channels ``are_along`` the axis. If this is unknown, the columns must be few.
    """
    last = Columns.of(arrays)
    if not len(last.low) or len({array.shape for array in arrays}) != 1:
        return [last]
    for axis in range(1, arrays[0].ndim - 1):
        columns = Columns.of(arrays, axis)
        if columns.are_single and columns.differ and _columns_explain(columns, arrays):
            known = are_along(axis)
            if known or (known is None and len(columns.low) <= MOST_SINGLE):
                return [columns, last]
    return [last]


def _columns_explain(columns: Columns, arrays: Sequence[Array]) -> bool:
    # Minimum part of the variance of the elements' log variations that columns explain: columns of quantities explain
    # more, positions in images and sequences less.
    least_told = 0.9
    means = columns.total / max(1, columns.values)
    with np.errstate(all="ignore"):
        squares = sum(np.square(columns.rows(array) - means) for array in arrays)
        sizes = np.where(squares > 0, np.log(squares), np.nan)
    known = np.isfinite(sizes)
    if not known.any():
        return False
    within = sum(float(np.square(a - a.mean()).sum()) for column in sizes.T if (a := column[np.isfinite(column)]).size)
    whole = float(np.square(sizes[known] - sizes[known].mean()).sum())
    return within < (1.0 - least_told) * whole


@dataclass(frozen=True, slots=True)
class Lost:
    """Lost columns of one output."""

    places: list[int]  # indices along ``axis``
    axis: int
    columns: int  # number of all columns
    are_shares: bool = False  # whether their operator, such as SOFTMAX, gives all columns the same range

    def text(self, name: str) -> str:
        """Return the text about the lost columns of output ``name``."""
        named = 4
        if self.columns == 1:
            return lost_output_text(name, are_shares=self.are_shares)
        one = len(self.places) == 1
        remedy = "scale columns alike inside the model, give them outputs of their own, or the last layer more bits"
        some = ", ".join(map(str, self.places[:named])) + (", …" if len(self.places) > named else "")
        what = f"column{'' if one else 's'} {some}"
        if self.axis != -1:
            what = f"place{'' if one else 's'} {some} along axis {self.axis}"
        return (
            f"{what} of output {name!r} ({len(self.places)} of {self.columns}) "
            f"{'varies' if one else 'vary'} in the float model and {'is' if one else 'are'} lost in the "
            f"quantised one: {(_MORE_OF_IT if one else _MORE_OF_THEM) if self.are_shares else remedy}"
        )


def lost_output_text(name: str, varies_by: float | None = None, *, are_shares: bool = False, known: bool = True) -> str:
    """Return the text for a lost output. ``known``: a model built from all samples also loses it."""
    what = f"output {name!r} varies in the float model and is lost in the quantised one"
    if not known:
        return f"{what}, made without the samples that it is judged on: give more like those that are far from others"
    if varies_by is not None:
        return f"{what}, by {varies_by:.2g} only: give samples for which it varies as it does in use"
    remedy = "scale it inside the model like what it is computed with, or give layers more bits"
    return f"{what}: {_MORE_OF_IT if are_shares else remedy}"


def alike(arrays: Sequence[Array]) -> bool:
    """Return whether an output is equal for all of several samples."""
    first, *others = arrays
    return bool(others) and all(np.array_equal(first, b, equal_nan=first.dtype.kind == "f") for b in others)


def reached(graph: Graph) -> set[int]:
    """The tensors that depend on an input or a state. All other tensors are constant by construction."""
    found = {*graph.inputs, *(index for index, info in enumerate(graph.tensors) if info.is_variable)}
    for node in graph.nodes:
        if not node.inputs or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


# Operators over images or rows: the last axis holds channels, the other axes hold positions.
WINDOWS = frozenset(
    {
        "AVERAGE_POOL_2D",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "L2_POOL_2D",
        "MAX_POOL_2D",
        "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR",
    }
)

Indices = NDArray[np.int64]


class ChannelAxes:
    """Axes of outputs along which the channels of layers lie."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()

    def are_along(self, output: int, shape: Sequence[int], axis: int) -> bool | None:
        """Return whether every channel has a single index along ``axis`` of a tensor, or None for unknown layers."""
        along = np.arange(shape[axis]).reshape(-1, *[1] * (len(shape) - 1 - axis))
        waiting, seen, layers = [(output, np.broadcast_to(along, shape))], {output}, 0
        known = True
        while waiting:
            tensor, places = waiting.pop()
            node = self._producers.get(tensor)
            if node is not None and node.node.spec.name in WINDOWS | {"TRANSPOSE_CONV"}:
                rows = places.reshape(-1, places.shape[-1])
                if (rows != rows[:1]).any():
                    return False
                layers += 1
                continue
            sources = () if node is None else self._sources(node, places)
            known &= bool(sources)
            waiting += [source for source in sources if source[0] not in seen]
            seen.update(source for source, _ in sources)
        return True if known and layers else None

    def _sources(self, node: GraphNode, places: Indices) -> list[tuple[int, Indices]]:
        """Return operands that a node only moves or processes elementwise, with the places of the elements."""
        name, traits, axis = node.node.spec.name, node.node.spec.traits, node.node.options.get("axis") or 0
        shapes = [self._graph.tensors[tensor].shape if tensor >= 0 else None for tensor in node.inputs]
        full = [tuple(size for size in shape or () if size is not None) for shape in shapes]
        if Trait.VIEW in traits and shapes[0] == full[0] and math.prod(full[0]) == places.size:
            return [(node.inputs[0], places.reshape(full[0]))]
        if name == "TRANSPOSE" and (order := self._graph.tensors[node.inputs[1]]).is_const:
            return [(node.inputs[0], places.transpose(np.argsort(order.array().ravel())))]
        if name == "PACK":
            return [(tensor, np.take(places, [at], axis).squeeze(axis)) for at, tensor in enumerate(node.inputs)]
        if name == "CONCATENATION" and shapes == full:
            ends = np.cumsum([shape[axis] for shape in full])
            return list(zip(node.inputs, np.split(places, ends[:-1], axis), strict=True))
        if Trait.ELEMENTWISE in traits or name in CASTS | {"CAST"}:
            same = zip(node.inputs, shapes, strict=True)
            return [(tensor, places) for tensor, shape in same if shape == places.shape and tensor in self._producers]
        return []


# Operators with results of either sign, if no fused activation limits the results.
_OF_EITHER_SIGN = frozenset(
    {"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL", "ADD", "SUB"}
)


def unreached(graph: Graph) -> list[str]:
    """Return texts for outputs with codes that can only give scores on one side of 0.5."""
    half = 0.5
    found, scoring = [], list(_scoring(graph))
    for (name, node), ends in zip(scoring, ends_of(graph, [node.inputs[0] for _, node in scoring]), strict=True):
        if ends is None:
            continue
        least, most = (_score(graph, node, end) for end in ends)
        advice = "give samples with {} scores, or room for them (--output-room on)"
        if most <= half:
            found.append(f"scores of output {name!r} are {most:.4g} at most on any input: {advice.format('larger')}")
        elif least >= half:
            found.append(f"scores of output {name!r} are {least:.4g} at least on any input: {advice.format('smaller')}")
    return list(dict.fromkeys(found))


def one_sided(graph: Graph, statistics: Statistics) -> list[str]:
    """Return the names of float outputs with all scores on the same side of 0.5 in the samples."""
    found = []
    for name, node in _scoring(graph):
        seen = statistics.get(graph.tensors[node.inputs[0]].name)
        if seen is not None and seen.runs and (seen.maximum <= 0.0 or seen.minimum >= 0.0):
            found.append(name)
    return list(dict.fromkeys(found))


def _score(graph: Graph, node: GraphNode, logit: float) -> float:
    exact, info = float(logistic(np.asarray(logit, np.float64))), graph.tensors[node.outputs[0]]
    if not info.is_coded:
        return exact
    return float(to_reals(info, to_codes(info, np.array(exact, np.float32))))


def _scoring(graph: Graph) -> Iterator[tuple[str, GraphNode]]:
    """Yield the LOGISTIC producers of outputs, if the operands may have either sign, with the outputs' names."""
    producers = graph.producers()
    for output in dict.fromkeys(graph.outputs):
        for node in _sources(producers, [output]):
            if node.node.spec.name == "LOGISTIC":
                made = (
                    source.node
                    for source in _sources(producers, node.inputs)
                    if source.node.spec.name in _OF_EITHER_SIGN
                )
                if any(str(of.options.get("fused_activation_function", "none")).lower() == "none" for of in made):
                    yield graph.tensors[output].name, node


def _sources(producers: Mapping[int, GraphNode], tensors: Sequence[int]) -> Iterator[GraphNode]:
    """Yield the operators that compute the values moved to ``tensors``."""
    todo, seen = list(tensors), set[int]()
    while todo:
        node = producers.get(todo.pop())
        if node is None or node.index in seen:
            continue
        seen.add(node.index)
        if node.node.spec.name in CASTS or Trait.SAME_QUANT in node.node.spec.traits:
            todo.extend(node.inputs)
        else:
            yield node


# Operators that preserve values, and therefore ranges, of codes.
_SEEN_THROUGH = frozenset({"DEQUANTIZE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE"})

Interval = tuple[float, float]


def ends_of(graph: Graph, tensors: Iterable[int]) -> list[Interval | None]:
    """Return the real range of each tensor's codes, traced through moving operators, or None for float tensors."""
    producers, found = graph.producers(), list[Interval | None]()
    for index in tensors:
        info, node = graph.tensors[index], producers.get(index)
        while not info.is_coded and node is not None and node.node.spec.name in _SEEN_THROUGH:
            info, node = graph.tensors[node.inputs[0]], producers.get(node.inputs[0])
        ends = info.info.range if info.is_coded else ()
        low_high = [float(to_reals(info, np.array(code, info.info.numpy))) for code in ends]
        found.append((low_high[0], low_high[1]) if low_high else None)
    return found
