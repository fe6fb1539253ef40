"""Image resizing by integer positions that grow by a constant step along each axis.

:mod:`odc_mlir.numerics.resize` defines each position by a division or by real numbers. Here each takes one addition.
If no start and step reproduce the same results, there is no :class:`Line`.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import resize
from odc_mlir.numerics.fixed import int64

NEAREST_BITS = 24  # fraction bits of positions that are rounded down
BLEND_BITS = resize.ONE.bit_length() - 1  # fraction bits of positions between two neighbours
_MANTISSA_BITS = 24
_LARGEST_BLEND_BITS = _MANTISSA_BITS - 8 - 4  # for both axes, so that sums of uint8 codes are exact in float32


class Line(NamedTuple):
    """Positions of an axis: ``start + i * step``, in units of the kind's fraction."""

    start: int
    step: int

    def positions(self, count: int) -> NDArray[np.int64]:
        """Return the first ``count`` positions."""
        return int64(self.start) + np.arange(count, dtype=np.int64) * int64(self.step)

    def moved(self, results: int, pixels: int, bits: int) -> Line:
        """Return the positions from result ``results`` on, relative to pixel ``pixels``."""
        return Line(self.start + results * self.step - (pixels << bits), self.step)


class Lines(NamedTuple):
    """Both axes of an image."""

    rows: Line
    columns: Line


def nearest(line: Line, count: int, size: int) -> NDArray[np.int64]:
    """Return the nearest of ``size`` pixels for each of ``count`` results along an axis."""
    pixels: NDArray[np.int64] = np.clip(line.positions(count) >> NEAREST_BITS, 0, size - 1)
    return pixels


def neighbours(line: Line, count: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return both pixels of each result along an axis, and the weight of the second in units of 1 / ONE."""
    positions = line.positions(count)
    low, high = positions >> BLEND_BITS, (positions + resize.ONE - 1) >> BLEND_BITS
    return np.clip(low, 0, size - 1), np.clip(high, 0, size - 1), positions & (resize.ONE - 1)


def resize_nearest_by_lines(x: NDArray[Any], output: tuple[int, int], lines: Lines) -> NDArray[Any]:
    """Resize ``x [..., H, W, C]`` to ``[..., *output, C]`` of the same dtype."""
    rows = nearest(lines.rows, output[0], x.shape[-3])
    columns = nearest(lines.columns, output[1], x.shape[-2])
    return np.ascontiguousarray(x[..., rows[:, None], columns[None, :], :])


def resize_bilinear_by_lines(x: NDArray[Any], output: tuple[int, int], lines: Lines) -> NDArray[Any]:
    """Resize codes ``[..., H, W, C]`` to ``[..., *output, C]``; round sums once, halves away from zero."""
    top, bottom, down = neighbours(lines.rows, output[0], x.shape[-3])
    left, right, across = neighbours(lines.columns, output[1], x.shape[-2])
    codes, one = x.astype(np.int64), int64(resize.ONE)
    across = across[:, None]
    wide: NDArray[np.int64] = codes[..., left, :] * (one - across) + codes[..., right, :] * across
    down = down[:, None, None]
    total: NDArray[np.int64] = wide[..., top, :, :] * (one - down) + wide[..., bottom, :, :] * down
    return np.ascontiguousarray(resize.rounded_sum(total).astype(x.dtype))


def nearest_line(size: int, output: int, align_corners: bool, half_pixel: bool) -> Line | None:
    """Return the line of :func:`odc_mlir.numerics.resize.nearest_positions`."""
    wanted = resize.nearest_positions(size, output, align_corners, half_pixel)
    ratio = Fraction(*resize.steps(size, output, align_corners))
    offset = ratio / 2 if half_pixel else Fraction(0)
    if align_corners:
        offset += Fraction(1, 2)  # to nearest
    unit, index = 1 << NEAREST_BITS, np.arange(output, dtype=np.int64)
    for step in dict.fromkeys((round(ratio * unit), floor(ratio * unit), ceil(ratio * unit))):
        least, most = (wanted << NEAREST_BITS) - index * step, ((wanted + 1) << NEAREST_BITS) - 1 - index * step
        free = int(offset * unit)  # any start is valid if all positions are clipped
        low = int(least[wanted > 0].max(initial=min(free, -unit)))
        high = int(most[wanted < size - 1].min(initial=max(free, 2 * unit)))
        if low <= high:
            return Line(min(max(free, low), high), step)
    return None


def bilinear_lines(
    source: tuple[int, int], output: tuple[int, int], dtype: str, align_corners: bool, half_pixel: bool
) -> Lines | None:
    """Return the lines of :func:`~odc_mlir.numerics.resize.resize_bilinear` for images of codes.

    They exist for int8 and int16, and for uint8 if float32 is exact.
    """
    fixed, found, bits = resize.in_fixed_point(dtype, source, output, align_corners, half_pixel), [], 0
    if dtype != "uint8" and not fixed:
        return None
    for size, results in zip(source, output, strict=True):
        low, high, fraction = resize.axis_line(size, results, align_corners, half_pixel, fixed=fixed)
        if not fixed and not resize.exact_positions(size, results, align_corners, half_pixel):
            return None
        line = Line(*resize.fixed_steps(size, results, align_corners, half_pixel))
        mine = neighbours(line, results, size)
        apart = low != high
        if (mine[0] != low).any() or (mine[1] != high).any() or (mine[2] != fraction)[apart].any():
            return None
        found.append(line)
        part = int(np.gcd.reduce(line.positions(results))) | resize.ONE
        bits += BLEND_BITS + 1 - (part & -part).bit_length()
    return None if not fixed and bits > _LARGEST_BLEND_BITS else Lines(*found)
