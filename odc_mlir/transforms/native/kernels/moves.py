"""Kernels that move elements: fills and copies of bytes, and moves by index maps.

Fills, copies and paddings may write beyond the end of the result: into bytes that are overwritten later, or into the
gap after a buffer. Moves by index maps write only elements of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xdsl.dialects.builtin import i8, i16, i32, i64
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import BYTES, INDEX, WORDS, Loops, buffer, lanes
from odc_mlir.transforms.native.kernels.registry import LANES, Helpers, Options, Parameters, kernel, kernel_by_options

CHUNK = 32


def _copy(w: Loops, source: SSAValue, target: SSAValue, count: SSAValue) -> None:
    def chunk(index: SSAValue) -> None:
        value = w.load_lanes(w["input"], w.add(source, index), CHUNK)
        w.store_lanes(value, w["output"], w.add(target, index))

    w.each(0, count, CHUNK, chunk)


@kernel(input=BYTES, output=BYTES, count=INDEX)
def flip_sign(w: Loops, helpers: Helpers) -> None:
    """Convert signed bytes to unsigned bytes with an offset of 128, or the reverse."""
    sign = w.broadcast(w.constant(-128, i8), 64)

    def chunk(index: SSAValue) -> None:
        w.store_lanes(w.xor(w.load_lanes(w["input"], index, 64), sign), w["output"], index)

    w.each(0, w["count"], 64, chunk)


@kernel(output=WORDS, count=INDEX, value=i32)
def fill_words(w: Loops, helpers: Helpers) -> None:
    """Fill ``count`` words."""
    value = w.broadcast(w["value"], 16)
    w.each(0, w["count"], 16, lambda index: w.store_lanes(value, w["output"], index))


@kernel(input=BYTES, output=BYTES, count=INDEX)
def copy(w: Loops, helpers: Helpers) -> None:
    """Copy bytes."""
    _copy(w, w.constant(0), w.constant(0), w["count"])


_ROWS = {
    **dict.fromkeys(("input", "output"), BYTES),
    **dict.fromkeys(("rows", "row_bytes", "input_pitch", "pitch"), INDEX),
}


@kernel(**_ROWS, first=INDEX)
def copy_rows(w: Loops, helpers: Helpers) -> None:
    """Copy rows of bytes into rows of another pitch from byte ``first``, without writing bytes between the rows."""
    _copy_rows(w, w["first"])


@kernel(**_ROWS, places=WORDS, at=INDEX, room=INDEX, step=INDEX)
def update_rows(w: Loops, helpers: Helpers) -> None:
    """Copy rows as in :func:`copy_rows` to byte ``step * clamp(places[at], 0, room)``."""
    place = w.to_index(w.load(w["places"], w["at"]))
    _copy_rows(w, w.mul(w.least(w.most(place, 0), w["room"]), w["step"]))


def _copy_rows(w: Loops, first: SSAValue) -> None:
    def row(index: SSAValue) -> None:
        source, target = w.mul(index, w["input_pitch"]), w.add(first, w.mul(index, w["pitch"]))
        copy_run(w, source, target, w["row_bytes"], 1, single=False)

    w.each(0, w["rows"], 1, row)


_IMAGES: dict[str, Attribute] = {
    "input": BYTES,
    "output": BYTES,
    **dict.fromkeys(("images", "rows", "row_bytes", "first", "pitch", "image_bytes"), INDEX),
}


@kernel(**_IMAGES, fill=i32)
def pad_image(w: Loops, helpers: Helpers) -> None:
    """Pad images with words ``fill``. Each result has ``image_bytes``, with rows of ``pitch`` bytes from ``first``."""
    filling = w.bitcast(w.broadcast(w["fill"], CHUNK // 4), lanes(CHUNK, i8))
    _pad(w, lambda _: filling)


@kernel(**_IMAGES, fills=WORDS)
def pad_images(w: Loops, helpers: Helpers) -> None:
    """Surround image ``i`` by copies of the byte ``fills[i]``."""
    _pad(w, lambda number: w.broadcast(w.narrow(w.load(w["fills"], number), i8), CHUNK))


def _pad(w: Loops, filling_of: Callable[[SSAValue], SSAValue]) -> None:
    def image(number: SSAValue) -> None:
        filling = filling_of(number)

        def fill(begin: SSAValue, end: SSAValue) -> None:
            w.each(begin, end, CHUNK, lambda index: w.store_lanes(filling, w["output"], index))

        begin = w.mul(number, w["image_bytes"])
        start, end = w.add(begin, w["first"]), w.add(begin, w["image_bytes"])
        fill(begin, start)

        def row(index: SSAValue) -> None:
            target = w.add(start, w.mul(index, w["pitch"]))
            source = w.mul(w.add(w.mul(number, w["rows"]), index), w["row_bytes"])
            _copy(w, source, target, w["row_bytes"])
            fill(w.add(target, w["row_bytes"]), w.least(w.add(target, w["pitch"]), end))

        w.each(0, w["rows"], 1, row)
        fill(w.add(start, w.mul(w["rows"], w["pitch"])), end)

    w.each(0, w["images"], 1, image)


DIMENSIONS = 5
_OF_SIZES = {1: i8, 2: i16, 4: i32, 8: i64}


def _buffers(options: Options) -> dict[str, Attribute]:
    type = buffer(_OF_SIZES[options["size"]])
    return {"input": type, "output": type}


def copy_run(w: Loops, source: SSAValue, target: SSAValue, count: SSAValue, size: int, *, single: bool) -> None:
    """Copy ``count`` neighbouring elements. ``single`` copies single elements. This is faster for few elements."""

    def chunk(k: SSAValue, step: int) -> None:
        w.store_lanes(w.load_lanes(w["input"], w.add(source, k), step), w["output"], w.add(target, k))

    begin = w.constant(0)
    for step in (1,) if single else (CHUNK // size, max(1, CHUNK // 4 // size), 1):
        end = count if step == 1 else w.sub(count, w.logical_and(count, step - 1))
        w.each(begin, end, step, partial(chunk, step=step))
        begin = end


def _box(options: Options) -> Parameters:
    rows = {f"{name}{i}": INDEX for name in ("size", "input_step", "output_step") for i in range(DIMENSIONS)}
    return {**_buffers(options), "input_first": INDEX, "output_first": INDEX, "run": INDEX, **rows}


def _over_box(w: Loops, dimensions: int, body: Callable[[SSAValue, SSAValue], None]) -> None:
    """Call ``body(source, target)`` for every position in the first ``dimensions`` of a box."""

    def over(dimension: int, source: SSAValue, target: SSAValue) -> None:
        if dimension == dimensions:
            body(source, target)
            return

        def place(index: SSAValue) -> None:
            over(
                dimension + 1,
                w.add(source, w.mul(index, w[f"input_step{dimension}"])),
                w.add(target, w.mul(index, w[f"output_step{dimension}"])),
            )

        w.each(0, w[f"size{dimension}"], 1, place)

    over(0, w["input_first"], w["output_first"])


@kernel_by_options(_box)
def copy_box(w: Loops, helpers: Helpers, *, size: int, single: int) -> None:
    """Copy a box of runs of ``run`` neighbours. Each dimension has a step in the input and a step in the output."""
    _over_box(w, DIMENSIONS, lambda begin, end: copy_run(w, begin, end, w["run"], size, single=bool(single)))


SQUARE = 8


@kernel_by_options(_box)
def transpose_box(w: Loops, helpers: Helpers, *, size: int) -> None:
    """Copy a box by squares of 8 elements in the last two dimensions, of at least that size.

    The step of the first is 1 in the input, of the second 1 in the output. The last squares overlap others.
    """
    rows, columns = f"size{DIMENSIONS - 2}", f"size{DIMENSIONS - 1}"
    input_step, output_step = w[f"input_step{DIMENSIONS - 1}"], w[f"output_step{DIMENSIONS - 2}"]

    def square(source: SSAValue, target: SSAValue) -> None:
        parts = [w.load_lanes(w["input"], w.add(source, w.mul(input_step, i)), SQUARE) for i in range(SQUARE)]
        for half in (4, 2, 1):  # exchange parts of pairs of vectors
            for i in (i for i in range(SQUARE) if not i & half):
                pair, order = (parts[i], parts[i + half]), range(SQUARE)
                parts[i] = w.shuffle(*pair, [k + SQUARE - half if k & half else k for k in order])
                parts[i + half] = w.shuffle(*pair, [k + SQUARE if k & half else k + half for k in order])
        for i, part in enumerate(parts):
            w.store_lanes(part, w["output"], w.add(target, w.mul(output_step, i)))

    def plane(source: SSAValue, target: SSAValue) -> None:
        def row(index: SSAValue) -> None:
            first = w.least(index, w.sub(w[rows], SQUARE))
            begin, end = w.add(source, first), w.add(target, w.mul(first, output_step))

            def column(other: SSAValue) -> None:
                place = w.least(other, w.sub(w[columns], SQUARE))
                square(w.add(begin, w.mul(place, input_step)), w.add(end, place))

            w.each(0, w[columns], SQUARE, column)

        w.each(0, w[rows], SQUARE, row)

    _over_box(w, DIMENSIONS - 2, plane)


FEW = 4  # most planes that are interleaved in registers


@kernel_by_options(_box)
def interleave_box(w: Loops, helpers: Helpers, *, size: int, planes: int) -> None:
    """Copy a box by vectors of 16 elements of the dimension before the last. Its last vector overlaps others.

    The last dimension has ``planes`` elements. In the output, elements of both dimensions are neighbours.
    """
    length, step = w[f"size{DIMENSIONS - 2}"], w[f"input_step{DIMENSIONS - 1}"]

    def plane(source: SSAValue, target: SSAValue) -> None:
        def vectors(index: SSAValue) -> None:
            first = w.least(index, w.sub(length, LANES))
            begin = w.add(source, first)
            parts = [w.load_lanes(w["input"], w.add(begin, w.mul(step, i)), LANES) for i in range(planes)]
            pairs = [w.shuffle(parts[i], parts[min(i + 1, planes - 1)], range(2 * LANES)) for i in range(0, planes, 2)]
            order = [element % planes * LANES + element // planes for element in range(planes * LANES)]
            whole = w.shuffle(pairs[0], pairs[-1], order)
            w.store_lanes(whole, w["output"], w.add(target, w.mul(first, planes)))

        w.each(0, length, LANES, vectors)

    _over_box(w, DIMENSIONS - 2, plane)


def _runs(options: Options) -> Parameters:
    return {**_buffers(options), "table": WORDS, "rows": INDEX, "run": INDEX}


@kernel_by_options(_runs)
def copy_runs(w: Loops, helpers: Helpers, *, size: int, single: int) -> None:
    """Copy ``rows`` runs of ``run`` neighbours from the indices in ``table``. Skip runs with a negative index."""
    none = w.constant(0)

    def row(index: SSAValue) -> None:
        begin = w.load(w["table"], index)
        count = w.select(w.compare(begin, "slt", 0), none, w["run"])
        copy_run(w, w.to_index(begin), w.mul(index, w["run"]), count, size, single=bool(single))

    w.each(0, w["rows"], 1, row)


def _indexed(options: Options) -> Parameters:
    places = buffer(_OF_SIZES[options["index"]])
    numbers = dict.fromkeys(("outer", "taken", "axis", "run"), INDEX)
    return {**_buffers(options), "indices": places, "status": WORDS, **numbers}


@kernel_by_options(_indexed)
def gather(w: Loops, helpers: Helpers, *, size: int, index: int, single: int) -> None:
    """Copy runs of neighbours by computed indices: ``output[o, k] = input[o, indices[k]]``.

    An index outside [0, axis) sets ``status`` and counts as 0.
    """
    first = w.constant(0)

    def outer(number: SSAValue) -> None:
        def take(k: SSAValue) -> None:
            found = w.load(w["indices"], k)
            wide = w.to_index(found)
            fits = w.compare(wide, "ult", w["axis"])
            status = w.load(w["status"], first)
            w.store(w.select(fits, status, w.constant(1, i32)), w["status"], first)
            place = w.select(fits, wide, first)
            source = w.mul(w.add(w.mul(number, w["axis"]), place), w["run"])
            target = w.mul(w.add(w.mul(number, w["taken"]), k), w["run"])
            copy_run(w, source, target, w["run"], size, single=bool(single))

        w.each(0, w["taken"], 1, take)

    w.each(0, w["outer"], 1, outer)
