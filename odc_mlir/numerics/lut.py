"""Lookup tables over all codes of an 8-bit or 16-bit type, indexed by the code's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.pieces import in_pairs, in_pieces

Function = Callable[[NDArray[Any]], NDArray[Any]]

_EIGHT = np.array(8, np.uint16)

TABLE_16_THRESHOLD = 1 << 17  # least number of elements for a table of 65536 codes or pairs


def codes_by_bits(dtype: str | np.dtype[Any]) -> NDArray[Any]:
    """Return all codes of an 8-bit or 16-bit dtype, ordered by unsigned bits, or both truths."""
    dtype = np.dtype(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.arange(1 << (1 if dtype == np.bool_ else 8 * dtype.itemsize), dtype=unsigned).view(dtype)


def tabulate(function: Function, dtype: str | np.dtype[Any]) -> NDArray[Any]:
    """Return the table of a function from codes to codes."""
    return function(codes_by_bits(dtype))


def tabulate_pairs(function: Callable[..., NDArray[Any]], a: np.dtype[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Return the table of a function of 8-bit codes of type ``a`` and codes ``rows``: 256 entries for each row."""
    return np.ascontiguousarray(function(codes_by_bits(a)[np.newaxis, :], rows.reshape(-1, 1))).reshape(-1)


def apply_pairs(table: NDArray[Any], a: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Return entries of a table of pairs for 8-bit codes ``a`` and 8-bit numbers of ``rows``, which broadcast."""

    def look_up(a: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(table.take(a.view(np.uint8) + (rows.view(np.uint8).astype(np.uint16) << _EIGHT)))

    return in_pairs(look_up, a, rows, table.dtype)


def real_table(
    function: Function,
    in_quant: tuple[float, int],
    out_quant: tuple[float, int],
    in_dtype: str | np.dtype[Any],
    out_dtype: str | np.dtype[Any],
) -> NDArray[Any]:
    """Return the table of a float32 function from 8-bit codes to codes. ``*_quant`` are (scale, zero point).

    The result is multiplied by the float32 reciprocal of the scale and rounded half away from zero.
    """
    codes = codes_by_bits(in_dtype).astype(np.int64)
    x = np.float32(in_quant[0]) * (codes - in_quant[1]).astype(np.float32)
    with np.errstate(all="ignore"):
        y = function(x).astype(np.float32) * (np.float32(1) / np.float32(out_quant[0]))
    low, high = code_range(out_dtype)
    y = np.clip(np.nan_to_num(y.astype(np.float64), nan=low), -(2.0**31), 2.0**31 - 1)
    return np.asarray(np.clip(round_half_away(y) + out_quant[1], low, high), out_dtype)


def apply(table: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Return entries of a table for codes ``x``."""
    if table.dtype.itemsize == 1 and x.dtype.itemsize == 1:
        translated = bytearray(np.ascontiguousarray(x)).translate(table.tobytes())
        return np.frombuffer(translated, table.dtype).reshape(x.shape)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return in_pieces(lambda codes: np.take(table, codes.view(unsigned)), x, table.dtype)


def logistic(x: NDArray[Any]) -> NDArray[Any]:
    """Return ``1 / (1 + e^-x)`` in the dtype of ``x``."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)), x.dtype)
