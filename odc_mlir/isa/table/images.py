"""Instructions of the vector engine for images."""

from __future__ import annotations

from odc_mlir.isa.cost import Cost
from odc_mlir.isa.effects import Effects, Values, item_bytes, pixels
from odc_mlir.isa.fields import Instruction, Queue
from odc_mlir.isa.table.shorthand import count, enum, pixel_strides, signed, tile, type_of

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
