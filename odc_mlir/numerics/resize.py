"""Image resizing over NHWC tensors: nearest neighbour, and bilinear in float32 or 10-bit fixed point.

Definitions of positions use a division or real numbers. A :class:`Line` has integer positions with a constant step and
needs one addition per position. A line exists only if some start and step give the same results as the definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import int64, round_half_away
from odc_mlir.numerics.pieces import parts

Pair = tuple[int, int]

_BLOCK_ELEMENTS = 1 << 18
_HALF = np.float32(0.5)
ONE = 1 << 10  # 1.0 in the fixed-point positions
NEAREST_BITS = 24  # fraction bits of positions that are rounded down
BLEND_BITS = ONE.bit_length() - 1  # fraction bits of positions that are interpolated
_MANTISSA_BITS = 24
_LARGEST_BLEND_BITS = _MANTISSA_BITS - 8 - 4  # limit for both axes in total, for exact float32 sums


@dataclass(frozen=True, slots=True)
class _SourcePixels:
    """Two source positions of each result along an axis, and the weight of the second position."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    fraction: NDArray[Any]


def nearest_positions(size: int, output: int, align_corners: bool, half_pixel: bool) -> NDArray[np.int64]:
    """Return the source positions of ``output`` results along an axis of ``size`` elements."""
    index = np.arange(output, dtype=np.float32)
    offset = np.float32(0.5 if half_pixel else 0.0)
    position = (index + offset) * _ratio(size, output, align_corners)
    whole = round_half_away(position) if align_corners else np.floor(position.astype(np.float64))
    return np.clip(whole.astype(np.int64), 0, size - 1)


def _ratio(size: int, output: int, align_corners: bool) -> np.float32:
    above, below = steps(size, output, align_corners)
    return np.float32(np.float32(above) / np.float32(below))


def steps(size: int, output: int, align_corners: bool) -> Pair:
    """Return the number of source elements per result along an axis, as numerator and denominator."""
    return (size - 1, output - 1) if align_corners and output > 1 else (size, output)


def nearest_resizer(
    shape: tuple[int, ...], output: Pair, align_corners: bool, half_pixel: bool
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that resizes inputs of ``shape [N, H, W, C]`` to ``[N, *output, C]``."""
    rows = nearest_positions(shape[1], output[0], align_corners, half_pixel)
    columns = nearest_positions(shape[2], output[1], align_corners, half_pixel)
    pixels = (rows[:, None] * shape[2] + columns[None, :]).reshape(-1)
    flat, result = (shape[0], shape[1] * shape[2], shape[3]), (shape[0], *output, shape[3])
    return lambda x: x.reshape(flat).take(pixels, 1).reshape(result)


@lru_cache(maxsize=64)
def _float_line(size: int, output: int, align_corners: bool, half_pixel: bool) -> _SourcePixels:
    index = np.arange(output, dtype=np.float32)
    scale = _ratio(size, output, align_corners)
    position = (index + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel else index * scale
    low = np.maximum(np.floor(position), 0).astype(np.int64)
    high = np.minimum(np.ceil(position), size - 1).astype(np.int64)
    low = np.minimum(low, size - 1)
    return _SourcePixels(low, high, position - low.astype(np.float32))


@lru_cache(maxsize=64)
def _fixed_line(size: int, output: int, align_corners: bool, half_pixel: bool) -> _SourcePixels:
    start, step = fixed_steps(size, output, align_corners, half_pixel)
    position = start + np.arange(output, dtype=np.int64) * step
    low = np.minimum(np.maximum(_truncated(position), 0), size - 1)
    high = np.maximum(np.minimum(_truncated(position + ONE - 1), size - 1), 0)
    return _SourcePixels(low, high, position - ONE * low)


def fixed_steps(size: int, output: int, align_corners: bool, half_pixel: bool) -> Pair:
    """Return first position and step along an axis, rounded to units of 1 / ONE."""
    above, below = steps(size, output, align_corners)
    step = (ONE * above + below // 2) // below
    return step // 2 - ONE // 2 if half_pixel else 0, step


def exact_positions(size: int, output: int, align_corners: bool, half_pixel: bool) -> bool:
    """Return whether all positions along an axis are multiples of 1 / ONE."""
    above, below = steps(size, output, align_corners)
    step, rest = divmod(ONE * above, below)
    return not rest and not (half_pixel and step % 2)


def in_fixed_point(dtype: str, source: Pair, output: Pair, align_corners: bool, half_pixel: bool) -> bool:
    """Return whether :func:`resize_bilinear` uses integers: for int8, and for int16 if positions are exact."""
    if dtype == "int16":
        axes = zip(source, output, strict=True)
        return all(size == 1 or exact_positions(size, results, align_corners, half_pixel) for size, results in axes)
    return dtype == "int8"


def axis_line(
    size: int, output: int, align_corners: bool, half_pixel: bool, *, fixed: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the two source positions of each result along an axis, and the weight of the second in 1 / ONE.

    If ``fixed``, codes are interpolated in integers (:func:`in_fixed_point`).
    """
    line = (_fixed_line if fixed else _float_line)(size, output, align_corners, half_pixel)
    return line.low, line.high, line.fraction.astype(np.float64) * (1 if fixed else ONE)


def _truncated(position: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(np.sign(position) * (np.abs(position) // ONE))


def _weighted(x: NDArray[Any], row: _SourcePixels, column: _SourcePixels) -> NDArray[np.float32]:
    """Return the weighted sum of the four neighbours in float32, in the reference's order."""
    one = np.float32(1)
    wy: NDArray[Any] = row.fraction[:, None, None].astype(np.float32)
    wx: NDArray[Any] = column.fraction[None, :, None].astype(np.float32)

    def pixels(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
        return x[:, rows[:, None], columns[None, :]].astype(np.float32)

    total: NDArray[Any] = pixels(row.low, column.low) * (one - wy) * (one - wx)
    total += pixels(row.high, column.low) * wy * (one - wx)
    total += pixels(row.low, column.high) * (one - wy) * wx
    total += pixels(row.high, column.high) * wy * wx
    return total


def _fixed_sums(x: NDArray[Any], row: _SourcePixels, column: _SourcePixels) -> NDArray[Any]:
    """Interpolate codes exactly in integers, in units of 2^-20, first along columns."""
    dtype = np.dtype(np.int32 if x.dtype.itemsize == 1 else np.int64)
    first, last = int(row.low.min()), int(row.high.max()) + 1
    source = x[:, first:last]

    def between(values: NDArray[Any], axis: int, line: _SourcePixels, offset: int) -> NDArray[Any]:
        fraction = line.fraction.astype(dtype).reshape([-1 if i == axis else 1 for i in range(4)])
        total = np.multiply(values.take(line.low - offset, axis), ONE - fraction, dtype=dtype)
        total += np.multiply(values.take(line.high - offset, axis), fraction, dtype=dtype)
        return np.asarray(total)

    return between(between(source, 2, column, 0), 1, row, first)


def resize_bilinear(
    x: NDArray[Any], output: Pair, align_corners: bool, half_pixel: bool, *, by_reference: bool = False
) -> NDArray[Any]:
    """Resize ``x [N, H, W, C]`` to ``[N, *output, C]`` of the same dtype.

    float32 and uint8 are interpolated in float32 (uint8 adds 0.5 and truncates). int8 uses 10-bit positions and rounds
    the sum half away from zero. int16 does the same if 10 bits represent the positions exactly, for example for twice
    the size. Otherwise, it is interpolated in float32 and rounded. The reference, and this function if
    ``by_reference``, always use 10 bits for int16. Rounding errors of the step then add up along the axis, and only
    about 8 bits are accurate.
    """
    fixed = x.dtype.kind == "i"
    if not by_reference:
        fixed = in_fixed_point(x.dtype.name, (x.shape[1], x.shape[2]), output, align_corners, half_pixel)
    lines = _fixed_line if fixed else _float_line
    rows = lines(x.shape[1], output[0], align_corners, half_pixel)
    columns = lines(x.shape[2], output[1], align_corners, half_pixel)
    out = np.empty((x.shape[0], *output, x.shape[3]), x.dtype)
    for images, band, _, _ in parts(out.shape, (2, 3), _BLOCK_ELEMENTS):
        part = _SourcePixels(rows.low[band], rows.high[band], rows.fraction[band])
        if fixed:
            total = rounded_sum(_fixed_sums(x[images], part, columns))
        else:
            total = _as_codes(_weighted(x[images], part, columns), x.dtype)
        out[images, band] = total.astype(x.dtype)
    return out


def _as_codes(total: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "u":
        total += _HALF
    return np.rint(total) if dtype.kind == "i" else total


def rounded_sum(total: NDArray[Any]) -> NDArray[Any]:
    """Return ``total / 2^20`` for int32 or int64, rounded to nearest, halves away from zero."""
    number = total.dtype.type
    down = total >> number(8 * total.dtype.itemsize - 1)
    down += total
    down += number(1 << 19)
    down >>= number(20)
    return np.asarray(down)


class Line(NamedTuple):
    """Positions along an axis: ``start + i * step``, with NEAREST_BITS or BLEND_BITS fraction bits."""

    start: int
    step: int

    def positions(self, count: int) -> NDArray[np.int64]:
        return int64(self.start) + np.arange(count, dtype=np.int64) * int64(self.step)

    def moved(self, results: int, pixels: int, bits: int) -> Line:
        """Return the line that starts at result ``results``, relative to pixel ``pixels``."""
        return Line(self.start + results * self.step - (pixels << bits), self.step)


class Lines(NamedTuple):
    """Lines of both axes of an image."""

    rows: Line
    columns: Line


def nearest(line: Line, count: int, size: int) -> NDArray[np.int64]:
    """Return the nearest of ``size`` pixels for each of ``count`` results along an axis."""
    pixels: NDArray[np.int64] = np.clip(line.positions(count) >> NEAREST_BITS, 0, size - 1)
    return pixels


def neighbours(line: Line, count: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the two pixels of each result along an axis, and the weight of the second in 1 / ONE."""
    positions = line.positions(count)
    low, high = positions >> BLEND_BITS, (positions + ONE - 1) >> BLEND_BITS
    return np.clip(low, 0, size - 1), np.clip(high, 0, size - 1), positions & (ONE - 1)


def resize_nearest_by_lines(x: NDArray[Any], output: tuple[int, int], lines: Lines) -> NDArray[Any]:
    """Resize ``x [..., H, W, C]`` to ``[..., *output, C]`` of the same dtype."""
    rows = nearest(lines.rows, output[0], x.shape[-3])
    columns = nearest(lines.columns, output[1], x.shape[-2])
    return np.ascontiguousarray(x[..., rows[:, None], columns[None, :], :])


def resize_bilinear_by_lines(x: NDArray[Any], output: tuple[int, int], lines: Lines) -> NDArray[Any]:
    """Resize codes ``[..., H, W, C]`` to ``[..., *output, C]``. Sums are rounded once, halves away from zero."""
    top, bottom, down = neighbours(lines.rows, output[0], x.shape[-3])
    left, right, across = neighbours(lines.columns, output[1], x.shape[-2])
    codes, one = x.astype(np.int64), int64(ONE)
    across = across[:, None]
    wide: NDArray[np.int64] = codes[..., left, :] * (one - across) + codes[..., right, :] * across
    down = down[:, None, None]
    total: NDArray[np.int64] = wide[..., top, :, :] * (one - down) + wide[..., bottom, :, :] * down
    return np.ascontiguousarray(rounded_sum(total).astype(x.dtype))


def nearest_line(size: int, output: int, align_corners: bool, half_pixel: bool) -> Line | None:
    """Return a line with the positions of :func:`nearest_positions`, or None."""
    wanted = nearest_positions(size, output, align_corners, half_pixel)
    ratio = Fraction(*steps(size, output, align_corners))
    offset = ratio / 2 if half_pixel else Fraction(0)
    if align_corners:
        offset += Fraction(1, 2)  # rounds to nearest
    unit, index = 1 << NEAREST_BITS, np.arange(output, dtype=np.int64)
    for step in dict.fromkeys((round(ratio * unit), math.floor(ratio * unit), math.ceil(ratio * unit))):
        least, most = (wanted << NEAREST_BITS) - index * step, ((wanted + 1) << NEAREST_BITS) - 1 - index * step
        free = int(offset * unit)  # all starts are valid if all positions are clipped
        low = int(least[wanted > 0].max(initial=min(free, -unit)))
        high = int(most[wanted < size - 1].min(initial=max(free, 2 * unit)))
        if low <= high:
            return Line(min(max(free, low), high), step)
    return None


def bilinear_lines(
    source: tuple[int, int], output: tuple[int, int], dtype: str, align_corners: bool, half_pixel: bool
) -> Lines | None:
    """Return lines with the results of :func:`resize_bilinear` for images of codes, or None.

    Lines may exist for int8 and int16, and for uint8 if float32 is exact.
    """
    fixed, found, bits = in_fixed_point(dtype, source, output, align_corners, half_pixel), [], 0
    if dtype != "uint8" and not fixed:
        return None
    for size, results in zip(source, output, strict=True):
        low, high, fraction = axis_line(size, results, align_corners, half_pixel, fixed=fixed)
        if not fixed and not exact_positions(size, results, align_corners, half_pixel):
            return None
        line = Line(*fixed_steps(size, results, align_corners, half_pixel))
        mine = neighbours(line, results, size)
        apart = low != high
        if (mine[0] != low).any() or (mine[1] != high).any() or (mine[2] != fraction)[apart].any():
            return None
        found.append(line)
        part = int(np.gcd.reduce(line.positions(results))) | ONE
        bits += BLEND_BITS + 1 - (part & -part).bit_length()
    return None if not fixed and bits > _LARGEST_BLEND_BITS else Lines(*found)
