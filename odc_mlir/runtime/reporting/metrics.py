"""Error metrics of values against a reference, over all elements of all records.

With reference ``a`` and other values ``b``: MAE is mean ``|a-b|``, MAPE mean ``|a-b|/|a|`` over elements with ``a !=
0``, MPEIR the mean over records of ``max|a-b| / (max a - min a)`` (an interval of zero counts as 1; or the interval is
given for all records, for one of few elements has none worth the name), MSE mean ``(a-b)^2``, SQNR ``10 log10(sum a^2 /
sum (a-b)^2)``, TAE the sum of ``|a-b|``, mean over records, SRMSE ``sqrt(MSE)`` in steps of b's scale. A top-k match is
the mean share of the k largest elements of a record, or of each of its rows, that both agree on, ties going to the
lower index. Elements that are not finite count as differing unless they are the same, and take no part in the other
measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.ops.spec import Array

TOP = (1, 5)
# Elements compared at a time: differences are float64, of which several live at once.
_PIECE_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats agree when ``|a - b| <= atol + rtol * |a|``; integers, for which rtol has no meaning, by atol alone."""

    atol: float = 1e-5
    rtol: float = 1e-4


@dataclass(frozen=True, slots=True)
class Errors:
    """Metrics of one tensor; None where undefined, such as the SQNR of equal values (infinite)."""

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


class ErrorMeter:
    """Accumulator of differences between records and a reference; ``top``: also of each record's largest elements.

    ``classes``: length of a row with one largest element; default: all elements. ``interval``: denominator of MPEIR,
    default: the interval of all records. ``scale``: step of the other's codes, if it has codes.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        *,
        top: bool = False,
        classes: int | None = None,
        interval: float | None = None,
        scale: float | None = None,
    ) -> None:
        self._tolerance = tolerance
        self._top = top
        self._classes = classes
        self._interval = interval
        self._scale = scale
        self._records = 0
        self._elements = self._differing = self._finite = self._nonzero = 0
        self._max_abs = self._absolute = self._relative = self._squares = 0.0
        self._reference_squares = self._other_squares = self._products = 0.0
        self._largest: list[float] = []  # of each record
        self._ends = (math.inf, -math.inf)  # of all finite values of the reference
        self._matches: dict[int, list[float]] = {k: [] for k in TOP}

    def add(self, reference: Array, other: Array) -> None:
        """Add a record: two arrays of the same shape, both numbers, text or handles (which never differ)."""
        a, b = reference.reshape(-1), other.reshape(-1)
        self._elements += a.size
        if a.dtype.kind not in "biufc":
            # Handles stand for state of their own run, which shows where it is read.
            texts = ((x, y) for x, y in zip(a, b, strict=True) if isinstance(x, (bytes, str)))
            self._differing += sum(x != y for x, y in texts)
            return
        exact = a.dtype.kind != "f" and a.dtype.kind != "c"
        largest, before = 0.0, self._finite
        for start in range(0, a.size, _PIECE_ELEMENTS):
            piece = slice(start, start + _PIECE_ELEMENTS)
            largest = max(largest, self._add_piece(a[piece], b[piece], 0.0 if exact else self._tolerance.rtol))
        self._max_abs = max(self._max_abs, largest)
        is_told = not a.size or self._finite > before  # of a record without a finite value no distance is known
        self._records += is_told
        if a.dtype.kind != "c":
            self._largest += [largest] if is_told else []
            if (finite := a[np.isfinite(a)]).size:
                low, high = self._ends
                self._ends = min(low, float(finite.min())), max(high, float(finite.max()))
        if self._top and a.dtype.kind != "c":
            for k in TOP:
                if a.size and (self._classes or a.size) > k:  # of fewer all are among the largest
                    self._matches[k].append(top_match(a, b, k, self._classes))

    def add_all(self, references: Sequence[Array], others: Sequence[Array]) -> None:
        """Add several records; bit-identical to :meth:`add` one by one, faster for small records."""
        kinds = {(array.shape, array.dtype) for array in references}, {(array.shape, array.dtype) for array in others}
        sizes = [array.size for array in references]
        small = bool(sizes) and 0 < sizes[0] <= _PIECE_ELEMENTS // len(sizes)
        if small and all(len(kind) == 1 and next(iter(kind))[1].kind in "biuf" for kind in kinds):
            self._add_rows(*(np.stack(arrays).reshape(len(sizes), -1) for arrays in (references, others)))
            return
        for reference, other in zip(references, others, strict=True):
            self.add(reference, other)

    def _add_rows(self, a: Array, b: Array) -> None:
        """Add records that are the rows of ``a`` and ``b``, real numbers [records, elements]."""
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            for reference, other in zip(a, b, strict=True):
                self.add(reference, other)
            return
        distance, size = np.abs(x - y), np.abs(x)
        self._records += len(a)
        self._elements += a.size
        self._finite += a.size
        self._nonzero += int(np.count_nonzero(size))
        least = self._tolerance.atol + (self._tolerance.rtol if a.dtype.kind == "f" else 0.0) * size
        self._differing += int(np.count_nonzero((a != b) & (distance > least)))
        squares = (np.square(rows).sum(axis=1).tolist() for rows in (distance, size, np.abs(y)))
        for absolute, noise, signal, found, ours, theirs in zip(
            distance.sum(axis=1).tolist(), *squares, x, y, strict=True
        ):
            self._absolute += absolute
            self._squares += noise
            self._reference_squares += signal
            self._other_squares += found
            self._products += float(np.vdot(ours, theirs))
        for part in _relative(distance, size):
            self._relative += part
        largest = distance.max(axis=1).tolist()
        self._largest += largest
        self._max_abs = max(self._max_abs, *largest)
        low, high = self._ends
        self._ends = min(low, float(x.min())), max(high, float(x.max()))
        for k in TOP if self._top else ():
            if (self._classes or a.shape[1]) > k:
                self._matches[k] += top_matches(a, b, k, self._classes)

    def _add_piece(self, a: Array, b: Array, rtol: float) -> float:
        """Add a part of a record; return its largest absolute difference."""
        same = a == b
        wide = np.complex128 if a.dtype.kind == "c" or b.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(x) & np.isfinite(y)
        same |= np.isnan(x) & np.isnan(y)
        if not finite.all():
            self._differing += int(np.count_nonzero(~(same | finite)))
            x, y, same = x[finite], y[finite], same[finite]
        distance, size = np.abs(x - y), np.abs(x)
        self._differing += int(np.count_nonzero(~same & (distance > self._tolerance.atol + rtol * size)))
        self._finite += x.size
        self._absolute += float(distance.sum())
        self._squares += float(np.square(distance).sum())
        self._reference_squares += float(np.square(size).sum())
        self._other_squares += float(np.square(np.abs(y)).sum())
        self._products += float(np.vdot(x, y).real)
        nonzero = size > 0
        self._nonzero += int(np.count_nonzero(nonzero))
        self._relative += float((distance[nonzero] / size[nonzero]).sum())
        return float(distance.max(initial=0.0))

    def errors(self) -> Errors:
        """Return the metrics over everything added so far."""
        if not self._finite:
            return Errors(self._elements, self._differing)
        return Errors(
            elements=self._elements,
            differing=self._differing,
            max_abs=self._max_abs,
            mae=self._absolute / self._finite,
            mape_percent=100.0 * self._relative / self._nonzero if self._nonzero else None,
            mpeir=self._mpeir(),
            mse=self._squares / self._finite,
            sqnr_db=self._sqnr(),
            cosine=self._cosine(),
            top1_match=_mean(self._matches[1]),
            top5_match=_mean(self._matches[5]),
            tae=self._absolute / self._records,
            srmse=math.sqrt(self._squares / self._finite) / self._scale if self._scale else None,
        )

    def _mpeir(self) -> float | None:
        """Return the mean of records' largest errors, relative to the interval of all records."""
        mean = _mean(self._largest)
        return None if mean is None else mean / (self._interval or interval_of(*self._ends) or 1.0)

    def _sqnr(self) -> float | None:
        if not self._squares or not self._reference_squares:
            return None
        return 10.0 * math.log10(self._reference_squares / self._squares)

    def _cosine(self) -> float | None:
        """Return the cosine similarity, None if either side is zero everywhere."""
        lengths = math.sqrt(self._reference_squares) * math.sqrt(self._other_squares)
        return max(-1.0, min(1.0, self._products / lengths)) if lengths else None


# The interval of results that have one by definition, whatever samples show of it.
INTERVALS = {"SOFTMAX": 1.0, "LOGISTIC": 1.0, "TANH": 2.0}


def interval_of(low: float, high: float) -> float | None:
    """Return the denominator of errors for values from ``low`` to ``high``: their distance, else their magnitude.

    None if that is zero too, or without values.
    """
    return (high - low) or max(-low, high) or None if low <= high else None


def top_match(a: Array, b: Array, k: int = 1, classes: int | None = None) -> float:
    """Return the share of the ``k`` largest elements of ``a`` that ``b`` has too; the lower index wins ties.

    Over all elements, or the mean over rows of ``classes`` elements.
    """
    (share,) = top_matches(a.reshape(1, -1), b.reshape(1, -1), k, classes)
    return share


def top_matches(a: Array, b: Array, k: int, classes: int | None = None) -> list[float]:
    """:func:`top_match` of each record of ``a`` and ``b``, [records, elements]."""
    ours, theirs = (array.reshape(-1, classes or array.shape[1]) for array in (a, b))
    if k == 1:
        alike = (ours.argmax(axis=1) == theirs.argmax(axis=1)).reshape(len(a), -1)
    else:
        alike = (_largest(ours, k) & _largest(theirs, k)).reshape(len(a), -1)
    most = k * len(ours) // len(a)
    return [count / most for count in np.count_nonzero(alike, axis=1).tolist()]


def _relative(distance: Array, size: Array) -> list[float]:
    """Return the sum over each row of ``distance`` relative to ``size``, where that is not zero."""
    if size.all():
        return list((distance / size).sum(axis=1).tolist())
    pairs = ((near[far > 0], far[far > 0]) for near, far in zip(distance, size, strict=True))
    return [float((near / far).sum()) for near, far in pairs]


def _largest(rows: Array, k: int) -> Array:
    """Return a mask of the ``k`` largest elements of each of ``rows``, [rows, elements]."""
    values = np.where(np.isnan(rows), np.inf, rows) if rows.dtype.kind == "f" else rows  # a NaN counts as large
    least = np.partition(values, -k, axis=1)[:, -k, None]
    above, equal = values > least, values == least
    wanted = k - np.count_nonzero(above, axis=1, keepdims=True)
    return np.asarray(above | (equal & (np.cumsum(equal, axis=1) <= wanted)))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
