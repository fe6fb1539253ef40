"""Kernels of reductions along the middle of ``[outer, count, inner]``, and on rows: softmax, normalisation, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels import loops, registry
from odc_mlir.transforms.native.kernels.elementwise import KINDS
from odc_mlir.transforms.native.kernels.mathematics import (
    choose,
    clamped,
    exponential,
    larger,
    largest_lane,
    logarithm,
    rounded,
    size_of,
    small_integers,
    smaller,
)

_VECTOR = loops.lanes(registry.LANES, loops.f32)
_ONE = loops.lanes(1, loops.f32)

Step = Callable[[SSAValue, int, SSAValue], SSAValue]


def _over_row(
    w: loops.Loops, length: SSAValue, step: Step, start: SSAValue, join: Callable[[SSAValue], SSAValue]
) -> SSAValue:
    """Return the state after ``step(k, count, state)`` over a row: whole vectors, then the elements that are left.

    ``start`` is a vector; ``join`` makes a vector of one element of it.
    """
    whole = w.sub(length, w.logical_and(length, registry.LANES - 1))
    many = w.loop(0, whole, registry.LANES, lambda k, state: [step(k, registry.LANES, state[0])], [start])[0]
    return w.loop(whole, length, 1, lambda k, state: [step(k, 1, state[0])], [join(many)])[0]


def _each_chunk(w: loops.Loops, length: SSAValue, body: Callable[[SSAValue, int], None]) -> None:
    """Call ``body(k, count)`` for whole vectors of a row, then for the elements that are left."""
    whole = w.sub(length, w.logical_and(length, registry.LANES - 1))
    w.each(0, whole, registry.LANES, lambda k: body(k, registry.LANES))
    w.each(whole, length, 1, lambda k: body(k, 1))


def _sum_lanes(w: loops.Loops, many: SSAValue) -> SSAValue:
    return w.broadcast(w.reduce(many, "add"), 1)


@registry.kernel(input=loops.REALS, output=loops.REALS, rows=loops.INDEX, classes=loops.INDEX, beta=loops.f32)
def softmax_reals(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Softmax of floats along rows of ``classes``."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def load(name: str, k: SSAValue, count: int) -> SSAValue:
            return w.load_lanes(w[name], w.add(begin, k), count)

        def most(k: SSAValue, count: int, state: SSAValue) -> SSAValue:
            return larger(w, load("input", k, count), state)

        largest = _over_row(w, w["classes"], most, w.constant(_LOWEST, _VECTOR), lambda many: largest_lane(w, many))

        def add(k: SSAValue, count: int, state: SSAValue) -> SSAValue:
            below = w.emit(arith.SubfOp(load("input", k, count), w.broadcast(largest, count)))
            power = exponential(w, w.emit(arith.MulfOp(below, w.broadcast(w["beta"], count))))
            w.store_lanes(power, w["output"], w.add(begin, k))
            return w.emit(arith.AddfOp(state, power))

        total = _over_row(w, w["classes"], add, w.constant(0.0, _VECTOR), lambda many: _sum_lanes(w, many))

        def divide(k: SSAValue, count: int) -> None:
            share = w.emit(arith.DivfOp(load("output", k, count), w.broadcast(total, count)))
            w.store_lanes(share, w["output"], w.add(begin, k))

        _each_chunk(w, w["classes"], divide)

    w.each(0, w["rows"], 1, row)


@registry.kernel(input=loops.REALS, output=loops.REALS, rows=loops.INDEX, classes=loops.INDEX)
def log_softmax_reals(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Logarithm of softmax of floats along rows: ``x - max - log(sum(e^(x - max)))``."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def load(k: SSAValue, count: int) -> SSAValue:
            return w.load_lanes(w["input"], w.add(begin, k), count)

        def most(k: SSAValue, count: int, state: SSAValue) -> SSAValue:
            return larger(w, load(k, count), state)

        largest = _over_row(w, w["classes"], most, w.constant(_LOWEST, _VECTOR), lambda many: largest_lane(w, many))

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.emit(arith.AddfOp(state[0], exponential(w, w.emit(arith.SubfOp(load(k, 1), largest)))))]

        total = logarithm(w, w.loop(0, w["classes"], 1, add, [w.constant(0.0, _ONE)])[0])

        def give(k: SSAValue, count: int) -> None:
            below = w.emit(arith.SubfOp(load(k, count), w.broadcast(largest, count)))
            w.store_lanes(w.emit(arith.SubfOp(below, w.broadcast(total, count))), w["output"], w.add(begin, k))

        _each_chunk(w, w["classes"], give)

    w.each(0, w["rows"], 1, row)


@registry.kernel(input=loops.REALS, output=loops.REALS, rows=loops.INDEX, depth=loops.INDEX, least=loops.f32)
def l2_normalize_reals(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Rows of floats divided by the root of the sum of their squares, which is at least ``least``."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["depth"])

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            value = w.load_lanes(w["input"], w.add(begin, k), 1)
            return [w.fused(value, value, state[0])]

        total = w.loop(0, w["depth"], 1, add, [w.constant(0.0, _ONE)])[0]
        norm = larger(w, w.broadcast(w["least"], 1), w.intrinsic("llvm.sqrt.v1f32", [total], _ONE))

        def divide(k: SSAValue, count: int) -> None:
            place = w.add(begin, k)
            share = w.emit(arith.DivfOp(w.load_lanes(w["input"], place, count), w.broadcast(norm, count)))
            w.store_lanes(share, w["output"], place)

        _each_chunk(w, w["depth"], divide)

    w.each(0, w["rows"], 1, row)


def _code_softmax(
    w: loops.Loops,
    code: Callable[[SSAValue], SSAValue],
    least: int,
    term: Callable[[SSAValue], SSAValue],
    shares: Callable[[SSAValue], Callable[[SSAValue], SSAValue]],
) -> None:
    """Write a softmax of quantised values.

    ``term(distance)`` is the exponential at a distance below the largest value of the row, ``shares(total)`` gives the
    function from a distance to the result.
    """

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def most(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.most(state[0], code(w.add(begin, k)))]

        largest = w.loop(0, w["classes"], 1, most, [w.constant(least, loops.i32)])[0]

        def below(place: SSAValue) -> SSAValue:
            return w.to_index(w.sub(largest, code(place)))

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.add(state[0], w.widen(term(below(w.add(begin, k))), loops.i64))]

        share = shares(w.loop(0, w["classes"], 1, add, [w.constant(0, loops.i64)])[0])

        def give(k: SSAValue) -> None:
            place = w.add(begin, k)
            w.store(share(below(place)), w["output"], place)

        w.each(0, w["classes"], 1, give)

    w.each(0, w["rows"], 1, row)


# numerics.transcendental: 48/17 and -32/17 in Q2.
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540
_SUM_BITS = 12


def _product(w: loops.Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``srdhm`` of 32-bit numbers in 64 bits, where it cannot saturate."""
    return w.shift_right(w.add(w.mul(a, b), 1 << 30), 31)


def _leading_zeros(w: loops.Loops, total: SSAValue) -> SSAValue:
    """Return the leading zeros of a number as one of 32 bits."""
    return w.sub(w.intrinsic("llvm.ctlz.i64", [total, w.constant_bit(False)], loops.i64), 32)


def _reciprocal(w: loops.Loops, total: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Return numerics.transcendental.reciprocal of a sum in Q12, ``(r, leading zeros)``, in 64 bits."""
    zeros = _leading_zeros(w, total)
    normal = w.sub(w.shift_left(total, zeros), 1 << 31)
    half = w.shift_right(w.add(normal, 1 << 31), 1)
    v = w.add(_product(w, half, w.constant(_MINUS_32_OVER_17, loops.i64)), _48_OVER_17)
    for _ in range(3):
        step = _product(w, v, w.sub(w.constant(1 << 29, loops.i64), _product(w, half, v)))
        v = w.add(v, w.shift_left(step, 2))
    return w.least(w.shift_left(v, 1), (1 << 31) - 1), zeros


_SOFTMAX: dict[str, Attribute] = {"rows": loops.INDEX, "classes": loops.INDEX}


@registry.kernel(input=loops.BYTES, values=loops.WORDS, terms=loops.WORDS, output=loops.BYTES, **_SOFTMAX)
def softmax_codes(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Softmax of 8-bit values to a scale of 1/256, exactly numerics.softmax.

    ``values`` and ``terms`` are tables by distance: exponentials, and their terms in the sum.
    """

    def shares(total: SSAValue) -> Callable[[SSAValue], SSAValue]:
        inverse, zeros = _reciprocal(w, w.most(w.logical_and(total, 0xFFFFFFFF), 1))
        shift = w.least(w.sub(w.constant(_SUM_BITS + 31 - 8, loops.i64), zeros), 62)
        half = w.shift_right(w.shift_left(w.constant(1, loops.i64), shift), 1)

        def share(below: SSAValue) -> SSAValue:
            scaled = _product(w, w.widen(w.load(w["values"], below), loops.i64), inverse)
            return w.narrow(w.least(w.shift_right(w.add(scaled, half), shift), 255), loops.i8)

        return share

    _code_softmax(
        w,
        lambda place: w.widen_unsigned(w.load(w["input"], place), loops.i32),
        0,
        lambda below: w.load(w["terms"], below),
        shares,
    )


@registry.kernel(input=loops.SHORTS, terms=loops.SHORTS, inverses=loops.WORDS, output=loops.SHORTS, **_SOFTMAX)
def softmax_wide(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Softmax of 16-bit values to a scale of 1/32768: numerics.int16.

    ``terms`` is a table by distance, ``inverses`` one that is interpolated in steps of 128.
    """

    def term(below: SSAValue) -> SSAValue:
        return w.widen(w.load(w["terms"], below), loops.i32)

    def shares(total: SSAValue) -> Callable[[SSAValue], SSAValue]:
        total = w.least(w.most(total, 1), (1 << 31) - 1)
        zeros = _leading_zeros(w, total)
        normal = w.shift_right(w.add(w.shift_left(total, w.sub(zeros, 1)), 1 << 13), 14)
        position = w.least(w.most(w.sub(normal, (1 << 15) + (1 << 16)), -(1 << 15)), (1 << 15) - 1)
        entry = w.to_index(w.add(w.shift_right(position, 7), 256))
        base = w.load(w["inverses"], entry)
        slope = w.sub(w.load(w["inverses"], w.add(entry, 1)), base)
        part = w.mul(slope, w.narrow(w.logical_and(position, 127), loops.i32))
        inverse = w.add(base, w.shift_right(w.add(part, 64), 7))
        shift = w.narrow(w.sub(w.constant(31, loops.i64), zeros), loops.i32)
        half = w.shift_left(w.constant(1, loops.i32), w.sub(shift, 1))

        def share(below: SSAValue) -> SSAValue:
            scaled = w.shift_right(w.add(w.mul(term(below), inverse), half), shift)
            return w.narrow(w.least(w.most(scaled, 0), (1 << 15) - 1), loops.i16)

        return share

    _code_softmax(w, lambda place: w.widen(w.load(w["input"], place), loops.i32), -(1 << 15), term, shares)


_LOW, _HIGH = -128, 127
_OFFSET = 128  # of stored values

_Row = tuple[SSAValue, SSAValue, SSAValue]  # scale, its inverse, zero point as a float


def _extreme(w: loops.Loops, begin: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue], kind: str) -> SSAValue:
    """Return an extreme of the elements of a row and zero; ``combine(state, x)``."""

    def step(k: SSAValue, count: int, state: SSAValue) -> SSAValue:
        return combine(state, w.load_lanes(w["input"], w.add(begin, k), count))

    def join(many: SSAValue) -> SSAValue:
        return w.broadcast(w.reduce(many, kind), 1)

    return w.reduce(_over_row(w, w["depth"], step, w.constant(0.0, _VECTOR), join), kind)


def _symmetric(w: loops.Loops, begin: SSAValue) -> _Row:
    def largest_size(state: SSAValue, x: SSAValue) -> SSAValue:
        return w.emit(arith.MaximumfOp(state, size_of(w, x)))

    zero, one, high = (w.constant(value, loops.f32) for value in (0.0, 1.0, float(_HIGH)))
    largest = _extreme(w, begin, largest_size, "maximumf")
    flat = w.emit(arith.CmpfOp(largest, zero, "oeq"))
    scale = w.select(flat, one, w.emit(arith.DivfOp(largest, high)))
    inverse = w.select(flat, zero, w.emit(arith.DivfOp(high, largest)))
    return scale, inverse, zero


def _asymmetric(w: loops.Loops, begin: SSAValue) -> _Row:
    zero = w.constant(0.0, loops.f32)
    ends = [
        w.emit(arith.ExtFOp(_extreme(w, begin, combine, kind), loops.f64))
        for combine, kind in (
            (lambda a, b: w.emit(arith.MinimumfOp(a, b)), "minimumf"),
            (lambda a, b: w.emit(arith.MaximumfOp(a, b)), "maximumf"),
        )
    ]
    flat = w.emit(arith.CmpfOp(ends[0], ends[1], "oeq"))

    def number(value: float) -> SSAValue:
        return w.constant(value, loops.f64)

    steps = w.emit(arith.DivfOp(w.emit(arith.SubfOp(ends[1], ends[0])), number(float(_HIGH - _LOW))))
    step = w.select(flat, number(1.0), steps)
    shares = [w.emit(arith.DivfOp(end, step)) for end in ends]
    from_least, from_most = (
        w.emit(arith.SubfOp(number(float(limit)), share)) for limit, share in zip((_LOW, _HIGH), shares, strict=True)
    )
    sizes = [
        w.emit(arith.AddfOp(number(float(limit)), w.intrinsic("llvm.fabs.f64", [share], loops.f64)))
        for limit, share in zip((-_LOW, _HIGH), shares, strict=True)
    ]
    nearer = w.emit(arith.CmpfOp(sizes[0], sizes[1], "olt"))
    zeros = rounded(w, w.select(nearer, from_least, from_most))
    zeros = _within(w, zeros, number(float(_LOW)), number(float(_HIGH)))
    scale = w.emit(arith.TruncFOp(step, loops.f32))
    inverse = w.select(flat, zero, w.emit(arith.DivfOp(w.constant(1.0, loops.f32), scale)))
    return scale, inverse, w.select(flat, zero, w.emit(arith.TruncFOp(zeros, loops.f32)))


def _within(w: loops.Loops, value: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
    """Limit ``value`` to ``[low, high]``; NaN becomes 0."""
    return choose(w, "eq", value, value, clamped(w, value, low, high), w.constant(0.0, value.type))


@registry.kernel(
    input=loops.REALS, output=loops.BYTES, scales=loops.REALS, zeros=loops.WORDS, rows=loops.INDEX, depth=loops.INDEX
)
def quantize_rows(w: loops.Loops, helpers: registry.Helpers, *, asymmetric: int) -> None:
    """8-bit values of every row by its own range, and its scale and zero point; values have an offset of 128."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["depth"])
        scale, inverse, zero = (_asymmetric if asymmetric else _symmetric)(w, begin)
        w.store(scale, w["scales"], number)
        raised = w.intrinsic("llvm.fptosi.sat.i32.f32", [zero], loops.i32)
        w.store(w.add(raised, _OFFSET), w["zeros"], number)
        factors, offset = w.broadcast(inverse, registry.LANES), w.broadcast(zero, registry.LANES)
        type = _VECTOR
        low = w.constant(float(_LOW if asymmetric else -_HIGH), type)
        high = w.constant(float(_HIGH), type)

        def chunk(k: SSAValue) -> None:
            place = w.add(begin, k)
            scaled = w.emit(arith.MulfOp(w.load_lanes(w["input"], place, registry.LANES), factors))
            if asymmetric:
                value = rounded(w, w.emit(arith.AddfOp(scaled, offset)))
            else:
                half = w.intrinsic(f"llvm.copysign.v{registry.LANES}f32", [w.constant(0.5, type), scaled], type)
                value = w.intrinsic(f"llvm.trunc.v{registry.LANES}f32", [w.emit(arith.AddfOp(scaled, half))], type)
            codes = small_integers(w, _within(w, value, low, high))
            w.store_lanes(w.narrow(w.add(codes, _OFFSET), registry.CODES), w["output"], place)

        w.each(0, w["depth"], registry.LANES, chunk)

    w.each(0, w["rows"], 1, row)


Combine = Callable[[loops.Loops, SSAValue, SSAValue], SSAValue]

_INDICES = dict.fromkeys(("outer", "count", "inner"), loops.INDEX)
_LOWEST, _HIGHEST = float("-inf"), float("inf")

# How reals are combined, and the first value. Maxima and minima pass over NaN.
_REALS: dict[str, tuple[Combine, float]] = {
    "SUM": (lambda w, a, b: w.emit(arith.AddfOp(a, b)), 0.0),
    "REDUCE_PROD": (lambda w, a, b: w.emit(arith.MulfOp(a, b)), 1.0),
    "REDUCE_MAX": (lambda w, a, b: larger(w, b, a), _LOWEST),
    "REDUCE_MIN": (lambda w, a, b: smaller(w, b, a), _HIGHEST),
}
NAMES = tuple(_REALS)
TYPES = ("float32", "int16", "int32", "int64", "uint8")  # the last one also stands for truth values and raised codes


def _whole(w: loops.Loops, name: str, bits: int, unsigned: bool) -> tuple[Combine, int]:
    """Return the combination of integers, and its first value."""
    least, most = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    larger, smaller = (arith.MaxUIOp, arith.MinUIOp) if unsigned else (arith.MaxSIOp, arith.MinSIOp)
    found: dict[str, tuple[Combine, int]] = {
        "SUM": (lambda w, a, b: w.add(a, b), 0),
        "REDUCE_PROD": (lambda w, a, b: w.mul(a, b), 1),
        "REDUCE_MAX": (lambda w, a, b: w.emit(larger(a, b)), least),
        "REDUCE_MIN": (lambda w, a, b: w.emit(smaller(a, b)), most if not unsigned else -1),
    }
    return found[name]


def _each_column(w: loops.Loops, body: Callable[[SSAValue, SSAValue], None], step: int = 1) -> None:
    """Call ``body(first element, place of the result)`` for every ``step`` elements of ``outer`` and ``inner``."""

    def outer(number: SSAValue) -> None:
        begin, target = w.mul(w.mul(number, w["count"]), w["inner"]), w.mul(number, w["inner"])
        w.each(0, w["inner"], step, lambda index: body(w.add(begin, index), w.add(target, index)))

    w.each(0, w["outer"], 1, outer)


def _parameters(options: registry.Options) -> registry.Parameters:
    type = loops.buffer(KINDS[TYPES[options["kind"]]])
    return {"input": type, "output": type, **_INDICES}


@registry.kernel_by_options(_parameters)
def reduce(w: loops.Loops, helpers: registry.Helpers, *, name: int, kind: int, wide: int) -> None:
    """Combine all elements along the middle, 16 neighbours of ``inner`` at a time if ``wide``."""
    dtype = TYPES[kind]
    element = KINDS[dtype]
    start: float
    if dtype == "float32":
        combine, start = _REALS[NAMES[name]]
    else:
        bits = {"uint8": 8, "int16": 16, "int32": 32, "int64": 64}[dtype]
        combine, start = _whole(w, NAMES[name], bits, dtype == "uint8")
    first = w.constant(start, loops.lanes(registry.LANES, element) if wide else element)

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: SSAValue) -> SSAValue:
            place = w.add(begin, w.mul(k, w["inner"]))
            value = w.load_lanes(w["input"], place, registry.LANES) if wide else w.load(w["input"], place)
            return combine(w, state, value)

        if dtype == "float32" and NAMES[name] == "SUM":
            found = w.sum_in_blocks(w.constant(0), w["count"], 1, step, first)
        else:
            found = w.loop(0, w["count"], 1, lambda k, state: [step(k, state[0])], [first])[0]
        (w.store_lanes if wide else w.store)(found, w["output"], target)

    _each_column(w, column, registry.LANES if wide else 1)


@registry.kernel(input=loops.REALS, output=loops.REALS, outer=loops.INDEX, count=loops.INDEX, scale=loops.f32)
def sum_rows(w: loops.Loops, helpers: registry.Helpers) -> None:
    """Sum of every row of floats times ``scale``, 16 elements at a time."""
    whole = w.sub(w["count"], w.logical_and(w["count"], registry.LANES - 1))

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["count"])

        def step(k: SSAValue, total: SSAValue, count: int) -> SSAValue:
            return w.emit(arith.AddfOp(total, w.load_lanes(w["input"], w.add(begin, k), count)))

        zero = w.constant(0.0, loops.lanes(registry.LANES, loops.f32))
        many = w.sum_in_blocks(
            w.constant(0), whole, registry.LANES, lambda k, total: step(k, total, registry.LANES), zero
        )
        first = w.broadcast(w.reduce(many, "add"), 1)
        one = w.loop(whole, w["count"], 1, lambda k, state: [step(k, state[0], 1)], [first])[0]
        total = w.emit(arith.MulfOp(one, w.broadcast(w["scale"], 1)))
        w.store_lanes(total, w["output"], number)

    w.each(0, w["outer"], 1, row)


def _extreme_parameters(options: registry.Options) -> registry.Parameters:
    return {
        "input": loops.buffer(KINDS[TYPES[options["kind"]]]),
        "output": loops.buffer(loops.i64 if options["long"] else loops.i32),
        **_INDICES,
    }


@registry.kernel_by_options(_extreme_parameters)
def place_of_extreme(w: loops.Loops, helpers: registry.Helpers, *, largest: int, kind: int, long: int) -> None:
    """Place of the first of the largest (or smallest) elements; NaN is passed over."""
    dtype = TYPES[kind]

    def better(value: SSAValue, best: SSAValue) -> SSAValue:
        if dtype != "float32":
            sign = "u" if dtype == "uint8" else "s"
            return w.compare(value, f"{sign}{'gt' if largest else 'lt'}", best)
        found = w.emit(arith.CmpfOp(value, best, "ugt" if largest else "ult"))
        is_number = w.emit(arith.CmpfOp(value, value, "ord"))
        return w.emit(arith.AndIOp(found, is_number))

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            value = w.load(w["input"], w.add(begin, w.mul(k, w["inner"])))
            wins = better(value, state[0])
            return [w.select(wins, value, state[0]), w.select(wins, k, state[1])]

        found = w.loop(1, w["count"], 1, step, [w.load(w["input"], begin), w.constant(0)])[1]
        w.store(w.emit(arith.IndexCastOp(found, loops.i64 if long else loops.i32)), w["output"], target)

    _each_column(w, column)


@registry.kernel_by_options(_parameters)
def running_sum(w: loops.Loops, helpers: registry.Helpers, *, kind: int, exclusive: int, reverse: int) -> None:
    """Running sums along the middle."""
    element = KINDS[TYPES[kind]]
    real = TYPES[kind] == "float32"
    zero = w.constant(0.0 if real else 0, element)

    def column(begin: SSAValue, _: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            position = w.sub(w.sub(w["count"], 1), k) if reverse else k
            place = w.add(begin, w.mul(position, w["inner"]))
            value = w.load(w["input"], place)
            total = w.emit(arith.AddfOp(state[0], value)) if real else w.add(state[0], value)
            w.store(state[0] if exclusive else total, w["output"], place)
            return [total]

        w.loop(0, w["count"], 1, step, [zero])

    _each_column(w, column)
