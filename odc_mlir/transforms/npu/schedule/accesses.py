"""What commands read and write, as address ranges.

Ranges enclose strided accesses: two commands that touch disjoint columns of the same rows count as conflicting. Sizes
and meanings of the fields are those of ``docs/npu.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odc_mlir.isa.fields import BIAS_BYTES, COMMON_RECORD_BYTES, FULL_RECORD_BYTES, LUT_ENTRIES
from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, enum_codes

_CONV_INIT = enum_codes(BY_MNEMONIC["conv"])["init"]
_REDUCE_INIT = enum_codes(BY_MNEMONIC["reduce"])["init"]
_PARAM_FORM = enum_codes(BY_MNEMONIC["param"])["form"]
_REDUCE_KIND = enum_codes(BY_MNEMONIC["reduce"])["kind"]


class Span(NamedTuple):
    """Units ``[start, end)`` of a buffer."""

    buffer: Buffer
    start: int
    end: int


Accesses = tuple[list[Span], list[Span]]
"""What is read, and what is written."""


def accesses(command: Command) -> Accesses:
    """The ranges that ``command`` reads and writes."""
    function = _FUNCTIONS.get(command.spec.mnemonic)
    return function(command) if function else ([], [])


def _span(place: Place, size: int) -> Span:
    buffer, offset = place
    return Span(buffer, offset, offset + size)


def _copy(c: Command) -> Accesses:
    size = c.values["bytes"]
    return [_span(c.places["source"], size)], [_span(c.places["target"], size)]


def _fill(c: Command) -> Accesses:
    return [], [_span(c.places["target"], c.values["bytes"])]


def _extent(size: int, count1: int, stride1: int, count2: int, stride2: int) -> int:
    return (count2 - 1) * stride2 + (count1 - 1) * stride1 + size


def _load(c: Command) -> Accesses:
    get = c.values.get
    size, count1, count2 = get("size0", 0), get("size1", 0), get("size2", 0)
    runs, groups = (
        count1 + get("pad_before1", 0) + get("pad_after1", 0),
        count2 + get("pad_before2", 0) + get("pad_after2", 0),
    )
    source = _extent(size, count1, get("memory_stride1", 0), count2, get("memory_stride2", 0))
    target = _extent(size, runs, get("tile_stride1", 0), groups, get("tile_stride2", 0))
    return [_span(c.places["source"], source)], [_span(c.places["target"], target)]


def _store(c: Command) -> Accesses:
    get = c.values.get
    size, count1, count2 = get("size0", 0), get("size1", 0), get("size2", 0)
    source = _extent(size, count1, get("tile_stride1", 0), count2, get("tile_stride2", 0))
    target = _extent(size, count1, get("memory_stride1", 0), count2, get("memory_stride2", 0))
    return [_span(c.places["source"], source)], [_span(c.places["target"], target)]


def _wload(c: Command) -> Accesses:
    return [_span(c.places["source"], c.values["coded_bytes"])], [_span(c.places["target"], c.values["bytes"])]


def param_bytes(count: int, form: int) -> int:
    """Bytes that a ``param`` instruction reads."""
    return FULL_RECORD_BYTES * count if form == _PARAM_FORM["full"] else COMMON_RECORD_BYTES + BIAS_BYTES * count


def _param(c: Command) -> Accesses:
    count = c.values["count"]
    return [_span(c.places["source"], param_bytes(count, c.values["form"]))], [_span(c.places["target"], count)]


def _table(c: Command) -> Accesses:
    size = c.values["bytes"]
    return [_span(c.places["source"], size)], [_span(c.places["target"], size)]


def _conv(c: Command) -> Accesses:
    v = c.values
    channels, taps = v["channels"], v["kernel_height"] * v["kernel_width"]
    depth = taps if v.get("depthwise") else taps * v["in_channels"]
    reads = _conv_input(c)
    reads.append(_span(c.places["weights"], depth * channels))
    writes = []
    if "param" in c.places:
        reads.append(_span(c.places["param"], channels))
    pixels = v["out_width"] * v["out_height"]
    emit = v.get("emit", 0)
    if v.get("init", 0) == _CONV_INIT["keep"]:
        reads.append(_span(c.places["accumulators"], pixels * channels))
    if emit:
        size = _extent(channels, v["out_width"], v["out_stride_x"], v["out_height"], v["out_stride_y"])
        writes.append(_span(c.places["output"], size))
    else:
        writes.append(_span(c.places["accumulators"], pixels * channels))
    return reads, writes


def _conv_input(c: Command) -> list[Span]:
    """Input rows; in a ring, up to two ranges."""
    v = c.values
    rows = (v["out_height"] - 1) * v["stride_y"] + (v["kernel_height"] - 1) * v["dilation_y"] + 1
    cols = (v["out_width"] - 1) * v["stride_x"] + (v["kernel_width"] - 1) * v["dilation_x"] + 1
    size = _extent(v["in_channels"], cols, v["in_stride_x"], rows, v["in_stride_y"])
    buffer, start = c.places["input"]
    ring = v.get("ring_bytes", 0)
    if not ring:
        return [Span(buffer, start, start + size)]
    home, base = c.places["ring_base"]
    end = base + ring
    if start + size <= end:
        return [Span(buffer, start, start + size)]
    return [Span(buffer, start, end), Span(home, base, start + size - ring)]


def _operand_extent(v: dict[str, int], name: str) -> int:
    size = v["size0"] if v.get(f"{name}_stride0", 1 if name == "out" else 0) else 1
    return _extent(size, v["size1"], v.get(f"{name}_stride1", 0), v["size2"], v.get(f"{name}_stride2", 0))


def _vop(c: Command) -> Accesses:
    v, places = c.values, c.places
    reads = [_span(places[name], _operand_extent(v, name)) for name in ("a", "b") if name in places]
    if "table" in places:
        reads.append(_span(places["table"], LUT_ENTRIES))
    if v.get("accumulated"):
        reads.append(_span(places["accumulators"], v["size0"] * v["size1"] * v["size2"]))
        reads.append(_span(places["param"], v["size0"]))
    return reads, [_span(places["output"], _operand_extent(v, "out"))]


def _pool(c: Command) -> Accesses:
    v = c.values
    rows = (v["out_height"] - 1) * v["stride_y"] + v["kernel_height"]
    cols = (v["out_width"] - 1) * v["stride_x"] + v["kernel_width"]
    source = _extent(v["channels"], cols, v["in_stride_x"], rows, v["in_stride_y"])
    target = _extent(v["channels"], v["out_width"], v["out_stride_x"], v["out_height"], v["out_stride_y"])
    return [_span(c.places["input"], source)], [_span(c.places["output"], target)]


def _reduce(c: Command) -> Accesses:
    v = c.values
    channels = v["channels"]
    reads = [_span(c.places["input"], _extent(channels, v["width"], v["in_stride_x"], v["height"], v["in_stride_y"]))]
    if v.get("init", 0) == _REDUCE_INIT["keep"]:
        reads.append(_span(c.places["accumulators"], channels))
    if not v.get("emit"):
        return reads, [_span(c.places["accumulators"], channels)]
    results = v["width"] * v["height"] if v.get("kind", 0) == _REDUCE_KIND["argmax"] else channels
    return reads, [_span(c.places["output"], results)]


def _softmax(c: Command) -> Accesses:
    v = c.values
    reads = [_span(c.places["input"], _extent(v["columns"], v["rows"], v["in_stride"], 1, 0))]
    return reads, [_span(c.places["output"], _extent(v["columns"], v["rows"], v["out_stride"], 1, 0))]


_FUNCTIONS: dict[str, Callable[[Command], Accesses]] = {
    "copy": _copy,
    "fill": _fill,
    "load": _load,
    "store": _store,
    "wload": _wload,
    "param": _param,
    "table": _table,
    "conv": _conv,
    "vop": _vop,
    "pool": _pool,
    "reduce": _reduce,
    "softmax": _softmax,
}
