"""Convolution sums over NHWC tensors, integer (exact) and float32, in tiles that bound memory.

Integer inputs may have a zero point ``in_zero``, which is also the value of padding. Filters are prepared once
(:func:`conv_filter`, :func:`depthwise_filter`) and used for any batch and image size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.matmul import IN_ORDER, Matrix, compute_dtype, float_matrix, integer_matrix, narrow
from odc_mlir.numerics.pieces import clamp, parts

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]  # top, left, bottom, right
Finish = Callable[[NDArray[Any]], NDArray[Any]]

TILE_BYTES = 1 << 21  # size of one tile's patches and sums, large enough for BLAS and small enough for the caches
_BAND_ELEMENTS = 1 << 20  # number of sums of a transposed convolution in memory at a time
NO_PADS: Pads = (0, 0, 0, 0)
_LONG_RUN = 48  # least number of contiguous elements for one numpy call per tap


def real_multipliers(
    in_scale: float, weight_scales: tuple[float, ...], out_scale: float, *, single_product: bool
) -> NDArray[np.float64]:
    """Return output multipliers ``in * weight / out``, one per weight scale.

    If ``single_product``, ``in * weight`` is rounded to float32 first, as in uint8 convolutions and per-tensor fully
    connected layers. Otherwise, all arithmetic is in float64.
    """
    weights = np.asarray(weight_scales, np.float32)
    if single_product:
        product = (np.float32(in_scale) * weights).astype(np.float64)
    else:
        product = np.float64(np.float32(in_scale)) * weights.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(product / np.float64(np.float32(out_scale)), np.float64)


def convert_bias(
    codes: NDArray[Any], zero_points: Sequence[int], ratios: NDArray[np.float64], sums: str
) -> NDArray[np.float64]:
    """Convert bias codes to the scale of sums of dtype ``sums``. ``ratios`` are bias scale / scale of sums."""
    finite = np.where(np.isfinite(ratios), ratios, 0.0)  # sums of such a channel are later multiplied by 0
    return clamp(round_half_away((codes - np.asarray(zero_points, np.float64)) * finite), *code_range(sums))


@dataclass(frozen=True, slots=True)
class ConvFilter:
    """Prepared filter ``[O, kh, kw, I]``: a matrix ``[kh*kw*I, O/groups]`` per group."""

    groups: tuple[Matrix, ...]
    kernel: Pair
    in_channels: int  # of one group
    out_channels: int  # of all groups

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.groups[0].values.dtype

    @property
    def sums(self) -> np.dtype[Any]:
        return self.groups[0].sums

    def tiling(self, shape: tuple[int, ...], window: Window) -> _ResultTiling:
        """Return the tiles of the result for inputs of ``shape``."""
        taps = window.kernel[0] * window.kernel[1] * shape[3]
        return _tiling(shape[:3], window, _pixels(self.dtype.itemsize * (taps + self.out_channels)))

    def sums_of_taps(self, taps: NDArray[Any]) -> NDArray[Any]:
        """Return sums ``[pixels, O]`` of taps ``[n, h, w, kh, kw, C]``."""
        pixels, step = math.prod(taps.shape[:3]), self.in_channels
        if len(self.groups) == 1:
            return self.groups[0].exact(taps.reshape(pixels, -1))
        sums = [
            matrix.exact(taps[..., g * step : (g + 1) * step].reshape(pixels, -1))
            for g, matrix in enumerate(self.groups)
        ]
        return np.concatenate(sums, axis=1)

    def tile_sums(self, x: NDArray[Any], window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
        """Return sums ``[pixels, O]`` of one padded tile."""
        return self.sums_of_taps(tap_view(x, window, shape))


@dataclass(frozen=True, slots=True)
class DepthwiseFilter:
    """Prepared depthwise filter ``[kh, kw, C*M]`` in the dtype of the computation."""

    weights: NDArray[Any]
    sums: np.dtype[Any]
    in_order: bool = False
    _repeated: dict[int, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kernel(self) -> Pair:
        return int(self.weights.shape[0]), int(self.weights.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.weights.dtype

    @property
    def out_channels(self) -> int:
        return int(self.weights.shape[2])

    def tiling(self, shape: tuple[int, ...], window: Window) -> _ResultTiling:
        """Return the tiles of the result for inputs of ``shape``."""
        # The input, copies of its phases, and sums should stay in the cache.
        return _tiling(shape[:3], window, _pixels(6 * self.dtype.itemsize * self.out_channels))

    def sums_of_taps(self, taps: NDArray[Any]) -> NDArray[Any]:
        """Return sums ``[n, h, w, C*M]`` of taps ``[n, h, w, kh, kw, C]``."""
        return _channel_sums(np.repeat(taps, self.out_channels // taps.shape[5], axis=5), self.weights)

    def tile_sums(self, x: NDArray[Any], window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
        """Return sums ``[n, h, w*C*M]`` or ``[n, h, w, C*M]`` of one padded tile.

        Numpy calls process elements that are contiguous in input, weights and result. With stride 1, these are the
        elements of a row of results. With a larger stride, these are the channels. For few channels, these are the
        columns of one phase modulo the stride.
        """
        sx, dx = window.stride[1], window.dilation[1]
        channels = self.out_channels
        if channels != x.shape[3]:
            x = np.repeat(x, channels // x.shape[3], axis=3)
        if x.strides[2:] != (channels * x.itemsize, x.itemsize):
            x = np.ascontiguousarray(x)
        if sx == 1:
            return _row_sums(x, self.repeated(shape[2]), window, shape, dx)
        if channels >= _LONG_RUN or self.in_order:
            return _channel_sums(tap_view(x, window, shape), self.weights)
        repeated, total = self.repeated(shape[2]), None
        for phase in range(min(sx, window.extent[1])):
            columns = [kx for kx in range(window.kernel[1]) if (kx * dx) % sx == phase]
            part = np.ascontiguousarray(x[:, :, phase::sx]) if columns else x
            for kx in columns:
                first = (kx * dx) // sx
                sums = _row_sums(part[:, :, first:], repeated[:, kx : kx + 1], window, shape, 1)
                total = sums if total is None else np.add(total, sums, out=total)
        assert total is not None  # a kernel has at least one column
        return total

    def repeated(self, columns: int) -> NDArray[Any]:
        """Return the weights for a row of ``columns`` results, ``[kh, kw, columns*C*M]``. The last result is cached."""
        found = self._repeated.get(columns)
        if found is None:
            found = np.tile(self.weights, (1, 1, columns))
            self._repeated.clear()
            self._repeated[columns] = found
        return found


def conv_filter(w: NDArray[Any], largest: int | None, *, groups: int = 1, sums: str = "int32") -> ConvFilter:
    """Prepare ``w [O, kh, kw, I]``: codes minus zero point, or float32 if ``largest`` is None.

    ``largest`` bounds the magnitude of inputs minus zero point. Result channel ``o`` reads input group ``o // (O /
    groups)``.
    """
    out_channels, kh, kw, in_channels = w.shape
    parts = w.reshape(groups, out_channels // groups, kh * kw * in_channels)
    matrices = tuple(
        float_matrix(part.T, sums) if largest is None else integer_matrix(part.T, largest, sums) for part in parts
    )
    if largest is not None and len({m.values.dtype for m in matrices}) > 1:
        widest = max((m.values.dtype for m in matrices), key=lambda dtype: (dtype == np.int64, dtype.itemsize))
        matrices = tuple(Matrix(m.values.astype(widest), m.sums) for m in matrices)
    return ConvFilter(matrices, (kh, kw), in_channels, out_channels)


def depthwise_filter(w: NDArray[Any], largest: int | None, *, sums: str = "int32") -> DepthwiseFilter:
    """Prepare ``w [kh, kw, C*M]`` like :func:`conv_filter`."""
    if largest is None:
        return DepthwiseFilter(np.asarray(w, np.float32), np.dtype(np.float32), sums == IN_ORDER)
    totals = np.abs(w.astype(np.int64)).sum(axis=(0, 1))
    most = int(totals.max(initial=0)) * int(largest)
    dtype = compute_dtype(most)
    if dtype == np.float64 and most < 1 << 31:  # unlike products of matrices, sums of integers are as fast
        dtype = np.dtype(np.int32)
    return DepthwiseFilter(w.astype(dtype), np.dtype(sums))


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel size, stride, dilation and padding of a convolution."""

    kernel: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pads: Pads = NO_PADS

    @property
    def extent(self) -> Pair:
        """Number of rows and columns from the first to the last tap."""
        (kh, kw), (dy, dx) = self.kernel, self.dilation
        return (kh - 1) * dy + 1, (kw - 1) * dx + 1

    def output(self, height: int, width: int) -> Pair:
        """Return result rows and columns for an input of this size."""
        top, left, bottom, right = self.pads
        rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1
        columns = (width + left + right - self.extent[1]) // self.stride[1] + 1
        return max(rows, 0), max(columns, 0)


class ResultTile(NamedTuple):
    """One tile of a result, and the part of the input that it needs."""

    place: tuple[slice, slice, slice]  # in the result
    shape: tuple[int, int, int]  # n, rows, columns of the result
    source: tuple[slice, slice, slice]  # part of the input
    padded: tuple[int, int, int] | None  # n, rows, columns of the padded input; None without padding
    target: tuple[slice, slice, slice]  # position of ``source`` in the padded input


class _ResultTiling(NamedTuple):
    """Tiles of a result ``[N, rows, columns, ...]``. A tile has several images, some rows, or part of a row."""

    shape: tuple[int, int, int]
    tiles: tuple[ResultTile, ...]


def _ranges(size: int, step: int) -> list[Pair]:
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def _tile_ranges(batch: int, rows: int, columns: int, pixels: int) -> Iterator[tuple[Pair, Pair, Pair]]:
    images = max(1, pixels // max(rows * columns, 1))
    height = min(rows, max(1, pixels // max(columns, 1)))
    for n in _ranges(batch, images):
        for y in _ranges(rows, max(height, 1)):
            for x in _ranges(columns, max(min(columns, pixels), 1)):
                yield n, y, x


def _pixels(pixel_bytes: int) -> int:
    return max(1, TILE_BYTES // max(pixel_bytes, 1))


@lru_cache(maxsize=256)
def _tiling(image: tuple[int, int, int], window: Window, pixels: int) -> _ResultTiling:
    batch, height, width = image
    rows, columns = window.output(height, width)
    tiles = tuple(_tile(window, image, *ranges) for ranges in _tile_ranges(batch, rows, columns, pixels))
    return _ResultTiling((batch, rows, columns), tiles)


def _tile(window: Window, image: tuple[int, int, int], n: Pair, y: Pair, x: Pair) -> ResultTile:
    (sy, sx), (ey, ex) = window.stride, window.extent
    top, left = y[0] * sy - window.pads[0], x[0] * sx - window.pads[1]
    bottom, right = (y[1] - 1) * sy + ey - window.pads[0], (x[1] - 1) * sx + ex - window.pads[1]
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(y0, min(bottom, image[1])), max(x0, min(right, image[2]))
    images = slice(*n)
    inside = (y0, y1, x0, x1) == (top, bottom, left, right)
    return ResultTile(
        place=(images, slice(*y), slice(*x)),
        shape=(n[1] - n[0], y[1] - y[0], x[1] - x[0]),
        source=(images, slice(y0, y1), slice(x0, x1)),
        padded=None if inside else (n[1] - n[0], bottom - top, right - left),
        target=(slice(None), slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)),
    )


def _input_of(x: NDArray[Any], tile: ResultTile, in_zero: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the padded input of a tile minus zero point, ``[n, h, w, C]``, as a view if possible."""
    inside = x[tile.source]
    if tile.padded is None:
        return inside.astype(dtype, copy=False) if in_zero == 0 else np.subtract(inside, in_zero, dtype=dtype)
    padded = np.zeros((*tile.padded, x.shape[3]), dtype)
    if inside.size:
        np.subtract(inside, in_zero, out=padded[tile.target], dtype=dtype)
    return padded


def _view(x: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    """Return a view of ``x`` with another shape and strides. The view must stay within the memory of ``x``."""
    if x.flags.c_contiguous:  # ten times as fast as as_strided
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def tap_view(x: NDArray[Any], window: Window, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Return the taps of each result of a padded tile ``x`` as a view ``[n, h, w, kh, kw, C]``."""
    (sy, sx), (dy, dx), (sn, sh, sw, sc) = window.stride, window.dilation, x.strides
    return _view(x, (*shape, *window.kernel, x.shape[3]), (sn, sh * sy, sw * sx, sh * dy, sw * dx, sc))


def _taps_apart(x: NDArray[Any], tile: ResultTile, window: Window, in_zero: int, dtype: Any) -> NDArray[Any] | None:
    """Return copied taps ``[n, h, w, kh, kw, C]`` of a tile, or None if the input of the tile has fewer elements."""
    if tile.padded is None and not in_zero and x.dtype == dtype:
        return None
    spanned = tile.padded or tuple(part.stop - part.start for part in tile.source)
    if math.prod(tile.shape) * math.prod(window.kernel) >= math.prod(spanned):
        return None
    images, rows, columns = tile.place
    taps = np.zeros((*tile.shape, *window.kernel, x.shape[3]), dtype)
    for ky, kx in np.ndindex(*window.kernel):
        top, left = ky * window.dilation[0] - window.pads[0], kx * window.dilation[1] - window.pads[1]
        to_rows, from_rows = landing(rows.start, rows.stop, top, window.stride[0], x.shape[1])
        to_columns, from_columns = landing(columns.start, columns.stop, left, window.stride[1], x.shape[2])
        target = taps[:, to_rows, to_columns, ky, kx]
        np.subtract(x[images, from_rows, from_columns], in_zero, out=target, dtype=dtype)
    return taps


def single_tile(
    shape: tuple[int, int, int, int], weights: ConvFilter | DepthwiseFilter, window: Window
) -> ResultTile | None:
    """Return the only tile of a convolution of inputs of ``shape``, or None if there are several."""
    tiles = weights.tiling(shape, window).tiles
    return tiles[0] if len(tiles) == 1 else None


def conv2d(
    x: NDArray[Any],
    weights: ConvFilter | DepthwiseFilter,
    window: Window,
    *,
    in_zero: int = 0,
    finish: Finish | None = None,
    dtype: str | np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Return sums ``[N, OH, OW, O]`` of a convolution of ``x [N, H, W, C]``, converted by ``finish``.

    ``finish`` maps sums ``[pixels, O]`` of each tile to results of ``dtype`` while the tile is in the cache. Result
    channel ``c*M + m`` of a depthwise filter reads channel ``c``.
    """
    channels, kind, tiling = weights.out_channels, np.dtype(dtype or weights.sums), weights.tiling(x.shape, window)

    def results(tile: ResultTile) -> NDArray[Any]:
        taps = _taps_apart(x, tile, window, in_zero, weights.dtype)
        if taps is None:
            sums = weights.tile_sums(_input_of(x, tile, in_zero, weights.dtype), window, tile.shape)
        else:
            sums = weights.sums_of_taps(taps)
        whole = narrow(sums.reshape(math.prod(tile.shape), channels), weights.sums)
        return finish(whole) if finish else whole

    shape = (*tiling.shape, channels)
    if len(tiling.tiles) == 1:
        return results(tiling.tiles[0]).astype(kind, copy=False).reshape(shape)
    out = np.empty(shape, kind)
    for tile in tiling.tiles:
        out[tile.place] = results(tile).reshape(*tile.shape, channels)
    return out


def _row_sums(
    x: NDArray[Any], repeated: NDArray[Any], window: Window, shape: tuple[int, int, int], dx: int
) -> NDArray[Any]:
    """Return sums ``[n, h, w*C]`` for adjacent columns (stride 1). ``repeated`` is ``[kh, kw, w*C]``."""
    n, h, _ = shape
    kh, kw, run = repeated.shape
    sn, sh, sw, sc = x.strides
    taps = _view(x, (n, h, kh, kw, run), (sn, sh * window.stride[0], sh * window.dilation[0], sw * dx, sc))
    return np.asarray(np.einsum("nhklr,klr->nhr", taps, repeated))


def _channel_sums(taps: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.einsum("nhwklc,klc->nhwc", taps, w))


def transpose_conv2d(
    x: NDArray[Any],
    weights: ConvFilter,
    stride: Pair,
    pads: Pair,
    output: Pair,
    *,
    in_zero: int = 0,
    finish: Finish | None = None,
    dtype: str | np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Return sums ``[N, *output, O]`` of a transposed convolution of ``x [N, H, W, I]``, converted by ``finish``.

    Input pixel (y, x) adds its taps at ``y*stride - pad + ky``. Taps outside of the output are dropped. ``weights``
    come from :func:`transpose_filter`. If sums are wider than results, they are computed in parts.
    """
    channels, kind = weights.out_channels, np.dtype(dtype or weights.sums)
    shape, whole = (x.shape[0], *output, channels), kind == weights.sums
    places = list(parts(shape, (3,), math.prod(shape) if whole else _BAND_ELEMENTS, (1, *weights.kernel, 1)))
    sizes = [tuple(span.stop - span.start for span in place) for place in places]
    buffer, out = np.empty(max(map(math.prod, sizes), default=0), weights.sums), None
    for place, size in zip(places, sizes, strict=True):
        images, rows, columns, _ = place
        sums = buffer[: math.prod(size)].reshape(size)
        _add_transposed(sums, x[images], weights, stride, (pads[0] + rows.start, pads[1] + columns.start), in_zero)
        found = sums if finish is None else finish(sums.reshape(-1, channels)).reshape(size)
        if len(places) == 1:
            return found.astype(kind, copy=False)
        out = np.empty(shape, kind) if out is None else out
        out[place] = found
    return np.empty(shape, kind) if out is None else out


def _add_transposed(
    out: NDArray[Any], x: NDArray[Any], weights: ConvFilter, stride: Pair, pads: Pair, in_zero: int
) -> None:
    (n, *output, channels), in_channels = out.shape, x.shape[3]
    (kh, kw), matrix = weights.kernel, weights.groups[0]
    out[...] = 0
    item = matrix.values.dtype.itemsize
    (top, height), (left, width) = (
        _reaching(*axis) for axis in zip(x.shape[1:3], weights.kernel, stride, pads, output, strict=True)
    )
    pixels = _pixels(item * (kh * kw * channels + in_channels))
    for images, (y0, y1), (x0, x1) in _tile_ranges(n, height, width, pixels):
        rows, columns = (top + y0, top + y1), (left + x0, left + x1)
        part = np.subtract(x[slice(*images), slice(*rows), slice(*columns)], in_zero, dtype=matrix.values.dtype)
        sums = matrix.product(part.reshape(-1, in_channels)).reshape(*part.shape[:3], kh, kw, channels)
        for ky in range(kh):
            from_rows, to_rows = landing(*rows, ky - pads[0], stride[0], output[0])
            for kx in range(kw):
                from_columns, to_columns = landing(*columns, kx - pads[1], stride[1], output[1])
                out[slice(*images), to_rows, to_columns] += sums[:, from_rows, from_columns, ky, kx]


def _reaching(size: int, kernel: int, stride: int, pad: int, output: int) -> Pair:
    """Return the first input with a tap in ``[0, output)``, and the number of such inputs."""
    first = max(0, -((kernel - 1 - pad) // stride))
    return first, max(0, min(size, (output - 1 + pad) // stride + 1) - first)


def landing(first: int, last: int, offset: int, stride: int, size: int) -> tuple[slice, slice]:
    """Return slices of the pixels that land in ``[0, size)``, counted from ``first``, and of the positions."""
    start = max(first, -(offset // stride))
    stop = min(last, (size - 1 - offset) // stride + 1)
    if stop <= start:
        return slice(0, 0), slice(0, 0)
    begin = start * stride + offset
    return slice(start - first, stop - first), slice(begin, begin + (stop - 1 - start) * stride + 1, stride)


def transpose_filter(w: NDArray[Any], largest: int | None, *, sums: str = "int32") -> ConvFilter:
    """Prepare ``w [O, kh, kw, I]`` of a transposed convolution as one matrix ``[I, kh*kw*O]``."""
    out_channels, kh, kw, in_channels = w.shape
    matrix = w.transpose(3, 1, 2, 0).reshape(in_channels, kh * kw * out_channels)
    prepared = float_matrix(matrix) if largest is None else integer_matrix(matrix, largest, sums)
    return ConvFilter((prepared,), (kh, kw), in_channels, out_channels)
