"""Real activations that are quantised on the fly: numerics.hybrid, step by step in the same precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.helpers import CODES, LANES
from odc_mlir.transforms.native.kernels.mathematics import choose, clamped, small_integers
from odc_mlir.transforms.native.kernels.registry import Helpers, kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, REALS, WORDS, Loops, f32, f64, i32, lanes

_LOW, _HIGH = -128, 127
_RAISED = 128


def _rounded(w: Loops, value: SSAValue, suffix: str) -> SSAValue:
    """The nearest integer, halves away from zero."""

    def function(name: str, *operands: SSAValue) -> SSAValue:
        return w.intrinsic(f"llvm.{name}.{suffix}", operands, value.type)

    whole = function("trunc", value)
    rest = function("fabs", w.emit(arith.SubfOp(value, whole)))
    up = function("trunc", w.emit(arith.AddfOp(rest, rest)))
    return w.emit(arith.AddfOp(whole, function("copysign", up, value)))


def _within(w: Loops, value: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
    """Limit ``value`` to ``[low, high]``; NaN becomes 0."""
    return choose(w, "eq", value, value, clamped(w, value, low, high), w.constant(0.0, value.type))


def _over_row(
    w: Loops, begin: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue], start: SSAValue, kind: str
) -> SSAValue:
    """A row's elements combined: whole vectors, then what is left; from the number ``start`` on."""
    whole = w.sub(w["depth"], w.logical_and(w["depth"], LANES - 1))

    def over(count: int, first: SSAValue, end: SSAValue, state: SSAValue) -> SSAValue:
        def step(k: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [combine(inner[0], w.load_lanes(w["input"], w.add(begin, k), count))]

        return w.loop(first, end, count, step, [state])[0]

    many = over(LANES, w.constant(0), whole, w.broadcast(start, LANES))
    one = w.broadcast(w.reduce(many, kind), 1)
    return w.reduce(over(1, whole, w["depth"], one), kind)


_Row = tuple[SSAValue, SSAValue, SSAValue]  # scale, what reals are multiplied by, zero point as a real


def _symmetric(w: Loops, begin: SSAValue) -> _Row:
    def larger(state: SSAValue, value: SSAValue) -> SSAValue:
        size = w.intrinsic(f"llvm.fabs.v{_count(value)}f32", [value], value.type)
        return w.emit(arith.MaximumfOp(state, size))

    zero, one, high = (w.constant(value, f32) for value in (0.0, 1.0, float(_HIGH)))
    largest = _over_row(w, begin, larger, zero, "maximumf")
    flat = w.emit(arith.CmpfOp(largest, zero, "oeq"))
    scale = w.select(flat, one, w.emit(arith.DivfOp(largest, high)))
    inverse = w.select(flat, zero, w.emit(arith.DivfOp(high, largest)))
    return scale, inverse, zero


def _asymmetric(w: Loops, begin: SSAValue) -> _Row:
    zero = w.constant(0.0, f32)
    ends = [
        w.emit(arith.ExtFOp(_over_row(w, begin, lambda a, b, op=op: w.emit(op(a, b)), zero, kind), f64))  # type: ignore[misc]
        for op, kind in ((arith.MinimumfOp, "minimumf"), (arith.MaximumfOp, "maximumf"))
    ]
    flat = w.emit(arith.CmpfOp(ends[0], ends[1], "oeq"))

    def number(value: float) -> SSAValue:
        return w.constant(value, f64)

    steps = w.emit(arith.DivfOp(w.emit(arith.SubfOp(ends[1], ends[0])), number(float(_HIGH - _LOW))))
    step = w.select(flat, number(1.0), steps)
    shares = [w.emit(arith.DivfOp(end, step)) for end in ends]
    from_least, from_most = (
        w.emit(arith.SubfOp(number(float(limit)), share)) for limit, share in zip((_LOW, _HIGH), shares, strict=True)
    )
    sizes = [
        w.emit(arith.AddfOp(number(float(limit)), w.intrinsic("llvm.fabs.f64", [share], f64)))
        for limit, share in zip((-_LOW, _HIGH), shares, strict=True)
    ]
    nearer = w.emit(arith.CmpfOp(sizes[0], sizes[1], "olt"))
    zeros = _rounded(w, w.select(nearer, from_least, from_most), "f64")
    zeros = _within(w, zeros, number(float(_LOW)), number(float(_HIGH)))
    scale = w.emit(arith.TruncFOp(step, f32))
    inverse = w.select(flat, zero, w.emit(arith.DivfOp(w.constant(1.0, f32), scale)))
    return scale, inverse, w.select(flat, zero, w.emit(arith.TruncFOp(zeros, f32)))


def _count(value: SSAValue) -> int:
    assert isinstance(value.type, VectorType)
    return int(value.type.get_shape()[0])


@kernel(input=REALS, output=BYTES, scales=REALS, zeros=WORDS, rows=INDEX, depth=INDEX)
def quantize_rows(w: Loops, helpers: Helpers, *, asymmetric: int) -> None:
    """Codes of every row by its own range, 128 higher than they are; its scale, and its zero point, higher as well."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["depth"])
        scale, inverse, zero = (_asymmetric if asymmetric else _symmetric)(w, begin)
        w.store(scale, w["scales"], number)
        raised = w.intrinsic("llvm.fptosi.sat.i32.f32", [zero], i32)
        w.store(w.add(raised, _RAISED), w["zeros"], number)
        factors, offset = w.broadcast(inverse, LANES), w.broadcast(zero, LANES)
        type = lanes(LANES, f32)
        low = w.constant(float(_LOW if asymmetric else -_HIGH), type)
        high = w.constant(float(_HIGH), type)

        def chunk(k: SSAValue) -> None:
            place = w.add(begin, k)
            scaled = w.emit(arith.MulfOp(w.load_lanes(w["input"], place, LANES), factors))
            if asymmetric:
                value = _rounded(w, w.emit(arith.AddfOp(scaled, offset)), f"v{LANES}f32")
            else:
                half = w.intrinsic(f"llvm.copysign.v{LANES}f32", [w.constant(0.5, type), scaled], type)
                value = w.intrinsic(f"llvm.trunc.v{LANES}f32", [w.emit(arith.AddfOp(scaled, half))], type)
            codes = small_integers(w, _within(w, value, low, high))
            w.store_lanes(w.narrow(w.add(codes, _RAISED), CODES), w["output"], place)

        w.each(0, w["depth"], LANES, chunk)

    w.each(0, w["rows"], 1, row)
