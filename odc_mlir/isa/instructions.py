"""The instruction table: the only declaration of the NPU's instruction set.

Encoder, decoder, assembler, disassembler, IR ops, simulator dispatch and the tables in ``docs/npu.md`` derive from it.
``docs/npu.md`` says what each instruction does and costs; here stands what each field holds.
"""

from __future__ import annotations

from odc_mlir.isa.fields import STEP_BLOCK_BYTES, Field, Instruction, Kind, Queue

TYPES = ("u8", "i8", "i16", "i32")
TYPE_BYTES = (1, 1, 2, 4)
RESIZE_KINDS = ("nearest", "bilinear")
VOP_KINDS = ("add", "sub", "mul", "max", "min", "scale", "lut", "copy", "logistic", "tanh")


def _type(name: str, doc: str) -> Field:
    return Field(name, 2, doc, Kind.ENUM, values=TYPES)


def _enum(name: str, bits: int, doc: str, *values: str) -> Field:
    return Field(name, bits, doc, Kind.ENUM, values=values)


def _flag(name: str, doc: str) -> Field:
    return Field(name, 1, doc, Kind.FLAG)


def _memory(name: str, doc: str) -> Field:
    return Field(name, 32, doc, Kind.MEMORY)


def _sram(name: str, doc: str) -> Field:
    return Field(name, 32, doc, Kind.MEMORY, in_sram=True)


def _tile(name: str, doc: str) -> Field:
    return Field(name, 16, doc, Kind.TILE)


def _int(name: str, bits: int, doc: str) -> Field:
    return Field(name, bits, doc)


def _factor(name: str, bits: int, doc: str) -> Field:
    """A number that changes nothing where it is 1."""
    return Field(name, bits, doc, default=1)


def _signed(name: str, bits: int, doc: str) -> Field:
    return Field(name, bits, doc, signed=True)


def _clamp() -> tuple[Field, ...]:
    return (
        _signed("out_zero", 16, "zero point added after scaling"),
        _signed("act_min", 16, "smallest code of the result"),
        _signed("act_max", 16, "largest code of the result"),
    )


def _scale(name: str, doc: str) -> tuple[Field, ...]:
    return (
        _signed(f"{name}_multiplier", 32, f"{doc}: Q0.31 multiplier"),
        _signed(f"{name}_exponent", 8, f"{doc}: power of two, positive shifts left"),
    )


def _window() -> tuple[Field, ...]:
    return (
        _int("out_width", 12, "result pixels per row"),
        _int("out_height", 12, "result rows"),
        _int("channels", 16, "result channels"),
        _factor("kernel_height", 8, "taps"),
        _factor("kernel_width", 8, "taps"),
        _factor("stride_y", 8, "rows between taps' origins"),
        _factor("stride_x", 8, "pixels between taps' origins"),
    )


CONV = Instruction(
    "conv",
    0x30,
    Queue.MAC,
    (
        _flag("depthwise", "result channel c*multiplier+m reads input channel c only"),
        _enum(
            "init",
            2,
            "accumulators start at the bias, at zero, or keep what the accumulator buffer holds",
            "bias",
            "zero",
            "keep",
        ),
        _flag(
            "emit",
            "scale finished sums and write them to the tile buffer; otherwise leave them in the accumulator buffer",
        ),
        _type("in_type", "input codes"),
        _type("weight_type", "weight codes (u8, i8; i16 with an input of i16)"),
        _type("out_type", "result codes"),
        _int("shape", 2, "index into the target's array shapes (pixels x channels)"),
        _flag("wide", "of 16-bit inputs: whole sums are scaled, by 15 bits of the multiplier; else their low 32 bits"),
        _factor("multiplier", 8, "depthwise: result channels per input channel; else 1"),
        _tile("input", "first input pixel, padding included"),
        _int("in_stride_x", 16, "bytes from pixel to pixel"),
        _int("in_stride_y", 16, "bytes from row to row"),
        Field("ring_base", 16, "first byte of the ring that input rows wrap in", Kind.TILE, fixed=True),
        _int("ring_bytes", 16, "size of that ring, 0: no wrapping"),
        _int("in_channels", 16, "input channels that each tap reads"),
        *_window(),
        _factor("dilation_y", 8, "rows between taps"),
        _factor("dilation_x", 8, "pixels between taps"),
        _signed("in_zero", 16, "input zero point"),
        _signed("weight_zero", 16, "weight zero point"),
        Field(
            "weights",
            16,
            "weights as [channel group][ky][kx][input channel][channel in group]; depthwise [ky][kx][channel]",
            Kind.WEIGHT,
        ),
        Field("accumulators", 16, "first accumulator, [pixel][channel]", Kind.ACCUMULATOR),
        Field("param", 12, "first channel's bias, multiplier and exponent", Kind.PARAM),
        _tile("output", "first result"),
        _int("out_stride_x", 16, "bytes from result pixel to pixel"),
        _int("out_stride_y", 16, "bytes from result row to row"),
        *_clamp(),
    ),
    "convolution, depthwise convolution or matrix product over one tile",
)

_LOAD_SHAPE = (
    _int("size0", 16, "contiguous bytes"),
    _factor("size1", 12, "runs of size0 (pixels)"),
    _factor("size2", 12, "groups of size1 (rows)"),
    _int("memory_stride1", 24, "bytes between runs in memory"),
    _int("memory_stride2", 24, "bytes between groups in memory"),
    _int("tile_stride1", 16, "bytes between runs in the tile buffer"),
    _int("tile_stride2", 16, "bytes between groups in the tile buffer"),
)

INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(
        "halt",
        0x00,
        Queue.FETCH,
        (_int("status", 16, "reported to the driver"),),
        "stop when every queue is empty and every write has landed",
    ),
    Instruction("sync", 0x01, None, (), "does nothing in its queue but wait and post"),
    Instruction(
        "loop",
        0x02,
        Queue.FETCH,
        (_int("count", 16, "iterations"), _int("body_bytes", 16, "bytes of the body, without loop and end")),
        "repeat the body; stepped instructions add iteration x step to their addresses",
    ),
    Instruction("end", 0x03, Queue.FETCH, (), "end of a loop body"),
    Instruction(
        "copy",
        0x10,
        Queue.XFER,
        (_memory("source", "first byte"), _memory("target", "first byte"), _int("bytes", 24, "how many")),
        "copy between off-chip memory and SRAM, or within SRAM",
    ),
    Instruction(
        "fill",
        0x11,
        Queue.LOAD,
        (
            _tile("target", "first byte"),
            _int("bytes", 16, "how many"),
            _signed("value", 16, "code written"),
            _type("type", "element type"),
        ),
        "fill part of the tile buffer with one code",
    ),
    Instruction(
        "load",
        0x12,
        Queue.LOAD,
        (
            _sram("source", "first byte read"),
            _tile("target", "first byte written, padding included"),
            *_LOAD_SHAPE,
            _int("pad_before1", 8, "padding runs before each group"),
            _int("pad_after1", 8, "padding runs after each group"),
            _int("pad_before2", 8, "padding groups before the first"),
            _int("pad_after2", 8, "padding groups after the last"),
            _signed("pad_value", 16, "code written as padding (u8, i8: low byte)"),
        ),
        "strided copy from SRAM to the tile buffer, with padding",
    ),
    Instruction(
        "store",
        0x13,
        Queue.STORE,
        (_sram("target", "first byte written"), _tile("source", "first byte read"), *_LOAD_SHAPE),
        "strided copy from the tile buffer to SRAM",
    ),
    Instruction(
        "wload",
        0x14,
        Queue.WEIGHT,
        (
            _memory("source", "first coded byte"),
            _int("coded_bytes", 18, "bytes read"),
            _enum("coding", 4, "how the bytes are coded", "raw", "rice", "huffman"),
            Field("target", 16, "first byte written", Kind.WEIGHT),
            _int("bytes", 16, "bytes written"),
        ),
        "decode weights into the weight buffer",
    ),
    Instruction(
        "param",
        0x15,
        Queue.WEIGHT,
        (
            _memory("source", "first record"),
            Field("target", 12, "first entry", Kind.PARAM),
            _int("count", 12, "entries"),
            _enum(
                "form",
                2,
                "records of bias i32, multiplier i32, exponent i8; or one multiplier and exponent, then biases",
                "full",
                "bias",
            ),
        ),
        "load per-channel scaling records",
    ),
    Instruction(
        "table",
        0x16,
        Queue.WEIGHT,
        (
            _memory("source", "first byte"),
            Field("target", 12, "first byte written", Kind.TABLE),
            _int("bytes", 12, "how many"),
        ),
        "load a look-up table",
    ),
    Instruction(
        "mload",
        0x17,
        Queue.WEIGHT,
        (
            _sram("source", "first byte read"),
            Field("target", 16, "first byte written", Kind.WEIGHT),
            _int("rows", 16, "rows of the matrix: input channels"),
            _int("columns", 16, "columns of the matrix: result channels, contiguous bytes"),
            _int("row_stride", 24, "bytes between rows in memory"),
            _int("group", 16, "columns that stand together: channels of the array shape"),
        ),
        "bring a matrix of computed codes from SRAM into the weight buffer, in the order of weights",
    ),
    CONV,
    Instruction(
        "vop",
        0x40,
        Queue.VECTOR,
        (
            _enum("kind", 4, "what is computed", *VOP_KINDS),
            _flag(
                "accumulated",
                "operand a comes from the accumulator buffer, scaled by param records with zero point a_zero",
            ),
            _flag("lut", "map the result through a table"),
            _type("a_type", "codes of a"),
            _type("b_type", "codes of b"),
            _type("out_type", "result codes"),
            _int("left_shift", 5, "add, sub: shift before the input scales"),
            _int("size0", 16, "contiguous elements"),
            _factor("size1", 12, "runs"),
            _factor("size2", 12, "groups of runs"),
            _tile("a", "first element of a"),
            _int("a_stride0", 1, "0: one element serves the whole run"),
            _int("a_stride1", 16, "bytes, 0 broadcasts"),
            _int("a_stride2", 16, "bytes, 0 broadcasts"),
            _tile("b", "first element of b"),
            _int("b_stride0", 1, "0: one element serves the whole run"),
            _int("b_stride1", 16, "bytes, 0 broadcasts"),
            _int("b_stride2", 16, "bytes, 0 broadcasts"),
            _tile("output", "first result"),
            _int("out_stride1", 16, "bytes"),
            _int("out_stride2", 16, "bytes"),
            _signed("a_zero", 16, "zero point of a"),
            _signed("b_zero", 16, "zero point of b"),
            *_scale("a", "scale of a"),
            *_scale("b", "scale of b"),
            *_scale("out", "scale of the result"),
            *_clamp(),
            Field("accumulators", 16, "first accumulator of a", Kind.ACCUMULATOR),
            Field("param", 12, "first channel's record", Kind.PARAM),
            Field("table", 12, "look-up table", Kind.TABLE),
        ),
        "element-wise arithmetic with broadcasting, optionally after scaling accumulators and before a look-up",
    ),
    Instruction(
        "pool",
        0x41,
        Queue.VECTOR,
        (
            _enum("kind", 2, "what each window gives", "max", "average"),
            _type("type", "codes of input and result"),
            _tile("input", "first pixel of the first window"),
            _int("in_stride_x", 16, "bytes"),
            _int("in_stride_y", 16, "bytes"),
            *_window(),
            _int("valid_x", 8, "first column of the tile inside the image: taps before it are left out"),
            _int("valid_y", 8, "first row inside the image"),
            _int("valid_width", 16, "columns inside the image"),
            _int("valid_height", 16, "rows inside the image"),
            _tile("output", "first result"),
            _int("out_stride_x", 16, "bytes"),
            _int("out_stride_y", 16, "bytes"),
            _signed("act_min", 16, "smallest code of the result"),
            _signed("act_max", 16, "largest code of the result"),
        ),
        "maximum or average over windows; padding is not counted",
    ),
    Instruction(
        "reduce",
        0x42,
        Queue.VECTOR,
        (
            _enum("kind", 2, "what is reduced", "sum", "max", "argmax"),
            _enum("init", 2, "as in conv, without bias", "zero", "keep"),
            _flag("emit", "scale and write the result; otherwise leave the sums in the accumulator buffer"),
            _type("in_type", "input codes"),
            _type("out_type", "result codes"),
            _tile("input", "first element"),
            _int("in_stride_x", 16, "bytes"),
            _int("in_stride_y", 16, "bytes"),
            _int("width", 12, "pixels per row"),
            _int("height", 12, "rows"),
            _int("channels", 16, "channels: one result each (argmax: reduced, one result per pixel)"),
            _signed("in_zero", 16, "input zero point"),
            *_scale("out", "scale of the result"),
            *_clamp(),
            Field("accumulators", 16, "first accumulator, one per channel", Kind.ACCUMULATOR),
            _tile("output", "first result"),
        ),
        "reduction over the pixels of a tile, per channel",
    ),
    Instruction(
        "softmax",
        0x43,
        Queue.VECTOR,
        (
            _type("in_type", "input codes"),
            _type("out_type", "result codes (of i16: i16)"),
            _tile("input", "first element"),
            _int("in_stride", 16, "bytes from row to row"),
            _tile("output", "first result"),
            _int("out_stride", 16, "bytes from row to row"),
            _int("rows", 16, "how many"),
            _int("columns", 16, "elements of a row"),
            *_scale("beta", "input scale times beta"),
            _signed("diff_min", 32, "u8, i8: differences from the maximum below this give the lowest code"),
            Field("table", 12, "i16: exponentials", Kind.TABLE),
        ),
        "softmax along rows",
    ),
    Instruction(
        "gates",
        0x44,
        Queue.VECTOR,
        (
            Field("accumulators", 16, "last output times recurrent weights, [gate][unit]", Kind.ACCUMULATOR),
            _int("units", 16, "cell size"),
            _tile("input", "what the inputs add, i16 in Q3, [gate][unit]"),
            _tile("cell", "cell state, i16, updated"),
            _tile("hidden", "hidden state written, i8"),
            _flag("coupled", "there is no input gate: it is one minus the forget gate"),
            *(
                item
                for gate in ("input", "forget", "cell", "output")
                for item in _scale(f"{gate}_gate", f"scale of the {gate} gate's accumulators, to Q3")
            ),
            _signed("cell_exponent", 8, "power of two of the cell state's scale"),
            _int("clip", 16, "largest cell state, 0: any"),
            *_scale("out", "scale of the hidden state"),
            _signed("out_zero", 16, "zero point of the hidden state"),
        ),
        "one step of an LSTM cell: gates, cell state and hidden state",
    ),
    Instruction(
        "resize",
        0x45,
        Queue.VECTOR,
        (
            _enum("kind", 1, "the pixel at a position, or the four around it blended", *RESIZE_KINDS),
            _type("type", "codes of input and result (bilinear: u8, i8)"),
            _tile("input", "first pixel of the tile"),
            _int("in_stride_x", 16, "bytes"),
            _int("in_stride_y", 16, "bytes"),
            _int("in_width", 12, "columns of the tile"),
            _int("in_height", 12, "rows of the tile"),
            _signed("start_x", 32, "column of the first result, in units of the kind"),
            _signed("start_y", 32, "row of the first result, in units of the kind"),
            _int("step_x", 32, "from result to result"),
            _int("step_y", 32, "from result row to result row"),
            _int("out_width", 12, "result pixels per row"),
            _int("out_height", 12, "result rows"),
            _int("channels", 16, "channels"),
            _tile("output", "first result"),
            _int("out_stride_x", 16, "bytes"),
            _int("out_stride_y", 16, "bytes"),
        ),
        "pixels of an image at other positions: the nearest, or four blended",
    ),
)

LONGEST_BYTES = max(i.size_bytes for i in INSTRUCTIONS) + STEP_BLOCK_BYTES
# In compact form: reference, length, masks of words and bytes, and every byte changed.
MOST_COMPACT_BYTES = 2 + 2 + LONGEST_BYTES // 8 + LONGEST_BYTES

BY_MNEMONIC = {i.mnemonic: i for i in INSTRUCTIONS}
BY_OPCODE = {i.opcode: i for i in INSTRUCTIONS}


def field_range(mnemonic: str, field: str) -> tuple[int, int]:
    """Smallest and largest value that the field called ``field`` of one instruction holds."""
    return next(f.range for f in BY_MNEMONIC[mnemonic].fields if f.name == field)
