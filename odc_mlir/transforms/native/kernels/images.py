"""Images: pools whose windows end at the border, and interpolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, llvm
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.helpers import LANES, SUMS
from odc_mlir.transforms.native.kernels.mathematics import clamped, larger
from odc_mlir.transforms.native.kernels.registry import Helpers, Options, Parameters, kernel_by_options
from odc_mlir.transforms.native.lowering.loops import INDEX, REALS, WORDS, Loops, buffer, f32, i8, i16, i32, i64, lanes

KINDS = ("float32", "uint8", "int16")
"""Of elements as they are held; raised codes are unsigned."""

MAX, AVERAGE, ROOT = range(3)  # the last one: the root of the mean of squares

_ELEMENTS: dict[str, Attribute] = {"float32": f32, "uint8": i8, "int16": i16}
_REAL = lanes(LANES, f32)
_LONG = lanes(LANES, i64)
_SIZES = dict.fromkeys(("images", "height", "width", "channels", "rows", "columns"), INDEX)


def _pool(options: Options) -> Parameters:
    kind = KINDS[options["kind"]]
    type, limit = buffer(_ELEMENTS[kind]), f32 if kind == "float32" else i32
    return {"input": type, "output": type, "ys": WORDS, "xs": WORDS, **_SIZES, "low": limit, "high": limit}


def _each_pixel(w: Loops, body: Callable[[SSAValue, SSAValue, SSAValue, SSAValue], None]) -> None:
    """``body(image's first pixel, row, column, result pixel)`` for every pixel of the result, in order."""

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


@dataclass(frozen=True)
class _Pooling:
    """How windows of one kind of elements are combined. Codes are 32-bit sums less ``zero`` meanwhile."""

    w: Loops
    how: int
    element: Attribute
    zero: int

    @property
    def real(self) -> bool:
        return self.element == f32

    def initial(self) -> SSAValue:
        if self.real:
            return self.w.constant(float("-inf") if self.how == MAX else 0.0, _REAL)
        return self.w.constant(-(1 << 31) if self.how == MAX else 0, SUMS)

    def combine(self, state: SSAValue, value: SSAValue) -> SSAValue:
        w = self.w
        if self.real:
            if self.how == ROOT:
                return w.fused(value, value, state)
            return larger(w, value, state) if self.how == MAX else w.emit(arith.AddfOp(state, value))
        wide = _whole(w, value, self.element)
        return w.most(state, wide) if self.how == MAX else w.add(state, w.sub(wide, self.zeros()))

    def zeros(self) -> SSAValue:
        return self.w.constant(self.zero, SUMS)

    def finish(self, state: SSAValue, taps: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
        w = self.w
        if self.real:
            if self.how != MAX:
                state = w.emit(arith.DivfOp(state, w.broadcast(w.emit(arith.SIToFPOp(taps, f32)), LANES)))
            if self.how == ROOT:
                state = w.intrinsic(f"llvm.sqrt.v{LANES}f32", [state], _REAL)
            return clamped(w, state, low, high)
        if self.how == AVERAGE:
            count, sign = w.broadcast(taps, LANES), w.shift_right(state, 31)
            half = w.sub(w.xor(w.shift_right(count, 1), sign), sign)
            state = w.add(w.emit(arith.DivSIOp(w.add(state, half), count)), self.zeros())
        return w.narrow(w.least(w.most(state, low), high), lanes(LANES, self.element))


def _whole(w: Loops, value: SSAValue, element: Attribute) -> SSAValue:
    """Codes as 32-bit numbers."""
    return w.widen_unsigned(value, SUMS) if element == i8 else w.widen(value, SUMS)


@kernel_by_options(_pool)
def pool_inside(w: Loops, helpers: Helpers, *, how: int, kind: int, zero: int) -> None:
    """Pools of what of each window is inside the image; ``ys`` and ``xs`` have where it begins and ends.

    Means of codes are those of codes less ``zero``, rounded to nearest, halves away from zero.
    """
    pooling = _Pooling(w, how, _ELEMENTS[KINDS[kind]], zero)
    low, high = (w.broadcast(w[name], LANES) for name in ("low", "high"))
    initial = pooling.initial()

    def pixel(first: SSAValue, y: SSAValue, x: SSAValue, place: SSAValue) -> None:
        top, bottom = _pair(w, "ys", y)
        left, right = _pair(w, "xs", x)
        taps = w.emit(arith.IndexCastOp(w.mul(w.sub(bottom, top), w.sub(right, left)), i32))

        def block(channel: SSAValue) -> None:
            def row(ky: SSAValue, outer: Sequence[SSAValue]) -> Sequence[SSAValue]:
                begin = w.add(first, w.mul(ky, w["width"]))

                def column(kx: SSAValue, inner: Sequence[SSAValue]) -> Sequence[SSAValue]:
                    source = w.add(w.mul(w.add(begin, kx), w["channels"]), channel)
                    return [pooling.combine(inner[0], w.load_lanes(w["input"], source, LANES))]

                return w.loop(left, right, 1, column, outer)

            found = w.loop(top, bottom, 1, row, [initial])[0]
            result = pooling.finish(found, taps, low, high)
            w.store_lanes(result, w["output"], w.add(w.mul(place, w["channels"]), channel))

        w.each(0, w["channels"], LANES, block)

    _each_pixel(w, pixel)


def _interpolate(options: Options) -> Parameters:
    type = buffer(_ELEMENTS[KINDS[options["kind"]]])
    weights = WORDS if options["fixed"] else REALS
    return {"input": type, "output": type, "ys": WORDS, "xs": WORDS, "wy": weights, "wx": weights, **_SIZES}


@dataclass(frozen=True)
class _Interpolation:
    """How four neighbours are added up: as integers, 16-bit codes in 64 bits, or as reals. 8-bit codes are raised."""

    w: Loops
    element: Attribute
    fixed: bool

    def term(self, value: SSAValue, *weights: SSAValue) -> SSAValue:
        w = self.w
        if self.fixed and self.element == i16:
            value, weights = w.widen(value, _LONG), tuple(w.widen(weight, _LONG) for weight in weights)
        elif self.element != f32:
            value = _whole(w, value, self.element)
            value = w.sub(value, w.constant(128, SUMS)) if self.fixed else w.emit(llvm.SIToFPOp(value, _REAL))
        for weight in weights:
            value = w.mul(value, weight) if self.fixed else w.emit(arith.MulfOp(value, weight))
        return value

    def sum(self, terms: Sequence[SSAValue]) -> SSAValue:
        total = terms[0]
        for term in terms[1:]:
            total = self.w.add(total, term) if self.fixed else self.w.emit(arith.AddfOp(total, term))
        return total

    def result(self, value: SSAValue) -> SSAValue:
        w = self.w
        if self.element == f32:
            return value
        if self.fixed:
            bits, raised = (64, 0) if self.element == i16 else (32, 128)
            whole = w.shift_right(w.add(w.add(value, w.shift_right(value, bits - 1)), 1 << 19), 20)
            return w.narrow(w.add(whole, raised), lanes(LANES, self.element))
        if self.element == i8:
            value = w.emit(arith.AddfOp(value, w.constant(0.5, _REAL)))
        else:
            value = w.intrinsic(f"llvm.roundeven.v{LANES}f32", [value], _REAL)
        whole = w.intrinsic(f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", [value], SUMS)
        return w.narrow(whole, lanes(LANES, self.element))


@kernel_by_options(_interpolate)
def interpolate(w: Loops, helpers: Helpers, *, kind: int, fixed: int) -> None:
    """Four neighbours by their weights, in the order and precision of numerics.resize.

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
