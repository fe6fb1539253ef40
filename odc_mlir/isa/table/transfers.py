"""Instructions of the DMA engines."""

from __future__ import annotations

from odc_mlir.isa import fields
from odc_mlir.isa.table.shorthand import (
    count,
    enum,
    factor,
    flag,
    memory,
    param,
    scale,
    signed,
    sram,
    table,
    tile,
    type_of,
    weight,
)

CODINGS = ("raw", "rice", "huffman")
FORMS = ("full", "bias")
POSITION_BYTES = 4  # size of a row index of ``scatter``
_STRIDES = (
    count("size0", 16, "contiguous bytes"),
    factor("size1", 12, "runs of size0 (pixels)"),
    factor("size2", 12, "groups of size1 (rows)"),
    count("memory_stride1", 24, "bytes between runs in memory"),
    count("memory_stride2", 24, "bytes between groups in memory"),
    count("tile_stride1", 16, "bytes between runs in the tile buffer"),
    count("tile_stride2", 16, "bytes between groups in the tile buffer"),
)


def param_bytes(entries: int, form: int) -> int:
    """Return the number of bytes that a ``param`` instruction reads."""
    if FORMS[form] == "full":
        return fields.FULL_RECORD_BYTES * entries
    return fields.COMMON_RECORD_BYTES + fields.BIAS_BYTES * entries


def _moved(v: fields.Values) -> fields.Effects:
    return fields.Effects((fields.Area("source", v["bytes"]),), (fields.Area("target", v["bytes"]),))


def _fill(v: fields.Values) -> fields.Effects:
    return fields.Effects((), (fields.Area("target", v["bytes"]),))


def _load(v: fields.Values) -> fields.Effects:
    get = v.get
    size, count1, count2 = get("size0", 0), get("size1", 0), get("size2", 0)
    runs = count1 + get("pad_before1", 0) + get("pad_after1", 0)
    groups = count2 + get("pad_before2", 0) + get("pad_after2", 0)
    source = fields.strided("source", size, count1, get("memory_stride1", 0), count2, get("memory_stride2", 0))
    return fields.Effects(
        (source,), (fields.strided("target", size, runs, get("tile_stride1", 0), groups, get("tile_stride2", 0)),)
    )


def _store(v: fields.Values) -> fields.Effects:
    get = v.get
    sizes = get("size0", 0), get("size1", 0), get("size2", 0)
    ends = []
    for field, side in (("source", "tile"), ("target", "memory")):
        stride1, stride2 = get(f"{side}_stride1", 0), get(f"{side}_stride2", 0)
        ends.append(fields.strided(field, sizes[0], sizes[1], stride1, sizes[2], stride2))
    return fields.Effects((ends[0],), (ends[1],))


def _wload(v: fields.Values) -> fields.Effects:
    return fields.Effects((fields.Area("source", v["coded_bytes"]),), (fields.Area("target", v["bytes"]),))


def _mload(v: fields.Values) -> fields.Effects:
    rows, columns = v["rows"], v["columns"]
    source = fields.strided("source", columns, rows, v.get("row_stride", 0))
    return fields.Effects((source,), (fields.Area("target", rows * columns),))


def _gather(v: fields.Values) -> fields.Effects:
    count, rows, size = v["count"], v["rows"], v["row_bytes"]
    table = fields.Area("source", rows * size, picked=(count, size))
    return fields.Effects(
        (fields.Area("indices", count * index_bytes(v)), table), (fields.Area("target", count * size),)
    )


def _scatter(v: fields.Values) -> fields.Effects:
    count, size = v["count"], v["row_bytes"]
    taken = count * v.get("taken", 1)
    tables = fields.Area("target", count * v["rows"] * size, picked=(taken, size))
    return fields.Effects((fields.Area("position", POSITION_BYTES), fields.Area("source", taken * size)), (tables,))


def index_bytes(v: fields.Values) -> int:
    """Return the size of an index of ``gather``, in bytes."""
    return 8 if v.get("wide", 0) else 4


def _pfill(v: fields.Values) -> fields.Effects:
    return fields.Effects((), (fields.Area("target", v["count"]),))


def _param(v: fields.Values) -> fields.Effects:
    entries = v["count"]
    return fields.Effects(
        (fields.Area("source", param_bytes(entries, v.get("form", 0))),), (fields.Area("target", entries),)
    )


COPY = fields.Instruction(
    "copy",
    0x10,
    fields.Queue.XFER,
    (memory("source", "first byte"), memory("target", "first byte"), count("bytes", 24, "number of bytes")),
    "copy between off-chip memory and SRAM, or within SRAM",
    _moved,
)
FILL = fields.Instruction(
    "fill",
    0x11,
    fields.Queue.LOAD,
    (
        tile("target", "first byte"),
        count("bytes", 16, "number of bytes"),
        signed("value", 16, "code written"),
        type_of("type", "element type"),
    ),
    "fill part of the tile buffer with one code",
    _fill,
    fields.Cost("tile_writes = bytes"),
)
LOAD = fields.Instruction(
    "load",
    0x12,
    fields.Queue.LOAD,
    (
        sram("source", "first byte read"),
        tile("target", "first byte written, padding included"),
        *_STRIDES,
        count("pad_before1", 8, "padding runs before each group"),
        count("pad_after1", 8, "padding runs after each group"),
        count("pad_before2", 8, "padding groups before the first"),
        count("pad_after2", 8, "padding groups after the last"),
        signed("pad_value", 16, "code written as padding (u8, i8: low byte)"),
    ),
    "strided copy from SRAM to the tile buffer, with padding",
    _load,
    fields.Cost("tile_writes = size0 * (pad_before1 + size1 + pad_after1) * (pad_before2 + size2 + pad_after2)"),
)
STORE = fields.Instruction(
    "store",
    0x13,
    fields.Queue.STORE,
    (sram("target", "first byte written"), tile("source", "first byte read"), *_STRIDES),
    "strided copy from the tile buffer to SRAM",
    _store,
    fields.Cost("tile_reads = size0 * size1 * size2"),
)
WLOAD = fields.Instruction(
    "wload",
    0x14,
    fields.Queue.WEIGHT,
    (
        memory("source", "first coded byte"),
        count("coded_bytes", 18, "bytes read"),
        enum("coding", 4, "coding of the bytes", *CODINGS),
        weight("target", "first byte written"),
        count("bytes", 16, "bytes written"),
    ),
    "decode weights into the weight buffer",
    _wload,
    fields.Cost("start = decoder.start_cycles\nsymbols = bytes"),
)
PARAM = fields.Instruction(
    "param",
    0x15,
    fields.Queue.WEIGHT,
    (
        memory("source", "first record"),
        param("target", "first entry"),
        count("count", 12, "entries"),
        enum(
            "form",
            2,
            "records of bias i32, multiplier i32, exponent i8; or one multiplier and exponent, then biases",
            *FORMS,
        ),
    ),
    "load per-channel scaling records",
    _param,
)
TABLE = fields.Instruction(
    "table",
    0x16,
    fields.Queue.WEIGHT,
    (memory("source", "first byte"), table("target", "first byte written"), count("bytes", 12, "number of bytes")),
    "load a look-up table",
    _moved,
)
MLOAD = fields.Instruction(
    "mload",
    0x17,
    fields.Queue.WEIGHT,
    (
        sram("source", "first byte read"),
        weight("target", "first byte written"),
        count("rows", 16, "rows of the matrix: input channels"),
        count("columns", 16, "columns of the matrix: result channels, contiguous bytes"),
        count("row_stride", 24, "bytes between rows in memory"),
        count("group", 16, "adjacent columns of a group: channels of the array shape"),
    ),
    "load a matrix of computed codes from SRAM into the weight buffer, in the order of weights",
    _mload,
    fields.Cost(
        """\
width = decoder.symbols_per_cycle
turns = columns // group * ceil(group / width) + ceil(columns % group / width)
start = decoder.start_cycles
symbols = rows * turns * width"""
    ),
)
PFILL = fields.Instruction(
    "pfill",
    0x18,
    fields.Queue.WEIGHT,
    (param("target", "first entry"), count("count", 12, "entries"), *scale("out", "scale of each entry")),
    "fill entries of the parameter buffer with one scale, without bias",
    _pfill,
    fields.Cost(f"shortest = {fields.BIAS_BYTES} * count / sram.bytes_per_cycle"),
)
GATHER = fields.Instruction(
    "gather",
    0x19,
    fields.Queue.WEIGHT,
    (
        memory("source", "first byte of the table"),
        sram("indices", "first byte of the row indices"),
        sram("target", "first byte written"),
        count("count", 16, "rows written"),
        count("rows", 24, "rows of the table"),
        count("row_bytes", 20, "bytes of a row"),
        flag("wide", "row indices have 64 bits, else 32"),
    ),
    "copy table rows with computed indices to SRAM",
    _gather,
    fields.Cost("shortest = count"),
)
SCATTER = fields.Instruction(
    "scatter",
    0x1A,
    fields.Queue.WEIGHT,
    (
        sram("source", "first byte of the rows"),
        sram("position", "first byte of the index of the first row, 32 bits"),
        sram("target", "first byte of the tables"),
        count("count", 16, "number of consecutive tables"),
        count("rows", 24, "rows of each table"),
        count("row_bytes", 20, "bytes of a row"),
        factor("taken", 16, "rows replaced in each table"),
    ),
    "replace rows of each table in SRAM, from a computed row index on",
    _scatter,
    fields.Cost("shortest = count * taken"),
)
