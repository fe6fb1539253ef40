"""Instructions of the vector engine: arithmetic, pooling, reductions, softmax, images and recurrent cells."""

from __future__ import annotations

from odc_mlir.isa.fields import (
    LUT_ENTRIES,
    SIGMOID_TABLE_BYTES,
    WIDE_LUT_BYTES,
    Area,
    Cost,
    Effects,
    Instruction,
    Queue,
    Values,
    item_bytes,
    pixels,
    strided,
)
from odc_mlir.isa.table.shorthand import (
    accumulator,
    clamp,
    count,
    enum,
    factor,
    flag,
    limits,
    param,
    pixel_strides,
    scale,
    signed,
    table,
    tile,
    type_of,
    window,
)

VOP_KINDS = ("add", "sub", "mul", "max", "min", "scale", "lut", "copy", "logistic", "tanh")
BINARY = VOP_KINDS[:5]  # those with two operands
SIGMOIDS = VOP_KINDS[8:]
POOL_KINDS = ("max", "average")
REDUCE_KINDS = ("sum", "max", "argmax")
REDUCE_INITS = ("zero", "keep")


def _vop(v: Values) -> Effects:
    kind = VOP_KINDS[v.get("kind", 0)]
    reads = [] if v.get("accumulated") else [_operand(v, "a", "a", "a_type")]
    if kind in BINARY:
        reads.append(_operand(v, "b", "b", "b_type"))
    if size := _table_bytes(v, kind):
        reads.append(Area("table", size))
    if v.get("accumulated"):
        reads += [Area("accumulators", v["size0"] * v["size1"] * v["size2"]), Area("param", v["size0"])]
    return Effects(tuple(reads), (_operand(v, "output", "out", "out_type"),))


def _table_bytes(v: Values, kind: str) -> int:
    """Bytes of the table that a ``vop`` reads, 0 where it reads none."""
    if kind in SIGMOIDS:
        return SIGMOID_TABLE_BYTES
    if kind == "lut" and item_bytes(v, "a_type") > 1:
        return WIDE_LUT_BYTES
    return LUT_ENTRIES if kind == "lut" or v.get("lut") else 0


def _operand(v: Values, field: str, name: str, kind: str) -> Area:
    """An operand of ``vop``; the result has no broadcast."""
    elements = v["size0"] if name == "out" or v.get(f"{name}_stride0", 0) else 1
    stride1, stride2 = v.get(f"{name}_stride1", 0), v.get(f"{name}_stride2", 0)
    return strided(field, elements * item_bytes(v, kind), v["size1"], stride1, v["size2"], stride2)


def _pool(v: Values) -> Effects:
    rows = (v["out_height"] - 1) * v["stride_y"] + v["kernel_height"]
    columns = (v["out_width"] - 1) * v["stride_x"] + v["kernel_width"]
    item, channels = item_bytes(v, "type"), v["channels"]
    source = pixels("input", v, item, rows, columns, "in", channels)
    return Effects((source,), (pixels("output", v, item, v["out_height"], v["out_width"], "out", channels),))


def _reduce(v: Values) -> Effects:
    channels, sums = v["channels"], Area("accumulators", v["channels"])
    reads = [pixels("input", v, item_bytes(v, "in_type"), v["height"], v["width"], "in", channels)]
    if REDUCE_INITS[v.get("init", 0)] == "keep":
        reads.append(sums)
    if not v.get("emit"):
        return Effects(tuple(reads), (sums,))
    results = v["width"] * v["height"] if REDUCE_KINDS[v.get("kind", 0)] == "argmax" else channels
    return Effects(tuple(reads), (Area("output", results * item_bytes(v, "out_type")),))


def _softmax(v: Values) -> Effects:
    columns, rows, item = v["columns"], v["rows"], item_bytes(v, "in_type")
    reads = [strided("input", columns * item, rows, v.get("in_stride", 0))]
    if item > 1:
        reads.append(Area("table", WIDE_LUT_BYTES))
    result = strided("output", columns * item_bytes(v, "out_type"), rows, v.get("out_stride", 0))
    return Effects(tuple(reads), (result,))


VOP = Instruction(
    "vop",
    0x40,
    Queue.VECTOR,
    (
        enum("kind", 4, "what is computed", *VOP_KINDS),
        flag(
            "accumulated", "operand a comes from the accumulator buffer, scaled by param records with zero point a_zero"
        ),
        flag("lut", "map the result through a table"),
        type_of("a_type", "codes of a"),
        type_of("b_type", "codes of b"),
        type_of("out_type", "result codes"),
        count("left_shift", 5, "add, sub: shift before the input scales"),
        count("size0", 16, "contiguous elements"),
        factor("size1", 12, "runs"),
        factor("size2", 12, "groups of runs"),
        tile("a", "first element of a", optional=True),
        count("a_stride0", 1, "0: one element serves the whole run"),
        count("a_stride1", 16, "bytes, 0 broadcasts"),
        count("a_stride2", 16, "bytes, 0 broadcasts"),
        tile("b", "first element of b", optional=True),
        count("b_stride0", 1, "0: one element serves the whole run"),
        count("b_stride1", 16, "bytes, 0 broadcasts"),
        count("b_stride2", 16, "bytes, 0 broadcasts"),
        tile("output", "first result"),
        count("out_stride1", 16, "bytes"),
        count("out_stride2", 16, "bytes"),
        signed("a_zero", 16, "zero point of a"),
        signed("b_zero", 16, "zero point of b"),
        *scale("a", "scale of a"),
        *scale("b", "scale of b"),
        *scale("out", "scale of the result"),
        *clamp(),
        accumulator("accumulators", "first accumulator of a", optional=True),
        param("param", "first channel's record", optional=True),
        table("table", "look-up table", optional=True),
    ),
    "element-wise arithmetic with broadcasting, optionally after scaling accumulators and before a look-up",
    _vop,
    Cost(
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
POOL = Instruction(
    "pool",
    0x41,
    Queue.VECTOR,
    (
        enum("kind", 2, "what each window gives", *POOL_KINDS),
        type_of("type", "codes of input and result"),
        tile("input", "first pixel of the first window"),
        *pixel_strides("in"),
        *window(),
        count("valid_x", 8, "first column of the tile inside the image: taps before it are left out"),
        count("valid_y", 8, "first row inside the image"),
        count("valid_width", 16, "columns inside the image"),
        count("valid_height", 16, "rows inside the image"),
        tile("output", "first result"),
        *pixel_strides("out"),
        *limits(),
    ),
    "maximum or average over windows; padding is not counted",
    _pool,
    Cost(
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
REDUCE = Instruction(
    "reduce",
    0x42,
    Queue.VECTOR,
    (
        enum("kind", 2, "what is reduced", *REDUCE_KINDS),
        enum("init", 2, "as in conv, without bias", *REDUCE_INITS),
        flag("emit", "scale and write the result; otherwise leave the sums in the accumulator buffer"),
        type_of("in_type", "input codes"),
        type_of("out_type", "result codes"),
        tile("input", "first element"),
        *pixel_strides("in"),
        count("width", 12, "pixels per row"),
        count("height", 12, "rows"),
        count("channels", 16, "channels: one result each (argmax: reduced, one result per pixel)"),
        signed("in_zero", 16, "input zero point"),
        *scale("out", "scale of the result"),
        *clamp(),
        accumulator("accumulators", "first accumulator, one per channel", optional=True),
        tile("output", "first result", optional=True),
    ),
    "reduction over the pixels of a tile, per channel",
    _reduce,
    Cost(
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
SOFTMAX = Instruction(
    "softmax",
    0x43,
    Queue.VECTOR,
    (
        type_of("in_type", "input codes"),
        type_of("out_type", "result codes (of i16: i16)"),
        tile("input", "first element"),
        count("in_stride", 16, "bytes from row to row"),
        tile("output", "first result"),
        count("out_stride", 16, "bytes from row to row"),
        count("rows", 16, "how many"),
        count("columns", 16, "elements of a row"),
        *scale("beta", "input scale times beta"),
        signed("diff_min", 32, "u8, i8: differences from the maximum below this give the lowest code"),
        table("table", "i16: exponentials", optional=True),
    ),
    "softmax along rows",
    _softmax,
    Cost(
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


def _resize(v: Values) -> Effects:
    item, channels = item_bytes(v, "type"), v["channels"]
    source = pixels("input", v, item, v["in_height"], v["in_width"], "in", channels)
    return Effects((source,), (pixels("output", v, item, v["out_height"], v["out_width"], "out", channels),))


RESIZE = Instruction(
    "resize",
    0x45,
    Queue.VECTOR,
    (
        enum("kind", 1, "the pixel at a position, or the four around it blended", *RESIZE_KINDS),
        type_of("type", "codes of input and result (u8, i8, i16)"),
        tile("input", "first pixel of the tile"),
        *pixel_strides("in"),
        count("in_width", 12, "columns of the tile"),
        count("in_height", 12, "rows of the tile"),
        signed("start_x", 32, "column of the first result, in units of the kind"),
        signed("start_y", 32, "row of the first result, in units of the kind"),
        count("step_x", 32, "from result to result"),
        count("step_y", 32, "from result row to result row"),
        count("out_width", 12, "result pixels per row"),
        count("out_height", 12, "result rows"),
        count("channels", 16, "channels"),
        tile("output", "first result"),
        *pixel_strides("out"),
    ),
    "pixels of an image at other positions: the nearest, or four blended",
    _resize,
    Cost(
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


def lstm_gates(v: Values) -> int:
    """Return the number of gates of an LSTM cell."""
    return len(ALL_GATES) - 1 if v.get("coupled") else len(ALL_GATES)


def _gates(v: Values) -> Effects:
    units, sums = v["units"], lstm_gates(v) * v["units"]
    cell = Area("cell", 2 * units)
    return Effects((Area("accumulators", sums), Area("input", 2 * sums), cell), (cell, Area("hidden", units)))


GATES = Instruction(
    "gates",
    0x44,
    Queue.VECTOR,
    (
        accumulator("accumulators", "last output times recurrent weights, [gate][unit]"),
        count("units", 16, "cell size"),
        tile("input", "what the inputs add, i16 in Q3, [gate][unit]"),
        tile("cell", "cell state, i16, updated"),
        tile("hidden", "hidden state written, i8"),
        flag("coupled", "there is no input gate: it is one minus the forget gate"),
        *(
            field
            for gate in ALL_GATES
            for field in scale(f"{gate}_gate", f"scale of the {gate} gate's accumulators, to Q3")
        ),
        signed("cell_exponent", 8, "power of two of the cell state's scale"),
        count("clip", 16, "largest cell state, 0: any"),
        *scale("out", "scale of the hidden state"),
        signed("out_zero", 16, "zero point of the hidden state"),
    ),
    "one step of an LSTM cell: gates, cell state and hidden state",
    _gates,
    Cost(
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
