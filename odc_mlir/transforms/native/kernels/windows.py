"""Kernels on windows of images: weighted sums (over whole windows or per channel), pools, and interpolation.

Sums of one tile, pixels by channels, stay in registers. The last tile of pixels starts earlier so that it is full.
Kernels compute blocks of channels from the last to the first, and pixels in ascending order. A pixel then overwrites
its elements that a vector of the previous pixel has written. Floats are added in another order than on the host, with
fused multiply-adds, so that results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, i8, i16, i32, i64
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import (
    BYTES,
    INDEX,
    REALS,
    SHORTS,
    STORED,
    WORDS,
    Loops,
    buffer,
    lanes,
    scalar_of,
)
from odc_mlir.transforms.native.kernels.mathematics import clamped, first_lanes, larger
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
"""Rows of the table that requantises 32-bit sums. A row has one number per result channel."""

WIDE_FIELDS = ("bias", "reduced", "half", "shift")
"""Rows of the table that requantises 64-bit sums. A row has one number per result channel."""

_HALF = LANES // 2
_LONG = lanes(_HALF, i64)

_TILES: dict[str, Attribute] = {
    "starts": WORDS,
    "runs": WORDS,
    **dict.fromkeys(("pixels", "channels", "blocks", "run_count", "run_length"), INDEX),
}
WINDOWS: dict[str, Attribute] = {
    "starts": WORDS,
    "taps": WORDS,
    **dict.fromkeys(("pixels", "channels", "blocks", "tap_count"), INDEX),
}
_LIMITS = {"low": f32, "high": f32}
_HYBRID = {"totals": WORDS, "factors": REALS, "bias": REALS, "scales": REALS, "zeros": WORDS, "owners": WORDS,
           "output": REALS, **_LIMITS}  # fmt: skip


def _requantising(options: Options) -> Parameters:
    wide = "long" in options
    table = buffer(i64) if options.get("long") else WORDS
    return {"table": table, "output": SHORTS if wide else BYTES, "zero": i32, "low": i32, "high": i32}


Values = Sequence[SSAValue]


@dataclass(frozen=True)
class Accumulator:
    """Initial values and final results of a kernel's sums for 16 neighbouring channels.

    Sums start at ``start(channel)``. ``result(sums, of_channels(channel), of_pixel(pixel))`` is the stored result.
    ``sums`` is a vector of 32-bit sums, or the two halves of a vector of 64-bit sums.
    """

    start: Callable[[SSAValue], SSAValue]
    result: Callable[[Values, Values, Values], SSAValue]
    of_channels: Callable[[SSAValue], Values] = lambda channel: ()
    of_pixel: Callable[[SSAValue], Values] = lambda pixel: ()


@dataclass(frozen=True)
class Multiplication:
    """Multiply-add of a kernel: ``multiply(sums, inputs(place), weights)`` adds ``unit`` products to each sum."""

    unit: int
    inputs: Callable[[SSAValue], SSAValue]
    multiply: Callable[[SSAValue, SSAValue, SSAValue], SSAValue]


def _store(
    w: Loops, a: Accumulator, sums: Sequence[Sequence[Values]], pixel: SSAValue, place: SSAValue, channel: SSAValue
) -> None:
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
    """Add whole windows for ``rows`` pixels by ``16 * vectors`` channels at a time.

    ``starts``: offset of each pixel's first input. A row of a window is a run of neighbouring inputs. ``runs``:
    distance of each run from the first input. Weights are packed as ``[block of channels][run][unit
    inputs][channel][unit]``, padded with zeros to whole units. With ``strided``, weights have the steps ``weight_step``
    between inputs and ``block_step`` between blocks of channels.

    With ``offset``, the parameter ``offset`` was subtracted from all weights. The kernel multiplies the offset by the
    sum of a pixel's inputs. It computes this sum with the weights ``ones``. With ``split``, only single runs fit into
    32 bits.
    """
    width, unit = LANES * vectors, product.unit
    columns = 2 * vectors if split else vectors + offset  # vectors of sums per pixel
    missing = [w.broadcast(w["offset"], LANES)] if offset else []
    last = w.sub(w["pixels"], rows)
    block_size = w["block_step"] if strided else w.mul(w.mul(w["run_count"], w["run_length"]), width)
    zeros = [w.constant(0, SUMS)] * (rows * vectors) if split or offset else []

    def block(position: SSAValue) -> None:
        number = w.sub(w.sub(w["blocks"], 1), position)
        channel, first_weight = w.mul(number, width), w.mul(number, block_size)
        if strided:
            first_weight = w.add(first_weight, w["first_weight"])

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            starts = [w.to_index(w.load(w["starts"], w.add(start, i))) for i in range(rows)]

            def run(index: SSAValue, state: Values) -> Values:
                distance = w.to_index(w.load(w["runs"], index))
                begins = [w.add(first, distance) for first in starts]

                def step(k: SSAValue, inner: Values) -> Values:
                    weight, *sums = inner
                    factors = [
                        w.load_lanes(w["weights"], w.add(weight, v * unit * LANES), unit * LANES)
                        for v in range(vectors)
                    ]
                    if offset:  # the same four weights for 16 channels
                        ones = w.bitcast(w.load_lanes(w["ones"], k, unit), lanes(1, i32))
                        factors.append(w.bitcast(w.broadcast(ones, LANES), WEIGHTS))
                    result = []
                    for i in range(rows):
                        x = product.inputs(w.add(begins[i], k))
                        own = sums[i * len(factors) : (i + 1) * len(factors)]
                        result += [product.multiply(*pair) for pair in zip(own, [x] * len(own), factors, strict=True)]
                    return [w.add(weight, w["weight_step"] if strided else unit * width), *result]

                if not split:
                    return w.loop(0, w["run_length"], unit, step, state)
                weight, *sums = w.loop(0, w["run_length"], unit, step, [state[0], *zeros])
                parts = [part for total in sums for part in _lengthened(w, total)]
                return [weight, *(w.add(x, y) for x, y in zip(state[1:], parts, strict=True))]

            if split:
                initial = [w.constant(0, _LONG)] * (rows * columns)
            else:
                initial = [a.start(w.add(channel, v * LANES)) for v in range(vectors)]
                initial = (initial + zeros[:offset]) * rows
            state = w.loop(0, w["run_count"], 1, run, [first_weight, *initial])[1:]
            found = [state[i * columns : (i + 1) * columns] for i in range(rows)]
            if split:
                sums = [[own[v : v + 2] for v in range(0, columns, 2)] for own in found]
            else:
                sums = [[[total] for total in _completed(w, own, missing)] for own in found]
            place = w.add(channel, w["first_result"]) if "first_result" in w.arguments else channel
            _store(w, a, sums, start, place, channel)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


def _completed(w: Loops, sums: Values, missing: Values) -> Values:
    if not missing:
        return sums
    share = w.mul(sums[-1], missing[0])
    return [w.add(total, share) for total in sums[:-1]]


def each_window(
    w: Loops,
    a: Accumulator,
    combine: Callable[[SSAValue, SSAValue, SSAValue], SSAValue],
    rows: int = 1,
    *,
    weights: Callable[[SSAValue], SSAValue] | None = None,
    in_blocks: bool = False,
) -> None:
    """Combine the taps of ``rows`` windows at a time, separately for each of 16 channels.

    ``starts``: offset of each pixel's first input. ``taps``: distance of each tap from the first input. ``combine(sums,
    inputs, weights)`` adds one tap. ``weights`` loads from ``[tap][channel]``, padded to whole blocks. With
    ``in_blocks``, float sums are added in blocks, see :meth:`Loops.sum_in_blocks`.
    """
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], LANES)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def tile(pixel: SSAValue) -> None:
            start = pixel if rows == 1 else w.least(pixel, last)
            begins = [w.add(w.to_index(w.load(w["starts"], w.add(start, i))), channel) for i in range(rows)]

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


def _lengthened(w: Loops, sums: SSAValue) -> Values:
    return [w.widen(w.shuffle(sums, sums, range(first, first + _HALF)), _LONG) for first in (0, _HALF)]


def requantisation(w: Loops, helpers: Helpers, width: int) -> Accumulator:
    """Return the accumulator that requantises sums by ``table``, whose rows are padded to whole blocks of ``width``."""
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
    """Return the accumulator for float activations that were quantised at run time, see numerics.hybrid.

    ``owners``: image of each pixel. Each image has a scale and a zero point. The result of a sum is ``(sum - zero *
    totals) * scale * factor``, plus bias, then the fused activation. ``totals`` are sums of weights.
    """
    low, high = w.broadcast(w["low"], LANES), w.broadcast(w["high"], LANES)

    def of_pixel(pixel: SSAValue) -> Values:
        owner = w.to_index(w.load(w["owners"], pixel))
        return [w.broadcast(w.load(w[name], owner), LANES) for name in ("zeros", "scales")]

    def result(sums: Values, fields: Values, numbers: Values) -> SSAValue:
        (totals, factors, bias), (zero, scale) = fields, numbers
        centred = w.to_real(w.sub(sums[0], w.mul(zero, totals)))
        return clamped(w, w.add(w.mul(centred, w.mul(scale, factors)), bias), low, high)

    return Accumulator(
        lambda _: w.constant(0, SUMS),
        result,
        lambda channel: [w.load_lanes(w[name], channel, LANES) for name in ("totals", "factors", "bias")],
        of_pixel,
    )


def limit(w: Loops, clamp: int) -> Callable[[SSAValue], SSAValue]:
    """Return the function that limits float results to the bounds of the fused activation if ``clamp`` is set."""
    if not clamp:
        return lambda value: value
    low, high = (w.broadcast(w[name], LANES) for name in ("low", "high"))
    return lambda value: clamped(w, value, low, high)


def _floats(w: Loops, clamp: int) -> Accumulator:
    limited = limit(w, clamp)
    return Accumulator(lambda channel: w.load_lanes(w["bias"], channel, LANES), lambda sums, *_: limited(sums[0]))


def _dots(w: Loops, helpers: Helpers, helper: str, unit: int) -> Multiplication:
    return Multiplication(
        unit, lambda place: w.load_lanes(w["input"], place, unit), lambda *operands: w.call(helpers[helper], *operands)
    )


@divisible("run_count", "run_length")
@kernel_by_options(lambda options: {"input": BYTES, "weights": BYTES, "ones": BYTES, "offset": i32, **_TILES,
                                    **_requantising(options), **({"first_result": INDEX} if "matrix" in options else {})
                                    })  # fmt: skip
def convolve(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int, matrix: int = 0) -> None:
    """Compute sums over whole windows of unsigned bytes, requantised to bytes (``matrix``: from ``first_result``)."""
    accumulator = requantisation(w, helpers, LANES * vectors)
    _each_tile(w, accumulator, _dots(w, helpers, "dot", 4), rows, vectors, offset=bool(offset))


@kernel(input=BYTES, output=BYTES, ones=BYTES, table=WORDS, factor=i32, bias=i32,
        **dict.fromkeys(("first", "depth", "columns", "width", "blocks"), INDEX))  # fmt: skip
def pack_codes(w: Loops, helpers: Helpers, *, turned: int) -> None:
    """Pack a matrix ``[K, N]`` (``turned``: ``[N, K]``) of bytes with an offset of 128 as weights of :func:`convolve`.

    ``ones`` has a one for each of the ``depth`` inputs, then zeros up to a multiple of four. The first row of ``table``
    becomes ``bias`` plus ``factor`` times the sum of each column.
    """
    sign = w.constant(-0x7F7F7F80, SUMS)  # the sign bits of four bytes
    factor, bias = (w.broadcast(w[name], LANES) for name in ("factor", "bias"))
    steps = w.logical_and(w.add(w["depth"], 3), -4)

    def loaded(k: SSAValue, column: SSAValue) -> SSAValue:
        """Return four inputs from ``k`` of 16 columns, as words. Beyond the end, the last row or column repeats."""
        row, last, pitch, inner = (column, "columns", "depth", k) if turned else (k, "depth", "columns", column)
        parts = []
        for index in range(LANES if turned else 4):
            begin = w.mul(w.least(w.add(row, index), w.sub(w[last], 1)), w[pitch])
            parts.append(w.load_lanes(w["input"], w.add(w.add(begin, w["first"]), inner), 4 if turned else LANES))
        while len(parts) > 1:
            count = 8 * LANES // len(parts) if turned else 2 * LANES
            order = [i if turned else i // 2 + LANES * (i % 2) for i in range(count)]
            if not turned:  # neighbouring inputs alternate: first bytes, then pairs of bytes
                parts = [w.bitcast(part, lanes(LANES, i8 if len(parts) == 4 else i16)) for part in parts]
            parts = [w.shuffle(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return w.bitcast(parts[0], SUMS)

    def group(index: SSAValue) -> None:
        block = w.emit(arith.DivUIOp(index, w["width"]))
        begin = w.add(w.mul(w.mul(block, w["width"]), steps), w.mul(w.sub(index, w.mul(block, w["width"])), 4))

        def step(k: SSAValue, state: Values) -> Values:
            ones = w.load_lanes(w["ones"], k, 4)
            inside = w.broadcast(w.bitcast(w.sub(w.constant(0, ones.type), ones), lanes(1, i32)), LANES)
            weights = w.bitcast(w.logical_and(w.xor(loaded(k, index), sign), inside), WEIGHTS)
            w.store_lanes(weights, w["output"], w.add(begin, w.mul(k, w["width"])))
            return [w.call(helpers["dot"], state[0], ones, weights)]

        total = w.loop(0, steps, 4, step, [w.constant(0, SUMS)])[0]
        w.store_lanes(w.add(w.mul(total, factor), bias), w["table"], index)

    w.each(0, w.mul(w["blocks"], w["width"]), LANES, group)


@divisible("run_count", "run_length")
@kernel(input=BYTES, weights=BYTES, ones=BYTES, offset=i32, **_TILES, **_HYBRID)
def convolve_hybrid(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int) -> None:
    """Compute sums over whole windows of bytes, scaled to floats."""
    _each_tile(w, _scaling(w), _dots(w, helpers, "dot", 4), rows, vectors, offset=bool(offset))


@divisible("run_count", "run_length")
@kernel_by_options(lambda options: {"input": SHORTS, "weights": SHORTS, **_TILES, **_requantising(options)})
def convolve_wide(w: Loops, helpers: Helpers, *, rows: int, vectors: int, long: int, split: int) -> None:
    """Compute sums over whole windows of 16-bit values, requantised to 16 bits."""
    pairs = _dots(w, helpers, "dot_pairs", 2)
    _each_tile(w, requantisation(w, helpers, LANES * vectors), pairs, rows, vectors, split=bool(split))


_STEPS = dict.fromkeys(("weight_step", "block_step", "first_weight", "first_result"), INDEX)


@divisible("run_count", "run_length")
@kernel(input=REALS, weights=REALS, bias=REALS, output=REALS, **_TILES, **_STEPS, **_LIMITS)
def convolve_reals(w: Loops, helpers: Helpers, *, rows: int, vectors: int, clamp: int) -> None:
    """Compute sums over whole windows of floats."""
    single = Multiplication(
        1,
        lambda place: w.broadcast(w.load(w["input"], place), LANES),
        lambda sums, x, weights: w.fused(x, weights, sums),
    )
    _each_tile(w, _floats(w, clamp), single, rows, vectors, strided=True)


@kernel(input=REALS, output=REALS, **dict.fromkeys(
    ("images", "height", "width", "rows", "columns", "taps", "run", "row_step", "step", "pitch"), INDEX))  # fmt: skip
def add_taps(w: Loops, helpers: Helpers) -> None:
    """Add ``taps`` runs of ``run`` floats per pixel to the result of a transposed convolution of ``height * width``.

    The runs of pixel ``(y, x)`` are added from ``y * row_step + x * step``, at distances of ``pitch``.
    """

    def pixel(first: SSAValue, y: SSAValue, x: SSAValue, place: SSAValue) -> None:
        target = w.add(first, w.add(w.mul(y, w["row_step"]), w.mul(x, w["step"])))
        source = w.mul(w.mul(place, w["taps"]), w["run"])

        def tap(number: SSAValue) -> None:
            begin, end = w.add(source, w.mul(number, w["run"])), w.add(target, w.mul(number, w["pitch"]))

            def vector(k: SSAValue) -> None:
                old = w.load_lanes(w["output"], w.add(end, k), LANES)
                total = w.add(old, w.load_lanes(w["input"], w.add(begin, k), LANES))
                w.store_lanes(first_lanes(w, w.sub(w["run"], k), total, old), w["output"], w.add(end, k))

            w.each(0, w["run"], LANES, vector)

        w.each(0, w["taps"], 1, tap)

    _each_pixel(w, pixel)


def _depthwise(w: Loops, a: Accumulator, rows: int, widen: Callable[[SSAValue, Attribute], SSAValue]) -> None:
    """Add products of integers in 32 bits. ``widen`` extends inputs. Weights are sign-extended."""
    each_window(
        w,
        a,
        lambda sums, x, weights: w.add(sums, w.mul(widen(x, SUMS), weights)),
        rows,
        weights=lambda place: w.widen(w.load_lanes(w["weights"], place, LANES), SUMS),
    )


@divisible("tap_count")
@kernel_by_options(lambda options: {"input": SHORTS if "long" in options else BYTES, "weights": SHORTS, **WINDOWS,
                                    **_requantising(options)})  # fmt: skip
def depthwise(w: Loops, helpers: Helpers, *, rows: int, long: int = 0) -> None:
    """Compute sums over each channel, requantised to the type of the input. Sums must fit into 32 bits."""
    widen = w.widen_unsigned if w["input"].type == BYTES else w.widen
    _depthwise(w, requantisation(w, helpers, LANES), rows, widen)


@divisible("tap_count")
@kernel(input=BYTES, weights=SHORTS, **WINDOWS, **_HYBRID)
def depthwise_hybrid(w: Loops, helpers: Helpers, *, rows: int) -> None:
    """Compute sums over each channel of bytes, scaled to floats."""
    _depthwise(w, _scaling(w), rows, w.widen_unsigned)


@divisible("tap_count")
@kernel(input=REALS, weights=REALS, bias=REALS, output=REALS, **WINDOWS, **_LIMITS)
def depthwise_reals(w: Loops, helpers: Helpers, *, rows: int, clamp: int) -> None:
    """Compute sums over each channel of floats."""
    each_window(
        w,
        _floats(w, clamp),
        lambda sums, x, weights: w.fused(x, weights, sums),
        rows,
        weights=lambda place: w.load_lanes(w["weights"], place, LANES),
    )


KINDS = ("float32", "uint8", "int16")
"""Stored element types. ``int8`` is stored as ``uint8``."""

MAX, AVERAGE, ROOT = range(3)  # ROOT is the root of the mean of squares

_REAL = lanes(LANES, f32)
_SIZES = dict.fromkeys(("images", "height", "width", "channels", "rows", "columns"), INDEX)


def _images(options: Options) -> Parameters:
    kind = KINDS[options["kind"]]
    type, bound = buffer(STORED[kind]), f32 if kind == "float32" else i32
    return {"input": type, "output": type, "low": bound, "high": bound}


@dataclass(frozen=True)
class _Pooling:
    start: SSAValue
    combine: Callable[[SSAValue, SSAValue], SSAValue]
    finish: Callable[[SSAValue, SSAValue], SSAValue]


def _float_pooling(w: Loops, how: int, clamp: int) -> _Pooling:
    """Return the combination of floats. A maximum ignores NaN."""
    limited = limit(w, clamp)
    if how == MAX:
        lowest = w.constant(float("-inf"), _REAL)
        return _Pooling(lowest, lambda state, x: larger(w, x, state), lambda state, _: limited(state))

    def add(state: SSAValue, x: SSAValue) -> SSAValue:
        return w.fused(x, x, state) if how == ROOT else w.add(state, x)

    def mean(state: SSAValue, taps: SSAValue) -> SSAValue:
        found = w.div(state, w.to_real(taps))
        return limited(w.function("sqrt", found) if how == ROOT else found)

    return _Pooling(w.constant(0.0, _REAL), add, mean)


def _code_pooling(w: Loops, how: int, element: Attribute, zero: int) -> _Pooling:
    """Return the combination of quantised values, stored with an offset of ``zero``.

    A mean is rounded to nearest, with halves away from zero, before the offset is added.
    """
    low, high = w["low"], w["high"]
    stored = lanes(LANES, element)
    if how == MAX:
        greater, less = (arith.MaxUIOp, arith.MinUIOp) if element == i8 else (arith.MaxSIOp, arith.MinSIOp)
        least, most = (w.broadcast(w.narrow(bound, element), LANES) for bound in (low, high))
        return _Pooling(least, lambda state, x: w.emit(greater(state, x)), lambda state, _: w.emit(less(state, most)))
    least, most = (w.broadcast(bound, LANES) for bound in (low, high))

    def mean(state: SSAValue, taps: SSAValue) -> SSAValue:
        state = w.sub(state, w.mul(taps, zero)) if zero else state
        sign = w.shift_right(state, 31)  # all bits are set for negative sums, from which half is subtracted
        half = w.sub(w.xor(w.shift_right(taps, 1), sign), sign)
        whole = w.add(w.div(w.add(state, half), taps), w.constant(zero, SUMS))
        return w.narrow(w.least(w.most(whole, least), most), stored)

    return _Pooling(w.constant(0, SUMS), lambda state, x: w.add(state, _whole(w, x)), mean)


def _pooling(w: Loops, how: int, kind: int, zero: int, clamp: int) -> _Pooling:
    if KINDS[kind] == "float32":
        return _float_pooling(w, how, clamp)
    return _code_pooling(w, how, STORED[KINDS[kind]], zero)


def _whole(w: Loops, value: SSAValue) -> SSAValue:
    return w.widen_unsigned(value, SUMS) if value.type == lanes(LANES, i8) else w.widen(value, SUMS)


@kernel_by_options(lambda options: {**_images(options), **WINDOWS})
def pool(w: Loops, helpers: Helpers, *, how: int, kind: int, zero: int, clamp: int, taps: int) -> None:
    """Compute pools of windows with ``taps`` elements, as in :func:`each_window`."""
    pooling = _pooling(w, how, kind, zero, clamp)
    count = w.constant(taps, SUMS)
    each_window(
        w,
        Accumulator(lambda _: pooling.start, lambda sums, *_: pooling.finish(sums[0], count)),
        lambda state, x, _: pooling.combine(state, x),
        in_blocks=KINDS[kind] == "float32" and how == AVERAGE,
    )


def _each_pixel(w: Loops, body: Callable[[SSAValue, SSAValue, SSAValue, SSAValue], None]) -> None:
    """Call ``body(first pixel of the image, row, column, result pixel)`` for every pixel of the result, in order."""

    def image(number: SSAValue) -> None:
        first = w.mul(w.mul(number, w["height"]), w["width"])

        def row(y: SSAValue) -> None:
            begin = w.mul(w.add(w.mul(number, w["rows"]), y), w["columns"])
            w.each(0, w["columns"], 1, lambda x: body(first, y, x, w.add(begin, x)))

        w.each(0, w["rows"], 1, row)

    w.each(0, w["images"], 1, image)


def _pair(w: Loops, table: str, index: SSAValue) -> tuple[SSAValue, SSAValue]:
    place = w.mul(index, 2)
    return w.to_index(w.load(w[table], place)), w.to_index(w.load(w[table], w.add(place, 1)))


@kernel_by_options(lambda options: {**_images(options), "ys": WORDS, "xs": WORDS, **_SIZES})
def pool_inside(w: Loops, helpers: Helpers, *, how: int, kind: int, zero: int) -> None:
    """Compute pools of windows clipped to the image. ``ys``, ``xs``: first and end index of each row and column."""
    pooling = _pooling(w, how, kind, zero, 1)

    def pixel(first: SSAValue, y: SSAValue, x: SSAValue, place: SSAValue) -> None:
        top, bottom = _pair(w, "ys", y)
        left, right = _pair(w, "xs", x)
        count = w.emit(arith.IndexCastOp(w.mul(w.sub(bottom, top), w.sub(right, left)), i32))
        taps = w.broadcast(count, LANES)

        def block(channel: SSAValue) -> None:
            def row(ky: SSAValue, outer: Sequence[SSAValue]) -> Sequence[SSAValue]:
                begin = w.add(first, w.mul(ky, w["width"]))

                def column(kx: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
                    source = w.add(w.mul(w.add(begin, kx), w["channels"]), channel)
                    return [pooling.combine(inner[0], w.load_lanes(w["input"], source, LANES))]

                return w.loop(left, right, 1, column, outer)

            found = w.loop(top, bottom, 1, row, [pooling.start])[0]
            target = w.add(w.mul(place, w["channels"]), channel)
            w.store_lanes(pooling.finish(found, taps), w["output"], target)

        w.each(0, w["channels"], LANES, block)

    _each_pixel(w, pixel)


def _interpolate(options: Options) -> Parameters:
    type = buffer(STORED[KINDS[options["kind"]]])
    weights = WORDS if options["fixed"] else REALS
    return {"input": type, "output": type, "ys": WORDS, "xs": WORDS, "wy": weights, "wx": weights, **_SIZES}


def _term(w: Loops, value: SSAValue, weights: Values, fixed: int) -> SSAValue:
    """Return a neighbour times its weights, in integers (16-bit values in 64 bits) if ``fixed``, else in floats."""
    element = scalar_of(value.type)
    if fixed and element == i16:
        long = lanes(LANES, i64)
        value, weights = w.widen(value, long), [w.widen(weight, long) for weight in weights]
    elif element != f32:
        value = _whole(w, value)
        value = w.sub(value, 128) if fixed else w.to_real(value)  # 8-bit values have an offset
    return reduce(w.mul, weights, value)


def _interpolated(w: Loops, total: SSAValue, element: Attribute, fixed: int) -> SSAValue:
    if element == f32:
        return total
    if fixed:
        bits, offset = (64, 0) if element == i16 else (32, 128)
        whole = w.shift_right(w.add(w.add(total, w.shift_right(total, bits - 1)), 1 << 19), 20)
        return w.narrow(w.add(whole, offset), lanes(LANES, element))
    total = w.add(total, 0.5) if element == i8 else w.function("roundeven", total)
    whole = w.intrinsic(f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", [total], SUMS)
    return w.narrow(whole, lanes(LANES, element))


@kernel_by_options(_interpolate)
def interpolate(w: Loops, helpers: Helpers, *, kind: int, fixed: int) -> None:
    """Interpolate between four neighbours, in the order and precision of numerics.resize.

    ``ys``, ``xs``: both neighbours of every row and column. ``wy``, ``wx``: weights of the first and the second
    neighbour. With ``fixed``, arithmetic is on integers and weights are in units of 1/1024.
    """
    element = STORED[KINDS[kind]]

    def pixel(first: SSAValue, y: SSAValue, x: SSAValue, place: SSAValue) -> None:
        ys, xs = _pair(w, "ys", y), _pair(w, "xs", x)
        vertical, horizontal = (
            [w.broadcast(w.load(w[name], w.add(w.mul(index, 2), i)), LANES) for i in range(2)]
            for name, index in (("wy", y), ("wx", x))
        )

        def block(channel: SSAValue) -> None:
            terms = []
            for j, i in ((0, 0), (1, 0), (0, 1), (1, 1)):
                source = w.add(first, w.add(w.mul(ys[j], w["width"]), xs[i]))
                value = w.load_lanes(w["input"], w.add(w.mul(source, w["channels"]), channel), LANES)
                terms.append(_term(w, value, [vertical[j], horizontal[i]], fixed))
            found = _interpolated(w, reduce(w.add, terms), element, fixed)
            w.store_lanes(found, w["output"], w.add(w.mul(place, w["channels"]), channel))

        w.each(0, w["channels"], LANES, block)

    _each_pixel(w, pixel)
