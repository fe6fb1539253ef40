"""Semantics of the DMA engines' transfers."""

from __future__ import annotations

import numpy as np

from odc_mlir.errors import InputError, SimulationError
from odc_mlir.isa.fields import BIAS, COMMON_RECORD_BYTES, LARGEST_SHIFT, SCALE
from odc_mlir.isa.table.transfers import CODINGS, POSITION_BYTES, index_bytes, param_bytes
from odc_mlir.simulator.boxes import Box, box, picked_bytes, view
from odc_mlir.simulator.engines.machine import (
    DTYPES,
    InstructionCost,
    Machine,
    Values,
    ceil_div,
    check_scale,
    require,
    typed,
)
from odc_mlir.simulator.memories import SimulatedMemory

_FULL_RECORD = np.dtype([(name, kind) for name, kind, _ in (*BIAS, *SCALE)])
_BIAS_BYTES = 4  # bytes of an entry's bias: param writes entries as fast as biases arrive
_COMMON_RECORD = np.dtype([(name, kind) for name, kind, _ in SCALE])


def copy(m: Machine, v: Values) -> InstructionCost:
    """Copy ``bytes`` from ``source`` to ``target``, both outside of the local memories."""
    source, start = m.memories.at(v["source"])
    target, end = m.memories.at(v["target"])
    data = m.access.read(source, Box(start, v["bytes"]))
    out = m.access.write(target, Box(end, v["bytes"]))
    if out is not None:
        out[...] = data
    return InstructionCost()


def fill(m: Machine, v: Values) -> InstructionCost:
    """Fill ``bytes`` of the tile buffer with one code."""
    dtype = DTYPES[v["type"]]
    require(v["bytes"] % dtype.itemsize == 0, f"{v['bytes']} bytes are not whole elements of {dtype.itemsize} bytes")
    out = m.access.write(m.memories.tile, Box(v["target"], v["bytes"]))
    if out is not None:
        pattern = (v["value"] & ((1 << 8 * dtype.itemsize) - 1)).to_bytes(dtype.itemsize, "little")
        out[...] = np.frombuffer(pattern * (v["bytes"] // dtype.itemsize), np.uint8)
    return InstructionCost()


def load(m: Machine, v: Values) -> InstructionCost:
    """Load data from memory to the tile buffer, with runs and groups of padding around the data."""
    source, start = _sram(m, v["source"])
    size, count1, count2 = v["size0"], v["size1"], v["size2"]
    before1, before2 = v["pad_before1"], v["pad_before2"]
    runs, groups = before1 + count1 + v["pad_after1"], before2 + count2 + v["pad_after2"]
    _check_runs(v["tile_stride1"], v["tile_stride2"], size, runs, groups)
    data = m.access.read(source, box(start, size, count1, v["memory_stride1"], count2, v["memory_stride2"]))
    area = box(v["target"], size, runs, v["tile_stride1"], groups, v["tile_stride2"])
    out = m.access.write(m.memories.tile, area)
    if out is not None and data is not None:
        if (runs, groups) != (count1, count2):
            assert m.memories.tile.data is not None
            shape, strides = (groups, runs, size), (v["tile_stride2"], v["tile_stride1"], 1)
            tile = typed(m.memories.tile.data, np.dtype(np.uint8), v["target"], shape, strides)
            tile[...] = v["pad_value"] & 0xFF
            out = tile[before2 : before2 + count2, before1 : before1 + count1]
        out[...] = data.reshape(out.shape)
    return InstructionCost()


def store(m: Machine, v: Values) -> InstructionCost:
    """Store data from the tile buffer to memory."""
    target, start = _sram(m, v["target"])
    size, count1, count2 = v["size0"], v["size1"], v["size2"]
    _check_runs(v["memory_stride1"], v["memory_stride2"], size, count1, count2)
    data = m.access.read(m.memories.tile, box(v["source"], size, count1, v["tile_stride1"], count2, v["tile_stride2"]))
    out = m.access.write(target, box(start, size, count1, v["memory_stride1"], count2, v["memory_stride2"]))
    if out is not None and data is not None:
        out[...] = data.reshape(out.shape)
    return InstructionCost()


def wload(m: Machine, v: Values) -> InstructionCost:
    """Load coded weights through the decoder into the weight buffer."""
    coding = CODINGS[v["coding"]]
    if coding == "raw":
        require(v["coded_bytes"] == v["bytes"], f"{v['coded_bytes']} raw bytes cannot give {v['bytes']} weights")
    source, start = m.memories.at(v["source"])
    data = m.access.read(source, Box(start, v["coded_bytes"]))
    out = m.access.write(m.memories.weights, Box(v["target"], v["bytes"]))
    if out is not None and data is not None:
        out[...] = m.decoded(coding, data.tobytes(), v["bytes"])
    return InstructionCost(start=m.target.decoder.start_cycles, symbols=v["bytes"])


def mload(m: Machine, v: Values) -> InstructionCost:
    """Load rows of a matrix in SRAM into the weight buffer, in the order of the weight buffer."""
    source, start = _sram(m, v["source"])
    rows, columns, group = v["rows"], v["columns"], v["group"]
    require(group > 0, "divides columns into groups of 0")
    data = m.access.read(source, box(start, columns, rows, v["row_stride"]))
    out = m.access.write(m.memories.weights, Box(v["target"], rows * columns))
    widths = [min(group, columns - first) for first in range(0, columns, group)]
    if out is not None and data is not None:
        matrix = data.reshape(rows, columns)
        parts = [matrix[:, index * group : index * group + width] for index, width in enumerate(widths)]
        out[...] = np.concatenate([part.reshape(-1) for part in parts])
    decoder = m.target.decoder
    turns = rows * sum(ceil_div(width, decoder.symbols_per_cycle) for width in widths)
    return InstructionCost(start=decoder.start_cycles, symbols=turns * decoder.symbols_per_cycle)


def param(m: Machine, v: Values) -> InstructionCost:
    """Load bias, multiplier and exponent of ``count`` channels into the parameter buffer."""
    source, start = m.memories.at(v["source"])
    count, full = v["count"], v["form"] == 0
    size = param_bytes(count, v["form"])
    require(count > 0, "loads no entry: count is 0")
    data = m.access.read(source, Box(start, size))
    out = m.access.write(m.memories.params, Box(v["target"], count))
    if out is not None and data is not None:
        raw = data.tobytes()
        if full:
            records = np.frombuffer(raw, _FULL_RECORD)
            biases = records["bias"]
        else:
            records = np.frombuffer(raw[:COMMON_RECORD_BYTES], _COMMON_RECORD)
            biases = np.frombuffer(raw[COMMON_RECORD_BYTES:], _FULL_RECORD["bias"])
        out[:, 0], out[:, 1], out[:, 2] = biases, records["multiplier"], records["exponent"]
        wrong = np.abs(out[:, 2]) > LARGEST_SHIFT
        if wrong.any():
            raise SimulationError(f"exponent {out[wrong, 2][0]} of a scaling record is outside -31..31")
    return InstructionCost()


def pfill(m: Machine, v: Values) -> InstructionCost:
    """Write the same multiplier and exponent, and no bias, to ``count`` entries of the parameter buffer."""
    count, one_scale = v["count"], check_scale(v, "out")
    require(count > 0, "fills no entry: count is 0")
    out = m.access.write(m.memories.params, Box(v["target"], count))
    if out is not None:
        out[...] = (0, *one_scale)
    return InstructionCost(shortest=count * _BIAS_BYTES / m.target.sram.bytes_per_cycle)


def table(m: Machine, v: Values) -> InstructionCost:
    """Load ``bytes`` of a lookup table into the table buffer."""
    source, start = m.memories.at(v["source"])
    data = m.access.read(source, Box(start, v["bytes"]))
    out = m.access.write(m.memories.tables, Box(v["target"], v["bytes"]))
    if out is not None:
        out[...] = data
    return InstructionCost()


def gather(m: Machine, v: Values) -> InstructionCost:
    """Copy the table rows whose indices are in SRAM. Raises InputError for an index out of range."""
    source, start = m.memories.at(v["source"])
    numbers, first = _sram(m, v["indices"])
    target, end = _sram(m, v["target"])
    count, rows, size = v["count"], v["rows"], v["row_bytes"]
    require(count > 0 and rows > 0 and size > 0, f"takes {count} of {rows} rows of {size} bytes")
    found = m.access.read(numbers, Box(first, count * index_bytes(v)))
    moved = picked_bytes(start, size, rows, count, source.burst)
    data = m.access.read(source, Box(start, rows * size), moved=moved, payload=count * size)
    out = m.access.write(target, Box(end, count * size))
    if out is not None and data is not None and found is not None:
        places = np.frombuffer(found.tobytes(), f"<i{index_bytes(v)}")
        wrong = (places < 0) | (places >= rows)
        if wrong.any():
            raise InputError(f"index {places[wrong][0]} is out of range; allowed are 0 to {rows - 1}")
        out[...] = data.reshape(rows, size)[places].reshape(-1)
    return InstructionCost(shortest=count)


def scatter(m: Machine, v: Values) -> InstructionCost:
    """Replace rows of several consecutive tables, from a row index in SRAM on."""
    source, start = _sram(m, v["source"])
    numbers, first = _sram(m, v["position"])
    target, end = _sram(m, v["target"])
    count, rows, size, taken = v["count"], v["rows"], v["row_bytes"], v["taken"]
    is_any = count > 0 and size > 0 and 0 < taken <= rows
    require(is_any, f"writes {taken} rows to {count} tables of {rows} rows of {size} bytes")
    place = m.access.read(numbers, Box(first, POSITION_BYTES))
    new = m.access.read(source, Box(start, count * taken * size))
    tables = Box(end, count * rows * size)
    is_whole = rows == taken or target.written is None or bool(view(target.written, tables).all())
    require(is_whole, "replaces rows of tables that were never written")
    out = m.access.write(target, tables, moved=picked_bytes(end, size, count * rows, count * taken, target.burst))
    if out is not None and new is not None and place is not None:
        row = min(max(int.from_bytes(place.tobytes(), "little", signed=True), 0), rows - taken)
        out.reshape(count, rows, size)[:, row : row + taken] = new.reshape(count, taken, size)
    return InstructionCost(shortest=count * taken)


def _sram(m: Machine, address: int) -> tuple[SimulatedMemory, int]:
    """Return the memory behind the SRAM port, the only memory for computed codes."""
    space, offset = m.memories.at(address)
    if space.port is not m.target.sram:
        raise SimulationError(f"codes are exchanged with SRAM only, not with off-chip {space.name}")
    return space, offset


def _check_runs(stride1: int, stride2: int, size: int, runs: int, groups: int) -> None:
    row = (runs - 1) * stride1 + size
    require(runs <= 1 or stride1 >= size, f"runs of {size} bytes are written {stride1} bytes apart")
    require(groups <= 1 or stride2 >= row, f"groups of {row} bytes are written {stride2} bytes apart")
