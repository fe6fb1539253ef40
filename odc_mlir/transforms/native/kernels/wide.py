"""Kernels on 16-bit codes, which are held as they are.

Sums of products have 32 bits while a run of neighbours passes. Where the operator's sums have 64, ``table`` is of the
fields of :data:`WIDE_FIELDS`, else of those of :mod:`convolution`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, llvm
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.codes import OPERAND_FIELDS, RESULT_FIELDS
from odc_mlir.transforms.native.kernels.convolution import FIELDS
from odc_mlir.transforms.native.kernels.helpers import LANES, SUMS
from odc_mlir.transforms.native.kernels.pairs import each_pair
from odc_mlir.transforms.native.kernels.registry import (
    Helpers,
    Options,
    Parameters,
    divisible,
    kernel,
    kernel_by_options,
)
from odc_mlir.transforms.native.lowering.loops import INDEX, REALS, WORDS, Loops, buffer, f32, i16, i32, i64, lanes

SHORTS = buffer(i16)
WIDE_FIELDS = ("bias", "reduced", "half", "shift")
_HALF = LANES // 2
_CODES = lanes(LANES, i16)
_LONG = lanes(_HALF, i64)

_LIMIT_FIELDS = RESULT_FIELDS[4:]

SUM, DIFFERENCE, PRODUCT, SHIFTED_SUM, SHIFTED_DIFFERENCE = range(5)


def _finish_parameters(options: Options) -> Parameters:
    table = buffer(i64) if options["long"] else WORDS
    return {"table": table, "output": SHORTS, "zero": i32, "low": i32, "high": i32}


def _tiles(options: Options) -> Parameters:
    sizes = dict.fromkeys(("pixels", "channels", "blocks", "run_count", "run_length"), INDEX)
    return {"input": SHORTS, "weights": SHORTS, "places": WORDS, "runs": WORDS, **sizes, **_finish_parameters(options)}


def _halves(w: Loops, value: SSAValue) -> list[SSAValue]:
    """Lower and upper half of a vector."""
    assert isinstance(value.type, VectorType)
    count = value.type.get_shape()[0] // 2
    return [w.shuffle(value, value, range(first, first + count)) for first in (0, count)]


def _joined(w: Loops, low: SSAValue, high: SSAValue) -> SSAValue:
    return w.shuffle(low, high, range(LANES))


def _limited(w: Loops, scaled: SSAValue, limits: Sequence[SSAValue]) -> SSAValue:
    zero, low, high = limits
    return w.narrow(w.least(w.most(w.add(scaled, zero), low), high), _CODES)


def _finish(
    w: Loops, helpers: Helpers, sums: Sequence[SSAValue], limits: Sequence[SSAValue], first: SSAValue, padded: SSAValue
) -> SSAValue:
    """Codes of 16 sums: one vector of 32 bits, or two of 64. ``first``: the channel."""

    def field(index: int, offset: int, count: int) -> SSAValue:
        return w.load_lanes(w["table"], w.add(w.add(w.mul(padded, index), first), offset), count)

    if w["table"].type == WORDS:
        biased = w.add(sums[0], field(0, 0, LANES))
        scaled = w.call(helpers["scale"], biased, *(field(index, 0, LANES) for index in range(1, len(FIELDS))))
        return _limited(w, scaled, limits)
    parts = []
    for offset, total in zip((0, _HALF), sums, strict=True):
        bias, reduced, half, shift = (field(index, offset, _HALF) for index in range(len(WIDE_FIELDS)))
        scaled = w.shift_right(w.add(w.mul(w.add(total, bias), reduced), half), shift)
        parts.append(w.narrow(scaled, lanes(_HALF, i32)))
    return _limited(w, _joined(w, *parts), limits)


def _lengthened(w: Loops, sums: SSAValue) -> list[SSAValue]:
    return [w.widen(part, _LONG) for part in _halves(w, sums)]


def _limits(w: Loops) -> list[SSAValue]:
    return [w.broadcast(w[name], LANES) for name in ("zero", "low", "high")]


@divisible("run_count", "run_length")
@kernel_by_options(_tiles)
def convolve_wide(w: Loops, helpers: Helpers, *, rows: int, vectors: int, long: int, split: int) -> None:
    """As ``convolve``; ``weights`` are packed ``[block of channels][run][two inputs][channel][2]``.

    ``split``: sums of one run fit into 32 bits, but those of all runs do not.
    """
    width, limits = LANES * vectors, _limits(w)
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], width)
    block_size = w.mul(w.mul(w["run_count"], w["run_length"]), width)
    zeros = [w.constant(0, SUMS)] * (rows * vectors)

    def block(position: SSAValue) -> None:
        number = w.sub(w.sub(w["blocks"], 1), position)
        first_weight, first_channel = w.mul(number, block_size), w.mul(number, width)

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            places = [w.to_index(w.load(w["places"], w.add(start, i))) for i in range(rows)]

            def run(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["runs"], index))
                begins = [w.add(place, distance) for place in places]

                def step(k: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
                    weight, sums = inner[0], inner[1:]
                    factors = [
                        w.load_lanes(w["weights"], w.add(weight, v * 2 * LANES), 2 * LANES) for v in range(vectors)
                    ]
                    result = []
                    for i in range(rows):
                        x = w.load_lanes(w["input"], w.add(begins[i], k), 2)
                        result += [
                            w.call(helpers["dot_pairs"], sums[i * vectors + v], x, factors[v]) for v in range(vectors)
                        ]
                    return [w.add(weight, 2 * width), *result]

                if not split:
                    return w.loop(0, w["run_length"], 2, step, state)
                weight, *sums = w.loop(0, w["run_length"], 2, step, [state[0], *zeros])
                long_sums = [part for total in sums for part in _lengthened(w, total)]
                return [weight, *(w.add(a, b) for a, b in zip(state[1:], long_sums, strict=True))]

            initial = [w.constant(0, _LONG)] * (2 * rows * vectors) if split else zeros
            sums = w.loop(0, w["run_count"], 1, run, [first_weight, *initial])[1:]
            for i in range(rows):
                row = w.add(w.mul(w.add(start, i), w["channels"]), first_channel)
                for v in range(vectors):
                    place = i * vectors + v
                    found = sums[2 * place : 2 * place + 2] if split else [sums[place]]
                    if long and not split:
                        found = _lengthened(w, found[0])
                    channel = w.add(first_channel, v * LANES)
                    codes = _finish(w, helpers, found, limits, channel, padded)
                    w.store_lanes(codes, w["output"], w.add(row, v * LANES))

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


def _taps(options: Options) -> Parameters:
    sizes = dict.fromkeys(("pixels", "channels", "blocks", "tap_count"), INDEX)
    return {"input": SHORTS, "weights": SHORTS, "places": WORDS, "taps": WORDS, **sizes, **_finish_parameters(options)}


@divisible("tap_count")
@kernel_by_options(_taps)
def depthwise_wide(w: Loops, helpers: Helpers, *, rows: int, long: int) -> None:
    """As ``depthwise``, where sums fit into 32 bits."""
    limits = _limits(w)
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], LANES)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            begins = [w.add(w.to_index(w.load(w["places"], w.add(start, i))), channel) for i in range(rows)]

            def tap(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["taps"], index))
                factors = w.load_lanes(w["weights"], w.add(w.mul(index, padded), channel), LANES)
                wide = w.widen(factors, SUMS)
                return [
                    w.add(sums, w.mul(w.widen(w.load_lanes(w["input"], w.add(begin, distance), LANES), SUMS), wide))
                    for sums, begin in zip(state, begins, strict=True)
                ]

            sums = w.loop(0, w["tap_count"], 1, tap, [w.constant(0, SUMS)] * rows)
            for i, total in enumerate(sums):
                found = _lengthened(w, total) if long else [total]
                codes = _finish(w, helpers, found, limits, channel, padded)
                w.store_lanes(codes, w["output"], w.add(w.mul(w.add(start, i), w["channels"]), channel))

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


@kernel(a=SHORTS, b=SHORTS, table=WORDS, output=SHORTS, rows=INDEX, columns=INDEX)
def combine_wide(w: Loops, helpers: Helpers, *, operation: int, left: int, a: int, b: int) -> None:
    """As ``combine_codes``; the shifted operations shift either operand right, rounded, and saturate the result."""
    size = len(OPERAND_FIELDS)
    numbers = [w.broadcast(w.load(w["table"], w.constant(i)), LANES) for i in range(2 * size + len(RESULT_FIELDS))]
    shifted = operation in (SHIFTED_SUM, SHIFTED_DIFFERENCE)
    limits = numbers[-len(_LIMIT_FIELDS) :]

    def part(codes: SSAValue, fields: Sequence[SSAValue]) -> SSAValue:
        zero, q, rounding, half, shift = fields
        centred = w.sub(w.widen(codes, SUMS), zero)
        if operation == PRODUCT:
            return centred
        if shifted:
            sign = w.logical_and(w.shift_right(centred, 31), rounding)
            return w.shift_right(w.add(w.add(centred, sign), half), shift)
        return w.call(helpers["scale"], w.shift_left(centred, left), q, rounding, half, shift)

    def chunk(place: SSAValue, operands: Sequence[SSAValue]) -> None:
        first, second = part(operands[0], numbers[:size]), part(operands[1], numbers[size : 2 * size])
        combine = {PRODUCT: w.mul, DIFFERENCE: w.sub, SHIFTED_DIFFERENCE: w.sub}.get(operation, w.add)
        whole = combine(first, second)
        if not shifted:
            whole = w.call(helpers["scale"], whole, *numbers[2 * size : 2 * size + 4])
        w.store_lanes(_limited(w, whole, limits), w["output"], place)

    each_pair(w, a, b, chunk)


@kernel(input=SHORTS, output=REALS, count=INDEX, scale=f32, zero=f32)
def dequantize_wide(w: Loops, helpers: Helpers) -> None:
    """``(code - zero) * scale``."""
    scale, zero, real = w.broadcast(w["scale"], LANES), w.broadcast(w["zero"], LANES), lanes(LANES, f32)

    def chunk(index: SSAValue) -> None:
        codes = w.widen(w.load_lanes(w["input"], index, LANES), SUMS)
        centred = w.emit(arith.SubfOp(w.emit(llvm.SIToFPOp(codes, real)), zero))
        w.store_lanes(w.emit(arith.MulfOp(centred, scale)), w["output"], index)

    w.each(0, w["count"], LANES, chunk)


def _softmax(options: Options) -> Parameters:
    sizes = dict.fromkeys(("rows", "classes"), INDEX)
    return {"input": SHORTS, "terms": SHORTS, "inverses": WORDS, "output": SHORTS, **sizes}


@kernel_by_options(_softmax)
def softmax_wide(w: Loops, helpers: Helpers) -> None:
    """Softmax of numerics.int16: ``terms`` by distance from the maximum, ``inverses`` interpolated by steps of 128."""

    def code(index: SSAValue) -> SSAValue:
        return w.widen(w.load(w["input"], index), i32)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def larger(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.most(state[0], code(w.add(begin, k)))]

        largest = w.loop(0, w["classes"], 1, larger, [w.constant(-(1 << 15), i32)])[0]

        def term(place: SSAValue) -> SSAValue:
            return w.widen(w.load(w["terms"], w.to_index(w.sub(largest, code(place)))), i32)

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.add(state[0], w.widen(term(w.add(begin, k)), i64))]

        total = w.loop(0, w["classes"], 1, add, [w.constant(0, i64)])[0]
        total = w.least(w.most(total, 1), (1 << 31) - 1)
        zeros = w.sub(w.intrinsic("llvm.ctlz.i64", [total, w.constant_bit(False)], i64), 32)
        normal = w.shift_right(w.add(w.shift_left(total, w.sub(zeros, 1)), 1 << 13), 14)
        position = w.least(w.most(w.sub(normal, (1 << 15) + (1 << 16)), -(1 << 15)), (1 << 15) - 1)
        entry = w.to_index(w.add(w.shift_right(position, 7), 256))
        base = w.load(w["inverses"], entry)
        slope = w.sub(w.load(w["inverses"], w.add(entry, 1)), base)
        part = w.mul(slope, w.narrow(w.logical_and(position, 127), i32))
        inverse = w.add(base, w.shift_right(w.add(part, 64), 7))
        shift = w.narrow(w.sub(w.constant(31, i64), zeros), i32)
        half = w.shift_left(w.constant(1, i32), w.sub(shift, 1))

        def divide(k: SSAValue) -> None:
            place = w.add(begin, k)
            share = w.shift_right(w.add(w.mul(term(place), inverse), half), shift)
            w.store(w.narrow(w.least(w.most(share, 0), (1 << 15) - 1), i16), w["output"], place)

        w.each(0, w["classes"], 1, divide)

    w.each(0, w["rows"], 1, row)
