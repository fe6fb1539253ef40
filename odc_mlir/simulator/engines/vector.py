"""Instructions of the vector engine: semantics and costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.fields import LUT_ENTRIES, SIGMOID_TABLE_BYTES, WIDE_LUT_BYTES
from odc_mlir.isa.table.vector import (
    BINARY,
    POOL_KINDS,
    REDUCE_INITS,
    REDUCE_KINDS,
    RESIZE_KINDS,
    SIGMOIDS,
    VOP_KINDS,
    lstm_gates,
)
from odc_mlir.numerics import elementwise, lstm, lut
from odc_mlir.numerics.fixed import Requantizer, multiply, requantize, wrap32
from odc_mlir.numerics.gates import saturate16
from odc_mlir.numerics.int16 import SigmoidParams, logistic16, look_up, softmax16_codes, tanh16
from odc_mlir.numerics.pooling import PoolWindows, average_pool, max_pool
from odc_mlir.numerics.resize import Line, Lines, resize_bilinear_by_lines, resize_nearest_by_lines
from odc_mlir.numerics.softmax import softmax_codes
from odc_mlir.simulator.boxes import Box, box
from odc_mlir.simulator.engines import machine

_SOFTMAX_PASSES = 3  # maximum; exponentials and their sum; scaling
_ALL_TYPES = ("u8", "i8", "i16", "i32")
_UNSCALED = ("lut", "copy", *SIGMOIDS)
_ENTRY_PAIR_BYTES = 4  # size of two neighbouring 16-bit entries
_LARGEST_POSITION_FACTOR = (1 << 15) - 1


def vop(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Compute element-wise arithmetic over ``size2`` x ``size1`` x ``size0`` elements."""
    kind = VOP_KINDS[v["kind"]]
    shape = (v["size2"], v["size1"], v["size0"])
    count = shape[0] * shape[1] * shape[2]
    machine.require(count > 0, "computes nothing: a size is 0")
    out_type = machine.check_type(v, "out_type", *_ALL_TYPES)
    work = machine.InstructionCost(start=m.target.vector.start_cycles, lanes=count)
    output = _area(v, "output", "out", out_type.itemsize, 1)
    if v["accumulated"]:
        a = _accumulated(m, v, shape)
    else:
        a = _operand(m, v, "a", shape, output)
    b = _operand(m, v, "b", shape, output) if kind in BINARY else None
    table = _LookupTable.of(m, v, kind, out_type)
    if table is not None and table.interpolated:
        work.shortest = _ENTRY_PAIR_BYTES * count / m.target.vector.requant_lanes
    compute = _arithmetic(v, kind, out_type)
    out = m.access.write(m.memories.tile, output, in_place=output)
    if out is None or a is None:
        return work
    result = compute(a, b)
    if table is not None:
        result = table.apply(np.ascontiguousarray(result))
    out[...] = np.ascontiguousarray(result).astype(out_type, copy=False).view(np.uint8).reshape(out.shape)
    return work


@dataclass(frozen=True, slots=True)
class _LookupTable:
    """Lookup table of a ``vop``. If ``interpolated``, 16-bit codes interpolate between two entries."""

    apply: Callable[[NDArray[Any]], NDArray[Any]]
    interpolated: bool

    @staticmethod
    def of(m: machine.Machine, v: machine.Values, kind: str, out_type: np.dtype[Any]) -> _LookupTable | None:
        if kind in SIGMOIDS:
            machine.check_type(v, "a_type", "i16")
            machine.check_type(v, "out_type", "i16")
            multiplier, exponent = machine.check_scale(v, "a")
            machine.require(exponent <= 0, f"field a_exponent is {exponent}, {kind} allows -31..0")
            machine.require(
                0 <= multiplier <= _LARGEST_POSITION_FACTOR,
                f"field a_multiplier is {multiplier}, allowed: 0..{_LARGEST_POSITION_FACTOR}",
            )
            entries = m.access.read(m.memories.tables, Box(v["table"], SIGMOID_TABLE_BYTES))
            params, function = SigmoidParams(multiplier, -exponent), logistic16 if kind == "logistic" else tanh16
            table = None if entries is None else entries.view("<u2").astype(np.int64)
            return _LookupTable(lambda codes: codes if table is None else function(codes, params, table), True)
        if kind != "lut" and not v["lut"]:
            return None
        index = machine.check_type(v, "a_type" if kind in _UNSCALED else "out_type", "u8", "i8", "i16")
        if kind == "lut" and index.itemsize == 2:
            machine.check_type(v, "out_type", "i16")
            entries = m.access.read(m.memories.tables, Box(v["table"], WIDE_LUT_BYTES))
            wide = None if entries is None else entries.view("<i2").astype(np.int64)
            return _LookupTable(lambda codes: codes if wide is None else look_up(wide, codes), True)
        machine.require(max(index.itemsize, out_type.itemsize) == 1, "only kind lut maps 16-bit codes")
        narrow = m.access.read(m.memories.tables, Box(v["table"], LUT_ENTRIES))
        return _LookupTable(lambda codes: codes if narrow is None else lut.apply(narrow.view(out_type), codes), False)


def _area(v: machine.Values, field: str, prefix: str, item: int, step: int) -> Box:
    size = v["size0"] * item if step else item
    count1 = v["size1"] if v[f"{prefix}_stride1"] or prefix == "out" else 1
    count2 = v["size2"] if v[f"{prefix}_stride2"] or prefix == "out" else 1
    return box(v[field], size, count1, v[f"{prefix}_stride1"], count2, v[f"{prefix}_stride2"])


def _operand(
    m: machine.Machine, v: machine.Values, name: str, shape: tuple[int, ...], output: Box
) -> NDArray[Any] | None:
    dtype = machine.check_type(v, f"{name}_type", *_ALL_TYPES)
    step = v[f"{name}_stride0"]
    # Every run reads all elements, also if runs broadcast. A single element for a run is read once.
    moved = shape[0] * shape[1] * (shape[2] if step else 1) * dtype.itemsize
    m.access.read(m.memories.tile, _area(v, name, name, dtype.itemsize, step), moved=moved)
    data = m.memories.tile.data
    if data is None:
        return None
    strides = (v[f"{name}_stride2"], v[f"{name}_stride1"], step * dtype.itemsize)
    return machine.typed(data, dtype, v[name], shape, strides)


def _accumulated(m: machine.Machine, v: machine.Values, shape: tuple[int, ...]) -> NDArray[Any] | None:
    dtype = machine.check_type(v, "a_type", "u8", "i8", "i16")
    count, channels = shape[0] * shape[1] * shape[2], shape[2]
    sums = m.access.read(m.memories.accumulators, Box(v["accumulators"], count))
    params = m.access.read(m.memories.params, Box(v["param"], channels))
    if sums is None or params is None:
        return None
    limits = np.iinfo(dtype)
    codes = requantize(
        wrap32(sums.reshape(-1, channels)),
        params[:, 1],
        params[:, 2],
        v["a_zero"],
        int(limits.min),
        int(limits.max),
        dtype,
    )
    return codes.reshape(shape)


def _arithmetic(v: machine.Values, kind: str, dtype: np.dtype[Any]) -> Callable[[Any, Any], NDArray[Any]]:
    if kind in _UNSCALED:
        machine.require(
            kind != "copy" or v["a_type"] == v["out_type"], "copy keeps the type, a_type and out_type differ"
        )
        return lambda a, b: np.asarray(a)
    low, high = machine.check_clamp(v, dtype)
    if kind in ("max", "min"):
        choose = np.maximum if kind == "max" else np.minimum
        return lambda a, b: np.clip(choose(a, b), low, high)
    name = dtype.name
    q, e = machine.check_scale(v, "out")
    if kind == "scale":
        scale = elementwise.ScaleParams(v["a_zero"], v["out_zero"], q, e, low, high, name)
        return lambda a, b: elementwise.scale_quantized(a, scale)
    if kind == "mul":
        product = elementwise.MulParams(v["a_zero"], v["b_zero"], v["out_zero"], q, e, low, high, name)
        return lambda a, b: elementwise.mul_quantized(a, b, product)
    zeros = (v["a_zero"], v["b_zero"], v["out_zero"])
    params = elementwise.AddParams(
        *zeros, v["left_shift"], *machine.check_scale(v, "a"), *machine.check_scale(v, "b"), q, e, low, high, name
    )
    combine = elementwise.add_quantized if kind == "add" else elementwise.sub_quantized
    return lambda a, b: combine(a, b, params)


def pool(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Compute the maximum or average over windows. Taps outside of the valid columns and rows are skipped."""
    dtype = machine.check_type(v, "type", "u8", "i8", "i16")
    item, channels = dtype.itemsize, v["channels"]
    low, high = machine.check_clamp(v, dtype)
    rows = _valid(v["out_height"], v["stride_y"], v["kernel_height"], v["valid_y"], v["valid_height"], "y")
    columns = _valid(v["out_width"], v["stride_x"], v["kernel_width"], v["valid_x"], v["valid_width"], "x")
    machine.require(channels > 0, "pools nothing: channels is 0")
    results = v["out_height"] * v["out_width"] * channels
    taps = results * v["kernel_height"] * v["kernel_width"]
    vector = m.target.vector
    work = machine.InstructionCost(start=vector.start_cycles, shortest=taps / vector.reduce_lanes, lanes=results)
    start = v["input"] + v["valid_y"] * v["in_stride_y"] + v["valid_x"] * v["in_stride_x"]
    # If the stride exceeds the kernel, the engine also reads pixels between windows.
    x = _image(m, v, dtype, start, rows, columns, moved=taps * item)
    out = m.access.write(m.memories.tile, _result(v, channels * item))
    if out is None or x is None:
        return work
    compute = max_pool if POOL_KINDS[v["kind"]] == "max" else average_pool
    window, stride = (v["kernel_height"], v["kernel_width"]), (v["stride_y"], v["stride_x"])
    windows = PoolWindows(window, stride, (v["valid_y"], v["valid_x"]), (v["out_height"], v["out_width"]))
    result = compute(x[None], windows, low, high)
    out[...] = np.ascontiguousarray(result).view(np.uint8).reshape(out.shape)
    return work


def _image(
    m: machine.Machine,
    v: machine.Values,
    dtype: np.dtype[Any],
    start: int,
    rows: int,
    columns: int,
    *,
    moved: int | None = None,
) -> NDArray[Any] | None:
    """Read pixels ``[rows, columns, channels]`` from ``start``. Return None in timing-only runs.

    ``moved`` is the number of bytes that the engine reads, if larger than the pixels.
    """
    channels, strides = v["channels"], (v["in_stride_y"], v["in_stride_x"], dtype.itemsize)
    machine.check_pixels(rows, columns, channels * dtype.itemsize, strides[0], strides[1])
    area = box(start, channels * dtype.itemsize, columns, strides[1], rows, strides[0])
    source = m.access.read(m.memories.tile, area, moved=None if moved is None else max(moved, area.units))
    if source is None or m.memories.tile.data is None:
        return None
    return machine.typed(m.memories.tile.data, dtype, start, (rows, columns, channels), strides)


def _result(v: machine.Values, pixel: int) -> Box:
    return box(v["output"], pixel, v["out_width"], v["out_stride_x"], v["out_height"], v["out_stride_y"])


def _valid(results: int, stride: int, kernel: int, before: int, inside: int, axis: str) -> int:
    machine.require(results > 0 and stride > 0 and kernel > 0, f"a size, stride or kernel along {axis} is 0")
    machine.require(
        before < kernel and (results - 1) * stride < before + inside,
        f"a window along {axis} holds no pixel of the image",
    )
    return min(inside, (results - 1) * stride + kernel - before)


def reduce(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Compute sum or maximum over pixels per channel, or the channel with the largest code per pixel."""
    kind, init = REDUCE_KINDS[v["kind"]], REDUCE_INITS[v["init"]]
    in_type = machine.check_type(v, "in_type", "u8", "i8", "i16")
    height, width, channels = v["height"], v["width"], v["channels"]
    machine.require(height > 0 and width > 0 and channels > 0, "reduces nothing: a size is 0")
    count = height * width * channels
    results = height * width if kind == "argmax" else channels
    vector = m.target.vector
    work = machine.InstructionCost(
        start=vector.start_cycles, shortest=count / vector.reduce_lanes, lanes=results if v["emit"] else 0
    )
    x = _image(m, v, in_type, v["input"], height, width)
    if kind == "argmax":
        machine.require(bool(v["emit"]) and init == "zero", "argmax needs emit and takes no earlier sums")
        out_type = machine.check_type(v, "out_type", *_ALL_TYPES)
        machine.require(
            channels - 1 <= np.iinfo(out_type).max, f"an index of {channels} channels does not fit {out_type.name}"
        )
        return _finish(m, v, work, out_type, None if x is None else x.argmax(axis=2).reshape(-1), results)
    partial = Box(v["accumulators"], channels)
    kept = m.access.read(m.memories.accumulators, partial) if init == "keep" else None
    sums = None if x is None else _reduced(kind, x, v["in_zero"], kept)
    if not v["emit"]:
        out = m.access.write(m.memories.accumulators, partial, in_place=partial)
        if out is not None and sums is not None:
            out[...] = sums
        return work
    out_type = machine.check_type(v, "out_type", "u8", "i8", "i16")
    low, high = machine.check_clamp(v, out_type)
    if kind == "max":
        return _finish(m, v, work, out_type, None if sums is None else np.clip(sums, low, high), results)
    scale = Requantizer(*machine.check_scale(v, "out"), v["out_zero"], low, high, out_type)
    return _finish(m, v, work, out_type, None if sums is None else scale(wrap32(sums)), results)


def _reduced(kind: str, x: NDArray[Any], zero: int, kept: NDArray[Any] | None) -> NDArray[np.int64]:
    if kind == "max":
        largest: NDArray[np.int64] = x.max(axis=(0, 1)).astype(np.int64)
        return largest if kept is None else np.maximum(largest, kept)
    sums: NDArray[np.int64] = x.sum(axis=(0, 1), dtype=np.int64) - zero * x.shape[0] * x.shape[1]
    return sums if kept is None else sums + kept


def _finish(
    m: machine.Machine,
    v: machine.Values,
    work: machine.InstructionCost,
    dtype: np.dtype[Any],
    result: NDArray[Any] | None,
    count: int,
) -> machine.InstructionCost:
    out = m.access.write(m.memories.tile, Box(v["output"], count * dtype.itemsize))
    if out is not None and result is not None:
        out[...] = np.ascontiguousarray(result.astype(dtype)).view(np.uint8)
    return work


def softmax(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Compute the softmax of ``rows`` rows of ``columns`` codes."""
    in_type = machine.check_type(v, "in_type", "u8", "i8", "i16")
    wide, item = in_type.itemsize == 2, in_type.itemsize
    out_type = machine.check_type(v, "out_type", *(("i16",) if wide else ("u8", "i8")))
    rows, columns = v["rows"], v["columns"]
    machine.require(rows > 0 and columns > 0, "computes nothing: a size is 0")
    row = columns * item
    machine.require(rows == 1 or v["in_stride"] >= row, f"in_stride is {v['in_stride']}, a row has {row} bytes")
    q, e = machine.check_scale(v, "beta")
    vector, count = m.target.vector, rows * columns
    work = machine.InstructionCost(
        start=vector.softmax_start_cycles, shortest=_softmax_passes(m, count, wide=wide), lanes=count
    )
    area = box(v["input"], row, rows, v["in_stride"])
    source = m.access.read(m.memories.tile, area, moved=_SOFTMAX_PASSES * count * item)
    entries = m.access.read(m.memories.tables, Box(v["table"], WIDE_LUT_BYTES)) if wide else None
    target = box(v["output"], row, rows, v["out_stride"])
    out = m.access.write(m.memories.tile, target, in_place=area)
    if out is not None and source is not None and m.memories.tile.data is not None:
        x = machine.typed(m.memories.tile.data, in_type, v["input"], (rows, columns), (v["in_stride"], item))
        if wide and entries is not None:
            codes: NDArray[Any] = softmax16_codes(x, q, e, entries.view("<i2").astype(np.int64))
        else:
            codes = softmax_codes(x, q, e, v["diff_min"], out_type)
        out[...] = codes.view(np.uint8).reshape(out.shape)
    return work


def _softmax_passes(m: machine.Machine, count: int, *, wide: bool) -> float:
    vector = m.target.vector
    if wide:
        return count / vector.softmax_elements_per_cycle + 2 * _ENTRY_PAIR_BYTES * count / vector.requant_lanes
    return _SOFTMAX_PASSES * count / vector.softmax_elements_per_cycle


PIXELS = {"nearest": 1, "bilinear": 4}  # source pixels per result
TURNS = {"nearest": 1, "bilinear": 3}  # lane cycles per result: a blend of two pixels multiplies once


def resize(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Resize a tile to ``out_height`` x ``out_width`` pixels. Input positions advance by a step along each axis."""
    kind = RESIZE_KINDS[v["kind"]]
    dtype = machine.check_type(v, "type", "u8", "i8", "i16")
    item, channels = dtype.itemsize, v["channels"]
    height, width, rows, columns = v["out_height"], v["out_width"], v["in_height"], v["in_width"]
    machine.require(min(height, width, rows, columns, channels) > 0, "computes nothing: a size is 0")
    results = height * width * channels
    work = machine.InstructionCost(start=m.target.vector.start_cycles, lanes=TURNS[kind] * results)
    x = _image(m, v, dtype, v["input"], rows, columns, moved=PIXELS[kind] * results * item)
    out = m.access.write(m.memories.tile, _result(v, channels * item))
    if out is None or x is None:
        return work
    lines = Lines(Line(v["start_y"], v["step_y"]), Line(v["start_x"], v["step_x"]))
    compute = resize_bilinear_by_lines if kind == "bilinear" else resize_nearest_by_lines
    out[...] = compute(x, (height, width), lines).view(np.uint8).reshape(out.shape)
    return work


GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate")
PASSES = 2  # uses of the exponential unit by logistic and tanh: exponential, reciprocal
_INT16 = machine.DTYPES[2]


def gates(m: machine.Machine, v: machine.Values) -> machine.InstructionCost:
    """Compute gates, cell state and hidden state of ``units`` units of an LSTM cell."""
    units, count = v["units"], lstm_gates(v)
    machine.require(units > 0, "computes nothing: units is 0")
    exponents = lstm.CELL_EXPONENTS
    machine.require(
        v["cell_exponent"] in exponents,
        f"cell_exponent is {v['cell_exponent']}, allowed: {exponents[0]}..{exponents[-1]}",
    )
    machine.require(v["clip"] < 1 << 15, f"clip is {v['clip']}, no cell state is as large")
    scales = [machine.check_scale(v, name) for name in GATES[-count:]]
    hidden_scale = machine.check_scale(v, "out")
    vector, functions = m.target.vector, count + 1  # one function per gate, and tanh of the cell state
    work = machine.InstructionCost(
        start=vector.softmax_start_cycles,
        shortest=PASSES * functions * units / vector.softmax_elements_per_cycle,
        lanes=(count + 3) * units,  # gates, two multiplications for the cell state, one for the hidden state
    )
    sums = m.access.read(m.memories.accumulators, Box(v["accumulators"], count * units))
    m.access.read(m.memories.tile, Box(v["input"], 2 * count * units))
    state = Box(v["cell"], 2 * units)
    m.access.read(m.memories.tile, state)
    cell_out = m.access.write(m.memories.tile, state, in_place=state)
    hidden_out = m.access.write(m.memories.tile, Box(v["hidden"], units))
    data = m.memories.tile.data
    if sums is None or cell_out is None or hidden_out is None or data is None:
        return work
    added = machine.typed(data, _INT16, v["input"], (count, units), (2 * units, 2))
    cell = machine.typed(data, _INT16, v["cell"], (units,), (2,))
    arguments = _arguments(sums.reshape(count, units), added, scales)
    entry = arguments[0] if count == len(GATES) else None
    forget, modulation, output = arguments[-3:]
    new = lstm.next_cell(entry, forget, modulation, cell, v["cell_exponent"], v["clip"])
    products = lstm.hidden_products(output, new, v["cell_exponent"])
    cell_out[...] = new.view(np.uint8)
    hidden_out[...] = requantize(products, *hidden_scale, v["out_zero"], -128, 127, "int8").view(np.uint8)
    return work


def _arguments(sums: NDArray[Any], added: NDArray[Any], scales: list[tuple[int, int]]) -> list[NDArray[np.int16]]:
    return [
        saturate16(multiply(wrap32(own), *scale).astype(np.int64) + part).astype(np.int16)
        for own, part, scale in zip(sums, added, scales, strict=True)
    ]
