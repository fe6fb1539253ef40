"""Requantisation of integers that float32 holds, as convolutions give them, in float32 as far as that is certain.

A float32 product with the multiplier is within a known distance of the exact one. Where no boundary between two codes
lies that near, both give the same code. The few other sums, mostly less than 1 %, are done by whole numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import INT32_MAX, Requantizer, multiply
from odc_mlir.numerics.matmul import FLOAT32_EXACT, narrow
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS

_LONG_ROW = 1 << 11  # elements of which a row is worth the start of a loop
_MOST_UNSURE = 1 / 16  # share of sums: more would take too long to do twice
_ROUNDING = 2.0**-22  # of four float32 operations together, relative to the largest numbers that meet in them


class _Rows(NamedTuple):
    """Multipliers and what is added for a row of whole pixels, and up to which distance from it a code is certain."""

    factors: NDArray[np.float32]
    offsets: NDArray[np.float32]
    certain: NDArray[np.float32]


class FloatRequantizer:
    """Maps sums ``[..., C]`` to the codes that ``exact`` gives of them with ``bias`` added, int32 ``[C]`` or None.

    Sums are integers: of float32 below 2^24, or of any other dtype, which are done by whole numbers alone.
    """

    def __init__(self, exact: Requantizer, bias: NDArray[np.int32] | None) -> None:
        self._exact, self._bias = exact, bias
        self._rows: tuple[int, _Rows | None] | None = None  # for so many channels

    def __call__(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Codes of the dtype of ``exact``; int32 sums are overwritten."""
        if sums.dtype == np.float32 and sums.size and sums.ndim:
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
        """None where float32 is certain of too little.

        Whole numbers round twice, first to steps of 2^e codes: that moves a sum by half of such a step at most.
        """
        exact, bias = self._exact, np.zeros(1, np.int64) if self._bias is None else self._bias.astype(np.int64)
        if {exact.q.size, exact.e.size, bias.size} - {1, channels} or not channels:
            return None
        if exact.e.max() > 0 or exact.q.min() < 0 or np.abs(bias).max() > INT32_MAX - FLOAT32_EXACT:
            return None  # what wraps
        if abs(exact.zero_point) > FLOAT32_EXACT:
            return None
        factors = np.ldexp(exact.q.astype(np.float64), exact.e - 31)
        offsets = bias * factors + exact.zero_point
        reach = max(abs(exact.low), abs(exact.high)) + 1
        unsure = np.ldexp(0.5, exact.e) + _ROUNDING * (reach + np.abs(offsets))
        if (2 * unsure).clip(0, 1).mean() > _MOST_UNSURE:
            return None
        certain = 0.5 - _ROUNDING - unsure  # below zero where nothing is
        count = max(1, _LONG_ROW // channels)
        rows = (np.broadcast_to(row, channels).astype(np.float32) for row in (factors, offsets, certain))
        return _Rows(*(np.tile(row, count) for row in rows))

    def _by_floats(self, sums: NDArray[np.float32], rows: _Rows) -> NDArray[Any]:
        flat, length = sums.reshape(-1), rows.factors.size
        codes, unsure = np.empty(flat.size, self._exact.dtype), []
        whole = flat.size - flat.size % length
        step = length * max(1, CHUNK_ELEMENTS // length)
        starts = [*range(0, whole, step), *([whole] if whole < flat.size else [])]  # what is left of a row last
        buffers = np.empty((2, min(step, flat.size)), np.float32)
        for start, end in zip(starts, [*starts[1:], flat.size], strict=True):
            shape = (-1, min(length, end - start))
            values, rounded = (buffer[: end - start].reshape(shape) for buffer in buffers)
            places = self._round(flat[start:end].reshape(shape), rows, values, rounded)
            codes[start:end] = rounded.reshape(-1)
            unsure.append(places + start)
        self._mend(codes, flat, np.concatenate(unsure), sums.shape[-1])
        return codes.reshape(sums.shape)

    def _round(
        self, part: NDArray[np.float32], rows: _Rows, values: NDArray[np.float32], rounded: NDArray[np.float32]
    ) -> NDArray[np.intp]:
        """Write the nearest codes to ``rounded``; the places of those that are not certain. ``values`` is room."""
        factors, offsets, certain = (row[: part.shape[1]] for row in rows)
        np.multiply(part, factors, out=values)
        np.add(values, offsets, out=values)
        values.clip(np.float32(self._exact.low), np.float32(self._exact.high), out=values)
        np.rint(values, out=rounded)
        np.subtract(values, rounded, out=values)
        np.abs(values, out=values)
        return (values > certain).reshape(-1).nonzero()[0]

    def _mend(self, codes: NDArray[Any], flat: NDArray[np.float32], places: NDArray[np.intp], channels: int) -> None:
        """Compute the codes at these places by whole numbers."""
        exact, channel = self._exact, places % channels
        q, e = (row if row.size == 1 else row[channel] for row in (exact.q, exact.e))
        sums = flat[places].astype(np.int64)
        if self._bias is not None:
            sums += self._bias if self._bias.size == 1 else self._bias[channel]
        found = multiply(sums, q, e).astype(np.int64) + exact.zero_point
        codes[places] = np.clip(found, exact.low, exact.high)
