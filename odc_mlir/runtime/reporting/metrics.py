"""Error metrics of values against a reference, and comparison of all tensors of two models, packages or backends.

For a reference ``a`` and other values ``b``: MAE is the mean of ``|a-b|``, MAPE the mean of ``|a-b|/|a|`` over ``a !=
0``, MSE the mean of ``(a-b)^2``, SQNR ``10 log10(sum a^2 / sum (a-b)^2)``, SRMSE ``sqrt(MSE)`` in steps of b's scale,
and TAE the sum of ``|a-b|``, averaged over records. MPEIR is the mean over records of ``max|a-b| / interval``. The
interval is ``max a - min a`` over all records (1 if that is 0), or a given interval. A single record may be too short.
A top-k match is the mean share of the k largest elements of a record, or of a row, that are also among the k largest of
the other record. The lower index wins ties. Elements that are not finite count as differing if they are not equal, and
do not count in the other metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from odc_mlir.errors import ModelError
from odc_mlir.formats.channel_factors import NAME, decode
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.check import type_text
from odc_mlir.ops.spec import Array, ResultType, TensorInfo
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Watcher

TOP = (1, 5)
# Number of elements compared at a time, because several float64 temporaries are live.
_PIECE_ELEMENTS = 1 << 18
_NO_DISTANCE = -1.0  # largest difference of a record without finite values


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Limits of agreement: ``|a - b| <= atol + rtol * |a|`` for floats, ``|a - b| <= atol`` for integers."""

    atol: float = 1e-5
    rtol: float = 1e-4


@dataclass(frozen=True, slots=True)
class Errors:
    """Metrics of one tensor, or None if undefined, such as the SQNR of equal values (infinite)."""

    elements: int
    differing: int  # elements outside the tolerance
    max_abs: float | None = None
    mae: float | None = None
    mape_percent: float | None = None
    mpeir: float | None = None
    mse: float | None = None
    sqnr_db: float | None = None
    cosine: float | None = None
    top1_match: float | None = None
    top5_match: float | None = None
    tae: float | None = None
    srmse: float | None = None

    @property
    def are_answers(self) -> bool:
        """True for values that are right or wrong, such as indices and truths, which have no distance."""
        return self.max_abs is None and self.top1_match is not None


class ErrorMeter:
    """Accumulator of differences between records and a reference. ``top``: also compute top-k matches.

    ``classes``: length of the rows in top-k matches (default: all elements). ``interval``: denominator of MPEIR
        (default: the interval of all records). ``scale``: scale of the other values, if these are codes. ``equality``:
        values are right or wrong, such as truths and indices. The top-1 match is the mean share of equal values, and
        values have no distance.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        *,
        top: bool = False,
        classes: int | None = None,
        interval: float | None = None,
        scale: float | None = None,
        equality: bool = False,
    ) -> None:
        self._equality = equality
        self._tolerance = tolerance
        self._top = top
        self._classes = classes
        self._interval = interval
        self._scale = scale
        self._records = 0
        self._elements = self._differing = self._finite = self._nonzero = 0
        self._max_abs = 0.0
        self._sums = np.zeros(6)  # |a-b|, |a-b| / |a|, (a-b)^2, a^2, b^2, a * b
        self._largest: list[float] = []  # largest difference of each record
        self._ends = (math.inf, -math.inf)  # range of all finite values of the reference
        self._matches: dict[int, list[float]] = {k: [] for k in TOP}

    def add(self, reference: Array, other: Array, records: int = 1) -> None:
        """Add records in arrays of the same shape and kind (numbers, text or handles). Handles never differ."""
        a, b = reference.reshape(records, -1), other.reshape(records, -1)
        self._elements += a.size
        if self._equality:
            differing = np.count_nonzero(a != b, axis=1)
            self._differing += int(differing.sum())
            self._matches[1] += (1.0 - differing / max(1, a.shape[1])).tolist()
            return
        if a.dtype.kind not in "biufc":
            # Handles refer to state of a run. The results of operators that read this state are compared instead.
            texts = ((x, y) for x, y in zip(a.flat, b.flat, strict=True) if isinstance(x, (bytes, str)))
            self._differing += sum(x != y for x, y in texts)
            return
        rtol = self._tolerance.rtol if a.dtype.kind in "fc" else 0.0
        largest = np.full(records, _NO_DISTANCE if a.size else 0.0)
        for start in range(0, a.shape[1], _PIECE_ELEMENTS):
            piece = slice(start, start + _PIECE_ELEMENTS)
            largest = np.maximum(largest, self._add_piece(a[:, piece], b[:, piece], rtol))
        self._max_abs = max(self._max_abs, float(largest.max()))
        known = largest[largest > _NO_DISTANCE].tolist()
        self._records += len(known)
        if a.dtype.kind == "c":
            return
        self._largest += known
        if (finite := a[np.isfinite(a)]).size:
            low, high = self._ends
            self._ends = min(low, float(finite.min())), max(high, float(finite.max()))
        if self._top:
            for k in TOP:
                if a.size and (self._classes or a.shape[1]) > k:  # otherwise all elements are among the k largest
                    self._matches[k] += top_matches(a, b, k, self._classes)

    def _add_piece(self, a: Array, b: Array, rtol: float) -> Array:
        """Add parts of records, [records, elements]. Return the largest absolute difference in each part."""
        same = a == b
        wide = np.complex128 if a.dtype.kind == "c" or b.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(x) & np.isfinite(y)
        same |= np.isnan(x) & np.isnan(y)
        if not finite.all():
            self._differing += int(np.count_nonzero(~(same | finite)))
            x, y, same = np.where(finite, x, 0.0), np.where(finite, y, 0.0), same | ~finite
        distance, size = np.abs(x - y), np.abs(x)
        self._differing += int(np.count_nonzero(~same & (distance > self._tolerance.atol + rtol * size)))
        self._finite += int(np.count_nonzero(finite))
        nonzero = size > 0
        self._nonzero += int(np.count_nonzero(nonzero))
        ratios = [d[n] / s[n] for d, s, n in zip(distance, size, nonzero, strict=True)]
        squares = (np.square(array).sum(axis=1) for array in (distance, size, np.abs(y)))
        products = [np.vdot(*pair).real for pair in zip(x, y, strict=True)]
        for sums in np.stack([distance.sum(axis=1), [ratio.sum() for ratio in ratios], *squares, products], axis=1):
            self._sums += sums
        return np.asarray(np.where(finite, distance, _NO_DISTANCE).max(axis=1, initial=_NO_DISTANCE))

    def errors(self) -> Errors:
        """Return the metrics over everything added so far."""
        if not self._finite:
            share = _mean(self._matches[1]) if self._equality else None
            return Errors(self._elements, self._differing, top1_match=share)
        absolute, relative, squares, signal, other, products = self._sums.tolist()
        lengths = math.sqrt(signal) * math.sqrt(other)
        return Errors(
            elements=self._elements,
            differing=self._differing,
            max_abs=self._max_abs,
            mae=absolute / self._finite,
            mape_percent=100.0 * relative / self._nonzero if self._nonzero else None,
            mpeir=self._mpeir(),
            mse=squares / self._finite,
            sqnr_db=10.0 * math.log10(signal / squares) if squares and signal else None,
            cosine=max(-1.0, min(1.0, products / lengths)) if lengths else None,
            top1_match=_mean(self._matches[1]),
            top5_match=_mean(self._matches[5]),
            tae=absolute / self._records,
            srmse=math.sqrt(squares / self._finite) / self._scale if self._scale else None,
        )

    def _mpeir(self) -> float | None:
        mean = _mean(self._largest)
        return None if mean is None else mean / (self._interval or interval_of(*self._ends) or 1.0)


# Intervals of results by operator, if the definition of the operator determines the range.
INTERVALS = {"SOFTMAX": 1.0, "LOGISTIC": 1.0, "TANH": 2.0}


def interval_of(low: float, high: float) -> float | None:
    """Return the denominator of errors for values from ``low`` to ``high``: the distance, or the magnitude if it is 0.

    None if the magnitude is also 0, or if there are no values.
    """
    return (high - low) or max(-low, high) or None if low <= high else None


def top_matches(a: Array, b: Array, k: int = 1, classes: int | None = None) -> list[float]:
    """Return the share of the ``k`` largest elements of ``a`` that are among the ``k`` largest of ``b``, by record.

    ``a`` and ``b`` are ``[records, elements]``. The lower index wins ties. With ``classes``, return the means over rows
    of ``classes`` elements.
    """
    ours, theirs = (array.reshape(-1, classes or array.shape[1]) for array in (a, b))
    if k == 1:
        alike = ours.argmax(axis=1) == theirs.argmax(axis=1)
    else:
        alike = _largest(ours, k) & _largest(theirs, k)
    counts = np.count_nonzero(alike.reshape(len(a), -1), axis=1)
    return (counts / (k * (len(ours) // len(a)))).tolist()  # type: ignore[no-any-return]


def _largest(rows: Array, k: int) -> Array:
    values = np.where(np.isnan(rows), np.inf, rows) if rows.dtype.kind == "f" else rows  # a NaN counts as large
    least = np.partition(values, -k, axis=1)[:, -k, None]
    above, equal = values > least, values == least
    wanted = k - np.count_nonzero(above, axis=1, keepdims=True)
    return np.asarray(above | (equal & (np.cumsum(equal, axis=1) <= wanted)))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


TensorKind = Literal["intermediate", "output"]


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """A tensor in the two runs. ``errors`` is None if the two cannot be compared, because of ``misfit``."""

    name: str  # in the reference
    op: str  # operator that computes the tensor in the reference; empty for an output that no operator computes
    kind: TensorKind
    unit: Literal["code", "value"]  # of the errors
    reference_type: str
    other_type: str
    errors: Errors | None
    misfit: str = ""

    @property
    def diverges(self) -> bool:
        return self.errors is None or self.errors.differing > 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All compared tensors, in the reference's execution order."""

    tensors: tuple[TensorComparison, ...]
    records: int
    tolerance: Tolerance

    @property
    def first_diverging(self) -> TensorComparison | None:
        return next((tensor for tensor in self.tensors if tensor.diverges), None)

    @property
    def outputs(self) -> tuple[TensorComparison, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.kind == "output")


def compare(
    reference: Executor,
    other: Executor,
    records: Iterable[Sequence[Array]],
    tolerance: Tolerance | None = None,
    others: Sequence[Sequence[Array]] | None = None,
) -> Comparison:
    """Run the two on every record, ``records[k][j]`` for input j, and compare outputs and common intermediates.

    Outputs are matched by position, other tensors by name. Equal types are compared as codes, different types as real
    numbers. Inputs of either side's type are converted. ``others``: records for the other side, if the inputs differ.
    Raises ModelError for different numbers of inputs or outputs, and errors of the runs.
    """
    counts = [("output", len(reference.graph.outputs), len(other.graph.outputs))]
    if others is None:
        counts.insert(0, ("input", len(reference.graph.inputs), len(other.graph.inputs)))
    for what, first, second in counts:
        if first != second:
            raise ModelError(f"the reference has {counted(first, what)}, the other {second}; they cannot be compared")
    tolerance = tolerance or Tolerance()
    pairs = _pairs(reference, other)
    done = 0
    for done, record in enumerate(records, 1):
        _compare_record(reference, other, record, record if others is None else others[done - 1], pairs, tolerance)
    return Comparison(tuple(pair.result() for pair in pairs), done, tolerance)


class _Pair:
    """A tensor of the two graphs. ``output``: position among the outputs, or None for an intermediate tensor."""

    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        indices: tuple[int, int],
        op: str,
        output: int | None,
        factors: tuple[Array | None, Array | None],
    ) -> None:
        self.indices = indices
        self.output = output
        self._infos = (graphs[0].tensors[indices[0]], graphs[1].tensors[indices[1]])
        self._factors = factors
        first, second = self._infos
        ours, theirs = (np.ones(1) if row is None else row for row in factors)
        same_units = np.array_equal(ours, theirs)
        self._as_they_are = same_units and (first.dtype, first.quant) == (second.dtype, second.quant)
        self._op = op
        self._meter: ErrorMeter | None = None
        self._types = ("", "")
        self._misfit = ""

    def add(self, a: Array, b: Array, tolerance: Tolerance) -> None:
        infos, factors = self._infos, self._factors
        self._types = (_seen_type(infos[0], a), _seen_type(infos[1], b))
        if a.shape != b.shape:
            self._misfit = self._misfit or "the shapes differ"
            return
        if not self._as_they_are:
            a, b = (_taken_back(to_reals(i, v), f) for i, v, f in zip(infos, (a, b), factors, strict=True))
        if (a.dtype == object) != (b.dtype == object):
            self._misfit = self._misfit or "the element types have nothing in common"
            return
        if self._meter is None:
            interval = None if self._as_they_are and infos[0].quant is not None else INTERVALS.get(self._op)
            top = self.output is not None
            self._meter = ErrorMeter(tolerance, top=top, interval=interval, scale=self._scale)
        self._meter.add(a, b)

    @property
    def _scale(self) -> float | None:
        info = self._infos[1]
        if info.quant is None or not info.info.is_integer or not info.quant.per_tensor:
            return None
        return 1.0 if self._as_they_are else info.quant.scale

    def result(self) -> TensorComparison:
        first, second = self._infos
        codes = self._as_they_are and first.quant is not None
        return TensorComparison(
            name=first.name,
            op=self._op,
            kind="intermediate" if self.output is None else "output",
            unit="code" if codes and first.info.is_integer else "value",
            reference_type=self._types[0],
            other_type=self._types[1],
            errors=None if self._misfit or self._meter is None else self._meter.errors(),
            misfit=self._misfit,
        )


def channel_factors(graph: Graph) -> Mapping[str, Array]:
    """Return, by tensor name, the factors by which a rewrite divided channels of the graph's tensors."""
    data = graph.metadata.get(NAME)
    return {} if data is None else decode(data)


def _taken_back(value: Array, factors: Array | None) -> Array:
    """Multiply the channels of real values by ``factors``, to undo a division."""
    if factors is None or value.dtype.kind != "f" or factors.ndim > value.ndim:
        return value
    fits = all(ours in (1, extent) for ours, extent in zip(factors.shape[::-1], value.shape[::-1], strict=False))
    return np.asarray(value * factors, value.dtype) if fits else value


def _seen_type(info: TensorInfo, value: Array) -> str:
    return type_text(ResultType(info.dtype, value.shape))


def _pairs(reference: Executor, other: Executor) -> list[_Pair]:
    """Pair outputs by position and computed tensors by name, in the reference's execution order."""
    graphs = (reference.graph, other.graph)
    order = {tensor: item.index for item in graphs[0].nodes for tensor in item.outputs}
    theirs = _by_name(other)
    found: list[tuple[int, int, int | None]] = [
        (ours, theirs[name], None)
        for name, ours in _by_name(reference).items()
        if name in theirs and ours not in graphs[0].outputs
    ]
    found += [(a, b, i) for i, (a, b) in enumerate(zip(graphs[0].outputs, graphs[1].outputs, strict=True))]
    found.sort(key=lambda pair: order.get(pair[0], -1))
    units = [channel_factors(graph) for graph in graphs]

    def pair(a: int, b: int, output: int | None) -> _Pair:
        op = graphs[0].nodes[order[a]].node.spec.name if a in order else ""
        factors = units[0].get(graphs[0].tensors[a].name), units[1].get(graphs[1].tensors[b].name)
        return _Pair(graphs, (a, b), op, output, factors)

    return [pair(*item) for item in found]


def _by_name(executor: Executor) -> dict[tuple[str, int], int]:
    result: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for index in sorted(tensor for unit in executor.units for tensor in unit.writes):
        name = executor.graph.tensors[index].name
        result[name, seen.setdefault(name, 0)] = index
        seen[name] += 1
    return result


def _compare_record(
    reference: Executor,
    other: Executor,
    record: Sequence[Array],
    others: Sequence[Array],
    pairs: Sequence[_Pair],
    tolerance: Tolerance,
) -> None:
    kept: dict[int, Array] = {}
    wanted = {pair.indices[0] for pair in pairs if pair.output is None}

    def keep(index: int, value: Array) -> None:
        if index in wanted:
            kept[index] = value.copy()

    by_other: dict[int, list[_Pair]] = {}
    for pair in pairs:
        if pair.output is None:
            by_other.setdefault(pair.indices[1], []).append(pair)

    def check(index: int, value: Array) -> None:
        for pair in by_other.get(index, ()):
            pair.add(kept[pair.indices[0]], value, tolerance)

    infos = reference.graph.input_infos(), other.graph.input_infos()
    if others is record:
        inputs = [_for_both(*item) for item in zip(*infos, record, strict=True)]
        record, others = [a for a, _ in inputs], [b for _, b in inputs]
    else:
        record, others = (
            [to_codes(*item) for item in zip(side, values, strict=True)]
            for side, values in zip(infos, (record, others), strict=True)
        )
    ours, theirs = _run(reference, record, keep), _run(other, others, check)
    for pair in pairs:
        if pair.output is not None:
            pair.add(ours[pair.output], theirs[pair.output], tolerance)


def _run(executor: Executor, inputs: Sequence[Array], watch: Watcher) -> list[Array]:
    executor.reset()
    return executor.run(inputs, watch=watch)


def _for_both(first: TensorInfo, second: TensorInfo, value: Array) -> tuple[Array, Array]:
    """Convert an input, real or in the type of one of two tensors, to the types of the two tensors."""
    given = first if value.dtype == first.info.numpy else second

    def converted(info: TensorInfo) -> Array:
        if (info.dtype, info.quant) == (given.dtype, given.quant) or value.dtype != given.info.numpy:
            return to_codes(info, value)
        return to_codes(info, to_reals(given, value))

    return converted(first), converted(second)
