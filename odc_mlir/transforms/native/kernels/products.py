"""Kernels of products: sums over whole windows and sums over each channel by itself, in four arithmetics.

Sums stay in registers, a tile of pixels by channels at a time. The last tile of pixels is moved back so that it is
full. Blocks of channels go from the last to the first and pixels upwards: elements that a vector writes beyond the last
channel are written again by their own pixel.

Float sums are added up in another order than on the host, with fused multiplications; results differ by roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, llvm
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import (
    BYTES,
    INDEX,
    REALS,
    SHORTS,
    WORDS,
    Loops,
    buffer,
    f32,
    i8,
    i16,
    i32,
    i64,
    lanes,
)
from odc_mlir.transforms.native.kernels.mathematics import clamped
from odc_mlir.transforms.native.kernels.registry import (
    LANES,
    SUMS,
    WEIGHTS,
    Helpers,
    Options,
    Parameters,
    divisible,
    kernel,
    kernel_by_options,
    within,
)

FIELDS = ("bias", "q", "round", "half", "shift")
"""Numbers by result channel that requantise 32-bit sums."""

WIDE_FIELDS = ("bias", "reduced", "half", "shift")
"""Numbers by result channel that requantise 64-bit sums."""

_HALF = LANES // 2
_LONG = lanes(_HALF, i64)

_TILES: dict[str, Attribute] = {
    "places": WORDS,
    "runs": WORDS,
    **dict.fromkeys(("pixels", "channels", "blocks", "run_count", "run_length"), INDEX),
}
WINDOWS: dict[str, Attribute] = {
    "places": WORDS,
    "taps": WORDS,
    **dict.fromkeys(("pixels", "channels", "blocks", "tap_count"), INDEX),
}
_LIMITS = {"low": f32, "high": f32}
_HYBRID = {"totals": WORDS, "factors": REALS, "bias": REALS, "scales": REALS, "zeros": WORDS, "owners": WORDS,
           "output": REALS, **_LIMITS}  # fmt: skip


def _requantising(options: Options) -> Parameters:
    """Return the parameters of requantised sums: ``table`` has a row per field, padded to whole blocks of channels."""
    wide = "long" in options
    table = buffer(i64) if options.get("long") else WORDS
    return {"table": table, "output": SHORTS if wide else BYTES, "zero": i32, "low": i32, "high": i32}


Values = Sequence[SSAValue]


@dataclass(frozen=True)
class Accumulator:
    """The sums of a kernel for 16 neighbouring channels, from their first values to stored results.

    Sums begin with ``start(channel)``. They become ``result(sums, of_channels(channel), of_pixel(pixel))``, where
    ``sums`` are a vector or, of 64-bit sums, its halves.
    """

    start: Callable[[SSAValue], SSAValue]
    result: Callable[[Values, Values, Values], SSAValue]
    of_channels: Callable[[SSAValue], Values] = lambda channel: ()
    of_pixel: Callable[[SSAValue], Values] = lambda pixel: ()


@dataclass(frozen=True)
class Multiplication:
    """The products of a kernel: ``multiply(sums, inputs(place), weights)`` for ``unit`` inputs of a pixel."""

    unit: int
    inputs: Callable[[SSAValue], SSAValue]
    multiply: Callable[[SSAValue, SSAValue, SSAValue], SSAValue]


def _store(
    w: Loops, a: Accumulator, sums: Sequence[Sequence[Values]], pixel: SSAValue, place: SSAValue, channel: SSAValue
) -> None:
    """Store the results of a tile of sums, by pixel and vector of channels, from ``place`` of a pixel on."""
    fields = [a.of_channels(w.add(channel, v * LANES)) for v in range(len(sums[0]))]
    for i, own in enumerate(sums):
        number = w.add(pixel, i)
        numbers = a.of_pixel(number)
        row = w.add(w.mul(number, w["channels"]), place)
        for v, total in enumerate(own):
            w.store_lanes(a.result(total, fields[v], numbers), w["output"], w.add(row, v * LANES))


def _each_tile(
    w: Loops,
    a: Accumulator,
    product: Multiplication,
    rows: int,
    vectors: int,
    *,
    offset: bool = False,
    split: bool = False,
    strided: bool = False,
) -> None:
    """Add up whole windows for ``rows`` pixels by ``16 * vectors`` channels at a time.

    ``places`` has the offset of the first input of each pixel, ``runs`` the offset of each run of neighbouring inputs
    from there on: a row of the window. Weights are packed ``[block of channels][run][unit inputs][channel][unit]``, and
    zero where a window is shorter than whole units. ``strided``: they have distances of their own instead, between
    inputs and between blocks: also a matrix as it is.

    ``offset``: weights lack a common number, the parameter. It is multiplied by the sum of the inputs of a pixel, which
    are added up by a run of weights of ``ones``. ``split``: sums of one run fit into 32 bits, sums of all runs do not.
    """
    width, unit = LANES * vectors, product.unit
    columns = vectors + offset  # sums of a pixel
    missing = w.broadcast(w["offset"], LANES) if offset else None
    last = w.sub(w["pixels"], rows)
    block_size = w["block_step"] if strided else w.mul(w.mul(w["run_count"], w["run_length"]), width)
    zeros = [w.constant(0, SUMS)] * (rows * columns) if split or offset else []

    def block(position: SSAValue) -> None:
        number = w.sub(w.sub(w["blocks"], 1), position)
        channel, first_weight = w.mul(number, width), w.mul(number, block_size)
        if strided:
            first_weight = w.add(first_weight, w["first_weight"])

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            places = [w.to_index(w.load(w["places"], w.add(start, i))) for i in range(rows)]

            def run(index: SSAValue, state: Values) -> Values:
                distance = w.to_index(w.load(w["runs"], index))
                begins = [w.add(place, distance) for place in places]

                def step(k: SSAValue, inner: Values) -> Values:
                    weight, *sums = inner
                    factors = [
                        w.load_lanes(w["weights"], w.add(weight, v * unit * LANES), unit * LANES)
                        for v in range(vectors)
                    ]
                    if offset:
                        factors.append(_same_for_all(w, w.load_lanes(w["ones"], k, unit)))
                    result = []
                    for i in range(rows):
                        x = product.inputs(w.add(begins[i], k))
                        result += [product.multiply(sums[i * columns + v], x, factors[v]) for v in range(columns)]
                    return [w.add(weight, w["weight_step"] if strided else unit * width), *result]

                if not split:
                    return w.loop(0, w["run_length"], unit, step, state)
                weight, *sums = w.loop(0, w["run_length"], unit, step, [state[0], *zeros])
                parts = [part for total in sums for part in _lengthened(w, total)]
                return [weight, *(w.add(x, y) for x, y in zip(state[1:], parts, strict=True))]

            if split:
                initial = [w.constant(0, _LONG)] * (2 * rows * vectors)
            else:
                initial = [a.start(w.add(channel, v * LANES)) for v in range(vectors)]
                initial = (initial + zeros[:offset]) * rows
            state = w.loop(0, w["run_count"], 1, run, [first_weight, *initial])[1:]
            sums = _sums_of(w, state, vectors, missing) if not split else _halves_of(state, vectors)
            _store(w, a, sums, start, w.add(channel, w["first_result"]) if strided else channel, channel)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


def _sums_of(w: Loops, state: Values, vectors: int, missing: SSAValue | None) -> list[list[Values]]:
    """Return the sums of a tile by pixel and vector, with the share of the number ``missing`` in all weights."""
    columns = vectors + (missing is not None)
    found: list[list[Values]] = []
    for first in range(0, len(state), columns):
        own = state[first : first + vectors]
        if missing is not None:
            share = w.mul(state[first + vectors], missing)
            own = [w.add(total, share) for total in own]
        found.append([[total] for total in own])
    return found


def _halves_of(state: Values, vectors: int) -> list[list[Values]]:
    """Return 64-bit sums of a tile by pixel and vector."""
    pairs = [state[first : first + 2] for first in range(0, len(state), 2)]
    return [list(pairs[first : first + vectors]) for first in range(0, len(pairs), vectors)]


def each_window(
    w: Loops,
    a: Accumulator,
    combine: Callable[[SSAValue, SSAValue, SSAValue], SSAValue],
    rows: int = 1,
    *,
    weights: Callable[[SSAValue], SSAValue] | None = None,
    in_blocks: bool = False,
) -> None:
    """Combine the taps of ``rows`` windows at a time, each of 16 channels by itself.

    ``places`` has the offset of the first input of each pixel, ``taps`` the offset of each tap from there on.
    ``combine(sums, inputs, weights)``; ``weights`` loads them from ``[tap][channel]``, padded to whole blocks.
    ``in_blocks``: float sums are added up in blocks, see :meth:`Loops.sum_in_blocks`.
    """
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], LANES)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def tile(pixel: SSAValue) -> None:
            start = pixel if rows == 1 else w.least(pixel, last)
            begins = [w.add(w.to_index(w.load(w["places"], w.add(start, i))), channel) for i in range(rows)]

            def tap(index: SSAValue, state: Values) -> Values:
                distance = w.to_index(w.load(w["taps"], index))
                factors = channel if weights is None else weights(w.add(w.mul(index, padded), channel))
                return [
                    combine(sums, w.load_lanes(w["input"], w.add(begin, distance), LANES), factors)
                    for sums, begin in zip(state, begins, strict=True)
                ]

            first = a.start(channel)
            if in_blocks:
                total = w.sum_in_blocks(w.constant(0), w["tap_count"], 1, lambda i, sums: tap(i, [sums])[0], first)
                sums: Values = [total]
            else:
                sums = w.loop(0, w["tap_count"], 1, tap, [first] * rows)
            _store(w, a, [[[total]] for total in sums], start, channel, channel)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


def _same_for_all(w: Loops, quad: SSAValue) -> SSAValue:
    """Return four weights as the same ones for 16 channels."""
    return w.bitcast(w.broadcast(w.bitcast(quad, lanes(1, i32)), LANES), WEIGHTS)


def _lengthened(w: Loops, sums: SSAValue) -> Values:
    """Return the halves of a vector in 64 bits."""
    return [w.widen(w.shuffle(sums, sums, range(first, first + _HALF)), _LONG) for first in (0, _HALF)]


def requantisation(w: Loops, helpers: Helpers, width: int) -> Accumulator:
    """Return the accumulator of sums that are requantised by ``table``, whose rows have whole blocks of ``width``."""
    limits = [w.broadcast(w[name], LANES) for name in ("zero", "low", "high")]
    padded = w.mul(w["blocks"], width)
    element = i8 if w["output"].type == BYTES else i16

    def field(index: int, channel: SSAValue, count: int = LANES) -> SSAValue:
        return w.load_lanes(w["table"], w.add(w.mul(padded, index), channel), count)

    def result(sums: Values, fields: Values, _: Values) -> SSAValue:
        return within(w, w.call(helpers["scale"], sums[0], *fields), limits, element)

    def long_result(sums: Values, fields: Values, _: Values) -> SSAValue:
        parts = []
        for index, total in enumerate(sums if len(sums) > 1 else _lengthened(w, sums[0])):
            bias, reduced, half, shift = fields[4 * index : 4 * index + 4]
            scaled = w.shift_right(w.add(w.mul(w.add(total, bias), reduced), half), shift)
            parts.append(w.narrow(scaled, lanes(_HALF, i32)))
        return within(w, w.shuffle(parts[0], parts[1], range(LANES)), limits, element)

    if w["table"].type == WORDS:
        return Accumulator(
            lambda channel: field(0, channel),
            result,
            lambda channel: [field(index, channel) for index in range(1, len(FIELDS))],
        )
    return Accumulator(
        lambda _: w.constant(0, SUMS),
        long_result,
        lambda channel: [
            field(index, w.add(channel, offset), _HALF) for offset in (0, _HALF) for index in range(len(WIDE_FIELDS))
        ],
    )


def _scaling(w: Loops) -> Accumulator:
    """Return the accumulator of products of float activations that were quantised at run time: see numerics.hybrid.

    ``owners`` has the image of a pixel, which has a scale and a zero point. The share of the zero point in a sum is its
    product with ``totals``, the sums of weights. Then come ``scale * factor``, the bias, and the fused activation.
    """
    real = lanes(LANES, f32)
    low, high = w.broadcast(w["low"], LANES), w.broadcast(w["high"], LANES)

    def of_pixel(pixel: SSAValue) -> Values:
        owner = w.to_index(w.load(w["owners"], pixel))
        return [w.broadcast(w.load(w[name], owner), LANES) for name in ("zeros", "scales")]

    def result(sums: Values, fields: Values, numbers: Values) -> SSAValue:
        (totals, factors, bias), (zero, scale) = fields, numbers
        centred = w.emit(llvm.SIToFPOp(w.sub(sums[0], w.mul(zero, totals)), real))
        scaled = w.emit(arith.MulfOp(centred, w.emit(arith.MulfOp(scale, factors))))
        return clamped(w, w.emit(arith.AddfOp(scaled, bias)), low, high)

    return Accumulator(
        lambda _: w.constant(0, SUMS),
        result,
        lambda channel: [w.load_lanes(w[name], channel, LANES) for name in ("totals", "factors", "bias")],
        of_pixel,
    )


def limit(w: Loops, clamp: int) -> Callable[[SSAValue], SSAValue]:
    """Return the function that limits float results to the bounds of the fused activation, if ``clamp``."""
    if not clamp:
        return lambda value: value
    low, high = (w.broadcast(w[name], LANES) for name in ("low", "high"))
    return lambda value: clamped(w, value, low, high)


def _floats(w: Loops, clamp: int) -> Accumulator:
    """Return the accumulator of float sums, which begin with ``bias``, padded to whole blocks."""
    limited = limit(w, clamp)
    return Accumulator(lambda channel: w.load_lanes(w["bias"], channel, LANES), lambda sums, *_: limited(sums[0]))


def _bytes(w: Loops, helpers: Helpers) -> Multiplication:
    """Return the products of four unsigned bytes with signed ones."""
    return Multiplication(
        4, lambda place: w.load_lanes(w["input"], place, 4), lambda *operands: w.call(helpers["dot"], *operands)
    )


def _widened(w: Loops, place: SSAValue) -> SSAValue:
    """Return weights of 16 channels in 32 bits."""
    return w.widen(w.load_lanes(w["weights"], place, LANES), SUMS)


def _byte_taps(w: Loops, sums: SSAValue, x: SSAValue, weights: SSAValue) -> SSAValue:
    return w.add(sums, w.mul(w.widen_unsigned(x, SUMS), weights))


@divisible("run_count", "run_length")
@kernel_by_options(lambda options: {"input": BYTES, "weights": BYTES, "ones": BYTES, "offset": i32, **_TILES,
                                    **_requantising(options)})  # fmt: skip
def convolve(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int) -> None:
    """Sums over whole windows of unsigned bytes, requantised to bytes."""
    accumulator = requantisation(w, helpers, LANES * vectors)
    _each_tile(w, accumulator, _bytes(w, helpers), rows, vectors, offset=bool(offset))


@divisible("run_count", "run_length")
@kernel(input=BYTES, weights=BYTES, ones=BYTES, offset=i32, **_TILES, **_HYBRID)
def convolve_hybrid(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int) -> None:
    """Sums over whole windows of bytes, scaled to floats."""
    _each_tile(w, _scaling(w), _bytes(w, helpers), rows, vectors, offset=bool(offset))


@divisible("run_count", "run_length")
@kernel_by_options(lambda options: {"input": SHORTS, "weights": SHORTS, **_TILES, **_requantising(options)})
def convolve_wide(w: Loops, helpers: Helpers, *, rows: int, vectors: int, long: int, split: int) -> None:
    """Sums over whole windows of 16-bit values, requantised to 16 bits."""
    pairs = Multiplication(
        2, lambda place: w.load_lanes(w["input"], place, 2), lambda *operands: w.call(helpers["dot_pairs"], *operands)
    )
    _each_tile(w, requantisation(w, helpers, LANES * vectors), pairs, rows, vectors, split=bool(split))


_STEPS = dict.fromkeys(("weight_step", "block_step", "first_weight", "first_result"), INDEX)


@divisible("run_count", "run_length")
@kernel(input=REALS, weights=REALS, bias=REALS, output=REALS, **_TILES, **_STEPS, **_LIMITS)
def convolve_reals(w: Loops, helpers: Helpers, *, rows: int, vectors: int, clamp: int) -> None:
    """Sums over whole windows of floats."""
    single = Multiplication(
        1,
        lambda place: w.broadcast(w.load(w["input"], place), LANES),
        lambda sums, x, weights: w.fused(x, weights, sums),
    )
    _each_tile(w, _floats(w, clamp), single, rows, vectors, strided=True)


@divisible("tap_count")
@kernel_by_options(lambda options: {"input": BYTES, "weights": SHORTS, **WINDOWS, **_requantising(options)})
def depthwise(w: Loops, helpers: Helpers, *, rows: int) -> None:
    """Sums over each channel of bytes, requantised to bytes."""
    accumulator = requantisation(w, helpers, LANES)
    each_window(w, accumulator, lambda *x: _byte_taps(w, *x), rows, weights=lambda place: _widened(w, place))


@divisible("tap_count")
@kernel(input=BYTES, weights=SHORTS, **WINDOWS, **_HYBRID)
def depthwise_hybrid(w: Loops, helpers: Helpers, *, rows: int) -> None:
    """Sums over each channel of bytes, scaled to floats."""
    each_window(w, _scaling(w), lambda *x: _byte_taps(w, *x), rows, weights=lambda place: _widened(w, place))


@divisible("tap_count")
@kernel_by_options(lambda options: {"input": SHORTS, "weights": SHORTS, **WINDOWS, **_requantising(options)})
def depthwise_wide(w: Loops, helpers: Helpers, *, rows: int, long: int) -> None:
    """Sums over each channel of 16-bit values, which fit into 32 bits, requantised to 16 bits."""

    def tap(sums: SSAValue, x: SSAValue, weights: SSAValue) -> SSAValue:
        return w.add(sums, w.mul(w.widen(x, SUMS), weights))

    each_window(w, requantisation(w, helpers, LANES), tap, rows, weights=lambda place: _widened(w, place))


@divisible("tap_count")
@kernel(input=REALS, weights=REALS, bias=REALS, output=REALS, **WINDOWS, **_LIMITS)
def depthwise_reals(w: Loops, helpers: Helpers, *, rows: int, clamp: int) -> None:
    """Sums over each channel of floats."""
    each_window(
        w,
        _floats(w, clamp),
        lambda sums, x, weights: w.fused(x, weights, sums),
        rows,
        weights=lambda place: w.load_lanes(w["weights"], place, LANES),
    )
