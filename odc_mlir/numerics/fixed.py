"""Fixed-point primitives: multipliers, rounding, requantisation and activation ranges.

The formulas come from TensorFlow Lite's reference kernels and gemmlowp (double rounding). A real multiplier ``d`` is
represented as ``q * 2^(e-31)`` with an int32 ``q`` and a small signed ``e``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS, FEW_ELEMENTS, clamp, in_rows

Ints = int | NDArray[Any]

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
LARGEST_EXPONENT = 31
LARGEST_REAL = float(np.finfo(np.float32).max)
_HIGH_WORD = 1 if sys.byteorder == "little" else 0

_ACTIVATION_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "none": (None, None),
    "tanh": (None, None),
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
    "relu_0_to_1": (0.0, 1.0),
}


def round_half_away(x: NDArray[Any]) -> NDArray[Any]:
    """Round floats to the nearest integer, halves away from zero, as float64 (C's ``round``)."""
    wide = np.asarray(x, np.float64)
    whole = np.trunc(wide)
    rounded: NDArray[Any] = whole + np.copysign(np.abs(wide - whole) >= 0.5, wide)
    return rounded


def quantize_multipliers(real: NDArray[Any] | Sequence[float]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return int32 arrays ``(q, e)`` for float64 multipliers ``q * 2^(e-31)``.

    Raises ModelError for a multiplier that is not finite, or at least 2^31.
    """
    values = np.asarray(real, np.float64)
    if not np.isfinite(values).all():
        raise ModelError("a scale ratio is not finite; scales must be positive and finite")
    mantissa, exponent = np.frexp(values)
    q = round_half_away(mantissa * float(1 << 31)).astype(np.int64)
    full = np.abs(q) == 1 << 31
    q = np.where(full, q // 2, q)
    exponent = exponent.astype(np.int64) + full
    vanishes = exponent < -31
    q = np.where(vanishes, 0, q)
    exponent = np.where(vanishes | (q == 0), 0, exponent)
    if exponent.size and int(exponent.max()) > LARGEST_EXPONENT:
        raise ModelError(f"a scale ratio of {float(np.abs(values).max()):g} is too large; it must be below 2^31")
    return q.astype(np.int32), exponent.astype(np.int32)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return the fixed-point form ``(q, e)`` of one multiplier. See :func:`quantize_multipliers`."""
    q, e = quantize_multipliers([real])
    return int(q[0]), int(e[0])


def wrap32(x: NDArray[Any]) -> NDArray[np.int32]:
    """Return the low 32 bits of int64 values as int32."""
    return x.astype(np.int32)


def srdhm(a: Ints, b: Ints) -> NDArray[np.int32]:
    """Return the high half of the doubled 32-bit product: ``(a*b + 2^30) >> 31``, saturating (SRDHM)."""
    product = np.multiply(a, b, dtype=np.int64)
    return wrap32(np.minimum((product + (1 << 30)) >> 31, INT32_MAX))


def rdbpot(x: Ints, n: Ints) -> NDArray[Any]:
    """Return ``x / 2^n`` rounded to nearest, ties away from zero, in the dtype of ``x``. ``n`` is 0 to 62."""
    values = np.asarray(x)
    wide = values.astype(np.int64)
    shift = np.asarray(n, np.int64)
    half = (np.int64(1) << shift) >> 1
    correction = np.where(shift > 0, wide >> 63, 0)
    return ((wide + half + correction) >> shift).astype(values.dtype)


def multiply(x: Ints, q: Ints, e: Ints) -> NDArray[np.int32]:
    """Return ``x * q * 2^(e-31)`` for int32 ``x``, rounded twice as in TensorFlow Lite's 8-bit kernels.

    Operands broadcast. A left shift (``e`` > 0) wraps to 32 bits before the product.
    """
    if isinstance(q, int) and isinstance(e, int) and isinstance(x, np.ndarray):
        return _multiply_by_one(x, q, e)
    exponent = np.asarray(e, np.int64)
    shifted = wrap32(np.asarray(x, np.int64) << np.clip(exponent, 0, 32))
    result: NDArray[np.int32] = rdbpot(srdhm(shifted, q), np.maximum(-exponent, 0))
    return result


def _multiply_by_one(x: NDArray[Any], q: int, e: int) -> NDArray[np.int32]:
    wide = np.asarray(x.astype(np.int64))
    if e > 0:
        wide <<= int64(min(e, 32))
    if e > 0 or x.dtype != np.int32:
        wide = np.asarray(wide.astype(np.int32).astype(np.int64))
    wide *= int64(q)
    wide += int64(1 << 30)
    wide >>= int64(31)
    if q == INT32_MIN:  # the only multiplier whose products can saturate
        np.minimum(wide, INT32_MAX, out=wide)
    if e < 0:
        wide += wide >> int64(63)
        wide += int64(1 << -e >> 1)
        wide >>= int64(-e)
    return wrap32(wide)


@lru_cache(maxsize=1024)
def int64(value: int) -> NDArray[np.int64]:
    """Return ``value`` as a read-only array of rank 0, which is faster in numpy than a Python integer."""
    array = np.array(value, np.int64)
    array.flags.writeable = False
    return array


def multiply64(x: NDArray[Any], q: Ints, e: Ints) -> NDArray[np.int32]:
    """Return ``x * q * 2^(e-31)`` for int64 ``x`` below 2^47, rounded once. Only 15 bits of ``q`` are used."""
    multiplier = np.asarray(q, np.int64)
    reduced = np.where(multiplier >= 0x7FFF0000, 0x7FFF, (multiplier + (1 << 15)) >> 16)
    shift = 15 - np.asarray(e, np.int64)
    return wrap32((np.asarray(x, np.int64) * reduced + (np.int64(1) << (shift - 1))) >> shift)


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Arrays of a :class:`Requantizer` with 32-bit arithmetic. Arrays have one element, or an element per channel."""

    doubled: NDArray[Any]
    left: NDArray[Any] | None
    lower: NDArray[Any]
    upper: NDArray[Any]
    sign: NDArray[Any] | None  # shift that extracts the sign, since negative ties round down
    mask: NDArray[Any] | None  # channels with negative ties; None: all channels
    early: NDArray[Any] | None  # part of the last shift, applied before the addition to avoid overflow
    addend: NDArray[Any]
    right: NDArray[Any] | None
    half: NDArray[Any]

    @staticmethod
    def of(
        doubled: NDArray[Any],
        left: NDArray[Any],
        lower: NDArray[Any],
        upper: NDArray[Any],
        signed: bool,
        mask: NDArray[Any] | None,
        early: NDArray[Any],
        addend: NDArray[Any],
        right: NDArray[Any],
    ) -> _Scaling:
        def narrow(row: NDArray[Any]) -> NDArray[Any]:
            return row.astype(np.int32)

        scaling = _Scaling(
            doubled,
            narrow(left) if left.any() else None,
            narrow(lower),
            narrow(upper),
            np.array([31], np.int32) if signed else None,
            None if mask is None else narrow(mask),
            narrow(early) if early.any() else None,
            narrow(addend),
            narrow(right) if right.any() else None,
            np.array([1 << 31], np.int64),
        )
        return scaling.map(lambda row: row.reshape(()) if row.size == 1 else row)  # arrays of rank 0 are faster

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> _Scaling:
        arrays: list[Any] = [getattr(self, name) for name in self.__slots__]
        changed: list[Any] = [array if array is None else change(array) for array in arrays]
        return _Scaling(*changed)

    def __call__(self, acc: NDArray[Any]) -> NDArray[np.int32]:
        if self.left is not None:
            acc = np.left_shift(acc, self.left, dtype=np.int32)
        return self.finish(acc.astype(np.int64), self.half)

    def finish(self, wide: NDArray[Any], offset: NDArray[Any]) -> NDArray[np.int32]:
        """Return codes for ``wide``, which is overwritten. ``offset`` is added to the product."""
        wide *= self.doubled
        wide += offset
        scaled: NDArray[np.int32] = wide.view(np.int32)[..., _HIGH_WORD::2].clip(self.lower, self.upper)
        if self.sign is not None:
            sign = scaled >> self.sign
            if self.mask is not None:
                sign &= self.mask
            scaled += sign
        if self.early is not None:
            scaled >>= self.early
        scaled += self.addend
        if self.right is not None:
            scaled >>= self.right
        return scaled


class Requantizer:
    """Prepared ``clamp(multiply(acc, q, e) + zero_point, low, high)``, per tensor or per channel.

    A call maps int32 sums ``[..., C]`` to codes of ``dtype``. ``q`` and ``e`` are scalars or have one entry per
    channel.

    The common case computes with 32 bits after the product. It clamps before the last rounding shift, so later steps
    stay within 32 bits. This gives the same codes, because rounding is monotone and maps ``code << n`` to ``code``. A
    long shift, for channels with tiny weights, is divided. The addend is a multiple of the first part's unit.
    """

    def __init__(self, q: Ints, e: Ints, zero_point: int, low: int, high: int, dtype: str | np.dtype[Any]) -> None:
        self.q = np.atleast_1d(np.asarray(q, np.int64))
        self.e = np.atleast_1d(np.asarray(e, np.int64))
        self.zero_point, self.low, self.high = int(zero_point), int(low), int(high)
        self.dtype = np.dtype(dtype)
        right = np.maximum(-self.e, 0)
        reach = max(abs(code) for code in (low, high, low - zero_point, high - zero_point)).bit_length()
        # Half a unit of the result must be a multiple of 2^early.
        early = np.maximum(right - (30 - reach), 0) if reach < 30 else np.zeros_like(right)
        lower, upper = (self.low - self.zero_point) << right, (self.high - self.zero_point) << right
        if self.low <= self.zero_point <= self.high:
            # Unless the multiplier is INT32_MIN, 32-bit products stay within these limits.
            lower, upper = np.maximum(lower, INT32_MIN + 1), np.minimum(upper, INT32_MAX)
        addend = ((np.int64(1) << right >> 1) + (self.zero_point << right)) >> early
        least = min(int((lower - 1).min()), int(((lower - 1 >> early) + addend).min()), int(self.q.min()) - 1)
        most = max(int(upper.max()), int(((upper >> early) + addend).max()))
        self._fast = least >= INT32_MIN and most <= INT32_MAX
        left = np.clip(self.e, 0, 32)
        # Rounding of negative ties is irrelevant if the clamp removes all codes below the zero point.
        signed = self.low < self.zero_point and bool((right > 0).any())
        mask = None if not signed or (right > 0).all() else -(right > 0).astype(np.int64)
        self._single = self.q.size == 1 and self.e.size == 1
        self._scaling = None
        if self._fast:
            self._scaling = _Scaling.of(2 * self.q, left, lower, upper, signed, mask, early, addend, right - early)

    def __call__(self, acc: NDArray[Any]) -> NDArray[Any]:
        at_once = bool(acc.ndim) and 0 < acc.size <= CHUNK_ELEMENTS and acc.flags.c_contiguous
        if self._single and self._scaling is not None and at_once:
            return self._scaling(acc).astype(self.dtype)
        shape = acc.shape
        acc = np.ascontiguousarray(acc)
        columns = 1 if self._single else acc.shape[-1]
        result = np.empty(acc.shape, self.dtype)
        if acc.size == 0:
            return result.reshape(shape)
        rows, target = acc.reshape(-1, columns), result.reshape(-1, columns)
        step = max(1, CHUNK_ELEMENTS // columns)
        for start in range(0, rows.shape[0], step):
            chunk = rows[start : start + step]
            target[start : start + step] = self._scale_slowly(chunk) if self._scaling is None else self._scaling(chunk)
        return result.reshape(shape)

    def of_reals(
        self, bias: NDArray[Any] | None, rows: int, columns: int
    ) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
        """Return a function that requantises sums plus ``bias``, for whole reals ``[rows, columns]``.

        Returns None unless there are few elements and sums with bias stay below 2^30. Bias and multiplier then combine.
        """
        if self._scaling is None or self._scaling.left is not None:
            return None
        scaling, dtype = self._scaling, self.dtype
        offset = scaling.half if bias is None else bias.astype(np.int64) * scaling.doubled + scaling.half
        if rows * columns <= FEW_ELEMENTS:
            scaling = scaling.map(lambda row: np.broadcast_to(row, (rows, columns)).copy() if row.ndim else row)
            offset = np.broadcast_to(offset, (rows, columns)).copy() if offset.ndim else offset
        return lambda sums: scaling.finish(sums.astype(np.int64), offset).astype(dtype)

    def _scale_slowly(self, acc: NDArray[Any]) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = multiply(acc, self.q, self.e).astype(np.int64) + self.zero_point
        return np.clip(codes, self.low, self.high)


requantizer = lru_cache(maxsize=1024)(Requantizer)  # for one multiplier of all channels


def requantize(
    acc: NDArray[Any], q: Ints, e: Ints, zero_point: int, low: int, high: int, dtype: str | np.dtype[Any]
) -> NDArray[Any]:
    """Return ``clamp(multiply(acc, q, e) + zero_point, low, high)``. Channels are the last axis."""
    return Requantizer(q, e, zero_point, low, high, dtype)(np.asarray(acc, np.int32))


class WideRequantizer:
    """Requantisation of int64 sums by :func:`multiply64`, for 16-bit activations.

    ``q`` and ``e`` are scalars or have one entry per channel. ``fields`` are the 15-bit multiplier, the addend and the
    shift.
    """

    def __init__(self, q: Ints, e: Ints, zero_point: int, low: int, high: int, dtype: str | np.dtype[Any]) -> None:
        multiplier = np.asarray(q, np.int64)
        reduced = np.asarray(np.where(multiplier >= 0x7FFF0000, 0x7FFF, (multiplier + (1 << 15)) >> 16))
        shift = np.asarray(15 - np.asarray(e, np.int64))
        self._reduced, self._half, self._shift = (
            row.reshape(()) if row.size == 1 else row for row in (reduced, np.int64(1) << (shift - 1), shift)
        )
        self.fields = reduced, np.int64(1) << (shift - 1), shift
        self.zero_point, self.low, self.high = int(zero_point), int(low), int(high)
        self._zero = int64(zero_point) if zero_point else None
        self._low, self._high, self.dtype = np.array(low, np.int32), np.array(high, np.int32), np.dtype(dtype)

    def __call__(self, acc: NDArray[Any]) -> NDArray[Any]:
        return in_rows(self._scale, acc, self.dtype) if acc.ndim else np.asarray(self._scale(acc), self.dtype)

    def _scale(self, rows: NDArray[Any]) -> NDArray[Any]:
        wide = np.asarray(rows * self._reduced, np.int64)
        wide += self._half
        wide >>= self._shift
        wrapped = wrap32(wide)
        moved: NDArray[Any] = wrapped if self._zero is None else wrapped + self._zero
        return np.asarray(moved.clip(self._low, self._high))


def requantize_real(
    acc: NDArray[Any],
    factors: NDArray[np.float64],
    zero_point: int,
    low: int,
    high: int,
    dtype: str | np.dtype[Any],
) -> NDArray[Any]:
    """Return ``clamp(round(acc * factors) + zero_point, low, high)`` in float64, halves away from zero.

    LiteRT requantises fully connected layers in this way since 2025. ``factors`` has one entry, or one per channel.
    """

    def scale(rows: NDArray[Any]) -> NDArray[Any]:
        return clamp(round_half_away(rows * factors) + zero_point, low, high)

    return in_rows(scale, acc, dtype)


def activation_bounds(activation: str) -> tuple[float | None, float | None]:
    """Return the bounds of a fused activation (None: no bound). Raises UnsupportedError for unknown activations."""
    try:
        return _ACTIVATION_BOUNDS[activation]
    except KeyError:
        allowed = ", ".join(_ACTIVATION_BOUNDS)
        raise UnsupportedError(f"fused activation {activation!r} is not supported; supported are {allowed}") from None


def real_bounds(activation: str) -> tuple[float, float]:
    """Return the bounds of real results of a fused activation, by default the bounds of float32."""
    low, high = activation_bounds(activation)
    return -LARGEST_REAL if low is None else low, LARGEST_REAL if high is None else high


def code_range(dtype: str | np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and largest code of an integer storage dtype."""
    limits = np.iinfo(np.dtype(dtype))
    return int(limits.min), int(limits.max)


def activation_range(activation: str, dtype: str | np.dtype[Any], scale: float, zero_point: int) -> tuple[int, int]:
    """Return the code range ``(low, high)`` of a fused activation for this scale and zero point."""
    low, high = code_range(dtype)
    least, most = activation_bounds(activation)
    if least is not None:
        low = max(low, _code_of(least, scale, zero_point))
    if most is not None:
        high = min(high, _code_of(most, scale, zero_point))
    return min(low, code_range(dtype)[1]), max(high, code_range(dtype)[0])


def _code_of(value: float, scale: float, zero_point: int) -> int:
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.asarray(np.float32(value) / np.float32(scale))
    if np.isnan(ratio):
        return zero_point
    return zero_point + int(np.clip(round_half_away(ratio), INT32_MIN, INT32_MAX))
