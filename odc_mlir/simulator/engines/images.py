"""The vector engine on images: resizing."""

from __future__ import annotations

import numpy as np

from odc_mlir.isa.table.images import RESIZE_KINDS
from odc_mlir.numerics.resize_lines import Line, Lines, resize_bilinear_by_lines, resize_nearest_by_lines
from odc_mlir.simulator.boxes import box
from odc_mlir.simulator.engines.machine import (
    InstructionCost,
    Machine,
    Values,
    check_pixels,
    check_type,
    require,
    typed,
)

PIXELS = {"nearest": 1, "bilinear": 4}  # that a result is made of
TURNS = {"nearest": 1, "bilinear": 3}  # of a lane for a result: a blend multiplies once


def resize(m: Machine, v: Values) -> InstructionCost:
    """``out_height`` x ``out_width`` pixels of a tile, found at positions that grow by a step along each axis."""
    kind = RESIZE_KINDS[v["kind"]]
    dtype = check_type(v, "type", "u8", "i8", "i16")
    item, channels = dtype.itemsize, v["channels"]
    height, width, rows, columns = v["out_height"], v["out_width"], v["in_height"], v["in_width"]
    require(min(height, width, rows, columns, channels) > 0, "computes nothing: a size is 0")
    pixel = channels * item
    check_pixels(rows, columns, pixel, v["in_stride_y"], v["in_stride_x"])
    results = height * width * channels
    work = InstructionCost(start=m.target.vector.start_cycles, lanes=TURNS[kind] * results)
    area = box(v["input"], pixel, columns, v["in_stride_x"], rows, v["in_stride_y"])
    source = m.access.read(m.memories.tile, area, moved=max(PIXELS[kind] * results * item, area.units))
    target = box(v["output"], pixel, width, v["out_stride_x"], height, v["out_stride_y"])
    out = m.access.write(m.memories.tile, target)
    if out is None or source is None or m.memories.tile.data is None:
        return work
    strides = (v["in_stride_y"], v["in_stride_x"], item)
    x = typed(m.memories.tile.data, dtype, v["input"], (rows, columns, channels), strides)
    lines = Lines(Line(v["start_y"], v["step_y"]), Line(v["start_x"], v["step_x"]))
    compute = resize_bilinear_by_lines if kind == "bilinear" else resize_nearest_by_lines
    out[...] = compute(x, (height, width), lines).view(np.uint8).reshape(out.shape)
    return work
