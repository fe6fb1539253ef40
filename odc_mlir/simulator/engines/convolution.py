"""The multiply-accumulate array: convolution, depthwise convolution and matrix products over one tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_EXPONENT
from odc_mlir.isa.table.convolution import INITS
from odc_mlir.numerics.convolution import ConvFilter, DepthwiseFilter, Window, conv2d, depthwise_filter
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.matmul import integer_matrix
from odc_mlir.simulator.boxes import Box, box
from odc_mlir.simulator.engines.machine import (
    DTYPES,
    InstructionCost,
    Machine,
    Values,
    ceil_div,
    check_clamp,
    check_pixels,
    check_type,
    require,
    typed,
)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Sizes of one instruction.

    ``item``, ``weight_item``: size of an input element and of a weight, in bytes.
    ``rows``, ``columns``: height and width of the input.
    """

    out_height: int
    out_width: int
    channels: int
    in_channels: int
    window: Window
    item: int
    weight_item: int
    rows: int
    columns: int

    @property
    def pixels(self) -> int:
        return self.out_height * self.out_width

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]


def conv(m: Machine, v: Values) -> InstructionCost:
    """Compute sums of products of one tile. Keep them in accumulators, or requantise them into the tile buffer."""
    in_type = check_type(v, "in_type", "u8", "i8", "i16")
    weight_item = check_type(v, "weight_type", "u8", "i8", "i16").itemsize
    require(weight_item <= in_type.itemsize, "weights of 16 bits go with inputs of 16 bits")
    require(not v["wide"] or in_type.itemsize == 2, "wide sums are those of 16-bit inputs")
    g = _geometry(v, in_type.itemsize, weight_item)
    init = INITS[v["init"]]
    work = _cost(m, v, g, accumulators=init == "keep" or not v["emit"])
    x = _input(m, v, g, in_type)
    reduction = g.taps if v["depthwise"] else g.taps * g.in_channels
    w = m.access.read(m.memories.weights, Box(v["weights"], reduction * g.channels * weight_item))
    area = Box(v["accumulators"], g.pixels * g.channels)
    kept = m.access.read(m.memories.accumulators, area) if init == "keep" else None
    needs_param = bool(v["emit"]) or init == "bias"
    params = m.access.read(m.memories.params, Box(v["param"], g.channels)) if needs_param else None
    sums: NDArray[Any] | None = None
    if m.execute and x is not None and w is not None:
        sums = _sums(m, v, g, in_type, x, w)
        if init == "bias" and params is not None:
            sums = sums + params[:, 0].astype(sums.dtype)
        if kept is not None:
            sums = sums + kept.reshape(sums.shape)
    if not v["emit"]:
        out = m.access.write(m.memories.accumulators, area, in_place=area)
        if out is not None and sums is not None:
            out[...] = wrap40(sums.reshape(-1))
        return work
    out_type = check_type(v, "out_type", "u8", "i8", "i16")
    clamp = check_clamp(v, out_type)
    target = box(
        v["output"], g.channels * out_type.itemsize, g.out_width, v["out_stride_x"], g.out_height, v["out_stride_y"]
    )
    if m.access.write(m.memories.tile, target) is not None and sums is not None and params is not None:
        assert m.memories.tile.data is not None
        codes = _scaled(m, v, g, params, clamp, out_type)(sums.reshape(g.pixels, g.channels))
        shape = (g.out_height, g.out_width, g.channels)
        strides = (v["out_stride_y"], v["out_stride_x"], out_type.itemsize)
        typed(m.memories.tile.data, out_type, v["output"], shape, strides)[...] = codes.reshape(shape)
    return work


def wrap40(sums: NDArray[Any]) -> NDArray[np.int64]:
    """Wrap to the signed 40 bits of an accumulator."""
    unused = 64 - ACCUMULATOR_BITS
    return (sums.astype(np.int64) << unused) >> unused


def _geometry(v: Values, item: int, weight_item: int) -> _Geometry:
    for field in ("out_width", "out_height", "channels", "kernel_height", "kernel_width", "stride_y", "stride_x"):
        require(v[field] > 0, f"field {field} is 0")
    require(v["dilation_y"] > 0 and v["dilation_x"] > 0 and v["in_channels"] > 0, "a dilation or in_channels is 0")
    in_channels = v["in_channels"]
    if v["depthwise"]:
        require(
            v["multiplier"] > 0 and in_channels * v["multiplier"] == v["channels"],
            f"{v['channels']} depthwise results are not {v['multiplier']} for each of {in_channels} input channels",
        )
    else:
        require(v["multiplier"] == 1, f"field multiplier is {v['multiplier']}, only depthwise has another value than 1")
    window = Window(
        (v["kernel_height"], v["kernel_width"]), (v["stride_y"], v["stride_x"]), (v["dilation_y"], v["dilation_x"])
    )
    extent_y, extent_x = window.extent
    rows = (v["out_height"] - 1) * window.stride[0] + extent_y
    columns = (v["out_width"] - 1) * window.stride[1] + extent_x
    check_pixels(rows, columns, in_channels * item, v["in_stride_y"], v["in_stride_x"])
    return _Geometry(
        v["out_height"], v["out_width"], v["channels"], in_channels, window, item, weight_item, rows, columns
    )


def _cost(m: Machine, v: Values, g: _Geometry, *, accumulators: bool) -> InstructionCost:
    array = m.target.array
    passes = g.item * g.weight_item  # each pass multiplies 8 bits of inputs by 8 bits of weights
    if v["depthwise"]:
        pixels, channels = array.depthwise_shape
        tiles = g.out_height * ceil_div(g.out_width, pixels) * ceil_div(g.channels, channels)
        steps = g.taps * passes
        macs = g.pixels * g.channels * g.taps
    else:
        require(v["shape"] < len(array.shapes), f"array shape {v['shape']} does not exist")
        pixels, channels = array.shapes[v["shape"]]
        tiles = ceil_div(g.pixels, pixels) * ceil_div(g.channels, channels)
        steps = g.taps * g.in_channels * passes
        macs = g.pixels * g.channels * g.taps * g.in_channels
    if accumulators:
        steps = max(steps, ceil_div(pixels * channels, array.accumulator_ports))
    work = InstructionCost(start=array.start_cycles, shortest=tiles * steps, macs=macs)
    work.array_macs = tiles * steps * array.macs_per_cycle
    if v["emit"]:
        work.lanes = g.pixels * g.channels
        work.drain = pixels * channels / m.target.vector.requant_lanes
    return work


def _fetched(m: Machine, v: Values, g: _Geometry) -> int:
    (kh, kw), dilation_x, array = g.window.kernel, g.window.dilation[1], m.target.array
    if v["depthwise"]:
        pixels, channels = array.depthwise_shape
        blocks = ceil_div(g.out_width, pixels) * ceil_div(g.channels, channels)
        rows = depthwise_rows_read(g.out_height, kh, g.window.stride[0], g.window.dilation[0], array.depthwise_rows)
        span = (pixels - 1) * g.window.stride[1] + (kw - 1) * dilation_x + 1
        return blocks * rows * span * channels * g.item
    pixels, channels = array.shapes[v["shape"]]
    unit = m.target.tile_ports.fetch_bytes
    pixel = g.in_channels * g.item
    if v["in_stride_x"] == pixel and dilation_x == 1:
        runs, run = kh, kw * pixel
    else:
        runs, run = kh * kw, pixel
    per_pixel = runs * ceil_div(run, unit) * unit
    return ceil_div(g.pixels, pixels) * ceil_div(g.channels, channels) * pixels * per_pixel


def _input(m: Machine, v: Values, g: _Geometry, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the tile's input as ``[1, rows, columns, in_channels]``. Check all pixels under the kernel's taps."""
    tile, access = m.memories.tile, m.access
    pixel, stride_x, stride_y = g.in_channels * g.item, v["in_stride_x"], v["in_stride_y"]
    ring_base, ring_bytes = v["ring_base"], v["ring_bytes"]
    start = v["input"]
    length = (g.rows - 1) * stride_y + (g.columns - 1) * stride_x + pixel
    wraps = ring_bytes > 0 and start + length > ring_base + ring_bytes
    if ring_bytes:
        require(ring_base <= start < ring_base + ring_bytes, f"input {start} is outside its ring")
        require(length <= ring_bytes, f"input of {length} bytes does not fit in its ring of {ring_bytes}")
    moved = _fetched(m, v, g)
    for first_y, count_y, step_y in _touched(
        g.out_height, g.window.stride[0], g.window.kernel[0], g.window.dilation[0]
    ):
        for first_x, count_x, step_x in _touched(
            g.out_width, g.window.stride[1], g.window.kernel[1], g.window.dilation[1]
        ):
            base = start + first_y * stride_y + first_x * stride_x
            area = box(base, pixel, count_x, step_x * stride_x, count_y, step_y * stride_y)
            for part in _wrapped(area, ring_base + ring_bytes, ring_bytes) if wraps else (area,):
                access.read(tile, part, moved=moved)
                moved = 0
    if tile.data is None:
        return None
    data = tile.data
    if wraps:
        ring = data[ring_base : ring_base + ring_bytes]
        data, start = np.concatenate((ring[start - ring_base :], ring[: start - ring_base])), 0
    shape = (1, g.rows, g.columns, g.in_channels)
    return typed(data, dtype, start, shape, (0, stride_y, stride_x, g.item))


def touched(results: int, kernel: int, stride: int, dilation: int) -> int:
    """Return the number of distinct rows (or columns) that ``results`` windows of ``kernel`` taps read."""
    step = math.gcd(stride, dilation)
    # Tap k + stride / step of result y - dilation / step reads the same row as tap k of result y.
    again = max(0, results - dilation // step) * max(0, kernel - stride // step)
    return results * kernel - again


def depthwise_rows_read(results: int, kernel: int, stride: int, dilation: int, held: int) -> int:
    """Return the number of input rows that a depthwise instruction reads per column block.

    The array holds the sums of ``held`` result rows. If an input row contributes to at most ``held`` result rows, it is
    read once. Otherwise, the results are computed ``held`` rows at a time.
    """
    if -(-kernel // stride) <= held and 1 in (stride, dilation):
        return touched(results, kernel, stride, dilation)
    whole, rest = divmod(results, held)
    rows = whole * touched(held, kernel, stride, dilation)
    return rows + (touched(rest, kernel, stride, dilation) if rest else 0)


def _touched(results: int, stride: int, kernel: int, dilation: int) -> Iterator[tuple[int, int, int]]:
    if (dilation == 1 and kernel >= stride) or (stride == 1 and results >= dilation):
        yield 0, (results - 1) * stride + (kernel - 1) * dilation + 1, 1
    elif results == 1:
        yield 0, kernel, dilation
    else:
        for tap in range(kernel):
            yield tap * dilation, results, stride


def _wrapped(area: Box, end: int, length: int) -> Iterator[Box]:
    if area.end <= end:
        yield area
    elif area.start >= end:
        yield area._replace(start=area.start - length)
    elif area.count1 == 1:
        yield Box(area.start, end - area.start)
        yield Box(end - length, area.end - end)
    else:
        # Split into simpler areas: the last group (or run), and all earlier groups (or runs).
        groups = area.count2 > 1
        count, stride = (area.count2, area.stride2) if groups else (area.count1, area.stride1)
        first = min(count - 1, (end - area.start) // stride)
        for begin, size in ((0, first), (first, 1), (first + 1, count - first - 1)):
            if size:
                start = area.start + begin * stride
                counts = (area.count1, area.stride1, size, stride) if groups else (size, stride)
                yield from _wrapped(box(start, area.size, *counts), end, length)


def _sums(
    m: Machine, v: Values, g: _Geometry, in_type: np.dtype[Any], x: NDArray[Any], w: NDArray[Any]
) -> NDArray[Any]:
    """Return exact sums ``[1, out_height, out_width, channels]``, int32 for 8-bit inputs, otherwise int64."""
    sums = "int32" if g.item == 1 else "int64"
    limits = np.iinfo(in_type)
    largest = max(int(limits.max) - v["in_zero"], v["in_zero"] - int(limits.min))
    weight_type, zero = DTYPES[v["weight_type"]], v["weight_zero"]
    key = (
        bool(v["depthwise"]),
        v["weights"],
        v["shape"],
        g.channels,
        g.in_channels,
        g.window.kernel,
        largest,
        weight_type,
        zero,
    )

    def make() -> ConvFilter | DepthwiseFilter:
        codes = w.view(weight_type)
        if v["depthwise"]:
            codes = codes.reshape(*g.window.kernel, g.channels)
            return depthwise_filter(codes.astype(np.int32) - zero, largest, sums=sums)
        codes = weight_matrix(codes, g.channels, m.target.array.shapes[v["shape"]][1])
        matrix = integer_matrix(codes.astype(np.int32) - zero, largest, sums)
        return ConvFilter((matrix,), g.window.kernel, g.in_channels, g.channels)

    return conv2d(x, m.prepare(m.memories.weights, key, make), g.window, in_zero=v["in_zero"])


def weight_matrix(w: NDArray[Any], channels: int, group: int) -> NDArray[Any]:
    """Reorder weights ``[channel group][K][channel in group]`` to a matrix ``[K, channels]``."""
    reduction = w.size // channels
    whole = channels - channels % group
    parts = []
    if whole:
        parts.append(w[: whole * reduction].reshape(-1, reduction, group).transpose(1, 0, 2).reshape(reduction, whole))
    if whole < channels:
        parts.append(w[whole * reduction :].reshape(reduction, channels - whole))
    return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _scaled(
    m: Machine, v: Values, g: _Geometry, params: NDArray[Any], clamp: tuple[int, int], dtype: np.dtype[Any]
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    zero = v["out_zero"]
    if v["wide"]:
        most = int(params[:, 2].max())
        require(
            most <= LARGEST_WIDE_EXPONENT,
            f"exponent {most} of a 16-bit convolution's scale, at most {LARGEST_WIDE_EXPONENT} is allowed",
        )
        return WideRequantizer(params[:, 1], params[:, 2], zero, *clamp, dtype)
    key = ("requantizer", v["param"], g.channels, zero, clamp, dtype)
    scale = m.prepare(m.memories.params, key, lambda: Requantizer(params[:, 1], params[:, 2], zero, *clamp, dtype))
    return lambda sums: scale(sums.astype(np.int32))
