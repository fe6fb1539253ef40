"""Moving bytes. What is written beyond an end belongs to bytes written later, or to the gap behind every buffer."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, WORDS, Loops, i8, i32, lanes

CHUNK = 32


def _copy(w: Loops, source: SSAValue, target: SSAValue, count: SSAValue) -> None:
    def chunk(index: SSAValue) -> None:
        value = w.load_lanes(w["input"], w.add(source, index), CHUNK)
        w.store_lanes(value, w["output"], w.add(target, index))

    w.each(0, count, CHUNK, chunk)


@kernel(input=BYTES, output=BYTES, count=INDEX)
def flip_sign(w: Loops, helpers: Helpers) -> None:
    """Signed codes as unsigned ones that are 128 higher, or the reverse."""
    sign = w.broadcast(w.constant(-128, i8), 64)

    def chunk(index: SSAValue) -> None:
        w.store_lanes(w.xor(w.load_lanes(w["input"], index, 64), sign), w["output"], index)

    w.each(0, w["count"], 64, chunk)


@kernel(output=BYTES, count=INDEX, value=i8)
def fill_bytes(w: Loops, helpers: Helpers) -> None:
    """``count`` equal bytes."""
    value = w.broadcast(w["value"], 64)
    w.each(0, w["count"], 64, lambda index: w.store_lanes(value, w["output"], index))


@kernel(output=WORDS, count=INDEX, value=i32)
def fill_words(w: Loops, helpers: Helpers) -> None:
    """``count`` equal words."""
    value = w.broadcast(w["value"], 16)
    w.each(0, w["count"], 16, lambda index: w.store_lanes(value, w["output"], index))


@kernel(input=BYTES, output=BYTES, count=INDEX)
def copy(w: Loops, helpers: Helpers) -> None:
    """Bytes as they are."""
    _copy(w, w.constant(0), w.constant(0), w["count"])


@kernel(
    input=BYTES,
    output=BYTES,
    rows=INDEX,
    row_bytes=INDEX,
    input_pitch=INDEX,
    first=INDEX,
    pitch=INDEX,
)
def copy_rows(w: Loops, helpers: Helpers) -> None:
    """Rows of bytes into rows of another pitch, from byte ``first`` on, and nothing beside them."""
    whole = w.sub(w["row_bytes"], w.logical_and(w["row_bytes"], CHUNK - 1))

    def row(index: SSAValue) -> None:
        source, target = w.mul(index, w["input_pitch"]), w.add(w["first"], w.mul(index, w["pitch"]))
        _copy(w, source, target, whole)

        def single(k: SSAValue) -> None:
            w.store(w.load(w["input"], w.add(source, k)), w["output"], w.add(target, k))

        w.each(whole, w["row_bytes"], 1, single)

    w.each(0, w["rows"], 1, row)


_IMAGES: dict[str, Attribute] = {
    "input": BYTES,
    "output": BYTES,
    **dict.fromkeys(("images", "rows", "row_bytes", "first", "pitch", "image_bytes"), INDEX),
}


@kernel(**_IMAGES, fill=i32)
def pad_image(w: Loops, helpers: Helpers) -> None:
    """Copy images into a border of words ``fill``: ``first`` bytes, rows of ``pitch`` bytes, ``image_bytes`` in all."""
    filling = w.bitcast(w.broadcast(w["fill"], CHUNK // 4), lanes(CHUNK, i8))
    _pad(w, lambda _: filling)


@kernel(**_IMAGES, fills=WORDS)
def pad_images(w: Loops, helpers: Helpers) -> None:
    """Copy images into borders of one byte per image."""
    _pad(w, lambda number: w.broadcast(w.narrow(w.load(w["fills"], number), i8), CHUNK))


def _pad(w: Loops, filling_of: Callable[[SSAValue], SSAValue]) -> None:
    def image(number: SSAValue) -> None:
        filling = filling_of(number)

        def fill(begin: SSAValue, end: SSAValue) -> None:
            w.each(begin, end, CHUNK, lambda index: w.store_lanes(filling, w["output"], index))

        begin = w.mul(number, w["image_bytes"])
        start = w.add(begin, w["first"])
        fill(begin, start)

        def row(index: SSAValue) -> None:
            target = w.add(start, w.mul(index, w["pitch"]))
            source = w.mul(w.add(w.mul(number, w["rows"]), index), w["row_bytes"])
            _copy(w, source, target, w["row_bytes"])
            fill(w.add(target, w["row_bytes"]), w.add(target, w["pitch"]))

        w.each(0, w["rows"], 1, row)
        fill(w.add(start, w.mul(w["rows"], w["pitch"])), w.add(begin, w["image_bytes"]))

    w.each(0, w["images"], 1, image)
