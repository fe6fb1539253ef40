"""The instruction of the multiply-accumulate array."""

from __future__ import annotations

from odc_mlir.isa.fields import Area, Cost, Effects, Field, Instruction, Kind, Queue, Values, item_bytes, pixels
from odc_mlir.isa.table import shorthand

INITS = ("bias", "zero", "keep")


def _conv(v: Values) -> Effects:
    channels, taps, emit = v["channels"], v["kernel_height"] * v["kernel_width"], v.get("emit", 0)
    rows = (v["out_height"] - 1) * v["stride_y"] + (v["kernel_height"] - 1) * v["dilation_y"] + 1
    columns = (v["out_width"] - 1) * v["stride_x"] + (v["kernel_width"] - 1) * v["dilation_x"] + 1
    source = pixels("input", v, item_bytes(v, "in_type"), rows, columns, "in", v["in_channels"])
    ring = v.get("ring_bytes", 0)
    depth = taps if v.get("depthwise") else taps * v["in_channels"]
    weights = Area("weights", depth * channels * item_bytes(v, "weight_type"))
    reads = [source._replace(ring=("ring_base", ring) if ring else None), weights]
    init = INITS[v.get("init", 0)]
    if emit or init == "bias":
        reads.append(Area("param", channels))
    sums = Area("accumulators", v["out_width"] * v["out_height"] * channels)
    if init == "keep":
        reads.append(sums)
    if not emit:
        return Effects(tuple(reads), (sums,))
    result = pixels("output", v, item_bytes(v, "out_type"), v["out_height"], v["out_width"], "out", channels)
    return Effects(tuple(reads), (result,))


CONV = Instruction(
    "conv",
    0x30,
    Queue.MAC,
    (
        shorthand.flag("depthwise", "result channel c*multiplier+m reads input channel c only"),
        shorthand.enum(
            "init", 2, "accumulators start at the bias, at zero, or keep what the accumulator buffer holds", *INITS
        ),
        shorthand.flag(
            "emit",
            "scale finished sums and write them to the tile buffer; otherwise leave them in the accumulator buffer",
        ),
        shorthand.type_of("in_type", "input codes"),
        shorthand.type_of("weight_type", "weight codes (u8, i8; i16 with an input of i16)"),
        shorthand.type_of("out_type", "result codes"),
        shorthand.count("shape", 2, "index into the target's array shapes (pixels x channels)"),
        shorthand.flag(
            "wide", "16-bit inputs: scale whole sums by 15 bits of the multiplier; else scale their low 32 bits"
        ),
        shorthand.factor("multiplier", 8, "depthwise: result channels per input channel; else 1"),
        shorthand.tile("input", "first input pixel, padding included"),
        shorthand.count("in_stride_x", 16, "bytes from pixel to pixel"),
        shorthand.count("in_stride_y", 16, "bytes from row to row"),
        Field("ring_base", 16, "first byte of the ring of input rows", Kind.TILE, fixed=True, optional=True),
        shorthand.count("ring_bytes", 16, "size of the ring, 0: no wrapping"),
        shorthand.count("in_channels", 16, "input channels that each tap reads"),
        *shorthand.window(),
        shorthand.factor("dilation_y", 8, "rows between taps"),
        shorthand.factor("dilation_x", 8, "pixels between taps"),
        shorthand.signed("in_zero", 16, "input zero point"),
        shorthand.signed("weight_zero", 16, "weight zero point"),
        shorthand.weight(
            "weights",
            "weights as [channel group][ky][kx][input channel][channel in group]; depthwise [ky][kx][channel]",
        ),
        shorthand.accumulator("accumulators", "first accumulator, [pixel][channel]", optional=True),
        shorthand.param("param", "first channel's bias, multiplier and exponent", optional=True),
        shorthand.tile("output", "first result", optional=True),
        shorthand.count("out_stride_x", 16, "bytes from result pixel to pixel"),
        shorthand.count("out_stride_y", 16, "bytes from result row to row"),
        *shorthand.clamp(),
    ),
    "convolution, depthwise convolution or matrix product over one tile",
    _conv,
    Cost(
        """\
Pt, Nt = array.depthwise_shape if depthwise else array.shapes[shape]
P, N = out_width * out_height, channels
blocks = ceil(out_width / Pt) * ceil(N / Nt)
tiles = out_height * blocks if depthwise else ceil(P / Pt) * ceil(N / Nt)
taps = kernel_height * kernel_width
passes = item(in_type) * item(weight_type)
steps = passes * (taps if depthwise else taps * in_channels)
sums = P * N if init == "keep" or not emit else 0
start = array.start_cycles
shortest = tiles * (max(steps, ceil(Pt * Nt / array.accumulator_ports)) if sums else steps)
drain = Pt * Nt / vector.requant_lanes if emit else 0
lanes = P * N if emit else 0
accumulator_reads = P * N if init == "keep" else 0
accumulator_writes = 0 if emit else P * N
pixel = in_channels * item(in_type)
joined = in_stride_x == pixel and dilation_x == 1
runs, run = (kernel_height, kernel_width * pixel) if joined else (taps, pixel)
fetched = tiles * Pt * runs * ceil(run / tile_ports.fetch_bytes) * tile_ports.fetch_bytes
passing = rows(out_height, kernel_height, stride_y, dilation_y, array.depthwise_rows)
span = (Pt - 1) * stride_x + (kernel_width - 1) * dilation_x + 1
tile_reads = blocks * passing * span * Nt * item(in_type) if depthwise else fetched
tile_writes = P * N * item(out_type) if emit else 0"""
    ),
)
