"""What each instruction reads and writes, by its fields: the compiler orders and checks programs by it.

Areas are given from an address field on, in units of its memory, as ranges that enclose strided accesses: two
instructions that touch disjoint columns of the same rows count as conflicting. Fields that are 0 may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odc_mlir.isa.fields import (
    BIAS_BYTES,
    COMMON_RECORD_BYTES,
    FULL_RECORD_BYTES,
    LUT_ENTRIES,
    SIGMOID_TABLE_BYTES,
    WIDE_LUT_BYTES,
)
from odc_mlir.isa.instructions import BY_MNEMONIC, TYPE_BYTES

Values = Mapping[str, int]


class Area(NamedTuple):
    """``size`` units from the address in ``field`` on.

    ``ring``: the address field and the size of a ring that the area wraps in, where it does.
    """

    field: str
    size: int
    ring: tuple[str, int] | None = None


class Effects(NamedTuple):
    """All areas that an instruction may touch."""

    reads: tuple[Area, ...] = ()
    writes: tuple[Area, ...] = ()


def _codes(mnemonic: str, field: str) -> dict[str, int]:
    """The codes of an enum field by name."""
    (found,) = (f for f in BY_MNEMONIC[mnemonic].fields if f.name == field)
    return {name: code for code, name in enumerate(found.values)}


_CONV_ADDS_BIAS, _CONV_KEEPS = (_codes("conv", "init")[name] for name in ("bias", "keep"))
_REDUCE_KEEPS = _codes("reduce", "init")["keep"]
_REDUCES_TO_INDEX = _codes("reduce", "kind")["argmax"]
_FULL_RECORDS = _codes("param", "form")["full"]
_VOP_KINDS = _codes("vop", "kind")
_BINARY, _MAPS = frozenset(_VOP_KINDS[name] for name in ("add", "sub", "mul", "max", "min")), _VOP_KINDS["lut"]
_SIGMOIDS = frozenset(_VOP_KINDS[name] for name in ("logistic", "tanh"))


def effects(mnemonic: str, values: Values) -> Effects:
    """The effects of one instruction with the given ``values`` of its fields."""
    return EFFECTS[mnemonic](values)


def _extent(size: int, count1: int, stride1: int, count2: int, stride2: int) -> int:
    return (count2 - 1) * stride2 + (count1 - 1) * stride1 + size


def _item(v: Values, field: str) -> int:
    """Bytes of an element of the type that ``field`` names."""
    return TYPE_BYTES[v.get(field, 0)]


def _none(_: Values) -> Effects:
    return Effects()


def _copy(v: Values) -> Effects:
    return Effects((Area("source", v["bytes"]),), (Area("target", v["bytes"]),))


def _fill(v: Values) -> Effects:
    return Effects((), (Area("target", v["bytes"]),))


def _load(v: Values) -> Effects:
    get = v.get
    size, count1, count2 = get("size0", 0), get("size1", 0), get("size2", 0)
    runs = count1 + get("pad_before1", 0) + get("pad_after1", 0)
    groups = count2 + get("pad_before2", 0) + get("pad_after2", 0)
    source = _extent(size, count1, get("memory_stride1", 0), count2, get("memory_stride2", 0))
    target = _extent(size, runs, get("tile_stride1", 0), groups, get("tile_stride2", 0))
    return Effects((Area("source", source),), (Area("target", target),))


def _store(v: Values) -> Effects:
    get = v.get
    size, count1, count2 = get("size0", 0), get("size1", 0), get("size2", 0)
    source = _extent(size, count1, get("tile_stride1", 0), count2, get("tile_stride2", 0))
    target = _extent(size, count1, get("memory_stride1", 0), count2, get("memory_stride2", 0))
    return Effects((Area("source", source),), (Area("target", target),))


def _wload(v: Values) -> Effects:
    return Effects((Area("source", v["coded_bytes"]),), (Area("target", v["bytes"]),))


def _mload(v: Values) -> Effects:
    rows, columns = v["rows"], v["columns"]
    source = _extent(columns, rows, v.get("row_stride", 0), 1, 0)
    return Effects((Area("source", source),), (Area("target", rows * columns),))


def param_bytes(count: int, form: int) -> int:
    """Bytes that a ``param`` instruction reads."""
    return FULL_RECORD_BYTES * count if form == _FULL_RECORDS else COMMON_RECORD_BYTES + BIAS_BYTES * count


def _param(v: Values) -> Effects:
    count = v["count"]
    return Effects((Area("source", param_bytes(count, v.get("form", 0))),), (Area("target", count),))


def _pixels(v: Values, item: int, rows: int, columns: int, prefix: str, channels: int) -> int:
    """Extent of ``rows`` x ``columns`` pixels of a tile."""
    return _extent(channels * item, columns, v[f"{prefix}_stride_x"], rows, v[f"{prefix}_stride_y"])


def _conv(v: Values) -> Effects:
    channels, taps, emit = v["channels"], v["kernel_height"] * v["kernel_width"], v.get("emit", 0)
    rows = (v["out_height"] - 1) * v["stride_y"] + (v["kernel_height"] - 1) * v["dilation_y"] + 1
    columns = (v["out_width"] - 1) * v["stride_x"] + (v["kernel_width"] - 1) * v["dilation_x"] + 1
    source = _pixels(v, _item(v, "in_type"), rows, columns, "in", v["in_channels"])
    ring = v.get("ring_bytes", 0)
    depth = taps if v.get("depthwise") else taps * v["in_channels"]
    weights = Area("weights", depth * channels * _item(v, "weight_type"))
    reads = [Area("input", source, ("ring_base", ring) if ring else None), weights]
    if emit or v.get("init", 0) == _CONV_ADDS_BIAS:
        reads.append(Area("param", channels))
    sums = Area("accumulators", v["out_width"] * v["out_height"] * channels)
    if v.get("init", 0) == _CONV_KEEPS:
        reads.append(sums)
    result = _pixels(v, _item(v, "out_type"), v["out_height"], v["out_width"], "out", channels)
    return Effects(tuple(reads), (Area("output", result) if emit else sums,))


def _vop(v: Values) -> Effects:
    reads = [] if v.get("accumulated") else [Area("a", _operand(v, "a", "a_type"))]
    if v.get("kind", 0) in _BINARY:
        reads.append(Area("b", _operand(v, "b", "b_type")))
    if size := _table_bytes(v):
        reads.append(Area("table", size))
    if v.get("accumulated"):
        reads += [Area("accumulators", v["size0"] * v["size1"] * v["size2"]), Area("param", v["size0"])]
    return Effects(tuple(reads), (Area("output", _operand(v, "out", "out_type")),))


def _table_bytes(v: Values) -> int:
    """Bytes of the table that a ``vop`` reads, 0 where it reads none."""
    kind = v.get("kind", 0)
    if kind in _SIGMOIDS:
        return SIGMOID_TABLE_BYTES
    if kind == _MAPS and _item(v, "a_type") > 1:
        return WIDE_LUT_BYTES
    return LUT_ENTRIES if kind == _MAPS or v.get("lut") else 0


def _operand(v: Values, name: str, kind: str) -> int:
    """Extent of an operand of ``vop``; the result has no broadcast."""
    item = _item(v, kind)
    size = (v["size0"] if name == "out" or v.get(f"{name}_stride0", 0) else 1) * item
    return _extent(size, v["size1"], v.get(f"{name}_stride1", 0), v["size2"], v.get(f"{name}_stride2", 0))


def _pool(v: Values) -> Effects:
    rows = (v["out_height"] - 1) * v["stride_y"] + v["kernel_height"]
    columns = (v["out_width"] - 1) * v["stride_x"] + v["kernel_width"]
    item, channels = _item(v, "type"), v["channels"]
    source = _pixels(v, item, rows, columns, "in", channels)
    result = _pixels(v, item, v["out_height"], v["out_width"], "out", channels)
    return Effects((Area("input", source),), (Area("output", result),))


def _reduce(v: Values) -> Effects:
    channels, sums = v["channels"], Area("accumulators", v["channels"])
    reads = [Area("input", _pixels(v, _item(v, "in_type"), v["height"], v["width"], "in", channels))]
    if v.get("init", 0) == _REDUCE_KEEPS:
        reads.append(sums)
    if not v.get("emit"):
        return Effects(tuple(reads), (sums,))
    results = v["width"] * v["height"] if v.get("kind", 0) == _REDUCES_TO_INDEX else channels
    return Effects(tuple(reads), (Area("output", results * _item(v, "out_type")),))


def _softmax(v: Values) -> Effects:
    columns, rows, item = v["columns"], v["rows"], _item(v, "in_type")
    reads = [Area("input", _extent(columns * item, rows, v.get("in_stride", 0), 1, 0))]
    if item > 1:
        reads.append(Area("table", WIDE_LUT_BYTES))
    result = _extent(columns * _item(v, "out_type"), rows, v.get("out_stride", 0), 1, 0)
    return Effects(tuple(reads), (Area("output", result),))


def lstm_gates(v: Values) -> int:
    """How many gates an LSTM cell computes."""
    return 3 if v.get("coupled") else 4


def _gates(v: Values) -> Effects:
    units, sums = v["units"], lstm_gates(v) * v["units"]
    cell = Area("cell", 2 * units)
    return Effects((Area("accumulators", sums), Area("input", 2 * sums), cell), (cell, Area("hidden", units)))


def _resize(v: Values) -> Effects:
    item, channels = _item(v, "type"), v["channels"]
    source = _pixels(v, item, v["in_height"], v["in_width"], "in", channels)
    result = _pixels(v, item, v["out_height"], v["out_width"], "out", channels)
    return Effects((Area("input", source),), (Area("output", result),))


def _table(v: Values) -> Effects:
    return Effects((Area("source", v["bytes"]),), (Area("target", v["bytes"]),))


EFFECTS: Mapping[str, Callable[[Values], Effects]] = {
    "halt": _none,
    "sync": _none,
    "loop": _none,
    "end": _none,
    "copy": _copy,
    "fill": _fill,
    "load": _load,
    "store": _store,
    "wload": _wload,
    "mload": _mload,
    "param": _param,
    "table": _table,
    "conv": _conv,
    "vop": _vop,
    "pool": _pool,
    "reduce": _reduce,
    "softmax": _softmax,
    "gates": _gates,
    "resize": _resize,
}
