"""16-bit activations: interpolated tables, softmax, logistic, tanh and power-of-two additions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import multiply, quantize_multiplier, rdbpot, round_half_away
from odc_mlir.numerics.lut import TABLE_16_THRESHOLD
from odc_mlir.numerics.pieces import below_maximum, by_pieces, clamp, in_pairs, in_pieces, limit, row_slices
from odc_mlir.numerics.transcendental import leading_zeros

Function = Callable[[NDArray[Any]], NDArray[Any]]

_STEPS = 512
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
LARGEST_ERROR = 32  # error limit of an interpolated table in codes (1/1024 of the range), if results use the full range
_FEW_CODES = 2  # least error limit, for results that use a small part of the range
_TRIED_STEP = 32  # every 32nd code is checked
_EXP_RANGE = 10.0  # softmax tabulates e^x on [-10, 0]
_SIGMOID_SIZE = 256
_POWER_TOLERANCE = 1e-3
_KEPT_ELEMENTS = 1 << 17  # largest number of elements with exponentials kept in memory


def wide_table(
    function: Function, least: float, most: float, out_least: float, out_most: float, real: type = np.float64
) -> NDArray[np.int64]:
    """Return 513 entries of a function over ``[least, most]``, scaled so that results fill int16.

    Half of the interpolation error in the middle of a step corrects the entry of the step. All arithmetic uses the type
    ``real``: float64 for softmax, float32 otherwise.
    """

    def rounded(values: NDArray[Any]) -> NDArray[Any]:
        return round_half_away(values).astype(real)

    step = real(real(most) - real(least)) / real(_STEPS)
    inverse = real(1 << 16) / (real(out_most) - real(out_least))
    positions = np.arange(_STEPS + 1).astype(real) * step + real(least)
    exact = function(positions).astype(real) * inverse
    here = rounded(exact[:-1])
    interpolated = rounded((exact[1:] + here) / real(2))
    middle = rounded(function(positions[:-1] + step / real(2)).astype(real) * inverse)
    entries = here - rounded((interpolated - middle) / real(2))
    last = rounded(function(np.array([most], real)).astype(real) * inverse)
    limited = np.clip(np.nan_to_num(np.concatenate([entries, last]), nan=_LOW), _LOW, _HIGH)
    table: NDArray[np.int64] = limited.astype(np.int64)
    table.flags.writeable = False
    return table


def look_up(table: NDArray[np.int64], codes: NDArray[Any]) -> NDArray[np.int64]:
    """Return interpolated entries of a :func:`wide_table` for int16 codes. Slopes have 16 bits."""
    wide = codes.astype(np.int64)
    index, offset = (_STEPS // 2) + (wide >> 7), wide & 127
    slopes = np.diff(table).astype(np.int16).astype(np.int64)
    found: NDArray[np.int64] = table[index] + ((slopes[index] * offset + 64) >> 7)
    return found


def real_table16(
    function: Function, in_scale: float, out_scale: float, *, by_reference: bool = False
) -> NDArray[np.int16] | None:
    """Return results of a float32 function for all int16 codes by an interpolated table, or None.

    Codes are ordered by bits. Zero points are 0. Returns None if the interpolation error exceeds 1/1024 of the largest
    result, as for poles or steep functions. ``by_reference`` skips this check, as the reference does.
    """

    def limit(scale: float, code: int) -> float:
        return float(np.float32(scale) * np.float32(code))

    with np.errstate(all="ignore"):
        inputs, outputs = ((limit(scale, _LOW), limit(scale, _HIGH)) for scale in (in_scale, out_scale))
        table = wide_table(function, *inputs, *outputs, np.float32)
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    found = look_up(table, codes)
    if by_reference:
        return found.astype(np.int16)
    tried = slice(_TRIED_STEP // 2, None, _TRIED_STEP)
    exact = real_codes16(function, (in_scale, 0), (out_scale, 0))(codes[tried])
    allowed = max(_FEW_CODES, LARGEST_ERROR * int(np.abs(exact.astype(np.int64)).max()) // _HIGH)
    if int(np.abs(found[tried] - exact).max()) > allowed:
        return None
    return found.astype(np.int16)


def real_codes16(function: Function, in_quant: tuple[float, int], out_quant: tuple[float, int]) -> Function:
    """Return results of a float32 function for int16 codes. ``*_quant`` are (scale, zero point)."""
    scale, zero = np.float32(in_quant[0]), in_quant[1]

    def compute(codes: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            real: NDArray[Any] = function(scale * (codes.astype(np.int64) - zero).astype(np.float32)).astype(np.float64)
            steps = np.nan_to_num(real / np.float64(np.float32(out_quant[0])), nan=2 * _LOW)  # NaN: lowest code
        return np.asarray(np.clip(round_half_away(steps) + out_quant[1], _LOW, _HIGH))

    return lambda codes: in_pieces(compute, codes, np.dtype(np.int16))


@cache
def exponential_table() -> NDArray[np.int64]:
    """Return the :func:`wide_table` of ``e^x`` for x in [-10, 0], used by :func:`softmax16_codes`."""
    return wide_table(np.exp, -_EXP_RANGE, 0.0, -1.0, 1.0)


@cache
def _reciprocal_table() -> NDArray[np.int64]:
    """Return the :func:`wide_table` of ``1 / (1 + v)`` for v in [0, 1]."""
    return wide_table(lambda v: 1 / (1 + v), 0.0, 1.0, -1.0, 1.0)


def softmax16_params(scale: float, beta: float) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` from differences to the maximum to steps of 10/65535."""
    product = float(np.float32(np.float32(scale) * np.float32(beta)))
    return quantize_multiplier(product / (_EXP_RANGE / 65535.0))


def softmax16_tables(multiplier: int, exponent: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the tables of :func:`softmax16_codes`: exponentials of differences, and reciprocals."""
    return _exponentials_below(multiplier, exponent), _reciprocal_table()


def softmax16_codes(
    x: NDArray[Any], multiplier: int, exponent: int, entries: NDArray[np.int64] | None = None
) -> NDArray[np.int16]:
    """Return the softmax of int16 codes along the last axis, as int16 codes with scale 1/32768.

    The zero point is 0. ``entries`` overrides :func:`exponential_table`. Exponentials depend only on the difference
    from the row's maximum. For large tensors, the exponentials of all differences are tabulated.
    """
    if entries is not None:
        exponentials: Function = functools.partial(
            _exponentials, multiplier=multiplier, exponent=exponent, entries=entries
        )
    elif x.size >= TABLE_16_THRESHOLD:
        table = _exponentials_below(multiplier, exponent)
        exponentials = functools.partial(np.take, table)
    else:
        exponentials = functools.partial(_exponentials, multiplier=multiplier, exponent=exponent)

    rows = x.reshape(-1, x.shape[-1])
    result = np.empty(rows.shape, np.int16)
    for part in row_slices(rows, _KEPT_ELEMENTS):
        _softmax16_rows(rows[part], exponentials, result[part])
    return result.reshape(x.shape)


def _softmax16_rows(rows: NDArray[np.int16], exponentials: Function, result: NDArray[np.int16]) -> None:
    terms, totals = np.empty(rows.shape, np.int16), np.empty((len(rows), 1), np.int64)
    for part in row_slices(rows):
        found = exponentials(below_maximum(rows[part]))
        terms[part] = found
        found.sum(axis=1, keepdims=True, dtype=np.int64, out=totals[part])
    np.clip(totals, 1, (1 << 31) - 1, out=totals)
    zeros = leading_zeros(totals)
    normal = ((totals << (zeros - 1)) + (1 << 13)) >> 14
    inverse = look_up(_reciprocal_table(), np.clip(normal - (1 << 15) - (1 << 16), _LOW, _HIGH)).astype(np.int32)
    half, shift = (np.int64(1) << (30 - zeros)).astype(np.int32), (31 - zeros).astype(np.int32)
    for part in row_slices(rows):
        scaled = terms[part].astype(np.int32)
        scaled *= inverse[part]
        scaled += half[part]
        scaled >>= shift[part]
        result[part] = limit(scaled, 0, _HIGH, out=scaled)


def _exponentials(
    below: NDArray[np.uint16], multiplier: int, exponent: int, entries: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return ``e^-(scale*beta*below)`` for differences from a maximum, with 15 fraction bits."""
    diff = multiply(-below.astype(np.int64), multiplier, exponent).astype(np.int64)
    return look_up(exponential_table() if entries is None else entries, np.clip(diff + _HIGH, _LOW, _HIGH))


@lru_cache(maxsize=16)
def _exponentials_below(multiplier: int, exponent: int) -> NDArray[np.int16]:
    table = _exponentials(np.arange(1 << 16, dtype=np.uint16), multiplier, exponent).astype(np.int16)
    table.flags.writeable = False
    return table


@dataclass(frozen=True, slots=True)
class SigmoidParams:
    """Parameters from int16 codes to table positions: ``(x * multiplier + half) >> shift``."""

    multiplier: int
    shift: int


def sigmoid_params(scale: float, *, largest_shift: int) -> SigmoidParams:
    """Return parameters of a 16-bit logistic (``largest_shift`` 0) or tanh (1)."""
    power = math.log2(scale)
    nearest = round(power)
    left = 12 + nearest
    if abs(power - nearest) < _POWER_TOLERANCE and 0 <= left <= largest_shift:
        return SigmoidParams(3 << left, 0)
    real, shift = scale * 4096.0 * 3.0, 0
    while real <= 32767.0 / 2.0 and shift <= 30:
        real *= 2
        shift += 1
    return SigmoidParams(int(real), shift)


@cache
def sigmoid_table() -> NDArray[np.int64]:
    """Return 65536 times the logistic function at k/24, corrected for interpolation. The last entry is saturated."""

    def at(k: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(65536 / (1 + np.exp(-k / 24)))

    k = np.arange(_SIGMOID_SIZE, dtype=np.float64)
    table = round_half_away(at(k) - ((at(k) + at(k + 1)) / 2 - at(k + 0.5)) / 2).astype(np.int64)
    table[-1] = 65535
    table.flags.writeable = False
    return table


def _sigmoid(
    x: NDArray[Any], p: SigmoidParams, index_bits: int, saturated: int, entries: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return the sign of scaled positions, and the interpolated table at the magnitudes of the positions."""
    half = 1 << (p.shift - 1) if p.shift else 0
    position = (x.astype(np.int64) * p.multiplier + half) >> p.shift
    magnitude = np.abs(position)
    table = sigmoid_table() if entries is None else entries
    index = np.minimum(magnitude >> index_bits, _SIGMOID_SIZE - 2)
    fraction = magnitude & ((1 << index_bits) - 1)
    value = (table[index] << index_bits) + fraction * (table[index + 1] - table[index])
    return position >= 0, np.where(magnitude >> index_bits >= _SIGMOID_SIZE - 1, saturated, value)


@by_pieces(np.int16)
def logistic16(x: NDArray[Any], p: SigmoidParams, entries: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Return the logistic function of int16 codes, as codes with scale 1/32768 and zero point 0.

    ``entries`` overrides :func:`sigmoid_table`.
    """
    positive, value = _sigmoid(x, p, 9, 0x7FFF << 10, entries)
    return np.where(positive, value + 512, (1 << 25) - value + 511) >> 10


@by_pieces(np.int16)
def tanh16(x: NDArray[Any], p: SigmoidParams, entries: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Return the hyperbolic tangent of int16 codes, as codes with scale 1/32768 and zero point 0.

    ``entries`` overrides :func:`sigmoid_table`.
    """
    positive, value = _sigmoid(x, p, 8, 0xFFFF << 8, entries)
    return np.where(positive, value - (1 << 23) + 128, (1 << 23) - value + 127) >> 8


@dataclass(frozen=True, slots=True)
class PowerAddParams:
    """Right shifts of the operands of an addition with power-of-two scales. At least one shift is 0."""

    a_shift: int
    b_shift: int
    act_min: int
    act_max: int


def power_add_params(a: float, b: float, out: float, act: tuple[int, int]) -> PowerAddParams | None:
    """Return shifts if all scales are powers of two and one operand needs a shift, else None."""
    powers = [math.log2(scale) for scale in (a, b, out)]
    if any(abs(power - round(power)) >= _POWER_TOLERANCE for power in powers):
        return None
    exponents = [round(power) for power in powers]
    shifts = exponents[2] - exponents[0], exponents[2] - exponents[1]
    if min(shifts) != 0 or max(shifts) > 31:
        return None
    return PowerAddParams(*shifts, *act)


def power_add(a: NDArray[Any], b: NDArray[Any], p: PowerAddParams, *, subtract: bool = False) -> NDArray[np.int16]:
    """Return int16 codes of ``a + b`` or ``a - b``: shift one operand, saturate, clamp. Operands broadcast."""

    def compute(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        left, right = rdbpot(a.astype(np.int64), p.a_shift), rdbpot(b.astype(np.int64), p.b_shift)
        total = np.clip(left - right if subtract else left + right, _LOW, _HIGH)
        return clamp(total, p.act_min, p.act_max)

    return in_pairs(compute, a, b, np.int16)
