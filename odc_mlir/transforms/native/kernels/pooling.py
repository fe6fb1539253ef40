"""Pools of unsigned codes: 16 channels of one window at a time, with places and taps as in depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.helpers import CODES, LANES, SUMS
from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, WORDS, Loops, i8, i32

_WINDOWS: dict[str, Attribute] = {
    "input": BYTES,
    "places": WORDS,
    "taps": WORDS,
    "output": BYTES,
    "pixels": INDEX,
    "channels": INDEX,
    "blocks": INDEX,
    "tap_count": INDEX,
    "low": i32,
    "high": i32,
}


def _each_window(
    w: Loops, first: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue], finish: Callable[[SSAValue], SSAValue]
) -> None:
    """Combine the taps of every window, from ``first`` on, and write what ``finish`` makes of that."""

    def block(position: SSAValue) -> None:
        channel = w.mul(w.sub(w.sub(w["blocks"], 1), position), LANES)

        def window(pixel: SSAValue) -> None:
            begin = w.add(w.to_index(w.load(w["places"], pixel)), channel)

            def tap(index: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
                distance = w.to_index(w.load(w["taps"], index))
                return [combine(state[0], w.load_lanes(w["input"], w.add(begin, distance), LANES))]

            found = w.loop(0, w["tap_count"], 1, tap, [first])[0]
            w.store_lanes(finish(found), w["output"], w.add(w.mul(pixel, w["channels"]), channel))

        w.each(0, w["pixels"], 1, window)

    w.each(0, w["blocks"], 1, block)


@kernel(**_WINDOWS)
def max_pool(w: Loops, helpers: Helpers) -> None:
    """The largest code of each window, clamped."""
    low, high = (w.broadcast(w.narrow(w[name], i8), LANES) for name in ("low", "high"))

    def larger(a: SSAValue, b: SSAValue) -> SSAValue:
        return w.emit(arith.MaxUIOp(a, b))

    _each_window(w, low, larger, lambda code: w.emit(arith.MinUIOp(code, high)))


@kernel(**_WINDOWS)
def average_pool(w: Loops, helpers: Helpers, *, count: int, zero: int) -> None:
    """Means of ``count`` codes less ``zero``, rounded to nearest, halves away from zero; plus ``zero``, clamped."""
    low, high = (w.broadcast(w[name], LANES) for name in ("low", "high"))

    def add(sums: SSAValue, codes: SSAValue) -> SSAValue:
        return w.add(sums, w.widen_unsigned(codes, SUMS))

    def mean(sums: SSAValue) -> SSAValue:
        half = w.constant(count // 2, SUMS)
        if zero == 0:
            rounded = w.add(sums, half)
        else:
            sign = w.shift_right(sums, 31)  # all bits set below zero: there, half is taken off
            rounded = w.add(sums, w.sub(w.xor(half, sign), sign))
        whole = w.emit(arith.DivSIOp(rounded, w.constant(count, SUMS)))
        return w.narrow(w.least(w.most(w.add(whole, w.constant(zero, SUMS)), low), high), CODES)

    _each_window(w, w.constant(-zero * count, SUMS), add, mean)
