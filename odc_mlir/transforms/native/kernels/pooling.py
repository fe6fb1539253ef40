"""Kernels of pools over images, and interpolation of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, llvm
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import INDEX, REALS, WORDS, Loops, buffer, f32, i8, i16, i32, i64, lanes
from odc_mlir.transforms.native.kernels.mathematics import larger
from odc_mlir.transforms.native.kernels.products import WINDOWS, Accumulator, each_window, limit
from odc_mlir.transforms.native.kernels.registry import LANES, SUMS, Helpers, Options, Parameters, kernel_by_options

KINDS = ("float32", "uint8", "int16")
"""Element types in their stored form; ``uint8`` is also the one of ``int8``."""

MAX, AVERAGE, ROOT = range(3)  # the last one: the root of the mean of squares

_ELEMENTS: dict[str, Attribute] = {"float32": f32, "uint8": i8, "int16": i16}
_REAL = lanes(LANES, f32)
_LONG = lanes(LANES, i64)
_SIZES = dict.fromkeys(("images", "height", "width", "channels", "rows", "columns"), INDEX)


def _images(options: Options) -> Parameters:
    """Return the parameters of pools."""
    kind = KINDS[options["kind"]]
    type, bound = buffer(_ELEMENTS[kind]), f32 if kind == "float32" else i32
    return {"input": type, "output": type, "low": bound, "high": bound}


@dataclass(frozen=True)
class _Pooling:
    """The combination of a window: ``finish(state, taps)`` for as many elements as the vector ``taps`` says."""

    start: SSAValue
    combine: Callable[[SSAValue, SSAValue], SSAValue]
    finish: Callable[[SSAValue, SSAValue], SSAValue]


def _float_pooling(w: Loops, how: int, clamp: int) -> _Pooling:
    """Return the combination of floats. A maximum passes over NaN."""
    limited = limit(w, clamp)
    if how == MAX:
        lowest = w.constant(float("-inf"), _REAL)
        return _Pooling(lowest, lambda state, x: larger(w, x, state), lambda state, _: limited(state))

    def add(state: SSAValue, x: SSAValue) -> SSAValue:
        return w.fused(x, x, state) if how == ROOT else w.emit(arith.AddfOp(state, x))

    def mean(state: SSAValue, taps: SSAValue) -> SSAValue:
        found = w.emit(arith.DivfOp(state, w.emit(llvm.SIToFPOp(taps, _REAL))))
        return limited(w.intrinsic(f"llvm.sqrt.v{LANES}f32", [found], _REAL) if how == ROOT else found)

    return _Pooling(w.constant(0.0, _REAL), add, mean)


def _code_pooling(w: Loops, how: int, element: Attribute, zero: int) -> _Pooling:
    """Return the combination of quantised values, stored with an offset of ``zero``.

    A mean is rounded to nearest before the offset is added, halves away from zero.
    """
    low, high = w["low"], w["high"]
    stored = lanes(LANES, element)
    if how == MAX:
        greater, less = (arith.MaxUIOp, arith.MinUIOp) if element == i8 else (arith.MaxSIOp, arith.MinSIOp)
        least, most = (w.broadcast(w.narrow(bound, element), LANES) for bound in (low, high))
        return _Pooling(least, lambda state, x: w.emit(greater(state, x)), lambda state, _: w.emit(less(state, most)))
    least, most = (w.broadcast(bound, LANES) for bound in (low, high))

    def mean(state: SSAValue, taps: SSAValue) -> SSAValue:
        state = w.sub(state, w.mul(taps, w.constant(zero, SUMS))) if zero else state
        sign = w.shift_right(state, 31)  # all bits set below zero: there, half is taken off
        half = w.sub(w.xor(w.shift_right(taps, 1), sign), sign)
        whole = w.add(w.emit(arith.DivSIOp(w.add(state, half), taps)), w.constant(zero, SUMS))
        return w.narrow(w.least(w.most(whole, least), most), stored)

    return _Pooling(w.constant(0, SUMS), lambda state, x: w.add(state, _whole(w, x)), mean)


def _pooling(w: Loops, how: int, kind: int, zero: int, clamp: int) -> _Pooling:
    if KINDS[kind] == "float32":
        return _float_pooling(w, how, clamp)
    return _code_pooling(w, how, _ELEMENTS[KINDS[kind]], zero)


def _whole(w: Loops, value: SSAValue) -> SSAValue:
    """Return stored quantised values as 32-bit numbers."""
    return w.widen_unsigned(value, SUMS) if value.type == lanes(LANES, i8) else w.widen(value, SUMS)


@kernel_by_options(lambda options: {**_images(options), **WINDOWS})
def pool(w: Loops, helpers: Helpers, *, how: int, kind: int, zero: int, clamp: int, taps: int) -> None:
    """Pools of windows that all have ``taps`` elements; see :func:`each_window`."""
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
    """Pools of the parts of windows inside the image: ``ys`` and ``xs`` have the ends of each row and column."""
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
    type = buffer(_ELEMENTS[KINDS[options["kind"]]])
    weights = WORDS if options["fixed"] else REALS
    return {"input": type, "output": type, "ys": WORDS, "xs": WORDS, "wy": weights, "wx": weights, **_SIZES}


@dataclass(frozen=True)
class _Interpolation:
    """The sum of four neighbours: in integers (16-bit values in 64 bits) or floats. 8-bit values have an offset."""

    w: Loops
    element: Attribute
    fixed: bool

    def term(self, value: SSAValue, *weights: SSAValue) -> SSAValue:
        """Return a neighbour times its weights."""
        w = self.w
        if self.fixed and self.element == i16:
            value, weights = w.widen(value, _LONG), tuple(w.widen(weight, _LONG) for weight in weights)
        elif self.element != f32:
            value = _whole(w, value)
            value = w.sub(value, w.constant(128, SUMS)) if self.fixed else w.emit(llvm.SIToFPOp(value, _REAL))
        for weight in weights:
            value = w.mul(value, weight) if self.fixed else w.emit(arith.MulfOp(value, weight))
        return value

    def sum(self, terms: Sequence[SSAValue]) -> SSAValue:
        """Return the sum of terms, in their order."""
        total = terms[0]
        for term in terms[1:]:
            total = self.w.add(total, term) if self.fixed else self.w.emit(arith.AddfOp(total, term))
        return total

    def result(self, value: SSAValue) -> SSAValue:
        """Return a sum as stored."""
        w = self.w
        if self.element == f32:
            return value
        if self.fixed:
            bits, offset = (64, 0) if self.element == i16 else (32, 128)
            whole = w.shift_right(w.add(w.add(value, w.shift_right(value, bits - 1)), 1 << 19), 20)
            return w.narrow(w.add(whole, offset), lanes(LANES, self.element))
        if self.element == i8:
            value = w.emit(arith.AddfOp(value, w.constant(0.5, _REAL)))
        else:
            value = w.intrinsic(f"llvm.roundeven.v{LANES}f32", [value], _REAL)
        whole = w.intrinsic(f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", [value], SUMS)
        return w.narrow(whole, lanes(LANES, self.element))


@kernel_by_options(_interpolate)
def interpolate(w: Loops, helpers: Helpers, *, kind: int, fixed: int) -> None:
    """Interpolation between four neighbours, in the order and precision of numerics.resize.

    ``ys`` and ``xs`` have both neighbours of every row and column, ``wy`` and ``wx`` the weight of the first and of the
    second. ``fixed``: integers, weights in units of 1/1024.
    """
    how = _Interpolation(w, _ELEMENTS[KINDS[kind]], bool(fixed))

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
                terms.append(how.term(value, vertical[j], horizontal[i]))
            w.store_lanes(how.result(how.sum(terms)), w["output"], w.add(w.mul(place, w["channels"]), channel))

        w.each(0, w["channels"], LANES, block)

    _each_pixel(w, pixel)
