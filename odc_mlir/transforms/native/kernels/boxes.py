"""Moving elements of any size by index maps: affine in a box, else by a table. Nothing is written beside an end."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.registry import Helpers, Options, Parameters, kernel_by_options
from odc_mlir.transforms.native.lowering.loops import INDEX, WORDS, Loops, buffer, i8, i16, i32, i64

DIMENSIONS = 5
_OF_SIZES = {1: i8, 2: i16, 4: i32, 8: i64}
_CHUNK_BYTES = 32


def _buffers(options: Options) -> dict[str, Attribute]:
    type = buffer(_OF_SIZES[options["size"]])
    return {"input": type, "output": type}


def copy_run(w: Loops, source: SSAValue, target: SSAValue, count: SSAValue, size: int, *, single: bool) -> None:
    """``count`` neighbours; ``single``: one by one, which is better where they are few."""
    lanes = _CHUNK_BYTES // size

    def chunk(k: SSAValue) -> None:
        w.store_lanes(w.load_lanes(w["input"], w.add(source, k), lanes), w["output"], w.add(target, k))

    def element(k: SSAValue) -> None:
        w.store(w.load(w["input"], w.add(source, k)), w["output"], w.add(target, k))

    if single:
        w.each(0, count, 1, element)
        return
    whole = w.sub(count, w.logical_and(count, lanes - 1))
    w.each(0, whole, lanes, chunk)
    w.each(whole, count, 1, element)


def _box(options: Options) -> Parameters:
    rows = {f"{name}{i}": INDEX for name in ("size", "input_step", "output_step") for i in range(DIMENSIONS)}
    return {**_buffers(options), "input_first": INDEX, "output_first": INDEX, "run": INDEX, **rows}


@kernel_by_options(_box)
def copy_box(w: Loops, helpers: Helpers, *, size: int, single: int) -> None:
    """Runs of ``run`` neighbours in a box, each dimension with a step of its own on either side."""

    def over(dimension: int, source: SSAValue, target: SSAValue) -> None:
        if dimension == DIMENSIONS:
            copy_run(w, source, target, w["run"], size, single=bool(single))
            return

        def place(index: SSAValue) -> None:
            over(
                dimension + 1,
                w.add(source, w.mul(index, w[f"input_step{dimension}"])),
                w.add(target, w.mul(index, w[f"output_step{dimension}"])),
            )

        w.each(0, w[f"size{dimension}"], 1, place)

    over(0, w["input_first"], w["output_first"])


def _runs(options: Options) -> Parameters:
    return {**_buffers(options), "table": WORDS, "rows": INDEX, "run": INDEX}


@kernel_by_options(_runs)
def copy_runs(w: Loops, helpers: Helpers, *, size: int, single: int) -> None:
    """``rows`` runs of ``run`` neighbours; ``table`` says where each begins, below zero: it is left alone."""
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
    """``output[o, k] = input[o, indices[k]]`` for runs of neighbours.

    An index below zero or beyond ``axis`` sets ``status`` and counts as 0.
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
