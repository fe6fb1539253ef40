"""Convolutions and fully connected layers on unsigned codes: tiles of sums held in registers.

``table`` holds ``FIELDS``, one number for each result channel, each field padded to whole blocks of channels. The last
tile of pixels is moved back so that it is full. Blocks of channels go from the last to the first and pixels upwards:
what a vector writes beyond the last channel is written again by who owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, llvm
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.helpers import LANES, SUMS, WEIGHTS
from odc_mlir.transforms.native.kernels.mathematics import clamped
from odc_mlir.transforms.native.kernels.registry import Helpers, divisible, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, REALS, WORDS, Loops, buffer, f32, i16, i32, lanes

FIELDS = ("bias", "q", "round", "half", "shift")

_LIMITS = ("zero", "low", "high")


_TILES: dict[str, Attribute] = {
    "input": BYTES,
    "weights": BYTES,
    "places": WORDS,
    "runs": WORDS,
    "ones": BYTES,
    "pixels": INDEX,
    "channels": INDEX,
    "blocks": INDEX,
    "run_count": INDEX,
    "run_length": INDEX,
    "offset": i32,
}
_TAPS: dict[str, Attribute] = {
    "input": BYTES,
    "weights": buffer(i16),
    "places": WORDS,
    "taps": WORDS,
    "pixels": INDEX,
    "channels": INDEX,
    "blocks": INDEX,
    "tap_count": INDEX,
}
_CODES: dict[str, Attribute] = {"table": WORDS, "output": BYTES, "zero": i32, "low": i32, "high": i32}
_REALS: dict[str, Attribute] = {
    "totals": WORDS,
    "factors": REALS,
    "bias": REALS,
    "scales": REALS,
    "zeros": WORDS,
    "owners": WORDS,
    "output": REALS,
    "low": f32,
    "high": f32,
}

Finish = Callable[[Sequence[SSAValue], int, SSAValue, SSAValue, SSAValue], None]
"""Writes ``rows`` by ``vectors`` sums: they, vectors, first channel, first pixel, and channels of whole blocks."""


@divisible("run_count", "run_length")
@kernel(**_TILES, **_CODES)
def convolve(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int) -> None:
    """Sums of ``rows`` pixels by ``16 * vectors`` channels at a time, requantised as they leave the registers.

    ``places`` has the offset of each pixel's first input byte, ``runs`` that of each run of neighbouring bytes from
    there on: a row of the window. A run has ``run_length``, a multiple of four; ``weights`` are packed
    ``[block of channels][run][four bytes][channel][4]`` and zero where the window is shorter than that.

    With the option ``offset`` the weights lack a common number, the parameter: it is multiplied by the sum of each
    pixel's inputs, which come from ``ones``: a run of weights of one, zero where the window is shorter.
    """
    _each_tile(w, helpers, rows, vectors, offset, w["table"], _to_codes(w, helpers))


@divisible("run_count", "run_length")
@kernel(**_TILES, **_REALS)
def convolve_hybrid(w: Loops, helpers: Helpers, *, rows: int, vectors: int, offset: int) -> None:
    """As ``convolve``, where results are reals: see :func:`_to_reals`."""
    _each_tile(w, helpers, rows, vectors, offset, None, _to_reals(w))


def _each_tile(
    w: Loops, helpers: Helpers, rows: int, vectors: int, offset: int, bias: SSAValue | None, finish: Finish
) -> None:
    """Sums of every tile, from ``bias`` or from zero on."""
    width = LANES * vectors
    missing = w.broadcast(w["offset"], LANES) if offset else None
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], width)
    block_bytes = w.mul(w.mul(w["run_count"], w["run_length"]), width)

    def block(position: SSAValue) -> None:
        number = w.sub(w.sub(w["blocks"], 1), position)
        first_weight, first_channel = w.mul(number, block_bytes), w.mul(number, width)

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            places = [w.to_index(w.load(w["places"], w.add(start, i))) for i in range(rows)]
            first = [
                w.constant(0, SUMS) if bias is None else w.load_lanes(bias, w.add(first_channel, v * LANES), LANES)
                for v in range(vectors)
            ]
            totals = [w.constant(0, SUMS)] * (rows if offset else 0)

            def run(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["runs"], index))
                begins = [w.add(place, distance) for place in places]

                def step(k: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
                    weight, sums, totals = inner[0], inner[1 : 1 + rows * vectors], inner[1 + rows * vectors :]
                    factors = [
                        w.load_lanes(w["weights"], w.add(weight, v * 4 * LANES), 4 * LANES) for v in range(vectors)
                    ]
                    one = _same_for_all(w, w.load_lanes(w["ones"], k, 4)) if offset else None
                    result, counted = [], []
                    for i in range(rows):
                        x = w.load_lanes(w["input"], w.add(begins[i], k), 4)
                        result += [w.call(helpers["dot"], sums[i * vectors + v], x, factors[v]) for v in range(vectors)]
                        if one is not None:
                            counted.append(w.call(helpers["dot"], totals[i], x, one))
                    return [w.add(weight, 4 * width), *result, *counted]

                return w.loop(0, w["run_length"], 4, step, state)

            state = w.loop(0, w["run_count"], 1, run, [first_weight, *(first * rows), *totals])[1:]
            sums = list(state[: rows * vectors])
            if missing is not None:
                for i, total in enumerate(state[rows * vectors :]):
                    share = w.mul(total, missing)
                    for v in range(vectors):
                        sums[i * vectors + v] = w.add(sums[i * vectors + v], share)
            finish(sums, vectors, first_channel, start, padded)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)


def _same_for_all(w: Loops, quad: SSAValue) -> SSAValue:
    """Four weights, the same for 16 channels."""
    return w.bitcast(w.broadcast(w.bitcast(quad, lanes(1, i32)), LANES), WEIGHTS)


def _to_codes(w: Loops, helpers: Helpers) -> Finish:
    """Requantise a tile of sums by the fields of ``table`` and write its codes."""
    limits = [w.broadcast(w[name], LANES) for name in _LIMITS]

    def finish(sums: Sequence[SSAValue], vectors: int, channel: SSAValue, start: SSAValue, padded: SSAValue) -> None:
        columns = [
            [
                w.load_lanes(w["table"], w.add(w.add(w.mul(padded, field), channel), v * LANES), LANES)
                for field in range(1, len(FIELDS))
            ]
            for v in range(vectors)
        ]
        for i in range(len(sums) // vectors):
            row = w.add(w.mul(w.add(start, i), w["channels"]), channel)
            for v in range(vectors):
                codes = w.call(helpers["requantize"], sums[i * vectors + v], *columns[v], *limits)
                w.store_lanes(codes, w["output"], w.add(row, v * LANES))

    return finish


def _to_reals(w: Loops) -> Finish:
    """Scale sums of real activations that were quantised on the fly: numerics.hybrid.

    ``owners`` says whose scale and zero point a pixel has; the zero point's share is that times ``totals``, the sums of
    weights. Then comes ``scale * factor``, the bias, and the fused activation.
    """
    real = lanes(LANES, f32)
    low, high = w.broadcast(w["low"], LANES), w.broadcast(w["high"], LANES)

    def finish(sums: Sequence[SSAValue], vectors: int, channel: SSAValue, start: SSAValue, padded: SSAValue) -> None:
        columns = [
            [w.load_lanes(w[name], w.add(channel, v * LANES), LANES) for name in ("totals", "factors", "bias")]
            for v in range(vectors)
        ]
        for i in range(len(sums) // vectors):
            pixel = w.add(start, i)
            owner = w.to_index(w.load(w["owners"], pixel))
            zero = w.broadcast(w.load(w["zeros"], owner), LANES)
            scale = w.broadcast(w.load(w["scales"], owner), LANES)
            row = w.add(w.mul(pixel, w["channels"]), channel)
            for v, (totals, factors, bias) in enumerate(columns):
                centred = w.sub(sums[i * vectors + v], w.mul(zero, totals))
                scaled = w.emit(
                    arith.MulfOp(w.emit(llvm.SIToFPOp(centred, real)), w.emit(arith.MulfOp(scale, factors)))
                )
                value = clamped(w, w.emit(arith.AddfOp(scaled, bias)), low, high)
                w.store_lanes(value, w["output"], w.add(row, v * LANES))

    return finish


@divisible("tap_count")
@kernel(**_TAPS, **_CODES)
def depthwise(w: Loops, helpers: Helpers, *, rows: int) -> None:
    """Sums of ``rows`` pixels by 16 channels at a time, one tap after the other.

    ``weights`` are ``[tap][channel]``; ``taps`` has the offset of each tap from the pixel's first byte.
    """
    _each_window(w, helpers, rows, w["table"], _to_codes(w, helpers))


@divisible("tap_count")
@kernel(**_TAPS, **_REALS)
def depthwise_hybrid(w: Loops, helpers: Helpers, *, rows: int) -> None:
    """As ``depthwise``, where results are reals: see :func:`_to_reals`."""
    _each_window(w, helpers, rows, None, _to_reals(w))


def _each_window(w: Loops, helpers: Helpers, rows: int, bias: SSAValue | None, finish: Finish) -> None:
    last = w.sub(w["pixels"], rows)
    padded = w.mul(w["blocks"], LANES)

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def tile(pixel: SSAValue) -> None:
            start = w.least(pixel, last)
            begins = [w.add(w.to_index(w.load(w["places"], w.add(start, i))), channel) for i in range(rows)]
            first = w.constant(0, SUMS) if bias is None else w.load_lanes(bias, channel, LANES)

            def tap(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["taps"], index))
                factors = w.load_lanes(w["weights"], w.add(w.mul(index, padded), channel), LANES)
                return [
                    w.call(helpers["tap"], sums, w.load_lanes(w["input"], w.add(begin, distance), LANES), factors)
                    for sums, begin in zip(state, begins, strict=True)
                ]

            sums = w.loop(0, w["tap_count"], 1, tap, [first] * rows)
            finish(sums, 1, channel, start, padded)

        w.each(0, w["pixels"], rows, tile)

    w.each(0, w["blocks"], 1, block)
