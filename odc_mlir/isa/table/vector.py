"""Instructions of the vector engine: arithmetic, pooling, reductions, softmax, images and recurrent cells."""

from __future__ import annotations

from odc_mlir.isa import fields
from odc_mlir.isa.table import shorthand

VOP_KINDS = ("add", "sub", "mul", "max", "min", "scale", "lut", "copy", "logistic", "tanh")
BINARY = VOP_KINDS[:5]  # kinds with two operands
SIGMOIDS = VOP_KINDS[8:]
POOL_KINDS = ("max", "average")
REDUCE_KINDS = ("sum", "max", "argmax")
REDUCE_INITS = ("zero", "keep")


def _vop(v: fields.Values) -> fields.Effects:
    kind = VOP_KINDS[v.get("kind", 0)]
    reads = [] if v.get("accumulated") else [_operand(v, "a", "a", "a_type")]
    if kind in BINARY:
        reads.append(_operand(v, "b", "b", "b_type"))
    if size := _table_bytes(v, kind):
        reads.append(fields.Area("table", size))
    if v.get("accumulated"):
        reads += [fields.Area("accumulators", v["size0"] * v["size1"] * v["size2"]), fields.Area("param", v["size0"])]
    return fields.Effects(tuple(reads), (_operand(v, "output", "out", "out_type"),))


def _table_bytes(v: fields.Values, kind: str) -> int:
    if kind in SIGMOIDS:
        return fields.SIGMOID_TABLE_BYTES
    if kind == "lut" and fields.item_bytes(v, "a_type") > 1:
        return fields.WIDE_LUT_BYTES
    return fields.LUT_ENTRIES if kind == "lut" or v.get("lut") else 0


def _operand(v: fields.Values, field: str, name: str, kind: str) -> fields.Area:
    elements = v["size0"] if name == "out" or v.get(f"{name}_stride0", 0) else 1
    stride1, stride2 = v.get(f"{name}_stride1", 0), v.get(f"{name}_stride2", 0)
    return fields.strided(field, elements * fields.item_bytes(v, kind), v["size1"], stride1, v["size2"], stride2)


def _pool(v: fields.Values) -> fields.Effects:
    rows = (v["out_height"] - 1) * v["stride_y"] + v["kernel_height"]
    columns = (v["out_width"] - 1) * v["stride_x"] + v["kernel_width"]
    item, channels = fields.item_bytes(v, "type"), v["channels"]
    source = fields.pixels("input", v, item, rows, columns, "in", channels)
    return fields.Effects(
        (source,), (fields.pixels("output", v, item, v["out_height"], v["out_width"], "out", channels),)
    )


def _reduce(v: fields.Values) -> fields.Effects:
    channels, sums = v["channels"], fields.Area("accumulators", v["channels"])
    reads = [fields.pixels("input", v, fields.item_bytes(v, "in_type"), v["height"], v["width"], "in", channels)]
    if REDUCE_INITS[v.get("init", 0)] == "keep":
        reads.append(sums)
    if not v.get("emit"):
        return fields.Effects(tuple(reads), (sums,))
    results = v["width"] * v["height"] if REDUCE_KINDS[v.get("kind", 0)] == "argmax" else channels
    return fields.Effects(tuple(reads), (fields.Area("output", results * fields.item_bytes(v, "out_type")),))


def _softmax(v: fields.Values) -> fields.Effects:
    columns, rows, item = v["columns"], v["rows"], fields.item_bytes(v, "in_type")
    reads = [fields.strided("input", columns * item, rows, v.get("in_stride", 0))]
    if item > 1:
        reads.append(fields.Area("table", fields.WIDE_LUT_BYTES))
    result = fields.strided("output", columns * fields.item_bytes(v, "out_type"), rows, v.get("out_stride", 0))
    return fields.Effects(tuple(reads), (result,))


VOP = fields.Instruction(
    "vop",
    0x40,
    fields.Queue.VECTOR,
    (
        shorthand.enum("kind", 4, "operation", *VOP_KINDS),
        shorthand.flag(
            "accumulated", "operand a comes from the accumulator buffer, scaled by param records with zero point a_zero"
        ),
        shorthand.flag("lut", "map the result through a table"),
        shorthand.type_of("a_type", "codes of a"),
        shorthand.type_of("b_type", "codes of b"),
        shorthand.type_of("out_type", "result codes"),
        shorthand.count("left_shift", 5, "add, sub: shift before the input scales"),
        shorthand.count("size0", 16, "contiguous elements"),
        shorthand.factor("size1", 12, "runs"),
        shorthand.factor("size2", 12, "groups of runs"),
        shorthand.tile("a", "first element of a", optional=True),
        shorthand.count("a_stride0", 1, "0: one element for the whole run"),
        shorthand.count("a_stride1", 16, "bytes, 0 broadcasts"),
        shorthand.count("a_stride2", 16, "bytes, 0 broadcasts"),
        shorthand.tile("b", "first element of b", optional=True),
        shorthand.count("b_stride0", 1, "0: one element for the whole run"),
        shorthand.count("b_stride1", 16, "bytes, 0 broadcasts"),
        shorthand.count("b_stride2", 16, "bytes, 0 broadcasts"),
        shorthand.tile("output", "first result"),
        shorthand.count("out_stride1", 16, "bytes"),
        shorthand.count("out_stride2", 16, "bytes"),
        shorthand.signed("a_zero", 16, "zero point of a"),
        shorthand.signed("b_zero", 16, "zero point of b"),
        *shorthand.scale("a", "scale of a"),
        *shorthand.scale("b", "scale of b"),
        *shorthand.scale("out", "scale of the result"),
        *shorthand.clamp(),
        shorthand.accumulator("accumulators", "first accumulator of a", optional=True),
        shorthand.param("param", "first channel's record", optional=True),
        shorthand.table("table", "look-up table", optional=True),
    ),
    "element-wise arithmetic with broadcasting, optionally after scaling accumulators and before a look-up",
    _vop,
    fields.Cost(
        """\
elements = size0 * size1 * size2
pairs = kind in ("logistic", "tanh") or kind == "lut" and a_type == "i16"
start = vector.start_cycles
shortest = 4 * elements / vector.requant_lanes if pairs else 0
lanes = elements
accumulator_reads = elements if accumulated else 0
a_read = 0 if accumulated else size2 * size1 * (size0 if a_stride0 else 1) * item(a_type)
b_read = size2 * size1 * (size0 if b_stride0 else 1) * item(b_type)
tile_reads = a_read + (b_read if kind in ("add", "sub", "mul", "max", "min") else 0)
tile_writes = elements * item(out_type)"""
    ),
)
POOL = fields.Instruction(
    "pool",
    0x41,
    fields.Queue.VECTOR,
    (
        shorthand.enum("kind", 2, "result of a window", *POOL_KINDS),
        shorthand.type_of("type", "codes of input and result"),
        shorthand.tile("input", "first pixel of the first window"),
        *shorthand.pixel_strides("in"),
        *shorthand.window(),
        shorthand.count("valid_x", 8, "first column of the tile inside the image: earlier taps are skipped"),
        shorthand.count("valid_y", 8, "first row inside the image"),
        shorthand.count("valid_width", 16, "columns inside the image"),
        shorthand.count("valid_height", 16, "rows inside the image"),
        shorthand.tile("output", "first result"),
        *shorthand.pixel_strides("out"),
        *shorthand.limits(),
    ),
    "maximum or average over windows; padding is not counted",
    _pool,
    fields.Cost(
        """\
results = out_height * out_width * channels
taps = results * kernel_height * kernel_width
rows_reached = min((out_height - 1) * stride_y + kernel_height, valid_y + valid_height) - valid_y
columns_reached = min((out_width - 1) * stride_x + kernel_width, valid_x + valid_width) - valid_x
start = vector.start_cycles
shortest = taps / vector.reduce_lanes
lanes = results
tile_reads = max(taps, rows_reached * columns_reached * channels) * item(type)
tile_writes = results * item(type)"""
    ),
)
REDUCE = fields.Instruction(
    "reduce",
    0x42,
    fields.Queue.VECTOR,
    (
        shorthand.enum("kind", 2, "operation", *REDUCE_KINDS),
        shorthand.enum("init", 2, "as in conv, without bias", *REDUCE_INITS),
        shorthand.flag("emit", "scale and write the result; otherwise leave the sums in the accumulator buffer"),
        shorthand.type_of("in_type", "input codes"),
        shorthand.type_of("out_type", "result codes"),
        shorthand.tile("input", "first element"),
        *shorthand.pixel_strides("in"),
        shorthand.count("width", 12, "pixels per row"),
        shorthand.count("height", 12, "rows"),
        shorthand.count("channels", 16, "channels: one result each (argmax: reduced, one result per pixel)"),
        shorthand.signed("in_zero", 16, "input zero point"),
        *shorthand.scale("out", "scale of the result"),
        *shorthand.clamp(),
        shorthand.accumulator("accumulators", "first accumulator, one per channel", optional=True),
        shorthand.tile("output", "first result", optional=True),
    ),
    "reduction over the pixels of a tile, per channel",
    _reduce,
    fields.Cost(
        """\
elements = height * width * channels
results = height * width if kind == "argmax" else channels
start = vector.start_cycles
shortest = elements / vector.reduce_lanes
lanes = results if emit else 0
accumulator_reads = channels if init == "keep" else 0
accumulator_writes = 0 if emit else channels
tile_reads = elements * item(in_type)
tile_writes = results * item(out_type) if emit else 0"""
    ),
)
SOFTMAX = fields.Instruction(
    "softmax",
    0x43,
    fields.Queue.VECTOR,
    (
        shorthand.type_of("in_type", "input codes"),
        shorthand.type_of("out_type", "result codes (of i16: i16)"),
        shorthand.tile("input", "first element"),
        shorthand.count("in_stride", 16, "bytes from row to row"),
        shorthand.tile("output", "first result"),
        shorthand.count("out_stride", 16, "bytes from row to row"),
        shorthand.count("rows", 16, "number of rows"),
        shorthand.count("columns", 16, "elements of a row"),
        *shorthand.scale("beta", "input scale times beta"),
        shorthand.signed("diff_min", 32, "u8, i8: differences from the maximum below this give the lowest code"),
        shorthand.table("table", "i16: exponentials", optional=True),
    ),
    "softmax along rows",
    _softmax,
    fields.Cost(
        """\
elements = rows * columns
narrow = 3 * elements / vector.softmax_elements_per_cycle
wide = elements / vector.softmax_elements_per_cycle + 8 * elements / vector.requant_lanes
start = vector.softmax_start_cycles
shortest = wide if in_type == "i16" else narrow
lanes = elements
tile_reads = 3 * elements * item(in_type)
tile_writes = elements * item(out_type)"""
    ),
)


RESIZE_KINDS = ("nearest", "bilinear")


def _resize(v: fields.Values) -> fields.Effects:
    item, channels = fields.item_bytes(v, "type"), v["channels"]
    source = fields.pixels("input", v, item, v["in_height"], v["in_width"], "in", channels)
    return fields.Effects(
        (source,), (fields.pixels("output", v, item, v["out_height"], v["out_width"], "out", channels),)
    )


RESIZE = fields.Instruction(
    "resize",
    0x45,
    fields.Queue.VECTOR,
    (
        shorthand.enum("kind", 1, "nearest pixel, or a blend of four", *RESIZE_KINDS),
        shorthand.type_of("type", "codes of input and result (u8, i8, i16)"),
        shorthand.tile("input", "first pixel of the tile"),
        *shorthand.pixel_strides("in"),
        shorthand.count("in_width", 12, "columns of the tile"),
        shorthand.count("in_height", 12, "rows of the tile"),
        shorthand.signed("start_x", 32, "column of the first result, in units of the kind"),
        shorthand.signed("start_y", 32, "row of the first result, in units of the kind"),
        shorthand.count("step_x", 32, "from result to result"),
        shorthand.count("step_y", 32, "from result row to result row"),
        shorthand.count("out_width", 12, "result pixels per row"),
        shorthand.count("out_height", 12, "result rows"),
        shorthand.count("channels", 16, "channels"),
        shorthand.tile("output", "first result"),
        *shorthand.pixel_strides("out"),
    ),
    "resample an image: the nearest pixel of each position, or a blend of four",
    _resize,
    fields.Cost(
        """\
results = out_height * out_width * channels
turns, read = (3, 4) if kind == "bilinear" else (1, 1)
start = vector.start_cycles
lanes = turns * results
tile_reads = max(read * results, in_height * in_width * channels) * item(type)
tile_writes = results * item(type)"""
    ),
)


ALL_GATES = ("input", "forget", "cell", "output")


def lstm_gates(v: fields.Values) -> int:
    """Return the number of gates of an LSTM cell."""
    return len(ALL_GATES) - 1 if v.get("coupled") else len(ALL_GATES)


def _gates(v: fields.Values) -> fields.Effects:
    units, sums = v["units"], lstm_gates(v) * v["units"]
    cell = fields.Area("cell", 2 * units)
    return fields.Effects(
        (fields.Area("accumulators", sums), fields.Area("input", 2 * sums), cell), (cell, fields.Area("hidden", units))
    )


GATES = fields.Instruction(
    "gates",
    0x44,
    fields.Queue.VECTOR,
    (
        shorthand.accumulator("accumulators", "last output times recurrent weights, [gate][unit]"),
        shorthand.count("units", 16, "cell size"),
        shorthand.tile("input", "contribution of the inputs, i16 in Q3, [gate][unit]"),
        shorthand.tile("cell", "cell state, i16, updated"),
        shorthand.tile("hidden", "hidden state written, i8"),
        shorthand.flag("coupled", "the input gate is one minus the forget gate"),
        *(
            field
            for gate in ALL_GATES
            for field in shorthand.scale(f"{gate}_gate", f"scale of the {gate} gate's accumulators, to Q3")
        ),
        shorthand.signed("cell_exponent", 8, "power of two of the cell state's scale"),
        shorthand.count("clip", 16, "largest cell state, 0: any"),
        *shorthand.scale("out", "scale of the hidden state"),
        shorthand.signed("out_zero", 16, "zero point of the hidden state"),
    ),
    "one step of an LSTM cell: gates, cell state and hidden state",
    _gates,
    fields.Cost(
        """\
gates = 3 if coupled else 4
start = vector.softmax_start_cycles
shortest = 2 * (gates + 1) * units / vector.softmax_elements_per_cycle
lanes = (gates + 3) * units
accumulator_reads = gates * units
tile_reads = 2 * (gates + 1) * units
tile_writes = 3 * units"""
    ),
)
