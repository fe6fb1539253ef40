"""Kernels that reduce the middle axis of ``[outer, count, inner]``, and on rows: softmax, normalisation, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, f64, i1, i8, i16, i32, i64
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import (
    BYTES,
    INDEX,
    REALS,
    SHORTS,
    STORED,
    WORDS,
    Loops,
    Number,
    buffer,
    lanes,
)
from odc_mlir.transforms.native.kernels.mathematics import (
    choose,
    clamped,
    exponential,
    first_lanes,
    folded,
    larger,
    logarithm,
    rounded,
    small_integers,
    smaller,
)
from odc_mlir.transforms.native.kernels.registry import (
    CODES,
    LANES,
    Helpers,
    Options,
    Parameters,
    kernel,
    kernel_by_options,
)

_VECTOR = lanes(LANES, f32)
_LOWEST, _HIGHEST = float("-inf"), float("inf")

Step = Callable[[SSAValue, SSAValue], SSAValue]


class _Row:
    """Row of ``length`` floats from ``begin``, processed as vectors. The last vector may reach beyond the row.

    Stores overwrite the beginning of the next row, which must be computed later.
    """

    def __init__(self, w: Loops, begin: SSAValue, length: SSAValue) -> None:
        self.w, self.begin, self.length = w, begin, length

    def load(self, k: SSAValue, name: str = "input") -> SSAValue:
        return self.w.load_lanes(self.w[name], self.w.add(self.begin, k), LANES)

    def store(self, value: SSAValue, k: SSAValue) -> None:
        self.w.store_lanes(value, self.w["output"], self.w.add(self.begin, k))

    def over(self, step: Step, start: float, combine: Step) -> SSAValue:
        """Return the state after all calls of ``step(k, state)``. ``combine`` reduces a vector to one element."""
        w, whole = self.w, self._whole()
        many = w.loop(0, whole, LANES, lambda k, state: [step(k, state[0])], [w.constant(start, _VECTOR)])[0]
        return self._finished(whole, step, many, combine)

    def sum(self, term: Step, element: Attribute = f32) -> SSAValue:
        """Return the last state of ``state = term(x, state)``, summed over the elements. The first state is 0."""
        w, whole = self.w, self._whole()
        zero = w.constant(0.0, lanes(LANES, element))

        def step(k: SSAValue, state: SSAValue) -> SSAValue:
            return term(self.load(k), state)

        return self._finished(whole, step, w.sum_in_blocks(w.constant(0), whole, LANES, step, zero), w.add)

    def _whole(self) -> SSAValue:
        return self.w.sub(self.length, self.w.logical_and(self.length, LANES - 1))

    def _finished(self, whole: SSAValue, step: Step, state: SSAValue, combine: Step) -> SSAValue:
        """Call ``step`` for the elements after ``whole``, less than a vector, and combine the elements of the state."""

        def rest(k: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [first_lanes(self.w, self.w.sub(self.length, k), step(k, states[0]), states[0])]

        return folded(self.w, self.w.loop(whole, self.length, LANES, rest, [state])[0], combine)

    def largest(self) -> SSAValue:
        w = self.w
        return self.over(lambda k, state: larger(w, self.load(k), state), _LOWEST, lambda a, b: larger(w, a, b))

    def each(self, body: Callable[[SSAValue], SSAValue]) -> None:
        """Store ``body(k)`` for every vector from ``k``."""
        self.w.each(0, self.length, LANES, lambda k: self.store(body(k), k))


def _each_row(w: Loops, length: str, body: Callable[[_Row], None]) -> None:
    w.each(0, w["rows"], 1, lambda number: body(_Row(w, w.mul(number, w[length]), w[length])))


@kernel(input=REALS, output=REALS, rows=INDEX, classes=INDEX, beta=f32)
def softmax_reals(w: Loops, helpers: Helpers) -> None:
    """Compute softmax of floats along rows of ``classes``."""

    def body(row: _Row) -> None:
        largest, beta = w.broadcast(row.largest(), LANES), w.broadcast(w["beta"], LANES)

        def add(k: SSAValue, state: SSAValue) -> SSAValue:
            power = exponential(w, w.mul(w.sub(row.load(k), largest), beta))
            row.store(power, k)
            return w.add(state, power)

        total = w.broadcast(row.over(add, 0.0, w.add), LANES)
        row.each(lambda k: w.div(row.load(k, "output"), total))

    _each_row(w, "classes", body)


@kernel(input=REALS, output=REALS, rows=INDEX, classes=INDEX)
def log_softmax_reals(w: Loops, helpers: Helpers) -> None:
    """Compute the logarithm of softmax of floats along rows: ``x - max - log(sum(e^(x - max)))``."""

    def body(row: _Row) -> None:
        largest = w.broadcast(row.largest(), LANES)
        powers = row.sum(lambda x, state: w.add(state, exponential(w, w.sub(x, largest))))
        total = w.broadcast(logarithm(w, powers), LANES)
        row.each(lambda k: w.sub(w.sub(row.load(k), largest), total))

    _each_row(w, "classes", body)


@kernel(input=REALS, output=REALS, rows=INDEX, depth=INDEX, least=f32)
def l2_normalize_reals(w: Loops, helpers: Helpers) -> None:
    """Divide each row of floats by the L2 norm of the row, or by ``least`` if the norm is smaller."""

    def body(row: _Row) -> None:
        total = row.sum(lambda x, state: w.fused(x, x, state))
        norm = w.broadcast(larger(w, w.broadcast(w["least"], 1), w.function("sqrt", total)), LANES)
        row.each(lambda k: w.div(row.load(k), norm))

    _each_row(w, "depth", body)


@kernel(input=REALS, gamma=REALS, output=REALS, rows=INDEX, depth=INDEX, share=f64, epsilon=f64)
def rms_normalize_reals(w: Loops, helpers: Helpers) -> None:
    """Compute ``x / sqrt(share * sum(x^2) + epsilon) * gamma`` for every row, in double precision."""

    def wide(value: SSAValue) -> SSAValue:
        return w.emit(arith.ExtFOp(value, lanes(LANES, f64)))

    def body(row: _Row) -> None:
        total = row.sum(lambda x, state: w.fused(wide(x), wide(x), state), f64)
        mean = w.fused(total, w.broadcast(w["share"], 1), w.broadcast(w["epsilon"], 1))
        inverse = w.broadcast(w.div(w.constant(1.0, lanes(1, f64)), w.function("sqrt", mean)), LANES)

        def give(k: SSAValue) -> SSAValue:
            factor = w.mul(wide(w.load_lanes(w["gamma"], k, LANES)), inverse)
            return w.emit(arith.TruncFOp(w.mul(wide(row.load(k)), factor), _VECTOR))

        row.each(give)

    _each_row(w, "depth", body)


def _limited(w: Loops, value: SSAValue) -> SSAValue:
    return w.least(w.most(value, -(1 << 15)), (1 << 15) - 1)


def _times(w: Loops, value: SSAValue, index: int) -> SSAValue:
    q, left, mask, half, right = (w.load(w["factors"], w.constant(5 * index + i)) for i in range(5))
    product = _product(w, w.widen(w.narrow(w.shift_left(value, left), i32), i64), q)
    return w.shift_right(w.add(product, w.add(w.logical_and(w.shift_right(product, 63), mask), half)), right)


def _look_up(w: Loops, name: str, code: SSAValue) -> SSAValue:
    entry = w.to_index(w.add(w.shift_right(code, 7), 256))
    base, following = (w.widen(w.load(w[name], place), i64) for place in (entry, w.add(entry, 1)))
    return w.add(base, w.shift_right(w.add(w.mul(w.sub(following, base), w.logical_and(code, 127)), 64), 7))


_OF_RMS = {**dict.fromkeys(("normaliser", "coarse", "fine", "gamma"), SHORTS), "factors": buffer(i64),
           **dict.fromkeys(("zero", "widening", "out_zero", "low", "high"), i64),
           "rows": INDEX, "depth": INDEX}  # fmt: skip


@kernel_by_options(
    lambda options: {**dict.fromkeys(("input", "output"), SHORTS if options["wide"] else BYTES), **_OF_RMS}
)
def rms_normalize_codes(w: Loops, helpers: Helpers, *, wide: int, scaled: int) -> None:
    """Divide rows of codes by their root mean squares, equal to numerics.normalization (``scaled``: times gamma).

    A factor in ``factors`` has a multiplier, a left shift, the mask that rounds halves from zero, half, a right shift.
    """

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["depth"])

        def centred(k: SSAValue) -> SSAValue:
            code = (w.widen if wide else w.widen_unsigned)(w.load(w["input"], w.add(begin, k)), i64)
            return _limited(w, w.mul(w.sub(code, w["zero"]), w["widening"]))

        def total(step: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
            return w.loop(0, w["depth"], 1, lambda k, state: [step(k, state[0])], [w.constant(0, i64)])[0]

        def add_largest(k: SSAValue, state: SSAValue) -> SSAValue:
            code = centred(k)
            return w.most(state, w.most(code, w.sub(w.constant(0, i64), code)))

        t = _look_up(w, "normaliser", _limited(w, total(add_largest)))

        def normal(k: SSAValue) -> SSAValue:
            return _limited(w, _times(w, w.mul(centred(k), t), 0))

        def add_square(k: SSAValue, state: SSAValue) -> SSAValue:
            code = normal(k)
            return w.add(state, _limited(w, _times(w, w.mul(code, code), 1)))

        squares, root = total(add_square), w.constant(0, i64)
        for name, index in (("coarse", 2), ("fine", 4)):
            mean = _limited(w, w.sub(_times(w, squares, index), 1 << 15))
            added = _limited(w, w.sub(_times(w, w.mul(t, t), index + 1), 1 << 15))
            root = _limited(w, w.add(root, _look_up(w, name, _limited(w, w.add(w.add(mean, 1 << 15), added)))))

        def give(k: SSAValue) -> None:
            y = _times(w, w.mul(normal(k), root), 6)
            if scaled:
                y = _times(w, w.mul(_limited(w, y), w.widen(w.load(w["gamma"], k), i64)), 7)
            code = w.least(w.most(w.add(y, w["out_zero"]), w["low"]), w["high"])
            w.store(w.narrow(code, i16 if wide else i8), w["output"], w.add(begin, k))

        w.each(0, w["depth"], 1, give)

    w.each(0, w["rows"], 1, row)


def _code_softmax(
    w: Loops,
    code: Callable[[SSAValue], SSAValue],
    least: int,
    term: Callable[[SSAValue], SSAValue],
    shares: Callable[[SSAValue], Callable[[SSAValue], SSAValue]],
) -> None:
    """Write a softmax of quantised values.

    The distance of a value is the largest value of the row minus the value. ``term(distance)`` is the exponential, and
    ``shares(total)`` returns the function that maps distances to results.
    """

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["classes"])

        def most(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.most(state[0], code(w.add(begin, k)))]

        largest = w.loop(0, w["classes"], 1, most, [w.constant(least, i32)])[0]

        def below(place: SSAValue) -> SSAValue:
            return w.to_index(w.sub(largest, code(place)))

        def add(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return [w.add(state[0], w.widen(term(below(w.add(begin, k))), i64))]

        share = shares(w.loop(0, w["classes"], 1, add, [w.constant(0, i64)])[0])

        def give(k: SSAValue) -> None:
            place = w.add(begin, k)
            w.store(share(below(place)), w["output"], place)

        w.each(0, w["classes"], 1, give)

    w.each(0, w["rows"], 1, row)


# 48/17 and -32/17 in Q2, as in numerics.transcendental.
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540
_SUM_BITS = 12


def _product(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``srdhm``, the rounding doubling high product, of 32-bit numbers in 64 bits, where it cannot saturate."""
    return w.shift_right(w.add(w.mul(a, b), 1 << 30), 31)


def _leading_zeros(w: Loops, total: SSAValue) -> SSAValue:
    return w.sub(w.intrinsic("llvm.ctlz.i64", [total, w.constant(0, i1)], i64), 32)


def _reciprocal(w: Loops, total: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Return ``(r, leading zeros)`` of a sum in Q12 in 64 bits, like numerics.transcendental.reciprocal."""
    zeros = _leading_zeros(w, total)
    normal = w.sub(w.shift_left(total, zeros), 1 << 31)
    half = w.shift_right(w.add(normal, 1 << 31), 1)
    v = w.add(_product(w, half, w.constant(_MINUS_32_OVER_17, i64)), _48_OVER_17)
    for _ in range(3):
        step = _product(w, v, w.sub(w.constant(1 << 29, i64), _product(w, half, v)))
        v = w.add(v, w.shift_left(step, 2))
    return w.least(w.shift_left(v, 1), (1 << 31) - 1), zeros


_SOFTMAX: dict[str, Attribute] = {"rows": INDEX, "classes": INDEX}


@kernel(input=BYTES, values=WORDS, terms=WORDS, output=BYTES, **_SOFTMAX)
def softmax_codes(w: Loops, helpers: Helpers) -> None:
    """Compute softmax of 8-bit values with a result scale of 1/256, equal to numerics.softmax.

    ``values``, ``terms``: tables by distance of exponentials, and of the terms that they add to the sum.
    """

    def shares(total: SSAValue) -> Callable[[SSAValue], SSAValue]:
        inverse, zeros = _reciprocal(w, w.most(w.logical_and(total, 0xFFFFFFFF), 1))
        shift = w.least(w.sub(w.constant(_SUM_BITS + 31 - 8, i64), zeros), 62)
        half = w.shift_right(w.shift_left(w.constant(1, i64), shift), 1)

        def share(below: SSAValue) -> SSAValue:
            scaled = _product(w, w.widen(w.load(w["values"], below), i64), inverse)
            return w.narrow(w.least(w.shift_right(w.add(scaled, half), shift), 255), i8)

        return share

    _code_softmax(
        w,
        lambda place: w.widen_unsigned(w.load(w["input"], place), i32),
        0,
        lambda below: w.load(w["terms"], below),
        shares,
    )


@kernel(input=SHORTS, terms=SHORTS, inverses=WORDS, output=SHORTS, **_SOFTMAX)
def softmax_wide(w: Loops, helpers: Helpers) -> None:
    """Compute softmax of 16-bit values with a result scale of 1/32768, equal to numerics.int16.

    ``terms``: table of exponentials by distance. ``inverses``: reciprocals, interpolated in steps of 128.
    """

    def term(below: SSAValue) -> SSAValue:
        return w.widen(w.load(w["terms"], below), i32)

    def shares(total: SSAValue) -> Callable[[SSAValue], SSAValue]:
        total = w.least(w.most(total, 1), (1 << 31) - 1)
        zeros = _leading_zeros(w, total)
        normal = w.shift_right(w.add(w.shift_left(total, w.sub(zeros, 1)), 1 << 13), 14)
        position = w.least(w.most(w.sub(normal, (1 << 15) + (1 << 16)), -(1 << 15)), (1 << 15) - 1)
        inverse = w.narrow(_look_up(w, "inverses", position), i32)
        shift = w.narrow(w.sub(w.constant(31, i64), zeros), i32)
        half = w.shift_left(w.constant(1, i32), w.sub(shift, 1))

        def share(below: SSAValue) -> SSAValue:
            scaled = w.shift_right(w.add(w.mul(term(below), inverse), half), shift)
            return w.narrow(w.least(w.most(scaled, 0), (1 << 15) - 1), i16)

        return share

    _code_softmax(w, lambda place: w.widen(w.load(w["input"], place), i32), -(1 << 15), term, shares)


_LOW, _HIGH = -128, 127
_OFFSET = 128  # offset of stored values

_Scaling = tuple[SSAValue, SSAValue, SSAValue]  # scale, its inverse, zero point as a float


def _extreme(w: Loops, row: _Row, combine: Step) -> SSAValue:
    return w.only(row.over(lambda k, state: combine(state, row.load(k)), 0.0, combine))


def _symmetric(w: Loops, row: _Row) -> _Scaling:
    zero, one, high = (w.constant(value, f32) for value in (0.0, 1.0, float(_HIGH)))
    largest = _extreme(w, row, lambda state, x: w.most(state, w.function("fabs", x)))
    flat = w.compare(largest, "oeq", zero)
    scale = w.select(flat, one, w.div(largest, high))
    inverse = w.select(flat, zero, w.div(high, largest))
    return scale, inverse, zero


def _asymmetric(w: Loops, row: _Row) -> _Scaling:
    zero = w.constant(0.0, f32)
    least, most = _extreme(w, row, w.least), _extreme(w, row, w.most)
    flat = w.compare(least, "oeq", most)
    extent, *ends = (w.emit(arith.ExtFOp(real, f64)) for real in (w.sub(most, least), least, most))
    step = w.select(flat, w.constant(1.0, f64), w.div(extent, float(_HIGH - _LOW)))
    shares = [w.div(end, step) for end in ends]
    from_least, from_most = (
        w.sub(w.constant(limit, f64), share) for limit, share in zip((_LOW, _HIGH), shares, strict=True)
    )
    sizes = [
        w.add(w.constant(limit, f64), w.function("fabs", share))
        for limit, share in zip((-_LOW, _HIGH), shares, strict=True)
    ]
    zeros = rounded(w, w.select(w.compare(sizes[0], "olt", sizes[1]), from_least, from_most))
    zeros = _within(w, zeros, float(_LOW), float(_HIGH))
    scale = w.emit(arith.TruncFOp(step, f32))
    inverse = w.select(flat, zero, w.div(w.constant(1.0, f32), scale))
    return scale, inverse, w.select(flat, zero, w.emit(arith.TruncFOp(zeros, f32)))


def _within(w: Loops, value: SSAValue, low: Number, high: Number) -> SSAValue:
    return choose(w, "eq", value, value, clamped(w, value, low, high), 0.0)


@kernel(input=REALS, output=BYTES, scales=REALS, zeros=WORDS, rows=INDEX, depth=INDEX)
def quantize_rows(w: Loops, helpers: Helpers, *, asymmetric: int) -> None:
    """Quantise to 8 bits, with a scale and a zero point for each row. Values are stored with an offset of 128."""

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["depth"])
        scale, inverse, zero = (_asymmetric if asymmetric else _symmetric)(w, _Row(w, begin, w["depth"]))
        w.store(scale, w["scales"], number)
        raised = w.intrinsic("llvm.fptosi.sat.i32.f32", [zero], i32)
        w.store(w.add(raised, _OFFSET), w["zeros"], number)
        factors, offset = w.broadcast(inverse, LANES), w.broadcast(zero, LANES)

        def chunk(k: SSAValue) -> None:
            place = w.add(begin, k)
            scaled = w.mul(w.load_lanes(w["input"], place, LANES), factors)
            if asymmetric:
                value = w.add(rounded(w, scaled), offset)
            else:
                value = w.function("trunc", w.add(scaled, w.function("copysign", w.constant(0.5, _VECTOR), scaled)))
            codes = small_integers(w, _within(w, value, float(_LOW if asymmetric else -_HIGH), float(_HIGH)))
            w.store_lanes(w.narrow(w.add(codes, _OFFSET), CODES), w["output"], place)

        w.each(0, w["depth"], LANES, chunk)

    w.each(0, w["rows"], 1, row)


Combine = Callable[[SSAValue, SSAValue], SSAValue]

_INDICES = dict.fromkeys(("outer", "count", "inner"), INDEX)
NAMES = ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")
TYPES = ("float32", "int16", "int32", "int64", "uint8")  # uint8 also holds booleans, and int8 with an offset of 128


def _combination(w: Loops, name: str, dtype: str) -> tuple[Combine, float]:
    """Return the function that combines elements, and its initial value. Extremes of floats ignore NaN."""
    if name == "SUM":
        return w.add, 0
    if name == "REDUCE_PROD":
        return w.mul, 1
    largest = name == "REDUCE_MAX"
    if dtype == "float32":
        extreme = larger if largest else smaller
        return lambda a, b: extreme(w, b, a), _LOWEST if largest else _HIGHEST
    if dtype == "uint8":
        unsigned = arith.MaxUIOp if largest else arith.MinUIOp
        return lambda a, b: w.emit(unsigned(a, b)), 0 if largest else -1
    lowest = np.iinfo(dtype).min
    return (w.most, lowest) if largest else (w.least, -1 - lowest)


def _each_column(w: Loops, body: Callable[[SSAValue, SSAValue], None], step: int = 1) -> None:
    """Call ``body(index of the first element, index of the result)`` for every ``step`` columns of the middle axis."""

    def outer(number: SSAValue) -> None:
        begin, target = w.mul(w.mul(number, w["count"]), w["inner"]), w.mul(number, w["inner"])
        w.each(0, w["inner"], step, lambda index: body(w.add(begin, index), w.add(target, index)))

    w.each(0, w["outer"], 1, outer)


def _parameters(options: Options) -> Parameters:
    type = buffer(STORED[TYPES[options["kind"]]])
    return {"input": type, "output": type, **_INDICES}


@kernel_by_options(_parameters)
def reduce(w: Loops, helpers: Helpers, *, name: int, kind: int, wide: int) -> None:
    """Combine all elements along the middle axis, with ``wide`` for 16 neighbours at a time."""
    dtype = TYPES[kind]
    combine, start = _combination(w, NAMES[name], dtype)
    first = w.constant(start, lanes(LANES, STORED[dtype]) if wide else STORED[dtype])

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: SSAValue) -> SSAValue:
            place = w.add(begin, w.mul(k, w["inner"]))
            return combine(state, w.load_lanes(w["input"], place, LANES) if wide else w.load(w["input"], place))

        if dtype == "float32" and NAMES[name] == "SUM":
            found = w.sum_in_blocks(w.constant(0), w["count"], 1, step, first)
        else:
            found = w.loop(0, w["count"], 1, lambda k, state: [step(k, state[0])], [first])[0]
        (w.store_lanes if wide else w.store)(found, w["output"], target)

    _each_column(w, column, LANES if wide else 1)


@kernel(input=REALS, output=REALS, rows=INDEX, count=INDEX, scale=f32)
def sum_rows(w: Loops, helpers: Helpers) -> None:
    """Compute the sum of every row of floats times ``scale``."""

    def row(number: SSAValue) -> None:
        total = _Row(w, w.mul(number, w["count"]), w["count"]).sum(lambda x, state: w.add(state, x))
        w.store_lanes(w.mul(total, w.broadcast(w["scale"], 1)), w["output"], number)

    w.each(0, w["rows"], 1, row)


@kernel_by_options(lambda options: {**_parameters(options), "output": buffer(i64 if options["long"] else i32)})
def place_of_extreme(w: Loops, helpers: Helpers, *, largest: int, kind: int, long: int) -> None:
    """Return the index of the first largest or smallest element along the middle axis. NaN does not count."""
    dtype, order = TYPES[kind], "gt" if largest else "lt"

    def better(value: SSAValue, best: SSAValue) -> SSAValue:
        if dtype != "float32":
            return w.compare(value, f"{'u' if dtype == 'uint8' else 's'}{order}", best)
        return w.logical_and(w.compare(value, f"u{order}", best), w.compare(value, "ord", value))

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            value = w.load(w["input"], w.add(begin, w.mul(k, w["inner"])))
            wins = better(value, state[0])
            return [w.select(wins, value, state[0]), w.select(wins, k, state[1])]

        found = w.loop(1, w["count"], 1, step, [w.load(w["input"], begin), w.constant(0)])[1]
        w.store(w.emit(arith.IndexCastOp(found, i64 if long else i32)), w["output"], target)

    _each_column(w, column)


@kernel_by_options(_parameters)
def running_sum(w: Loops, helpers: Helpers, *, kind: int, exclusive: int, reverse: int) -> None:
    """Compute running sums along the middle axis."""
    zero = w.constant(0, STORED[TYPES[kind]])

    def column(begin: SSAValue, _: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            position = w.sub(w.sub(w["count"], 1), k) if reverse else k
            place = w.add(begin, w.mul(position, w["inner"]))
            total = w.add(state[0], w.load(w["input"], place))
            w.store(state[0] if exclusive else total, w["output"], place)
            return [total]

        w.loop(0, w["count"], 1, step, [zero])

    _each_column(w, column)
