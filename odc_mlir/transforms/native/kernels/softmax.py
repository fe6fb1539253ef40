"""Softmax of unsigned codes, exact: numerics.softmax with its table of exponentials."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, WORDS, Loops, i8, i32, i64

# numerics.transcendental: 48/17 and -32/17 in Q2.
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540
_SUM_BITS = 12


def _product(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """``srdhm`` of 32-bit numbers held in 64 bits, where it cannot saturate."""
    return w.shift_right(w.add(w.mul(a, b), 1 << 30), 31)


def _reciprocal(w: Loops, total: SSAValue) -> tuple[SSAValue, SSAValue]:
    """numerics.transcendental.reciprocal of a sum in Q12: ``(r, leading zeros)``, in 64 bits."""
    zeros = w.sub(w.intrinsic("llvm.ctlz.i64", [total, w.constant_bit(False)], i64), 32)
    normal = w.sub(w.shift_left(total, zeros), 1 << 31)
    half = w.shift_right(w.add(normal, 1 << 31), 1)
    v = w.add(_product(w, half, w.constant(_MINUS_32_OVER_17, i64)), _48_OVER_17)
    for _ in range(3):
        step = _product(w, v, w.sub(w.constant(1 << 29, i64), _product(w, half, v)))
        v = w.add(v, w.shift_left(step, 2))
    limited = w.least(w.shift_left(v, 1), (1 << 31) - 1)
    return limited, zeros


@kernel(input=BYTES, values=WORDS, terms=WORDS, output=BYTES, rows=INDEX, classes=INDEX)
def softmax_codes(w: Loops, helpers: Helpers) -> None:
    """Codes of scale 1/256 for ``rows`` of ``classes`` codes; ``values`` and ``terms`` by distance from the maximum."""

    def code(index: SSAValue) -> SSAValue:
        return w.widen_unsigned(w.load(w["input"], index), i32)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def larger(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.most(state[0], code(w.add(begin, k)))]

        largest = w.loop(0, w["classes"], 1, larger, [w.constant(0, i32)])[0]

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            below = w.to_index(w.sub(largest, code(w.add(begin, k))))
            return [w.add(state[0], w.widen(w.load(w["terms"], below), i64))]

        total = w.loop(0, w["classes"], 1, add, [w.constant(0, i64)])[0]
        kept = w.most(w.logical_and(total, 0xFFFFFFFF), 1)
        inverse, zeros = _reciprocal(w, kept)
        shift = w.least(w.sub(w.constant(_SUM_BITS + 31 - 8, i64), zeros), 62)
        half = w.shift_right(w.shift_left(w.constant(1, i64), shift), 1)

        def divide(k: SSAValue) -> None:
            place = w.add(begin, k)
            below = w.to_index(w.sub(largest, code(place)))
            scaled = _product(w, w.widen(w.load(w["values"], below), i64), inverse)
            share = w.shift_right(w.add(scaled, half), shift)
            w.store(w.narrow(w.least(share, 255), i8), w["output"], place)

        w.each(0, w["classes"], 1, divide)

    w.each(0, w["rows"], 1, row)
