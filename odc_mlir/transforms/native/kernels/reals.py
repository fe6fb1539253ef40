"""Kernels on float32: products by tiles of registers, windows, and operators that treat every element alike.

Sums are added up in another order than the host's, with fused multiplications; results differ by roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.mathematics import OPERATIONS, clamped, exponential, larger, largest_lane
from odc_mlir.transforms.native.kernels.pairs import each_pair
from odc_mlir.transforms.native.kernels.registry import Helpers, divisible, kernel
from odc_mlir.transforms.native.lowering.loops import INDEX, REALS, WORDS, Loops, f32, lanes

VECTOR = lanes(LANES, f32)

Finish = Callable[[SSAValue], SSAValue]


def _limit(w: Loops, clamp: int) -> Finish:
    """Return the function that limits results to the fused activation's bounds, if ``clamp``."""
    if not clamp:
        return lambda value: value
    low, high = (w.broadcast(w[name], LANES) for name in ("low", "high"))
    return lambda value: clamped(w, value, low, high)


@divisible("run_count", "run_length")
@kernel(
    input=REALS,
    weights=REALS,
    bias=REALS,
    places=WORDS,
    runs=WORDS,
    output=REALS,
    pixels=INDEX,
    channels=INDEX,
    blocks=INDEX,
    run_count=INDEX,
    run_length=INDEX,
    weight_step=INDEX,
    block_step=INDEX,
    first_weight=INDEX,
    first_result=INDEX,
    low=f32,
    high=f32,
)
def convolve_reals(w: Loops, helpers: Helpers, *, rows: int, vectors: int, clamp: int) -> None:
    """As ``convolve`` for codes: ``rows`` pixels by ``16 * vectors`` channels at a time.

    ``weight_step`` elements lie between the weights of neighbouring inputs, ``block_step`` between those of
    neighbouring blocks of channels: packed weights, or a matrix as it is. ``bias`` is padded to whole blocks.
    """
    width = LANES * vectors
    limit = _limit(w, clamp)
    last = w.sub(w["pixels"], rows)

    def block(position: SSAValue) -> None:
        number = w.sub(w.sub(w["blocks"], 1), position)
        first_channel = w.mul(number, width)
        first_weight = w.add(w["first_weight"], w.mul(number, w["block_step"]))

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            places = [w.to_index(w.load(w["places"], w.add(start, i))) for i in range(rows)]
            bias = [w.load_lanes(w["bias"], w.add(first_channel, v * LANES), LANES) for v in range(vectors)]

            def run(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["runs"], index))
                begins = [w.add(place, distance) for place in places]

                def step(k: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
                    weight, sums = inner[0], inner[1:]
                    factors = [w.load_lanes(w["weights"], w.add(weight, v * LANES), LANES) for v in range(vectors)]
                    result = []
                    for i in range(rows):
                        x = w.broadcast(w.load(w["input"], w.add(begins[i], k)), LANES)
                        result += [w.fused(x, factors[v], sums[i * vectors + v]) for v in range(vectors)]
                    return [w.add(weight, w["weight_step"]), *result]

                return w.loop(0, w["run_length"], 1, step, state)

            sums = w.loop(0, w["run_count"], 1, run, [first_weight, *(bias * rows)])[1:]
            for i in range(rows):
                row = w.add(w.mul(w.add(start, i), w["channels"]), w.add(w["first_result"], first_channel))
                for v in range(vectors):
                    w.store_lanes(limit(sums[i * vectors + v]), w["output"], w.add(row, v * LANES))

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


_WINDOWS: dict[str, Attribute] = {
    "input": REALS,
    "places": WORDS,
    "taps": WORDS,
    "output": REALS,
    "pixels": INDEX,
    "channels": INDEX,
    "blocks": INDEX,
    "tap_count": INDEX,
    "low": f32,
    "high": f32,
}


def _each_window(
    w: Loops,
    rows: int,
    first: Callable[[SSAValue], SSAValue],
    combine: Callable[[Sequence[SSAValue], Sequence[SSAValue], SSAValue, SSAValue], Sequence[SSAValue]],
    finish: Finish,
) -> None:
    """Combine the taps of ``rows`` windows at a time for 16 channels, from ``first(channel)`` on.

    ``combine(state, values, tap, channel)`` gives the new state.
    """
    last = w.sub(w["pixels"], rows)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            begins = [w.add(w.to_index(w.load(w["places"], w.add(start, i))), channel) for i in range(rows)]

            def tap(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["taps"], index))
                values = [w.load_lanes(w["input"], w.add(begin, distance), LANES) for begin in begins]
                return combine(state, values, index, channel)

            found = w.loop(0, w["tap_count"], 1, tap, [first(channel)] * rows)
            for i, value in enumerate(found):
                place = w.add(w.mul(w.add(start, i), w["channels"]), channel)
                w.store_lanes(finish(value), w["output"], place)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


@divisible("tap_count")
@kernel(**_WINDOWS, weights=REALS, bias=REALS)
def depthwise_reals(w: Loops, helpers: Helpers, *, rows: int, clamp: int) -> None:
    """Sums of ``rows`` pixels by 16 channels; ``weights`` are ``[tap][channel]``, padded to whole blocks."""
    limit = _limit(w, clamp)
    padded = w.mul(w["blocks"], LANES)

    def combine(
        state: Sequence[SSAValue], values: Sequence[SSAValue], tap: SSAValue, channel: SSAValue
    ) -> Sequence[SSAValue]:
        factors = w.load_lanes(w["weights"], w.add(w.mul(tap, padded), channel), LANES)
        return [w.fused(value, factors, sums) for value, sums in zip(values, state, strict=True)]

    def first(channel: SSAValue) -> SSAValue:
        return w.load_lanes(w["bias"], channel, LANES)

    _each_window(w, rows, first, combine, limit)


@kernel(**_WINDOWS)
def average_reals(w: Loops, helpers: Helpers, *, count: int, clamp: int) -> None:
    """The mean of each window of ``count`` elements."""
    limit = _limit(w, clamp)
    divisor, zero = w.constant(float(count), VECTOR), w.constant(0.0, VECTOR)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def window(pixel: SSAValue) -> None:
            begin = w.add(w.to_index(w.load(w["places"], pixel)), channel)

            def add(tap: SSAValue, total: SSAValue) -> SSAValue:
                place = w.add(begin, w.to_index(w.load(w["taps"], tap)))
                return w.emit(arith.AddfOp(total, w.load_lanes(w["input"], place, LANES)))

            total = w.sum_in_blocks(w.constant(0), w["tap_count"], 1, add, zero)
            mean = limit(w.emit(arith.DivfOp(total, divisor)))
            w.store_lanes(mean, w["output"], w.add(w.mul(pixel, w["channels"]), channel))

        w.each(0, w["pixels"], 1, window)

    w.each(0, w["blocks"], 1, block)


@kernel(**_WINDOWS)
def max_reals(w: Loops, helpers: Helpers, *, clamp: int) -> None:
    """The largest element of each window; NaN is passed over."""
    limit = _limit(w, clamp)
    lowest = w.constant(float("-inf"), VECTOR)

    def combine(
        state: Sequence[SSAValue], values: Sequence[SSAValue], tap: SSAValue, channel: SSAValue
    ) -> Sequence[SSAValue]:
        return [larger(w, values[0], state[0])]

    _each_window(w, 1, lambda _: lowest, combine, limit)


@kernel(a=REALS, b=REALS, output=REALS, rows=INDEX, columns=INDEX, low=f32, high=f32)
def binary_reals(w: Loops, helpers: Helpers, *, operation: int, a: int, b: int, clamp: int) -> None:
    """An operation of two operands, each read as ``a`` and ``b`` say: everywhere, by column, by row, or one number."""
    limit = _limit(w, clamp)
    compute = OPERATIONS[operation].write

    def chunk(place: SSAValue, operands: Sequence[SSAValue]) -> None:
        w.store_lanes(limit(compute(w, *operands)), w["output"], place)

    each_pair(w, a, b, chunk)


@kernel(input=REALS, output=REALS, count=INDEX)
def unary_reals(w: Loops, helpers: Helpers, *, operation: int) -> None:
    """A function of every element."""
    compute = OPERATIONS[operation].write

    def chunk(index: SSAValue) -> None:
        w.store_lanes(compute(w, w.load_lanes(w["input"], index, LANES)), w["output"], index)

    w.each(0, w["count"], LANES, chunk)


@kernel(input=REALS, output=REALS, rows=INDEX, classes=INDEX, beta=f32)
def softmax_reals(w: Loops, helpers: Helpers) -> None:
    """Softmax along rows of ``classes``: whole vectors, then what is left one by one."""
    whole = w.sub(w["classes"], w.logical_and(w["classes"], LANES - 1))

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def over(body: Callable[[SSAValue, int, SSAValue], SSAValue], start: float, combine: Finish) -> SSAValue:
            """``body(place, lanes, state)`` over the row; ``combine`` makes one of all lanes."""
            many = w.loop(
                0,
                whole,
                LANES,
                lambda k, state: [body(w.add(begin, k), LANES, state[0])],
                [w.constant(start, VECTOR)],
            )[0]
            one = combine(many)
            return w.loop(whole, w["classes"], 1, lambda k, state: [body(w.add(begin, k), 1, state[0])], [one])[0]

        def most(place: SSAValue, count: int, state: SSAValue) -> SSAValue:
            return larger(w, w.load_lanes(w["input"], place, count), state)

        largest = over(most, float("-inf"), lambda many: largest_lane(w, many))

        def add(place: SSAValue, count: int, state: SSAValue) -> SSAValue:
            below = w.emit(arith.SubfOp(w.load_lanes(w["input"], place, count), w.broadcast(largest, count)))
            power = exponential(w, w.emit(arith.MulfOp(below, w.broadcast(w["beta"], count))))
            w.store_lanes(power, w["output"], place)
            return w.emit(arith.AddfOp(state, power))

        total = over(add, 0.0, lambda many: w.broadcast(w.reduce(many, "add"), 1))

        def divide(place: SSAValue, count: int) -> None:
            share = w.emit(arith.DivfOp(w.load_lanes(w["output"], place, count), w.broadcast(total, count)))
            w.store_lanes(share, w["output"], place)

        w.each(0, whole, LANES, lambda k: divide(w.add(begin, k), LANES))
        w.each(whole, w["classes"], 1, lambda k: divide(w.add(begin, k), 1))

    w.each(0, w["rows"], 1, row)
