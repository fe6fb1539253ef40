"""Requantisation of integer sums in float arrays, as convolutions produce them, by float arithmetic.

A float32 product with the multiplier has a known maximal error. Unless a tie between two codes is nearer than that, it
gives the same code as the exact product. The few other sums, usually less than 1 %, are requantised as integers. Wide
sums have 15-bit multipliers, whose products are exact in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import INT32_MAX, Requantizer, WideRequantizer, multiply
from odc_mlir.numerics.matmul import FLOAT32_EXACT, FLOAT64_EXACT, narrow
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS, whole_rows

_LONG_ROW = 1 << 11  # elements per numpy row operation that amortise its overhead
_FEWEST = CHUNK_ELEMENTS  # sums from which float arithmetic pays off
_MOST_UNSURE = 1 / 16  # largest share of uncertain sums
_MOST_SHIFT = 50  # products have 53 bits
_ROUNDING = 2.0**-22  # error of four float32 operations, relative to their largest operand


class _Rows(NamedTuple):
    """Multipliers and offsets of a row of whole pixels, and the distance from ties that is certain."""

    factors: NDArray[np.float32]
    offsets: NDArray[np.float32]
    certain: NDArray[np.float32]


class _WideRows(NamedTuple):
    """Multipliers and offsets of a row of whole pixels, and the largest sum that stays exact."""

    factors: NDArray[np.float64]
    offsets: NDArray[np.float64]
    largest: float


class FloatRequantizer:
    """Requantisation of sums ``[..., C]`` plus an int32 ``bias [C]``, with the results of ``exact``.

    Sums are integers below 2^24 in float32; those of other dtypes are requantised as integers.
    """

    def __init__(self, exact: Requantizer, bias: NDArray[np.int32] | None) -> None:
        self._exact, self._bias = exact, bias
        self._rows: tuple[int, _Rows | None] | None = None  # by number of channels

    def __call__(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return codes of the dtype of ``exact``; int32 sums are overwritten."""
        if sums.dtype == np.float32 and sums.size >= _FEWEST:
            channels = sums.shape[-1]
            if self._rows is None or self._rows[0] != channels:
                self._rows = channels, self._prepared(channels)
            if (rows := self._rows[1]) is not None:
                return self._by_floats(np.ascontiguousarray(sums), rows)
        whole = narrow(sums, np.dtype(np.int32))
        if self._bias is not None:
            np.add(whole, self._bias, out=whole)
        return self._exact(whole)

    def _prepared(self, channels: int) -> _Rows | None:
        """Return parameters for a row, or None if float32 would leave too many sums uncertain."""
        exact, bias = self._exact, np.zeros(1, np.int64) if self._bias is None else self._bias.astype(np.int64)
        if {exact.q.size, exact.e.size, bias.size} - {1, channels} or not channels:
            return None
        if exact.e.max() > 0 or exact.q.min() < 0 or np.abs(bias).max() > INT32_MAX - FLOAT32_EXACT:
            return None  # sums may wrap
        if abs(exact.zero_point) > FLOAT32_EXACT:
            return None
        factors = np.ldexp(exact.q.astype(np.float64), exact.e - 31)
        offsets = bias * factors + exact.zero_point
        reach = max(abs(exact.low), abs(exact.high)) + 1
        unsure = np.ldexp(0.5, exact.e) + _ROUNDING * (reach + np.abs(offsets))
        if (2 * unsure).clip(0, 1).mean() > _MOST_UNSURE:
            return None
        certain = 0.5 - _ROUNDING - unsure  # negative if no sum is certain
        return _Rows(*(_long_row(row.astype(np.float32), channels) for row in (factors, offsets, certain)))

    def _by_floats(self, sums: NDArray[np.float32], rows: _Rows) -> NDArray[Any]:
        flat, codes, unsure = sums.reshape(-1), np.empty(sums.size, self._exact.dtype), []
        parts = whole_rows(flat.size, rows.factors.size)
        buffers = np.empty((2, parts[0].stop), np.float32)  # the first is the longest
        for part in parts:
            found = flat[part].reshape(-1, min(rows.factors.size, part.stop - part.start))
            values, rounded = (buffer[: found.size].reshape(found.shape) for buffer in buffers)
            unsure.append(self._round(found, rows, values, rounded) + part.start)
            codes[part] = rounded.reshape(-1)
        self._mend(codes, flat, np.concatenate(unsure), sums.shape[-1])
        return codes.reshape(sums.shape)

    def _round(
        self, part: NDArray[np.float32], rows: _Rows, values: NDArray[np.float32], rounded: NDArray[np.float32]
    ) -> NDArray[np.intp]:
        """Write the nearest codes to ``rounded`` and return the indices of uncertain ones."""
        factors, offsets, certain = (row[: part.shape[1]] for row in rows)
        np.multiply(part, factors, out=values)
        np.add(values, offsets, out=values)
        values.clip(np.float32(self._exact.low), np.float32(self._exact.high), out=values)
        np.rint(values, out=rounded)
        np.subtract(values, rounded, out=values)
        np.abs(values, out=values)
        return (values > certain).reshape(-1).nonzero()[0]

    def _mend(self, codes: NDArray[Any], flat: NDArray[np.float32], places: NDArray[np.intp], channels: int) -> None:
        """Recompute the codes at ``places`` by integer arithmetic."""
        exact, channel = self._exact, places % channels
        q, e = (row if row.size == 1 else row[channel] for row in (exact.q, exact.e))
        sums = flat[places].astype(np.int64)
        if self._bias is not None:
            sums += self._bias if self._bias.size == 1 else self._bias[channel]
        found = multiply(sums, q, e).astype(np.int64) + exact.zero_point
        codes[places] = np.clip(found, exact.low, exact.high)


class WideFloatRequantizer:
    """Requantisation of sums ``[..., C]`` plus an int64 ``bias [C]``, with the results of ``exact``.

    Sums are integers of any dtype; those in float64 that are small enough are requantised by floats.
    """

    def __init__(self, exact: WideRequantizer, bias: NDArray[np.int64] | None) -> None:
        self._exact, self._bias = exact, bias
        self._rows: tuple[int, _WideRows | None] | None = None  # by number of channels

    def __call__(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return codes of the dtype of ``exact``; int64 sums are overwritten."""
        if sums.dtype == np.float64 and sums.size and sums.ndim:
            channels = sums.shape[-1]
            if self._rows is None or self._rows[0] != channels:
                self._rows = channels, self._prepared(channels)
            rows = self._rows[1]
            if rows is not None and max(float(sums.max()), -float(sums.min())) <= rows.largest:
                return self._by_floats(np.ascontiguousarray(sums), rows)
        whole = narrow(sums, np.dtype(np.int64))
        if self._bias is not None:
            np.add(whole, self._bias, out=whole)
        return self._exact(whole)

    def _prepared(self, channels: int) -> _WideRows | None:
        """Return parameters for a row, or None if no product is exact in 53 bits, or results would wrap."""
        exact, bias = self._exact, np.zeros(1, np.int64) if self._bias is None else self._bias
        reduced, half, shift = map(np.atleast_1d, exact.fields)
        if {reduced.size, shift.size, bias.size} - {1, channels} or reduced.min() < 0:
            return None
        if shift.min() < 1 or shift.max() > _MOST_SHIFT:
            return None
        factors = np.ldexp(reduced.astype(np.float64), -shift)
        room = FLOAT64_EXACT - int((half + (abs(exact.zero_point) << shift)).max())
        largest = min(room / max(1, int(reduced.max())), (INT32_MAX - 1) / max(float(factors.max()), 2.0**-_MOST_SHIFT))
        largest -= float(np.abs(bias.astype(np.float64)).max()) + 1
        if largest <= 0:
            return None
        offsets = bias * factors + 0.5 + exact.zero_point
        return _WideRows(_long_row(factors, channels), _long_row(offsets, channels), largest)

    def _by_floats(self, sums: NDArray[np.float64], rows: _WideRows) -> NDArray[Any]:
        flat, codes = sums.reshape(-1), np.empty(sums.size, self._exact.dtype)
        parts = whole_rows(flat.size, rows.factors.size)
        buffer = np.empty(parts[0].stop)  # the first is the longest
        low, high = np.float64(self._exact.low), np.float64(self._exact.high)
        for part in parts:
            found = flat[part].reshape(-1, min(rows.factors.size, part.stop - part.start))
            values, columns = buffer[: found.size].reshape(found.shape), found.shape[1]
            np.multiply(found, rows.factors[:columns], out=values)
            np.add(values, rows.offsets[:columns], out=values)
            values.clip(low, high, out=values)
            np.floor(values, out=values)
            codes[part] = values.reshape(-1)
        return codes.reshape(sums.shape)


def _long_row(row: NDArray[Any], channels: int) -> NDArray[Any]:
    """Return ``values``, one or one per channel, repeated for the channels of ``pixels`` pixels."""
    return np.tile(np.broadcast_to(row, channels), max(1, _LONG_ROW // channels))
